//! File systems: mount options that lose commits, or that cost reads and writes nobody asked for.

use std::path::{Path, PathBuf};

use super::{Check, Host};
use crate::place;
use crate::trial::service::quoted;

/// A mounted file system with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mounted {
    /// The device, or the server and its directory.
    pub(super) source: String,
    at: PathBuf,
    kind: String,
    options: Vec<String>,
}

/// One thing that is wrong with some mounts.
struct Fault {
    /// Whether a mount has it, and the words to show.
    found: fn(&Mounted) -> Option<String>,
    should_be: &'static str,
    why: &'static str,
    /// The command, of the quoted place and device.
    mend: fn(&str, &str) -> String,
    /// Not everybody has to mend it.
    to_consider: bool,
}

const FAULTS: [Fault; 7] = [
    Fault {
        found: |mount| mount.option(&["nobarrier", "barrier=0"]),
        should_be: "with barriers",
        why: "A sync does not empty the disk's cache: a power cut loses what a database \
              acknowledged, and \
              syncs look faster than they are.",
        mend: |at, _| format!("mount -o remount,barrier {at}"),
        to_consider: false,
    },
    Fault {
        found: |mount| mount.option(&["data=journal"]),
        should_be: "data=ordered",
        why: "Every block is written twice, once into the file system's journal.",
        mend: |at, _| format!("set data=ordered in /etc/fstab; umount {at} && mount {at}"),
        to_consider: false,
    },
    Fault {
        found: |mount| mount.option(&["sync"]),
        should_be: "without sync",
        why: "Every write is synced on its own, also those that the database syncs together.",
        mend: |at, _| format!("mount -o remount,async {at}"),
        to_consider: false,
    },
    Fault {
        found: |mount| match mount.option(&["relatime", "noatime"]) {
            None if !mount.kind.starts_with("nfs") => Some("without relatime or noatime".into()),
            _ => mount.option(&["strictatime"]),
        },
        should_be: "noatime or relatime",
        why: "Every read writes the file's access time.",
        mend: |at, _| format!("mount -o remount,noatime {at}"),
        to_consider: false,
    },
    Fault {
        found: |mount| mount.option(&["soft"]).filter(|_| mount.kind.starts_with("nfs")),
        should_be: "hard",
        why: "A soft mount gives up after a while: a write or a sync of the database fails, or is \
              lost.",
        mend: |at, _| format!("set hard in /etc/fstab; umount {at} && mount {at}"),
        to_consider: false,
    },
    Fault {
        found: |mount| {
            let has_dax = mount.option(&["dax", "dax=always", "dax=inode"]).is_some();
            let is_sector = mount.source.ends_with('s');
            (mount.source.starts_with("/dev/pmem") && !is_sector && !has_dax)
                .then(|| "persistent memory without dax".into())
        },
        should_be: "dax",
        why: "Without DAX a mapping reaches the page cache and not the persistent memory: a tier \
              there is \
              only a file.",
        mend: |at, source| format!("umount {at} && mount -o dax {source} {at}"),
        to_consider: false,
    },
    Fault {
        found: |mount| mount.option(&["discard"]),
        should_be: "without discard, with a weekly fstrim",
        why: "Removing a file (an old WAL segment) sends discards to the disk at once; on some \
              disks they \
              hold up the writes behind them.",
        mend: |at, _| {
            format!("mount -o remount,nodiscard {at}; systemctl enable --now fstrim.timer")
        },
        to_consider: true,
    },
];

impl Mounted {
    /// The first of these options that it has.
    fn option(&self, wanted: &[&str]) -> Option<String> {
        self.options.iter().find(|option| wanted.contains(&option.as_str())).cloned()
    }

    /// Whether a database could be on it: a disk, or a file server, and writable.
    fn can_hold_a_database(&self) -> bool {
        let kinds = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "nfs", "nfs4"];
        kinds.contains(&self.kind.as_str()) && self.option(&["ro"]).is_none()
    }
}

