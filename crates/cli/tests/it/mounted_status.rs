//! What `status` and `attach` tell of a home that is mounted, above all when something is wrong
//! with it.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::daemon::{
    Site, blocks, can_mount, good, is_alive, json, kill, refused, text, tiersmith, wait_until,
};
use serde_json::Value;

/// What `status` says of a home that is mounted, whether all is well or not.
fn look(site: &Site) -> (i32, Value) {
    let status = tiersmith(&["status", site.home_str(), "--json"]);
    (status.status.code().unwrap(), json(&status))
}

#[test]
fn a_full_home_is_told_of_by_status_until_it_takes_the_blocks() {
    if !can_mount("a full home") {
        return;
    }
    let Some(site) = Site::on_small_disk(12) else { return };
    fs::write(site.home.with_file_name("ballast"), vec![1; 8 << 20]).unwrap();
    let _ = site.attach(&["--profile", "postgres"]);
    fs::create_dir_all(site.home.join("base/1")).unwrap();
    fs::write(site.home.join("base/1/1259"), blocks(3, 800)).unwrap();
    assert_eq!(look(&site).0, 0, "6.3 MiB are in a tier of 24, home has nothing to do yet");
    let said = refused(&["flush", site.home_str()]);
    assert!(said.contains("No space left"), "{said}");
    // Long enough for the background to have nothing to do.
    std::thread::sleep(Duration::from_secs(3));
    let (code, status) = look(&site);
    let error = status["live"]["background_error"].as_str().unwrap_or_default().to_owned();
    assert!(error.contains("base/1/1259") && error.contains("free space there"), "{status}");
    assert_eq!(code, 1, "{status}");
    let shown = text(&tiersmith(&["status", site.home_str()]));
    assert!(shown.contains("TO MEND") && shown.contains("base/1/1259"), "{shown}");
    let log = fs::read_to_string(site.path().join("db.tiersmith-log")).unwrap();
    assert!(log.contains("base/1/1259"), "{log}");
    for debug in ["{ code:", "kind: StorageFull", "RealHome"] {
        assert!(!log.contains(debug) && !error.contains(debug), "{debug}: {log}");
    }
    fs::remove_file(site.home.with_file_name("ballast")).unwrap();
    wait_until("home has taken the blocks", || look(&site).0 == 0);
    assert_eq!(site.live()["classes"][1]["dirty_bytes"], 0);
    good(&["detach", site.home_str()]);
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(3, 800));
}

#[test]
fn commands_of_a_stopped_daemon_end_soon_and_say_that_it_is_stopped() {
    if !can_mount("a stopped daemon") {
        return;
    }
    let site = Site::postgres_like();
    let pid = site.attach(&[])["pid"].as_u64().unwrap();
    kill("STOP", pid);
    for command in ["status", "check", "flush", "unmount", "detach", "attach"] {
        let began = Instant::now();
        let said = refused(&[command, site.home_str()]);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(25), "{command} took {took:?}");
        let remedy = format!("kill -CONT {pid}");
        assert!(said.contains("is stopped") && said.contains(&remedy), "{command}: {said}");
    }
    let archive = site.path().join("archive.tsawr");
    for command in [
        &["top", "--once", site.home_str()][..],
        &["awr", "snapshot", site.home_str(), "--to", archive.to_str().unwrap()],
    ] {
        let said = refused(command);
        assert!(said.contains("is stopped"), "{command:?}: {said}");
    }
    kill("CONT", pid);
    assert_eq!(site.live()["pid"], pid, "what was refused was done all the same");
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn a_mounted_home_whose_files_were_removed_is_not_called_unattached() {
    if !can_mount("a home that was removed while it was mounted") {
        return;
    }
    let site = Site::postgres_like();
    let pid = site.attach(&[])["pid"].as_u64().unwrap();
    // What `rm -rf` of the tree does: mount points are busy, and stay; that of the WAL is empty.
    for entry in fs::read_dir(&site.home).unwrap() {
        let path = entry.unwrap().path();
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match removed {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {}
            removed => removed.unwrap(),
        }
    }
    fs::remove_dir_all(site.path().join("db.tiersmith-home")).unwrap();
    for left in ["db.tiersmith-control", "db.tiersmith-log"] {
        fs::remove_file(site.path().join(left)).unwrap();
    }
    let status = tiersmith(&["status", site.home_str()]);
    let said = text(&status);
    assert_eq!(status.status.code(), Some(1), "{said}");
    assert!(said.contains("files are gone") && said.contains(&format!("kill {pid}")), "{said}");
    assert_eq!(look(&site).0, 1);
    for command in ["unmount", "detach", "flush"] {
        assert!(refused(&[command, site.home_str()]).contains("files are gone"), "{command}");
    }
    let again = ["attach", site.home_str(), "--fast", site.fast_str(), "--emulate"];
    assert!(refused(&again).contains("files are gone"));
    kill("TERM", pid);
    wait_until("the daemon ends", || !is_alive(pid));
}

