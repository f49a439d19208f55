//! What `attach` and `detach` refuse: each with one sentence, exit code 2, and no harm.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::daemon::{
    Site, blocks, can_mount, command, good, is_mounted, is_root, json, output, refused, text,
    tiersmith,
};

/// Nothing happened to the home: it is at its path, with what was in it, and nothing is beside it.
fn assert_untouched(site: &Site) {
    site.assert_plain();
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
}

fn attach_arguments(site: &Site) -> [&str; 7] {
    ["attach", site.home_str(), "--fast", site.fast_str(), "--emulate", "--size", "24M"]
}

#[test]
fn attaching_twice_is_refused_by_name_and_the_first_goes_on() {
    if !can_mount("attaching twice") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    let pid = attached["pid"].as_u64().unwrap().to_string();
    for arguments in [&attach_arguments(&site)[..], &["attach", site.home_str()]] {
        let said = refused(arguments);
        assert!(said.contains("attached already") && said.contains(&pid), "{said}");
    }
    let inside = site.home.join("base");
    let said = refused(&[
        "attach",
        inside.to_str().unwrap(),
        "--fast",
        site.fast_str(),
        "--emulate",
        "--size",
        "24M",
    ]);
    assert!(said.contains("is inside"), "{said}");
    let aside = site.path().join("db.tiersmith-home");
    for inside in [aside.clone(), aside.join("home"), aside.join("home/base")] {
        let said = refused(&[
            "attach",
            inside.to_str().unwrap(),
            "--fast",
            site.fast_str(),
            "--emulate",
            "--size",
            "24M",
        ]);
        assert!(said.contains("name the home itself") || said.contains("is inside"), "{said}");
    }
    let around = site.path().to_str().unwrap();
    let said = refused(&["attach", around, "--fast", "/dev/null", "--emulate", "--size", "24M"]);
    assert!(said.contains("mounted inside it"), "{said}");
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
    good(&["detach", site.home_str()]);
    assert_untouched(&site);
}

#[test]
fn of_attaches_at_once_one_wins_and_the_others_say_so() {
    if !can_mount("attaches at once") {
        return;
    }
    let site = Site::postgres_like();
    for round in 0..4 {
        let again = round % 2 == 1;
        if again {
            let attached = site.attach(&[]);
            site.kill_daemon(&attached);
        }
        let all = attach_arguments(&site);
        let arguments: &[&str] = if again { &["attach", site.home_str()] } else { &all };
        let started: Vec<_> = (0..4).map(|_| command(arguments).spawn().unwrap()).collect();
        let ended: Vec<_> = started.into_iter().map(|child| output(child, arguments)).collect();
        let winners = ended.iter().filter(|output| output.status.success()).count();
        let said: Vec<String> = ended.iter().map(text).collect();
        assert_eq!(winners, 1, "{said:?}");
        for output in ended.iter().filter(|output| !output.status.success()) {
            assert_eq!(output.status.code(), Some(2), "{said:?}");
            let said = text(output);
            assert!(
                ["attached already", "in use", "is owned", "tier"]
                    .iter()
                    .any(|word| said.contains(word)),
                "{said}"
            );
        }
        assert!(is_mounted(&site.home));
        assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
        good(&["status", site.home_str()]);
        good(&["detach", site.home_str()]);
        assert_untouched(&site);
    }
}

