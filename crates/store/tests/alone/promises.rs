//! The eight promises of the design, each by a test of its number. Where another file proves one in
//! depth, this is the short form: 1 and 2 in `crash_suite`, `model*.rs` and `kill.rs`, 5 in
//! `hostile*.rs`, 6 in `full.rs`, 7 in `src/home/suite.rs`. 8 is in `promises/measured.rs`.

mod measured;

use crate::place;

use crate::place::Place;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tiersmith_block::Device;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{self, Simulator};
use tiersmith_store::check::{CheckOptions, check};
use tiersmith_store::crash::{Budget, CutState, Recorder, explore};
use tiersmith_store::home::{SimHome, sim::SimOptions};
use tiersmith_store::testing::{OpenDevice, TestMember};
use tiersmith_store::{
    AttachedHome, Durability, Error, FileClass, Guard, Medium, OpenMode, Options, TierSpec, attach,
    testing, waits,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 8192;

fn spec(bytes: u64) -> TierSpec {
    place::small("fast".into(), bytes)
}

fn attach_to(
    home: Arc<SimHome>,
    spec: &TierSpec,
    member: impl Into<TestMember>,
) -> Result<AttachedHome, Error> {
    let options = Options { seed: Some(1), ..place::options() };
    testing::attach_simulated(home, vec![(spec.clone(), vec![member])], &place::profile(), options)
}

/// A member that is mapped, with its blocks on a device of sectors where there is one.
fn member(mapping: Mapping, device: Option<sim::Device>) -> TestMember {
    let open =
        |device: sim::Device| -> OpenDevice { Arc::new(move || Device::simulated(device.clone())) };
    TestMember { mapping: Arc::new(mapping), blocks: device.map(open), on_flash: None }
}

/// Records what `run` does with an attached home on simulated media and tries every power cut:
/// `holds` gets what is found, and how many operations were acknowledged. On mapped media, and with
/// the blocks on a device of sectors.
fn at_every_cut(
    prepare: impl Fn(&AttachedHome),
    run: impl Fn(&AttachedHome, &Recorder),
    holds: impl Fn(&AttachedHome, usize) -> Result<(), String> + Sync,
) {
    for on_sectors in [false, true] {
        at_every_cut_on(on_sectors, &prepare, &run, &holds);
    }
}

fn at_every_cut_on(
    on_sectors: bool,
    prepare: impl Fn(&AttachedHome),
    run: impl Fn(&AttachedHome, &Recorder),
    holds: impl Fn(&AttachedHome, usize) -> Result<(), String> + Sync,
) {
    let recorder = Recorder::new();
    let size = 320 << 10;
    let mapping = recorder.simulator().mapping(vec![0; size], 0);
    let device = on_sectors.then(|| recorder.simulator().device(vec![0; size], 512));
    let spec = spec(size as u64);
    let attached = attach_to(recorder.home(), &spec, member(mapping, device)).unwrap();
    prepare(&attached);
    recorder.rebase();
    run(&attached, &recorder);
    let found = |found: CutState<'_>| {
        let mapping = Mapping::in_memory(&found.tiers[0], 0);
        let device = found.tiers.get(1).map(|image| Simulator::new().device(image.clone(), 512));
        let acked = found.acked;
        let attached = attach_to(Arc::new(found.home), &spec, member(mapping, device))
            .map_err(|e| e.to_string())?;
        holds(&attached, acked)
    };
    let report =
        explore(&recorder.recording(), &Budget { images_per_cut: 60, ..Budget::default() }, found);
    println!("{report}");
    report.assert_sound();
}

#[test]
fn promise_1_durable_what_was_acknowledged_survives_every_power_cut() {
    let (data, redo) = (place::pattern(1, 0, 8192), place::pattern(2, 0, 700));
    at_every_cut(
        |attached| {
            attached.open("a.d8", OpenMode::CREATE).unwrap().extend(4 * BLOCK).unwrap();
            attached.open("a.redo", OpenMode::CREATE).unwrap();
        },
        |attached, recorder| {
            attached.open("a.d8", OpenMode::WRITE).unwrap().write(BLOCK, &data).unwrap();
            recorder.acked();
            let file = attached.open("a.redo", OpenMode::WRITE).unwrap();
            file.write(0, &redo).unwrap();
            if file.durability() != Durability::OnReturn {
                file.sync().unwrap();
            }
            recorder.acked();
            attached.destage(None).unwrap();
            attached.evict(None, u64::MAX).unwrap();
        },
        |attached, acked| {
            if acked > 0 && place::read(attached, "a.d8")[8192..16384] != data {
                return Err("an acknowledged block is lost".into());
            }
            if acked > 1 && place::read(attached, "a.redo") != redo {
                return Err("an acknowledged redo record is lost".into());
            }
            Ok(())
        },
    );
}

