//! What a cut leaves of devices of sectors: the part of the player that knows sectors.
//!
//! Invariants: a version is in the list of its sector for as long as a cut may show it beside the
//! durable one; what is in doubt never becomes durable, it only goes when something newer does.

use super::PendingSector;

/// One write to a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Where its bytes are in the trace's data.
    pub(crate) data: usize,
    call: u64,
    /// The position in the trace at which the write began.
    issued: usize,
    /// And at which it returned; `usize::MAX` while it has not.
    returned: usize,
    /// Its write or a sync failed, or a write that was on its way at the same time is durable: no
    /// sync decides.
    in_doubt: bool,
}

/// The pending sectors of all devices.
#[derive(Clone, Debug)]
pub(crate) struct Sectors {
    /// Per medium: the bytes of a sector; 0 is a mapping.
    sizes: Vec<usize>,
    /// Per medium and sector: its index in `pending` plus one, or zero.
    slots: Vec<Vec<u32>>,
    pub(crate) pending: Vec<PendingSector>,
    /// Syncs that are under way, with the position at which each began.
    syncs: Vec<(u64, usize)>,
}

impl Sectors {
    pub(crate) fn new(sizes: &[usize], media: &[Vec<u8>]) -> Sectors {
        let count = |(image, size): (&Vec<u8>, &usize)| image.len().checked_div(*size).unwrap_or(0);
        let slots = media.iter().zip(sizes).map(|medium| vec![0; count(medium)]).collect();
        Sectors { sizes: sizes.to_vec(), slots, pending: Vec::new(), syncs: Vec::new() }
    }

    /// Whether the medium of this number is a device.
    pub(crate) fn is_device(&self, medium: usize) -> bool {
        self.sizes[medium] > 0
    }

    pub(crate) fn grow(&mut self, device: usize, len: usize) {
        let count = len / self.sizes[device];
        self.slots[device].resize(count, 0);
    }

    /// A write of the bytes at `data` of the trace begins at `now`.
    pub(crate) fn write(
        &mut self,
        (device, at, call): (usize, usize, u64),
        now: usize,
        (data, trace): (std::ops::Range<usize>, &[u8]),
        durable: &[u8],
    ) {
        let size = self.sizes[device];
        for (n, data) in data.step_by(size).enumerate() {
            let from = at + n * size;
            let slot = &mut self.slots[device][from / size];
            if *slot == 0 {
                if durable[from..from + size] == trace[data..data + size] {
                    // No image could tell.
                    continue;
                }
                self.pending.push(PendingSector {
                    device,
                    at: from as u64,
                    len: size,
                    versions: Vec::with_capacity(1),
                });
                *slot = u32::try_from(self.pending.len()).expect("BUG: 2^32 pending sectors");
            }
            let version =
                Version { data, call, issued: now, returned: usize::MAX, in_doubt: false };
            self.pending[*slot as usize - 1].versions.push(version);
        }
    }

    pub(crate) fn returned(&mut self, device: usize, call: u64, good: bool, now: usize) {
        for version in self.of(device).filter(|version| version.call == call) {
            version.returned = now;
            version.in_doubt |= !good;
        }
    }

    pub(crate) fn sync_begun(&mut self, call: u64, now: usize) {
        self.syncs.push((call, now));
    }

    pub(crate) fn sync_failed(&mut self, device: usize) {
        for version in self.of(device) {
            version.in_doubt = true;
        }
    }

    pub(crate) fn synced(&mut self, device: usize, call: u64, trace: &[u8], durable: &mut [u8]) {
        // Unknown when the trace was cut off meanwhile (`Simulator::rebase`): then it covers
        // nothing.
        let Some(index) = self.syncs.iter().position(|(known, _)| *known == call) else { return };
        let (_, begun) = self.syncs.swap_remove(index);
        let mut kept = 0;
        for index in 0..self.pending.len() {
            let sector = &mut self.pending[index];
            let covered = |version: &Version| version.returned < begun && !version.in_doubt;
            let newest =
                sector.versions.iter().rposition(covered).filter(|_| sector.device == device);
            if let Some(newest) = newest {
                let Version { data, issued, .. } = sector.versions[newest];
                let at = sector.at as usize;
                durable[at..at + sector.len].copy_from_slice(&trace[data..data + sector.len]);
                let mut number = 0;
                sector.versions.retain_mut(|older| {
                    number += 1;
                    // Of two writes that were on their way together either may be the last.
                    let together = number <= newest && older.returned > issued;
                    older.in_doubt |= together;
                    together || number > newest + 1
                });
            }
            let (medium, slot) = (sector.device, sector.at as usize / self.sizes[sector.device]);
            if sector.versions.is_empty() {
                self.slots[medium][slot] = 0;
            } else {
                self.pending.swap(kept, index);
                kept += 1;
                self.slots[medium][slot] = kept as u32;
            }
        }
        self.pending.truncate(kept);
    }

    fn of(&mut self, device: usize) -> impl Iterator<Item = &mut Version> {
        self.pending
            .iter_mut()
            .filter(move |sector| sector.device == device)
            .flat_map(|s| &mut s.versions)
    }
}
