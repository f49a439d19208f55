//! What a machine did between two snapshots: processors, disks and pressure.
//!
//! With more patience than counters of a database get: what went backwards, or was not counted on
//! the same machine since the same start, is left out and said.

use crate::snapshot::host::{CpuTimes, DiskStat, HostStat, Pressure};

pub(super) fn pressure(begin: &HostStat, end: &HostStat) -> Option<Pressure> {
    let (a, b) = (begin.pressure.filter(|_| one_start(begin, end))?, end.pressure?);
    Some(Pressure {
        cpu_some_us: b.cpu_some_us.checked_sub(a.cpu_some_us)?,
        io_some_us: b.io_some_us.checked_sub(a.io_some_us)?,
        io_full_us: b.io_full_us.checked_sub(a.io_full_us)?,
        memory_some_us: b.memory_some_us.checked_sub(a.memory_some_us)?,
        memory_full_us: b.memory_full_us.checked_sub(a.memory_full_us)?,
    })
}

/// Whether both were read on one machine since one start of it: counters of two cannot be
/// subtracted.
fn one_start(begin: &HostStat, end: &HostStat) -> bool {
    let same = |a: &Option<String>, b: &Option<String>| a.is_none() || b.is_none() || a == b;
    same(&begin.boot, &end.boot)
        && (begin.boot.is_some() && end.boot.is_some() || same(&begin.name, &end.name))
}

/// Idle times of the kernel may go backwards a little; the others must not.
pub(super) fn host_cpu(
    begin: &HostStat,
    end: &HostStat,
    warnings: &mut Vec<String>,
) -> Option<CpuTimes> {
    if !one_start(begin, end) {
        let name =
            |host: &HostStat| crate::figure::visible(host.name.as_deref().unwrap_or("unknown"));
        let (a, b) = (name(begin), name(end));
        let whose =
            if a == b { format!("{a}, which was started anew") } else { format!("{a}, then {b}") };
        warnings.push(format!(
            "The recording machine was not the same at both ends ({whose}): its processors, disks \
             and pressure are left out."
        ));
        return None;
    }
    let (Some(a), Some(b)) = (begin.cpu, end.cpu) else {
        warnings.push(
            "The host's processor time is not known at both ends of the interval.".to_owned(),
        );
        return None;
    };
    let busy = |before: u64, now: u64| now.checked_sub(before);
    let times = (|| {
        Some(CpuTimes {
            user_ns: busy(a.user_ns, b.user_ns)?,
            system_ns: busy(a.system_ns, b.system_ns)?,
            idle_ns: b.idle_ns.saturating_sub(a.idle_ns),
            iowait_ns: b.iowait_ns.saturating_sub(a.iowait_ns),
            steal_ns: busy(a.steal_ns, b.steal_ns)?,
        })
    })();
    if times.is_none() {
        warnings
            .push("The host's processor time went backwards: its figures are left out.".to_owned());
    }
    times
}

pub(super) fn disks(begin: &HostStat, end: &HostStat, warnings: &mut Vec<String>) -> Vec<DiskStat> {
    if !one_start(begin, end) {
        return Vec::new();
    }
    let (Some(before), Some(now)) = (&begin.disks, &end.disks) else {
        warnings.push("The host's disks are not known at both ends of the interval.".to_owned());
        return Vec::new();
    };
    let mut busy = Vec::new();
    for disk in now {
        let (flushes, flush_ms) = (Some(0), Some(0));
        let zero = DiskStat { name: disk.name.clone(), flushes, flush_ms, ..DiskStat::default() };
        let before = before.iter().find(|before| before.name == disk.name).unwrap_or(&zero);
        match disk_since(before, disk) {
            Some(delta) if delta.reads > 0 || delta.writes > 0 => busy.push(delta),
            Some(_) => {}
            None => warnings.push(disk_backwards(&disk.name)),
        }
    }
    busy
}

/// The warning of a disk whose counters went backwards.
pub(crate) fn disk_backwards(name: &str) -> String {
    format!("The counters of disk {name} went backwards: it is left out.")
}

fn disk_since(before: &DiskStat, now: &DiskStat) -> Option<DiskStat> {
    // Not told at both ends: not known.
    let both =
        |before: Option<u64>, now: Option<u64>, since: fn(u64, u64) -> Option<u64>| match before
            .zip(now)
        {
            Some((before, now)) => since(before, now).map(Some),
            None => Some(None),
        };
    Some(DiskStat {
        name: now.name.clone(),
        reads: now.reads.checked_sub(before.reads)?,
        read_bytes: now.read_bytes.checked_sub(before.read_bytes)?,
        read_ms: ms_since(before.read_ms, now.read_ms)?,
        writes: now.writes.checked_sub(before.writes)?,
        write_bytes: now.write_bytes.checked_sub(before.write_bytes)?,
        write_ms: ms_since(before.write_ms, now.write_ms)?,
        busy_ms: ms_since(before.busy_ms, now.busy_ms)?,
        flushes: both(before.flushes, now.flushes, |before, now| now.checked_sub(before))?,
        flush_ms: both(before.flush_ms, now.flush_ms, ms_since)?,
    })
}

/// The kernel prints the times of disks in 32 bits of milliseconds, which begin again at zero after
/// 50 days of work. One that fell by most of that went on counting; any other that fell was set to
/// zero.
fn ms_since(before: u64, now: u64) -> Option<u64> {
    const WRAP: u64 = 1 << 32;
    now.checked_sub(before).or_else(|| {
        let wrapped = before < WRAP && before - now > WRAP / 10 * 9;
        wrapped.then(|| now + WRAP - before)
    })
}