#[test]
fn a_directory_that_is_in_use_is_refused_with_who_uses_it() {
    let site = Site::postgres_like();
    let mut user = Command::new("cat")
        .current_dir(site.home.join("base"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let said = refused(&attach_arguments(&site));
    drop(user.stdin.take());
    user.wait().unwrap();
    assert!(said.contains("in use") && said.contains(&user.id().to_string()), "{said}");
    let open = fs::File::open(site.home.join("base/1/1259")).unwrap();
    let said = refused(&attach_arguments(&site));
    assert!(said.contains("1259") && said.contains(&std::process::id().to_string()), "{said}");
    drop(open);
    assert_untouched(&site);
}

#[test]
fn a_mount_in_use_is_not_detached_and_nothing_is_lost() {
    if !can_mount("a busy unmount") {
        return;
    }
    let site = Site::postgres_like();
    let daemon = site.attach(&[])["pid"].to_string();
    let open =
        fs::OpenOptions::new().read(true).write(true).open(site.home.join("base/1/1259")).unwrap();
    for command in ["detach", "unmount"] {
        let said = refused(&[command, site.home_str()]);
        // Who is to stop is not the one who says so, though it has the directory below the mount
        // open.
        assert!(!said.contains(&format!("process {daemon})")), "{said}");
        assert!(said.contains(&std::process::id().to_string()), "{said}");
        std::os::unix::fs::FileExt::write_all_at(&open, &[3; 8192], 0).unwrap();
    }
    drop(open);
    good(&["detach", site.home_str()]);
    site.assert_plain();
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap()[..8192], [3; 8192]);
}

#[test]
fn what_is_no_home_or_no_tier_is_refused() {
    if !can_mount("what is no home or no tier") {
        return;
    }
    let site = Site::postgres_like();
    let file = site.path().join("file");
    fs::write(&file, "x").unwrap();
    let missing = site.path().join("missing");
    let [home, fast, file, missing] =
        [&site.home, &site.fast, &file, &missing].map(|path| path.to_str().unwrap());
    let tier = ["--fast", fast, "--emulate", "--size", "24M"];
    let cases: Vec<(Vec<&str>, &str)> = vec![
        ([&["attach", missing][..], &tier].concat(), "there is no directory"),
        ([&["attach", file][..], &tier].concat(), "is not an SQLite database"),
        ([&["attach", "/proc"][..], &tier].concat(), "cannot"),
        ([&["attach", "/"][..], &tier].concat(), "no parent"),
        (vec!["attach", home], "--fast"),
        (vec!["attach", home, "--fast", home, "--emulate", "--size", "24M"], "inside the home"),
        (vec!["attach", home, "--fast", "/nowhere/at/all", "--emulate"], "there is no"),
        ([&["attach", home][..], &tier, &["--profile", "oracle"]].concat(), "oracle"),
        ([&["attach", home][..], &tier, &["--profile", "./nothing.toml"]].concat(), "nothing.toml"),
        ([&["attach", home][..], &tier, &["--home-model", "punch-cards"]].concat(), "punch-cards"),
        ([&["attach", home][..], &tier, &["--at", missing]].concat(), "cannot mount at"),
        ([&["attach", home][..], &tier, &["--at", fast]].concat(), "it is not empty"),
        (vec!["attach", home, "--fast", fast, "--emulate", "--size", "1M"], "tier"),
    ];
    fs::write(site.fast.join("other"), "").unwrap();
    for (arguments, expected) in &cases {
        let said = refused(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    for both in [
        ["--emulate", "--volatile"],
        ["--ephemeral", "--volatile"],
        ["--threads", "0"],
        ["--transport", "pigeon"],
    ] {
        let arguments = [&["attach", home, "--fast", fast][..], &both].concat();
        assert_eq!(tiersmith(&arguments).status.code(), Some(2));
    }
    fs::remove_file(site.fast.join("other")).unwrap();
    fs::remove_file(file).unwrap();
    assert_untouched(&site);
}

#[test]
fn a_tier_too_small_for_the_redo_says_how_large_it_must_be() {
    if !can_mount("a tier too small") {
        return;
    }
    let site = Site::postgres_like();
    let said = refused(&[
        "attach",
        site.home_str(),
        "--fast",
        site.fast_str(),
        "--emulate",
        "--size",
        "4M",
    ]);
    assert!(said.contains("too small") || said.contains("at least"), "{said}");
    assert_untouched(&site);
}

#[test]
fn commands_of_a_mounted_home_say_that_it_is_not_mounted() {
    let site = Site::postgres_like();
    let home = site.home_str();
    for arguments in [
        &["flush", home][..],
        &["pin", home, "*"],
        &["unpin", home, "*"],
        &["move", home, "*", "--to", "tier"],
        &["unmount", home],
    ] {
        assert!(refused(arguments).contains("is not mounted"), "{arguments:?}");
    }
    assert!(text(&good(&["status", home])).contains("not attached"));
    assert!(refused(&["check", home]).contains("not attached"));
    assert_untouched(&site);
}

#[test]
fn without_fuse_it_says_what_to_do() {
    if !is_root() {
        eprintln!("skipped: a machine without /dev/fuse, because only root can hide the device");
        return;
    }
    let site = Site::postgres_like();
    let script = format!(
        "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec '{}' attach '{}' --fast \
         '{}' --emulate --size 24M",
        env!("CARGO_BIN_EXE_tiersmith"),
        site.home_str(),
        site.fast_str()
    );
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-m", "sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(child) = unshare.spawn() else {
        eprintln!("skipped: a machine without /dev/fuse, because there is no unshare");
        return;
    };
    let ended = output(child, &["unshare"]);
    let said = text(&ended);
    if ["unshare", "mount:", "mknod"].iter().any(|word| said.contains(word)) {
        eprintln!("skipped: a machine without /dev/fuse, because {}", said.trim());
        return;
    }
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("modprobe fuse"), "{said}");
    assert_untouched(&site);
}

#[test]
fn a_profile_file_that_others_can_change_is_not_read_again_by_a_note() {
    if !can_mount("a profile file") {
        return;
    }
    let site = Site::postgres_like();
    let profile = site.path().join("mine.toml");
    let text = "description = \"mine\"\n[default]\nclass = \"data\"\nblock_size = 8192\n";
    fs::write(&profile, text).unwrap();
    fs::set_permissions(&profile, fs::Permissions::from_mode(0o644)).unwrap();
    let attached = site.attach(&["--profile", profile.to_str().unwrap()]);
    assert_eq!(attached["profile"], "mine");
    site.kill_daemon(&attached);
    assert_eq!(site.attach_again()["profile"], "mine");
    good(&["unmount", site.home_str()]);
    fs::set_permissions(&profile, fs::Permissions::from_mode(0o666)).unwrap();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("--profile"), "{said}");
    let said_so = ["attach", site.home_str(), "--profile", profile.to_str().unwrap(), "--json"];
    assert_eq!(json(&good(&said_so))["profile"], "mine");
    good(&["detach", site.home_str()]);
    fs::remove_file(&profile).unwrap();
    assert_untouched(&site);
}

#[test]
fn a_tier_that_is_not_there_is_named_and_force_gives_back_what_home_has() {
    if !can_mount("a tier that is gone") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    site.kill_daemon(&attached);
    let member = attached["members"][0].as_str().unwrap().to_owned();
    let said = refused(&["detach", site.home_str(), "--force-without-tier"]);
    assert!(said.contains("the tier is there"), "{said}");
    let elsewhere = site.path().join("elsewhere.tier");
    fs::rename(&member, &elsewhere).unwrap();
    for command in ["attach", "detach"] {
        let said = refused(&[command, site.home_str()]);
        assert!(said.contains(&member) && said.contains("--fast"), "{said}");
    }
    for more in [&[][..], &["--json"]] {
        let looked = tiersmith(&[&["status", site.home_str()], more].concat());
        let said = text(&looked);
        assert_eq!(looked.status.code(), Some(1), "{said}");
        assert!(
            said.contains(&member) && said.contains("attached") && said.contains("--fast"),
            "{said}"
        );
    }
    // Moved, and named anew.
    let again =
        json(&good(&["attach", site.home_str(), "--fast", elsewhere.to_str().unwrap(), "--json"]));
    site.kill_daemon(&again);
    fs::remove_file(&elsewhere).unwrap();
    let forced = good(&["detach", site.home_str(), "--force-without-tier"]);
    assert!(text(&forced).contains("LOST"), "{}", text(&forced));
    assert_untouched(&site);
}

#[test]
fn a_note_without_the_files_it_speaks_of_is_not_called_plain() {
    if !can_mount("a home whose files were moved away") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    good(&["unmount", site.home_str()]);
    let vault = site.path().join("db.tiersmith-home");
    let elsewhere = site.path().join("elsewhere");
    fs::rename(&vault, &elsewhere).unwrap();
    for command in ["status", "detach", "check", "attach"] {
        let said = refused(&[command, site.home_str()]);
        assert!(said.contains("db.tiersmith-home"), "{command}: {said}");
    }
    fs::rename(&elsewhere, &vault).unwrap();
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

#[test]
fn somebody_elses_home_and_one_without_fusermount_are_refused() {
    if !is_root() || !Path::new("/usr/bin/setpriv").exists() {
        eprintln!("skipped: another user's home, because that needs root and setpriv");
        return;
    }
    if !can_mount("another user's home") {
        return;
    }
    let site = Site::postgres_like();
    open_to_all(&site);
    let as_nobody = |arguments: &[&str], path: &str| {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            env!("CARGO_BIN_EXE_tiersmith"),
        ]);
        command
            .args(arguments)
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        output(command.spawn().unwrap(), arguments)
    };
    let path = std::env::var("PATH").unwrap();
    let arguments = attach_arguments(&site);
    let refused = as_nobody(&arguments, &path);
    let said = text(&refused);
    if said.contains("setpriv") {
        eprintln!(
            "skipped: another user's home, because nobody cannot run the program: {}",
            said.trim()
        );
        return;
    }
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("belongs to user 0"), "{said}");
    assert_untouched(&site);

    give(site.path());
    let refused = text(&as_nobody(&arguments, "/nowhere"));
    assert!(refused.contains("fusermount3"), "{refused}");
    if !has_fusermount() {
        eprintln!("skipped: a home of somebody who is not root, because fusermount3 is not here");
        return;
    }
    let attached = as_nobody(&[&arguments[..], &["--json"]].concat(), &path);
    if ["ermission denied", "not permitted"].iter().any(|why| text(&attached).contains(why)) {
        eprintln!(
            "skipped: a home of somebody who is not root, because {}",
            text(&attached).trim()
        );
        return;
    }
    assert!(attached.status.success(), "{}", text(&attached));
    assert!(is_mounted(&site.home));
    let status = as_nobody(&["status", site.home_str(), "--json"], &path);
    assert_eq!(json(&status)["standing"], "mounted", "{}", text(&status));
    site.kill_daemon(&json(&attached));
    let again = as_nobody(&["attach", site.home_str(), "--json"], &path);
    assert!(again.status.success(), "{}", text(&again));
    let detached = as_nobody(&["detach", site.home_str()], &path);
    assert!(detached.status.success(), "{}", text(&detached));
    assert_untouched(&site);
}

