//! Plans of statements: of pg_store_plans where it is, and those that auto_explain writes into the
//! server's log.
//!
//! | from | counted | needs |
//! |---|---|---|
//! | pg_store_plans | every run since its counts began | the extension in the database we connect to |
//! | auto_explain | runs in the log since the recorder connected | a log file of the logging collector, the right to read it |
//!
//! The log is read from where it ended when the recorder first looked, at most [`MOST_OF_LOG`] a
//! snapshot. Plans of one shape (the same nodes and conditions, whatever they cost) are one; its
//! text is that of the longest run. No plan is kept where no text of statements is.
//!
//! Deliberately absent: plans in other formats than text, other destinations of the log than
//! stderr, and switching auto_explain on: recording changes no setting.
//!
//! Invariant: no literal of a statement passes: what stands before the first node is a statement,
//! and of the plan only costs, counts and names stand as they are.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::fields::{milliseconds, number, rows, text};
use super::wire::{Fault, Wire};
use super::{Answers, part};
use crate::Snapshot;
use crate::redact::Redaction;
use crate::snapshot::plan::{MOST_PLANS, PlanStat};

/// The most of a log that one snapshot reads.
const MOST_OF_LOG: u64 = 1 << 20;

/// What is missing where the log may not be read.
const WITHOUT_LOG: &str = "plans of auto_explain; GRANT EXECUTE ON FUNCTION pg_stat_file(text), \
                           pg_read_binary_file(text, bigint, bigint), pg_current_logfile(text) TO \
                           the user gives them";

/// The longest plan that is kept, in characters.
const LONGEST: usize = 6_000;

/// More shapes than this are not followed.
const MOST_SHAPES: usize = 2_000;

/// Beginnings of what the recorder itself asks, which auto_explain explains too.
const OUR_OWN: [&str; 3] = [
    "SAVEPOINT part;",
    "WITH s AS MATERIALIZED (SELECT *, row_number()",
    "SELECT quote_ident(n.nspname)",
];

/// Where the log is read on.
struct Place {
    path: String,
    offset: u64,
}

/// What was read of the server's log, and where it goes on.
pub(super) struct Plans {
    /// Tells the counts of this recorder from those of one before.
    run: u64,
    place: Option<Place>,
    seen: BTreeMap<u64, PlanStat>,
}

impl Plans {
    pub(super) fn new() -> Plans {
        let run =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Plans { run, place: None, seen: BTreeMap::new() }
    }

    /// Asks for plans, within the transaction of a snapshot.
    pub(super) fn ask(
        &mut self,
        wire: &mut Wire,
        answers: &mut Answers,
        redaction: Redaction,
    ) -> Result<(), Fault> {
        if redaction != Redaction::Literals {
            return Ok(());
        }
        let schema = wire.texts(
            "SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = \
             e.extnamespace \
             WHERE e.extname = 'pg_store_plans'",
        )?;
        if let Some(schema) = schema.first() {
            let query = format!(
                "SELECT (to_jsonb(s) - 'plan' || jsonb_build_object('plan', left(s.plan, \
                 {LONGEST})))::text FROM \
                 (SELECT * FROM {schema}.pg_store_plans ORDER BY total_time DESC LIMIT \
                 {MOST_PLANS}) s"
            );
            part(wire, answers, "plans", &query, MOST_PLANS, "plans of pg_store_plans")?;
        }
        let settings = "SELECT jsonb_build_object('least', \
                        current_setting('auto_explain.log_min_duration', true), \
                        'format', current_setting('auto_explain.log_format', true))::text";
        part(wire, answers, "auto_explain", settings, 1, "plans of auto_explain")?;
        let setting = |answers: &Answers, field| {
            rows(answers, "auto_explain").first().map_or(String::new(), |row| text(row, field))
        };
        let least = setting(answers, "least");
        if least.is_empty() || least == "-1" {
            return Ok(());
        }
        if setting(answers, "format") != "text" {
            answers.missing.push(
                "plans of auto_explain; auto_explain.log_format = text gives them".to_owned(),
            );
            return Ok(());
        }
        self.ask_log(wire, answers)
    }

