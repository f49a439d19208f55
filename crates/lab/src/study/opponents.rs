//! Which program stands beside which load of ours, and what the two do differently.
//!
//! | load of the study | on | beside it |
//! |---|---|---|
//! | `oltp-*` | PostgreSQL, MariaDB | sysbench |
//! | `read-write`, `read-only`, `write-only`: sysbench itself | the same | our clients |
//! | `tpcb`, `simple-update`, `select-only`: pgbench itself | PostgreSQL | our clients |
//! | `mixed` | Redis | memtier_benchmark; redis-benchmark, without a verdict |
//! | `set`: redis-benchmark itself | Redis | our clients |
//!
//! An opponent is a case of its own: the one it stands beside with another load, so that it is
//! placed, attached, warmed and measured in the same way.
//!
//! **Deliberately absent**: fio, which is beside a probe (`probe/beside.rs`); running anything.

use crate::case::{Case, Load, SQLITE};
use crate::size::ByteSize;
use crate::target::server::{SET_KEYS, set_value};
use crate::workload::keys::{Pattern, Ratio};
use crate::workload::oltp::Tables;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Transactions,
    Requests,
}

impl Unit {
    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Unit::Transactions => "transactions",
            Unit::Requests => "requests",
        }
    }
}

/// Who runs beside a case.
#[derive(Clone, Debug)]
pub(super) struct Opponent {
    /// The outside program.
    pub(super) program: &'static str,
    /// How it is installed.
    pub(super) install: &'static str,
    /// The case's own load is the program, and beside it are our clients.
    pub(super) is_ours: bool,
    /// What runs.
    pub(super) case: Case,
    /// What is compared.
    pub(super) unit: Unit,
    /// Both do the same, so that their rates are to be close.
    pub(super) comparable: bool,
    /// What the two measure or do differently.
    pub(super) differs: &'static str,
}

const SYSBENCH: (&str, &str) = ("sysbench", "sudo apt-get install sysbench");
const PGBENCH: (&str, &str) = ("pgbench", "sudo apt-get install postgresql");
const REDIS_BENCHMARK: (&str, &str) = ("redis-benchmark", "sudo apt-get install redis-tools");
const MEMTIER: (&str, &str) = (
    "memtier_benchmark",
    "Debian 12 has no package of it: build it from https://github.com/redis/memtier_benchmark",
);

const SYSBENCH_DIFFERS: &str = "sysbench: whole transactions are compared, because sysbench counts \
     BEGIN and COMMIT as queries and Tiersmith counts statements without them. Neither waits \
     between transactions. sysbench's p95 is read from its histogram, whose buckets are 2 % apart. \
     Its tables are its own: as many, with as many rows, with INT and CHAR columns where \
     Tiersmith's are BIGINT and VARCHAR; a transaction of sysbench draws a table for each \
     statement, one of Tiersmith's stays in one table.";
const PGBENCH_DIFFERS: &str = "pgbench: the same statements, prepared, on tables with as many \
     rows; pgbench's columns are INT, those of Tiersmith's clients BIGINT. Neither waits between \
     transactions. The p95 of both is of single transactions.";
const MEMTIER_DIFFERS: &str = "memtier_benchmark: the same keys with the same values. It sends \
     another request for each answer, where Tiersmith waits for all answers of a pipeline; its \
     threads share their connections among them, where each client of Tiersmith has its own.";
const SET_GET_DIFFERS: &str = "redis-benchmark: it cannot mix, so there is no verdict. Its SETs \
     and its GETs run one after the other, on uniform keys, and the rate is what a mixture of the \
     same ratio would have at the rates of both; a GET that waits behind a synced SET is in \
     Tiersmith's figure alone. Its one thread drives all clients, where each client of Tiersmith \
     has its own.";
const SET_DIFFERS: &str = "redis-benchmark: SETs of as many uniform keys with values as long. Its \
     one thread drives all clients, where each client of Tiersmith has its own.";

/// Who runs beside a case; or why nobody does.
pub(super) fn of(case: &Case) -> Result<Vec<Opponent>, String> {
    use Load::{
        Mixed, OltpReadOnly, OltpReadWrite, OltpWriteOnly, OwnSelectOnly, OwnSimpleUpdate, OwnTpcb,
        ReadOnly, ReadWrite, SelectOnly, Set, SimpleUpdate, Tpcb, Tpcc, WriteOnly,
    };
    let load = case.load();
    let with = |load: Load| with_load(case, load);
    let one = |(program, install), is_ours, case, unit, differs| {
        Ok(vec![Opponent { program, install, is_ours, case, unit, comparable: true, differs }])
    };
    let transactions = Unit::Transactions;
    match load {
        OltpReadOnly | OltpReadWrite | OltpWriteOnly if case.target == SQLITE => {
            Err(format!("sysbench, which stands beside {}, does not know SQLite", load.name()))
        }
        OltpReadOnly | OltpReadWrite | OltpWriteOnly => {
            one(SYSBENCH, false, by_sysbench(case), transactions, SYSBENCH_DIFFERS)
        }
        ReadOnly | ReadWrite | WriteOnly => {
            one(SYSBENCH, true, by_our_clients(case), transactions, SYSBENCH_DIFFERS)
        }
        Tpcb => one(PGBENCH, true, with(OwnTpcb), transactions, PGBENCH_DIFFERS),
        SimpleUpdate => one(PGBENCH, true, with(OwnSimpleUpdate), transactions, PGBENCH_DIFFERS),
        SelectOnly => one(PGBENCH, true, with(OwnSelectOnly), transactions, PGBENCH_DIFFERS),
        Mixed => {
            let opponent = |(program, install), load, differs| Opponent {
                program,
                install,
                is_ours: false,
                case: with(load),
                unit: Unit::Requests,
                // One that cannot mix does another load.
                comparable: load != Load::SetGet,
                differs,
            };
            Ok(vec![
                opponent(MEMTIER, Load::Memtier, MEMTIER_DIFFERS),
                opponent(REDIS_BENCHMARK, Load::SetGet, SET_GET_DIFFERS),
            ])
        }
        Set => {
            let mut other = with(Mixed);
            let product = case.product().map_err(|e| e.to_string())?;
            let keys = &mut other.server.keys;
            keys.value = Some(ByteSize(set_value(product, keys)));
            (keys.ratio, keys.pattern) = (Ratio { sets: 1, gets: 0 }, Pattern::Uniform);
            other.slob.scale = keys.scale_of(SET_KEYS);
            one(REDIS_BENCHMARK, true, other, Unit::Requests, SET_DIFFERS)
        }
        Tpcc => Err("HammerDB: not supported by --cross-check, and nothing else runs these \
                     transactions"
            .into()),
        other => Err(format!("nothing outside runs the load {}", other.name())),
    }
}

