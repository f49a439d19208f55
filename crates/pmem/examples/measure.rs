//! Times the calls at random slots of a file:
//! `cargo run --release --example measure -- PATH [MIB]`.
//!
//! The file is made and removed. Rounds of all calls alternate, and the median round of each is
//! printed, because a shared machine moves between rounds.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use tiersmith_pmem::{Access, Mapping, OpenOptions};

const ROUNDS: usize = 15;
const CALLS: usize = 20_000;
const HASH_SEED: u64 = 0x5eed;

/// A name, and the call for one random number.
type Case<'a> = (&'a str, Box<dyn FnMut(u64) + 'a>);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().expect("usage: measure PATH [MIB]");
    let mib: u64 = arguments.get(1).map_or(1024, |text| text.parse().expect("MIB is a number"));
    let options = OpenOptions {
        create: true,
        prefault: true,
        ..OpenOptions::new(Access::Emulated, mib << 20)
    };
    let mapping = match Mapping::open(Path::new(path), &options) {
        Ok(mapping) => mapping,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    };
    println!("{}", mapping.report());
    measure(&mapping, mib << 20);
    drop(mapping);
    std::fs::remove_file(path).expect("the file was made by this program");
}

fn measure(mapping: &Mapping, len: u64) {
    let half = len / 2;
    // The first half is claimed for writes, the second is viewed. Records go to a small part of the
    // first.
    assert!(mapping.claim(0, half as usize));
    let map = mapping;
    let slot =
        move |random: u64, size: u64| random % ((half - (1 << 20)) / size) * size + (1 << 20);
    let record = move |random: u64| random % (1 << 14) * 64;
    let data: Vec<u8> = (0..64 * 1024).map(|byte| (byte * 7) as u8).collect();
    let data = &data[..];
    let source =
        move |random: u64, size: usize| &data[(random >> 32) as usize % 8 * 1024..][..size];
    let mut into = vec![0u8; 8192];

    let mut cases: Vec<Case<'_>> = Vec::new();
    for size in [512usize, 4096, 8192] {
        cases.push((
            ["512 nt_write + fence", "4096 nt_write + fence", "8192 nt_write + fence"][size / 4096],
            Box::new(move |random| {
                map.nt_write(slot(random, size as u64), source(random, size));
                map.fence();
            }),
        ));
        cases.push((
            [
                "512 nt_write_hashed + fence",
                "4096 nt_write_hashed + fence",
                "8192 nt_write_hashed + fence",
            ][size / 4096],
            Box::new(move |random| {
                let at = slot(random, size as u64);
                black_box(map.nt_write_hashed(at, source(random, size), HASH_SEED));
                map.fence();
            }),
        ));
        cases.push((
            [
                "512 + 64 B record + fence",
                "4096 + 64 B record + fence",
                "8192 + 64 B record + fence",
            ][size / 4096],
            Box::new(move |random| {
                map.nt_write(slot(random, size as u64), source(random, size));
                map.nt_write(record(random >> 20), source(random, 64));
                map.fence();
            }),
        ));
        cases.push((
            [
                "512 hashed + record + fence",
                "4096 hashed + record + fence",
                "8192 hashed + record + fence",
            ][size / 4096],
            Box::new(move |random| {
                let at = slot(random, size as u64);
                black_box(map.nt_write_hashed(at, source(random, size), HASH_SEED));
                map.nt_write(record(random >> 20), source(random, 64));
                map.fence();
            }),
        ));
    }
    cases.push((
        "8192 nt_write, fence, store_u64, persist",
        Box::new(move |random| {
            map.nt_write(slot(random, 8192), source(random, 8192));
            map.fence();
            map.store_u64(record(random >> 20), random);
            map.persist(record(random >> 20), 8);
        }),
    ));
    cases.push((
        "8192 nt_write + fence with misaligned source",
        Box::new(move |random| {
            map.nt_write(slot(random, 8192), &data[5..][..8192]);
            map.fence();
        }),
    ));
    let mut tail = 1 << 20;
    cases.push((
        "512 B append at 8-byte boundaries + fence",
        Box::new(move |random| {
            let size = 480 + (random >> 40) as usize % 9 * 8;
            if tail + 1024 > half {
                tail = 1 << 20;
            }
            map.nt_write(tail, &data[..size]);
            map.fence();
            tail += size as u64;
        }),
    ));
    cases.push((
        "store_u64 + persist, 1 MiB of words",
        Box::new(move |random| {
            map.store_u64(record(random), random);
            map.persist(record(random), 8);
        }),
    ));
    cases.push((
        "view + release, 8192",
        Box::new(move |random| {
            black_box(map.view(half + random % (half / 8192) * 8192, 8192).is_some());
        }),
    ));
    cases.push((
        "view + release, 8192, 4 MiB of slots",
        Box::new(move |random| {
            black_box(map.view(half + random % 512 * 8192, 8192).is_some());
        }),
    ));
    cases.push((
        "claim + release, 8192, 4 MiB of slots",
        Box::new(move |random| {
            let at = half + random % 512 * 8192;
            assert!(map.claim(at, 8192));
            map.release(at, 8192);
        }),
    ));
    cases.push((
        "read 8192",
        Box::new(move |random| {
            map.read(half + random % (half / 8192) * 8192, &mut into);
            black_box(&mut into);
        }),
    ));
    let mut copy = vec![0u8; 8192];
    cases.push((
        "view 8192 and copy_from_slice",
        Box::new(move |random| {
            let view = map
                .view(half + random % (half / 8192) * 8192, 8192)
                .expect("nobody claims this half");
            copy.copy_from_slice(&view);
            black_box(&mut copy);
        }),
    ));
    let mut copy = vec![0u8; 8192];
    cases.push((
        "view 8192, prefetch_for_read, copy_from_slice",
        Box::new(move |random| {
            let at = half + random % (half / 8192) * 8192;
            let view = map.view(at, 8192).expect("nobody claims this half");
            map.prefetch_for_read(at, 8192);
            copy.copy_from_slice(&view);
            black_box(&mut copy);
        }),
    ));
    cases.push((
        "hash 8192",
        Box::new(move |random| {
            black_box(map.hash(half + random % (half / 8192) * 8192, 8192, HASH_SEED));
        }),
    ));
    run(cases);
}

fn run(mut cases: Vec<Case<'_>>) {
    let mut nanoseconds: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..ROUNDS {
        for ((_, call), times) in cases.iter_mut().zip(&mut nanoseconds) {
            let start = Instant::now();
            for _ in 0..CALLS {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                call(state);
            }
            times.push(start.elapsed().as_nanos() as f64 / CALLS as f64);
        }
    }
    for ((name, _), times) in cases.iter().zip(&mut nanoseconds) {
        times.sort_by(f64::total_cmp);
        println!("{:9.1} ns (best {:7.1})  {name}", times[times.len() / 2], times[0]);
    }
}
