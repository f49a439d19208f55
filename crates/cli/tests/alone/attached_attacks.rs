//! What a database's owner can make root do with `attach`, `detach`, `status` and `check` of one
//! SQLite file: nothing that the owner could not do.
//!
//! The attacker is an account by number, which nobody needs to have. Victims are files of root's in
//! the scratch directory. A command that does not end in time has lost, too: somebody planted a
//! pipe.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// The owner of the database.
const MALLORY: u32 = 54_321;
/// Somebody else.
const ALICE: u32 = 54_322;
/// A command that takes longer hangs.
const IN_TIME: Duration = Duration::from_secs(30);
const SECRET: &str = "root:*:0:0\nkept by root\n";

/// Whether this runs as root, who alone can be led astray; else a line says that it does not.
fn root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: {test}, because only root can act for another account");
    }
    root
}

/// Root's directory with a secret file and a database, and Mallory's with a database.
struct Site {
    dir: tempfile::TempDir,
    /// Of Mallory's directory.
    theirs: PathBuf,
}

impl Site {
    fn new() -> Self {
        Self::with("theirs")
    }

    fn with(theirs: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let theirs = dir.path().join(theirs);
        for folder in [&dir.path().join("roots"), &dir.path().join("fast"), &theirs] {
            fs::create_dir(folder).unwrap();
        }
        let site = Self { dir, theirs };
        fs::write(site.secret(), SECRET).unwrap();
        fs::set_permissions(site.secret(), fs::Permissions::from_mode(0o600)).unwrap();
        make_database(&site.roots("app.db"), 0);
        fs::set_permissions(site.roots("app.db"), fs::Permissions::from_mode(0o600)).unwrap();
        make_database(&site.theirs("app.db"), MALLORY);
        chown(&site.theirs, Some(MALLORY), Some(MALLORY)).unwrap();
        site
    }

    fn secret(&self) -> PathBuf {
        self.roots("secret")
    }

    fn roots(&self, name: &str) -> PathBuf {
        self.dir.path().join("roots").join(name)
    }

    fn theirs(&self, name: &str) -> PathBuf {
        self.theirs.join(name)
    }

