//! Every operation on a few files at once, on a tier that is much too small for them, with contents
//! that tell which block, part and version they are; and at the end what a power cut would leave,
//! attached again.
//!
//! Deliberately not here: each pair of operations by itself (`threads.rs`), every order of a few
//! steps (`interleavings.rs`).

use crate::place;

use crate::gate::Gate;
use crate::place::{Done, Memory, Place};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;
use tiersmith_pmem::{Access, Mapping, OpenOptions};
use tiersmith_store::home::SimHome;
use tiersmith_store::{AttachedHome, Error, File, OpenMode, Options, TierSpec, testing};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LONG: Duration = Duration::from_secs(120);

/// A part of a block: which one, how new, and whether it is whole.
fn stamped(which: u64, version: u64, len: usize) -> Vec<u8> {
    let mut bytes = place::pattern(place::mix(which) ^ version, 0, len);
    bytes[..8].copy_from_slice(&which.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// The version of a part that is whole; 0 for zeros.
fn version(which: u64, bytes: &[u8]) -> u64 {
    if bytes.iter().all(|b| *b == 0) {
        return 0;
    }
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let found = word(8);
    assert!(
        bytes == stamped(which, found, bytes.len()),
        "part {which:#x} is torn or another's: it says that it is {:#x}, version {found}",
        word(0)
    );
    found
}

/// A file whose blocks have parts of one length, each with one writer and the version that was
/// acknowledged last.
struct Parts {
    file: File,
    number: u64,
    len: usize,
    block: usize,
    acked: Vec<AtomicU64>,
}

impl Parts {
    fn new(
        attached: &AttachedHome,
        number: u64,
        name: &str,
        block: usize,
        len: usize,
        blocks: usize,
    ) -> Self {
        let file = attached.open(name, OpenMode::CREATE).unwrap();
        file.extend((blocks * block) as u64).unwrap();
        let acked = (0..blocks * block / len).map(|_| AtomicU64::new(0)).collect();
        Self { file, number, len, block, acked }
    }

    fn which(&self, part: usize) -> u64 {
        self.number << 32 | part as u64
    }

    fn write(&self, part: usize, version: u64) {
        self.file
            .write((part * self.len) as u64, &stamped(self.which(part), version, self.len))
            .unwrap();
        self.acked[part].store(version, SeqCst);
    }

    fn write_batch(&self, parts: &[usize], version: u64) {
        let data: Vec<Vec<u8>> =
            parts.iter().map(|p| stamped(self.which(*p), version, self.len)).collect();
        let batch: Vec<(u64, &[u8])> =
            parts.iter().zip(&data).map(|(p, d)| ((p * self.len) as u64, &d[..])).collect();
        self.file.write_batch(&batch).unwrap();
        parts.iter().for_each(|p| self.acked[*p].store(version, SeqCst));
    }

    /// Reads some parts that follow each other: each is whole, and as new as was acknowledged.
    fn read(&self, first: usize, count: usize, bytes: &mut Vec<u8>) {
        let least: Vec<u64> =
            self.acked[first..first + count].iter().map(|a| a.load(SeqCst)).collect();
        bytes.clear();
        bytes.resize(count * self.len, 0xa5);
        assert_eq!(self.file.read((first * self.len) as u64, bytes).unwrap(), bytes.len());
        self.compare(first, &least, bytes);
    }

    fn compare(&self, first: usize, least: &[u64], bytes: &[u8]) {
        for ((part, least), bytes) in (first..).zip(least).zip(bytes.chunks(self.len)) {
            let found = version(self.which(part), bytes);
            assert!(found >= *least, "part {part}: version {found} after {least} was acknowledged");
        }
    }

    /// The same by reference, if the block can be lent; it stays as it is while it is held.
    fn borrow(&self, block: usize) {
        let per_block = self.block / self.len;
        let first = block * per_block;
        let least: Vec<u64> =
            self.acked[first..first + per_block].iter().map(|a| a.load(SeqCst)).collect();
        if let Some(lent) = self.file.read_ref((block * self.block) as u64) {
            self.compare(first, &least, &lent);
            let before = lent.to_vec();
            std::thread::yield_now();
            assert!(before[..] == lent[..], "a reference changed under its reader");
        }
    }

    fn random(&self, rng: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
        if rng.u32(..3) == 0 {
            return self.borrow(rng.usize(..self.acked.len() * self.len / self.block));
        }
        let first = rng.usize(..self.acked.len());
        let count = rng.usize(1..=(self.acked.len() - first).min(12));
        self.read(first, count, bytes);
    }

    /// What is there now is what was acknowledged last.
    fn check_all(&self, attached: &AttachedHome, name: &str) {
        let all = place::read(attached, name);
        for (part, acked) in self.acked.iter().enumerate() {
            let found = version(self.which(part), &all[part * self.len..][..self.len]);
            assert_eq!(
                found,
                acked.load(SeqCst),
                "{name}, part {part}: an acknowledged write is lost"
            );
        }
    }
}

/// Moves blocks and files about, in one of many ways.
fn disturb(attached: &AttachedHome, home: &SimHome, rng: &mut fastrand::Rng) {
    let name = ["whole.d8", "shared.d16", "log.redo"][rng.usize(..3)];
    match rng.u32(..9) {
        0 => drop(attached.destage(Some(Path::new(name))).unwrap()),
        1 => drop(attached.evict(Some(Path::new(name)), 0).unwrap()),
        2 => drop(attached.evict(None, 20).unwrap()),
        3 => attached.background_step().unwrap(),
        4 => drop(attached.flush_all().unwrap()),
        5 => match attached.pin("shared.d16") {
            Ok(()) => attached.unpin("shared.d16").unwrap(),
            Err(Error::TierFull { .. }) => {}
            Err(e) => panic!("{e}"),
        },
        6 => {
            // Counters that are read while they change: only that they are there.
            let tier = &attached.stats().tiers[0];
            assert!(tier.free_bytes <= tier.usable_bytes, "{tier:?}");
        }
        7 => {
            // A file that comes, is renamed over another and goes: its frames are
            // everybody's next.
            let made = attached.open("new.d8", OpenMode::CREATE).unwrap();
            made.write(0, &stamped(9 << 32, 1, 30_000)).unwrap();
            attached.rename("new.d8", "old.d8").unwrap();
            assert_eq!(version(9 << 32, &place::contents(&made)), 1);
            drop(made);
            attached.unlink("old.d8").unwrap();
        }
        _ => home.rebase(),
    }
}

#[test]
fn everything_at_once_keeps_every_part_whole_and_new_and_a_cut_at_the_end_loses_nothing() {
    // Memory that is mapped from a file, so that blocks go past the caches as they do on a medium.
    let place = Place::in_memory();
    let member = place.member("fast");
    let size = MIB + 512 * KIB;
    let home = Arc::new(SimHome::new(None));
    let spec = TierSpec { lanes: 8, ..place::small(member.clone(), size) };
    let open = |memory: Memory| {
        let options = Options { redo_keep_bytes: 64 << 10, ..place::options() };
        let tiers = vec![(spec.clone(), vec![memory])];
        testing::attach_simulated(home.clone(), tiers, &place::profile(), options).unwrap()
    };
    let options = OpenOptions { create: true, ..OpenOptions::new(Access::Emulated, size) };
    let memory = Memory::of(Mapping::open(&member, &options).unwrap());
    let attached = open(memory.clone());
    let whole = Parts::new(&attached, 1, "whole.d8", 8192, 8192, 120);
    let shared = Parts::new(&attached, 2, "shared.d16", 16384, 2048, 40);
    let redo = Parts::new(&attached, 3, "log.redo", 4096, 512, 100);
    let (seed, stop) = (place::seed(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (stop, attached, home, whole, shared, redo) =
            (&stop, &attached, &home, &whole, &shared, &redo);
        let files = [whole, shared, redo];
        for reader in 0..2 {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ reader);
                let mut bytes = Vec::new();
                while !stop.load(SeqCst) {
                    files[rng.usize(..3)].random(&mut rng, &mut bytes);
                }
            });
        }
        scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(seed ^ 77);
            while !stop.load(SeqCst) {
                disturb(attached, home, &mut rng);
            }
        });
        let _done = Done(stop);
        std::thread::scope(|writers| {
            for writer in 0..3usize {
                writers.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed ^ (writer as u64 + 1) << 40);
                    for version in 1..place::times(12_000) {
                        let own = |parts: &Parts, rng: &mut fastrand::Rng| {
                            rng.usize(..parts.acked.len() / 3) * 3 + writer
                        };
                        match rng.u32(..4) {
                            0 => whole.write(own(whole, &mut rng), version),
                            1 => {
                                let mut parts: Vec<usize> =
                                    (0..rng.usize(1..5)).map(|_| own(whole, &mut rng)).collect();
                                parts.sort_unstable();
                                parts.dedup();
                                whole.write_batch(&parts, version);
                            }
                            // Parts of a block that belong to different writers: none overwrites
                            // the others'.
                            2 => shared.write(own(shared, &mut rng), version),
                            _ => redo.write(own(redo, &mut rng), version),
                        }
                    }
                });
            }
        });
    });
    let names = [(&whole, "whole.d8"), (&shared, "shared.d16"), (&redo, "log.redo")];
    names.iter().for_each(|(parts, name)| parts.check_all(&attached, name));
    let (free, used, all) = testing::accounting(&attached);
    assert_eq!(free + used, all, "frames are lost, or are in two places");
    // What a cut now would leave, beside a home in which everything that was synced is.
    let again = memory.restarted();
    drop(attached);
    let attached = open(again);
    names.iter().for_each(|(parts, name)| parts.check_all(&attached, name));
}

