//! Making a data directory, and a server while it runs.
//!
//! **Invariants**: the socket's directory is private to the account, and nothing in it is opened
//! by its path, which the account can lead elsewhere; a server that does not answer
//! within [`PATIENCE`] is killed, and the error has the end of its log.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tiersmith_dir::{Dir, Found};

use super::account::account;
use super::client::Client;
use super::find::Programs;
use super::{Product, Site};
use crate::account::{Account, can_reach};
use crate::error::{During, Error, Result};
use crate::place::Leftovers;
use crate::process::{Identity, Process, command, log_end_at};
use crate::sql::Sql;

/// How long a server may take to start, or to stop. A loaded machine is slow; a server that hangs
/// hangs for ever.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long is waited between two tries to connect.
const LOOK: Duration = Duration::from_millis(30);
/// Bytes of a file that a program wrote, at most.
const WRITTEN_MAX: u64 = 1 << 30;
/// The longest path of a socket that every system takes.
const SOCKET_PATH: usize = 100;

/// Makes an empty data directory at `site.data`, which must not exist. Its parent must be reachable
/// for the server's account.
///
/// # Errors
/// What is there already; what the product's own program says.
///
/// # Durability
/// None: a new directory is worth nothing.
pub fn create(product: &dyn Product, programs: &Programs, site: &Site) -> Result<()> {
    let account = account(product)?;
    fs::DirBuilder::new()
        .mode(0o700)
        .create(&site.data)
        .during("make the data directory", &site.data)?;
    if let Some(account) = &account {
        chown(&site.data, Some(account.uid), Some(account.gid))
            .during("change the owner of", &site.data)?;
        can_reach(&site.data, account)?;
    }
    let Some(words) = product.creation(programs, &site.data) else { return Ok(()) };
    let Some((program, arguments)) = words.split_first() else { return Ok(()) };
    let command = command(Path::new(program), arguments, account.as_ref())?;
    let mut process = Process::start(command, &site.log)?;
    let failed = |reason: String| Error::Target {
        what: format!("making a data directory for {}", product.title()),
        database: site.data.clone(),
        reason: format!("{reason}; it printed: {}", log_end_at(&site.log)),
    };
    match process.wait(PATIENCE) {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            Err(failed(format!("{} ended with {status}", Path::new(program).display())))
        }
        None => {
            Err(failed(format!("{} did not end in {PATIENCE:?}", Path::new(program).display())))
        }
    }
}

