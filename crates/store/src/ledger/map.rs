//! The block map of one file in DRAM, where readers look; the map pages on the tier follow it.
//!
//! The tree is fixed: leaf 0 hangs on the slot, leaves 1..512 on middle page 0, further ones on
//! middle pages of the top page ([`crate::format::entry`]). A leaf once there stays until the file
//! goes away, so lookups take no lock.
//!
//! Its page on the tier may go before: one whose blocks are all `Home` says nothing that home does
//! not, and is given back when others need the frame. It is made again for the next entry.
//!
//! # A page that is given back, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | in DRAM the leaf has no page any more; each lane is locked once, so that whoever still saw the page has set its entry | the page, all `Home` |
//! | 2 | if an entry was set meanwhile the leaf gets its page back, else the pointer to the page becomes empty; then a fence | the page or none: all `Home` either way |
//! | 3 | the frame is free | none |
//!
//! No record speaks of a block of such a page: what makes an entry `Home` empties them first
//! ([`crate::ledger::lanes`]).
//!
//! # Invariants
//! 1. An entry changes only under the lane's lock of its block; reading it needs no lock.
//! 2. A leaf with an entry that is not `Home` has a page. Whoever sets one looks for the page under
//!    that lock ([`Leaf::word_at`]) and begins again if there is none. Between steps 1 and 2 this
//!    does not hold: who has `moving` does not meet that, and who has not waits
//!    ([`FileMap::wait_for_pages`]).
//! 3. Pages are linked and unlinked under `pages`, which is taken after `moving` and before a lane.

use super::Ledger;
use crate::address::{BlockIndex, FRAME, Frame, WordAt};
use crate::cache::policy::Chosen;
use crate::error::Result;
use crate::format::entry::{Entry, LEAF_BLOCKS, LEAF_SLOT, NO_SUM, PAGE_WORDS, Place, seal};
use crate::medium::prepare_word;
use crate::planted::Planted;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::OnceLock;

const FANOUT: usize = PAGE_WORDS as usize;

/// Where a map page begins on the tier, if there is one.
struct PageAt(AtomicU64);

impl PageAt {
    const NONE: u64 = u64::MAX;

    fn new(at: WordAt) -> Self {
        Self(AtomicU64::new(at.0))
    }

    fn get(&self) -> Option<WordAt> {
        let at = self.0.load(Ordering::Acquire);
        (at != Self::NONE).then_some(WordAt(at))
    }

    fn set(&self, at: WordAt) {
        self.0.store(at.0, Ordering::Release);
    }

    fn take(&self) -> Option<WordAt> {
        let at = self.get();
        self.0.store(Self::NONE, Ordering::Release);
        at
    }
}

/// 256 entries and what eviction and destaging need to know about them. The entries lie in it and
/// not elsewhere: a lookup that finds nothing in the CPU caches then waits for memory once.
pub(crate) struct Leaf {
    page: PageAt,
    /// Writers that had the page made, and have not set their entries yet ([`Kept`]).
    kept: AtomicU32,
    entries: [AtomicU64; LEAF_BLOCKS as usize],
    /// What the eviction policy knows of the blocks.
    pub(crate) policy: Chosen,
    dirty: AtomicU32,
    cached: AtomicU32,
}

