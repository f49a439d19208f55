//! Times the simulator: images of a 256 KiB mapping with an 8 KiB block and its pointer pending.
//!
//! `cargo run --release --example images`

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::hint::black_box;
use std::time::Instant;

use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{Choice, Simulator};

const LEN: usize = 256 << 10;
const IMAGES: usize = 50_000;

fn main() {
    let sim = Simulator::new();
    let mapping = sim.mapping(vec![0; LEN], LEN as u64);
    mapping.set_open_range(LEN as u64);
    let start = Instant::now();
    for block in 1..30 {
        mapping.nt_write(block * 8192, &[block as u8; 8192]);
        mapping.store_u64(block * 8, block);
        if block < 29 {
            mapping.persist(block * 8, 8);
        }
    }
    let trace = sim.trace();
    println!("{:9.1} us to record and take {} events", micros(start), trace.len());
    let start = Instant::now();
    let mut player = trace.player();
    player.advance_to(trace.len());
    println!("{:9.1} us to play them, {} words pending", micros(start), player.pending().len());

    let mut buffer = player.buffer();
    let mut choice = Choice::default();
    let mut images = player.images(IMAGES, 1);
    let start = Instant::now();
    while images.next_into(&mut choice) {
        black_box(player.image(&choice, &mut buffer));
    }
    println!("{:9.2} us per image, changed in place", micros(start) / IMAGES as f64);

    let mut images = player.images(IMAGES, 1);
    let start = Instant::now();
    while images.next_into(&mut choice) {
        let image = &player.image(&choice, &mut buffer)[0];
        black_box(Mapping::in_memory(image, LEN as u64).load_u64(0));
    }
    println!("{:9.2} us per image opened with Mapping::in_memory", micros(start) / IMAGES as f64);

    let mut whole = Vec::new();
    let mut images = player.images(IMAGES, 1);
    let start = Instant::now();
    while images.next_into(&mut choice) {
        player.image_into(&choice, &mut whole);
        let sim = Simulator::new();
        black_box(sim.mapping(std::mem::take(&mut whole[0]), LEN as u64).load_u64(0));
    }
    println!(
        "{:9.2} us per image copied whole and opened with Simulator::mapping",
        micros(start) / IMAGES as f64
    );
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1000.0
}