/// A server that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    product: &'static dyn Product,
    process: Process,
    sockets: SocketDirectory,
    account: Option<Account>,
    log: PathBuf,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// It ended, or did not answer in three minutes; the end of its log.
    pub fn start(
        product: &'static dyn Product,
        programs: &Programs,
        site: &Site,
    ) -> Result<Server> {
        let account = account(product)?;
        let sockets = SocketDirectory::make(account.as_ref(), &site.leftovers)?;
        let program = programs.path(product.needed().first().copied().unwrap_or_default());
        let mut command =
            command(program, &product.arguments(site, &sockets.path), account.as_ref())?;
        command.env("HOME", &site.data);
        let process = Process::start(command, &site.log)?;
        site.leftovers.note_process(process.identity());
        let mut server = Server { product, process, sockets, account, log: site.log.clone() };
        server.wait_until_it_answers(&site.data)?;
        Ok(server)
    }

    fn wait_until_it_answers(&mut self, data: &Path) -> Result<()> {
        let began = Instant::now();
        loop {
            let said = match self.client().and_then(|mut client| client.ping()) {
                Ok(()) => return Ok(()),
                Err(e) => e.to_string(),
            };
            let reason = match self.process.ended() {
                Some(status) => format!("it ended with {status}"),
                None if began.elapsed() > PATIENCE => {
                    format!("it did not answer in {PATIENCE:?}: {said}")
                }
                None => {
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            return Err(Error::Target {
                what: format!("starting {}", self.product.title()),
                database: data.into(),
                reason: format!("{reason}; it printed: {}", self.process.log_end()),
            });
        }
    }

    /// What it is.
    pub fn product(&self) -> &'static dyn Product {
        self.product
    }

    /// A new connection.
    ///
    /// # Errors
    /// What the server says.
    pub fn client(&self) -> Result<Box<dyn Client>> {
        self.product.connect(&self.socket())
    }

    /// A new connection for loads with statements of their own.
    ///
    /// # Errors
    /// What the server says; it does not speak SQL.
    pub fn sql(&self) -> Result<Box<dyn Sql>> {
        self.product.sql(&self.socket())
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.sockets.path.join(self.product.socket_name())
    }

    /// The private directory its socket is in.
    pub fn socket_dir(&self) -> &Path {
        &self.sockets.path
    }

    /// The same, held: its account may exchange what is in it, and the directory itself.
    pub(crate) fn held_socket_dir(&self) -> &Dir {
        &self.sockets.held
    }

    /// What the server's account wrote to a file there; no link is followed, and no other account's
    /// file is read.
    ///
    /// # Errors
    /// What the system says; it is no file of the account's, or a long one.
    pub(crate) fn read_written(&self, name: &OsStr) -> Result<String> {
        let (dir, path) = (self.held_socket_dir(), self.socket_dir().join(name));
        let file = dir.open_file(name).during("read", &path)?;
        let found = Found::of(&file).during("look at", &path)?;
        if self.account.as_ref().is_some_and(|account| account.uid != found.user) {
            let refused = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(refused).during("read", &path);
        }
        let mut bytes = Vec::new();
        file.take(WRITTEN_MAX).read_to_end(&mut bytes).during("read", &path)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The database's superuser, for clients.
    pub fn user(&self) -> &'static str {
        self.product.user()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        u32::try_from(self.process.identity().pid).unwrap_or(0)
    }

    /// Its process, for somebody who has to kill it.
    pub fn identity(&self) -> Identity {
        self.process.identity()
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.ended().is_some()
    }

    /// Processor time it took since it started.
    pub fn cpu_ns(&self) -> u64 {
        self.process.cpu_ns()
    }

    /// The end of its log.
    pub fn log_end(&self) -> String {
        self.process.log_end()
    }

    /// A tool that runs as the server's account and finds its socket by the environment.
    ///
    /// # Errors
    /// `setpriv` is not installed.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let mut command = command(program, &[], self.account.as_ref())?;
        command
            .env("PGHOST", &self.sockets.path)
            .env("PGUSER", self.user())
            .env("PGDATABASE", "postgres");
        command.env("MYSQL_UNIX_PORT", self.socket()).env("HOME", &self.sockets.path);
        Ok(command)
    }

    /// Stops it as its manual says, and waits.
    ///
    /// # Errors
    /// It failed while stopping, or had to be killed after three minutes.
    pub fn stop(mut self) -> Result<()> {
        self.process.signal(self.product.stop_signal());
        let status = self.process.wait(PATIENCE);
        let reason = match status {
            Some(status) if status.success() => return Ok(()),
            Some(status) => format!("it ended with {status}"),
            None => format!("it did not end in {PATIENCE:?} and was killed"),
        };
        Err(Error::Target {
            what: format!("stopping {}", self.product.title()),
            database: self.log.clone(),
            reason: format!("{reason}; it printed: {}", self.process.log_end()),
        })
    }

    /// Kills it with everything it started, as a power cut would end it but for the page cache.
    pub fn kill(mut self) {
        self.end_at_once();
    }

    /// [`Server::kill`], for somebody who starts another in its place.
    pub(crate) fn end_at_once(&mut self) {
        self.process.kill();
    }
}

/// A short path for a socket, removed when it is dropped. It is the account's: what is in it is
/// read through the descriptor.
#[derive(Debug)]
struct SocketDirectory {
    path: PathBuf,
    held: Dir,
}

impl SocketDirectory {
    fn make(account: Option<&Account>, leftovers: &Leftovers) -> Result<SocketDirectory> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let temporary = std::env::temp_dir();
        let short = temporary.as_os_str().len() + 40 < SOCKET_PATH;
        let parent = if short { temporary } else { PathBuf::from("/tmp") };
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("tiersmith-s{}-{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                // Left by a process that was killed and had this number, or put there.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e).during("make the directory of a socket", path),
            }
            leftovers.note(&path);
            let held = Dir::open(&path).during("open", &path)?;
            let made = SocketDirectory { path, held };
            if let Some(account) = account {
                chown(&made.path, Some(account.uid), Some(account.gid))
                    .during("change the owner of", &made.path)?;
            }
            return Ok(made);
        }
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
