//! Lent files on a real directory: what stops an attach, what the offline check says, and how much
//! is lent.

use crate::gate::Gate;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiersmith_pmem::Mapping;
use tiersmith_store::check::{CheckOptions, Severity, check};
use tiersmith_store::home::SimHome;
use tiersmith_store::{
    AttachedHome, Error, Medium, OpenMode, Options, Profile, TierSpec, attach, testing,
};

const LEN: usize = 64 << 10;

fn profile() -> Profile {
    let text = "description = 'test'\n[default]\nclass = 'pass'\nblock_size = \
                4096\n[[rule]]\nfiles = ['*.seg']\nclass = 'redo'\n\
        lend = true\nwhy = 'test'\n";
    Profile::parse("lend", text).unwrap()
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.home()).unwrap();
        place
    }

    fn home(&self) -> PathBuf {
        self.0.path().join("db")
    }

    fn member(&self) -> PathBuf {
        self.0.path().join("fast")
    }

    fn try_attach(&self, lent_max_bytes: u64) -> Result<AttachedHome, Error> {
        let mut spec = TierSpec::new("fast", self.member(), Medium::Emulated, 4 << 20);
        (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 16);
        let options = Options {
            profile: Some(profile()),
            background: false,
            lent_max_bytes,
            ..Options::default()
        };
        attach(&self.home(), &[spec], options)
    }

    fn attach(&self) -> AttachedHome {
        self.try_attach(1 << 20).unwrap()
    }

    fn plains(&self) -> Vec<PathBuf> {
        let dir = fs::read_dir(self.0.path().join("fast.lent"));
        dir.map_or(Vec::new(), |dir| dir.map(|e| e.unwrap().path()).collect())
    }

    fn findings(&self) -> Vec<(Severity, u8)> {
        let report = check(Some(&self.home()), &[self.member()], &CheckOptions::default()).unwrap();
        report.findings.iter().map(|f| (f.severity, f.invariant)).collect()
    }
}

/// Makes a file, and lends it. `false` where nothing can be lent, with a line that says why.
fn lend(home: &AttachedHome, name: &str, fill: u8) -> bool {
    let file = home.open(name, OpenMode::CREATE).unwrap();
    file.write(0, &vec![fill; LEN]).unwrap();
    let lent = file.lend().unwrap().is_some();
    if !lent {
        let why = home.stats().lending.refused.unwrap_or_default();
        // Anything else is a failure.
        assert!(why.contains("its file system"), "nothing is lent: {why}");
        eprintln!("skipped: lending, because {why}");
    }
    lent
}

#[test]
fn a_lent_file_without_its_plain_file_stops_the_attach_and_nothing_is_touched() {
    let place = Place::new();
    let home = place.attach();
    if !lend(&home, "0.seg", 7) {
        return;
    }
    drop(home);
    let plain = place.plains().pop().unwrap();
    let kept = plain.with_extension("kept");
    assert_eq!(place.findings(), []);
    let refused = |how: &str| {
        let before = fs::read(place.member()).unwrap();
        let error = place.try_attach(1 << 20).unwrap_err();
        assert!(matches!(error, Error::Lent { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains(how) && said.contains("0.seg") && said.contains("fast.lent"),
            "{said}"
        );
        assert!(fs::read(place.member()).unwrap() == before, "nothing was changed");
    };
    fs::rename(&plain, &kept).unwrap();
    refused("No such file");
    assert_eq!(place.findings(), [(Severity::Lost, 21)]);
    std::os::unix::fs::symlink(&kept, &plain).unwrap();
    refused("cannot be used");
    assert_eq!(place.findings(), [(Severity::Lost, 21)]);
    fs::remove_file(&plain).unwrap();
    fs::write(&plain, "short").unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o600)).unwrap();
    refused("it has 5 bytes");
    assert_eq!(place.findings(), [(Severity::Lost, 21)]);
    fs::rename(&kept, &plain).unwrap();
    // The home moved on behind the back: as with newer blocks in the tier.
    let aside = place.0.path().join("db.tiersmith-home/home/0.seg");
    let bytes = fs::read(&aside).unwrap();
    let time = fs::metadata(&aside).unwrap().modified().unwrap();
    fs::write(&aside, "other").unwrap();
    let error = place.try_attach(1 << 20).unwrap_err();
    assert!(matches!(error, Error::HomeChanged { dirty_blocks: 16, .. }), "{error}");
    fs::write(&aside, bytes).unwrap();
    fs::File::options().write(true).open(&aside).unwrap().set_modified(time).unwrap();
    // A plain file of nobody's goes; one that is longer than was known is as long as it is.
    let ours = plain.file_name().unwrap().to_str().unwrap().to_owned();
    let (tier, of_tier) = ours.split_once('.').unwrap();
    let older = format!("{tier}.00000000ff.{:012x}", 1u64);
    fs::write(plain.with_file_name(older), "an orphan").unwrap();
    fs::create_dir(plain.with_file_name(format!("{tier}.00000000fe.{:012x}", 1u64))).unwrap();
    fs::write(plain.with_file_name(format!("{:032x}.{of_tier}", 1)), "of another tier").unwrap();
    let grown = fs::OpenOptions::new().write(true).open(&plain).unwrap();
    grown.set_len(LEN as u64 + 10).unwrap();
    drop(grown);
    let home = place.attach();
    let mut left = place.plains();
    left.sort();
    assert_eq!(left.len(), 3, "{left:?}: its own, one of another tier, and a directory");
    assert!(left.contains(&plain));
    for other in left.into_iter().filter(|other| *other != plain) {
        if other.is_dir() {
            fs::remove_dir(other).unwrap()
        } else {
            fs::remove_file(other).unwrap()
        }
    }
    assert_eq!(home.stat("0.seg").unwrap().size, LEN as u64 + 10);
    home.detach().unwrap();
    let bytes = fs::read(place.home().join("0.seg")).unwrap();
    assert_eq!((bytes.len(), bytes[LEN - 1], bytes[LEN]), (LEN + 10, 7, 0));
    assert!(!place.0.path().join("fast.lent").exists());
}

