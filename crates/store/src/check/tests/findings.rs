//! One test for each invariant: a tier in which it does not hold, and what the check says.

use super::super::{CheckOptions, CheckReport, Severity, check_images};
use super::build::{BLOCK, Build, CACHED, DIRTY, File};
use super::{AFTER_CUT, FREE_8K, LEAF, MemoryHome, Sample, kinds, sample};
use Severity::{Damage, Inconsistent, Lost, Note};

#[track_caller]
fn says(report: &CheckReport, expected: &[(Severity, u8)]) {
    assert_eq!(kinds(report), expected, "{report}");
    assert_eq!(report.is_sound(), expected.iter().all(|(s, _)| *s == Note));
}

fn file_with(change: impl FnOnce(&mut File)) -> Sample {
    let mut s = sample(1);
    let mut data = s.data.clone();
    change(&mut data);
    // The slot is written anew, and its map is hung on it again.
    s.build.file(&data);
    let at = s.build.slot_at(data.slot) + 64;
    let word = s.build.seal(data.id, super::build::LEAF, 0, 3 << 36 | LEAF);
    s.build.word(0, at, word);
    s.data = data;
    s
}

#[test]
fn a_sound_tier_is_sound_with_and_without_its_home() {
    for members in [1, 2, 3] {
        let s = sample(members);
        for report in [s.at_rest(), s.after_cut(), check_images(&s.build.views(), None)] {
            says(&report, &[]);
            let sum = &report.summary;
            assert_eq!(
                (sum.files, sum.blocks_cached, sum.blocks_dirty, sum.map_pages),
                (2, 2, 2, 2)
            );
            assert_eq!((sum.frames_used, sum.frames_total, sum.dirty_bytes), (9, 96, 12288));
            assert_eq!((sum.tier.as_str(), sum.home.as_str()), ("fast", "/data/home"));
        }
    }
}

#[test]
fn members_may_be_given_in_any_order() {
    let s = sample(3);
    let mut views = s.build.views();
    views.reverse();
    says(&check_images(&views, Some(&s.home)), &[]);
}

#[test]
fn blocks_in_every_part_of_the_map_are_found() {
    let mut build = Build::new(1, 12);
    let f = File::new(3, 5, 0, 512 * 256 * 4096 + 4096);
    build.file(&f);
    build.leaf0(&f, 0);
    build.leaf(&f, 1, 1, 2);
    build.leaf512(&f, 3, 4, 5);
    for (leaf, block, frame) in [(0, 3, 8), (2, 256 + 9, 9), (5, 512 * 256, 10)] {
        build.entry(&f, leaf, block, DIRTY, frame);
    }
    let report = check_images(&build.views(), None);
    says(&report, &[]);
    assert_eq!((report.summary.blocks_dirty, report.summary.map_pages), (3, 6));
    for leaf in [0, 2, 5] {
        let mut damaged = build.clone();
        let (_, at) = damaged.place(leaf);
        damaged.images[0][at as usize + 4000] ^= 1;
        assert_eq!(4000 % 16, 0, "a word, and no checksum");
        says(&check_images(&damaged.views(), None), &[(Damage, 7)]);
    }
}

#[test]
fn invariant_1_one_damaged_superblock_copy_is_a_note_and_two_are_damage() {
    let mut s = sample(2);
    s.build.images[1][100] ^= 1;
    says(&s.at_rest(), &[(Note, 1)]);
    s.build.images[1][4096 + 200] ^= 1;
    says(&s.at_rest(), &[(Damage, 1)]);
    let mut s = sample(1);
    s.build.sequence = 8;
    let newer = s.build.superblock_bytes(0);
    s.build.images[0][..4096].copy_from_slice(&newer);
    says(&s.at_rest(), &[(Note, 1)]);
}

#[test]
fn invariant_1_an_interrupted_format_is_a_note_until_recovery_has_run() {
    let mut s = sample(1);
    s.build.images[0][2000..8192].fill(0);
    let report = s.after_cut();
    says(&report, &[(Note, 1)]);
    says(&s.at_rest(), &[(Damage, 1)]);
}

