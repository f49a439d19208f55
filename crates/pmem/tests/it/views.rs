//! Threads that claim, fill and release frames while others look at them by reference: what is lent
//! stays as it was, for whoever holds it and wherever it goes.
//!
//! Runs under Miri too, which sees two accesses that nothing orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use tiersmith_pmem::{FRAME, Mapping, View};

/// A piece is two frames, a piece over the border of two words of claims among them.
const PIECE: usize = 2 * FRAME;
const PIECES: u64 = 5;
const FIRST: u64 = FRAME as u64;
const ROUNDS: u64 = if cfg!(miri) { 6 } else { 20_000 };

fn at(piece: u64) -> u64 {
    FIRST + piece * PIECE as u64
}

/// Fills a piece, if nobody has it: every word says which piece it is and which filling.
fn fill(mapping: &Mapping, piece: u64, number: u64, data: &mut [u8]) -> bool {
    if !mapping.claim(at(piece), PIECE) {
        return false;
    }
    data.chunks_exact_mut(8)
        .for_each(|word| word.copy_from_slice(&(number << 8 | piece).to_le_bytes()));
    mapping.nt_write(at(piece), &data[..FRAME]);
    mapping.write(at(piece) + FRAME as u64, &data[FRAME..]);
    mapping.fence();
    mapping.release(at(piece), PIECE);
    true
}

/// Which filling it is.
fn number(piece: u64, bytes: &[u8]) -> u64 {
    let word = |n: usize| u64::from_le_bytes(bytes[n * 8..n * 8 + 8].try_into().unwrap());
    let step = if cfg!(miri) { 64 } else { 1 };
    let first = word(0);
    assert!(
        (0..PIECE / 8).step_by(step).all(|n| word(n) == first),
        "two fillings of piece {piece} are mixed"
    );
    assert!(
        first == 0 || first & 0xff == piece,
        "piece {piece} holds what belongs to piece {}",
        first & 0xff
    );
    first >> 8
}

/// Sets a flag when it goes, so that readers end also when another thread panics.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn torture(mapping: &Arc<Mapping>) {
    mapping.set_open_range(FIRST);
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let (lend, lent) = sync_channel::<(u64, u64, View)>(4);
    std::thread::scope(|scope| {
        let (stop, looks) = (&stop, &looks);
        scope.spawn(move || {
            // Owned views end on another thread than they began.
            for (piece, before, view) in lent {
                assert_eq!(number(piece, &view), before, "an owned view changed");
            }
        });
        for reader in 0..2u64 {
            let lend = lend.clone();
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(reader);
                let mut newest = [0; PIECES as usize];
                while !stop.load(Ordering::Relaxed) {
                    let piece = rng.u64(..PIECES);
                    if rng.bool() {
                        let Some(view) = mapping.view(at(piece), PIECE) else { continue };
                        let found = number(piece, &view);
                        std::thread::yield_now();
                        assert_eq!(number(piece, &view), found, "a view changed");
                        assert!(
                            found >= newest[piece as usize],
                            "piece {piece} goes back to filling {found}"
                        );
                        newest[piece as usize] = found;
                    } else if let Some(view) = mapping.view_owned(at(piece), PIECE) {
                        lend.send((piece, number(piece, &view), view)).unwrap();
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        drop(lend);
        let _done = Done(stop);
        let numbers = [const { AtomicU64::new(0) }; PIECES as usize];
        std::thread::scope(|writers| {
            for writer in 0..2u64 {
                let numbers = &numbers;
                writers.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(writer << 8);
                    let mut data = vec![0; PIECE];
                    for _ in 0..ROUNDS {
                        // One writer a piece, so that its fillings have an order.
                        let piece = rng.u64(..PIECES / 2 + 1 - writer) * 2 + writer;
                        let next = numbers[piece as usize].load(Ordering::Relaxed) + 1;
                        if fill(mapping, piece, next, &mut data) {
                            numbers[piece as usize].store(next, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        // On a busy machine the writers may be done before a reader has had a turn.
        let end = Instant::now() + Duration::from_secs(120);
        while looks.load(Ordering::Relaxed) < 4 && Instant::now() < end {
            std::thread::yield_now();
        }
        assert!(looks.load(Ordering::Relaxed) >= 4, "nobody ever had a look");
    });
    assert!(mapping.is_free(FIRST, PIECES as usize * PIECE), "a view or a claim is left");
}

#[test]
fn a_view_shows_one_filling_of_its_frames_for_as_long_as_it_lives() {
    let len = FIRST as usize + PIECES as usize * PIECE;
    torture(&Arc::new(Mapping::in_memory(&vec![0; len], 0)));
    #[cfg(not(miri))]
    {
        use tiersmith_pmem::{Access, OpenOptions};
        let directory = tempfile::tempdir().unwrap();
        let options =
            OpenOptions { create: true, ..OpenOptions::new(Access::Emulated, len as u64) };
        torture(&Arc::new(Mapping::open(&directory.path().join("medium"), &options).unwrap()));
    }
}
