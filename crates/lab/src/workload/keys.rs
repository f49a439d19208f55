//! GET and SET of a key-value server, mixed: what is asked, of which keys, how many at once.
//!
//! After memtier_benchmark, with its usual values: a SET for every ten GETs, values of 32 bytes,
//! one request at a time; keys uniform, sequential or gaussian with the middle key as mean and a
//! sixth of the keys as standard deviation. Our differences: every key has a value before the run,
//! so no GET misses; a pipeline is a batch that is answered whole before the next one is sent,
//! where memtier sends one more for each answer; gaussian is what is drawn when nothing is said,
//! for the keys of an application are seldom equal.
//!
//! **Invariants**: of each window of SETS + GETS requests the first SETS are SETs; the same
//! settings and seed give the same requests.
//! **Deliberately absent**: time, threads and sockets (`target/server/keys.rs`), commands besides
//! GET and SET, expiry.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::size::ByteSize;
use crate::workload::slob;

/// The most of either part of the ratio.
const RATIO_MAX: u32 = 1000;
/// The most requests at once.
const PIPELINE_MAX: u32 = 1000;
/// The longest value.
const VALUE_MAX: ByteSize = ByteSize(1 << 20);
/// The most bytes of a batch of requests.
const BATCH_MAX: u64 = 16 << 20;
/// What a key takes beside its value, about.
const KEY_BYTES: u64 = 64;
/// Fewest and most keys.
const KEYS: (u64, u64) = (1000, 10_000_000);
/// Bytes of a value when nothing is said.
const VALUE: u64 = 32;

/// Which key comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Around the middle key, a sixth of the keys as standard deviation.
    #[default]
    Gaussian,
    /// Each key as likely as any other.
    Uniform,
    /// One after the other, each client from a place of its own.
    Sequential,
}

impl Pattern {
    /// Every one.
    pub const ALL: [Pattern; 3] = [Pattern::Gaussian, Pattern::Uniform, Pattern::Sequential];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Gaussian => "gaussian",
            Pattern::Uniform => "uniform",
            Pattern::Sequential => "sequential",
        }
    }
}

impl std::str::FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Pattern, String> {
        let names = || Pattern::ALL.map(Pattern::name).join(", ");
        let found = Pattern::ALL.into_iter().find(|pattern| pattern.name() == text);
        found.ok_or_else(|| format!("give one of {}", names()))
    }
}

/// So many SETs, then so many GETs, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ratio {
    /// SETs of a window.
    pub sets: u32,
    /// GETs of a window.
    pub gets: u32,
}

impl Default for Ratio {
    fn default() -> Ratio {
        Ratio { sets: 1, gets: 10 }
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.sets, self.gets)
    }
}

impl std::str::FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Ratio, String> {
        let parts = text
            .split_once(':')
            .and_then(|(sets, gets)| Some((sets.parse().ok()?, gets.parse().ok()?)));
        match parts {
            Some((sets, gets)) if sets <= RATIO_MAX && gets <= RATIO_MAX && sets + gets > 0 => {
                Ok(Ratio { sets, gets })
            }
            _ => Err(format!(
                "give SETS:GETS, each 0 to {RATIO_MAX} and not both 0, for instance 1:10"
            )),
        }
    }
}

impl TryFrom<String> for Ratio {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Ratio, String> {
        text.parse()
    }
}

impl From<Ratio> for String {
    fn from(ratio: Ratio) -> String {
        ratio.to_string()
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// SETs and GETs of `mixed`.
    pub ratio: Ratio,
    /// Requests that a client sends at once.
    pub pipeline: u32,
    /// Bytes of a value; absent: 32 of `mixed`, as many as a row of SLOB has of `set`.
    pub value: Option<ByteSize>,
    /// The keys of `mixed`.
    pub pattern: Pattern,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { ratio: Ratio::default(), pipeline: 1, value: None, pattern: Pattern::default() }
    }
}

/// What a caller wants instead of the settings of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instead {
    /// SETs and GETs.
    pub ratio: Option<Ratio>,
    /// Requests at once.
    pub pipeline: Option<u32>,
    /// Bytes of a value.
    pub value: Option<ByteSize>,
    /// Which keys.
    pub pattern: Option<Pattern>,
}

