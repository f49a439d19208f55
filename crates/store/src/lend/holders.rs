//! Who has a lent file open, for messages; and the end of a loan that waits for nobody.
//!
//! That somebody has it the kernel knows ([`crate::plain::LentDir::is_ours_alone`]); who it is can
//! only be looked for: a program that opened the file on a mount has it by its name there, also
//! when the mount is dead or gone, and one that opened the plain file by that name. A name alone
//! proves nothing: it is that of the program's own mount namespace, and mounts hide each other. So
//! access, inode and mount of the descriptor are compared too; what cannot be is said to be perhaps
//! so. A program that has mapped it and closed it, that another user runs, or that only reads is
//! not found. Deliberately not here: looking at what a name leads to, which a dead mount answers
//! with an error and a hanging one not at all.

use super::Lender;
use crate::known::{FileState, Placed};
use crate::plain::Plain;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Before a program that may be another one than is looked for.
const PERHAPS: &str = "perhaps ";
/// The bits of an opening's flags that say whether it reads or writes; 0 reads.
const ACCESS: u32 = 0o3;

/// A lent file that a program has open for writing, or mapped, beside this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LentInUse {
    /// Its path in the home.
    pub path: PathBuf,
    /// Its plain file.
    pub plain: PathBuf,
    /// The programs that could be found, as words of a sentence: `process 7 (postgres)`;
    /// `perhaps process 7 (postgres)` when it may have another file of the same name.
    pub programs: Vec<String>,
}

impl std::fmt::Display for LentInUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = one_line(&self.path.to_string_lossy());
        write!(f, "{path} is open or mapped elsewhere, and written to there: ")?;
        let programs = self.programs.join(" and ");
        if programs.is_empty() {
            write!(
                f,
                "which program it is could not be found (a database that ran before?); end it \
                 before the database starts"
            )
        } else if self.programs.iter().any(|program| program.starts_with(PERHAPS)) {
            write!(f, "{programs} has it; look which, and end it before the database starts")
        } else {
            write!(f, "end {programs} before the database starts")
        }
    }
}

impl Lender {
    /// Whether somebody beside this process has a lent file, and who.
    pub(crate) fn lent_in_use(&self, file: &FileState, placed: &Placed) -> Option<LentInUse> {
        let (plain, dir) = (placed.loan.plain()?, placed.tier.lent_dir.as_ref()?);
        if dir.is_ours_alone(&plain).unwrap_or(true) {
            return None;
        }
        let (path, plain_path) = (file.path.lock().clone(), dir.path(plain.name));
        let sought =
            Sought::new(self.env.home_path(), &path, file.identity.key().1, &plain_path, &plain);
        Some(LentInUse { programs: sought.programs(), path, plain: plain_path })
    }
}

/// An opening, as the kernel describes it without asking the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opening {
    writes: bool,
    mount: u64,
    /// Linux says it since 5.14.
    ino: Option<u64>,
}

impl Opening {
    /// From the text of `/proc/PID/fdinfo/FD`.
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        let flags = u32::from_str_radix(field("flags")?, 8).ok()?;
        let ino = field("ino").and_then(|ino| ino.parse().ok());
        Some(Self { writes: flags & ACCESS != 0, mount: field("mnt_id")?.parse().ok()?, ino })
    }
}

/// A mount, as a program's own list has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    /// A file system in a program's hands, at the home's path.
    OurPlace,
    /// Such a one elsewhere.
    AnotherPlace,
    /// Another kind of file system.
    Foreign,
    /// Not in the list: it was taken away while the program had files of it.
    Gone,
}

/// What is looked for.
struct Sought {
    home: Vec<u8>,
    in_home: PathBuf,
    /// Where a mount is gone its files are shown from its root.
    alone: Option<PathBuf>,
    /// On a mount a file has the number that it has at home.
    ino: u64,
    plain: PathBuf,
    /// This process's own opening of the plain file.
    own: Option<Opening>,
}