#[test]
fn a_daemon_whose_socket_was_removed_is_not_called_unmounted() {
    if !can_mount("a daemon without its socket") {
        return;
    }
    let site = Site::postgres_like();
    let pid = site.attach(&[])["pid"].as_u64().unwrap();
    fs::remove_file(site.path().join("db.tiersmith-control")).unwrap();
    let status = tiersmith(&["status", site.home_str()]);
    let said = text(&status);
    assert_eq!(status.status.code(), Some(1), "{said}");
    assert!(said.contains("its socket") && said.contains(&format!("kill {pid}")), "{said}");
    kill("TERM", pid);
    wait_until("the daemon ends", || !is_alive(pid));
    let _ = site.attach_again();
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn a_daemon_that_takes_no_more_commands_is_not_called_unmounted() {
    if !can_mount("a daemon with too many commands") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    let control = site.path().join("db.tiersmith-control");
    let waiting: Vec<UnixStream> =
        (0..16).map(|_| UnixStream::connect(&control).unwrap()).collect();
    for command in ["status", "detach"] {
        let asked = tiersmith(&[command, site.home_str()]);
        let said = text(&asked);
        assert_eq!(asked.status.code(), Some(2), "{said}");
        assert!(said.contains("is busy") && !said.contains("removed"), "{said}");
    }
    drop(waiting);
    wait_until("it takes commands again", || {
        tiersmith(&["status", site.home_str()]).status.code() == Some(0)
    });
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn the_log_of_a_daemon_that_runs_is_bounded_and_one_older_one_is_kept() {
    if !can_mount("the daemon's log") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    let (log, old) =
        (site.path().join("db.tiersmith-log"), site.path().join("db.tiersmith-log.old"));
    // What the daemon would have said in a bad month.
    for line in ["the first", "the second"] {
        let mut file = fs::OpenOptions::new().append(true).open(&log).unwrap();
        file.write_all(format!("{line}\n").repeat(1 << 19).as_bytes()).unwrap();
        wait_until("the log begins anew", || fs::metadata(&log).is_ok_and(|m| m.len() < 1 << 20));
        assert!(fs::read_to_string(&old).unwrap().ends_with(&format!("{line}\n")));
    }
    // What it says from now on is in the new one.
    good(&["unmount", site.home_str()]);
    assert!(fs::read_to_string(&log).unwrap().contains("stays attached"));
    let _ = site.attach_again();
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn an_attach_refused_by_its_home_leaves_no_tier() {
    if !can_mount("a home that cannot be written") {
        return;
    }
    let Some(site) = Site::on_small_disk(8) else { return };
    let disk = site.path().to_owned();
    let remount = |how: &str| {
        let done = std::process::Command::new("mount").args(["-o", how]).arg(&disk).status();
        assert!(done.unwrap().success());
    };
    remount("remount,ro");
    let said = refused(&["attach", site.home_str(), "--fast", site.fast_str(), "--emulate"]);
    assert!(said.contains("cannot be written") && said.contains("read-write"), "{said}");
    assert_eq!(fs::read_dir(&site.fast).unwrap().count(), 0, "a tier was left");
    remount("remount,rw");
}

#[test]
fn what_redo_may_take_beside_the_tier_is_said_and_can_be_bounded() {
    if !can_mount("the bound of lent redo") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach_sized("24MB", &["--passthrough-max", "32MiB"]);
    assert_eq!(
        (&attached["tier_bytes"], &attached["passthrough_max_bytes"]),
        (&(24 << 20).into(), &(32 << 20).into())
    );
    assert_eq!(site.live()["lent"]["max_bytes"], 32 << 20);
    // What the kernel asked is told by kind.
    assert!(site.home.join("PG_VERSION").exists());
    assert!(
        site.live()["door"]["requests"]["lookup"].as_u64() > Some(0),
        "{}",
        site.live()["door"]
    );
    let said = text(&good(&["status", site.home_str()]));
    assert!(said.contains(" lookup") && said.contains("extended attributes"), "{said}");
    assert!(said.contains("  tier fast (EMULATED): 24M") && !said.contains("\\n"), "{said}");
    good(&["unmount", site.home_str()]);
    // Remembered, and printed where it matters.
    let again = text(&good(&["attach", site.home_str(), "--xattrs", "always"]));
    assert_eq!(site.live()["door"]["xattrs"], true);
    if site.live()["door"]["lends"] == true {
        assert!(again.contains("up to 32M") && again.contains("--passthrough-max"), "{again}");
    }
    assert_eq!(site.live()["lent"]["max_bytes"], 32 << 20);
    good(&["detach", site.home_str()]);
    site.assert_plain();
    assert!(text(&tiersmith(&["attach", "--help"])).contains("--passthrough-max"));
}

#[test]
fn rules_of_the_cache_are_noted_shown_and_replaced_and_bad_ones_are_all_named() {
    if !can_mount("rules of the cache") {
        return;
    }
    let site = Site::postgres_like();
    let (home, fast) = (site.home_str(), site.fast_str());
    let bad = ["--cache", "pin=a", "--cache", "keep=base/[", "--cache", "none=base/**"];
    let said = refused(&[&["attach", home, "--fast", fast, "--emulate"][..], &bad].concat());
    assert!(said.contains("`pin=a`") && said.contains("`keep=base/[`"), "{said}");
    assert!(said.contains("none=PATTERN") && !said.contains("none=base"), "{said}");
    site.assert_plain();

    let attached = site.attach(&["--cache", "keep=base/1/*", "--cache", "none=no/such*"]);
    let remarks = attached["remarks"].to_string();
    assert!(remarks.contains("`none=no/such*` decides of no data file"), "{remarks}");
    assert!(!remarks.contains("keep=base"), "{remarks}");
    // Read once, from one end to the other: it is taken all the same.
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
    let cached = |site: &Site| site.live()["cache"][0]["cached_bytes"].as_u64().unwrap();
    wait_until("what was read is in the tier", || cached(&site) == 64 * 8192);
    let shown = text(&good(&["status", home]));
    assert!(shown.contains("keep base/1/*: 1 files, 512K cached"), "{shown}");
    assert!(shown.contains("none no/such*: no data file that the tier knows"), "{shown}");
    good(&["unmount", home]);

    let again = site.attach_again();
    let rules = |said: &Value| {
        let all = said["cache"].as_array().unwrap().iter();
        all.map(|rule| (rule["keeping"].clone(), rule["pattern"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(rules(&again), rules(&attached), "{again}");
    good(&["unmount", home]);
    let other = json(&good(&["attach", home, "--json", "--cache", "default=**"]));
    assert_eq!(rules(&other), [("default".into(), "**".into())], "{other}");
    good(&["detach", home]);
    site.assert_plain();
}

#[test]
fn a_write_budget_is_noted_shown_replaced_and_ended_and_one_of_nothing_is_refused() {
    if !can_mount("a write budget") {
        return;
    }
    let site = Site::postgres_like();
    let (home, fast) = (site.home_str(), site.fast_str());
    let with = |budget| {
        let ran = tiersmith(&["attach", home, "--fast", fast, "--write-budget", budget]);
        assert_eq!(ran.status.code(), Some(2), "{ran:?}");
        text(&ran)
    };
    for (budget, says) in [("0", "none=PATTERN"), ("0dwpd", "none=PATTERN"), ("fast", "0.3dwpd")] {
        let said = with(budget);
        assert!(said.contains(says) && said.contains("--write-budget"), "{said}");
    }
    site.assert_plain();

    let attached = site.attach(&["--write-budget", "0.5dwpd"]);
    let bytes = attached["tier_bytes"].as_u64().unwrap() / 2;
    assert_eq!(attached["write_budget"], bytes);
    let used = |site: &Site| site.live()["tiers"][0]["write_budget"].clone();
    assert_eq!(used(&site)["bytes_a_day"], bytes, "{}", site.live());
    // Nothing has grown yet, so nothing is copied; what is written is.
    let mut written = fs::File::create(site.home.join("base/1/9")).unwrap();
    written.write_all(&blocks(5, 8)).unwrap();
    written.sync_all().unwrap();
    drop(written);
    wait_until("what was written counts", || {
        used(&site)["written_today"].as_u64().unwrap() >= 8 * 8192
    });
    let shown = text(&good(&["status", home]));
    assert!(shown.contains("of the write budget of"), "{shown}");
    assert!(shown.contains("programs alone"), "{shown}");
    good(&["unmount", home]);

    assert_eq!(site.attach_again()["write_budget"], bytes, "it was noted");
    good(&["unmount", home]);
    let other = json(&good(&["attach", home, "--json", "--write-budget", "3G"]));
    assert_eq!(other["write_budget"], 3_u64 << 30);
    good(&["unmount", home]);
    let none = json(&good(&["attach", home, "--json", "--write-budget", "none"]));
    assert_eq!((&none["write_budget"], used(&site)), (&Value::Null, Value::Null));
    good(&["detach", home]);
}

#[test]
fn status_and_snapshots_say_what_the_cache_did_by_class_and_by_file() {
    if !can_mount("a home whose cache is counted") {
        return;
    }
    let site = Site::postgres_like();
    fs::create_dir_all(site.home.join("base/1")).unwrap();
    for file in ["base/1/1259", "base/1/2600"] {
        fs::write(site.home.join(file), blocks(3, 40)).unwrap();
    }
    let _ = site.attach(&["--profile", "postgres", "--cache", "none=base/1/2600"]);
    assert_eq!(fs::read(site.home.join("base/1/2600")).unwrap(), blocks(3, 40));
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(3, 40));
    let mut written = fs::File::create(site.home.join("base/1/9")).unwrap();
    written.write_all(&blocks(5, 2)).unwrap();
    written.sync_all().unwrap();
    drop(written);
    let usage = || site.live()["usage"].clone();
    let of = |usage: &Value, list: &str, name: &str| {
        let list = usage[list].as_array().unwrap();
        list.iter().find(|one| one["of"] == name).unwrap().clone()
    };
    let number = |of: &Value, what: &str| of[what].as_u64().unwrap();
    // The background copies what was read, and a look while it does is of two instants.
    wait_until("what was read is copied, and the files' sums are those of the classes", || {
        let usage = usage();
        let sum = |list: &str, what: &str| -> u64 {
            usage[list].as_array().unwrap().iter().map(|one| number(one, what)).sum()
        };
        let agrees = |what| sum("files", what) == sum("classes", what);
        // In the first second there is no rate.
        let a_day = usage["classes"][1]["bytes_written_a_day"].as_u64();
        sum("classes", "inserts") >= 40
            && a_day > Some(0)
            && ["hits", "misses", "inserts", "bytes_written"].into_iter().all(agrees)
    });
    let usage = usage();
    let ruled = of(&usage, "files", "base/1/2600");
    assert_eq!(ruled["skips"]["rule none"], ruled["misses"], "{usage}");
    assert!(number(&ruled, "misses") >= 40 && ruled["inserts"] == 0, "{usage}");
    let written = of(&usage, "files", "base/1/9");
    assert!(number(&written, "bytes_written") >= 2 * 8192, "{usage}");
    let shown = text(&tiersmith(&["status", site.home_str()]));
    for words in ["hit %", "a day", "missed and not inserted, why: ", " rule none", "base/1/2600"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let archive = site.path().join("archive.tsawr");
    let to = archive.to_str().unwrap();
    good(&["awr", "snapshot", site.home_str(), "--to", to]);
    assert_eq!(fs::read(site.home.join("base/1/2600")).unwrap(), blocks(3, 40));
    good(&["awr", "snapshot", site.home_str(), "--to", to]);
    let report = text(&tiersmith(&["awr", "report", "--in", to, "1", "2"]));
    for name in ["flash cache inserts", "physical read requests optimized"] {
        assert!(report.contains(name), "{name}: {report}");
    }
    fs::remove_dir_all(&archive).unwrap();
    good(&["detach", site.home_str()]);
    site.assert_plain();
}
