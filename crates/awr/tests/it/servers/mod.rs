//! Real servers for tests: started on unix sockets in a temporary directory, as an unprivileged
//! user when the test runs as root, and gone with the guard, also after a panic.
//!
//! A server that is not installed makes the test print one line and end. Limits on time are for
//! hangs only.
//!
//! `TIERSMITH_TEST_SERVER_BIN` names a directory with the programs of one server, of another
//! version than the installed one: then the tests run with that server and end at once where they
//! need another (`.ci/server_versions.sh`).

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tiersmith_awr::archive::Archive;
use tiersmith_awr::record::{Plan, Recorder};
use tiersmith_awr::sources::{self, Address, Asking, LiveSource, Surroundings};

/// For hangs only.
const LIMIT: Duration = Duration::from_secs(150);

/// `nobody`, whom every system has.
const UNPRIVILEGED: u32 = 65534;

/// A server that ends with this value.
pub(crate) struct Server {
    child: Option<Child>,
    start: Vec<String>,
    dir: TempDir,
    ready: fn(&Server) -> bool,
}

/// Prints why a test does not run.
pub(crate) fn skip(what: &str, why: &str) {
    eprintln!("skipped: {what}, because {why}");
}

/// Asks until the answer is yes.
pub(crate) fn until(what: &str, mut answer: impl FnMut() -> bool) {
    let began = Instant::now();
    while !answer() {
        assert!(began.elapsed() < LIMIT, "waited {LIMIT:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Programs that are servers or make what one needs: they come from one place.
const OF_SERVERS: [&str; 7] = [
    "initdb",
    "postgres",
    "mariadb-install-db",
    "mariadbd",
    "mysqld",
    "redis-server",
    "valkey-server",
];

/// Where the programs of the server under test are, if it is not the installed one.
pub(crate) fn under_test() -> Option<PathBuf> {
    std::env::var_os("TIERSMITH_TEST_SERVER_BIN").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Why a server cannot be started.
fn absent(product: &str) -> String {
    match under_test() {
        Some(dir) => format!("{product} is not the server under test in {}", dir.display()),
        None => format!("no {product} server is installed"),
    }
}

/// The program of this name: of the server under test, in the path, or where Debian puts
/// PostgreSQL's.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    if let Some(of_server) = under_test() {
        let path = of_server.join(name);
        if path.is_file() || OF_SERVERS.contains(&name) {
            return Some(path).filter(|path| path.is_file());
        }
    }
    let mut dirs: Vec<PathBuf> =
        std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    dirs.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("bin"))
        .collect();
    versions.sort();
    // Debian's wrappers in the path start servers of their own choice: the real programs come
    // first.
    dirs.splice(0..0, versions.into_iter().rev());
    dirs.into_iter().map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// A command as the unprivileged user, with nothing on its standard input.
///
/// The kernel kills it when the thread of the test that started it ends, however that came about.
fn command(program: &Path, dir: &Path) -> Command {
    let setpriv =
        ["/usr/bin/setpriv", "/bin/setpriv"].into_iter().map(Path::new).find(|path| path.is_file());
    let mut command = match setpriv {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command
        .stdin(Stdio::null())
        .current_dir(dir)
        .env("HOME", dir)
        .env("LC_ALL", "C")
        .env_remove("PGPASSWORD");
    if is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command
}

/// A directory that the unprivileged user can get at.
fn directory() -> Option<TempDir> {
    for parent in [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from("/tmp")] {
        let Ok(dir) = tempfile::Builder::new().prefix("ts-awr-").tempdir_in(parent) else {
            continue;
        };
        if is_root() && chown(dir.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).is_err() {
            continue;
        }
        // Socket paths have room for 107 bytes.
        let short = dir.path().as_os_str().len() < 70;
        let usable = command(Path::new("/bin/sh"), dir.path()).args(["-c", "test -w ."]).status();
        if short && usable.is_ok_and(|status| status.success()) {
            return Some(dir);
        }
    }
    None
}

fn run(what: &str, command: &mut Command) -> bool {
    let output = command.output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            eprintln!(
                "{what} failed: {}",
                String::from_utf8_lossy(&text).chars().take(2000).collect::<String>()
            );
            false
        }
        Err(error) => {
            eprintln!("{what} cannot be run: {error}");
            false
        }
    }
}

impl Server {
    fn launch(dir: TempDir, start: Vec<String>, ready: fn(&Server) -> bool) -> Server {
        let mut server = Server { child: None, start, dir, ready };
        server.start();
        server
    }

    /// Starts the server and waits until it answers.
    pub(crate) fn start(&mut self) {
        let log = |name: &str| fs::File::create(self.dir.path().join(name)).expect("a log file");
        let mut command = command(Path::new(&self.start[0]), self.dir.path());
        command.args(&self.start[1..]).stdout(log("out.log")).stderr(log("err.log"));
        self.child = Some(command.spawn().expect("the server starts"));
        until("the server to answer", || {
            let ended = self
                .child
                .as_mut()
                .is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()));
            assert!(!ended, "the server ended: {}", self.log());
            (self.ready)(self)
        });
    }

    fn log(&self) -> String {
        ["out.log", "err.log"]
            .map(|name| fs::read_to_string(self.path(name)).unwrap_or_default())
            .concat()
    }

    /// Ends the server in order.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Fast shutdown for PostgreSQL, a clean end for the others.
        let signal = if self.start[0].ends_with("postgres") { Signal::INT } else { Signal::TERM };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = child.kill();
        let _ = child.wait();
    }

    /// The process, as long as it runs.
    pub(crate) fn process(&self) -> Option<Pid> {
        self.child.as_ref().and_then(|child| i32::try_from(child.id()).ok()).and_then(Pid::from_raw)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Changes how it is started the next time.
    pub(crate) fn start_with(&mut self, argument: &str) {
        self.start.push(argument.to_owned());
    }

    /// A source at this server.
    pub(crate) fn source(
        &self,
        url: &str,
        surroundings: &Surroundings,
    ) -> tiersmith_awr::Result<Box<dyn LiveSource>> {
        sources::open(&Address::parse(url)?, &Asking::default(), surroundings)
    }
}

