//! The commands that root runs while names are exchanged, and what each begins with.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::{Connection, OpenFlags};

use crate::races::attacker::steal;
use crate::races::stage::{SECRET, Stage};

/// What is there when a command begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    Plain,
    Mounted,
    /// Attached; the daemon was killed.
    Killed,
    /// Detached; what that detach wrote of its work was stolen, and another home's tier has the
    /// name.
    Robbed,
    Attached,
    /// The database was written past Tiersmith.
    Changed,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct RootsCommand {
    pub(crate) name: &'static str,
    /// `db` or `app.db`.
    pub(crate) subject: &'static str,
    begins: Begins,
    first: &'static [&'static str],
    /// It changes nothing, and is run again and again.
    pub(crate) looks_only: bool,
}

const fn changes(
    name: &'static str,
    subject: &'static str,
    begins: Begins,
    first: &'static [&'static str],
) -> RootsCommand {
    RootsCommand { name, subject, begins, first, looks_only: false }
}

const fn looks(
    name: &'static str,
    subject: &'static str,
    begins: Begins,
    first: &'static [&'static str],
) -> RootsCommand {
    RootsCommand { name, subject, begins, first, looks_only: true }
}

/// All of them.
pub(crate) const COMMANDS: [RootsCommand; 14] = [
    changes("attach db", "db", Begins::Plain, &["attach", "FAST"]),
    changes("attach db, after kill -9", "db", Begins::Killed, &["attach"]),
    looks("status db", "db", Begins::Mounted, &["status"]),
    looks("check db", "db", Begins::Killed, &["check"]),
    changes("unmount db", "db", Begins::Mounted, &["unmount"]),
    changes("detach db", "db", Begins::Mounted, &["detach"]),
    changes("detach db, after kill -9", "db", Begins::Killed, &["detach"]),
    changes("detach db, detached before", "db", Begins::Robbed, &["detach"]),
    changes("attach app.db", "app.db", Begins::Plain, &["attach", "FAST"]),
    changes("attach app.db, again", "app.db", Begins::Attached, &["attach"]),
    looks("status app.db", "app.db", Begins::Attached, &["status"]),
    looks("check app.db", "app.db", Begins::Attached, &["check"]),
    changes("detach app.db", "app.db", Begins::Attached, &["detach"]),
    changes("detach --keep-both app.db", "app.db", Begins::Changed, &["detach", "--keep-both"]),
];

impl RootsCommand {
    /// Makes what it begins with; its arguments.
    pub(crate) fn prepare(&self, stage: &Stage, users_tier: bool) -> Vec<String> {
        let path = format!("user/work/{}", self.subject);
        let words = |first: &[&str], fast: &str| -> Vec<String> {
            let mut words: Vec<String> = first.iter().map(|word| (*word).to_owned()).collect();
            if words.last().is_some_and(|word| word == "FAST") {
                words.pop();
                words.extend(["--fast", fast, "--emulate", "--size", "16M"].map(str::to_owned));
            }
            words.push(path.clone());
            words
        };
        let name = if self.subject == "db" { "db.tier" } else { "app.tier" };
        let mut fast = format!("fast/{name}");
        let attach = ["attach", "FAST"];
        if self.begins != Begins::Plain {
            let users = format!("user/fast/{name}");
            // Where root may use a tier that is in the user's directory.
            if users_tier && stage.run(&words(&attach, &users), || {}).code == Some(0) {
                fast = users;
            } else {
                stage.prepare(&words(&attach, &fast));
            }
        } else if users_tier {
            fast = format!("user/fast/{name}");
        }
        match self.begins {
            Begins::Killed => stage.kill_daemons(),
            Begins::Robbed => {
                steal(&stage.path, "work/db.tiersmith-detach", || {
                    stage.run(&words(&["detach"], &fast), || {});
                });
                let tier = stage.path.join(&fast);
                let _ = fs::remove_file(&tier);
                fs::write(&tier, format!("{SECRET}: another home's tier")).unwrap();
                fs::set_permissions(&tier, fs::Permissions::from_mode(0o600)).unwrap();
            }
            Begins::Changed => change_past_tiersmith(stage),
            Begins::Plain | Begins::Mounted | Begins::Attached => {}
        }
        words(self.first, &fast)
    }
}

/// The database's owner writes through Tiersmith, so that the tier has newer blocks, and past it.
fn change_past_tiersmith(stage: &Stage) {
    tiersmith_sqlite::register().unwrap();
    stage.as_attacker(|user| {
        let app = user.join("work/app.db");
        let uri = format!("file:{}?vfs=tiersmith", app.display());
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(uri, flags).unwrap();
        connection.execute_batch("INSERT INTO t VALUES (zeroblob(30000))").unwrap();
        drop(connection);
        let inside = user.join("work/app.db-tiersmith/db");
        let mut contents = fs::read(&inside).unwrap();
        contents.extend([0; 4096]);
        fs::write(&inside, contents).unwrap();
    });
}
