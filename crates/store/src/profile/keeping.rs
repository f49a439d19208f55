//! Keeping: which files' blocks a tier keeps longest, and of which it takes no copies.
//!
//! Rules are given when a home is attached, as `keep=PATTERN`, `none=PATTERN` or `default=PATTERN`.
//! The first that matches a file's path decides; a file that none matches is treated as always.
//! They are about data files: redo has its own share of the tier.
//!
//! Deliberately absent: what a tier does by them (`mover`).

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// How a tier treats the blocks of a file (Oracle's CELL_FLASH_CACHE).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Keeping {
    /// What is read of it stays at home. What is written to it goes home, and out of the tier,
    /// before other files' blocks do.
    None,
    /// As its reads deserve.
    #[default]
    Default,
    /// What is read of it is taken at once, and leaves the tier after other files' blocks.
    Keep,
}

impl Keeping {
    /// In the order in which blocks leave a tier.
    pub(crate) const LEAVING: [Keeping; 3] = [Keeping::None, Keeping::Default, Keeping::Keep];

    /// The word for it in rules and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Keeping::None => "none",
            Keeping::Default => "default",
            Keeping::Keep => "keep",
        }
    }
}

impl fmt::Display for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Files, and how the tier treats their blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRule {
    /// How.
    pub keeping: Keeping,
    /// Which: a path relative to home, or a name in any directory.
    pub pattern: String,
}

impl fmt::Display for CacheRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.keeping, self.pattern)
    }
}

/// The rules of a home; the first that matches decides.
#[derive(Debug, Clone, Default)]
pub struct CacheRules {
    rules: Vec<CacheRule>,
    /// Pattern for rule.
    patterns: Arc<GlobSet>,
}

/// Rules that cannot be read: each of them, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: give keep=PATTERN, none=PATTERN or default=PATTERN, where a pattern is a path relative to \
     home with ?, *, **, [...] and {{...,...}}, or a name in any directory",
    .0.join("; ")
)]
pub struct CacheRulesError(pub Vec<String>);

impl CacheRules {
    /// Reads rules.
    ///
    /// # Errors
    /// Names every rule that cannot be read.
    pub fn parse<'a>(
        rules: impl IntoIterator<Item = &'a str>,
    ) -> Result<CacheRules, CacheRulesError> {
        let (mut read, mut bad) = (Vec::new(), Vec::new());
        let mut patterns = GlobSetBuilder::new();
        for text in rules {
            let (word, pattern) = text.split_once('=').unwrap_or((text, ""));
            let Some(keeping) = Keeping::LEAVING.into_iter().find(|keeping| keeping.name() == word)
            else {
                bad.push(format!("the cache rule `{text}` begins with none of the three words"));
                continue;
            };
            if pattern.is_empty() || pattern.contains(char::is_control) {
                bad.push(format!("the cache rule `{}` has no pattern", text.escape_debug()));
                continue;
            }
            match path_pattern(pattern) {
                Ok(glob) => {
                    let _ = patterns.add(glob);
                    read.push(CacheRule { keeping, pattern: pattern.to_owned() });
                }
                Err(e) => bad.push(format!("the cache rule `{text}` cannot be read: {}", e.kind())),
            }
        }
        let patterns = patterns.build().map_err(|e| CacheRulesError(vec![e.to_string()]));
        if bad.is_empty() {
            Ok(CacheRules { rules: read, patterns: Arc::new(patterns?) })
        } else {
            Err(CacheRulesError(bad))
        }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[CacheRule] {
        &self.rules
    }

    /// How the blocks of the file at this path relative to home are treated.
    pub fn keeping(&self, rel: &Path) -> Keeping {
        self.decides(rel).map_or(Keeping::Default, |rule| self.rules[rule].keeping)
    }

    /// Which rule decides of the file at this path.
    pub fn decides(&self, rel: &Path) -> Option<usize> {
        self.patterns.matches(rel).into_iter().min()
    }

    /// Whether blocks of some files leave after others'.
    pub(crate) fn keeps_some(&self) -> bool {
        self.rules.iter().any(|rule| rule.keeping == Keeping::Keep)
    }
}

/// A pattern of paths relative to home; without a slash, of a name in any directory.
pub(crate) fn path_pattern(pattern: &str) -> Result<globset::Glob, globset::Error> {
    let anywhere = if pattern.contains('/') { pattern.to_owned() } else { format!("**/{pattern}") };
    GlobBuilder::new(anywhere.trim_start_matches('/')).literal_separator(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = CacheRules::parse([
            "none=base/5/16401*",
            "keep=base/5/*",
            "default=/base/**",
            "none=*.tmp",
        ])
        .unwrap();
        for (path, keeping) in [
            ("base/5/16401.1", Keeping::None),
            ("base/5/16400", Keeping::Keep),
            ("base/4/16400", Keeping::Default),
            ("base/a.tmp", Keeping::Default),
            ("deep/down/a.tmp", Keeping::None),
            ("global/1", Keeping::Default),
        ] {
            assert_eq!(rules.keeping(Path::new(path)), keeping, "{path}");
        }
        assert_eq!(rules.decides(Path::new("base/5/16400")), Some(1));
        assert_eq!(rules.rules()[1].to_string(), "keep=base/5/*");
        assert_eq!(CacheRules::default().keeping(Path::new("a")), Keeping::Default);
        let all = CacheRules::parse(["keep=**"]).unwrap();
        assert!(
            ["a", "a/b", "a/b/c"].iter().all(|path| all.keeping(Path::new(path)) == Keeping::Keep)
        );
    }

    #[test]
    fn rules_that_cannot_be_read_are_all_named() {
        let bad = ["pin=a", "keep", "none=", "keep=[a", "keep=a\nb", "default=ok"];
        let said = CacheRules::parse(bad).unwrap_err();
        assert_eq!(said.0.len(), 5, "{said}");
        let said = said.to_string();
        for rule in ["`pin=a`", "`keep`", "`none=`", "`keep=[a`", "a\\nb", "default=PATTERN"] {
            assert!(said.contains(rule), "{rule} in {said}");
        }
    }
}
