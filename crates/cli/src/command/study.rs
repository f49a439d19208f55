//! `tiersmith study`: cases on this machine, each beside its baseline.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tiersmith_lab::ByteSize;
use tiersmith_lab::case::{self, Case, Load, SQLITE};
use tiersmith_lab::experiments::{self, Experiment, Here};
use tiersmith_lab::place::Leftovers;
use tiersmith_lab::probe::{Place, Queue};
use tiersmith_lab::server;
use tiersmith_lab::study::recovery;
use tiersmith_lab::study::result::StudyResult;
use tiersmith_lab::study::survey::{self, Wanted};
use tiersmith_lab::study::{
    self, FULL_ROUNDS, FULL_SECONDS, Options, SECONDS, html, survey_page, text,
};
use tiersmith_lab::workload::{keys, oltp, tpcc};

use super::written::{Readers, write_file};
use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};
use crate::progress::Line;

/// In place of cases: every published experiment.
const EVERYTHING: &str = "all";

/// In place of cases: servers that are killed under load.
const RECOVERY: &str = "recovery";

/// How the program was called.
fn called() -> Vec<String> {
    std::iter::once("tiersmith".to_owned()).chain(std::env::args().skip(1)).collect()
}

/// Run published experiments on this machine: a database under load, without and with a fast tier
///
/// The database is SQLite, or with --target one of the servers that are installed here: it is
/// started in a directory of its own, on a socket of its own, and no cluster that is there is
/// touched. Each case is run on a database of its own in a directory of its own, and compared with
/// its baseline: what Oracle calls Compare Periods. Beside it stands what public documents printed
/// for the same question. Everything made is removed, also after Ctrl-C.
///
/// Without CASE the default set runs. A CASE is an id (see --list), the name of a set (`redo`), or
/// the path of a case file; its baseline runs as well. `all` runs every published experiment that
/// can run here, and writes one page. What cannot run here (no root, no FUSE) is left out with the
/// reason. `recovery` kills servers under load and times them.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith study                              the default set, under three minutes
  tiersmith study --list                       what cases there are
  tiersmith study --list --all                 what was published, and what stands for it here
  tiersmith study all --quick --html all.html  all of it that can be run here, on one page, in \
  some minutes
  tiersmith study recovery --target postgres   kill -9 under load: time to the first answer, with \
  and without the tier
  tiersmith study redo-on-tier --seconds 30    one case and its baseline, longer
  tiersmith study redo --target postgres       where the redo of a PostgreSQL lies: disk, medium, \
  mount
  tiersmith study redo --target mariadb --load read-write --clients 8
  tiersmith study tpcc --target postgres --warehouses 4 --clients 8
  tiersmith study redo --target redis --load mixed --clients 200 --pipeline 16
  tiersmith study --target kv                  tiersmith kv beside a Redis that syncs each SET
  tiersmith study keys --target kv --ratio 3:7 the same, Redis and Valkey, appendfsync always, \
  everysec, no
  tiersmith study redo --target postgres --load ycsb-a --clients 8 --scale 256M
  tiersmith study redo --target mariadb --load oltp-read-write --tables 6 --buffer-pct 10 \
  --clients 12
  tiersmith study redo --target postgres --load client-copy --application-pct 34
  tiersmith study redo --target postgres --load oltp-read-write --clients 8 --cross-check
                                               sysbench beside our clients, in each case
  tiersmith study --home /data --fast /mnt/pmem0 --html report.html
  tiersmith study --show redo-on-tier > mine.toml; edit it; tiersmith study ./mine.toml
  tiersmith study --snapshots DIR; tiersmith awr compare --in DIR 1 2 3 4
  tiersmith study --json result.json; later: tiersmith study --read result.json

Where things go: home is --home, else the build directory or /var/tmp. The tier is --fast, else a \
DAX file system if one is
mounted, else /dev/shm if it is large enough, else a file beside the home. A tier that is not \
persistent memory is labelled
EMULATED wherever a figure of it appears.