#[test]
fn what_the_kernel_wrote_is_read_and_given_back() {
    let place = Place::new();
    let home = place.attach();
    if !lend(&home, "0.seg", 7) {
        return;
    }
    home.flush_all().unwrap();
    let lent = home.open("0.seg", OpenMode::WRITE).unwrap().lend().unwrap().unwrap();
    testing::kernel_write(&lent, 0, &[9; 100]).unwrap();
    let at_home = place.0.path().join("db.tiersmith-home/home/0.seg");
    assert_eq!(fs::read(&at_home).unwrap()[0], 7);
    let mut bytes = [0; 200];
    home.open("0.seg", OpenMode::READ).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!((bytes[99], bytes[100]), (9, 7));
    // While the kernel has it home can be brought up to date, and does not count as such.
    home.flush_all().unwrap();
    assert_eq!(fs::read(&at_home).unwrap()[..101], bytes[..101]);
    testing::kernel_write(&lent, 50, &[5; 100]).unwrap();
    assert!(!home.give_back("0.seg").unwrap());
    drop(lent);
    assert!(home.give_back("0.seg").unwrap());
    let given = fs::read(&at_home).unwrap();
    assert_eq!((given[49], given[50], given[149], given[150]), (9, 5, 5, 7));
    assert!(place.plains().is_empty());
}

#[test]
fn no_more_is_lent_than_may_be_and_those_idle_longest_make_room() {
    let place = Place::new();
    let home = place.try_attach(2 * LEN as u64).unwrap();
    if !lend(&home, "0.seg", 1) {
        return;
    }
    assert!(lend(&home, "1.seg", 2));
    let is_lent = |name: &str| home.files().iter().any(|f| f.path == Path::new(name) && f.lent);
    // Home does not have what is in them, so neither can go at once.
    let third = home.open("2.seg", OpenMode::CREATE).unwrap();
    third.write(0, &vec![3; LEN]).unwrap();
    assert!(third.lend().unwrap().is_none());
    assert!(home.stats().lending.refused.unwrap().contains("more than"));
    // In the background one goes home at each step, and then one makes room.
    for _ in 0..3 {
        home.background_step().unwrap();
    }
    assert!(!is_lent("0.seg") && is_lent("1.seg"));
    let lent = third.lend().unwrap().unwrap();
    assert_eq!(home.stats().lending.bytes, 2 * LEN as u64);
    // One that is in use stays, whoever wants room.
    assert!(!home.give_back("2.seg").unwrap());
    assert!(matches!(home.clone().detach(), Err(Error::Busy(_))));
    drop((lent, third));
    home.detach().unwrap();
    for (n, byte) in [1, 2, 3].into_iter().enumerate() {
        assert_eq!(fs::read(place.home().join(format!("{n}.seg"))).unwrap(), vec![byte; LEN]);
    }
}

