//! The options of an application's workload, which `generate` and `search` share: levels of the factors of experiments.

use clap::Args;
use lab::factor::find;
use lab::method::Params;
use lab::point::Point;
use lab::suite::UsageError;

use super::Error;
use crate::application::ApplicationKind;
use crate::workload::params::WorkloadParams;

/// An application and the levels of its workload.
#[derive(Debug, Args)]
pub(super) struct WorkloadOptions {
    /// Application that processes the packets
    #[arg(long, value_enum, value_name = "NAME")]
    pub(super) application: Option<ApplicationKind>,
    /// Which flows packets have, or which keys requests: in-turn, cached (16 flows), syn-flood, uniform, or a Zipf
    /// distribution, e.g. zipf-0.99 [default: in-turn; of key-value: zipf-0.99]
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Share of GETs among the requests, in per cent; key-value only [default: 50]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    get_share: Option<String>,
    /// Requests per packet; key-value only [default: 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    requests_per_packet: Option<String>,
    /// Share of the lines that report a failure, in per cent; log-monitor only [default: 10]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    match_share: Option<String>,
}

/// Maximum number of keys of the key-value store: as many as a partition addresses.
pub(super) const MAX_KEYS: i64 = 1 << 40;

/// Workload of the key-value store unless `--workload` is given: requests are not sent in turn.
const OF_REQUESTS: &str = "zipf-0.99";

/// Returns a usage error because an option has no meaning.
pub(super) fn meaningless(option: &str, why: &str) -> UsageError {
    UsageError::new(format!("{option}: {why}; omit it"))
}

impl WorkloadOptions {
    /// Returns the first option that is given although there is no application to which it belongs.
    pub(super) fn given(&self) -> Option<&'static str> {
        let each = [
            ("--workload", &self.workload),
            ("--get-share", &self.get_share),
            ("--requests-per-packet", &self.requests_per_packet),
            ("--match-share", &self.match_share),
        ];
        each.into_iter().find_map(|(name, given)| given.as_ref().map(|_| name))
    }

    /// Returns the factors that the options set, with their levels as given.
    ///
    /// # Errors
    /// Returns a usage error if an option is about another application.
    pub(super) fn levels(
        &self,
        application: ApplicationKind,
    ) -> Result<Vec<(&'static str, String)>, UsageError> {
        let is_store = application == ApplicationKind::KeyValue;
        let is_monitor = application == ApplicationKind::LogMonitor;
        for (option, given, has, what) in [
            ("--get-share", &self.get_share, is_store, "only key-value gets requests"),
            (
                "--requests-per-packet",
                &self.requests_per_packet,
                is_store,
                "only key-value gets requests",
            ),
            ("--match-share", &self.match_share, is_monitor, "only log-monitor gets lines"),
        ] {
            if given.is_some() && !has {
                return Err(meaningless(option, what));
            }
        }
        let workload = self.workload.clone().or(is_store.then(|| OF_REQUESTS.to_owned()));
        let given = [
            ("workload", workload),
            ("get_share", self.get_share.clone()),
            ("requests_per_packet", self.requests_per_packet.clone()),
            ("match_share", self.match_share.clone()),
        ];
        Ok(given.into_iter().filter_map(|(name, level)| Some((name, level?))).collect())
    }

    /// Returns the params of the workload.
    ///
    /// # Errors
    /// Returns a usage error if an option is about another application, or a level is unknown.
    pub(super) fn params(&self, application: ApplicationKind) -> Result<WorkloadParams, Error> {
        let level = |(name, text): (&str, String)| {
            find(WorkloadParams::FACTORS, name)?.level(&text).map(|level| (name.to_string(), level))
        };
        let point = self.levels(application)?.into_iter().map(level);
        let point = point.collect::<Result<Point, String>>().map_err(UsageError::new)?;
        let params = WorkloadParams::with_defaults(&point);
        Ok(params.map_err(|why| UsageError::new(why.to_string()))?)
    }
}
