//! What a trial must know of Redis and Valkey: what they keep on storage, and what a stop could
//! lose.
//!
//! A Redis that is stopped keeps what its append-only file has. Without one it keeps its last
//! snapshot, and whether it takes another at its end depends on how it is ended. So before such a
//! server is stopped, a trial keeps clients from writing, has a snapshot taken, and sees that
//! nothing was written after it: then it does not matter how the server ends.
//!
//! Deliberately absent: stopping and starting (`service.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiersmith_awr::sources::Address;

use super::found::Found;
use super::plan::{ask, ask_patiently};
use crate::error::{Error, Result};

/// How long clients wait that want to write while the server is stopped; then they go on, whatever
/// became of it.
const PAUSE: &str = "CLIENT PAUSE 60000 WRITE";
/// How often a snapshot is taken anew because something was written after it.
const SNAPSHOTS: usize = 5;
/// How long is waited for somebody else's snapshot.
const BETWEEN: Duration = Duration::from_millis(500);
/// Bytes of a configuration file that are read.
const CONFIGURATION_MAX: u64 = 1 << 20;
/// Names in a data directory that are looked at.
const NAMES_MAX: usize = 10_000;

/// What the server says of itself.
#[derive(Debug, Default)]
struct Facts(BTreeMap<String, String>);

impl Facts {
    fn ask(address: &Address) -> Result<Facts> {
        let mut facts = BTreeMap::new();
        let lines = ask(address, &["INFO"])?.into_iter().flatten();
        for line in lines.take(NAMES_MAX) {
            if let Some((name, value)) = line.split_once(':') {
                facts.insert(name.to_owned(), value.trim_end().to_owned());
            }
        }
        // A version that does not know a setting answers with an empty list.
        let settings =
            ["appendonly", "appendfsync", "appenddirname", "appendfilename", "dbfilename", "save"];
        let questions = settings.map(|name| format!("CONFIG GET {name}"));
        let answers = ask(address, &questions.each_ref().map(String::as_str))?;
        for (name, answer) in settings.into_iter().zip(answers) {
            if let Some(value) = answer.into_iter().nth(1) {
                facts.insert(name.to_owned(), value);
            }
        }
        Ok(Facts(facts))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    fn has_log(&self) -> bool {
        self.get("appendonly") == "yes"
    }

    /// What the configuration file says of the append-only file; nothing if there is no such file,
    /// or none that can be read.
    fn configured_log(&self) -> Option<bool> {
        let path = Path::new(self.get("config_file"));
        if !path.is_absolute() {
            return None;
        }
        let mut text = Vec::new();
        fs::File::open(path).ok()?.take(CONFIGURATION_MAX).read_to_end(&mut text).ok()?;
        Some(configured_log(&String::from_utf8_lossy(&text)))
    }

    /// The files of an append-only file, whether it is in use or of before.
    fn log_in(&self, home: &Path) -> Option<PathBuf> {
        let of = |name: &str, usual: &str| match self.get(name) {
            "" => home.join(usual),
            given => home.join(given),
        };
        let parts = of("appenddirname", "appendonlydir");
        if fs::read_dir(&parts).is_ok_and(|mut entries| entries.next().is_some()) {
            return Some(parts);
        }
        Some(of("appendfilename", "appendonly.aof")).filter(|file| file.exists())
    }
}

/// What a configuration says of the append-only file: the last line counts.
fn configured_log(text: &str) -> bool {
    let said = text.lines().rev().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next()?.eq_ignore_ascii_case("appendonly");
        is_it.then(|| words.next().unwrap_or_default().trim_matches('"').to_lowercase())
    });
    said.is_some_and(|said| said == "yes")
}

/// The error of a server that does not tell its directory.
pub(super) fn untold(address: &Address, why: &Error) -> Error {
    Error::Target {
        what: "asking for the directory (CONFIG GET dir)".into(),
        database: address.shown().into(),
        reason: format!(
            "{why}. A trial needs CONFIG GET, which is renamed or not allowed if the server says              so: ACL SETUSER NAME +config|get +info"
        ),
    }
}

/// Says what speaks against a trial of this server.
///
/// # Errors
/// It cannot be reached, or refuses a question.
pub(super) fn look_at_use(found: &mut Found, address: &Address) -> Result<()> {
    let facts = Facts::ask(address)?;
    let home = found.plan.home.0.clone();
    look_at_persistence(found, &facts, &home);
    let works = [
        ("loading", "it reads its data set"),
        ("rdb_bgsave_in_progress", "a snapshot (BGSAVE)"),
        ("aof_rewrite_in_progress", "a rewrite of the append-only file"),
        ("aof_rewrite_scheduled", "a rewrite of the append-only file"),
        ("master_sync_in_progress", "a copy from its primary"),
    ];
    if let Some((_, what)) = works.iter().find(|(name, _)| facts.number(name) > 0) {
        found.refusals.push(format!(
            "the server is at work ({what}), and a stop would break it off; wait until it has ended"
        ));
    }
    let clients = facts.number("connected_clients").saturating_sub(1);
    if clients > 0 {
        found.warnings.push(format!("{clients} clients will be disconnected at each stop"));
    }
    let replicas = facts.number("connected_slaves");
    if replicas > 0 {
        found.warnings.push(format!(
            "{replicas} replicas follow this server, and wait while it is stopped; a Sentinel \
             would make one of them the primary if a stop takes longer than down-after-milliseconds"
        ));
    }
    if facts.get("role") == "slave" {
        found.warnings.push(
            "this server is a replica: it follows its primary again after each start, perhaps by \
             a whole copy"
                .into(),
        );
    }
    if facts.number("cluster_enabled") == 1 {
        found.warnings.push(
            "this server is a node of a cluster, which may make a replica the primary of its slots \
             if a stop takes longer than cluster-node-timeout"
                .into(),
        );
    }
    Ok(())
}

