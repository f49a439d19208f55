//! `tiersmith doctor` on recorded trees of /proc and /sys, and on this machine without root.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// An account without any rights; it needs not be in /etc/passwd.
const NOBODY: u32 = 65_534;

fn doctor(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tiersmith")).arg("doctor").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A tree with one setting of transparent huge pages and one file system.
fn recorded(root: &Path, huge_pages: &str, options: &str) {
    let put = |file: &str, text: &str| {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("sys/kernel/mm/transparent_hugepage/enabled", huge_pages);
    put("proc/self/mounts", &format!("/dev/vda / ext4 {options} 0 0\n"));
}

#[test]
fn a_machine_with_nothing_to_mend_ends_with_0_and_one_with_findings_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    recorded(dir.path(), "always [madvise] never\n", "rw,relatime");
    let good = doctor(&["--root", root, "--all"]);
    let said = text(&good.stdout);
    assert_eq!(good.status.code(), Some(0), "{said}");
    assert!(said.starts_with("Nothing to mend; "), "{said}");
    assert!(said.contains("good     transparent-huge-pages: madvise"), "{said}");
    assert!(!said.contains("MEND"), "{said}");

    recorded(dir.path(), "[always] madvise never\n", "rw,relatime,nobarrier");
    let ill = doctor(&["--root", root]);
    let said = text(&ill.stdout);
    assert_eq!(ill.status.code(), Some(1), "{said}");
    assert!(said.starts_with("2 of "), "{said}");
    for expected in [
        "MEND     transparent-huge-pages: always",
        "should be: madvise or never",
        "mend: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        "MEND     file-system-options of / (ext4 on /dev/vda): nobarrier",
        "mend: mount -o remount,barrier '/'",
    ] {
        assert!(said.contains(expected), "no `{expected}` in {said}");
    }
    // What is good is left out without --all.
    assert!(!said.contains("good     "), "{said}");
}

#[test]
fn json_has_every_check_with_its_verdict() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path(), "[always] madvise never\n", "rw,relatime");
    let output = doctor(&["--root", dir.path().to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let examined: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&examined["format"], &examined["to_mend"]), (&1.into(), &1.into()));
    let checks = examined["checks"].as_array().unwrap();
    let of = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    let huge = of("transparent-huge-pages");
    assert_eq!((&huge["verdict"], &huge["is"]), (&"mend".into(), &"always".into()));
    assert_eq!(of("file-system-options")["verdict"], "good");
    assert_eq!(of("zone-reclaim")["verdict"], "unknown");
}

#[test]
fn what_cannot_be_looked_at_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().to_str().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    for (arguments, expected) in [
        (vec!["--root", empty], "there is no directory proc in it"),
        (vec!["/nowhere/at/all"], "cannot look at /nowhere/at/all"),
        (vec![file.to_str().unwrap()], "it is not a directory"),
        (vec!["--root", empty, "relative"], "it is relative"),
    ] {
        let output = doctor(&arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected) && output.stdout.is_empty(), "{arguments:?}: {error}");
    }
}

#[test]
fn this_machine_can_be_looked_at_without_root_and_is_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    if rustix::process::geteuid().is_root() {
        // The build directory may be closed to others.
        let copy = dir.path().join("tiersmith");
        fs::copy(env!("CARGO_BIN_EXE_tiersmith"), &copy).unwrap();
        let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(dir.path(), open.clone()).unwrap();
        fs::set_permissions(&copy, open).unwrap();
        command = Command::new(copy);
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.args(["doctor", "--json", "/", "/tmp"]).current_dir("/").output().unwrap();
    let error = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{error}");
    assert!(error.is_empty(), "{error}");
    let examined: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = examined["checks"].as_array().unwrap();
    assert!(checks.len() >= 10, "{checks:#?}");
    let to_mend = checks.iter().filter(|check| check["verdict"] == "mend").count();
    assert_eq!(
        (output.status.code() == Some(1), to_mend as u64),
        (to_mend > 0, examined["to_mend"].as_u64().unwrap())
    );
}
