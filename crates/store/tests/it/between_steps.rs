//! What goes wrong between two steps: home fails or the process dies in the middle of a cut, a
//! removal, a destage, and threads meet there. Each test was a defect once, found by reading the
//! code with the promises in hand.

use crate::place;

use crate::gate::Gate;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use tiersmith_pmem::Mapping;
use tiersmith_store::home::SimHome;
use tiersmith_store::{AttachedHome, Error, Medium, OpenMode, Options, TierSpec, attach, testing};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const B: usize = 8192;
/// For hangs only.
const LIMIT: Duration = Duration::from_secs(120);

fn sim(
    medium: Medium,
    bytes: u64,
    content: Option<&[u8]>,
) -> (Arc<SimHome>, Arc<Gate>, AttachedHome, Arc<Mapping>) {
    let home = Arc::new(SimHome::new(None));
    if let Some(c) = content {
        home.put(Path::new("a.d8"), c).unwrap();
    }
    home.rebase();
    let gate = Gate::new(home.clone());
    let mapping = Arc::new(Mapping::in_memory(&vec![0; bytes as usize], 0));
    let spec = TierSpec { medium, ..place::small("fast".into(), bytes) };
    let attached = testing::attach_simulated(
        gate.clone(),
        vec![(spec, vec![mapping.clone()])],
        &place::profile(),
        place::options(),
    )
    .unwrap();
    (home, gate, attached, mapping)
}

fn reattach(home: Arc<SimHome>, mapping: &Mapping, medium: Medium) -> Result<AttachedHome, Error> {
    let bytes = place::image(mapping);
    let spec = TierSpec { medium, ..place::small("fast".into(), bytes.len() as u64) };
    let m = Arc::new(Mapping::in_memory(&bytes, 0));
    testing::attach_simulated(home, vec![(spec, vec![m])], &place::profile(), place::options())
}

/// Whatever a power cut leaves of `home`, the file reads as `want`.
fn assert_power_cut_keeps(home: &SimHome, mapping: &Mapping, want: &[u8]) {
    let trace = home.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let tier_now = place::image(mapping);
    let choices = player.choices(64, 1);
    let mut bad = 0;
    for c in &choices {
        let h = Arc::new(player.image(c).home());
        let m = Mapping::in_memory(&tier_now, 0);
        match reattach(h, &m, Medium::Emulated) {
            Ok(at) => {
                if place::read(&at, "a.d8") != want {
                    bad += 1
                }
            }
            Err(e) => {
                println!("{e}");
                bad += 1
            }
        }
    }
    assert_eq!(bad, 0, "in {bad} of {} images what was cut off is back", choices.len());
}

