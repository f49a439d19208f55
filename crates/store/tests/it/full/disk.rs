//! A real file system that runs full: a small ext4 on a loop device.

use super::*;

/// A small ext4 on a loop device.
struct SmallDisk {
    place: Place,
}

impl SmallDisk {
    fn new(bytes: u64) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("mounting needs root".into());
        }
        let disk = Self { place: Place::new() };
        let image = disk.place.path().join("disk");
        std::fs::File::create(&image).and_then(|f| f.set_len(bytes)).map_err(|e| e.to_string())?;
        std::fs::create_dir(disk.path()).map_err(|e| e.to_string())?;
        let run = |command: &mut Command| match command.output() {
            Ok(done) if done.status.success() => Ok(()),
            Ok(done) => {
                Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim()))
            }
            Err(e) => Err(format!("{command:?}: {e}")),
        };
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0", "-O", "^has_journal"])
            .arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()))?;
        Ok(disk)
    }

    /// Or why there is none, on the test's output.
    fn or_skip(bytes: u64) -> Option<Self> {
        Self::new(bytes).map_err(|why| println!("SKIPPED: no file system of its own: {why}")).ok()
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("mounted")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ =
            Command::new("umount").arg(self.path()).stderr(std::process::Stdio::null()).status();
    }
}

#[test]
fn home_running_full_on_a_real_disk_gives_enospc_to_the_writer_and_loses_nothing() {
    let Some(disk) = SmallDisk::or_skip(12 * MIB) else { return };
    let tier = Place::in_memory();
    let home = disk.path().join("db");
    std::fs::create_dir(&home).unwrap();
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 4 << 20]).unwrap();
    for background in [false, true] {
        let spec = tier.tier(2 * MIB);
        let options = Options { background, ..place::options() };
        let attached = attach(&home, &spec, options.clone()).unwrap();
        let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
        let redo = attached.open("a.redo", OpenMode::CREATE).unwrap();
        redo.write(0, &place::pattern(77, 0, 50_000)).unwrap();
        let (acked, error) = write_until_refused(&file, 0, 3000);
        assert_no_space(&error.expect("16 MiB fitted into 12"));
        assert!(acked * 8192 > 5 * MIB, "only {acked} blocks");
        assert_blocks(&file, acked);
        // Overwriting, which needs no new space at home, goes on or is refused, but nothing is
        // lost.
        let refused = file.write(0, &place::pattern(0, 0, 8192)).is_err();
        assert_blocks(&file, acked);
        assert!(attached.flush_all().is_err_and(|e| e.errno() == ENOSPC));
        assert_blocks(&file, acked);
        drop((file, redo, attached));
        // The same after reopening on the full disk; then space is freed and everything goes on.
        let attached = attach(&home, &spec, options).unwrap();
        let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
        assert_blocks(&file, acked);
        std::fs::remove_file(&ballast).unwrap();
        let (more, error) = write_until_refused(&file, acked, acked + 60);
        assert!(error.is_none(), "{error:?}");
        assert_blocks(&file, more);
        drop(file);
        attached.detach().unwrap();
        let plain = std::fs::read(home.join("a.d8")).unwrap();
        assert_eq!(plain.len() as u64, more * 8192);
        assert!(
            (0..more)
                .all(|n| plain[(n * 8192) as usize..][..8192] == place::pattern(n, n * 8192, 8192))
        );
        assert!(std::fs::read(home.join("a.redo")).unwrap() == place::pattern(77, 0, 50_000));
        println!(
            "background {background}: {acked} blocks acknowledged before ENOSPC, overwriting then \
             refused: {refused}"
        );
        std::fs::remove_file(home.join("a.d8")).unwrap();
        std::fs::write(&ballast, vec![1; 4 << 20]).unwrap();
    }
}

#[test]
fn a_home_too_full_for_the_attachment_note_is_refused_and_left_as_it_was() {
    let Some(disk) = SmallDisk::or_skip(MIB) else { return };
    let tier = Place::new();
    let home = disk.path().join("db");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("a.d8"), "contents").unwrap();
    let mut ballast = std::fs::File::create(disk.path().join("ballast")).unwrap();
    while std::io::Write::write_all(&mut ballast, &[0; 1024]).is_ok() {}
    drop(ballast);
    let error = attach(&home, &tier.tier(MIB), place::options()).err().unwrap();
    assert_no_space(&error);
    assert_eq!(std::fs::read(home.join("a.d8")).unwrap(), b"contents");
    assert!(!home.join(".tiersmith").exists());
    std::fs::remove_file(disk.path().join("ballast")).unwrap();
    let attached = attach(&home, &tier.tier(MIB), place::options()).unwrap();
    assert_eq!(place::read(&attached, "a.d8"), b"contents");
    attached.detach().unwrap();
    let left: Vec<_> = std::fs::read_dir(&home).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["a.d8"]);
}

#[test]
fn a_tier_that_cannot_grow_because_its_disk_is_full_goes_on_at_its_size() {
    let Some(disk) = SmallDisk::or_skip(12 * MIB) else { return };
    let place = Place::new();
    let spec = TierSpec {
        max_size: 64 * MIB,
        grow_by: 2 * MIB,
        ..place::small(disk.path().join("fast"), 2 * MIB)
    };
    let attached = attach(&place.home(), &spec, place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let (written, error) =
        write_until_refused(&file, 0, if place::ON_SECTORS { 700 } else { 2000 });
    assert!(error.is_none(), "{error:?}");
    let bytes = attached.stats().tiers[0].bytes;
    assert!((4 * MIB..12 * MIB).contains(&bytes), "grew to {bytes}");
    assert_blocks(&file, written);
    let error = attached.grow("fast").unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    drop((file, attached));
    let attached = attach(&place.home(), &spec, place::options()).unwrap();
    place::assert_accounted(&attached.stats());
    assert_blocks(&attached.open("a.d8", OpenMode::WRITE).unwrap(), written);
}
