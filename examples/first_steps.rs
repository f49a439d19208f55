//! First steps with the store: attach a tier to a directory, write, be interrupted, attach again,
//! detach.
//!
//! `cargo run -p tiersmith-store --example first_steps`. A test runs it too
//! (`crates/store/tests/it/examples.rs`). It works in a temporary directory; the tier is an
//! ordinary file that stands for persistent memory.

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::path::Path;
use tiersmith_store::{Medium, OpenMode, Options, Profile, TierSpec, attach};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = tempfile::tempdir()?;
    run(place.path())
}

/// The steps, in a directory of their own.
pub(crate) fn run(place: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let home = place.join("data");
    std::fs::create_dir_all(home.join("pg_wal"))?;
    std::fs::create_dir_all(home.join("base/1"))?;
    let tier = TierSpec::new("fast", place.join("fast.tier"), Medium::Emulated, 16 << 20);
    // Which files are redo, which are data: the built-in profile knows PostgreSQL's names.
    let options = Options { profile: Some(Profile::named("postgres")?), ..Options::default() };

    let attached = attach(&home, std::slice::from_ref(&tier), options.clone())?;
    println!("{}", attached.stats().tiers[0].media[0]);

    // A data file: each block is one whole version, durable when the call returns.
    let table = attached.open("base/1/16384", OpenMode::CREATE)?;
    table.write(0, &[1; 8192])?;
    // Two blocks, all or nothing.
    table.write_batch(&[(8192, &[2; 8192]), (16384, &[3; 8192])])?;
    // A reference into the tier: no copy.
    let block = table.read_ref(8192).ok_or("the block is in the tier")?;
    assert_eq!(block[..], [2; 8192]);
    // The reference keeps its version; later writes go elsewhere.
    table.write(8192, &[4; 8192])?;
    assert_eq!(block[..], [2; 8192]);
    drop(block);

    // A redo file: written in place, 512 bytes cost 512 bytes.
    let wal = attached.open("pg_wal/000000010000000000000001", OpenMode::CREATE)?;
    wal.write(0, &[5; 512])?;

    // The program ends here without detaching. The directory at its own path is only a note now:
    // nobody can open half a database.
    drop((table, wal, attached));
    assert!(home.join("README-TIERSMITH.txt").exists());

    let attached = attach(&home, &[tier], options)?;
    println!("{}", attached.stats().recovery);
    let table = attached.open("base/1/16384", OpenMode::WRITE)?;
    let mut block = [0; 8192];
    table.read(8192, &mut block)?;
    assert_eq!(block, [4; 8192]);
    println!("dirty and clean blocks in the tier: {:?}", table.blocks_in_tier());

    // Everything goes home; a plain directory is left.
    drop(table);
    attached.detach()?;
    let plain = std::fs::read(home.join("base/1/16384"))?;
    assert_eq!((plain[0], plain[8192], plain[16384], plain.len()), (1, 4, 3, 24576));
    println!("detached: {} bytes in {}", plain.len(), home.display());
    Ok(())
}
