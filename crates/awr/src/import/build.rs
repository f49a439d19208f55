//! Which table of a report holds what: grids in, two snapshots out.
//!
//! Tables are known by their columns, and by a few words of their heading where the same columns
//! mean different things (foreground and background waits). A table that was taken is struck off;
//! what is left is listed.
//!
//! | taken | into |
//! |---|---|
//! | database, instance, host, snapshots | source, host, instants |
//! | time model (`model.rs`) | DB time, DB CPU, and a counter for each other line |
//! | wait events, else top timed events | waits, without histograms |
//! | foreground wait classes (`model.rs`) | what the events of a class leave of it |
//! | instance activity, system statistics of RAC (`activity.rs`) | counters and levels |
//! | operating system statistics | the host's processor time |
//! | IO by file type | reads and writes; their times are not in the report |
//! | SQL by elapsed time | statements, literals taken out |
//! | parameters | settings |
//! | what is worth keeping as it stands (`printed.rs`) | printed tables |
//!
//! A row whose figure is hidden behind `####`, is no number, or is more than there is room for, is
//! listed; so is what one name stands for twice. A sum of which one part is not known is not known.
//!
//! Invariant: a figure that is not in the report is absent from the snapshot, never zero; what is
//! not taken is listed.

use std::collections::{BTreeMap, BTreeSet};

use tiersmith_events::WaitClass;

use super::class::{class_named, class_of, full_name};
use super::{Grid, Grids, Imported, LeftOut, MOST_NAMES, PATH_BEGINS, value};
use crate::redact::Redaction;
use crate::snapshot::host::{CpuTimes, Cpus, Memory};
use crate::snapshot::statement::StatementStat;
use crate::{IoStat, Snapshot, Source, WaitStat};

/// The longest name that is taken from a report.
const LONGEST: usize = 200;

/// The last character of a name that was cut.
const CUT_OFF: char = '\u{2026}';

/// The longest value of a parameter that is taken.
const LONGEST_VALUE: usize = 2000;

/// A report being taken apart.
pub(super) struct Taking<'a> {
    pub(super) grids: Vec<Grid>,
    pub(super) taken: BTreeSet<usize>,
    text: &'a str,
    pub(super) snapshot: Snapshot,
    /// Sessions at the beginning.
    sessions_before: Option<u64>,
    /// The number that Oracle gave the first snapshot.
    number_before: Option<u64>,
    /// Levels at the beginning; those of the end are in the snapshot.
    pub(super) levels_before: BTreeMap<String, u64>,
    /// Rows whose figures the report hides behind `####` or does not print, or which are no
    /// numbers.
    pub(super) hidden: Vec<String>,
    /// What was beyond a bound.
    pub(super) left_out: LeftOut,
    /// Names of counters and levels that are taken.
    pub(super) names: BTreeSet<String>,
}

/// So many rows whose figures are not known are named.
const NAMED: usize = 20;

/// Two snapshots from the tables of a report; what is wrong with it if that cannot be.
pub(super) fn snapshots(kind: &'static str, read: Grids, text: &str) -> Result<Imported, String> {
    let snapshot = Snapshot::at(Source::default(), 0, 0);
    let Grids { grids, left_out } = read;
    let (taken, names, levels_before) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
    let hidden = Vec::new();
    let mut taking = Taking {
        grids,
        taken,
        text,
        snapshot,
        sessions_before: None,
        number_before: None,
        levels_before,
        hidden,
        left_out,
        names,
    };
    taking.identity();
    let (begin_s, elapsed_s) = taking.instants()?;
    taking.time();
    taking.events();
    taking.rest_of_classes();
    taking.activity();
    taking.machine();
    taking.files(elapsed_s);
    taking.parameters();
    taking.statements();
    taking.printed();
    let elapsed_ns = taking.finer_elapsed_ns(elapsed_s);
    for _ in 0..cut_names(&taking.snapshot) {
        taking.left_out.because("the end of a name that is longer than two hundred characters");
    }
    let left_out = taking.all_left_out();
    let (read, unknown) = taking.titles();
    let mut end = taking.snapshot;
    if end.waits.is_empty() && end.counters.is_empty() && end.db_time_ns.is_none() {
        return Err("none of its tables is known".to_owned());
    }
    end.taken_unix_ns = (begin_s + elapsed_s).saturating_mul(1_000_000_000);
    end.monotonic_ns = elapsed_ns;
    end.missing
        .push(format!("times of reads and writes by file, as sums: the {kind} has means only"));
    end.missing.extend(left_out.iter().cloned());
    end.check()?;
    let mut begin = end.clone();
    begin.taken_unix_ns = begin_s.saturating_mul(1_000_000_000);
    begin.monotonic_ns = 0;
    begin.sessions = taking.sessions_before;
    begin.printed_number = taking.number_before;
    begin.levels.retain_mut(|level| {
        let before = taking.levels_before.get(&level.name);
        level.value = before.copied().unwrap_or(level.value);
        before.is_some()
    });
    to_zero(&mut begin);
    Ok(Imported { kind, begin, end, read, unknown, left_out, whole: true })
}

