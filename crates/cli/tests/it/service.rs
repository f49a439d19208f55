//! The units of packaging/systemd: systemd's own checker reads them, and the program says that it
//! is ready as they expect.
//!
//! Deliberately absent: a run under systemd (`systemd.rs`).

use crate::daemon;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::daemon::{Site, can_mount, command, good, kill, output, text};

/// A shipped file.
fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd").join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units_that_are_shipped() {
    let dir = tempfile::tempdir().unwrap();
    let unit = shipped("tiersmith@.service");
    let program = env!("CARGO_BIN_EXE_tiersmith");
    let here = unit.replace("/usr/bin/tiersmith", program);
    assert_ne!(here, unit);
    let verify = |name: &str, unit: &str| {
        let path = dir.path().join(name);
        fs::write(&path, unit).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify
            .arg("verify")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        verify.spawn().map(|child| output(child, &["systemd-analyze"]))
    };
    let found = match verify("tiersmith@srv-db.service", &here) {
        Ok(found) => found,
        Err(e) => {
            return eprintln!(
                "skipped: systemd's look at the unit, because systemd-analyze cannot be run ({e})"
            );
        }
    };
    // In some containers it cannot look at anything; then it says so of a unit without a fault,
    // too.
    let plain = "[Service]\nExecStart=/bin/true\n";
    let nothing = verify("plain.service", plain).unwrap();
    if !nothing.status.success() || !text(&nothing).is_empty() {
        return eprintln!(
            "skipped: systemd's look at the unit, because systemd-analyze fails here: {}",
            text(&nothing)
        );
    }
    assert!(found.status.success() && text(&found).is_empty(), "{}", text(&found));
    let wrong =
        verify("wrong@srv-db.service", &here.replace("RestartSec=", "RestartSecs=")).unwrap();
    assert!(text(&wrong).contains("RestartSecs"), "a fault is not seen: {}", text(&wrong));
    // A database's unit with what is added to it, beside the mount's, with what is added to that.
    let at = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    at("tiersmith@.service", &here);
    at("tiersmith@var-lib-postgresql-15-main.service.d/database.conf", &shipped("database.conf"));
    at("mariadb.service.d/tiersmith.conf", &shipped("server.conf"));
    at("postgresql@15-main.service.d/tiersmith.conf", &shipped("postgresql.conf"));
    for name in ["postgresql@15-main.service", "mariadb.service"] {
        let found = verify(name, plain).unwrap();
        assert!(found.status.success() && text(&found).is_empty(), "{name}: {}", text(&found));
    }
    at(
        "mariadb.service.d/tiersmith.conf",
        &shipped("server.conf").replace("SendSIGKILL", "SendSIGKILLS"),
    );
    let wrong = verify("mariadb.service", plain).unwrap();
    assert!(text(&wrong).contains("SendSIGKILLS"), "an addition is not read: {}", text(&wrong));
}

#[test]
fn the_service_manager_is_told_when_the_home_is_mounted() {
    if !can_mount("a service that says it is ready") {
        return;
    }
    let site = Site::postgres_like();
    good(&["attach", site.home_str(), "--fast", site.fast_str(), "--emulate", "--size", "24M"]);
    good(&["unmount", site.home_str()]);
    let address = site.path().join("n");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_read_timeout(Some(daemon::LIMIT)).unwrap();
    // As the unit's ExecStart.
    let serving = command(&["attach", site.home_str(), "--foreground"])
        .env("NOTIFY_SOCKET", &address)
        .spawn()
        .unwrap();
    let mut said = [0; 64];
    let len = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..len], b"READY=1");
    assert!(daemon::is_mounted(&site.home));
    // As the unit is stopped.
    kill("TERM", serving.id().into());
    let ended = output(serving, &["attach --foreground"]);
    assert!(ended.status.success(), "{}", text(&ended));
    assert!(!daemon::is_mounted(&site.home));
    fs::remove_file(&address).unwrap();
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

/// What `systemd-analyze security` says of the unit, from 0 (safe) to 10; without any of it: 9.6.
const EXPOSURE_MAX: f64 = 5.2;

#[test]
fn the_unit_gives_up_what_the_daemon_does_and_hides_no_mount() {
    let unit = shipped("tiersmith@.service");
    let values = |key: &str| -> Vec<String> {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
    };
    // Each of these gives the service mounts of its own, whose changes nobody else sees.
    for hides in [
        "ProtectSystem",
        "ProtectHome",
        "ProtectProc",
        "ProtectKernel",
        "ProtectControlGroups",
        "Private",
        "ReadOnlyPaths",
        "InaccessiblePaths",
        "TemporaryFileSystem",
        "MountFlags",
    ] {
        assert!(!unit.lines().any(|line| line.starts_with(hides)), "{hides} hides the mount");
    }
    assert_eq!(values("StartLimitIntervalSec"), ["0"]);
    assert_eq!(values("NoNewPrivileges"), ["yes"]);
    if daemon::is_root() && can_mount("the daemon's capabilities beside the unit's") {
        let site = Site::postgres_like();
        let _ = site.attach(&[]);
        let live = site.live();
        let kept = live["confined"]["capabilities"].as_array().unwrap().iter();
        let mut kept: Vec<String> =
            kept.map(|name| format!("CAP_{}", name.as_str().unwrap().to_uppercase())).collect();
        // A container may have fewer than the daemon would keep.
        let here = rustix::thread::capabilities(None).unwrap().permitted;
        let here: Vec<String> = here.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
        let mut bounding = values("CapabilityBoundingSet");
        bounding.retain(|name| here.contains(name));
        kept.sort();
        bounding.sort();
        assert_eq!(bounding, kept, "the unit and the daemon keep different capabilities");
        good(&["detach", site.home_str()]);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiersmith@srv-db.service");
    fs::write(&path, &unit).unwrap();
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=yes", "--no-pager"]).arg(&path);
    let said = analyze.stdin(Stdio::null()).output();
    let Some(level) = said.ok().and_then(|said| {
        let said = text(&said);
        said.split("exposure level for").nth(1)?.split_whitespace().nth(1)?.parse::<f64>().ok()
    }) else {
        return eprintln!(
            "skipped: how exposed the unit is, because systemd-analyze does not say it here"
        );
    };
    assert!(level <= EXPOSURE_MAX, "{level}");
}
