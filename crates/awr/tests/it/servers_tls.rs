//! Encrypted connections to real servers: who is let in, who is refused and what the refusal says.
//! Certificates are made here by `openssl`.
//!
//! Servers listen on a free port of this machine; where another program took it meanwhile, they are
//! started again on another.

use crate::servers;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::servers::{Server, until};
use mysql::prelude::Queryable;
use tiersmith_awr::archive::Archive;
use tiersmith_awr::sources::{self, Address, Asking, LiveSource, Surroundings};

/// Certificates and keys in a directory of the server's.
struct Made(PathBuf);

impl Made {
    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Gives the server another certificate for its key.
    fn show(&self, name: &str) {
        let (new, shown) = (self.path("new.crt"), self.path("server.crt"));
        fs::copy(self.path(name), &new).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, shown).unwrap();
    }
}

/// An authority, another one, a client's certificate, and certificates for one key of a server:
/// sound, expired, with a common name alone, signed by itself.
fn certificates(what: &str, server: &Server) -> Option<Made> {
    let Some(openssl) = servers::program("openssl") else {
        servers::skip(what, "openssl is not installed");
        return None;
    };
    let dir = server.path("tls");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(
        dir.join("openssl.cnf"),
        "[req]\ndistinguished_name = dn\nprompt = no\n[dn]\nCN = unused\n[ca]\ndefault_ca = \
         d\n[d]\ndir = .\ndatabase = index.txt\n\
         new_certs_dir = .\nserial = serial\ndefault_md = sha256\npolicy = any\nunique_subject = \
         no\n[any]\ncommonName = supplied\n",
    )
    .unwrap();
    fs::write(dir.join("index.txt"), "").unwrap();
    fs::write(dir.join("serial"), "10\n").unwrap();
    fs::write(dir.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let authority = "-x509 -days 30 -addext basicConstraints=critical,CA:TRUE";
    let run = |line: &str| {
        let output = Command::new(&openssl)
            .args(line.split(' '))
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "openssl {line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run(&format!(
        "req -config openssl.cnf {authority} {key} -keyout ca.key -out ca.crt -subj /CN=Authority"
    ));
    run(&format!(
        "req -config openssl.cnf {authority} {key} -keyout other.key -out other.crt -subj /CN=Other"
    ));
    run(&format!(
        "req -config openssl.cnf -new {key} -keyout server.key -out server.csr -subj /CN=localhost"
    ));
    run(&format!(
        "req -config openssl.cnf -new {key} -keyout client.key -out client.csr -subj /CN=byclient"
    ));
    let signed = "-CA ca.crt -CAkey ca.key -days 30";
    run(&format!("x509 -req -in server.csr {signed} -set_serial 2 -extfile names -out good.crt"));
    run(&format!("x509 -req -in server.csr {signed} -set_serial 3 -out common.crt"));
    run(&format!("x509 -req -in client.csr {signed} -set_serial 4 -out client.crt"));
    run("req -config openssl.cnf -x509 -days 30 -key server.key -out itself.crt -subj \
         /CN=localhost -addext basicConstraints=CA:TRUE");
    run("ca -batch -notext -config openssl.cnf -cert ca.crt -keyfile ca.key -in server.csr \
         -extfile names \
         -startdate 20200101000000Z -enddate 20200201000000Z -out expired.crt");
    // The server runs as the one whom its directory is of.
    let owner =
        fs::metadata(server.path("")).map(|of| std::os::unix::fs::MetadataExt::uid(&of)).unwrap();
    let key = dir.join("server.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&key, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(dir.join("client.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let made = Made(dir);
    made.show("good.crt");
    Some(made)
}

/// Starts a server anew so that it listens; `listens` says whether it has the port.
fn listening(
    server: &mut Server,
    arguments: impl Fn(&Server, u16) -> Vec<String>,
    listens: impl Fn(&Server) -> bool,
) -> u16 {
    for _ in 0..20 {
        server.stop();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        for argument in arguments(server, port) {
            server.start_with(&argument);
        }
        if catch_unwind(AssertUnwindSafe(|| server.start())).is_ok() && listens(server) {
            return port;
        }
    }
    panic!("no port is free for as long as a server takes to start");
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The error of a source that is not let in.
fn refused(server: &Server, url: &str, variables: &[(&str, &str)], words: &[&str]) {
    said(server, url, variables, words);
}

/// The error with which it is refused, which has these words.
fn said(server: &Server, url: &str, variables: &[(&str, &str)], words: &[&str]) -> String {
    let opened = server.source(url, &Surroundings::of(variables.iter().copied()));
    let error = opened.err().unwrap_or_else(|| panic!("{url} is let in")).to_string();
    for word in words {
        assert!(error.contains(word), "{url}: `{word}` is not in: {error}");
    }
    assert!(!error.contains("hunter"), "{error}");
    error
}

/// As [`refused`], and nothing is said of encryption but what the address says.
fn refused_for_another_reason(server: &Server, url: &str, words: &[&str]) {
    let error = said(server, url, &[], words).replace(url, "").to_lowercase();
    for word in ["encrypt", "sslmode", "tls", "certificate"] {
        assert!(!error.contains(word), "{url}: `{word}` is in: {error}");
    }
}

fn let_in(server: &Server, url: &str, variables: &[(&str, &str)]) -> Box<dyn LiveSource> {
    let opened = server.source(url, &Surroundings::of(variables.iter().copied()));
    let mut source = opened.unwrap_or_else(|error| panic!("{url}: {error}"));
    source.snapshot().unwrap();
    source
}

fn client(server: &Server) -> postgres::Client {
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    postgres::Client::connect(&config, postgres::NoTls).unwrap()
}

/// A PostgreSQL that listens and offers encryption.
struct Postgres<'a> {
    server: &'a Server,
    made: &'a Made,
    port: u16,
}

/// The password of those users of [`Postgres`] that have one.
const PG_PASSWORD: [(&str, &str); 1] = [("PGPASSWORD", "hunter2")];

/// How many sessions of ours are encrypted.
fn encrypted_sessions(server: &Server) -> i64 {
    let sessions = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                    WHERE a.application_name = 'tiersmith' AND s.ssl";
    client(server).query_one(sessions, &[]).unwrap().get(0)
}

impl Postgres<'_> {
    fn url(&self, user: &str, host: &str, more: &str) -> String {
        format!("postgresql://{user}@{host}:{}/postgres?{more}", self.port)
    }

    /// With everything verified.
    fn full(&self) -> String {
        let more = format!("sslmode=verify-full&sslrootcert={}", self.made.path("ca.crt"));
        self.url("postgres", "localhost", &more)
    }

    fn sessions_are_encrypted(&self) {
        let server = self.server;
        let full = self.full();
        let held = let_in(server, &full, &[]);
        assert_eq!(encrypted_sessions(server), 1);
        drop(held);
        until("the session to end", || encrypted_sessions(server) == 0);
        let held = let_in(server, &self.url("postgres", "localhost", ""), &[]);
        assert_eq!(encrypted_sessions(server), 1, "prefer takes what is offered");
        drop(held);
    }

    fn a_login_is_bound_to_the_connection(&self) {
        let server = self.server;
        let ca = self.made.path("ca.crt");
        for binding in ["require", "prefer", "disable"] {
            let more = format!("sslmode=verify-ca&sslrootcert={ca}&channel_binding={binding}");
            let_in(server, &self.url("careful", "localhost", &more), &PG_PASSWORD);
        }
        refused(
            server,
            &self.url("careful", "localhost", "sslmode=require"),
            &[("PGPASSWORD", "hunter3")],
            &["28P01"],
        );
        refused(
            server,
            &self.url("careful", "localhost", "sslmode=prefer"),
            &[("PGPASSWORD", "hunter3")],
            &["28P01"],
        );
        refused(
            server,
            &self.url("postgres", "localhost", "sslmode=require&channel_binding=require"),
            &[],
            &["channel binding"],
        );
    }

    fn tls_begins_with_the_first_byte(&self) {
        let server = self.server;
        let ca = self.made.path("ca.crt");
        let direct = self.url(
            "postgres",
            "localhost",
            &format!("sslmode=verify-full&sslrootcert={ca}&sslnegotiation=direct"),
        );
        let version: String =
            client(server).query_one("SHOW server_version_num", &[]).unwrap().get(0);
        match version.parse::<u32>().unwrap() >= 170_000 {
            true => drop(let_in(server, &direct, &[])),
            false => refused(server, &direct, &[], &["cannot", "sslnegotiation"]),
        }
    }

    fn names_and_authorities_are_verified(&self) {
        let server = self.server;
        let (ca, other) = (self.made.path("ca.crt"), self.made.path("other.crt"));
        refused(
            server,
            &self.url("postgres", "127.0.0.1", &format!("sslmode=verify-full&sslrootcert={ca}")),
            &[],
            &[
                "is for localhost and not for `127.0.0.1`",
                "issued by `Authority`",
                "sslmode=verify-ca",
            ],
        );
        let_in(
            server,
            &self.url("postgres", "127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={ca}")),
            &[],
        );
        let of_other = format!("sslmode=verify-ca&sslrootcert={other}");
        refused(
            server,
            &self.url("postgres", "localhost", &of_other),
            &[],
            &["is of no authority in", "other.crt", "sslrootcert=FILE"],
        );
        let_in(
            server,
            &self.url("postgres", "localhost", ""),
            &[("PGSSLROOTCERT", "system"), ("SSL_CERT_FILE", &ca)],
        );
        let elsewhere = [("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", other.as_str())];
        refused(
            server,
            &self.url("postgres", "localhost", ""),
            &elsewhere,
            &["is of no authority in"],
        );
        let services = server.path("services");
        fs::write(
            &services,
            format!(
                "[db]\nhost=localhost\nport={}\nuser=postgres\nsslmode=verify-full\n\
                 sslrootcert={ca}\n",
                self.port
            ),
        )
        .unwrap();
        let_in(server, "postgresql:///postgres?service=db", &[("PGSERVICEFILE", &text(&services))]);
        let home = server.path("home");
        fs::create_dir_all(home.join(".postgresql")).unwrap();
        fs::copy(&other, home.join(".postgresql/root.crt")).unwrap();
        let home = text(&home);
        refused(
            server,
            &self.url("postgres", "localhost", "sslmode=require"),
            &[("HOME", &home)],
            &["is of no authority in"],
        );
        let_in(server, &self.url("postgres", "localhost", "sslmode=require"), &[]);
    }

    /// With a certificate of the client among the ways in.
    fn who_is_let_in_encrypted_and_who_in_clear(&self) {
        let server = self.server;
        let ca = self.made.path("ca.crt");
        refused(
            server,
            &self.url("careful", "localhost", "sslmode=disable"),
            &PG_PASSWORD,
            &["28000", "sslmode=require"],
        );
        let_in(server, &self.url("careful", "localhost", "sslmode=allow"), &PG_PASSWORD);
        let_in(server, &self.url("clear", "localhost", "sslmode=prefer"), &[]);
        refused(server, &self.url("clear", "localhost", "sslmode=require"), &[], &["28000"]);
        // Nobody of this name: that is the reason, and not that it was tried encrypted.
        let ghost = self.url("ghost", "localhost", "sslmode=prefer");
        let words = ["\"ghost\" does not exist", "a user that is there"];
        refused_for_another_reason(server, &ghost, &words);
        refused_for_another_reason(
            server,
            &self.url("ghost", "localhost", "sslmode=require"),
            &words,
        );
        let own = format!(
            "sslmode=require&sslcert={}&sslkey={}",
            self.made.path("client.crt"),
            self.made.path("client.key")
        );
        let_in(server, &self.url("byclient", "localhost", &own), &[]);
        refused(
            server,
            &self.url("byclient", "localhost", "sslmode=require"),
            &[],
            &["28000", "certificate"],
        );
        let wrong = format!("sslmode=require&sslcert={ca}&sslkey={}", self.made.path("client.key"));
        refused(server, &self.url("byclient", "localhost", &wrong), &[], &["is of another key"]);
        fs::set_permissions(self.made.path("client.key"), fs::Permissions::from_mode(0o644))
            .unwrap();
        refused(
            server,
            &self.url("byclient", "localhost", &own),
            &[],
            &["others may read it", "chmod 0600"],
        );
    }

    fn a_repository_is_encrypted(&self) {
        let server = self.server;
        let of_other = format!("sslmode=verify-ca&sslrootcert={}", self.made.path("other.crt"));
        until("the sources' sessions to end", || encrypted_sessions(server) == 0);
        let archive = Archive::open(self.full()).unwrap();
        assert_eq!(encrypted_sessions(server), 1);
        assert!(archive.list().unwrap().entries.is_empty());
        let error = Archive::existing(self.url("postgres", "localhost", &of_other))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("is of no authority in") && error.contains("sslrootcert=FILE"),
            "{error}"
        );
    }

    fn other_certificates_are_judged(&self) {
        let server = self.server;
        let full = self.full();
        let shown = |name: &str, until_then: &mut dyn FnMut() -> bool| {
            self.made.show(name);
            client(server).batch_execute("SELECT pg_reload_conf()").unwrap();
            until("the other certificate", until_then);
        };
        let none = Surroundings::default();
        shown("expired.crt", &mut || {
            server
                .source(&full, &none)
                .err()
                .is_some_and(|error| error.to_string().contains("expired on 2020-02-01"))
        });
        refused(server, &full, &[], &["Renew the certificate"]);
        shown("common.crt", &mut || server.source(&full, &none).is_ok());
        let by_itself = self.url(
            "postgres",
            "localhost",
            &format!("sslmode=verify-full&sslrootcert={}", self.made.path("itself.crt")),
        );
        refused(server, &by_itself, &[], &["is of no authority in"]);
        shown("itself.crt", &mut || server.source(&by_itself, &none).is_ok());
        refused(server, &full, &[], &["issued by itself", "is of no authority in"]);
    }
}

