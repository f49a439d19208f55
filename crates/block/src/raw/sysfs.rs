//! What the kernel says of a block device in sysfs: what it is called, who it is, who uses it.
//!
//! Sources: the kernel's Documentation/ABI/stable/sysfs-block and testing/sysfs-block-loop;
//! proc_pid_mountinfo(5), proc_swaps(5).
//!
//! The places of sysfs and /proc are parameters, so that tests can describe devices that are not
//! there. **Deliberately absent**: anything that opens the device.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the kernel tells of devices and of processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel<'a> {
    pub(crate) sysfs: &'a Path,
    pub(crate) proc: &'a Path,
}

/// This machine's.
pub(crate) fn this() -> Kernel<'static> {
    Kernel { sysfs: Path::new("/sys"), proc: Path::new("/proc") }
}

/// A block device: a disk, a partition, a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its folder in sysfs, without links.
    folder: PathBuf,
    major: u32,
    minor: u32,
}

impl Node {
    /// The device with this number.
    pub(crate) fn of(kernel: Kernel<'_>, device: u64) -> Option<Node> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let link = kernel.sysfs.join("dev/block").join(format!("{major}:{minor}"));
        Some(Node { folder: link.canonicalize().ok()?, major, minor })
    }

    /// All that there are, by name.
    pub(crate) fn all(kernel: Kernel<'_>) -> Vec<Node> {
        let entries =
            fs::read_dir(kernel.sysfs.join("class/block")).into_iter().flatten().flatten();
        let mut all: Vec<Node> =
            entries.filter_map(|entry| Node::at(&entry.path().canonicalize().ok()?)).collect();
        all.sort_by(|a, b| a.folder.cmp(&b.folder));
        all
    }

