//! The orders of events that chance seldom brings about, one by one ([`Gate`]).

use super::*;
use std::sync::mpsc::{Sender, channel};

/// A simulated home behind a gate, with `a.d8` of four blocks at home, and a tier with nothing in
/// it.
fn gated(medium: Medium) -> (Arc<Gate>, AttachedHome, File) {
    gated_with(medium, MIB)
}

/// The same with a tier of so many bytes.
fn gated_with(medium: Medium, bytes: u64) -> (Arc<Gate>, AttachedHome, File) {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &place::pattern(1, 0, 4 * BLOCK)).unwrap();
    home.rebase();
    let gate = Gate::new(home);
    let memory = Memory::new(bytes);
    let spec = TierSpec { medium, ..place::small("fast".into(), bytes) };
    let tiers = vec![(spec, vec![memory])];
    let attached =
        testing::attach_simulated(gate.clone(), tiers, &place::profile(), place::options())
            .unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    (gate, attached, file)
}

#[test]
fn what_a_slow_read_brings_from_home_is_not_kept_when_the_file_was_cut_and_regrown_meanwhile() {
    for medium in [Medium::Emulated, Medium::Volatile] {
        for cut_to in [0, 100, BLOCK as u64, 3 * BLOCK as u64 + 5] {
            let (gate, _attached, file) = gated(medium);
            let other = file.clone();
            gate.after_next_read(move || {
                other.truncate(cut_to).unwrap();
                other.extend(4 * BLOCK as u64).unwrap();
            });
            // The read itself may return what was there when it began.
            block(&file, 0);
            let mut expected = place::pattern(1, 0, cut_to as usize);
            expected.resize(4 * BLOCK, 0);
            for _ in 0..2 {
                assert!(place::contents(&file) == expected, "{medium:?}, cut to {cut_to}");
            }
        }
    }
}

#[test]
fn what_a_slow_read_brings_from_home_is_not_kept_when_the_block_was_written_destaged_and_evicted_meanwhile()
 {
    for medium in [Medium::Emulated, Medium::Volatile] {
        let (gate, attached, file) = gated(medium);
        let (other, handle) = (file.clone(), attached.clone());
        gate.after_next_read(move || {
            other.write(0, &stamped(0, 5)).unwrap();
            handle.destage(None).unwrap();
            handle.evict(None, u64::MAX).unwrap();
        });
        let found = block(&file, 0);
        assert!(found == stamped(0, 5) || found == place::pattern(1, 0, BLOCK));
        assert!((0..2).all(|_| block(&file, 0) == stamped(0, 5)), "{medium:?}");
    }
}

#[test]
fn a_whole_block_read_to_be_kept_is_not_kept_when_it_went_home_again_meanwhile() {
    for medium in [Medium::Emulated, Medium::Volatile] {
        let (gate, attached, file) = gated(medium);
        let (other, handle, next) = (file.clone(), attached.clone(), gate.clone());
        // The first read brings the part that is asked for, the second one the block around it.
        gate.after_next_read(move || {
            next.after_next_read(move || {
                other.write(0, &stamped(0, 5)).unwrap();
                handle.destage(None).unwrap();
                handle.evict(None, u64::MAX).unwrap();
            });
        });
        file.read(100, &mut [0; 50]).unwrap();
        assert!((0..2).all(|_| block(&file, 0) == stamped(0, 5)), "{medium:?}");
    }
}

