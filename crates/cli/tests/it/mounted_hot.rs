//! Hot files of a mounted home, by path and by the names that real servers give them; what `hot`
//! says is worth a pin, and pins and moves at somebody's pace that are ended, killed and taken up.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Child;

use crate::daemon::{
    Site, blocks, can_mount, command, good, json, output, refused, text, tiersmith, wait_until,
};
use crate::database;
use serde_json::Value;
use tiersmith_lab::server::{self, Server, Site as Place};

const FILE: &str = "base/1/1259";

/// What `hot` says, and with which exit code.
fn hot(site: &Site, more: &[&str]) -> (i32, Value) {
    let arguments = [&["hot", site.home_str(), "--json", "--top", "1000"], more].concat();
    let told = tiersmith(&arguments);
    (told.status.code().unwrap(), json(&told))
}

/// The same when a file is in the list, which is read until it is: two looks are a second apart.
fn hot_of(site: &Site, path: &str, more: &[&str]) -> (i32, Value) {
    let mut said = (0, Value::Null);
    wait_until("the file is listed by its path", || {
        read(&site.home.join(path));
        said = hot(site, more);
        object(&said.1, path).is_some()
    });
    said
}

fn object<'a>(hot: &'a Value, name: &str) -> Option<&'a Value> {
    hot["objects"].as_array().unwrap().iter().find(|object| object["name"] == name)
}

fn number(of: &Value, what: &str) -> f64 {
    of[what].as_f64().unwrap()
}

/// Reads a file block by block, as a database does.
fn read(path: &Path) {
    let file = fs::File::open(path).unwrap();
    let mut block = [0; 8192];
    for n in 0..file.metadata().unwrap().len() / 8192 {
        file.read_exact_at(&mut block, n * 8192).unwrap();
    }
}

