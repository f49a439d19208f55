//! The same calls give the same results on a mapped file, on a simulated mapping, on a plain heap
//! mapping, and on a `Vec<u8>` that is the definition.

use std::sync::Arc;

use tiersmith_pmem::sim::Simulator;
use tiersmith_pmem::{FRAME, Mapping, Use, hash_bytes};

const LEN: usize = 8 * FRAME;
const MAX: usize = 16 * FRAME;
const OPEN: usize = 2 * FRAME;

/// Runs `suite` on every kind of mapping.
fn on_every_kind(suite: impl Fn(&str, &Arc<Mapping>)) {
    suite("heap", &Arc::new(Mapping::in_memory(&[0; LEN], MAX as u64)));
    suite("simulated", &Arc::new(Simulator::new().mapping(vec![0; LEN], MAX as u64)));
    #[cfg(not(miri))]
    for (name, place) in [("tmpfs file", "/dev/shm"), ("file", ".")] {
        use tiersmith_pmem::{Access, OpenOptions};
        let place = if place == "." { std::env::temp_dir() } else { place.into() };
        let Ok(directory) = tempfile::tempdir_in(&place) else { continue };
        for access in [Access::Emulated, Access::Volatile] {
            let options = OpenOptions {
                max_len: MAX as u64,
                create: true,
                ..OpenOptions::new(access, LEN as u64)
            };
            let path = directory.path().join(access.name());
            suite(
                &format!("{name}, {}", access.name()),
                &Arc::new(Mapping::open(&path, &options).unwrap()),
            );
        }
    }
}

