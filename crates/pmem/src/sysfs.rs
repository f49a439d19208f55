//! What the kernel says about persistent memory in sysfs: DAX devices, persistence domains, huge
//! pages.
//!
//! The place of sysfs is a parameter, so that tests can describe machines that are not there.
//! Invariant: what sysfs does not say is `Unknown` or an error, never guessed.

use std::io;
use std::path::{Path, PathBuf};

use crate::open::io_error;
use crate::report::PersistenceDomain;
use crate::{Access, Error, FRAME};

/// Where the kernel describes its devices.
pub(crate) const SYSFS: &str = "/sys";

/// Whether the setting lets tmpfs use huge pages for a mapping that asks for them.
pub(crate) fn transparent_huge_pages(sysfs: &Path) -> bool {
    let setting =
        std::fs::read_to_string(sysfs.join("kernel/mm/transparent_hugepage/shmem_enabled"));
    setting.is_ok_and(|text| {
        ["[always]", "[within_size]", "[advise]", "[force]"].iter().any(|word| text.contains(word))
    })
}

/// Whether the kernel takes its time from the processor's counter, which then runs at one speed on
/// all processors.
pub(crate) fn time_is_counted(sysfs: &Path) -> bool {
    let source = std::fs::read_to_string(
        sysfs.join("devices/system/clocksource/clocksource0/current_clocksource"),
    );
    source.is_ok_and(|source| source.trim() == "tsc")
}

/// Where data is safe, as the kernel's NVDIMM regions say. One region that needs flushes makes all
/// need them.
pub(crate) fn domain(sysfs: &Path, access: Access) -> PersistenceDomain {
    if !matches!(access, Access::Dax | Access::DevDax) {
        return PersistenceDomain::None;
    }
    let mut found: Option<PersistenceDomain> = None;
    let regions = std::fs::read_dir(sysfs.join("bus/nd/devices")).into_iter().flatten().flatten();
    for region in regions.filter(|entry| entry.file_name().to_string_lossy().starts_with("region"))
    {
        let said =
            std::fs::read_to_string(region.path().join("persistence_domain")).unwrap_or_default();
        let this = match said.trim() {
            "cpu_cache" => PersistenceDomain::CpuCache,
            "memory_controller" => PersistenceDomain::MemoryController,
            _ => PersistenceDomain::Unknown,
        };
        found = Some(match (found, this) {
            (None, this) => this,
            (Some(PersistenceDomain::CpuCache), this) => this,
            (Some(other), PersistenceDomain::CpuCache) => other,
            (Some(PersistenceDomain::Unknown), _) | (_, PersistenceDomain::Unknown) => {
                PersistenceDomain::Unknown
            }
            (Some(other), _) => other,
        });
    }
    found.unwrap_or(PersistenceDomain::Unknown)
}

/// A DAX character device as sysfs describes it.
#[derive(Debug)]
pub(crate) struct DaxDevice {
    /// Bytes, in whole units of `align`.
    pub(crate) len: u64,
    /// Mappings are multiples of this.
    pub(crate) align: u64,
    /// It is part of an NVDIMM region. Others are ordinary memory that the firmware or the kernel's
    /// command line set apart, or volatile CXL memory.
    pub(crate) persistent: bool,
}

impl DaxDevice {
    /// The device of number `rdev`, which was opened as `path`.
    pub(crate) fn find(sysfs: &Path, path: &Path, rdev: u64) -> Result<DaxDevice, Error> {
        let directory =
            sysfs.join(format!("dev/char/{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev)));
        let subsystem = std::fs::canonicalize(directory.join("subsystem")).unwrap_or_default();
        if subsystem.file_name() != Some("dax".as_ref()) {
            return Err(Error::NotDevDax {
                path: path.to_owned(),
                found: "a character device of another kind",
            });
        }
        let number = |name: &str| -> Result<u64, Error> {
            let file: PathBuf = directory.join(name);
            let text = std::fs::read_to_string(&file)
                .map_err(|source| io_error("reading the sysfs attributes of", path, source))?;
            let text = text.trim();
            let parsed = match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => text.parse(),
            };
            parsed.map_err(|source| {
                io_error("reading the sysfs attributes of", path, io::Error::other(source))
            })
        };
        let len = number("size")?;
        // Kernels since 5.10 have `align` on the device itself, older ones under `device/`.
        let align = number("align").or_else(|_| number("device/align"))?;
        if !align.is_power_of_two() || align < FRAME as u64 {
            return Err(Error::BadLength {
                path: path.to_owned(),
                len: align,
                reason: "the device's alignment is not a power of two of at least 4096",
            });
        }
        Ok(DaxDevice { len: len / align * align, align, persistent: is_below_nvdimm(&directory) })
    }
}

/// Whether a device above this one in the tree of devices is on the NVDIMM bus.
fn is_below_nvdimm(directory: &Path) -> bool {
    let Ok(device) = std::fs::canonicalize(directory) else { return false };
    device.ancestors().any(|above| {
        std::fs::canonicalize(above.join("subsystem"))
            .is_ok_and(|bus| bus.file_name() == Some("nd".as_ref()))
    })
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use std::fs;

    fn machine(domains: &[&str]) -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        for (number, domain) in domains.iter().enumerate() {
            let region = sysfs.path().join(format!("bus/nd/devices/region{number}"));
            fs::create_dir_all(&region).unwrap();
            fs::write(region.join("persistence_domain"), format!("{domain}\n")).unwrap();
        }
        // Not a region, and not asked.
        fs::create_dir_all(sysfs.path().join("bus/nd/devices/namespace0.0")).unwrap();
        sysfs
    }

