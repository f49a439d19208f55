//! What storage the kernel says there is: block devices, persistent memory, DAX mounts, shared
//! memory.
//!
//! The place of sysfs is a parameter, so that tests can describe machines that are not there.
//!
//! **Invariant**: nothing is guessed: what the kernel does not say is left out.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::place::{FileSystem, bytes_free, mounts};

/// Where the kernel describes its devices.
pub const SYSFS: &str = "/sys";

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// For instance `nvme0n1`.
    pub name: String,
    /// As the device calls itself.
    pub model: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// Bytes of a sector as software sees it.
    pub logical_block_bytes: Option<u64>,
    /// It has turning disks, as it says.
    pub rotational: Option<bool>,
    /// `write back`: it has a cache that a flush empties.
    pub write_cache: Option<String>,
    /// It can be mapped (DAX).
    pub dax: Option<bool>,
}

/// A namespace of persistent memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// For instance `namespace0.0`.
    pub name: String,
    /// `raw`, `sector`, `fsdax`, `devdax`: how it is presented.
    pub access_mode: String,
    /// Its size.
    pub bytes: u64,
    /// Where data is safe, as the region says: `memory_controller`, `cpu_cache`.
    pub persistence_domain: Option<String>,
    /// Its block device, if it has one.
    pub block_device: Option<String>,
}

/// A directory where a tier could be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Where.
    pub path: PathBuf,
    /// What it is on.
    pub is_on: FileSystem,
    /// Bytes free there.
    pub bytes_free: u64,
    /// Contents survive a power cut: a DAX file system on persistent memory.
    pub persistent: bool,
}

/// Everything found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Block devices, those without a medium left out.
    pub block_devices: Vec<BlockDevice>,
    /// Persistent memory.
    pub namespaces: Vec<Namespace>,
    /// Character devices of persistent or set-apart memory.
    pub dax_devices: Vec<String>,
    /// Where a tier could be.
    pub candidates: Vec<Candidate>,
}

/// Looks around.
pub fn look(sysfs: &Path) -> Found {
    let mut candidates: Vec<Candidate> = mounts()
        .into_iter()
        .filter(|mount| mount.dax)
        .map(|mount| candidate(mount, true))
        .collect();
    candidates.extend(
        mounts().into_iter().filter(|m| m.at == Path::new("/dev/shm")).map(|m| candidate(m, false)),
    );
    // Of two mounts at one place the later one is seen.
    candidates.reverse();
    let mut seen = Vec::new();
    candidates.retain(|c| {
        !seen.contains(&c.path) && {
            seen.push(c.path.clone());
            true
        }
    });
    candidates.reverse();
    Found {
        block_devices: block_devices(sysfs),
        namespaces: namespaces(sysfs),
        dax_devices: names_in(&sysfs.join("bus/dax/devices")),
        candidates,
    }
}

fn candidate(is_on: FileSystem, persistent: bool) -> Candidate {
    Candidate { path: is_on.at.clone(), bytes_free: bytes_free(&is_on.at), is_on, persistent }
}

