//! The five transactions in SQL (clauses 2.4 to 2.8).
//!
//! **Invariants**: a row that is read to be changed is read with its lock; a transaction that finds
//! less than it must is an error, not a figure.

use std::path::PathBuf;

use crate::error::Error;
use crate::sql::{Outcome, Row, Value, row};
use crate::target::transactions::Timed;
use crate::workload::tpcc::{Customer, DISTRICTS, Order, Payment};

/// How often the oldest order is looked for again that another client delivered meanwhile.
const LOOKS: u32 = 5;
/// Rates are in hundredths of a per cent.
const WHOLE: i64 = 10_000;
/// The longest that is kept of the notes on a customer with bad credit.
const NOTES: usize = 500;

/// How a New-Order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is in the database.
    Committed,
    /// It had an item that nobody sells, and nothing of it is left.
    TakenBack,
}

/// The rows that must be one.
fn one(rows: Vec<Row>, what: &str) -> Outcome<Row> {
    let count = rows.len();
    rows.into_iter().next().ok_or_else(|| {
        let reason = format!("{count} rows were found where there must be one");
        Error::Target { what: format!("reading {what}"), database: PathBuf::from("TPC-C"), reason }
            .into()
    })
}

fn values<const N: usize>(of: [u32; N]) -> Vec<Value> {
    of.into_iter().map(Value::from).collect()
}

const STOCK_OF: [&str; DISTRICTS as usize] = [
    "SELECT s_quantity, s_dist_01, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_02, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_03, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_04, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_05, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_06, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_07, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_08, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_09, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
    "SELECT s_quantity, s_dist_10, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE",
];

/// Clause 2.4.
pub(super) fn new_order(mut sql: Timed<'_>, order: &Order, now_ms: i64) -> Outcome<Ended> {
    let Order { warehouse: w, district: d, customer: c, .. } = *order;
    let found = sql.rows("SELECT w_tax FROM warehouse WHERE w_id = ?", &values([w]))?;
    let warehouse_tax = one(found, "the warehouse")?.int(0);
    let district =
        "SELECT d_tax, d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE";
    let district = one(sql.rows(district, &values([w, d]))?, "the district")?;
    let (district_tax, number) = (district.int(0), district.int(1));
    let next = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?";
    sql.change(next, &values([w, d]))?;
    let customer = "SELECT c_discount, c_last, c_credit FROM customer \
                    WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    let discount = one(sql.rows(customer, &values([w, d, c]))?, "the customer")?.int(0);
    let count = order.lines.len() as i64;
    let all_local = i64::from(order.lines.iter().all(|line| line.from == w));
    sql.change(
        "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, \
         o_all_local) VALUES (?, ?, ?, ?, ?, NULL, ?, ?)",
        &row![w, d, number, c, now_ms, count, all_local].0,
    )?;
    sql.change(
        "INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (?, ?, ?)",
        &row![w, d, number].0,
    )?;
    let mut sum = 0;
    for (n, line) in (1_i64..).zip(&order.lines) {
        let item = "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?";
        let Some(item) = sql.rows(item, &values([line.item]))?.into_iter().next() else {
            sql.rollback()?;
            return Ok(Ended::TakenBack);
        };
        let of_stock = STOCK_OF[(d - 1) as usize % STOCK_OF.len()];
        let stock = one(sql.rows(of_stock, &values([line.from, line.item]))?, "the stock")?;
        let (left, quantity) = (stock.int(0), i64::from(line.quantity));
        let left = if left >= quantity + 10 { left - quantity } else { left - quantity + 91 };
        sql.change(
            "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
             s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
            &row![left, quantity, i64::from(line.from != w), line.from, line.item].0,
        )?;
        let cents = item.int(0) * quantity;
        sum += cents;
        sql.change(
            "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, \
             ol_supply_w_id, \
             ol_delivery_d, ol_quantity, ol_amount, ol_dist_info) \
             VALUES (?, ?, ?, ?, ?, ?, NULL, ?, ?, ?)",
            &row![w, d, number, n, line.item, line.from, quantity, cents, stock.text(1)].0,
        )?;
    }
    // What the customer is shown.
    std::hint::black_box(
        sum * (WHOLE - discount) / WHOLE * (WHOLE + warehouse_tax + district_tax) / WHOLE,
    );
    sql.commit()?;
    Ok(Ended::Committed)
}

/// The number of a customer. Of several of one name it is the one in the middle, by first name.
fn number_of(sql: &mut Timed<'_>, w: u32, d: u32, customer: &Customer) -> Outcome<i64> {
    let name = match customer {
        Customer::Number(number) => return Ok((*number).into()),
        Customer::Name(name) => name,
    };
    let found = sql.rows(
        "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
        &row![w, d, name.as_str()].0,
    )?;
    let middle = found.len().saturating_sub(1) / 2;
    Ok(one(found.into_iter().skip(middle).collect(), "the customer of this name")?.int(0))
}

