//! A mounted home through the program: its whole life, and what ends it.
//!
//! What is refused is in `mounted_refusals.rs`, real databases in `databases.rs`.

use crate::daemon;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon::{
    Site, blocks, can_mount, command, good, is_alive, is_mounted, json, kill, output, refused,
    text, tiersmith, wait_until,
};
use serde_json::Value;

#[test]
fn a_home_lives_through_attach_status_flush_pin_move_unmount_check_and_detach() {
    if !can_mount("the life of a mounted home") {
        return;
    }
    let site = Site::postgres_like();
    let home = site.home_str();
    let attached = site.attach(&[]);
    assert_attached(&site, &attached);

    // Data, redo and a file that passes.
    let data =
        fs::OpenOptions::new().read(true).write(true).open(site.home.join("base/1/1259")).unwrap();
    data.write_all_at(&[9; 8192], 8192).unwrap();
    fs::write(site.home.join("pg_wal/000000010000000000000001"), blocks(5, 8)).unwrap();
    fs::write(site.home.join("postgresql.conf"), "port = 1\n").unwrap();
    assert_status(&site);
    pin_and_move(&site);

    good(&["flush", home, "pg_wal/*"]);
    good(&["flush", home]);
    assert_eq!(site.live()["tiers"][0]["dirty_bytes"], 0);
    let at_home =
        fs::read(site.path().join("db.tiersmith-home/home/pg_wal/000000010000000000000001"))
            .unwrap();
    assert_eq!(at_home, blocks(5, 8));

    assert!(refused(&["check", home]).contains("tiersmith unmount"), "a live tier was checked");
    drop(data);
    good(&["unmount", home]);
    assert!(!is_mounted(&site.home));
    assert!(site.home.join("README-TIERSMITH.txt").exists());
    assert!(refused(&["unmount", home]).contains("is not mounted"));
    good(&["check", home]);
    let status = tiersmith(&["status", home, "--json"]);
    assert_eq!(
        (status.status.code(), &json(&status)["standing"]),
        (Some(1), &"attached, not mounted".into())
    );
    let again = site.attach_again();
    assert_eq!(
        (&again["again"], &again["profile"], &again["emulated"]),
        (&true.into(), &"postgres".into(), &true.into())
    );
    let detached = json(&good(&["detach", home, "--json"]));
    assert_eq!(detached["was_attached"], true);
    wait_until("the daemon has ended", || !is_alive(again["pid"].as_u64().unwrap()));
    site.assert_plain();
    let mut expected = blocks(0, 64);
    expected[8192..16384].fill(9);
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), expected);
    assert_eq!(fs::read_to_string(site.home.join("postgresql.conf")).unwrap(), "port = 1\n");
    assert_eq!(json(&good(&["detach", home, "--json"]))["was_attached"], false);
    assert_eq!(json(&good(&["status", home, "--json"]))["standing"], "plain");
}

/// What attach says, and what it has made.
fn assert_attached(site: &Site, attached: &Value) {
    assert_eq!(
        (&attached["profile"], &attached["emulated"], &attached["again"]),
        (&"postgres".into(), &true.into(), &false.into())
    );
    assert!(
        attached["profile_why"].as_str().unwrap().contains("looking into the directory"),
        "{attached}"
    );
    assert!(is_mounted(&site.home));
    let tier = fs::metadata(attached["members"][0].as_str().unwrap()).unwrap();
    let owner = fs::metadata(site.path().join("db.tiersmith-home/home")).unwrap();
    assert_eq!((tier.mode() & 0o7777, tier.uid()), (0o600, owner.uid()));
    assert_eq!(site.beside(), ["db.tiersmith-control", "db.tiersmith-home", "db.tiersmith-log"]);
    let control = fs::symlink_metadata(site.path().join("db.tiersmith-control")).unwrap();
    assert_eq!(control.mode() & 0o7777, 0o600);
}

/// Of redo, and of a block that was written.
fn assert_status(site: &Site) {
    let live = site.live();
    assert!(
        live["classes"][0]["class"] == "redo"
            && live["drain_lag_bytes"].as_u64().unwrap() >= 8 * 8192,
        "{live}"
    );
    assert!(live["classes"][1]["dirty_bytes"].as_u64().unwrap() >= 8192, "{live}");
    assert_eq!(live["emulated"], true);
    let printed = text(&good(&["status", site.home_str()]));
    assert!(
        printed.contains("EMULATED")
            && printed.contains("drain lag")
            && printed.contains("requests:"),
        "{printed}"
    );
}

