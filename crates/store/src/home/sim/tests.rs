//! What a power cut may leave of a simulated home, counted in full for small cases.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;

use super::*;

fn p(path: &str) -> &Path {
    Path::new(path)
}

/// A home with the file `a`, 1024 bytes of 1, all of it durable.
fn home() -> (SimHome, Arc<dyn HomeFile>) {
    let home = SimHome::new(None);
    home.put(p("a"), &[1; 1024]).unwrap();
    home.rebase();
    let file = home.open(p("a"), OpenMode::WRITE).unwrap();
    (home, file)
}

/// Every home a power cut may leave now.
fn images(home: &SimHome) -> Vec<SimHome> {
    let trace = home.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let choices = player.choices(100_000, 0);
    assert_eq!(choices.len() as u128, player.count(), "the case is small enough to try all");
    choices.iter().map(|c| player.image(c).home()).collect()
}

/// The contents of `a` in all of them, as (length, first byte of each sector).
fn outcomes(home: &SimHome) -> BTreeSet<Option<(usize, Vec<u8>)>> {
    let shape = |b: Arc<Vec<u8>>| (b.len(), b.iter().step_by(SECTOR).copied().collect());
    images(home).iter().map(|h| h.contents(p("a")).map(shape)).collect()
}

#[test]
fn unsynced_sectors_are_kept_or_lost_one_by_one_and_apart_from_the_time_stamp() {
    let (home, file) = home();
    let before = file.stat().unwrap().mtime_ns;
    file.write_at(0, &[2; 1024]).unwrap();
    let found: BTreeSet<_> = images(&home)
        .iter()
        .map(|h| {
            let bytes = h.contents(p("a")).unwrap();
            (
                bytes[0],
                bytes[511],
                bytes[512],
                bytes[1023],
                h.stat(p("a")).unwrap().mtime_ns > before,
            )
        })
        .collect();
    let all: BTreeSet<_> = [(1, 1), (1, 2), (2, 1), (2, 2)]
        .iter()
        .flat_map(|&(a, b)| [(a, a, b, b, false), (a, a, b, b, true)])
        .collect();
    assert_eq!(found, all);
}

#[test]
fn a_sector_written_twice_is_found_in_any_of_its_three_versions() {
    let (home, file) = home();
    file.write_at(0, &[2; 8]).unwrap();
    file.write_at(4, &[3; 8]).unwrap();
    let found: BTreeSet<Vec<u8>> =
        images(&home).iter().map(|h| h.contents(p("a")).unwrap()[..12].to_vec()).collect();
    let want =
        [[1; 12], [2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1], [2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3]];
    assert_eq!(found, want.iter().map(|v| v.to_vec()).collect());
}

#[test]
fn a_synced_file_is_whole_in_every_image() {
    let (home, file) = home();
    file.write_at(0, &[2; 2048]).unwrap();
    file.sync().unwrap();
    let stat = file.stat().unwrap();
    for image in images(&home) {
        assert_eq!(*image.contents(p("a")).unwrap(), [2; 2048]);
        assert_eq!(image.stat(p("a")).unwrap(), stat);
    }
}

#[test]
fn a_longer_file_may_hold_zeros_where_its_bytes_should_be() {
    let (home, file) = home();
    file.write_at(1024, &[2; 512]).unwrap();
    let want = [(1024, vec![1, 1]), (1536, vec![1, 1, 0]), (1536, vec![1, 1, 2])];
    assert_eq!(outcomes(&home), want.into_iter().map(Some).collect());
    // The size becomes durable with any sync; the bytes do not.
    home.sync_dir(p("")).unwrap();
    let want = [(1536, vec![1, 1, 0]), (1536, vec![1, 1, 2])];
    assert_eq!(outcomes(&home), want.into_iter().map(Some).collect());
}

