//! Replays a trace: at each position, what is durable and which words and sectors are pending. The
//! model of `sim` in code; `sectors.rs` has the part of it that is about devices.
//!
//! Invariants: `pending` is in the order in which its words were first stored since they were last
//! durable; a word is in it when at least one version could show at a cut that differs from the
//! durable value or may yet be needed. A store of the bytes a word already has makes no version: no
//! image could tell.

use std::sync::atomic::{AtomicU64, Ordering};

use super::images::{Choice, Images};
use super::sectors::{Sectors, Version};
use super::{Event, Trace};
use crate::LINE;

/// A word that is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWord {
    /// In which mapping.
    pub mapping: usize,
    /// Where, a multiple of 8.
    pub at: u64,
    /// What was stored to it, oldest first. At a cut it shows one of these or its durable value.
    pub values: Vec<[u8; 8]>,
    /// Per version: whose fence makes it durable, one bit per thread.
    ready: Vec<u64>,
    /// Per version: stored past the caches, so that a flush does not carry it.
    nt: Vec<bool>,
}

/// A sector of a device that is not durable yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingSector {
    /// Which device.
    pub device: usize,
    /// Where, in bytes.
    pub at: u64,
    /// Its bytes.
    pub len: usize,
    /// What was written to it, oldest first. At a cut it shows one of these or its durable
    /// contents.
    pub(crate) versions: Vec<Version>,
}

/// Replays a trace forwards.
#[derive(Clone, Debug)]
pub struct Player {
    trace: Trace,
    position: usize,
    durable: Vec<Vec<u8>>,
    pending: Vec<PendingWord>,
    /// Per mapping and word: its index in `pending` plus one, or zero.
    slots: Vec<Vec<u32>>,
    /// Words no longer pending, kept for their allocations.
    spare: Vec<PendingWord>,
    sectors: Sectors,
    /// Changes with every event played and differs between players: what a buffer was filled from.
    stamp: u64,
}

/// Where images are written. Kept between images of one position, so that the next writes only what
/// differs.
#[derive(Clone, Debug, Default)]
pub struct ImageBuffer {
    images: Vec<Vec<u8>>,
    /// The pending words side by side: in the player each has its versions elsewhere in memory, and
    /// the words are walked once for every image.
    places: Vec<Place>,
    /// Of each place, its durable value and then its versions.
    values: Vec<[u8; 8]>,
    /// Which version of each pending sector the images show now.
    sectors: Vec<u16>,
    stamp: u64,
}

/// Where one pending word is, and where its values start.
#[derive(Clone, Copy, Debug)]
struct Place {
    mapping: u32,
    values: u32,
    at: usize,
}

