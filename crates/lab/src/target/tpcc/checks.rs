//! Consistency conditions 1 to 4 of the specification (clauses 3.3.2.1 to 3.3.2.4), and whether
//! what was acknowledged is there.
//!
//! **Invariant**: each condition is asked of the tables alone; nothing that the clients counted is
//! used, but for [`is_there`], which compares with what they were told.

use std::path::Path;

use crate::error::{Error, Result};
use crate::sql::Sql;

/// What each condition says, and a query whose every row is a violation.
///
/// Where no order of a district waits, nothing is asked of new_order (3.3.2.2).
const CONDITIONS: [(&str, &str); 4] = [
    (
        "w_ytd is the sum of d_ytd",
        "SELECT w_id, w_ytd, SUM(d_ytd) FROM warehouse, district WHERE d_w_id = w_id \
         GROUP BY w_id, w_ytd HAVING w_ytd <> SUM(d_ytd)",
    ),
    (
        "d_next_o_id - 1 is the last order, and the last that waits",
        "SELECT d_w_id, d_id, d_next_o_id, last_order, last_waiting FROM district \
         LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS last_order FROM orders \
         GROUP BY o_w_id, o_d_id) AS o ON o_w_id = d_w_id AND o_d_id = d_id \
         LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) AS last_waiting FROM new_order \
         GROUP BY no_w_id, no_d_id) AS n ON no_w_id = d_w_id AND no_d_id = d_id \
         WHERE COALESCE(last_order, 0) <> d_next_o_id - 1 \
         OR COALESCE(last_waiting, d_next_o_id - 1) <> d_next_o_id - 1",
    ),
    (
        "the orders that wait have numbers without a gap",
        "SELECT no_w_id, no_d_id, MIN(no_o_id), MAX(no_o_id), COUNT(*) FROM new_order \
         GROUP BY no_w_id, no_d_id HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)",
    ),
    (
        "there are as many order lines as the orders say",
        "SELECT o_w_id, o_d_id, said, found FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS said \
         FROM orders GROUP BY o_w_id, o_d_id) AS o LEFT JOIN (SELECT ol_w_id, ol_d_id, \
         COUNT(*) AS found FROM order_line GROUP BY ol_w_id, ol_d_id) AS l \
         ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE said <> COALESCE(found, 0)",
    ),
];

/// Whether the four conditions hold.
///
/// # Errors
/// [`Error::Unsound`] names the first that does not, where, and the figures; what the database
/// says.
pub fn consistent(sql: &mut dyn Sql, database: &Path) -> Result<()> {
    for (n, (condition, violations)) in (1..).zip(CONDITIONS) {
        let found = sql.table(violations)?;
        if let Some(first) = found.first() {
            let reason = format!(
                "consistency condition {n} of TPC-C does not hold ({condition}): {} place{}, the \
                 first is \
                 warehouse and figures {}",
                found.len(),
                if found.len() == 1 { "" } else { "s" },
                first.join(", ")
            );
            return Err(Error::Unsound { database: database.into(), reason });
        }
    }
    Ok(())
}

/// Orders and payments that are in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) orders: u64,
    pub(super) payments: u64,
}

/// What is in the database now.
pub(super) fn taken(sql: &mut dyn Sql) -> Result<Taken> {
    let mut number = |query: &str| -> Result<u64> {
        let rows = sql.table(query)?;
        let cell = rows.first().and_then(|row| row.first()).cloned().unwrap_or_default();
        cell.parse().map_err(|_| Error::Target {
            what: query.to_owned(),
            database: "TPC-C".into(),
            reason: format!("it gave `{cell}`, which is no number"),
        })
    };
    Ok(Taken {
        orders: number("SELECT COUNT(*) FROM orders")?,
        payments: number("SELECT COUNT(*) FROM history")?,
    })
}

/// Whether everything is there that clients were told is: as much as before, and what was
/// acknowledged.
///
/// # Errors
/// [`Error::Unsound`]: what is missing.
pub(super) fn is_there(before: Taken, told: Taken, now: Taken, database: &Path) -> Result<()> {
    for (what, before, told, now) in [
        ("orders", before.orders, told.orders, now.orders),
        ("payments", before.payments, told.payments, now.payments),
    ] {
        if now < before + told {
            let reason = format!(
                "{before} {what} were there and {told} more were acknowledged, but {now} are there \
                 after \
                 the kill"
            );
            return Err(Error::Unsound { database: database.into(), reason });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledged_order_that_is_gone_is_found() {
        let of = |orders, payments| Taken { orders, payments };
        is_there(of(10, 5), of(3, 2), of(13, 8), Path::new("x")).unwrap();
        let lost =
            is_there(of(10, 5), of(3, 2), of(12, 8), Path::new("x")).unwrap_err().to_string();
        assert!(
            lost.contains("10 orders were there and 3 more were acknowledged, but 12"),
            "{lost}"
        );
    }
}