#[test]
fn names_are_lost_from_the_end_and_never_from_the_middle() {
    let (home, _) = home();
    home.open(p("b"), OpenMode::CREATE).unwrap();
    home.rename(p("b"), p("c")).unwrap();
    home.unlink(p("a")).unwrap();
    let found: BTreeSet<Vec<PathBuf>> =
        images(&home).iter().map(|h| h.paths().iter().map(|p| p.to_path_buf()).collect()).collect();
    let want = [vec!["a"], vec!["a", "b"], vec!["a", "c"], vec!["c"]];
    assert_eq!(found, want.iter().map(|names| names.iter().map(PathBuf::from).collect()).collect());
}

#[test]
fn a_replaced_file_is_found_old_or_new_but_empty_when_it_was_not_synced_before_the_rename() {
    let (home, _) = home();
    home.put(p("new"), &[2; 512]).unwrap();
    home.rename(p("new"), p("a")).unwrap();
    home.sync_dir(p("a")).unwrap();
    let want = [(512, vec![0]), (512, vec![2])];
    assert_eq!(outcomes(&home), want.into_iter().map(Some).collect());
}

#[test]
fn a_cut_is_undone_whole_and_space_it_freed_is_not_overwritten_before_it_is_durable() {
    let (home, file) = home();
    file.set_len(8192).unwrap();
    file.write_at(4096, &[1; 4096]).unwrap();
    file.sync().unwrap();
    home.rebase();
    file.set_len(0).unwrap();
    file.write_at(4096, &[2; 512]).unwrap();
    let found: BTreeSet<(usize, u8)> = images(&home)
        .iter()
        .map(|h| h.contents(p("a")).unwrap())
        .map(|b| (b.len(), *b.get(4096).unwrap_or(&9)))
        .collect();
    // Whole as before; empty; extended, with and without the bytes. Never the old file with the new
    // bytes.
    assert_eq!(found, BTreeSet::from([(8192, 1), (0, 9), (4608, 0), (4608, 2)]));
}

#[test]
fn bytes_that_were_cut_off_do_not_come_back_when_the_file_grows() {
    let (home, file) = home();
    file.write_at(512, &[2; 512]).unwrap();
    file.set_len(512).unwrap();
    file.set_len(1024).unwrap();
    home.sync_dir(p("")).unwrap();
    assert_eq!(outcomes(&home), BTreeSet::from([Some((1024, vec![1, 0]))]));
    file.write_at(512, &[3; 512]).unwrap();
    let want = BTreeSet::from([Some((1024, vec![1, 0])), Some((1024, vec![1, 3]))]);
    assert_eq!(outcomes(&home), want);
}

#[test]
fn bytes_whose_sync_failed_stay_in_doubt_after_one_that_succeeds() {
    let (home, file) = home();
    file.write_at(0, &[2; 1024]).unwrap();
    home.fail_nth_sync(1);
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.write_at(512, &[3; 512]).unwrap();
    file.sync().unwrap();
    let want = BTreeSet::from([Some((1024, vec![1, 3])), Some((1024, vec![2, 3]))]);
    assert_eq!(outcomes(&home), want);
}

#[test]
fn the_attachment_note_is_old_or_new_at_every_cut() {
    let home = SimHome::new(None);
    home.write_attachment(b"old").unwrap();
    home.rebase();
    home.write_attachment(b"new!").unwrap();
    let trace = home.trace();
    let mut player = trace.player();
    for at in 0..=trace.events().len() {
        player.advance_to(at);
        for choice in player.choices(1000, 1) {
            let note = player.image(&choice).home().read_attachment().unwrap().unwrap();
            assert!(
                note == b"new!" || (note == b"old" && at < trace.events().len()),
                "{note:?} at {at}"
            );
        }
    }
}