    /// Runs `tiersmith` as root; the test fails if it does not end in time.
    fn tiersmith(&self, arguments: &[&str]) -> Output {
        let (out, err) =
            (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        let mut child = Command::new(env!("CARGO_BIN_EXE_tiersmith"))
            .args(arguments)
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(out.reopen().unwrap())
            .stderr(err.reopen().unwrap())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > IN_TIME {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{arguments:?} waits for ever");
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        Output {
            status,
            stdout: fs::read(out.path()).unwrap(),
            stderr: fs::read(err.path()).unwrap(),
        }
    }

    /// Root attaches Mallory's database to a tier beside it.
    fn attach(&self) {
        let (database, tier) = (self.theirs("app.db"), self.theirs("tier"));
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let (database, tier) = (path(&database), path(&tier));
        let attach =
            || self.tiersmith(&["attach", &database, "--fast", &tier, "--size", "8M", "--emulate"]);
        let mut done = attach();
        // A command that another test starts has the file open until it runs its program.
        for _ in 0..20 {
            if !text(&done).contains("has the file open") {
                break;
            }
            done = attach();
        }
        assert!(done.status.success(), "{}", text(&done));
    }

    /// Nothing of root's was changed, read or given away.
    fn assert_untouched(&self, told: &[Output], how: &str) {
        let found = self.secret().symlink_metadata().unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (0, 0, 0o600), "{how}");
        assert_eq!(fs::read_to_string(self.secret()).unwrap(), SECRET, "{how}");
        let database = self.roots("app.db").symlink_metadata().unwrap();
        assert_eq!(
            (database.uid(), database.nlink(), database.mode() & 0o7777),
            (0, 1, 0o600),
            "{how}"
        );
        assert_eq!(rows(&self.roots("app.db")), 1, "{how}");
        let mut names: Vec<_> =
            fs::read_dir(self.roots("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["app.db", "secret"], "{how}");
        for output in told {
            assert!(!text(output).contains("kept by root"), "{how}: {}", text(output));
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn make_database(path: &Path, user: u32) {
    Connection::open(path)
        .unwrap()
        .execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    chown(path, Some(user), Some(user)).unwrap();
}

fn rows(path: &Path) -> i64 {
    Connection::open(path)
        .unwrap()
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap()
}

/// What can be planted at a name.
#[derive(Clone, Copy, Debug)]
enum Plant {
    LinkToSecret,
    HardLinkToSecret,
    LinkToNew,
    LinkToEndlessDevice,
    Pipe,
}

const PLANTS: [Plant; 5] = [
    Plant::LinkToSecret,
    Plant::HardLinkToSecret,
    Plant::LinkToNew,
    Plant::LinkToEndlessDevice,
    Plant::Pipe,
];

impl Plant {
    fn at(self, site: &Site, path: &Path) {
        let gone = match path.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::rename(path, path.with_extension("was-here")),
            Ok(_) => fs::remove_file(path),
            Err(_) => Ok(()),
        };
        gone.unwrap();
        match self {
            Self::LinkToSecret => symlink(site.secret(), path).unwrap(),
            Self::LinkToNew => symlink(site.roots("planted"), path).unwrap(),
            Self::LinkToEndlessDevice => symlink("/dev/zero", path).unwrap(),
            Self::HardLinkToSecret => return fs::hard_link(site.secret(), path).unwrap(),
            Self::Pipe => {
                let made = Command::new("mkfifo").arg(path).status().unwrap();
                assert!(made.success());
            }
        }
        lchown(path, Some(MALLORY), Some(MALLORY)).unwrap();
    }
}

/// Every command for one file, as root.
fn every_command(site: &Site) -> Vec<Output> {
    let (database, tier) = (site.theirs("app.db"), site.theirs("tier"));
    let (database, tier) = (database.to_str().unwrap(), tier.to_str().unwrap());
    [
        &["status", database][..],
        &["check", "--cold", database],
        &["check", database],
        &["attach", database],
        &["attach", database, "--fast", tier, "--size", "8M", "--emulate"],
        &["awr", "snapshot", database, "--output", "/dev/null"],
        &["detach", "--keep-both", database],
        &["detach", database],
    ]
    .map(|arguments| site.tiersmith(arguments))
    .into()
}

/// The names in the directory of an attached database.
const INSIDE: [&str; 15] = [
    "db",
    "wal",
    "journal",
    "db-wal",
    "db-journal",
    "db-shm",
    "attachment",
    "attachment.new",
    "stub.new",
    "stamp",
    "statistics",
    "keep-both",
    "keep-both.new",
    ".tiersmith",
    ".tiersmith.new",
];

#[test]
fn what_is_planted_in_the_directory_of_an_attached_database_leads_root_nowhere() {
    if !root("what_is_planted_in_the_directory_of_an_attached_database_leads_root_nowhere") {
        return;
    }
    for plant in PLANTS {
        for name in INSIDE {
            let site = Site::new();
            site.attach();
            plant.at(&site, &site.theirs("app.db-tiersmith").join(name));
            let told = every_command(&site);
            site.assert_untouched(&told, &format!("{plant:?} at {name}"));
        }
    }
}

#[test]
fn a_stub_that_was_removed_is_written_again_through_no_link() {
    if !root("a_stub_that_was_removed_is_written_again_through_no_link") {
        return;
    }
    for plant in PLANTS {
        // What the stub repeats would be a line of an account file.
        let site = Site::with("x\nmallory2::0:0::\n");
        site.attach();
        assert!(
            !fs::read_to_string(site.theirs("app.db")).unwrap().contains("\nmallory2"),
            "a line of theirs"
        );
        fs::remove_file(site.theirs("app.db")).unwrap();
        plant.at(&site, &site.theirs("app.db-tiersmith/stub.new"));
        let database = site.theirs("app.db");
        let told = site.tiersmith(&["detach", database.to_str().unwrap()]);
        site.assert_untouched(&[told], &format!("{plant:?}"));
    }
}

#[test]
fn what_is_planted_beside_a_database_leads_root_nowhere() {
    if !root("what_is_planted_beside_a_database_leads_root_nowhere") {
        return;
    }
    for plant in PLANTS {
        for name in [
            "app.db-wal",
            "app.db-journal",
            "app.db-shm",
            "app.db-tiersmith",
            "app.db-changed",
            "app.db-changed.new",
            "tier",
        ] {
            let site = Site::new();
            plant.at(&site, &site.theirs(name));
            let told = every_command(&site);
            site.assert_untouched(&told, &format!("{plant:?} at {name}"));
        }
    }
}

#[test]
fn a_changed_database_is_kept_through_no_link() {
    if !root("a_changed_database_is_kept_through_no_link") {
        return;
    }
    for plant in PLANTS {
        for name in ["app.db-changed", "app.db-changed.new", "app.db-changed-wal"] {
            let site = Site::new();
            site.attach();
            // As when somebody took the bars away and wrote.
            let inside = site.theirs("app.db-tiersmith");
            fs::remove_dir(inside.join("db-wal")).unwrap();
            fs::remove_dir(inside.join("db-journal")).unwrap();
            fs::write(inside.join("db-wal"), "frames").unwrap();
            chown(inside.join("db-wal"), Some(MALLORY), Some(MALLORY)).unwrap();
            plant.at(&site, &site.theirs(name));
            let database = site.theirs("app.db");
            let told = site.tiersmith(&["detach", "--keep-both", database.to_str().unwrap()]);
            site.assert_untouched(&[told], &format!("{plant:?} at {name}"));
        }
    }
}

/// The text with the checksum of its own program: an attacker can calculate it as well.
fn sealed(text: &str) -> String {
    let body = &text[..text.rfind("# checksum ").unwrap()];
    format!("{body}# checksum {:016x}\n", xxhash_rust::xxh3::xxh3_64(body.as_bytes()))
}

#[test]
fn an_attachment_file_that_names_files_of_others_opens_none_of_them() {
    if !root("an_attachment_file_that_names_files_of_others_opens_none_of_them") {
        return;
    }
    let site = Site::new();
    // The tier of a database of root's.
    let tier = site.dir.path().join("fast/roots.tier");
    let other = site.dir.path().join("fast/other.db");
    make_database(&other, 0);
    let (other, roots_tier) = (other.to_str().unwrap(), tier.to_str().unwrap());
    let done =
        site.tiersmith(&["attach", other, "--fast", roots_tier, "--size", "8M", "--emulate"]);
    assert!(done.status.success(), "{}", text(&done));
    // And an empty file of root's, which a tier could be made of.
    let empty = site.dir.path().join("fast/empty");
    fs::write(&empty, "").unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o600)).unwrap();
    let before = fs::read(&tier).unwrap();
    let pipe = site.theirs("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    chown(&pipe, Some(MALLORY), Some(MALLORY)).unwrap();
    for member in [tier.clone(), empty.clone(), site.secret(), pipe, "/dev/zero".into()] {
        let site = Site::new();
        site.attach();
        let attachment = site.theirs("app.db-tiersmith/attachment");
        let text = fs::read_to_string(&attachment).unwrap();
        let own = format!("\"{}\"", site.theirs("tier").display());
        assert!(text.contains(&own), "{text}");
        let forged = sealed(&text.replace(&own, &format!("\"{}\"", member.display())));
        fs::write(&attachment, forged).unwrap();
        let told = every_command(&site);
        site.assert_untouched(&told, &format!("a tier at {}", member.display()));
        assert!(fs::read(&tier).unwrap() == before, "a tier of root's was written");
        assert_eq!(empty.metadata().unwrap().len(), 0, "a tier was made of a file of root's");
    }
    site.assert_untouched(&[], "at the end");
}

#[test]
fn a_directory_that_is_a_link_of_theirs_does_not_lead_root_to_its_own_database() {
    if !root("a_directory_that_is_a_link_of_theirs_does_not_lead_root_to_its_own_database") {
        return;
    }
    let site = Site::new();
    fs::remove_file(site.theirs("app.db")).unwrap();
    for (link, target) in [("way", site.roots("")), ("app.db", site.roots("app.db"))] {
        symlink(target, site.theirs(link)).unwrap();
        lchown(site.theirs(link), Some(MALLORY), Some(MALLORY)).unwrap();
    }
    for database in ["theirs/way/app.db", "theirs/app.db"] {
        let arguments = ["attach", database, "--fast", "fast", "--size", "8M", "--emulate"];
        let told = site.tiersmith(&arguments);
        assert_eq!(told.status.code(), Some(2), "{}", text(&told));
        site.assert_untouched(&[told], database);
    }
}

/// Sets a flag when it goes.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn names_that_are_exchanged_while_root_works_lead_root_nowhere() {
    if !root("names_that_are_exchanged_while_root_works_lead_root_nowhere") {
        return;
    }
    let site = Site::with("hers");
    fs::create_dir(site.theirs("in")).unwrap();
    for name in ["in", "app.db"] {
        chown(site.theirs(name), Some(MALLORY), Some(MALLORY)).unwrap();
    }
    fs::rename(site.theirs("app.db"), site.theirs("in/app.db")).unwrap();
    symlink(site.roots(""), site.theirs("link")).unwrap();
    lchown(site.theirs("link"), Some(MALLORY), Some(MALLORY)).unwrap();
    let stop = AtomicBool::new(false);
    let swaps = std::thread::scope(|scope| {
        let (here, stop) = (site.theirs.clone(), &stop);
        let swapper = scope.spawn(move || {
            let dir = fs::File::open(here).unwrap();
            let mut swaps = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                if rustix::fs::renameat_with(&dir, "in", &dir, "link", exchange).is_ok() {
                    swaps += 1;
                }
            }
            swaps
        });
        // Also when a command does not end in time: the scope waits for the thread.
        let done = Done(stop);
        let begun = Instant::now();
        let arguments: [&[&str]; 3] = [
            &["attach", "hers/in/app.db", "--fast", "fast", "--size", "8M", "--emulate"],
            &["status", "hers/in/app.db"],
            &["detach", "hers/in/app.db"],
        ];
        while begun.elapsed() < Duration::from_secs(4) {
            for arguments in arguments {
                site.tiersmith(arguments);
            }
        }
        drop(done);
        swapper.join().unwrap()
    });
    assert!(swaps > 1000, "{swaps} swaps");
    site.assert_untouched(&[], "swapped");
}

#[test]
fn root_uses_no_tier_that_somebody_else_owns_or_could_exchange() {
    if !root("root_uses_no_tier_that_somebody_else_owns_or_could_exchange") {
        return;
    }
    let site = Site::new();
    let (hers, own) = (site.dir.path().join("alices"), site.roots("app.db"));
    fs::create_dir(&hers).unwrap();
    chown(&hers, Some(ALICE), Some(ALICE)).unwrap();
    let tier = |name: &str, user| {
        let tier = hers.join(name);
        fs::write(&tier, "").unwrap();
        fs::set_permissions(&tier, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&tier, Some(user), Some(user)).unwrap();
        tier
    };
    for fast in [tier("hers", ALICE), tier("roots", 0), hers.join("new")] {
        for database in [own.clone(), site.theirs("app.db")] {
            let (database, fast) = (database.to_str().unwrap(), fast.to_str().unwrap());
            let told =
                site.tiersmith(&["attach", database, "--fast", fast, "--size", "8M", "--emulate"]);
            assert_eq!(told.status.code(), Some(2), "{database} to {fast}: {}", text(&told));
            assert!(text(&told).contains("54322"), "{}", text(&told));
            site.assert_untouched(&[told], fast);
        }
    }
    assert!(!hers.join("new").exists());
}