#[test]
fn promise_1_durable_a_pass_file_and_a_file_of_a_volatile_tier_are_durable_after_their_sync() {
    for (medium, name) in
        [(Medium::Emulated, "a.txt"), (Medium::Volatile, "a.d8"), (Medium::Volatile, "a.redo")]
    {
        let home = Arc::new(SimHome::new(None));
        let spec = TierSpec { medium, ..spec(MIB) };
        let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 0));
        let attached = attach_to(home.clone(), &spec, mapping).unwrap();
        let file = attached.open(name, OpenMode::CREATE).unwrap();
        attached.sync_dir(name).unwrap();
        file.write(0, &[7; 20_000]).unwrap();
        file.sync().unwrap();
        // Every home that a power cut may leave now.
        let trace = home.trace();
        let mut cut = trace.player();
        cut.advance_to(trace.events().len());
        for choice in cut.choices(64, 1) {
            let found = cut.image(&choice).home().contents(Path::new(name));
            assert_eq!(found.unwrap()[..], [7; 20_000], "{medium:?} {name}");
        }
    }
}

#[test]
fn promise_2_atomic_a_block_is_old_or_new_and_a_batch_is_all_or_nothing() {
    let old = |n: u64| place::pattern(n, 0, 8192);
    let new = |n: u64| place::pattern(100 + n, 0, 8192);
    at_every_cut(
        |attached| {
            let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
            (0..4).for_each(|n| file.write(n * BLOCK, &old(n)).unwrap());
        },
        |attached, recorder| {
            let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
            file.write(0, &new(0)).unwrap();
            recorder.acked();
            let data: Vec<_> = (1..4).map(new).collect();
            let batch: Vec<(u64, &[u8])> =
                (1..).zip(&data).map(|(n, d)| (n * BLOCK, &d[..])).collect();
            file.write_batch(&batch).unwrap();
            recorder.acked();
        },
        |attached, acked| {
            let all = place::read(attached, "a.d8");
            let is_new: Vec<bool> = (0..4)
                .map(|n| match &all[(n * BLOCK) as usize..][..8192] {
                    bytes if bytes == old(n) => Ok(false),
                    bytes if bytes == new(n) => Ok(true),
                    _ => Err(format!("block {n} is torn")),
                })
                .collect::<Result<_, _>>()?;
            match (is_new[0], &is_new[1..], acked) {
                (false, _, 1..) | (_, [false, ..], 2..) => Err("acknowledged, and old".into()),
                (_, [a, b, c], _) if a != b || b != c => {
                    Err(format!("part of the batch: {is_new:?}"))
                }
                _ => Ok(()),
            }
        },
    );
}

/// Everything the offline check has to say about a closed home.
fn assert_sound(place: &Place, specs: &[TierSpec]) {
    for spec in specs {
        let aside = place.aside();
        let home = if aside.exists() { aside } else { place.home() };
        let report = check(Some(&home), &spec.members, &CheckOptions::default()).unwrap();
        assert!(report.is_sound(), "{:#?}", report.findings);
        assert!(report.summary.home_compared);
    }
}

#[test]
fn promise_3_home_is_truth_for_clean_blocks() {
    let place = Place::new();
    std::fs::write(place.home().join("old.d8"), place::pattern(1, 0, 100_000)).unwrap();
    let spec = place.striped(2, 2 * MIB);
    let attached = attach(&place.home(), std::slice::from_ref(&spec), place::options()).unwrap();
    let old = attached.open("old.d8", OpenMode::WRITE).unwrap();
    let at_home = |from: usize, to: usize| {
        std::fs::read(place.aside().join("old.d8")).unwrap()[from..to].to_vec()
    };
    // Admitted by reading, and destaged after writing: in both cases home has the bytes.
    place::contents(&old);
    assert_eq!(old.blocks_in_tier(), (0, 13));
    assert!(at_home(0, 100_000) == place::pattern(1, 0, 100_000));
    old.write(8192, &place::pattern(2, 0, 8192)).unwrap();
    old.write(30_000, &place::pattern(3, 0, 10)).unwrap();
    assert_eq!(old.blocks_in_tier(), (2, 11));
    assert!(
        at_home(8192, 16_384) == place::pattern(1, 0, 100_000)[8192..16_384],
        "a dirty block is not home yet"
    );
    attached.destage(Some(Path::new("old.d8"))).unwrap();
    assert_eq!(old.blocks_in_tier(), (0, 13));
    assert!(at_home(0, 100_000) == place::contents(&old));
    // The redo that was drained is there too.
    let redo = attached.open("a.redo", OpenMode::CREATE).unwrap();
    redo.write(0, &place::pattern(4, 0, 50_000)).unwrap();
    attached.destage(Some(Path::new("a.redo"))).unwrap();
    assert!(std::fs::read(place.aside().join("a.redo")).unwrap() == place::contents(&redo));
    drop((old, redo, attached));
    // A second reader of the format compares every clean block with home.
    assert_sound(&place, &[spec]);
}

