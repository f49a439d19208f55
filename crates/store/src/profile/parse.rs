//! Reading a profile: the TOML file and what may be wrong with it.
//!
//! ```toml
//! description = "for people, one sentence"
//! # The home is this database's if all paths of one of the lists are there. The last part of a
//! # path directly in home may be a pattern. No list: never detected, only named.
//! detect = [["PG_VERSION", "global/pg_control"]]
//!
//! # Files of class data or redo that every server writes when it starts: by them the next attach
//! # sees that one ran on the home without the tier; none if absent.
//! sentinel = ["global/pg_control"]
//! redo_at_least_mib = 4 # a tier for the redo with less room than this is refused; 0 if absent
//!
//! [default]            # files no rule matches
//! class = "pass"       # redo, data or pass
//! block_size = 8192    # a power of two from 4096 to 32768
//!
//! [[rule]]             # the first rule that matches decides
//! files = ["base/**"]  # patterns on the path relative to home: `?` and `*` stay within a part,
//!                      # `**` crosses parts, `[0-9]` is one of these characters, `{a,b}` either
//!                      # of the two
//! class = "data"
//! block_size = 8192    # that of the default if absent
//! temporary = true     # never needed after a crash, so no sync has to wait for it; false if
//!                      # absent
//! lend = true          # of class redo, made whole before it is written, and never grown: the
//!                      # kernel may write it itself, in a plain file beside the tier; false if
//!                      # absent
//! why = "shown to people who ask why a file is where it is"
//! ```
//!
//! Invariant: a profile that was read has only rules that can be obeyed.

use std::path::PathBuf;
use std::sync::Arc;

use globset::{Glob, GlobBuilder, GlobSetBuilder};
use serde::Deserialize;

use super::{FileClass, MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, Placement, Profile, Rule, Sign};

/// Why there is no such profile, or why its file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No built-in profile has the name.
    #[error(
        "there is no profile called `{name}`: use one of {known}, or give a profile file of your \
         own"
    )]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The text is not TOML, or has a key, class or type that a profile does not have.
    #[error("profile `{profile}` cannot be read: {source}correct the file at the place shown")]
    Syntax {
        /// The profile.
        profile: String,
        /// The place and the reason; its text ends with a line break.
        source: Box<toml::de::Error>,
    },
    /// A block size that the tier does not have.
    #[error(
        "profile `{profile}` asks for blocks of {block_size} bytes {place}: \
         use a power of two from {MIN_BLOCK_SIZE} to {MAX_BLOCK_SIZE}"
    )]
    BlockSize {
        /// The profile.
        profile: String,
        /// Where it says so.
        place: String,
        /// What it says.
        block_size: u32,
    },
    /// A pattern that cannot be read.
    #[error(
        "profile `{profile}` has a pattern that cannot be read {place}: {source}; \
         a pattern is a path relative to home with ?, *, **, [...] and {{...,...}}"
    )]
    Pattern {
        /// The profile.
        profile: String,
        /// Where it has it.
        place: String,
        /// What is wrong with it.
        source: globset::Error,
    },
    /// A pattern that no path relative to home can match.
    #[error(
        "profile `{profile}` has the pattern `{pattern}` {place}, which no file can match: \
         write it relative to home, without a slash in front and without empty, `.` or `..` parts"
    )]
    Unreachable {
        /// The profile.
        profile: String,
        /// Where it has it.
        place: String,
        /// The pattern.
        pattern: String,
    },
    /// A rule that lends files of another class.
    #[error(
        "profile `{profile}` lends files of class `{class}` {place}: only `redo` can be lent; \
         remove `lend` or change the class"
    )]
    LendsNoRedo {
        /// The profile.
        profile: String,
        /// Which rule.
        place: String,
        /// Its class.
        class: FileClass,
    },
    /// A sentinel that the tier would know nothing of.
    #[error(
        "profile `{profile}` has the sentinel `{}`, which is of class `pass`: name a file of class \
         `data` or `redo` that every server \
         writes when it starts", sentinel.display()
    )]
    SentinelPasses {
        /// The profile.
        profile: String,
        /// The file.
        sentinel: PathBuf,
    },
    /// A rule without patterns.
    #[error(
        "profile `{profile}` has no pattern in `files` {place}: name some files or remove the rule"
    )]
    NoPattern {
        /// The profile.
        profile: String,
        /// Which rule.
        place: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileText {
    description: String,
    #[serde(default)]
    detect: Vec<Vec<String>>,
    #[serde(default)]
    sentinel: Vec<PathBuf>,
    #[serde(default)]
    redo_at_least_mib: u32,
    default: DefaultText,
    #[serde(default)]
    rule: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DefaultText {
    class: FileClass,
    block_size: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(default)]
    temporary: bool,
    #[serde(default)]
    lend: bool,
    files: Vec<String>,
    class: FileClass,
    block_size: Option<u32>,
    why: String,
}

/// What errors name: the profile.
struct Reader<'a> {
    profile: &'a str,
}