Exit codes: 0 the study ran (read its warnings: figures that cannot be trusted are marked with \
(?)); 1 it ran, but an outside program
of --cross-check failed, and it says why; 2 error; 128 and the signal's number when it was \
interrupted.")]
pub(crate) struct Study {
    /// Cases to run: ids, names of sets, or paths of case files
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// The same as CASE
    #[arg(long = "case", value_name = "CASE")]
    more_cases: Vec<String>,
    /// The database: sqlite, postgres, mariadb, redis, kv (tiersmith kv, with Redis and Valkey
    /// beside it) [default: sqlite; of `all`: each that is installed]
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// What a server is loaded with: slob; tpcb, simple-update, select-only (pgbench); read-write,
    /// read-only, write-only (sysbench); set (redis-benchmark), mixed (GET and SET as
    /// memtier_benchmark mixes them). By our own clients, on sqlite too: tpcc (TPC-C's
    /// transactions); ycsb-a to ycsb-f; oltp-read-only, oltp-read-write, oltp-write-only (like
    /// sysbench's); client-copy (SAP's)
    #[arg(long, value_name = "NAME")]
    load: Option<Load>,
    /// Warehouses of the load tpcc [default: 1]
    #[arg(long, value_name = "N")]
    warehouses: Option<u32>,
    /// Clients of the load tpcc wait as people do: to type, and to think
    #[arg(long)]
    think_time: bool,
    /// Tables of the loads oltp-* [default: 4]
    #[arg(long, value_name = "N")]
    tables: Option<u32>,
    /// The database's page cache in per cent of the tables of the loads oltp-* [default: as the
    /// case says]
    #[arg(long, value_name = "N")]
    buffer_pct: Option<u32>,
    /// Of a hundred seconds of the load client-copy, how many the application takes; the published
    /// study had 34 [default: 0]
    #[arg(long, value_name = "N")]
    application_pct: Option<u32>,
    /// Clients of a load other than slob: 1 to 90, of redis and kv 1 to 1000
    #[arg(long, value_name = "N")]
    clients: Option<u32>,
    /// SETS:GETS of the load mixed [default: 1:10]
    #[arg(long, value_name = "S:G")]
    ratio: Option<keys::Ratio>,
    /// Requests that a client of mixed or set sends at once [default: 1]
    #[arg(long, value_name = "N")]
    pipeline: Option<u32>,
    /// Bytes of a value of mixed [default: 32] or set
    #[arg(long, value_name = "SIZE")]
    value_size: Option<ByteSize>,
    /// Keys of the load mixed: gaussian, uniform, sequential [default: gaussian]
    #[arg(long, value_name = "NAME")]
    key_pattern: Option<keys::Pattern>,
    /// Slow the home down to a latency profile: 15k-disk-array, all-flash-array,
    /// cloud-network-volume. Figures are labelled MODELLED
    #[arg(long, value_name = "NAME")]
    home_model: Option<String>,
    /// List the cases of the target and end
    #[arg(long)]
    list: bool,
    /// With --list: every published experiment, what stands for it here, and what that needs
    #[arg(long, requires = "list", conflicts_with = "cases")]
    all: bool,
    /// Print a case's file, to copy and change, and end
    #[arg(long, value_name = "CASE")]
    show: Option<String>,
    /// Print the result that an earlier study wrote with --json, and make its page again, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cases", "more_cases", "full"])]
    read: Option<PathBuf>,
    /// A directory on the slower storage
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// The fast storage: a directory, a new or empty file, a DAX device, or a block device that has
    /// nothing. A device or a file on a disk is a durable tier, a file in memory is EMULATED
    #[arg(long, value_name = "PATH")]
    fast: Option<PathBuf>,
    /// Bytes of each database's tier (64M, 1G); default: enough for what the case puts there
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Let whatever the tier is on stand for persistent memory; figures are labelled EMULATED
    #[arg(long)]
    emulate: bool,
    /// Seconds measured per run [default: 8; with --full 60]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Rounds; the median of each case is shown [default: 1; with --full 3]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Run the same load by an outside program, beside our own, in each case: sysbench, pgbench,
    /// memtier_benchmark, redis-benchmark, where it is installed. The result has both figures and
    /// their ratio (of storage: `tiersmith probe --cross-check`, by fio)
    #[arg(long)]
    cross_check: bool,
    /// With `all`: short runs of small databases, each experiment on one target
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Every case, at length
    #[arg(long)]
    full: bool,
    /// SLOB's SCALE instead of the cases' own: bytes of a schema's table
    #[arg(long, value_name = "SIZE")]
    scale: Option<ByteSize>,
    /// Schemas instead of the cases' own
    #[arg(long, value_name = "N")]
    schemas: Option<u32>,
    /// THREADS_PER_SCHEMA instead of the cases' own
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Operations a second at fixed times instead of a closed loop; response times are then
    /// measured from the time each was due
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// The seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the result as JSON to FILE (`-`: to standard output instead of the text)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the page to FILE [default: tiersmith-study.html in the current directory]
    #[arg(long, value_name = "FILE", conflicts_with = "no_html")]
    html: Option<PathBuf>,
    /// Write no page
    #[arg(long)]
    no_html: bool,
    /// Keep the snapshots of every run in a workload repository, for `tiersmith awr`
    #[arg(long, value_name = "DIR")]
    snapshots: Option<PathBuf>,
    /// Run the load of a task until standard input ends: what `recovery` starts, and kills
    #[arg(long, hide = true, value_name = "FILE", exclusive = true)]
    carry_out: Option<PathBuf>,
}

