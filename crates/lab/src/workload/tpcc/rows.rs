//! The nine tables of TPC-C and what they are loaded with (clauses 1.3 and 4.3.3).
//!
//! **Invariant**: what is loaded keeps the consistency conditions of clause 3.3.2; each part of a
//! table has a generator of its own, so an order and its lines agree without being kept.

use std::borrow::Cow;

use super::Settings;
use super::random::{NAMES, Random, last_name};
use crate::error::{Error, Result};
use crate::sql::{self, Row, Sql, Table, Value, row};

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;
/// When everything that is loaded happened: milliseconds since 1970.
const LOADED_MS: i64 = 1_700_000_000_000;

const ITEM: Table = Table {
    name: Cow::Borrowed("item"),
    columns: Cow::Borrowed(
        "i_id BIGINT, i_im_id BIGINT, i_name VARCHAR(24), i_price BIGINT, i_data VARCHAR(50), \
              PRIMARY KEY (i_id)",
    ),
    width: 5,
    indexes: &[],
};

const WAREHOUSE: Table = Table {
    name: Cow::Borrowed("warehouse"),
    columns: Cow::Borrowed(
        "w_id BIGINT, w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20), \
              w_city VARCHAR(20), w_state VARCHAR(2), w_zip VARCHAR(9), w_tax BIGINT, w_ytd \
              BIGINT, \
              PRIMARY KEY (w_id)",
    ),
    width: 9,
    indexes: &[],
};

const STOCK: Table = Table {
    name: Cow::Borrowed("stock"),
    columns: Cow::Borrowed(
        "s_w_id BIGINT, s_i_id BIGINT, s_quantity BIGINT, s_dist_01 VARCHAR(24), \
              s_dist_02 VARCHAR(24), s_dist_03 VARCHAR(24), s_dist_04 VARCHAR(24), \
              s_dist_05 VARCHAR(24), s_dist_06 VARCHAR(24), s_dist_07 VARCHAR(24), \
              s_dist_08 VARCHAR(24), s_dist_09 VARCHAR(24), s_dist_10 VARCHAR(24), s_ytd BIGINT, \
              s_order_cnt BIGINT, s_remote_cnt BIGINT, s_data VARCHAR(50), \
              PRIMARY KEY (s_w_id, s_i_id)",
    ),
    width: 17,
    indexes: &[],
};

const DISTRICT: Table = Table {
    name: Cow::Borrowed("district"),
    columns: Cow::Borrowed(
        "d_w_id BIGINT, d_id BIGINT, d_name VARCHAR(10), d_street_1 VARCHAR(20), \
              d_street_2 VARCHAR(20), d_city VARCHAR(20), d_state VARCHAR(2), d_zip VARCHAR(9), \
              d_tax BIGINT, d_ytd BIGINT, d_next_o_id BIGINT, PRIMARY KEY (d_w_id, d_id)",
    ),
    width: 11,
    indexes: &[],
};

const CUSTOMER: Table = Table {
    name: Cow::Borrowed("customer"),
    columns: Cow::Borrowed(
        "c_w_id BIGINT, c_d_id BIGINT, c_id BIGINT, c_first VARCHAR(16), c_middle VARCHAR(2), \
              c_last VARCHAR(16), c_street_1 VARCHAR(20), c_street_2 VARCHAR(20), \
              c_city VARCHAR(20), c_state VARCHAR(2), c_zip VARCHAR(9), c_phone VARCHAR(16), \
              c_since BIGINT, c_credit VARCHAR(2), c_credit_lim BIGINT, c_discount BIGINT, \
              c_balance BIGINT, c_ytd_payment BIGINT, c_payment_cnt BIGINT, c_delivery_cnt BIGINT, \
              c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id)",
    ),
    width: 21,
    indexes: &[("by_name", "c_w_id, c_d_id, c_last, c_first")],
};

