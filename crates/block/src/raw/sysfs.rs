//! What the kernel says of a block device in sysfs: what it is called, who it is, who uses it.
//!
//! Sources: the kernel's Documentation/ABI/stable/sysfs-block and testing/sysfs-block-loop;
//! proc_pid_mountinfo(5), proc_swaps(5).
//!
//! The places of sysfs and /proc are parameters, so that tests can describe devices that are not
//! there. What is not known counts against the device: it is not taken.
//! **Deliberately absent**: anything that opens the device; a loop device above it is asked what it
//! is over.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use super::ioctls::{self, LoopFile};
use crate::memory;

/// Where the kernel tells of devices and of processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel<'a> {
    pub(crate) sysfs: &'a Path,
    pub(crate) proc: &'a Path,
    /// What the loop device with this node is over; `None`: it cannot be asked.
    pub(crate) ask_loop: fn(&Node) -> Option<LoopFile>,
}

/// This machine's.
pub(crate) fn this() -> Kernel<'static> {
    let ask_loop = |node: &Node| ioctls::loop_file(&node.path());
    Kernel { sysfs: Path::new("/sys"), proc: Path::new("/proc"), ask_loop }
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

    /// What is said of it that has no id of its own.
    pub(crate) fn name_and_size(&self) -> String {
        format!("{}:{}", self.name(), self.bytes())
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

    /// Where a partition begins on its disk, in bytes.
    pub(crate) fn start(&self) -> Option<u64> {
        text(&self.folder.join("start"))?.parse::<u64>().ok()?.checked_mul(512)
    }

    /// The whole disk, of a partition.
    pub(crate) fn disk(&self) -> Option<Node> {
        if self.is_partition() { Node::at(self.folder.parent()?) } else { None }
    }

    /// Whether it is persistent memory, or a part of it, whose place is below a DAX file system.
    pub(crate) fn is_persistent_memory(&self) -> bool {
        let name = self.disk().unwrap_or_else(|| self.clone()).name();
        name.strip_prefix("pmem").is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Whether it is a part of this machine's memory.
    fn is_memory(&self) -> bool {
        let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
        let name = self.name();
        ["ram", "zram", "nullb"].iter().any(|kind| name.strip_prefix(kind).is_some_and(digits))
    }

    /// Whether reads of it wait for somebody to act: a volume that is suspended, a disk that is
    /// gone or blocked.
    pub(crate) fn is_stopped(&self) -> bool {
        let state = text(&self.folder.join("device/state"));
        text(&self.folder.join("dm/suspended")).is_some_and(|suspended| suspended != "0")
            || state.is_some_and(|s| matches!(&s[..], "blocked" | "offline" | "transport-offline"))
    }

    fn is_loop(&self) -> bool {
        self.folder.join("loop").exists()
    }

    /// Why what is written there may be gone with the power, down to the last device below it.
    pub(crate) fn not_kept(&self, kernel: Kernel<'_>) -> Option<String> {
        let (mut seen, mut next): (Vec<Node>, _) = (Vec::new(), vec![self.clone()]);
        while let Some(node) = next.pop() {
            if seen.contains(&node) {
                continue;
            }
            let path = node.path();
            if node.is_memory() {
                return Some(format!("{} is memory", path.display()));
            }
            if node.is_loop() {
                let unknown = || Some(format!("nobody can say what {} is over", path.display()));
                let Some(file) = (kernel.ask_loop)(&node) else { return unknown() };
                let below = if file.is_device() { file.rdevice } else { file.device };
                let below = Node::of(kernel, below);
                match file.is_device() {
                    true if below.is_none() => return unknown(),
                    true => {}
                    false => match node.file_in_memory(kernel, &file) {
                        None => return unknown(),
                        Some(true) => {
                            return Some(format!("{} is over a file in memory", path.display()));
                        }
                        Some(false) => {}
                    },
                }
                next.extend(below);
            }
            next.extend(node.made_of());
            seen.push(node);
        }
        None
    }

    /// Whether the file below a loop device is in memory, if that can be known.
    fn file_in_memory(&self, kernel: Kernel<'_>, file: &LoopFile) -> Option<bool> {
        let path = text(&self.folder.join("loop/backing_file")).map(PathBuf::from);
        let is_it = |path: &PathBuf| {
            fs::metadata(path)
                .is_ok_and(|found| (found.dev(), found.ino()) == (file.device, file.inode))
        };
        if let Some(path) = path.filter(is_it) {
            return Some(memory::has_path(&path));
        }
        // It was removed or renamed, or is in another container.
        let number =
            format!("{}:{}", rustix::fs::major(file.device), rustix::fs::minor(file.device));
        let list = fs::read(kernel.proc.join("self/mountinfo")).ok()?;
        let list = String::from_utf8_lossy(&list).into_owned();
        list.lines().find_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let kind = back.split(' ').next()?;
            let here = front.split(' ').nth(2)? == number;
            here.then_some(matches!(kind, "tmpfs" | "ramfs" | "devtmpfs"))
        })
    }

    /// What tells it from other devices, wherever it is plugged in and whatever it is called: world
    /// wide name, serial number, the uuid of a partition or a volume. Others may have the same.
    pub(crate) fn ids(&self) -> Vec<String> {
        if self.is_partition() {
            let uevent = fs::read_to_string(self.folder.join("uevent")).unwrap_or_default();
            let uuid = uevent.lines().find_map(|line| line.strip_prefix("PARTUUID="));
            return uuid.map(Into::into).into_iter().collect();
        }
        // The serial number of NVMe is the controller's, which may have many disks.
        let files: &[&str] = match self.name().starts_with("nvme") {
            true => &["wwid"],
            false => &["wwid", "device/wwid", "device/serial", "serial", "dm/uuid", "md/uuid"],
        };
        let found = files.iter().filter_map(|file| text(&self.folder.join(file)));
        let mut ids: Vec<String> =
            found.map(|id| id.split_whitespace().collect::<Vec<_>>().join("_")).collect();
        ids.retain(|id| !id.is_empty());
        ids.dedup();
        ids
    }

    /// Its ids that no other device of this machine has, and who else has the rest.
    pub(crate) fn ids_of_its_own(&self, kernel: Kernel<'_>) -> (Vec<String>, Vec<Node>) {
        let below = self.below(kernel);
        let mut others = Node::all(kernel);
        others.retain(|node| node.number() != self.number() && !below.contains(node));
        let (mut own, mut shared) = (Vec::new(), Vec::new());
        for id in self.ids() {
            let same: Vec<&Node> = others.iter().filter(|node| node.ids().contains(&id)).collect();
            if same.is_empty() {
                own.push(id);
            }
            shared.extend(same.into_iter().cloned());
        }
        (own, shared)
    }

    /// Other nodes of the very same disk: it is seen on two ways.
    fn twins(&self, kernel: Kernel<'_>) -> Vec<Node> {
        let disk = self.disk().unwrap_or_else(|| self.clone());
        let name_of = |node: &Node| {
            text(&node.folder.join("wwid")).or_else(|| text(&node.folder.join("device/wwid")))
        };
        let Some(name) = name_of(&disk) else { return Vec::new() };
        let mut all = Node::all(kernel);
        all.retain(|node| {
            !node.is_partition() && *node != disk && name_of(node).as_ref() == Some(&name)
        });
        all
    }

    /// The devices directly below it, as sysfs has them, and the disk of a partition.
    fn made_of(&self) -> Vec<Node> {
        let slaves = fs::read_dir(self.folder.join("slaves")).into_iter().flatten().flatten();
        let lower = slaves.filter_map(|slave| Node::at(&slave.path().canonicalize().ok()?));
        lower.chain(self.disk()).collect()
    }

    /// The devices that this one is made of, down to the last, and the disk of a partition.
    pub(crate) fn below(&self, kernel: Kernel<'_>) -> Vec<Node> {
        let mut all: Vec<Node> = Vec::new();
        let mut next = vec![self.clone()];
        while let Some(node) = next.pop() {
            let file = if node.is_loop() { (kernel.ask_loop)(&node) } else { None };
            let device = file.filter(LoopFile::is_device);
            let device = device.and_then(|file| Node::of(kernel, file.rdevice));
            for lower in node.made_of().into_iter().chain(device) {
                if !all.contains(&lower) {
                    all.push(lower.clone());
                    next.push(lower);
                }
            }
        }
        all
    }

    /// Those that the kernel knows, also when their table is gone.
    pub(crate) fn partitions(&self) -> Vec<Node> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut found: Vec<Node> = entries
            .filter(|entry| entry.path().join("partition").exists())
            .filter_map(|entry| Node::at(&entry.path()))
            .collect();
        found.sort_by(|a, b| a.folder.cmp(&b.folder));
        found
    }

    /// It, its partitions, and the disk that it is part of.
    pub(crate) fn family(&self) -> Vec<Node> {
        [self.clone()].into_iter().chain(self.partitions()).chain(self.disk()).collect()
    }

    /// Who uses it, its partitions, the disk that it is part of, or the same disk by another name.
    pub(crate) fn used(&self, kernel: Kernel<'_>) -> Option<String> {
        for node in self.family() {
            if let Some(by) = node.used_itself(kernel) {
                return Some(match &node == self {
                    true => by,
                    false => format!("of one piece with {}, which is {by}", node.path().display()),
                });
            }
        }
        self.twins(kernel).iter().flat_map(Node::family).find_map(|node| {
            let by = node.used_itself(kernel)?;
            Some(format!("the same disk as {} (by its WWN), which is {by}", node.path().display()))
        })
    }

    /// A process other than this one that has it open, its partitions, or the disk that it is part
    /// of. Of other users' processes only root is told.
    pub(crate) fn opener(&self, kernel: Kernel<'_>) -> Option<String> {
        let numbers: Vec<(u32, u32)> =
            self.family().iter().map(|node| (node.major, node.minor)).collect();
        let own = fs::read_link(kernel.proc.join("self")).unwrap_or_default();
        let processes = fs::read_dir(kernel.proc).ok()?.flatten().map(|entry| entry.path());
        let is_other = |process: &PathBuf| {
            let name = process.file_name().unwrap_or_default();
            name.as_encoded_bytes().iter().all(u8::is_ascii_digit) && *name != *own.as_os_str()
        };
        processes.filter(is_other).find_map(|process| {
            let has = fs::read_dir(process.join("fd")).ok()?.flatten().any(|entry| {
                // A server is not waited for.
                let found = rustix::fs::statx(
                    CWD,
                    entry.path(),
                    AtFlags::STATX_DONT_SYNC,
                    StatxFlags::TYPE,
                );
                found.is_ok_and(|found| {
                    FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice
                        && numbers.contains(&(found.stx_rdev_major, found.stx_rdev_minor))
                })
            });
            let name = || text(&process.join("comm")).unwrap_or_else(|| "?".into());
            let pid = || process.file_name().unwrap_or_default().to_string_lossy().into_owned();
            has.then(|| format!("open in process {} ({})", pid(), name()))
        })
    }

    /// Whether the lists of who uses what are there to be read.
    pub(crate) fn is_told_of(kernel: Kernel<'_>) -> bool {
        fs::metadata(kernel.proc.join("self/mountinfo")).is_ok()
            && fs::read_dir(kernel.sysfs.join("class/block")).is_ok()
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

    /// A loop device does not hold what is below it. Its path says little: the node may have been
    /// anywhere.
    fn behind_a_loop(&self, kernel: Kernel<'_>) -> Option<String> {
        let mut loops = Node::all(kernel);
        loops.retain(|node| node != self && node.is_loop());
        loops.iter().find_map(|over| match (kernel.ask_loop)(over) {
            Some(file) => {
                (file.rdevice == self.number()).then(|| format!("held by {}", over.name()))
            }
            None => {
                let path = text(&over.folder.join("loop/backing_file")).map(PathBuf::from);
                Some(match path.is_some_and(|path| self.is(&path)) {
                    true => format!("held by {}", over.name()),
                    false => format!(
                        "perhaps below {}, which cannot be asked what it is over (work as root, \
                         where all loop devices are in /dev)",
                        over.name()
                    ),
                })
            }
        })
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

    /// What a fake loop device is over: numbers in a file.
    fn ask_loop(node: &Node) -> Option<LoopFile> {
        let said = text(&node.folder.join("loop/status"))?;
        let mut numbers = said.split(' ').map(|number| number.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Some(LoopFile { device: next(), inode: next(), rdevice: next() })
    }

    /// One more device of a machine.
    fn add(top: &Path, name: &str, number: &str) -> PathBuf {
        let real = top.join("sys/devices").join(name);
        fs::create_dir_all(real.join("slaves")).unwrap();
        fs::write(real.join("dev"), number).unwrap();
        let last = name.rsplit('/').next().unwrap();
        symlink(&real, top.join("sys/dev/block").join(number)).unwrap();
        symlink(&real, top.join("sys/class/block").join(last)).unwrap();
        real
    }

    fn put(folder: &Path, file: &str, text: &str) {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

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
        let kernel = Kernel { sysfs: &sysfs, proc: &proc, ask_loop };
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
        let kernel = Kernel { sysfs: &sysfs, proc: &proc, ask_loop };
        let node = |major, minor| Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap();
        assert_eq!(node(8, 0).ids(), ["naa.5000_c500"]);
        assert_eq!(node(8, 1).ids(), ["aaaa-01"]);
        assert_eq!(node(253, 0).ids(), ["LVM-abc"]);
        assert_eq!(node(7, 0).ids(), [""; 0]);
        assert_eq!(node(8, 0).bytes(), 1 << 20);
        assert_eq!(Node::all(kernel).len(), 5);
        let below: Vec<String> = node(253, 0).below(kernel).iter().map(Node::name).collect();
        assert_eq!(below, ["sda2", "sda"]);
        assert_eq!(node(8, 0).not_kept(kernel), None);
    }

    #[test]
    fn what_two_devices_have_names_neither_and_the_serial_number_of_nvme_names_no_disk() {
        let top = machine();
        let (sysfs, proc) = (top.path().join("sys"), top.path().join("proc"));
        let kernel = Kernel { sysfs: &sysfs, proc: &proc, ask_loop };
        let of = |minor| Node::of(kernel, rustix::fs::makedev(259, minor)).unwrap();
        for n in 1..=2 {
            let disk = add(top.path(), &format!("nvme0n{n}"), &format!("259:{n}"));
            put(&disk, "device/serial", "CONTROLLER\n");
            if n == 1 {
                put(&disk, "wwid", "eui.1\n");
            }
        }
        assert_eq!(of(1).ids_of_its_own(kernel), (vec!["eui.1".into()], vec![]));
        assert_eq!(of(2).ids_of_its_own(kernel), (vec![], vec![]), "the controller's");
        for n in 3..=4 {
            let disk = add(top.path(), &format!("vd{n}"), &format!("259:{n}"));
            put(&disk, "serial", "CLONED\n");
        }
        assert_eq!(of(3).ids_of_its_own(kernel), (vec![], vec![of(4)]));
        assert_eq!(of(4).ids_of_its_own(kernel), (vec![], vec![of(3)]));
    }

    #[test]
    fn a_disk_that_is_in_use_by_its_other_name_is_in_use() {
        let top = machine();
        let other = add(top.path(), "sdb", "8:16");
        put(&other, "device/wwid", "naa.5000 c500\n");
        assert_eq!(node(top.path(), 8, 0), None);
        let mountinfo = top.path().join("proc/self/mountinfo");
        fs::write(mountinfo, "22 1 8:16 / /mnt rw - ext4 /dev/sdb rw\n").unwrap();
        for minor in [0, 1] {
            let by = node(top.path(), 8, minor).unwrap();
            assert!(by.contains("the same disk as /dev/sdb"), "{by}");
        }
    }

    #[test]
    fn a_loop_device_says_itself_what_it_is_over_and_if_it_does_not_nothing_is_taken() {
        let top = machine();
        let over = top.path().join("sys/devices/loop0");
        put(&over, "loop/backing_file", "/somewhere/else\n");
        assert!(node(top.path(), 8, 0).unwrap().contains("cannot be asked"));
        put(&over, "loop/status", "5 6 0");
        assert_eq!(node(top.path(), 8, 0), None);
        let number = rustix::fs::makedev(8, 1);
        put(&over, "loop/status", &format!("5 6 {number}"));
        assert_eq!(node(top.path(), 8, 1).unwrap(), "held by loop0");
        assert!(node(top.path(), 8, 0).unwrap().contains("held by loop0"));
    }

    #[test]
    fn memory_is_found_below_volumes_and_loop_devices_and_what_is_unknown_is_not_kept() {
        let top = machine();
        let (sysfs, proc) = (top.path().join("sys"), top.path().join("proc"));
        let kernel = Kernel { sysfs: &sysfs, proc: &proc, ask_loop };
        let kept = |major, minor| {
            Node::of(kernel, rustix::fs::makedev(major, minor)).unwrap().not_kept(kernel)
        };
        let over = sysfs.join("devices/loop0");
        put(&over, "loop/backing_file", "/gone (deleted)\n");
        assert!(kept(7, 0).unwrap().contains("nobody can say what /dev/loop0"));
        let device = rustix::fs::makedev(0, 99);
        put(&over, "loop/status", &format!("{device} 7 0"));
        assert!(kept(7, 0).unwrap().contains("nobody can say"));
        let mounts = |kind| {
            let line = format!("9 1 0:99 / /x rw - {kind} {kind} rw\n");
            fs::write(proc.join("self/mountinfo"), line).unwrap();
        };
        mounts("tmpfs");
        assert_eq!(kept(7, 0).unwrap(), "/dev/loop0 is over a file in memory");
        mounts("xfs");
        assert_eq!(kept(7, 0), None);
        // Over a disk, whose node is on devtmpfs.
        put(&over, "loop/status", &format!("5 7 {}", rustix::fs::makedev(8, 2)));
        assert_eq!(kept(7, 0), None);
        let below: Vec<String> = Node::of(kernel, rustix::fs::makedev(7, 0))
            .unwrap()
            .below(kernel)
            .iter()
            .map(Node::name)
            .collect();
        assert_eq!(below, ["sda2", "sda"]);
        // A volume over compressed memory, and a loop device over that.
        let volume = add(top.path(), "dm-1", "253:1");
        let memory = add(top.path(), "zram0", "252:0");
        symlink(&memory, volume.join("slaves/zram0")).unwrap();
        assert_eq!(kept(253, 1).unwrap(), "/dev/zram0 is memory");
        put(&over, "loop/status", &format!("5 7 {}", rustix::fs::makedev(253, 1)));
        assert_eq!(kept(7, 0).unwrap(), "/dev/zram0 is memory");
    }

    #[test]
    fn what_waits_for_somebody_is_stopped_and_persistent_memory_is_known_by_its_name() {
        let top = machine();
        let volume = add(top.path(), "dm-1", "253:1");
        put(&volume, "dm/suspended", "0\n");
        let at = |folder: &Path| Node::at(folder).unwrap();
        assert!(!at(&volume).is_stopped());
        put(&volume, "dm/suspended", "1\n");
        assert!(at(&volume).is_stopped());
        let disk = top.path().join("sys/devices/sda");
        put(&disk, "device/state", "running\n");
        assert!(!at(&disk).is_stopped());
        put(&disk, "device/state", "offline\n");
        assert!(at(&disk).is_stopped());
        for (n, name) in ["pmem0", "pmem1s", "pmem0.1", "pmem0/pmem0p1"].into_iter().enumerate() {
            let folder = add(top.path(), name, &format!("259:{}", 50 + n));
            if name.contains('/') {
                put(&folder, "partition", "1");
            }
            assert!(at(&folder).is_persistent_memory(), "{name}");
        }
        assert!(!at(&disk).is_persistent_memory());
    }
}