#[test]
fn the_first_writers_of_a_map_page_share_it() {
    const LEAVES: u64 = 511;
    const WRITERS: u64 = 3;
    const BLOCK: u64 = 4 * KIB;
    let home = Arc::new(SimHome::new(None));
    let memory = Memory::new(16 * MIB);
    let spec = place::small("fast".into(), 16 * MIB);
    let open = |memory: Memory| {
        let tiers = vec![(spec.clone(), vec![memory])];
        testing::attach_simulated(home.clone(), tiers, &place::profile(), place::options()).unwrap()
    };
    let attached = open(memory.clone());
    let file = attached.open("a.d4", OpenMode::CREATE).unwrap();
    file.extend(LEAVES * 256 * BLOCK).unwrap();
    let arrived = AtomicU64::new(0);
    let bytes = |block: u64| stamped(block, 1, BLOCK as usize);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (file, arrived) = (&file, &arrived);
            scope.spawn(move || {
                for leaf in 0..LEAVES {
                    let block = leaf * 256 + writer;
                    let data = bytes(block);
                    arrived.fetch_add(1, SeqCst);
                    for tries in 0.. {
                        if arrived.load(SeqCst) >= (leaf + 1) * WRITERS {
                            break;
                        }
                        if tries > 1000 { std::thread::yield_now() } else { std::hint::spin_loop() }
                    }
                    file.write(block * BLOCK, &data).unwrap();
                }
            });
        }
    });
    // The leaves, and the page above them.
    assert_eq!(attached.stats().tiers[0].map_bytes, (LEAVES + 1) * BLOCK);
    drop((file, attached));
    let attached = open(memory.restarted());
    let file = attached.open("a.d4", OpenMode::WRITE).unwrap();
    for block in (0..LEAVES).flat_map(|leaf| (0..WRITERS).map(move |writer| leaf * 256 + writer)) {
        let mut found = vec![0; BLOCK as usize];
        file.read(block * BLOCK, &mut found).unwrap();
        assert!(found == bytes(block), "block {block}: an acknowledged write is lost");
    }
}