#[test]
fn a_write_of_part_of_a_block_whose_rest_comes_slowly_from_home_takes_the_newest_rest() {
    // Written, destaged and evicted meanwhile.
    let (gate, attached, file) = gated(Medium::Emulated);
    let (other, handle) = (file.clone(), attached.clone());
    gate.after_next_read(move || {
        other.write(0, &stamped(0, 5)).unwrap();
        handle.destage(None).unwrap();
        handle.evict(None, u64::MAX).unwrap();
    });
    file.write(100, b"part").unwrap();
    let mut expected = stamped(0, 5);
    expected[100..104].copy_from_slice(b"part");
    assert!(block(&file, 0) == expected);
    // Cut and regrown meanwhile.
    let (gate, _attached, file) = gated(Medium::Emulated);
    let other = file.clone();
    gate.after_next_read(move || {
        other.truncate(50).unwrap();
        other.extend(4 * BLOCK as u64).unwrap();
    });
    file.write(100, b"part").unwrap();
    let mut expected = place::pattern(1, 0, 50);
    expected.resize(BLOCK, 0);
    expected[100..104].copy_from_slice(b"part");
    assert!(block(&file, 0) == expected, "what was cut off came back with a write");
}

#[test]
fn a_pin_that_reads_home_slowly_takes_the_newest_blocks() {
    let (gate, attached, file) = gated(Medium::Emulated);
    let (other, handle) = (file.clone(), attached.clone());
    gate.after_next_read(move || {
        other.write(0, &stamped(0, 5)).unwrap();
        handle.destage(None).unwrap();
    });
    attached.pin("a.d8").unwrap();
    assert!(block(&file, 0) == stamped(0, 5));
    assert_eq!(file.blocks_in_tier(), (0, 4));
    assert!(block(&file, 3) == place::pattern(1, 3 * BLOCK as u64, BLOCK));
}

#[test]
fn a_block_written_while_it_is_destaged_stays_dirty_and_the_new_version_wins() {
    let (gate, attached, file) = gated(Medium::Emulated);
    file.write(0, &stamped(0, 1)).unwrap();
    file.write(BLOCK as u64, &stamped(1, 1)).unwrap();
    let view = file.read_ref(0);
    assert_eq!(view.is_some(), place::LENDS);
    let other = file.clone();
    gate.before_next_write(move || {
        other.write(0, &stamped(0, 2)).unwrap();
        assert!(
            block(&other, 0) == stamped(0, 2),
            "a reader waits for destaging, or sees the old version"
        );
    });
    attached.destage(None).unwrap();
    assert!(view.iter().all(|view| version(0, view) == 1), "the version being destaged changed");
    assert!(block(&file, 0) == stamped(0, 2) && block(&file, 1) == stamped(1, 1));
    drop(view);
    drop(file);
    attached.detach().unwrap();
    let plain = gate.contents(Path::new("a.d8"));
    assert!(plain[..BLOCK] == stamped(0, 2) && plain[BLOCK..2 * BLOCK] == stamped(1, 1));
}

#[test]
fn a_redo_record_written_while_its_block_is_drained_is_not_lost() {
    let (gate, attached, _file) = gated(Medium::Emulated);
    let redo = attached.open("a.redo", OpenMode::CREATE).unwrap();
    redo.write(0, &[1; 1000]).unwrap();
    let other = redo.clone();
    gate.before_next_write(move || other.write(500, &[2; 1000]).unwrap());
    attached.destage(Some(Path::new("a.redo"))).unwrap();
    let expected = [vec![1; 500], vec![2; 1000]].concat();
    assert_eq!(place::contents(&redo), expected);
    drop((redo, _file));
    attached.detach().unwrap();
    assert_eq!(gate.contents(Path::new("a.redo")), expected);
}

/// What was there when the flush began is at home after it, though its block was written again
/// before its turn, and others behind the end.
#[test]
fn a_redo_block_written_again_before_its_turn_is_at_home_after_a_flush() {
    let (gate, attached, _file) = gated_with(Medium::Emulated, 24 * MIB);
    let redo = attached.open("a.redo", OpenMode::CREATE).unwrap();
    // More than goes in one round.
    let (len, late) = (6 * MIB, 5 * MIB);
    redo.write(0, &vec![1; len as usize]).unwrap();
    let other = redo.clone();
    gate.before_next_write(move || {
        other.write(len, &vec![2; 2 * MIB as usize]).unwrap();
        other.write(late + 10, &[3; 10]).unwrap();
    });
    attached.flush_all().unwrap();
    let plain = gate.contents(Path::new("a.redo"));
    assert_eq!(plain[late as usize..][..30], [[1; 10], [3; 10], [1; 10]].concat());
    assert!(plain[..late as usize].iter().all(|byte| *byte == 1));
}

