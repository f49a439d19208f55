//! What belongs to a database and lies outside its home: where the home's links lead.
//!
//! Tiersmith serves the home alone. PostgreSQL's tablespaces, and tables that MariaDB made with
//! `DATA DIRECTORY`, are on file systems of their own, which tear pages: for them the database's
//! own protection has to stay on, though the home no longer needs it.
//!
//! Where a link leads is read from the link, and nothing there is looked at: whoever owns the home
//! could have written it.
//!
//! **Deliberately absent**: what a server was started with besides the files of its home. Where
//! `full_page_writes` was set on a command line or in a file elsewhere, `global/pg_control` has
//! what was in effect at the last checkpoint.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tiersmith_store::{AttachedHome, OpenMode};

/// Links named before "and N more".
const NAMED: usize = 8;
/// Most bytes of a configuration file that are read.
const CONF_MAX: usize = 1 << 20;
/// Versions of `pg_control` (PostgreSQL 11, 12, 13 to 16, 17, 18) in which the copy of the last
/// checkpoint begins at byte 40, and `full_page_writes` is 16 bytes into it.
const CONTROL_VERSIONS: [u32; 5] = [1100, 1201, 1300, 1700, 1800];
const CONTROL_FULL_PAGE_WRITES: usize = 56;

/// What lies outside a home.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OutsideHome {
    /// Links and where they lead, some of them.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// How many there are.
    pub(crate) count: u64,
    /// What must stay on for them.
    pub(crate) needs: Option<String>,
    /// It was found off.
    pub(crate) unprotected: Option<String>,
}

/// Reads the beginning of a file of the home, by its path there; `None`: there is none.
pub(super) type Reader<'a> = &'a dyn Fn(&str, usize) -> io::Result<Option<Vec<u8>>>;

impl OutsideHome {
    /// Looks at an attached home; `aside` is where its files are meanwhile.
    pub(super) fn of_attached(home: &AttachedHome, aside: &Path) -> OutsideHome {
        let Some(directory) = home.directory() else { return OutsideHome::default() };
        let files = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let read = |path: &str, most: usize| read_of(home, path, most);
        OutsideHome::of(&files, &[&home.home_path(), aside], home.profile_name(), &read)
    }

    /// Looks at a home whose files are in `files`; `paths` are the names it goes by.
    fn of(files: &Path, paths: &[&Path], profile: &str, read: Reader<'_>) -> OutsideHome {
        let mut links = Vec::new();
        look(files, Path::new(""), paths, profile, &mut links);
        links.sort();
        let count = links.len() as u64;
        if count == 0 {
            return OutsideHome::default();
        }
        let (needs, unprotected) = match profile {
            // A `pg_wal` or a certificate elsewhere has no pages that could be torn.
            "postgres" if !links.iter().any(|(link, _)| has_pages(link)) => (None, None),
            "postgres" => (Some("full_page_writes = on"), full_page_writes_off(read)),
            "mariadb" => (
                Some(
                    "innodb_doublewrite = ON; where that is set Tiersmith cannot see, so it is not \
                     checked",
                ),
                None,
            ),
            _ => (None, None),
        };
        links.truncate(NAMED);
        OutsideHome { links, count, needs: needs.map(str::to_owned), unprotected }
    }

    /// For people; empty when nothing lies outside.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.count == 0 {
            return Vec::new();
        }
        let named: Vec<String> = self
            .links
            .iter()
            .map(|(link, target)| format!("{} -> {}", link.display(), target.display()))
            .collect();
        let more = match self.count.saturating_sub(named.len() as u64) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let needs = match &self.needs {
            Some(needs) => format!("; pages there may be torn by a power cut, so keep {needs}"),
            None => String::new(),
        };
        vec![format!(
            "files outside the home are not accelerated and not made atomic: {}{more}{needs}",
            named.join(", ")
        )]
    }
}

