//! fio with `--output-format=json` and `--group_reporting`: one job.

use serde_json::Value;

use super::{figure, no_figure};
use crate::error::Result;

/// What fio found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ran {
    /// Operations in a second, all jobs together.
    pub(crate) per_s: f64,
    /// Of reads, what 95 of 100 took no longer than. That of a write is without its sync, so it is
    /// not read.
    pub(crate) read_p95_ns: Option<u64>,
}

/// Reads the JSON it wrote, behind what it may have said before.
///
/// # Errors
/// It is no JSON, a figure is missing, or the job failed.
pub(crate) fn read(json: &str) -> Result<Ran> {
    let missing = || no_figure("fio", json);
    let whole: Value =
        json.find('{').and_then(|at| serde_json::from_str(&json[at..]).ok()).ok_or_else(missing)?;
    let job = whole.get("jobs").and_then(|jobs| jobs.get(0)).ok_or_else(missing)?;
    if job.get("error").and_then(Value::as_i64) != Some(0) {
        return Err(missing());
    }
    let rate = |kind: &str| job.get(kind)?.get("iops")?.as_f64().and_then(figure);
    let (reads, writes) = rate("read").zip(rate("write")).ok_or_else(missing)?;
    if reads + writes <= 0.0 {
        return Err(missing());
    }
    let p95 = job.pointer("/read/clat_ns/percentile/95.000000").and_then(Value::as_u64);
    Ok(Ran { per_s: reads + writes, read_p95_ns: p95.filter(|_| reads > 0.0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::tests::cut_anywhere;

    const READ: &str = include_str!("../../../../fixtures/load-programs/fio-read.json");
    const WRITE: &str = include_str!("../../../../fixtures/load-programs/fio-write.json");
    const MIXED: &str = include_str!("../../../../fixtures/load-programs/fio-mixed.json");

    #[test]
    fn what_fio_writes_is_read() {
        let of = |json: &str| read(json).unwrap();
        assert!((of(READ).per_s - 24644.518272).abs() < 1e-6 && of(READ).read_p95_ns.is_some());
        assert_eq!(of(WRITE), Ran { per_s: 429.042904, read_p95_ns: None });
        assert!((of(MIXED).per_s - (3610.561056 + 1617.161716)).abs() < 1e-6);
        assert_eq!(of(&format!("fio: a note\n{READ}")), of(READ));
    }

    #[test]
    fn what_fio_did_not_write_is_an_error() {
        cut_anywhere(MIXED, read);
        assert!(read(&MIXED[..MIXED.len() - 3]).is_err());
        for (from, to) in [
            ("\"error\" : 0", "\"error\" : 28"),
            ("\"error\" : 0", "\"err\" : 0"),
            ("\"jobs\" : [", "\"jobs\" : [], \"none\" : ["),
            ("\"iops\" : 3610.561056", "\"iops\" : null"),
            ("\"iops\" : 3610.561056", "\"iops\" : -1.0"),
            ("\"iops\" : 3610.561056", "\"iops\" : 1e300"),
            ("\"iops\" : 3610.561056", "\"iops\" : NaN"),
        ] {
            assert!(MIXED.contains(from), "{from}");
            assert!(read(&MIXED.replacen(from, to, 1)).is_err(), "{to}");
        }
        let none = READ.replace("24644.518272", "0.000000");
        assert!(read(&none).is_err(), "a job that read nothing has no rate");
    }
}