fn pin_and_move(site: &Site) {
    let home = site.home_str();
    let pinned = json(&good(&["pin", home, "base/1/*", "--json"]));
    assert_eq!(pinned["done"]["files"], 1, "{pinned}");
    assert_eq!(site.live()["classes"][1]["pinned_files"], 1);
    let moved = tiersmith(&["move", home, "base/1/1259", "--to", "home"]);
    assert_eq!(moved.status.code(), Some(1), "a pinned file was moved: {}", text(&moved));
    assert_eq!(json(&good(&["unpin", home, "base/1/1259", "--json"]))["done"]["files"], 1);
    good(&["move", home, "base/1/1259", "--to", "home"]);
    let data_class = |live: Value| live["classes"][1].clone();
    let class = data_class(site.live());
    assert_eq!(
        (class["dirty_bytes"].as_u64(), class["cached_bytes"].as_u64()),
        (Some(0), Some(0)),
        "{class}"
    );
    good(&["move", home, "base/1/1259", "--to", "tier"]);
    assert!(data_class(site.live())["cached_bytes"].as_u64().unwrap() >= 64 * 8192);
    assert!(refused(&["pin", home, "no/such*"]).contains("no file of"));
    let passes = tiersmith(&["pin", home, "postgresql.conf"]);
    assert_eq!(passes.status.code(), Some(1), "{}", text(&passes));
}

/// Writes that were acknowledged before the daemon was killed; each block is whole.
fn write_some(site: &Site, seed: u8) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(site.home.join("base/1/9"))
        .unwrap();
    for (n, block) in blocks(seed, 100).chunks(8192).enumerate() {
        file.write_all_at(block, n as u64 * 8192).unwrap();
    }
    let redo = fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(site.home.join("pg_wal/000000010000000000000002"))
        .unwrap();
    std::io::Write::write_all(&mut &redo, &blocks(seed, 3)).unwrap();
}

#[test]
fn a_killed_daemon_loses_nothing_and_attach_says_what_it_did() {
    if !can_mount("a killed daemon") {
        return;
    }
    let site = Site::postgres_like();
    let mut attached = site.attach(&[]);
    for round in 1..=3 {
        write_some(&site, round);
        site.kill_daemon(&attached);
        attached = site.attach_again();
        let remarks = attached["remarks"].to_string();
        assert!(remarks.contains("was cleared from"), "{attached}");
        assert!(attached["recovery"].as_str().unwrap().starts_with("opened in"), "{attached}");
        assert_eq!(fs::read(site.home.join("base/1/9")).unwrap(), blocks(round, 100));
        let redo: Vec<u8> = (1..=round).flat_map(|seed| blocks(seed, 3)).collect();
        assert_eq!(fs::read(site.home.join("pg_wal/000000010000000000000002")).unwrap(), redo);
    }
    good(&["detach", site.home_str()]);
    site.assert_plain();
    assert_eq!(fs::read(site.home.join("base/1/9")).unwrap(), blocks(3, 100));
}

