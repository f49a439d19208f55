//! Lent files of a tier on flash: only in a directory that is named, found again there, and kept
//! when the log fails.
//!
//! What a power cut leaves is in `crash_suite/flash.rs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tiersmith_block::Device;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{self, Simulator};
use tiersmith_store::check::{CheckOptions, Severity, check};
use tiersmith_store::home::{Home, SimHome};
use tiersmith_store::testing::{TestMember, attach_simulated_lending, kernel_write};
use tiersmith_store::{
    AttachedHome, Error, LentIn, Medium, OpenMode, Options, Profile, TierSpec, attach, attachment,
};

const LEN: usize = 64 << 10;
const LOG: u64 = 64 << 10;
const BYTES: u64 = 1 << 20;

fn profile() -> Profile {
    let rule = |ending: &str, class: &str, lend: &str| {
        format!("[[rule]]\nfiles = ['*.{ending}']\nclass = '{class}'\n{lend}why = 'test'\n")
    };
    let text = "description = 'test'\n[default]\nclass = 'pass'\nblock_size = 4096\n".to_owned()
        + &rule("seg", "redo", "lend = true\n")
        + &rule("db", "data", "");
    Profile::parse("lend", &text).unwrap()
}

fn options() -> Options {
    Options {
        profile: Some(profile()),
        background: false,
        lent_max_bytes: 1 << 20,
        ..Options::default()
    }
}

fn spec(member: PathBuf, medium: Medium) -> TierSpec {
    let log = if medium == Medium::Flash { LOG } else { 0 };
    TierSpec {
        unit: 32 << 10,
        lanes: 4,
        batches: 2,
        slots: 32,
        log,
        ..TierSpec::new("fast", member, medium, BYTES + LOG)
    }
}

/// A home, a file on a disk for the tier, and a directory besides.
struct Place(tempfile::TempDir);