#[test]
fn postgresql_is_encrypted_and_verified_as_its_own_programs_do() {
    let what = "postgresql_is_encrypted_and_verified_as_its_own_programs_do";
    let Some(mut server) = servers::postgres(what) else { return };
    let Some(made) = certificates(what, &server) else { return };
    client(&server)
        .batch_execute(
            "SET password_encryption = 'scram-sha-256'; CREATE USER careful PASSWORD 'hunter2'; \
             CREATE USER clear; CREATE USER byclient",
        )
        .unwrap();
    let rules = "local all all trust\nhostssl all byclient all cert\nhostnossl all clear all \
                 trust\n\
                 hostssl all careful all scram-sha-256\nhostssl all postgres,ghost all trust\n";
    fs::write(server.path("data/pg_hba.conf"), rules).unwrap();
    let arguments = |server: &Server, port: u16| {
        // Who waits for the server looks for the socket of the usual port.
        let usual = server.path(".s.PGSQL.5432");
        let _ = fs::remove_file(&usual);
        symlink(format!(".s.PGSQL.{port}"), usual).unwrap();
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={port}"),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", made.path("server.crt")),
            format!("ssl_key_file={}", made.path("server.key")),
            format!("ssl_ca_file={}", made.path("ca.crt")),
        ];
        settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
    };
    // The sixth line is the address that it listens at, or empty.
    let listens = |server: &Server| {
        let pid = fs::read_to_string(server.path("data/postmaster.pid")).unwrap_or_default();
        pid.lines().nth(5).is_some_and(|address| !address.trim().is_empty())
    };
    let port = listening(&mut server, arguments, listens);
    let of = Postgres { server: &server, made: &made, port };
    of.sessions_are_encrypted();
    of.a_login_is_bound_to_the_connection();
    of.tls_begins_with_the_first_byte();
    of.names_and_authorities_are_verified();
    of.who_is_let_in_encrypted_and_who_in_clear();
    of.a_repository_is_encrypted();
    of.other_certificates_are_judged();

    // Without encryption.
    fs::write(server.path("data/pg_hba.conf"), "local all all trust\nhost all all all trust\n")
        .unwrap();
    let without = |server: &Server, port| {
        [arguments(server, port), vec!["-c".to_owned(), "ssl=off".to_owned()]].concat()
    };
    let port = listening(&mut server, without, listens);
    let url = |more: &str| format!("postgresql://postgres@localhost:{port}/postgres?{more}");
    refused(
        &server,
        &url("sslmode=require"),
        &[],
        &["does not offer encryption", "sslmode=disable"],
    );
    refused(
        &server,
        &url(&format!("sslmode=verify-full&sslrootcert={}", made.path("ca.crt"))),
        &[],
        &["does not offer encryption"],
    );
    let_in(&server, &url("sslmode=prefer"), &[]);
    assert_eq!(encrypted_sessions(&server), 0);
}

