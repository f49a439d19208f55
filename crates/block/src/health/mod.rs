//! How well a disk is, as it and the kernel say: temperature, wear, spare blocks, media errors, bad
//! blocks.
//!
//! An NVMe disk is asked for its SMART log (`nvme.rs`, which needs root); its temperature is in
//! sysfs too, for everybody. Of persistent memory the kernel lists the bad blocks, and the firmware
//! says of each module whether it saves its contents.
//!
//! The place of sysfs is a parameter, so that tests can describe disks that are not there.
//!
//! Sources: NVM Express Base Specification 2.0, 5.16.1.3 (SMART / Health Information); the kernel's
//! Documentation/ABI/testing/sysfs-bus-nfit (flags of a module), sysfs-block (`badblocks` of
//! a disk), Documentation/hwmon/sysfs-interface.rst (`temp1_input`).
//!
//! **Invariant**: nothing is guessed. What nobody says is `None`, and [`Health::untold`] says why.
//! **Deliberately absent**: SATA and SAS disks, which `smartctl` asks; health over time.

mod nvme;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use nvme::SmartLog;

/// Where the kernel describes its devices.
const SYSFS: &str = "/sys";

/// A list in sysfs of so many bytes may have more: the kernel shows at most a page, and leaves out
/// what does not fit.
const SHOWN_MAX: usize = 4000;

/// Stacked devices (partitions, LVM, RAID) deeper than this are not followed.
const DEPTH: usize = 8;

/// A disk that the kernel knows: no partition, and nothing that is made of other disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its folder in sysfs, without links.
    sysfs: PathBuf,
}

/// What is known of how well a disk is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Health {
    /// As the kernel calls it, for instance `nvme0n1`.
    pub disk: String,
    /// What somebody should do something about, a sentence each.
    pub warnings: Vec<String>,
    /// Degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Percent of its life that is used, as its maker estimates; may pass 100.
    pub used_pct: Option<u8>,
    /// Percent of its spare blocks that are left.
    pub spare_pct: Option<u8>,
    /// The disk warns when [`Health::spare_pct`] falls below this.
    pub spare_least_pct: Option<u8>,
    /// Reads and writes that failed for its medium, ever.
    pub media_errors: Option<u64>,
    /// Bytes that hosts wrote, ever, to 512,000.
    pub written_bytes: Option<u64>,
    /// How often it lost power without being told before.
    pub unsafe_shutdowns: Option<u64>,
    /// Bytes of persistent memory of which the kernel knows that they cannot be read.
    pub bad_bytes: Option<u64>,
    /// Why there is not more here.
    pub untold: Option<String>,
}

impl Disk {
    /// The disk that the kernel calls so; none for what is made of other disks (RAID, LVM).
    pub fn named(name: &str) -> Option<Disk> {
        Disk::in_sysfs(Path::new(SYSFS), name)
    }

    fn in_sysfs(sysfs: &Path, name: &str) -> Option<Disk> {
        // A slash in a name is an exclamation mark in sysfs.
        let sysfs = sysfs.join("block").join(name.replace('/', "!")).canonicalize().ok()?;
        is_made_of(&sysfs).is_empty().then_some(Disk { sysfs })
    }

    /// The disks below a file, a directory or a device; below the place of a file that is not there
    /// yet. None for a file system without a block device of its own (tmpfs, overlay, btrfs, ZFS).
    pub fn below(path: &Path) -> Vec<Disk> {
        Disk::below_in(Path::new(SYSFS), path)
    }

    fn below_in(sysfs: &Path, path: &Path) -> Vec<Disk> {
        let there = [Some(path), path.parent()].into_iter().flatten();
        let Some(found) = there.filter_map(|path| path.metadata().ok()).next() else {
            return Vec::new();
        };
        let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Disk::below_number(sysfs, major, minor)
    }

    fn below_number(sysfs: &Path, major: u32, minor: u32) -> Vec<Disk> {
        let mut disks = Vec::new();
        follow(&sysfs.join("dev/block").join(format!("{major}:{minor}")), DEPTH, &mut disks);
        disks
    }

    /// As the kernel calls it.
    pub fn name(&self) -> String {
        let name = self.sysfs.file_name().unwrap_or_default().to_string_lossy();
        name.replace('!', "/")
    }

    /// As the disk calls itself.
    pub fn model(&self) -> Option<String> {
        text(&self.sysfs.join("device/model"))
    }

    /// Asks the disk and the kernel. An NVMe disk whose controller does not work is not asked; one
    /// that then does not answer holds this up until the kernel gives up, a minute.
    pub fn health(&self) -> Health {
        self.health_by(|name| nvme::smart_log(&Path::new("/dev").join(name)))
    }

    /// [`Disk::health`], with `ask` for the SMART log of an NVMe disk.
    fn health_by(&self, ask: impl FnOnce(&str) -> Result<SmartLog, String>) -> Health {
        let mut health =
            Health { disk: self.name(), temperature_c: self.temperature(), ..Health::default() };
        if health.disk.starts_with("nvme") {
            let ways = self.controllers();
            let log = match ways.first() {
                Some((name, state)) if ways.iter().all(|(_, state)| state != "live") => {
                    Err(format!("its controller {name} is not asked: it is `{state}`"))
                }
                _ => ask(&health.disk),
            };
            match log {
                Ok(log) => log.tell(&mut health),
                Err(why) => health.untold = Some(why),
            }
        } else if health.disk.starts_with("pmem") {
            self.persistent_memory(&mut health);
        } else if health.disk.starts_with("vd") || health.disk.starts_with("xvd") {
            health.untold = Some("it is a virtual disk, and only its host knows".into());
        } else {
            health.untold = Some(format!(
                "it is neither an NVMe disk nor persistent memory; `smartctl -a /dev/{}` asks a \
                 SATA or SAS disk",
                health.disk
            ));
        }
        health
    }

