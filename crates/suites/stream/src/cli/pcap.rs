//! `tollgate stream pcap`: writes files of sample traffic.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lab::schema;
use lab::suite::UsageError;

use super::Error;
use super::json::{PcapFile, PcapOutput};
use crate::wire::pcap;
use crate::wire::sample::{SampleError, SampleTraffic, Sizes};

/// Options of `tollgate stream pcap`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Files named <packets>_<size>_<sources>_<destinations>.pcap, e.g. 2_64_1_2.pcap; sizes are 64 to 1518,
    /// imix, or each
    #[arg(value_name = "FILE", conflicts_with_all = ["packets", "size", "sources", "destinations", "folder"])]
    files: Vec<PathBuf>,
    /// Number of packets [default: the number of destinations]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    packets: Option<u32>,
    /// Packet size on the wire, including the frame check sequence (FCS): 64 to 1518 bytes, imix (64, 594 and
    /// 1518 B in the ratio 7:4:1), or each
    #[arg(long, default_value = "64", allow_negative_numbers = true)]
    size: Sizes,
    /// Number of source addresses
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    sources: u32,
    /// Number of destination addresses, from 192.168.0.0 up, one per pipe of the echo
    #[arg(long, value_name = "N", default_value_t = 2, allow_negative_numbers = true)]
    destinations: u32,
    /// Output folder for the generated file name
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Writes the files and prints their paths.
///
/// # Errors
/// Returns one line: what, the cause, and the fix.
pub(crate) fn main(options: &Options) -> Result<i32, Error> {
    let mut out = lab::terminal::stdout();
    let mut written = Vec::new();
    for (path, sample) in options.files()? {
        pcap::write(&path, &sample.traffic().map_err(to_error)?)?;
        if options.json {
            let SampleTraffic { packets, size, sources, destinations } = sample;
            let (file, size) = (path.display().to_string(), size.to_string());
            written.push(PcapFile { file, packets, size, sources, destinations });
        } else {
            writeln!(out, "{}", path.display())?;
        }
    }
    if options.json {
        let value = schema::to_value(&PcapOutput { files: written })?;
        writeln!(out, "{}", lab::terminal::json(&value))?;
    }
    Ok(0)
}

/// Converts an error to a usage error, except for a lack of memory.
fn to_error(why: SampleError) -> Error {
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
            Ok((path.clone(), name.parse().map_err(to_error)?))
        });
        named.collect()
    }
}
