//! What a trial does, as data: of which database, with which storage, by which steps.
//!
//! It is kept in the journal, so that whoever goes on or back needs nothing else. No password is in
//! it: an address with one is refused before a plan is made.
//!
//! Deliberately absent: how steps are done (`run.rs`), how a server is stopped (`service.rs`).

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tiersmith_awr::sources::{self, Address, Asking, Product, Surroundings};
use tiersmith_dir::PathText;

use super::copy::OnCopy;
use super::which::Which;
use crate::ByteSize;
use crate::error::Result;

/// How long a server may take to stop or to start if nobody says: it writes a checkpoint, or
/// recovers.
const PATIENCE: Duration = Duration::from_secs(1200);
/// How long a server may take for one answer.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The address of the database.
    pub url: String,
    /// The fast storage.
    pub fast: PathBuf,
    /// Bytes of the tier.
    pub size: Option<ByteSize>,
    /// How long each period is.
    pub length_ms: Option<u64>,
    /// The load.
    pub load: Vec<String>,
    /// Whether the tier stays.
    pub keep: bool,
    /// How long the server may take to stop or to start.
    pub patience_ms: Option<u64>,
    /// The commands that stop and start the server.
    pub commands: Option<(String, String)>,
    /// The directory of a copy that it is tried on; nothing: on the database itself.
    pub on_copy: Option<PathBuf>,
    /// What the user says of fast storage that does not survive a power cut.
    pub loses: Option<Loses>,
}

/// What a tier is that a power cut takes away: only a copy of a database is tried on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loses {
    /// It stands for persistent memory, and every figure says so.
    Emulated,
    /// It keeps clean copies only.
    Volatile,
}

impl Loses {
    /// The option of `tiersmith attach`.
    pub fn option(self) -> &'static str {
        match self {
            Loses::Emulated => "--emulate",
            Loses::Volatile => "--volatile",
        }
    }
}

/// What was found, and what would be done.
#[derive(Debug, Serialize)]
pub struct Found {
    /// What would be done.
    pub plan: Plan,
    /// Why it is not done.
    pub refusals: Vec<String>,
    /// What to think about first.
    pub warnings: Vec<String>,
    /// What happens to the server, how long it takes, what a power cut could cost.
    pub notes: Vec<String>,
}

impl Found {
    /// Nothing speaks against it yet.
    pub(super) fn new(plan: Plan) -> Found {
        Found { plan, refusals: Vec::new(), warnings: Vec::new(), notes: Vec::new() }
    }
}

/// How the server is stopped and started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Service {
    /// A unit of the system's service manager.
    Systemd {
        /// Its name.
        unit: String,
    },
    /// PostgreSQL's own program, as the account that the server runs as.
    PgCtl {
        /// The program.
        program: PathText,
        /// User and group of the server.
        uid: u32,
        /// See `uid`.
        gid: u32,
        /// The directory that the server was given with `-D`.
        directory: PathText,
        /// The other arguments it was started with.
        arguments: Vec<String>,
        /// Its environment as far as it matters: language, time zone, libraries.
        environment: Vec<String>,
        /// Where its messages go.
        log: PathText,
    },
    /// The user's commands, for `sh -c`.
    Commands {
        /// Stops it.
        stop: String,
        /// Starts it.
        start: String,
    },
    /// There is none: SQLite, whose files the load opens.
    NoServer,
}

impl Service {
    /// For people: how it is stopped and started.
    pub fn text(&self) -> String {
        match self {
            Service::Systemd { unit } => format!("systemctl stop {unit}, systemctl start {unit}"),
            Service::PgCtl { program, uid, .. } => format!("{} as user {uid}", program.0.display()),
            Service::Commands { stop, start } => format!("`{stop}`, `{start}`"),
            Service::NoServer => "no server".to_owned(),
        }
    }
}

/// What a trial does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The address of the database, or the path of a SQLite file for people.
    pub url: String,
    /// Its directory.
    pub home: PathText,
    /// The fast storage.
    pub fast: PathText,
    /// Bytes of the tier, as given; without it as `tiersmith attach` has it.
    pub size: Option<String>,
    /// How long each period is recorded; without it as long as the load runs.
    pub length_ms: Option<u64>,
    /// The command that is the load; none: the database's own users.
    pub load: Vec<String>,
    /// Where it is run.
    pub directory: PathText,
    /// Whether the tier stays attached at the end.
    pub keep: bool,
    /// How long the server may take to stop or to start; without it twenty minutes.
    #[serde(default)]
    pub patience_ms: Option<u64>,
    /// How the server is stopped and started.
    pub service: Service,
    /// What the tier is, if a power cut takes it away.
    #[serde(default)]
    pub loses: Option<Loses>,
    /// Which directory its home is.
    #[serde(default)]
    pub home_is: Option<Which>,
    /// The copy that address and home are of, if they are not the database's own.
    #[serde(default)]
    pub copy: Option<OnCopy>,
}

/// A step. Each is recorded before it is taken, and can be taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Make a copy of the database.
    Copy,
    /// Record the plain database.
    Baseline,
    /// Stop the server.
    Stop,
    /// Attach the tier.
    Attach,
    /// Start the server on it.
    Start,
    /// Record the attached database.
    Measure,
    /// Stop the server again.
    StopAgain,
    /// Detach the tier.
    Detach,
    /// Start the server on the plain directory.
    StartAgain,
    /// Take the copy away.
    Remove,
    /// Write the page.
    Report,
    /// Bring the plain database back, or take the copy away, from wherever the trial is.
    Undo,
}

