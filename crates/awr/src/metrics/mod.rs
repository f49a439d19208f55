//! Metrics for Prometheus and whoever reads its formats: the counters of sources as OpenMetrics 1.0
//! text, or as text 0.0.4.
//!
//! ```text
//! Watched (one thread a source)  --- Scrape --->  render  --- text --->  Endpoint (HTTP)
//! ```
//!
//! | file | what |
//! |---|---|
//! | `families.rs` | which metric a figure of a snapshot becomes, and with which labels |
//! | `text.rs` | the two text forms: names, escapes, numbers, limits |
//! | `held.rs` | sums that go on where a part of them went away |
//! | `watch.rs` | asking sources when somebody scrapes, and no longer than patience lasts |
//! | `endpoint.rs` | a small HTTP server with hard limits |
//!
//! What is counted since a source started is a counter here too: Prometheus finds restarts itself,
//! so nothing is subtracted.
//!
//! Invariants: a source that did not answer this scrape has `tiersmith_up 0` and no other figure;
//! what was sampled has metrics of its own; every figure that may come from an emulated medium
//! carries `emulated="true"`; the number of series and the length of labels are bounded whatever a
//! server says, and what was left out is counted.
//!
//! Deliberately absent: pushing, TLS and passwords (a proxy's work), rates and averages (the
//! reader's).
//!
//! Read next: `families.rs`; docs/guide/metrics.md for the user.

mod endpoint;
mod families;
mod held;
mod hosts;
mod text;
mod watch;

use std::time::Duration;

#[cfg(feature = "testing")]
pub use endpoint::path_of_head;
pub use endpoint::{Endpoint, Listen};
pub use hosts::Hosts;
pub use watch::{Opener, Watch, Watched};

use crate::Snapshot;
use crate::snapshot::host::HostStat;
use crate::snapshot::sampling::Sampling;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' older text format, 0.0.4.
    Prometheus,
}

impl Format {
    /// The content type of an answer in this form.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The form that an `Accept` header prefers; the older one if it does not ask for OpenMetrics.
    pub fn accepted(header: &str) -> Format {
        let (mut open, mut plain) = (0.0_f64, 0.0_f64);
        for part in header.split(',').take(50) {
            let mut fields = part.split(';').map(|field| field.trim().to_ascii_lowercase());
            let kind = fields.next().unwrap_or_default();
            let (mut quality, mut known) = (1.0_f64, true);
            for field in fields {
                match field.split_once('=') {
                    Some(("q", value)) => {
                        quality =
                            value.parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0);
                    }
                    Some(("version", version)) => {
                        known = matches!(version, "1.0.0" | "0.0.1" | "0.0.4")
                    }
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if known => open = open.max(quality),
                "text/plain" | "text/*" if known => plain = plain.max(quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
    }
}

/// What one scrape found of one source.
#[derive(Clone, Debug)]
pub struct Scrape {
    /// What the source is called in labels.
    pub source: String,
    /// Its counters; nothing if it did not answer in time.
    pub snapshot: Option<Snapshot>,
    /// What was seen in looks at its sessions since the endpoint started, if looks tell something.
    pub sampling: Option<Sampling>,
    /// How long its answer took, or until it was given up.
    pub took: Duration,
}

/// What goes into the text besides what always does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Content {
    /// How many statements of each source, those that took the longest; none by default, since each
    /// is a series of its own for ever.
    pub statements: usize,
}

/// The text of one scrape.
pub fn render(scrapes: &[Scrape], host: &HostStat, content: Content, format: Format) -> String {
    families::of(scrapes, host, content).write(format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_one_that_the_reader_prefers() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,\
                            application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus_2), Format::OpenMetrics);
        for plain in [
            "",
            "*/*",
            "text/plain",
            "text/html,application/xhtml+xml",
            "application/openmetrics-text;q=0",
        ] {
            assert_eq!(Format::accepted(plain), Format::Prometheus, "{plain}");
        }
        assert_eq!(
            Format::accepted("application/openmetrics-text;q=0.2, text/plain;q=0.9"),
            Format::Prometheus
        );
        assert_eq!(
            Format::accepted("application/openmetrics-text; version=9.0.0"),
            Format::Prometheus
        );
        assert_eq!(Format::accepted(&",;=q".repeat(10_000)), Format::Prometheus);
    }
}
