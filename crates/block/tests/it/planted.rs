//! Programs that use a device wrongly, each in one way, and a crash simulator that finds every one.
//!
//! The program is a small write-ahead log: a payload, a record that says that it counts, then the
//! payload's place, then an empty record. Done right it loses nothing and mixes nothing in any
//! image.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tiersmith_block::{Device, Error, Sector};
use tiersmith_pmem::sim::{self, Sabotage, Simulator, Trace};

const SIZE: usize = 512;
/// Where everything is, for a payload of this many sectors.
#[derive(Clone, Copy)]
struct Layout {
    sectors: u64,
}

impl Layout {
    const RECORD: Sector = Sector(0);

    fn place(self) -> Sector {
        Sector(2)
    }

    fn payload(self, area: u64) -> Sector {
        Sector(2 + self.sectors * (1 + area))
    }

    fn bytes(self, value: u8) -> Vec<u8> {
        vec![value; self.sectors as usize * SIZE]
    }

    fn image(self) -> Vec<u8> {
        vec![0; (2 + 3 * self.sectors as usize) * SIZE]
    }
}

/// What a program does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// Writes the payload to its place, without a log.
    NoLog,
    /// Writes payload and record with one sync behind both.
    RecordWithThePayload,
    /// Says that it is durable when the record is written, and not synced.
    AcknowledgedBeforeTheSync,
    /// Relies on a sync that somebody else began before the record's write had returned.
    SyncOfSomebodyElse,
    /// Writes a record of two sectors, and believes the first without the second.
    RecordOverTwoSectors,
    /// Empties the record when the payload is written to its place, and not synced.
    EmptiedBeforeThePlace,
    /// Writes the next payload before the empty record is synced.
    PayloadReusedEarly,
    /// Opens the device again when a sync fails, and goes on when the next one succeeds.
    SyncedAgain,
    /// Takes a record that cannot be read for an empty one.
    UnreadableIsEmpty,
}

const ALL: [Wrong; 9] = [
    Wrong::NoLog,
    Wrong::RecordWithThePayload,
    Wrong::AcknowledgedBeforeTheSync,
    Wrong::SyncOfSomebodyElse,
    Wrong::RecordOverTwoSectors,
    Wrong::EmptiedBeforeThePlace,
    Wrong::PayloadReusedEarly,
    Wrong::SyncedAgain,
    Wrong::UnreadableIsEmpty,
];

/// The program.
struct Program {
    sim: Simulator,
    disk: sim::Device,
    device: Device,
    layout: Layout,
    wrong: Wrong,
}

impl Program {
    fn new(layout: Layout, wrong: Wrong) -> Self {
        let sim = Simulator::new();
        let disk = sim.device(layout.image(), SIZE);
        Self { device: Device::simulated(disk.clone()), sim, disk, layout, wrong }
    }

    fn sync(&mut self) -> Result<(), Error> {
        match self.device.sync() {
            Err(_) if self.wrong == Wrong::SyncedAgain => {
                self.device = Device::simulated(self.disk.clone());
                self.device.sync()
            }
            told => told,
        }
    }

    fn write_record(&self, value: u8, area: u64) -> Result<(), Error> {
        let mut record = vec![value; SIZE];
        if self.wrong == Wrong::RecordOverTwoSectors {
            record.extend([area as u8; SIZE]);
        } else {
            record[SIZE - 1] = area as u8;
        }
        self.device.write(Layout::RECORD, &record)
    }

    /// Makes `value` what the place holds, all or nothing.
    fn set(&mut self, value: u8) -> Result<(), Error> {
        let (wrong, layout) = (self.wrong, self.layout);
        let payload = layout.bytes(value);
        if wrong == Wrong::NoLog {
            self.device.write(layout.place(), &payload)?;
            self.sync()?;
            self.sim.mark(u64::from(value));
            return Ok(());
        }
        // With a record of two sectors there are two payloads in turn.
        let area = if wrong == Wrong::RecordOverTwoSectors { u64::from(value % 2) } else { 0 };
        self.device.write(layout.payload(area), &payload)?;
        if wrong != Wrong::RecordWithThePayload {
            self.sync()?;
        }
        if wrong == Wrong::SyncOfSomebodyElse {
            let (disk, calls) = (self.disk.clone(), AtomicUsize::new(0));
            self.sim.set_hook(Some(Arc::new(move || {
                if calls.fetch_add(1, Ordering::Relaxed) == 1 {
                    disk.sync().unwrap();
                }
            })));
        }
        self.write_record(value, area)?;
        self.sim.set_hook(None);
        if ![Wrong::AcknowledgedBeforeTheSync, Wrong::SyncOfSomebodyElse].contains(&wrong) {
            self.sync()?;
        }
        self.sim.mark(u64::from(value));
        self.device.write(layout.place(), &payload)?;
        if wrong != Wrong::EmptiedBeforeThePlace {
            self.sync()?;
        }
        self.write_record(0, 0)?;
        if wrong != Wrong::PayloadReusedEarly {
            self.sync()?;
        }
        Ok(())
    }
}

