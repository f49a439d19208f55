//! Redo blocks, which are written in place, while they are drained.

use crate::stage::{Stage, prove};

#[test]
fn a_redo_block_that_is_written_while_it_is_drained_is_the_same_on_the_medium_and_in_dram() {
    prove("drain against own", |planted| {
        let stage = Stage::new("a.redo", planted);
        stage.write(0, 1, 1);
        stage.race([
            |stage| {
                for version in 2..=3 {
                    stage.write(0, 1, version);
                    stage.check_after_cut("a cut behind a write");
                }
            },
            |stage| stage.destage(),
        ]);
        stage.read(0);
        stage.end();
    });
}

#[test]
fn a_copy_of_a_redo_block_is_never_what_another_file_has_in_its_frame() {
    prove("redo", |planted| {
        let stage = Stage::cramped("a.redo", planted);
        stage.race([
            |stage| {
                stage.file.truncate(0).unwrap();
                // Gets the frame, as the only one that is free.
                stage.other.write(0, &Stage::bytes(1, 1, 1)).unwrap();
                stage.other.truncate(0).unwrap();
                stage.file.write(0, &Stage::bytes(0, 0, 3)).unwrap();
            },
            |stage| (0..3).for_each(|_| stage.read_in_place(0)),
        ]);
        stage.end();
    });
}