#[test]
fn invariant_2_members_that_do_not_belong_together_are_refused_by_name() {
    let s = sample(2);
    let views = s.build.views();
    for (given, words) in [
        (vec![views[0]], "missing: number 1"),
        (vec![views[1]], "missing: number 0"),
        (vec![views[0], views[0]], "both say they are member 0"),
        (vec![views[0], views[1], views[1]], "both say they are member 1"),
    ] {
        let report = check_images(&given, None);
        says(&report, &[(Damage, 2)]);
        assert!(report.findings[0].found.contains(words), "{report}");
    }
    let mut cut = sample(1);
    cut.build.images[0].truncate(32768 * 3);
    let report = cut.at_rest();
    assert!(kinds(&report).contains(&(Damage, 2)), "{report}");
}

#[test]
fn invariant_2_a_member_that_missed_an_update_is_a_note_after_a_cut_and_inconsistent_at_rest() {
    let mut s = sample(2);
    s.build.sequence = 8;
    s.build.superblock(0);
    says(&s.after_cut(), &[(Note, 2)]);
    says(&s.at_rest(), &[(Inconsistent, 2)]);
}

#[test]
fn invariants_3_and_4_a_damaged_slot_is_damage() {
    for (at, invariant) in [(0, 3), (7, 3), (20, 4), (29, 4), (56, 4)] {
        let mut s = sample(1);
        let slot = s.build.slot_at(s.data.slot) as usize;
        s.build.images[0][slot + at] ^= 1;
        says(&s.at_rest(), &[(Damage, invariant)]);
    }
    let s = file_with(|f| f.class = 3);
    says(&s.at_rest(), &[(Damage, 4)]);
}

#[test]
fn invariant_5_one_whole_state_line_is_enough_and_none_is_damage() {
    let mut s = sample(1);
    let slot = s.build.slot_at(s.data.slot) as usize;
    s.build.images[0][slot + 130] ^= 1;
    says(&s.at_rest(), &[(Note, 5)]);
    for at in [194, 258, 322] {
        s.build.images[0][slot + at] ^= 1;
    }
    says(&s.at_rest(), &[(Damage, 5)]);
    let s = file_with(|f| f.flags = 64);
    says(&s.at_rest(), &[(Inconsistent, 5)]);
}

#[test]
fn invariant_6_file_ids_and_home_files_are_there_once() {
    let mut s = sample(1);
    let mut twin = File::new(5, 43, 0, 0);
    twin.ino = s.data.ino;
    (twin.home_size, twin.mtime) = (s.data.home_size, s.data.mtime);
    s.build.file(&twin);
    says(&s.at_rest(), &[(Inconsistent, 6)]);
    twin.flags = 2;
    s.build.file(&twin);
    says(&s.after_cut(), &[]);
    let mut s = sample(1);
    let twin = File::new(5, s.redo.id, 0, 0);
    s.build.file(&twin);
    let report = check_images(&s.build.views(), None);
    assert!(kinds(&report).contains(&(Inconsistent, 6)), "{report}");
}

#[test]
fn invariant_7_words_of_another_place_are_damage() {
    let mut s = sample(1);
    let word = s.build.entry_word(&s.data, 1, DIRTY, FREE_8K);
    let at = s.build.entry_at(LEAF, 0);
    s.build.word(0, at, word);
    s.build.word(0, at + 80, 0);
    let report = s.at_rest();
    says(&report, &[(Damage, 7)]);
    assert!(report.findings[0].found.starts_with("2 word(s)"), "{report}");
}

#[test]
fn invariant_8_frames_lie_in_the_tier_and_are_aligned() {
    for frame in [96, 95, (1 << 36) - 1, 15] {
        let mut s = sample(1);
        let (data, build) = (s.data.clone(), &mut s.build);
        build.entry(&data, LEAF, 0, DIRTY, frame);
        says(&s.at_rest(), &[(Inconsistent, 8)]);
    }
}

#[test]
fn invariant_9_a_frame_used_twice_is_found_and_both_users_are_named() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.entry(&data, LEAF, 0, DIRTY, 10);
    let report = s.at_rest();
    says(&report, &[(Inconsistent, 9)]);
    let text = report.to_string();
    assert!(text.contains("block 1") && text.contains("block 0"), "{text}");
    // Two files share a map page.
    let mut s = sample(1);
    let at = s.build.slot_at(s.redo.slot) + 64;
    let word = s.build.seal(s.redo.id, super::build::LEAF, 0, 3 << 36 | LEAF);
    s.build.word(0, at, word);
    says(&s.at_rest(), &[(Inconsistent, 9)]);
}

