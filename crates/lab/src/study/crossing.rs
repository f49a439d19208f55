//! Cross-checks: the same load by an outside program, beside ours, on the same case.
//!
//! Each has a database of its own, loaded, copied, attached, read once and warmed up in the same
//! way, and they take turns: in odd rounds the study's own run is first, in even rounds the other.
//! So neither has the warmer cache.
//!
//! **Invariants**: what failed outside costs the study nothing of its own; neither of two that
//! disagree is called right.
//! **Deliberately absent**: who stands beside whom (`opponents.rs`), fio (`probe/beside.rs`), what
//! is kept (`cross_check.rs`).

use std::collections::BTreeSet;

use tiersmith_awr::{Cell, Table, figure};

use super::cross_check::{Beside, CrossCheck, Program, Rate};
use super::opponents::{self, Opponent, Unit};
use super::result::{RunResult, StudyResult};
use super::trust::{self, Warning};
use crate::case::Case;
use crate::compared::{Rates, Verdict, agreed, disagree};
use crate::error::Error;
use crate::run::Measured;
use crate::server;

/// How much a run did; nothing if nothing ended.
fn rate(measured: &Measured, unit: Unit) -> Option<Rate> {
    // A transaction that only read is no commit, so ours are counted by their kinds.
    let kinds: u64 = measured.kinds.iter().map(|kind| kind.latency.count).sum();
    let count = match unit {
        _ if kinds > 0 => kinds,
        Unit::Requests => measured.executes,
        Unit::Transactions => measured.transactions,
    };
    let of_kinds = measured.kinds.iter().map(|kind| kind.latency).max_by_key(|l| l.count);
    let p95_ns = of_kinds.or(measured.transaction).map(|latency| latency.p95_ns);
    let per_s = count as f64 / measured.elapsed_s;
    (per_s > 0.0 && per_s.is_finite()).then(|| Rate {
        per_s,
        count,
        elapsed_s: measured.elapsed_s,
        p95_ns: p95_ns.filter(|ns| *ns > 0),
    })
}

/// The median: of an even number the slower of the two in the middle.
fn median(mut rates: Vec<Rate>) -> Option<Rate> {
    rates.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
    rates.get(rates.len().saturating_sub(1) / 2).copied()
}

/// Who runs beside the cases of a study, and how it went.
#[derive(Debug, Default)]
pub(super) struct Crossing {
    opponents: Vec<(String, Opponent)>,
    programs: Vec<Program>,
    skipped: Vec<Warning>,
    outcomes: Vec<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    case: String,
    program: &'static str,
    update_pct: u32,
    ran: Result<Rate, String>,
}

impl Crossing {
    /// Finds who can run beside these cases, and why others cannot.
    pub(super) fn beside(cases: &[Case]) -> Crossing {
        let mut found = Crossing::default();
        let mut said = BTreeSet::new();
        for case in cases {
            let opponents = match opponents::of(case) {
                Ok(opponents) => opponents,
                Err(why) => {
                    found.skip(&mut said, format!("There is no cross-check: {why}."));
                    continue;
                }
            };
            for opponent in opponents {
                if case.slob.arrivals_per_s > 0.0 {
                    let why = "operations that arrive at fixed times (--rate) are not compared";
                    found.skip(&mut said, skipped(opponent.program, why));
                    continue;
                }
                match version(case, opponent.program) {
                    Some(version) => {
                        let program = Program { name: opponent.program.into(), version };
                        if !found.programs.contains(&program) {
                            found.programs.push(program);
                        }
                        found.opponents.push((case.id.clone(), opponent));
                    }
                    None => {
                        let why =
                            format!("{} is not installed; {}", opponent.program, opponent.install);
                        found.skip(&mut said, skipped(opponent.program, &why));
                    }
                }
            }
        }
        found
    }

    fn skip(&mut self, said: &mut BTreeSet<String>, sentence: String) {
        if said.insert(sentence.clone()) {
            self.skipped.push(trust::note("cross-check-skipped", sentence));
        }
    }

    /// The cases of all opponents.
    pub(super) fn cases(&self) -> impl Iterator<Item = &Case> {
        self.opponents.iter().map(|(_, opponent)| &opponent.case)
    }

    /// Those of one case.
    pub(super) fn of<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a Opponent> {
        self.opponents.iter().filter(|(id, _)| *id == case.id).map(|(_, opponent)| opponent)
    }

