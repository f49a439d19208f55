//! Golden images of format version 2: a tier written by the release that introduced it must open
//! for ever, and today's program must write the same bytes.
//!
//! `fixtures/store-v2/member0.txt` has every structure but an extent of the file table, which is in
//! `grown.txt`. They hold the lines of 64 bytes that are not zero, each as `offset: bytes` in
//! hexadecimal; the owner note, which holds a process number, is left out.
//! `TIERSMITH_BLESS=1 cargo test --test it golden` writes them anew: once version 2 is released,
//! only together with a new format version.

use crate::crash_support;
#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{Media, Op, Shape, execute_on, expect_err, read_all};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiersmith_pmem::Mapping;
use tiersmith_store::home::SimHome;
use tiersmith_store::{Error, Planted};

const LINE: usize = 64;
const OWNER_NOTE: std::ops::Range<usize> = 8192..12288;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

const SMALL: &str = "store-v2/member0.txt";
/// A file table of more than its first slots.
const GROWN: &str = "store-v2/grown.txt";

/// Work that leaves every structure behind: slots, maps, dirty and clean blocks, records, a drained
/// redo file.
fn work() -> Vec<Op> {
    vec![
        Op::Write { name: "a.db", at: 0, len: 12288 },
        Op::Destage { name: "a.db" },
        Op::Write { name: "a.db", at: 4096, len: 4096 },
        Op::Batch { name: "b.big", blocks: vec![0, 2] },
        Op::Write { name: "r.redo", at: 0, len: 20000 },
        Op::Background,
        Op::Create { name: "c.db" },
        Op::Write { name: "c.db", at: 5000, len: 100 },
        Op::Write { name: "a.db", at: 8192, len: 4096 },
        Op::Write { name: "a.db", at: 8192, len: 4096 },
    ]
}

/// Eight files that are all open: two more than the table has slots.
fn work_on_many_files(attached: &tiersmith_store::AttachedHome) {
    let open: Vec<_> = MANY
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let file = attached.create(name).unwrap();
            file.write(0, &crash_support::pattern(n, 0, 4096)).unwrap();
            file
        })
        .collect();
    drop(open);
}

const MANY: [&str; 8] = ["a.db", "b.db", "c.db", "d.db", "e.db", "f.db", "g.db", "r.redo"];

/// The home after the work, and the image of the tier as the program of today leaves it when it is
/// killed.
fn today() -> (SimHome, Vec<u8>) {
    let files = [("a.db", 20000), ("b.big", 9000), ("r.redo", 0)];
    killed_after(small(), &files, |attached| {
        for (n, op) in work().iter().enumerate() {
            execute_on(attached, n, op).unwrap();
        }
    })
}

/// Of the images' tiers.
fn small() -> Shape {
    Shape { batches: 1, ..Shape::default() }
}

fn with_room_for_an_extent() -> Shape {
    Shape { units: 8, max_units: 8, ..small() }
}

fn killed_after(
    shape: Shape,
    files: &[(&str, usize)],
    work: impl FnOnce(&tiersmith_store::AttachedHome),
) -> (SimHome, Vec<u8>) {
    let spec = shape.spec();
    let home = Arc::new(SimHome::new(None));
    for (name, len) in files {
        home.put(Path::new(name), &crash_support::pattern(1000, 0, *len)).unwrap();
    }
    let member = Arc::new(Mapping::in_memory(&vec![0; spec.size as usize], spec.max_size));
    let attached = shape.attach(home.clone(), vec![media(&member)], Planted::None).unwrap();
    work(&attached);
    let mut image = vec![0; spec.size as usize];
    member.read(0, &mut image);
    image[OWNER_NOTE].fill(0);
    (home.snapshot().home(), image)
}

fn media(member: &Arc<Mapping>) -> Media {
    Media { mapping: member.clone(), device: None, on_flash: None }
}