#[test]
fn promise_4_volatile_media_never_hold_the_only_copy() {
    let place = Place::new();
    std::fs::write(place.home().join("old.d8"), place::pattern(1, 0, 50_000)).unwrap();
    let spec = TierSpec { medium: Medium::Volatile, ..place.tier(MIB) };
    let attached = attach(&place.home(), std::slice::from_ref(&spec), place::options()).unwrap();
    let tier = &attached.stats().tiers[0];
    assert!(tier.durability == Durability::Never && !tier.emulated);
    assert!(tier.media[0].contains("does not survive a power cut"), "{}", tier.media[0]);
    let mut expected = place::pattern(1, 0, 50_000);
    let file = attached.open("old.d8", OpenMode::WRITE).unwrap();
    let mut rng = fastrand::Rng::with_seed(place::seed());
    for n in 0..200 {
        // A read fills the tier; what a write changes is at home when the write returns.
        assert!(place::contents(&file) == expected, "step {n}");
        match rng.u32(..8) {
            0 => {
                let size = rng.usize(1..60_000);
                file.truncate(size as u64).unwrap();
                expected.resize(size, 0);
            }
            1 => attached.background_step().unwrap(),
            2 => drop(attached.evict(None, 2).unwrap()),
            3 => drop(attached.flush_all().unwrap()),
            _ => {
                let (at, len) = (rng.usize(..50_000), rng.usize(1..9000));
                let data = place::pattern(n, 0, len);
                file.write(at as u64, &data).unwrap();
                expected.resize(expected.len().max(at + len), 0);
                expected[at..at + len].copy_from_slice(&data);
            }
        }
        assert_eq!(file.blocks_in_tier().0, 0, "a dirty block in step {n}");
        assert!(
            std::fs::read(place.aside().join("old.d8")).unwrap() == expected,
            "home is behind in step {n}"
        );
    }
    // A step or the background may just have given the copies up; reading brings them back.
    let has_copies =
        (0..100).any(|_| !place::contents(&file).is_empty() && file.blocks_in_tier().1 > 0);
    assert!(has_copies);
    assert_eq!(attached.stats().tiers[0].dirty_bytes, 0);
    // What only a persistent tier can do is not offered; what is written is durable at home's sync.
    assert_eq!(file.durability(), Durability::AtSync);
    assert!(!file.has_batches());
    assert!(matches!(file.write_batch(&[(0, &[0; 8192])]), Err(Error::Invalid { .. })));
    assert_eq!(attached.open("a.redo", OpenMode::CREATE).unwrap().class(), FileClass::Pass);
    drop((file, attached));
    // Reopening is cold, with the old file or with an empty one (the memory lost its contents).
    for lost in [false, true] {
        if lost {
            std::fs::write(place.member("fast"), vec![0; MIB as usize]).unwrap();
        }
        let attached =
            attach(&place.home(), std::slice::from_ref(&spec), place::options()).unwrap();
        let tier = &attached.stats().tiers[0];
        assert_eq!((tier.cached_bytes, tier.dirty_bytes, tier.files), (0, 0, 0));
        assert!(place::read(&attached, "old.d8") == expected);
    }
    let attached = attach(&place.home(), &[spec], place::options()).unwrap();
    attached.detach().unwrap();
    assert!(std::fs::read(place.home().join("old.d8")).unwrap() == expected);
}

#[test]
fn promise_4_only_emulate_lets_an_ordinary_file_hold_the_only_copy_and_it_is_printed() {
    let place = Place::new();
    let spec = TierSpec { medium: Medium::Persistent, ..place.tier(MIB) };
    let error = attach(&place.home(), &[spec], place::options()).err().unwrap().to_string();
    assert!(error.contains("not on a DAX file system") && error.contains("emulate"), "{error}");
    assert!(!place.member("fast").exists());
    let attached = attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 8192]).unwrap();
    assert_eq!(file.blocks_in_tier(), (1, 0));
    let tier = &attached.stats().tiers[0];
    assert!(tier.emulated && tier.durability == Durability::OnReturn);
    assert_eq!(file.durability(), Durability::OnReturn);
    let pass = attached.open("a.txt", OpenMode::CREATE).unwrap();
    assert_eq!(pass.durability(), Durability::AtSync);
    assert!(tier.media[0].contains("EMULATED"), "{}", tier.media[0]);
}

