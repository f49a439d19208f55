//! Taking out of statements and names what is nobody's business: literals always, unless the user
//! asks otherwise.
//!
//! | level | what is kept |
//! |---|---|
//! | `Literals` (the default) | the statement, every string and number in it replaced by `?`, comments taken out |
//! | `Text` | no text of statements at all |
//! | `Names` | no text, and names of hosts, databases, paths and files replaced by a mark that stays the same for the same name and key |
//!
//! A mark is a pseudonym made with a secret key: who has no key cannot make the mark of a name that
//! they guess, and compare. The key is in a file of the user who records ([`NamesKey::of_user`]),
//! not in the repository, which may be handed out. Marks of two keys do not belong together: who
//! loses the key begins a new series of snapshots.
//!
//! The scanner knows the quotes of PostgreSQL and MySQL. Where a text ends inside a quote (a server
//! cut it off), the rest is taken out, and so it is behind a backslash before a quote, which ends
//! the literal on one server and not on another: when in doubt, it is a literal. Of a statement
//! that speaks of a password nothing is kept. A word in double quotes is taken for a name.
//!
//! Invariants: no character of a literal in single quotes passes; a text that is already without
//! literals stays the same but for its spaces.

use std::fmt;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use siphasher::sip::SipHasher24;

use crate::{Error, Result, Snapshot};

/// What is taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redaction {
    /// Literals and comments in statements.
    #[default]
    Literals,
    /// The text of statements.
    Text,
    /// The text of statements, and names, for which there are marks made with this key.
    Names(NamesKey),
}

/// The secret that marks of names are made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NamesKey([u8; 16]);

impl fmt::Debug for NamesKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NamesKey")
    }
}

impl NamesKey {
    /// A key of these bytes.
    pub fn of(bytes: [u8; 16]) -> NamesKey {
        NamesKey(bytes)
    }

    /// The key of the user of this process: `tiersmith/names.key` in `XDG_STATE_HOME` or in
    /// `~/.local/state`; `TIERSMITH_NAMES_KEY` is the path of another file. Made from the system's
    /// random numbers if it is not there, for its owner alone.
    ///
    /// # Errors
    /// If there is no such place, the file cannot be made, holds something else, or may be read by
    /// others.
    ///
    /// # Durability
    /// Synced before it is used: marks of a key that is lost would belong to nothing.
    pub fn of_user() -> Result<NamesKey> {
        let set = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let state = || set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        let path =
            set("TIERSMITH_NAMES_KEY").or_else(|| Some(state()?.join("tiersmith/names.key")));
        match path {
            Some(path) => NamesKey::in_file(&path),
            None => Err(Error::Source {
                action: "make marks for",
                place: "names".to_owned(),
                reason: "neither HOME nor XDG_STATE_HOME is set, so there is no place for the key"
                    .to_owned(),
                remedy: "Give the path of a file in TIERSMITH_NAMES_KEY".to_owned(),
            }),
        }
    }

    /// The key in this file, which is made if it is not there.
    ///
    /// # Errors
    /// As [`NamesKey::of_user`].
    pub fn in_file(path: &Path) -> Result<NamesKey> {
        let failed = |source: io::Error| Error::Io {
            action: "use the key for marks of names",
            path: path.to_owned(),
            source,
            remedy: "It must be a file of 16 bytes that only you can read; move a damaged one \
                     away, or give another path in TIERSMITH_NAMES_KEY",
        };
        match read_key(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            key => return key.map_err(failed),
        }
        make_key(path).and_then(|()| read_key(path)).map_err(failed)
    }
}

fn read_key(path: &Path) -> io::Result<NamesKey> {
    let mut file = fs::File::open(path)?;
    let metadata = file.metadata()?;
    let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    if !metadata.is_file() || metadata.len() != 16 {
        return wrong("it is not a key");
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        return wrong("others may read it");
    }
    let mut key = [0; 16];
    file.read_exact(&mut key)?;
    Ok(NamesKey(key))
}

/// Makes the file whole at once, so that of two programs that begin together both have the key of
/// the one that came first.
fn make_key(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let mut key = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let draft = dir.join(format!(
        ".names.key.{}.{:016x}",
        std::process::id(),
        xxhash_rust::xxh3::xxh3_64(&key)
    ));
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&key)?;
        file.sync_all()?;
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::File::open(dir)?.sync_all(),
        }
    })();
    let removed = fs::remove_file(&draft);
    written.and(removed)
}

