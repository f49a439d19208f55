//! The units of `packaging/systemd` under a systemd: the daemon of a mounted home is killed, and
//! the database is stopped, the home mounted again, and the database started; stopped, they end in
//! order.
//!
//! What runs is systemd's manager for users, as root, in a mount namespace of its own: it needs no
//! boot, and starts nothing but the units given to it. Its rules for dependencies, stopping and
//! restarting are the system manager's. Deliberately absent: a manager of the system. One that
//! boots in a namespace empties `/tmp`, sets kernel parameters and more, for the whole machine.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::daemon::{
    Site as Place, can_mount, good, is_alive, is_root, kill, output, text, wait_until,
};
use tiersmith_lab::server::{self, Product, Programs, Server, Site};

/// A shipped file with other words for some of its own, each of which must be in it.
fn shipped(name: &str, others: &[(&str, &str)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd").join(name);
    let mut text = fs::read_to_string(path).unwrap();
    for (word, other) in others {
        assert!(text.contains(word), "{name} has no {word}");
        text = text.replace(word, other);
    }
    text
}

/// A running manager; it and what it started end with the value.
struct Manager {
    process: Child,
    runtime: PathBuf,
    units: Vec<String>,
    /// Its control groups.
    groups: Vec<PathBuf>,
}

/// New control groups for one manager, in the hierarchies by which it knows its own place: version
/// 2's below the group of this process, and version 1's named one. `None` where none can be made.
fn own_groups() -> Option<Vec<PathBuf>> {
    let name = format!("tiersmith-test-{}", std::process::id());
    let base = Path::new("/sys/fs/cgroup");
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = |mark: &str, at: PathBuf| {
        let path = own.lines().find_map(|line| line.split_once(mark))?.1;
        at.join("cgroup.procs").exists().then(|| at.join(path).join(&name))
    };
    let whole = group("0::/", base.to_path_buf());
    let parts =
        || [group("name=systemd:/", base.join("systemd")), group("0::/", base.join("unified"))];
    let groups: Vec<PathBuf> = match whole {
        Some(group) => vec![group],
        None => parts().into_iter().flatten().collect(),
    };
    let made = groups.iter().all(|group| fs::create_dir(group).is_ok());
    if !made || groups.is_empty() {
        groups.iter().for_each(|group| remove_empty(group));
        return None;
    }
    Some(groups)
}

impl Manager {
    /// The manager for the units in `units`; the error says why there is none here.
    fn start(dir: &Path, units: &Path) -> Result<Manager, String> {
        let systemd = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];
        let systemd = systemd
            .into_iter()
            .find(|path| Path::new(path).exists())
            .ok_or("there is no systemd")?;
        let runtime = dir.join("runtime");
        fs::create_dir(&runtime).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        // It moves all that is in its control group, so it gets one of its own; and it runs for
        // users only where a manager of the system seems to.
        let own = own_groups().ok_or("there is no control group to put it in")?;
        let script = "for group; do echo $$ >\"$group/cgroup.procs\" || exit 1; done; \
             [ -d /run/systemd/system ] || \
             { mount -t tmpfs -o mode=755 none /run && mkdir -p /run/systemd/system; } && \
             exec \"$0\" --user --unit=none.target";
        let process = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, systemd])
            .args(&own)
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("SYSTEMD_UNIT_PATH", units)
            .env("HOME", &runtime)
            .env("SYSTEMD_LOG_TARGET", "console")
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("manager.log")).unwrap())
            .spawn()
            .map_err(|e| format!("unshare cannot be run ({e})"))?;
        let mut manager = Manager { process, runtime, units: Vec::new(), groups: own };
        let said =
            || fs::read_to_string(dir.join("manager.log")).unwrap_or_default().trim().to_owned();
        wait_until("systemd runs or has ended", || {
            manager.runtime.join("systemd/private").exists()
                || manager.process.try_wait().unwrap().is_some()
        });
        match manager.process.try_wait().unwrap() {
            Some(status) => Err(format!("systemd ends with {status}: {}", said())),
            None => Ok(manager),
        }
    }

    /// A command among the manager's mounts.
    fn inside(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command
            .args(["--mount", "-t", &self.process.id().to_string(), "--", program])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        output(command.spawn().unwrap(), &[program])
    }

    fn systemctl(&self, arguments: &[&str]) -> Output {
        self.inside("systemctl", &[&["--user"], arguments].concat())
    }

    fn show(&self, unit: &str, property: &str) -> String {
        let shown = self.systemctl(&["show", "--value", "-p", property, unit]);
        assert!(shown.status.success(), "{}", text(&shown));
        String::from_utf8_lossy(&shown.stdout).trim().to_owned()
    }

    fn main_pid(&self, unit: &str) -> u64 {
        self.show(unit, "MainPID").parse().unwrap()
    }

    fn order(&mut self, verb: &str, unit: &str) {
        if !self.units.iter().any(|known| known == unit) {
            self.units.insert(0, unit.to_owned());
        }
        let ended = self.systemctl(&[verb, unit]);
        assert!(ended.status.success(), "systemctl {verb} {unit}: {}", text(&ended));
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for unit in self.units.clone() {
            let _ = self.systemctl(&["stop", &unit]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        for group in &self.groups {
            remove_empty(group);
            // The manager has made one of the same place for each controller of version 1.
            let Ok(place) = group.strip_prefix("/sys/fs/cgroup/systemd") else { continue };
            for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
                remove_empty(&entry.path().join(place));
            }
        }
    }
}

