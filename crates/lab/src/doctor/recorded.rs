//! /proc and /sys of machines that are not there, for tests: what a machine with two processors, a
//! virtual disk and an NVMe disk says, recorded and then changed.

use std::fs;
use std::path::Path;

use super::{Check, Examined, Verdict, examine};

/// Files of a machine that is set up well.
const SOUND: [(&str, &str); 25] = [
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never\n"),
    (
        "proc/meminfo",
        "MemTotal:       24684084 kB\nMemFree:        20000000 kB\nHugePages_Total:       0\n\
         HugePages_Free:        0\nHugePages_Rsvd:        0\nHugePages_Surp:        0\n\
         Hugepagesize:       2048 kB\nHugetlb:               0 kB\n",
    ),
    ("sys/devices/system/node/node0/cpulist", "0-1\n"),
    ("sys/devices/system/node/possible", "0\n"),
    ("proc/sys/kernel/numa_balancing", "0\n"),
    ("proc/sys/vm/zone_reclaim_mode", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
    (
        "proc/pressure/cpu",
        "some avg10=2.50 avg60=5.12 avg300=4.36 total=33956879\n\
         full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    ),
    ("proc/200/comm", "postgres\n"),
    (
        "proc/200/stat",
        "200 (postgres) S 1 200 200 0 -1 4194560 3172 0 0 0 12 9 0 0 20 0 1 0 5140 226230272 6890 \
         18446744073709551615 1 1 0 0 0 0 4194304 19935232 84487 0 0 0 17 0 0 0 0 0 0\n",
    ),
    ("proc/200/status", "Name:\tpostgres\nRssShmem:\t   18840 kB\nVmPTE:\t     104 kB\n"),
    ("sys/block/nvme0n1/queue/iostats", "1\n"),
    ("sys/block/nvme0n1/queue/scheduler", "[none] mq-deadline kyber bfq \n"),
    ("sys/block/nvme0n1/queue/rotational", "0\n"),
    ("sys/block/vda/queue/iostats", "1\n"),
    ("sys/block/vda/queue/scheduler", "none [mq-deadline] kyber bfq \n"),
    ("sys/block/vda/queue/rotational", "1\n"),
    ("sys/block/loop0/queue/iostats", "1\n"),
    ("sys/block/zram0/queue/iostats", "1\n"),
    (
        "proc/self/mounts",
        "proc /proc proc rw,relatime 0 0\nsysfs /sys sysfs rw,relatime 0 0\n\
         tmpfs /dev/shm tmpfs rw,relatime,size=24684084k 0 0\n/dev/vda / ext4 rw,relatime 0 0\n\
         /dev/nvme0n1 /data xfs rw,noatime,attr2,inode64 0 0\n",
    ),
    ("sys/module/fuse/parameters/enable_uring", "Y\n"),
    ("sys/module/fuse/parameters/max_user_bgreq", "7866\n"),
];

/// What is changed to neglect everything at once.
const NEGLECTED: [(&str, &str); 12] = [
    ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
    ("sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never\n"),
    (
        "proc/meminfo",
        "HugePages_Total:     512\nHugePages_Free:      512\nHugePages_Rsvd:        \
         0\nHugepagesize: 2048 kB\n",
    ),
    ("sys/devices/system/node/node1/cpulist", "2-3\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("proc/sys/vm/zone_reclaim_mode", "1\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
    (
        "proc/200/stat",
        "200 (postgres) S 1 200 200 0 -1 4194560 3172 0 0 0 12 9 0 0 30 10 1 0 5140 226230272 6890 \
         0\n",
    ),
    ("sys/block/vda/queue/iostats", "0\n"),
    ("sys/block/nvme0n1/queue/scheduler", "none mq-deadline kyber [bfq] \n"),
    ("proc/self/mounts", "/dev/vda / ext4 rw,nobarrier,discard 0 0\n"),
    ("sys/module/fuse/parameters/enable_uring", "N\n"),
];

/// A recorded tree, which tests change.
pub(super) struct Recorded(tempfile::TempDir);

impl Recorded {
    /// One that has nothing to mend.
    pub(super) fn sound() -> Recorded {
        let machine = Recorded::silent();
        for (file, text) in SOUND {
            machine.put(file, text);
        }
        machine
    }

    /// One on which everything is to be mended.
    pub(super) fn neglected() -> Recorded {
        let machine = Recorded::sound();
        for (file, text) in NEGLECTED {
            machine.put(file, text);
        }
        machine
    }

    /// One that says nothing.
    pub(super) fn silent() -> Recorded {
        let machine = Recorded(tempfile::tempdir().unwrap());
        for dir in ["proc", "sys"] {
            fs::create_dir(machine.root().join(dir)).unwrap();
        }
        machine
    }

    pub(super) fn root(&self) -> &Path {
        self.0.path()
    }

    /// The files that there are in a sound one.
    pub(super) fn files(&self) -> Vec<String> {
        SOUND.iter().map(|(file, _)| (*file).to_owned()).collect()
    }

    pub(super) fn put(&self, file: &str, text: &str) {
        self.put_bytes(file, text.as_bytes());
    }

    pub(super) fn put_bytes(&self, file: &str, bytes: &[u8]) {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(super) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root().join(file)).unwrap()
    }

    pub(super) fn remove(&self, path: &str) {
        let path = self.root().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// A process of this name and priority.
    pub(super) fn process(&self, pid: u32, name: &str, nice: i64) {
        self.named(&format!("proc/{pid}"), pid, name, nice);
    }

    /// A thread of a process.
    pub(super) fn thread(&self, pid: u32, thread: u32, name: &str, nice: i64) {
        self.named(&format!("proc/{pid}/task/{thread}"), thread, name, nice);
    }

    fn named(&self, dir: &str, id: u32, name: &str, nice: i64) {
        self.put(&format!("{dir}/comm"), &format!("{name}\n"));
        let priority = 20 + nice;
        let stat = format!(
            "{id} ({name}) S 1 {id} {id} 0 -1 4194560 0 0 0 0 1 1 0 0 {priority} {nice} 1 0 5140 0 \
             0 0 1 1 \
             0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
        );
        self.put(&format!("{dir}/stat"), &stat);
    }

    pub(super) fn examine(&self) -> Examined {
        examine(self.root(), &[]).unwrap()
    }

    /// The one check that is to be mended, which must have this name.
    pub(super) fn only_ill(&self, name: &str) -> Check {
        let examined = self.examine();
        let mut ill: Vec<Check> =
            examined.checks.into_iter().filter(|check| check.verdict == Verdict::Mend).collect();
        assert_eq!(ill.iter().map(|check| check.name.as_str()).collect::<Vec<_>>(), [name]);
        ill.remove(0)
    }
}