/// The longest text of a statement that is kept, in characters.
const LONGEST: usize = 2_000;

impl Redaction {
    /// A statement as it may be kept.
    pub fn statement(self, sql: &str) -> String {
        match self {
            Redaction::Literals if has_password(sql) => "(a statement with a password)".to_owned(),
            Redaction::Literals => without_literals(sql),
            Redaction::Text | Redaction::Names(_) => String::new(),
        }
    }

    /// A name as it may be kept.
    pub fn name(self, name: &str) -> String {
        match self {
            Redaction::Names(key) => mark(key, name),
            Redaction::Literals | Redaction::Text => name.to_owned(),
        }
    }

    /// Takes the names out of a snapshot, if that is wanted.
    pub fn apply(self, snapshot: &mut Snapshot) {
        let Redaction::Names(key) = self else { return };
        let mark = |name: &str| mark(key, name);
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
        for file in &mut snapshot.files {
            (file.id, file.name) = (mark(&file.id), mark(&file.name));
        }
        for table in &mut snapshot.tables {
            (table.id, table.name) = (mark(&table.id), mark(&table.name));
        }
        for object in &mut snapshot.objects {
            (object.id, object.name) = (mark(&object.id), mark(&object.name));
            object.detail.clear();
        }
        // A plan is made of names.
        snapshot.plans.clear();
        // Owners, segments, modules and hosts stand in their cells; which are such a name is not
        // known here.
        snapshot.printed.clear();
        for line in snapshot.missing.iter_mut().filter(|line| line.ends_with(')')) {
            // In brackets at the end stands what the server said, names included.
            line.truncate(line.find(" (").unwrap_or(line.len()));
        }
        snapshot
            .missing
            .push("names and settings, taken out because that was asked for".to_owned());
    }
}

/// A name's mark: the same for the same name and key.
fn mark(key: NamesKey, name: &str) -> String {
    if name.is_empty() {
        return String::new();
    }
    let mut hasher = SipHasher24::new_with_key(&key.0);
    hasher.write(name.as_bytes());
    format!("name-{:016x}", hasher.finish())
}

/// Whether it may set or give a password, which not every server takes out of statements about
/// users.
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
                let inner: String =
                    chars[at + 1..end.saturating_sub(1).max(at + 1)].iter().collect();
                let name =
                    !inner.is_empty() && inner.chars().all(|c| c.is_alphanumeric() || c == '_');
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
    (from..chars.len())
        .find(|at| chars[*at..].starts_with(tag))
        .map_or(chars.len(), |at| at + tag.len())
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
            (
                "SELECT * FROM t2 WHERE a = 'O''Brien' AND b=17",
                "SELECT * FROM t2 WHERE a = ? AND b=?",
            ),
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
    fn a_mark_is_of_its_key_and_the_key_is_the_same_for_all_who_come_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state/names.key");
        let keys: Vec<NamesKey> = std::thread::scope(|scope| {
            let made: Vec<_> =
                (0..8).map(|_| scope.spawn(|| NamesKey::in_file(&path).expect("a key"))).collect();
            made.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]) && keys[0] != NamesKey([0; 16]));
        assert_eq!(
            fs::read_dir(path.parent().expect("a parent")).expect("listed").count(),
            1,
            "no draft is left"
        );
        let marks = [keys[0], NamesKey([1; 16])].map(|key| Redaction::Names(key).name("db1"));
        assert!(marks[0] != marks[1] && !marks[0].contains("db1"));
        assert_eq!(
            Redaction::Names(NamesKey::in_file(&path).expect("again")).name("db1"),
            marks[0]
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        let error = NamesKey::in_file(&path).expect_err("others may read it").to_string();
        assert!(
            error.contains("others may read it") && error.contains("TIERSMITH_NAMES_KEY"),
            "{error}"
        );
        assert_eq!(format!("{:?}", Redaction::Names(keys[0])), "Names(NamesKey)");
    }

    #[test]
    fn no_character_of_a_quoted_literal_passes_and_nothing_panics() {
        let mut rng = fastrand::Rng::with_seed(3);
        let parts = [
            "'", "''", "\\", "$", "$$", "$a$", "\"", "`", "--", "\n", "/*", "*/", "#", "1", "é",
            " ", "x", "e+",
        ];
        for _ in 0..20_000 {
            let junk: String =
                (0..rng.usize(0..12)).map(|_| parts[rng.usize(0..parts.len())]).collect();
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
