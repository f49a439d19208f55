//! FUSE over io_uring as a transport: a file system in memory behind it, and everything that may
//! happen to it.
//!
//! Not here: what requests mean, and the store. Where there is no FUSE over io_uring, or nobody may
//! mount, each test says so and ends.

use crate::ring_support;
use crate::ring_support::memory::{Memory, PANICS, STALLS};
use crate::ring_support::{At, Switch, TOO_SMALL, Transport, mounted, unmount, unmount_when_free};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tiersmith_mount::ring;

const FOR_HANGS: Duration = Duration::from_secs(180);

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < FOR_HANGS, "{what}: not within {FOR_HANGS:?}");
        std::thread::yield_now();
    }
}

/// Random calls in a directory, each compared with a model in memory.
fn work(directory: &Path, seed: u64, calls: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    fs::create_dir(directory).expect("a directory is made");
    for _ in 0..calls {
        let name = format!("file-{}", random.u8(..6));
        let path = directory.join(&name);
        let existing = model.contains_key(&name);
        match random.u8(..10) {
            0..5 => {
                let file = File::options()
                    .create(true)
                    .truncate(false)
                    .write(true)
                    .open(&path)
                    .expect("it opens to be written");
                let offset = random.usize(..100_000);
                let mut data = vec![0; random.usize(1..60_000)];
                random.fill(&mut data);
                file.write_all_at(&data, offset as u64).expect("a write");
                file.sync_data().expect("a sync");
                let known = model.entry(name).or_default();
                known.resize(known.len().max(offset + data.len()), 0);
                known[offset..offset + data.len()].copy_from_slice(&data);
            }
            5..7 if existing => {
                assert!(
                    fs::read(&path).expect("a read") == model[&name],
                    "seed {seed}: {name} differs"
                )
            }
            7 if existing => {
                let to = format!("file-{}", random.u8(..6));
                fs::rename(&path, directory.join(&to)).expect("a rename");
                if let Some(data) = model.remove(&name) {
                    model.insert(to, data);
                }
            }
            8 if existing => {
                fs::remove_file(&path).expect("a removal");
                model.remove(&name);
            }
            9 => {
                let mut names: Vec<String> = fs::read_dir(directory)
                    .expect("a listing")
                    .map(|e| {
                        e.expect("an entry").file_name().into_string().expect("a name of ours")
                    })
                    .collect();
                names.sort();
                assert_eq!(names, model.keys().cloned().collect::<Vec<_>>(), "seed {seed}");
            }
            _ => assert!(
                existing || fs::metadata(&path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
            ),
        }
    }
    for (name, data) in &model {
        assert!(
            fs::read(directory.join(name)).expect("a read") == *data,
            "seed {seed}: {name} differs at the end"
        );
    }
}

#[test]
fn what_eight_threads_do_is_what_they_find() {
    for transport in [Transport::Ring, Transport::Classic] {
        let Some(mount) = mounted(&Memory::new(None, false), transport, At::new()) else { return };
        std::thread::scope(|all| {
            for n in 0..8 {
                let directory = mount.path().join(format!("of-thread-{n}"));
                all.spawn(move || work(&directory, n, 250));
            }
        });
        mount.end();
    }
}

const MAP: &str = "TIERSMITH_TEST_RING_MAP";

/// Not a test: the process that another test starts to change a byte of each page of a file through
/// memory.
#[test]
fn mapped_by_a_process_of_its_own() {
    let Some(path) = std::env::var_os(MAP) else { return };
    let file = File::options().read(true).write(true).open(path).expect("it opens");
    let len = usize::try_from(file.metadata().expect("it has a length").len())
        .expect("it fits into memory");
    // SAFETY: a new mapping of a whole file that is as long as the mapping; nobody cuts it
    // meanwhile.
    let map = unsafe {
        let (protection, flags) = (
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::SHARED,
        );
        rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, &file, 0).expect("a mapping")
    };
    for page in (0..len).step_by(4096) {
        // SAFETY: inside the mapping of `len` bytes, which only this thread uses.
        unsafe { map.cast::<u8>().add(page).write(0x5a) };
    }
    // SAFETY: exactly the mapping made above, not used after this.
    unsafe {
        rustix::mm::msync(map, len, rustix::mm::MsyncFlags::SYNC)
            .expect("mapped pages are written");
        rustix::mm::munmap(map, len).expect("the mapping goes");
    }
}