    /// Writes down how one went.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: it was the study that was.
    pub(super) fn ran(
        &mut self,
        opponent: &Opponent,
        update_pct: u32,
        measured: Result<Measured, Error>,
    ) -> Result<(), Error> {
        let ran = match measured {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => Err(error.to_string()),
            Ok(measured) => rate(&measured, opponent.unit)
                .ok_or_else(|| format!("nothing ended in {:.1} s", measured.elapsed_s)),
        };
        let (case, program) = (opponent.case.id.clone(), opponent.program);
        self.outcomes.push(Outcome { case, program, update_pct, ran });
        Ok(())
    }

    /// What was found, beside the study's own runs, and what has to be said of it.
    pub(super) fn end(self, runs: &[RunResult]) -> (CrossCheck, Vec<Warning>) {
        let mut warnings = self.skipped;
        let mut rows: Vec<Beside> = Vec::new();
        for Outcome { case, program, update_pct, .. } in &self.outcomes {
            let known = rows.iter().any(|row| {
                (&row.case, row.update_pct, row.program.as_str()) == (case, *update_pct, program)
            });
            let opponent =
                self.opponents.iter().find(|(id, one)| id == case && one.program == *program);
            let (false, Some((_, opponent))) = (known, opponent) else { continue };
            let own = runs.iter().filter(|run| run.case == *case && run.update_pct == *update_pct);
            let own: Vec<Rate> = own.filter_map(|run| rate(&run.measured, opponent.unit)).collect();
            let others = || {
                let same = |one: &&Outcome| {
                    (&one.case, one.update_pct, one.program) == (case, *update_pct, *program)
                };
                self.outcomes.iter().filter(same)
            };
            let other: Vec<Rate> =
                others().filter_map(|one| one.ran.as_ref().ok().copied()).collect();
            let failed = others().filter_map(|one| one.ran.as_ref().err().cloned()).next_back();
            let (own, other) = (median(own), median(other));
            let (tiersmith, outside) = if opponent.is_ours { (other, own) } else { (own, other) };
            let ratio = tiersmith.zip(outside).map(|(ours, theirs)| ours.per_s / theirs.per_s);
            rows.push(Beside {
                case: case.clone(),
                update_pct: *update_pct,
                program: (*program).into(),
                unit: opponent.unit.name().into(),
                tiersmith,
                outside,
                ratio,
                disagree: opponent.comparable && ratio.is_some_and(disagree),
                comparable: opponent.comparable,
                failed,
            });
        }
        warnings.extend(rows.iter().filter_map(failure));
        warnings.extend(rows.iter().filter_map(disagreement));
        let mut notes = vec![ORDER.to_owned()];
        for (_, opponent) in &self.opponents {
            if !notes.iter().any(|note| note == opponent.differs) {
                notes.push(opponent.differs.to_owned());
            }
        }
        (CrossCheck { programs: self.programs, rows, notes }, warnings)
    }
}

/// How it is done.
const ORDER: &str = "Each ran on a database of its own, loaded, copied, attached, read once and \
     warmed up in the same way, with the same clients and for as long (a program takes whole \
     seconds); in odd rounds the study's own run was first, in even rounds the other.";

fn skipped(program: &str, why: &str) -> String {
    format!("skipped: cross-check by {program}, because {why}.")
}

/// The version of a program beside a case; nothing if it is not installed.
fn version(case: &Case, program: &str) -> Option<String> {
    let product = case.product().ok()?;
    let programs = server::find(product).ok()?;
    programs.get(program).map(server::find::version_of)
}

fn failure(row: &Beside) -> Option<Warning> {
    let why = row.failed.as_ref()?;
    let sentence = format!(
        "The cross-check of {} by {} failed, and the study's own figures are not touched by that: \
         {why}",
        row.case, row.program
    );
    Some(trust::warning("cross-check-failed", sentence))
}

fn disagreement(row: &Beside) -> Option<Warning> {
    let ratio = row.ratio.filter(|_| row.disagree)?;
    let sentence = format!(
        "The generators disagree: in {} Tiersmith's clients did {} x the {} of {} (agreed is {}). \
         Which of them is right is not known. Run it longer and several times (--seconds 30 \
         --rounds 3); if they still disagree, see what the note on {} says they do differently, \
         and with top(1) whether one of them uses a whole processor itself.",
        row.case,
        figure::number(ratio),
        row.unit,
        row.program,
        agreed(),
        row.program
    );
    Some(trust::warning("generators-disagree", sentence))
}

