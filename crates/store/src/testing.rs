//! For tests and benchmarks: attaching simulated homes and media.

use crate::address::{BlockIndex, FRAME};
use crate::api::{AttachedHome, File};
use crate::attach::{LentDirOf, Options, TierSpec, attach_mapped};
use crate::error::{Error, Result};
use crate::format::entry::{Entry, LEAF_BLOCKS, NO_SUM, Place, seal};
use crate::home::{Home, RealHome};
use crate::ledger::map::Kept;
use crate::medium::{Backing, Mapped, Medium, OnSectors, TAKES_TIME};
use crate::plain::LentDir;
use crate::plain::in_home::InHome;
use crate::profile::{FileClass, Profile};
use crate::tier::Member;
use crate::tier::alloc::Purpose;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tiersmith_block::Device;
use tiersmith_pmem::Mapping;

/// Opens the device that has the blocks of a member, at every attach.
pub type OpenDevice = Arc<dyn Fn() -> Device + Send + Sync>;

/// A member that exists already.
#[derive(Clone)]
pub struct TestMember {
    /// Its metadata, and its blocks when they are not on a device.
    pub mapping: Arc<Mapping>,
    /// What has its blocks, as long as the mapping.
    pub blocks: Option<OpenDevice>,
    /// All of it is there, and the mapping is not used: the device may grow to so many bytes.
    pub on_flash: Option<u64>,
}

impl From<Arc<Mapping>> for TestMember {
    fn from(mapping: Arc<Mapping>) -> Self {
        Self { mapping, blocks: None, on_flash: None }
    }
}

impl TestMember {
    /// One on flash, on a simulated device that may grow to `max_len` bytes.
    #[must_use]
    pub fn on_flash(device: tiersmith_pmem::sim::Device, max_len: u64) -> Self {
        let open: OpenDevice = Arc::new(move || Device::simulated(device.clone()));
        let mapping = Arc::new(Mapping::in_memory(&[0; FRAME], 0));
        Self { mapping, blocks: Some(open), on_flash: Some(max_len) }
    }

    fn backing(self, kind: Medium) -> Result<Backing> {
        let mapped = Mapped::new(self.mapping, kind);
        Ok(match (self.blocks, self.on_flash) {
            (None, _) => Backing::Mapped(mapped),
            (Some(open), None) => Backing::OnSectors(Box::new(OnSectors::new(mapped, open()))),
            (Some(open), Some(max_len)) => {
                Backing::OnSectors(Box::new(OnSectors::with_log(open(), max_len)?))
            }
        })
    }
}

/// [`crate::attach()`] for a home and media that exist already, the simulated ones above all.
/// `tiers`: each with its members.
///
/// # Errors
/// As [`crate::attach()`].
///
/// # Durability
/// As [`crate::attach()`].
pub fn attach_simulated(
    home: Arc<dyn Home>,
    tiers: Vec<(TierSpec, Vec<impl Into<TestMember>>)>,
    profile: &Profile,
    options: Options,
) -> Result<AttachedHome> {
    attach_in(home, tiers, &|_, _| Ok(None), profile, options)
}

fn attach_in(
    home: Arc<dyn Home>,
    tiers: Vec<(TierSpec, Vec<impl Into<TestMember>>)>,
    lent_dir: &LentDirOf<'_>,
    profile: &Profile,
    options: Options,
) -> Result<AttachedHome> {
    options.check()?;
    let mapped = tiers
        .into_iter()
        .map(|(spec, members): (TierSpec, Vec<_>)| {
            let members = members
                .into_iter()
                .zip(&spec.members)
                .map(|(member, path)| {
                    Ok(Member { medium: member.into().backing(spec.medium)?, path: path.clone() })
                })
                .collect::<Result<_>>()?;
            Ok((spec, members))
        })
        .collect::<Result<_>>()?;
    attach_mapped(
        home,
        Path::new("/simulated"),
        mapped,
        lent_dir,
        profile.clone(),
        options,
        Instant::now(),
    )
}

/// [`attach_simulated`] with another simulated home as the directory of plain files, so that files
/// can be lent.
///
/// # Errors
/// As [`crate::attach()`].
///
/// # Durability
/// As [`crate::attach()`].
pub fn attach_simulated_lending(
    home: Arc<dyn Home>,
    lent: Arc<dyn Home>,
    tiers: Vec<(TierSpec, Vec<impl Into<TestMember>>)>,
    profile: &Profile,
    options: Options,
) -> Result<AttachedHome> {
    // A directory belongs to one tier: another one would take its files for nobody's.
    let dir = |spec: &TierSpec, _| -> Result<Option<Arc<dyn LentDir>>> {
        Ok(spec.holds_redo.then(|| Arc::new(InHome(lent.clone())) as Arc<dyn LentDir>))
    };
    attach_in(home, tiers, &dir, profile, options)
}

/// [`attach_simulated`] for a real directory: simulated media under a door that programs use, a
/// mount above all.
///
/// # Errors
/// As [`crate::attach()`].
///
/// # Durability
/// As [`crate::attach()`].
pub fn attach_simulated_at(
    home: &Path,
    tiers: Vec<(TierSpec, Vec<impl Into<TestMember>>)>,
    profile: &Profile,
    options: Options,
) -> Result<AttachedHome> {
    let refused = |reason: String| Error::Home { path: home.to_path_buf(), reason };
    let real = RealHome::open(home).map_err(|e| refused(e.to_string()))?;
    real.lock().map_err(|e| refused(e.to_string()))?;
    attach_simulated(Arc::new(real), tiers, profile, options)
}

