//! A user who is not root mounts a home of their own, through fusermount3.
//!
//! As root the test starts itself again as the user `nobody`. Needs a `/dev/fuse` that everybody
//! may open, as most systems have it.

use crate::place::{Place, skipped};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use tiersmith_mount::{Error, Options, Transport, mount};

const NOBODY: u32 = 65534;
const TEST: &str = "a_user_who_is_not_root_mounts_their_own_home";

#[test]
fn a_user_who_is_not_root_mounts_their_own_home() {
    if rustix::process::geteuid().is_root() {
        let started = Command::new(std::env::current_exe().unwrap())
            .args([full_name!(TEST).as_str(), "--exact", "--nocapture"])
            .current_dir("/")
            .uid(NOBODY)
            .gid(NOBODY)
            .stdin(Stdio::null())
            .status();
        match started {
            Ok(status) => {
                assert!(status.success(), "the test failed for the user {NOBODY}; see above")
            }
            Err(e) => eprintln!(
                "skipped: {TEST}, because it cannot be started as the user {NOBODY} ({e})"
            ),
        }
        return;
    }
    if skipped(TEST) {
        return;
    }
    let asked = Options { allow_other: true, ..Options::default() };
    let place = Place::plain(8, Options { transport: Transport::Classic, ..Options::default() });
    let refused = mount(place.attach(), &place.home(), &asked).unwrap_err();
    assert!(matches!(refused, Error::OthersNeedRoot { .. }), "{refused}");
    let mut place = place;
    place.mount();
    let report = place.mounted().report();
    assert!(!report.allow_other && !report.passthrough);
    for name in ["a.redo", "a.d8", "a.pass"] {
        fs::write(place.at(name), name).unwrap();
        fs::rename(place.at(name), place.at(&format!("b-{name}"))).unwrap();
    }
    // A file that its owner may not write is made and written by who makes it.
    let made = {
        use std::os::unix::fs::OpenOptionsExt;
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(place.at("c.d8"))
            .unwrap()
    };
    std::os::unix::fs::FileExt::write_all_at(&made, b"written", 0).unwrap();
    drop(made);
    // The store writes it home under the owner's rights.
    fs::set_permissions(place.at("c.d8"), fs::Permissions::from_mode(0o600)).unwrap();
    place.remount();
    assert_eq!(fs::read_to_string(place.at("c.d8")).unwrap(), "written");
    place.detach();
    for name in ["a.redo", "a.d8", "a.pass"] {
        assert_eq!(fs::read_to_string(place.at(&format!("b-{name}"))).unwrap(), name);
    }
}