    fn at(folder: &Path) -> Option<Node> {
        let (major, minor) = text(&folder.join("dev"))?
            .split_once(':')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))?;
        Some(Node { folder: folder.to_path_buf(), major, minor })
    }

    /// As the kernel calls it.
    pub(crate) fn name(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default().to_string_lossy();
        name.replace('!', "/")
    }

    /// The usual path of its node.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/dev").join(self.name())
    }

    pub(crate) fn number(&self) -> u64 {
        rustix::fs::makedev(self.major, self.minor)
    }

    /// Bytes; 0 where there is no medium.
    pub(crate) fn bytes(&self) -> u64 {
        let sectors = text(&self.folder.join("size")).and_then(|size| size.parse::<u64>().ok());
        sectors.unwrap_or(0).saturating_mul(512)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        text(&self.folder.join("ro")).is_some_and(|ro| ro != "0")
    }

    fn is_partition(&self) -> bool {
        self.folder.join("partition").exists()
    }

    /// The whole disk, of a partition.
    fn disk(&self) -> Option<Node> {
        if self.is_partition() { Node::at(self.folder.parent()?) } else { None }
    }

    /// Whether what is written there is in memory only.
    pub(crate) fn is_in_memory(&self) -> bool {
        let digits = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
        let name = self.name();
        ["ram", "zram"].iter().any(|kind| name.strip_prefix(kind).is_some_and(digits))
    }

    /// The file below a loop device, or below the one that it is a partition of.
    pub(crate) fn backing_file(&self) -> Option<PathBuf> {
        let disk = self.disk();
        text(&disk.as_ref().unwrap_or(self).folder.join("loop/backing_file")).map(PathBuf::from)
    }

    /// What tells it from other devices, wherever it is plugged in and whatever it is called:
    /// serial number, world wide name, the uuid of a partition or a volume. `None`: it has nothing
    /// like that.
    pub(crate) fn ids(&self, kernel: Kernel<'_>) -> Vec<String> {
        let mut ids = Vec::new();
        if self.is_partition() {
            let uevent = fs::read_to_string(self.folder.join("uevent")).unwrap_or_default();
            ids.extend(
                uevent.lines().find_map(|line| line.strip_prefix("PARTUUID=")).map(Into::into),
            );
            if ids.is_empty() {
                ids.extend(self.link_in(kernel, "by-partuuid"));
            }
            return ids;
        }
        for file in ["device/serial", "serial", "wwid", "device/wwid", "dm/uuid", "md/uuid"] {
            let found = text(&self.folder.join(file));
            ids.extend(found.map(|id| id.split_whitespace().collect::<Vec<_>>().join("_")));
        }
        ids.retain(|id| !id.is_empty());
        ids.dedup();
        ids
    }

    /// The name of a link of udev's that leads here.
    fn link_in(&self, kernel: Kernel<'_>, folder: &str) -> Option<String> {
        // Beside the real sysfs is the real /dev.
        let dev = kernel.sysfs.parent()?.join("dev/disk").join(folder);
        let leads_here =
            |path: &Path| fs::metadata(path).is_ok_and(|found| found.rdev() == self.number());
        let entries = fs::read_dir(dev).ok()?.flatten();
        let found = entries.map(|entry| entry.path()).find(|path| leads_here(path))?;
        Some(found.file_name()?.to_string_lossy().into_owned())
    }

    /// The devices that this one is made of, down to the last, and the disk of a partition.
    pub(crate) fn below(&self) -> Vec<Node> {
        let mut all: Vec<Node> = Vec::new();
        let mut next = vec![self.clone()];
        while let Some(node) = next.pop() {
            let slaves = fs::read_dir(node.folder.join("slaves")).into_iter().flatten().flatten();
            let lower = slaves.filter_map(|slave| Node::at(&slave.path().canonicalize().ok()?));
            for lower in lower.chain(node.disk()) {
                if !all.contains(&lower) {
                    all.push(lower.clone());
                    next.push(lower);
                }
            }
        }
        all
    }

    fn partitions(&self) -> Vec<Node> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut found: Vec<Node> = entries
            .filter(|entry| entry.path().join("partition").exists())
            .filter_map(|entry| Node::at(&entry.path()))
            .collect();
        found.sort_by(|a, b| a.folder.cmp(&b.folder));
        found
    }

    /// Who uses it, its partitions, or the disk that it is part of.
    pub(crate) fn used(&self, kernel: Kernel<'_>) -> Option<String> {
        let family = [self.clone()].into_iter().chain(self.partitions()).chain(self.disk());
        for node in family {
            if let Some(by) = node.used_itself(kernel) {
                return Some(match &node == self {
                    true => by,
                    false => format!("of one piece with {}, which is {by}", node.path().display()),
                });
            }
        }
        None
    }

    fn used_itself(&self, kernel: Kernel<'_>) -> Option<String> {
        self.mounted(kernel)
            .or_else(|| self.swap(kernel))
            .or_else(|| self.held())
            .or_else(|| self.behind_a_loop(kernel))
    }

    fn mounted(&self, kernel: Kernel<'_>) -> Option<String> {
        let list = fs::read(kernel.proc.join("self/mountinfo")).ok()?;
        let list = String::from_utf8_lossy(&list).into_owned();
        list.lines().find_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut front = front.split(' ');
            let (number, at) = (front.nth(2)?, front.nth(1)?);
            // A file system over several devices (btrfs) has a number of its own.
            let is_source =
                || self.is(Path::new(&unescaped(back.split(' ').nth(1)?))).then_some(());
            let here = number == format!("{}:{}", self.major, self.minor);
            (here || is_source().is_some()).then(|| format!("mounted at {}", unescaped(at)))
        })
    }

    fn swap(&self, kernel: Kernel<'_>) -> Option<String> {
        let list = fs::read_to_string(kernel.proc.join("swaps")).ok()?;
        let mut lines = list.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        let is_swap = lines.any(|path| self.is(Path::new(&unescaped(path))));
        is_swap.then(|| "used as swap".to_owned())
    }

    fn held(&self) -> Option<String> {
        let mut holders: Vec<String> = fs::read_dir(self.folder.join("holders"))
            .ok()?
            .flatten()
            .map(|holder| {
                let name = holder.file_name().to_string_lossy().into_owned();
                match text(&holder.path().join("dm/name")) {
                    Some(volume) => format!("{name} ({volume})"),
                    None => name,
                }
            })
            .collect();
        holders.sort();
        (!holders.is_empty()).then(|| format!("held by {}", holders.join(", ")))
    }

    /// A loop device does not hold what is below it.
    fn behind_a_loop(&self, kernel: Kernel<'_>) -> Option<String> {
        let over = Node::all(kernel).into_iter().find(|node| {
            !node.is_partition() && node.backing_file().is_some_and(|file| self.is(&file))
        })?;
        Some(format!("held by {}", over.name()))
    }

    /// Whether a path leads to this device. Only what is in /dev is asked: elsewhere a server may
    /// hang.
    fn is(&self, path: &Path) -> bool {
        path.starts_with("/dev")
            && fs::metadata(path).is_ok_and(|found| {
                found.file_type().is_block_device() && found.rdev() == self.number()
            })
    }
}

