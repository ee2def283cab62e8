//! `tollgate stream pcap`: files of packets to send.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lab::suite::UsageError;

use super::Error;
use crate::wire::pcap;
use crate::wire::sample::{SampleError, SampleTraffic, Sizes};

/// Options of `tollgate stream pcap`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Files by the source's names, <packets>_<size>_<sources>_<destinations>.pcap, as 2_64_1_2.pcap; sizes are
    /// 64 to 1518, mixed, or each
    #[arg(value_name = "FILE", conflicts_with_all = ["packets", "size", "sources", "destinations", "folder"])]
    files: Vec<PathBuf>,
    /// How many packets; as many as destinations where nothing is said
    #[arg(long, allow_negative_numbers = true)]
    packets: Option<u32>,
    /// Bytes of each on the wire, with check sequence: 64 to 1518, mixed (7 of 64 B to 4 of 594 B and 1 of
    /// 1518 B), or each
    #[arg(long, default_value = "64", allow_negative_numbers = true)]
    size: Sizes,
    /// From how many addresses they come
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    sources: u32,
    /// To how many addresses they go: 192.168.0.0 and up, the echo's first pipe and up
    #[arg(long, default_value_t = 2, allow_negative_numbers = true)]
    destinations: u32,
    /// Where the file goes whose name is made of these
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

/// Writes the files, and prints where they are.
///
/// # Errors
/// One line: what, where, and what to do.
pub(crate) fn main(options: &Options) -> Result<i32, Error> {
    let mut out = lab::terminal::stdout();
    for (path, sample) in options.files()? {
        pcap::write(&path, &sample.traffic().map_err(wrong)?)?;
        writeln!(out, "{}", path.display())?;
    }
    Ok(0)
}

/// A sample that cannot be made is a slip on the command line, unless memory lacks.
fn wrong(why: SampleError) -> Error {
    match why {
        SampleError::Memory(_) => why.into(),
        _ => UsageError::new(why.to_string()).into(),
    }
}

impl Options {
    fn files(&self) -> Result<Vec<(PathBuf, SampleTraffic)>, Error> {
        if self.files.is_empty() {
            let Self { size, sources, destinations, .. } = *self;
            let packets = self.packets.unwrap_or(destinations);
            let sample = SampleTraffic { packets, size, sources, destinations };
            return Ok(vec![(self.folder.join(sample.to_string()), sample)]);
        }
        let named = self.files.iter().map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok((path.clone(), name.parse().map_err(wrong)?))
        });
        named.collect()
    }
}
