//! FUSE over io_uring: a switch of the whole host, which Tiersmith reads and never sets.

use super::{Check, Host};

const SWITCH: &str = "sys/module/fuse/parameters/enable_uring";

pub(super) fn check(host: &Host<'_>) -> Check {
    let check = Check::new(
        "fuse-io-uring",
        "Y, before a home is attached, if every FUSE daemon of this host may use it",
        "With Y the daemon of an attached home takes requests through io_uring instead of \
         /dev/fuse: \
         fewer changes of context for a write. The switch holds for the whole host, containers \
         included, \
         so Tiersmith never changes it.",
    );
    match host.text(SWITCH).as_deref() {
        Some("Y" | "1") => check.good("Y"),
        Some(word) => check.consider(word, format!("echo Y > /{SWITCH}")),
        None if host.is_there("sys/module/fuse") || host.is_there("sys/fs/fuse") => {
            check.unknown("this kernel has no such switch; it came with Linux 6.14")
        }
        None => check.unknown("FUSE is not loaded; `modprobe fuse` loads it"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::super::recorded::Recorded;

    #[test]
    fn the_switch_of_the_host_is_to_be_considered_and_never_a_finding() {
        let machine = Recorded::sound();
        let switch = "sys/module/fuse/parameters/enable_uring";
        machine.put(switch, "N\n");
        let examined = machine.examine();
        let check = examined.checks.iter().find(|check| check.name == "fuse-io-uring").unwrap();
        assert_eq!(
            (check.verdict, check.is.as_str(), examined.to_mend),
            (Verdict::Consider, "N", 0)
        );
        let command = "echo Y > /sys/module/fuse/parameters/enable_uring";
        assert_eq!(check.mend.as_deref(), Some(command));
        assert_eq!(machine.read(switch), "N\n", "it was changed");
    }

    #[test]
    fn an_older_kernel_and_one_without_fuse_are_told_apart() {
        let machine = Recorded::sound();
        let is = |machine: &Recorded| {
            let checks = machine.examine().checks;
            checks.into_iter().find(|check| check.name == "fuse-io-uring").unwrap().is
        };
        machine.remove("sys/module/fuse/parameters/enable_uring");
        assert!(is(&machine).contains("Linux 6.14"));
        machine.remove("sys/module/fuse");
        assert!(is(&machine).contains("modprobe fuse"));
    }
}
