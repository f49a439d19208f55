//! How much memory a report needs: that of some snapshots, not of all.
//!
//! It counts what the process held at most, not how long anything took.
//! `TIERSMITH_MEMORY=PATH TIERSMITH_MINUTES=1441` makes a repository with so many snapshots, one a
//! minute, at a path, to measure the program with.

use crate::day;
use tiersmith_awr::archive::Archive;
use tiersmith_awr::{AnyRepository, CounterStat, Snapshot, SnapshotId, compare, render, report};

/// What this process held at most since the last [`forget`], in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The peak is what is held now.
fn forget() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Set in the process that measures itself.
const ALONE: &str = "TIERSMITH_MEASURES_ITS_MEMORY";

/// What stands before this file's tests in their names.
fn module() -> &'static str {
    module_path!().split_once("::").unwrap().1
}

#[test]
fn a_report_of_many_snapshots_holds_some_of_them() {
    if let (Some(path), Ok(minutes)) =
        (std::env::var_os("TIERSMITH_MEMORY"), std::env::var("TIERSMITH_MINUTES"))
    {
        let archive = Archive::open(std::path::PathBuf::from(path)).unwrap();
        let mut all = day::day("db1", 20).take(minutes.parse().unwrap()).peekable();
        while all.peek().is_some() {
            archive.take_all(&all.by_ref().take(50).collect::<Vec<Snapshot>>()).unwrap();
        }
        return;
    }
    // In a process of its own: the tests beside this one need memory too.
    if std::env::var_os(ALONE).is_none() {
        let test = format!("{}::a_report_of_many_snapshots_holds_some_of_them", module());
        let ran = std::process::Command::new(std::env::current_exe().unwrap())
            .args([&test, "--exact", "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        // Not how many tests passed there: whoever adds those up would count this one twice.
        said.lines().filter(|line| !line.contains("passed")).for_each(|line| eprintln!("{line}"));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::open(dir.path().join("awr.db")).unwrap();
    let count = 120;
    // Large ones: of many counters.
    let mut large = day::day("db1", 0);
    let names = (0..4_000).map(|n| format!("a counter among many of them, number {n}"));
    let names: Vec<String> = names.collect();
    for number in 0..count {
        let mut snapshot = large.next().unwrap();
        for name in &names {
            snapshot.counters.push(CounterStat {
                name: name.clone(),
                unit: "calls".to_owned(),
                help: String::new(),
                value: number,
            });
        }
        archive.take(&snapshot).unwrap();
    }
    let repository = AnyRepository::Archive(archive);
    let of = |last: u64| repository.interval(SnapshotId::new(1), SnapshotId::new(last)).unwrap();
    // What a report takes anyway, however short it is.
    let short = of(10);
    drop((render::html(&report(&short)), render::html(&compare(&short, &short)), short));
    if !forget() {
        eprintln!(
            "skipped: the memory of a report, because this kernel does not let a process begin its \
             peak anew"
        );
        return;
    }
    let before = peak_kib().unwrap();
    let whole = of(count);
    let grown = peak_kib().unwrap() - before;
    assert_eq!(whole.counter(&names[0]), Some(count - 1));
    let kept = whole.begin.to_json().len() as u64 * count / 1024;
    eprintln!("{count} snapshots of {kept} KiB as text: {grown} KiB more while they were read");
    assert!(kept > 40 << 10, "{kept} KiB: there is something to hold");
    assert!(grown < kept / 3, "{grown} KiB of {kept}");
}