impl Study {
    pub(super) fn run(&self, leftovers: &Leftovers) -> Result<Outcome> {
        if let Some(task) = &self.carry_out {
            tiersmith_lab::target::sqlite::carry_out(task)?;
            return Ok(Outcome::Good);
        }
        // The key-value server of a study is this program.
        if let Ok(program) = std::env::current_exe() {
            server::program_is(program);
        }
        if self.all {
            return self.list_published();
        }
        if self.list {
            return self.list();
        }
        if let Some(id) = &self.show {
            let known = || {
                case::choose_for(self.target(), std::slice::from_ref(id), false)
                    .map(|_| String::new())
            };
            let text = case::text_of(id).map_or_else(known, |text| Ok(text.to_owned()))?;
            print(&text)?;
            return Ok(Outcome::Good);
        }
        if let Some(file) = &self.read {
            return self.read_again(file);
        }
        let names: Vec<String> = self.cases.iter().chain(&self.more_cases).cloned().collect();
        if self.cross_check && (names == [EVERYTHING] || names == [RECOVERY]) {
            return Err(Error::Usage(format!(
                "--cross-check is for cases, and `{}` is none; name a case and a load, for \
                 instance: tiersmith study redo --target postgres --load oltp-read-write \
                 --cross-check",
                names.join(" ")
            )));
        }
        if names == [EVERYTHING] {
            return self.survey(leftovers);
        }
        if names == [RECOVERY] {
            return self.recovery(leftovers);
        }
        let options = self.options(case::choose_for(self.target(), &names, self.full)?);
        self.can_write()?;
        let line = Line::new();
        let result = study::run(&options, leftovers.clone(), &line);
        line.clear();
        let result = result?;
        let to_standard_output = self.json.as_deref().is_some_and(|path| path.as_os_str() == "-");
        if let Some(path) = &self.json
            && !to_standard_output
        {
            write_file(path, &result.to_json()?, Readers::AsUsual)?;
        }
        self.show_result(&result, to_standard_output)
    }

    fn options(&self, cases: Vec<Case>) -> Options {
        let mut options = Options::new(cases);
        options.seconds = self.seconds.unwrap_or(if self.full { FULL_SECONDS } else { SECONDS });
        options.rounds = self.rounds.unwrap_or(if self.full { FULL_ROUNDS } else { 1 });
        options.scale = self.scale;
        options.tier_size = self.size;
        options.schemas = self.schemas;
        options.threads_per_schema = self.threads;
        options.arrivals_per_s = self.rate;
        options.seed = self.seed;
        options.load = self.load;
        options.clients = self.clients;
        options.keys = keys::Instead {
            ratio: self.ratio,
            pipeline: self.pipeline,
            value: self.value_size,
            pattern: self.key_pattern,
        };
        options.tpcc = tpcc::Instead { warehouses: self.warehouses, think: self.think_time };
        options.oltp = oltp::Instead { tables: self.tables, buffer_pct: self.buffer_pct };
        options.application_pct = self.application_pct;
        options.home_model = self.home_model.clone();
        options.home = self.home.clone();
        options.fast = self.fast.clone();
        options.emulate = self.emulate;
        options.snapshots = self.snapshots.clone();
        options.cross_check = self.cross_check;
        options.command = called();
        options
    }

