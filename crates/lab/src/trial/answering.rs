//! That the server which answers at an address is the one that works in a directory here.
//!
//! Two servers may name the same directory: on two machines, in two containers. The one that
//! answers is asked, over one connection, who serves that connection. As long as it is open, the
//! kernel here has to know that process or thread as one of the local server's.
//!
//! Deliberately absent: Redis, which tells its process (`redis.rs`).

use std::path::Path;

use tiersmith_awr::sources::{self, Address, Asking, Surroundings};

use super::plan::Database;
use super::service;
use crate::process::Identity;

/// What to ask for the process or the thread that serves this connection, the first that the server
/// knows.
fn questions(database: Database) -> &'static [&'static str] {
    match database {
        Database::Postgres => &["SELECT pg_backend_pid()::text"],
        Database::Mysql => &[
            // MariaDB.
            "SELECT TID AS t FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()",
            // MySQL, whose performance schema may be off.
            "SELECT THREAD_OS_ID AS t FROM performance_schema.threads WHERE PROCESSLIST_ID = \
             CONNECTION_ID()",
        ],
        Database::Redis => &[],
    }
}

/// Whether the server at this address works in `home` here; why not.
pub(super) fn is_here(address: &Address, database: Database, home: &Path) -> Result<(), String> {
    if database == Database::Redis {
        return Ok(());
    }
    let mut why = String::new();
    for question in questions(database) {
        let asking = Asking { patience: super::plan::ANSWER, ..Asking::default() };
        let around = Surroundings::of_process();
        let look = |answer: &[String]| {
            let number = answer.first().and_then(|number| number.parse::<u32>().ok());
            number.filter(|number| *number > 0).map(|number| serves(number, database, home))
        };
        match sources::ask_and_look(address, &asking, &around, question, look) {
            Ok(Some(true)) => return Ok(()),
            Ok(Some(false)) => {
                return Err(format!(
                    "the server that answers is none of those that work in {} here: it is on \
                     another machine, or in a container",
                    home.display()
                ));
            }
            Ok(None) => why = "it does not tell which process serves a connection".to_owned(),
            Err(e) => why = e.to_string(),
        }
    }
    Err(format!(
        "it cannot be shown that the server which answers is the one that works in {} here: {why}. \
         MySQL tells it by its performance schema, which the user must be allowed to read",
        home.display()
    ))
}

/// Whether a process or thread of this number belongs to a server in `home`.
fn serves(number: u32, database: Database, home: &Path) -> bool {
    let servers = service::processes_in(home);
    match database {
        // Each session has a process, which works in the directory too.
        Database::Postgres => Identity::of(number).is_some_and(|one| servers.contains(&one)),
        Database::Mysql => servers
            .iter()
            .any(|server| Path::new(&format!("/proc/{}/task/{number}", server.pid)).exists()),
        Database::Redis => false,
    }
}
