//! Which load of transactions a case has.
//!
//! Deliberately absent: what such a load is (`transactions/`), and what each of them does.

use super::transactions::Transactional;
use super::{clients, oltp, tpcb, ycsb};
use crate::case::{Case, Load};
use crate::workload::ycsb::{Mix, Ycsb};
use crate::workload::{oltp as rows, slob};

/// The load of a case; nothing if its load is none of these. `scale` is the one of this run.
pub fn of(case: &Case, scale: &slob::Settings) -> Option<Box<dyn Transactional>> {
    if let Some(load) = ycsb_of(case, scale) {
        return Some(Box::new(ycsb::YcsbLoad(load)));
    }
    let oltp = |kind| -> Option<Box<dyn Transactional>> {
        let table_rows = case.oltp.table_rows(scale);
        Some(Box::new(oltp::OltpLoad { kind, settings: case.oltp, table_rows }))
    };
    let pgbench = |kind| -> Option<Box<dyn Transactional>> {
        Some(Box::new(tpcb::TpcbLoad { kind, branches: tpcb::branches(scale) }))
    };
    match case.load() {
        Load::Tpcc => Some(Box::new(case.tpcc)),
        Load::OltpReadOnly => oltp(rows::Kind::ReadOnly),
        Load::OltpReadWrite => oltp(rows::Kind::ReadWrite),
        Load::OltpWriteOnly => oltp(rows::Kind::WriteOnly),
        Load::ClientCopy => {
            let clients = case.server.clients;
            let rows = case.client_copy.rows(scale, clients);
            let bytes = case.client_copy.bytes(scale, clients);
            Some(Box::new(clients::ClientCopy { settings: case.client_copy, rows, bytes }))
        }
        Load::OwnTpcb => pgbench(tpcb::Kind::Tpcb),
        Load::OwnSimpleUpdate => pgbench(tpcb::Kind::SimpleUpdate),
        Load::OwnSelectOnly => pgbench(tpcb::Kind::SelectOnly),
        _ => None,
    }
}

/// The load of a case, if it is one of YCSB's.
pub(super) fn ycsb_of(case: &Case, scale: &slob::Settings) -> Option<Ycsb> {
    let mix = match case.load() {
        Load::YcsbA => Mix::A,
        Load::YcsbB => Mix::B,
        Load::YcsbC => Mix::C,
        Load::YcsbD => Mix::D,
        Load::YcsbE => Mix::E,
        Load::YcsbF => Mix::F,
        _ => return None,
    };
    Some(Ycsb::new(mix, case.ycsb, case.ycsb.records(scale)))
}