#[test]
fn files_larger_than_any_request_and_mapped_ones_come_through_whole() {
    let Some(mount) = mounted(&Memory::new(None, false), Transport::Ring, At::new()) else {
        return;
    };
    let path = mount.path().join("large");
    let data: Vec<u8> =
        (0..5 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&path, &data).expect("a large write");
    assert!(fs::read(&path).expect("a large read") == data);
    // Dropping the cached pages makes the kernel read again, ahead of the reader: background
    // requests.
    let file = File::open(&path).expect("it opens");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice is taken");
    assert!(fs::read(&path).expect("a large read") == data);
    drop(file);

    // By a process of its own: one that waits, in a fault or an unmapping, for a file that it
    // serves itself waits for ever.
    let mapper = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", full_name!("mapped_by_a_process_of_its_own").as_str(), "--nocapture"])
        .env(MAP, &path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("this program starts again");
    assert!(mapper.success());
    let read = fs::read(&path).expect("a large read");
    assert!(
        read.iter()
            .enumerate()
            .all(|(n, byte)| *byte == if n % 4096 == 0 { 0x5a } else { data[n] })
    );
    mount.end();
}

#[test]
fn callers_on_processors_that_are_not_ours_are_served() {
    let one = sched_getaffinity(None).expect("a thread has processors");
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|n| one.is_set(*n)).collect();
    let (&first, &last) = (all.first().expect("a processor"), all.last().expect("a processor"));
    if first == last {
        eprintln!("skipped: callers on other processors, because there is only one");
        return;
    }
    let _back = Affinity::to(first);
    let Some(mount) = mounted(&Memory::new(None, false), Transport::Ring, At::new()) else {
        return;
    };
    for processor in [last, first, last] {
        let _there = Affinity::to(processor);
        work(&mount.path().join(format!("turn-{}", fastrand::u64(..))), 7, 60);
    }
    mount.end();
}

/// This thread on one processor. Dropping it gives the thread its processors back.
struct Affinity(CpuSet);