/// Both figures side by side; nothing if no program ran.
pub fn table(result: &StudyResult) -> Option<Table> {
    let check = result.cross_check.as_ref().filter(|check| !check.rows.is_empty())?;
    let programs: Vec<String> =
        check.programs.iter().map(|one| format!("{} {}", one.name, one.version)).collect();
    let unit = check.rows.first().map_or("", |row| row.unit.as_str());
    let programs = programs.join(" and ");
    let title = format!("Cross-check: {unit} by Tiersmith's clients and by {programs}");
    let table = Table::new(title)
        .text("Case", "A case of the study, at its UPDATE_PCT.")
        .text("Program", "The outside program.");
    let mut table = Rates::columns(table, "Tiersmith's own clients", "Program", "");
    let several = result.update_pcts().len() > 1;
    for row in &check.rows {
        let pct = if several { format!(" at {}", row.update_pct) } else { String::new() };
        let verdict = match (row.failed.is_some(), row.ratio.is_some(), row.disagree) {
            (_, true, true) => Verdict::Disagree,
            (true, _, _) | (_, false, _) => Verdict::Failed,
            _ if !row.comparable => Verdict::NotComparable,
            _ => Verdict::Agree,
        };
        let rates = Rates {
            ours_per_s: row.tiersmith.map(|rate| rate.per_s),
            theirs_per_s: row.outside.map(|rate| rate.per_s),
            ratio: row.ratio,
            ours_p95_ns: row.tiersmith.and_then(|rate| rate.p95_ns),
            theirs_p95_ns: row.outside.and_then(|rate| rate.p95_ns),
            verdict,
        };
        let names = [Cell::text(format!("{}{pct}", row.case)), Cell::text(&row.program)];
        table.row(names.into_iter().chain(rates.cells()).collect());
    }
    check.notes.iter().for_each(|note| {
        table.note(note.clone());
    });
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;
    use crate::run::{Kind, Latency};
    use tiersmith_awr::{Snapshot, Source};

    fn measured(transactions: u64, kinds: u64) -> Measured {
        let snapshot = Snapshot::now(Source::default());
        let latency = Latency { count: kinds, p95_ns: 7, ..Latency::default() };
        let kind = Kind { name: "Read only".into(), latency };
        Measured {
            begin: snapshot.clone(),
            end: snapshot,
            elapsed_s: 2.0,
            slices: Vec::new(),
            p99_slices_ns: Vec::new(),
            executes: 5 * transactions,
            transactions,
            rows: 0,
            select: Latency::default(),
            update: Latency::default(),
            commit: Latency::default(),
            response: None,
            transaction: (kinds == 0).then(|| Latency { p95_ns: 9, ..Latency::default() }),
            kinds: if kinds > 0 { vec![kind] } else { Vec::new() },
            counted: Vec::new(),
        }
    }

    fn run(round: u32, measured: Measured) -> RunResult {
        RunResult {
            case: "server-on-home".into(),
            update_pct: 100,
            round,
            measured,
            snapshots: None,
            warnings: Vec::new(),
        }
    }

    fn crossing(target: &str, load: case::Load) -> Crossing {
        let mut case =
            case::choose_for(target, &["server-on-home".to_owned()], false).unwrap().remove(0);
        case.server.load = load;
        let opponents = opponents::of(&case).unwrap();
        let opponents = opponents.into_iter().map(|one| (case.id.clone(), one)).collect();
        Crossing { opponents, ..Crossing::default() }
    }

    #[test]
    fn transactions_that_only_read_are_counted_by_their_kind() {
        let found = rate(&measured(0, 50), Unit::Transactions).unwrap();
        assert_eq!((found.count, found.per_s, found.p95_ns), (50, 25.0, Some(7)));
        let found = rate(&measured(40, 0), Unit::Transactions).unwrap();
        assert_eq!((found.count, found.p95_ns), (40, Some(9)));
        assert_eq!(rate(&measured(40, 0), Unit::Requests).unwrap().count, 200);
        assert_eq!(rate(&measured(0, 0), Unit::Requests), None);
    }

    #[test]
    fn medians_are_compared_and_the_ratio_is_ours_over_theirs_whoever_stands_beside_whom() {
        for (target, load, expected) in [
            // The study's own runs are ours, and sysbench is beside them.
            ("postgres", case::Load::OltpReadWrite, 3.0),
            // The study's own runs are sysbench's, and we are beside them.
            ("postgres", case::Load::ReadWrite, 1.0 / 3.0),
        ] {
            let mut crossing = crossing(target, load);
            let opponent = crossing.opponents[0].1.clone();
            for transactions in [100, 1, 900] {
                crossing.ran(&opponent, 100, Ok(measured(transactions, 0))).unwrap();
            }
            let runs: Vec<RunResult> =
                (1..).zip([300, 2, 800]).map(|(n, count)| run(n, measured(count, 0))).collect();
            let (found, said) = crossing.end(&runs);
            assert_eq!(found.rows.len(), 1);
            let row = &found.rows[0];
            assert!((row.ratio.unwrap() - expected).abs() < 1e-9, "{row:?}");
            assert!(row.disagree && row.failed.is_none());
            let said: Vec<&str> = said.iter().map(|one| one.code.as_str()).collect();
            assert_eq!(said, ["generators-disagree"]);
            assert!(found.notes.iter().any(|note| note.starts_with("sysbench: ")));
        }
    }

    #[test]
    fn one_that_failed_is_told_and_the_rounds_that_ran_are_compared() {
        let mut crossing = crossing("redis", case::Load::Mixed);
        let [memtier, redis] = [0, 1].map(|n| crossing.opponents[n].1.clone());
        let refused = || Error::Target {
            what: "the load".into(),
            database: "memtier_benchmark".into(),
            reason: "its last words".into(),
        };
        crossing.ran(&memtier, 100, Err(refused())).unwrap();
        crossing.ran(&redis, 100, Ok(measured(90, 0))).unwrap();
        crossing.ran(&redis, 100, Err(refused())).unwrap();
        let (found, said) = crossing.end(&[run(1, measured(100, 0))]);
        let [of_memtier, of_redis] = found.rows.as_slice() else { panic!("{:?}", found.rows) };
        assert!(of_memtier.ratio.is_none() && of_memtier.outside.is_none());
        assert!(of_memtier.tiersmith.is_some(), "the study's own figure is kept");
        assert!((of_redis.ratio.unwrap() - 100.0 / 90.0).abs() < 1e-9 && !of_redis.disagree);
        assert!([of_memtier, of_redis].iter().all(|row| row.failed.is_some()));
        assert!(said.iter().all(|one| one.code == "cross-check-failed" && !one.is_note));
        assert!(said.len() == 2 && said[0].sentence.contains("its last words"), "{said:?}");
    }

    #[test]
    fn a_program_that_does_another_load_gets_no_verdict() {
        let mut crossing = crossing("redis", case::Load::Mixed);
        let programs = ["memtier_benchmark", "redis-benchmark"];
        for number in [0, 1] {
            let opponent = crossing.opponents[number].1.clone();
            assert_eq!(opponent.program, programs[number]);
            crossing.ran(&opponent, 100, Ok(measured(10, 0))).unwrap();
        }
        let (found, said) = crossing.end(&[run(1, measured(100, 0))]);
        let row = |program: &str| found.rows.iter().find(|row| row.program == program).unwrap();
        let (memtier, redis) = (row(programs[0]), row(programs[1]));
        assert!(memtier.disagree && memtier.comparable);
        assert!(!redis.disagree && !redis.comparable && redis.ratio == Some(10.0));
        assert!(said.len() == 1 && said[0].sentence.contains(programs[0]), "{said:?}");
    }

    #[test]
    fn an_interruption_is_the_studys_and_no_failure_of_a_program() {
        let mut crossing = crossing("redis", case::Load::Set);
        let opponent = crossing.opponents[0].1.clone();
        let error = crossing.ran(&opponent, 100, Err(Error::Interrupted)).unwrap_err();
        assert!(matches!(error, Error::Interrupted));
    }

    #[test]
    fn operations_at_fixed_times_are_not_compared() {
        let mut cases = case::choose_for("redis", &["server-on-home".to_owned()], false).unwrap();
        cases[0].server.load = case::Load::Set;
        cases[0].slob.arrivals_per_s = 100.0;
        let crossing = Crossing::beside(&cases);
        assert_eq!(crossing.cases().count(), 0);
        let (found, said) = crossing.end(&[]);
        assert!(found.rows.is_empty() && said[0].sentence.contains("--rate"), "{said:?}");
    }
}