fn with_load(case: &Case, load: Load) -> Case {
    let mut other = case.clone();
    other.server.load = load;
    other
}

/// A load of our own transactions, run by sysbench on as many tables of its own.
fn by_sysbench(case: &Case) -> Case {
    let mut other = with_load(
        case,
        match case.load() {
            Load::OltpReadOnly => Load::ReadOnly,
            Load::OltpWriteOnly => Load::WriteOnly,
            _ => Load::ReadWrite,
        },
    );
    let (count, rows) = (case.oltp.tables, case.oltp.table_rows(&case.slob));
    other.server.sysbench = Some(Tables { count, rows, drawn: case.oltp.rows });
    other
}

/// A load of sysbench, run by our clients on as many tables of ours.
fn by_our_clients(case: &Case) -> Case {
    let mut other = with_load(
        case,
        match case.load() {
            Load::ReadOnly => Load::OltpReadOnly,
            Load::WriteOnly => Load::OltpWriteOnly,
            _ => Load::OltpReadWrite,
        },
    );
    let tables = Tables::fitting(&case.slob);
    other.slob.scale = tables.scale();
    (other.oltp.tables, other.oltp.rows) = (tables.count, tables.drawn);
    other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;
    use crate::target::loads;

    fn with(target: &str, load: Load) -> Case {
        let name = if target == SQLITE { "tpcc-on-home" } else { "server-redo-on-mount" };
        let mut cases = case::choose_for(target, &[name.to_owned()], false).unwrap();
        let mut case = cases.pop().unwrap();
        case.server.load = load;
        case.slob.scale = ByteSize(40 << 20);
        case
    }

    #[test]
    fn an_opponent_differs_from_its_case_by_the_load_alone() {
        for (target, load, programs) in [
            ("postgres", Load::OltpReadWrite, &["sysbench"][..]),
            ("mariadb", Load::OltpReadOnly, &["sysbench"]),
            ("mariadb", Load::WriteOnly, &["sysbench"]),
            ("postgres", Load::Tpcb, &["pgbench"]),
            ("redis", Load::Mixed, &["memtier_benchmark", "redis-benchmark"]),
            ("redis", Load::Set, &["redis-benchmark"]),
        ] {
            let case = with(target, load);
            let found = of(&case).unwrap();
            let names: Vec<&str> = found.iter().map(|opponent| opponent.program).collect();
            assert_eq!(names, programs, "{load:?}");
            for opponent in found {
                let other = &opponent.case;
                assert_ne!(other.load(), load);
                assert_eq!(
                    (&other.placement, &other.target, other.server.clients, other.slob.seed),
                    (&case.placement, &case.target, case.server.clients, case.slob.seed)
                );
                assert_eq!(other.server.settings, case.server.settings);
                assert_eq!(other.server.cache, case.server.cache);
            }
        }
    }

    #[test]
    fn both_have_as_many_rows_and_keys() {
        let case = with("postgres", Load::OltpReadWrite);
        let tables = of(&case).unwrap().remove(0).case.server.sysbench.unwrap();
        assert_eq!(tables.rows, case.oltp.table_rows(&case.slob));
        let case = with("mariadb", Load::ReadWrite);
        let ours = of(&case).unwrap().remove(0).case;
        assert_eq!(ours.oltp.table_rows(&ours.slob), Tables::fitting(&case.slob).rows);
        let case = with("redis", Load::Set);
        let ours = of(&case).unwrap().remove(0).case;
        assert_eq!(ours.server.keys.keys(&ours.slob), SET_KEYS);
        let case = with("postgres", Load::Tpcb);
        let ours = of(&case).unwrap().remove(0).case;
        let described = loads::of(&ours, &ours.slob).unwrap().describe(1);
        assert!(described.starts_with("200000 accounts"), "{described}");
    }

    #[test]
    fn a_load_that_nobody_else_runs_says_so() {
        for (target, load, expected) in [
            ("postgres", Load::Slob, "nothing outside runs the load slob"),
            ("postgres", Load::YcsbA, "nothing outside runs the load ycsb-a"),
            (SQLITE, Load::OltpReadOnly, "does not know SQLite"),
            (SQLITE, Load::Tpcc, "HammerDB: not supported by --cross-check"),
        ] {
            let why = of(&with(target, load)).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }
}
