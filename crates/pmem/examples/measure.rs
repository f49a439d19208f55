//! Times the calls at random slots of a file:
//! `cargo run --release --example measure -- PATH [MIB]`.
//!
//! The file is made and removed. Rounds of all calls alternate, and the median round of each is
//! printed, because a shared machine moves between rounds.

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use tiersmith_pmem::{Access, Mapping, OpenOptions};

const ROUNDS: usize = 15;
const CALLS: usize = 20_000;
const HASH_SEED: u64 = 0x5eed;

/// A name, and the call for one random number.
type Case<'a> = (String, Box<dyn FnMut(u64) + 'a>);

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
    assert!(mapping.claim(0, half as usize));
    let data: Vec<u8> = (0..64 * 1024).map(|byte| (byte * 7) as u8).collect();
    let halves = Halves { map: mapping, half, data: &data };
    let sizes = [512, 4096, 8192];
    let mut cases: Vec<Case<'_>> =
        sizes.into_iter().flat_map(|size| halves.writes_of(size)).collect();
    cases.extend(halves.other_writes());
    cases.extend(halves.views_and_claims());
    cases.extend(halves.reads());
    run(cases);
}

/// What is measured on. The first half is claimed for writes, the second is viewed. Records go to a
/// small part of the first.
#[derive(Clone, Copy)]
struct Halves<'a> {
    map: &'a Mapping,
    /// The bytes of a half.
    half: u64,
    data: &'a [u8],
}

impl<'a> Halves<'a> {
    fn slot(self, random: u64, size: u64) -> u64 {
        random % ((self.half - (1 << 20)) / size) * size + (1 << 20)
    }

    /// A slot of 8192 bytes in the second half.
    fn viewed(self, random: u64) -> u64 {
        self.half + random % (self.half / 8192) * 8192
    }

    fn record(self, random: u64) -> u64 {
        random % (1 << 14) * 64
    }

    fn source(self, random: u64, size: usize) -> &'a [u8] {
        &self.data[(random >> 32) as usize % 8 * 1024..][..size]
    }

    fn write(self, random: u64, size: usize) {
        self.map.nt_write(self.slot(random, size as u64), self.source(random, size));
    }

    fn write_hashed(self, random: u64, size: usize) {
        let (at, source) = (self.slot(random, size as u64), self.source(random, size));
        black_box(self.map.nt_write_hashed(at, source, HASH_SEED));
    }

    fn write_record(self, random: u64) {
        self.map.nt_write(self.record(random >> 20), self.source(random, 64));
    }

    /// Blocks of a size, with and without hash and record.
    fn writes_of(self, size: usize) -> Vec<Case<'a>> {
        vec![
            case(format!("{size} nt_write + fence"), move |random| {
                self.write(random, size);
                self.map.fence();
            }),
            case(format!("{size} nt_write_hashed + fence"), move |random| {
                self.write_hashed(random, size);
                self.map.fence();
            }),
            case(format!("{size} + 64 B record + fence"), move |random| {
                self.write(random, size);
                self.write_record(random);
                self.map.fence();
            }),
            case(format!("{size} hashed + record + fence"), move |random| {
                self.write_hashed(random, size);
                self.write_record(random);
                self.map.fence();
            }),
        ]
    }

    /// Misaligned writes, appends, and words.
    fn other_writes(self) -> Vec<Case<'a>> {
        let map = self.map;
        let mut tail = 1 << 20;
        vec![
            case("8192 nt_write, fence, store_u64, persist", move |random| {
                self.write(random, 8192);
                map.fence();
                map.store_u64(self.record(random >> 20), random);
                map.persist(self.record(random >> 20), 8);
            }),
            case("8192 nt_write + fence with misaligned source", move |random| {
                map.nt_write(self.slot(random, 8192), &self.data[5..][..8192]);
                map.fence();
            }),
            case("512 B append at 8-byte boundaries + fence", move |random| {
                let size = 480 + (random >> 40) as usize % 9 * 8;
                if tail + 1024 > self.half {
                    tail = 1 << 20;
                }
                map.nt_write(tail, &self.data[..size]);
                map.fence();
                tail += size as u64;
            }),
            case("store_u64 + persist, 1 MiB of words", move |random| {
                map.store_u64(self.record(random), random);
                map.persist(self.record(random), 8);
            }),
        ]
    }

    fn views_and_claims(self) -> Vec<Case<'a>> {
        let map = self.map;
        let near = move |random: u64| self.half + random % 512 * 8192;
        vec![
            case("view + release, 8192", move |random| {
                black_box(map.view(self.viewed(random), 8192).is_some());
            }),
            case("view + release, 8192, 4 MiB of slots", move |random| {
                black_box(map.view(near(random), 8192).is_some());
            }),
            case("claim + release, 8192, 4 MiB of slots", move |random| {
                let at = near(random);
                assert!(map.claim(at, 8192));
                map.release(at, 8192);
            }),
        ]
    }

    fn reads(self) -> Vec<Case<'a>> {
        let map = self.map;
        let (mut into, mut copy, mut fetched) = (vec![0u8; 8192], vec![0u8; 8192], vec![0u8; 8192]);
        vec![
            case("read 8192", move |random| {
                map.read(self.viewed(random), &mut into);
                black_box(&mut into);
            }),
            case("view 8192 and copy_from_slice", move |random| {
                let view = map.view(self.viewed(random), 8192).expect("nobody claims this half");
                copy.copy_from_slice(&view);
                black_box(&mut copy);
            }),
            case("view 8192, prefetch_for_read, copy_from_slice", move |random| {
                let at = self.viewed(random);
                let view = map.view(at, 8192).expect("nobody claims this half");
                map.prefetch_for_read(at, 8192);
                fetched.copy_from_slice(&view);
                black_box(&mut fetched);
            }),
            case("hash 8192", move |random| {
                black_box(map.hash(self.viewed(random), 8192, HASH_SEED));
            }),
        ]
    }
}

fn case<'a>(name: impl Into<String>, call: impl FnMut(u64) + 'a) -> Case<'a> {
    (name.into(), Box::new(call))
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
