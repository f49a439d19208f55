//! Taking out of statements and names what is nobody's business: literals always, unless the user asks otherwise.
//!
//! | level | what is kept |
//! |---|---|
//! | `Literals` (the default) | the statement, every string and number in it replaced by `?`, comments taken out |
//! | `Text` | no text of statements at all |
//! | `Names` | no text, and names of hosts, databases, paths and files replaced by a mark that stays the same for the same name |
//!
//! A mark is a pseudonym: who guesses a name can make its mark and compare.
//!
//! The scanner knows the quotes of PostgreSQL and MySQL. Where a text ends inside a quote (a server cut it off), the rest is taken
//! out, and so it is behind a backslash before a quote, which ends the literal on one server and not on another: when in doubt, it is a
//! literal. Of a statement that speaks of a password nothing is kept. A word in double quotes is taken for a name.
//!
//! Invariants: no character of a literal in single quotes passes; a text that is already without literals stays the same but for its spaces.

use xxhash_rust::xxh3::xxh3_64;

use crate::Snapshot;

/// What is taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    /// Literals and comments in statements.
    #[default]
    Literals,
    /// The text of statements.
    Text,
    /// The text of statements, and names.
    Names,
}

/// The longest text of a statement that is kept, in characters.
const LONGEST: usize = 2_000;

impl Redaction {
    /// A statement as it may be kept.
    pub fn statement(self, sql: &str) -> String {
        match self {
            Redaction::Literals if has_password(sql) => "(a statement with a password)".to_owned(),
            Redaction::Literals => without_literals(sql),
            Redaction::Text | Redaction::Names => String::new(),
        }
    }

    /// A name as it may be kept.
    pub fn name(self, name: &str) -> String {
        if self == Redaction::Names { mark(name) } else { name.to_owned() }
    }

    /// Takes the names out of a snapshot, if that is wanted.
    pub fn apply(self, snapshot: &mut Snapshot) {
        if self != Redaction::Names {
            return;
        }
        let source = &mut snapshot.source;
        for name in [&mut source.database, &mut source.path] {
            *name = mark(name);
        }
        if let Some(name) = &mut snapshot.host.name {
            *name = mark(name);
        }
        let resets = std::mem::take(&mut snapshot.resets);
        snapshot.resets = resets.into_iter().map(|(group, at)| (mark(&group), at)).collect();
        // Settings hold paths, host names and commands; which of them is not known here.
        source.settings.clear();
        // MySQL's begin with the name of the database.
        snapshot.statements.iter_mut().for_each(|statement| statement.id = mark(&statement.id));
        for line in snapshot.missing.iter_mut().filter(|line| line.ends_with(')')) {
            // In brackets at the end stands what the server said, names included.
            line.truncate(line.find(" (").unwrap_or(line.len()));
        }
        snapshot.missing.push("names and settings, taken out because that was asked for".to_owned());
    }
}

/// A name's mark: the same for the same name. Nobody reads the name from it, but a guess can be checked.
fn mark(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!("name-{:016x}", xxh3_64(name.as_bytes())) }
}

/// Whether it may set or give a password, which not every server takes out of statements about users.
fn has_password(sql: &str) -> bool {
    let lower = sql.to_lowercase();
    ["password", "identified"].iter().any(|word| lower.contains(word))
}

/// The statement with `?` for every literal, comments left out, spaces folded.
fn without_literals(sql: &str) -> String {
    let chars: Vec<char> = sql.chars().take(LONGEST * 8).collect();
    let mut out = String::new();
    let mut at = 0;
    let mut kept = 0;
    let mut push = |out: &mut String, c: char| {
        let space = c.is_whitespace();
        if !(space && (out.is_empty() || out.ends_with(' '))) && kept < LONGEST {
            out.push(if space { ' ' } else { c });
            kept += 1;
        }
    };
    while let Some(c) = chars.get(at).copied() {
        let next = chars.get(at + 1).copied();
        match c {
            '\'' => {
                at = end_of_quote(&chars, at + 1, '\'', true);
                push(&mut out, '?');
            }
            // An identifier in PostgreSQL, a string in MySQL: kept only if it looks like a name.
            '"' => {
                let end = end_of_quote(&chars, at + 1, '"', true);
                let inner: String = chars[at + 1..end.saturating_sub(1).max(at + 1)].iter().collect();
                let name = !inner.is_empty() && inner.chars().all(|c| c.is_alphanumeric() || c == '_');
                match name && inner.chars().next().is_some_and(|c| !c.is_ascii_digit()) {
                    true => format!("\"{inner}\"").chars().for_each(|c| push(&mut out, c)),
                    false => push(&mut out, '?'),
                }
                at = end;
            }
            '`' => {
                let end = end_of_quote(&chars, at + 1, '`', false);
                chars[at..end].iter().for_each(|c| push(&mut out, *c));
                at = end;
            }
            '$' if dollar_tag(&chars, at).is_some() => {
                let tag = dollar_tag(&chars, at).unwrap_or_default();
                at = end_of_dollar(&chars, at + tag.len(), &tag);
                push(&mut out, '?');
            }
            '-' if next == Some('-') => at = line_end(&chars, at),
            '#' if next != Some('>') && next != Some('-') => at = line_end(&chars, at),
            '/' if next == Some('*') => at = comment_end(&chars, at),
            _ if c.is_ascii_digit() && !continues_word(&chars, at) => {
                at = number_end(&chars, at);
                push(&mut out, '?');
            }
            _ => {
                push(&mut out, c);
                at += 1;
            }
        }
    }
    out.trim_end().to_owned()
}