/// One call at random, on the mapping and on what models it; where it was, and how long.
fn random_call(
    mapping: &Mapping,
    model: &mut [u8],
    rng: &mut fastrand::Rng,
    what: &str,
) -> (usize, usize) {
    let mut at = rng.usize(..model.len());
    let longest = if rng.bool() && !cfg!(miri) { 5000 } else { 100 };
    let mut len = rng.usize(..=(model.len() - at).min(longest));
    let data: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(len).collect();
    match rng.u8(..8) {
        0 => {
            at = at / 8 * 8;
            let value = rng.u64(..);
            if rng.bool() {
                mapping.store_u64(at as u64, value);
            } else {
                mapping.nt_store_u64(at as u64, value);
            }
            model[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        1 => {
            mapping.write(at as u64, &data);
            model[at..at + len].copy_from_slice(&data);
        }
        2 => {
            if rng.bool() {
                mapping.prepare(at as u64, len).nt_write(&data);
            } else {
                mapping.nt_write(at as u64, &data);
            }
            model[at..at + len].copy_from_slice(&data);
        }
        3 => {
            at = at / 64 * 64;
            len = len / 64 * 64;
            let seed = rng.u64(..);
            let hash = mapping.nt_write_hashed(at as u64, &data[..len], seed);
            model[at..at + len].copy_from_slice(&data[..len]);
            assert_eq!(hash, hash_bytes(&data[..len], seed), "{what}");
            assert_eq!(mapping.hash(at as u64, len, seed), hash, "{what}");
        }
        4 => {
            mapping.nt_zero(at as u64, len);
            model[at..at + len].fill(0);
        }
        5 if len >= 64 && at / 64 * 64 + 128 <= model.len() => {
            at = at / 64 * 64;
            let copies = rng.usize(1..=2);
            let words =
                std::array::from_fn(|n| u64::from_le_bytes(*data[8 * n..].first_chunk().unwrap()));
            mapping.nt_write_line(at as u64, words, copies);
            model[at..at + 64 * copies].copy_from_slice(&data[..64].repeat(copies));
        }
        5 => {
            mapping.prefetch_for_read(at as u64, len);
            mapping.prefetch_translations(at as u64, len);
            mapping.flush(at as u64, len);
        }
        6 => mapping.persist(at as u64, len),
        _ => {
            let seed = rng.u64(..);
            let expected = hash_bytes(&model[at..at + len], seed);
            assert_eq!(mapping.hash(at as u64, len, seed), expected, "{what}");
        }
    }
    (at, len)
}

#[test]
fn reads_return_what_the_writes_before_them_wrote() {
    on_every_kind(|kind, mapping| {
        let mut rng = fastrand::Rng::with_seed(0xC0FF_EE00);
        let mut model = vec![0_u8; LEN];
        mapping.set_open_range(OPEN as u64);
        assert!(mapping.claim(OPEN as u64, LEN - OPEN));
        for round in 0..if cfg!(miri) { 130 } else { 5_000 } {
            if round == 100 {
                mapping.grow(MAX as u64).unwrap();
                assert!(mapping.claim(LEN as u64, MAX - LEN));
                model.resize(MAX, 0);
            }
            let what = format!("{kind} round {round}");
            let (at, len) = random_call(mapping, &mut model, &mut rng, &what);
            if rng.bool() {
                mapping.fence();
            }
            let mut found = vec![0xAA; len];
            mapping.read(at as u64, &mut found);
            assert!(found == model[at..at + len], "{what}: {len} bytes at {at}");
            let word = at / 8 * 8;
            let expected = u64::from_le_bytes(*model[word..].first_chunk().unwrap());
            assert_eq!(mapping.load_u64(word as u64), expected, "{what}");
        }
        let mut whole = vec![0; model.len()];
        mapping.read(0, &mut whole);
        assert!(whole == model, "{kind}");
        mapping.release(OPEN as u64, MAX - OPEN);
        let view = mapping.view(OPEN as u64, MAX - OPEN).unwrap();
        assert!(*view == model[OPEN..], "{kind}");
    });
}

#[test]
fn frames_are_viewed_or_claimed_and_the_open_range_neither() {
    on_every_kind(|kind, mapping| {
        let at = |frame: usize| (frame * FRAME) as u64;
        mapping.set_open_range(at(2));
        let view = mapping.view(at(3), 2 * FRAME).unwrap();
        assert!(!mapping.claim(at(4), FRAME) && mapping.claim(at(5), FRAME), "{kind}");
        let claimed = |first, count| mapping.is_claimed(at(first), count * FRAME);
        assert!(claimed(5, 1) && !claimed(4, 1) && !claimed(4, 2), "{kind}");
        assert!(
            mapping.view(at(4), 2 * FRAME).is_none() && mapping.view(at(4), FRAME).is_some(),
            "{kind}"
        );
        assert!(mapping.is_free(at(6), 2 * FRAME) && !mapping.is_free(at(5), FRAME), "{kind}");
        assert_eq!(mapping.look_ahead(at(3), 2 * FRAME), Use::Other, "{kind}");
        drop(view);
        assert!(mapping.is_free(at(3), 2 * FRAME), "{kind}");
        assert_eq!(mapping.look_ahead(at(3), 2 * FRAME), Use::Free, "{kind}");
        assert_eq!(mapping.look_ahead(at(5), FRAME), Use::Claimed, "{kind}");
        // Over more than one word of four frames, and a claim that comes between the look and the
        // write.
        assert_eq!(mapping.look_ahead(at(2), 5 * FRAME), Use::Other, "{kind}");
        let prepared = mapping.prepare(at(3), FRAME);
        assert!(mapping.claim(at(3), FRAME));
        let hash = prepared.nt_write_hashed(&[7; FRAME], 3);
        assert_eq!(hash, hash_bytes(&[7; FRAME], 3), "{kind}");
        prepared.nt_write(&[0; FRAME]);
        mapping.fence();
        mapping.release(at(3), FRAME);
        let owned = mapping.view_owned(at(3), FRAME).unwrap();
        let bytes = std::thread::spawn(move || owned.to_vec()).join().unwrap();
        assert!(bytes == [0; FRAME] && mapping.is_free(at(3), FRAME), "{kind}");
        mapping.release(at(5), FRAME);
        assert!(mapping.is_free(at(2), 6 * FRAME), "{kind}");
    });
}

/// The message of the panic of `call`.
fn panic_of(call: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_err();
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn misuse_panics_and_changes_nothing() {
    on_every_kind(|kind, mapping| {
        let frame = FRAME as u64;
        let len = LEN as u64;
        mapping.set_open_range(frame);
        assert!(mapping.claim(3 * frame, FRAME));
        let _view = mapping.view(5 * frame, FRAME).unwrap();
        let calls: &[(&str, &dyn Fn())] = &[
            ("not claimed", &|| mapping.store_u64(frame, 1)),
            ("not claimed", &|| mapping.nt_store_u64(frame, 1)),
            ("not claimed", &|| mapping.write(4 * frame - 1, &[1; 2])),
            ("not claimed", &|| mapping.nt_write(3 * frame - 1, &[1; 2])),
            ("not claimed", &|| mapping.nt_write(frame - 8, &[1; 16])),
            ("not claimed", &|| mapping.nt_zero(5 * frame, 1)),
            ("not claimed", &|| _ = mapping.nt_write_hashed(5 * frame, &[1; 64], 0)),
            ("not claimed", &|| mapping.nt_write_line(frame - 64, [1; 8], 2)),
            ("not a multiple of 64", &|| mapping.nt_write_line(8, [1; 8], 1)),
            ("not claimed", &|| mapping.prepare(frame, FRAME).nt_write(&[1; FRAME])),
            ("not claimed", &|| {
                _ = mapping.prepare(5 * frame, FRAME).nt_write_hashed(&[1; FRAME], 0)
            }),
            ("prepared for 64", &|| mapping.prepare(0, 64).nt_write(&[1; 63])),
            ("prepared for 64", &|| _ = mapping.prepare(0, 64).nt_write_hashed(&[1; 128], 0)),
            ("prepared for 4096", &|| mapping.prepare(3 * frame, FRAME).nt_write(&[1; 64])),
            ("prepared for 4096", &|| {
                _ = mapping.prepare(3 * frame, FRAME).nt_write_hashed(&[1; 64], 0)
            }),
            ("outside the mapping", &|| _ = mapping.prepare(len - 64, FRAME)),
            ("not whole frames", &|| _ = mapping.look_ahead(frame + 1, FRAME)),
            ("multiples of 64", &|| _ = mapping.nt_write_hashed(8, &[1; 64], 0)),
            ("multiples of 64", &|| _ = mapping.nt_write_hashed(0, &[1; 63], 0)),
            ("not a multiple of 8", &|| mapping.store_u64(4, 1)),
            ("not a multiple of 8", &|| mapping.nt_store_u64(4, 1)),
            ("outside the mapping", &|| _ = mapping.load_u64(len)),
            ("outside the mapping", &|| _ = mapping.load_u64(u64::MAX - 7)),
            ("outside the mapping", &|| mapping.write(len - 1, &[1; 2])),
            ("outside the mapping", &|| mapping.read(len - 1, &mut [0; 2])),
            ("outside the mapping", &|| mapping.read(u64::MAX, &mut [0; 2])),
            ("outside the mapping", &|| _ = mapping.hash(0, LEN + 1, 0)),
            ("outside the mapping", &|| mapping.flush(len, 1)),
            ("outside the mapping", &|| _ = mapping.claim(len, FRAME)),
            ("not whole frames", &|| _ = mapping.view(0, FRAME)),
            ("not whole frames", &|| _ = mapping.claim(frame + 1, FRAME)),
            ("not whole frames", &|| _ = mapping.is_free(frame, 1)),
            ("not claimed", &|| mapping.release(6 * frame, FRAME)),
            ("open range", &|| mapping.set_open_range(1)),
        ];
        for (index, (message, call)) in calls.iter().enumerate() {
            let text = panic_of(call);
            assert!(
                text.starts_with("BUG: ") && text.contains(message),
                "{kind} call {index}: {text}"
            );
        }
        let mut whole = vec![1; LEN];
        mapping.read(0, &mut whole);
        assert!(whole == [0; LEN], "{kind}");
    });
}

#[test]
fn threads_that_view_and_claim_never_see_a_block_change_or_mixed() {
    const BLOCK: usize = 2 * FRAME;
    let rounds = if cfg!(miri) { 4 } else { 30_000 };
    on_every_kind(|kind, mapping| {
        if kind == "simulated" {
            return; // It would record every byte, and the frames are the same code.
        }
        let views = std::sync::atomic::AtomicUsize::new(0);
        let writes = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (views, writes) = (&views, &writes);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for _ in 0..rounds {
                        let at = (rng.usize(..LEN / BLOCK) * BLOCK) as u64;
                        if thread % 2 == 0 {
                            let Some(view) = mapping.view(at, BLOCK) else { continue };
                            let first = view[0];
                            assert!(
                                view.iter()
                                    .step_by(if cfg!(miri) { 1001 } else { 61 })
                                    .all(|&byte| byte == first)
                            );
                            assert!(view[BLOCK - 1] == first && view[0] == first);
                            views.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        } else if mapping.claim(at, BLOCK) {
                            mapping.nt_write(at, &[rng.u8(..); BLOCK]);
                            mapping.fence();
                            mapping.release(at, BLOCK);
                            writes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert!(mapping.is_free(0, LEN), "{kind}");
        if !cfg!(miri) {
            assert!(views.into_inner() > 100 && writes.into_inner() > 100, "{kind}");
        }
    });
}

#[test]
fn a_read_racing_a_write_mixes_whole_words_only() {
    let rounds = if cfg!(miri) { 5 } else { 20_000 };
    on_every_kind(|kind, mapping| {
        if kind == "simulated" {
            return;
        }
        mapping.set_open_range(FRAME as u64);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    let data = [round as u8; 256];
                    if round % 2 == 0 {
                        mapping.write(64, &data)
                    } else {
                        mapping.nt_write(64, &data)
                    }
                }
            });
            scope.spawn(|| {
                let mut found = [0; 256];
                for _ in 0..rounds {
                    mapping.read(64, &mut found);
                    for word in found.as_chunks::<8>().0 {
                        assert!(word.iter().all(|byte| *byte == word[0]), "{kind}: {word:?}");
                    }
                }
            });
        });
    });
}
