//! What the kernel says of a block device in sysfs: what it is called, who it is, who uses it.
//!
//! Sources: the kernel's Documentation/ABI/stable/sysfs-block and testing/sysfs-block-loop;
//! proc_pid_mountinfo(5), proc_swaps(5).
//!
//! The places of sysfs and /proc are parameters, so that tests can describe devices that are not
//! there. What is not known counts against the device: it is not taken.
//! **Deliberately absent**: anything that opens the device; loop devices are asked what they are
//! over (`loops.rs`).

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use super::ioctls::{self, LoopFile};
use super::loops::Loops;
use crate::memory;

/// Where the kernel tells of devices and of processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel<'a> {
    pub(crate) sysfs: &'a Path,
    pub(crate) proc: &'a Path,
    /// What the loop device with this node is over; `None`: it cannot be asked.
    pub(crate) ask_loop: fn(&Node) -> Option<LoopFile>,
    /// How long loop devices may give no answer that are being set up or taken away.
    pub(crate) patience: Duration,
}

/// This machine's.
pub(crate) fn this() -> Kernel<'static> {
    let ask_loop = |node: &Node| ioctls::loop_file(&node.path());
    let patience = Duration::from_secs(1);
    Kernel { sysfs: Path::new("/sys"), proc: Path::new("/proc"), ask_loop, patience }
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

    pub(crate) fn is_loop(&self) -> bool {
        self.folder.join("loop").exists()
    }

    /// The path of what a loop device is over, which may be another file's here.
    pub(crate) fn backing_path(&self) -> Option<PathBuf> {
        text(&self.folder.join("loop/backing_file")).map(PathBuf::from)
    }

    /// The number of a partition on its disk.
    pub(crate) fn partition_number(&self) -> Option<i32> {
        text(&self.folder.join("partition"))?.parse().ok()
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
        let path = self.backing_path();
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

    /// Other nodes of the very same disk, by its WWN and its size: it is seen on two ways. Some
    /// makers give all their disks one WWN.
    fn twins(&self, kernel: Kernel<'_>) -> Vec<Node> {
        let disk = self.disk().unwrap_or_else(|| self.clone());
        let name_of = |node: &Node| {
            text(&node.folder.join("wwid")).or_else(|| text(&node.folder.join("device/wwid")))
        };
        let Some(name) = name_of(&disk) else { return Vec::new() };
        let mut all = Node::all(kernel);
        all.retain(|node| {
            let is_same = name_of(node).as_ref() == Some(&name) && node.bytes() == disk.bytes();
            !node.is_partition() && *node != disk && is_same
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

    /// The loop devices that it is or is made of, with what they are over.
    pub(crate) fn own_loops(&self, kernel: Kernel<'_>) -> Vec<(Node, LoopFile)> {
        let chain = [self.clone()].into_iter().chain(self.below(kernel)).filter(Node::is_loop);
        chain.filter_map(|node| (kernel.ask_loop)(&node).map(|file| (node, file))).collect()
    }

    /// The devices that loop devices of its own are over: nothing of the kernel's claims those.
    pub(crate) fn below_loops(&self, kernel: Kernel<'_>) -> Vec<Node> {
        let own = self.own_loops(kernel).into_iter().filter(|(_, file)| file.is_device());
        own.filter_map(|(_, file)| Node::of(kernel, file.rdevice)).collect()
    }

    /// Who uses it, its partitions, the disk that it is part of, or a device below it that nothing
    /// claims.
    pub(crate) fn used(&self, kernel: Kernel<'_>, loops: &Loops) -> Option<String> {
        for node in self.family() {
            if let Some(by) = node.used_itself(kernel).or_else(|| loops.over(&node)) {
                return Some(match &node == self {
                    true => by,
                    false => format!("of one piece with {}, which is {by}", node.path().display()),
                });
            }
        }
        for lower in self.below_loops(kernel) {
            if let Some((node, by)) = lower
                .family()
                .into_iter()
                .find_map(|node| node.used_itself(kernel).map(|by| (node, by)))
            {
                return Some(format!("over {}, which is {by}", node.path().display()));
            }
        }
        self.beside(kernel, loops).into_iter().find_map(|other| {
            let by = other.used_itself(kernel).or_else(|| loops.over(&other))?;
            Some(format!("over the same bytes as {}, which is {by}", other.path().display()))
        })
    }

    /// What may be a use of it, and may be none.
    pub(crate) fn doubt(&self, kernel: Kernel<'_>, loops: &Loops) -> Option<String> {
        let twin = self.twins(kernel).iter().flat_map(Node::family).find_map(|node| {
            let by = node.used_itself(kernel).or_else(|| loops.over(&node))?;
            Some(format!("the same disk as {} (by its WWN), which is {by}", node.path().display()))
        });
        let beside = || {
            let other = self.beside(kernel, loops).into_iter().next()?;
            Some(format!("over the same bytes as {}", other.path().display()))
        };
        twin.or_else(beside).or_else(|| loops.silent(self))
    }

    /// Other loop devices that are over bytes of one of its own.
    fn beside(&self, kernel: Kernel<'_>, loops: &Loops) -> Vec<Node> {
        let own = self.own_loops(kernel);
        let is_own = |node: &Node| own.iter().any(|(mine, _)| mine == node);
        let others = loops.asked().filter(|(node, _)| !is_own(node));
        let range =
            |node: &Node, file: &LoopFile| file.offset..file.offset.saturating_add(node.bytes());
        let meets = |other: &(&Node, &LoopFile)| {
            own.iter().any(|(node, file)| {
                let (a, b) = (range(node, file), range(other.0, other.1));
                file.is_same_file(other.1) && a.start < b.end && b.start < a.end
            })
        };
        others.filter(meets).map(|(node, _)| node.clone()).collect()
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
        self.mounted(kernel).or_else(|| self.swap(kernel)).or_else(|| self.held())
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

    /// Whether a path leads to this device. Only what is in /dev is asked: elsewhere a server may
    /// hang.
    pub(crate) fn is(&self, path: &Path) -> bool {
        path.starts_with("/dev")
            && fs::metadata(path).is_ok_and(|found| {
                found.file_type().is_block_device() && found.rdev() == self.number()
            })
    }
}

/// A path as the kernel's lists write it: spaces and the like as `\040`.
pub(crate) fn unescaped(path: &str) -> String {
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
mod tests;
