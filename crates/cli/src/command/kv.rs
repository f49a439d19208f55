//! `tiersmith kv`: the key-value server, the check of its tier, import and export of dumps.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::json;
use tiersmith_dir::{Dir, Found};
use tiersmith_kv::check::check_file;
use tiersmith_kv::{Configuration, Server};
use tiersmith_lab::ByteSize;
use tiersmith_pmem::{Access, Mapping, OpenOptions};

use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::signals::finish_when_interrupted;

/// Bytes of a manifest of append-only files.
const MANIFEST_MAX: u64 = 1 << 20;

/// Serve keys and values in persistent memory, with Redis's protocol: a write is durable before its
/// reply
///
/// The tier is one file on a DAX file system, or a DAX device; it is made when it is not there.
/// After a crash the server goes on at once, however many keys there are. It has Redis's strings,
/// hashes, lists, sets, sorted sets, expiry, transactions and pub/sub; docs/guide/kv.md lists the
/// commands.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Examples:
  tiersmith kv --tier /mnt/pmem0/kv.tier --size 8G
  tiersmith kv --tier /dev/shm/kv.tier --size 256M --emulate --port 7000   to try it out: nothing \
  survives a power cut
  tiersmith kv --tier /mnt/pmem0/kv.tier --config /etc/tiersmith/kv.conf   a file of lines as in \
  redis.conf
  tiersmith kv --tier /mnt/pmem0/kv.tier --unixsocket /run/kv/kv.sock --port 0
  tiersmith kv --tier /mnt/pmem0/kv.tier --set replicaof=\"10.0.0.5 6379\"   follow a running \
  Redis or Valkey
  tiersmith kv import dump.rdb --tier /mnt/pmem0/kv.tier
  tiersmith kv export dump.rdb --tier /mnt/pmem0/kv.tier
  tiersmith kv check /mnt/pmem0/kv.tier
  redis-cli -p 7000 set greeting hello

Exit codes: 0 it was asked to end, by SHUTDOWN or a signal; 2 error."
)]
pub(crate) struct Kv {
    #[command(subcommand)]
    check: Option<What>,
    /// The tier: a file on a DAX file system, or a DAX device
    #[arg(long, value_name = "FILE", required = true)]
    tier: Option<PathBuf>,
    /// Bytes of the tier, when it is made (K, M, G, T, powers of 1024); a device, or a file that
    /// has bytes, is used whole
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    size: ByteSize,
    /// Let any file stand for persistent memory: a power cut may then lose what was acknowledged.
    /// INFO says so
    #[arg(long)]
    emulate: bool,
    /// The TCP port; 0: none [default: 6379]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Addresses to listen at, with a - before those that may be missing [default: 127.0.0.1 -::1]
    #[arg(long, value_name = "ADDRESSES")]
    bind: Option<String>,
    /// A unix socket to listen at, for this account only unless unixsocketperm says otherwise
    #[arg(long, value_name = "PATH")]
    unixsocket: Option<String>,
    /// A file of lines as in redis.conf. A password belongs there (requirepass), not on the command
    /// line
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A setting as in the file; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print as JSON where the server listens
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    Check(Check),
    Import(Import),
    Export(Export),
}

/// Import a dump or an append-only file of Redis or Valkey (RDB, AOF) into a key-value tier that
/// has no keys
///
/// Of append-only files in parts, as Redis 7 writes them, name the manifest. Strings, lists, sets,
/// hashes and sorted sets come with their expiry times; keys that have expired are left out. What
/// the server does not keep (streams, modules, functions) is an error that names the key, and then
/// the tier is empty. No server uses the tier meanwhile.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  redis-cli --rdb /var/tmp/dump.rdb
  tiersmith kv import /var/tmp/dump.rdb --tier /mnt/pmem0/kv.tier --size 8G
  tiersmith kv import dump.rdb --tier /dev/shm/kv.tier --size 256M --emulate --json
  tiersmith kv import /var/lib/redis/appendonlydir/appendonly.aof.manifest --tier /mnt/pmem0/kv.tier