    /// The NVMe controllers through which it is reached, with the kernel's word for how each is.
    fn controllers(&self) -> Vec<(String, String)> {
        let device = self.sysfs.join("device");
        // Of a disk with several ways `device` is the subsystem, with a link to each controller.
        let ways = fs::read_dir(&device).into_iter().flatten().flatten().map(|entry| entry.path());
        [device.clone()]
            .into_iter()
            .chain(ways.filter(|path| path.join("subsystem").exists()))
            .filter_map(|path| {
                let state = text(&path.join("state"))?;
                let name = path.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned();
                name.starts_with("nvme").then_some((name, state))
            })
            .collect()
    }

    /// Of the first sensor. `device` has the sensor itself below it (NVMe), or a folder of sensors.
    fn temperature(&self) -> Option<f64> {
        let device = self.sysfs.join("device");
        let sensors = [device.clone(), device.join("hwmon")];
        let mut found: Vec<PathBuf> = sensors
            .iter()
            .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten())
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("hwmon"))
            .map(|entry| entry.path().join("temp1_input"))
            .collect();
        found.sort();
        let thousandths: f64 = found.iter().find_map(|file| text(file)?.parse().ok())?;
        Some(thousandths / 1000.0)
    }

    fn persistent_memory(&self, health: &mut Health) {
        let list = fs::read_to_string(self.sysfs.join("badblocks")).ok();
        let bad = list.as_deref().and_then(bad_blocks);
        health.bad_bytes = bad.map(|bad| bad.bytes);
        match bad {
            Some(bad) if bad.bytes > 0 || !bad.whole => health.warnings.push(format!(
                "{}{} bytes cannot be read: `ndctl list --media-errors` says which; what is \
                 written there anew can be read again",
                if bad.whole { "" } else { "at least " },
                bad.bytes
            )),
            Some(_) => {}
            None => health.untold = Some("the kernel shows no list of its bad blocks".into()),
        }
        let modules = self.modules();
        if modules.is_empty() && bad.is_some() {
            health.untold = Some("no firmware (NFIT) says how its modules are".into());
        }
        for (module, flags) in modules {
            for flag in flags.split_whitespace() {
                let meaning = match flag {
                    "not_armed" => "it will not save its contents at the next power cut",
                    "save_fail" => "it did not save its contents at the last power cut",
                    "restore_fail" => "it did not get its saved contents back",
                    "flush_fail" => "what was on its way at the last power cut is lost",
                    "map_fail" => "the firmware could not map it",
                    "smart_event" => "it reports an event about its health",
                    _ => continue,
                };
                health.warnings.push(format!(
                    "module {module}: {meaning} ({flag}); `ndctl list --dimms --health` says more"
                ));
            }
        }
    }

    /// The modules of the region that it is in, with the firmware's flags of each.
    fn modules(&self) -> Vec<(String, String)> {
        let is_region = |dir: &&Path| {
            dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with("region"))
        };
        let Some(region) = self.sysfs.ancestors().find(is_region) else { return Vec::new() };
        let Some(bus) = region.parent() else { return Vec::new() };
        let mapping = |n: usize| text(&region.join(format!("mapping{n}")));
        (0..)
            .map_while(mapping)
            .filter_map(|mapping| {
                let module = mapping.split(',').next()?.to_owned();
                let flags = text(&bus.join(&module).join("nfit/flags"))?;
                Some((module, flags))
            })
            .collect()
    }
}

/// The devices that a stacked one is made of.
fn is_made_of(device: &Path) -> Vec<PathBuf> {
    let mut lower: Vec<PathBuf> = fs::read_dir(device.join("slaves"))
        .map(|slaves| slaves.flatten().map(|slave| slave.path()).collect())
        .unwrap_or_default();
    lower.sort();
    lower
}

/// Adds the disks that a device is made of, each once.
fn follow(device: &Path, depth: usize, disks: &mut Vec<Disk>) {
    let Ok(device) = device.canonicalize() else { return };
    let mut lower = is_made_of(&device);
    if device.join("partition").exists() {
        lower.extend(device.parent().map(Path::to_path_buf));
    }
    if lower.is_empty() {
        let disk = Disk { sysfs: device };
        if !disks.contains(&disk) {
            disks.push(disk);
        }
    } else if let Some(depth) = depth.checked_sub(1) {
        lower.iter().for_each(|device| follow(device, depth, disks));
    }
}

/// What a list of bad blocks says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BadBlocks {
    bytes: u64,
    /// There are no more than these.
    whole: bool,
}

/// Reads a list of bad blocks: lines of a first sector and a number of sectors, of 512 bytes each.
/// The kernel shows a page of it and cuts the line at the end anywhere (`badblocks_show` in
/// block/badblocks.c). `None`: it keeps no list for this disk, for which it shows an empty line
/// (`disk_badblocks_show` in block/genhd.c; a list of nothing has no line at all), or it is no such
/// list.
fn bad_blocks(list: &str) -> Option<BadBlocks> {
    if list == "\n" {
        return None;
    }
    let (mut sectors, mut whole) = (0_u64, list.len() < SHOWN_MAX);
    for line in list.split_inclusive('\n') {
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        if !line.ends_with('\n') {
            whole = false;
        } else if let (Some(Ok(_)), Some(Ok(count))) = (words.next(), words.next()) {
            sectors = sectors.saturating_add(count);
        } else {
            return None;
        }
    }
    Some(BadBlocks { bytes: sectors.saturating_mul(512), whole })
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
