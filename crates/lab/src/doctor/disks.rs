//! Disks: whether the kernel counts what they do, and in which order it sends requests.

use super::file_systems::Mounted;
use super::{Check, Host};

/// Devices without a queue of their own, or that are no disks.
const NO_DISKS: [&str; 7] = ["loop", "ram", "zram", "sr", "fd", "dm-", "md"];

/// Checks of the disks that hold the file systems; of all if none are given or none can be found.
pub(super) fn checks(host: &Host<'_>, below: Option<&[Mounted]>) -> Vec<Check> {
    let mut disks: Vec<String> = host.names("sys/block");
    if let Some(mounted) = below {
        let chosen: Vec<String> =
            mounted.iter().flat_map(|one| disks_below(host, &one.source)).collect();
        if !chosen.is_empty() {
            disks.retain(|disk| chosen.contains(disk));
        }
    }
    disks.retain(|disk| !NO_DISKS.iter().any(|kind| disk.starts_with(kind)));
    let with_queue: Vec<&String> =
        disks.iter().filter(|disk| host.is_there(&format!("sys/block/{disk}/queue"))).collect();
    let of_each =
        |check: fn(&Host<'_>, &str) -> Check| with_queue.iter().map(move |disk| check(host, disk));
    let mut checks: Vec<Check> = of_each(statistics).chain(of_each(scheduler)).collect();
    if checks.is_empty() {
        let none = "no disk is visible";
        checks = vec![statistics_check().unknown(none), scheduler_check().unknown(none)];
    }
    checks
}

fn statistics_check() -> Check {
    Check::new(
        "disk-statistics",
        "1",
        "With 0 the kernel counts nothing of the disk: reports have no reads, writes and latencies \
         of it.",
    )
}

fn statistics(host: &Host<'_>, disk: &str) -> Check {
    let check = statistics_check().of(disk);
    let file = format!("sys/block/{disk}/queue/iostats");
    match host.number(&file) {
        None => check.unknown("the kernel does not say"),
        Some(0) => check.mend("0", format!("echo 1 > /{file}")),
        Some(on) => check.good(on.to_string()),
    }
}

fn scheduler_check() -> Check {
    Check::new(
        "disk-scheduler",
        "none or mq-deadline; on turning disks mq-deadline",
        "Schedulers that share a disk out fairly hold a sync back behind the reads of others, and \
         cost \
         processor time on a disk that is fast. Turning disks need requests in order.",
    )
}

fn scheduler(host: &Host<'_>, disk: &str) -> Check {
    let check = scheduler_check().of(disk);
    let file = format!("sys/block/{disk}/queue/scheduler");
    let Some(word) = host.chosen(&file) else {
        // Persistent memory has no queue of requests at all.
        return check.good("none: the device takes requests as they come");
    };
    let turning = host.number(&format!("sys/block/{disk}/queue/rotational")) == Some(1);
    // A virtual disk says that it turns whatever is below; the host puts the requests in order.
    let is_virtual = disk.starts_with("vd") || disk.starts_with("xvd");
    let right = match word.as_str() {
        "mq-deadline" => true,
        "none" => !turning || is_virtual,
        _ => false,
    };
    if right {
        return check.good(word);
    }
    let wanted = if turning { "mq-deadline" } else { "none" };
    check.mend(word, format!("echo {wanted} > /{file}"))
}

/// The disks that a device of a mount lies on: itself, the disk of the partition, those below a
/// mapped device.
fn disks_below(host: &Host<'_>, source: &str) -> Vec<String> {
    let Some(device) = source.strip_prefix("/dev/") else { return Vec::new() };
    let disks = host.names("sys/block");
    let mapped = |disk: &&String| {
        let name = host.text(&format!("sys/block/{disk}/dm/name"));
        name.is_some_and(|name| device.strip_prefix("mapper/") == Some(name.as_str()))
    };
    let named =
        disks.iter().find(|disk| disk.as_str() == device).or_else(|| disks.iter().find(mapped));
    let mut found = Vec::new();
    let mut left: Vec<String> = vec![named.cloned().unwrap_or_else(|| device.to_owned())];
    // A device lies on others at most as deep as there are devices.
    for _ in 0..=disks.len() {
        let Some(device) = left.pop() else { break };
        let holds = |disk: &&String| host.is_there(&format!("sys/block/{disk}/{device}"));
        let disk = disks.iter().find(|disk| **disk == device).or_else(|| disks.iter().find(holds));
        let Some(disk) = disk else { continue };
        let below = host.names(&format!("sys/block/{disk}/slaves"));
        if below.is_empty() {
            found.push(disk.clone());
        }
        left.extend(below);
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::recorded::Recorded;
    use super::super::{Verdict, examine};

    #[test]
    fn a_disk_that_is_not_counted_is_to_be_mended() {
        let machine = Recorded::sound();
        machine.put("sys/block/nvme0n1/queue/iostats", "0\n");
        let ill = machine.only_ill("disk-statistics");
        assert_eq!(ill.of, "nvme0n1");
        assert_eq!(ill.mend.as_deref(), Some("echo 1 > /sys/block/nvme0n1/queue/iostats"));
    }

    #[test]
    fn a_scheduler_is_right_for_one_kind_of_disk_and_wrong_for_another() {
        for (disk, turning, chosen, wanted) in [
            ("nvme0n1", "0", "none [bfq]", Some("none")),
            ("nvme0n1", "0", "none [kyber]", Some("none")),
            ("nvme0n1", "0", "[none] mq-deadline", None),
            ("nvme0n1", "0", "none [mq-deadline]", None),
            ("nvme0n1", "1", "[none] mq-deadline", Some("mq-deadline")),
            ("vda", "1", "[none] mq-deadline", None),
            ("vda", "1", "none mq-deadline [bfq]", Some("mq-deadline")),
        ] {
            let machine = Recorded::sound();
            machine.put(&format!("sys/block/{disk}/queue/rotational"), turning);
            machine.put(&format!("sys/block/{disk}/queue/scheduler"), chosen);
            let Some(wanted) = wanted else {
                assert_eq!(machine.examine().to_mend, 0, "{disk} {turning} {chosen}");
                continue;
            };
            let command = format!("echo {wanted} > /sys/block/{disk}/queue/scheduler");
            assert_eq!(
                machine.only_ill("disk-scheduler").mend,
                Some(command),
                "{disk} {turning} {chosen}"
            );
        }
    }

    #[test]
    fn what_is_no_disk_is_not_looked_at() {
        let machine = Recorded::sound();
        for device in ["loop0", "zram0", "sr0", "dm-0"] {
            machine.put(&format!("sys/block/{device}/queue/iostats"), "0\n");
            machine.put(&format!("sys/block/{device}/queue/scheduler"), "none [bfq]\n");
        }
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn of_a_directory_only_the_disks_below_its_file_system_are_looked_at() {
        let machine = Recorded::sound();
        machine.put(
            "proc/self/mounts",
            "/dev/vda1 / ext4 rw,relatime 0 0\n/dev/mapper/vg-data /data xfs rw 0 0\n",
        );
        machine.put("sys/block/vda/vda1/size", "1\n");
        machine.put("sys/block/dm-0/dm/name", "vg-data\n");
        machine.put("sys/block/dm-0/slaves/nvme0n1p1/size", "1\n");
        machine.put("sys/block/nvme0n1/nvme0n1p1/size", "1\n");
        for (dir, expected) in [("/data/pg", "nvme0n1"), ("/home", "vda")] {
            let examined = examine(machine.root(), &[PathBuf::from(dir)]).unwrap();
            let disks: Vec<&str> = examined
                .checks
                .iter()
                .filter(|check| check.name.starts_with("disk"))
                .map(|check| check.of.as_str())
                .collect();
            assert_eq!(disks, [expected, expected], "{dir}");
        }
    }

    #[test]
    fn devices_that_lie_on_each_other_in_a_circle_end() {
        let machine = Recorded::sound();
        machine.put("proc/self/mounts", "/dev/dm-0 /data xfs rw 0 0\n");
        machine.put("sys/block/dm-0/slaves/dm-1/size", "1\n");
        machine.put("sys/block/dm-1/slaves/dm-0/size", "1\n");
        let examined = examine(machine.root(), &[PathBuf::from("/data")]).unwrap();
        assert!(
            examined.checks.iter().any(|check| check.verdict == Verdict::Good && check.of == "vda")
        );
    }
}