    fn ask_log(&mut self, wire: &mut Wire, answers: &mut Answers) -> Result<(), Fault> {
        let at = "SELECT jsonb_build_object('path', l.path, 'size', \
                  (pg_stat_file(l.path)).size)::text \
                  FROM (SELECT pg_current_logfile('stderr') AS path) l WHERE l.path IS NOT NULL";
        part(wire, answers, "log", at, 1, WITHOUT_LOG)?;
        let Some(found) = answers.rows.get("log") else { return Ok(()) };
        let Some((path, size)) =
            found.first().and_then(|row| Some((text(row, "path"), number(row, "size")?)))
        else {
            let line = "plans of auto_explain; logging_collector = on and log_destination = stderr \
                        give a log to read them in";
            answers.missing.push(line.to_owned());
            return Ok(());
        };
        let Some(place) = self.place.take() else {
            self.place = Some(Place { path, offset: size });
            return Ok(());
        };
        // The end of the log says most: what is too far before it is left out.
        let end = size.saturating_sub(MOST_OF_LOG);
        let mut offset = 0;
        if place.path == path {
            // A file that is shorter was begun anew.
            offset = if size < place.offset { 0 } else { place.offset };
        } else {
            self.read_log(wire, answers, &place)?;
        }
        let mut place = Place { path, offset: offset.max(end) };
        place.offset += self.read_log(wire, answers, &place)?;
        self.place = Some(place);
        Ok(())
    }

    /// Reads on in a file, and says how many bytes there were.
    fn read_log(
        &mut self,
        wire: &mut Wire,
        answers: &mut Answers,
        place: &Place,
    ) -> Result<u64, Fault> {
        let Place { path, offset } = place;
        // The path is quoted by dollars.
        if path.contains('$') {
            return Ok(0);
        }
        let query = format!(
            "SELECT jsonb_build_object('log', encode(pg_read_binary_file($p${path}$p$, {offset}, \
             {MOST_OF_LOG}), 'base64'))::text"
        );
        answers.rows.remove("log");
        part(wire, answers, "log", &query, 1, WITHOUT_LOG)?;
        let read =
            rows(answers, "log").first().and_then(|row| row.get("log")).and_then(Value::as_str);
        let encoded: String = read.unwrap_or("").chars().filter(|c| !c.is_whitespace()).collect();
        let bytes = STANDARD.decode(encoded).unwrap_or_default();
        self.read(&String::from_utf8_lossy(&bytes));
        Ok(bytes.len() as u64)
    }

    /// Counts the plans in a part of the log.
    fn read(&mut self, log: &str) {
        for (ns, body) in entries(log) {
            let Some((sql, plan, id)) = taken_apart(&body) else { continue };
            if OUR_OWN.iter().any(|begin| sql.starts_with(begin)) {
                continue;
            }
            let shown = shown(&plan);
            let key = xxh3_64(shape(&plan).as_bytes());
            if !self.seen.contains_key(&key) && self.seen.len() >= MOST_SHAPES {
                continue;
            }
            let run = self.run;
            let of = self.seen.entry(key).or_insert_with(|| PlanStat {
                id: format!("{key:016x}/{run}"),
                ..PlanStat::default()
            });
            (of.calls, of.total_ns) = (of.calls + 1, of.total_ns.saturating_add(ns));
            if ns >= of.max_ns {
                (of.max_ns, of.text, of.statement) = (ns, shown, id);
                of.sql = Redaction::Literals.statement(&sql);
            }
        }
    }

    /// Puts the plans where reports look for them.
    pub(super) fn fill(&self, snapshot: &mut Snapshot, answers: &Answers, redaction: Redaction) {
        if redaction != Redaction::Literals {
            return;
        }
        let stored = rows(answers, "plans");
        for row in stored {
            let (Some(calls), Some(total_ns)) =
                (number(row, "calls"), milliseconds(row, "total_time"))
            else {
                continue;
            };
            let parts =
                ["queryid", "planid", "userid", "dbid", "first_call"].map(|field| text(row, field));
            snapshot.plans.push(PlanStat {
                id: parts.join("/"),
                statement: parts[0].clone(),
                sql: String::new(),
                text: shown(&text(row, "plan")),
                calls,
                total_ns,
                max_ns: milliseconds(row, "max_time").unwrap_or(0),
            });
        }
        if stored.len() >= MOST_PLANS {
            snapshot.is_partial_in(&["plans"]);
        }
        let mut logged: Vec<&PlanStat> = self.seen.values().collect();
        logged.sort_by_key(|plan| std::cmp::Reverse(plan.total_ns));
        if logged.len() > MOST_PLANS {
            snapshot.is_partial_in(&["plans"]);
        }
        snapshot.plans.extend(logged.into_iter().take(MOST_PLANS).cloned());
        let mut seen = std::collections::BTreeSet::new();
        snapshot.plans.retain(|plan| seen.insert(plan.id.clone()));
    }
}