#[test]
fn a_read_while_a_file_is_cut_does_not_show_what_home_had_before() {
    for name in ["a.d4", "a.redo"] {
        let gate = Gate::new(Arc::new(SimHome::new(None)));
        let tiers = vec![(place::small("fast".into(), MIB), vec![Memory::new(MIB)])];
        let attached =
            testing::attach_simulated(gate.clone(), tiers, &place::profile(), place::options())
                .unwrap();
        let file = attached.open(name, OpenMode::CREATE).unwrap();
        let parts = |version: u64| -> Vec<u8> {
            (0..2).flat_map(|part| stamped(part, version, 4096)).collect()
        };
        file.write(0, &parts(1)).unwrap();
        attached.destage(None).unwrap();
        attached.evict(None, u64::MAX).unwrap();
        file.write(4096, &parts(2)[4096..]).unwrap();
        // The reader has block 0 from home and goes on to block 1; the cut has dropped block 1 and
        // not come to home.
        let (reading, has_read) = channel::<()>();
        let (cutting, is_cut) = channel::<()>();
        let (cutter, go) = channel::<()>();
        std::thread::scope(|scope| {
            gate.before_next_set_len(move || {
                cutting.send(()).unwrap();
                has_read.recv_timeout(LONG).unwrap();
            });
            gate.after_next_read(move || {
                cutter.send(()).unwrap();
                is_cut.recv_timeout(LONG).unwrap();
            });
            let other = file.clone();
            scope.spawn(move || {
                go.recv_timeout(LONG).unwrap();
                other.truncate(0).unwrap();
            });
            let mut bytes = vec![0xa5; 8192];
            let got = file.read(0, &mut bytes).unwrap();
            reading.send(()).unwrap();
            for (part, bytes) in bytes[..got].chunks(4096).enumerate() {
                let found = version(part as u64, bytes);
                assert!(
                    part == 0 || found != 1,
                    "{name}: version 1 of block 1 is read, which version 2 had replaced"
                );
            }
        });
        assert_eq!(file.len().unwrap(), 0);
    }
}
