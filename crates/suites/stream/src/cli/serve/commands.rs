//! The commands of the applications, with the options that differ.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use applications::maglev::table::{self, MAX_BACKENDS};
use applications::telemetry::ONE_IN;
use clap::Args;
use clap::builder::RangedI64ValueParser;
use lab::quantity;
use lab::suite::UsageError;

use super::options::ServeOptions;
use crate::application::{
    ApplicationError, ApplicationSpec, BACKENDS, SEED, backend_addresses, keys_within,
};
use crate::cli::Error;
use crate::cli::workload::MAX_KEYS;
use crate::suite::params::MAX_NOPS;

/// Options of `tollgate stream echo`.
#[derive(Debug, Args)]
pub(crate) struct EchoOptions {
    #[command(flatten)]
    serve: ServeOptions,
    /// NOP instructions per packet
    #[arg(default_value_t = 0, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_NOPS)))]
    nops: u32,
}

/// Options of `tollgate stream maglev`.
#[derive(Debug, Args)]
pub(crate) struct MaglevOptions {
    #[command(flatten)]
    serve: ServeOptions,
    /// Number of backends, with addresses from 10.1.0.0 up
    #[arg(long, value_name = "N", default_value_t = BACKENDS, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=MAX_BACKENDS as i64))]
    backends: u32,
    /// Address of a backend, in place of --backends (repeatable)
    #[arg(long, value_name = "ADDRESS", conflicts_with = "backends")]
    backend: Vec<Ipv4Addr>,
    /// As in Ensō's evaluation: keys of 32 bits, and checksums are not updated
    #[arg(long)]
    enso: bool,
}

/// Options of `tollgate stream key-value`.
#[derive(Debug, Args)]
pub(crate) struct KeyValueOptions {
    #[command(flatten)]
    serve: ServeOptions,
    /// Number of keys of all cores, each of which has one partition [default: as many as --memory permits, at most 192 Mi]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = RangedI64ValueParser::<u64>::new().range(1..=MAX_KEYS), conflicts_with = "memory")]
    keys: Option<u64>,
    /// Memory of the store [default: a quarter of the free memory]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = quantity::bytes)]
    memory: Option<u64>,
    /// Store the keys that the generator's clients request before the first packet
    #[arg(long)]
    fill: bool,
}

/// Options of `tollgate stream log-monitor`.
#[derive(Debug, Args)]
pub(crate) struct LogMonitorOptions {
    #[command(flatten)]
    serve: ServeOptions,
    /// Rule file in fail2ban's format (repeatable) [default: ten built-in files]
    #[arg(long, value_name = "FILE")]
    rules: Vec<PathBuf>,
}

/// Options of `tollgate stream telemetry`.
#[derive(Debug, Args)]
pub(crate) struct TelemetryOptions {
    #[command(flatten)]
    serve: ServeOptions,
    /// Update each row of the sketch by one in N packets
    #[arg(long, value_name = "N", default_value_t = ONE_IN, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
    /// Seed of the sampling
    #[arg(long, default_value_t = SEED, allow_negative_numbers = true)]
    seed: u64,
}

/// A command that runs an application.
pub(crate) trait Serve {
    /// Returns the options of all applications, and the application.
    ///
    /// # Errors
    /// Returns why this machine cannot run it with its options.
    fn application(&self) -> Result<(&ServeOptions, ApplicationSpec), Error>;
}

impl Serve for EchoOptions {
    fn application(&self) -> Result<(&ServeOptions, ApplicationSpec), Error> {
        Ok((&self.serve, ApplicationSpec::Echo { nops: self.nops }))
    }
}

impl Serve for MaglevOptions {
    fn application(&self) -> Result<(&ServeOptions, ApplicationSpec), Error> {
        let backends = match &self.backend[..] {
            [] => backend_addresses(self.backends),
            listed => listed.into(),
        };
        table::check(&backends).map_err(|why| UsageError::new(format!("--backend: {why}")))?;
        let spec = match self.enso {
            true => ApplicationSpec::MaglevEnso { backends },
            false => ApplicationSpec::Maglev { backends },
        };
        Ok((&self.serve, spec))
    }
}

impl Serve for KeyValueOptions {
    fn application(&self) -> Result<(&ServeOptions, ApplicationSpec), Error> {
        let (free, cores) = (machine::proc::available_memory(), self.serve.cores());
        let memory = self.memory.unwrap_or(free / 4);
        let keys = match self.keys {
            Some(keys) => usize::try_from(keys).unwrap_or(usize::MAX),
            // Each partition has a power of two of entries.
            None => keys_within(memory, cores),
        };
        Ok((&self.serve, ApplicationSpec::key_value(keys, cores, self.fill, free)?))
    }
}

impl Serve for LogMonitorOptions {
    fn application(&self) -> Result<(&ServeOptions, ApplicationSpec), Error> {
        let spec = ApplicationSpec::log_monitor(&self.rules);
        let spec = spec.map_err(|why| match why {
            ApplicationError::Rules(why) => Error::from(UsageError::new(why.to_string())),
            why => why.into(),
        })?;
        Ok((&self.serve, spec))
    }
}

impl Serve for TelemetryOptions {
    fn application(&self) -> Result<(&ServeOptions, ApplicationSpec), Error> {
        let Self { serve, one_in, seed } = self;
        Ok((serve, ApplicationSpec::Telemetry { one_in: *one_in, seed: *seed }))
    }
}