/// The plans of a log, each with its duration; the lines below the first begin with a tab.
fn entries(log: &str) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let mut lines = log.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((_, behind)) = line.rsplit_once("duration: ") else { continue };
        let ms = behind.strip_suffix(" ms  plan:").and_then(|ms| ms.parse::<f64>().ok());
        let Some(ns) = ms.and_then(crate::sources::ms_to_ns) else { continue };
        let mut body = String::new();
        while let Some(more) = lines.peek().and_then(|line| line.strip_prefix('\t')) {
            body.push_str(more);
            body.push('\n');
            lines.next();
        }
        found.push((ns, body));
    }
    found
}

/// Whether a line is a node of a plan.
fn is_node(line: &str) -> bool {
    line.contains("  (cost=")
}

/// The statement, the plan and the number of the statement in what auto_explain writes.
fn taken_apart(body: &str) -> Option<(String, String, String)> {
    /// A word that no statement has: if it is left behind a text, the text ends outside of quotes.
    const END: &str = "tiersmith_text_ends_here";
    let rest = body.strip_prefix("Query Text: ")?;
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        let before = &rest[..at];
        if at > 0 && is_node(line) {
            // Neither may a literal that begins in this very line.
            let name = line.split("  (cost=").next().unwrap_or_default();
            let probe = Redaction::Literals.statement(&format!("{before}{name} {END}"));
            // A text that is cut off in the probe, or speaks of a password, is not known to have
            // ended.
            if probe.ends_with(END) {
                let sql = before.split("\nQuery Parameters: ").next().unwrap_or_default().trim();
                let (plan, id) = number_of_statement(&rest[at..]);
                return Some((sql.to_owned(), plan, id));
            }
        }
        at += line.len();
    }
    None
}

/// The plan without the line that has its statement's number, and that number.
fn number_of_statement(plan: &str) -> (String, String) {
    const LABEL: &str = "Query Identifier: ";
    let id = plan.lines().find_map(|line| line.trim().strip_prefix(LABEL)).unwrap_or("");
    let id: String = id.chars().filter(|c| c.is_ascii_digit() || *c == '-').collect();
    let lines = plan.lines().filter(|line| !line.trim().starts_with(LABEL));
    (lines.collect::<Vec<_>>().join("\n"), id)
}

/// Labels of what is counted in a run and different in the next one.
const COUNTED: [&str; 29] = [
    "Batches",
    "Buckets",
    "Buffers",
    "Cache Mode",
    "Disabled",
    "Disk Usage",
    "Exact Heap Blocks",
    "Full-sort Groups",
    "Functions",
    "Heap Blocks",
    "Heap Fetches",
    "Hits",
    "I/O Timings",
    "Index Searches",
    "JIT",
    "Memory Usage",
    "Options",
    "Peak Memory",
    "Planned Partitions",
    "Planning",
    "Pre-sorted Groups",
    "Rows Removed by",
    "Settings",
    "Sort Method",
    "Storage",
    "Subplans Removed",
    "Timing",
    "WAL",
    "Worker",
];

fn is_counted(line: &str) -> bool {
    let line = line.trim();
    COUNTED.iter().any(|label| line.starts_with(label)) && is_plain(line)
}

/// Whether there is nothing in it that a literal could be in: words, figures, no quotes.
fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || " .,:;=()/-%+_".contains(c))
}

/// A line of a plan: indentation and what may be kept of the rest.
fn kept(line: &str, with_costs: bool) -> String {
    let text = line.trim_start();
    let mut indent = " ".repeat((line.len() - text.len()).min(80));
    let text = match text.strip_prefix("->  ") {
        Some(node) => {
            indent.push_str("->  ");
            node
        }
        None => text,
    };
    let statement = |text: &str| Redaction::Literals.statement(text);
    if let Some((name, costs)) = text.split_once("  (cost=") {
        let costs = format!("  (cost={costs}");
        return match with_costs && is_plain(&costs) {
            true => format!("{indent}{}{costs}", statement(name)),
            false => format!("{indent}{}", statement(name)),
        };
    }
    // Names of parts of the plan have numbers.
    let is_name = ["SubPlan ", "InitPlan ", "CTE "].iter().any(|begin| text.starts_with(begin));
    if is_counted(text) || (is_name && is_plain(text)) {
        return format!("{indent}{}", text.trim_end());
    }
    match text.split_once(": ") {
        Some((label, expression)) if is_plain(label) && !label.contains(['=', '(']) => {
            format!("{indent}{label}: {}", statement(expression))
        }
        _ => format!("{indent}{}", statement(text)),
    }
}

/// A plan as it may be kept.
fn shown(plan: &str) -> String {
    let lines: Vec<String> = plan.lines().map(|line| kept(line, true)).collect();
    lines.join("\n").trim_end().chars().take(LONGEST).collect()
}

