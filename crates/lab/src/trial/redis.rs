//! What a trial must know of Redis and Valkey: what they keep on storage, and what a stop could
//! lose.
//!
//! A Redis that is stopped keeps what its append-only file has, however it is ended, if it reads
//! that file when it starts again. So a trial is of a server whose append-only file is on, also in
//! its configuration: then nothing has to be done before a stop but to wait for a rewrite. What a
//! server does that has no configuration file is looked at after each start.
//!
//! Deliberately absent: servers that take snapshots only. None of their commands waits for storage,
//! and what a stop leaves of them depends on how they are ended. Stopping and starting
//! (`service.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiersmith_awr::sources::Address;

use super::plan::{Found, ask};
use super::service;
use crate::error::{Error, Result};

/// How long is waited before the server is asked again.
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
        let settings = [
            "appendonly",
            "appendfsync",
            "appenddirname",
            "appendfilename",
            "dbfilename",
            "dir",
            "save",
        ];
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

    /// Whether a restart reads the append-only file; why not. A server without a configuration file
    /// is told by its command line, which it does not show.
    fn is_log_read_again(&self) -> std::result::Result<(), String> {
        if !self.has_log() {
            return Err("the append-only file is off (appendonly no), so no command waits for \
                        storage, and a stop could lose what was written after the last snapshot. A \
                        trial is of a server with appendonly yes, best with appendfsync always"
                .into());
        }
        let path = Path::new(self.get("config_file"));
        if !path.is_absolute() {
            return Ok(());
        }
        let shown = path.display();
        let mut text = Vec::new();
        fs::File::open(path)
            .and_then(|file| file.take(CONFIGURATION_MAX).read_to_end(&mut text))
            .map_err(|e| format!("its configuration {shown} cannot be read: {e}"))?;
        let told = Configured::parse(&String::from_utf8_lossy(&text));
        if told.has_includes {
            return Err(format!(
                "its configuration {shown} includes others, so it is not known what a restart \
                 reads; give --stop and --start with a configuration in one file"
            ));
        }
        let elsewhere = told.dir.as_deref().map(Path::new).filter(|dir| {
            dir.is_absolute()
                && dir.canonicalize().ok() != Path::new(self.get("dir")).canonicalize().ok()
        });
        match elsewhere {
            _ if !told.appendonly => Err(format!(
                "the append-only file is on, and {shown} does not say so: a restart would turn it \
                 off and read an older snapshot. CONFIG REWRITE writes it there"
            )),
            Some(dir) => Err(format!(
                "its directory was changed while it runs, and {shown} says {}: a restart would \
                 read another data set. CONFIG REWRITE writes it there",
                dir.display()
            )),
            None => Ok(()),
        }
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

/// What a configuration file says; of each setting the last line counts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Configured {
    appendonly: bool,
    dir: Option<String>,
    has_includes: bool,
}

impl Configured {
    fn parse(text: &str) -> Configured {
        let mut found = Configured::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let value = words.next().unwrap_or_default().trim_matches(['"', '\'']);
            match name.to_lowercase().as_str() {
                "appendonly" => found.appendonly = value.eq_ignore_ascii_case("yes"),
                "dir" => found.dir = Some(value.to_owned()),
                "include" => found.has_includes = true,
                _ => {}
            }
        }
        found
    }
}

/// The error of a server that does not tell its directory.
pub(super) fn untold(address: &Address, why: &Error) -> Error {
    Error::Target {
        what: "asking for the directory (CONFIG GET dir)".into(),
        database: address.shown().into(),
        reason: format!(
            "{why}. A trial needs CONFIG GET, which is renamed or not allowed if the server says \
             so: ACL SETUSER NAME +config|get +info"
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
    let here = service::processes_in(&home);
    if !here.iter().any(|process| process.pid.to_string() == facts.get("process_id")) {
        found.refusals.push(format!(
            "the server that answers is process {} of its machine, and none of those that work in \
             {} here: it is on another machine, or in a container",
            facts.get("process_id"),
            home.display()
        ));
    }
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
    if let Err(why) = facts.is_log_read_again() {
        found.refusals.push(why);
        return;
    }
    if facts.get("config_file").is_empty() {
        found.warnings.push(
            "the server has no configuration file: the command that starts it has to turn on the \
             append-only file, or it begins with an older snapshot. The trial looks after each \
             start"
                .into(),
        );
    }
    let log = facts.log_in(home);
    if log.as_ref().and_then(|log| log.symlink_metadata().ok()).is_some_and(|l| l.is_symlink()) {
        found.warnings.push(
            "the append-only file is a link to another place; it stays there, and gets no faster"
                .into(),
        );
    }
    if facts.get("appendfsync") != "always" {
        found.warnings.push(format!(
            "appendfsync is {}: commands do not wait for storage, and the trial may show little. \
             With always each does",
            facts.get("appendfsync")
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

/// Sees to it that a server can be stopped in any way without losing what it acknowledged: its
/// append-only file has it, and is whole.
///
/// # Errors
/// The file is off by now, or would not be read again: the server is not to be stopped.
pub(super) fn prepare_stop(address: &Address, patience: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let facts = match Facts::ask(address) {
            // It has changed nothing yet that it could lose.
            Err(e) if e.to_string().contains("LOADING") => return Ok(()),
            facts => facts?,
        };
        facts.is_log_read_again().map_err(|why| unfit(address, why))?;
        let rewrites = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
        if rewrites.iter().all(|name| facts.number(name) == 0) {
            return Ok(());
        }
        if began.elapsed() > patience {
            let why =
                "a rewrite of its append-only file does not end, and a stop would break it off";
            return Err(unfit(address, why.into()));
        }
        std::thread::sleep(BETWEEN);
    }
}

/// Sees to it that a server that was started has read its append-only file, and goes on writing it.
///
/// # Errors
/// It has not.
pub(super) fn look_after_start(address: &Address) -> Result<()> {
    match Facts::ask(address) {
        Err(e) if e.to_string().contains("LOADING") => Ok(()),
        Err(e) => Err(e),
        Ok(facts) if facts.has_log() => Ok(()),
        Ok(_) => Err(unfit(
            address,
            "it was started without its append-only file, so it has an older data set. What was \
             acknowledged before is in that file: stop the server without saving (SHUTDOWN \
             NOSAVE), and start it with --appendonly yes"
                .into(),
        )),
    }
}

fn unfit(address: &Address, reason: String) -> Error {
    Error::Target {
        what: "looking at the append-only file".into(),
        database: address.shown().into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::Configured;

    #[test]
    fn of_each_setting_of_a_configuration_the_last_line_counts() {
        let log = |text: &str| Configured::parse(text).appendonly;
        assert!(log("save 3600 1\nappendonly yes\nappendonlydir x\n"));
        assert!(log("APPENDONLY no\n  AppendOnly \"yes\"\n# appendonly no\n"));
        for off in ["", "# appendonly yes\n", "appendonly yes\nappendonly no\n", "appendonly"] {
            assert!(!log(off), "{off}");
        }
        let told =
            Configured::parse("dir /a\ninclude /etc/redis/more.conf\ndir '/var/lib/redis'\n");
        assert_eq!(told.dir.as_deref(), Some("/var/lib/redis"));
        assert!(told.has_includes);
    }
}