/// Removes a control group and those in it, unless one has a process.
fn remove_empty(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

/// A home that the manager serves, once it is told to.
struct Bench {
    manager: Manager,
    place: Place,
    product: &'static dyn Product,
    programs: Programs,
    /// Of the mount.
    service: String,
    /// Of the database.
    database: &'static str,
    /// Whom the database's files belong to.
    user: u32,
    /// A directory of that user, for sockets.
    sockets: PathBuf,
}

/// A place with a directory that a server has been made in, and the units for it; `unit` writes the
/// database's own. Nothing, with a line that says why, where this cannot be.
fn bench(
    product: &str,
    database: &'static str,
    shipped_for_it: (&str, &str),
    unit: fn(&Place, &Programs, &Path, u32) -> String,
) -> Option<Bench> {
    let what = format!("{product} under a systemd");
    let product = server::product(product).unwrap();
    let skipped = |why: &str| {
        eprintln!("skipped: {what}, because {why}");
        None
    };
    let programs = match server::find(product) {
        Ok(programs) => programs,
        Err(e) => return skipped(&e.to_string()),
    };
    if !is_root() {
        return skipped("this is not root");
    }
    if !can_mount(&what) {
        return None;
    }
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir(&place.home).unwrap();
    let site = Site::new(&place.home, place.path().join("create.log"));
    server::create(product, &programs, &site).unwrap();
    let owner = fs::metadata(&place.home).unwrap();
    let (sockets, log) = (place.path().join("s"), place.path().join("server.log"));
    fs::create_dir(&sockets).unwrap();
    fs::write(&log, "").unwrap();
    for path in [&sockets, &log] {
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    // The home's path as systemd writes it: slashes become dashes; the test's own has nothing else
    // to be escaped.
    let instance = place.home_str().trim_start_matches('/').replace('/', "-");
    let service = format!("tiersmith@{instance}.service");
    let units = place.path().join("units");
    let write = |name: &str, text: &str| {
        let path = units.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for target in ["none", "basic", "shutdown"] {
        write(&format!("{target}.target"), "[Unit]\nDefaultDependencies=no\n");
    }
    let program = [("/usr/bin/tiersmith", env!("CARGO_BIN_EXE_tiersmith"))];
    write("tiersmith@.service", &shipped("tiersmith@.service", &program));
    let upheld = [("postgresql@15-main.service", database)];
    write(&format!("{service}.d/database.conf"), &shipped("database.conf", &upheld));
    write(database, &unit(&place, &programs, &sockets, owner.uid()));
    let (file, example) = shipped_for_it;
    let mut bound = vec![(example, &service[..])];
    if file == "server.conf" {
        bound.push(("/var/lib/mysql", place.home_str()));
    }
    write(&format!("{database}.d/tiersmith.conf"), &shipped(file, &bound));

    let user = owner.uid();
    match Manager::start(place.path(), &units) {
        Err(e) => skipped(&e),
        Ok(manager) => {
            Some(Bench { manager, place, product, programs, service, database, user, sockets })
        }
    }
}

impl Bench {
    /// Attached by hand once, and then started as a service.
    fn start(&mut self) {
        let profile = ["--profile", self.product.name()];
        let _ = self.place.attach_sized("64M", &profile);
        good(&["unmount", self.place.home_str()]);
        let service = self.service.clone();
        self.manager.order("start", &service);
    }

    /// A client program as the database's user.
    fn client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &self.user.to_string(), "--clear-groups", program])
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Kills the daemon; systemd must do all the rest. `is_back`: whether the database answers, and
    /// has what it had.
    fn kill_daemon(&self, is_back: impl Fn() -> bool) {
        let pids = || (self.manager.main_pid(&self.service), self.manager.main_pid(self.database));
        // The database answers before the program that starts it has ended, and named it to
        // systemd.
        wait_until("systemd knows both", || pids().0 > 1 && pids().1 > 1);
        let before = pids();
        kill("KILL", before.0);
        wait_until("the old server is gone", || !is_alive(before.1));
        wait_until("the database is back", is_back);
        let after = pids();
        assert!(after.0 != before.0 && after.1 != before.1, "{before:?} {after:?}");
    }

    /// Stops both, the database first; then a plain home is left.
    fn stop(&mut self) {
        // A unit that is stopped while the program that starts it still waits is killed: it never
        // was up.
        wait_until("the database is up for systemd", || {
            self.manager.show(self.database, "ActiveState") == "active"
        });
        let database = self.manager.main_pid(self.database);
        let service = self.service.clone();
        self.manager.order("stop", &service);
        assert!(!is_alive(database));
        let states = [self.database, &service].map(|unit| self.manager.show(unit, "ActiveState"));
        assert_eq!(states, ["inactive", "inactive"]);
        let mounts = self.manager.inside("cat", &["/proc/mounts"]);
        assert!(!text(&mounts).contains(self.place.home_str()), "{}", text(&mounts));
        good(&["detach", self.place.home_str()]);
    }

    /// The server on the plain home.
    fn plain(&self) -> Server {
        let site = Site::new(&self.place.home, self.place.path().join("plain.log"));
        Server::start(self.product, &self.programs, &site).unwrap()
    }
}

/// As Debian has it, with the programs and paths of the test.
fn postgres_unit(place: &Place, programs: &Programs, sockets: &Path, user: u32) -> String {
    let pid_file = sockets.join("pid");
    let settings = format!(
        "listen_addresses = ''\nunix_socket_directories = '{}'\nexternal_pid_file = '{}'\n",
        sockets.display(),
        pid_file.display()
    );
    let file = place.home.join("postgresql.auto.conf");
    fs::write(&file, settings).unwrap();
    chown(&file, Some(user), None).unwrap();
    format!(
        "[Unit]\nRequiresMountsFor={home}\n\n[Service]\nType=forking\nUser={user}\n\
         ExecStart=-{bin}/pg_ctl -D {home} -l {log} -w start\nTimeoutStartSec=0\n\
         ExecStop={bin}/pg_ctl -D {home} -m fast -w stop\nTimeoutStopSec=1h\nPIDFile={pid}\n",
        home = place.home_str(),
        bin = programs.get("initdb").unwrap().parent().unwrap().display(),
        log = place.path().join("server.log").display(),
        pid = pid_file.display(),
    )
}

#[test]
fn under_systemd_a_killed_daemon_and_its_postgresql_come_back_by_themselves_and_stop_in_order() {
    let drop_in = ("postgresql.conf", "tiersmith@var-lib-postgresql-%i.service");
    let Some(mut bench) = bench("postgres", "postgresql@15-main.service", drop_in, postgres_unit)
    else {
        return;
    };
    bench.start();
    let psql = bench.programs.get("initdb").unwrap().with_file_name("psql");
    let sockets = bench.sockets.display().to_string();
    let sql = |bench: &Bench, statement: &str| {
        let usual = ["-X", "-A", "-t", "-U", "postgres", "-d", "postgres", "-h", &sockets, "-c"];
        bench.client(psql.to_str().unwrap(), &[&usual[..], &[statement]].concat())
    };
    let ask = |bench: &Bench, statement: &str| {
        let ended = output(sql(bench, statement).spawn().unwrap(), &["psql"]);
        ended.status.success().then(|| String::from_utf8_lossy(&ended.stdout).trim().to_owned())
    };
    wait_until("the database is started with the mount", || ask(&bench, "SELECT 1").is_some());
    ask(&bench, "CREATE TABLE t AS SELECT generate_series(1, 1000) n").unwrap();
    // A postmaster waits for its clients when it is asked to end in peace.
    let mut client = sql(&bench, "SELECT pg_sleep(600)").spawn().unwrap();
    for round in 1..=2 {
        let rows = format!("{}", round * 1000);
        bench.kill_daemon(|| ask(&bench, "SELECT count(*) FROM t").as_ref() == Some(&rows));
        // A database that has just come back may be restarted once more, with the mount's own job.
        let add = format!(
            "INSERT INTO t SELECT generate_series(1, 1000) n WHERE (SELECT count(*) FROM t) = \
             {rows}"
        );
        wait_until("the database takes more", || ask(&bench, &add).is_some());
    }
    let _ = client.kill();
    let _ = client.wait();
    bench.stop();
    let log = fs::read_to_string(bench.place.path().join("server.log")).unwrap();
    assert!(log.trim_end().ends_with("database system is shut down"), "{log}");
    let server = bench.plain();
    assert_eq!(server.client().unwrap().number("SELECT count(*) FROM t").unwrap(), 3000);
    server.stop().unwrap();
}

/// As Debian has it, without its sandbox, and without its readiness: only root may send that to a
/// manager for users.
fn redis_unit(place: &Place, programs: &Programs, sockets: &Path, user: u32) -> String {
    format!(
        "[Service]\nType=exec\nUser={user}\nTimeoutStopSec=0\nRestart=always\n\
         ExecStart={program} --daemonize no --port 0 --unixsocket {socket} \
         --dir {home} --appendonly yes --appendfsync always --save 3600 1 --logfile {log}\n",
        program = programs.get("redis-server").unwrap().display(),
        socket = sockets.join("r").display(),
        home = place.home_str(),
        log = place.path().join("server.log").display(),
    )
}

#[test]
fn under_systemd_a_killed_daemon_and_its_redis_come_back_by_themselves_and_stop_in_order() {
    let drop_in = ("server.conf", "tiersmith@var-lib-mysql.service");
    let Some(mut bench) = bench("redis", "redis-server.service", drop_in, redis_unit) else {
        return;
    };
    let Some(cli) = bench.programs.get("redis-cli").map(Path::to_path_buf) else {
        return eprintln!("skipped: redis under a systemd, because there is no redis-cli");
    };
    bench.start();
    let socket = bench.sockets.join("r").display().to_string();
    let ask = |bench: &Bench, words: &[&str]| {
        let mut client =
            bench.client(cli.to_str().unwrap(), &[&["-s", &socket][..], words].concat());
        let ended = output(client.spawn().unwrap(), &["redis-cli"]);
        String::from_utf8_lossy(&ended.stdout).trim().to_owned()
    };
    wait_until("the database is started with the mount", || ask(&bench, &["PING"]) == "PONG");
    for round in 1..=2 {
        let value = round.to_string();
        wait_until("it takes a value", || ask(&bench, &["SET", "key", &value]) == "OK");
        bench.kill_daemon(|| ask(&bench, &["GET", "key"]) == value);
    }
    bench.stop();
    let log = fs::read_to_string(bench.place.path().join("server.log")).unwrap();
    assert!(log.trim_end().ends_with("bye bye..."), "{log}");
    let server = bench.plain();
    assert_eq!(server.client().unwrap().ask("GET key").unwrap().trim(), "2");
    server.stop().unwrap();
}