impl Instead {
    /// The settings with what is wanted instead.
    #[must_use]
    pub fn of(&self, settings: &Settings) -> Settings {
        Settings {
            ratio: self.ratio.unwrap_or(settings.ratio),
            pipeline: self.pipeline.unwrap_or(settings.pipeline),
            value: self.value.or(settings.value),
            pattern: self.pattern.unwrap_or(settings.pattern),
        }
    }
}

impl Settings {
    /// Bytes of a value of `mixed`.
    pub fn value_bytes(&self) -> u64 {
        self.value.map_or(VALUE, ByteSize::bytes)
    }

    /// Keys of `mixed`: as many as fit the scale.
    pub fn keys(&self, slob: &slob::Settings) -> u64 {
        (slob.scale.bytes() / (self.value_bytes() + KEY_BYTES)).clamp(KEYS.0, KEYS.1)
    }

    /// A scale that so many keys fit.
    pub fn scale_of(&self, keys: u64) -> ByteSize {
        ByteSize(keys.saturating_mul(self.value_bytes() + KEY_BYTES))
    }

    /// Whether they make a load.
    ///
    /// # Errors
    /// [`Error::Setting`]: which one does not.
    pub fn check(&self) -> Result<()> {
        let refuse =
            |setting, value: String, reason: String| Err(Error::Setting { setting, value, reason });
        if !(1..=PIPELINE_MAX).contains(&self.pipeline) {
            return refuse(
                "server.keys.pipeline",
                self.pipeline.to_string(),
                format!("give 1 to {PIPELINE_MAX}"),
            );
        }
        if let Some(value) =
            self.value.filter(|value| !(1..=VALUE_MAX.bytes()).contains(&value.bytes()))
        {
            return refuse(
                "server.keys.value",
                value.to_string(),
                format!("give 1 to {} bytes", VALUE_MAX.bytes()),
            );
        }
        if u64::from(self.pipeline) * self.value_bytes() > BATCH_MAX {
            let reason = format!(
                "with values of {} bytes a batch is more than {} MiB; give less of one of them",
                self.value_bytes(),
                BATCH_MAX >> 20
            );
            return refuse("server.keys.pipeline", self.pipeline.to_string(), reason);
        }
        Ok(())
    }