fn to_text(image: &[u8]) -> String {
    let mut text = String::new();
    for (n, line) in image.chunks(LINE).enumerate() {
        if line.iter().any(|b| *b != 0) {
            write!(text, "{:06x}: ", n * LINE).unwrap();
            line.iter().for_each(|b| write!(text, "{b:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

fn from_text(text: &str, len: usize) -> Vec<u8> {
    let mut image = vec![0; len];
    for line in text.lines() {
        let (at, bytes) = line.split_once(": ").unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for n in 0..LINE {
            image[at + n] = u8::from_str_radix(&bytes[n * 2..n * 2 + 2], 16).unwrap();
        }
    }
    image
}

fn golden(name: &str) -> (SimHome, Vec<u8>) {
    let (home, image) = match name {
        GROWN => killed_after(with_room_for_an_extent(), &[], work_on_many_files),
        _ => today(),
    };
    if std::env::var_os("TIERSMITH_BLESS").is_some() {
        std::fs::write(fixture(name), to_text(&image)).unwrap();
    }
    let text = std::fs::read_to_string(fixture(name)).unwrap();
    let golden = from_text(&text, image.len());
    (home, golden)
}

fn attach(
    home: &Arc<SimHome>,
    image: &[u8],
) -> tiersmith_store::Result<tiersmith_store::AttachedHome> {
    attach_as(small(), home, image)
}

fn attach_as(
    shape: Shape,
    home: &Arc<SimHome>,
    image: &[u8],
) -> tiersmith_store::Result<tiersmith_store::AttachedHome> {
    let member = Arc::new(Mapping::in_memory(image, shape.spec().max_size));
    shape.attach(home.clone(), vec![media(&member)], Planted::None)
}

#[test]
fn a_tier_of_format_version_2_opens_with_all_its_blocks() {
    let (home, image) = golden(SMALL);
    let home = Arc::new(home);
    let attached = attach(&home, &image).unwrap();
    let seen = read_all(&attached, &home).unwrap();
    let a = crash_support::pattern;
    assert_eq!(seen["a.db"].len(), 20000);
    assert_eq!(seen["a.db"][..4096], a(0, 0, 4096));
    assert_eq!(seen["a.db"][4096..8192], a(2, 4096, 4096));
    assert_eq!(seen["a.db"][8192..12288], a(9, 8192, 4096));
    assert_eq!(seen["a.db"][12288..], a(1000, 12288, 20000 - 12288));
    assert_eq!(seen["b.big"][16384..24576], a(3, 16384, 8192));
    assert_eq!(seen["r.redo"][..], a(4, 0, 20000));
    assert_eq!(seen["c.db"][5000..], a(7, 5000, 100));
}

#[test]
fn the_program_of_today_writes_the_bytes_of_format_version_2() {
    let (_, golden) = golden(SMALL);
    let (_, image) = today();
    let differs = golden.iter().zip(&image).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the format changed at this byte without a new format version");
}

#[test]
fn a_damaged_image_of_format_version_2_names_the_place() {
    let (home, mut image) = golden(SMALL);
    // The first map entry of the first map page.
    image[32768] ^= 1;
    let error = expect_err(attach(&Arc::new(home), &image));
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("32768") && said.contains("map entry of block 0"), "{said}");
}

#[test]
fn a_tier_whose_file_table_has_grown_opens_with_all_its_files() {
    let (home, image) = golden(GROWN);
    let version = u32::from_le_bytes(image[8..12].try_into().unwrap());
    assert_eq!((version, image[1264]), (2, 1), "version 2 with one extent");
    let home = Arc::new(home);
    let attached = attach_as(with_room_for_an_extent(), &home, &image).unwrap();
    assert_eq!(attached.stats().tiers[0].files, 8);
    let seen = read_all(&attached, &home).unwrap();
    for (n, name) in MANY.iter().enumerate() {
        assert_eq!(seen[name][..], crash_support::pattern(n, 0, 4096), "{name}");
    }
    attached.detach().unwrap();
}

#[test]
fn the_program_of_today_writes_the_bytes_of_a_grown_file_table() {
    let (_, golden) = golden(GROWN);
    let (_, image) = killed_after(with_room_for_an_extent(), &[], work_on_many_files);
    let differs = golden.iter().zip(&image).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the format changed at this byte without a new format version");
}

#[test]
fn a_damaged_slot_of_an_extent_is_refused_and_named_by_both_readers() {
    let (home, mut image) = golden(GROWN);
    let unit = u64::from_le_bytes(image[1272..1280].try_into().unwrap());
    // The units begin behind one for the superblocks and the first slots.
    let extent = (crash_support::UNIT * (unit + 1)) as usize;
    image[extent + 20] ^= 1;
    let report = tiersmith_store::check::check_images(&[&image], None);
    let found = report.findings.iter().find(|f| f.invariant == 4).expect("the check finds it");
    assert_eq!((found.place.member, found.place.offset), (Some(0), Some(extent as u64 + 16)));
    let error = expect_err(attach_as(with_room_for_an_extent(), &Arc::new(home), &image));
    let said = error.to_string();
    let place = (extent + 16).to_string();
    assert!(matches!(error, Error::Damaged { .. }), "{said}");
    assert!(said.contains("file slot 6") && said.contains(&place), "{said}");
}