/// The beginning of a file of an attached home: through the store where the tier is ahead of home.
/// Else from home, for a look is no use by the database, and must bring nothing into the tier.
pub(super) fn read_of(home: &AttachedHome, path: &str, most: usize) -> io::Result<Option<Vec<u8>>> {
    if !home.dirty_files().iter().any(|dirty| dirty == Path::new(path)) {
        let at = |fd: i32| PathBuf::from(format!("/proc/self/fd/{fd}"));
        let directory_of_home = home.directory().ok_or(io::ErrorKind::NotADirectory)?;
        let (files, path) = (at(directory_of_home.as_raw_fd()), Path::new(path));
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let sub = match above.map(|above| directory(&files.join(above))).transpose() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            sub => sub?,
        };
        let dir = sub.as_ref().map_or(files, |sub| at(sub.as_raw_fd()));
        return beginning(&dir.join(path.file_name().unwrap_or_default()), most as u64);
    }
    let failed = |e: tiersmith_store::Error| io::Error::from_raw_os_error(e.errno());
    let file = home.open_found(path, OpenMode::READ).map_err(failed)?;
    let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; most.min(len)];
    let got = file.read(0, &mut bytes).map_err(failed)?;
    bytes.truncate(got);
    Ok(Some(bytes))
}

/// Whether what is at this path of a PostgreSQL's home has pages that `full_page_writes` protects.
fn has_pages(link: &Path) -> bool {
    ["pg_tblspc", "base", "global"].iter().any(|directory| link.starts_with(directory))
}

/// Links of a directory of the home, and of those directories in it where databases have some.
fn look(
    files: &Path,
    below: &Path,
    paths: &[&Path],
    profile: &str,
    links: &mut Vec<(PathBuf, PathBuf)>,
) {
    let sub = (below != Path::new("")).then(|| directory(&files.join(below)));
    let path = match &sub {
        None => files.to_path_buf(),
        Some(Ok(sub)) => PathBuf::from(format!("/proc/self/fd/{}", sub.as_raw_fd())),
        Some(Err(_)) => return,
    };
    // A directory that cannot be read is one the database cannot read either.
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let path = below.join(entry.file_name());
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap_or_default();
            note(&path, target, paths, links);
        } else if kind.is_dir() && below == Path::new("") {
            let has_links = profile != "postgres" || path == Path::new("pg_tblspc");
            if has_links {
                look(files, &path, paths, profile, links);
            }
        } else if kind.is_file() && path.extension().is_some_and(|e| e == "isl") {
            // InnoDB's link: a text file with the path of the table.
            let target = first_bytes(&entry.path(), 4096).unwrap_or_default();
            let target = String::from_utf8_lossy(&target);
            note(&path, PathBuf::from(target.trim()), paths, links);
        }
    }
}

fn note(link: &Path, target: PathBuf, paths: &[&Path], links: &mut Vec<(PathBuf, PathBuf)>) {
    let lexical = |home: &Path| {
        let from = home.join(link);
        let mut at = PathBuf::new();
        for part in from.parent().unwrap_or(home).join(&target).components() {
            match part {
                Component::ParentDir => drop(at.pop()),
                Component::CurDir => {}
                part => at.push(part),
            }
        }
        at
    };
    let inside =
        paths.iter().any(|home| paths.iter().any(|in_home| lexical(home).starts_with(in_home)));
    if !inside {
        links.push((link.to_path_buf(), target));
    }
}

/// The beginning of a file; `None` if there is none, or it cannot be read.
pub(super) fn first_bytes(path: &Path, most: u64) -> Option<Vec<u8>> {
    beginning(path, most).ok().flatten()
}