#[test]
fn promise_5_never_silently_wrong_damage_and_a_changed_home_are_noticed() {
    let place = Place::new();
    let spec = place.tier(MIB);
    let attached = attach(&place.home(), std::slice::from_ref(&spec), place::options()).unwrap();
    attached
        .open("a.d8", OpenMode::CREATE)
        .unwrap()
        .write(0, &place::pattern(1, 0, 20_000))
        .unwrap();
    drop(attached);
    let whole = std::fs::read(place.member("fast")).unwrap();
    let with = |bytes: &[u8]| {
        std::fs::write(place.member("fast"), bytes).unwrap();
        attach(&place.home(), std::slice::from_ref(&spec), place::options())
    };
    // One of two superblock copies; a file slot, which has one copy of its identity.
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    assert!(place::read(&with(&damaged).unwrap(), "a.d8") == place::pattern(1, 0, 20_000));
    let mut damaged = whole.clone();
    damaged[16384 + 2 * 4096 + 16] ^= 1;
    assert!(matches!(with(&damaged), Err(Error::Damaged { .. })));
    let path = place.aside().join("a.d8");
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, "x").unwrap();
    assert!(matches!(with(&whole), Err(Error::HomeChanged { .. })));
    std::fs::write(&path, "").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    assert!(place::read(&with(&whole).unwrap(), "a.d8") == place::pattern(1, 0, 20_000));
}

#[test]
fn promise_6_full_is_not_fatal_for_tier_and_home() {
    let home = Arc::new(SimHome::new(None));
    let mapping = Arc::new(Mapping::in_memory(&vec![0; MIB as usize], 0));
    let attached = attach_to(home.clone(), &spec(MIB), mapping).unwrap();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    // Four times the tier: writers wait, and it is an event.
    let write = |n: u64| file.write(n * BLOCK, &place::pattern(n, 0, 8192));
    (0..512).for_each(|n| write(n).unwrap());
    assert!(attached.stats().waits.event(waits::FREE_WAIT).count() > 0);
    // Home full: the writer gets ENOSPC, and what was acknowledged is there.
    home.set_options(SimOptions { capacity: Some(home.used()), ..SimOptions::default() });
    let count = (512..).find(|n| write(*n).is_err_and(|e| e.errno() == 28)).unwrap();
    let all = place::contents(&file);
    assert!((0..count).all(|n| all[(n * BLOCK) as usize..][..8192] == place::pattern(n, 0, 8192)));
    home.set_options(SimOptions::default());
    write(count).unwrap();
}

const WRITER: &str = "TIERSMITH_PROMISE_7";

/// Not a test: the process that is killed. By itself it does nothing.
#[test]
fn writer_of_promise_7() {
    let Ok(dir) = std::env::var(WRITER) else { return };
    let dir = Path::new(&dir);
    let attached =
        attach(&dir.join("db"), &[place::small(dir.join("fast"), MIB)], place::options()).unwrap();
    attached.open("a.d8", OpenMode::CREATE).unwrap().write(0, &place::pattern(1, 0, 9000)).unwrap();
    println!("\nwritten");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

fn assert_only_the_note(place: &Place) {
    let names: Vec<_> =
        std::fs::read_dir(place.home()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["README-TIERSMITH.txt"]);
    let note = std::fs::read_to_string(place.home().join("README-TIERSMITH.txt")).unwrap();
    for said in [&place.home(), &place.aside(), &place.member("fast")] {
        assert!(
            note.contains(&said.display().to_string()),
            "the note does not name {}:\n{note}",
            said.display()
        );
    }
    assert!(note.contains("not a usable") && note.contains("detach"), "{note}");
    assert!(std::fs::metadata(place.home()).unwrap().permissions().readonly());
}

#[test]
fn promise_7_no_back_door_while_attached_and_after_a_kill_the_path_holds_only_the_note() {
    let place = Place::new();
    std::fs::write(place.home().join("PG_VERSION"), "17").unwrap();
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &full_name!("writer_of_promise_7"), "--nocapture", "--test-threads=1"])
        .env(WRITER, place.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    assert!(lines.any(|l| l.unwrap() == "written"));
    assert_only_the_note(&place);
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_only_the_note(&place);
    let attached = attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap();
    assert_only_the_note(&place);
    assert!(place::read(&attached, "a.d8") == place::pattern(1, 0, 9000));
    drop(attached);
    assert_only_the_note(&place);
    attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap().detach().unwrap();
    assert!(!place.vault().exists());
    let mut names: Vec<_> =
        std::fs::read_dir(place.home()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["PG_VERSION", "a.d8"]);
    assert!(std::fs::read(place.home().join("a.d8")).unwrap() == place::pattern(1, 0, 9000));
}