#[test]
fn the_door_is_open_or_closed_at_every_cut_and_closed_after_the_call() {
    let home = SimHome::new(None);
    home.close_door("note").unwrap();
    let trace = home.trace();
    let mut player = trace.player();
    let mut seen = BTreeSet::new();
    for at in 0..=trace.events().len() {
        player.advance_to(at);
        for choice in player.choices(1000, 1) {
            let image = player.image(&choice).home();
            seen.insert(image.door());
            image.open_door().unwrap();
            assert!(!image.door_closed().unwrap());
        }
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(
        images(&home).iter().map(SimHome::door).collect::<BTreeSet<_>>(),
        BTreeSet::from([Door::Closed])
    );
    assert_eq!(home.note().as_deref(), Some("note"));
}

#[test]
fn a_full_file_system_takes_what_fits_and_gives_space_back() {
    let home = SimHome::new(None);
    home.set_options(SimOptions { capacity: Some(3 * 4096), ..SimOptions::default() });
    let file = home.open(p("a"), OpenMode::CREATE).unwrap();
    // A hole takes no space; bytes in it do.
    file.set_len(1 << 20).unwrap();
    assert_eq!(home.used(), 0);
    file.write_at(100, &[1; 8192]).unwrap();
    assert_eq!(home.used(), 3 * 4096);
    file.write_at(5000, &[2; 100]).unwrap();
    let full = file.write_at(12000, &[3; 1000]).unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    let mut into = [9; 1000];
    file.read_at(12000, &mut into).unwrap();
    assert_eq!((into[287], into[288]), (3, 0), "the part that fits was written");
    assert_eq!(home.open(p("b"), OpenMode::CREATE).unwrap_err().kind(), io::ErrorKind::StorageFull);
    file.set_len(4096).unwrap();
    file.write_at(4096, &[4; 8192]).unwrap();
    home.unlink(p("a")).unwrap();
    assert_eq!(home.used(), 0);
}

#[test]
fn an_injected_error_comes_once_and_changes_nothing() {
    let (home, file) = home();
    home.fail_nth_write(2);
    file.write_at(0, &[2; 1]).unwrap();
    assert_eq!(file.write_at(0, &[3; 1]).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(home.contents(p("a")).unwrap()[0], 2);
    file.write_at(0, &[3; 1]).unwrap();
}

#[test]
fn an_inode_number_used_again_is_told_apart() {
    let home = SimHome::new(None);
    home.set_options(SimOptions { reuse_inos: true, ..SimOptions::default() });
    home.put(p("a"), b"1").unwrap();
    let old = home.stat(p("a")).unwrap();
    home.unlink(p("a")).unwrap();
    home.put(p("b"), b"1").unwrap();
    let new = home.stat(p("b")).unwrap();
    assert_eq!(new.ino, old.ino);
    assert!(!new.same_file(old.ino, old.generation, old.btime_ns));
    home.set_options(SimOptions { generations: true, clock_step_ns: 0, ..SimOptions::default() });
    assert_ne!(home.stat(p("b")).unwrap().generation, 0);
}

#[test]
fn a_killed_process_loses_nothing_and_leaves_the_unsynced_unsynced() {
    let (home, file) = home();
    file.write_at(0, &[2; 512]).unwrap();
    let survivor = SimHome::from_image(&home.snapshot(), None);
    assert_eq!(survivor.contents(p("a")), home.contents(p("a")));
    assert_eq!(outcomes(&survivor).len(), 2);
    // What was taken does not change with the original, and comes back.
    let kept = home.snapshot();
    file.write_at(0, &[3; 512]).unwrap();
    assert_eq!(survivor.contents(p("a")).unwrap()[0], 2);
    home.restore(&kept);
    assert_eq!(home.contents(p("a")).unwrap()[0], 2);
}

#[test]
fn the_hook_hears_of_each_event_before_it_happens() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = heard.clone();
    let home = SimHome::new(Some(Arc::new(move |event| told.lock().unwrap().push(event))));
    home.put(p("a"), b"1").unwrap();
    home.sync_dir(p("")).unwrap();
    assert_eq!(*heard.lock().unwrap(), [0, 1, 2, 3]);
    assert_eq!(home.trace().events().len(), 4);
}

#[test]
fn a_replayed_trace_ends_where_the_home_is_and_time_goes_on_after_a_cut() {
    let (home, file) = home();
    home.create_dir(p("d")).unwrap();
    home.rename(p("a"), p("d/a")).unwrap();
    file.write_at(100, &[7; 3000]).unwrap();
    file.set_len(2000).unwrap();
    home.link(p("d/a"), p("b")).unwrap();
    let trace = home.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    assert_eq!(player.killed().fingerprint(), home.snapshot().fingerprint());
    let last = file.stat().unwrap().mtime_ns;
    for choice in player.choices(50, 3) {
        let image = player.image(&choice).home();
        image.put(p("z"), b"1").unwrap();
        assert!(image.stat(p("z")).unwrap().mtime_ns > last);
    }
    player.advance_to(0);
    assert_eq!(player.count(), 1);
}

#[test]
fn a_sample_has_no_choice_twice_and_is_the_same_for_the_same_seed() {
    let (home, file) = home();
    for i in 0..20u8 {
        file.write_at(u64::from(i) * 512, &[i; 512]).unwrap();
    }
    let trace = home.trace();
    let mut player = trace.player();
    player.advance_to(trace.events().len());
    let sample = player.choices(200, 9);
    assert_eq!(sample.len(), 200);
    assert_eq!(sample.iter().collect::<std::collections::HashSet<_>>().len(), 200);
    assert_eq!(sample, player.choices(200, 9));
    assert_ne!(sample, player.choices(200, 10));
}

#[test]
fn a_hole_is_found_where_space_was_given_back_and_after_a_cut_only_where_the_zeros_are() {
    let (home, file) = home();
    file.write_at(0, &[2; 12288]).unwrap();
    home.rebase();
    file.clear(4000, 4200, Clear::Punch).unwrap();
    assert_eq!(
        (file.next_hole(0).unwrap(), file.next_data(4096).unwrap()),
        (Some(4096), Some(8192))
    );
    assert_eq!(
        (file.next_data(100).unwrap(), file.next_hole(8192).unwrap()),
        (Some(100), Some(12288))
    );
    for cut in images(&home) {
        let bytes = cut.contents(p("a")).unwrap();
        let hole = cut.open(p("a"), OpenMode::READ).unwrap().next_hole(4096).unwrap();
        assert_eq!(hole == Some(4096), bytes[4096..8192].iter().all(|b| *b == 0));
    }
}

/// What the explorer leaves out as known must be known in all of this.
#[test]
fn homes_that_differ_in_holes_notes_or_what_comes_next_have_another_rest_with_the_same_files() {
    type Change = fn(&SimHome, &Arc<dyn HomeFile>);
    // Each pair takes the same time, and leaves the same names and bytes.
    let pairs: [(&str, Change, Change); 3] = [
        (
            "holes",
            |_, file| file.clear(0, 4096, Clear::Punch).unwrap(),
            |_, file| file.write_at(0, &[0; 4096]).unwrap(),
        ),
        ("note", |home, _| home.close_door("x").unwrap(), |home, _| home.close_door("y").unwrap()),
        ("clock", |_, _| {}, |home, _| home.set_clock_back(1)),
    ];
    for (what, one, other) in pairs {
        let [one, other] = [one, other].map(|change| {
            let (home, file) = home();
            file.write_at(0, &[0; 8192]).unwrap();
            change(&home, &file);
            file.sync().unwrap();
            let trace = home.trace();
            let mut player = trace.player();
            player.advance_to(trace.events().len());
            let mut image = player.killed();
            if what == "clock" {
                image.state.clock_ns = home.now_ns();
            }
            image
        });
        assert_eq!(one.fingerprint(), other.fingerprint(), "{what}");
        assert_ne!(one.rest(), other.rest(), "{what}");
    }
}