/// Lets a process go on that was stopped.
pub(crate) struct GoesOn(Pid);

impl GoesOn {
    pub(crate) fn stop(process: Pid) -> GoesOn {
        let _ = kill_process(process, Signal::STOP);
        GoesOn(process)
    }
}

impl Drop for GoesOn {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Ends a recording, also when the test fails: its thread would be waited for otherwise.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Records a server, stops its process and those that `more` names, waits for the gap, and lets
/// them go on: the recording does as well.
pub(crate) fn hang(server: &Server, url: &str, more: &mut dyn FnMut() -> Vec<i32>) {
    let dir = tempfile::tempdir().expect("a directory");
    let repository = dir.path().join("awr.db");
    let asking = Asking { patience: Duration::from_secs(1), ..Asking::default() };
    let address = Address::parse(url).expect("an address");
    let period = Duration::from_millis(20);
    let plan = Plan { every: period, length: None, sample: Some(period), keep: None };
    let mut recorder = None;
    // The first snapshot must be there in time, on a slow machine as well.
    until("a first snapshot", || {
        let source = sources::open(&address, &asking, &Surroundings::default()).ok();
        recorder = source.and_then(|source| Recorder::begin(vec![source], &repository, plan).ok());
        recorder.is_some()
    });
    let recorder = recorder.expect("there");
    let stop = AtomicBool::new(false);
    let archive = || Archive::existing(&repository).expect("a repository");
    std::thread::scope(|scope| {
        let stops = Stops(&stop);
        let recording =
            scope.spawn(|| recorder.run(&|| stop.load(Ordering::Relaxed)).expect("recorded"));
        let known = archive().gaps().expect("gaps").len();
        // Nobody new is let in while those that are there are found.
        let mut stopped = vec![GoesOn::stop(server.process().expect("it runs"))];
        until("a gap while the server hangs", || {
            stopped.extend(more().into_iter().filter_map(Pid::from_raw).map(GoesOn::stop));
            archive().gaps().expect("gaps").len() > known
        });
        drop(stopped);
        let before = archive().list().expect("a list").entries.len();
        until("a snapshot after the gap", || {
            archive().list().expect("a list").entries.len() > before
        });
        drop(stops);
        recording.join().expect("no panic");
    });
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A PostgreSQL with pg_stat_statements, everything timed, and nothing in the background that would
/// commit.
pub(crate) fn postgres(what: &str) -> Option<Server> {
    let Some((initdb, postgres)) = program("initdb").zip(program("postgres")) else {
        skip(what, &absent("PostgreSQL"));
        return None;
    };
    // The wrapper in the path is no server; the one beside initdb is.
    let postgres =
        Some(initdb.with_file_name("postgres")).filter(|path| path.is_file()).unwrap_or(postgres);
    let Some(dir) = directory() else {
        skip(what, "there is no temporary directory that an unprivileged user can use");
        return None;
    };
    let data = dir.path().join("data");
    let made = run(
        "initdb",
        command(&initdb, dir.path()).arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "--locale=C",
            "-E",
            "UTF8",
        ]),
    );
    assert!(made, "initdb works where it is installed");
    let hba = data.join("pg_hba.conf");
    let rules = fs::read_to_string(&hba).expect("rules");
    fs::write(&hba, format!("local all careful scram-sha-256\n{rules}")).expect("rules");
    let socket = dir.path().to_str().expect("UTF-8").to_owned();
    let statements = initdb.parent().and_then(Path::parent).is_some_and(|dir| {
        ["lib", "lib/postgresql"]
            .iter()
            .any(|lib| dir.join(lib).join("pg_stat_statements.so").is_file())
    });
    let mut start = vec![
        postgres.to_str().expect("UTF-8").to_owned(),
        "-D".to_owned(),
        data.to_str().expect("UTF-8").to_owned(),
    ];
    let version: u32 = fs::read_to_string(data.join("PG_VERSION"))
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .expect("a version");
    for setting in [
        "listen_addresses=",
        &format!("unix_socket_directories={socket}"),
        "track_io_timing=on",
        // 13 knows no such setting and would not start.
        if version < 14 { "log_statement=none" } else { "track_wal_io_timing=on" },
        "shared_buffers=16MB",
        "max_connections=20",
        "autovacuum=off",
        "fsync=off",
        "dynamic_shared_memory_type=mmap",
        if statements { "shared_preload_libraries=pg_stat_statements" } else { "jit=off" },
    ] {
        start.extend(["-c".to_owned(), setting.to_owned()]);
    }
    Some(Server::launch(dir, start, |server| {
        let config = format!("host={} user=postgres dbname=postgres", server.dir.path().display());
        ::postgres::Client::connect(&config, ::postgres::NoTls).is_ok()
    }))
}

