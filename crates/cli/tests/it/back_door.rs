//! No way in by the back door: a PostgreSQL does not start on the files of an attached home,
//! whether the tier is young or holds newer blocks; one that somebody let in nevertheless is found
//! out.

use crate::daemon;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{
    Site as Place, can_mount, good, is_mounted, is_root, json, output, refused, text,
};
use tiersmith_lab::server::{self, Programs, Server, Site};

/// A PostgreSQL at a home, and the tools to start it somewhere else.
struct Cluster {
    place: Place,
    site: Site,
    programs: Programs,
    user: (u32, u32),
}

/// Nothing, with a line that says why, where there is no PostgreSQL or no mount.
fn cluster(what: &str) -> Option<Cluster> {
    let product = server::product("postgres").unwrap();
    let programs = match server::find(product) {
        Ok(programs) => programs,
        Err(e) => {
            eprintln!("skipped: {what}, because {e}");
            return None;
        }
    };
    if !can_mount(what) {
        return None;
    }
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir(&place.home).unwrap();
    let site = Site::new(&place.home, place.path().join("server.log"));
    server::create(product, &programs, &site).unwrap();
    let found = fs::metadata(&place.home).unwrap();
    Some(Cluster { place, site, programs, user: (found.uid(), found.gid()) })
}

impl Cluster {
    fn start(&self) -> Server {
        Server::start(server::product("postgres").unwrap(), &self.programs, &self.site).unwrap()
    }

    fn vault(&self) -> PathBuf {
        self.place.path().join("db.tiersmith-home")
    }

    fn files(&self) -> PathBuf {
        self.vault().join("home")
    }

    fn pg_ctl(&self, data: &Path, what: &[&str]) -> Output {
        let pg_ctl = self.programs.get("initdb").unwrap().with_file_name("pg_ctl");
        let mut command = Command::new(pg_ctl);
        // A file, not a pipe: a server that starts would hold the pipe open.
        let log = tempfile::NamedTempFile::new().unwrap();
        let said = || Stdio::from(log.reopen().unwrap());
        command.args(["-w", "-t", "60", "-D"]).arg(data).args(what);
        command.stdin(Stdio::null()).stdout(said()).stderr(said()).current_dir("/");
        if is_root() {
            command.uid(self.user.0).gid(self.user.1);
        }
        let mut ended = output(command.spawn().unwrap(), &["pg_ctl"]);
        ended.stdout = fs::read(log.path()).unwrap();
        ended
    }

    /// `pg_ctl start`, without a network and with its socket where its user may make one.
    fn start_at(&self, data: &Path) -> Output {
        self.pg_ctl(
            data,
            &["-o", "-c listen_addresses= -c unix_socket_directories=/tmp -p 54987", "start"],
        )
    }

    /// The server does not start, and says something that an administrator understands.
    fn assert_no_way_in(&self, when: &str) {
        for data in [self.files(), self.vault()] {
            let ended = self.start_at(&data);
            if ended.status.success() {
                let _ = self.pg_ctl(&data, &["-m", "immediate", "stop"]);
                panic!("PostgreSQL started on {} {when}", data.display());
            }
            assert!(text(&ended).contains("Permission denied"), "{when}: {}", text(&ended));
        }
    }

    /// What an administrator can do who insists: unlock the vault, and start and stop a server.
    fn break_in(&self) {
        fs::set_permissions(self.vault(), fs::Permissions::from_mode(0o755)).unwrap();
        let ended = self.start_at(&self.files());
        assert!(ended.status.success(), "{}", text(&ended));
        let ended = self.pg_ctl(&self.files(), &["-m", "fast", "stop"]);
        assert!(ended.status.success(), "{}", text(&ended));
    }

    fn assert_locked(&self) {
        let found = fs::metadata(self.vault()).unwrap();
        let locked = if is_root() { (0, 0o700) } else { (self.user.0, 0) };
        assert_eq!((found.uid(), found.mode() & 0o7777), locked);
    }
}