const HISTORY: Table = Table {
    name: Cow::Borrowed("history"),
    columns: Cow::Borrowed(
        "h_c_id BIGINT, h_c_d_id BIGINT, h_c_w_id BIGINT, h_d_id BIGINT, h_w_id BIGINT, \
              h_date BIGINT, h_amount BIGINT, h_data VARCHAR(24)",
    ),
    width: 8,
    indexes: &[],
};

const ORDERS: Table = Table {
    name: Cow::Borrowed("orders"),
    columns: Cow::Borrowed(
        "o_w_id BIGINT, o_d_id BIGINT, o_id BIGINT, o_c_id BIGINT, o_entry_d BIGINT, \
              o_carrier_id BIGINT NULL, o_ol_cnt BIGINT, o_all_local BIGINT, \
              PRIMARY KEY (o_w_id, o_d_id, o_id)",
    ),
    width: 8,
    indexes: &[("by_customer", "o_w_id, o_d_id, o_c_id, o_id")],
};

const NEW_ORDER: Table = Table {
    name: Cow::Borrowed("new_order"),
    columns: Cow::Borrowed(
        "no_w_id BIGINT, no_d_id BIGINT, no_o_id BIGINT, PRIMARY KEY (no_w_id, no_d_id, no_o_id)",
    ),
    width: 3,
    indexes: &[],
};

const ORDER_LINE: Table = Table {
    name: Cow::Borrowed("order_line"),
    columns: Cow::Borrowed(
        "ol_w_id BIGINT, ol_d_id BIGINT, ol_o_id BIGINT, ol_number BIGINT, ol_i_id BIGINT, \
              ol_supply_w_id BIGINT, ol_delivery_d BIGINT NULL, ol_quantity BIGINT, \
              ol_amount BIGINT, ol_dist_info VARCHAR(24), \
              PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number)",
    ),
    width: 10,
    indexes: &[],
};

/// Every table, in the order in which they are loaded.
pub const TABLES: [Table; 9] =
    [ITEM, WAREHOUSE, STOCK, DISTRICT, CUSTOMER, HISTORY, ORDERS, NEW_ORDER, ORDER_LINE];

/// Which generator a part of the tables has.
fn random(seed: u64, table: u64, warehouse: u32, district: u32) -> Random {
    Random::new(seed, table << 56 | u64::from(warehouse) << 8 | u64::from(district))
}

fn items(settings: &Settings, seed: u64) -> impl Iterator<Item = Row> + use<> {
    let mut random = random(seed, 1, 0, 0);
    (1..=settings.items).map(move |id| {
        let (image, name) = (random.number(1, 10_000), random.letters(14, 24));
        row![id, image, name, random.number(100, 10_000), random.data()]
    })
}

/// Two streets, city, state and code.
fn address(random: &mut Random) -> Vec<Value> {
    let streets = [random.letters(10, 20), random.letters(10, 20)];
    let (city, state) = (random.letters(10, 20), random.letters(2, 2));
    let code = format!("{}11111", random.digits(4));
    streets.into_iter().chain([city, state, code]).map(Value::from).collect()
}

fn joined(parts: [Vec<Value>; 3]) -> Row {
    Row(parts.into_iter().flatten().collect())
}

fn warehouse(seed: u64, id: u32) -> Row {
    let mut random = random(seed, 2, id, 0);
    let name = row![id, random.letters(6, 10)].0;
    let address = address(&mut random);
    // What the ten districts took in: condition 1.
    let taxes = row![random.number(0, 2000), 30_000_000_i64].0;
    joined([name, address, taxes])
}

fn stock(settings: &Settings, seed: u64, warehouse: u32) -> impl Iterator<Item = Row> + use<> {
    let mut random = random(seed, 3, warehouse, 0);
    (1..=settings.items).map(move |item| {
        let head = row![warehouse, item, random.number(10, 100)].0;
        let districts = (0..DISTRICTS).map(|_| Value::from(random.letters(24, 24))).collect();
        joined([head, districts, row![0u32, 0u32, 0u32, random.data()].0])
    })
}

