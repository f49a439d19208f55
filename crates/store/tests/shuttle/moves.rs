//! Blocks that go home, are dropped, admitted and cut off while they are written and read; and the
//! pages that say where they are.

use crate::stage::{B, Stage, prove};

#[test]
fn a_block_rewritten_while_it_is_destaged_and_evicted_is_not_lost() {
    prove("destaging", |planted| {
        let stage = Stage::written("a.d4", planted);
        stage.race([
            |stage| (1..=3).for_each(|version| stage.write(0, 1, version)),
            |stage| {
                stage.destage();
                stage.evict();
            },
        ]);
        stage.evict();
        stage.read(0);
        stage.end();
    });
}

#[test]
fn a_read_of_home_and_its_admission_never_bring_back_an_older_version() {
    prove("home", |planted| {
        let stage = Stage::written("a.d4", planted);
        stage.race([
            |stage| {
                stage.destage();
                stage.evict();
                stage.write(0, 1, 1);
                stage.destage();
                stage.evict();
            },
            |stage| (0..2).for_each(|_| stage.read(0)),
        ]);
        stage.read(0);
        stage.end();
    });
}

#[test]
fn the_first_writers_of_a_map_page_agree_on_one() {
    prove("map pages", |planted| {
        let stage = Stage::new("a.d4", planted);
        stage.race([|stage| stage.write(0, 1, 1), |stage| stage.write(1, 2, 1)]);
        // What is pending in lanes becomes the map's: a record would say where the block is.
        stage.attached.background_step().unwrap();
        stage.check_after_cut("two first writers");
        stage.end();
    });
}

#[test]
fn a_read_during_a_cut_never_shows_what_home_had_before_the_block_was_written() {
    prove("cuts", |planted| {
        let stage = Stage::written("a.d4", planted);
        stage.race([
            |stage| {
                stage.file.truncate(0).unwrap();
                stage.file.truncate(2 * B as u64).unwrap();
            },
            |stage| stage.read_cut(0),
        ]);
        stage.read_cut(0);
        stage.end();
    });
}

#[test]
fn nothing_is_past_the_end_of_a_file_that_is_cut_while_a_whole_block_is_switched() {
    prove("cut and switch", |planted| {
        let stage = Stage::overwritten("a.d4", planted);
        stage.race([|stage| stage.write(0, 1, 1), |stage| stage.file.truncate(0).unwrap()]);
        // Written before the cut, or behind it past the end.
        let len = stage.file.len().unwrap();
        let blocks = stage.file.blocks_in_tier();
        assert_eq!(blocks, (len / B as u64, 0), "blocks in the tier of a file of {len} bytes");
        stage.end();
    });
}