Exit codes: 0 all keys are there; 2 error.")]
struct Import {
    /// The dump, the append-only file, or the manifest of several
    #[arg(value_name = "DUMP")]
    dump: PathBuf,
    /// The tier, which is made if it is not there
    #[arg(long, value_name = "FILE")]
    tier: PathBuf,
    /// Bytes of the tier, when it is made
    #[arg(long, value_name = "BYTES", default_value = "1G")]
    size: ByteSize,
    /// Let any file stand for persistent memory
    #[arg(long)]
    emulate: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Export a key-value tier that nobody uses as a dump file of Redis or Valkey (RDB)
///
/// The file has every key that has not expired, with its expiry time, in version 9 of the format,
/// which Redis reads from 5.0 on. The tier keeps its data. A file that is there already is not
/// overwritten, and one that could not be finished is removed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith kv export /var/lib/redis/dump.rdb --tier /mnt/pmem0/kv.tier
  tiersmith kv export dump.rdb --tier /dev/shm/kv.tier --emulate --json

Exit codes: 0 all keys are in the file; 2 error.")]
struct Export {
    /// The dump, which must not exist; it is for this account only
    #[arg(value_name = "DUMP")]
    dump: PathBuf,
    /// The tier
    #[arg(long, value_name = "FILE")]
    tier: PathBuf,
    /// Let any file stand for persistent memory
    #[arg(long)]
    emulate: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Check a key-value tier that nobody uses: every invariant of its format
///
/// The check is a second reader of the format, apart from the server's. It writes nothing: what the
/// log of a killed server has is applied in memory.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith kv check /mnt/pmem0/kv.tier
  tiersmith kv check /dev/dax0.0 --json

Exit codes: 0 every invariant holds; 1 findings, or a copy that is not whole; 2 error.")]
struct Check {
    /// The tier
    #[arg(value_name = "FILE")]
    tier: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Kv {
    pub(super) fn run(&self) -> Result<Outcome> {
        match &self.check {
            Some(What::Check(check)) => return check.run(),
            Some(What::Import(import)) => return import.run(),
            Some(What::Export(export)) => return export.run(),
            None => {}
        }
        let Some(tier) = &self.tier else {
            return Err(Error::Usage("kv needs --tier FILE".to_owned()));
        };
        let configuration = self.configuration()?;
        let (port, socket) =
            (configuration.number("port"), configuration.text("unixsocket").to_owned());
        let stop = finish_when_interrupted();
        // Bytes that the medium lost end the server; this says which, instead of a bare signal.
        let _explained = tiersmith_pmem::watch_sigbus(Arc::new(|_: &Path, _| None)).ok();
        let mut server = Server::open(map(tier, self.size, self.emulate)?, configuration)?;
        let medium = server.keys().heap().medium();
        let (emulated, recovery_us) = (medium.emulated, server.recovery_us());
        let keys: u64 = (0..16).map(|db| server.keys().len(db)).sum();
        if self.json {
            print_json(&json!({
                "tier": tier, "emulated": emulated, "port": port, "unixsocket": socket,
                "keys": keys, "recovery_us": recovery_us,
            }))?;
        } else {
            let label = if emulated { " (EMULATED: does not survive a power cut)" } else { "" };
            let at = if socket.is_empty() { String::new() } else { format!(" and at {socket}") };
            print(&format!(
                "{}{label}: {keys} keys, open after {recovery_us} us; ready on port {port}{at}\n",
                tier.display()
            ))?;
        }
        server.serve(&stop)?;
        Ok(Outcome::Good)
    }

    fn configuration(&self) -> Result<Configuration> {
        let mut all = Configuration::default();
        if let Some(path) = &self.config {
            let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
                what: "read",
                path: path.clone(),
                source,
            })?;
            all.read(&text, &path.display().to_string())?;
            all.came_from(path);
        }
        let said = [
            ("port", self.port.map(|port| port.to_string())),
            ("bind", self.bind.clone()),
            ("unixsocket", self.unixsocket.clone()),
        ];
        for (name, value) in said {
            if let Some(value) = value {
                all.set(name, &value).map_err(Error::Usage)?;
            }
        }
        for setting in &self.set {
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| Error::Usage(format!("--set takes NAME=VALUE, not `{setting}`")))?;
            all.set(name, value).map_err(Error::Usage)?;
        }
        Ok(all)
    }
}

/// Maps a tier, which is made if it is not there.
fn map(tier: &Path, size: ByteSize, emulate: bool) -> Result<Mapping> {
    let access = if emulate { Access::Emulated } else { Access::Dax };
    // A file that has bytes is taken as it is; an empty one, and one that is not there, is made.
    let there = std::fs::symlink_metadata(tier).ok();
    let used_whole = there.is_some_and(|found| !found.is_file() || found.len() > 0);
    let len = if used_whole { 0 } else { size.0 / 4096 * 4096 };
    let mut options = OpenOptions::new(access, len);
    options.create = !used_whole;
    // To look for holes takes time that grows with the tier. A file that only stands for
    // persistent memory got its blocks when it was made.
    options.preallocate = !(used_whole && emulate);
    Ok(Mapping::open(tier, &options)?)
}