pub(super) fn parse(name: &str, toml: &str) -> Result<Profile, ProfileError> {
    let text: ProfileText = toml::from_str(toml).map_err(|source| ProfileError::Syntax {
        profile: name.to_owned(),
        source: Box::new(source),
    })?;
    let reader = Reader { profile: name };
    let default = reader.placement("in [default]", text.default.class, text.default.block_size)?;
    let mut patterns = GlobSetBuilder::new();
    let (mut rules, mut rule_of, mut lent_in) = (Vec::new(), Vec::new(), None);
    for (index, rule) in text.rule.into_iter().enumerate() {
        let place = format!("in rule {}", index + 1);
        if rule.files.is_empty() {
            return Err(ProfileError::NoPattern { profile: name.to_owned(), place });
        }
        for pattern in &rule.files {
            patterns.add(reader.pattern(&place, pattern)?);
            let directory = || pattern.rsplit_once('/').map(|(directory, _)| directory);
            if rule.lend && lent_in.is_none() {
                lent_in = directory().filter(|directory| !is_pattern(directory)).map(PathBuf::from);
            }
            rule_of.push(index);
        }
        let placement =
            reader.placement(&place, rule.class, rule.block_size.unwrap_or(default.block_size))?;
        if rule.lend && rule.class != FileClass::Redo {
            return Err(ProfileError::LendsNoRedo {
                profile: name.to_owned(),
                place,
                class: rule.class,
            });
        }
        rules.push(Rule { placement, temporary: rule.temporary, lend: rule.lend, why: rule.why });
    }
    let patterns = patterns.build().map_err(|source| ProfileError::Pattern {
        profile: name.to_owned(),
        place: "in its rules together".to_owned(),
        source,
    })?;
    let detect =
        text.detect.iter().map(|signs| signs.iter().map(|sign| reader.sign(sign)).collect());
    let detect = detect.collect::<Result<Vec<Vec<Sign>>, ProfileError>>()?;
    // A list of nothing would fit every directory.
    let detect = detect.into_iter().filter(|signs| !signs.is_empty()).collect();
    let profile = Profile {
        name: name.to_owned(),
        description: text.description,
        detect,
        default,
        sentinels: text.sentinel,
        lent_in,
        redo_at_least: u64::from(text.redo_at_least_mib) << 20,
        rules: rules.into(),
        patterns: Arc::new(patterns),
        rule_of: rule_of.into(),
    };
    let passes = |path: &&PathBuf| profile.placement(path).class == FileClass::Pass;
    match profile.sentinels.iter().find(passes).cloned() {
        Some(sentinel) => Err(ProfileError::SentinelPasses { profile: name.to_owned(), sentinel }),
        None => Ok(profile),
    }
}

impl Reader<'_> {
    fn placement(
        &self,
        place: &str,
        class: FileClass,
        block_size: u32,
    ) -> Result<Placement, ProfileError> {
        if !block_size.is_power_of_two() || !(MIN_BLOCK_SIZE..=MAX_BLOCK_SIZE).contains(&block_size)
        {
            let (profile, place) = (self.profile.to_owned(), place.to_owned());
            return Err(ProfileError::BlockSize { profile, place, block_size });
        }
        Ok(Placement { class, block_size })
    }

    fn pattern(&self, place: &str, pattern: &str) -> Result<Glob, ProfileError> {
        let (profile, place) = (self.profile.to_owned(), place.to_owned());
        if pattern.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ProfileError::Unreachable { profile, place, pattern: pattern.to_owned() });
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        glob.map_err(|source| ProfileError::Pattern { profile, place, source })
    }

    fn sign(&self, sign: &str) -> Result<Sign, ProfileError> {
        let glob = self.pattern("in detect", sign)?;
        match is_pattern(sign) && !sign.contains('/') {
            true => Ok(Sign::Name(glob.compile_matcher())),
            false => Ok(Sign::Path(PathBuf::from(sign))),
        }
    }
}

