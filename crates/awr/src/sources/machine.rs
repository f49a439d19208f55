//! The machine as a source of its own: processor time, run queue, disks, memory and pressure,
//! without a database.
//!
//! Every other snapshot carries the machine it was taken on; this source is for recording one that
//! has no database to ask, or one whose database is recorded from elsewhere.

use super::LiveSource;
use crate::snapshot::sampling::Sampling;
use crate::{Result, Snapshot, Source};

/// The machine this program runs on.
pub(super) struct Machine;

impl LiveSource for Machine {
    fn name(&self) -> &str {
        "host"
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        let mut snapshot = Snapshot::now(Source::default());
        snapshot.process_cpu_ns = None;
        let host = &snapshot.host;
        snapshot.source = Source {
            instance: host.boot.clone().unwrap_or_default(),
            database: host.name.clone().unwrap_or_else(|| "host".to_owned()),
            product: "host".to_owned(),
            version: host.platform.clone().unwrap_or_default(),
            path: "/proc".to_owned(),
            ..Source::default()
        };
        Ok(snapshot)
    }

    fn look(&mut self, _: &mut Sampling) -> Result<bool> {
        Ok(false)
    }
}