impl Affinity {
    fn to(processor: usize) -> Self {
        let before = Self(sched_getaffinity(None).expect("a thread has processors"));
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set).expect("a thread may stay on one of its processors");
        before
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[test]
fn a_slow_request_holds_up_no_other_of_its_processor() {
    let memory = Memory::new(None, true);
    let Some(mount) = mounted(&memory, Transport::Ring, At::new()) else { return };
    let one = sched_getaffinity(None).expect("a thread has processors");
    let first = (0..CpuSet::MAX_CPU).find(|n| one.is_set(*n)).expect("a processor");
    std::thread::scope(|all| {
        for n in 0..4 {
            let path = mount.path().join(format!("{STALLS}-{n}"));
            all.spawn(move || {
                let _here = Affinity::to(first);
                let mut file = File::create(path).expect("it is made");
                file.write_all(b"slow").expect("a write");
                file.sync_all().expect("a sync, however long it takes");
            });
        }
        // Two threads of the pool wait, two syncs wait for these; the queue of the processor still
        // has entries.
        until("the pool's threads wait", || memory.stalled.load(SeqCst) == 2);
        let path = mount.path().join("quick");
        let quick = all.spawn(move || {
            let _here = Affinity::to(first);
            for n in 0..100u8 {
                fs::write(&path, [n; 100]).expect("a write goes on");
                assert_eq!(fs::read(&path).expect("a read goes on"), [n; 100]);
            }
        });
        let ended = quick.join();
        memory.let_go();
        ended.expect("quick requests are answered meanwhile");
    });
    mount.end();
}

#[test]
fn a_service_that_panics_costs_its_caller_an_error_and_nobody_else_anything() {
    let Some(mount) = mounted(&Memory::new(None, false), Transport::Ring, At::new()) else {
        return;
    };
    for _ in 0..20 {
        let error = fs::metadata(mount.path().join(PANICS)).expect_err("the service panicked");
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        fs::write(mount.path().join("other"), b"fine").expect("others go on");
    }
    mount.end();
}

#[test]
fn sync_that_is_answered_enosys_succeeds_and_is_not_asked_again() {
    let Some(mount) = mounted(&Memory::new(Some(Errno::NOSYS), true), Transport::Ring, At::new())
    else {
        return;
    };
    let file = File::create(mount.path().join("file")).expect("it is made");
    for n in 0..200u64 {
        file.write_all_at(&[7; 8192], n % 4 * 8192).expect("a write");
        file.sync_data().expect("a sync");
    }
    drop(file);
    mount.end();
}

#[test]
fn a_ring_that_the_kernel_refuses_leaves_the_device_working() {
    let Some(mount) = mounted(&Memory::new(None, false), Transport::RingWith(TOO_SMALL), At::new())
    else {
        return;
    };
    let why = mount.refused.clone().expect("entries too small are refused");
    assert!(why.contains("Invalid argument") && !why.starts_with("BLOCKED"), "{why}");
    work(&mount.path().join("by-device"), 1, 50);
    mount.end();
}

#[test]
fn a_kernel_with_the_switch_off_is_said_to_have_it_off() {
    match Switch::set("N") {
        Ok(_switch) => {
            let why = ring::available().expect_err("it is switched off");
            assert!(why.contains("switched off") && why.contains(ring_support::SWITCH), "{why}");
        }
        Err(why) => {
            eprintln!("skipped: switching FUSE over io_uring off, because {why}");
        }
    }
}

/// A file of one of the callers. It is opened before anything is torn down: afterwards the path
/// leads to what is under the mount.
fn file_of(directory: &Path, caller: usize) -> File {
    let path = directory.join(format!("file-{caller}"));
    File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(path)
        .expect("a file is made")
}

/// Writes and reads in a file until that fails; gives the error.
fn work_until_an_error(file: &File, done: &AtomicU64) -> io::Error {
    let mut buffer = [0; 8192];
    loop {
        let end = file
            .write_all_at(&buffer, 0)
            .and_then(|()| file.sync_data())
            .and_then(|()| file.read_exact_at(&mut buffer, 0))
            .and_then(|()| file.set_len(8192));
        if let Err(e) = end {
            return e;
        }
        done.fetch_add(1, SeqCst);
    }
}

fn is_an_end(e: &io::Error) -> bool {
    [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED, libc::EIO, libc::ENODEV]
        .contains(&e.raw_os_error().unwrap_or_default())
}

#[test]
fn a_mount_torn_down_under_load_ends_its_callers_and_its_threads() {
    for _ in 0..5 {
        let Some(mut mount) = mounted(&Memory::new(None, true), Transport::Ring, At::new()) else {
            return;
        };
        let done = AtomicU64::new(0);
        std::thread::scope(|all| {
            let callers: Vec<_> = (0..8)
                .map(|n| {
                    let (file, done) = (file_of(mount.path(), n), &done);
                    all.spawn(move || work_until_an_error(&file, done))
                })
                .collect();
            until("calls are made", || done.load(SeqCst) > 200);
            let busy = unmount(mount.path(), 0).expect_err("files are open");
            assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
            unmount(mount.path(), libc::MNT_FORCE | libc::MNT_DETACH).expect("force tears it down");
            for caller in callers {
                let error = caller.join().expect("a caller does not panic");
                assert!(is_an_end(&error), "{error}");
            }
        });
        mount.ended();
    }
}

/// A process that goes on until it is killed. Dropping it kills it.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const SERVE_AT: &str = "TIERSMITH_TEST_RING_SERVE_AT";

/// Not a test: the process that another test starts and kills.
#[test]
fn served_by_a_process_of_its_own() {
    let Some(at) = std::env::var_os(SERVE_AT) else { return };
    let Some(mut mount) =
        mounted(&Memory::new(None, true), Transport::Ring, At::existing(Path::new(&at)))
    else {
        return;
    };
    println!("\nserving");
    mount.ended();
}

#[test]
fn callers_of_a_killed_process_get_an_error_and_nothing_stays_behind() {
    for _ in 0..3 {
        let at = At::new();
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", full_name!("served_by_a_process_of_its_own").as_str(), "--nocapture"])
            .env(SERVE_AT, at.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let said = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut daemon = Started(child);
        if !said.lines().any(|line| line.expect("its output is text") == "serving") {
            eprintln!(
                "skipped: killing a process that serves a mount, because it does not serve one here"
            );
            return;
        }
        let done = AtomicU64::new(0);
        std::thread::scope(|all| {
            let callers: Vec<_> = (0..6)
                .map(|n| {
                    let (file, done) = (file_of(at.path(), n), &done);
                    all.spawn(move || work_until_an_error(&file, done))
                })
                .collect();
            until("calls are made", || done.load(SeqCst) > 100);
            daemon.0.kill().expect("it is killed");
            let status = daemon.0.wait().expect("it is gone");
            assert!(!status.success());
            for caller in callers {
                let error = caller.join().expect("a caller does not panic");
                assert!(is_an_end(&error), "{error}");
            }
        });
        // What is left is a mount without a server, which anybody can see and root can take away.
        let dead = fs::metadata(at.path()).expect_err("nobody serves it");
        assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
        unmount_when_free(at.path());
    }
}

const CALL_ON: &str = "TIERSMITH_TEST_RING_CALL_ON";

/// Not a test: the process that another test starts and kills while it calls.
#[test]
fn called_by_a_process_of_its_own() {
    let Some(path) = std::env::var_os(CALL_ON) else { return };
    let mut file = File::create(path).expect("a file is made");
    println!("\ncalling");
    loop {
        file.write_all(&[7; 8192]).expect("a write");
        file.sync_data().expect("a sync");
        file.set_len(0).expect("a cut");
    }
}

/// Lets stalled syncs go when it is dropped.
struct LetGo<'a>(&'a Memory);

impl Drop for LetGo<'_> {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

#[test]
fn callers_that_are_killed_leave_the_mount_working() {
    let memory = Memory::new(None, true);
    let Some(mount) = mounted(&memory, Transport::Ring, At::new()) else { return };
    let mut callers = Vec::new();
    // Two of them are killed while their sync waits in the pool: they go when it is answered.
    for name in [
        format!("{STALLS}-1"),
        format!("{STALLS}-2"),
        "file-1".into(),
        "file-2".into(),
        "file-3".into(),
    ] {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", full_name!("called_by_a_process_of_its_own").as_str(), "--nocapture"])
            .env(CALL_ON, mount.path().join(name))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let said = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        callers.push(Started(child));
        assert!(said.lines().any(|line| line.expect("its output is text") == "calling"));
    }
    // Also when this test fails, so that those who wait for an answer can be taken away.
    let _go = LetGo(&memory);
    until("two syncs wait", || memory.stalled.load(SeqCst) == 2);
    for caller in &mut callers {
        caller.0.kill().expect("it is killed");
    }
    work(&mount.path().join("meanwhile"), 3, 60);
    memory.let_go();
    for mut caller in callers {
        assert!(!caller.0.wait().expect("it is gone").success());
    }
    work(&mount.path().join("afterwards"), 4, 60);
    mount.end();
}