#[test]
fn hot_advises_the_pin_that_saves_waiting_and_nothing_once_that_is_done() {
    if !can_mount("hot files") {
        return;
    }
    let site = Site::postgres_like();
    // A home that takes long, and a file that is never copied: each read of it waits.
    let rule = format!("none={FILE}");
    let _ = site.attach(&["--cache", &rule, "--home-model", "cloud-network-volume"]);
    let (code, before) = hot(&site, &[]);
    assert_eq!((code, before["advice"]["pins"].as_array().unwrap().len()), (0, 0), "{before}");
    assert!(before["advice"]["why"].to_string().contains("no block was read"), "{before}");
    let mut said = Value::Null;
    wait_until("a pin is advised", || {
        read(&site.home.join(FILE));
        said = hot(&site, &[]).1;
        !said["advice"]["pins"].as_array().unwrap().is_empty()
    });
    let file = object(&said, FILE).unwrap();
    assert!(number(&file["hour"], "misses") > 0.0 && number(file, "saves_ms_per_s") > 1.0);
    assert!(said["home_read_us"][1].as_f64() > Some(100.0), "{said}");
    let shown = text(&good(&["hot", site.home_str(), "--by", "misses", "--over", "minute"]));
    let advised = format!("tiersmith pin {} {FILE}", site.home_str());
    for words in ["MODELLED", "EMULATED", "to pin what is worth it", &advised] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(said["advice"]["pins"][0]["command"], advised, "{said}");
    let words: Vec<&str> = advised.split(' ').skip(1).collect();
    good(&words);
    let after = hot(&site, &[]).1;
    assert_eq!(object(&after, FILE).unwrap()["pinned"], true, "{after}");
    assert!(after["advice"]["pins"].as_array().unwrap().is_empty(), "{after}");
    assert!(after["advice"]["why"].to_string().contains("nothing to gain"), "{after}");
    // What is shown again and again ends when nobody reads it any more.
    for again in
        [["hot", site.home_str(), "--every=0.1"], ["status", site.home_str(), "--watch=0.1"]]
    {
        let mut shown = begin(&again);
        drop(shown.stdout.take().unwrap());
        wait_until("it ends", || shown.try_wait().unwrap().is_some());
    }
    let said = refused(&["hot", site.path().to_str().unwrap()]);
    assert!(said.contains("is not mounted"), "{said}");
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

/// A command that goes on while the test does other things.
fn begin(arguments: &[&str]) -> Child {
    command(arguments).spawn().unwrap()
}

fn moves(site: &Site) -> Value {
    site.live()["moves"].clone()
}

#[test]
fn a_slow_pin_is_seen_ended_killed_and_goes_on_where_it_was() {
    if !can_mount("a pin that is killed") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    // The file would take a minute.
    let slow = ["pin", site.home_str(), FILE, "--rate", "8K"];
    let has_begun = |site: &Site| {
        wait_until("blocks are moved", || {
            let moves = moves(site);
            moves["running"] == true && moves["moved_bytes"].as_u64() > Some(0)
        });
    };
    let pin = begin(&slow);
    has_begun(&site);
    let said = refused(&["move", site.home_str(), FILE, "--to", "tier"]);
    assert!(said.contains("runs already") && said.contains("--stop"), "{said}");
    let unpinned = tiersmith(&["unpin", site.home_str(), FILE]);
    assert_eq!(unpinned.status.code(), Some(1));
    assert!(text(&unpinned).contains("a pin of it runs"), "{}", text(&unpinned));
    let shown = text(&good(&["status", site.home_str()]));
    assert!(shown.contains(&format!("moving:    pin {FILE} runs at 8192/s")), "{shown}");
    let stopped = json(&good(&["pin", site.home_str(), "--stop", "--json"]));
    assert_eq!(stopped["stopped"], true);
    let ended = output(pin, &slow);
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended));
    assert!(text(&ended).contains("the same command goes on where it was"), "{}", text(&ended));
    assert_eq!((&moves(&site)["running"], &moves(&site)["whole"]), (&false.into(), &false.into()));
    assert_eq!(json(&good(&["move", site.home_str(), "--stop", "--json"]))["stopped"], false);

    // Killed on its way: what was brought in is there still, and it is not pinned.
    let pin = begin(&slow);
    has_begun(&site);
    site.kill_daemon(&attached);
    assert_eq!(output(pin, &slow).status.code(), Some(2));
    let _ = site.attach_again();
    let data = |site: &Site, what: &str| site.live()["classes"][1][what].as_u64().unwrap();
    let cached = data(&site, "cached_bytes");
    assert!(cached > 0 && data(&site, "pinned_files") == 0, "{}", site.live());
    good(&["pin", site.home_str(), FILE]);
    let done = moves(&site);
    assert_eq!(done["whole"], true, "{done}");
    assert_eq!(done["moved_bytes"].as_u64().unwrap(), 64 * 8192 - cached, "{done}");
    assert_eq!((data(&site, "pinned_files"), data(&site, "cached_bytes")), (1, 64 * 8192));
    // A file that cannot be pinned is one that the pin is through with.
    assert_eq!(tiersmith(&["pin", site.home_str(), "PG_VERSION"]).status.code(), Some(1));
    let failed = moves(&site);
    assert_eq!((&failed["files"], &failed["failed"]), (&1.into(), &1.into()), "{failed}");
    assert_eq!((&failed["bytes"], &failed["whole"]), (&failed["of_bytes"], &false.into()));
    let archive = site.path().join("archive.tsawr");
    let to = archive.to_str().unwrap();
    good(&["awr", "snapshot", site.home_str(), "--to", to]);
    good(&["unpin", site.home_str(), FILE]);

    // A move home, ended and gone on with; then one that a detach ends.
    fs::write(site.home.join(FILE), blocks(3, 64)).unwrap();
    let slow = ["move", site.home_str(), FILE, "--to", "home", "--rate", "8K"];
    let slowly = begin(&slow);
    has_begun(&site);
    good(&["move", site.home_str(), "--stop"]);
    assert_eq!(output(slowly, &slow).status.code(), Some(1));
    assert!(data(&site, "dirty_bytes") > 0, "{}", site.live());
    good(&["move", site.home_str(), FILE, "--to", "home", "--rate", "0"]);
    assert_eq!((data(&site, "dirty_bytes"), data(&site, "cached_bytes")), (0, 0));
    good(&["awr", "snapshot", site.home_str(), "--to", to]);
    let report = text(&good(&["awr", "report", "--in", to, "1", "2"]));
    assert!(report.contains("blocks moved home"), "{report}");
    let slow = ["pin", site.home_str(), FILE, "--rate", "8K"];
    let pin = begin(&slow);
    has_begun(&site);
    fs::remove_dir_all(&archive).unwrap();
    good(&["detach", site.home_str()]);
    assert_eq!(output(pin, &slow).status.code(), Some(1));
    site.assert_plain();
    assert_eq!(fs::read(site.home.join(FILE)).unwrap(), blocks(3, 64));
}