/// Every mounted file system, in the order of the kernel.
pub(super) fn mounted(host: &Host<'_>) -> Vec<Mounted> {
    let text =
        host.text("proc/self/mounts").or_else(|| host.text("proc/mounts")).unwrap_or_default();
    let options = |line: &str| -> Vec<String> {
        let options = line.split(' ').nth(3).unwrap_or_default();
        options.split(',').map(str::to_owned).collect()
    };
    let one = |line: &str| {
        let parsed = place::parse_mount(line)?;
        Some(Mounted {
            source: parsed.source,
            at: parsed.at,
            kind: parsed.kind,
            options: options(line),
        })
    };
    text.lines().filter_map(one).collect()
}

/// Those that hold the directories; of all that can hold a database the ones that can be reached,
/// if there are no directories.
pub(super) fn chosen(mounted: &[Mounted], dirs: &[PathBuf]) -> Vec<Mounted> {
    let of = |dir: &Path| {
        let holding = mounted.iter().filter(|mount| dir.starts_with(&mount.at));
        // Of two at one place the later one hides the earlier.
        holding.max_by_key(|mount| mount.at.as_os_str().len()).cloned()
    };
    let mut found: Vec<Mounted> = if dirs.is_empty() {
        let each = mounted.iter().filter_map(|mount| of(&mount.at));
        each.filter(Mounted::can_hold_a_database).collect()
    } else {
        dirs.iter().filter_map(|dir| of(dir)).collect()
    };
    let mut seen: Vec<(String, Vec<String>)> = Vec::new();
    // The same device may be mounted at many places; once says it.
    found.retain(|mount| {
        let known = (mount.source.clone(), mount.options.clone());
        let is_new = !seen.contains(&known);
        seen.push(known);
        is_new
    });
    found
}

pub(super) fn checks(chosen: &[Mounted]) -> Vec<Check> {
    if chosen.is_empty() {
        return vec![
            good_options().unknown("no file system that could hold a database is visible"),
        ];
    }
    chosen.iter().flat_map(of_one).collect()
}

fn good_options() -> Check {
    Check::new(
        "file-system-options",
        "relatime or noatime; with barriers, ordered data and no sync; DAX on persistent memory",
        "Mount options decide what a sync and a read cost, and what a power cut leaves.",
    )
}