#[test]
fn who_may_not_open_dev_fuse_is_told_so() {
    let what = "a /dev/fuse that only root may open";
    if !is_root() || !Path::new("/usr/bin/setpriv").exists() {
        return eprintln!("skipped: {what}, because that needs root and setpriv");
    }
    if !can_mount(what) || !has_fusermount() {
        return;
    }
    let site = Site::postgres_like();
    open_to_all(&site);
    give(site.path());
    let device = site.path().join("device");
    let script = "mknod \"$0\" c 10 229 && chmod 600 \"$0\" && mount --bind \"$0\" /dev/fuse && rm \
                  -f \"$0\"; \
                  exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let arguments = attach_arguments(&site);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&device).arg(env!("CARGO_BIN_EXE_tiersmith"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = text(&output(command.spawn().unwrap(), &arguments));
    let _ = fs::remove_file(&device);
    if said.contains("setpriv") || said.contains("unshare") || said.contains("mknod") {
        return eprintln!("skipped: {what}, because {}", said.trim());
    }
    assert!(said.contains("may not open /dev/fuse") && said.contains("0600"), "{said}");
    assert_untouched(&site);
}

#[test]
fn a_note_of_somebody_else_makes_root_make_nothing_and_take_nothing_over() {
    if !is_root() {
        eprintln!("skipped: a note of the database's user, because only root is led by one");
        return;
    }
    if !can_mount("a note of the database's user") {
        return;
    }
    let site = Site::postgres_like();
    open_to_all(&site);
    give(&site.home);
    let home = site.home_str();
    let arguments =
        ["attach", home, "--fast", site.fast_str(), "--volatile", "--size", "24M", "--json"];
    let attached = json(&good(&arguments));
    let member = attached["members"][0].as_str().unwrap().to_owned();
    good(&["unmount", home]);
    let aside = site.path().join("db.tiersmith-home/home");
    give(&aside.join(".tiersmith"));
    fs::remove_file(&member).unwrap();
    for command in ["attach", "detach"] {
        let said = refused(&[command, home]);
        assert!(said.contains(&member) && said.contains("--fast"), "{said}");
        assert!(
            !Path::new(&member).exists(),
            "{command} made a file that a note of somebody else names"
        );
    }
    // One of root's, empty, is not formatted either.
    fs::write(&member, "").unwrap();
    fs::set_permissions(&member, fs::Permissions::from_mode(0o600)).unwrap();
    for command in ["attach", "detach"] {
        assert!(refused(&[command, home]).contains("--fast"));
        assert_eq!(fs::metadata(&member).unwrap().len(), 0);
    }
    fs::remove_file(&member).unwrap();
    good(&["attach", home, "--fast", site.fast_str()]);
    good(&["detach", home]);
    let _ = fs::remove_file(&member);
    assert_untouched(&site);
}