fn districts(settings: &Settings, seed: u64, warehouse: u32) -> impl Iterator<Item = Row> + use<> {
    let mut random = random(seed, 4, warehouse, 0);
    let next = settings.customers + 1;
    (1..=DISTRICTS).map(move |id| {
        let head = row![warehouse, id, random.letters(6, 10)].0;
        let address = address(&mut random);
        joined([head, address, row![random.number(0, 2000), 3_000_000_i64, next].0])
    })
}

fn customers(settings: &Settings, seed: u64, warehouse: u32) -> impl Iterator<Item = Row> + use<> {
    let mut random = random(seed, 5, warehouse, 0);
    let count = settings.customers;
    let each = move |district: u32| (1..=count).map(move |id| (district, id));
    (1..=DISTRICTS).flat_map(each).map(move |(district, id)| {
        let last = if id <= NAMES { last_name(id - 1) } else { random.last_name(count) };
        let head = row![warehouse, district, id, random.letters(8, 16), "OE", last].0;
        let address = address(&mut random);
        let credit = if random.percent(10) { "BC" } else { "GC" };
        let (phone, discount) = (random.digits(16), random.number(0, 5000));
        let rest = row![
            phone,
            LOADED_MS,
            credit,
            5_000_000_i64,
            discount,
            -1000_i64,
            1000_i64,
            1u32,
            0u32,
            random.letters(300, 500),
        ];
        joined([head, address, rest.0])
    })
}

fn history(settings: &Settings, seed: u64, warehouse: u32) -> impl Iterator<Item = Row> + use<> {
    let mut random = random(seed, 6, warehouse, 0);
    let count = settings.customers;
    let each = move |district: u32| (1..=count).map(move |id| (district, id));
    (1..=DISTRICTS).flat_map(each).map(move |(district, id)| {
        row![
            id,
            district,
            warehouse,
            district,
            warehouse,
            LOADED_MS,
            1000_i64,
            random.letters(12, 24)
        ]
    })
}

/// The first order that is not delivered yet: 900 of 3000 wait.
fn first_waiting(customers: u32) -> u32 {
    customers - customers * 3 / 10 + 1
}

/// Customer and number of lines of each order of a district, in their order.
fn order_heads(settings: &Settings, seed: u64, warehouse: u32, district: u32) -> Vec<(u32, u32)> {
    let mut random = random(seed, 7, warehouse, district);
    let mut customers: Vec<u32> = (1..=settings.customers).collect();
    random.shuffle(&mut customers);
    customers.into_iter().map(|customer| (customer, random.number(5, 15))).collect()
}

/// Orders of every district of a warehouse: district, number, customer, lines.
fn heads(
    settings: &Settings,
    seed: u64,
    warehouse: u32,
) -> impl Iterator<Item = (u32, u32, u32, u32)> + use<> {
    let settings = *settings;
    (1..=DISTRICTS).flat_map(move |district| {
        let heads = order_heads(&settings, seed, warehouse, district);
        (1..).zip(heads).map(move |(order, (customer, lines))| (district, order, customer, lines))
    })
}

fn orders(settings: &Settings, seed: u64, warehouse: u32) -> impl Iterator<Item = Row> + use<> {
    let mut random = random(seed, 8, warehouse, 0);
    let waiting = first_waiting(settings.customers);
    heads(settings, seed, warehouse).map(move |(district, order, customer, lines)| {
        let carrier = random.number(1, 10);
        let carrier = if order < waiting { Value::from(carrier) } else { Value::Null };
        row![warehouse, district, order, customer, LOADED_MS, carrier, lines, 1u32]
    })
}

fn new_orders(settings: &Settings, warehouse: u32) -> impl Iterator<Item = Row> + use<> {
    let (first, last) = (first_waiting(settings.customers), settings.customers);
    let each = move |district| (first..=last).map(move |order| row![warehouse, district, order]);
    (1..=DISTRICTS).flat_map(each)
}

