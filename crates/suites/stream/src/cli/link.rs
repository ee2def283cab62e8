//! Options of the commands that send and receive through an interface of Linux, and what they report of it.

use std::sync::Arc;

use clap::Args;
use lab::option::{self, is_allowed};
use lab::suite::UsageError;

use super::Error;
use super::json::LinkOutput;
use crate::link::{self, ALLOW_NETWORK, Drops, Link, LinkKind, LinkParams, LinkStatus, interface};
use crate::nic::LinkMode;

/// Options about the link.
#[derive(Debug, Args)]
pub(super) struct LinkOptions {
    /// How packets pass an interface of Linux [default: af-xdp]
    #[arg(long, value_enum)]
    link: Option<LinkKind>,
    /// Queue of the interface; --link af-xdp only [default: the only one]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=65535))]
    queue: Option<u32>,
    /// Enable an opt-in feature: network, for interfaces of Linux (repeatable)
    #[arg(long, value_name = "FEATURE")]
    allow: Vec<String>,
}

/// A link's state, seen from the main thread.
pub(super) struct LinkWatch {
    name: String,
    mode: LinkMode,
    status: Arc<LinkStatus>,
    drops: Box<dyn Drops>,
    /// Received and sent packets that the interface had dropped before.
    before: [u64; 2],
}

/// Report of a command on its link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LinkSummary {
    name: String,
    mode: LinkMode,
    /// Received packets that are not of the traffic.
    stray: u64,
    /// Packets dropped on this side, by cause.
    dropped: Vec<(&'static str, u64)>,
}

impl LinkOptions {
    /// Checks that no option about links is given, because there is none.
    ///
    /// # Errors
    /// Returns a usage error.
    pub(super) fn check_unused(&self) -> Result<(), Error> {
        self.options()?;
        let name = match (&self.link, &self.queue) {
            (None, None) => return Ok(()),
            (Some(_), _) => "--link",
            (None, Some(_)) => "--queue",
        };
        let why =
            format!("{name}: is about an interface of Linux; name one, e.g. --interface veth0");
        Err(UsageError::new(why).into())
    }

    /// Opens a link at an interface.
    ///
    /// # Errors
    /// Returns a usage error unless it is allowed, or what is missing.
    pub(super) fn open(&self, interface: &str) -> Result<(Box<dyn Link>, LinkWatch), Error> {
        let kind = self.link.unwrap_or(LinkKind::AfXdp);
        if kind != LinkKind::Tap {
            // A misspelt name is reported first.
            interface::find(interface)?;
        }
        self.check_allowed(&format!(
            "--interface {interface}: takes the interface's packets from the kernel"
        ))?;
        if self.queue.is_some() && kind != LinkKind::AfXdp {
            let why = "--queue: only an AF_XDP socket has one queue; omit it, or use --link af-xdp";
            return Err(UsageError::new(why).into());
        }
        let params = LinkParams { interface: interface.to_owned(), kind, queue: self.queue };
        let link = link::open(&params)?;
        let watch = LinkWatch {
            name: params.interface,
            mode: link.mode(),
            status: Arc::default(),
            drops: link.drops()?,
            before: interface::find(interface)?.dropped,
        };
        Ok((link, watch))
    }

    /// Checks that links are allowed.
    ///
    /// # Errors
    /// Returns a usage error that begins with what is not allowed.
    pub(super) fn check_allowed(&self, what: &str) -> Result<(), UsageError> {
        match is_allowed(&self.options()?, ALLOW_NETWORK) {
            true => Ok(()),
            false => Err(UsageError::new(format!(
                "{what}, which is not allowed; add --allow network if nothing else needs them"
            ))),
        }
    }

    fn options(&self) -> Result<std::collections::BTreeMap<String, String>, UsageError> {
        option::read(&[&crate::SUITE], &self.allow, &[])
    }
}

impl LinkWatch {
    /// Returns the status that the link's thread sets.
    pub(super) fn status(&self) -> Arc<LinkStatus> {
        Arc::clone(&self.status)
    }

    /// Returns why the link cannot be used any more; `None` if it can.
    pub(super) fn failure(&self) -> Option<String> {
        if let Some(why) = self.status.error() {
            return Some(why.to_string());
        }
        let state = interface::find(&self.name).and_then(|interface| match interface.is_up {
            true => Ok(()),
            false => interface.check_up(),
        });
        state.err().map(|why| why.to_string())
    }

    /// Returns what is reported at the end.
    pub(super) fn summary(&mut self) -> LinkSummary {
        let mut dropped = self.drops.read();
        // Unknown if the interface has been removed.
        if let Ok(interface) = interface::find(&self.name) {
            let named = ["received, by the interface", "sent, by the interface"];
            let since = interface.dropped.into_iter().zip(self.before);
            let since = since.map(|(now, before)| now.saturating_sub(before));
            dropped.extend(named.into_iter().zip(since));
        }
        LinkSummary {
            name: self.name.clone(),
            mode: self.mode,
            stray: self.status.stray(),
            dropped,
        }
    }

    /// Returns how packets pass the interface.
    pub(super) fn mode(&self) -> LinkMode {
        self.mode
    }

    /// Describes the link, e.g. `veth0, AF_XDP, copy mode, native XDP`.
    pub(super) fn describe(&self) -> String {
        format!("{}, {}", self.name, self.mode)
    }
}

impl LinkSummary {
    /// Returns the first line.
    pub(super) fn title(&self) -> String {
        format!("interface {}: {}\n", self.name, self.mode)
    }

    /// Returns the lines about packets that were not of the traffic or dropped.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{:>10} {} received packets that are not of the traffic\n",
            "stray", self.stray
        );
        let each = self.dropped.iter().filter(|(_, packets)| *packets > 0);
        let each: Vec<_> = each.map(|(cause, packets)| format!("{packets} ({cause})")).collect();
        let dropped = if each.is_empty() { "none".into() } else { each.join(", ") };
        text += &format!("{:>10} {dropped}\n", "dropped");
        text
    }

    /// Returns the name of the interface.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fields of the JSON but the name.
    pub(super) fn json(&self) -> LinkOutput {
        let (zero_copy, native_xdp) = match self.mode {
            LinkMode::AfXdp { zero_copy, native } => (Some(zero_copy), Some(native)),
            LinkMode::AfPacket | LinkMode::Tap => (None, None),
        };
        LinkOutput {
            link: Some(self.mode.to_string()),
            zero_copy,
            native_xdp,
            stray: Some(self.stray),
            dropped_by_kernel: Some(self.dropped.iter().copied().collect()),
        }
    }
}