#[test]
fn a_postgresql_does_not_start_on_the_files_of_an_attached_home_be_the_tier_young_or_old() {
    let Some(cluster) = cluster("PostgreSQL at the back door") else { return };
    let place = &cluster.place;
    let mut attached = place.attach_sized("64M", &[]);
    cluster.assert_locked();
    cluster.assert_no_way_in("while the young tier is mounted");
    place.kill_daemon(&attached);
    cluster.assert_no_way_in("after the daemon of a young tier was killed");
    attached = place.attach_again();
    let server = cluster.start();
    server.client().unwrap().batch("CREATE TABLE t AS SELECT generate_series(1, 5000) n").unwrap();
    cluster.assert_no_way_in("while a server runs on the mount");
    server.kill();
    place.kill_daemon(&attached);
    cluster.assert_no_way_in("with newer blocks in the tier");
    attached = place.attach_again();
    let recovery = attached["recovery"].as_str().unwrap();
    assert!(!recovery.contains("without Tiersmith"), "{recovery}");
    good(&["unmount", place.home_str()]);
    cluster.assert_no_way_in("unmounted");
    cluster.assert_locked();
    let _ = place.attach_again();
    let server = cluster.start();
    assert_eq!(server.client().unwrap().number("SELECT count(*) FROM t").unwrap(), 5000);
    server.stop().unwrap();
    good(&["detach", place.home_str()]);
    assert_eq!(place.beside(), ["server.log"]);
    let server = cluster.start();
    assert_eq!(server.client().unwrap().number("SELECT count(*) FROM t").unwrap(), 5000);
    server.stop().unwrap();
}

#[test]
fn a_postgresql_that_was_let_in_is_found_out_by_the_next_attach() {
    let Some(cluster) = cluster("a PostgreSQL that was let in") else { return };
    let (place, home) = (&cluster.place, cluster.place.home_str());
    let _ = place.attach_sized("64M", &[]);
    good(&["unmount", home]);
    cluster.break_in();
    // Nothing was newer in the tier: no harm done, but it is said.
    let attached = place.attach_again();
    let recovery = attached["recovery"].as_str().unwrap();
    assert!(
        recovery.contains("global/pg_control") && recovery.contains("without Tiersmith"),
        "{recovery}"
    );
    cluster.assert_locked();
    let server = cluster.start();
    server.client().unwrap().batch("CREATE TABLE t AS SELECT generate_series(1, 5000) n").unwrap();
    server.stop().unwrap();
    good(&["flush", home]);
    let server = cluster.start();
    server.client().unwrap().batch("INSERT INTO t SELECT generate_series(1, 5000) n").unwrap();
    server.stop().unwrap();
    good(&["unmount", home]);
    fs::set_permissions(cluster.vault(), fs::Permissions::from_mode(0o755)).unwrap();
    // Whether it comes up on files of two times or panics is not ours to say.
    let _ = cluster.start_at(&cluster.files());
    let _ = cluster.pg_ctl(&cluster.files(), &["-m", "immediate", "stop"]);
    let members = fs::read_dir(&place.fast).unwrap().map(|entry| entry.unwrap().path());
    let member = members.into_iter().find(|path| path.is_file()).unwrap();
    let before = fs::read(&member).unwrap();
    let said = refused(&["attach", home]);
    assert!(said.contains("global/pg_control") && said.contains("without Tiersmith"), "{said}");
    assert!(said.contains("--force-without-tier"), "{said}");
    assert!(fs::read(&member).unwrap() == before, "the tier was changed");
    // What it advises works: what only the tier has is given up.
    for entry in fs::read_dir(&place.fast).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, place.path().join(path.file_name().unwrap())).unwrap();
    }
    good(&["detach", home, "--force-without-tier"]);
    assert!(place.home.join("PG_VERSION").exists() && !cluster.vault().exists());
}