    /// Writes the page, and prints the result.
    fn show_result(&self, result: &StudyResult, as_json: bool) -> Result<Outcome> {
        let page = self.page();
        if let Some(page) = &page {
            write_file(page, &html::render(result)?, Readers::AsUsual)?;
        }
        let outcome = if result.cross_check.as_ref().is_some_and(|check| check.has_failed()) {
            Outcome::Findings
        } else {
            Outcome::Good
        };
        if as_json {
            print(&format!("{}\n", result.to_json()?))?;
            return Ok(outcome);
        }
        print(&text::render(result))?;
        if let Some(page) = page {
            let page = std::fs::canonicalize(&page).unwrap_or(page);
            print(&format!("\npage: {}\n", page.display()))?;
        }
        Ok(outcome)
    }

    fn read_again(&self, file: &Path) -> Result<Outcome> {
        let json = std::fs::read_to_string(file).map_err(|source| Error::Io {
            what: "read the result",
            path: file.into(),
            source,
        })?;
        let result = StudyResult::from_json(&json, &file.display().to_string())?;
        self.can_write()?;
        self.show_result(&result, self.json.is_some())
    }

    fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(SQLITE)
    }

    fn page(&self) -> Option<PathBuf> {
        (!self.no_html)
            .then(|| self.html.clone().unwrap_or_else(|| PathBuf::from("tiersmith-study.html")))
    }

    /// Finds out before minutes of measuring that a result could not be written.
    fn can_write(&self) -> Result<()> {
        for path in
            self.json.iter().chain(self.page().iter()).filter(|path| path.as_os_str() != "-")
        {
            let dir =
                path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if path.is_dir()
                || !dir.is_dir()
                || rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_err()
            {
                return Err(Error::Usage(format!(
                    "cannot write {}: {} is not a directory that this user can write to; name \
                     another file",
                    path.display(),
                    dir.display()
                )));
            }
        }
        Ok(())
    }

    /// Runs every published experiment that can be run here.
    fn survey(&self, leftovers: &Leftovers) -> Result<Outcome> {
        self.can_write()?;
        let line = Line::new();
        let wanted = Wanted {
            quick: self.quick,
            seconds: self.seconds,
            target: self.target.clone(),
            home: self.home.clone(),
            fast: self.fast.clone(),
            emulate: self.emulate,
            command: called(),
            devices: self.devices(leftovers, &line)?,
        };
        let survey = survey::run(&wanted, leftovers, &line);
        line.clear();
        let survey = survey?;
        self.show(&survey, &survey_page::render_text(&survey), &survey_page::render_html(&survey))
    }

    /// Kills servers under load.
    fn recovery(&self, leftovers: &Leftovers) -> Result<Outcome> {
        self.can_write()?;
        let wanted = recovery::Wanted {
            target: self.target.clone(),
            load: self.load,
            clients: self.clients,
            seconds: self.seconds,
            scale: self.scale,
            home: self.home.clone(),
            fast: self.fast.clone(),
            emulate: self.emulate,
        };
        let line = Line::new();
        let found = recovery::run(&wanted, leftovers, &line);
        line.clear();
        let found = found?;
        self.show(&found, &recovery::render_text(&found), &recovery::render_html(&found))
    }

    /// Writes the page and the JSON, and prints one of the two.
    fn show(&self, found: &impl Serialize, as_text: &str, as_page: &str) -> Result<Outcome> {
        if let Some(page) = self.page() {
            write_file(&page, as_page, Readers::AsUsual)?;
        }
        match &self.json {
            Some(path) if path.as_os_str() == "-" => print_json(found)?,
            Some(path) => {
                let json = serde_json::to_string_pretty(found).map_err(|e| {
                    Error::Usage(format!("the result cannot be written as JSON: {e}"))
                })?;
                write_file(path, &json, Readers::AsUsual)?;
            }
            None => {}
        }
        if self.json.as_deref().is_none_or(|path| path.as_os_str() != "-") {
            print(as_text)?;
            if let Some(page) = self.page() {
                let page = std::fs::canonicalize(&page).unwrap_or(page);
                print(&format!("\npage: {}\n", page.display()))?;
            }
        }
        Ok(Outcome::Good)
    }

    /// The home's directory and the medium's, as the published study of devices measured its own.
    fn devices(&self, leftovers: &Leftovers, line: &Line) -> Result<Vec<Place>> {
        let queue = Queue { threads: 4, depth: 16, reads_pct: 50 };
        let seconds = if self.quick { 0.05 } else { 0.5 };
        let fast = self.fast.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
        let mut places = Vec::new();
        for dir in [self.home.clone().unwrap_or_else(|| PathBuf::from(".")), fast] {
            let Ok(dir) = std::fs::canonicalize(&dir) else { continue };
            match super::probe::measure(&dir, seconds, queue, leftovers, line, None) {
                Ok(place) => places.push(place),
                Err(e) if leftovers.stopped() => return Err(e),
                // What is too small, or cannot be written, is no reason not to run the rest.
                Err(_) => {}
            }
        }
        Ok(places)
    }

    fn list_published(&self) -> Result<Outcome> {
        let all = experiments::all()?;
        if self.json.is_some() {
            print_json(&all)?;
        } else {
            print(&published(&all))?;
        }
        Ok(Outcome::Good)
    }

    fn list(&self) -> Result<Outcome> {
        let cases: Vec<Case> = case::choose_for(self.target(), &[], true)?;
        if self.json.is_some() {
            print_json(&cases)?;
            return Ok(Outcome::Good);
        }
        let mut out = String::new();
        let width = cases.iter().map(|case| case.id.len()).max().unwrap_or(0).max(18);
        for case in cases {
            let when = if case.by_default { "default" } else { "--full" };
            let pcts: Vec<String> = case.update_pcts.iter().map(u32::to_string).collect();
            let load = match case.load() {
                Load::Slob => format!("UPDATE_PCT {}", pcts.join(" and ")),
                load => format!("load {}", load.name()),
            };
            out.push_str(&format!("{:<width$} {} ({when}; {load})\n", case.id, case.title));
            text::paragraph(&mut out, "    ", &case.about);
            if let Some(baseline) = &case.baseline {
                out.push_str(&format!("    Compared with {baseline}.\n"));
            }
            if !case.published.is_empty() {
                out.push_str(&format!("    Published: {}.\n", case.published.join(", ")));
            }
        }
        print(&out)?;
        Ok(Outcome::Good)
    }
}

