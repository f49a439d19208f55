//! Reads of blocks that the tier holds: borrowed without a copy, and copied.

use std::hint::black_box;

use tiersmith_pmem::{Access, Mapping, OpenOptions};

use crate::peers::{Plain, PmemBlkLibrary};
use crate::report::Report;
use crate::scratch::Scratch;
use crate::subject::Subject;
use crate::timing::Timing;
use crate::work::{Payload, Walk};
use crate::{BLK, DATA, Failed};

const BLOCK: usize = 8192;
const TIER: u64 = 704 << 20;
const COPIED: &str = "8 KiB read, copied";
const MEMCPY: &str = "memcpy from the mapping";
/// What anything costs that looks a block's place up: the place is a word of a table, as a map
/// entry is.
const LOOKED_UP: &str = "memcpy from a place in a table";
const STORE_COPIED: &str = "store, read";
/// Each read's place depends on the last byte of the read before, as on the way down an index. Else
/// the processor begins with the next copies, whose places it knows, before the first is done; no
/// database reads like that.
const CHAINED: &str = "8 KiB read, copied, one after the other";
const BORROWED: &str = "8 KiB read, borrowed";
const REFERENCE: &str = "store, read_ref";

/// The tables of reads.
pub(crate) fn reads(
    report: &mut Report,
    timing: Timing,
    scratch: &Scratch,
    plain: &Plain,
    library: Option<&PmemBlkLibrary>,
) -> Result<(), Failed> {
    let blocks = (DATA / BLOCK as u64) as u32;
    let mapping = Mapping::open(&scratch.fast("raw"), &OpenOptions::new(Access::Emulated, DATA))?;
    let bytes = mapping.view(0, DATA as usize).ok_or("the raw file cannot be viewed")?;
    let subject = Subject::new(scratch, "read", BLOCK as u32, TIER)?;
    let attached = subject.attach(true)?;
    let file = subject.fill(&attached, "first", DATA)?;
    let pool_path = scratch.fast("pool-read");
    let pool = library.map(|l| l.pool(&pool_path, BLOCK, blocks as usize)).transpose()?;
    // The page tables of the view are filled by looking at every page.
    black_box(bytes.iter().step_by(4096).fold(0u64, |sum, byte| sum + u64::from(*byte)));
    let walk = || Walk::new(0..blocks);
    let (mut walks, mut into) = (std::array::from_fn::<_, 9, _>(|_| walk()), Payload::new(BLOCK));
    let mut places: Vec<u64> = (0..u64::from(blocks)).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut places);
    for _ in 0..report.rounds() {
        let [memcpy, store, memcpy_after, looked_up, store_after, blk, pread, borrow, look] =
            &mut walks;
        timing.one(report, COPIED, MEMCPY, |_| {
            let at = memcpy.next() as usize * BLOCK;
            into.space().copy_from_slice(&bytes[at..at + BLOCK]);
            black_box(into.space());
        });
        timing.one(report, COPIED, STORE_COPIED, |_| {
            let got = file.read(store.next() * BLOCK as u64, into.space());
            black_box(got.expect("a read from the store failed"));
        });
        timing.one(report, CHAINED, MEMCPY, |_| {
            let at = after(memcpy_after.next(), into.space()) as usize * BLOCK;
            into.space().copy_from_slice(&bytes[at..at + BLOCK]);
            black_box(into.space());
        });
        timing.one(report, CHAINED, LOOKED_UP, |_| {
            let at = places[after(looked_up.next(), into.space()) as usize] as usize * BLOCK;
            into.space().copy_from_slice(&bytes[at..at + BLOCK]);
            black_box(into.space());
        });
        timing.one(report, CHAINED, STORE_COPIED, |_| {
            let at = after(store_after.next(), into.space()) * BLOCK as u64;
            black_box(file.read(at, into.space()).expect("a read from the store failed"));
        });
        if let Some(pool) = &pool {
            timing.one(report, COPIED, BLK, |_| pool.read(blk.next() as usize, into.space()));
        }
        timing.one(report, COPIED, &format!("pread, {}", scratch.medium()), |_| {
            plain.read(pread.next() * BLOCK as u64, into.space());
        });
        timing.one(report, BORROWED, REFERENCE, |_| {
            black_box(file.read_ref(borrow.next() * BLOCK as u64).as_deref().map(<[u8]>::as_ptr));
        });
        timing.one(report, BORROWED, "store, read_ref and look", |_| {
            black_box(file.read_ref(look.next() * BLOCK as u64).as_deref().map(|block| block[0]));
        });
    }
    report.ratio_of_medians("copied_read_8k_over_memcpy", (COPIED, STORE_COPIED), (COPIED, MEMCPY));
    let chained = (CHAINED, STORE_COPIED);
    report.ratio_of_medians("chained_read_8k_over_memcpy", chained, (CHAINED, MEMCPY));
    report.ratio_of_medians("chained_read_8k_over_table", chained, (CHAINED, LOOKED_UP));
    if let Some(ns) = report.median(BORROWED, REFERENCE) {
        report.ratio("zero_copy_read_ns", ns);
    }
    report.note(
        "`read_ref and look` also loads the block's first byte, which is seldom in a CPU cache",
    );
    drop((file, attached, pool));
    std::fs::remove_file(subject.member())?;
    Ok(())
}

/// `block`, which the processor knows only when it has the last byte that was read.
#[inline]
fn after(block: u64, read: &[u8]) -> u64 {
    block + black_box(u64::from(read[BLOCK - 1])) * black_box(0)
}