/// A path as the kernel's lists write it: spaces and the like as `\040`.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match byte.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine with a disk `sda` of two partitions, a volume over the second, and a loop device.
    fn machine() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = top.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let devices = "sys/devices";
        for (name, number) in [
            ("sda", "8:0"),
            ("sda/sda1", "8:1"),
            ("sda/sda2", "8:2"),
            ("dm-0", "253:0"),
            ("loop0", "7:0"),
        ] {
            put(&format!("{devices}/{name}/dev"), &format!("{number}\n"));
            put(&format!("{devices}/{name}/size"), "2048\n");
            put(&format!("{devices}/{name}/ro"), "0\n");
            let real = top.path().join(devices).join(name);
            let last = name.rsplit('/').next().unwrap();
            for link in [format!("sys/dev/block/{number}"), format!("sys/class/block/{last}")] {
                let link = top.path().join(link);
                fs::create_dir_all(link.parent().unwrap()).unwrap();
                symlink(&real, link).unwrap();
            }
        }
        put("sys/devices/sda/device/wwid", "naa.5000 c500\n");
        put("sys/devices/sda/sda1/partition", "1\n");
        put("sys/devices/sda/sda1/uevent", "DEVNAME=sda1\nPARTUUID=aaaa-01\n");
        put("sys/devices/sda/sda2/partition", "2\n");
        put("sys/devices/dm-0/dm/name", "vg-root\n");
        put("sys/devices/dm-0/dm/uuid", "LVM-abc\n");
        fs::create_dir_all(top.path().join("sys/devices/dm-0/slaves")).unwrap();
        symlink(
            top.path().join("sys/devices/sda/sda2"),
            top.path().join("sys/devices/dm-0/slaves/sda2"),
        )
        .unwrap();
        put("proc/self/mountinfo", "");
        put("proc/swaps", "Filename Type Size Used Priority\n");
        top
    }

    fn node(top: &Path, major: u32, minor: u32) -> Option<String> {
        let (sysfs, proc) = (top.join("sys"), top.join("proc"));
        let kernel = Kernel { sysfs: &sysfs, proc: &proc };
        Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap().used(kernel)
    }

    #[test]
    fn what_is_mounted_or_held_is_in_use_with_its_disk_and_its_partitions() {
        let top = machine();
        let used = |major, minor| node(top.path(), major, minor);
        assert_eq!((used(8, 0), used(8, 1), used(253, 0)), (None, None, None));
        let mountinfo = top.path().join("proc/self/mountinfo");
        fs::write(&mountinfo, "22 1 8:1 / /mnt/a\\040b rw - ext4 /dev/sda1 rw\n").unwrap();
        assert_eq!(used(8, 1).unwrap(), "mounted at /mnt/a b");
        assert!(used(8, 0).unwrap().contains("/dev/sda1, which is mounted at"));
        assert_eq!(used(8, 2), None, "partitions beside each other are not of one piece");
        fs::write(&mountinfo, "").unwrap();
        let holders = top.path().join("sys/devices/sda/sda2/holders");
        fs::create_dir(&holders).unwrap();
        symlink(top.path().join("sys/devices/dm-0"), holders.join("dm-0")).unwrap();
        assert_eq!(used(8, 2).unwrap(), "held by dm-0 (vg-root)");
        assert!(used(8, 0).unwrap().contains("held by dm-0"));
    }

    #[test]
    fn a_device_is_told_by_its_serial_or_uuid_and_knows_what_it_is_made_of() {
        let top = machine();
        let (sysfs, proc) = (top.path().join("sys"), top.path().join("proc"));
        let kernel = Kernel { sysfs: &sysfs, proc: &proc };
        let node = |major, minor| Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap();
        assert_eq!(node(8, 0).ids(kernel), ["naa.5000_c500"]);
        assert_eq!(node(8, 1).ids(kernel), ["aaaa-01"]);
        assert_eq!(node(253, 0).ids(kernel), ["LVM-abc"]);
        assert_eq!(node(7, 0).ids(kernel), [""; 0]);
        assert_eq!(node(8, 0).bytes(), 1 << 20);
        assert_eq!(Node::all(kernel).len(), 5);
        let below: Vec<String> = node(253, 0).below().iter().map(Node::name).collect();
        assert_eq!(below, ["sda2", "sda"]);
        assert!(!node(8, 0).is_in_memory());
    }
}