/// Runs `attach`; the media that it attaches are written as those are that take their time, without
/// a lock that spins. Each write takes at least `write_takes`, in which other threads run.
pub fn apart<T>(write_takes: Duration, attach: impl FnOnce() -> T) -> T {
    TAKES_TIME.set(Some(write_takes));
    let attached = attach();
    TAKES_TIME.set(None);
    attached
}

/// Writes to a lent file as the kernel does.
///
/// # Errors
/// What the simulated file system says.
///
/// # Durability
/// Durable on return.
pub fn kernel_write(lent: &crate::LentFile, at: u64, data: &[u8]) -> std::io::Result<()> {
    lent.plain.file.write_at(at, data)?;
    lent.plain.file.sync()
}

/// Where every frame of a home's tiers is: free, in use by blocks and map pages, and all of them.
/// What lanes hold ready is handed back first, so the first two must add up to the third.
pub fn accounting(home: &AttachedHome) -> (u64, u64, u64) {
    for tier in &home.store.tiers {
        tier.reclaim_lanes();
    }
    let frame = crate::address::FRAME as u64;
    home.stats().tiers.iter().fold((0, 0, 0), |sum, t| {
        let used = (t.dirty_bytes + t.cached_bytes + t.map_bytes + t.table_bytes) / frame;
        (sum.0 + t.free_bytes / frame, sum.1 + used, sum.2 + t.usable_bytes / frame)
    })
}

/// Forgets which frames from `data_start` on the last attach had claimed: what the end of a process
/// does.
pub fn forget_claims(members: &[Arc<Mapping>], data_start: u64) {
    let frame = crate::address::FRAME;
    for mapping in members {
        for at in (data_start..mapping.len()).step_by(frame) {
            if !mapping.is_free(at, frame) {
                mapping.release(at, frame);
            }
        }
    }
}

/// Lets two blocks of a data file change places on the medium, each with its checksum: entries and
/// everything else stay. What a medium does that gives one for the other.
///
/// # Errors
/// [`Error::Invalid`] when the tier has not both; what the medium says.
///
/// # Durability
/// Durable on return.
pub fn swap_at_rest(file: &File, one: u64, other: u64) -> Result<()> {
    let state = &file.state;
    let absent = || state.invalid("swap blocks of", "the tier has not both of them");
    let placed = state.placed.as_ref().ok_or_else(absent)?;
    let tier = &placed.tier;
    tier.quiesce_lanes();
    let mut found = Vec::new();
    for block in [one, other] {
        let spot = placed.spot(BlockIndex(block)).ok_or_else(absent)?;
        let entry = spot.entry();
        let frame = entry.held_frame().ok_or_else(absent)?;
        let mut bytes = vec![0; placed.block_size.bytes()];
        tier.read_block(frame, 0, &mut bytes)?;
        let sum = tier.sum_of(spot, entry).ok_or_else(absent)?;
        found.push((spot, frame, bytes, sum));
    }
    for (n, (spot, frame, ..)) in found.iter().enumerate() {
        let (_, _, bytes, sum) = &found[1 - n];
        tier.let_go(*spot);
        assert!(tier.latch(*frame, placed.block_size.frames()), "BUG: somebody reads it");
        let ticket = tier.write_part(*frame, 0, bytes)?;
        tier.wait_for(*frame, ticket)?;
        tier.unlatch(*frame, placed.block_size.frames());
        tier.store_sum(spot.at().ok_or_else(absent)?, *sum);
    }
    tier.fence();
    Ok(())
}

/// Links the first `blocks` blocks of an empty data file to free pieces of the tier, as if they had
/// been written, without writing them: maps of many GiB in a moment. What the blocks hold is
/// whatever the pieces held.
///
/// # Errors
/// [`Error::Invalid`] when the file is not an empty data file, [`Error::TierFull`] when the tier
/// has too few pieces.
///
/// # Durability
/// The entries and the size are durable on return.
pub fn fabricate_entries(file: &File, blocks: u64) -> Result<()> {
    let state = &file.state;
    let placed = match &state.placed {
        Some(placed) if placed.class == FileClass::Data && placed.size() == 0 => placed,
        _ => return Err(state.invalid("fabricate entries of", "it is not an empty data file")),
    };
    let tier = &placed.tier;
    let purpose = Purpose::Blocks(placed.block_size);
    let full = || Error::TierFull {
        tier: tier.name.clone(),
        free_bytes: tier.allocator.free_frames() * FRAME as u64,
        reason: format!("{blocks} blocks were to be fabricated"),
    };
    for first in (0..blocks).step_by(LEAF_BLOCKS as usize) {
        let mut kept = Kept::default();
        if !placed.make_leaf(BlockIndex(first), &mut kept)? {
            return Err(full());
        }
        let (leaf, _) = placed.map.leaf(BlockIndex(first)).expect("BUG: make_leaf has made it");
        let mut pieces = Vec::new();
        tier.allocator.take(purpose, LEAF_BLOCKS.min(blocks - first) as usize, &mut pieces);
        if (pieces.len() as u64) < LEAF_BLOCKS.min(blocks - first) {
            return Err(full());
        }
        let mut words = Vec::with_capacity(FRAME);
        for (index, piece) in pieces.iter().enumerate() {
            leaf.set(index, Entry::dirty(*piece));
            let place = Place::Block(first + index as u64);
            words.extend_from_slice(
                &seal(tier.seed, placed.id, place, Entry::dirty(*piece)).to_le_bytes(),
            );
            words.extend_from_slice(&NO_SUM.to_le_bytes());
        }
        let at = leaf.word_at(0).expect("BUG: its page is kept");
        tier.write_meta(at, &words);
    }
    let mut meta = placed.meta.lock();
    meta.line.size = blocks * placed.block_size.bytes() as u64;
    placed.persist_line(&mut meta);
    placed.size.store(meta.line.size, Ordering::Release);
    Ok(())
}
