//! Situations on real servers: what is counted and seen between a beginning and an end, and what is
//! found in it. The host is made up, because the machine of the tests is shared.

use std::thread;
use std::time::{Duration, Instant};

use tiersmith_awr::findings::{Finding, findings};
use tiersmith_awr::host::{CpuTimes, Cpus, HostStat};
use tiersmith_awr::sources::LiveSource;
use tiersmith_awr::{Interval, Sampling, Snapshot};

/// Of a made-up host's processors, how busy they were, in per cent.
pub(crate) const IDLE: u64 = 10;
pub(crate) const BUSY: u64 = 98;

/// What a server counts is in its views a moment later. For hangs only.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) struct Situation {
    begin: Snapshot,
    sampling: Sampling,
}

impl Situation {
    pub(crate) fn begin(asked: &mut dyn LiveSource) -> Situation {
        let sampling = Sampling::new("test".to_owned(), 5);
        let mut begin = asked.snapshot().unwrap();
        begin.sampling = Some(sampling.clone());
        Situation { begin, sampling }
    }

    pub(crate) fn look(&mut self, asked: &mut dyn LiveSource) {
        asked.look(&mut self.sampling).unwrap();
        thread::sleep(Duration::from_millis(5));
    }

    pub(crate) fn look_while(&mut self, asked: &mut dyn LiveSource, goes_on: &dyn Fn() -> bool) {
        while goes_on() {
            self.look(asked);
        }
    }

    /// What is found on a host of two processors that were so busy.
    fn found(&self, asked: &mut dyn LiveSource, busy_percent: u64) -> Vec<Finding> {
        let (mut begin, mut end) = (self.begin.clone(), asked.snapshot().unwrap());
        end.sampling = Some(self.sampling.clone());
        let all = 2 * (end.monotonic_ns - begin.monotonic_ns);
        let host = |all: u64| HostStat {
            cpus: Some(Cpus { threads: 2, cores: 2, sockets: 1 }),
            cpu: Some(CpuTimes {
                user_ns: all / 100 * busy_percent,
                idle_ns: all / 100 * (100 - busy_percent),
                ..CpuTimes::default()
            }),
            disks: Some(Vec::new()),
            ..HostStat::default()
        };
        (begin.host, end.host) = (host(0), host(all));
        findings(&Interval::between(&begin, &end).unwrap())
    }

    /// Waits until something besides the shortness of the interval is found, but not for long: what
    /// sessions counted reaches the views within a second.
    pub(crate) fn end(self, asked: &mut dyn LiveSource, busy_percent: u64) -> Vec<Finding> {
        let began = Instant::now();
        self.end_when(asked, busy_percent, |found| {
            thread::sleep(Duration::from_millis(50));
            found.len() > 1 || began.elapsed() > Duration::from_millis(1500)
        })
    }

    /// Asks until what is found is what was waited for.
    pub(crate) fn end_when(
        self,
        asked: &mut dyn LiveSource,
        busy_percent: u64,
        mut enough: impl FnMut(&[Finding]) -> bool,
    ) -> Vec<Finding> {
        let began = Instant::now();
        loop {
            let found = self.found(asked, busy_percent);
            if enough(&found) || began.elapsed() > PATIENCE {
                return found;
            }
        }
    }
}

/// The names of findings, in their order; of the doubt about the interval its beginning.
pub(crate) fn names(found: &[Finding]) -> Vec<&str> {
    let name = |of: &'static str, name: &str| name.starts_with(of).then_some(of);
    found.iter().map(|of| name("Too short", &of.name).unwrap_or(&of.name)).collect()
}

/// Fails if anything else is found.
pub(crate) fn only(found: &[Finding], expected: &[&str]) {
    let expected = |of: &&Finding| expected.iter().any(|begin| of.name.starts_with(begin));
    let more: Vec<&Finding> = found.iter().filter(|of| !expected(of)).collect();
    assert!(more.is_empty(), "false alarm: {more:?}");
}