impl Place {
    /// `None`, said on standard error, where files cannot be lent.
    fn new() -> Option<Self> {
        let place = Self(tempfile::tempdir().unwrap());
        for name in ["db", "besides"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        let why = match place.attach_in(Some("besides")) {
            Err(Error::Device(why @ tiersmith_block::Error::InMemory { .. })) => why.to_string(),
            Err(Error::LentIn { reason, .. })
                if ["in memory", "its file system"].iter().any(|why| reason.contains(why)) =>
            {
                reason
            }
            attached => {
                attached.unwrap().detach().unwrap();
                return Some(place);
            }
        };
        eprintln!("skipped: lending on flash, because {why}");
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn spec(&self, lent_in: Option<&str>) -> TierSpec {
        let given = |name| LentIn { directory: self.path(name), is_new: true };
        TierSpec { lent_in: lent_in.map(given), ..spec(self.path("fast"), Medium::Flash) }
    }

    fn attach_in(&self, lent_in: Option<&str>) -> Result<AttachedHome, Error> {
        attach(&self.path("db"), &[self.spec(lent_in)], options())
    }

    /// As the note says.
    fn again(&self) -> Result<AttachedHome, Error> {
        let note = attachment(&self.path("db")).unwrap().unwrap();
        attach(&self.path("db"), &[note.tiers[0].spec.clone()], options())
    }

    fn left_in(&self, name: &str) -> Vec<PathBuf> {
        fs::read_dir(self.path(name)).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn findings(&self, lent_in: Option<&str>) -> Vec<(Severity, u8)> {
        let options = CheckOptions {
            lent_in: lent_in.map(|name| self.path(name)),
            after_recovery: false,
            ..CheckOptions::default()
        };
        let report = check(Some(&self.path("db")), &[self.path("fast")], &options).unwrap();
        report.findings.iter().map(|f| (f.severity, f.invariant)).collect()
    }
}

fn contents(home: &AttachedHome, name: &str) -> Vec<u8> {
    let file = home.open(name, OpenMode::READ).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_tier_on_flash_lends_in_the_named_directory_alone_and_finds_it_again_or_refuses() {
    let Some(place) = Place::new() else { return };
    // Nothing is named.
    let home = place.attach_in(None).unwrap();
    let file = home.open("0.seg", OpenMode::CREATE).unwrap();
    file.write(0, &vec![1; LEN]).unwrap();
    assert!(file.lend().unwrap().is_none());
    let why = home.stats().lending.refused.unwrap();
    assert!(why.contains("on flash") && why.contains("--passthrough-dir"), "{why}");
    drop(file);
    home.detach().unwrap();

    let home = place.attach_in(Some("besides")).unwrap();
    let own = place.left_in("besides");
    assert_eq!(home.stats().lending.directories, own, "it is named before anything is lent");
    let file = home.open("0.seg", OpenMode::WRITE).unwrap();
    let lent = file.lend().unwrap().unwrap();
    kernel_write(&lent, 8192, &[7; 4096]).unwrap();
    drop((lent, file));
    let mut newest = vec![1; LEN];
    newest[8192..12288].fill(7);
    // Killed. The offline check has to be told where it is.
    drop(home);
    assert_eq!(place.findings(Some("besides")), []);
    assert_eq!(place.findings(None), [(Severity::Lost, 21)]);

    let refused = |attached: Result<AttachedHome, Error>, how: &str| {
        let said = attached.unwrap_err().to_string();
        assert!(said.contains(how), "{how}: {said}");
    };
    let before = fs::read(place.path("fast")).unwrap();
    // Its file system is not mounted; then there is another one.
    fs::rename(place.path("besides"), place.path("moved")).unwrap();
    refused(place.again(), "is not there. If its file system is not mounted");
    fs::create_dir(place.path("besides")).unwrap();
    refused(place.again(), ".lent is not there");
    let other = place.path("besides").join(format!("{:032x}.lent", 1));
    fs::create_dir(&other).unwrap();
    refused(place.again(), &format!("{:032x}.lent, of another tier", 1));
    // The wrong one is named, and nothing is left there.
    refused(place.attach_in(Some("besides")), "0.seg is lent");
    assert_eq!(place.left_in("besides"), [other]);
    refused(place.attach_in(None), "--passthrough-dir");
    assert!(fs::read(place.path("fast")).unwrap() == before, "a refusal has written");
    // The right one, where it is now; from then on the note has that.
    let home = place.attach_in(Some("moved")).unwrap();
    assert_eq!(home.stats().recovery.files_lent, 1);
    assert!(contents(&home, "0.seg") == newest);
    drop(home);
    let home = place.again().unwrap();
    assert!(contents(&home, "0.seg") == newest);
    // Nothing is lent any more: another directory may be named, and the old one is left clean.
    assert!(home.give_back("0.seg").unwrap());
    drop(home);
    fs::create_dir(place.path("third")).unwrap();
    let home = place.attach_in(Some("third")).unwrap();
    assert_eq!((place.left_in("moved").len(), place.left_in("third").len()), (0, 1));
    let file = home.open("0.seg", OpenMode::WRITE).unwrap();
    kernel_write(&file.lend().unwrap().unwrap(), 0, &[9; 100]).unwrap();
    newest[..100].fill(9);
    drop(file);
    home.detach().unwrap();
    assert_eq!(place.left_in("third").len(), 0, "a detach leaves something");
    assert!(fs::read(place.path("db").join("0.seg")).unwrap() == newest);
}

#[test]
fn a_tier_is_as_it_was_when_its_own_directory_cannot_be_made() {
    let Some(place) = Place::new() else { return };
    let seeded = |home: &str| {
        let options = Options { seed: Some(7), ..options() };
        attach(&place.path(home), &[place.spec(Some("besides"))], options)
    };
    seeded("db").unwrap().detach().unwrap();
    // Of a tier that is made anew, what another program needs may be in the first blocks.
    let before = fs::read(place.path("fast")).unwrap();
    let home = seeded("db").unwrap();
    let own = place.left_in("besides").remove(0);
    home.detach().unwrap();
    fs::write(place.path("fast"), &before).unwrap();
    // Another tier gets the same uuid, and something else has the name of its directory.
    fs::write(&own, "mine").unwrap();
    fs::create_dir(place.path("other")).unwrap();
    for home in ["db", "other"] {
        let said = seeded(home).unwrap_err().to_string();
        assert!(said.contains(own.to_str().unwrap()), "{said}");
        assert!(said.contains("Not a directory") && said.contains("Nothing was changed"), "{said}");
        assert!(fs::read(place.path("fast")).unwrap() == before, "the tier was formatted");
        assert!(!place.path(home).join(".tiersmith").exists(), "{home} has a note");
    }
    assert_eq!(fs::read(&own).unwrap(), b"mine");
    fs::remove_file(own).unwrap();
    seeded("db").unwrap().detach().unwrap();
}

#[test]
fn a_named_directory_is_the_same_by_another_path_and_none_by_a_link() {
    let Some(place) = Place::new() else { return };
    std::os::unix::fs::symlink(place.path("."), place.path("way")).unwrap();
    drop(place.attach_in(Some("besides")).unwrap());
    // Nothing is lent, and the tier's own directory is empty; the note has the other path then.
    drop(place.attach_in(Some("way/besides")).unwrap());
    assert_eq!(place.left_in("besides").len(), 1, "the tier's own directory is gone");
    drop(place.again().unwrap());
    fs::rename(place.path("besides"), place.path("moved")).unwrap();
    std::os::unix::fs::symlink("moved", place.path("besides")).unwrap();
    let said = place.again().unwrap_err().to_string();
    assert!(said.contains("it is a link") && said.contains("--passthrough-dir"), "{said}");
    place.attach_in(Some("moved")).unwrap().detach().unwrap();
    assert_eq!(place.left_in("moved").len(), 0);
}

#[test]
fn a_directory_for_lent_files_is_refused_in_memory_and_for_a_tier_that_is_not_on_flash() {
    let Some(place) = Place::new() else { return };
    let given =
        |directory: &Path| Some(LentIn { directory: directory.to_path_buf(), is_new: true });
    for medium in [Medium::Emulated, Medium::Volatile, Medium::Ephemeral] {
        let tier =
            TierSpec { lent_in: given(&place.path("besides")), ..spec(place.path("new"), medium) };
        let said = attach(&place.path("db"), &[tier], options()).unwrap_err().to_string();
        assert!(said.contains("is named for redo that the kernel writes itself"), "{said}");
        assert!(!place.path("new").exists() && place.left_in("besides").is_empty(), "{medium:?}");
    }
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    let tier = TierSpec { lent_in: given(memory.path()), ..spec(place.path("new"), Medium::Flash) };
    let said = attach(&place.path("db"), &[tier], options()).unwrap_err().to_string();
    assert!(said.contains("in memory"), "{said}");
    assert!(!place.path("new").exists(), "the tier was made");
}

/// A tier on a simulated disk, and a simulated directory for plain files.
struct Machine {
    home: Arc<SimHome>,
    lent: Arc<SimHome>,
    disk: sim::Device,
}

impl Machine {
    fn new() -> Self {
        let disk = Simulator::new().device(vec![0; (BYTES + LOG) as usize], 512);
        let new = || Arc::new(SimHome::new(None));
        Self { home: new(), lent: new(), disk }
    }

    fn attach(&self) -> AttachedHome {
        self.try_to_attach().unwrap()
    }

    fn try_to_attach(&self) -> Result<AttachedHome, Error> {
        let device = self.disk.clone();
        let member = TestMember {
            mapping: Arc::new(Mapping::in_memory(&[0; 4096], 0)),
            blocks: Some(Arc::new(move || Device::simulated(device.clone()))),
            on_flash: Some(BYTES + LOG),
        };
        let tiers = vec![(spec("/simulated/fast".into(), Medium::Flash), vec![member])];
        let (home, lent) = (self.home.clone(), self.lent.clone());
        attach_simulated_lending(home, lent, tiers, &profile(), options())
    }

    /// With two files of redo that are synced, and one of them lent and written by the kernel.
    fn lent() -> (Self, AttachedHome) {
        let machine = Self::new();
        let home = machine.attach();
        for (name, fill) in [("0.seg", 3), ("1.seg", 4)] {
            let file = home.open(name, OpenMode::CREATE).unwrap();
            file.write(0, &vec![fill; LEN]).unwrap();
            file.sync().unwrap();
        }
        let file = home.open("0.seg", OpenMode::WRITE).unwrap();
        kernel_write(&file.lend().unwrap().unwrap(), 0, &[5; 4096]).unwrap();
        (machine, home)
    }

    /// Both files, as [`Machine::lent`] left them.
    fn check(home: &AttachedHome, how: &str) {
        let mut expected = vec![3; LEN];
        expected[..4096].fill(5);
        assert!(contents(home, "0.seg") == expected, "{how}");
        assert!(contents(home, "1.seg") == vec![4; LEN], "{how}");
    }

    /// The plain files that there are, with their bytes.
    fn plains(&self) -> Vec<(PathBuf, u64)> {
        let paths = self.lent.paths().into_iter();
        paths.map(|path| (path.to_path_buf(), self.lent.stat(&path).unwrap().size)).collect()
    }
}

#[test]
fn a_log_that_fails_leaves_every_plain_file_and_whoever_writes_is_told() {
    type Step = fn(&AttachedHome) -> tiersmith_store::Result<bool>;
    let steps: [(&str, Step); 4] = [
        ("lend", |home| Ok(home.open("1.seg", OpenMode::WRITE)?.lend()?.is_some())),
        ("give back", |home| home.give_back("0.seg")),
        ("truncate", |home| home.open("0.seg", OpenMode::WRITE)?.truncate(100).map(|()| true)),
        ("unlink", |home| home.unlink("0.seg").map(|()| true)),
    ];
    for (what, step) in steps {
        for nth in 1.. {
            let (machine, home) = Machine::lent();
            let probe = home.open("probe.db", OpenMode::CREATE).unwrap();
            probe.write(0, &[1; 4096]).unwrap();
            // What nobody has open is gone for good when it is removed.
            let open = |name| (what != "unlink").then(|| home.open(name, OpenMode::WRITE).unwrap());
            let (file, other) = (open("0.seg"), home.open("1.seg", OpenMode::WRITE).unwrap());
            let before = machine.plains();
            machine.disk.fail_nth_sync(nth);
            let done = step(&home);
            // What fails after this is not the step's.
            machine.disk.fail_nth_sync(0);
            let log_failed = probe.write(0, &[2; 4096]).is_err();
            if !log_failed {
                assert!(nth > 1 && matches!(done, Ok(true)), "{what}: no sync was asked for");
                break;
            }
            let now = machine.plains();
            assert!(before.iter().all(|one| now.contains(one)), "{what} {nth}: {before:?} {now:?}");
            // The first sync is that of the word that says it.
            let begun = if what == "unlink" { nth > 1 } else { false };
            assert_eq!(done.as_ref().is_ok_and(|done| *done), begun, "{what} {nth}");
            let stays = machine.home.paths().iter().any(|path| &**path == Path::new("0.seg"));
            assert_eq!(stays, !begun, "{what} {nth}: at home");
            if what == "lend" {
                assert_eq!(now.len(), 2, "{what} {nth}: the line may say lent by now");
                if nth == 1 {
                    let stats = home.stats().lending;
                    assert_eq!(stats.files, 1, "it has become lent");
                    assert!(stats.refused.unwrap().contains("nothing more is written"));
                }
            }
            // Nothing more becomes lent: no plain file is made, and none is handed out.
            assert!(other.lend().is_err(), "{what} {nth}: the kernel has a file");
            assert_eq!(machine.plains(), now, "{what} {nth}: a plain file was made or is gone");
            // No write or sync of a lent file succeeds that might not count.
            if what == "give back" {
                let file = file.as_ref().unwrap();
                assert!(file.write(0, &[6; 10]).is_err() && file.sync().is_err(), "{nth}");
                assert!(file.lend().is_err(), "{nth}");
            }
            drop((file, other, probe, home));
            let home = machine.attach();
            if what != "unlink" && what != "truncate" || what == "unlink" && nth == 1 {
                Machine::check(&home, &format!("{what} {nth}"));
            }
            home.detach().unwrap();
            assert_eq!(machine.plains(), [], "{what} {nth}: a plain file is left after detach");
        }
    }
}

#[test]
fn a_log_that_fails_in_recovery_leaves_plain_files_that_its_last_word_says_are_of_no_use() {
    let mut failed = 0;
    for cut in 1.. {
        for nth in 1.. {
            let (machine, home) = Machine::lent();
            machine.disk.fail_nth_sync(cut);
            let given_back = home.give_back("0.seg");
            machine.disk.fail_nth_sync(0);
            if given_back.is_ok() {
                assert!(cut > 1 && failed > 0);
                return;
            }
            drop(home);
            // Now the log says one thing, and after a power cut it may say another.
            let before = machine.plains();
            machine.disk.fail_nth_sync(nth);
            let attached = machine.try_to_attach();
            machine.disk.fail_nth_sync(0);
            if let Ok(home) = attached {
                Machine::check(&home, &format!("{cut} {nth}"));
                break;
            }
            failed += 1;
            assert_eq!(machine.plains(), before, "{cut} {nth}");
            Machine::check(&machine.attach(), &format!("{cut} {nth}, then"));
        }
    }
}