fn text(path: PathBuf) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number(path: PathBuf) -> Option<u64> {
    text(path)?.parse().ok()
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn block_devices(sysfs: &Path) -> Vec<BlockDevice> {
    let device = |name: String| {
        let dir = sysfs.join("block").join(&name);
        // sysfs counts in sectors of 512 bytes whatever the device's are.
        let bytes = number(dir.join("size"))?.checked_mul(512)?;
        // One of several ways to an NVMe disk has no device node, and the disk is there as well.
        if number(dir.join("hidden")) == Some(1) {
            return None;
        }
        let flag = |file: &str| number(dir.join("queue").join(file)).map(|flag| flag != 0);
        Some(BlockDevice {
            model: text(dir.join("device/model")),
            bytes,
            logical_block_bytes: number(dir.join("queue/logical_block_size")),
            rotational: flag("rotational"),
            write_cache: text(dir.join("queue/write_cache")),
            dax: flag("dax"),
            name,
        })
    };
    let passing = |name: &String| ["loop", "ram", "zram"].iter().any(|kind| name.starts_with(kind));
    let names = names_in(&sysfs.join("block")).into_iter().filter(|name| !passing(name));
    names.filter_map(device).filter(|device| device.bytes > 0).collect()
}

fn namespaces(sysfs: &Path) -> Vec<Namespace> {
    let devices = sysfs.join("bus/nd/devices");
    let namespace = |name: String| {
        let dir = devices.join(&name);
        let bytes = number(dir.join("size"))?;
        let region = name.strip_prefix("namespace")?.split('.').next()?.to_owned();
        Some(Namespace {
            access_mode: text(dir.join("mode")).map_or_else(|| "raw".into(), mode_word),
            persistence_domain: text(devices.join(format!("region{region}/persistence_domain"))),
            // One that another driver holds (fsdax, sector) has its device below the holder.
            block_device: names_in(&dir.join("block")).into_iter().next().or_else(|| {
                let holder =
                    devices.join(text(dir.join("holder")).filter(|name| !name.contains('/'))?);
                names_in(&holder.join("block")).into_iter().next()
            }),
            bytes,
            name,
        })
    };
    let names = names_in(&devices).into_iter().filter(|name| name.starts_with("namespace"));
    names.filter_map(namespace).filter(|namespace| namespace.bytes > 0).collect()
}

/// The kernel's word for a mode, in the glossary's.
fn mode_word(kernel: String) -> String {
    match kernel.as_str() {
        "memory" => "fsdax".into(),
        "dax" => "devdax".into(),
        "safe" => "sector".into(),
        _ => kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_with_a_disk_and_persistent_memory_is_described() {
        let sysfs = tempfile::tempdir().unwrap();
        let root = sysfs.path();
        write(root, "block/nvme0n1/size", "2048\n");
        write(root, "block/nvme0n1/device/model", "Fast One   \n");
        write(root, "block/nvme0n1/queue/rotational", "0\n");
        write(root, "block/nvme0c0n1/size", "2048\n");
        write(root, "block/nvme0c0n1/hidden", "1\n");
        write(root, "block/nvme0n1/queue/logical_block_size", "512\n");
        write(root, "block/loop0/size", "2048\n");
        write(root, "block/sr0/size", "0\n");
        write(root, "bus/nd/devices/namespace1.0/size", "1073741824\n");
        write(root, "bus/nd/devices/namespace1.0/mode", "memory\n");
        write(root, "bus/nd/devices/namespace1.0/holder", "pfn1.0\n");
        write(root, "bus/nd/devices/pfn1.0/block/pmem1/size", "1\n");
        write(root, "bus/nd/devices/namespace1.1/size", "1048576\n");
        write(root, "bus/nd/devices/namespace1.1/mode", "raw\n");
        write(root, "bus/nd/devices/namespace1.1/block/pmem1.1/size", "1\n");
        write(root, "bus/nd/devices/namespace1.2/size", "1048576\n");
        write(root, "bus/nd/devices/namespace1.2/mode", "safe\n");
        write(root, "bus/nd/devices/namespace1.2/holder", "btt1.0\n");
        write(root, "bus/nd/devices/btt1.0/block/pmem1.2s/size", "1\n");
        write(root, "bus/nd/devices/region1/persistence_domain", "memory_controller\n");
        write(root, "bus/nd/devices/namespace2.0/size", "0\n");
        write(root, "bus/dax/devices/dax0.0/size", "1\n");
        let found = look(root);
        assert_eq!(found.block_devices.len(), 1);
        let disk = &found.block_devices[0];
        assert_eq!(
            (disk.bytes, disk.model.as_deref(), disk.rotational),
            (1 << 20, Some("Fast One"), Some(false))
        );
        assert_eq!(disk.write_cache, None);
        let shown = |n: &Namespace| (n.access_mode.clone(), n.block_device.clone().unwrap());
        let shown: Vec<_> = found.namespaces.iter().map(shown).collect();
        let expected = [("fsdax", "pmem1"), ("raw", "pmem1.1"), ("sector", "pmem1.2s")];
        assert_eq!(shown, expected.map(|(mode, device)| (mode.into(), device.into())));
        let pmem = &found.namespaces[0];
        assert_eq!((pmem.access_mode.as_str(), pmem.bytes), ("fsdax", 1 << 30));
        assert_eq!(pmem.persistence_domain.as_deref(), Some("memory_controller"));
        assert_eq!(pmem.block_device.as_deref(), Some("pmem1"));
        assert_eq!(found.dax_devices, ["dax0.0"]);
    }

    #[test]
    fn a_machine_that_says_nothing_has_nothing() {
        let found = look(Path::new("/nowhere"));
        assert!(
            found.block_devices.is_empty()
                && found.namespaces.is_empty()
                && found.dax_devices.is_empty()
        );
    }
}