/// Attach and detach by the database's own user, who is not root: the commands' whole way.
#[test]
fn the_databases_own_user_attaches_detaches_and_cannot_go_in_by_mistake() {
    let what = "a home that its own user attaches";
    if !can_mount(what) {
        return;
    }
    let fusermount = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists())
    });
    if is_root() && !fusermount {
        return eprintln!("skipped: {what}, because there is no fusermount3");
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        return eprintln!("skipped: {what}, because only root may open /dev/fuse here");
    }
    let site = Place::postgres_like();
    let user = if is_root() { 65534 } else { rustix::process::geteuid().as_raw() };
    let give = |path: &Path| {
        if is_root() {
            let given =
                Command::new("chown").arg("-R").arg(format!("{user}:{user}")).arg(path).status();
            assert!(given.unwrap().success());
        }
    };
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = site.path().join("tiersmith");
    fs::copy(env!("CARGO_BIN_EXE_tiersmith"), &program).unwrap();
    give(site.path());
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if is_root() {
            command.uid(user).gid(user);
        }
        output(command.spawn().unwrap(), arguments)
    };
    let ours = |arguments: &[&str]| {
        let ended = run(&program, arguments);
        assert!(ended.status.success(), "{arguments:?}: {}", text(&ended));
        ended
    };
    let (home, fast) = (site.home_str(), site.fast_str());
    let first = ["attach", home, "--fast", fast, "--emulate", "--size", "24M", "--json"];
    let attached = json(&ours(&first));
    let files = site.path().join("db.tiersmith-home/home/PG_VERSION");
    let no_way_in = |when: &str| {
        let ended = run(Path::new("/bin/cat"), &[files.to_str().unwrap()]);
        assert!(text(&ended).contains("Permission denied"), "{when}: {}", text(&ended));
        let found = fs::metadata(files.parent().unwrap().parent().unwrap()).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777), (user, 0), "{when}");
    };
    no_way_in("mounted");
    ours(&["status", home]);
    let pid = attached["pid"].as_u64().unwrap();
    daemon::kill("KILL", pid);
    daemon::wait_until("the killed daemon is gone", || !daemon::is_alive(pid));
    no_way_in("after the daemon was killed");
    // Commands that look into it leave it locked.
    let _ = run(&program, &["status", home]);
    let _ = run(&program, &["check", home]);
    no_way_in("looked at");
    ours(&["attach", home]);
    no_way_in("attached again");
    let began = Instant::now();
    while !run(&program, &["detach", home]).status.success() {
        assert!(began.elapsed() < daemon::LIMIT, "{}", text(&run(&program, &["detach", home])));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!is_mounted(&site.home));
    assert_eq!(fs::read(site.home.join("PG_VERSION")).unwrap(), b"15\n");
    fs::remove_file(&program).unwrap();
    site.assert_plain();
}

#[test]
fn attach_killed_at_any_time_leaves_the_files_at_home_or_behind_the_lock() {
    if !can_mount("an attach that is killed") {
        return;
    }
    let site = Place::postgres_like();
    let vault = site.path().join("db.tiersmith-home");
    let arguments = [
        "attach",
        site.home_str(),
        "--fast",
        site.fast_str(),
        "--emulate",
        "--size",
        "24M",
        "--foreground",
    ];
    let mut seen = [0; 2];
    for round in 0..16 {
        let mut attach = daemon::command(&arguments).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 6));
        attach.kill().unwrap();
        attach.wait().unwrap();
        let is_home = site.home.join("PG_VERSION").exists() && !is_mounted(&site.home);
        let is_aside = fs::symlink_metadata(vault.join("home/PG_VERSION")).map_or_else(
            |e| e.kind() == std::io::ErrorKind::PermissionDenied,
            |_| fs::metadata(&vault).unwrap().mode() & 0o077 == 0,
        );
        assert!(is_home != is_aside, "round {round}: at home {is_home}, aside {is_aside}");
        seen[usize::from(is_aside)] += 1;
        if round % 2 == 0 && is_aside {
            let _ = good(&["attach", site.home_str()]);
        }
        good(&["detach", site.home_str()]);
        assert_eq!(fs::read(site.home.join("PG_VERSION")).unwrap(), b"15\n");
        assert!(!vault.exists(), "round {round}: a vault was left");
        // An attach that was killed before it wrote a note may leave its tier's file: it is taken
        // again.
        for entry in fs::read_dir(&site.fast).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    eprintln!("killed while the files were at home: {}, behind the lock: {}", seen[0], seen[1]);
}