/// Whether `user` gets to a file of the home or can make one, by the path of its files.
fn gets_in(place: &Place, user: u32) -> bool {
    let files = place.vault().join("home");
    let as_user = |program: &str, name: &str| {
        let mut command = Command::new(program);
        command.arg(files.join(name)).stdout(Stdio::null()).stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(user).gid(user);
        }
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success() || said.contains("Permission denied"), "{program}: {said}");
        ended.status.success()
    };
    as_user("cat", "PG_VERSION") || as_user("touch", "new")
}

fn owner_and_mode(path: &Path) -> (u32, u32) {
    let found = std::fs::metadata(path).unwrap();
    (found.uid(), found.mode() & 0o7777)
}

#[test]
fn promise_7_no_back_door_the_databases_user_does_not_reach_the_files() {
    let me = rustix::process::geteuid();
    // Root attaches the home of somebody else, or that user attaches it himself.
    for root_attaches in [true, false] {
        if root_attaches && !me.is_root() {
            eprintln!("skipped: a home that root attaches, because this is not root");
            continue;
        }
        let user = if me.is_root() { 65534 } else { me.as_raw() };
        let place = Place::new();
        std::fs::write(place.home().join("PG_VERSION"), "17").unwrap();
        let program = place.path().join("program");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        if me.is_root() {
            let all = [place.path().to_path_buf(), place.home(), place.home().join("PG_VERSION")];
            all.iter()
                .for_each(|path| std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap());
            std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let mut writer = Command::new(&program);
        writer
            .args([
                "--exact",
                &full_name!("writer_of_promise_7"),
                "--nocapture",
                "--test-threads=1",
            ])
            .env(WRITER, place.path())
            .stdout(Stdio::piped());
        if me.is_root() && !root_attaches {
            writer.uid(user).gid(user);
        }
        let mut writer = writer.spawn().unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        assert!(lines.any(|l| l.unwrap() == "written"));
        let locked = if root_attaches { (0, 0o700) } else { (user, 0) };
        assert_eq!(owner_and_mode(&place.vault()), locked);
        assert!(!gets_in(&place, user), "while it is attached");
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert!(!gets_in(&place, user), "after a kill");
        // Looking at it leaves it locked, and so does attaching again: by now it is root's, if root
        // does.
        let _ = tiersmith_store::attachment(&place.home()).unwrap().unwrap();
        assert_eq!(owner_and_mode(&place.vault()), locked);
        let attached = attach(&place.home(), &[place.tier(MIB)], place::options()).unwrap();
        assert_eq!(
            owner_and_mode(&place.vault()),
            if me.is_root() { (0, 0o700) } else { (user, 0) }
        );
        assert!(!gets_in(&place, user), "attached again");
        assert!(place::read(&attached, "a.d8") == place::pattern(1, 0, 9000));
        attached.detach().unwrap();
        assert!(!place.vault().exists());
        assert_eq!(owner_and_mode(&place.home()).0, user);
        assert!(std::fs::read(place.home().join("a.d8")).unwrap() == place::pattern(1, 0, 9000));
    }
}

#[test]
fn promise_7_no_back_door_when_a_door_guards_the_home_itself_the_directory_stays() {
    let place = Place::new();
    let options = Options { guard: Guard::Door, ..place::options() };
    let attached = attach(&place.home(), &[place.tier(MIB)], options.clone()).unwrap();
    attached.open("a.d8", OpenMode::CREATE).unwrap().write(0, &[1; 100]).unwrap();
    assert!(place.home().join("a.d8").exists() && !place.vault().exists());
    assert!(place.home().join(".tiersmith").exists(), "whoever looks finds that it is attached");
    drop(attached);
    attach(&place.home(), &[place.tier(MIB)], options).unwrap().detach().unwrap();
    assert_eq!(std::fs::read(place.home().join("a.d8")).unwrap(), [1; 100]);
    assert!(!place.home().join(".tiersmith").exists());
}
