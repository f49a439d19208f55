//! Tiers put together from their own past, and otherwise damaged in several places: attached, or
//! checked offline, without a panic, and the two readers of the format agree about the metadata.
//!
//! The same code as the fuzz targets in `fuzz/`, on seeded inputs, so that it runs in every build:
//! on the same inputs each time, unless `TIERSMITH_SEED` says which; `TIERSMITH_INPUTS` says on how
//! many.

#[path = "../../../../fuzz/fuzz_targets/image/mod.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
mod image;

use fastrand::Rng;

/// Where a state line has its flags, and its sizes and times: [`tiersmith_store`]'s
/// `format/slot.rs`.
const LINE_FLAGS: u32 = 16;
const LINE_NUMBERS: [u32; 5] = [8, 24, 32, 40, 48];

/// An input as the fuzzer might make it: a moment, a home, and edits, most of them in the metadata.
fn input(rng: &mut Rng) -> Vec<u8> {
    let home = if rng.u8(..4) == 0 { rng.u8(..) } else { 0 };
    let mut input = vec![rng.u8(..), home];
    for _ in 0..rng.usize(1..10) {
        let at: u32 = if rng.u8(..4) == 0 { rng.u32(..320 << 10) } else { rng.u32(..40 << 10) };
        input.push(rng.u8(..));
        input.extend(&at.to_le_bytes()[..3]);
        input.extend((0..rng.usize(2..5)).map(|_| rng.u8(..)));
    }
    // Half of them with every checksum made right, or they seldom come past one.
    if rng.bool() {
        input.extend([6; 12]);
    }
    input
}

fn on_inputs(usual: u64, what: impl Fn(&[u8])) -> u64 {
    let count =
        std::env::var("TIERSMITH_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    let mut rng = Rng::with_seed(
        std::env::var("TIERSMITH_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1),
    );
    for _ in 0..count {
        let input = input(&mut rng);
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| what(&input)))
        {
            println!("the input is {input:?}");
            std::panic::resume_unwind(panic);
        }
    }
    count
}

#[test]
fn a_tier_mixed_from_its_own_past_is_refused_or_works() {
    let attached = std::cell::Cell::new(0);
    let count = on_inputs(1500, |input| {
        attached.set(attached.get() + u64::from(image::attach_and_use(input)))
    });
    println!("{count} images, {} of them attached", attached.get());
}

/// The largest numbers in each place of the metadata, with a right checksum: what is counted on
/// from there does not overflow.
#[test]
fn the_largest_numbers_under_a_right_checksum_are_refused_or_work() {
    let [number, seal] = [5, 6];
    for moment in 0..6 {
        // The superblock's numbers and both lanes' records, then the first slot: identity, roots,
        // state lines.
        for at in
            (8..224).step_by(8).chain((12288..12544).step_by(8)).chain((20480..20864).step_by(8))
        {
            let at: [u8; 4] = u32::to_le_bytes(at);
            for less in [0, 1] {
                let edit = [number, at[0], at[1], at[2], 0, 11, less];
                let both = [number, at[0], at[1] ^ 0x10, at[2], 0, 11, less];
                let seal = [seal, 0, 0, 0, 0];
                image::attach_and_use(&[&[moment, 0], &edit[..], &seal].concat());
                image::attach_and_use(&[&[moment, 0], &edit[..], &both, &seal].concat());
            }
        }
    }
}

/// The largest numbers in the state lines of the first slots, any of them together, and with a flag
/// that makes recovery count on from them.
#[test]
fn the_largest_numbers_beside_each_flag_of_a_state_line_are_refused_or_work() {
    let [byte, number, seal] = [0, 5, 6];
    let place = |at: u32| at.to_le_bytes()[..3].to_vec();
    for (moment, slot, flag) in
        (0..6).flat_map(|m| (0..3).flat_map(move |s| (0..6).map(move |f| (m, s, f))))
    {
        for fields in 1..1 << LINE_NUMBERS.len() {
            let mut input = vec![moment, 0];
            for line in (0..4).map(|line| 20480 + slot * 1024 + 128 + line * 64) {
                input.extend([&[byte], &place(line + LINE_FLAGS)[..], &[0, 1 << flag]].concat());
                for (_, at) in LINE_NUMBERS.iter().enumerate().filter(|(n, _)| fields >> n & 1 == 1)
                {
                    input.extend([&[number], &place(line + at)[..], &[0, 11, 0]].concat());
                }
            }
            image::attach_and_use(&[&input, &[seal, 0, 0, 0, 0][..]].concat());
        }
    }
}

#[test]
fn a_tier_mixed_from_its_own_past_is_checked_to_the_end() {
    on_inputs(300, image::check);
}
