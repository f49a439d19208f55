//! Servers of the lab: each starts in a private directory, does work, is stopped and killed, and
//! leaves nothing.
//!
//! Deliberately absent: studies (`database_studies.rs`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tiersmith_lab::server::client::Rows;
use tiersmith_lab::server::{self, Product, Programs, Range, Server, Site};

/// For what hangs, not for what is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// The programs of a product, or nothing and a line that says why not.
fn installed(name: &str) -> Option<(&'static dyn Product, Programs)> {
    let product = server::product(name).unwrap();
    match server::find(product).and_then(|programs| server::account(product).map(|_| programs)) {
        Ok(programs) => Some((product, programs)),
        Err(e) => {
            eprintln!("skipped: {name}, because {e}");
            None
        }
    }
}

struct Ground {
    dir: tempfile::TempDir,
}

impl Ground {
    fn new(product: &dyn Product) -> Ground {
        let dir = tempfile::tempdir().unwrap();
        server::make_reachable(dir.path(), product).unwrap();
        Ground { dir }
    }

    fn site(&self, product: &dyn Product) -> Site {
        let mut site = Site::new(self.dir.path().join("data"), self.dir.path().join("log"));
        site.settings = product.cache_settings(16 << 20);
        if product.name() == "postgres" {
            // A server that is killed leaves none of it in /dev/shm: it goes with the directory.
            site.settings.push(("dynamic_shared_memory_type".into(), "mmap".into()));
        }
        site
    }
}

fn gone(path: &Path) {
    assert!(!path.exists(), "{} is left", path.display());
}

/// Every process of a tree ends, sooner or later.
fn wait_until_gone(tree: &[tiersmith_lab::process::Identity]) {
    let began = Instant::now();
    while tree.iter().any(|process| process.runs()) {
        assert!(began.elapsed() < PATIENCE, "{tree:?} still run");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a study does with its server when it is interrupted, or ends with an error.
#[test]
fn a_postgres_that_is_dropped_leaves_no_shared_memory() {
    let Some((product, programs)) = installed("postgres") else { return };
    let ground = Ground::new(product);
    let site = ground.site(product);
    server::create(product, &programs, &site).unwrap();
    let server = Server::start(product, &programs, &site).unwrap();
    // Its line 7 is key and number of the System V segment. Those in /dev/shm, which this server
    // has none of, go in the same breath.
    let pid_file = std::fs::read_to_string(ground.dir.path().join("data/postmaster.pid")).unwrap();
    let number =
        pid_file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)).unwrap().to_owned();
    let is_there = || {
        let all = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        all.lines().any(|line| line.split_whitespace().nth(1) == Some(&number))
    };
    assert!(is_there());
    drop(server);
    assert!(!is_there(), "the segment {number} is left");
}

/// Loads, changes rows and commits, kills the server, starts it again: what was committed is there.
fn works_and_survives_a_kill(name: &str) {
    let Some((product, programs)) = installed(name) else { return };
    let ground = Ground::new(product);
    let site = ground.site(product);
    server::create(product, &programs, &site).unwrap();
    let server = Server::start(product, &programs, &site).unwrap();
    assert!(server.socket().as_os_str().len() < 100);
    let mut client = server.client().unwrap();
    let width = (product.page_bytes() / 64) as usize;
    client.load(&Rows { schema: 0, rows: 200, scan_rows: 5, width, seed: 1 }).unwrap();
    assert_eq!(client.count(0, 200).unwrap(), 200);
    let range = |after, before| Range { schema: 0, after, before };
    assert_eq!(client.select(range(10, 21)).unwrap(), 10);
    assert_eq!(client.scan(0).unwrap(), 5);
    let value = "u".repeat(width);
    for heavy in [true, false] {
        assert_eq!(client.update(range(100, 104), &value, heavy).unwrap(), Ok(3));
        client.commit().unwrap();
    }
    let mut snapshot = tiersmith_awr::Snapshot::now(tiersmith_awr::Source::default());
    product.figures(client.as_mut(), &mut snapshot).unwrap();
    snapshot.check().unwrap();
    assert!(
        snapshot.counters.iter().any(|c| c.name == "redo size" && c.value > 0),
        "{:?}",
        snapshot.counters
    );

    let (sockets, tree) = (server.socket_dir().to_path_buf(), server.identity().tree());
    assert!(tree.iter().all(|process| process.runs()));
    server.kill();
    assert!(tree.iter().all(|process| !process.runs()), "{tree:?}");
    gone(&sockets);
    assert!(client.ping().is_err());

    let server = Server::start(product, &programs, &site).unwrap();
    let mut client = server.client().unwrap();
    assert_eq!(client.count(0, 200).unwrap(), 200);
    let changed = match name {
        "redis" => client.ask("GET user1:cf1:000000000101").unwrap(),
        _ => client.ask("SELECT c20 FROM user1.cf1 WHERE custid = 101").unwrap(),
    };
    assert!(changed.starts_with("uuu"), "{changed}");
    drop(client);
    let sockets = server.socket_dir().to_path_buf();
    server.stop().unwrap();
    gone(&sockets);
}