/// A MariaDB or MySQL that listens and offers encryption.
struct Maria<'a> {
    server: &'a Server,
    made: &'a Made,
    port: u16,
}

/// The password of all users of [`Maria`].
const MY_PASSWORD: [(&str, &str); 1] = [("MYSQL_PWD", "hunter2")];

impl Maria<'_> {
    fn url(&self, user: &str, host: &str, more: &str) -> String {
        format!("mariadb://{user}@{host}:{}/?{more}", self.port)
    }

    /// With everything verified.
    fn identity(&self) -> String {
        let more = format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", self.made.path("ca.crt"));
        self.url("careful", "localhost", &more)
    }

    fn who_is_let_in_encrypted_and_who_in_clear(&self) {
        let server = self.server;
        let (ca, other) = (self.made.path("ca.crt"), self.made.path("other.crt"));
        let_in(server, &self.url("careful", "localhost", ""), &MY_PASSWORD);
        let_in(server, &self.url("careful", "localhost", "ssl-mode=REQUIRED"), &MY_PASSWORD);
        let_in(server, &self.identity(), &MY_PASSWORD);
        let_in(server, &self.url("plain", "localhost", "ssl-mode=DISABLED"), &MY_PASSWORD);
        refused(
            server,
            &self.url("careful", "localhost", "ssl-mode=DISABLED"),
            &MY_PASSWORD,
            &["REQUIRE SSL", "ssl-mode=REQUIRED"],
        );
        refused(
            server,
            &self.url("careful", "localhost", "ssl-mode=REQUIRED"),
            &[("MYSQL_PWD", "hunter3")],
            &["1045", "MYSQL_PWD"],
        );
        let at = format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}");
        refused(
            server,
            &self.url("careful", "127.0.0.1", &at),
            &MY_PASSWORD,
            &["not for `127.0.0.1`", "VERIFY_CA"],
        );
        let_in(server, &self.url("careful", "127.0.0.1", &format!("ssl-ca={ca}")), &MY_PASSWORD);
        refused(
            server,
            &self.url("careful", "localhost", &format!("ssl-ca={other}")),
            &MY_PASSWORD,
            &["is of no authority in", "ssl-ca=FILE"],
        );
    }

    fn files_are_read_and_a_socket_is_in_clear(&self) {
        let server = self.server;
        let ca = self.made.path("ca.crt");
        let home = server.path("home");
        fs::create_dir(&home).unwrap();
        fs::write(
            home.join(".my.cnf"),
            format!("[client]\nssl-ca = {ca}\nssl-verify-server-cert\npassword=hunter2\n"),
        )
        .unwrap();
        let home = [("HOME", text(&home))];
        let home: Vec<(&str, &str)> =
            home.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let_in(server, &self.url("careful", "localhost", ""), &home);
        refused(server, &self.url("careful", "127.0.0.1", ""), &home, &["not for `127.0.0.1`"]);
        // On a socket only if that is demanded.
        let socket = server.path("my.sock");
        let on_socket = format!(
            "mariadb://careful@/?socket={}&ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}",
            text(&socket)
        );
        let_in(server, &on_socket, &MY_PASSWORD);
    }

    fn other_certificates_are_judged(&self, is_mariadb: bool) {
        let server = self.server;
        let read_again = if is_mariadb { "FLUSH SSL" } else { "ALTER INSTANCE RELOAD TLS" };
        self.made.show("expired.crt");
        match control(server).query_drop(read_again) {
            Ok(()) => {
                refused(server, &self.identity(), &MY_PASSWORD, &["expired on 2020-02-01", "Renew"])
            }
            // From 8.4 on it does not show one whose days are over.
            Err(error) => {
                assert!(
                    !is_mariadb && error.to_string().contains("Invalid certificates"),
                    "{error}"
                )
            }
        }
        self.made.show("common.crt");
        control(server).query_drop(read_again).unwrap();
        let_in(server, &self.identity(), &MY_PASSWORD);
        control(server).query_drop("SET GLOBAL require_secure_transport = ON").unwrap();
        refused(
            server,
            &self.url("plain", "localhost", "ssl-mode=DISABLED"),
            &MY_PASSWORD,
            &["ssl-mode=REQUIRED"],
        );
    }
}

