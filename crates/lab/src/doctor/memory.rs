//! Memory: transparent huge pages, huge pages, NUMA.

use super::{Check, Host};

/// The kernel's directory of transparent huge pages.
const TRANSPARENT: &str = "sys/kernel/mm/transparent_hugepage";
/// Page tables of one database's processes that are worth huge pages.
const PAGE_TABLES_KIB: u64 = 256 << 10;
/// Programs that can use huge pages for their shared memory or their buffer pool.
const DATABASES: [&str; 3] = ["postgres", "mariadbd", "mysqld"];

pub(super) fn checks(host: &Host<'_>) -> Vec<Check> {
    vec![
        transparent(host),
        defrag(host),
        huge_pages(host),
        numa_balancing(host),
        zone_reclaim(host),
    ]
}

fn transparent(host: &Host<'_>) -> Check {
    let check = Check::new(
        "transparent-huge-pages",
        "madvise or never",
        "With `always` the kernel collects and splits huge pages beneath a database that did not \
         ask: \
         stalls of milliseconds, and memory that a fork of Redis copies 2 MiB at a time.",
    );
    match host.chosen(&format!("{TRANSPARENT}/enabled")) {
        None => check.unknown("the kernel has none"),
        Some(word) if word == "always" => {
            check.mend(word, format!("echo madvise > /{TRANSPARENT}/enabled"))
        }
        Some(word) => check.good(word),
    }
}

fn defrag(host: &Host<'_>) -> Check {
    let check = Check::new(
        "transparent-huge-pages-defrag",
        "madvise, defer+madvise or never",
        "With `always` a process that touches new memory waits while the kernel moves pages \
         together.",
    );
    match host.chosen(&format!("{TRANSPARENT}/defrag")) {
        None => check.unknown("the kernel has none"),
        Some(word) if word == "always" => {
            check.mend(word, format!("echo madvise > /{TRANSPARENT}/defrag"))
        }
        Some(word) => check.good(word),
    }
}

/// Reserved huge pages that nobody uses, and databases that would need some.
fn huge_pages(host: &Host<'_>) -> Check {
    let check = Check::new(
        "huge-pages",
        "as many as the databases use",
        "Each process of a database has page tables of its own for the shared memory; huge pages \
         make \
         them 512 times smaller. Reserved ones that nobody takes are lost to everybody else.",
    );
    let meminfo = host.text("proc/meminfo").unwrap_or_default();
    let value = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (Some(total), Some(free), Some(size_kib)) =
        (value("HugePages_Total"), value("HugePages_Free"), value("Hugepagesize"))
    else {
        return check.unknown("the kernel has none");
    };
    let reserved = value("HugePages_Rsvd").unwrap_or(0);
    if total > 0 && free == total && reserved == 0 {
        let mib = total.saturating_mul(size_kib) >> 10;
        let is = format!("{total} are reserved ({mib} MiB) and nobody uses one");
        return check.mend(is, "sysctl vm.nr_hugepages=0");
    }
    let (tables_kib, shared_kib) = of_databases(host);
    if total == 0 && tables_kib >= PAGE_TABLES_KIB {
        let pages = shared_kib.div_ceil(size_kib.max(1));
        // What a server needs beside its buffers.
        let pages = pages + pages / 20 + 1;
        let is = format!(
            "none, and the page tables of the databases take {} MiB for {} MiB of shared memory",
            tables_kib >> 10,
            shared_kib >> 10
        );
        let command = format!(
            "sysctl vm.nr_hugepages={pages}; then restart the server (PostgreSQL takes them by \
             itself, \
             MariaDB and MySQL with large_pages = 1)"
        );
        return check.mend(is, command);
    }
    match total {
        0 => check.good("none, and no database here needs them"),
        total => check.good(format!(
            "{} of {total} in use or promised",
            (total - free.min(total)).max(reserved)
        )),
    }
}

/// Of the processes of databases together: KiB of page tables, and KiB of the largest shared
/// memory.
fn of_databases(host: &Host<'_>) -> (u64, u64) {
    let (mut tables_kib, mut shared_kib) = (0u64, 0u64);
    for pid in host.names("proc").iter().filter(|name| name.parse::<u32>().is_ok()) {
        let name = host.text(&format!("proc/{pid}/comm")).unwrap_or_default();
        if !DATABASES.contains(&name.as_str()) {
            continue;
        }
        let status = host.text(&format!("proc/{pid}/status")).unwrap_or_default();
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        tables_kib = tables_kib.saturating_add(kib("VmPTE"));
        shared_kib = shared_kib.max(kib("RssShmem"));
    }
    (tables_kib, shared_kib)
}

/// How many nodes the machine has; nothing if it does not say.
fn nodes(host: &Host<'_>) -> Option<usize> {
    let is_node =
        |name: &&String| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    let nodes = host.names("sys/devices/system/node").iter().filter(is_node).count();
    (nodes > 0).then_some(nodes)
}