#[test]
fn a_cut_on_a_volatile_tier_leaves_no_dirty_block() {
    let (home, _g, attached, _m) = sim(Medium::Volatile, MIB, Some(&[9; 4 * B]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    place::contents(&file); // admits
    assert_eq!(file.blocks_in_tier(), (0, 4));
    file.truncate(100).unwrap();
    let counts = file.blocks_in_tier();
    println!("after truncate: {counts:?}");
    file.write(0, &[5; 100]).unwrap();
    let seen = place::contents(&file);
    println!("read: {} home: {}", seen[0], home.contents(Path::new("a.d8")).unwrap()[0]);
    attached.flush_all().unwrap();
    println!("home after flush_all: {}", home.contents(Path::new("a.d8")).unwrap()[0]);
    assert_eq!(
        home.contents(Path::new("a.d8")).unwrap()[0],
        5,
        "flush_all overwrote the acknowledged write at home"
    );
    assert_eq!(seen[0], 5, "read returns the old bytes");
    assert_eq!(counts.0, 0, "a volatile tier holds a dirty block");
}

#[test]
fn extending_never_cuts_what_another_thread_appended() {
    let (_h, gate, attached, _m) = sim(Medium::Emulated, MIB, Some(&[9; 100]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    // A write past the end holds `sizing` while it reads the rest of its block from home; `extend`
    // asks for the length then.
    let other = file.clone();
    let (t, r) = std::sync::mpsc::channel();
    gate.after_next_read(move || {
        let h = std::thread::spawn(move || other.extend(8192).unwrap());
        std::thread::sleep(Duration::from_millis(200));
        t.send(h).unwrap();
    });
    file.write(50, &vec![7; 16384]).unwrap();
    r.recv().unwrap().join().unwrap();
    assert_eq!(file.len().unwrap(), 50 + 16384, "extend(8192) cut a file of 16434 bytes");
}

#[test]
fn an_overwrite_that_races_with_a_cut_leaves_no_block_past_the_end() {
    const BB: usize = 32768;
    let home = Arc::new(SimHome::new(None));
    home.rebase();
    let mapping = Arc::new(Mapping::in_memory(&vec![0; 4 * MIB as usize], 0));
    let spec = TierSpec { lanes: 16, ..place::small("fast".into(), 4 * MIB) };
    let attached = testing::attach_simulated(
        home.clone(),
        vec![(spec, vec![mapping])],
        &place::profile(),
        Options { admit: false, ..place::options() },
    )
    .unwrap();
    let file = attached.open("a.d32", OpenMode::CREATE).unwrap();
    let mut bad = 0;
    let mut inside = 0;
    let barrier = Barrier::new(2);
    let data = vec![7u8; BB];
    const ROUNDS: u64 = 6000;
    std::thread::scope(|s| {
        let f2 = file.clone();
        let (b, data) = (&barrier, &data);
        s.spawn(move || {
            for n in 0..ROUNDS {
                b.wait();
                for _ in 0..(n * 7 % 400) {
                    std::hint::spin_loop();
                }
                f2.write(5 * BB as u64, data).unwrap();
                b.wait();
            }
        });
        for n in 0..ROUNDS {
            file.truncate(0).unwrap();
            file.extend(8 * BB as u64).unwrap();
            barrier.wait();
            for _ in 0..(n * 13 % 1700) {
                std::hint::spin_loop();
            }
            file.truncate(0).unwrap();
            barrier.wait();
            if file.len().unwrap() == 0 {
                inside += 1;
                file.extend(8 * BB as u64).unwrap();
                let mut got = vec![1; BB];
                file.read(5 * BB as u64, &mut got).unwrap();
                if got.iter().any(|x| *x != 0) {
                    bad += 1;
                }
            }
            if n % 64 == 0 {
                home.rebase();
            }
        }
    });
    println!("rounds where the write came first: {inside} of {ROUNDS}; stale after regrow: {bad}");
    assert_eq!(bad, 0, "what was cut off shows again");
}

#[test]
fn a_file_larger_than_a_map_goes_straight_to_home() {
    let place = place::Place::new();
    let f = std::fs::File::create(place.home().join("big.d4")).unwrap();
    f.set_len((1 << 39) + 8192).unwrap();
    drop(f);
    let attached = attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap();
    let file = attached.open("big.d4", OpenMode::WRITE).unwrap();
    let mut got = [1; 4096];
    assert_eq!(file.read(1 << 39, &mut got).unwrap(), 4096);
    assert!(got.iter().all(|b| *b == 0));
}

#[test]
fn killed_while_destaging_then_a_power_cut_still_attaches() {
    let (home, _gate, attached, mapping) = sim(Medium::Emulated, MIB, Some(&[9; 4 * B]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[1; B]).unwrap();
    home.rebase();
    // The process is killed between the write to home and its sync.
    home.fail_nth_sync(1);
    attached.destage(Some(Path::new("a.d8"))).unwrap_err();
    let tier_then = place::image(&mapping);
    let killed = Arc::new(SimHome::from_image(&home.snapshot(), None));
    let m2 = Arc::new(Mapping::in_memory(&tier_then, 0));
    let spec = place::small("fast".into(), MIB);
    let again = testing::attach_simulated(
        killed.clone(),
        vec![(spec, vec![m2.clone()])],
        &place::profile(),
        place::options(),
    )
    .unwrap();
    // Now the power goes.
    let trace = killed.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let mut refused = 0;
    let choices = player.choices(64, 1);
    let tier_now = place::image(&m2);
    for c in &choices {
        let h = Arc::new(player.image(c).home());
        let m = Mapping::in_memory(&tier_now, 0);
        if let Err(e) = reattach(h, &m, Medium::Emulated) {
            refused += 1;
            println!("{e}");
        }
    }
    drop(again);
    assert_eq!(
        refused,
        0,
        "{refused} of {} images refused although nobody touched home",
        choices.len()
    );
}

#[test]
fn a_cut_whose_sync_failed_is_synced_by_the_next_try() {
    let (home, _gate, attached, mapping) = sim(Medium::Emulated, MIB, Some(&[9; 40_000]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    home.rebase();
    home.fail_nth_sync(1);
    println!("{}", file.truncate(16384).unwrap_err());
    file.extend(40_000).unwrap();
    let want = place::contents(&file);
    assert!(want[16384..].iter().all(|b| *b == 0));
    assert_power_cut_keeps(&home, &mapping, &want);
}

#[test]
fn killed_inside_a_cut_then_a_power_cut_brings_nothing_back() {
    let (home, _gate, attached, mapping) = sim(Medium::Emulated, MIB, Some(&[9; 40_000]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    home.rebase();
    home.fail_nth_sync(1); // stands for: killed between set_len and sync
    file.truncate(16384).unwrap_err();
    let killed = Arc::new(SimHome::from_image(&home.snapshot(), None));
    let m2 = Arc::new(Mapping::in_memory(&place::image(&mapping), 0));
    let spec = place::small("fast".into(), MIB);
    let again = testing::attach_simulated(
        killed.clone(),
        vec![(spec, vec![m2.clone()])],
        &place::profile(),
        place::options(),
    )
    .unwrap();
    let f = again.open("a.d8", OpenMode::WRITE).unwrap();
    f.extend(40_000).unwrap();
    let want = place::contents(&f);
    assert_power_cut_keeps(&killed, &m2, &want);
}

#[test]
fn lengthening_home_is_synced_before_detach() {
    let (home, _gate, attached, _m) = sim(Medium::Emulated, MIB, Some(&[9; 100]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.extend(50_000).unwrap();
    home.rebase();
    home.fail_nth_sync(1);
    println!("{}", attached.destage(Some(Path::new("a.d8"))).unwrap_err());
    drop(file);
    attached.detach().unwrap();
    let trace = home.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let choices = player.choices(64, 1);
    let bad = choices
        .iter()
        .filter(|c| player.image(c).home().contents(Path::new("a.d8")).unwrap().len() != 50_000)
        .count();
    assert_eq!(
        bad,
        0,
        "after detach and a power cut {bad} of {} homes have a short file",
        choices.len()
    );
}

#[test]
fn an_earlier_cut_finished_late_still_attaches() {
    let (home, _gate, attached, mapping) = sim(Medium::Emulated, MIB, Some(&[9; 40_000]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    home.fail_nth_write(1);
    file.truncate(16384).unwrap_err();
    file.write(0, &[1; B]).unwrap();
    attached.destage(Some(Path::new("a.d8"))).unwrap(); // stamps: since_ns = 0
    file.write(0, &[2; B]).unwrap(); // dirty again
    home.fail_nth_sync(1); // set_len succeeds, sync fails (or: power cut between set_len and stamp)
    file.extend(40_000).unwrap_err();
    drop(file);
    drop(attached);
    let h = Arc::new(home.snapshot().home());
    let again = reattach(h, &mapping, Medium::Emulated);
    assert!(again.is_ok(), "{}", again.unwrap_err());
}

#[test]
fn a_refused_write_does_not_lengthen_the_file() {
    let (home, _gate, attached, _m) = sim(Medium::Emulated, 512 * KIB, None);
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let other = attached.open("b.d8", OpenMode::CREATE).unwrap();
    let limit = tiersmith_store::home::sim::SimOptions {
        capacity: Some(home.used()),
        ..Default::default()
    };
    home.set_options(limit);
    let mut n = 0u64;
    while other.write(n * B as u64, &[1; B]).is_ok() {
        n += 1;
    }
    let e = file.write(100_000, &[1; B]).unwrap_err();
    println!("{e}");
    assert_eq!(file.len().unwrap(), 0, "nothing was written, and the file is longer");
}

#[test]
fn a_volatile_write_after_a_failed_cut_shows_nothing_that_was_cut_off() {
    let (home, _g, attached, _m) = sim(Medium::Volatile, MIB, Some(&[9; 40_000]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    home.fail_nth_write(1);
    file.truncate(16384).unwrap_err();
    println!("len {}", file.len().unwrap());
    if file.len().unwrap() == 16384 {
        file.write(39_990, &[1; 10]).unwrap();
        let all = place::contents(&file);
        assert!(all[16384..39_990].iter().all(|b| *b == 0), "old bytes show again");
    }
}

#[test]
fn a_volatile_write_that_fails_half_way_leaves_no_copy_unlike_home() {
    let (home, gate, attached, _m) = sim(Medium::Volatile, MIB, Some(&[9; 4 * B]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    let other = file.clone();
    gate.before_next_write(move || {
        place::contents(&other);
    });
    // four blocks in place, then no space
    let limit = tiersmith_store::home::sim::SimOptions {
        capacity: Some(home.used()),
        ..Default::default()
    };
    home.set_options(limit);
    println!("{}", file.write(3 * B as u64, &vec![1; 2 * B]).unwrap_err());
    let plain = home.contents(Path::new("a.d8")).unwrap();
    let seen = place::contents(&file);
    assert_eq!(seen[..], plain[..seen.len()], "a clean copy differs from home");
}

#[test]
fn a_detach_that_fails_at_the_door_leaves_the_home_attached() {
    let place = place::Place::new();
    let attached = attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap();
    let other = attached.clone();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(place.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(place.home().join("stray"), "x").unwrap();
    println!("{}", attached.detach().unwrap_err());
    let r = other.open("a.d8", OpenMode::CREATE);
    assert!(r.is_ok(), "{}", r.unwrap_err());
}

#[test]
fn an_unlink_whose_directory_sync_failed_is_tried_again() {
    let (home, _g, attached, _m) = sim(Medium::Emulated, MIB, None);
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &vec![1; 10 * B]).unwrap();
    drop(file);
    home.fail_nth_sync(1);
    println!("{}", attached.unlink("a.d8").unwrap_err());
    println!("{:?}", attached.unlink("a.d8").map_err(|e| e.to_string()));
    attached.background_step().unwrap();
    assert_eq!(attached.stats().tiers[0].dirty_bytes, 0, "dirty blocks of a file that is gone");
}

#[test]
fn a_file_that_is_made_and_cannot_be_synced_is_not_there_when_the_caller_is_told_so() {
    for (mode, nth) in [(OpenMode::CREATE_NEW, 1), (OpenMode::CREATE_NEW, 2), (OpenMode::CREATE, 2)]
    {
        let (home, _g, attached, _m) = sim(Medium::Emulated, MIB, None);
        home.fail_nth_sync(nth);
        println!("{}", attached.open("a.d8", mode).unwrap_err());
        assert!(home.contents(Path::new("a.d8")).is_none(), "the file was made all the same");
        // One that was there before stays.
        attached.open("a.d8", mode).unwrap().write(0, &[3; B]).unwrap();
        attached.detach().unwrap();
        assert_eq!(home.contents(Path::new("a.d8")).unwrap()[..], [3; B]);
    }
}

#[test]
fn a_file_that_was_there_stays_when_opening_it_fails() {
    let (home, _g, attached, _m) = sim(Medium::Emulated, MIB, None);
    home.put(Path::new("a.d8"), &[7; 100]).unwrap();
    home.fail_nth_sync(2);
    println!("{}", attached.open("a.d8", OpenMode::CREATE).unwrap_err());
    assert_eq!(home.contents(Path::new("a.d8")).unwrap()[..], [7; 100]);
}

fn sim_empty(bytes: u64) -> (Arc<SimHome>, AttachedHome) {
    let (home, _gate, attached, _mapping) = sim(Medium::Emulated, bytes, None);
    (home, attached)
}

#[test]
fn one_append_may_be_larger_than_the_tier() {
    let (_h, at) = sim_empty(1 << 20);
    let f = at.open("a.d8", OpenMode::CREATE).unwrap();
    let data = place::pattern(1, 0, 4 << 20);
    let r = f.write(0, &data);
    println!("{:?} len {}", r.as_ref().map_err(|e| e.to_string()), f.len().unwrap());
    r.unwrap();
    assert!(place::contents(&f) == data);
}
#[test]
fn appends_that_together_are_larger_than_the_tier_all_succeed() {
    let (_h, at) = sim_empty(1 << 20);
    std::thread::scope(|s| {
        for n in 0..3 {
            let at = &at;
            s.spawn(move || {
                let f = at.open(format!("{n}.d8"), OpenMode::CREATE).unwrap();
                for k in 0..20u64 {
                    f.write(k * 400_000, &vec![n as u8; 400_000]).unwrap();
                }
            });
        }
    });
}
#[test]
fn an_overwrite_may_be_larger_than_the_tier() {
    let (_h, at) = sim_empty(1 << 20);
    let f = at.open("a.d8", OpenMode::CREATE).unwrap();
    f.extend(4 << 20).unwrap();
    f.write(0, &place::pattern(1, 0, 4 << 20)).unwrap();
}
#[test]
fn the_attachment_note_cannot_be_removed() {
    let (home, at) = sim_empty(1 << 20);
    let r = at.unlink(".tiersmith");
    println!("{:?} {:?}", r.is_ok(), home.paths());
    assert!(r.is_err(), "unlink(.tiersmith) went through");
}
#[test]
fn the_attachment_note_cannot_be_renamed_over() {
    let (_home, at) = sim_empty(1 << 20);
    at.open("x.txt", OpenMode::CREATE).unwrap().write(0, b"x").unwrap();
    assert!(at.rename("x.txt", ".tiersmith").is_err());
}

fn at(
    home: Arc<SimHome>,
    bytes: &[u8],
) -> (Result<AttachedHome, tiersmith_store::Error>, Arc<Mapping>) {
    let mapping = Arc::new(Mapping::in_memory(bytes, 0));
    let spec = place::small("fast".into(), bytes.len() as u64);
    (
        testing::attach_simulated(
            home,
            vec![(spec, vec![mapping.clone()])],
            &place::profile(),
            place::options(),
        ),
        mapping,
    )
}
fn replaced(rename: bool) {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &[9; 2 * B]).unwrap();
    home.put(Path::new("b.d8"), &[8; 2 * B]).unwrap();
    home.rebase();
    let (first, m) = at(home.clone(), &vec![0; 1 << 20]);
    let first = first.unwrap();
    first.open("a.d8", OpenMode::WRITE).unwrap().write(0, &[1; B]).unwrap(); // acknowledged
    home.rebase();
    home.fail_nth_sync(1); // stands for: killed between rename/unlink and the sync of the directory
    if rename {
        first.rename("b.d8", "a.d8").unwrap_err();
    } else {
        first.unlink("a.d8").unwrap_err();
    }
    let killed = Arc::new(SimHome::from_image(&home.snapshot(), None));
    let (second, m2) = at(killed.clone(), &place::image(&m));
    let second = second.unwrap();
    // The power goes.
    let trace = killed.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let mut bad = 0;
    let choices = player.choices(64, 1);
    for c in &choices {
        let (third, _m) = at(Arc::new(player.image(c).home()), &place::image(&m2));
        match third {
            Err(e) => {
                println!("{e}");
                bad += 1
            }
            Ok(t) => {
                if let Ok(f) = t.open("a.d8", OpenMode::READ) {
                    let all = place::contents(&f);
                    // the old file with its acknowledged write, or the new file
                    if all[0] != 1 && all[0] != 8 {
                        println!("a.d8 begins with {}", all[0]);
                        bad += 1
                    }
                }
            }
        }
    }
    drop(second);
    assert_eq!(bad, 0, "of {} images", choices.len());
}
#[test]
fn renamed_over_then_killed_then_a_power_cut_keeps_acknowledged_blocks() {
    replaced(true)
}
#[test]
fn unlinked_then_killed_then_a_power_cut_keeps_acknowledged_blocks() {
    replaced(false)
}

// Same process: the sync of the directory fails, the last handle is closed.
#[test]
fn a_removed_file_keeps_its_blocks_until_its_directory_is_synced() {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &[9; 2 * B]).unwrap();
    home.rebase();
    let (first, m) = at(home.clone(), &vec![0; 1 << 20]);
    let first = first.unwrap();
    let f = first.open("a.d8", OpenMode::WRITE).unwrap();
    f.write(0, &[1; B]).unwrap();
    home.rebase();
    home.fail_nth_sync(1);
    first.unlink("a.d8").unwrap_err(); // refused: EIO
    drop(f);
    let trace = home.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let mut bad = 0;
    for c in &player.choices(64, 1) {
        let (third, _m) = at(Arc::new(player.image(c).home()), &place::image(&m));
        match third {
            Err(e) => {
                println!("{e}");
                bad += 1
            }
            Ok(t) => {
                if let Ok(f) = t.open("a.d8", OpenMode::READ) {
                    let all = place::contents(&f);
                    if all[0] != 1 {
                        println!("a.d8 begins with {}", all[0]);
                        bad += 1
                    }
                }
            }
        }
    }
    assert_eq!(bad, 0);
}

fn run(medium: Medium) {
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &[9; 4 * B]).unwrap();
    home.rebase();
    let gate = Gate::new(home.clone());
    let mapping = Arc::new(Mapping::in_memory(&vec![0; 1 << 20], 0));
    let spec = TierSpec { medium, ..place::small("fast".into(), 1 << 20) };
    let attached = testing::attach_simulated(
        gate.clone(),
        vec![(spec, vec![mapping])],
        &place::profile(),
        place::options(),
    )
    .unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    // Block 1 into the tier, so that a read of the file is three runs: 0, (1), 2..
    let mut one = vec![0; B];
    file.read(B as u64, &mut one).unwrap();
    let (at_cut_t, at_cut) = channel();
    let (go_t, go) = channel::<()>();
    gate.before_next_set_len(move || {
        at_cut_t.send(()).unwrap();
        go.recv_timeout(LIMIT).unwrap();
    });
    let (other, g2) = (file.clone(), gate.clone());
    let (h_t, h) = channel();
    gate.after_next_read(move || {
        // The reader has the old size. A cut begins, and waits just before it cuts home.
        let t = std::thread::spawn(move || other.truncate(2 * B as u64 + 100).unwrap());
        at_cut.recv_timeout(LIMIT).unwrap();
        let cut_goes_on = move || {
            // The reader has the bytes of block 2 from home.
            go_t.send(()).unwrap();
            t.join().unwrap();
            h_t.send(()).unwrap();
        };
        if medium == Medium::Volatile {
            return g2.after_next_read(cut_goes_on);
        }
        // A tier with newest blocks may have had block 0: the reader looks at it once more.
        let g3 = g2.clone();
        g2.after_next_read(move || g3.after_next_read(cut_goes_on));
    });
    let mut all = vec![0; 3 * B];
    file.read(0, &mut all).unwrap();
    h.recv_timeout(LIMIT).unwrap();
    println!(
        "tier {:?} len {} read {:?}",
        file.blocks_in_tier(),
        file.len().unwrap(),
        (all[0], all[B], all[2 * B], all[2 * B + 200])
    );
    file.extend(3 * B as u64).unwrap();
    let got = place::contents(&file);
    assert!(got[2 * B + 100..].iter().all(|b| *b == 0), "{medium:?}: what was cut off shows again");
}
#[test]
fn a_clean_copy_admitted_during_a_cut_holds_nothing_that_was_cut_off() {
    run(Medium::Emulated);
}
#[test]
fn a_clean_copy_admitted_during_a_cut_on_a_volatile_tier_neither() {
    run(Medium::Volatile);
}

#[test]
fn a_cut_through_a_block_that_takes_the_last_free_frame_meanwhile_makes_room() {
    let (home, gate, attached, mapping) = sim(Medium::Emulated, MIB, Some(&[9; 4 * B]));
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    // Its map page.
    file.write(0, &[9; B]).unwrap();
    let single = attached.open("c.d8", OpenMode::CREATE).unwrap();
    single.write(0, &[1; B]).unwrap();
    let full = attached.open("b.d8", OpenMode::CREATE).unwrap();
    attached.pin("c.d8").unwrap();
    attached.pin("b.d8").unwrap();
    let mut at = 0;
    let refused = loop {
        match full.write(at, &[2; B]) {
            Ok(()) => at += B as u64,
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, Error::TierFull { .. }), "{refused}");
    assert_eq!(file.blocks_in_tier(), (0, 0), "all of it went home to make room");
    // One frame is free again. The cut needs none when it looks, and has begun when the block that
    // it cuts in two takes it.
    drop(single);
    attached.unlink("c.d8").unwrap();
    let (other, (told, heard)) = (file.clone(), channel());
    gate.before_next_now(move || told.send(other.write(3 * B as u64, &[7; B]).is_ok()).unwrap());
    file.truncate(3 * B as u64 + 100).unwrap();
    assert!(heard.recv().unwrap(), "the write got the last frame");
    let mut want = vec![9; 3 * B];
    want.extend([7; 100]);
    assert_eq!(place::contents(&file), want);
    file.truncate(4 * B as u64).unwrap();
    want.resize(4 * B, 0);
    assert_eq!(place::contents(&file), want, "what was cut off is back");
    drop((file, full, attached));
    assert_power_cut_keeps(&home, &mapping, &want);
}

/// Growing lengthens all members before a superblock says so, and lengthening is durable: so either
/// length is right after a cut. The shortest needs less: a member whose file system lost its growth
/// (member by member, as members may lie on several) is used as far as it goes.
#[test]
fn members_left_at_two_lengths_are_used_as_far_as_the_shortest_goes() {
    const LEN: u64 = 256 * KIB;
    let home = Arc::new(SimHome::new(None));
    home.put(Path::new("a.d8"), &[9; 64 * B]).unwrap();
    let spec = TierSpec {
        members: vec!["/member0".into(), "/member1".into()],
        max_size: 2 * LEN,
        grow_by: 64 * KIB,
        ..place::small("fast".into(), LEN)
    };
    let members: Vec<_> =
        (0..2).map(|_| Arc::new(Mapping::in_memory(&vec![0; LEN as usize], 2 * LEN))).collect();
    let attach = |members| {
        let tiers = vec![(spec.clone(), members)];
        testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options())
    };
    let attached = attach(members.clone()).unwrap();
    let usable = |attached: &AttachedHome| attached.stats().tiers[0].usable_bytes;
    let before = usable(&attached);
    let short = place::image(&members[1]);
    assert!(attached.grow("fast").unwrap());
    assert_eq!(usable(&attached), before + 2 * 64 * KIB);
    drop(attached);
    let long = place::image(&members[0]);
    assert!(long.len() > short.len());
    let members = [long, short].map(|bytes| Arc::new(Mapping::in_memory(&bytes, 2 * LEN))).to_vec();
    let attached = attach(members).unwrap();
    assert_eq!(usable(&attached), before);
    // Being written full it grows by itself, over the part that the long member has already.
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    let fill = |add: u8| {
        (0..64u8).for_each(|n| file.write(u64::from(n) * B as u64, &[n + add; B]).unwrap())
    };
    fill(0);
    assert!(usable(&attached) > before);
    fill(1);
    assert!(place::contents(&file).chunks(B).zip(1..).all(|(block, n)| block == [n; B]));
}