/// A connection of root's, which is in clear.
fn control(server: &Server) -> mysql::Conn {
    let socket = server.path("my.sock");
    mysql::Conn::new(mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root"))).unwrap()
}

#[test]
fn mariadb_is_encrypted_and_verified() {
    let what = "mariadb_is_encrypted_and_verified";
    let Some(mut server) = servers::mariadb(what) else { return };
    let Some(made) = certificates(what, &server) else { return };
    let mut conn = control(&server);
    let version: String = conn.query_first("SELECT VERSION()").unwrap().unwrap();
    let is_mariadb = version.contains("MariaDB");
    conn.query_drop("CREATE USER careful@'%' IDENTIFIED BY 'hunter2' REQUIRE SSL").unwrap();
    conn.query_drop("CREATE USER plain@'%' IDENTIFIED BY 'hunter2'").unwrap();
    drop(conn);
    let arguments = |_: &Server, port: u16| {
        vec![
            "--skip-networking=0".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--port={port}"),
            format!("--ssl-cert={}", made.path("server.crt")),
            format!("--ssl-key={}", made.path("server.key")),
            format!("--ssl-ca={}", made.path("ca.crt")),
        ]
    };
    let port = listening(&mut server, arguments, |_| true);
    let of = Maria { server: &server, made: &made, port };
    of.who_is_let_in_encrypted_and_who_in_clear();
    of.files_are_read_and_a_socket_is_in_clear();
    of.other_certificates_are_judged(is_mariadb);

    // MySQL has no word for it from 8.4 on.
    let without_tls = if is_mariadb { "--skip-ssl" } else { "--tls-version=" };
    let without =
        |server: &Server, port| [arguments(server, port), vec![without_tls.to_owned()]].concat();
    let port = listening(&mut server, without, |_| true);
    let url = |more: &str| format!("mariadb://plain@localhost:{port}/?{more}");
    refused(
        &server,
        &url("ssl-mode=REQUIRED"),
        &MY_PASSWORD,
        &["does not offer encryption", "ssl-mode=DISABLED"],
    );
    let_in(&server, &url(""), &MY_PASSWORD);
}

#[test]
fn redis_is_encrypted_and_verified() {
    let what = "redis_is_encrypted_and_verified";
    let Some(mut server) = servers::redis(what) else { return };
    let Some(made) = certificates(what, &server) else { return };
    let ask = |server: &Server, words: &[&str]| {
        let mut stream = std::os::unix::net::UnixStream::connect(server.path("r.sock")).unwrap();
        tiersmith_awr::resp::send(&mut stream, words).unwrap();
        tiersmith_awr::resp::receive(&mut std::io::BufReader::new(stream)).unwrap()
    };
    if ask(&server, &["CONFIG", "GET", "tls-port"]).list().is_empty() {
        servers::skip(what, "this Redis was built without TLS");
        return;
    }
    let arguments = |_: &Server, port: u16| {
        let plain = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let pairs = [
            ("--bind", "127.0.0.1".to_owned()),
            ("--port", plain.to_string()),
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", made.path("server.crt")),
            ("--tls-key-file", made.path("server.key")),
            ("--tls-ca-cert-file", made.path("ca.crt")),
        ];
        pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    };
    let port = listening(&mut server, arguments, |_| true);
    let (ca, other) = (made.path("ca.crt"), made.path("other.crt"));
    let url = |host: &str, more: &str| format!("rediss://{host}:{port}?{more}");
    // It demands a certificate of the client unless told otherwise.
    let own =
        format!("cacert={ca}&cert={}&key={}", made.path("client.crt"), made.path("client.key"));
    let_in(&server, &url("localhost", &own), &[]);
    // The server may have closed the connection before what it says of that is read.
    until("the server to say what it misses", || {
        let opened =
            server.source(&url("localhost", &format!("cacert={ca}")), &Surroundings::default());
        opened.err().expect("nobody is let in").to_string().contains("demands a certificate")
    });
    ask(&server, &["CONFIG", "SET", "tls-auth-clients", "no"]);
    let trusted = url("localhost", &format!("cacert={ca}"));
    let_in(&server, &trusted, &[]);
    let_in(&server, &url("localhost", ""), &[("SSL_CERT_FILE", &ca)]);
    refused(
        &server,
        &url("127.0.0.1", &format!("cacert={ca}")),
        &[],
        &["not for `127.0.0.1`", "verify=ca"],
    );
    let_in(&server, &url("127.0.0.1", &format!("cacert={ca}&verify=ca")), &[]);
    refused(
        &server,
        &url("localhost", &format!("cacert={other}")),
        &[],
        &["is of no authority in", "cacert=FILE"],
    );
    let_in(&server, &url("localhost", &format!("cacert={other}&verify=none")), &[]);
    for (name, works) in [("expired.crt", false), ("common.crt", true)] {
        made.show(name);
        ask(&server, &["CONFIG", "SET", "tls-cert-file", &made.path("server.crt")]);
        match works {
            true => drop(let_in(&server, &trusted, &[])),
            false => refused(&server, &trusted, &[], &["expired on 2020-02-01", "Renew"]),
        }
    }
    // The one protocol where the other is spoken.
    refused(&server, &format!("redis://localhost:{port}"), &[], &["rediss://"]);
    let plain = ask(&server, &["CONFIG", "GET", "port"]);
    let plain = plain.list()[1].text().unwrap().to_owned();
    // What it makes of a handshake depends on chance: an error, or waiting for the end of a line.
    let asking = Asking { patience: Duration::from_secs(2), ..Asking::default() };
    let address = Address::parse(&format!("rediss://localhost:{plain}?cacert={ca}")).unwrap();
    let error =
        sources::open(&address, &asking, &Surroundings::default()).err().unwrap().to_string();
    assert!(error.contains("redis://"), "{error}");
}