#[test]
fn a_pinned_file_is_not_lent_and_a_lent_one_may_be_pinned() {
    let place = Place::new();
    let home = place.attach();
    if !lend(&home, "0.seg", 1) {
        return;
    }
    home.pin("0.seg").unwrap();
    drop(home);
    let home = place.attach();
    assert!(home.files().iter().any(|f| f.lent && f.pinned));
    let file = home.open("1.seg", OpenMode::CREATE).unwrap();
    file.write(0, &vec![2; LEN]).unwrap();
    home.pin("1.seg").unwrap();
    assert!(file.lend().unwrap().is_none());
    assert!(home.stats().lending.refused.unwrap().contains("pinned"));
    let coming = home.open("2.seg", OpenMode::CREATE).unwrap();
    coming.write(0, &vec![3; LEN]).unwrap();
    let moved = home.move_in_at("2.seg", None, |_| {
        assert!(coming.lend().unwrap().is_none());
        false
    });
    assert!(moved.unwrap().stopped);
    assert!(home.stats().lending.refused.unwrap().contains("being brought into"));
    drop(coming);
    // No segment by its name: nothing is lent, and nothing is said about it.
    drop(file);
    home.detach().unwrap();
    assert_eq!(fs::read(place.home().join("0.seg")).unwrap(), vec![1; LEN]);
}

/// Contents of a file of the home, as it is attached.
fn contents(home: &AttachedHome, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    home.open(name, OpenMode::READ).unwrap().read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn another_tier_at_the_same_path_leaves_the_plain_files_that_are_there() {
    let place = Place::new();
    let home = place.attach();
    if !lend(&home, "0.seg", 7) {
        return;
    }
    drop(home);
    let kept = place.0.path().join("kept");
    fs::rename(place.member(), &kept).unwrap();
    let old = place.home().with_file_name("db.old");
    // Another home, another tier, the same member path.
    for name in ["db", "db.tiersmith-home"] {
        fs::rename(place.0.path().join(name), place.0.path().join(format!("{name}.old"))).unwrap();
    }
    assert!(old.exists());
    fs::create_dir(place.home()).unwrap();
    let home = place.attach();
    assert!(lend(&home, "0.seg", 8));
    assert_eq!(place.plains().len(), 2);
    drop(home);
    let home = place.attach();
    assert_eq!(contents(&home, "0.seg"), [8; LEN]);
    home.detach().unwrap();
    assert_eq!(place.plains().len(), 1);
    fs::remove_dir_all(place.home()).unwrap();
    for name in ["db", "db.tiersmith-home"] {
        fs::rename(place.0.path().join(format!("{name}.old")), place.0.path().join(name)).unwrap();
    }
    fs::rename(&kept, place.member()).unwrap();
    let home = place.attach();
    assert_eq!(contents(&home, "0.seg"), [7; LEN]);
    home.detach().unwrap();
    assert_eq!(fs::read(place.home().join("0.seg")).unwrap(), [7; LEN]);
}

#[test]
fn a_plain_file_of_another_tier_or_of_another_loan_is_not_taken() {
    let (one, two) = (Place::new(), Place::new());
    let (home, other) = (one.attach(), two.attach());
    if !lend(&home, "0.seg", 1) || !lend(&other, "0.seg", 2) {
        return;
    }
    drop((home, other));
    let lent = |place: &Place| place.0.path().join("fast.lent");
    let copy = |from: &Path, to: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir(to).unwrap();
        fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    };
    let refused = |how: &str| {
        let said = one.try_attach(1 << 20).unwrap_err().to_string();
        assert!(said.contains(how) && said.contains("0.seg"), "{said}");
        assert_eq!(one.findings(), [(Severity::Lost, 21)]);
    };
    let mine = one.0.path().join("mine");
    fs::rename(lent(&one), &mine).unwrap();
    copy(&lent(&two), &lent(&one));
    refused("of another tier");
    fs::remove_dir_all(lent(&one)).unwrap();
    fs::rename(&mine, lent(&one)).unwrap();
    // An older loan of the same file, in the same tier.
    copy(&lent(&one), &mine);
    let home = one.attach();
    assert!(home.give_back("0.seg").unwrap());
    assert!(lend(&home, "0.seg", 3));
    drop(home);
    let newest = one.0.path().join("newest");
    fs::rename(lent(&one), &newest).unwrap();
    fs::rename(&mine, lent(&one)).unwrap();
    refused("older or newer state");
    fs::remove_dir_all(lent(&one)).unwrap();
    fs::rename(&newest, lent(&one)).unwrap();
    let home = one.attach();
    assert_eq!(contents(&home, "0.seg"), [3; LEN]);
    home.detach().unwrap();
    two.attach().detach().unwrap();
}

