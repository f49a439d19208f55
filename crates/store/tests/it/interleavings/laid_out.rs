//! Pieces that a lane has laid out: the claim is seen at the end of one switch, the piece is
//! guessed before the lane is locked for the next, and taken without another look.
//!
//! Deliberately not here: the model, which is in `interleavings.rs` with those that share it.

use super::explorer::Order::{Acquire, Release};
use super::{FRAMES, Flaw, HOME, Lane, Store, prove};

#[test]
fn a_copy_is_whole_and_new_while_two_writers_take_pieces_that_were_laid_out() {
    let flaws = [Flaw::NoFenceAfterTake, Flaw::GuessTrusted, Flaw::NoTurns, Flaw::NoMediumFence];
    prove("laid out", 2, &flaws, |scene, flaw| {
        let store = Store::overwritten(scene, flaw);
        let (writer, other) = (store.clone(), store.clone());
        scene.thread(move |t| async move {
            writer.write(&t, 0).await;
            writer.write(&t, 0).await;
        });
        scene.thread(move |t| async move {
            other.write(&t, 0).await;
            other.reclaim(&t).await;
        });
        scene.observer(move |t| async move { store.copy(&t).await });
    });
}

#[test]
fn what_is_lent_keeps_its_frame_from_being_taken_although_it_was_laid_out() {
    prove("references and laid out", 2, &[Flaw::OwnedUnseen], |scene, flaw| {
        let store = Store::overwritten(scene, flaw);
        let writer = store.clone();
        scene.thread(move |t| async move {
            for _ in 0..4 {
                writer.write(&t, 0).await;
            }
        });
        scene.thread(move |t| async move { store.read_ref(&t).await });
    });
}

#[test]
fn a_piece_is_guessed_only_by_who_knows_that_the_tier_is_that_long() {
    prove("growing", 3, &[Flaw::GuessRelaxed], |scene, flaw| {
        let mut store = Store::overwritten(scene, flaw);
        store.len = scene.word(FRAMES as u64 - 1);
        let grower = store.clone();
        scene.thread(move |t| async move {
            t.store(grower.len, FRAMES as u64, Release).await;
            grower.lock_lane(&t).await;
            *grower.lane.borrow_mut() = Lane { ready: vec![FRAMES - 1, 2], ..Lane::default() };
            grower.unlock_lane(&t).await;
            // Lays the new one out.
            grower.overwrite(&t, 0).await;
        });
        scene.thread(move |t| async move { store.write(&t, 0).await });
    });
}

#[test]
fn nothing_is_past_the_end_of_a_file_that_is_cut_while_a_whole_block_is_switched() {
    prove("cut and switch", u32::MAX, &[Flaw::SizeBeforeLane], |scene, flaw| {
        let store = Store::overwritten(scene, flaw);
        let (cutter, observer) = (store.clone(), store.clone());
        scene.thread(move |t| async move {
            store.switch_whole(&t, 0).await;
        });
        scene.thread(move |t| async move {
            // `Inner::cut`: who looked at the size before has set its entry when its lane was had
            // once.
            t.store(cutter.size, 0, Release).await;
            cutter.lock_lane(&t).await;
            cutter.unlock_lane(&t).await;
            let entry = t.load(cutter.entries[0], Acquire).await;
            if entry != HOME {
                cutter.replace(&t, entry, HOME).await;
            }
        });
        scene.observer(move |t| async move {
            let entry = t.newest(observer.entries[0]);
            t.check(entry == HOME, || format!("entry {entry} is past the end"));
        });
    });
}