#[test]
fn invariant_10_a_unit_serves_one_purpose() {
    for frame in [2, 18] {
        let mut s = sample(1);
        let data = s.data.clone();
        s.build.entry(&data, LEAF, 0, DIRTY, frame);
        let report = s.at_rest();
        assert_eq!(kinds(&report), [(Inconsistent, 10)], "{report}");
    }
}

#[test]
fn invariant_11_blocks_past_the_end_are_lost_after_recovery_only() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.entry(&data, LEAF, 3, DIRTY, FREE_8K);
    says(&s.after_cut(), &[]);
    says(&s.at_rest(), &[(Lost, 11)]);
    let mut s = file_with(|f| f.flags = 1);
    let data = s.data.clone();
    s.build.entry(&data, LEAF, 3, DIRTY, FREE_8K);
    says(&s.at_rest(), &[(Note, 20)]);
}

#[test]
fn invariant_12_bytes_past_the_end_are_zero_after_recovery() {
    let mut s = sample(1);
    let (_, at) = s.build.place(12);
    s.build.images[0][at as usize + 8191] = 1;
    let data = s.data.clone();
    s.build.sum(&data, LEAF, 2, 12);
    says(&s.after_cut(), &[]);
    says(&s.at_rest(), &[(Inconsistent, 12)]);
}

#[test]
fn invariant_25_an_ephemeral_tier_has_no_newest_version() {
    let with_flags = |flags| {
        let mut s = sample(1);
        s.build.flags = flags;
        s.build.superblock(0);
        s.at_rest()
    };
    says(&with_flags(0), &[]);
    assert!(with_flags(0).summary.blocks_dirty > 0);
    says(&with_flags(4), &[(Inconsistent, 25)]);
}

#[test]
fn invariant_13_cached_blocks_equal_home() {
    let mut s = sample(1);
    let (_, at) = s.build.place(10);
    s.build.images[0][at as usize + 5] ^= 1;
    let data = s.data.clone();
    s.build.sum(&data, LEAF, 1, 10);
    let report = s.after_cut();
    says(&report, &[(Inconsistent, 13)]);
    assert!(report.findings[0].found.contains("byte 8197"), "{report}");
    let options = CheckOptions { compare_blocks: false, ..CheckOptions::default() };
    says(&s.check_with(&options), &[]);
}

#[test]
fn invariant_14_a_missing_home_file_is_lost_when_the_tier_has_its_newest_blocks() {
    let mut s = sample(1);
    s.home = MemoryHome::default();
    says(&s.after_cut(), &[(Lost, 14)]);
    let mut s = file_with(|f| f.flags = 2);
    s.home.0.remove(&s.data.ino);
    says(&s.after_cut(), &[]);
    says(&s.at_rest(), &[(Lost, 20)]);
}

#[test]
fn invariant_15_a_home_file_changed_behind_the_tier_is_noticed() {
    for change in [|f: &mut File| f.mtime += 1, |f: &mut File| f.home_size += 1] {
        says(&file_with(change).after_cut(), &[(Inconsistent, 15)]);
    }
    let s = file_with(|f| (f.mtime, f.flags) = (1, 8));
    says(&s.after_cut(), &[]);
    says(&s.at_rest(), &[(Note, 20)]);
}

#[test]
fn invariant_16_a_pending_lane_record_is_expected_after_a_cut_and_lost_after_recovery() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.fill(FREE_8K, &[0xbb; 8192]);
    s.build.lane(3, 9, &data, LEAF, 0, FREE_8K);
    let report = s.after_cut();
    says(&report, &[]);
    assert_eq!(report.summary.lane_records_pending, 1);
    says(&s.at_rest(), &[(Lost, 16)]);
    // The record that follows on the lane has switched the block again.
    s.build.lane(3, 10, &data, LEAF, 0, 8);
    let report = s.at_rest();
    says(&report, &[]);
    assert_eq!(report.summary.lane_records_pending, 0);
    // A block that never arrived whole was not acknowledged.
    s.build.lane(2, 1, &data, LEAF, 1, FREE_8K);
    let (_, at) = s.build.place(FREE_8K);
    s.build.images[0][at as usize + 77] ^= 1;
    says(&s.at_rest(), &[]);
}

