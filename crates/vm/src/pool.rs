//! A pool of memory that several hosts share behind an address filter, as ESCAPE's hosts share the memory of an FPGA.
//!
//! Each range of the pool is a backing file, and each host has its own device for a range:
//!
//! - memory on the file if it may read and write,
//! - read-only memory on the file if it may read,
//! - a private copy whose stores are forwarded if it may write, and
//! - no device if it may do neither.
//!
//! The ranges are at consecutive physical addresses of every host. No instruction of a guest changes its devices.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backing_file::{BackingFile, Folder};
use crate::forwarder::{Forwarder, WriteOnly};
use crate::rules::{HOSTS, Permission, Rules};

/// Start of the names of its files; the index of the range follows.
const RANGE: &str = "range-";

/// Returns whether a pool may have a file of this name.
pub(crate) fn has_file(name: &str) -> bool {
    name.strip_prefix(RANGE).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A pool in a declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Physical address of the first range.
    pub address: String,
}

/// Devices of a pool for one host.
#[derive(Debug, Default)]
pub(crate) struct HostPool {
    /// Arguments of QEMU.
    pub(crate) arguments: Vec<String>,
    /// The backing files that they name.
    pub(crate) files: Vec<BackingFile>,
    write_only: Vec<WriteOnly>,
}

impl HostPool {
    /// Starts to forward stores to its write-only ranges, if it has any. Only the process that starts the host does: another
    /// one forwards from the same files.
    pub(crate) fn start_forwarder(&mut self) -> Option<Arc<Forwarder>> {
        let ranges = std::mem::take(&mut self.write_only);
        (!ranges.is_empty()).then(|| Arc::new(Forwarder::start(ranges)))
    }
}

impl Pool {
    /// Returns the physical address of the first range.
    ///
    /// # Errors
    /// Returns one line if the declaration states no address.
    pub(crate) fn base_address(&self) -> Result<u64, String> {
        lab::option::address(&self.address).ok_or_else(|| {
            format!("pool: '{}' is not an address; write e.g. 0x2080000000", self.address)
        })
    }

    /// Creates the ranges, in memory or in `folder`, and what each host has of them.
    ///
    /// # Errors
    /// Returns one line if a file cannot be made or mapped, or the address is not one.
    pub(crate) fn hosts(
        &self,
        rules: &Rules,
        folder: Option<Folder>,
    ) -> Result<[HostPool; HOSTS], String> {
        let base = self.base_address()?;
        let mut hosts: [HostPool; HOSTS] = Default::default();
        for (index, range) in rules.ranges.iter().enumerate() {
            let bytes = range.length as u64;
            let name = format!("{RANGE}{index}");
            let file = BackingFile::create(&name, bytes, folder)?;
            for (host, pool) in hosts.iter_mut().enumerate() {
                let (file, is_read_only) = match range.permissions[host] {
                    Permission::None => continue,
                    Permission::Read => (file.clone(), true),
                    Permission::ReadWrite => (file.clone(), false),
                    Permission::WriteOnly => {
                        let copy =
                            BackingFile::create(&format!("{name}-of-{host}"), bytes, folder)?;
                        let [from, to] = [copy.to_file()?, file.to_file()?];
                        pool.write_only.push(WriteOnly::new(&copy.name, from, to, range.length)?);
                        (copy, false)
                    }
                };
                let address = base.saturating_add(range.offset as u64);
                pool.arguments.extend(device(&file.name, bytes, address, is_read_only));
                pool.files.push(file);
            }
        }
        Ok(hosts)
    }
}

/// Returns the arguments of a memory device at a physical address.
fn device(name: &str, bytes: u64, address: u64, is_read_only: bool) -> [String; 4] {
    let (readonly, unarmed) = if is_read_only { (",readonly=on", ",unarmed=on") } else { ("", "") };
    [
        "-object".into(),
        format!(
            "memory-backend-file,id={name},mem-path={{{name}}},size={bytes},share=on{readonly}"
        ),
        "-device".into(),
        format!("nvdimm,memdev={name},addr={address:#x}{unarmed}"),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::backing_file::FolderLock;

    #[test]
    fn the_embedded_pool_has_a_slot_for_each_range() {
        let memory = crate::declaration::find("pool").unwrap().declaration.memory;
        let slots = memory.split(',').find_map(|one| one.strip_prefix("slots=")).unwrap();
        assert!(slots.parse::<usize>().unwrap() >= crate::rules::MAX_RUN_RANGES, "{memory}");
    }

    #[test]
    fn a_host_that_is_not_started_forwards_nothing() {
        let text = "[[range]]\nname = 'a'\nlength = '4 KiB'\nread = [1]\nwrite = [0]\n";
        let rules = Rules::read("mine.toml", text, 1).unwrap();
        let pool = Pool { address: "0x2080000000".into() };
        let folder = tempfile::tempdir().unwrap();
        let lock = Arc::new(FolderLock::take(folder.path(), false).unwrap());
        let write = |byte: u8| {
            // Not truncated, which would end a forwarder.
            let copy = File::options().write(true).open(folder.path().join("range-0-of-0"));
            copy.unwrap().write_all_at(&[byte; machine::mapping::PAGE], 0).unwrap();
        };
        let stored = |is_started: bool| {
            let [mut writer, _] =
                pool.hosts(&rules, Some(Folder { path: folder.path(), lock: &lock })).unwrap();
            let forwarder = if is_started { writer.start_forwarder() } else { None };
            write(7);
            // A forwarder forwards the last stores when it is dropped.
            drop((forwarder, writer));
            std::fs::read(folder.path().join("range-0")).unwrap()[0]
        };
        assert_eq!(stored(false), 0);
        write(0);
        assert_eq!(stored(true), 7);
    }

    #[test]
    fn each_host_has_devices_by_its_permissions() {
        let range = |read: &str, write: &str| {
            format!("[[range]]\nname = 'a'\nlength = '8 KiB'\nread = {read}\nwrite = {write}\n")
        };
        let text = [range("[0, 1]", "[0]"), range("[]", "[]"), range("[1]", "[0]")].concat();
        let rules = Rules::read("mine.toml", &text, 1).unwrap();
        let pool = Pool { address: "0x2080000000".into() };
        let folder = tempfile::tempdir().unwrap();
        let lock = Arc::new(FolderLock::take(folder.path(), false).unwrap());
        let folder = Folder { path: folder.path(), lock: &lock };
        let [mut first, mut second] = pool.hosts(&rules, Some(folder)).unwrap();
        let devices = |host: &HostPool| {
            host.arguments
                .iter()
                .filter(|one| one.starts_with("nvdimm"))
                .cloned()
                .collect::<Vec<_>>()
        };
        let (at_0, at_2) = ("nvdimm,memdev=range-0,addr=0x2080000000", "addr=0x2080004000");
        assert_eq!(
            devices(&first),
            [at_0.to_owned(), format!("nvdimm,memdev=range-2-of-0,{at_2}")]
        );
        let unarmed = |start: String| format!("{start},unarmed=on");
        assert_eq!(
            devices(&second),
            [at_0.to_owned(), format!("nvdimm,memdev=range-2,{at_2}")].map(unarmed)
        );
        assert!(second.arguments.iter().filter(|one| one.contains("readonly=on")).count() == 2);
        assert!(first.start_forwarder().is_some() && second.start_forwarder().is_none());
        let pool = Pool { address: "there".into() };
        assert!(pool.hosts(&rules, None).unwrap_err().contains("'there' is not an address"));
    }
}