/// During each of the next hundred reads of home somebody is asked to do something, and what he
/// does is waited for: not for long, since he may wait for who reads. His answer is whether he did.
fn during_reads(gate: &Arc<Gate>, asks: Sender<Sender<u64>>, reads: Arc<AtomicU64>) {
    let again = gate.clone();
    gate.after_next_read(move || {
        let (answer, answered) = channel();
        asks.send(answer).unwrap();
        let did = answered.recv_timeout(Duration::from_millis(200)) != Ok(0);
        if did && reads.fetch_add(1, SeqCst) < 100 {
            during_reads(&again, asks, reads);
        }
    });
}

#[test]
fn a_pin_of_a_file_that_is_written_past_the_tier_during_each_read_is_asked_and_comes_to_its_end() {
    let (gate, attached, file) = gated(Medium::Volatile);
    let (asks, is_asked) = channel::<Sender<u64>>();
    let writer = std::thread::spawn(move || {
        for answer in is_asked {
            file.write(3 * BLOCK as u64, &[1; 100]).unwrap();
            let _ = answer.send(1);
        }
    });
    let reads = Arc::new(AtomicU64::new(0));
    during_reads(&gate, asks, reads.clone());
    let mut asked = 0;
    let stopped = attached.pin_at("a.d8", None, |_| {
        asked += 1;
        asked < 2
    });
    assert_eq!((stopped.unwrap().stopped, reads.load(SeqCst)), (true, 2));
    assert!(!attached.pin_at("a.d8", None, |_| true).unwrap().stopped);
    let reads = reads.load(SeqCst);
    assert!((6..40).contains(&reads), "home was read {reads} times for four blocks");
    gate.after_next_read(|| {});
    writer.join().unwrap();
}

#[test]
fn a_read_of_home_comes_to_its_end_while_other_blocks_of_the_file_are_evicted_all_the_time() {
    const BLOCKS: usize = 60;
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &place::pattern(1, 0, BLOCKS * BLOCK)).unwrap();
    home.rebase();
    let gate = Gate::new(home);
    let spec = place::small("fast".into(), MIB);
    let tiers = vec![(spec, vec![Memory::new(MIB)])];
    let attached =
        testing::attach_simulated(gate.clone(), tiers, &place::profile(), place::options())
            .unwrap();
    let file = attached.open("a.d8", OpenMode::READ).unwrap();
    // All but the first are in the tier.
    attached.pin("a.d8").unwrap();
    attached.unpin("a.d8").unwrap();
    assert_eq!(attached.evict(None, 1).unwrap(), 1);
    assert_eq!(file.blocks_in_tier(), (0, BLOCKS as u64 - 1));
    // Somebody evicts a copy, or waits for the lane that the read has.
    let reads = Arc::new(AtomicU64::new(0));
    let (asks, is_asked) = channel::<Sender<u64>>();
    let other = attached.clone();
    let evictor = std::thread::spawn(move || {
        for answer in is_asked {
            let _ = answer.send(other.evict(None, 1).unwrap());
        }
    });
    during_reads(&gate, asks, reads.clone());
    assert!(block(&file, 0) == place::pattern(1, 0, BLOCK));
    let reads = reads.load(SeqCst);
    assert!((2..=12).contains(&reads), "home was read {reads} times");
    gate.after_next_read(|| {});
    evictor.join().unwrap();
}

