//! `tiersmith kv`: the server that keeps its data in a tier which it maps itself.
//!
//! Its program is the one that runs the study, which says so ([`program_is`]): the lab is a library
//! and knows no command of its own. A client is Redis's.
//!
//! **Invariant**: nothing is started that did not say that it is the server.
//! **Deliberately absent**: replication, TLS, import.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::Signal;
use tiersmith_awr::Snapshot;

use super::client::Client;
use super::{Product, Programs, Site, account, redis};
use crate::account::can_reach;
use crate::error::Result;
use crate::installed::is_program;

/// The program that has the command `kv`.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says that this program is `tiersmith` and has the command `kv`. The first who says it is right.
pub fn program_is(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

/// The program that runs, if it is `tiersmith` and can be started again; or why not.
pub(crate) fn this_program() -> std::result::Result<PathBuf, String> {
    let path = PROGRAM.get().ok_or(
        "the program that runs is not tiersmith, which is started again for it; run `tiersmith \
         study`",
    )?;
    if is_program(path) {
        return Ok(path.clone());
    }
    Err(format!("the running program is not at {} any more; start it anew", path.display()))
}

/// The program, if the account of the server can start it; or why not.
fn program() -> std::result::Result<PathBuf, String> {
    let path = this_program()?;
    let above = path.parent().unwrap_or(Path::new("/"));
    if let Some(account) = account(&Kv).map_err(|e| e.to_string())? {
        can_reach(above, &account).map_err(|_| {
            format!(
                "the account {} cannot reach {}, and the server must not run as root; put the \
                 program where everybody can start it, for instance /usr/local/bin",
                account.name,
                path.display()
            )
        })?;
    }
    Ok(path)
}

/// The product.
#[derive(Debug)]
pub(super) struct Kv;

impl Product for Kv {
    fn name(&self) -> &'static str {
        "kv"
    }

    fn profile(&self) -> &'static str {
        "redis"
    }

    fn title(&self) -> &'static str {
        "tiersmith kv"
    }

    fn needed(&self) -> &'static [&'static str] {
        &["tiersmith"]
    }

    fn useful(&self) -> &'static [&'static str] {
        &["redis-benchmark", "memtier_benchmark", "redis-cli"]
    }

    fn own_program(&self) -> Option<std::result::Result<PathBuf, String>> {
        Some(program())
    }

    fn places(&self) -> &'static [&'static str] {
        &["/usr/bin"]
    }

    fn packages(&self) -> &'static str {
        "tiersmith"
    }

    fn account_name(&self) -> &'static str {
        "redis"
    }

    fn user(&self) -> &'static str {
        ""
    }

    fn page_bytes(&self) -> u64 {
        4096
    }

    fn creation(&self, _: &Programs, _: &Path) -> Option<Vec<OsString>> {
        None
    }

    fn arguments(&self, site: &Site, socket_dir: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["kv".into(), "--port".into(), "0".into()];
        words.extend(["--unixsocket".into(), socket_dir.join(self.socket_name()).into()]);
        if let Some(tier) = &site.tier {
            words.extend(["--tier".into(), tier.path.clone().into()]);
            words.extend(["--size".into(), tier.bytes.to_string().into()]);
            words.extend(tier.emulated.then(|| "--emulate".into()));
        }
        let setting = |(name, value): &(String, String)| {
            [OsString::from("--set"), format!("{name}={value}").into()]
        };
        words.extend(site.settings.iter().flat_map(setting));
        words
    }

    fn socket_name(&self) -> &'static str {
        "kv.sock"
    }

    fn stop_signal(&self) -> Signal {
        Signal::TERM
    }

    fn connect(&self, socket: &Path) -> Result<Box<dyn Client>> {
        redis::connect(socket)
    }

    fn speaks_redis(&self) -> bool {
        true
    }

    fn tier_file(&self) -> Option<&'static str> {
        Some("kv.tier")
    }

    /// No setting of it weakens what it promises.
    fn unsynced(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    fn redo_within(&self) -> &'static str {
        "kv.tier"
    }

    fn torn_page_protection(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    fn cache_settings(&self, _: u64) -> Vec<(String, String)> {
        Vec::new()
    }

    fn redo_profile(&self) -> &'static str {
        redis::REDIS.redo_profile()
    }

    fn commits_with_each_statement(&self) -> bool {
        true
    }

    fn figures(&self, client: &mut dyn Client, snapshot: &mut Snapshot) -> Result<()> {
        redis::REDIS.figures(client, snapshot)?;
        let rows = client.table("INFO")?;
        let info: String = rows.iter().map(|row| row.join(":") + "\n").collect();
        tiersmith_awr::add_waits_of_kv(snapshot, &info);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{MappedTier, find};

    #[test]
    fn a_program_that_did_not_say_that_it_is_the_server_is_never_started() {
        let refused = find(&Kv).unwrap_err().to_string();
        assert!(refused.contains("not tiersmith"), "{refused}");
        assert!(refused.contains("run `tiersmith study`"), "{refused}");
    }

    #[test]
    fn it_is_told_its_tier_and_that_the_tier_is_emulated_only_if_it_is() {
        let mut site = Site::new("/data", "/log");
        site.settings.push(("maxmemory".into(), "1".into()));
        let words = |site: &Site| {
            let words = Kv.arguments(site, Path::new("/s"));
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let tier = MappedTier { path: "/m/kv.tier".into(), bytes: 4096, emulated: true };
        site.tier = Some(tier.clone());
        assert_eq!(
            words(&site),
            "kv --port 0 --unixsocket /s/kv.sock --tier /m/kv.tier --size 4096 --emulate --set \
             maxmemory=1"
        );
        site.tier = Some(MappedTier { emulated: false, ..tier });
        assert!(!words(&site).contains("emulate"));
    }
}