    /// The requests of one client of several, of so many keys.
    pub fn plan(&self, keys: u64, client: u32, clients: u32, seed: u64) -> Plan {
        let keys = keys.max(1);
        Plan {
            ratio: self.ratio,
            pattern: self.pattern,
            keys,
            in_window: 0,
            next: keys * u64::from(client) / u64::from(clients.max(1)) % keys,
            random: super::generator(seed, client),
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Gives the key of this number a value.
    Set(u64),
    /// Asks for its value.
    Get(u64),
}

/// The requests of one client, without end.
#[derive(Debug)]
pub struct Plan {
    ratio: Ratio,
    pattern: Pattern,
    keys: u64,
    in_window: u32,
    next: u64,
    random: fastrand::Rng,
}

impl Plan {
    /// The next request.
    pub fn draw(&mut self) -> Request {
        let key = self.key();
        let is_set = self.in_window < self.ratio.sets;
        self.in_window = (self.in_window + 1) % (self.ratio.sets + self.ratio.gets).max(1);
        if is_set { Request::Set(key) } else { Request::Get(key) }
    }

    fn key(&mut self) -> u64 {
        match self.pattern {
            Pattern::Uniform => self.random.u64(0..self.keys),
            Pattern::Sequential => {
                let key = self.next;
                self.next = (key + 1) % self.keys;
                key
            }
            // Box and Muller's transform; what lies beyond the keys, three in a thousand, is drawn
            // again.
            Pattern::Gaussian => loop {
                let radius = (-2.0 * (1.0 - self.random.f64()).ln()).sqrt();
                let deviations = radius * (std::f64::consts::TAU * self.random.f64()).cos();
                let key = (self.keys as f64 * (0.5 + deviations / 6.0)).floor();
                if key >= 0.0 && key < self.keys as f64 {
                    return key as u64;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(settings: &Settings, count: usize) -> Vec<Request> {
        let mut plan = settings.plan(6000, 0, 4, 1);
        (0..count).map(|_| plan.draw()).collect()
    }

    fn key(request: Request) -> u64 {
        match request {
            Request::Set(key) | Request::Get(key) => key,
        }
    }

    #[test]
    fn one_in_eleven_requests_is_a_set_and_the_ratio_is_kept_in_every_window() {
        for (ratio, sets) in [("1:10", 1), ("3:1", 3), ("1:0", 1), ("0:1", 0)] {
            let ratio: Ratio = ratio.parse().unwrap();
            let window = (ratio.sets + ratio.gets) as usize;
            for window in
                requests(&Settings { ratio, ..Settings::default() }, 50 * window).chunks(window)
            {
                assert_eq!(
                    window.iter().filter(|request| matches!(request, Request::Set(_))).count(),
                    sets
                );
            }
        }
    }

    #[test]
    fn gaussian_keys_lie_as_a_normal_distribution_says_and_uniform_ones_everywhere() {
        let share = |pattern, within: u64| {
            let settings = Settings { pattern, ..Settings::default() };
            let found = requests(&settings, 40_000)
                .into_iter()
                .map(key)
                .filter(|key| key.abs_diff(3000) <= within);
            found.count() as f64 / 40_000.0
        };
        // One and two standard deviations.
        for (within, expected) in [(1000, 0.6845), (2000, 0.9570)] {
            let found = share(Pattern::Gaussian, within);
            assert!((found - expected).abs() < 0.01, "{found}");
        }
        assert!((share(Pattern::Uniform, 1000) - 1.0 / 3.0).abs() < 0.01);
        assert!(Pattern::ALL.iter().all(|pattern| (share(*pattern, 3000) - 1.0).abs() < 1e-9));
    }

    #[test]
    fn sequential_clients_begin_apart_and_come_round() {
        let settings = Settings { pattern: Pattern::Sequential, ..Settings::default() };
        let keys = |client| {
            let mut plan = settings.plan(8, client, 4, 1);
            (0..10).map(|_| key(plan.draw())).collect::<Vec<_>>()
        };
        assert_eq!(keys(0), [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]);
        assert_eq!(keys(3), [6, 7, 0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_same_seed_gives_the_same_requests_and_clients_differ() {
        let settings = Settings::default();
        assert_eq!(requests(&settings, 100), requests(&settings, 100));
        let keys = |client, seed| {
            let mut plan = settings.plan(6000, client, 4, seed);
            (0..20).map(|_| key(plan.draw())).collect::<Vec<_>>()
        };
        assert_ne!(keys(0, 1), keys(1, 1));
        assert_ne!(keys(0, 1), keys(0, 2));
    }

    #[test]
    fn settings_that_make_no_load_are_refused_with_what_to_give() {
        for settings in [
            Settings { pipeline: 0, ..Settings::default() },
            Settings { pipeline: 1001, ..Settings::default() },
            Settings { value: Some(ByteSize(0)), ..Settings::default() },
            Settings { value: Some(ByteSize(2 << 20)), ..Settings::default() },
            Settings { value: Some(ByteSize(1 << 20)), pipeline: 17, ..Settings::default() },
        ] {
            let error = settings.check().unwrap_err().to_string();
            assert!(
                error.starts_with("the setting server.keys.") && error.contains("give"),
                "{error}"
            );
        }
        for text in ["", "1", "0:0", "1:1001", "a:b", "1:-1", ":"] {
            assert!(text.parse::<Ratio>().unwrap_err().contains("SETS:GETS"), "{text}");
        }
        assert!("zipf".parse::<Pattern>().unwrap_err().contains("gaussian"));
        Settings::default().check().unwrap();
        let scale = slob::Settings { scale: ByteSize(96 << 20), ..slob::Settings::default() };
        assert_eq!(Settings::default().keys(&scale), (96 << 20) / 96);
    }
}