/// Every experiment below its document.
fn published(all: &[Experiment]) -> String {
    let here = all.iter().filter(|one| matches!(one.here, Here::Case { .. })).count();
    let mut out = format!(
        "{} published experiments: {here} have something that stands for them here, {} have \
         nothing.\n",
        all.len(),
        all.len() - here
    );
    let mut document = "";
    for one in all {
        let source = &one.source;
        if source.title != document {
            document = &source.title;
            out.push_str(&format!("\n{} ({}, {})\n", source.title, source.publisher, source.year));
        }
        out.push_str(&format!("\n  {}\n", one.id));
        text::paragraph(&mut out, "    ", &format!("{} ({})", one.experiment, one.shown_in));
        match &one.here {
            Here::Missing(why) => text::paragraph(&mut out, "    Nothing here: ", why),
            Here::Case { case, beside, targets, load, needs, differs, .. } => {
                let load = load.map(|load| format!(", load {}", load.name())).unwrap_or_default();
                let needs = if needs.is_empty() {
                    String::new()
                } else {
                    format!("; needs {}", needs.join(", "))
                };
                let is = format!("{case} on {}{load}{needs}", targets.join(", "));
                text::paragraph(&mut out, "    Here: ", &is);
                if !beside.is_empty() {
                    text::paragraph(&mut out, "    Beside it: ", &beside.join(", "));
                }
                text::paragraph(&mut out, "    Differs: ", differs);
            }
        }
    }
    out
}
