//! pgbench's transactions by the lab's own clients: what a cross-check sets beside pgbench.
//!
//! The tables and the statements are those of pgbench's scripts `tpcb-like`, `simple-update` and
//! `select-only`, rows uniform; columns of numbers are 8 bytes, and amounts are added where pgbench
//! draws them.
//!
//! **Invariant**: after a run the balances of accounts add up to what the history says, and those
//! of tellers and branches too where the script changes them.
//! **Deliberately absent**: a load of its own name; a study has pgbench itself for that.

use std::path::Path;
use std::time::Duration;

use tiersmith_awr::events::{EventDef, EventId, Recorder, wait_events};

use super::transactions::{Timed, Transactional, Transactions};
use crate::error::{Error, Result};
use crate::sql::{self, Outcome, Sql, Table, Value, row};
use crate::workload::slob;

wait_events! {
    /// Whole transactions, from their first beginning to their end.
    pub(super) const TRANSACTIONS;
    /// One of TPC-B.
    TPCB = "TPC-B", Other;
    /// One without tellers and branches.
    SIMPLE_UPDATE = "Simple update", Other;
    /// One SELECT.
    SELECT_ONLY = "SELECT of an account", Other;
}

/// About what a branch takes.
const BRANCH_BYTES: u64 = 15 << 20;
/// Of a branch.
const TELLERS: u64 = 10;
/// Of a branch.
const ACCOUNTS: u64 = 100_000;
/// Rows between two looks at the progress.
const STEP: u64 = 8192;
/// The largest amount.
const AMOUNT: i64 = 5000;

/// Branches that fit the scale: what pgbench calls its scale.
pub(super) fn branches(slob: &slob::Settings) -> u64 {
    (slob.scale.bytes() / BRANCH_BYTES).max(1)
}

/// Which of pgbench's scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `tpcb-like`.
    Tpcb,
    /// `simple-update`.
    SimpleUpdate,
    /// `select-only`.
    SelectOnly,
}

/// The load.
#[derive(Debug)]
pub(super) struct TpcbLoad {
    /// Which script.
    pub kind: Kind,
    /// How many branches.
    pub branches: u64,
}

impl Transactional for TpcbLoad {
    fn kinds(&self) -> &'static [EventDef] {
        TRANSACTIONS
    }

    fn tables(&self) -> Vec<Table> {
        let with = |name: &'static str, columns: &'static str, width| {
            Table::new(name, columns, width, &[])
        };
        vec![
            with(
                "pgbench_branches",
                "bid BIGINT PRIMARY KEY, bbalance BIGINT NOT NULL, filler CHAR(88)",
                3,
            ),
            with(
                "pgbench_tellers",
                "tid BIGINT PRIMARY KEY, bid BIGINT, tbalance BIGINT NOT NULL, filler CHAR(84)",
                4,
            ),
            with(
                "pgbench_accounts",
                "aid BIGINT PRIMARY KEY, bid BIGINT, abalance BIGINT NOT NULL, filler CHAR(84)",
                4,
            ),
            with(
                "pgbench_history",
                "tid BIGINT, bid BIGINT, aid BIGINT, delta BIGINT, mtime TIMESTAMP, filler \
                 CHAR(22)",
                6,
            ),
        ]
    }

    fn fill(&self, sql: &mut dyn Sql, _: u64, progress: &dyn Fn(f64) -> bool) -> Result<()> {
        let tables = self.tables();
        sql::make(sql, &tables)?;
        let int = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let of = |number: u64, each: u64| int(number / each + 1);
        let [branches, tellers, accounts, _] = tables.as_slice() else { return Ok(()) };
        sql.fill(branches, &mut (0..self.branches).map(|n| row![int(n + 1), 0i64, ""]))?;
        let all = 0..self.branches * TELLERS;
        sql.fill(tellers, &mut all.map(|n| row![int(n + 1), of(n, TELLERS), 0i64, ""]))?;
        let count = self.branches * ACCOUNTS;
        for first in (0..count).step_by(STEP as usize) {
            let some = first..(first + STEP).min(count);
            sql.fill(accounts, &mut some.map(|n| row![int(n + 1), of(n, ACCOUNTS), 0i64, ""]))?;
            if !progress(0.9 * first as f64 / count as f64) {
                return Err(Error::Interrupted);
            }
        }
        sql::finish(sql, &tables)
    }

    fn client<'a>(&'a self, seed: u64, number: u32) -> Box<dyn Transactions + 'a> {
        let seed = seed.wrapping_add(u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let random = fastrand::Rng::with_seed(fastrand::Rng::with_seed(seed).u64(..));
        let mut client = TpcbClient { load: self, random, next: Next::default() };
        client.draw();
        Box::new(client)
    }

    fn check(&self, sql: &mut dyn Sql, database: &Path) -> Result<()> {
        let mut sum = |column: &str, table: &str| -> Result<i64> {
            let found = sql.table(&format!("SELECT COALESCE(SUM({column}), 0) FROM {table}"))?;
            Ok(found.first().and_then(|row| row.first()?.parse().ok()).unwrap_or(i64::MIN))
        };
        let history = sum("delta", "pgbench_history")?;
        let all = [
            ("abalance", "pgbench_accounts", self.kind != Kind::SelectOnly),
            ("tbalance", "pgbench_tellers", self.kind == Kind::Tpcb),
            ("bbalance", "pgbench_branches", self.kind == Kind::Tpcb),
        ];
        for (column, table, changes) in all {
            let (found, expected) = (sum(column, table)?, if changes { history } else { 0 });
            if found != expected {
                let reason = format!(
                    "the balances in {table} add up to {found}, and the history says {expected}"
                );
                return Err(Error::Unsound { database: database.into(), reason });
            }
        }
        Ok(())
    }

    fn describe(&self, clients: u32) -> String {
        format!("{} accounts, {clients} clients", self.branches * ACCOUNTS)
    }

    fn bytes(&self) -> u64 {
        self.branches * BRANCH_BYTES * 3 / 2
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default)]
struct Next {
    account: i64,
    teller: i64,
    branch: i64,
    amount: i64,
}

