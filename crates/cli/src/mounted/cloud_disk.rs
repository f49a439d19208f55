//! Whether a file lies on a disk that its cloud empties when the machine is stopped.
//!
//! The kernel has the disk's model in sysfs. The names are those that the clouds document: Amazon
//! ("Amazon EC2 NVMe Instance Storage"; network volumes are "Amazon Elastic Block Store"), Google
//! ("nvme_card" and "EphemeralDisk"; network volumes are "nvme_card-pd" and "PersistentDisk") and
//! Microsoft ("Microsoft NVMe Direct Disk"; network volumes are "MSFT NVMe Accelerator").
//!
//! Deliberately absent: guesses. A disk of another model is taken for one that keeps its contents,
//! and who knows better says `--ephemeral`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the kernel lists block devices by number.
const BLOCK_DEVICES: &str = "/sys/dev/block";

/// Stacked devices (partitions, LVM, RAID) deeper than this are not followed.
const DEPTH: usize = 8;

/// The model of the first such disk below the file system that has the file `path`, or will have
/// it.
pub(crate) fn emptied_at_stop(path: &Path) -> Option<String> {
    let there = [Some(path), path.parent()].into_iter().flatten();
    let device = there.filter_map(|path| path.metadata().ok()).next()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    below(&Path::new(BLOCK_DEVICES).join(format!("{major}:{minor}")), DEPTH)
}

fn below(device: &Path, depth: usize) -> Option<String> {
    let device = device.canonicalize().ok()?;
    if let Ok(model) = std::fs::read_to_string(device.join("device/model"))
        && is_emptied(model.trim())
    {
        return Some(model.trim().to_owned());
    }
    let further = depth.checked_sub(1)?;
    let mut lower: Vec<PathBuf> = std::fs::read_dir(device.join("slaves"))
        .map(|slaves| slaves.flatten().map(|slave| slave.path()).collect())
        .unwrap_or_default();
    lower.sort();
    if device.join("partition").exists() {
        lower.extend(device.parent().map(Path::to_path_buf));
    }
    lower.iter().find_map(|device| below(device, further))
}

fn is_emptied(model: &str) -> bool {
    model == "Amazon EC2 NVMe Instance Storage"
        || model == "nvme_card"
        || model == "EphemeralDisk"
        || model.starts_with("Microsoft NVMe Direct Disk")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A sysfs with a disk of this model, a partition of it, and LVM on that.
    fn sysfs(model: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let (disk, partition, volume) = (
            root.path().join("nvme0n1"),
            root.path().join("nvme0n1/nvme0n1p1"),
            root.path().join("dm-0"),
        );
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::write(disk.join("device/model"), format!("{model}   \n")).unwrap();
        fs::create_dir(&partition).unwrap();
        fs::write(partition.join("partition"), "1\n").unwrap();
        fs::create_dir_all(volume.join("slaves")).unwrap();
        symlink(&partition, volume.join("slaves/nvme0n1p1")).unwrap();
        symlink(&volume, root.path().join("253:0")).unwrap();
        root
    }

    #[test]
    fn a_local_disk_of_a_cloud_is_found_below_partitions_and_volumes_and_a_network_volume_is_not() {
        for (model, emptied) in [
            ("Amazon EC2 NVMe Instance Storage", true),
            ("Amazon Elastic Block Store", false),
            ("nvme_card", true),
            ("nvme_card-pd", false),
            ("EphemeralDisk", true),
            ("PersistentDisk", false),
            ("Microsoft NVMe Direct Disk v2", true),
            ("MSFT NVMe Accelerator v1.0", false),
            ("Samsung SSD 990 PRO 2TB", false),
        ] {
            let sysfs = sysfs(model);
            let found = below(&sysfs.path().join("253:0"), DEPTH);
            assert_eq!(found.as_deref(), emptied.then_some(model));
        }
    }

    #[test]
    fn a_ring_of_devices_and_a_file_system_without_one_end() {
        let sysfs = sysfs("some disk");
        symlink(sysfs.path().join("dm-0"), sysfs.path().join("dm-0/slaves/dm-0")).unwrap();
        assert_eq!(below(&sysfs.path().join("253:0"), DEPTH), None);
        assert_eq!(emptied_at_stop(Path::new("/proc/self")), None);
    }
}
