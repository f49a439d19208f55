//! A mount that another mount namespace has a copy of, as a container or a service started
//! meanwhile does.

use crate::place::{Place, skipped_unless_root, until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use tiersmith_mount::{Error, Options, mount};

/// Lets go of every other mount of FUSE, says so, and stays until its input ends.
const KEEP_ONE: &str = r#"
while read -r _ _ _ _ at rest; do
    case "$rest" in *" - fuse "*) [ "$at" = "$1" ] || umount -l "$at" ;; esac
done <<END
$(cat /proc/self/mountinfo)
END
echo ready
read -r _
"#;

struct Elsewhere(Child);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_mount_that_another_namespace_has_is_not_waited_for_in_silence() {
    const TEST: &str = "a_mount_that_another_namespace_has_is_not_waited_for_in_silence";
    if skipped_unless_root(TEST) {
        return;
    }
    let place = Place::plain(8, Options::default());
    let at = fs::canonicalize(place.path()).unwrap().join("db");
    let mut mounted = mount(place.attach(), &at, &place.options).unwrap();
    fs::write(at.join("a.d8"), "a").unwrap();
    let started = Command::new("unshare")
        .args(["-m", "sh", "-c", KEEP_ONE, "sh"])
        .arg(&at)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut elsewhere = match started {
        Ok(child) => Elsewhere(child),
        Err(e) => {
            eprintln!("skipped: {TEST}, because the program unshare cannot be started ({e})");
            return;
        }
    };
    let mut said = String::new();
    BufReader::new(elsewhere.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if said.trim() != "ready" {
        eprintln!("skipped: {TEST}, because there may be no further mount namespace here");
        return;
    }
    let pid = elsewhere.0.id().to_string();
    let mut told = String::new();
    let mut left = Some(mounted);
    until("the mount to be unmounted here", || {
        let (still, error) = left.take().unwrap().unmount().unwrap_err();
        left = Some(still);
        told = error.to_string();
        matches!(error, Error::Elsewhere { .. })
    });
    assert!(told.contains(&pid) && told.contains("Nothing is lost"), "{told}");
    assert!(!at.join("a.d8").exists(), "it is unmounted here");
    mounted = left.take().unwrap();
    assert!(!mounted.has_ended(), "it is served there");
    drop(elsewhere);
    let mut left = Some(mounted);
    until("the other namespace to be gone", || match left.take().unwrap().unmount() {
        Ok(home) => {
            home.detach().unwrap();
            true
        }
        Err((still, _)) => {
            left = Some(still);
            false
        }
    });
    assert_eq!(fs::read_to_string(at.join("a.d8")).unwrap(), "a");
}