#[test]
fn an_older_copy_of_the_tier_leaves_what_a_newer_state_of_it_lent() {
    let place = Place::new();
    let home = place.attach();
    home.open("0.seg", OpenMode::CREATE).unwrap().write(0, &[1; LEN]).unwrap();
    drop(home);
    let (older, newer) = (place.0.path().join("older"), place.0.path().join("newer"));
    fs::copy(place.member(), &older).unwrap();
    let home = place.attach();
    if !lend(&home, "0.seg", 2) {
        return;
    }
    drop(home);
    let plains = place.plains();
    fs::rename(place.member(), &newer).unwrap();
    fs::rename(&older, place.member()).unwrap();
    let home = place.attach();
    assert_eq!(contents(&home, "0.seg"), [1; LEN]);
    assert_eq!(place.plains(), plains);
    drop(home);
    fs::rename(&newer, place.member()).unwrap();
    let home = place.attach();
    assert_eq!(contents(&home, "0.seg"), [2; LEN]);
    home.detach().unwrap();
}

#[test]
fn a_directory_that_lets_others_in_is_named_with_its_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let home = place.attach();
    if !lend(&home, "0.seg", 1) {
        return;
    }
    drop(home);
    let lent = place.0.path().join("fast.lent");
    fs::set_permissions(&lent, fs::Permissions::from_mode(0o755)).unwrap();
    let said = place.try_attach(1 << 20).unwrap_err().to_string();
    assert!(said.contains(&format!("chmod 700 {}", lent.display())), "{said}");
    fs::set_permissions(&lent, fs::Permissions::from_mode(0o700)).unwrap();
    place.attach().detach().unwrap();
}

#[test]
fn a_plain_file_that_is_not_its_owners_alone_is_found_offline_and_refused_and_is_sound_again_afterwards()
 {
    use std::os::unix::fs::{PermissionsExt, chown};
    let place = Place::new();
    let home = place.attach();
    if !lend(&home, "0.seg", 1) {
        return;
    }
    drop(home);
    let (plain, dir) = (place.plains().pop().unwrap(), place.0.path().join("fast.lent"));
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let found = |how: &str| {
        let report =
            check(Some(&place.home()), &[place.member()], &CheckOptions::default()).unwrap();
        let found: Vec<_> = report.findings.iter().map(|f| (f.severity, f.invariant)).collect();
        assert_eq!(found, [(Severity::Inconsistent, 21)], "{report}");
        assert!(report.to_string().contains(how), "{report}");
        let said = place.try_attach(1 << 20).unwrap_err().to_string();
        assert!(said.contains(how) && said.contains("0.seg"), "{said}");
    };
    mode(&plain, 0o640);
    found("mode 640");
    mode(&plain, 0o600);
    mode(&dir, 0o711);
    found("mode 711");
    mode(&dir, 0o700);
    let other = place.0.path().join("other");
    fs::hard_link(&plain, &other).unwrap();
    found("one name");
    fs::remove_file(&other).unwrap();
    assert_eq!(place.findings(), []);
    if rustix::process::geteuid().is_root() {
        chown(&plain, Some(1), None).unwrap();
        found("belongs to user 1");
        chown(&plain, Some(0), None).unwrap();
        chown(&dir, Some(1), None).unwrap();
        found("belongs to user 1");
        chown(&dir, Some(0), None).unwrap();
    } else {
        eprintln!("skipped: another owner of the plain file, because only root can give it one");
    }
    assert_eq!(place.findings(), []);
    place.attach().detach().unwrap();
    assert_eq!(fs::read(place.home().join("0.seg")).unwrap(), [1; LEN]);
}

