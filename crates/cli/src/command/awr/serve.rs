//! `tiersmith awr serve`: counters of sources for Prometheus, by HTTP.
//!
//! A source that is not there when it starts is asked again with every scrape: monitoring outlives
//! what it looks at.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use tiersmith_awr::host;
use tiersmith_awr::metrics::{
    Content, Endpoint, Format, Hosts, Listen, Opener, Watch, Watched, render,
};
use tiersmith_awr::sources::Address;

use super::super::{print, print_json};
use super::record::{HowToAsk, duration, length};
use crate::Outcome;
use crate::error::{Error, Result};

/// Serve counters and waits of sources as OpenMetrics, for Prometheus and Grafana
///
/// GET /metrics asks every source then and there, so figures are never older than a second; one
/// that does not answer in time is `tiersmith_up 0` without any other figure. GET /healthz answers
/// without asking. What a metric means is in docs/guide/metrics.md; dashboards for Grafana are in
/// docs/grafana.
///
/// By default only this machine can reach it. There is no password and no TLS: for other machines
/// put a proxy before it, or listen at an address that only your monitoring reaches. It answers to
/// `localhost`, to addresses in digits and to names given by --allow-host: so no web page can read
/// the figures by a name that leads here.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith awr serve --source postgresql:///postgres
  tiersmith awr serve --source /data/db --source redis://localhost --listen 10.0.0.5:9756
  tiersmith awr serve --source host --listen 0.0.0.0:9756 --allow-host db1.example.org
  tiersmith awr serve --source host --listen unix:/run/tiersmith/metrics.sock
  curl -H 'Accept: application/openmetrics-text' http://127.0.0.1:9756/metrics

Exit codes: 0 the time was over; 2 error; 128 and the signal's number if a signal ended it.")]
pub(crate) struct Serve {
    /// What to serve, as `tiersmith awr record` takes it; may be given several times
    #[arg(long, value_name = "URL", required = true)]
    source: Vec<String>,
    /// Where to listen: ADDRESS:PORT, or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9756", value_parser = At::parse)]
    listen: At,
    /// A name, besides that of --listen, by which it may be asked for, as your Prometheus writes
    /// it; may be given several times
    #[arg(long, value_name = "NAME", value_parser = Hosts::parse)]
    allow_host: Vec<String>,
    /// How long a scrape waits for a source; less than Prometheus' scrape_timeout
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = duration,
    allow_hyphen_values = true)]
    patience: Duration,
    /// The time from one look at the active sessions to the next, where waits can only be sampled;
    /// 0 for none
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration,
    allow_hyphen_values = true)]
    sample: Duration,
    /// Statements of each source to serve, those that took the longest: every one that ever was is
    /// a time series in Prometheus
    #[arg(long, value_name = "N", default_value_t = 0,
    value_parser = clap::value_parser!(u16).range(0..=200))]
    top_statements: u16,
    /// How long to serve; without it until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = length, allow_hyphen_values = true)]
    length: Option<Duration>,
    #[command(flatten)]
    asking: HowToAsk,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Serve {
    pub(super) fn run(&self) -> Result<Outcome> {
        let sample = Some(self.sample).filter(|period| !period.is_zero());
        let shortest = Duration::from_millis(100);
        if self.patience < shortest || sample.is_some_and(|period| period < shortest) {
            return Err(Error::Usage("give --patience and --sample 100ms or more".into()));
        }
        let thread =
            |source| Error::Io { what: "start a thread for", path: "a source".into(), source };
        let mut labels: Vec<String> = Vec::new();
        let mut sources = Vec::new();
        for source in &self.source {
            let label = self.label(source)?;
            if labels.contains(&label) {
                return Err(Error::Usage(format!(
                    "{label} was given twice; give each source once"
                )));
            }
            let (asking, of) = (self.asking.clone(), source.clone());
            let opener: Opener = Box::new(move || asking.open(&of).map_err(|e| e.to_string()));
            sources.push(Watched::start(&label, opener, sample).map_err(thread)?);
            labels.push(label);
        }
        let watch = Watch::new(sources, self.patience);
        let content = Content { statements: usize::from(self.top_statements) };
        let answer = move |format: Format| render(&watch.scrape(), &host::read(), content, format);
        let hosts = Hosts::of(self.allow_host.iter().chain(&self.listen.name).cloned());
        let endpoint =
            Endpoint::start(&self.listen.listen, hosts, Arc::new(answer)).map_err(|e| {
                Error::Usage(format!(
                    "cannot listen at {}: {e}; give another --listen, or end what listens there",
                    shown(&self.listen.listen)
                ))
            })?;
        let at = shown(endpoint.listens_at());
        if endpoint.listens_at().is_open_to_others() {
            log::warn!(
                "other machines can reach {at}: whoever does reads these figures without a password"
            );
        }
        match self.json {
            true => print_json(&json!({ "listen": at, "sources": labels }))?,
            false => print(&format!("serving {} at {at}\n", labels.join(", ")))?,
        }
        let began = Instant::now();
        // Ctrl-C and signals end the program.
        while self.length.is_none_or(|length| began.elapsed() < length) {
            let left = self.length.map(|length| length.saturating_sub(began.elapsed()));
            std::thread::park_timeout(left.unwrap_or(Duration::from_secs(3600)));
        }
        drop(endpoint);
        Ok(Outcome::Good)
    }

    /// What a source is called in labels: its address without anything secret, or a mark if names
    /// are to be taken out.
    fn label(&self, source: &str) -> Result<String> {
        let name = match Address::is_one(source) {
            true => Address::parse(source)?.shown(),
            false => source.to_owned(),
        };
        Ok(self.asking.asking()?.redaction.name(&name))
    }
}

/// Where it listens, and the name that the user gave for it: by that it may be asked.
#[derive(Clone, Debug)]
struct At {
    listen: Listen,
    name: Option<String>,
}

impl At {
    fn parse(text: &str) -> std::result::Result<At, String> {
        let listen = Listen::parse(text)?;
        let name = match &listen {
            Listen::Tcp(_) => text.rsplit_once(':').and_then(|(host, _)| Hosts::parse(host).ok()),
            Listen::Unix(_) => None,
        };
        Ok(At { listen, name })
    }
}

fn shown(listen: &Listen) -> String {
    match listen {
        Listen::Tcp(address) => format!("http://{address}/metrics"),
        Listen::Unix(path) => format!("unix:{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::At;

    #[test]
    fn it_may_be_asked_by_the_name_it_listens_at() {
        for (given, name) in [
            ("LocalHost:0", Some("localhost")),
            ("127.0.0.1:1", Some("127.0.0.1")),
            ("[::1]:1", None),
            ("unix:/x", None),
        ] {
            assert_eq!(At::parse(given).expect(given).name.as_deref(), name, "{given}");
        }
        assert!(At::parse("nothing").is_err());
    }
}
