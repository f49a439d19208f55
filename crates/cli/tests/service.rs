//! The systemd unit of docs/guide/mount.md: systemd's own checker reads it, and the program says that it is ready as the unit expects.
//!
//! Deliberately absent: a run under systemd, which a container has not.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod daemon;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use daemon::{Site, can_mount, command, good, kill, output, text};

/// The first unit of the guide.
fn unit() -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/mount.md");
    let guide = fs::read_to_string(guide).unwrap();
    let lines = guide.lines().skip_while(|line| *line != "    [Unit]");
    let unit: Vec<&str> =
        lines.map_while(|line| line.strip_prefix("    ").or(line.is_empty().then_some(""))).collect();
    unit.join("\n") + "\n"
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit_of_the_guide() {
    let dir = tempfile::tempdir().unwrap();
    let unit = unit();
    assert!(
        unit.contains("[Service]") && unit.contains("Type=notify") && unit.ends_with("multi-user.target\n\n"),
        "{unit}"
    );
    let program = env!("CARGO_BIN_EXE_tiersmith");
    let here = unit.replace("/usr/bin/tiersmith", program);
    assert_ne!(here, unit);
    let verify = |name: &str, unit: &str| {
        let path = dir.path().join(name);
        fs::write(&path, unit).unwrap();
        let mut verify = Command::new("systemd-analyze");
        verify.arg("verify").arg(&path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
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
    // In some containers it cannot look at anything; then it says so of a unit without a fault, too.
    let plain = "[Service]\nExecStart=/bin/true\n";
    let nothing = verify("plain.service", plain).unwrap();
    if !nothing.status.success() || !text(&nothing).is_empty() {
        return eprintln!(
            "skipped: systemd's look at the unit, because systemd-analyze fails here: {}",
            text(&nothing)
        );
    }
    assert!(found.status.success() && text(&found).is_empty(), "{}", text(&found));
    let wrong = verify("wrong@srv-db.service", &here.replace("RestartSec=", "RestartSecs=")).unwrap();
    assert!(text(&wrong).contains("RestartSecs"), "a fault is not seen: {}", text(&wrong));
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
    let serving =
        command(&["attach", site.home_str(), "--foreground"]).env("NOTIFY_SOCKET", &address).spawn().unwrap();
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
