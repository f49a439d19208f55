//! What must be as it was after a command that was attacked, and what is said of it if it is not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::races::attacker::ATTACKER;
use crate::races::stage::{Ended, MountLine, SECRET, Stage, files_below, may_read, mounts};

/// A canary.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    inode: u64,
    owner: (u32, u32),
    mode: u32,
    names: u64,
    changed: (i64, i64),
    contents: Vec<u8>,
}

/// What was there before the command.
#[derive(Debug)]
pub(crate) struct Watch {
    canaries: BTreeMap<PathBuf, Seen>,
    mounts: Vec<MountLine>,
    /// A difference in them that was seen while the command ran.
    mounted: RefCell<Option<Vec<MountLine>>>,
    /// Root's file in the attacker's directory, wherever it is renamed to.
    here: File,
}

impl Watch {
    pub(crate) fn begin(stage: &Stage) -> Self {
        Self {
            canaries: canaries(&stage.path),
            mounts: outside(stage),
            mounted: RefCell::new(None),
            here: File::open(stage.path.join("user/decoys/note")).unwrap(),
        }
    }

    /// Looks at what may be gone when the command has ended.
    pub(crate) fn look(&self, stage: &Stage) {
        let now = outside(stage);
        if now != self.mounts {
            self.mounted.replace(Some(now));
        }
    }

    /// What is not as it must be, a sentence for each. Ends what the command left running.
    pub(crate) fn violations(&self, stage: &Stage, ended: &Ended) -> Vec<String> {
        let mut found = Vec::new();
        match ended.code {
            None => found.push("it did not end in 20 seconds".to_owned()),
            Some(101) => found.push(format!("it panicked: {}", ended.said)),
            Some(code) if !(0..=2).contains(&code) => {
                found.push(format!("it ended with {code}: {}", ended.said))
            }
            _ => {}
        }
        if ended.said.contains(SECRET) {
            found.push("a secret is in what it said".to_owned());
        }
        self.look(stage);
        if let Some(now) = self.mounted.take() {
            found.push(format!(
                "it mounted or unmounted outside of the attacker's directory: {now:?}"
            ));
        }
        stage.clear();
        found.extend(self.changes(&stage.path));
        let here = self.here.metadata().unwrap();
        if here.uid() != 0 || here.mode() & 0o7777 != 0o600 {
            found.push(format!("root's file in the attacker's directory was given away: {here:?}"));
        }
        found.extend(leaks(stage));
        found
    }

    /// What is not as it was in root's file in the attacker's directory.
    pub(crate) fn change_of_roots_file_there(&self, was: &str) -> Option<String> {
        let mut now = vec![0; was.len() + 1];
        let bytes = self.here.read_at(&mut now, 0).unwrap();
        let is = &now[..bytes];
        (is != was.as_bytes()).then(|| "root's file in the attacker's directory has changed".into())
    }

    fn changes(&self, stage: &Path) -> Vec<String> {
        let now = canaries(stage);
        let mut found = Vec::new();
        for (path, was) in &self.canaries {
            match now.get(path) {
                None => found.push(format!("{} is gone", path.display())),
                Some(is) if is.contents != was.contents => {
                    found.push(format!("{} has other contents", path.display()));
                }
                Some(is) if is != was => {
                    let short = |seen: &Seen| {
                        format!(
                            "owner {:?}, mode {:o}, {} names",
                            seen.owner, seen.mode, seen.names
                        )
                    };
                    found.push(format!("{} was {}, is {}", path.display(), short(was), short(is)));
                }
                Some(_) => {}
            }
        }
        let new = now.keys().filter(|path| !self.canaries.contains_key(*path));
        found.extend(new.map(|path| format!("{} is new", path.display())));
        found
    }
}

/// All that is not the attacker's; of root's directory for tiers only what was put there as a
/// canary.
fn canaries(stage: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut found = files_below(&stage.join("roots"));
    found.extend(files_below(&stage.join("stranger")));
    found.extend(files_below(&stage.join("fast")).into_iter().filter(|(path, _)| is_canary(path)));
    let seen = |(path, found): (PathBuf, std::fs::Metadata)| {
        let contents = if found.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let seen = Seen {
            inode: found.ino(),
            owner: (found.uid(), found.gid()),
            mode: found.mode(),
            names: found.nlink(),
            changed: (found.mtime(), found.mtime_nsec()),
            contents,
        };
        (path, seen)
    };
    found.into_iter().map(seen).collect()
}

fn is_canary(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|contents| contents.starts_with(SECRET.as_bytes()))
}

/// The mounts that are not in the attacker's directory.
fn outside(stage: &Stage) -> Vec<MountLine> {
    let user = stage.path.join("user");
    mounts(&stage.path).into_iter().filter(|line| !line.mount_point.starts_with(&user)).collect()
}

/// Files that the attacker may read and that hold a secret.
fn leaks(stage: &Stage) -> Vec<String> {
    let mut found = Vec::new();
    for top in ["user", "fast"] {
        for (path, seen) in files_below(&stage.path.join(top)) {
            if seen.is_file() && may_read(ATTACKER, &seen) {
                let contents = std::fs::read(&path).unwrap_or_default();
                let secret = SECRET.as_bytes();
                if contents.windows(secret.len()).any(|window| window == secret) {
                    found.push(format!("the attacker may read a secret in {}", path.display()));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Ended {
        Ended { code: Some(0), said: String::new() }
    }

    /// Whoever watches is watched: each kind of harm, done on purpose.
    #[test]
    fn the_watch_sees_what_is_changed_made_removed_given_away_read_and_mounted() {
        if !crate::races::can_race("the watch of the races") {
            return;
        }
        let _alone = crate::alone();
        type Harm = fn(&Path);
        let harms: [(&str, Harm); 8] = [
            ("has other contents", |stage| {
                std::fs::write(stage.join("roots/secret"), "x").unwrap()
            }),
            ("is new", |stage| std::fs::write(stage.join("roots/new"), "x").unwrap()),
            ("is gone", |stage| std::fs::remove_file(stage.join("stranger/secret")).unwrap()),
            ("owner (54321", |stage| {
                std::os::unix::fs::chown(stage.join("roots/secret"), Some(ATTACKER), None).unwrap();
            }),
            ("2 names", |stage| {
                std::fs::hard_link(stage.join("roots/secret"), stage.join("user/taken")).unwrap();
            }),
            ("given away", |stage| {
                let note = stage.join("user/decoys/note");
                std::os::unix::fs::chown(note, Some(ATTACKER), None).unwrap();
            }),
            ("may read a secret", |stage| {
                std::fs::copy(stage.join("roots/secret"), stage.join("user/read")).unwrap();
                std::os::unix::fs::chown(stage.join("user/read"), Some(ATTACKER), None).unwrap();
            }),
            ("mounted", |stage| {
                let mut mount = std::process::Command::new("mount");
                let mount =
                    mount.args(["-t", "tmpfs", "tiersmith"]).arg(stage.join("roots/directory"));
                assert!(mount.status().unwrap().success());
            }),
        ];
        for (said, harm) in harms {
            let stage = Stage::new();
            let watch = Watch::begin(&stage);
            assert_eq!(watch.violations(&stage, &good()), Vec::<String>::new());
            harm(&stage.path);
            let found = watch.violations(&stage, &good());
            assert!(found.iter().any(|text| text.contains(said)), "{said}: {found:?}");
        }
        let stage = Stage::new();
        let watch = Watch::begin(&stage);
        let hung = Ended { code: None, said: SECRET.to_owned() };
        assert_eq!(watch.violations(&stage, &hung).len(), 2);
    }
}
