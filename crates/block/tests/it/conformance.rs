//! The same calls give the same results on a file and on a simulated device, whatever the size of a
//! sector, and on a `Vec<u8>` that is the definition.

use tiersmith_block::{Device, Error, OpenOptions, Sector, SectorSize, Sectors};
use tiersmith_dir::Dir;
use tiersmith_pmem::sim::Simulator;

const SECTORS: u64 = 24;

/// Runs `suite` on every kind of device.
fn on_every_kind(suite: impl Fn(&str, &Device)) {
    for size in [SectorSize::B512, SectorSize::B4096] {
        let zeros = vec![0; SECTORS as usize * size.bytes()];
        let simulated = Simulator::new().device(zeros, size.bytes());
        suite(&format!("simulated, {size}"), &Device::simulated(simulated));
        for (kind, place) in [("tmpfs", "/dev/shm".into()), ("file", std::env::temp_dir())] {
            let Ok(directory) = tempfile::tempdir_in(&place) else {
                println!("skipped: no directory can be made in {}", place.display());
                continue;
            };
            let dir = Dir::open(directory.path()).unwrap();
            let options = OpenOptions { create: true, ..OpenOptions::new(size, Sectors(SECTORS)) };
            suite(&format!("{kind}, {size}"), &Device::open(&dir, "device", &options).unwrap());
        }
    }
}

#[test]
fn reads_return_what_the_writes_before_them_wrote() {
    on_every_kind(|kind, device| {
        let size = device.sector_size().bytes();
        let mut rng = fastrand::Rng::with_seed(0xB10C);
        let mut model = vec![0_u8; SECTORS as usize * size];
        assert_eq!(device.sectors(), Sectors(SECTORS), "{kind}");
        for round in 0..600 {
            if round % 200 == 150 {
                let longer = Sectors(device.sectors().0 + rng.u64(1..9));
                device.grow(longer).unwrap();
                model.resize(longer.0 as usize * size, 0);
                assert_eq!(device.sectors(), longer, "{kind}");
                device.grow(Sectors(1)).unwrap();
                assert_eq!(device.sectors(), longer, "{kind}: no device gets shorter");
            }
            let sectors = model.len() / size;
            let at = rng.usize(..sectors);
            let count = rng.usize(..=(sectors - at).min(6));
            let range = at * size..(at + count) * size;
            match rng.u8(..4) {
                0 => device.sync().unwrap(),
                1 | 2 => {
                    let bytes: Vec<u8> =
                        std::iter::repeat_with(|| rng.u8(..)).take(range.len()).collect();
                    device.write(Sector(at as u64), &bytes).unwrap();
                    model[range].copy_from_slice(&bytes);
                }
                _ => {
                    let mut found = vec![0xEE; range.len()];
                    device.read(Sector(at as u64), &mut found).unwrap();
                    assert!(found == model[range], "{kind}, round {round}");
                }
            }
        }
        let mut whole = vec![0xEE; model.len()];
        device.read(Sector(0), &mut whole).unwrap();
        assert!(whole == model, "{kind}");
    });
}

#[test]
fn what_is_no_whole_sectors_is_refused_and_nothing_is_changed() {
    on_every_kind(|kind, device| {
        let size = device.sector_size().bytes();
        device.write(Sector(0), &vec![1; SECTORS as usize * size]).unwrap();
        for (at, len) in [
            (0, 1),
            (0, size - 1),
            (0, size + 1),
            (0, SECTORS as usize * size + size),
            (SECTORS, size),
            (SECTORS - 1, 2 * size),
            (u64::MAX, size),
            (u64::MAX / size as u64, size),
            (i64::MAX as u64 / size as u64, size),
        ] {
            let mut buffer = vec![2; len];
            for result in [device.write(Sector(at), &buffer), device.read(Sector(at), &mut buffer)]
            {
                let error = result.unwrap_err();
                assert!(matches!(error, Error::NotSectors { .. }), "{kind}: {error}");
                let said = error.to_string();
                assert!(
                    said.contains(&format!("{len} bytes at sector {at} are not whole")),
                    "{kind}: {said}"
                );
            }
            assert!(
                buffer.iter().all(|byte| *byte == 2),
                "{kind}: a refused read wrote to the buffer"
            );
        }
        // Nothing is whole sectors, anywhere in the device.
        device.write(Sector(SECTORS), &[]).unwrap();
        device.read(Sector(SECTORS), &mut []).unwrap();
        for long in [u64::MAX, u64::MAX / size as u64, i64::MAX as u64 / size as u64 + 1] {
            let error = device.grow(Sectors(long)).unwrap_err();
            assert!(matches!(error, Error::BadLength { .. }), "{kind}: {error}");
        }
        let mut whole = vec![0; SECTORS as usize * size];
        device.read(Sector(0), &mut whole).unwrap();
        assert!(whole.iter().all(|byte| *byte == 1), "{kind}");
    });
}

#[test]
fn threads_that_write_and_sync_lose_nothing() {
    on_every_kind(|kind, device| {
        let size = device.sector_size().bytes();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0..20_u8 {
                        let at = Sector(thread * 6 + u64::from(round % 6));
                        device.write(at, &vec![round; size]).unwrap();
                        device.sync().unwrap();
                        let mut found = vec![0; size];
                        device.read(at, &mut found).unwrap();
                        assert!(found.iter().all(|byte| *byte == round), "{kind}");
                    }
                });
            }
        });
    });
}

#[test]
fn a_report_says_what_it_is_and_when_writes_are_durable() {
    on_every_kind(|kind, device| {
        let report = device.report();
        let said = report.to_string();
        assert!(said.contains(&format!("24 sectors of {} bytes", device.sector_size())), "{said}");
        assert_eq!((report.len, report.sector_size), (device.sectors(), device.sector_size()));
        if kind.starts_with("tmpfs") {
            assert!(
                said.ends_with(
                    "a file on a file system in memory, 24 sectors of 512 bytes, lost at a \
                power cut, synced or not"
                ) || device.sector_size() == SectorSize::B4096,
                "{said}"
            );
            assert!(!report.survives_power_cut);
        } else if kind.starts_with("simulated") {
            assert!(said.ends_with("durable at sync"), "{said}");
        }
    });
}