impl Step {
    /// As in the journal.
    pub fn name(self) -> &'static str {
        match self {
            Step::Copy => "copy",
            Step::Baseline => "baseline",
            Step::Stop => "stop",
            Step::Attach => "attach",
            Step::Start => "start",
            Step::Measure => "measure",
            Step::StopAgain => "stop-again",
            Step::Detach => "detach",
            Step::StartAgain => "start-again",
            Step::Remove => "remove",
            Step::Report => "report",
            Step::Undo => "undo",
        }
    }

    /// What happens, for people.
    pub fn text(self) -> &'static str {
        match self {
            Step::Copy => "copy the database, which goes on undisturbed",
            Step::Baseline => "record the database as it is",
            Step::Stop => "stop the server",
            Step::Attach => "attach the fast storage",
            Step::Start => "start the server on it",
            Step::Measure => "record the database with the fast storage",
            Step::StopAgain => "stop the server",
            Step::Detach => "detach the fast storage",
            Step::StartAgain => "start the server as it was",
            Step::Remove => "stop the copy, and remove it",
            Step::Report => "compare the two periods",
            Step::Undo => "bring the plain database back",
        }
    }
}

/// Which database this is, once connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// PostgreSQL.
    Postgres,
    /// MariaDB or MySQL.
    Mysql,
    /// Redis or Valkey.
    Redis,
}

impl Database {
    /// The kind of database at an address; nothing if there is no trial of it.
    pub fn of(address: &Address) -> Option<Database> {
        match address.product {
            Product::PostgreSql => Some(Database::Postgres),
            Product::MySql => Some(Database::Mysql),
            Product::Redis => Some(Database::Redis),
            Product::Machine => None,
        }
    }

    /// The question for its directory.
    pub fn directory(self) -> &'static str {
        match self {
            Database::Postgres => "SHOW data_directory",
            Database::Mysql => "SELECT @@datadir AS d",
            Database::Redis => "CONFIG GET dir",
        }
    }

    /// What it answered: its directory, or nothing.
    pub fn directory_of(self, answers: &[Vec<String>]) -> String {
        let mut rows = answers.iter().flatten();
        // Redis names the setting first.
        let row = if self == Database::Redis { rows.nth(1) } else { rows.next() };
        row.cloned().unwrap_or_default()
    }
}

impl Plan {
    /// What is wished, of the database at an address whose directory is `home`.
    pub(super) fn of(wishes: &Wishes, url: String, home: PathBuf, service: Service) -> Plan {
        Plan {
            url,
            home: PathText(home),
            fast: PathText(wishes.fast.canonicalize().unwrap_or_else(|_| wishes.fast.clone())),
            size: wishes.size.map(|size| size.to_string()),
            length_ms: wishes.length_ms,
            load: wishes.load.clone(),
            directory: PathText(std::env::current_dir().unwrap_or_else(|_| "/".into())),
            keep: wishes.keep,
            patience_ms: wishes.patience_ms,
            service,
            loses: wishes.loses,
            home_is: None,
            copy: None,
        }
    }

    /// The steps of the whole trial, in order.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self.copy.iter().map(|_| Step::Copy).collect();
        steps.extend([Step::Baseline, Step::Stop, Step::Attach, Step::Start, Step::Measure]);
        if !self.keep {
            let last = if self.copy.is_some() { Step::Remove } else { Step::StartAgain };
            steps.extend([Step::StopAgain, Step::Detach, last]);
        }
        steps.push(Step::Report);
        if !self.has_server() {
            let of_server = [Step::Stop, Step::Start, Step::StopAgain, Step::StartAgain];
            steps.retain(|step| !of_server.contains(step));
        }
        steps
    }

    /// Whether there is a server to stop and to start.
    pub fn has_server(&self) -> bool {
        self.service != Service::NoServer
    }

    /// How long the server may take to stop, or to start.
    pub fn patience(&self) -> Duration {
        self.patience_ms.map_or(PATIENCE, Duration::from_millis)
    }

    /// The profile of its files, where they might not tell.
    ///
    /// # Errors
    /// The address cannot be read.
    pub fn profile(&self) -> Result<Option<&'static str>> {
        if !self.has_server() {
            return Ok(Some("sqlite"));
        }
        let is_redis = Database::of(&Address::parse(&self.url)?) == Some(Database::Redis);
        Ok(is_redis.then_some("redis"))
    }

    /// Asks the database.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn ask(&self, questions: &[&str]) -> Result<Vec<Vec<String>>> {
        ask(&Address::parse(&self.url)?, questions)
    }
}

/// Asks the database at an address.
///
/// # Errors
/// It cannot be reached, or refuses.
pub fn ask(address: &Address, questions: &[&str]) -> Result<Vec<Vec<String>>> {
    ask_patiently(address, questions, ANSWER)
}

/// The same for an answer that may take so long.
///
/// # Errors
/// As [`ask`].
pub fn ask_patiently(
    address: &Address,
    questions: &[&str],
    patience: Duration,
) -> Result<Vec<Vec<String>>> {
    let asking = Asking { patience, ..Asking::default() };
    Ok(sources::ask(address, &asking, &Surroundings::of_process(), questions)?)
}