/// What plans of one shape have in common: nodes and conditions.
fn shape(plan: &str) -> String {
    let lines = plan.lines().filter(|line| !is_counted(line)).map(|line| kept(line, false));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL 15 writes it.
    const LOG: &str = "2026-11-28 04:00:00.000 UTC [7] LOG:  database system is ready\n\
        2026-11-28 04:00:01.000 UTC [9] u@d LOG:  duration: 12.500 ms  plan:\n\
        \tQuery Text: SELECT count(*)\n\
        \t  FROM wide WHERE n = 4711 AND pad <> 'it''s (secret)  (cost=1)\n\
        \t  (cost=0.00..9 rows=1 width=8)'\n\
        \tAggregate  (cost=6250.00..6250.01 rows=1 width=8) (actual time=12.4..12.4 rows=1 \
        loops=1)\n\
        \t  Output: count(*)\n\
        \t  Buffers: shared hit=20 read=5980\n\
        \t  ->  Seq Scan on public.wide w2  (cost=0.00..6250.00 rows=1 width=0) (actual \
        time=0.1..12.3 rows=1 loops=1)\n\
        \t        Filter: ((wide.n = 4711) AND (wide.pad <> 'it''s (secret)'::text))\n\
        \t        Rows Removed by Filter: 49999\n\
        \tQuery Identifier: -77\n\
        2026-11-28 04:00:02.000 UTC [9] u@d STATEMENT:  next\n";

    #[test]
    fn plans_of_one_shape_are_one_and_nothing_of_a_literal_is_kept() {
        let mut plans = Plans::new();
        plans.read(LOG);
        let again = LOG.replace("4711", "5").replace("12.500", "99.000").replace("49999", "7");
        plans.read(&again);
        plans.read(
            &LOG.replace("Seq Scan on public.wide", "Index Scan using wide_n on public.wide"),
        );
        let mut snapshot = Snapshot::at(crate::Source::default(), 1, 1);
        plans.fill(&mut snapshot, &Answers::default(), Redaction::Literals);
        snapshot.check().expect("whole");
        let [scan, index] = &snapshot.plans[..] else { panic!("{:?}", snapshot.plans) };
        assert_eq!((scan.calls, scan.total_ns, scan.max_ns), (2, 111_500_000, 99_000_000));
        assert_eq!((index.calls, scan.statement.as_str()), (1, "-77"));
        assert_eq!(scan.sql, "SELECT count(*) FROM wide WHERE n = ? AND pad <> ?");
        for text in [
            "  ->  Seq Scan on public.wide w2  (cost=0.00..6250.00 rows=1",
            "Filter: ((wide.n = ?) AND (wide.pad <> ?::text))",
            "Rows Removed by Filter: 7",
            "Buffers: shared hit=20 read=5980",
        ] {
            assert!(scan.text.contains(text), "{text} of {}", scan.text);
        }
        let all = snapshot.to_json();
        assert!(!all.contains("4711") && !all.contains("secret"), "{all}");
        let mut hidden = Snapshot::at(crate::Source::default(), 1, 1);
        plans.fill(&mut hidden, &Answers::default(), Redaction::Text);
        assert!(hidden.plans.is_empty());
    }

    #[test]
    fn what_the_recorder_asks_and_what_is_torn_is_no_plan() {
        let mut plans = Plans::new();
        plans.read(&LOG.replace("SELECT count(*)", "SAVEPOINT part; SELECT count(*)"));
        plans.read("x LOG:  duration: 1.000 ms  plan:\n");
        plans.read(
            "x LOG:  duration: 1.000 ms  plan:\n\tQuery Text: SELECT 'open\n\tSeq Scan on t  \
             (cost=0..1)\n",
        );
        plans.read(
            "x LOG:  duration: 1.000 ms  plan:\n\tQuery Text: ALTER ROLE a PASSWORD 'x'\n\tA  \
             (cost=0..1)\n",
        );
        plans.read(
            "x LOG:  duration: nan ms  plan:\n\tQuery Text: SELECT 1\n\tResult  (cost=0..1)\n",
        );
        assert!(plans.seen.is_empty(), "{:?}", plans.seen);
        let mut rng = fastrand::Rng::with_seed(21);
        let lines: Vec<&str> = LOG.lines().collect();
        for _ in 0..5_000 {
            let lines: Vec<String> = (0..rng.usize(0..12))
                .map(|_| {
                    let line = lines[rng.usize(0..lines.len())];
                    line.chars().skip(rng.usize(0..4)).take(rng.usize(0..120)).collect()
                })
                .collect();
            plans.read(&lines.join("\n"));
        }
    }
}