/// Whether it stands for more than one name.
fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DEFAULT: &str = "description = 'a test'\n[default]\nclass = 'pass'\nblock_size = 4096\n";

    fn error_of(rules: &str) -> String {
        Profile::parse("mine", &format!("{DEFAULT}{rules}")).unwrap_err().to_string()
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = "[[rule]]\nfiles = ['a/*.x']\nclass = 'redo'\nwhy = 'first'\n\
                     [[rule]]\nfiles = ['b', 'a/**']\nclass = 'data'\nblock_size = 8192\nwhy = \
                     'second'\n";
        let profile = Profile::parse("mine", &format!("{DEFAULT}{rules}")).unwrap();
        let of = |path: &str| (profile.placement(Path::new(path)), profile.why(Path::new(path)));
        let placed = |class, block_size| Placement { class, block_size };
        assert_eq!(of("a/1.x"), (placed(FileClass::Redo, 4096), Some("first")));
        assert_eq!(of("./a//1.x"), (placed(FileClass::Redo, 4096), Some("first")));
        assert_eq!(of("a/b/1.x"), (placed(FileClass::Data, 8192), Some("second")));
        assert_eq!(of("b"), (placed(FileClass::Data, 8192), Some("second")));
        assert_eq!(of("b/c"), (placed(FileClass::Pass, 4096), None));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let message =
            error_of("[[rule]]\nfiles = ['a']\nclass = 'data'\nwhy = ''\nblocksize = 8192\n");
        assert!(message.contains("profile `mine`") && message.contains("`blocksize`"), "{message}");
        assert!(message.contains("line 9"), "{message}");
    }

    #[test]
    fn an_unknown_class_is_answered_with_the_three_there_are() {
        let message = error_of("[[rule]]\nfiles = ['a']\nclass = 'log'\nwhy = ''\n");
        assert!(
            message.contains("`log`") && message.contains("`redo`, `data`, `pass`"),
            "{message}"
        );
    }

    #[test]
    fn a_block_size_that_is_no_power_of_two_or_out_of_range_is_refused() {
        for block_size in [0u32, 512, 2048, 6000, 12288, 65536] {
            let rule = format!(
                "[[rule]]\nfiles = ['a']\nclass = 'data'\nwhy = ''\n[[rule]]\nfiles = ['b']\nclass \
                 = 'data'\n\
                 block_size = {block_size}\nwhy = ''\n"
            );
            let message = error_of(&rule);
            assert!(
                message.contains(&format!("blocks of {block_size} bytes in rule 2")),
                "{message}"
            );
            assert!(message.contains("a power of two from 4096 to 32768"), "{message}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_quoted() {
        let message = error_of("[[rule]]\nfiles = ['base/[0-9']\nclass = 'data'\nwhy = ''\n");
        assert!(message.contains("in rule 1") && message.contains("base/[0-9"), "{message}");
    }

    #[test]
    fn a_pattern_no_file_can_match_is_refused() {
        for pattern in ["/base", "base//x", "./x", "../x", "", "base/"] {
            let message =
                error_of(&format!("[[rule]]\nfiles = ['{pattern}']\nclass = 'data'\nwhy = ''\n"));
            assert!(message.contains("no file can match"), "{pattern}: {message}");
        }
    }

    #[test]
    fn only_redo_can_be_lent() {
        let message = error_of("[[rule]]\nfiles = ['a']\nclass = 'data'\nlend = true\nwhy = ''\n");
        assert!(message.contains("class `data` in rule 1: only `redo`"), "{message}");
        let rule = "[[rule]]\nfiles = ['a']\nclass = 'redo'\nlend = true\nwhy = ''\n";
        let profile = Profile::parse("mine", &format!("{DEFAULT}{rule}")).unwrap();
        assert!(profile.is_lent(Path::new("a")) && !profile.is_lent(Path::new("b")));
        assert_eq!(profile.lent_directory(), None, "home itself");
        let rule = rule.replace("'a'", "'*/a', 'b/c/[0-9]'");
        let profile = Profile::parse("mine", &format!("{DEFAULT}{rule}")).unwrap();
        assert_eq!(profile.lent_directory(), Some(Path::new("b/c")));
        let postgres = Profile::named("postgres").unwrap();
        assert_eq!(postgres.lent_directory(), Some(Path::new("pg_wal")));
    }

    #[test]
    fn a_rule_without_files_is_refused() {
        let message = error_of("[[rule]]\nfiles = []\nclass = 'data'\nwhy = ''\n");
        assert!(message.contains("no pattern in `files` in rule 1"), "{message}");
    }

    #[test]
    fn an_unknown_profile_is_answered_with_those_there_are() {
        let message = Profile::named("oracle").unwrap_err().to_string();
        assert!(message.contains("`oracle`"), "{message}");
        assert!(Profile::builtin().all(|known| message.contains(known.name())), "{message}");
    }
}