fn look_at_persistence(found: &mut Found, facts: &Facts, home: &Path) {
    let log = facts.log_in(home);
    let configured = facts.configured_log();
    if facts.has_log() {
        if configured == Some(false) {
            found.warnings.push(format!(
                "the append-only file is on, and {} does not say so: a restart turns it off. \
                 CONFIG REWRITE keeps it on",
                facts.get("config_file")
            ));
        }
        if log.as_ref().and_then(|log| log.symlink_metadata().ok()).is_some_and(|l| l.is_symlink())
        {
            found.warnings.push(
                "the append-only file is a link to another place; it stays there, and gets no \
                 faster"
                    .into(),
            );
        }
        if facts.get("appendfsync") != "always" {
            found.warnings.push(format!(
                "appendfsync is {}: commands do not wait for storage, and the trial may show \
                 little. With always each does",
                facts.get("appendfsync")
            ));
        }
    } else if let Some(log) = log.filter(|_| configured != Some(false)) {
        found.refusals.push(format!(
            "the append-only file is off, and there is one of before, {}: if the server's \
             configuration turns it on, a restart would read that instead of the data set. Run \
             CONFIG REWRITE, and move it away",
            log.display()
        ));
    } else if facts.get("save").is_empty() {
        found.refusals.push(
            "persistence is off (appendonly no, save \"\"): nothing waits for storage, and each \
             stop would lose the data set. A trial is of a server that keeps its data: see \
             appendonly and save"
                .into(),
        );
    } else {
        found.warnings.push(format!(
            "only snapshots go to storage (save {}), and no command waits for them: the trial may \
             show little. A snapshot is taken before each stop, while clients wait that write",
            facts.get("save")
        ));
    }
    let entries = fs::read_dir(home).into_iter().flatten().flatten().take(NAMES_MAX);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let own = |name: &str| {
        [facts.get("appenddirname"), facts.get("appendfilename"), facts.get("dbfilename")]
            .contains(&name)
            || [".rdb", ".aof", ".conf", ".acl", ".log", ".pid", ".sock"]
                .iter()
                .any(|end| name.ends_with(end))
    };
    if let Some(other) = names.into_iter().find(|name| !own(name)) {
        found.warnings.push(format!(
            "{} holds more than a data set of Redis ({other}); all of it is attached with it",
            home.display()
        ));
    }
}

/// Sees to it that a server can be stopped in any way without losing what it acknowledged: nothing
/// to do where its append-only file has that. Clients that write wait from here on, a minute at
/// the most; [`resume_writes`] lets them go on.
///
/// # Errors
/// It refuses, or the snapshot cannot be taken: it is not to be stopped.
pub(super) fn prepare_stop(address: &Address, patience: Duration) -> Result<()> {
    let facts = match Facts::ask(address) {
        // It has changed nothing yet that it could lose.
        Err(e) if e.to_string().contains("LOADING") => return Ok(()),
        facts => facts?,
    };
    // Else a restart may not turn it on, and would read the snapshot.
    if facts.has_log() && facts.configured_log() == Some(true) {
        return Ok(());
    }
    let began = Instant::now();
    let mut snapshots = 0;
    while snapshots < SNAPSHOTS {
        match ask_patiently(address, &[PAUSE, "SAVE", PAUSE], patience) {
            Ok(_) => snapshots += 1,
            Err(e) if e.to_string().contains("in progress") && began.elapsed() < patience => {
                std::thread::sleep(BETWEEN);
                continue;
            }
            Err(e) => {
                resume_writes(address);
                return Err(refused(address, e.to_string()));
            }
        }
        let now = Facts::ask(address)?;
        // What a replica writes comes from its primary, and will again.
        if now.number("rdb_changes_since_last_save") == 0 || now.get("role") == "slave" {
            return Ok(());
        }
    }
    resume_writes(address);
    Err(refused(address, "something is written after each snapshot".into()))
}

/// Lets clients write that [`prepare_stop`] has wait; nothing if there is no server.
pub(super) fn resume_writes(address: &Address) {
    // Its minute ends by itself.
    let _ = ask(address, &["CLIENT UNPAUSE"]);
}

fn refused(address: &Address, reason: String) -> Error {
    let what = "taking a snapshot before the server is stopped";
    Error::Target {
        what: what.into(),
        database: address.shown().into(),
        reason: format!(
            "{reason}. Without it a stop could lose what was acknowledged; it needs CLIENT PAUSE \
             (Redis 6.2) and SAVE: ACL SETUSER NAME +client +save +info +config|get"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::configured_log;

    #[test]
    fn the_last_line_of_a_configuration_says_whether_there_is_an_append_only_file() {
        assert!(configured_log("save 3600 1\nappendonly yes\nappendonlydir x\n"));
        assert!(configured_log("APPENDONLY no\n  AppendOnly \"yes\"\n# appendonly no\n"));
        for off in ["", "# appendonly yes\n", "appendonly yes\nappendonly no\n", "appendonly"] {
            assert!(!configured_log(off), "{off}");
        }
    }
}