#[test]
fn a_redo_record_written_between_two_parts_of_what_a_drain_frees_is_not_lost() {
    // The drain frees 32 blocks at a time and lets writers in between: so every round begins with
    // all blocks dirty, for three such parts. A race: with the defect planted, every second run
    // finds it.
    const BLOCKS: u64 = 96;
    const LEN: u64 = BLOCKS * 4096;
    let (place, spec) = small_place();
    let attached = open(&place, &spec, false);
    let file = attached.open("a.redo", OpenMode::CREATE).unwrap();
    let mut expected = Vec::new();
    let mut rng = fastrand::Rng::with_seed(place::seed());
    for round in 0..place::times(250) {
        expected = place::pattern(round, 0, LEN as usize);
        file.write(0, &expected).unwrap();
        let drained = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _done = Done(&drained);
                attached.destage(Some(Path::new("a.redo"))).unwrap();
            });
            let end = Instant::now() + Duration::from_secs(120);
            while !drained.load(SeqCst) {
                assert!(Instant::now() < end, "the drain does not end while the file is written");
                let len = rng.usize(1..100);
                // In the parts that are freed last.
                let at = rng.u64(LEN / 2..LEN - len as u64);
                let record = place::pattern(round + 1, at, len);
                file.write(at, &record).unwrap();
                expected[at as usize..][..len].copy_from_slice(&record);
            }
        });
        assert!(
            place::contents(&file) == expected,
            "round {round}: an acknowledged record is gone"
        );
    }
    drop(file);
    assert_accounts(&place, &spec, attached);
    assert!(
        std::fs::read(place.home().join("a.redo")).unwrap() == expected,
        "home has another version"
    );
}

#[test]
fn a_file_that_cannot_be_opened_at_attach_is_not_taken_for_removed() {
    let home = Arc::new(SimHome::new(None));
    let gate = Gate::new(home);
    let memory = Memory::new(MIB);
    let spec = place::small("fast".into(), MIB);
    let open = |memory: &Memory| {
        let tiers = vec![(spec.clone(), vec![memory.clone()])];
        testing::attach_simulated(gate.clone(), tiers, &place::profile(), place::options())
    };
    let attached = open(&memory).unwrap();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &stamped(0, 1)).unwrap();
    drop(file);
    attached.destage(None).unwrap();
    drop(attached);
    let memory = memory.restarted();
    // EMFILE, EIO, EACCES
    for errno in [24, 5, 13] {
        gate.refuse_open(Some(errno));
        let error = open(&memory.restarted()).expect_err("it attached without its file");
        assert_eq!(error.errno(), errno, "{error}");
        assert!(error.to_string().contains("a.d8"), "{error}");
    }
    gate.refuse_open(None);
    let attached = open(&memory).unwrap();
    assert_eq!(attached.open("a.d8", OpenMode::WRITE).unwrap().blocks_in_tier(), (0, 1));
}

#[test]
fn a_block_whose_frame_comes_back_while_it_is_read_is_never_a_mixture() {
    const LARGE: usize = 32 << 10;
    let (place, spec) = small_place();
    let attached = open(&place, &spec, false);
    let file = attached.open("a.d32", OpenMode::CREATE).unwrap();
    file.write(0, &[0; LARGE]).unwrap();
    // Three frames take turns: every third version is where it was, and a reader that looks at the
    // map alone sees nothing move.
    let (written, read) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (file, written, read) = (&file, &written, &read);
        scope.spawn(move || {
            let _done = Done(read);
            let mut bytes = vec![0; LARGE];
            for _ in 0..place::times(40_000) {
                let least = written.load(SeqCst);
                assert_eq!(file.read(0, &mut bytes).unwrap(), LARGE);
                let (words, _) = bytes.as_chunks::<8>();
                let version = u64::from_le_bytes(words[0]);
                assert!(
                    words.iter().all(|w| *w == words[0]),
                    "version {version} is mixed with another"
                );
                assert!(version >= least, "version {version} after {least} was acknowledged");
            }
        });
        for version in 1u64.. {
            if read.load(SeqCst) {
                break;
            }
            file.write(0, &version.to_le_bytes().repeat(LARGE / 8)).unwrap();
            written.store(version, SeqCst);
        }
    });
    drop(file);
    attached.detach().unwrap();
}
