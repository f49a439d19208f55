//! A file of a database that is not attached: every call goes to the VFS below, and reads, writes
//! and syncs are timed.
//!
//! Locks, the WAL index and lent pages are the other VFS's: so several processes share a plain
//! database as they always do.
//!
//! Deliberately absent: temporary files and super-journals. They are opened by the VFS below
//! without anything of ours around them.

use crate::ffi::foreign::ForeignFile;
use crate::place::Role;
use crate::waits;
use std::ffi::c_int;
use tiersmith_store::events::EventId;

/// Which event a call is.
fn event(role: Role, of_main: EventId, of_redo: EventId) -> EventId {
    if role == Role::Main { of_main } else { of_redo }
}

pub(crate) fn read(file: &mut ForeignFile, role: Role, offset: i64, into: &mut [u8]) -> c_int {
    let start = waits::plain_events().start();
    let code = file.read(offset, into);
    let event = event(role, waits::DB_READ, waits::REDO_READ);
    let _ = waits::plain_events().record_n(event, start, into.len() as u64);
    code
}

pub(crate) fn write(file: &mut ForeignFile, role: Role, offset: i64, data: &[u8]) -> c_int {
    let start = waits::plain_events().start();
    let code = file.write(offset, data);
    let event = event(role, waits::DB_WRITE, waits::REDO_WRITE);
    let _ = waits::plain_events().record_n(event, start, data.len() as u64);
    code
}

pub(crate) fn sync(file: &mut ForeignFile, role: Role, flags: c_int) -> c_int {
    let start = waits::plain_events().start();
    let code = file.sync(flags);
    let _ = waits::plain_events().record(event(role, waits::DB_SYNC, waits::REDO_SYNC), start);
    code
}