impl Sought {
    fn new(home: &Path, path: &Path, ino: u64, plain_path: &Path, plain: &Plain) -> Self {
        let own = plain.descriptor.as_ref().and_then(|fd| {
            let text =
                std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).ok()?;
            Opening::parse(&text)
        });
        let alone = Path::new("/").join(path);
        Self {
            home: as_listed(home),
            in_home: home.join(path),
            alone: Some(alone).filter(|alone| alone.symlink_metadata().is_err()),
            ino,
            plain: plain_path.canonicalize().unwrap_or_else(|_| plain_path.to_path_buf()),
            own,
        }
    }

    /// The programs that write to the file by its name on a mount, or to its plain file.
    fn programs(&self) -> Vec<String> {
        let mut found = Vec::new();
        let own = std::process::id();
        let namespace = |of: &Path| std::fs::read_link(of.join("ns/mnt")).ok();
        let here = namespace(Path::new("/proc/self"));
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            let Some(pid) = pid.filter(|pid| *pid != own) else { continue };
            let dir = entry.path();
            let open = std::fs::read_dir(dir.join("fd")).into_iter().flatten().flatten();
            let judged = open.filter_map(|fd| {
                let target =
                    std::fs::read_link(fd.path()).ok().filter(|target| self.is_named(target))?;
                let info = std::fs::read_to_string(dir.join("fdinfo").join(fd.file_name())).ok()?;
                let list = || std::fs::read(dir.join("mountinfo")).ok();
                let in_sight = here.is_some() && namespace(&dir) == here;
                self.judge(&target, Opening::parse(&info)?, in_sight, list)
            });
            // One that is certain counts more.
            if let Some(certain) = judged.max() {
                found.push((pid, if certain { "" } else { PERHAPS }));
            }
        }
        found.sort_unstable();
        found
            .into_iter()
            .map(|(pid, how)| format!("{how}process {pid} ({})", name_of(pid)))
            .collect()
    }

    fn is_named(&self, target: &Path) -> bool {
        let target = without_mark(target);
        target == self.plain || target == self.in_home || Some(target) == self.alone.as_deref()
    }

    /// Whether an opening of this name, by a program whose mount namespace is `in_sight`, is one
    /// that writes to the file: `Some(false)` is perhaps. `list` is the program's list of mounts.
    fn judge(
        &self,
        target: &Path,
        opening: Opening,
        in_sight: bool,
        list: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<bool> {
        if !opening.writes {
            return None;
        }
        if without_mark(target) == self.plain {
            let own = self.own.as_ref();
            if own.is_some_and(|own| own.ino.is_some() && own.ino != opening.ino) {
                return None;
            }
            return Some(in_sight && own.is_some_and(|own| own.mount == opening.mount));
        }
        if opening.ino.is_some_and(|ino| ino != self.ino) {
            return None;
        }
        match list().map(|list| listed(&list, opening.mount, &self.home))? {
            Listed::Foreign => None,
            Listed::AnotherPlace => Some(false),
            Listed::OurPlace | Listed::Gone => Some(in_sight && opening.ino.is_some()),
        }
    }
}

/// What the mount of a number is in a list of mounts.
fn listed(list: &[u8], number: u64, home: &[u8]) -> Listed {
    let number = number.to_string();
    for line in list.split(|b| *b == b'\n') {
        let mut words = line.split(|b| *b == b' ');
        if words.next() != Some(number.as_bytes()) {
            continue;
        }
        if !line.windows(7).any(|w| w == b" - fuse") {
            return Listed::Foreign;
        }
        return if words.nth(3) == Some(home) { Listed::OurPlace } else { Listed::AnotherPlace };
    }
    Listed::Gone
}

/// A path as the kernel writes it into its lists of mounts.
fn as_listed(path: &Path) -> Vec<u8> {
    let written = |b: &u8| match b {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{b:03o}").into_bytes(),
        b => vec![*b],
    };
    path.as_os_str().as_bytes().iter().flat_map(written).collect()
}

/// Without what the kernel adds to the name of a removed file.
fn without_mark(target: &Path) -> &Path {
    let bytes = target.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes)))
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = one_line(String::from_utf8_lossy(&name).trim());
    if name.is_empty() { "of unknown name".into() } else { name }
}

