//! Media that lose bytes beneath their mapping: an error where one is asked for, words before the
//! signal ends the process, and the host's own handler as it was.
#![cfg(not(miri))]
use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use tiersmith_pmem::{Access, Error, FRAME, Mapping, OpenOptions, SigbusWatch, watch_sigbus};

const LEN: u64 = 64 * FRAME as u64;
const ROLE: &str = "TIERSMITH_TEST_FAULT";

fn map(path: &Path) -> Mapping {
    Mapping::open(path, &OpenOptions { create: true, ..OpenOptions::new(Access::Emulated, LEN) })
        .unwrap()
}

fn cut(path: &Path, len: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Runs the test `name` in a process of its own, in which `role` says what to do.
fn child(name: &str, role: &str, path: &Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{role}:{}", path.display())).output().unwrap()
}

fn role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    let (role, path) = role.split_once(':').unwrap();
    Some((role.to_owned(), path.into()))
}

fn watch() -> SigbusWatch {
    watch_sigbus(Arc::new(|path, at| {
        assert!(path.ends_with("tier"));
        Some(format!("it is in frame {}", at / FRAME as u64))
    }))
    .unwrap()
}

#[test]
fn a_checked_read_of_what_was_cut_off_beneath_the_mapping_is_an_error_and_the_rest_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tier");
    let mapping = map(&path);
    mapping.set_open_range(LEN);
    mapping.write(FRAME as u64, &[7; 100]);
    cut(&path, 3 * FRAME as u64);
    let mut bytes = [0; 100];
    mapping.read_checked(FRAME as u64, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 100]);
    let error = mapping.read_checked(3 * FRAME as u64 - 50, &mut bytes).unwrap_err();
    assert!(matches!(error, Error::Unreadable { at: 12238, len: 100, .. }), "{error}");
    let said = error.to_string();
    assert!(
        said.contains("cannot read 100 bytes at byte 12238 of ") && said.contains("tier"),
        "{said}"
    );
    // What was written through the mapping is what is read, also where nothing was synced.
    let heap = Mapping::in_memory(&[5; FRAME], 0);
    heap.read_checked(10, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 100]);
}

#[test]
fn a_fault_in_a_mapping_names_medium_and_byte_before_the_default_action_ends_the_process() {
    const NAME: &str =
        "a_fault_in_a_mapping_names_medium_and_byte_before_the_default_action_ends_the_process";
    if let Some((role, path)) = role() {
        let mapping = map(&path);
        let _watch = (role != "unwatched").then(watch);
        cut(&path, FRAME as u64);
        let mut bytes = [0; 8];
        if role == "thread" {
            std::thread::spawn(move || mapping.read(5 * FRAME as u64 + 8, &mut bytes))
                .join()
                .unwrap();
            unreachable!();
        }
        mapping.read(5 * FRAME as u64 + 8, &mut bytes);
        unreachable!();
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tier");
    for role in ["watched", "thread"] {
        let ended = child(&full_name!(NAME), role, &path);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{role}: {said}");
        let line = format!("tiersmith: SIGBUS at byte 20488 of {}", path.display());
        assert!(said.contains(&line) && said.contains("the file was truncated"), "{role}: {said}");
        let words = format!("tiersmith: byte 20488 of {}: it is in frame 5\n", path.display());
        assert!(said.contains(&words), "{role}: {said}");
    }
    // Nobody asked for it: not a word of ours.
    let ended = child(&full_name!(NAME), "unwatched", &path);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(libc::SIGBUS), "{said}");
    assert!(!said.contains("tiersmith:"), "{said}");
}

extern "C" fn hosts_handler(_: c_int) {
    // SAFETY: both are calls that a signal handler may make; the bytes are a constant.
    unsafe {
        let _ = libc::write(2, c"the host's handler\n".as_ptr().cast(), 19);
        libc::_exit(42)
    }
}

fn handler() -> usize {
    // SAFETY: all zero is a valid value of this structure of integers, which the call fills in.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut now), 0);
        now.sa_sigaction
    }
}

fn take_signal(handler: extern "C" fn(c_int)) {
    // SAFETY: as above; the handler makes calls only that it may make.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const new, std::ptr::null_mut()), 0);
    }
}

#[test]
fn the_hosts_handler_has_the_signal_after_the_words_and_its_place_again_at_the_end() {
    const NAME: &str =
        "the_hosts_handler_has_the_signal_after_the_words_and_its_place_again_at_the_end";
    if let Some((role, path)) = role() {
        take_signal(hosts_handler);
        let before = handler();
        let first = watch();
        let second = watch();
        assert_ne!(handler(), before);
        drop(first);
        assert_ne!(handler(), before, "one watch is there still");
        drop(second);
        assert_eq!(handler(), before);
        let watch = watch();
        let mapping = map(&path);
        match &role[..] {
            "fault" => {
                cut(&path, FRAME as u64);
                let _ = mapping.load_u64(2 * FRAME as u64);
            }
            "foreign" => {
                // SAFETY: a mapping of a page past the end of a file, which nobody else has; the
                // fault is what is wanted.
                unsafe {
                    let file = std::fs::File::create_new(path.with_extension("other")).unwrap();
                    let file = std::os::fd::AsRawFd::as_raw_fd(&file);
                    let page = libc::mmap(
                        std::ptr::null_mut(),
                        FRAME,
                        libc::PROT_READ,
                        libc::MAP_SHARED,
                        file,
                        0,
                    );
                    let _ = page.cast::<u8>().read_volatile();
                }
            }
            // Sent by a process, and about no address.
            "sent" => {
                // SAFETY: a signal to this thread.
                let _ = unsafe { libc::raise(libc::SIGBUS) };
            }
            _ => {
                take_signal(hosts_handler);
                drop(watch);
                assert_eq!(handler(), before, "a handler that was put over ours was taken away");
                std::process::exit(7);
            }
        }
        unreachable!();
    }
    let directory = tempfile::tempdir().unwrap();
    for (role, code, named) in
        [("fault", 42, true), ("foreign", 42, false), ("sent", 42, false), ("over", 7, false)]
    {
        let path = directory.path().join("tier");
        let ended = child(&full_name!(NAME), role, &path);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{role}: {said}");
        assert_eq!(said.contains("tiersmith: SIGBUS at byte 8192 of "), named, "{role}: {said}");
        assert_eq!(said.contains("it is in frame 2\n"), named, "{role}: {said}");
        assert_eq!(said.contains("the host's handler"), code == 42, "{role}: {said}");
    }
}
