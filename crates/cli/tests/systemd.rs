//! The units of `packaging/systemd` under a systemd: the daemon of a mounted home is killed, and
//! the database is stopped, the home mounted again, and the database started; stopped, they end in
//! order.
//!
//! What runs is systemd's manager for users, as root, in a mount namespace of its own: it needs no
//! boot, and starts nothing but the units given to it. Its rules for dependencies, stopping and
//! restarting are the system manager's. Deliberately absent: a manager of the system. One that
//! boots in a namespace empties `/tmp`, sets kernel parameters and more, for the whole machine.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod daemon;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use daemon::{Site as Place, can_mount, good, is_alive, is_root, kill, output, text, wait_until};
use tiersmith_lab::server::{self, Site};

const DATABASE: &str = "postgresql@15-main.service";

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
}

impl Manager {
    /// The manager for the units in `units`; the error says why there is none here.
    fn start(dir: &Path, units: &Path) -> Result<Manager, String> {
        let systemd = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"];
        let systemd =
            systemd.into_iter().find(|path| Path::new(path).exists()).ok_or("there is no systemd")?;
        let runtime = dir.join("runtime");
        fs::create_dir(&runtime).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        // It runs for users only where a manager of the system seems to.
        let script = "[ -d /run/systemd/system ] || \
             { mount -t tmpfs -o mode=755 none /run && mkdir -p /run/systemd/system; } && \
             exec \"$0\" --user --unit=none.target";
        let process = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, systemd])
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
        let mut manager = Manager { process, runtime, units: Vec::new() };
        let said = || fs::read_to_string(dir.join("manager.log")).unwrap_or_default().trim().to_owned();
        wait_until("systemd runs or has ended", || {
            manager.runtime.join("systemd/private").exists() || manager.process.try_wait().unwrap().is_some()
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
        // Its control groups are empty; one that is not is another manager's, and stays.
        for entry in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            for group in ["app.slice", "init.scope"] {
                remove_empty(&entry.path().join(group));
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

/// As Debian has it, with the programs and paths of the test.
fn database_unit(site: &Place, bin: &Path, user: u32, pid_file: &Path) -> String {
    format!(
        "[Unit]\nRequiresMountsFor={home}\n\n[Service]\nType=forking\nUser={user}\n\
         ExecStart=-{bin}/pg_ctl -D {home} -l {log} -w start\nTimeoutStartSec=0\n\
         ExecStop={bin}/pg_ctl -D {home} -m fast -w stop\nTimeoutStopSec=1h\nPIDFile={pid}\n",
        home = site.home_str(),
        bin = bin.display(),
        log = site.path().join("server.log").display(),
        pid = pid_file.display(),
    )
}

#[test]
fn under_systemd_a_killed_daemon_and_its_database_come_back_by_themselves_and_stop_in_order() {
    let what = "the units under a systemd";
    let product = server::product("postgres").unwrap();
    let programs = match server::find(product) {
        Ok(programs) => programs,
        Err(e) => return eprintln!("skipped: {what}, because {e}"),
    };
    if !is_root() {
        return eprintln!("skipped: {what}, because this is not root");
    }
    if !can_mount(what) {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir(&place.home).unwrap();
    server::create(product, &programs, &Site::new(&place.home, place.path().join("create.log"))).unwrap();
    let owner = fs::metadata(&place.home).unwrap();
    let sockets = place.path().join("s");
    fs::create_dir(&sockets).unwrap();
    fs::write(place.path().join("server.log"), "").unwrap();
    for path in [&sockets, &place.path().join("server.log")] {
        chown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    let pid_file = sockets.join("pid");
    let settings = format!(
        "listen_addresses = ''\nunix_socket_directories = '{}'\nexternal_pid_file = '{}'\n",
        sockets.display(),
        pid_file.display()
    );
    fs::write(place.home.join("postgresql.auto.conf"), settings).unwrap();
    chown(place.home.join("postgresql.auto.conf"), Some(owner.uid()), Some(owner.gid())).unwrap();

    // The home's path as systemd writes it: slashes become dashes; the test's own has nothing else
    // to be escaped.
    let instance = place.home_str().trim_start_matches('/').replace('/', "-");
    let service = format!("tiersmith@{instance}.service");
    let units = place.path().join("units");
    let bin = programs.get("initdb").unwrap().parent().unwrap();
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
    write(&format!("{service}.d/database.conf"), &shipped("database.conf", &[]));
    write(DATABASE, &database_unit(&place, bin, owner.uid(), &pid_file));
    let bound = [("tiersmith@var-lib-postgresql-%i.service", &service[..])];
    write(&format!("{DATABASE}.d/tiersmith.conf"), &shipped("postgresql.conf", &bound));

    let _ = place.attach_sized("64M", &[]);
    good(&["unmount", place.home_str()]);
    let mut manager = match Manager::start(place.path(), &units) {
        Ok(manager) => manager,
        Err(e) => return eprintln!("skipped: {what}, because {e}"),
    };
    let user = format!("{}", owner.uid());
    let psql = bin.join("psql");
    let sql = |statement: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &user, "--clear-groups"])
            .arg(&psql)
            .args(["-X", "-A", "-t", "-U", server_user(), "-d", "postgres", "-c", statement, "-h"])
            .arg(&sockets)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let ask = |statement: &str| {
        let ended = output(sql(statement).spawn().unwrap(), &["psql"]);
        ended.status.success().then(|| String::from_utf8_lossy(&ended.stdout).trim().to_owned())
    };

    manager.order("start", &service);
    wait_until("the database is started with the mount", || ask("SELECT 1").as_deref() == Some("1"));
    ask("CREATE TABLE t AS SELECT generate_series(1, 1000) n").unwrap();
    let mut client = sql("SELECT pg_sleep(600)").spawn().unwrap();
    for round in 1..=2 {
        let before = (manager.main_pid(&service), manager.main_pid(DATABASE));
        assert!(before.0 > 1 && before.1 > 1);
        kill("KILL", before.0);
        wait_until("the old postmaster is gone", || !is_alive(before.1));
        let rows = format!("{}", round * 1000);
        wait_until("the database is back", || ask("SELECT count(*) FROM t").as_ref() == Some(&rows));
        let after = (manager.main_pid(&service), manager.main_pid(DATABASE));
        assert!(after.0 != before.0 && after.1 != before.1, "{before:?} {after:?}");
        ask("INSERT INTO t SELECT generate_series(1, 1000) n").unwrap();
    }
    let _ = client.kill();
    let _ = client.wait();

    // In order: the database first, with its checkpoint, then the mount.
    let database = manager.main_pid(DATABASE);
    manager.order("stop", &service);
    assert!(!is_alive(database));
    let states = [manager.show(DATABASE, "ActiveState"), manager.show(&service, "ActiveState")];
    assert_eq!(states, ["inactive", "inactive"]);
    let log = fs::read_to_string(place.path().join("server.log")).unwrap();
    assert!(log.trim_end().ends_with("database system is shut down"), "{log}");
    let mounts = manager.inside("cat", &["/proc/mounts"]);
    assert!(!text(&mounts).contains(place.home_str()), "{}", text(&mounts));
    drop(manager);
    good(&["detach", place.home_str()]);
    let server =
        server::Server::start(product, &programs, &Site::new(&place.home, place.path().join("plain.log")));
    let server = server.unwrap();
    assert_eq!(server.client().unwrap().number("SELECT count(*) FROM t").unwrap(), 3000);
    server.stop().unwrap();
}

/// Whom the cluster was made for.
fn server_user() -> &'static str {
    "postgres"
}