#[test]
fn paths_that_are_no_text_are_refused_and_two_dashes_end_the_options() {
    use std::os::unix::ffi::OsStrExt;
    if !can_mount("odd paths") {
        return;
    }
    let site = Site::postgres_like();
    let odd = site.path().join(std::ffi::OsStr::from_bytes(b"g\xff"));
    fs::create_dir(&odd).unwrap();
    let arguments = attach_arguments(&site);
    let mut command = command(&["attach"]);
    command.arg(&odd).args(&arguments[2..]);
    let ended = output(command.spawn().unwrap(), &["attach of an odd path"]);
    assert_eq!(ended.status.code(), Some(2), "{}", text(&ended));
    assert!(text(&ended).contains("UTF-8"), "{}", text(&ended));
    fs::remove_dir(&odd).unwrap();
    assert_untouched(&site);
    good(&[&["attach"][..], &arguments[2..], &["--json", "--", site.home_str()]].concat());
    good(&["detach", "--", site.home_str()]);
    assert_untouched(&site);
}

#[test]
fn a_detach_that_cannot_remove_its_leavings_says_that_it_is_detached() {
    if !can_mount("leavings") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    let log = site.path().join("db.tiersmith-log");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    let said = refused(&["detach", site.home_str()]);
    assert!(
        said.contains("is detached all the same") && said.contains("db.tiersmith-log"),
        "{said}"
    );
    assert!(!is_mounted(&site.home), "a home that is detached was mounted");
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
    fs::remove_dir(&log).unwrap();
    good(&["detach", site.home_str()]);
    assert_untouched(&site);
}