#[test]
fn invariant_16_a_record_that_does_not_fit_its_map_is_inconsistent() {
    let mut s = sample(1);
    let data = s.data.clone();
    // The entry is said to be in the other file's leaf.
    s.build.lane(0, 2, &data, 1, 0, FREE_8K);
    says(&s.after_cut(), &[(Inconsistent, 16)]);
    let mut s = sample(1);
    s.build.lane(0, 2, &data, LEAF, 0, 13);
    says(&s.after_cut(), &[(Inconsistent, 16)]);
}

#[test]
fn invariant_17_a_pending_batch_is_all_or_nothing() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.batch(1, &data, LEAF, &[(0, FREE_8K), (1, 24)], &[]);
    let report = s.after_cut();
    says(&report, &[]);
    assert_eq!(report.summary.batch_records_pending, 1, "both blocks are whole");
    says(&s.at_rest(), &[(Lost, 17)]);
    s.build.fill(24, &[1]);
    let report = s.at_rest();
    says(&report, &[]);
    assert_eq!(report.summary.batch_records_pending, 0, "one block is not whole");
}

#[test]
fn invariant_17_the_newer_of_two_batches_decides_of_a_block_in_both() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.batch(0, &data, LEAF, &[(0, FREE_8K)], &[]);
    assert_eq!(s.after_cut().summary.batch_records_pending, 1);
    s.build.batch(1, &data, LEAF, &[(0, 8)], &[]);
    let report = s.at_rest();
    says(&report, &[]);
    assert_eq!(report.summary.batch_records_pending, 0);
}

#[test]
fn invariant_17_a_batch_with_overflow_pages_is_read_to_its_end() {
    let mut build = Build::new(1, 80);
    let f = File::new(0, 9, 0, 256 * 4096);
    build.file(&f);
    build.leaf0(&f, 0);
    let items: Vec<(u64, u64)> = (0..256).map(|n| (n, 8 + n)).collect();
    build.batch(0, &f, 0, &items, &[1, 2]);
    let report = super::check_images_with(&build.views(), None, &AFTER_CUT);
    says(&report, &[]);
    assert_eq!(report.summary.batch_records_pending, 1);
    for frame in [1, 2, 263] {
        let mut torn = build.clone();
        let (_, at) = torn.place(frame);
        torn.images[0][at as usize + 8] ^= 1;
        let report = super::check_images_with(&torn.views(), None, &AFTER_CUT);
        assert_eq!(report.summary.batch_records_pending, 0);
    }
}

#[test]
fn invariant_18_pending_records_do_not_take_frames_that_others_keep() {
    let mut s = sample(1);
    let data = s.data.clone();
    // Block 0 is to move into the frame of block 1, which stays there.
    s.build.lane(0, 1, &data, LEAF, 0, 10);
    says(&s.after_cut(), &[(Inconsistent, 18)]);
    // Unless block 1 moves away.
    s.build.fill(FREE_8K, &[3; 8192]);
    s.build.lane(1, 1, &data, LEAF, 1, FREE_8K);
    says(&s.after_cut(), &[]);
    // Two records want one free frame.
    let mut s = sample(1);
    s.build.lane(0, 1, &data, LEAF, 0, FREE_8K);
    s.build.lane(1, 1, &data, LEAF, 1, FREE_8K);
    says(&s.after_cut(), &[(Inconsistent, 18)]);
}

#[test]
fn invariant_19_a_block_that_changed_after_its_switch_is_damage() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.lane(0, 4, &data, LEAF, 0, 8);
    says(&s.after_cut(), &[]);
    let (_, at) = s.build.place(8);
    s.build.images[0][at as usize + 4000] ^= 0x80;
    says(&s.after_cut(), &[(Damage, 19)]);
}