fn of_one(mount: &Mounted) -> Vec<Check> {
    let of = format!("{} ({} on {})", mount.at.display(), mount.kind, mount.source);
    if matches!(mount.kind.as_str(), "tmpfs" | "ramfs") {
        let why = "What is here is gone after a restart, and no disk is measured.";
        let command = "put the database on a disk; there is no option that helps";
        return vec![
            Check::new("file-system-options", "a disk", why).of(of).mend("memory", command),
        ];
    }
    let found = FAULTS.iter().filter_map(|fault| {
        let is = (fault.found)(mount)?;
        let at = quoted(&mount.at.to_string_lossy());
        let command = (fault.mend)(&at, &quoted(&mount.source));
        let check = Check::new("file-system-options", fault.should_be, fault.why).of(of.clone());
        Some(if fault.to_consider { check.consider(is, command) } else { check.mend(is, command) })
    });
    let found: Vec<Check> = found.collect();
    if found.is_empty() { vec![good_options().of(of).good(mount.options.join(","))] } else { found }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::recorded::Recorded;
    use super::super::{Verdict, examine};

    #[test]
    fn an_option_that_loses_commits_or_costs_much_is_to_be_mended() {
        for (line, is, command) in [
            (
                "/dev/vda /d ext4 rw,relatime,nobarrier 0 0",
                "nobarrier",
                "mount -o remount,barrier '/d'",
            ),
            (
                "/dev/vda /d ext4 rw,relatime,barrier=0 0 0",
                "barrier=0",
                "mount -o remount,barrier '/d'",
            ),
            (
                "/dev/vda /d ext4 rw,relatime,data=journal 0 0",
                "data=journal",
                "set data=ordered in /etc/fstab; umount '/d' && mount '/d'",
            ),
            ("/dev/vda /d xfs rw,sync,noatime 0 0", "sync", "mount -o remount,async '/d'"),
            (
                "/dev/vda /d xfs rw 0 0",
                "without relatime or noatime",
                "mount -o remount,noatime '/d'",
            ),
            (
                "/dev/vda /d xfs rw,strictatime,relatime 0 0",
                "strictatime",
                "mount -o remount,noatime '/d'",
            ),
            (
                "filer:/vol /d nfs4 rw,relatime,soft 0 0",
                "soft",
                "set hard in /etc/fstab; umount '/d' && mount '/d'",
            ),
            (
                "/dev/pmem0 /d ext4 rw,relatime 0 0",
                "persistent memory without dax",
                "umount '/d' && mount -o dax '/dev/pmem0' '/d'",
            ),
            (
                r"/dev/vda /it's\040here ext4 rw,relatime,nobarrier 0 0",
                "nobarrier",
                r"mount -o remount,barrier '/it'\''s here'",
            ),
        ] {
            let machine = Recorded::sound();
            machine.put("proc/self/mounts", line);
            let ill = machine.only_ill("file-system-options");
            assert_eq!((ill.is.as_str(), ill.mend.as_deref()), (is, Some(command)), "{line}");
        }
    }

    #[test]
    fn options_that_are_as_they_should_be_are_good() {
        for line in [
            "/dev/vda / ext4 rw,relatime 0 0",
            "/dev/vda / xfs rw,noatime,attr2 0 0",
            "filer:/vol /d nfs4 rw,hard 0 0",
            "/dev/pmem0 /d ext4 rw,relatime,dax=always 0 0",
            "/dev/pmem1s /d ext4 rw,relatime 0 0",
            // What no database can be on is not looked at: read-only, of another kind, hidden.
            "/dev/vda / ext4 rw,relatime 0 0\n/dev/vdb /cd ext4 ro,nobarrier 0 0",
            "/dev/vda / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n/dev/sda1 /boot/efi vfat rw \
             0 0",
            "/dev/vdb /d ext4 rw,relatime,nobarrier 0 0\n/dev/vda /d ext4 rw,relatime 0 0",
        ] {
            let machine = Recorded::sound();
            machine.put("proc/self/mounts", line);
            let examined = machine.examine();
            let options: Vec<_> = examined
                .checks
                .iter()
                .filter(|check| check.name == "file-system-options")
                .collect();
            assert!(!options.is_empty() && examined.to_mend == 0, "{line}: {options:#?}");
            assert!(
                options.iter().all(|check| check.verdict == Verdict::Good),
                "{line}: {options:#?}"
            );
        }
    }

    #[test]
    fn discards_are_to_be_considered_and_no_finding() {
        let machine = Recorded::sound();
        machine.put("proc/self/mounts", "/dev/vda / ext4 rw,relatime,discard 0 0\n");
        let examined = machine.examine();
        let odd: Vec<_> =
            examined.checks.iter().filter(|check| check.verdict != Verdict::Good).collect();
        assert_eq!(examined.to_mend, 0);
        assert_eq!(
            (odd.len(), odd[0].is.as_str(), odd[0].verdict),
            (1, "discard", Verdict::Consider)
        );
    }

    #[test]
    fn of_directories_only_their_own_file_systems_are_looked_at() {
        let machine = Recorded::sound();
        let mounts = "/dev/vda / ext4 rw,relatime,nobarrier 0 0\n/dev/nvme0n1 /data xfs rw,noatime \
                      0 0\n\
                      tmpfs /dev/shm tmpfs rw 0 0\n";
        machine.put("proc/self/mounts", mounts);
        for (dir, ill) in [("/data/pg", 0), ("/database", 1), ("/dev/shm/db", 1)] {
            let examined = examine(machine.root(), &[PathBuf::from(dir)]).unwrap();
            assert_eq!(examined.to_mend, ill, "{dir}: {:#?}", examined.checks);
        }
    }

    #[test]
    fn a_device_that_is_mounted_at_many_places_is_said_once() {
        let machine = Recorded::sound();
        let line = |at: &str| format!("/dev/vda {at} ext4 rw,relatime,nobarrier 0 0\n");
        machine.put("proc/self/mounts", &(line("/") + &line("/var/lib/container") + &line("/srv")));
        assert_eq!(machine.examine().to_mend, 1);
    }
}