fn next_stamp() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // Zero is never given out: it is the stamp of a new buffer.
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Player {
    /// At the start of a trace, before its first event.
    pub fn new(trace: &Trace) -> Player {
        let durable = trace.inner.bases.clone();
        let sectors = Sectors::new(&trace.inner.sectors, &durable);
        let words = |(medium, image): (usize, &Vec<u8>)| match sectors.is_device(medium) {
            true => Vec::new(),
            false => vec![0; image.len() / 8],
        };
        let slots = durable.iter().enumerate().map(words).collect();
        Player {
            trace: trace.clone(),
            position: 0,
            durable,
            pending: Vec::new(),
            slots,
            spare: Vec::new(),
            sectors,
            stamp: next_stamp(),
        }
    }

    /// How many events were played.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The event that [`Player::step`] plays next; `None` at the end.
    pub fn next_event(&self) -> Option<&Event> {
        self.trace.inner.events.get(self.position).map(|recorded| &recorded.event)
    }

    /// Plays events until `position` of them were played. `position` is not behind the present one,
    /// nor past the end.
    pub fn advance_to(&mut self, position: usize) {
        assert!(
            position >= self.position && position <= self.trace.len(),
            "BUG: from {} to {position} in a trace of {} events",
            self.position,
            self.trace.len()
        );
        while self.position < position {
            self.step();
        }
    }

    /// Plays one event; false at the end.
    pub fn step(&mut self) -> bool {
        let inner = std::sync::Arc::clone(&self.trace.inner);
        let Some(recorded) = inner.events.get(self.position) else { return false };
        match recorded.event {
            Event::Store { mapping, at, len, nt } => {
                let bytes = &inner.data[recorded.data..recorded.data + len];
                self.store(mapping, at as usize, bytes, nt, recorded.thread);
            }
            Event::Flush { mapping, at, len } => {
                self.flush(mapping, at as usize, len, recorded.thread)
            }
            Event::Fence => self.fence(recorded.thread),
            Event::Mark(_) => {}
            Event::Grow { mapping, len } => {
                self.durable[mapping].resize(len as usize, 0);
                if self.sectors.is_device(mapping) {
                    self.sectors.grow(mapping, len as usize);
                } else {
                    self.slots[mapping].resize(len as usize / 8, 0);
                }
            }
            Event::Write { device, at, len, call } => {
                let data = recorded.data..recorded.data + len;
                let from = (device, at as usize, call);
                self.sectors.write(from, self.position, (data, &inner.data), &self.durable[device]);
            }
            Event::Returned { device, call, good } => {
                self.sectors.returned(device, call, good, self.position);
            }
            Event::SyncBegun { call, .. } => self.sectors.sync_begun(call, self.position),
            Event::Synced { device, call } => {
                self.sectors.synced(device, call, &inner.data, &mut self.durable[device]);
            }
            Event::SyncFailed { device } => self.sectors.sync_failed(device),
        }
        if !matches!(recorded.event, Event::Mark(_)) {
            self.stamp = next_stamp();
        }
        self.position += 1;
        true
    }

    /// The words that are not durable here, in the order in which they became pending.
    pub fn pending(&self) -> &[PendingWord] {
        &self.pending
    }

    /// The sectors that are not durable here.
    pub fn pending_sectors(&self) -> &[PendingSector] {
        &self.sectors.pending
    }

    /// What a pending sector shows in its version of this number, which is not 0.
    pub fn sector_version(&self, sector: &PendingSector, version: u16) -> &[u8] {
        let data = sector.versions[usize::from(version) - 1].data;
        &self.trace.inner.data[data..data + sector.len]
    }

    /// The choice in which the newest version of everything arrived: what a killed process leaves.
    pub fn everything(&self) -> Choice {
        let counts = self.version_counts();
        Choice { versions: counts.map(|count| u16::try_from(count).unwrap_or(u16::MAX)).collect() }
    }

    /// How many versions there are of each pending word, and then of each pending sector.
    fn version_counts(&self) -> impl Iterator<Item = usize> {
        let words = self.pending.iter().map(|word| word.values.len());
        words.chain(self.sectors.pending.iter().map(|sector| sector.versions.len()))
    }

    /// What every image here agrees on, except for the pending words and sectors: one for each
    /// mapping and device.
    pub fn durable(&self) -> &[Vec<u8>] {
        &self.durable
    }

    /// An empty buffer for [`Player::image`].
    pub fn buffer(&self) -> ImageBuffer {
        ImageBuffer::default()
    }

    /// Writes the image of `choice` into `buffer` and returns it, one for each mapping and device.
    /// `choice` is from [`Player::images`] at this position.
    pub fn image<'a>(&self, choice: &Choice, buffer: &'a mut ImageBuffer) -> &'a [Vec<u8>] {
        assert_eq!(
            choice.versions.len(),
            self.pending.len() + self.sectors.pending.len(),
            "BUG: a choice for another position: versions in it, words and sectors pending"
        );
        if buffer.stamp != self.stamp {
            self.fill(buffer);
        }
        let ImageBuffer { images, places, values, sectors, .. } = &mut *buffer;
        let (words, chosen) = choice.versions.split_at(self.pending.len());
        for (place, &version) in places.iter().zip(words) {
            let value = values[place.values as usize + usize::from(version)];
            images[place.mapping as usize][place.at..place.at + 8].copy_from_slice(&value);
        }
        for ((sector, shown), &version) in self.sectors.pending.iter().zip(sectors).zip(chosen) {
            if *shown != version {
                let range = sector.at as usize..sector.at as usize + sector.len;
                let bytes = match version {
                    0 => &self.durable[sector.device][range.clone()],
                    version => self.sector_version(sector, version),
                };
                images[sector.device][range].copy_from_slice(bytes);
                *shown = version;
            }
        }
        &buffer.images
    }

    /// Readies a buffer for the images of this position.
    fn fill(&self, buffer: &mut ImageBuffer) {
        buffer.images.resize_with(self.durable.len(), Vec::new);
        for (image, durable) in buffer.images.iter_mut().zip(&self.durable) {
            image.clone_from(durable);
        }
        buffer.places.clear();
        buffer.values.clear();
        buffer.sectors.clear();
        buffer.sectors.resize(self.sectors.pending.len(), 0);
        for word in &self.pending {
            let at = word.at as usize;
            let values = u32::try_from(buffer.values.len()).expect("BUG: 2^32 pending versions");
            buffer.places.push(Place { mapping: word.mapping as u32, values, at });
            buffer.values.push(word_at(&self.durable[word.mapping], at));
            buffer.values.extend_from_slice(&word.values);
        }
        buffer.stamp = self.stamp;
    }

    /// As [`Player::image`], into buffers of the caller's that may hold anything: a whole copy each
    /// time.
    pub fn image_into(&self, choice: &Choice, buffers: &mut Vec<Vec<u8>>) {
        let mut buffer = ImageBuffer { images: std::mem::take(buffers), ..ImageBuffer::default() };
        self.image(choice, &mut buffer);
        *buffers = buffer.images;
    }

    /// Which images to look at here, at most `max`: every one there is when they are that few, else
    /// a sample that depends on `seed` alone.
    pub fn images(&self, max: usize, seed: u64) -> Images {
        Images::new(&self.pending, self.everything().versions, max, seed)
    }

    /// How many different choices there are here; `None` when more than a `u128` counts.
    pub fn image_count(&self) -> Option<u128> {
        self.version_counts()
            .try_fold(1_u128, |product, count| product.checked_mul(count as u128 + 1))
    }

    fn store(&mut self, mapping: usize, at: usize, bytes: &[u8], nt: bool, thread: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let position = at + done;
            let word = position / 8;
            let from = position % 8;
            let part = (8 - from).min(bytes.len() - done);
            self.store_word(mapping, word, from, &bytes[done..done + part], nt, thread);
            done += part;
        }
    }

    fn store_word(
        &mut self,
        mapping: usize,
        word: usize,
        from: usize,
        bytes: &[u8],
        nt: bool,
        thread: u64,
    ) {
        let ready = if nt { thread } else { 0 };
        let slot = self.slots[mapping][word];
        if slot == 0 {
            let durable = word_at(&self.durable[mapping], word * 8);
            let mut value = durable;
            value[from..from + bytes.len()].copy_from_slice(bytes);
            if value == durable {
                return;
            }
            let mut new = self.spare.pop().unwrap_or_else(|| PendingWord {
                mapping: 0,
                at: 0,
                values: Vec::with_capacity(1),
                ready: Vec::with_capacity(1),
                nt: Vec::with_capacity(1),
            });
            (new.mapping, new.at) = (mapping, word as u64 * 8);
            new.push(value, ready, nt);
            self.pending.push(new);
            self.slots[mapping][word] =
                u32::try_from(self.pending.len()).expect("BUG: 2^32 pending words");
            return;
        }
        let pending = &mut self.pending[slot as usize - 1];
        let last = *pending.values.last().expect("BUG: a pending word without versions");
        let mut value = last;
        value[from..from + bytes.len()].copy_from_slice(bytes);
        if value != last {
            pending.push(value, ready, nt);
        } else if nt {
            // The same bytes again: no image can tell, but now they are durable at this thread's
            // fence too.
            *pending.ready.last_mut().expect("BUG: a pending word without versions") |= thread;
        }
    }

    fn flush(&mut self, mapping: usize, at: usize, len: usize, thread: u64) {
        let from = at / LINE * LINE / 8;
        let to = ((at + len).next_multiple_of(LINE) / 8).min(self.slots[mapping].len());
        for &slot in &self.slots[mapping][from..to] {
            if slot != 0 {
                let word = &mut self.pending[slot as usize - 1];
                for (ready, nt) in word.ready.iter_mut().zip(&word.nt) {
                    if !nt {
                        *ready |= thread;
                    }
                }
            }
        }
    }

    fn fence(&mut self, thread: u64) {
        let mut kept = 0;
        for index in 0..self.pending.len() {
            let word = &mut self.pending[index];
            let (mapping, at) = (word.mapping, word.at as usize);
            if let Some(newest) = word.ready.iter().rposition(|ready| ready & thread != 0) {
                self.durable[mapping][at..at + 8].copy_from_slice(&word.values[newest]);
                word.values.drain(..=newest);
                word.ready.drain(..=newest);
                word.nt.drain(..=newest);
            }
            if word.values.is_empty() {
                self.slots[mapping][at / 8] = 0;
            } else {
                self.pending.swap(kept, index);
                kept += 1;
                self.slots[mapping][at / 8] = kept as u32;
            }
        }
        self.spare.extend(self.pending.drain(kept..));
    }
}

impl PendingWord {
    fn push(&mut self, value: [u8; 8], ready: u64, nt: bool) {
        self.values.push(value);
        self.ready.push(ready);
        self.nt.push(nt);
    }
}

fn word_at(image: &[u8], at: usize) -> [u8; 8] {
    *image[at..].first_chunk::<8>().expect("BUG: a word beyond its image")
}
