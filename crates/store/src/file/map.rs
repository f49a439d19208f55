//! The block map of one file in DRAM, where readers look; the map pages on the tier follow it.
//!
//! The tree is fixed: leaf 0 hangs on the slot, leaves 1..512 on middle page 0, further ones on middle pages of the top page
//! ([`crate::format::entry`]). A leaf once there stays until the file goes away, so lookups take no lock.
//!
//! **Invariant**: an entry changes only under the lane's lock of its block; reading it needs no lock.

use crate::address::{BlockIndex, Frame, WordAt};
use crate::error::Result;
use crate::format::entry::{Entry, PAGE_WORDS, Place, seal};
use crate::planted::Planted;
use crate::tier::Tier;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const FANOUT: usize = PAGE_WORDS as usize;

/// 512 entries and what eviction and destaging need to know about them.
pub(crate) struct Leaf {
    /// The first word of the map page.
    at: WordAt,
    entries: Box<[AtomicU64]>,
    /// A bit per block, set by reads and cleared by the eviction hand.
    touched: [AtomicU64; FANOUT / 64],
    dirty: AtomicU32,
    cached: AtomicU32,
}

impl Leaf {
    pub(crate) fn new(at: WordAt) -> Self {
        Self {
            at,
            entries: (0..FANOUT).map(|_| AtomicU64::new(0)).collect(),
            touched: Default::default(),
            dirty: AtomicU32::new(0),
            cached: AtomicU32::new(0),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Entry {
        Entry::from_raw(self.entries[index].load(Ordering::Acquire))
    }

    /// A hint that the entry will be switched soon.
    pub(crate) fn prefetch(&self, index: usize) {
        tiersmith_pmem::prefetch_for_write(&self.entries[index]);
    }

    /// Switches the entry that readers see. Only under the lane's lock.
    pub(crate) fn set(&self, index: usize, new: Entry) {
        use crate::format::entry::State;
        // Not a swap: the lane's lock keeps others out, and a locked instruction would wait here for what the fence sent on its way.
        let entry = &self.entries[index];
        let old = Entry::from_raw(entry.load(Ordering::Relaxed));
        entry.store(new.raw(), Ordering::Release);
        let (was, is) = (old.state(), new.state());
        if was == is {
            return;
        }
        match was {
            State::Dirty => self.dirty.fetch_sub(1, Ordering::Relaxed),
            State::Cached => self.cached.fetch_sub(1, Ordering::Relaxed),
            State::Home => 0,
        };
        match is {
            State::Dirty => self.dirty.fetch_add(1, Ordering::Relaxed),
            State::Cached => self.cached.fetch_add(1, Ordering::Relaxed),
            State::Home => 0,
        };
    }

    pub(crate) fn word_at(&self, index: usize) -> WordAt {
        self.at.plus(index as u64 * 8)
    }

    pub(crate) fn dirty(&self) -> u32 {
        self.dirty.load(Ordering::Relaxed)
    }

    pub(crate) fn cached(&self) -> u32 {
        self.cached.load(Ordering::Relaxed)
    }

    /// Remembers that the block was read. Reads before it writes, so that a hot block costs no shared store.
    pub(crate) fn touch(&self, index: usize) {
        let (word, bit) = (&self.touched[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether the block was read since the last call.
    pub(crate) fn untouch(&self, index: usize) -> bool {
        let (word, bit) = (&self.touched[index / 64], 1 << (index % 64));
        word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }
}

struct Middle {
    at: WordAt,
    leaves: Box<[OnceLock<Leaf>]>,
}

impl Middle {
    fn new(at: WordAt) -> Self {
        Self { at, leaves: (0..FANOUT).map(|_| OnceLock::new()).collect() }
    }
}

struct Rest {
    middles: Box<[OnceLock<Middle>]>,
}

/// The pages of a map, kept for freeing them, and the top page's place.
#[derive(Default)]
struct Pages {
    all: Vec<Frame>,
    top: Option<WordAt>,
}

/// One file's block map.
#[derive(Default)]
pub(crate) struct FileMap {
    first: OnceLock<Leaf>,
    rest: OnceLock<Rest>,
    pages: Mutex<Pages>,
}

impl FileMap {
    /// The leaf of a block and the block's index in it; `None` while the file has no such leaf (the block is `Home`).
    #[inline]
    pub(crate) fn leaf(&self, block: BlockIndex) -> Option<(&Leaf, usize)> {
        let (leaf, index) = (block.0 / PAGE_WORDS, (block.0 % PAGE_WORDS) as usize);
        if leaf == 0 {
            return self.first.get().map(|l| (l, index));
        }
        let middle = self.rest.get()?.middles.get((leaf / PAGE_WORDS) as usize)?.get()?;
        middle.leaves[(leaf % PAGE_WORDS) as usize].get().map(|l| (l, index))
    }

    /// The entry of a block.
    pub(crate) fn get(&self, block: BlockIndex) -> Entry {
        self.leaf(block).map_or(Entry::HOME, |(leaf, index)| leaf.get(index))
    }

    /// Calls `each` for every leaf with its number, in order.
    pub(crate) fn for_each_leaf(&self, mut each: impl FnMut(u64, &Leaf)) {
        if let Some(leaf) = self.first.get() {
            each(0, leaf);
        }
        let Some(rest) = self.rest.get() else { return };
        for (m, middle) in rest.middles.iter().enumerate() {
            let Some(middle) = middle.get() else { continue };
            for (n, leaf) in middle.leaves.iter().enumerate() {
                if let Some(leaf) = leaf.get() {
                    each(m as u64 * PAGE_WORDS + n as u64, leaf);
                }
            }
        }
    }

    /// All map pages, taken out for freeing.
    pub(crate) fn take_pages(&self) -> Vec<Frame> {
        std::mem::take(&mut self.pages.lock().all)
    }

    pub(crate) fn page_count(&self) -> usize {
        self.pages.lock().all.len()
    }

    /// Dirty and cached blocks.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let mut counts = (0, 0);
        self.for_each_leaf(|_, leaf| {
            counts.0 += u64::from(leaf.dirty());
            counts.1 += u64::from(leaf.cached());
        });
        counts
    }

    // --- recovery fills the tree from the pages it has read ---

    pub(crate) fn adopt_page(&self, page: Frame) {
        self.pages.lock().all.push(page);
    }

    pub(crate) fn adopt_top(&self, at: WordAt) {
        self.pages.lock().top = Some(at);
    }

    fn rest(&self) -> &Rest {
        self.rest.get_or_init(|| Rest { middles: (0..FANOUT).map(|_| OnceLock::new()).collect() })
    }

    pub(crate) fn adopt_middle(&self, number: u64, at: WordAt) {
        self.rest().middles[number as usize].get_or_init(|| Middle::new(at));
    }

    /// Puts a leaf in; its middle page has been adopted before.
    pub(crate) fn adopt_leaf(&self, number: u64, leaf: Leaf) -> &Leaf {
        if number == 0 {
            return self.first.get_or_init(|| leaf);
        }
        let middle = self.rest().middles[(number / PAGE_WORDS) as usize]
            .get()
            .expect("BUG: a leaf is adopted after its middle page");
        middle.leaves[(number % PAGE_WORDS) as usize].get_or_init(|| leaf)
    }

    /// Makes the leaf of `block` (and the pages above it); the file's root words begin at `root`.
    /// `Ok(false)` when the tier has no free frame.
    ///
    /// # Durability
    /// A new page is whole and durable before the 8-byte pointer to it is switched; both are durable on return.
    pub(crate) fn make_leaf(&self, tier: &Tier, file: u64, root: WordAt, block: BlockIndex) -> Result<bool> {
        if self.leaf(block).is_some() {
            return Ok(true);
        }
        let mut pages = self.pages.lock();
        if self.leaf(block).is_some() {
            return Ok(true);
        }
        let number = block.0 / PAGE_WORDS;
        let pointer = if number == 0 {
            root
        } else {
            let middle = number / PAGE_WORDS;
            if self.rest().middles[middle as usize].get().is_none() {
                let pointer = if middle == 0 {
                    root.plus(8)
                } else {
                    let top = match pages.top {
                        Some(top) => top,
                        None => {
                            let Some(top) = new_page(tier, file, Place::Top, root.plus(16), &mut pages.all)
                            else {
                                return Ok(false);
                            };
                            pages.top = Some(top);
                            top
                        }
                    };
                    top.plus(middle * 8)
                };
                let Some(at) = new_page(tier, file, Place::Middle(middle), pointer, &mut pages.all) else {
                    return Ok(false);
                };
                self.adopt_middle(middle, at);
            }
            let middle =
                self.rest().middles[middle as usize].get().expect("BUG: the middle page was just adopted");
            middle.at.plus(number % PAGE_WORDS * 8)
        };
        let Some(at) = new_page(tier, file, Place::Leaf(number), pointer, &mut pages.all) else {
            return Ok(false);
        };
        self.adopt_leaf(number, Leaf::new(at));
        // Not before: who waits for it looks for the leaf then, and would link a second page over this one.
        drop(pages);
        Ok(true)
    }
}

/// Fills a free frame with sealed empty words and links it at `pointer`.
fn new_page(tier: &Tier, file: u64, place: Place, pointer: WordAt, pages: &mut Vec<Frame>) -> Option<WordAt> {
    let frame = tier.take_page()?;
    let mut bytes = Vec::with_capacity(FANOUT * 8);
    for n in 0..PAGE_WORDS {
        let child = match place {
            Place::Leaf(leaf) => Place::Block(leaf * PAGE_WORDS + n),
            Place::Middle(middle) => Place::Leaf(middle * PAGE_WORDS + n),
            _ => Place::Middle(n),
        };
        bytes.extend_from_slice(&seal(tier.seed, file, child, Entry::HOME).to_le_bytes());
    }
    let at = tier.page_at(frame);
    let word = seal(tier.seed, file, place, Entry::page(frame));
    if tier.planted.is(Planted::MapPageLinkedFirst) {
        tier.store_word(pointer, word);
        tier.fence();
    }
    tier.mapping(at.member()).nt_write(at.offset(), &bytes);
    tier.fence();
    tier.store_word(pointer, word);
    // Before others find the page: what they then write into it they fence for themselves, and not
    // this link.
    if !tier.planted.is(Planted::MapPageShownEarly) {
        tier.fence();
    }
    pages.push(frame);
    Some(at)
}
