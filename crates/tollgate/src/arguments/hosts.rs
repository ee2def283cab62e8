//! Arguments about other hosts.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ResultsArgs;

/// The file that names hosts.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// File that names hosts [default: tollgate.toml in the working directory, if it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// One host on which a command runs, instead of on this one.
#[derive(Args)]
pub(crate) struct HostArgs {
    /// Host of tollgate.toml, or name for ssh, instead of this host
    #[arg(long, value_name = "HOST", conflicts_with = "guest")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// The hosts on which a run, or both sides of a comparison, are measured.
#[derive(Args)]
pub(crate) struct RunHosts {
    /// Host on which to measure, instead of on this one: of tollgate.toml, or a name for ssh; ROLE=HOST for one role of an
    /// experiment (repeatable)
    #[arg(long = "host", value_name = "HOST|ROLE=HOST")]
    pub(crate) hosts: Vec<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

#[derive(Subcommand)]
pub(crate) enum HostsCommand {
    /// Connect to hosts, install this program there, and list what is missing to measure everything
    Check {
        /// Hosts of tollgate.toml, or names for ssh [default: all of tollgate.toml]
        #[arg(value_name = "HOST")]
        hosts: Vec<String>,
        #[command(flatten)]
        config: ConfigArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print variables about hosts for a shell: eval "$(tollgate hosts env)"
    Env {
        /// Hosts of tollgate.toml, or names for ssh [default: all of tollgate.toml]
        #[arg(value_name = "HOST")]
        hosts: Vec<String>,
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Remove the programs that were installed on hosts
    Clean {
        /// Hosts of tollgate.toml, or names for ssh [default: all of tollgate.toml]
        #[arg(value_name = "HOST")]
        hosts: Vec<String>,
        #[command(flatten)]
        config: ConfigArgs,
    },
}

#[derive(Args)]
pub(crate) struct Logs {
    /// Hosts [default: all of the run]
    #[arg(value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    #[command(flatten)]
    pub(crate) results: ResultsArgs,
    /// Print new lines until Ctrl-C
    #[arg(short = 'f', long)]
    pub(crate) follow: bool,
}
