//! Full is not fatal: home running full gives ENOSPC to the writer and loses nothing; the tier
//! running full makes writers wait, and go on.
//!
//! A real full file system needs root and a loop device; where that is not to be had the test says
//! so and why, and the same is shown on the simulated home, which has a limit.

mod disk;

use crate::place;

use crate::gate::Gate;
use crate::place::{Memory, Place, attach};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tiersmith_store::home::{Home, SimHome, sim::SimOptions};
use tiersmith_store::{
    AttachedHome, Error, File, Medium, OpenMode, Options, TierSpec, testing, waits,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const ENOSPC: i32 = 28;

/// Writes blocks `from..to` until one is refused; returns how many were acknowledged, and the
/// error.
fn write_until_refused(file: &File, from: u64, to: u64) -> (u64, Option<Error>) {
    for n in from..to {
        if let Err(e) = file.write(n * 8192, &place::pattern(n, n * 8192, 8192)) {
            return (n, Some(e));
        }
    }
    (to, None)
}

fn assert_blocks(file: &File, count: u64) {
    let mut block = vec![0; 8192];
    for n in 0..count {
        assert_eq!(file.read(n * 8192, &mut block).unwrap(), 8192);
        assert!(
            block == place::pattern(n, n * 8192, 8192),
            "acknowledged block {n} of {count} is lost"
        );
    }
}

fn assert_no_space(e: &Error) {
    assert_eq!(e.errno(), ENOSPC, "{e}");
    assert!(e.to_string().contains("free space there"), "it names no remedy: {e}");
}

// --- the simulated home ---

struct Simulated {
    home: Arc<SimHome>,
    gate: Arc<Gate>,
    memory: Memory,
    spec: TierSpec,
}

impl Simulated {
    fn new(bytes: u64) -> Self {
        let home = Arc::new(SimHome::new(None));
        let gate = Gate::new(home.clone());
        let memory = Memory::new(bytes);
        Self { home, gate, memory, spec: place::small("fast".into(), bytes) }
    }

    fn attach(&self) -> AttachedHome {
        self.attach_with(place::options())
    }

    fn attach_with(&self, options: Options) -> AttachedHome {
        let tiers = vec![(self.spec.clone(), vec![self.memory.clone()])];
        testing::attach_simulated(self.gate.clone(), tiers, &place::profile(), options).unwrap()
    }

    /// What another process finds in the tier.
    fn reopen(&mut self) -> AttachedHome {
        self.memory = self.memory.restarted();
        self.attach()
    }
}

#[test]
fn home_running_full_gives_enospc_to_the_writer_and_loses_nothing() {
    let mut simulated = Simulated::new(MIB);
    let limit = |capacity| SimOptions { capacity, ..SimOptions::default() };
    simulated.home.set_options(limit(Some(2 * MIB)));
    let attached = simulated.attach();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let redo = attached.open("a.redo", OpenMode::CREATE).unwrap();
    redo.write(0, &place::pattern(77, 0, 30_000)).unwrap();
    let (acked, error) = write_until_refused(&file, 0, 1000);
    assert_no_space(&error.expect("8 MiB fitted into 2"));
    assert_blocks(&file, acked);
    assert_no_space(&attached.flush_all().unwrap_err());
    assert_no_space(
        &attached.background_step().err().unwrap_or_else(|| attached.flush_all().unwrap_err()),
    );
    assert!(
        redo.write(30_000, &[5; 512]).is_ok(),
        "a redo block that is in the tier needs no space at home"
    );
    assert_blocks(&file, acked);
    drop((file, redo, attached));
    let attached = simulated.reopen();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    assert_blocks(&file, acked);
    simulated.home.set_options(limit(None));
    let (more, error) = write_until_refused(&file, acked, 400);
    assert!(error.is_none(), "{error:?}");
    assert_blocks(&file, more);
    drop(file);
    assert_eq!(&place::read(&attached, "a.redo")[..30_000], place::pattern(77, 0, 30_000));
    attached.detach().unwrap();
    assert_eq!(simulated.home.contents(Path::new("a.d8")).unwrap().len() as u64, more * 8192);
}

#[test]
fn a_full_home_is_told_of_until_it_takes_the_blocks_again() {
    let simulated = Simulated::new(MIB);
    let limit = |capacity| SimOptions { capacity, ..SimOptions::default() };
    simulated.home.set_options(limit(Some(64 * KIB)));
    let attached = simulated.attach();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let redo = attached.open("a.redo", OpenMode::CREATE).unwrap();
    assert_eq!(attached.stats().background_error, None);
    write_until_refused(&file, 0, 30);
    redo.write(0, &place::pattern(77, 0, 90_000)).unwrap();
    let destage = |path: &str| attached.destage(Some(Path::new(path)));
    let told_of = |files: u64, what: &str| {
        let stats = attached.stats();
        assert_eq!(stats.refused_files, files, "{what}: {:?}", stats.background_error);
        let Some(error) = stats.background_error else { return assert_eq!(files, 0, "{what}") };
        assert!(error.contains("a.d8") && error.contains("free space there"), "{what}: {error}");
        assert!(!error.contains('{'), "{what}: {error}");
    };
    // Most of the tier is free: these steps of the background have nothing to do, and prove
    // nothing.
    let idle = |steps| (0..steps).for_each(|_| drop(attached.background_step()));
    assert_no_space(&destage("a.d8").unwrap_err());
    idle(10);
    told_of(1, "after a destage by command");
    assert_no_space(&destage("a.redo").unwrap_err());
    idle(200);
    told_of(2, "while it is tried again");
    simulated.home.set_options(limit(None));
    idle(100);
    told_of(0, "when home has room, without a command");
    assert_eq!(file.blocks_in_tier().0, 0, "it was not tried again");
    // A file that is gone is no reason to worry.
    simulated.home.set_options(limit(Some(0)));
    write_until_refused(&file, 30, 40);
    assert_no_space(&destage("a.d8").unwrap_err());
    told_of(1, "before the file is removed");
    drop(file);
    simulated.home.set_options(limit(None));
    attached.unlink("a.d8").unwrap();
    idle(60);
    told_of(0, "after the file was removed");
}

#[test]
fn home_failing_to_write_or_sync_leaves_the_blocks_dirty_and_the_next_try_takes_them_all() {
    for syncs in [false, true] {
        let mut simulated = Simulated::new(MIB);
        let attached = simulated.attach();
        let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
        let redo = attached.open("a.redo", OpenMode::CREATE).unwrap();
        write_until_refused(&file, 0, 20);
        redo.write(0, &place::pattern(77, 0, 30_000)).unwrap();
        let fail = || {
            if syncs { simulated.home.fail_nth_sync(1) } else { simulated.home.fail_nth_write(1) }
        };
        for path in ["a.d8", "a.redo"] {
            fail();
            let error = attached.destage(Some(Path::new(path))).unwrap_err();
            assert_eq!(error.errno(), 5, "{error}");
        }
        assert_eq!(file.blocks_in_tier().0, 20);
        assert_eq!(redo.blocks_in_tier().0, 8);
        drop((file, redo, attached));
        let attached = simulated.reopen();
        assert_blocks(&attached.open("a.d8", OpenMode::READ).unwrap(), 20);
        assert_eq!(attached.flush_all().unwrap(), 28);
        attached.detach().unwrap();
        // What a failed sync did not make durable is durable now.
        simulated.home.rebase();
        let plain = simulated.home.contents(Path::new("a.d8")).unwrap();
        assert!(
            (0..20)
                .all(|n| plain[(n * 8192) as usize..][..8192] == place::pattern(n, n * 8192, 8192))
        );
        assert_eq!(
            **simulated.home.contents(Path::new("a.redo")).unwrap(),
            place::pattern(77, 0, 30_000)
        );
    }
}

#[test]
fn a_cut_that_home_refuses_shows_nothing_old_afterwards() {
    let simulated = Simulated::new(MIB);
    simulated.home.put(Path::new("a.d8"), &[9; 40_000]).unwrap();
    let attached = simulated.attach();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    simulated.home.fail_nth_write(1);
    assert_eq!(file.truncate(10_000).unwrap_err().errno(), 5);
    let size = file.len().unwrap();
    assert!(size == 40_000 || size == 10_000);
    if size == 10_000 {
        file.extend(40_000).unwrap();
        let all = place::contents(&file);
        assert!(all[..10_000].iter().all(|b| *b == 9) && all[10_000..].iter().all(|b| *b == 0));
        drop(file);
        attached.detach().unwrap();
        assert_eq!(simulated.home.contents(Path::new("a.d8")).unwrap()[..], all[..]);
    }
}

// --- the tier running full ---

#[test]
fn writers_wait_while_the_tier_is_full_and_all_go_on() {
    let simulated = Simulated::new(MIB);
    let attached = simulated.attach();
    let names = ["a.d8", "b.d8", "c.d4"];
    simulated.gate.close();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for name in names {
            let (attached, done) = (&attached, &done);
            scope.spawn(move || {
                let file = attached.open(name, OpenMode::CREATE).unwrap();
                for n in 0..150u64 {
                    file.write(n * 8192, &place::pattern(n, n * 8192, 8192)).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // The tier fills, somebody begins to destage, all others wait.
        let end = Instant::now() + Duration::from_secs(120);
        let mut before = (0, Instant::now());
        while simulated.gate.waiting() == 0 || before.1.elapsed() < Duration::from_millis(200) {
            assert!(Instant::now() < end, "nobody destages");
            let now = done.load(Ordering::Relaxed);
            if now != before.0 {
                before = (now, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(
            before.0 > 50 && before.0 < 450,
            "{} writes were done on a tier that holds 100",
            before.0
        );
        simulated.gate.open_wide();
    });
    assert_eq!(done.load(Ordering::Relaxed), 450);
    let waits = attached.stats().waits;
    let full = waits.event(waits::FREE_WAIT);
    assert!(full.count() >= 3, "free buffer waits: {}", full.count());
    assert!(full.max_ns() >= 200_000_000, "the longest wait took {} ns", full.max_ns());
    for name in names {
        assert_blocks(&attached.open(name, OpenMode::READ).unwrap(), 150);
    }
}

#[test]
fn many_writers_on_a_tier_of_a_few_units_wait_and_none_of_them_is_refused() {
    // Eight units of 1 MiB. Four writers fill them with small blocks all the time, four need large
    // blocks and map pages for one new file after the other, and get them only when a whole unit is
    // free. Home has all the room it wants: nobody may hear of a full tier.
    let mut simulated = Simulated::new(9 * MIB);
    simulated.spec.unit = MIB;
    simulated.spec.lanes = 128;
    let attached = &simulated.attach();
    let small = |writer: u64| -> Result<(), String> {
        let name = format!("{writer}.{}", if writer.is_multiple_of(2) { "d4" } else { "d8" });
        let file = attached.open(&name, OpenMode::CREATE).unwrap();
        let size = file.block_size().unwrap().bytes();
        let mut random = place::mix(writer);
        let mut written = vec![false; 4 * MIB as usize / size];
        for n in 0..15_000 {
            random = place::mix(random);
            let block = random as usize % written.len();
            let at = (block * size) as u64;
            file.write(at, &place::pattern(writer, at, size))
                .map_err(|e| format!("write {n} of {name}: {e}"))?;
            written[block] = true;
        }
        let all = place::contents(&file);
        let kept = |block: usize| {
            all[block * size..][..size] == place::pattern(writer, (block * size) as u64, size)
        };
        assert!(
            (0..written.len()).all(|block| !written[block] || kept(block)),
            "a block of {name} is lost"
        );
        Ok(())
    };
    let large = |writer: u64| -> Result<(), String> {
        for n in 0..120 {
            let name = format!("{writer}-{n}.{}", ["d32", "redo", "d16"][n % 3]);
            let file = attached.open(&name, OpenMode::CREATE).unwrap();
            let data = place::pattern(writer, 0, 20 << 15);
            for (at, part) in (0..).step_by(1 << 15).zip(data.chunks(1 << 15)) {
                file.write(at, part).map_err(|e| format!("write at {at} of {name}: {e}"))?;
            }
            if file.has_batches() {
                let size = file.block_size().unwrap().bytes();
                let batch: Vec<_> = (0..).step_by(size).zip(data.chunks(size)).collect();
                file.write_batch(&batch).map_err(|e| format!("batch of {name}: {e}"))?;
            }
            assert!(place::contents(&file) == data, "{name}");
            drop(file);
            attached.unlink(&name).unwrap();
        }
        Ok(())
    };
    let refused: Vec<String> = std::thread::scope(|scope| {
        let mut writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || small(writer))).collect();
        writers.extend((4..8).map(|writer| scope.spawn(move || large(writer))));
        writers.into_iter().filter_map(|w| w.join().unwrap().err()).collect()
    });
    assert!(refused.is_empty(), "{refused:#?}");
    place::assert_nearly_accounted(&attached.stats());
}

#[test]
fn a_tier_full_of_pinned_blocks_is_a_clear_error_and_unpinning_ends_it() {
    let simulated = Simulated::new(MIB);
    let attached = simulated.attach();
    let pinned = attached.open("p.d8", OpenMode::CREATE).unwrap();
    pinned.write(0, &place::pattern(0, 0, 8192)).unwrap();
    attached.pin("p.d8").unwrap();
    let (count, error) = write_until_refused(&pinned, 0, 1000);
    let error = error.expect("8 MiB fitted into a tier of 1");
    assert!(matches!(error, Error::TierFull { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`fast`") && text.contains("pinned") && text.contains("unpin"), "{text}");
    assert_eq!(error.errno(), ENOSPC);
    assert_blocks(&pinned, count);
    let other = attached.open("o.d8", OpenMode::CREATE).unwrap();
    assert!(matches!(other.write(0, &[1; 8192]), Err(Error::TierFull { .. })));
    assert_eq!(other.len().unwrap(), 0);
    // Home takes the pinned blocks too, but they keep their place.
    attached.flush_all().unwrap();
    assert!(matches!(other.write(0, &[1; 8192]), Err(Error::TierFull { .. })));
    attached.unpin("p.d8").unwrap();
    let (_, error) = write_until_refused(&other, 0, 300);
    assert!(error.is_none(), "{error:?}");
    assert_blocks(&pinned, count);
    assert_blocks(&other, 300);
}

#[test]
fn a_block_that_is_at_home_can_be_cut_in_two_while_the_tier_is_full() {
    let simulated = Simulated::new(MIB);
    let attached = simulated.attach();
    let cut = attached.open("o.d8", OpenMode::CREATE).unwrap();
    cut.write(0, &place::pattern(1, 0, 16384)).unwrap();
    attached.flush_all().unwrap();
    attached.evict(None, u64::MAX).unwrap();
    let pinned = attached.open("p.d8", OpenMode::CREATE).unwrap();
    pinned.write(0, &place::pattern(0, 0, 8192)).unwrap();
    attached.pin("p.d8").unwrap();
    write_until_refused(&pinned, 0, 1000).1.expect("8 MiB fitted into a tier of 1");
    cut.truncate(100).unwrap();
    cut.extend(16384).unwrap();
    let mut expected = place::pattern(1, 0, 100);
    expected.resize(16384, 0);
    assert!(place::contents(&cut) == expected);
}

#[test]
fn a_pin_beyond_the_limit_is_refused_and_changes_nothing() {
    let simulated = Simulated::new(MIB);
    simulated.home.put(Path::new("large.d8"), &vec![7; MIB as usize]).unwrap();
    simulated.home.put(Path::new("small.d8"), &vec![8; 400 << 10]).unwrap();
    simulated.home.put(Path::new("other.d8"), &vec![9; 500 << 10]).unwrap();
    let attached = simulated.attach();
    let error = attached.pin("large.d8").unwrap_err();
    assert!(matches!(error, Error::TierFull { .. }), "{error}");
    assert!(error.to_string().contains("an eighth must stay free of pins"), "{error}");
    attached.pin("small.d8").unwrap();
    let small = attached.open("small.d8", OpenMode::READ).unwrap();
    assert_eq!(small.blocks_in_tier(), (0, 50));
    assert!(
        matches!(attached.pin("other.d8"), Err(Error::TierFull { .. })),
        "both together are too much"
    );
    // The refused ones are not pinned: they leave when others need the place; the pinned one stays.
    let file = attached.open("w.d8", OpenMode::CREATE).unwrap();
    let (_, error) = write_until_refused(&file, 0, 300);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(small.blocks_in_tier(), (0, 50));
    assert!(matches!(attached.pin("pass.txt"), Err(Error::Io { .. })));
    simulated.home.put(Path::new("pass.txt"), b"x").unwrap();
    assert!(matches!(attached.pin("pass.txt"), Err(Error::Invalid { .. })));
}

#[test]
fn views_that_readers_hold_stay_as_they_were_while_writers_go_on_in_a_full_tier() {
    if !place::LENDS {
        return;
    }
    let simulated = Simulated::new(MIB);
    let attached = simulated.attach();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    write_until_refused(&file, 0, 30);
    let views: Vec<_> = (0..30).map(|n| file.read_ref(n * 8192).unwrap()).collect();
    // Overwritten, destaged and evicted, while others write ten times what the tier holds.
    for n in 0..30u64 {
        file.write(n * 8192, &[n as u8; 8192]).unwrap();
    }
    let other = attached.open("b.d8", OpenMode::CREATE).unwrap();
    let (_, error) = write_until_refused(&other, 0, 1000);
    assert!(error.is_none(), "{error:?}");
    for (n, view) in (0..).zip(&views) {
        assert!(view[..] == place::pattern(n, n * 8192, 8192), "view {n} changed under its reader");
    }
    drop(views);
    assert_blocks(&other, 1000);
    assert!((0..30).all(|n| place::contents(&file)[n * 8192] == n as u8));
}

#[test]
fn frames_of_blocks_that_were_overwritten_can_be_lent_and_serve_every_later_use() {
    within_seconds(120, || {
        let simulated = Simulated::new(MIB);
        let attached = simulated.attach();
        // The same frames hold blocks of each size, batches, redo and map pages in turn.
        for round in 0..place::times(12) {
            for (name, block) in [
                ("a.d8", 8192),
                ("b.d4", 4096),
                ("c.redo", 4096),
                ("d.d32", 32768),
                ("e.d16", 16384),
            ] {
                let file = attached.open(name, OpenMode::CREATE).unwrap();
                let count = 700 * KIB / block;
                let bytes = |n: u64, version| {
                    place::pattern(round << 32 | n << 8 | version, 0, block as usize)
                };
                for version in 0..3 {
                    for n in 0..count {
                        file.write(n * block, &bytes(n, version)).unwrap();
                    }
                }
                let lent: Vec<_> =
                    (0..count).step_by(3).map(|n| (n, file.read_ref(n * block))).collect();
                for n in 0..count / 2 {
                    file.write(n * block, &bytes(n, 3)).unwrap();
                }
                if file.has_batches() {
                    let data: Vec<_> =
                        (count / 2..count).map(|n| (n * block, bytes(n, 3))).collect();
                    for (at, data) in &data {
                        file.write_batch(&[(*at, data)]).unwrap();
                    }
                    let some: Vec<_> =
                        data.iter().take(5).map(|(at, data)| (*at, &data[..])).collect();
                    file.write_batch(&some).unwrap();
                }
                for (n, view) in &lent {
                    assert_eq!(
                        view.is_none(),
                        name == "c.redo" || !place::LENDS,
                        "{name}: block {n} is there and can be lent"
                    );
                    assert!(
                        view.iter().all(|view| view[..] == bytes(*n, 2)),
                        "{name}: block {n} changed"
                    );
                }
                drop(lent);
                let whole = place::contents(&file);
                for n in 0..count {
                    let version = if file.has_batches() || n < count / 2 { 3 } else { 2 };
                    let found = &whole[(n * block) as usize..((n + 1) * block) as usize];
                    assert!(found == bytes(n, version), "{name}: round {round}, block {n}");
                }
                if round % 2 == 0 {
                    file.truncate(0).unwrap()
                } else {
                    attached.unlink(name).unwrap()
                }
            }
        }
        let (free, used, usable) = testing::accounting(&attached);
        assert_eq!(free + used, usable);
    });
}

#[test]
fn views_of_the_whole_tier_are_a_clear_error_and_letting_go_ends_it() {
    if !place::LENDS {
        return;
    }
    let simulated = Simulated::new(MIB);
    let attached = simulated.attach();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let other = attached.open("b.d8", OpenMode::CREATE).unwrap();
    other.write(0, &[1; 8192]).unwrap();
    let mut views = Vec::new();
    let mut refused = None;
    for n in 0..500u64 {
        match file.write(n * 8192, &place::pattern(n, n * 8192, 8192)) {
            Ok(()) => views.push(file.read_ref(n * 8192).expect("it was just written")),
            Err(e) => {
                refused = Some(e);
                break;
            }
        }
    }
    let error = refused.expect("more views than the tier has blocks");
    assert!(
        matches!(error, Error::TierFull { .. }) && error.to_string().contains("readers"),
        "{error}"
    );
    assert!(views.len() > 80, "{}", views.len());
    assert!((0..).zip(&views).all(|(n, view)| view[..] == place::pattern(n, n * 8192, 8192)));
    let count = views.len() as u64;
    drop(views);
    let (_, error) = write_until_refused(&file, count, count + 300);
    assert!(error.is_none(), "{error:?}");
    assert_blocks(&file, count + 300);
}

/// Runs `what` in a thread of its own and gives up after some seconds: a defect here is a loop
/// without end.
fn within_seconds(seconds: u64, what: impl FnOnce() + Send + 'static) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        what();
        tell.send(()).unwrap();
    });
    if told.recv_timeout(Duration::from_secs(seconds))
        == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
    {
        panic!("not done after {seconds} s");
    }
    thread.join().unwrap();
}

#[test]
fn a_large_batch_gets_its_overflow_pages_though_every_unit_is_in_use() {
    within_seconds(180, || {
        let simulated = Simulated::new(2 * MIB);
        let attached = simulated.attach();
        // Eight leaf pages fill the one unit that map pages have.
        let files: Vec<File> =
            (0..8).map(|n| attached.open(format!("{n}.d4"), OpenMode::CREATE).unwrap()).collect();
        let units = attached.stats().tiers[0].usable_bytes / (32 * KIB);
        for n in 0..(units - 1) * 8 {
            files[n as usize % 8].write(n / 8 * 4096, &[1; 4096]).unwrap();
        }
        attached.flush_all().unwrap();
        // Every unit keeps two cached blocks, so that none is free for another purpose.
        for n in 0..6 {
            attached.evict(Some(Path::new(&format!("{n}.d4"))), 0).unwrap();
        }
        let data: Vec<Vec<u8>> = (0..140).map(|n| place::pattern(n, 0, 4096)).collect();
        let batch: Vec<(u64, &[u8])> = (0..).zip(&data).map(|(n, d)| (n * 4096, &d[..])).collect();
        files[0].write_batch(&batch).unwrap();
        assert!((0..140).all(|n| place::contents(&files[0])[n * 4096..][..4096] == data[n]));
    });
}

#[test]
fn a_batch_larger_than_the_tier_is_refused_whole() {
    within_seconds(180, || {
        let simulated = Simulated::new(MIB);
        let attached = simulated.attach();
        let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
        file.write(0, &[1; 8192]).unwrap();
        for count in [130, 400] {
            let data = vec![2; 8192];
            let batch: Vec<(u64, &[u8])> = (0..count).map(|n| (n * 8192, &data[..])).collect();
            let error = file.write_batch(&batch).unwrap_err();
            assert!(matches!(error, Error::BatchTooLarge { .. }), "{error}");
            assert_eq!(place::contents(&file), [1; 8192]);
        }
    });
}

#[test]
fn a_redo_write_larger_than_the_tier_is_done_in_parts() {
    within_seconds(180, || {
        let simulated = Simulated::new(MIB);
        let attached = simulated.attach();
        let file = attached.open("a.redo", OpenMode::CREATE).unwrap();
        let data = place::pattern(1, 100, 3 << 20);
        file.write(100, &data).unwrap();
        assert!(place::contents(&file)[100..] == data);
        file.write(7, &data).unwrap();
        assert!(place::contents(&file)[7..data.len() + 7] == data);
        drop(file);
        attached.detach().unwrap();
        assert!(simulated.home.contents(Path::new("a.redo")).unwrap()[7..data.len() + 7] == data);
    });
}

/// A database that writes its log segments again writes whole pages of what went home long ago; a
/// commit must not wait for home's disk.
#[test]
fn a_redo_block_that_is_written_whole_is_not_read_from_home_first() {
    let simulated = Simulated::new(MIB);
    let attached = simulated.attach();
    let file = attached.open("a.redo", OpenMode::CREATE).unwrap();
    let mut expected = place::pattern(1, 0, 6 * 4096 + 100);
    file.write(0, &expected).unwrap();
    attached.destage(Some(Path::new("a.redo"))).unwrap();
    assert_eq!(file.blocks_in_tier(), (0, 0));
    // Two whole blocks; the end of one; the end of one, one whole, the beginning of one; over the
    // end of the file.
    for (at, len, reads) in
        [(4096, 8192, false), (4000, 4192, true), (16334, 4196, true), (24576, 9000, false)]
    {
        let was_read = Arc::new(AtomicBool::new(false));
        let told = was_read.clone();
        simulated.gate.after_next_read(move || told.store(true, Ordering::SeqCst));
        let data = place::pattern(2, at, len);
        file.write(at, &data).unwrap();
        assert_eq!(was_read.load(Ordering::SeqCst), reads, "{at}");
        let (at, end) = (at as usize, at as usize + len);
        expected.resize(expected.len().max(end), 0);
        expected[at..end].copy_from_slice(&data);
        assert!(place::contents(&file) == expected, "{at}");
    }
    drop(file);
    attached.detach().unwrap();
    assert!(*simulated.home.contents(Path::new("a.redo")).unwrap() == expected);
}

#[test]
fn a_volatile_tier_that_is_full_makes_nobody_wait_and_nothing_fail() {
    let mut simulated = Simulated::new(MIB);
    simulated.spec.medium = Medium::Volatile;
    let attached = simulated.attach();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let (_, error) = write_until_refused(&file, 0, 400);
    assert!(error.is_none(), "{error:?}");
    for _ in 0..2 {
        assert_blocks(&file, 400);
    }
    // In no order: a scan is not admitted.
    for n in 0..400 {
        file.read(n * 149 % 400 * 8192, &mut [0; 8192]).unwrap();
    }
    assert_eq!(file.blocks_in_tier().0, 0);
    assert!(file.blocks_in_tier().1 > 50);
    attached.background_step().unwrap();
    assert_blocks(&file, 400);
    assert!(simulated.gate.door_closed().unwrap());
}

/// A tier of its own for batches, and how many blocks of 4 KiB can be written into it until it is
/// full.
fn blocks_that_fit_after(batches: u64, blocks_each: u64) -> u64 {
    let place = Place::in_memory();
    let spec = TierSpec {
        unit: 32 * KIB,
        lanes: 4,
        batches: 2,
        ..TierSpec::new("fast", place.member("m0"), Medium::Emulated, 8 * MIB)
    };
    let home = attach(&place.home(), &spec, place::options()).unwrap();
    let batched = home.create("batched.d4").unwrap();
    let bytes = vec![7; 4096];
    for _ in 0..batches {
        let blocks: Vec<(u64, &[u8])> = (0..blocks_each).map(|n| (n * 4096, &bytes[..])).collect();
        batched.write_batch(&blocks).unwrap();
    }
    drop(batched);
    home.unlink("batched.d4").unwrap();
    let file = home.create("a.d4").unwrap();
    home.pin("a.d4").unwrap();
    (0..).find(|n| file.write(n * 4096, &bytes).is_err()).unwrap()
}

#[test]
fn what_batches_took_is_there_for_others_when_the_tier_is_full() {
    let never = blocks_that_fit_after(0, 0);
    assert!(never > 1000, "{never} blocks fit");
    // Small batches leave pieces ready for the next one; large ones need pages for their records.
    assert_eq!(blocks_that_fit_after(5, 20), never, "pieces that were ready for batches");
    assert_eq!(blocks_that_fit_after(40, 140), never, "pages that records of batches took");
}