/// Whether the character at `at` belongs to a name or a parameter such as `$1` or `t2`.
fn continues_word(chars: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|at| chars.get(at));
    before.is_some_and(|c| c.is_alphanumeric() || *c == '_' || *c == '$')
}

fn end_of_quote(chars: &[char], mut at: usize, quote: char, backslash: bool) -> usize {
    while at < chars.len() {
        if backslash && chars[at] == '\\' {
            if chars.get(at + 1) == Some(&quote) {
                return chars.len();
            }
            at += 2;
        } else if chars[at] == quote {
            if chars.get(at + 1) == Some(&quote) {
                at += 2;
            } else {
                return at + 1;
            }
        } else {
            at += 1;
        }
    }
    chars.len()
}

/// `$tag$` at `at`, if there is one.
fn dollar_tag(chars: &[char], at: usize) -> Option<Vec<char>> {
    let rest = &chars[at + 1..];
    let length = rest.iter().take(64).position(|c| *c == '$')?;
    let name = &rest[..length];
    let good = name.iter().all(|c| c.is_alphanumeric() || *c == '_')
        && name.first().is_none_or(|c| !c.is_ascii_digit());
    good.then(|| chars[at..at + length + 2].to_vec())
}

fn end_of_dollar(chars: &[char], from: usize, tag: &[char]) -> usize {
    (from..chars.len()).find(|at| chars[*at..].starts_with(tag)).map_or(chars.len(), |at| at + tag.len())
}

fn line_end(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|at| chars[*at] == '\n').unwrap_or(chars.len())
}

/// After the comment that begins at `at`; comments lie inside comments in PostgreSQL.
fn comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut at) = (0usize, at);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn number_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        let c = chars[at];
        let sign = (c == '+' || c == '-') && at > 0 && matches!(chars[at - 1], 'e' | 'E');
        if c.is_alphanumeric() || c == '.' || c == '_' || sign {
            at += 1;
        } else {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_go_and_the_statement_stays() {
        for (sql, kept) in [
            ("SELECT * FROM t2 WHERE a = 'O''Brien' AND b=17", "SELECT * FROM t2 WHERE a = ? AND b=?"),
            ("select $1, $2 from \"Big\"", "select $1, $2 from \"Big\""),
            ("insert into t values (1.5e-7, 0xFF, -3)", "insert into t values (?, ?, -?)"),
            ("select $tag$secret ' $tag$ , $$x$$", "select ? , ?"),
            ("select 1 -- secret\n, 'a''b' /* s /* t */ u */ ,2", "select ? , ? ,?"),
            ("select f('C:\\', 'secret words')", "select f(?"),
            ("select 'it\\'s', 'secret'", "select ?"),
            ("select 'two\\\\', b", "select ?, b"),
            ("select \"a secret value\" from `t 1`", "select ? from `t 1`"),
            ("select 'cut off in the mid", "select ?"),
            ("  a\n\t b  ", "a b"),
            ("select x->'k', y #> '{a}'", "select x->?, y #> ?"),
        ] {
            assert_eq!(without_literals(sql), kept, "{sql}");
            assert_eq!(
                without_literals(kept).replace("-?", "?"),
                kept.replace("-?", "?"),
                "a second time: {sql}"
            );
        }
    }

    #[test]
    fn no_character_of_a_quoted_literal_passes_and_nothing_panics() {
        let mut rng = fastrand::Rng::with_seed(3);
        let parts = [
            "'", "''", "\\", "$", "$$", "$a$", "\"", "`", "--", "\n", "/*", "*/", "#", "1", "é", " ", "x",
            "e+",
        ];
        for _ in 0..20_000 {
            let junk: String = (0..rng.usize(0..12)).map(|_| parts[rng.usize(0..parts.len())]).collect();
            let _ = without_literals(&junk);
            let inside: String = junk.chars().filter(|c| !matches!(c, '\'' | '\\')).collect();
            let kept = without_literals(&format!("select 'SECRET{inside}SECRET' from t"));
            assert_eq!(kept, "select ? from t", "{inside:?}");
            // With backslashes as well, as PostgreSQL quotes and as MySQL does.
            let inside = junk.replace('\'', "''");
            let kept = without_literals(&format!("select 'SECRET{inside}SECRET', 'SECRET' from t"));
            assert!(!kept.contains("SECRET"), "{inside:?}: {kept}");
            let inside = junk.replace('\\', "\\\\").replace('\'', "\\'");
            let kept = without_literals(&format!("select 'SECRET{inside}SECRET', 'SECRET' from t"));
            assert!(!kept.contains("SECRET"), "{inside:?}: {kept}");
        }
        let kept = Redaction::Literals.statement("create user u password $p$hunter2$p$");
        assert!(!kept.contains("hunter2"), "{kept}");
        assert!(without_literals(&"x ".repeat(100_000)).chars().count() <= LONGEST);
    }
}