/// The beginning of a file; `None` if there is none. Who owns the home may at any moment put a
/// link, a pipe or a device in its place, so that no link is followed and nothing is waited for.
fn beginning(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => fs::File::from(file?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut bytes = Vec::new();
    let _ = file.take(most).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The directory at `path`, by its descriptor: a link that was put there meanwhile is not followed.
fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Where it says that PostgreSQL writes no full pages, for tables elsewhere.
fn full_page_writes_off(read: Reader<'_>) -> Option<String> {
    let FullPageWrites::Off(place) = full_page_writes(read) else { return None };
    Some(format!(
        "full_page_writes is off, says {place}, and tablespaces lie outside the home: a power cut \
         may tear \
         their pages. Set full_page_writes = on, reload, and run CHECKPOINT"
    ))
}

/// Whether PostgreSQL writes whole pages into its WAL, and which file says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FullPageWrites {
    On,
    Off(String),
    Unknown,
}

/// As the files of its home say. `On` only where `pg_control` has it from the last checkpoint, and
/// nothing later says otherwise.
pub(super) fn full_page_writes(read: Reader<'_>) -> FullPageWrites {
    let mut last = None;
    // What cannot be read, what other files say, and the end of a long file may say anything.
    let mut unread = false;
    let mut text_of = |name: &str| {
        let text = read(name, CONF_MAX).map(Option::unwrap_or_default);
        unread |= text.as_ref().map_or(true, |text| text.len() >= CONF_MAX);
        String::from_utf8_lossy(&text.unwrap_or_default()).into_owned()
    };
    // The second one counts where both say something.
    let files = ["postgresql.conf", "postgresql.auto.conf"].map(|name| (name, text_of(name)));
    // The command line of the server that runs, or of the one before; it goes before both. The next
    // server may be started without it, so that it counts only where it switches off.
    let started = text_of("postmaster.opts");
    for (name, text) in files {
        unread |= includes(&text);
        last = setting(&text, "full_page_writes").map(|on| (name, on)).or(last);
    }
    if argument(&started, "full_page_writes") == Some(false) {
        last = Some(("postmaster.opts", false));
    }
    if let Some((place, false)) = last {
        return FullPageWrites::Off(place.to_owned());
    }
    let at_checkpoint = || {
        let control = read("global/pg_control", CONTROL_FULL_PAGE_WRITES + 1).ok()??;
        let version = u32::from_le_bytes(control.get(8..12)?.try_into().ok()?);
        Some(*control.get(CONTROL_FULL_PAGE_WRITES)?)
            .filter(|_| CONTROL_VERSIONS.contains(&version))
    };
    match at_checkpoint() {
        Some(0) => FullPageWrites::Off("global/pg_control (at the last checkpoint)".into()),
        Some(1) if !unread => FullPageWrites::On,
        _ => FullPageWrites::Unknown,
    }
}

/// Whether a configuration file takes in others: `include`, `include_if_exists`, `include_dir`.
fn includes(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().to_ascii_lowercase().starts_with("include"))
}

/// The last value of a boolean setting on a command line as PostgreSQL notes it:
/// `postgres "-D" "/data" "-c" "name=value"`.
fn argument(text: &str, name: &str) -> Option<bool> {
    let words =
        text.split('"').map(|word| word.strip_prefix("-c").unwrap_or(word).trim_start_matches('-'));
    // `--full-page-writes` is the same setting.
    let named = words
        .filter_map(|word| word.split_once('=').map(|(key, value)| (key.replace('-', "_"), value)));
    named.filter_map(|(key, value)| setting(&format!("{key}={value}"), name)).next_back()
}

