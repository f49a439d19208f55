//! What the state of a large home takes of memory: a home of 1 TiB, a tier of 100 GiB, both sparse.
//!
//! `cargo run --release -p tiersmith-store --example state_memory [DIRECTORY]`; the tier is in
//! DIRECTORY (`/dev/shm`), and takes 3.5 GiB of it. The home is in the directory for temporary
//! files.
//!
//! Entries are fabricated where many blocks lie one behind the other. One block in each 4 MiB is
//! written: the worst case, where each block has a map page of its own.

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::error::Error;
use std::fs;

use tiersmith_store::{Guard, Medium, OpenMode, Options, Profile, TierSpec, attach, testing};

const GIB: u64 = 1 << 30;
const BLOCK: u64 = 8192;
/// More than a quarter of the tier stays free, else the background destages.
const DENSE: u64 = 70 * GIB;
const PAGE_COVERS: u64 = 512 * BLOCK;

/// Anonymous memory of this process, in MiB.
fn memory() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no RssAnon")?.parse::<u64>()?
        >> 10)
}

fn main() -> Result<(), Box<dyn Error>> {
    let on = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let (fast, scratch) = (tempfile::tempdir_in(on)?, tempfile::tempdir()?);
    let home = scratch.path().join("db");
    fs::create_dir(&home)?;
    fs::File::create(home.join("large"))?.set_len(1 << 40)?;
    let mut spec = TierSpec::new("fast", fast.path().join("tier"), Medium::Emulated, 100 * GIB);
    spec.preallocate = false;
    let rules = "description = \"state\"\n[default]\nclass = \"data\"\nblock_size = 8192\n";
    let options = || -> Result<Options, Box<dyn Error>> {
        let profile = Some(Profile::parse("state", rules)?);
        Ok(Options { profile, guard: Guard::Door, ..Options::default() })
    };
    println!("{:56} {:>12} {:>12}", "", "process, MiB", "maps, MiB");
    let row = |what: &str, maps: u64| -> Result<(), Box<dyn Error>> {
        println!("{what:56} {:>12} {:>12}", memory()?, maps >> 20);
        Ok(())
    };
    row("before", 0)?;
    let attached = attach(&home, std::slice::from_ref(&spec), options()?)?;
    let maps = |attached: &tiersmith_store::AttachedHome| -> u64 {
        attached.stats().tiers.iter().map(|tier| tier.map_bytes).sum()
    };
    row("attached, nothing in the tier", maps(&attached))?;
    testing::fabricate_entries(&attached.open("dense", OpenMode::CREATE)?, DENSE / BLOCK)?;
    row("70 GiB of blocks, one behind the other", maps(&attached))?;
    let large = attached.open("large", OpenMode::WRITE)?;
    for at in (0..1 << 40).step_by(PAGE_COVERS as usize) {
        large.write(at, &[7; BLOCK as usize])?;
    }
    row("and one block in each 4 MiB of 1 TiB", maps(&attached))?;
    drop((large, attached));
    row("let go", 0)?;
    let attached = attach(&home, &[spec], options()?)?;
    row("attached again", maps(&attached))?;
    Ok(())
}