/// Names of files and programs may hold anything: a line stays one line, and a terminal that shows
/// it neither obeys it nor turns it round.
fn one_line(name: &str) -> String {
    let turns = |c| {
        matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
    };
    let shown = |c: char| {
        if c.is_control() || turns(c) { c.escape_default().to_string() } else { c.to_string() }
    };
    name.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "20 1 8:1 / / rw - ext4 /dev/sda rw\n\
        41 20 0:50 / /my\\040db rw,nosuid shared:3 - fuse.tiersmith home rw\n\
        42 20 0:51 / /other rw - fuse x rw\n";

    fn sought() -> Sought {
        Sought {
            home: as_listed(Path::new("/my db")),
            in_home: "/my db/a.seg".into(),
            alone: Some("/a.seg".into()),
            ino: 7,
            plain: "/fast.lent/p".into(),
            own: Some(Opening { writes: true, mount: 20, ino: Some(9) }),
        }
    }

    #[test]
    fn a_program_is_named_by_what_it_has_open_not_by_the_name_alone() {
        let sought = sought();
        let judge = |target: &str, mount, ino, in_sight| {
            let target = Path::new(target);
            assert!(sought.is_named(target));
            let list = || Some(LIST.as_bytes().to_vec());
            let by = |writes| sought.judge(target, Opening { writes, mount, ino }, in_sight, list);
            assert_eq!(by(false), None, "who reads is not named");
            by(true)
        };
        for (target, mount, ino, in_sight, expected) in [
            ("/fast.lent/p", 20, Some(9), true, Some(true)),
            ("/fast.lent/p (deleted)", 20, Some(9), true, Some(true)),
            // Another file of this name, another mount of the same, and a container's.
            ("/fast.lent/p", 20, Some(8), true, None),
            ("/fast.lent/p", 77, Some(9), true, Some(false)),
            ("/fast.lent/p", 20, Some(9), false, Some(false)),
            ("/my db/a.seg", 41, Some(7), true, Some(true)),
            ("/my db/a.seg", 41, None, true, Some(false)),
            ("/my db/a.seg", 41, Some(6), true, None),
            ("/my db/a.seg", 41, Some(7), false, Some(false)),
            // Home's own file, and one on another mount that was there.
            ("/my db/a.seg", 20, Some(7), true, None),
            ("/my db/a.seg", 42, Some(7), true, Some(false)),
            // The mount is gone; or it is the root of a container.
            ("/a.seg", 55, Some(7), true, Some(true)),
            ("/a.seg", 55, Some(3), true, None),
            ("/a.seg", 20, Some(7), false, None),
        ] {
            assert_eq!(
                judge(target, mount, ino, in_sight),
                expected,
                "{target} {mount} {ino:?} {in_sight}"
            );
        }
        assert!(!sought.is_named(Path::new("/elsewhere/a.seg")));
    }

    #[test]
    fn an_opening_is_read_from_what_the_kernel_says() {
        let opening = Opening::parse("pos:\t0\nflags:\t02100002\nmnt_id:\t41\nino:\t7\nlock:\tx\n");
        assert_eq!(opening, Some(Opening { writes: true, mount: 41, ino: Some(7) }));
        let opening = Opening::parse("pos:\t0\nflags:\t0100000\nmnt_id:\t41\n");
        assert_eq!(opening, Some(Opening { writes: false, mount: 41, ino: None }));
        assert_eq!(Opening::parse(""), None);
    }

    #[test]
    fn a_message_is_one_line_and_says_what_is_not_certain() {
        let said = |programs: &[&str]| {
            let programs = programs.iter().map(|p| (*p).to_owned()).collect();
            LentInUse {
                path: "a\nb\u{1b}[2J\u{202e}\u{e4}.seg".into(),
                plain: "p".into(),
                programs,
            }
            .to_string()
        };
        let path = "a\\nb\\u{1b}[2J\\u{202e}\u{e4}.seg is open or mapped elsewhere, and written to \
                    there: ";
        assert_eq!(
            said(&["process 7 (x)"]),
            format!("{path}end process 7 (x) before the database starts")
        );
        let perhaps = said(&["process 7 (x)", "perhaps process 8 (y)"]);
        assert!(
            perhaps.contains(": process 7 (x) and perhaps process 8 (y) has it; look which"),
            "{perhaps}"
        );
        assert!(said(&[]).contains("could not be found"));
        assert_eq!(one_line("post\u{2066}gres\u{7}"), "post\\u{2066}gres\\u{7}");
    }
}
