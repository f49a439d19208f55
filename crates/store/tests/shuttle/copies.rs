//! Readers of blocks that are overwritten meanwhile: copies and references.

use crate::stage::{Stage, prove};
use tiersmith_store::testing;

#[test]
fn a_copy_is_whole_and_new_while_two_writers_reuse_its_frames() {
    prove("copies", |planted| {
        let stage = Stage::written("a.d4", planted);
        stage.race([
            |stage| {
                stage.write(0, 1, 1);
                stage.write(0, 1, 2);
                stage.write(1, 1, 1);
            },
            |stage| {
                stage.write(0, 2, 1);
                stage.write(1, 2, 1);
            },
            |stage| stage.read(0),
        ]);
        stage.read(0);
        stage.end();
    });
}

#[test]
fn a_copy_is_whole_and_new_while_batches_fill_its_frames_before_they_lock_its_lane() {
    prove("copies and batches", |planted| {
        let stage = Stage::written("a.d4", planted);
        stage.write_batch(0, 0, 4);
        stage.race([
            |stage| (1..=3).for_each(|version| stage.write_batch(0, 1, version)),
            |stage| (0..3).for_each(|_| stage.read(0)),
        ]);
        stage.read(0);
        stage.end();
    });
}

#[test]
fn what_is_lent_is_whole_and_new_and_nobody_writes_it() {
    prove("references", |planted| {
        let stage = Stage::written_with_few_pieces(planted);
        stage.race([
            |stage| {
                stage.write(0, 1, 1);
                stage.write(0, 1, 2);
                stage.write(1, 1, 1);
                stage.write(0, 1, 3);
                stage.write(0, 1, 4);
            },
            |stage| stage.read_ref(0),
        ]);
        stage.end();
    });
}

#[test]
fn what_is_lent_is_whole_and_new_while_batches_fill_pieces_without_a_lane() {
    prove("references and batches", |planted| {
        let stage = Stage::written("a.d4", planted);
        stage.race([
            |stage| {
                stage.write_batch(0, 1, 1);
                stage.write_batch(0, 1, 2);
                stage.write_batch(0, 1, 3);
            },
            |stage| stage.read_ref(0),
        ]);
        stage.end();
    });
}

#[test]
fn a_copy_is_whole_and_new_while_two_writers_take_pieces_that_were_laid_out() {
    prove("laid out", |planted| {
        let stage = Stage::overwritten("a.d4", planted);
        stage.race([
            |stage| {
                stage.write(0, 1, 1);
                stage.write(0, 1, 2);
            },
            |stage| {
                stage.write(0, 2, 1);
                // Takes back what the lanes have laid out.
                testing::accounting(&stage.attached);
            },
            |stage| stage.read(0),
        ]);
        stage.read(0);
        stage.end();
    });
}

#[test]
fn what_is_lent_keeps_its_frame_from_being_taken_although_it_was_laid_out() {
    prove("references and laid out", |planted| {
        let stage = Stage::overwritten("a.d4", planted);
        stage.race([
            |stage| (1..=4).for_each(|version| stage.write(0, 1, version)),
            |stage| stage.read_ref(0),
        ]);
        stage.end();
    });
}
