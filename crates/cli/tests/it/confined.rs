//! What the daemon of a mounted home gives up, as the kernel tells it.
//!
//! Deliberately absent: the filter by itself (beside its source).

use std::fs;

use crate::daemon::{
    Site, blocks, can_mount, good, is_mounted, is_root, json, refused, text, tiersmith,
};

/// Those that the daemon keeps, by number: 0 chown, 1 dac_override, 2 dac_read_search, 3 fowner,
/// 4 fsetid, 6 setgid, 7 setuid, 9 linux_immutable, 14 ipc_lock, 19 sys_ptrace, 21 sys_admin,
/// 24 sys_resource, 27 mknod, 28 lease, 31 setfcap.
const KEPT: u64 = 1
    | 1 << 1
    | 1 << 2
    | 1 << 3
    | 1 << 4
    | 1 << 6
    | 1 << 7
    | 1 << 9
    | 1 << 14
    | 1 << 19
    | 1 << 21
    | 1 << 24
    | 1 << 27
    | 1 << 28
    | 1 << 31;

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}: {status}")).trim().to_owned()
}

#[test]
fn every_thread_of_the_daemon_has_given_up_what_it_does_not_need() {
    if !is_root() {
        eprintln!("skipped: what a daemon of root gives up, because this is not root");
        return;
    }
    if !can_mount("what a daemon gives up") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    let pid = attached["pid"].as_u64().unwrap();
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        for set in ["CapBnd", "CapPrm", "CapEff"] {
            let has = u64::from_str_radix(&field(&status, set), 16).unwrap();
            assert_eq!(has & !KEPT, 0, "{set} of {}: {has:x}", field(&status, "Name"));
        }
        assert_eq!(u64::from_str_radix(&field(&status, "CapInh"), 16).unwrap(), 0);
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{}", field(&status, "Name"));
        assert_eq!(field(&status, "Seccomp"), "2", "{}", field(&status, "Name"));
        threads += 1;
    }
    assert!(threads > 3, "{threads} threads");
    let confined = &site.live()["confined"];
    assert_eq!(confined["calls_denied"], true, "{confined}");
    assert_eq!(confined["no_new_privileges"], true, "{confined}");
    assert_eq!(confined["not_dumpable"], true, "{confined}");
    assert!(
        confined["capabilities"].as_array().unwrap().contains(&"sys_admin".into()),
        "{confined}"
    );
    let said = text(&tiersmith(&["status", site.home_str()]));
    assert!(said.contains("confined:") && said.contains("needless calls denied"), "{said}");
    // It works, and it names who keeps it from ending.
    let held = fs::File::open(site.home.join("base/1/1259")).unwrap();
    let busy = tiersmith(&["detach", site.home_str()]);
    assert_eq!(busy.status.code(), Some(2));
    assert!(text(&busy).contains(&format!("process {}", std::process::id())), "{}", text(&busy));
    drop(held);
    good(&["detach", site.home_str()]);
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
    site.assert_plain();
}

#[test]
fn a_confined_daemon_mounts_again_after_a_detach_that_home_refused() {
    if !can_mount("a detach that home refuses") {
        return;
    }
    let Some(site) = Site::on_small_disk(12) else { return };
    let ballast = site.home.with_file_name("ballast");
    fs::write(&ballast, vec![1; 8 << 20]).unwrap();
    let _ = site.attach(&["--profile", "postgres"]);
    fs::create_dir_all(site.home.join("base/1")).unwrap();
    fs::write(site.home.join("base/1/1259"), blocks(3, 800)).unwrap();
    let said = refused(&["detach", site.home_str()]);
    assert!(said.contains("mounted as before"), "{said}");
    assert!(is_mounted(&site.home), "{said}");
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(3, 800));
    if is_root() {
        // Of a full home it has something to mend to say.
        let status = json(&tiersmith(&["status", site.home_str(), "--json"]));
        assert_eq!(status["live"]["confined"]["calls_denied"], true, "{status}");
    }
    fs::remove_file(&ballast).unwrap();
    good(&["detach", site.home_str()]);
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(3, 800));
}