#[test]
fn a_tier_that_the_homes_owner_forged_writes_nothing_into_a_file_of_root() {
    if !is_root() {
        eprintln!("skipped: a forged tier, because only root can be made to write a file of root");
        return;
    }
    if !can_mount("a forged tier") {
        return;
    }
    let site = Site::postgres_like();
    open_to_all(&site);
    give(site.path());
    let (home, secret) = (site.home_str(), "base/1/1259");
    for path in [site.home.clone(), site.home.join("base"), site.home.join("base/1")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::chown(site.home.join(secret), Some(0), Some(0)).unwrap();
    fs::set_permissions(site.home.join(secret), fs::Permissions::from_mode(0o600)).unwrap();
    let attached = site.attach(&[]);
    let member = attached["members"][0].as_str().unwrap().to_owned();
    let found = fs::metadata(&member).unwrap();
    // With right checksums: a tier that says of root's file what root wrote some other time.
    let file = fs::OpenOptions::new().write(true).open(site.home.join(secret)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xee; 8192], 0).unwrap();
    drop(file);
    site.kill_daemon(&attached);
    let at_home = site.path().join("db.tiersmith-home/home").join(secret);
    let before = fs::read(&at_home).unwrap();
    assert_ne!(
        before[..8192],
        [0xee; 8192],
        "home has it already, so a forged tier would change nothing"
    );
    // The owner's own process does it, who may: the directory is the owner's. Only the bytes are a
    // gift.
    let (forged, real) = (site.path().join("forged"), site.path().join("real"));
    let forging = Command::new("sh")
        .args(["-c", "umask 077 && cat >\"$0\" && mv -f \"$1\" \"$2\" && mv -f \"$0\" \"$1\""])
        .args([forged.as_path(), Path::new(&member), real.as_path()])
        .uid(65534)
        .gid(65534)
        .stdin(fs::File::open(&member).unwrap())
        .status();
    assert!(forging.unwrap().success(), "the owner could not put a tier in the place of root's");
    assert_eq!(fs::metadata(&member).unwrap().uid(), 65534);
    for arguments in
        [&["detach", home][..], &["attach", home], &["attach", home, "--fast", site.fast_str()]]
    {
        let ended = tiersmith(arguments);
        // After a detach that should not have been, it is at its old place.
        let is_at = if at_home.exists() { &at_home } else { &site.home.join(secret) };
        assert!(fs::read(is_at).unwrap() == before, "VIOLATION: {arguments:?} wrote root's file");
        let said = text(&ended);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("belongs to user 65534") && said.contains("put a copy"), "{said}");
    }
    assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o600), "whose the tier is");
    // Root's own may have another name, or be open to others: then it was not root alone who had
    // it.
    fs::remove_file(&member).unwrap();
    fs::hard_link(&real, &member).unwrap();
    assert!(refused(&["attach", home]).contains("another name"));
    fs::remove_file(&real).unwrap();
    good(&["attach", home]);
    good(&["detach", home]);
    assert_eq!(fs::read(site.home.join(secret)).unwrap()[..8192], [0xee; 8192]);
}

fn has_fusermount() -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists())
    })
}

/// Others may come here.
fn open_to_all(site: &Site) {
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Everything below belongs to nobody.
fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}