fn numa_balancing(host: &Host<'_>) -> Check {
    let check = Check::new(
        "numa-balancing",
        "0 on a machine of several nodes",
        "Automatic balancing unmaps pages to see who touches them. A database touches its buffers \
         from \
         every node, so its sessions take page faults and its pages move for nothing.",
    );
    let nodes = match nodes(host) {
        None => return check.unknown("the kernel does not say how many nodes there are"),
        Some(1) => return check.good("one node"),
        Some(nodes) => nodes,
    };
    match host.number("proc/sys/kernel/numa_balancing") {
        Some(0) => check.good(format!("0, on {nodes} nodes")),
        None => check.good(format!("the kernel has none, on {nodes} nodes")),
        Some(on) => check.mend(format!("{on}, on {nodes} nodes"), "sysctl kernel.numa_balancing=0"),
    }
}

fn zone_reclaim(host: &Host<'_>) -> Check {
    let check = Check::new(
        "zone-reclaim",
        "0",
        "Else a node throws its page cache away before it takes free memory of another node: reads \
         of \
         the database go to the disk again.",
    );
    match host.number("proc/sys/vm/zone_reclaim_mode") {
        None => check.unknown("the kernel does not say"),
        Some(0) => check.good("0"),
        Some(mode) => check.mend(mode.to_string(), "sysctl vm.zone_reclaim_mode=0"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorded::Recorded;
    use super::super::{Verdict, examine};

    #[test]
    fn transparent_huge_pages_for_everybody_are_to_be_mended() {
        let machine = Recorded::sound();
        machine.put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n");
        let ill = machine.only_ill("transparent-huge-pages");
        assert_eq!(ill.is, "always");
        let command = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
        assert_eq!(ill.mend.as_deref(), Some(command));
        machine.put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn waiting_for_huge_pages_is_to_be_mended() {
        let machine = Recorded::sound();
        let file = "sys/kernel/mm/transparent_hugepage/defrag";
        machine.put(file, "[always] defer defer+madvise madvise never\n");
        assert_eq!(machine.only_ill("transparent-huge-pages-defrag").is, "always");
        machine.put(file, "always defer [defer+madvise] madvise never\n");
        assert_eq!(machine.examine().to_mend, 0);
    }

    fn huge_pages(machine: &Recorded, total: u64, free: u64) {
        let text = format!(
            "MemTotal:       24684084 kB\nHugePages_Total:    {total}\nHugePages_Free:     {free}\n\
             HugePages_Rsvd:        0\nHugepagesize:       2048 kB\n"
        );
        machine.put("proc/meminfo", &text);
    }

    #[test]
    fn huge_pages_that_nobody_uses_are_to_be_given_back() {
        let machine = Recorded::sound();
        huge_pages(&machine, 1024, 1024);
        let ill = machine.only_ill("huge-pages");
        assert_eq!(ill.is, "1024 are reserved (2048 MiB) and nobody uses one");
        huge_pages(&machine, 1024, 1000);
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn a_database_whose_page_tables_are_large_is_to_get_huge_pages() {
        let machine = Recorded::sound();
        for pid in 200..210 {
            machine.process(pid, "postgres", 0);
            let status = "Name:\tpostgres\nRssShmem:\t 8388608 kB\nVmPTE:\t   30000 kB\n";
            machine.put(&format!("proc/{pid}/status"), status);
        }
        let ill = machine.only_ill("huge-pages");
        assert!(ill.is.contains("292 MiB for 8192 MiB"), "{ill:#?}");
        assert!(ill.mend.unwrap().starts_with("sysctl vm.nr_hugepages=4301;"));
        // With huge pages in use nothing is to be done, whatever the rest of the page tables takes.
        huge_pages(&machine, 4301, 20);
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn the_shared_memory_of_other_programs_asks_for_no_huge_pages() {
        let machine = Recorded::sound();
        machine.process(300, "firefox", 0);
        machine.put("proc/300/status", "Name:\tfirefox\nRssShmem:\t 999 kB\nVmPTE:\t  900000 kB\n");
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn pages_that_move_between_nodes_are_to_be_mended_where_there_are_several() {
        let machine = Recorded::sound();
        machine.put("proc/sys/kernel/numa_balancing", "1\n");
        // One node: nothing can move.
        assert_eq!(machine.examine().to_mend, 0);
        machine.put("sys/devices/system/node/node1/cpulist", "2-3\n");
        let ill = machine.only_ill("numa-balancing");
        assert_eq!(
            (ill.is.as_str(), ill.mend.as_deref()),
            ("1, on 2 nodes", Some("sysctl kernel.numa_balancing=0"))
        );
        machine.put("proc/sys/kernel/numa_balancing", "0\n");
        assert_eq!(machine.examine().to_mend, 0);
    }

    #[test]
    fn a_node_that_reclaims_its_own_memory_first_is_to_be_mended() {
        let machine = Recorded::sound();
        machine.put("proc/sys/vm/zone_reclaim_mode", "1\n");
        assert_eq!(
            machine.only_ill("zone-reclaim").mend.as_deref(),
            Some("sysctl vm.zone_reclaim_mode=0")
        );
    }

    #[test]
    fn a_kernel_without_transparent_huge_pages_is_no_finding() {
        let machine = Recorded::sound();
        machine.remove("sys/kernel/mm/transparent_hugepage");
        let examined = examine(machine.root(), &[]).unwrap();
        let unknown =
            examined.checks.iter().filter(|check| check.verdict == Verdict::Unknown).count();
        assert_eq!((unknown, examined.to_mend), (2, 0));
    }
}