/// The last value of a boolean setting in a configuration file, as PostgreSQL reads it. What it
/// would not take for on is off here.
fn setting(text: &str, name: &str) -> Option<bool> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$');
    let value_in = |line: &str| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (key, value) = line.split_at(line.find(|c| !is_of_name(c)).unwrap_or(line.len()));
        let value = value.trim_start();
        let value =
            value.strip_prefix('=').unwrap_or(value).trim().trim_matches('\'').to_lowercase();
        key.eq_ignore_ascii_case(name).then_some(value)
    };
    let is_on = |value: String| {
        let word = |whole: &str| !value.is_empty() && whole.starts_with(&value);
        word("true") || word("yes") || value == "on" || value == "1"
    };
    text.lines().filter_map(value_in).next_back().map(is_on)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn postgres() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("db");
        for sub in ["global", "base/1", "pg_tblspc", "pg_wal"] {
            fs::create_dir_all(home.join(sub)).unwrap();
        }
        (dir, home)
    }

    fn look_at(home: &Path, profile: &str) -> OutsideHome {
        let read = |path: &str, most: usize| beginning(&home.join(path), most as u64);
        OutsideHome::of(home, &[home], profile, &read)
    }

    fn control(version: u32, full_page_writes: u8) -> Vec<u8> {
        let mut bytes = vec![1; 8192];
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[CONTROL_FULL_PAGE_WRITES] = full_page_writes;
        bytes
    }

    #[test]
    fn tablespaces_are_named_and_full_page_writes_found_off_is_said() {
        let (_dir, home) = postgres();
        let look = || look_at(&home, "postgres");
        symlink("../base/1", home.join("pg_tblspc/1")).unwrap();
        symlink(home.join("base"), home.join("pg_tblspc/2")).unwrap();
        fs::write(home.join("postgresql.conf"), "full_page_writes = off\n").unwrap();
        assert_eq!(look(), OutsideHome::default(), "links that stay in the home are none");
        symlink("/mnt/other/space", home.join("pg_tblspc/16385")).unwrap();
        let found = look();
        assert_eq!(found.links, [("pg_tblspc/16385".into(), "/mnt/other/space".into())]);
        assert!(found.unprotected.as_ref().unwrap().contains("says postgresql.conf"), "{found:?}");
        let said = found.lines().join("\n");
        assert!(said.contains("pg_tblspc/16385 -> /mnt/other/space"), "{said}");
        assert!(said.contains("keep full_page_writes = on"), "{said}");
        fs::write(home.join("postgresql.auto.conf"), "full_page_writes = 'on'\n").unwrap();
        assert_eq!(look().unprotected, None);
        fs::write(home.join("global/pg_control"), control(1300, 0)).unwrap();
        assert!(look().unprotected.unwrap().contains("at the last checkpoint"));
        fs::write(home.join("global/pg_control"), control(1300, 1)).unwrap();
        assert_eq!(look().unprotected, None);
    }

    #[test]
    fn full_pages_are_proved_by_the_checkpoint_and_refuted_by_any_file() {
        let (_dir, home) = postgres();
        let read = |path: &str, most: usize| beginning(&home.join(path), most as u64);
        let look = || full_page_writes(&read);
        assert_eq!(look(), FullPageWrites::Unknown);
        fs::write(home.join("postgresql.conf"), "full_page_writes = on\n").unwrap();
        assert_eq!(look(), FullPageWrites::Unknown, "only the checkpoint proves it");
        for (version, byte) in [(900, 1), (1002, 1), (1301, 1), (1900, 1), (1300, 7), (u32::MAX, 1)]
        {
            fs::write(home.join("global/pg_control"), control(version, byte)).unwrap();
            assert_eq!(look(), FullPageWrites::Unknown, "{version}, {byte}");
        }
        fs::write(home.join("global/pg_control"), control(1300, 1)).unwrap();
        assert_eq!(look(), FullPageWrites::On);
        let conf = home.join("postgresql.conf");
        for unread in ["include_dir = 'conf.d'\n", "  Include 'more.conf'\n", &"#".repeat(CONF_MAX)]
        {
            fs::write(&conf, unread).unwrap();
            assert_eq!(look(), FullPageWrites::Unknown, "{:.30}", unread);
        }
        fs::write(&conf, "#include_dir = 'conf.d'\n").unwrap();
        assert_eq!(look(), FullPageWrites::On);
        let opts = home.join("postmaster.opts");
        for off in [
            "\"-c\" \"full_page_writes=off\"",
            "\"--full-page-writes=0\"",
            "\"-cfull_page_writes=no\"",
        ] {
            fs::write(&opts, format!("/usr/bin/postgres \"-D\" \"/data\" {off}\n")).unwrap();
            assert_eq!(look(), FullPageWrites::Off("postmaster.opts".into()), "{off}");
        }
        fs::write(
            &opts,
            "postgres \"-c\" \"full_page_writes=off\" \"-c\" \"full_page_writes=on\"\n",
        )
        .unwrap();
        assert_eq!(look(), FullPageWrites::On);
        // The next server may be started without it.
        fs::write(&conf, "full_page_writes'off'\n").unwrap();
        assert_eq!(look(), FullPageWrites::Off("postgresql.conf".into()));
    }

    #[test]
    fn what_cannot_be_read_proves_no_full_pages() {
        let (dir, home) = postgres();
        let read = |path: &str, most: usize| beginning(&home.join(path), most as u64);
        fs::write(home.join("global/pg_control"), control(1300, 1)).unwrap();
        assert_eq!(full_page_writes(&read), FullPageWrites::On);
        for name in ["postgresql.conf", "postgresql.auto.conf", "postmaster.opts"] {
            let path = home.join(name);
            // A link is not followed, whatever it leads to.
            symlink(dir.path().join("elsewhere.conf"), &path).unwrap();
            assert_eq!(full_page_writes(&read), FullPageWrites::Unknown, "{name} is a link");
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            assert_eq!(full_page_writes(&read), FullPageWrites::Unknown, "{name} is a directory");
            fs::remove_dir(&path).unwrap();
        }
        assert_eq!(full_page_writes(&read), FullPageWrites::On);
        fs::write(home.join("postmaster.opts"), "x".repeat(CONF_MAX)).unwrap();
        assert_eq!(full_page_writes(&read), FullPageWrites::Unknown, "the end of it was not read");
    }

    #[test]
    fn links_and_isl_files_of_mariadb_are_named_with_what_must_stay_on() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("db");
        fs::create_dir_all(home.join("shop")).unwrap();
        fs::write(home.join("shop/orders.isl"), "/mnt/big/shop/orders.ibd\n").unwrap();
        symlink("../../elsewhere/old.MYD", home.join("shop/old.MYD")).unwrap();
        let found = look_at(&home, "mariadb");
        let names: Vec<_> = found.links.iter().map(|(link, _)| link.to_str().unwrap()).collect();
        assert_eq!(names, ["shop/old.MYD", "shop/orders.isl"]);
        assert!(found.lines()[0].contains("innodb_doublewrite = ON"), "{:?}", found.lines());
        assert_eq!(found.unprotected, None);
    }

    #[test]
    fn a_link_to_what_has_no_pages_asks_for_no_full_page_writes() {
        let (_dir, home) = postgres();
        fs::write(home.join("postgresql.conf"), "full_page_writes = off\n").unwrap();
        fs::remove_dir(home.join("pg_wal")).unwrap();
        symlink("/mnt/wal", home.join("pg_wal")).unwrap();
        symlink("/etc/ssl/certs/db.pem", home.join("server.crt")).unwrap();
        let found = look_at(&home, "postgres");
        assert_eq!((found.count, found.needs.clone(), found.unprotected.clone()), (2, None, None));
        assert!(!found.lines()[0].contains("full_page_writes"), "{:?}", found.lines());
        symlink("/mnt/space", home.join("pg_tblspc/16500")).unwrap();
        assert!(look_at(&home, "postgres").unprotected.is_some());
    }

    #[test]
    fn nothing_that_took_the_place_of_a_file_or_directory_is_followed_or_waited_for() {
        let (dir, home) = postgres();
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("secret"), "of root\n").unwrap();
        symlink("/nowhere", elsewhere.join("link")).unwrap();
        symlink(&elsewhere, home.join("shop")).unwrap();
        let mut links = Vec::new();
        look(&home, Path::new("shop"), &[&home], "mariadb", &mut links);
        assert_eq!(links, [], "a directory that became a link was looked into");
        symlink(elsewhere.join("secret"), home.join("orders.isl")).unwrap();
        assert_eq!(first_bytes(&home.join("orders.isl"), 99), None);
        let pipe = home.join("pipe.isl");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (done, ended) = std::sync::mpsc::channel();
        drop(std::thread::spawn(move || done.send(first_bytes(&pipe, 99))));
        assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(20)), Ok(None));
    }

    #[test]
    fn a_setting_is_read_as_postgresql_reads_it() {
        let read = |text: &str| setting(text, "full_page_writes");
        for off in [
            "full_page_writes = off",
            "Full_Page_Writes OFF # x",
            "full_page_writes='no'",
            "full_page_writes=0",
            "full_page_writes = f",
            "full_page_writes\t=\tfalse",
            "full_page_writes'off'",
            "full_page_writes ='no'",
            // Octal for "off".
            "full_page_writes = '\\157ff'",
        ] {
            assert_eq!(read(off), Some(false), "{off}");
        }
        for on in ["full_page_writes = on", "full_page_writes yes", "full_page_writes='1'"] {
            assert_eq!(read(on), Some(true), "{on}");
        }
        assert_eq!(read("#full_page_writes = off\nfull_page_writes_x = off\n"), None);
        assert_eq!(read("full_page_writes = off\nfull_page_writes = on\n"), Some(true));
    }
}
