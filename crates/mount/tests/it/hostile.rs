//! A home made to do harm, and programs that ask for odd things: nothing outside the home is
//! touched, and the mount goes on.

use crate::place;
use crate::place::{Place, skipped, skipped_unless_root};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use tiersmith_mount::Options;

#[test]
fn a_link_out_of_the_home_is_followed_by_the_caller_and_never_by_the_mount() {
    if skipped("a_link_out_of_the_home_is_followed_by_the_caller_and_never_by_the_mount") {
        return;
    }
    let mut place = Place::plain(8, Options::default());
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.d8"), "mine").unwrap();
    symlink(&outside, place.at("way-out")).unwrap();
    symlink(outside.join("a.d8"), place.at("b.d8")).unwrap();
    symlink("../../../../../../etc/passwd", place.at("c.d8")).unwrap();
    symlink("loop", place.at("loop")).unwrap();
    place.mount();
    assert_eq!(fs::read_link(place.at("way-out")).unwrap(), outside);
    // By the caller's own right, as on any file system.
    assert_eq!(fs::read_to_string(place.at("b.d8")).unwrap(), "mine");
    assert!(fs::read(place.at("loop")).is_err());
    // Attributes of the link itself stay with it.
    let before = fs::metadata(outside.join("a.d8")).unwrap();
    rustix::fs::chownat(
        rustix::fs::CWD,
        place.at("b.d8"),
        Some(rustix::process::geteuid()),
        Some(rustix::process::getegid()),
        rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    assert_eq!(fs::metadata(outside.join("a.d8")).unwrap().ctime_nsec(), before.ctime_nsec());
    fs::remove_file(place.at("b.d8")).unwrap();
    fs::rename(place.at("way-out"), place.at("renamed")).unwrap();
    assert_eq!(fs::read_to_string(outside.join("a.d8")).unwrap(), "mine");
    place.detach();
    assert_eq!(fs::read_to_string(outside.join("a.d8")).unwrap(), "mine");
}

#[test]
fn a_directory_swapped_for_a_link_while_aside_leads_nowhere() {
    if skipped("a_directory_swapped_for_a_link_while_aside_leads_nowhere") {
        return;
    }
    let mut place = Place::new(8);
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "untouched").unwrap();
    fs::set_permissions(outside.join("victim"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(place.at("dir")).unwrap();
    fs::write(place.at("dir/victim"), "inside").unwrap();
    fs::metadata(place.at("dir/victim")).unwrap();
    // Who owns the home can do this behind the mount's back.
    fs::rename(place.aside().join("dir"), place.aside().join("hidden")).unwrap();
    symlink(&outside, place.aside().join("dir")).unwrap();
    let _ = fs::set_permissions(place.at("dir/victim"), fs::Permissions::from_mode(0o666));
    let _ = fs::write(place.at("dir/victim"), "overwritten");
    let _ = fs::write(place.at("dir/new"), "new");
    let _ = fs::remove_file(place.at("dir/victim"));
    let _ = fs::rename(place.at("dir/new"), place.at("dir/newer"));
    assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "untouched");
    assert_eq!(fs::metadata(outside.join("victim")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    // And the same for a file.
    fs::write(place.at("file"), "inside").unwrap();
    fs::remove_file(place.aside().join("file")).unwrap();
    symlink(outside.join("victim"), place.aside().join("file")).unwrap();
    // A caller that follows links goes where the link leads by its own right; one that does not
    // must not be led there.
    let unfollowed =
        fs::OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(place.at("file"));
    if let Ok(file) = unfollowed {
        let _ = file.set_permissions(fs::Permissions::from_mode(0o666));
        let _ = file.set_len(3);
    }
    assert_eq!(fs::read_to_string(outside.join("victim")).unwrap(), "untouched");
    assert_eq!(fs::metadata(outside.join("victim")).unwrap().mode() & 0o777, 0o600);
    drop(place.unmount());
}

#[test]
fn devices_pipes_and_sockets_are_what_they_are_and_are_never_opened_by_the_mount() {
    if skipped_unless_root(
        "devices_pipes_and_sockets_are_what_they_are_and_are_never_opened_by_the_mount",
    ) {
        return;
    }
    let mut place = Place::plain(8, Options::default());
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    let make = |name: &str, kind, dev| {
        rustix::fs::mknodat(rustix::fs::CWD, place.at(name), kind, mode, dev)
    };
    let null = rustix::fs::makedev(1, 3);
    if let Err(e) = make("device.d8", rustix::fs::FileType::CharacterDevice, null) {
        eprintln!("skipped: devices in a home, because they cannot be made here ({e})");
        return;
    }
    make("pipe.redo", rustix::fs::FileType::Fifo, 0).unwrap();
    place.mount();
    let device = fs::metadata(place.at("device.d8")).unwrap();
    assert!(device.file_type().is_char_device());
    assert_eq!(device.rdev(), null);
    let refused = fs::OpenOptions::new().write(true).open(place.at("device.d8")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES), "the mount is nodev");
    // A pipe is the kernel's own: both ends, through the mount.
    let path = place.at("pipe.redo");
    let reader = std::thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap()
    });
    fs::write(&path, "through the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), "through the pipe");
    let socket = std::os::unix::net::UnixListener::bind(place.at("s.sock")).unwrap();
    let mut client = std::os::unix::net::UnixStream::connect(place.at("s.sock")).unwrap();
    let (mut server, _) = socket.accept().unwrap();
    std::io::Write::write_all(&mut client, b"x").unwrap();
    let mut byte = [0];
    std::io::Read::read_exact(&mut server, &mut byte).unwrap();
    drop((socket, client, server));
    fs::remove_file(place.at("s.sock")).unwrap();
    fs::rename(place.at("pipe.redo"), place.at("pipe.d8")).unwrap();
    assert!(fs::symlink_metadata(place.at("pipe.d8")).unwrap().file_type().is_fifo());
    place.detach();
}

#[test]
fn long_deep_and_unreadable_names_are_names() {
    if skipped("long_deep_and_unreadable_names_are_names") {
        return;
    }
    let mut place = Place::new(16);
    let long = "x".repeat(252) + ".d8";
    let too_long = "x".repeat(253) + ".d8";
    fs::write(place.at(&long), "long").unwrap();
    assert_eq!(
        fs::write(place.at(&too_long), "no").unwrap_err().raw_os_error(),
        Some(libc::ENAMETOOLONG)
    );
    for (n, bytes) in
        [&b"\xff\xfe.d8"[..], b"\x01\x7f.redo", b" \n\t'\".d4", b"-rf.pass", b"%s%n{}.d8"]
            .iter()
            .enumerate()
    {
        let path = place.home().join(OsStr::from_bytes(bytes));
        fs::write(&path, [n as u8; 10_000]).unwrap();
        fs::rename(&path, path.with_extension("d4")).unwrap();
        assert_eq!(fs::read(path.with_extension("d4")).unwrap(), [n as u8; 10_000]);
    }
    let mut deep = place.home();
    for _ in 0..40 {
        deep.push("d".repeat(60));
        fs::create_dir(&deep).unwrap();
    }
    fs::write(deep.join("deep.d8"), "deep").unwrap();
    fs::write(deep.join("deep.redo"), "deep").unwrap();
    let names = fs::read_dir(place.home()).unwrap().count();
    place.remount();
    assert_eq!(fs::read_to_string(deep.join("deep.d8")).unwrap(), "deep");
    assert_eq!(fs::read_to_string(deep.join("deep.redo")).unwrap(), "deep");
    assert_eq!(fs::read_to_string(place.at(&long)).unwrap(), "long");
    assert_eq!(fs::read_dir(place.home()).unwrap().count(), names);
    place.detach();
    assert_eq!(fs::read_to_string(deep.join("deep.d8")).unwrap(), "deep");
}

#[test]
fn a_directory_of_thousands_is_listed_whole_while_it_is_emptied() {
    if skipped("a_directory_of_thousands_is_listed_whole_while_it_is_emptied") {
        return;
    }
    let place = Place::new(8);
    fs::create_dir(place.at("many")).unwrap();
    const COUNT: usize = 3000;
    for n in 0..COUNT {
        fs::write(place.at(&format!("many/file-{n:05}.pass")), "").unwrap();
    }
    let mut names: Vec<_> =
        fs::read_dir(place.at("many")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), COUNT);
    // What is there all the time is listed, whatever else goes.
    let mut seen = 0;
    for (n, entry) in fs::read_dir(place.at("many")).unwrap().enumerate() {
        let entry = entry.unwrap();
        seen += 1;
        if n % 2 == 0 {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    assert_eq!(seen, COUNT);
    fs::remove_dir_all(place.at("many")).unwrap();
    // The kernel says a little later what it has let go of.
    place::until("the nodes of removed files to go", || place.mounted().nodes() < COUNT);
}