/// The same snapshot before anything was counted.
fn to_zero(snapshot: &mut Snapshot) {
    snapshot.db_time_ns = snapshot.db_time_ns.map(|_| 0);
    snapshot.db_cpu_ns = snapshot.db_cpu_ns.map(|_| 0);
    snapshot.waits.iter_mut().for_each(|wait| (wait.count, wait.total_ns) = (0, 0));
    snapshot.counters.iter_mut().for_each(|counter| counter.value = 0);
    snapshot
        .io
        .iter_mut()
        .for_each(|io| io.numbers_mut().into_iter().for_each(|number| *number = 0));
    snapshot.statements.clear();
    snapshot.printed.clear();
    snapshot.files.clear();
    snapshot.host.cpu = snapshot.host.cpu.map(|_| CpuTimes::default());
}

/// A name as long as names may be; one that was cut ends with [`CUT_OFF`].
pub(super) fn short(text: &str) -> String {
    let text = text.trim();
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain([CUT_OFF]).collect()
}

/// How many names of a snapshot were cut.
fn cut_names(of: &Snapshot) -> usize {
    let is_cut = |name: &&str| name.ends_with(CUT_OFF) && name.chars().count() == LONGEST;
    let source = [&of.source.database, &of.source.instance, &of.source.version].map(String::as_str);
    let names = source
        .into_iter()
        .chain(of.waits.iter().map(|wait| wait.name.as_str()))
        .chain(of.counters.iter().map(|counter| counter.name.as_str()))
        .chain(of.levels.iter().map(|level| level.name.as_str()))
        .chain(of.io.iter().map(|io| io.file_class.as_str()))
        .chain(of.statements.iter().map(|statement| statement.id.as_str()));
    names.filter(is_cut).count()
}

pub(super) fn cell(row: &[String], at: Option<usize>) -> &str {
    at.and_then(|at| row.get(at)).map_or("", String::as_str)
}