/// A standby of a PostgreSQL, which replays what is made there.
pub(crate) fn standby(of: &Server, what: &str) -> Option<Server> {
    let Some(backup) = program("pg_basebackup") else {
        skip(what, "there is no pg_basebackup");
        return None;
    };
    let dir = directory()?;
    let data = dir.path().join("data");
    let made = run(
        "pg_basebackup",
        command(&backup, dir.path()).arg("-D").arg(&data).arg("-h").arg(of.dir.path()).args([
            "-U",
            "postgres",
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
        ]),
    );
    assert!(made, "a copy can be made of a server that runs");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let own = |argument: &String| argument.replace(&text(of.dir.path()), &text(dir.path()));
    let start = of.start.iter().map(own).collect();
    Some(Server::launch(dir, start, of.ready))
}

/// A MariaDB or MySQL that times its waits.
pub(crate) fn mariadb(what: &str) -> Option<Server> {
    mariadb_with(what, &["--skip-networking"])
}

/// The same with other arguments, where that works: a port may have gone to somebody else
/// meanwhile.
pub(crate) fn mariadb_with(what: &str, more: &[&str]) -> Option<Server> {
    let of_mariadb = program("mariadb-install-db").zip(program("mariadbd"));
    let Some((install, daemon)) =
        of_mariadb.or_else(|| program("mysqld").map(|mysqld| (mysqld.clone(), mysqld)))
    else {
        skip(what, &absent("MariaDB or MySQL"));
        return None;
    };
    let Some(dir) = directory() else {
        skip(what, "there is no temporary directory that an unprivileged user can use");
        return None;
    };
    let text = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
    let data = text(dir.path().join("data"));
    fs::create_dir(&data).expect("a directory");
    if is_root() {
        chown(&data, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("ours");
    }
    let is_mysql = install == daemon;
    let (making, redo): (&[&str], _) = if is_mysql {
        (
            &["--initialize-insecure", "--innodb-redo-log-capacity=16M"],
            "--innodb-redo-log-capacity=16M",
        )
    } else {
        (
            &["--auth-root-authentication-method=normal", "--skip-test-db"],
            "--innodb-log-file-size=8M",
        )
    };
    let made = run(
        "making the database",
        command(&install, dir.path())
            .arg("--no-defaults")
            .args(making)
            .args(if is_mysql { more } else { &[] })
            .args([
                format!("--datadir={data}"),
                format!("--tmpdir={}", text(dir.path().to_owned())),
            ]),
    );
    assert!(made, "a database can be made where the server is installed");
    let mut start = vec![
        text(daemon),
        "--no-defaults".to_owned(),
        format!("--datadir={data}"),
        format!("--tmpdir={}", text(dir.path().to_owned())),
        format!("--socket={}", text(dir.path().join("my.sock"))),
        format!("--pid-file={}", text(dir.path().join("my.pid"))),
        "--innodb-buffer-pool-size=16M".to_owned(),
        redo.to_owned(),
        "--performance-schema=ON".to_owned(),
        "--performance-schema-instrument=wait/%=ON".to_owned(),
        "--innodb-monitor-enable=trx_%".to_owned(),
    ];
    start.extend(more.iter().map(|argument| (*argument).to_owned()));
    if is_mysql {
        start.extend(["--mysqlx=OFF", "--secure-file-priv=", "--skip-log-bin"].map(str::to_owned));
    }
    Some(Server::launch(dir, start, |server| {
        let socket = server.path("my.sock");
        let options = mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root"));
        mysql::Conn::new(options).is_ok()
    }))
}

/// A Redis, or a Valkey.
pub(crate) fn redis(what: &str) -> Option<Server> {
    let Some(daemon) = program("redis-server").or_else(|| program("valkey-server")) else {
        skip(what, &absent("Redis"));
        return None;
    };
    let Some(dir) = directory() else {
        skip(what, "there is no temporary directory that an unprivileged user can use");
        return None;
    };
    let text = |path: PathBuf| path.to_str().expect("UTF-8").to_owned();
    let start = vec![
        text(daemon),
        "--port".to_owned(),
        "0".to_owned(),
        "--unixsocket".to_owned(),
        text(dir.path().join("r.sock")),
        "--dir".to_owned(),
        text(dir.path().to_owned()),
        "--save".to_owned(),
        String::new(),
        "--appendonly".to_owned(),
        "yes".to_owned(),
    ];
    Some(Server::launch(dir, start, |server| {
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(server.path("r.sock")) else {
            return false;
        };
        let mut answer = [0u8; 5];
        std::io::Write::write_all(&mut stream, b"PING\r\n").is_ok()
            && std::io::Read::read_exact(&mut stream, &mut answer).is_ok()
            && (&answer == b"+PONG" || &answer == b"-NOAU")
    }))
}