#[test]
fn a_new_mariadb_leaves_the_temporary_tables_of_others_alone() {
    let Some((product, programs)) = installed("mariadb") else { return };
    let ground = Ground::new(product);
    // As a MariaDB calls one, which removes it when it starts with this directory for its own.
    let name = format!("#sql-temptable-{:x}-1-1.MAI", std::process::id());
    let others = std::env::temp_dir().join(name);
    std::fs::write(&others, "").unwrap();
    if let Some(account) = server::account(product).unwrap() {
        std::os::unix::fs::chown(&others, Some(account.uid), Some(account.gid)).unwrap();
    }
    server::create(product, &programs, &ground.site(product)).unwrap();
    let is_there = others.exists();
    let _ = std::fs::remove_file(&others);
    assert!(is_there, "a table of another server was removed");
}

#[test]
fn postgres_works_and_survives_a_kill() {
    works_and_survives_a_kill("postgres");
}

#[test]
fn mariadb_works_and_survives_a_kill() {
    works_and_survives_a_kill("mariadb");
}

#[test]
fn redis_works_and_survives_a_kill() {
    works_and_survives_a_kill("redis");
}

#[test]
fn a_server_that_cannot_start_shows_the_end_of_its_log() {
    let Some((product, programs)) = installed("redis") else { return };
    let ground = Ground::new(product);
    let mut site = ground.site(product);
    server::create(product, &programs, &site).unwrap();
    site.settings.push(("no-such-setting".into(), "1".into()));
    let error = Server::start(product, &programs, &site).unwrap_err().to_string();
    assert!(error.contains("it ended with") && error.contains("no-such-setting"), "{error}");
}

#[test]
fn a_data_directory_that_is_there_is_not_touched() {
    let Some((product, programs)) = installed("redis") else { return };
    let ground = Ground::new(product);
    let site = ground.site(product);
    std::fs::create_dir(&site.data).unwrap();
    std::fs::write(site.data.join("mine"), "mine").unwrap();
    let error = server::create(product, &programs, &site).unwrap_err().to_string();
    assert!(error.contains("make the data directory"), "{error}");
    assert_eq!(std::fs::read(site.data.join("mine")).unwrap(), b"mine");
}

#[test]
fn a_server_ends_with_the_thread_that_started_it() {
    let Some((product, programs)) = installed("redis") else { return };
    let ground = Ground::new(product);
    let site = ground.site(product);
    server::create(product, &programs, &site).unwrap();
    let (tree, sockets): (Vec<_>, PathBuf) = std::thread::spawn(move || {
        let server = Server::start(product, &programs, &site).unwrap();
        let found = (server.identity().tree(), server.socket_dir().to_path_buf());
        // As if the process were killed: nothing of it runs its Drop.
        std::mem::forget(server);
        found
    })
    .join()
    .unwrap();
    wait_until_gone(&tree);
    std::fs::remove_dir_all(sockets).unwrap();
}

#[test]
fn products_are_found_by_name_and_others_refused_with_those_there_are() {
    for product in server::products() {
        assert_eq!(server::product(product.name()).unwrap().title(), product.title());
    }
    let error = server::product("oracle").unwrap_err().to_string();
    assert!(error.contains("postgres, mariadb, redis"), "{error}");
}