    #[test]
    fn caches_are_in_the_domain_only_when_every_region_says_so() {
        use PersistenceDomain::*;
        for (said, expected) in [
            (&["cpu_cache", "cpu_cache"][..], CpuCache),
            (&["cpu_cache", "memory_controller"], MemoryController),
            (&["memory_controller", "cpu_cache"], MemoryController),
            (&["memory_controller", ""], Unknown),
            (&["", "cpu_cache"], Unknown),
            (&[], Unknown),
        ] {
            assert_eq!(domain(machine(said).path(), Access::Dax), expected, "{said:?}");
        }
    }

    #[test]
    fn emulated_memory_has_no_domain_whatever_the_machine_has() {
        assert_eq!(
            domain(machine(&["cpu_cache"]).path(), Access::Emulated),
            PersistenceDomain::None
        );
    }

    fn device(subsystem: &str, attributes: &[(&str, &str)]) -> tempfile::TempDir {
        device_below("nd", subsystem, attributes)
    }

    fn device_below(bus: &str, subsystem: &str, attributes: &[(&str, &str)]) -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().unwrap();
        let root = sysfs.path();
        let region = root.join("devices/bus0/region0");
        let directory = region.join("dax0.7");
        fs::create_dir_all(directory.join("device")).unwrap();
        fs::create_dir_all(root.join("dev/char")).unwrap();
        std::os::unix::fs::symlink(&directory, root.join("dev/char/252:7")).unwrap();
        for (device, bus) in [(&directory, subsystem), (&region, bus)] {
            fs::create_dir_all(root.join("bus").join(bus)).unwrap();
            std::os::unix::fs::symlink(root.join("bus").join(bus), device.join("subsystem"))
                .unwrap();
        }
        for (name, value) in attributes {
            fs::write(directory.join(name), value).unwrap();
        }
        sysfs
    }

    fn find(sysfs: &tempfile::TempDir) -> Result<DaxDevice, Error> {
        DaxDevice::find(sysfs.path(), Path::new("/dev/dax0.7"), rustix::fs::makedev(252, 7))
    }

    #[test]
    fn a_dax_device_has_the_size_and_alignment_sysfs_gives() {
        let found = find(&device("dax", &[("size", "6291456\n"), ("align", "2097152\n")])).unwrap();
        assert_eq!((found.len, found.align), (6 << 20, 2 << 20));
    }

    #[test]
    fn a_dax_device_that_is_not_on_the_nvdimm_bus_is_ordinary_memory() {
        let attributes = [("size", "6291456"), ("align", "2097152")];
        for (bus, persistent) in [("nd", true), ("platform", false), ("cxl", false)] {
            let found = find(&device_below(bus, "dax", &attributes)).unwrap();
            assert_eq!(found.persistent, persistent, "{bus}");
        }
    }

    #[test]
    fn older_kernels_keep_the_alignment_one_level_down_and_in_hex() {
        let found = find(&device("dax", &[("size", "0x600000\n"), ("device/align", "0x200000\n")]))
            .unwrap();
        assert_eq!((found.len, found.align), (6 << 20, 2 << 20));
    }

    #[test]
    fn a_device_without_whole_units_loses_the_rest() {
        let found = find(&device("dax", &[("size", "3145728"), ("align", "2097152")])).unwrap();
        assert_eq!(found.len, 2 << 20);
    }

    #[test]
    fn another_character_device_is_refused() {
        let error = find(&device("tty", &[("size", "6291456"), ("align", "2097152")])).unwrap_err();
        assert!(matches!(error, Error::NotDevDax { .. }), "{error}");
    }

    #[test]
    fn a_device_with_nonsense_for_attributes_is_refused() {
        for attributes in [
            &[("size", "much"), ("align", "2097152")][..],
            &[("size", "6291456"), ("align", "3")],
            &[("size", "6291456")],
        ] {
            assert!(find(&device("dax", attributes)).is_err(), "{attributes:?}");
        }
    }
}
