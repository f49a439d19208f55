//! Samples of active sessions: who was working or waiting, and for what, whenever somebody looked.
//!
//! PostgreSQL keeps no time of waits; what can be had is to look often and count. A count of looks
//! is an estimate with an error, not a measurement: it has types and tables of its own, and no
//! report adds it to measured time.
//!
//! ```text
//! average active sessions                       =  sessions seen / looks
//! standard error of a share p of n sightings    =  sqrt(p (1 - p) / n)
//! ```
//!
//! Besides what was waited for, a sampler keeps who waited (`who.rs`): statements, sessions, and
//! those that blocked others.
//!
//! Invariants: counts grow as long as the sampler is the same; two samplers are never mixed.

pub(crate) mod who;

use serde::{Deserialize, Serialize};
use tiersmith_events::WaitClass;

use self::who::SampledWho;

/// What a sampler has seen since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Another one whenever counting begins at zero.
    pub sampler: String,
    /// The time from one look to the next that was asked for, in milliseconds.
    pub period_ms: u64,
    /// How often it looked.
    pub looks: u64,
    /// What the sessions that were seen did.
    pub events: Vec<SampleStat>,
    /// The same by statement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<SampledWho>,
    /// The same by session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SampledWho>,
    /// Sessions that others waited for: the event is what those waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<SampledWho>,
}

/// A session, a statement or a blocker: what tells it from others, and what to show of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Who<'a> {
    /// The number of the session or of the statement; empty if the source gives none.
    pub id: &'a str,
    /// User and database, or the text of the statement, its literals taken out.
    pub text: &'a str,
}

/// An active session that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    /// What it waited for; [`ON_CPU`] for work.
    pub event: &'a str,
    /// The class of that; nothing for work.
    pub class: Option<WaitClass>,
    /// Itself.
    pub session: Who<'a>,
    /// What it runs.
    pub statement: Who<'a>,
    /// The session at the head of those that it waits for.
    pub blocker: Option<Who<'a>>,
}

/// How often sessions were seen in one wait, or on a processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampleStat {
    /// What was waited for; `on CPU` for a session that worked and waited for nothing the database
    /// names.
    pub name: String,
    /// The wait class by its name in reports; `CPU` for work.
    pub class: String,
    /// Sessions seen, summed over all looks.
    pub seen: u64,
}

/// What a session that waits for nothing is counted as.
pub const ON_CPU: &str = "on CPU";

/// The class of [`ON_CPU`].
pub const CPU: &str = "CPU";

impl Sampling {
    /// A sampler that has not looked yet.
    pub fn new(sampler: String, period_ms: u64) -> Sampling {
        Sampling { sampler, period_ms, ..Sampling::default() }
    }

    /// Counts a session seen; `class` is nothing for work.
    pub fn saw(&mut self, name: &str, class: Option<WaitClass>) {
        let class = class.map_or(CPU, WaitClass::name);
        match self.events.iter_mut().find(|event| event.name == name && event.class == class) {
            Some(event) => event.seen += 1,
            None => {
                self.events.push(SampleStat {
                    name: name.to_owned(),
                    class: class.to_owned(),
                    seen: 1,
                });
            }
        }
    }

    /// Counts a session seen, with who it was.
    pub fn saw_session(&mut self, seen: &Seen<'_>) {
        self.saw(seen.event, seen.class);
        let class = seen.class.map_or(CPU, WaitClass::name);
        who::count(&mut self.statements, seen.statement, seen.event, class);
        who::count(&mut self.sessions, seen.session, seen.event, class);
        if let Some(blocker) = seen.blocker {
            who::count(&mut self.blockers, blocker, seen.event, class);
        }
    }

    /// The same without who it was: what a series needs.
    pub(crate) fn brief(&self) -> Sampling {
        let (sampler, events) = (self.sampler.clone(), self.events.clone());
        Sampling {
            sampler,
            events,
            period_ms: self.period_ms,
            looks: self.looks,
            ..Sampling::default()
        }
    }

    /// Whether the contents fit together.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, event) in self.events.iter().enumerate() {
            if self.events[..index]
                .iter()
                .any(|other| other.name == event.name && other.class == event.class)
            {
                return Err(format!("the sampled event `{}` is there twice", event.name));
            }
            if event.class != CPU && WaitClass::from_name(&event.class).is_none() {
                return Err(format!("`{}` is not a wait class", event.class));
            }
        }
        [&self.statements, &self.sessions, &self.blockers]
            .into_iter()
            .try_for_each(|rows| who::check(rows))
    }

    /// Sessions seen, of all events.
    pub fn seen(&self) -> u64 {
        self.events.iter().fold(0, |sum, event| sum.saturating_add(event.seen))
    }

    /// Sessions seen by look; nothing if nobody looked.
    pub fn active_sessions(&self) -> Option<f64> {
        (self.looks > 0).then(|| self.seen() as f64 / self.looks as f64)
    }

    /// What was seen after `earlier`; nothing if it is another sampler's, or counts went backwards.
    pub(crate) fn since(&self, earlier: &Sampling) -> Option<Sampling> {
        if self.sampler != earlier.sampler {
            return None;
        }
        let looks = self.looks.checked_sub(earlier.looks)?;
        let mut events = Vec::new();
        for event in &self.events {
            let same =
                |before: &&SampleStat| before.name == event.name && before.class == event.class;
            let before = earlier.events.iter().find(same).map_or(0, |before| before.seen);
            let seen = event.seen.checked_sub(before)?;
            if seen > 0 {
                events.push(SampleStat { seen, ..event.clone() });
            }
        }
        events.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.name.cmp(&b.name)));
        Some(Sampling {
            sampler: self.sampler.clone(),
            period_ms: self.period_ms,
            looks,
            events,
            statements: who::since(&self.statements, &earlier.statements)?,
            sessions: who::since(&self.sessions, &earlier.sessions)?,
            blockers: who::since(&self.blockers, &earlier.blockers)?,
        })
    }
}

/// The standard error of a share of `n` sightings, in per cent, for a share in per cent.
pub(crate) fn error_of_share(percent: f64, n: u64) -> Option<f64> {
    let p = (percent / 100.0).clamp(0.0, 1.0);
    (n > 0).then(|| (p * (1.0 - p) / n as f64).sqrt() * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samplers_are_never_subtracted_from_each_other() {
        let mut first = Sampling::new("one".to_owned(), 1000);
        first.looks = 2;
        first.saw("IO: WALSync", Some(WaitClass::Commit));
        let mut later = first.clone();
        later.looks = 10;
        for _ in 0..4 {
            later.saw("IO: WALSync", Some(WaitClass::Commit));
            later.saw(ON_CPU, None);
        }
        let delta = later.since(&first).expect("one sampler");
        assert_eq!((delta.looks, delta.seen(), delta.active_sessions()), (8, 8, Some(1.0)));
        assert!(later.check().is_ok());
        assert!(later.since(&Sampling { sampler: "other".to_owned(), ..first.clone() }).is_none());
        assert!(first.since(&later).is_none(), "backwards");
    }
}
