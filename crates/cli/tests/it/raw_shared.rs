//! Bytes that two devices share: a loop device, and what it is over. What is in use by one name is
//! not overwritten by the other.

use std::fs;
use std::os::unix::fs::FileExt;

use crate::daemon::loops::{Loop, has, ran};
use crate::daemon::{Site, can_mount, good, json, mounts_below, refused};
use crate::raw_devices::{SMALL, assert_there, run, write_blocks};

/// Refused, with this, and no byte of either device changed.
fn refuses(home: &str, device: &Loop, lower: &Loop, found: &str) {
    let identity = device.identity();
    for more in [&[][..], &["--overwrite", &identity[..]]] {
        let before = (device.hash(), lower.hash());
        let said = refused(&[&["attach", home, "--fast", device.str()], more].concat());
        assert!(said.contains(found) && said.contains(lower.str()), "{found}: {said}");
        assert_eq!((device.hash(), lower.hash()), before, "{found}: a refusal has written");
    }
}

#[test]
fn a_part_of_a_device_in_use_is_not_taken_as_a_loop_device_over_it() {
    if !can_mount("a loop device over a device in use") {
        return;
    }
    let site = Site::postgres_like();
    let Some(lower) = Loop::new(&site, "disk", 2 * SMALL) else { return };
    let other = site.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    if has("mkfs.ext4") {
        run("mkfs.ext4", &["-q", "-F", lower.str()]);
        let at = site.path().join("mounted here");
        fs::create_dir(&at).unwrap();
        // Read-only: the file system itself must not write while the bytes are compared.
        run("mount", &["-o", "ro", lower.str(), at.to_str().unwrap()]);
        // So it goes with a test that fails.
        assert_eq!(
            mounts_below(site.path()),
            &[at.clone()][..],
            "a name with a space is not found"
        );
        let Some(upper) = Loop::behind(&lower.path, SMALL << 20) else { return };
        refuses(other, &upper, &lower, "is mounted at");
        drop(upper);
        run("umount", &[at.to_str().unwrap()]);
        lower_is_blank(&lower);
    }
    // Another home's tier: its daemon runs, or was killed.
    let attached = json(&good(&["attach", site.home_str(), "--fast", lower.str(), "--json"]));
    let newest = write_blocks(&site, 9);
    let Some(upper) = Loop::behind(&lower.path, SMALL << 20) else { return };
    let said = refused(&["attach", other, "--fast", upper.str()]);
    assert!(said.contains(lower.str()) && said.contains("in use by"), "{said}");
    site.kill_daemon(&attached);
    refuses(other, &upper, &lower, "which is in use");
    drop(upper);
    good(&["attach", site.home_str()]);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
}

fn lower_is_blank(lower: &Loop) {
    let file = fs::File::options().write(true).open(&lower.path).unwrap();
    file.write_all_at(&vec![0; (2 * SMALL as usize) << 20], 0).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn what_a_tier_is_over_is_nobody_elses_while_it_is_attached() {
    if !can_mount("what a loop device with a tier is over") {
        return;
    }
    let site = Site::postgres_like();
    let Some(lower) = Loop::new(&site, "disk", 2 * SMALL) else { return };
    let Some(upper) = Loop::behind(&lower.path, 4 << 20) else { return };
    good(&["attach", site.home_str(), "--fast", upper.str()]);
    let newest = write_blocks(&site, 9);
    if has("mkfs.ext4") {
        let made = ran("mkfs.ext4", &["-q", "-F", lower.str()]).unwrap();
        assert!(!made.status.success(), "mkfs took what is below a tier");
    }
    // Two loop devices over the same bytes of a file.
    let Some(second) = Loop::over(lower.image()) else { return };
    let other = site.path().join("other");
    fs::create_dir(&other).unwrap();
    let said = refused(&["attach", other.to_str().unwrap(), "--fast", second.str()]);
    assert!(said.contains("over the same bytes as") && said.contains(lower.str()), "{said}");
    drop(second);
    good(&["unmount", site.home_str()]);
    good(&["attach", site.home_str()]);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
    assert_there(&site, 9, &newest);
}