/// What a door does that was refused the file by the kernel: nobody borrows it, and it is given
/// back at once.
#[test]
fn a_file_that_the_kernel_refused_is_given_back_as_it_was_and_can_be_lent_again() {
    let place = Place::new();
    let home = place.attach();
    let file = home.open("0.seg", OpenMode::CREATE).unwrap();
    file.write(0, &[7; LEN]).unwrap();
    for round in 1..4 {
        let Some(lent) = file.lend().unwrap() else {
            let why = home.stats().lending.refused.unwrap_or_default();
            assert!(why.contains("its file system"), "nothing is lent: {why}");
            eprintln!("skipped: lending, because {why}");
            return;
        };
        assert!(!file.give_back().unwrap(), "as long as somebody may have it, it stays lent");
        drop(lent);
        assert!(file.give_back().unwrap());
        assert!(!file.is_lent() && place.plains().is_empty());
        assert_eq!(home.stats().lending.files, 0);
        file.write(round, &[round as u8; 2]).unwrap();
    }
    // A program that has the plain file itself: it stays lent, and stays right.
    drop(file.lend().unwrap());
    let plain = place.plains().pop().unwrap();
    let other = fs::File::options().write(true).open(&plain).unwrap();
    assert!(!file.give_back().unwrap());
    file.write(9, &[9; 2]).unwrap();
    drop(other);
    assert!(file.give_back().unwrap());
    drop(file);
    let bytes = contents(&home, "0.seg");
    assert_eq!(bytes[..12], [7, 1, 2, 3, 3, 7, 7, 7, 7, 9, 9, 7]);
    home.detach().unwrap();
    assert_eq!(fs::read(place.home().join("0.seg")).unwrap(), bytes);
}

#[test]
fn lent_files_that_nobody_has_open_are_not_looked_at_again_and_again() {
    let plains = Gate::new(Arc::new(SimHome::new(None)));
    let mapping = Arc::new(Mapping::in_memory(&vec![0; 4 << 20], 0));
    let mut spec = TierSpec::new("fast", "fast", Medium::Emulated, 4 << 20);
    (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 16);
    let options = Options { background: false, ..Options::default() };
    let home = testing::attach_simulated_lending(
        Arc::new(SimHome::new(None)),
        plains.clone(),
        vec![(spec, vec![mapping])],
        &profile(),
        options,
    )
    .unwrap();
    let steps = |count| (0..count).for_each(|_| home.background_step().unwrap());
    for n in 0..5 {
        assert!(lend(&home, &format!("{n}.seg"), n));
    }
    // Each step takes one of them home.
    steps(10);
    assert_eq!(home.stats().lending.not_home_bytes, 0);
    let before = plains.stats();
    steps(100);
    assert_eq!(home.stats().lending.bytes, 5 * LEN as u64);
    assert_eq!(plains.stats(), before, "files that nobody has were asked for their size");
    // What was said of a file holds no longer than the file stays as it is.
    let file = home.open("3.seg", OpenMode::WRITE).unwrap();
    file.write(LEN as u64, &[9; 4096]).unwrap();
    assert_eq!(home.stats().lending.bytes, 5 * LEN as u64 + 4096);
    let lent = file.lend().unwrap().unwrap();
    testing::kernel_write(&lent, LEN as u64 + 4096, &[9; 4096]).unwrap();
    assert_eq!(home.stats().lending.bytes, 5 * LEN as u64 + 8192);
    drop((lent, file));
    steps(10);
    assert_eq!(home.stats().lending.bytes, 5 * LEN as u64 + 8192);
    home.detach().unwrap();
}

#[test]
fn a_lent_file_that_was_closed_a_moment_ago_is_not_copied_home_unless_room_is_short() {
    let place = Place::new();
    let attach = |most: u64, lent_rest| {
        let mut spec = TierSpec::new("fast", place.member(), Medium::Emulated, 4 << 20);
        (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 16);
        let options = Options {
            profile: Some(profile()),
            background: false,
            lent_max_bytes: most * LEN as u64,
            lent_rest,
            ..Options::default()
        };
        attach(&place.home(), &[spec], options).unwrap()
    };
    let behind = |home: &AttachedHome| home.stats().lending.not_home_bytes / LEN as u64;
    let steps = |home: &AttachedHome| (0..10).for_each(|_| home.background_step().unwrap());
    let home = attach(8, Options::LENT_REST);
    if !lend(&home, "0.seg", 1) {
        return;
    }
    assert!(lend(&home, "1.seg", 2));
    steps(&home);
    assert_eq!(behind(&home), 2, "they are written anew soon, and were copied");
    // What asks for home to have everything does not wait.
    home.flush_all().unwrap();
    assert_eq!(behind(&home), 0);
    for n in 2..7 {
        assert!(lend(&home, &format!("{n}.seg"), n));
    }
    steps(&home);
    assert_eq!(behind(&home), 0, "more than half of the room is taken");
    drop(home);
    // Those that rested long enough go home.
    let home = attach(64, std::time::Duration::from_millis(20));
    assert!(lend(&home, "7.seg", 7));
    std::thread::sleep(std::time::Duration::from_millis(30));
    steps(&home);
    assert_eq!(behind(&home), 0);
    home.detach().unwrap();
}