/// Clause 2.5.
pub(super) fn payment(mut sql: Timed<'_>, payment: &Payment, now_ms: i64) -> Outcome<()> {
    let Payment { warehouse: w, district: d, of_warehouse, of_district, cents, .. } = *payment;
    sql.change("UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?", &row![cents, w].0)?;
    let place = "SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse \
                 WHERE w_id = ?";
    let warehouse = one(sql.rows(place, &values([w]))?, "the warehouse")?;
    sql.change(
        "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?",
        &row![cents, w, d].0,
    )?;
    let place = "SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district \
                 WHERE d_w_id = ? AND d_id = ?";
    let district = one(sql.rows(place, &values([w, d]))?, "the district")?;
    let c = number_of(&mut sql, of_warehouse, of_district, &payment.customer)?;
    let customer = "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, \
                    c_zip, \
                    c_phone, c_since, c_credit_lim, c_discount, c_balance, c_credit FROM customer \
                    WHERE c_w_id = ? AND c_d_id = ? AND c_id = ? FOR UPDATE";
    let key = row![of_warehouse, of_district, c].0;
    let customer = one(sql.rows(customer, &key)?, "the customer")?;
    if customer.text(13) == "BC" {
        let notes = "SELECT c_data FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
        let notes = one(sql.rows(notes, &key)?, "the customer's notes")?;
        let mut text =
            format!("{c} {of_district} {of_warehouse} {d} {w} {cents} {}", notes.text(0));
        text.truncate(NOTES);
        sql.change(
            "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
             c_payment_cnt = c_payment_cnt + 1, c_data = ? \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            &row![cents, cents, text, of_warehouse, of_district, c].0,
        )?;
    } else {
        sql.change(
            "UPDATE customer SET c_balance = c_balance - ?, c_ytd_payment = c_ytd_payment + ?, \
             c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            &row![cents, cents, of_warehouse, of_district, c].0,
        )?;
    }
    let text = format!("{}    {}", warehouse.text(0), district.text(0));
    sql.change(
        "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, \
         h_data) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        &row![c, of_district, of_warehouse, d, w, now_ms, cents, text].0,
    )?;
    sql.commit()
}

/// Clause 2.6.
pub(super) fn order_status(mut sql: Timed<'_>, w: u32, d: u32, customer: &Customer) -> Outcome<()> {
    let c = number_of(&mut sql, w, d, customer)?;
    let balance = "SELECT c_balance, c_first, c_middle, c_last FROM customer \
                   WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?";
    one(sql.rows(balance, &row![w, d, c].0)?, "the customer")?;
    let last = "SELECT o_id, o_entry_d, o_carrier_id FROM orders \
                WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ? ORDER BY o_id DESC LIMIT 1";
    let order = one(sql.rows(last, &row![w, d, c].0)?, "the customer's last order")?.int(0);
    let lines = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM \
                 order_line \
                 WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
    sql.rows(lines, &row![w, d, order].0)?;
    sql.commit()
}

/// The oldest order of a district that nobody has delivered, locked.
fn oldest(sql: &mut Timed<'_>, w: u32, d: u32) -> Outcome<Option<i64>> {
    // PostgreSQL gives no row where another client has just taken the one that was the oldest.
    for _ in 0..LOOKS {
        let found = sql.rows(
            "SELECT no_o_id FROM new_order WHERE no_w_id = ? AND no_d_id = ? ORDER BY no_o_id \
             LIMIT 1 FOR UPDATE",
            &values([w, d]),
        )?;
        if let Some(row) = found.first() {
            return Ok(Some(row.int(0)));
        }
    }
    Ok(None)
}

/// Clause 2.7, for all districts in one transaction.
pub(super) fn delivery(mut sql: Timed<'_>, w: u32, carrier: u32, now_ms: i64) -> Outcome<()> {
    for d in 1..=DISTRICTS {
        let Some(order) = oldest(&mut sql, w, d)? else { continue };
        let key = row![w, d, order].0;
        let taken = "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?";
        sql.change(taken, &key)?;
        let whose = "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?";
        let customer = one(sql.rows(whose, &key)?, "the order")?.int(0);
        sql.change(
            "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
            &row![carrier, w, d, order].0,
        )?;
        sql.change(
            "UPDATE order_line SET ol_delivery_d = ? WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id \
             = ?",
            &row![now_ms, w, d, order].0,
        )?;
        let amounts =
            "SELECT ol_amount FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?";
        let sum: i64 = sql.rows(amounts, &key)?.iter().map(|row| row.int(0)).sum();
        sql.change(
            "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1 \
             WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
            &row![sum, w, d, customer].0,
        )?;
    }
    sql.commit()
}

/// Clause 2.8.
pub(super) fn stock_level(mut sql: Timed<'_>, w: u32, d: u32, threshold: u32) -> Outcome<()> {
    let next = "SELECT d_next_o_id FROM district WHERE d_w_id = ? AND d_id = ?";
    let next = one(sql.rows(next, &values([w, d]))?, "the district")?.int(0);
    sql.rows(
        "SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock WHERE ol_w_id = ? AND ol_d_id = ? \
         AND ol_o_id < ? AND ol_o_id >= ? AND s_w_id = ? AND s_i_id = ol_i_id AND s_quantity < ?",
        &row![w, d, next, next - 20, w, threshold].0,
    )?;
    sql.commit()
}