#[test]
fn invariant_24_a_block_with_another_checksum_is_damage_or_a_copy_to_be_dropped() {
    for (frame, byte, expected) in [(8, 4000, (Damage, 24)), (10, 5, (Inconsistent, 24))] {
        let mut s = sample(1);
        let (_, at) = s.build.place(frame);
        s.build.images[0][at as usize + byte] ^= 0x80;
        for report in [s.after_cut(), s.at_rest(), check_images(&s.build.views(), None)] {
            says(&report, &[expected]);
            assert_eq!(report.summary.dirty_lost, u64::from(expected.0 == Damage));
        }
        let unread =
            CheckOptions { compare_blocks: false, read_dirty: false, ..CheckOptions::default() };
        says(&s.check_with(&unread), &[]);
    }
    let mut s = sample(1);
    let at = s.build.entry_at(LEAF, 0) + 8;
    s.build.word(0, at, 0);
    says(&s.after_cut(), &[]);
    says(&s.at_rest(), &[(Damage, 24)]);
}

#[test]
fn invariant_24_blocks_that_have_changed_places_with_their_checksums_are_damage() {
    let mut s = sample(1);
    let data = s.data.clone();
    let bytes = |s: &Sample, at: u64, len: usize| {
        s.build.images[0][at as usize..at as usize + len].to_vec()
    };
    let (a, b) = (s.build.place(8).1, s.build.place(10).1);
    let (first, second) = (bytes(&s, a, 8192), bytes(&s, b, 8192));
    s.build.fill(8, &second);
    s.build.fill(10, &first);
    let (a, b) = (s.build.entry_at(LEAF, 0) + 8, s.build.entry_at(LEAF, 1) + 8);
    let (first, second) = (bytes(&s, a, 8), bytes(&s, b, 8));
    let word = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
    s.build.word(0, a, word(second));
    s.build.word(0, b, word(first));
    says(&s.at_rest(), &[(Inconsistent, 24), (Damage, 24)]);
    // And back, by the place alone.
    s.build.sum(&data, LEAF, 0, 8);
    assert!(!kinds(&s.at_rest()).contains(&(Damage, 24)));
}

#[test]
fn invariant_24_is_not_asked_of_a_block_that_a_whole_record_speaks_of() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.fill(FREE_8K, &[0xbb; 8192]);
    s.build.lane(3, 9, &data, LEAF, 0, FREE_8K);
    // The entry has arrived, its checksum has not.
    let (word, at) = (s.build.entry_word(&data, 0, DIRTY, FREE_8K), s.build.entry_at(LEAF, 0));
    s.build.word(0, at, word);
    says(&s.after_cut(), &[]);
}

#[test]
fn invariant_20_a_tier_being_attached_or_detached_holds_no_dirty_blocks() {
    for (state, expected) in [(1, &[(Inconsistent, 20)][..]), (3, &[(Inconsistent, 20)]), (4, &[])]
    {
        let mut s = sample(1);
        s.build.state = state;
        s.build.superblock(0);
        says(&s.at_rest(), expected);
    }
}

#[test]
fn an_entry_of_the_wrong_kind_for_its_place_is_damage() {
    let mut s = sample(1);
    let word = s.build.seal(s.data.id, BLOCK, 0, 3 << 36 | FREE_8K);
    s.build.word(0, s.build.entry_at(LEAF, 0), word);
    says(&s.at_rest(), &[(Damage, 7)]);
    let mut s = sample(1);
    let word = s.build.seal(s.data.id, BLOCK, 0, FREE_8K);
    s.build.word(0, s.build.entry_at(LEAF, 0), word);
    says(&s.at_rest(), &[(Damage, 7)]);
}

#[test]
fn a_map_that_points_to_itself_is_walked_once() {
    let mut s = sample(1);
    let data = s.data.clone();
    s.build.leaf(&data, 1, 3, 4);
    // Leaves 2 and 3 are said to be the middle page and leaf 0.
    for (leaf, frame) in [(2, 3), (3, LEAF)] {
        let (_, at) = s.build.place(3);
        let word = s.build.seal(data.id, super::build::LEAF, leaf, 3 << 36 | frame);
        s.build.word(0, at + leaf * 8, word);
    }
    says(&s.at_rest(), &[(Inconsistent, 9)]);
}

#[test]
fn findings_left_out_still_count() {
    let mut s = sample(1);
    let data = s.data.clone();
    for block in 10..250 {
        s.build.entry(&data, LEAF, block, CACHED, 1000 * 2 + block * 2);
    }
    let report = s.check_with(&CheckOptions { findings_max: 5, ..CheckOptions::default() });
    assert_eq!((report.findings.len(), report.omitted + 5), (5, report.counts.iter().sum()));
    assert!(report.omitted > 200 && !report.is_sound());
}