impl Taking<'_> {
    /// Titles of the tables that were read, and of those that nobody knows.
    fn titles(&self) -> (Vec<String>, Vec<String>) {
        let (mut read, mut unknown) = (Vec::new(), Vec::new());
        for (index, grid) in self.grids.iter().enumerate() {
            let title = short(grid.section.split(" | ").next().unwrap_or_default());
            let list = if self.taken.contains(&index) { &mut read } else { &mut unknown };
            if !title.is_empty() && !grid.rows.is_empty() && !list.contains(&title) {
                list.push(title);
            }
        }
        (read, unknown)
    }

    /// What was left out, in lines.
    fn all_left_out(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.left_out.lines().collect();
        if !self.hidden.is_empty() {
            let more = self.hidden.len().saturating_sub(NAMED);
            let and = if more > 0 { format!(" and {more} more") } else { String::new() };
            let names = self.hidden[..self.hidden.len() - more].join("; ");
            lines.push(format!(
                "rows whose figures the report prints as #### or not at all, which are no numbers, \
                 or of which there are several: {names}{and}"
            ));
        }
        lines
    }

    /// Numbers of the grids that have all of these columns, each under one of its titles.
    pub(super) fn with(&self, columns: &[&[&str]]) -> Vec<usize> {
        let fits = |grid: &Grid| columns.iter().all(|titles| grid.column(titles).is_some());
        (0..self.grids.len()).filter(|index| fits(&self.grids[*index])).collect()
    }

    /// Of those the ones whose heading has these words.
    pub(super) fn about(&self, words: &str, columns: &[&[&str]]) -> Vec<usize> {
        let has = |index: &usize| self.grids[*index].section.to_lowercase().contains(words);
        self.with(columns).into_iter().filter(has).collect()
    }

    /// The first cell of a column, wherever it is.
    fn first(&mut self, titles: &[&str]) -> Option<String> {
        for index in self.with(&[titles]) {
            let grid = &self.grids[index];
            let found = grid
                .rows
                .iter()
                .map(|row| short(cell(row, grid.column(titles))))
                .find(|text| !text.is_empty());
            if found.is_some() {
                self.taken.insert(index);
                return found;
            }
        }
        None
    }

    /// The first cell of a column, in a table that also has another one.
    fn beside(&mut self, other: &str, title: &str) -> Option<String> {
        let index = self.with(&[&[other], &[title]]).first().copied()?;
        let grid = &self.grids[index];
        let found = grid
            .rows
            .iter()
            .map(|row| short(cell(row, grid.column(&[title]))))
            .find(|text| !text.is_empty())?;
        self.taken.insert(index);
        Some(found)
    }

    fn identity(&mut self) {
        // RAC has a plain `Name` beside an `Id`; Statspack a `Host` whose name stands under the
        // word `Name`.
        let database = self.first(&["DB Name", "Database"]).or_else(|| self.beside("Id", "Name"));
        let instance = self.first(&["Instance"]).unwrap_or_default();
        let started = self.first(&["Startup Time", "Startup"]).unwrap_or_default();
        let id = self.first(&["DB Id", "Id"]).unwrap_or_default();
        let release = self.first(&["Release"]);
        let host = self
            .first(&["Host Name"])
            .or_else(|| self.beside("Platform", "Name"))
            .or_else(|| self.first(&["Host"]));
        let platform = self.first(&["Platform"]);
        let number = |text: Option<String>| {
            text.and_then(|text| value::count(&text)).and_then(|n| u32::try_from(n).ok())
        };
        let threads = number(self.first(&["CPUs"]));
        let (cores, sockets) = (number(self.first(&["Cores"])), number(self.first(&["Sockets"])));
        let memory = self
            .first(&["Memory (GB)", "Memory(GB)", "Memory (G)"])
            .and_then(|text| value::number(&text));
        let rac = self.grids.iter().any(|grid| grid.column(&["I#"]).is_some());
        let source = &mut self.snapshot.source;
        source.database =
            database.filter(|name| !name.is_empty()).unwrap_or_else(|| instance.clone());
        source.product = if rac { "Oracle RAC" } else { "Oracle" }.to_owned();
        source.version = release.unwrap_or_default();
        source.instance = format!("{instance} started {started}");
        source.path = format!("{PATH_BEGINS} {id}").trim().to_owned();
        let machine = &mut self.snapshot.host;
        (machine.name, machine.platform) = (host, platform);
        machine.cpus = threads.map(|threads| Cpus {
            threads,
            cores: cores.unwrap_or(0),
            sockets: sockets.unwrap_or(0),
        });
        machine.memory = memory
            .map(|gb| Memory { total_bytes: (gb * 1_073_741_824.0) as u64, available_bytes: 0 });
    }

    /// What stands behind a label such as `Begin Snap:`, in a table or on a line.
    pub(super) fn labelled(&mut self, label: &str) -> Option<String> {
        for index in 0..self.grids.len() {
            let row = self.grids[index]
                .rows
                .iter()
                .find(|row| row.first().is_some_and(|cell| cell.trim() == label));
            if let Some(row) = row {
                let text = row[1..].join(" ");
                self.taken.insert(index);
                return Some(text);
            }
        }
        let lines = self.text.lines().take(2000);
        lines.map(str::trim).find_map(|line| Some(line.strip_prefix(label)?.trim().to_owned()))
    }

    /// When the interval began, and how long it is, in seconds.
    fn instants(&mut self) -> Result<(u64, u64), String> {
        let mut ends = [None, None];
        for (end, label) in ends.iter_mut().zip(["Begin Snap:", "End Snap:"]) {
            let text = self.labelled(label).unwrap_or_default();
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            *end = (0..words.len()).find_map(|at| {
                let time =
                    words.get(at + 1).filter(|word| word.contains(':')).copied().unwrap_or("");
                value::instant(&format!("{} {time}", words[at]))
            });
            let sessions = words
                .iter()
                .position(|word| word.contains(':'))
                .and_then(|at| value::count(words.get(at + 1)?));
            // It stands before the day.
            let number =
                words.first().filter(|_| words.len() > 1).and_then(|word| value::count(word));
            if label.starts_with("Begin") {
                (self.sessions_before, self.number_before) = (sessions, number);
            } else {
                (self.snapshot.sessions, self.snapshot.printed_number) = (sessions, number);
            }
        }
        if ends.iter().any(Option::is_none) {
            // RAC: a line for each instance.
            ends = [self.first(&["Begin Snap Time"]), self.first(&["End Snap Time"])]
                .map(|text| text.and_then(|text| value::instant(&text)));
            let grid = self.about("database summary", &[&["Begin"], &["End"]]).first().copied();
            let numbers = ["Begin", "End"].map(|title| {
                let grid = &self.grids[grid?];
                value::count(cell(grid.rows.first()?, grid.column(&[title])))
            });
            [self.number_before, self.snapshot.printed_number] = numbers;
        }
        let minutes = self
            .labelled("Elapsed:")
            .and_then(|text| value::leading(&text))
            .or_else(|| self.first(&["Elapsed Time(min)"]).and_then(|text| value::number(&text)));
        let by_clock = match ends {
            [Some(begin), Some(end)] => end.checked_sub(begin),
            _ => None,
        };
        let printed = minutes.map(|minutes| (minutes * 60.0).round() as u64);
        // The minutes are rounded to 0.6 s. Instants may be without seconds, or a clock was set
        // between them.
        let elapsed = by_clock
            .filter(|clock| printed.is_none_or(|printed| clock.abs_diff(printed) <= 1))
            .or(printed)
            .filter(|seconds| *seconds > 0);
        let elapsed = elapsed.ok_or("it does not say when its interval began and ended")?;
        let begin = ends[0].or_else(|| ends[1]?.checked_sub(elapsed)).unwrap_or(0);
        Ok((begin, elapsed))
    }

    fn events(&mut self) {
        let times: &[&str] =
            &["Total Wait Time (s)", "Total Wait Time (sec)", "Total(s)", "Time(s)", "Time (s)"];
        let columns: [&[&str]; 3] = [&["Event"], &["Waits"], times];
        let mut classes = std::collections::BTreeMap::new();
        for index in self.with(&[&["Event"], &["Wait Class", "Class"]]) {
            let grid = &self.grids[index];
            let (event, class) = (grid.column(&["Event"]), grid.column(&["Wait Class", "Class"]));
            for row in &grid.rows {
                if let Some(class) = class_named(cell(row, class)) {
                    classes.insert(full_name(cell(row, event)), class);
                }
            }
        }
        for (words, background) in
            [("foreground wait event", false), ("background wait event", true)]
        {
            for index in self.about(words, &columns) {
                self.take_events(index, times, background, &classes);
            }
        }
        if self.snapshot.waits.iter().all(|wait| wait.background) {
            let top = ["timed", "top 10 foreground"]
                .iter()
                .flat_map(|words| self.about(words, &columns))
                .next();
            if let Some(index) = top {
                self.take_events(index, times, false, &classes);
            }
        }
        // The top events are in the tables of all events; they were asked for their classes.
        let tops: Vec<usize> = ["timed", "top 10", "wait class"]
            .iter()
            .flat_map(|words| self.about(words, &[&["Waits"], times]))
            .collect();
        self.taken.extend(tops);
    }

    fn take_events(
        &mut self,
        index: usize,
        times: &[&str],
        background: bool,
        classes: &std::collections::BTreeMap<String, WaitClass>,
    ) {
        let grid = &self.grids[index];
        let (event, waits, time) =
            (grid.column(&["Event"]), grid.column(&["Waits"]), grid.column(times));
        let (instance, share) = (grid.column(&["I#"]), grid.column(&SHARES));
        let (of_all, all_ns) = match background {
            true => (grid.column(&SHARES_OF_BACKGROUND), self.background_ns()),
            false => (share, self.snapshot.db_time_ns.unwrap_or(0)),
        };
        // Totals are in whole seconds; the mean, which says more, has a unit of its own or one in
        // its title.
        let mean_in =
            [(&["Avg Wait"][..], None), (&["Avg wait (ms)", "Avg wt(ms)", "Avg(ms)"], Some("ms"))]
                .into_iter()
                .find_map(|(titles, unit)| Some((grid.column(titles)?, unit)));
        for row in &grid.rows {
            // Of RAC's rows the star is the sum of the others.
            if instance.is_some() && cell(row, instance) != "*" {
                continue;
            }
            let name = full_name(cell(row, event));
            // Without a count it is DB CPU or not an event; without both it is the rest of a line
            // above.
            if name.is_empty() || cell(row, waits).is_empty() {
                continue;
            }
            // A time that is left out is less than is printed. What is too wide for its column is
            // the longest of all, and not zero.
            let printed = cell(row, time);
            let total_ns = if printed.is_empty() { Some(0) } else { value::seconds_ns(printed) };
            let (Some(count), Some(total_ns)) = (value::count(cell(row, waits)), total_ns) else {
                self.hidden.push(name);
                continue;
            };
            // A count such as 1.2M is rounded itself.
            let exact = !cell(row, waits).contains(|c: char| c.is_ascii_alphabetic());
            let mean = mean_in.filter(|_| exact);
            let mean = mean.and_then(|(at, unit)| value::mean_ns(cell(row, Some(at)), unit));
            let total_ns =
                mean.and_then(|mean| value::finer(printed, count, mean)).unwrap_or(total_ns);
            let total_ns = value::by_share(printed, count, mean, cell(row, of_all), all_ns)
                .unwrap_or(total_ns);
            // Waits that are in no DB time have no share of it: whatever they are called, they are
            // idle.
            let in_db_time = self.snapshot.db_time_ns.unwrap_or(0);
            let no_share = share.is_some()
                && cell(row, share).is_empty()
                && total_ns > in_db_time / 100
                && in_db_time > 0;
            let class = match classes.get(&name) {
                Some(class) => *class,
                None if no_share && !background => WaitClass::Idle,
                None => class_of(&name),
            };
            if self.snapshot.waits.len() >= MOST_NAMES {
                self.left_out.because("an event behind the first five thousand");
                continue;
            }
            let key = (name.as_str(), class, background);
            if let Some(there) = self.snapshot.waits.iter().find(|wait| wait.key() == key) {
                // The same row in a second table is no other one.
                if (there.count, there.total_ns) != (count, total_ns) {
                    self.hidden.push(name);
                }
                continue;
            }
            self.snapshot.waits.push(WaitStat {
                name,
                class,
                background,
                help: String::new(),
                count,
                total_ns,
                max_ns: 0,
                bytes: 0,
                buckets: Vec::new(),
            });
        }
        self.taken.insert(index);
    }

    /// Operating system statistics, in hundredths of a second.
    fn machine(&mut self) {
        for index in self.with(&[&["Statistic"], &["Value", "Total"]]) {
            let grid = &self.grids[index];
            let (name, at) = (grid.column(&["Statistic"]), grid.column(&["Value", "Total"]));
            let of = |wanted: &str| {
                let row = grid
                    .rows
                    .iter()
                    .find(|row| cell(row, name).trim_start_matches('*').trim() == wanted)?;
                value::count(cell(row, at))
            };
            let ns =
                |wanted: &str| of(wanted).map(|hundredths| hundredths.saturating_mul(10_000_000));
            let (Some(user), Some(system), Some(idle)) =
                (ns("USER_TIME"), ns("SYS_TIME"), ns("IDLE_TIME"))
            else {
                continue;
            };
            // Oracle counts waiting for disks as idle.
            let waiting = ns("IOWAIT_TIME").unwrap_or(0);
            self.snapshot.host.cpu = Some(CpuTimes {
                user_ns: user,
                system_ns: system,
                idle_ns: idle.saturating_sub(waiting),
                iowait_ns: waiting,
                steal_ns: 0,
            });
            self.taken.insert(index);
        }
    }

    fn files(&mut self, elapsed_s: u64) {
        for index in self
            .with(&[
                &["Filetype Name"],
                &["Reads: Data", "Reads:  Data"],
                &["Writes: Data", "Writes:  Data"],
            ])
            .into_iter()
            .take(1)
        {
            let grid = &self.grids[index];
            let name = grid.column(&["Filetype Name"]);
            let (reads, writes) = (grid.column(&["Reads: Data"]), grid.column(&["Writes: Data"]));
            let mut found = Vec::new();
            for row in &grid.rows {
                // Requests stand beside their data, by second.
                let requests = |data: Option<usize>| {
                    let rate = value::number(cell(row, data.map(|at| at + 1)));
                    rate.map(|rate| (rate * elapsed_s as f64).round() as u64)
                };
                let bytes =
                    |data: Option<usize>| value::bytes(cell(row, data)).map(|bytes| bytes as u64);
                let file_class = short(cell(row, name));
                if file_class.is_empty() || file_class.starts_with("TOTAL") {
                    continue;
                }
                let figures = (requests(reads), bytes(reads), requests(writes), bytes(writes));
                let (Some(reads), Some(read_bytes), Some(writes), Some(write_bytes)) = figures
                else {
                    self.hidden.push(file_class);
                    continue;
                };
                found.push(IoStat {
                    file_class,
                    tier: "home".to_owned(),
                    reads,
                    read_bytes,
                    read_ns: 0,
                    writes,
                    write_bytes,
                    write_ns: 0,
                    untimed: true,
                });
            }
            found.into_iter().for_each(|io| self.snapshot.add_io(io));
            self.taken.insert(index);
        }
    }

    fn parameters(&mut self) {
        for index in self.with(&[&["Parameter Name"], &["Begin value", "Value"]]) {
            let grid = &self.grids[index];
            let (name, at) =
                (grid.column(&["Parameter Name"]), grid.column(&["Begin value", "Value"]));
            let settings = &mut self.snapshot.source.settings;
            let mut last = String::new();
            for row in &grid.rows {
                let (name, value) = (cell(row, name).trim(), cell(row, at).trim());
                if holds_a_password(name) || name.chars().count() > LONGEST {
                    self.left_out.because(
                        "a parameter that holds a password, or has a name that is too long",
                    );
                    last.clear();
                    continue;
                }
                if !name.is_empty() {
                    if settings.len() >= MOST_NAMES && !settings.contains_key(name) {
                        self.left_out.because("a parameter behind the first five thousand");
                        last.clear();
                        continue;
                    }
                    name.clone_into(&mut last);
                    settings.insert(last.clone(), String::new());
                }
                // A value goes on in lines without a name.
                let Some(so_far) = settings.get_mut(&last) else { continue };
                let room = LONGEST_VALUE.saturating_sub(so_far.chars().count());
                if value.chars().count() > room {
                    self.left_out.because("the end of a parameter's value that is too long");
                }
                so_far.extend(value.chars().take(room));
            }
            self.taken.insert(index);
        }
    }

    fn statements(&mut self) {
        let time: &[&str] = &["Elapsed Time (s)", "Elapsed  Time (s)"];
        for index in self
            .about("elapsed time", &[time, &["Executions"], &IDS, &["SQL Text"]])
            .into_iter()
            .take(1)
        {
            let grid = &self.grids[index];
            let columns = [
                grid.column(&IDS),
                grid.column(time),
                grid.column(&["Executions"]),
                grid.column(&["SQL Text"]),
            ];
            for row in &grid.rows {
                let [id, total_ns, calls, text] = columns.map(|at| cell(row, at));
                let id = short(id);
                if id.is_empty() {
                    continue;
                }
                if self.snapshot.statements.len() >= MOST_NAMES {
                    self.left_out.because("a statement behind the first five thousand");
                    continue;
                }
                let twice = self.snapshot.statements.iter().any(|row| row.id == id);
                let Some(total_ns) = value::seconds_ns(total_ns).filter(|_| !twice) else {
                    self.hidden.push(format!("statement {id}"));
                    continue;
                };
                self.snapshot.statements.push(StatementStat {
                    id,
                    text: Redaction::Literals.statement(text),
                    calls: value::count(calls).unwrap_or(0),
                    total_ns,
                    ..StatementStat::default()
                });
            }
            self.taken.insert(index);
        }
    }
}

/// Whether a parameter's value is a password. One that only speaks of passwords, as every report's
/// `remote_login_passwordfile`, is as good as any.
fn holds_a_password(parameter: &str) -> bool {
    let name = parameter.to_lowercase();
    ["password", "passwd", "_pwd"].iter().any(|end| name.ends_with(end))
}

/// What the column with a statement's number is called: in Statspack's reports it is a hash.
const IDS: [&str; 3] = ["SQL Id", "Old Hash Value", "Hash Value"];

/// What the column with an event's share is called: in AWR reports of DB time, in Statspack's of
/// all calls. Idle events have none.
const SHARES: [&str; 3] = ["% DB time", "%DB time", "%Total Call Time"];
const SHARES_OF_BACKGROUND: [&str; 2] = ["% bg time", "%bg time"];