fn order_lines(
    settings: &Settings,
    seed: u64,
    warehouse: u32,
) -> impl Iterator<Item = Row> + use<> {
    let mut random = random(seed, 9, warehouse, 0);
    let (waiting, items) = (first_waiting(settings.customers), settings.items);
    let lines = |(district, order, _, lines)| (1..=lines).map(move |line| (district, order, line));
    heads(settings, seed, warehouse).flat_map(lines).map(
        move |(district, order, line): (u32, u32, u32)| {
            let (item, cents) = (random.number(1, items), random.number(1, 999_999));
            let (delivered, cents) =
                if order < waiting { (Value::from(LOADED_MS), 0) } else { (Value::Null, cents) };
            let info = random.letters(24, 24);
            row![warehouse, district, order, line, item, warehouse, delivered, 5u32, cents, info]
        },
    )
}

/// Makes the tables, fills them and makes their indexes.
///
/// `progress` is told the share done and says whether to go on.
///
/// # Errors
/// What the database says; [`Error::Interrupted`] if `progress` said no.
pub fn fill(
    sql: &mut dyn Sql,
    settings: &Settings,
    seed: u64,
    progress: &dyn Fn(f64) -> bool,
) -> Result<()> {
    sql::make(sql, &TABLES)?;
    sql.fill(&ITEM, &mut items(settings, seed))?;
    let parts = f64::from(settings.warehouses) * 5.0;
    let mut done = 0.0;
    let mut look = || {
        done += 1.0;
        if progress(0.9 * done / parts) { Ok(()) } else { Err(Error::Interrupted) }
    };
    for w in 1..=settings.warehouses {
        sql.fill(&WAREHOUSE, &mut std::iter::once(warehouse(seed, w)))?;
        sql.fill(&DISTRICT, &mut districts(settings, seed, w))?;
        sql.fill(&STOCK, &mut stock(settings, seed, w))?;
        look()?;
        sql.fill(&CUSTOMER, &mut customers(settings, seed, w))?;
        look()?;
        sql.fill(&HISTORY, &mut history(settings, seed, w))?;
        look()?;
        sql.fill(&ORDERS, &mut orders(settings, seed, w))?;
        sql.fill(&NEW_ORDER, &mut new_orders(settings, w))?;
        look()?;
        sql.fill(&ORDER_LINE, &mut order_lines(settings, seed, w))?;
        look()?;
    }
    sql::finish(sql, &TABLES)?;
    if progress(1.0) { Ok(()) } else { Err(Error::Interrupted) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Settings = Settings { warehouses: 1, think: false, items: 200, customers: 40 };

    #[test]
    fn every_row_has_as_many_values_as_its_table_has_columns() {
        let rows = |table: &Table, mut rows: Box<dyn Iterator<Item = Row>>| {
            let row = rows.next().expect("there is one");
            assert_eq!(row.0.len(), table.width, "{}", table.name);
        };
        rows(&ITEM, Box::new(items(&SMALL, 1)));
        rows(&WAREHOUSE, Box::new(std::iter::once(warehouse(1, 1))));
        rows(&STOCK, Box::new(stock(&SMALL, 1, 1)));
        rows(&DISTRICT, Box::new(districts(&SMALL, 1, 1)));
        rows(&CUSTOMER, Box::new(customers(&SMALL, 1, 1)));
        rows(&HISTORY, Box::new(history(&SMALL, 1, 1)));
        rows(&ORDERS, Box::new(orders(&SMALL, 1, 1)));
        rows(&NEW_ORDER, Box::new(new_orders(&SMALL, 1)));
        rows(&ORDER_LINE, Box::new(order_lines(&SMALL, 1, 1)));
    }

    #[test]
    fn an_order_and_its_lines_agree_and_three_of_ten_wait() {
        let counts: i64 = orders(&SMALL, 3, 1).map(|order| order.int(6)).sum();
        assert_eq!(counts as usize, order_lines(&SMALL, 3, 1).count());
        let waiting = orders(&SMALL, 3, 1).filter(|order| order.0[5] == Value::Null).count();
        assert_eq!((waiting, new_orders(&SMALL, 1).count()), (120, 120));
        let again: Vec<Row> = order_lines(&SMALL, 3, 1).take(50).collect();
        assert_eq!(again, order_lines(&SMALL, 3, 1).take(50).collect::<Vec<_>>());
    }
}
