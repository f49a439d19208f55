//! MySQL 8.0 and newer under test: a product of these tests alone. It differs from MariaDB, to
//! which everything else is left, by its program's name, by how its directory is made and by some
//! settings.
//!
//! Deliberately absent: studies of MySQL; the lab's loads are written for MariaDB.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tiersmith_awr::Snapshot;
use tiersmith_lab::Result;
use tiersmith_lab::server::{self, Client, Product, Programs, Server, Site};

/// On the mounted home. A page is written once: [`writes_pages_once`] looks.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("innodb-doublewrite", "OFF"),
    ("innodb-buffer-pool-size", "16M"),
    ("innodb-redo-log-capacity", "16M"),
];

/// The product.
#[derive(Debug)]
pub(crate) struct Mysql;

fn mariadb() -> &'static dyn Product {
    server::product("mariadb").unwrap()
}

impl Product for Mysql {
    /// The store has one profile for both.
    fn name(&self) -> &'static str {
        mariadb().name()
    }

    fn title(&self) -> &'static str {
        "MySQL"
    }

    fn needed(&self) -> &'static [&'static str] {
        &["mysqld"]
    }

    fn useful(&self) -> &'static [&'static str] {
        &["innochecksum"]
    }

    fn places(&self) -> &'static [&'static str] {
        &[]
    }

    fn packages(&self) -> &'static str {
        "mysql-server-core"
    }

    fn account_name(&self) -> &'static str {
        mariadb().account_name()
    }

    fn user(&self) -> &'static str {
        mariadb().user()
    }

    fn page_bytes(&self) -> u64 {
        mariadb().page_bytes()
    }

    fn creation(&self, programs: &Programs, data: &Path) -> Option<Vec<OsString>> {
        let mut datadir = OsString::from("--datadir=");
        datadir.push(data);
        let words = ["--no-defaults", "--initialize-insecure", "--innodb-redo-log-capacity=16M"];
        let program = programs.get("mysqld").unwrap().into();
        Some([program].into_iter().chain(words.map(OsString::from)).chain([datadir]).collect())
    }

    fn arguments(&self, site: &Site, socket_dir: &Path) -> Vec<OsString> {
        let mut words = mariadb().arguments(site, socket_dir);
        // No second socket, and no directory that the package would make.
        words.extend(["--mysqlx=OFF", "--secure-file-priv="].map(OsString::from));
        words
    }

    fn socket_name(&self) -> &'static str {
        mariadb().socket_name()
    }

    fn stop_signal(&self) -> Signal {
        mariadb().stop_signal()
    }

    fn connect(&self, socket: &Path) -> Result<Box<dyn Client>> {
        mariadb().connect(socket)
    }

    fn unsynced(&self) -> Option<(&'static str, &'static str)> {
        mariadb().unsynced()
    }

    fn redo_within(&self) -> &'static str {
        "#innodb_redo"
    }

    fn torn_page_protection(&self) -> Option<(&'static str, &'static str)> {
        Some(SETTINGS[0])
    }

    fn cache_settings(&self, bytes: u64) -> Vec<(String, String)> {
        mariadb().cache_settings(bytes)
    }

    fn redo_profile(&self) -> &'static str {
        mariadb().redo_profile()
    }

    fn figures(&self, client: &mut dyn Client, snapshot: &mut Snapshot) -> Result<()> {
        mariadb().figures(client, snapshot)
    }
}

/// Whether nothing but the tier keeps pages from being torn, with [`SETTINGS`], which the small
/// buffer pool tells: on the plain directory a server has its own defaults.
pub(crate) fn writes_pages_once(server: &Server) -> std::result::Result<(), String> {
    let mut client = server.client().map_err(|e| e.to_string())?;
    let mut ask = |name: &str| client.ask(&format!("SELECT @@{name}")).map_err(|e| e.to_string());
    let (pool, doublewrite) = (ask("innodb_buffer_pool_size")?, ask("innodb_doublewrite")?);
    if pool == (16 << 20).to_string() && doublewrite != "OFF" {
        return Err(format!("innodb_doublewrite is {doublewrite}"));
    }
    Ok(())
}

/// Every page's checksum, where the program is there; else the file is read whole.
pub(crate) fn check_stopped(data: &Path, programs: &Programs, server: &Server) -> Command {
    let mut check = match programs.get("innochecksum") {
        Some(program) => server.command(program).unwrap(),
        None => Command::new("cat"),
    };
    check.args(
        ["ibdata1", "mysql.ibd", "shop/acked.ibd", "shop/account.ibd"].map(|name| data.join(name)),
    );
    check
}

/// What is in the tables, for want of a program that dumps.
pub(crate) fn rows(server: &Server) -> Vec<u8> {
    let mut client = server.client().unwrap();
    let mut text = String::new();
    for statement in [
        "SHOW CREATE TABLE shop.acked",
        "SHOW CREATE TABLE shop.account",
        "SELECT * FROM shop.acked ORDER BY id",
        "SELECT * FROM shop.account ORDER BY id",
        "SELECT table_schema, table_name, engine FROM information_schema.tables ORDER BY 1, 2",
    ] {
        let rows = client.table(statement).unwrap();
        assert!(!rows.is_empty(), "{statement}");
        for row in rows {
            text.push_str(&format!("{row:?}\n"));
        }
    }
    text.into_bytes()
}