#[test]
fn after_a_killed_daemon_status_tells_and_detach_recovers_first() {
    if !can_mount("detach after a killed daemon") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    write_some(&site, 4);
    site.kill_daemon(&attached);
    let status = tiersmith(&["status", site.home_str()]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert!(text(&status).contains("tiersmith attach"), "{}", text(&status));
    let detached = json(&good(&["detach", site.home_str(), "--json"]));
    assert!(detached["recovery"].as_str().unwrap().starts_with("opened in"), "{detached}");
    site.assert_plain();
    assert_eq!(fs::read(site.home.join("base/1/9")).unwrap(), blocks(4, 100));
}

/// A daemon that ends has unmounted before it lets go of its tier.
#[test]
fn status_waits_for_a_daemon_that_still_has_the_tier() {
    if !can_mount("status beside a daemon that ends") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    good(&["unmount", site.home_str()]);
    let told = json(&tiersmith(&["status", site.home_str(), "--json"]));
    assert_eq!(told["standing"], "attached, not mounted", "{told}");
    let member = fs::File::open(told["members"][0].as_str().unwrap()).unwrap();
    member.lock().unwrap();
    let arguments = ["status", site.home_str(), "--json"];
    let mut looking = command(&arguments).spawn().unwrap();
    thread::sleep(Duration::from_secs(1));
    assert!(looking.try_wait().unwrap().is_none(), "it did not wait");
    member.unlock().unwrap();
    let looked = output(looking, &arguments);
    assert_eq!(looked.status.code(), Some(1), "{}", text(&looked));
    assert_eq!(json(&looked), told);
    good(&["detach", site.home_str()]);
}

#[test]
fn after_a_reboot_the_home_is_a_note_and_attach_alone_goes_on() {
    if !can_mount("a reboot") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    write_some(&site, 6);
    site.kill_daemon(&attached);
    // The kernel forgets mounts; the socket's file stays.
    for unmount in [&["umount", "-l"][..], &["fusermount3", "-uz"]] {
        if is_mounted(&site.home) {
            let _ = std::process::Command::new(unmount[0])
                .args(&unmount[1..])
                .arg(&site.home)
                .stdin(Stdio::null())
                .output();
        }
    }
    assert!(!is_mounted(&site.home));
    assert!(
        fs::read_to_string(site.home.join("README-TIERSMITH.txt"))
            .unwrap()
            .contains("tiersmith detach")
    );
    assert!(
        fs::write(site.home.join("postmaster.pid"), "1").is_err() || daemon::is_root(),
        "a database could start here"
    );
    let _ = fs::remove_file(site.home.join("postmaster.pid"));
    good(&["check", site.home_str(), "--cold"]);
    let again = site.attach_again();
    assert_eq!(again["profile"], "postgres");
    assert_eq!(fs::read(site.home.join("base/1/9")).unwrap(), blocks(6, 100));
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn a_detach_killed_anywhere_is_ended_by_the_next_attach_or_detach() {
    if !can_mount("an interrupted detach") {
        return;
    }
    let site = Site::postgres_like();
    fs::write(site.home.join("base/1/big"), blocks(1, 1000)).unwrap();
    for round in 0..8_u8 {
        let attached = site.attach(&[]);
        let file = fs::OpenOptions::new().write(true).open(site.home.join("base/1/big")).unwrap();
        file.write_all_at(&blocks(round, 1000), 0).unwrap();
        drop(file);
        let detaching = command(&["detach", site.home_str()]).spawn().unwrap();
        // At some instant of it, mostly: which one does not matter for what must hold.
        let wait_us = fastrand::u64(0..60_000);
        std::thread::sleep(std::time::Duration::from_micros(wait_us));
        site.kill_daemon(&attached);
        let _ = output(detaching, &["detach"]);
        if round % 2 == 0 {
            let arguments = [
                "attach",
                site.home_str(),
                "--fast",
                site.fast_str(),
                "--emulate",
                "--size",
                "24M",
                "--json",
            ];
            let again = json(&good(&arguments));
            assert_eq!(
                fs::read(site.home.join("base/1/big")).unwrap(),
                blocks(round, 1000),
                "after {wait_us} us, {again}"
            );
        }
        good(&["detach", site.home_str()]);
        site.assert_plain();
        assert_eq!(
            fs::read(site.home.join("base/1/big")).unwrap(),
            blocks(round, 1000),
            "after {wait_us} us"
        );
    }
}

#[test]
fn a_signal_unmounts_when_nobody_uses_it_and_the_home_stays_attached() {
    if !can_mount("SIGTERM") {
        return;
    }
    let site = Site::postgres_like();
    for signal in ["TERM", "INT"] {
        let attached = site.attach(&[]);
        let pid = attached["pid"].as_u64().unwrap();
        write_some(&site, 8);
        let open = fs::File::open(site.home.join("base/1/9")).unwrap();
        kill(signal, pid);
        wait_until("the log says who uses it", || {
            fs::read_to_string(site.path().join("db.tiersmith-log"))
                .unwrap()
                .contains("asked to end")
        });
        assert!(is_alive(pid) && is_mounted(&site.home));
        assert_eq!(site.live()["pid"], attached["pid"]);
        drop(open);
        wait_until("the daemon has ended", || !is_alive(pid));
        assert!(!is_mounted(&site.home));
        assert_eq!(site.attach_again()["remarks"].as_array().unwrap().len(), 0);
        assert!(fs::read(site.home.join("base/1/9")).unwrap() == blocks(8, 100));
        good(&["detach", site.home_str()]);
        site.assert_plain();
    }
}

#[test]
fn in_the_foreground_it_serves_until_sigterm() {
    if !can_mount("the foreground") {
        return;
    }
    let site = Site::postgres_like();
    let arguments = [
        "attach",
        site.home_str(),
        "--fast",
        site.fast_str(),
        "--emulate",
        "--size",
        "24M",
        "--foreground",
    ];
    let child = command(&arguments).spawn().unwrap();
    let pid = u64::from(child.id());
    wait_until("it is mounted", || {
        is_mounted(&site.home) && site.path().join("db.tiersmith-control").exists()
    });
    assert_eq!(site.live()["pid"], pid);
    kill("TERM", pid);
    let ended = output(child, &arguments);
    assert!(ended.status.success(), "{}", text(&ended));
    assert!(text(&ended).contains("attached, and mounted at"), "{}", text(&ended));
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn with_standard_input_output_and_error_closed_it_mounts_all_the_same() {
    if !can_mount("closed descriptors") {
        return;
    }
    let site = Site::postgres_like();
    let script = format!(
        "exec '{}' attach '{}' --fast '{}' --emulate --size 24M <&- >&- 2>&-",
        env!("CARGO_BIN_EXE_tiersmith"),
        site.home_str(),
        site.fast_str()
    );
    let child = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _ = output(child, &["sh"]);
    assert!(is_mounted(&site.home));
    fs::write(site.home.join("postgresql.conf"), "a").unwrap();
    write_some(&site, 2);
    assert_eq!(fs::read(site.home.join("base/1/9")).unwrap(), blocks(2, 100));
    good(&["detach", site.home_str()]);
    site.assert_plain();
    assert_eq!(fs::read(site.home.join("postgresql.conf")).unwrap(), b"a");
}

#[test]
fn a_detach_that_takes_longer_than_a_daemon_may_be_silent_is_waited_for() {
    const SILENCE: Duration = Duration::from_secs(10);
    // Each of them costs the modelled home a seek.
    const BLOCKS: u64 = 7500;
    if !can_mount("a detach from a slow home") {
        return;
    }
    let site = Site::postgres_like();
    let _ =
        site.attach_sized("192M", &["--home-model", "15k-disk-array", "--sync-on-write", "never"]);
    let file = fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(site.home.join("base/1/2000"))
        .unwrap();
    let block = blocks(7, 1);
    for n in 0..BLOCKS {
        file.write_all_at(&block, 2 * n * 8192).unwrap();
    }
    drop(file);
    let began = Instant::now();
    good(&["detach", site.home_str()]);
    assert!(began.elapsed() > SILENCE, "the home is not slow: {:?}", began.elapsed());
    let file = fs::File::open(site.home.join("base/1/2000")).unwrap();
    let mut last = vec![0; 8192];
    file.read_exact_at(&mut last, 2 * (BLOCKS - 1) * 8192).unwrap();
    assert_eq!(last, block);
    site.assert_plain();
}

#[test]
fn at_another_mount_point_the_homes_own_path_is_a_note() {
    if !can_mount("another mount point") {
        return;
    }
    let site = Site::postgres_like();
    let at = site.path().join("elsewhere");
    fs::create_dir(&at).unwrap();
    let attached = site.attach(&["--at", at.to_str().unwrap()]);
    assert!(is_mounted(&at) && !is_mounted(&site.home));
    assert!(site.home.join("README-TIERSMITH.txt").exists());
    fs::write(at.join("base/1/9"), blocks(3, 9)).unwrap();
    site.kill_daemon(&attached);
    let again = site.attach_again();
    assert_eq!(again["at"], at.to_str().unwrap(), "the mount point was not remembered");
    assert_eq!(fs::read(at.join("base/1/9")).unwrap(), blocks(3, 9));
    good(&["detach", site.home_str()]);
    fs::remove_dir(&at).unwrap();
    site.assert_plain();
    assert_eq!(fs::read(site.home.join("base/1/9")).unwrap(), blocks(3, 9));
}

#[test]
fn a_volatile_tier_may_vanish_and_a_modelled_home_is_labelled() {
    if !can_mount("a volatile tier") {
        return;
    }
    let site = Site::postgres_like();
    let arguments = [
        "attach",
        site.home_str(),
        "--fast",
        site.fast_str(),
        "--volatile",
        "--size",
        "24M",
        "--json",
    ];
    let attached = json(&good(&arguments));
    assert_eq!((&attached["volatile"], &attached["emulated"]), (&true.into(), &false.into()));
    write_some(&site, 5);
    fs::File::open(site.home.join("base/1/9")).unwrap().sync_all().unwrap();
    site.kill_daemon(&attached);
    fs::remove_file(attached["members"][0].as_str().unwrap()).unwrap();
    let again = site.attach_again();
    assert_eq!(again["volatile"], true);
    assert_eq!(fs::read(site.home.join("base/1/9")).unwrap(), blocks(5, 100));
    good(&["detach", site.home_str()]);
    site.assert_plain();

    let modelled = site.attach(&["--home-model", "15k-disk-array", "--sync-on-write", "never"]);
    assert!(modelled["home_model"].as_str().unwrap().contains("15k-disk-array"), "{modelled}");
    assert!(text(&good(&["status", site.home_str()])).contains("MODELLED"));
    // What passes is as slow as the model too: the kernel, or the daemon, must not go past it.
    let model = tiersmith_store::HomeModel::named("15k-disk-array").unwrap();
    let file = fs::OpenOptions::new().write(true).open(site.home.join("PG_VERSION")).unwrap();
    let began = std::time::Instant::now();
    for _ in 0..5 {
        std::os::unix::fs::FileExt::write_all_at(&file, b"15\n", 0).unwrap();
        file.sync_data().unwrap();
    }
    assert!(began.elapsed() >= 5 * (model.write() + model.sync()), "{:?}", began.elapsed());
    drop(file);
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn the_socket_answers_hostile_bytes_with_an_error_and_goes_on() {
    use std::io::{Read, Write};
    if !can_mount("hostile bytes") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    let socket = site.path().join("db.tiersmith-control");
    let mut hostile: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0xff; 4096],
        vec![5, 0, 0, 0, b'n', b'u', b'l', b'l', b'!'],
        [&60_000_u32.to_le_bytes()[..], &[b'['; 60_000]].concat(),
        [&30_u32.to_le_bytes()[..], b"{\"ask\":\"detach me\",\"more\":[1]}"].concat(),
        [&4_u32.to_le_bytes()[..], b"abc"].concat(),
    ];
    let mut random = fastrand::Rng::with_seed(3);
    hostile.extend((0..50).map(|n| (0..n * 7).map(|_| random.u8(..)).collect()));
    for bytes in &hostile {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        stream.set_read_timeout(Some(daemon::LIMIT)).unwrap();
        // The daemon may have answered and closed before everything was sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let said = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || said.contains("failed"), "{said}");
    }
    // More at once than it serves, each idle: others are told or wait, and it serves again.
    let idle: Vec<_> =
        (0..40).filter_map(|_| std::os::unix::net::UnixStream::connect(&socket).ok()).collect();
    drop(idle);
    wait_until("it serves again", || tiersmith(&["status", site.home_str()]).status.success());
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn an_attach_that_is_interrupted_leaves_what_was_before() {
    if !can_mount("an interrupted attach") {
        return;
    }
    let site = Site::postgres_like();
    let arguments =
        ["attach", site.home_str(), "--fast", site.fast_str(), "--emulate", "--size", "24M"];
    for round in 0..6 {
        let attaching = command(&arguments).current_dir(site.path()).spawn().unwrap();
        let pid = u64::from(attaching.id());
        std::thread::sleep(std::time::Duration::from_micros(fastrand::u64(0..80_000)));
        kill(if round % 2 == 0 { "INT" } else { "KILL" }, pid);
        let ended = output(attaching, &arguments);
        let interrupted = !ended.status.success();
        if ended.status.code() == Some(130) {
            assert!(daemon::text(&ended).contains("interrupted"), "{}", daemon::text(&ended));
        }
        // Wherever the daemon was: it ends, or goes on because the command had heard of it already.
        if interrupted {
            wait_until("the daemon is gone or serves", || {
                daemon::daemons_of(site.path()).is_empty()
                    || tiersmith(&["status", site.home_str()]).status.success()
            });
        }
        let _ = good(&["detach", site.home_str()]);
        wait_until("the daemon is gone", || daemon::daemons_of(site.path()).is_empty());
        assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
    }
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn watching_ends_when_the_home_is_unmounted() {
    if !can_mount("status --watch") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    let arguments = ["status", site.home_str(), "--watch", "0.1", "--json"];
    let watching = command(&arguments).spawn().unwrap();
    good(&["unmount", site.home_str()]);
    let watched = output(watching, &arguments);
    // It may have begun before or after the end; either way it ends, and says one of the two.
    assert!(matches!(watched.status.code(), Some(0 | 1)), "{}", text(&watched));
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn a_lent_file_is_told_of_mounted_and_at_rest() {
    if !can_mount("what is said of lent files") {
        return;
    }
    let site = Site::postgres_like();
    let home = site.home_str();
    site.attach(&[]);
    let segment = site.home.join("pg_wal/000000010000000000000001");
    fs::write(&segment, blocks(5, 8)).unwrap();
    let mut live = site.live();
    // Handles that were closed a moment ago are in the way until the kernel has told of it.
    wait_until("the segment to be lent, or the reason why not", || {
        drop(fs::OpenOptions::new().write(true).open(&segment).unwrap());
        live = site.live();
        live["lent"]["files"] == 1
            || live["door"]["lends"] == false
            || !live["lent"]["refused"].is_null()
    });
    if live["lent"]["files"] == 0 {
        let why = [&live["door"]["lends_why"], &live["lent"]["refused"]]
            .map(ToString::to_string)
            .concat();
        let known = [
            "only root may",
            "its file system",
            "the kernel does not offer it",
            "the kernel refused a file",
        ];
        assert!(known.iter().any(|known| why.contains(known)), "nothing is lent: {live}");
        eprintln!("skipped: what is said of lent files, because {why}");
        good(&["detach", home]);
        return;
    }
    let file = fs::OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(&[7; 8192], 0).unwrap();
    let live = site.live();
    assert!(live["lent"]["not_home_bytes"].as_u64().unwrap() >= 8 * 8192, "{live}");
    assert!(live["drain_lag_bytes"].as_u64().unwrap() >= 8 * 8192, "{live}");
    let lent_in = live["lent"]["directories"][0].as_str().unwrap().to_owned();
    assert!(lent_in.ends_with(".lent"), "{live}");
    let printed = text(&good(&["status", home]));
    assert!(printed.contains("1 files") && printed.contains(&lent_in), "{printed}");
    assert!(
        printed.contains("belongs to the tier")
            && !printed.contains("home has everything\n  dirty"),
        "{printed}"
    );
    drop(file);
    good(&["unmount", home]);
    let rest = json(&tiersmith(&["status", home, "--json"]));
    assert_eq!(
        (&rest["files_lent"], &rest["lent_bytes"]),
        (&1.into(), &(8 * 8192).into()),
        "{rest}"
    );
    assert_eq!(rest["lent_in"], lent_in, "{rest}");
    for command in ["status", "check"] {
        let printed = text(&tiersmith(&[command, home]));
        assert!(printed.contains("1 file(s) lent") && printed.contains(&lent_in), "{printed}");
    }
    site.attach_again();
    good(&["detach", home]);
    site.assert_plain();
    let bytes = fs::read(&segment).unwrap();
    assert_eq!((bytes.len(), &bytes[..8192]), (8 * 8192, &[7; 8192][..]));
}

#[test]
fn attach_says_when_the_home_has_more_files_than_the_daemon_may_open() {
    if !can_mount("a home of many files") {
        return;
    }
    let site = Site::postgres_like();
    for n in 0..200 {
        fs::write(site.home.join(format!("base/1/{}", 20_000 + n)), blocks(1, 1)).unwrap();
    }
    let attach = |limit: u32| {
        let program = env!("CARGO_BIN_EXE_tiersmith");
        let script = format!(
            "ulimit -n {limit} && exec {program} attach {} --fast {} --emulate --size 24M --json",
            site.home_str(),
            site.fast_str()
        );
        let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        json(&output)
    };
    let attached = attach(128);
    let remarks = attached["remarks"].to_string();
    assert!(remarks.contains("may open 128") && remarks.contains("ulimit -n"), "{attached}");
    for n in 0..200 {
        let bytes = fs::read(site.home.join(format!("base/1/{}", 20_000 + n))).unwrap();
        assert_eq!(bytes, blocks(1, 1), "file {n}");
    }
    good(&["detach", site.home_str()]);
    let attached = attach(4096);
    assert!(!attached["remarks"].to_string().contains("ulimit"), "{attached}");
    good(&["detach", site.home_str()]);
}