impl Leaf {
    pub(crate) fn new(at: WordAt) -> Self {
        Self {
            page: PageAt::new(at),
            kept: AtomicU32::new(0),
            entries: std::array::from_fn(|_| AtomicU64::new(0)),
            policy: Chosen::default(),
            dirty: AtomicU32::new(0),
            cached: AtomicU32::new(0),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Entry {
        // Who looks at a whole leaf would give others 256 turns, and the scenes have two blocks.
        #[cfg(feature = "interleavings")]
        if index >= 8 {
            return Entry::from_raw(self.entries[index].peek());
        }
        Entry::from_raw(self.entries[index].load(Ordering::Acquire))
    }

    /// A hint that the entry will be switched soon.
    pub(crate) fn prepare(&self, index: usize) {
        prepare_word(&self.entries[index]);
    }

    /// Switches the entry that readers see. Only under the lane's lock.
    pub(crate) fn set(&self, index: usize, new: Entry) {
        use crate::format::entry::State;
        // Not a swap: the lane's lock keeps others out, and a locked instruction would wait here
        // for what the fence sent on its way.
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

    /// Where the entry is on the tier; `None` while the leaf has no page. It stays as it is under
    /// the lane's lock, and while an entry of the leaf is not `Home`.
    #[inline]
    pub(crate) fn word_at(&self, index: usize) -> Option<WordAt> {
        self.page.get().map(|page| page.plus(index as u64 * LEAF_SLOT))
    }

    /// Whether the leaf has a page, at the moment.
    pub(crate) fn has_page(&self) -> bool {
        self.page.get().is_some()
    }

    /// Whether its page says nothing that home does not.
    fn is_spare(&self) -> bool {
        self.dirty() + self.cached() == 0 && self.kept.load(Ordering::Acquire) == 0
    }

    pub(crate) fn dirty(&self) -> u32 {
        self.dirty.load(Ordering::Relaxed)
    }

    pub(crate) fn cached(&self) -> u32 {
        self.cached.load(Ordering::Relaxed)
    }
}

/// Leaves whose pages stay until this goes: those that a writer had made for entries that it has
/// not set yet. Else one who makes room, perhaps the writer itself, would take the page away again,
/// for ever.
#[derive(Default)]
pub(crate) struct Kept<'a> {
    leaves: SmallVec<[&'a Leaf; 2]>,
    /// Pages that were there before are kept too.
    all: bool,
}

impl<'a> Kept<'a> {
    /// For the second try of a writer that has lost a page: from now on every page that it asks for
    /// is kept.
    pub(crate) fn keep_all(&mut self) {
        self.all = true;
    }

    /// The caller holds the map's `pages`.
    fn keep(&mut self, leaf: &'a Leaf) {
        if !self.leaves.iter().any(|kept| std::ptr::eq(*kept, leaf)) {
            leaf.kept.fetch_add(1, Ordering::AcqRel);
            self.leaves.push(leaf);
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        for leaf in &self.leaves {
            leaf.kept.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

struct Middle {
    page: PageAt,
    leaves: Box<[OnceLock<Box<Leaf>>]>,
}

impl Middle {
    fn new(at: WordAt) -> Self {
        Self { page: PageAt::new(at), leaves: (0..FANOUT).map(|_| OnceLock::new()).collect() }
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
    first: OnceLock<Box<Leaf>>,
    rest: OnceLock<Rest>,
    pages: Mutex<Pages>,
    /// Counts entries that became `Home`: who read home without a lock compares it before and
    /// after.
    pub(crate) evictions: AtomicU64,
    /// How many are making entries `Home` at the moment: what is `Home` already need not be so
    /// durably.
    pub(crate) leaving: AtomicU64,
}

impl FileMap {
    /// The leaf of a block and the block's index in it; `None` while the file has no such leaf (the
    /// block is `Home`). The leaf may have no page.
    #[inline]
    pub(crate) fn leaf(&self, block: BlockIndex) -> Option<(&Leaf, usize)> {
        let (leaf, index) = (block.0 / LEAF_BLOCKS, (block.0 % LEAF_BLOCKS) as usize);
        if leaf == 0 {
            return self.first.get().map(|l| (&**l, index));
        }
        let middle = self.rest.get()?.middles.get((leaf / PAGE_WORDS) as usize)?.get()?;
        middle.leaves[(leaf % PAGE_WORDS) as usize].get().map(|l| (&**l, index))
    }

    /// The entry of a block.
    pub(crate) fn get(&self, block: BlockIndex) -> Entry {
        self.leaf(block).map_or(Entry::HOME, |(leaf, index)| leaf.get(index))
    }

    /// Whether what was read from home since `evictions` was counted is what counts: nothing became
    /// `Home` meanwhile, and the blocks are `Home` still.
    pub(crate) fn home_held(&self, evictions: u64, still_home: impl FnOnce() -> bool) -> bool {
        fence(Ordering::Acquire);
        // The entries first: a block that became `Home` again is counted before it says so.
        still_home() && self.evictions.load(Ordering::Acquire) == evictions
    }

    /// Calls `each` for every leaf with its number, in order.
    pub(crate) fn for_each_leaf<'a>(&'a self, mut each: impl FnMut(u64, &'a Leaf)) {
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

    /// Returns when whoever was giving pages back has freed them, or put them back. The caller
    /// holds no lane.
    pub(crate) fn wait_for_pages(&self) {
        drop(self.pages.lock());
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
        self.rest().middles[number as usize].get_or_init(|| Middle::new(at)).page.set(at);
    }

    /// Puts a leaf in, or gives the one that is there a page; its middle page has been adopted
    /// before.
    pub(crate) fn adopt_leaf(&self, number: u64, at: WordAt) -> &Leaf {
        let leaf = if number == 0 {
            self.first.get_or_init(|| Box::new(Leaf::new(at)))
        } else {
            let middle = self.rest().middles[(number / PAGE_WORDS) as usize]
                .get()
                .expect("BUG: a leaf is adopted after its middle page");
            middle.leaves[(number % PAGE_WORDS) as usize].get_or_init(|| Box::new(Leaf::new(at)))
        };
        leaf.page.set(at);
        leaf
    }

    fn paged_leaf(&self, block: BlockIndex) -> Option<&Leaf> {
        self.leaf(block).map(|(leaf, _)| leaf).filter(|leaf| leaf.has_page())
    }

    /// Makes the leaf of `block` (and the pages above it) and its page; the file's root words begin
    /// at `root`. A page that is made stays for as long as `kept`. `Ok(false)` when the tier has no
    /// free frame.
    ///
    /// # Durability
    /// A new page is whole and durable before the 8-byte pointer to it is switched; both are
    /// durable on return.
    pub(crate) fn make_leaf<'a>(
        &'a self,
        tier: &Ledger,
        file: u64,
        root: WordAt,
        block: BlockIndex,
        kept: &mut Kept<'a>,
    ) -> Result<bool> {
        if !kept.all && self.paged_leaf(block).is_some() {
            return Ok(true);
        }
        let mut pages = self.pages.lock();
        if let Some(leaf) = self.paged_leaf(block) {
            kept.keep(leaf);
            return Ok(true);
        }
        let number = block.0 / LEAF_BLOCKS;
        let pointer = if number == 0 {
            root
        } else {
            let middle = number / PAGE_WORDS;
            let there = self.rest().middles[middle as usize].get().and_then(|m| m.page.get());
            let at = match there {
                Some(at) => at,
                None => {
                    let pointer = if middle == 0 {
                        root.plus(8)
                    } else {
                        let top = match pages.top {
                            Some(top) => top,
                            None => {
                                let Some(top) =
                                    new_page(tier, file, Place::Top, root.plus(16), &mut pages.all)
                                else {
                                    return Ok(false);
                                };
                                pages.top = Some(top);
                                top
                            }
                        };
                        top.plus(middle * 8)
                    };
                    let place = Place::Middle(middle);
                    let Some(at) = new_page(tier, file, place, pointer, &mut pages.all) else {
                        return Ok(false);
                    };
                    self.adopt_middle(middle, at);
                    at
                }
            };
            at.plus(number % PAGE_WORDS * 8)
        };
        let Some(at) = new_page(tier, file, Place::Leaf(number), pointer, &mut pages.all) else {
            return Ok(false);
        };
        if tier.planted.races(Planted::PagesLetGoEarly) {
            drop(pages);
            kept.keep(self.adopt_leaf(number, at));
            return Ok(true);
        }
        kept.keep(self.adopt_leaf(number, at));
        // Not before: who waits for it looks for the leaf then, and would link a second page over
        // this one.
        drop(pages);
        Ok(true)
    }

    /// Whether a page might be given back.
    pub(crate) fn has_spare(&self) -> bool {
        let mut spare = false;
        self.for_each_leaf(|_, leaf| spare |= leaf.is_spare() && leaf.has_page());
        spare
    }

    /// Unlinks up to `most` leaf pages that say nothing, and the pages above that are empty then:
    /// steps 1 and 2 above. The caller holds `moving`, has seen that the file is not gone, and
    /// frees the frames.
    ///
    /// # Durability
    /// Nothing durable points to the pages on return.
    pub(crate) fn take_spare(
        &self,
        tier: &Ledger,
        file: u64,
        root: WordAt,
        most: u64,
    ) -> Vec<Frame> {
        let mut pages = self.pages.lock();
        let mut spare: Vec<(u64, &Leaf, WordAt)> = Vec::new();
        self.for_each_leaf(|number, leaf| {
            if (spare.len() as u64) < most && leaf.is_spare() {
                spare.extend(leaf.page.take().map(|at| (number, leaf, at)));
            }
        });
        if spare.is_empty() {
            return Vec::new();
        }
        tier.wait_for_writers();
        let mut gone = HashSet::new();
        for (number, leaf, at) in spare {
            if leaf.dirty() + leaf.cached() > 0 {
                leaf.page.set(at);
                continue;
            }
            let pointer = match number {
                0 => root,
                _ => {
                    let middle = self.rest().middles[(number / PAGE_WORDS) as usize].get();
                    let middle = middle.and_then(|middle| middle.page.get());
                    middle
                        .expect("BUG: a leaf page hangs on a middle page")
                        .plus(number % PAGE_WORDS * 8)
                }
            };
            unlink(tier, file, Place::Leaf(number), pointer);
            gone.insert(at);
        }
        self.take_spare_middles(tier, file, root, &mut pages, &mut gone);
        if !tier.planted.is(Planted::MapPageFreedEarly) {
            tier.fence();
        }
        let all = std::mem::take(&mut pages.all);
        let (gone, stay) = all.into_iter().partition(|page| gone.contains(&tier.page_at(*page)));
        pages.all = stay;
        gone
    }

    /// The middle pages without a leaf page, and the top page without a middle page.
    fn take_spare_middles(
        &self,
        tier: &Ledger,
        file: u64,
        root: WordAt,
        pages: &mut Pages,
        gone: &mut HashSet<WordAt>,
    ) {
        let Some(rest) = self.rest.get() else { return };
        let mut on_top = 0;
        for (number, middle) in rest.middles.iter().enumerate() {
            let Some(middle) = middle.get().filter(|middle| middle.page.get().is_some()) else {
                continue;
            };
            if middle.leaves.iter().filter_map(OnceLock::get).any(|leaf| leaf.has_page()) {
                on_top += usize::from(number > 0);
                continue;
            }
            let pointer = match number {
                0 => root.plus(8),
                _ => pages
                    .top
                    .expect("BUG: a middle page hangs on the top page")
                    .plus(number as u64 * 8),
            };
            unlink(tier, file, Place::Middle(number as u64), pointer);
            gone.extend(middle.page.take());
        }
        if on_top == 0
            && let Some(top) = pages.top.take()
        {
            unlink(tier, file, Place::Top, root.plus(16));
            gone.insert(top);
        }
    }
}

/// Empties the pointer to a page; durable with the caller's next fence.
fn unlink(tier: &Ledger, file: u64, place: Place, pointer: WordAt) {
    tier.store_word(pointer, seal(tier.seed, file, place, Entry::HOME));
}

/// Fills a free frame with sealed empty words and links it at `pointer`.
fn new_page(
    tier: &Ledger,
    file: u64,
    place: Place,
    pointer: WordAt,
    pages: &mut Vec<Frame>,
) -> Option<WordAt> {
    let frame = tier.take_page()?;
    let mut bytes = Vec::with_capacity(FRAME);
    let empty = |child| seal(tier.seed, file, child, Entry::HOME).to_le_bytes();
    for n in 0..PAGE_WORDS {
        bytes.extend_from_slice(&match place {
            Place::Leaf(_) if n % 2 == 1 => NO_SUM.to_le_bytes(),
            Place::Leaf(leaf) => empty(Place::Block(leaf * LEAF_BLOCKS + n / 2)),
            Place::Middle(middle) => empty(Place::Leaf(middle * PAGE_WORDS + n)),
            _ => empty(Place::Middle(n)),
        });
    }
    let at = tier.page_at(frame);
    let word = seal(tier.seed, file, place, Entry::page(frame));
    if tier.planted.is(Planted::MapPageLinkedFirst) {
        tier.store_word(pointer, word);
        tier.fence();
    }
    tier.write_meta(at, &bytes);
    tier.order();
    tier.store_word(pointer, word);
    // Before others find the page: what they then write into it they fence for themselves, and not
    // this link.
    if !tier.planted.is(Planted::MapPageShownEarly) {
        tier.order();
    }
    pages.push(frame);
    Some(at)
}