struct TpcbClient<'a> {
    load: &'a TpcbLoad,
    random: fastrand::Rng,
    next: Next,
}

impl Transactions for TpcbClient<'_> {
    fn draw(&mut self) {
        let branches = self.load.branches;
        let mut one_of = |count: u64| i64::try_from(self.random.u64(1..=count.max(1))).unwrap_or(1);
        let (account, branch) = (one_of(branches * ACCOUNTS), one_of(branches));
        let teller = one_of(branches * TELLERS);
        self.next = Next { account, teller, branch, amount: self.random.i64(-AMOUNT..=AMOUNT) };
    }

    fn attempt(&mut self, sql: &mut dyn Sql, statements: &Recorder) -> Outcome<EventId> {
        let Next { account, teller, branch, amount } = self.next;
        let [account, teller, branch, amount] = [account, teller, branch, amount].map(Value::Int);
        let select = "SELECT abalance FROM pgbench_accounts WHERE aid = ?";
        if self.load.kind == Kind::SelectOnly {
            Timed::alone(sql, statements).rows(select, &[account])?;
            return Ok(SELECT_ONLY);
        }
        let mut sql = Timed::begin(sql, statements, true)?;
        let update = "UPDATE pgbench_accounts SET abalance = abalance + ? WHERE aid = ?";
        sql.change(update, &[amount.clone(), account.clone()])?;
        sql.rows(select, std::slice::from_ref(&account))?;
        if self.load.kind == Kind::Tpcb {
            let update = "UPDATE pgbench_tellers SET tbalance = tbalance + ? WHERE tid = ?";
            sql.change(update, &[amount.clone(), teller.clone()])?;
            let update = "UPDATE pgbench_branches SET bbalance = bbalance + ? WHERE bid = ?";
            sql.change(update, &[amount.clone(), branch.clone()])?;
        }
        let insert = "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) \
                      VALUES (?, ?, ?, ?, CURRENT_TIMESTAMP)";
        sql.change(insert, &[teller, branch, account, amount])?;
        sql.commit()?;
        Ok(if self.load.kind == Kind::Tpcb { TPCB } else { SIMPLE_UPDATE })
    }

    fn done(&mut self, _: Duration, _: &Recorder) -> Option<Duration> {
        None
    }
}