impl Import {
    fn run(&self) -> Result<Outcome> {
        let mut parts = self.parts()?;
        let _explained = tiersmith_pmem::watch_sigbus(Arc::new(|_: &Path, _| None)).ok();
        let tier = map(&self.tier, self.size, self.emulate)?;
        let done = tiersmith_kv::import_parts(tier, &mut parts)?;
        let (keys, expired, left_out) = (done.keys, done.expired, done.left_out);
        if self.json {
            let tier = &self.tier;
            print_json(&json!({"tier": tier, "keys": keys, "expired": expired,
                "bytes_left_out": left_out}))?;
        } else {
            let mut notes = String::new();
            if expired > 0 {
                notes += &format!("; {expired} had expired and were left out");
            }
            if left_out > 0 {
                notes += &format!(
                    "; the last {left_out} bytes of the file were left out, because it ends within \
                     a command or a \
                     transaction, as that of a killed server does"
                );
            }
            print(&format!("{}: {keys} keys imported{notes}\n", self.tier.display()))?;
        }
        Ok(Outcome::Good)
    }

    /// The files to read: the one that is named, or those that it names as a manifest.
    fn parts(&self) -> Result<Vec<BufReader<File>>> {
        let io = |what| move |source| Error::Io { what, path: self.dump.clone(), source };
        let (dir, name) = Dir::holding(&self.dump).map_err(io("open"))?;
        if self.dump.extension().is_none_or(|ending| ending != "manifest") {
            return Ok(vec![BufReader::new(dir.open_file(name).map_err(io("open"))?)]);
        }
        let text = dir.read(name, MANIFEST_MAX).map_err(io("read"))?;
        let names = tiersmith_kv::manifest(&String::from_utf8_lossy(&text))?;
        let open = |name: &String| {
            let path = dir.path_of(name);
            let file =
                dir.open_file(name).map_err(|source| Error::Io { what: "open", path, source })?;
            Ok(BufReader::new(file))
        };
        names.iter().map(open).collect()
    }
}

impl Export {
    fn run(&self) -> Result<Outcome> {
        let io = |what| move |source| Error::Io { what, path: self.dump.clone(), source };
        let access = if self.emulate { Access::Emulated } else { Access::Dax };
        let mut options = OpenOptions::new(access, 0);
        options.preallocate = false;
        let _explained = tiersmith_pmem::watch_sigbus(Arc::new(|_: &Path, _| None)).ok();
        let tier = Mapping::open(&self.tier, &options)?;
        let (dir, name) = Dir::holding(&self.dump).map_err(io("open"))?;
        let file = dir.make_file(&name, 0o600, None).map_err(io("make"))?;
        let made = Found::of(&file).map_err(io("look at"))?;
        let keys = self.write(tier, &file).inspect_err(|_| {
            // What is left of a dump that failed is of no use; if it stays, the error says why.
            let _ = dir.remove_file_that_is(&name, &made);
        })?;
        dir.sync().map_err(io("sync the directory of"))?;
        if self.json {
            print_json(&json!({"tier": self.tier, "dump": self.dump, "keys": keys}))?;
        } else {
            print(&format!("{}: {keys} keys exported\n", self.dump.display()))?;
        }
        Ok(Outcome::Good)
    }

    fn write(&self, tier: Mapping, file: &File) -> Result<u64> {
        let keys = tiersmith_kv::export(tier, std::io::BufWriter::with_capacity(1 << 20, file))?;
        file.sync_all().map_err(|source| Error::Io {
            what: "sync",
            path: self.dump.clone(),
            source,
        })?;
        Ok(keys)
    }
}

impl Check {
    fn run(&self) -> Result<Outcome> {
        let report = check_file(&self.tier)?;
        if self.json {
            print_json(&json!({
                "sound": report.is_sound(), "keys": report.keys,
                "libraries": report.libraries, "used": report.used,
                "size": report.size, "commits": report.commits, "incomplete": report.incomplete,
                "findings": report.findings,
                "more": report.more,
            }))?;
        } else {
            print(&format!("{}: {report}\n", self.tier.display()))?;
        }
        Ok(if report.is_sound() && !report.incomplete { Outcome::Good } else { Outcome::Findings })
    }
}
