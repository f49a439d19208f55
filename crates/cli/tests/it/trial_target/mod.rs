//! A database of the user's, for trials: a server that was started by hand, and clients that write
//! to it whatever becomes of it, and note what it acknowledged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tiersmith_lab::server::{self, Client, Product, Programs, Site as Server};
use tiersmith_lab::trial::service;

use crate::daemon::{self, Site, can_mount, wait_until};

/// `statfs(2)`: a file system in memory.
const TMPFS: i64 = 0x0102_1994;
/// How long each period of a trial is.
const PERIOD: &str = "500ms";

/// Whether a directory is not in memory.
pub(crate) fn stands_on_disk(dir: &Path) -> bool {
    rustix::fs::statfs(dir).unwrap().f_type != TMPFS
}

/// A database that runs.
pub(crate) struct Target {
    product: &'static dyn Product,
    /// A short path for the socket.
    sockets: tempfile::TempDir,
    url: String,
    /// The commands that stop and start it, where they must be given.
    commands: Option<[String; 2]>,
    /// What the server is told besides.
    settings: Vec<(String, String)>,
    /// Goes last.
    site: Site,
}

impl Target {
    /// PostgreSQL, which a trial finds its way to by itself.
    pub(crate) fn postgres() -> Option<Target> {
        Target::new("postgres", &[])
    }

    /// The same, told more.
    pub(crate) fn postgres_told(settings: &[(&str, &str)]) -> Option<Target> {
        Target::new("postgres", settings)
    }

    /// MariaDB, which no unit of systemd runs here: the commands are given.
    pub(crate) fn mariadb() -> Option<Target> {
        Target::new("mariadb", &[])
    }

    /// Redis, whose every command waits for its append-only file; or told otherwise.
    pub(crate) fn redis(settings: &[(&str, &str)]) -> Option<Target> {
        Target::new("redis", settings)
    }

    fn new(name: &str, settings: &[(&str, &str)]) -> Option<Target> {
        let product = server::product(name).unwrap();
        let what = format!("a trial of {}", product.title());
        let programs = match server::find(product) {
            Ok(programs) => programs,
            Err(e) => {
                eprintln!("skipped: {what}, because {e}");
                return None;
            }
        };
        if !can_mount(&what) {
            return None;
        }
        let site = Site::new();
        if !stands_on_disk(site.path()) {
            eprintln!(
                "skipped: {what}, because directories for temporary files are in memory here"
            );
            return None;
        }
        fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::remove_dir(&site.home).unwrap();
        let place = Server::new(&site.home, site.path().join("server.log"));
        server::create(product, &programs, &place).unwrap();
        let sockets = tempfile::Builder::new().prefix("ts").tempdir_in("/tmp").unwrap();
        server::make_reachable(sockets.path(), product).unwrap();
        let settings = settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let target = Target::with(product, &programs, site, sockets, settings);
        target.start(&programs);
        let mut client = target.client().unwrap();
        for statement in [
            "CREATE DATABASE shop",
            "CREATE TABLE shop.acked (id bigint PRIMARY KEY) ENGINE=InnoDB",
        ] {
            if name == "mariadb" {
                client.batch(statement).unwrap();
            }
        }
        if name == "postgres" {
            client
                .batch("CREATE SCHEMA shop; CREATE TABLE shop.acked (id bigint PRIMARY KEY)")
                .unwrap();
        }
        Some(target)
    }

    fn with(
        product: &'static dyn Product,
        programs: &Programs,
        site: Site,
        sockets: tempfile::TempDir,
        mut settings: Vec<(String, String)>,
    ) -> Target {
        let at = sockets.path().display();
        let url = match product.name() {
            "redis" => format!("unix://{at}/{}", product.socket_name()),
            "postgres" => format!("postgresql://postgres@/postgres?host={at}&port=5432"),
            _ => format!("mariadb://root@/?socket={at}/{}", product.socket_name()),
        };
        let pid = sockets.path().join("pid");
        if product.name() == "redis" {
            settings.push(("pidfile".into(), pid.display().to_string()));
        }
        let mut target = Target { product, sockets, url, commands: None, settings, site };
        if product.name() != "postgres" {
            let start = target.start_command(programs);
            target.commands = Some([format!("kill -TERM $(cat {})", pid.display()), start]);
        }
        target
    }

    /// The address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A command for a shell that starts the server behind its back, as its own account.
    fn start_command(&self, programs: &Programs) -> String {
        let mut place = Server::new(&self.site.home, "");
        place.settings.clone_from(&self.settings);
        let account = server::account(self.product).unwrap();
        let program = programs.get(self.product.needed()[0]).unwrap().display().to_string();
        let arguments = self.product.arguments(&place, self.sockets.path());
        let mut words: Vec<String> = vec!["setsid".into()];
        if let Some(account) = account {
            let (uid, gid) = (account.uid, account.gid);
            words.extend([format!("setpriv --clear-groups --reuid {uid} --regid {gid}")]);
        }
        words.extend(["env -i PATH=/usr/sbin:/usr/bin:/bin LC_ALL=C.UTF-8".into(), program]);
        words.extend(arguments.iter().map(|word| format!("'{}'", word.to_str().unwrap())));
        format!("cd / && {} >/dev/null 2>&1 </dev/null &", words.join(" "))
    }