/// Recovery: what the place holds afterwards.
fn recover(device: &Device, layout: Layout, wrong: Wrong) -> Result<Vec<u8>, Error> {
    let mut record = vec![0; 2 * SIZE];
    let read = device.read(Layout::RECORD, &mut record);
    let counts = match read {
        Err(_) if wrong == Wrong::UnreadableIsEmpty => 0,
        read => read.map(|()| record[0])?,
    };
    let mut payload = layout.bytes(0);
    if counts != 0 {
        let area =
            if wrong == Wrong::RecordOverTwoSectors { record[SIZE] } else { record[SIZE - 1] };
        device.read(layout.payload(u64::from(area)), &mut payload)?;
        device.write(layout.place(), &payload)?;
        device.sync()?;
    }
    device.read(layout.place(), &mut payload)?;
    Ok(payload)
}

/// Looks at `most` images of each cut; how many there were, and what was wrong with the first bad
/// one.
fn explore(trace: &Trace, layout: Layout, wrong: Wrong, most: usize) -> (u64, Option<String>) {
    let mut player = trace.player();
    let mut buffer = player.buffer();
    let events: Vec<_> = trace.events().cloned().collect();
    let mut tried = 0;
    for cut in trace.cut_points() {
        player.advance_to(cut);
        let acked = events[..cut].iter().filter_map(|event| match event {
            sim::Event::Mark(value) => Some(*value as u8),
            _ => None,
        });
        let acked = acked.max().unwrap_or(0);
        for choice in player.images(most, cut as u64) {
            let image = player.image(&choice, &mut buffer)[0].clone();
            for unreadable in [false, true] {
                tried += 1;
                let disk = Simulator::new().device(image.clone(), SIZE);
                if unreadable {
                    disk.fail_reads(0..SIZE as u64);
                }
                let found = recover(&Device::simulated(disk), layout, wrong);
                let bad = match found {
                    Err(Error::Unreadable { .. }) if unreadable => continue,
                    Err(e) => Some(format!("recovery failed: {e}")),
                    Ok(found) if found.iter().any(|byte| *byte != found[0]) => {
                        Some("a mixture".to_owned())
                    }
                    Ok(found) if found[0] < acked => {
                        Some(format!("{acked} was acknowledged, found {}", found[0]))
                    }
                    Ok(found) if found[0] > acked + 1 => Some("something nobody wrote".to_owned()),
                    Ok(_) => None,
                };
                if let Some(bad) = bad {
                    return (
                        tried,
                        Some(format!("{bad} (cut {cut}, versions {:?})", choice.versions())),
                    );
                }
            }
        }
    }
    (tried, None)
}

/// One run per sync that may fail, and one in which none does.
fn run(layout: Layout, wrong: Wrong, sabotage: Sabotage, most: usize) -> (u64, Option<String>) {
    let mut all = 0;
    for failing in 0..9 {
        let mut program = Program::new(layout, wrong);
        program.sim.set_dropped(sabotage);
        program.disk.fail_nth_sync(failing);
        // The first failure ends the program, as it has to.
        let ended = (1..=3).try_for_each(|value| program.set(value));
        assert!(
            failing == 0 || ended.is_err() || wrong != Wrong::Nothing,
            "the failed sync {failing} was not told"
        );
        let (tried, bad) = explore(&program.sim.trace(), layout, wrong, most);
        all += tried;
        if bad.is_some() {
            return (all, bad);
        }
    }
    (all, None)
}

/// Few sectors, every image; many sectors, a sample.
const SIZES: [(Layout, usize); 2] =
    [(Layout { sectors: 2 }, 1 << 12), (Layout { sectors: 20 }, 200)];

#[test]
fn a_write_ahead_log_that_syncs_where_it_must_is_right_in_every_image() {
    for (layout, most) in SIZES {
        let (tried, bad) = run(layout, Wrong::Nothing, Sabotage::Nothing, most);
        assert_eq!(bad, None, "{} sectors", layout.sectors);
        println!("{} sectors: {tried} images, none bad", layout.sectors);
    }
}

#[test]
fn every_planted_wrong_use_is_found() {
    for (layout, most) in SIZES {
        for wrong in ALL {
            let (tried, bad) = run(layout, wrong, Sabotage::Nothing, most);
            println!("{} sectors, {wrong:?}: image {tried}: {bad:?}", layout.sectors);
            assert!(
                bad.is_some(),
                "{wrong:?} with {} sectors is not found in {tried} images",
                layout.sectors
            );
        }
    }
}

#[test]
fn a_device_that_does_not_sync_is_found_out_by_the_right_program() {
    for sabotage in [
        Sabotage::DropEverySync,
        Sabotage::DropNthSync(0),
        Sabotage::DropNthSync(1),
        Sabotage::DropNthSync(2),
    ] {
        for (layout, most) in SIZES {
            assert!(run(layout, Wrong::Nothing, sabotage, most).1.is_some(), "{sabotage:?}");
        }
    }
}
