//! Whether a file lies on a disk that its cloud empties when the machine is stopped.
//!
//! The kernel has the disk's model in sysfs. The names are those that the clouds document: Amazon
//! ("Amazon EC2 NVMe Instance Storage"; network volumes are "Amazon Elastic Block Store"), Google
//! ("nvme_card" and "EphemeralDisk"; network volumes are "nvme_card-pd" and "PersistentDisk") and
//! Microsoft ("Microsoft NVMe Direct Disk"; network volumes are "MSFT NVMe Accelerator").
//!
//! Deliberately absent: guesses. A disk of another model is taken for one that keeps its contents,
//! and who knows better says `--ephemeral`.

use std::path::Path;

use tiersmith_block::Disk;

/// The model of the first such disk below the file system that has the file `path`, or will have
/// it.
pub(crate) fn emptied_at_stop(path: &Path) -> Option<String> {
    Disk::below(path).iter().filter_map(Disk::model).find(|model| is_emptied(model))
}

fn is_emptied(model: &str) -> bool {
    model == "Amazon EC2 NVMe Instance Storage"
        || model == "nvme_card"
        || model == "EphemeralDisk"
        || model.starts_with("Microsoft NVMe Direct Disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_disk_of_a_cloud_is_known_by_its_model_and_a_network_volume_is_not() {
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
            assert_eq!(is_emptied(model), emptied, "{model}");
        }
        assert_eq!(emptied_at_stop(Path::new("/proc/self")), None);
    }
}