    fn start(&self, programs: &Programs) {
        let command = self.start_command(programs);
        let status =
            Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).status().unwrap();
        assert!(status.success());
        wait_until("the server answers", || self.client().is_some());
    }

    fn client(&self) -> Option<Box<dyn Client>> {
        let mut client =
            self.product.connect(&self.sockets.path().join(self.product.socket_name())).ok()?;
        client.ping().ok()?;
        Some(client)
    }

    pub(crate) fn site_path(&self) -> &Path {
        self.site.path()
    }

    pub(crate) fn home(&self) -> &Path {
        &self.site.home
    }

    /// Another command that stops it, made from the one that does.
    pub(crate) fn with_stop(&mut self, other: impl Fn(&str) -> String) {
        let [stop, _] = self.commands.as_mut().unwrap();
        *stop = other(stop);
    }

    /// Another command that starts it, made from the one that does.
    pub(crate) fn with_start(&mut self, other: impl Fn(&str) -> String) {
        let [_, start] = self.commands.as_mut().unwrap();
        *start = other(start);
    }

    /// What the server answers to a command that changes it.
    pub(crate) fn tell(&self, command: &str) {
        self.client().unwrap().batch(command).unwrap();
    }

    /// The first figure of its answer.
    pub(crate) fn ask(&self, question: &str) -> String {
        self.client().unwrap().table(question).unwrap()[0][0].clone()
    }

    /// Whether it answers.
    pub(crate) fn answers(&self) -> bool {
        self.client().is_some()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.site.fast.with_file_name("state")
    }

    /// A trial with this fast storage.
    pub(crate) fn command(&self, fast: &Path, more: &[&str]) -> Command {
        self.command_with(fast, &self.state(), more)
    }

    /// The same with another directory for journals.
    pub(crate) fn command_with(&self, fast: &Path, state: &Path, more: &[&str]) -> Command {
        let mut command = daemon::command(&["trial", &self.url]);
        if !more.contains(&"--for") {
            command.args(["--for", PERIOD]);
        }
        command.arg("--fast").arg(fast).arg("--state").arg(state).args(more);
        if let Some([stop, start]) = &self.commands {
            command.args(["--stop", stop, "--start", start]);
        }
        command
    }

    /// A trial with a small tier.
    pub(crate) fn trial(&self, more: &[&str]) -> Command {
        self.command(&self.site.fast, &[&["--size", "64M"], more].concat())
    }

    /// `--resume` or `--undo`.
    pub(crate) fn way(&self, way: &str) -> Command {
        let mut command = daemon::command(&["trial", way]);
        command.arg("--state").arg(self.state());
        command
    }

    /// The directories of the trials so far.
    pub(crate) fn trials(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    pub(crate) fn assert_plain_and_running(&self) {
        assert!(!daemon::is_mounted(&self.site.home), "it is mounted");
        let mut beside = self.site.beside();
        beside.retain(|name| !["state", "server.log", "pg_basebackup"].contains(&name.as_str()));
        assert_eq!(beside, Vec::<String>::new(), "something was left beside the home");
        assert_eq!(fs::read_dir(&self.site.fast).unwrap().count(), 0, "a tier was left");
        assert!(service::running_in(&self.site.home).is_some(), "no server runs in the home");
        assert!(self.client().is_some(), "the server does not answer");
    }

    /// The same, and every acknowledged row is there.
    pub(crate) fn assert_plain_with(&self, acknowledged: &[u64]) {
        self.assert_plain_and_running();
        assert!(acknowledged.len() > 50, "{} rows were acknowledged", acknowledged.len());
        let question = match self.product.name() {
            "redis" => "KEYS *",
            _ => "SELECT id FROM shop.acked",
        };
        let rows = self.client().unwrap().table(question).unwrap();
        let there: std::collections::HashSet<u64> =
            rows.iter().map(|row| row[0].parse().unwrap()).collect();
        let missing: Vec<&u64> =
            acknowledged.iter().filter(|number| !there.contains(number)).collect();
        if !missing.is_empty() {
            eprintln!("VIOLATION: acknowledged rows are missing");
        }
        assert!(missing.is_empty(), "{} of {} rows are missing", missing.len(), acknowledged.len());
    }

    /// A client that writes for as long as the test goes on, and connects again when it must.
    pub(crate) fn load(&self) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let (product, socket) =
            (self.product, self.sockets.path().join(self.product.socket_name()));
        let over = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            let (mut acknowledged, mut number) = (Vec::new(), 0);
            let mut client: Option<Box<dyn Client>> = None;
            while !over.load(Ordering::SeqCst) {
                number += 1;
                let Some(connected) = &mut client else {
                    client = product.connect(&socket).ok();
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                };
                let insert = match product.name() {
                    "redis" => format!("SET {number} x"),
                    _ => format!("INSERT INTO shop.acked VALUES ({number})"),
                };
                match connected.batch(&insert) {
                    Ok(()) => acknowledged.push(number),
                    Err(_) => client = None,
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            acknowledged
        });
        Load { stop, writer }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(running) = service::running_in(&self.site.home) {
            running.process.end_if_postgres();
            running.process.kill_tree();
        }
    }
}

/// A client at work.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    writer: JoinHandle<Vec<u64>>,
}

impl Load {
    /// Ends it; what was acknowledged.
    pub(crate) fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::SeqCst);
        self.writer.join().unwrap()
    }
}