/// A home that a server has made, with these statements run; it is plain, and the server stopped.
fn made(product: &'static dyn server::Product, statements: &[&str]) -> Option<(Site, Place)> {
    let what = format!("hot files of {}", product.title());
    let programs = match database::programs(product) {
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
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir(&site.home).unwrap();
    let place = Place::new(&site.home, site.path().join("server.log"));
    server::create(product, &programs, &place).unwrap();
    let server = Server::start(product, &programs, &place).unwrap();
    let mut client = server.client().unwrap();
    for statement in statements {
        client.batch(statement).unwrap();
    }
    drop(client);
    server.stop().unwrap();
    Some((site, place))
}

#[test]
fn postgresqls_tables_and_indexes_are_named_by_its_server_and_by_no_other() {
    let product = server::product("postgres").unwrap();
    let statements = [
        "CREATE TABLE \"Hot Table\" (id int CONSTRAINT hot_key PRIMARY KEY, payload text)",
        // More than a sixteenth of the tier: it is read as a scan, and not copied.
        "INSERT INTO \"Hot Table\" SELECT n, repeat('x', 1000) FROM generate_series(1, 8000) n",
        "CREATE TABLE notes (text text)",
        "INSERT INTO notes SELECT string_agg(md5(n::text), '') FROM generate_series(1, 900) n",
        "VACUUM ANALYZE",
    ];
    let Some((site, mut place)) = made(product, &statements) else { return };
    place.settings.push(("shared_buffers".into(), "1MB".into()));
    let model = ["--home-model", "cloud-network-volume", "--atomic-pages", "on"];
    let _ = site.attach_sized("64M", &model);
    let programs = database::programs(product).unwrap();
    let server = Server::start(product, &programs, &place).unwrap();
    let url =
        format!("postgresql://postgres@/postgres?host={}&port=5432", server.socket_dir().display());
    let mut client = server.client().unwrap();
    let mut ask = |question: &str| client.table(question).unwrap()[0][0].clone();
    let path = ask("SELECT pg_relation_filepath('\"Hot Table\"')");
    let table = "postgres: public.\"Hot Table\"";
    let mut said = Value::Null;
    wait_until("a pin of the table is advised", || {
        ask("SELECT count(*) FROM \"Hot Table\" WHERE payload <> ''");
        ask("SELECT payload FROM \"Hot Table\" WHERE id = 4711");
        ask("SELECT max(text) FROM notes");
        let (code, hot) = hot(&site, &["--url", &url]);
        assert_eq!((code, &hot["not_named"]), (0, &serde_json::json!([])), "{hot}");
        said = hot;
        let pins = said["advice"]["pins"].as_array().unwrap();
        pins.iter().any(|pin| pin["name"] == table)
    });
    let hottest = object(&said, table).unwrap();
    let files: Vec<&str> =
        hottest["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert_eq!(hottest["kind"], "table", "{hottest}");
    assert!(files.contains(&path.as_str()), "{hottest}");
    assert!(files.iter().all(|file| file.starts_with(&path)), "{hottest}");
    for (name, kind) in [
        ("postgres: public.hot_key of public.\"Hot Table\"", "index"),
        ("postgres: TOAST of public.notes", "TOAST"),
        ("postgres: pg_catalog.pg_class", "table"),
        ("pg_catalog.pg_database", "table"),
    ] {
        assert_eq!(object(&said, name).unwrap_or_else(|| panic!("{name}: {said}"))["kind"], kind);
    }
    // The pin that is advised is of the table's files, with its forks.
    let advised = said["advice"]["pins"].as_array().unwrap();
    let pin = advised.iter().find(|pin| pin["name"] == table).unwrap()["command"].as_str().unwrap();
    let run = std::process::Command::new("sh")
        .args(["-c", &pin.replacen("tiersmith", env!("CARGO_BIN_EXE_tiersmith"), 1)])
        .output();
    let run = run.unwrap();
    assert!(run.status.success(), "{pin}: {}", text(&run));
    assert_eq!(object(&hot(&site, &["--url", &url]).1, table).unwrap()["pinned"], true);

    names_need_an_address_that_has_tables(&site, &path, table);
    another_cluster_is_not_named(&site, &url);
    drop(client);
    server.stop().unwrap();
    good(&["detach", site.home_str()]);
}

/// Without an address, with one that does not answer, and with one that has no tables.
fn names_need_an_address_that_has_tables(site: &Site, path: &str, table: &str) {
    let (code, by_path) = hot(site, &[]);
    assert_eq!(code, 0);
    assert!(object(&by_path, path).is_some() && object(&by_path, table).is_none(), "{by_path}");
    for (url, why) in [
        ("postgresql:///x?host=/nowhere", "cannot"),
        ("redis://127.0.0.1:1", "has no tables"),
        ("host", "has no tables"),
    ] {
        let (code, hot) = hot(site, &["--url", url]);
        assert_eq!(code, 1, "{url}: {hot}");
        assert!(hot["not_named"][0].as_str().unwrap().contains(why), "{url}: {hot}");
        assert!(object(&hot, path).is_some(), "{url}: {hot}");
    }
    let said = refused(&["hot", site.home_str(), "--url", "postgresql://u:secret@h/d"]);
    assert!(said.contains("password") && !said.contains("secret"), "{said}");
}

fn another_cluster_is_not_named(site: &Site, url: &str) {
    // The same numbers mean other tables in another cluster.
    let other = Site::postgres_like();
    let _ = other.attach(&[]);
    let (code, hot) = hot_of(&other, FILE, &["--url", url]);
    assert_eq!(code, 1, "{hot}");
    assert!(hot["not_named"][0].as_str().unwrap().contains("is not the server of"), "{hot}");
    good(&["detach", other.home_str()]);
    // So they may in a standby, or in a copy, whose cluster has the same number.
    let copy = Site::postgres_like();
    let control = fs::read(site.home.join("global/pg_control")).unwrap();
    fs::write(copy.home.join("global/pg_control"), control).unwrap();
    let _ = copy.attach(&[]);
    for pid in [None, Some("4711\n/srv/copy\n86400\n5432\n\n\n\n")] {
        if let Some(pid) = pid {
            fs::write(copy.home.join("postmaster.pid"), pid).unwrap();
        }
        let (code, hot) = hot_of(&copy, FILE, &["--url", url]);
        assert_eq!(code, 1, "{pid:?}: {hot}");
        let why = hot["not_named"][0].as_str().unwrap();
        assert!(why.contains("is not the server of"), "{pid:?}: {hot}");
    }
    good(&["detach", copy.home_str()]);
}

#[test]
fn a_table_beside_its_databases_tablespace_is_named_and_what_has_no_name_is_told() {
    let product = server::product("postgres").unwrap();
    let statements = [
        "SET allow_in_place_tablespaces = true",
        "CREATE TABLESPACE aside LOCATION ''",
        "CREATE DATABASE far TABLESPACE aside",
    ];
    let Some((site, place)) = made(product, &statements) else { return };
    let _ = site.attach_sized("64M", &["--atomic-pages", "on"]);
    let programs = database::programs(product).unwrap();
    let server = Server::start(product, &programs, &place).unwrap();
    let host = server.socket_dir().display();
    let url = format!("postgresql://postgres@/postgres?host={host}&port=5432");
    let sql = |statement: &str| {
        let mut psql = server.command(Path::new("psql")).unwrap();
        let _ = psql.args(["-h", &host.to_string(), "-p", "5432", "-U", "postgres", "-d", "far"]);
        let told = psql.args(["-Atc", statement]).output().unwrap();
        assert!(told.status.success(), "{statement}: {told:?}");
        String::from_utf8(told.stdout).unwrap().trim().to_owned()
    };
    sql("CREATE TABLE here (id int) TABLESPACE pg_default");
    sql("INSERT INTO here SELECT generate_series(1, 9000)");
    sql("CHECKPOINT");
    let path = sql("SELECT pg_relation_filepath('here')");
    let directory = path.rsplit_once('/').unwrap().0;
    assert!(directory.starts_with("base/"), "{path}");
    // What a crash of the server has left behind: no relation's.
    let stray = format!("{directory}/4000000000");
    fs::write(site.home.join(&stray), [1; 65_536]).unwrap();
    read(&site.home.join(&path));
    let (code, hot) = hot_of(&site, &stray, &["--url", &url]);
    let table = object(&hot, "far: public.here").unwrap_or_else(|| panic!("{hot}"));
    assert_eq!((&table["kind"], &table["files"][0]), (&"table".into(), &path.into()), "{hot}");
    assert_eq!(code, 1, "{hot}");
    let not_named = hot["not_named"].to_string();
    assert!(not_named.contains("database far has no relation for 1 of"), "{hot}");
    assert!(not_named.contains("other tablespaces"), "{hot}");
    server.stop().unwrap();
    good(&["detach", site.home_str()]);
}

#[test]
fn mariadbs_tables_are_named_by_their_paths_and_other_alphabets_by_its_server() {
    let product = server::product("mariadb").unwrap();
    let statements = [
        "SET NAMES utf8mb4",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.`a-b` (id INT PRIMARY KEY) ENGINE=InnoDB PARTITION BY RANGE (id) \
         (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "INSERT INTO shop.`a-b` VALUES (1), (200)",
        "CREATE TABLE shop.`gr\u{f6}\u{df}e` (id INT PRIMARY KEY) ENGINE=InnoDB",
        "INSERT INTO shop.`gr\u{f6}\u{df}e` VALUES (1)",
    ];
    let Some((site, mut place)) = made(product, &statements) else { return };
    place.settings.push(("innodb-buffer-pool-size".into(), "16M".into()));
    let _ = site.attach_sized("64M", &[]);
    let programs = database::programs(product).unwrap();
    let server = Server::start(product, &programs, &place).unwrap();
    let mut client = server.client().unwrap();
    client.batch("SET NAMES utf8mb4").unwrap();
    for table in ["a-b", "gr\u{f6}\u{df}e"] {
        client.table(&format!("SELECT * FROM shop.`{table}`")).unwrap();
    }
    let mut by_path = Value::Null;
    wait_until("the tables are listed", || {
        by_path = hot(&site, &[]).1;
        object(&by_path, "shop.a-b partition p1").is_some()
    });
    for name in ["shop.a-b partition p0", "shop.a-b partition p1"] {
        let found = object(&by_path, name).unwrap_or_else(|| panic!("{name}: {by_path}"));
        assert_eq!(found["kind"], "table", "{found}");
        assert!(found["files"][0].as_str().unwrap().starts_with("shop/a@002db#P#p"), "{found}");
    }
    assert!(object(&by_path, "shop.gr\u{f6}\u{df}e").is_none(), "{by_path}");
    let url = format!("mariadb://root@/?socket={}", server.socket().display());
    let (code, hot) = hot(&site, &["--url", &url]);
    assert_eq!((code, &hot["not_named"]), (0, &serde_json::json!([])), "{hot}");
    for name in ["shop.gr\u{f6}\u{df}e", "shop.a-b partition p1"] {
        assert!(object(&hot, name).is_some(), "{name}: {hot}");
    }
    drop(client);
    server.stop().unwrap();
    good(&["detach", site.home_str()]);
}
