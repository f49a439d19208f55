//! Which relation or table a file belongs to, by its path inside the home.
//!
//! PostgreSQL: `base/DATABASE/NODE` and `global/NODE`; behind NODE may come a fork (`_fsm`, `_vm`,
//! `_init`) and a segment (`.1`). What a relation is called only its server knows.
//!
//! MariaDB and MySQL: `SCHEMA/TABLE.ibd` and the files of other engines, with `#P#` and `#SP#` (or
//! `#p#`, `#sp#`) before the names of partition and subpartition. In names, what is neither an
//! ASCII letter, a digit nor `_` is `@` and four hexadecimal digits of its UTF-16 unit; letters of
//! some alphabets are `@` and two other characters, by a table that only the server has.
//!
//! **Deliberately absent**: names of tables in the system tablespace, and of files elsewhere.

use std::fmt;

/// One of PostgreSQL's relations: where its files are, and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Relation {
    /// The database's number; `None`: it is shared by all.
    pub(crate) database: Option<u32>,
    pub(crate) node: u32,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.database {
            Some(database) => write!(f, "base/{database}/{}", self.node),
            None => write!(f, "global/{}", self.node),
        }
    }
}

/// The relation that a file belongs to.
pub(crate) fn relation(path: &str) -> Option<Relation> {
    let mut parts = path.split('/');
    let database = match parts.next()? {
        "base" => Some(number(parts.next()?)?),
        "global" => None,
        _ => return None,
    };
    let name = parts.next().filter(|_| parts.next().is_none())?;
    let (name, segment) = name.split_once('.').map_or((name, None), |(n, s)| (n, Some(s)));
    let (node, fork) = name.split_once('_').map_or((name, None), |(n, f)| (n, Some(f)));
    let is_fork = fork.is_none_or(|fork| matches!(fork, "fsm" | "vm" | "init"));
    let is_whole = is_fork && segment.is_none_or(|segment| number(segment).is_some());
    number(node).filter(|_| is_whole).map(|node| Relation { database, node })
}

/// A number as PostgreSQL writes it: digits alone, and no zero before them.
fn number(text: &str) -> Option<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| digits)
}

/// A table of MariaDB or MySQL, as the path has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Schema, table, then partition and subpartition: as in the path.
    pub(crate) parts: Vec<String>,
    pub(crate) kind: &'static str,
}

impl Table {
    /// The name of these parts.
    pub(crate) fn named(parts: &[String]) -> String {
        let mut name = parts.iter().take(2).cloned().collect::<Vec<_>>().join(".");
        for (part, word) in parts.iter().skip(2).zip(["partition", "subpartition"]) {
            name.push_str(&format!(" {word} {part}"));
        }
        name
    }

    /// Whether a part of its name is written by a table that only the server has.
    pub(crate) fn needs_server(&self) -> bool {
        self.parts.iter().any(|part| decoded(part).is_none())
    }
}

/// Decoded as far as that goes.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts.iter().map(|part| decoded(part).unwrap_or_else(|| part.clone()));
        f.write_str(&Table::named(&parts.collect::<Vec<_>>()))
    }
}

/// The table that a file belongs to.
pub(crate) fn table(path: &str) -> Option<Table> {
    let (schema, name) = path.split_once('/').filter(|(_, name)| !name.contains('/'))?;
    let (name, kind) = name.rsplit_once('.').and_then(|(name, ending)| match ending {
        "ibd" | "MYD" | "MAD" | "CSV" => Some((name, "table")),
        "MYI" | "MAI" => Some((name, "indexes")),
        _ => None,
    })?;
    // `#TMP#` and `#REN#`: a change of partitions that is under way, or was cut off.
    let ends = |mark: &str| name.to_ascii_lowercase().ends_with(mark);
    if schema.is_empty() || name.starts_with("#sql") || ends("#tmp#") || ends("#ren#") {
        return None;
    }
    let kind = if is_full_text(name) { "full-text index" } else { kind };
    let mut parts = vec![schema.to_owned()];
    let mut rest = name;
    for mark in [["#P#", "#p#"], ["#SP#", "#sp#"]] {
        let found = mark.iter().find_map(|mark| rest.split_once(mark));
        let Some((before, after)) = found else { break };
        parts.push(before.to_owned());
        rest = after;
    }
    parts.push(rest.to_owned());
    parts.iter().all(|part| !part.is_empty()).then_some(Table { parts, kind })
}

/// InnoDB's own tables of a full-text index: after `FTS_` comes the table's number, in sixteen
/// hexadecimal digits.
fn is_full_text(name: &str) -> bool {
    let rest = name.strip_prefix("FTS_").or_else(|| name.strip_prefix("fts_"));
    let number = rest.and_then(|rest| rest.split('_').next());
    number.is_some_and(|n| n.len() == 16 && n.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A name as it was given; `None`: a part of it is not what this program can read.
pub(crate) fn decoded(name: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('@') {
        out.push_str(before);
        let digits = after.get(..4)?;
        if !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return None;
        }
        out.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
        rest = &after[4..];
    }
    out.push_str(rest);
    Some(out)
}

/// A pattern that matches one path: what has a meaning in patterns stands for itself.
pub(crate) fn pattern_of(path: &str) -> String {
    let mut out = String::new();
    // A pattern without a slash matches a name in any directory.
    if !path.contains('/') {
        out.push('/');
    }
    for c in path.chars() {
        match c {
            '?' | '*' | '[' | ']' | '{' | '}' => out.extend(['[', c, ']']),
            '\\' => out.push_str("\\\\"),
            _ => out.push(c),
        }
    }
    out
}

/// So many names at the most are in a pattern.
const LISTED_MOST: usize = 100;

/// A pattern that matches these files of one of PostgreSQL's relations and no others; where that
/// would be long, one that matches all of the relation's files.
pub(crate) fn pattern_of_all(paths: &[String]) -> String {
    if let Some(relation) =
        paths.first().and_then(|path| relation(path)).filter(|_| paths.len() > LISTED_MOST)
    {
        let (at, node) = (relation.to_string(), relation.node);
        let directory = at.rsplit_once('/').map_or("", |(at, _)| at);
        return format!("{directory}/{{{node},{node}.*,{node}_*}}");
    }
    let directory = paths.first().and_then(|path| path.rsplit_once('/')).map_or("", |(at, _)| at);
    let names: Vec<String> = paths
        .iter()
        .map(|path| {
            pattern_of(path.rsplit('/').next().unwrap_or(path)).trim_start_matches('/').into()
        })
        .collect();
    format!(
        "{}/{{{}}}",
        pattern_of(&format!("{directory}/")).trim_end_matches('/'),
        names.join(",")
    )
}

/// A word for a shell.
pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@%,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_postgresql_are_relations_with_their_segments_and_forks() {
        let of = |database, node| Some(Relation { database, node });
        for path in ["16384", "16384.1", "16384.12", "16384_fsm", "16384_vm", "16384_fsm.1"] {
            assert_eq!(relation(&format!("base/5/{path}")), of(Some(5), 16_384), "{path}");
            assert_eq!(relation(&format!("global/{path}")), of(None, 16_384), "{path}");
        }
        assert_eq!(relation("base/5/4294967295"), of(Some(5), u32::MAX));
        for path in [
            "base/5/t3_16385",
            "base/5/pg_filenode.map",
            "base/5/PG_VERSION",
            "base/5/16384_other",
            "base/5/16384.x",
            "base/5/016384",
            "base/5/4294967296",
            "base/5/",
            "base/5",
            "base/x/1",
            "base/5/1/2",
            "global/pg_control",
            "pg_wal/000000010000000000000001",
            "1/2",
            "",
        ] {
            assert_eq!(relation(path), None, "{path}");
        }
        assert_eq!(Relation { database: None, node: 1262 }.to_string(), "global/1262");
    }

    #[test]
    fn paths_of_mariadb_are_tables_with_their_partitions() {
        let named = |path: &str| table(path).map(|table| (table.to_string(), table.kind));
        for (path, name, kind) in [
            ("shop/orders.ibd", "shop.orders", "table"),
            ("shop/orders#P#p0.ibd", "shop.orders partition p0", "table"),
            ("shop/o#P#p0#SP#s1.ibd", "shop.o partition p0 subpartition s1", "table"),
            ("shop/o#p#p0#sp#s1.ibd", "shop.o partition p0 subpartition s1", "table"),
            ("my@002dshop/a@0020b.MYI", "my-shop.a b", "indexes"),
            ("shop/a@002eb.MAD", "shop.a.b", "table"),
            ("shop/@20ac.ibd", "shop.\u{20ac}", "table"),
            (
                "shop/FTS_0000000000000123_BEING_DELETED.ibd",
                "shop.FTS_0000000000000123_BEING_DELETED",
                "full-text index",
            ),
            (
                "shop/fts_0000000000000429_000000000000008f_index_1.ibd",
                "shop.fts_0000000000000429_000000000000008f_index_1",
                "full-text index",
            ),
            ("shop/fts_notes.ibd", "shop.fts_notes", "table"),
            // Letters that only the server knows stay as they are.
            ("shop/@0j@1f.ibd", "shop.@0j@1f", "table"),
        ] {
            assert_eq!(named(path), Some((name.into(), kind)), "{path}");
        }
        assert!(table("shop/@0j.ibd").unwrap().needs_server());
        assert!(!table("shop/a@002db.ibd").unwrap().needs_server());
        for path in [
            "ibdata1",
            "shop/db.opt",
            "shop/#sql-1.ibd",
            "a/b/c.ibd",
            "shop/.ibd",
            "/x.ibd",
            "",
            "shop/o#P#p0#TMP#.ibd",
            "shop/o#P#p0#REN#.ibd",
            "shop/o#p#p0#tmp#.ibd",
        ] {
            assert_eq!(named(path), None, "{path}");
        }
    }

    #[test]
    fn names_that_end_in_the_middle_or_are_no_characters_are_not_guessed_at() {
        for name in ["a@", "a@002", "a@d800", "a@00ZZ", "@@@", "a@00\u{e9}9"] {
            assert_eq!(decoded(name), None, "{name}");
        }
        assert_eq!(decoded("a@0040b").as_deref(), Some("a@b"));
    }

    /// As the store reads patterns.
    fn matches(pattern: &str, path: &str) -> bool {
        let mut glob = globset::GlobBuilder::new(pattern.trim_start_matches('/'));
        glob.literal_separator(true).build().unwrap().compile_matcher().is_match(path)
    }

    #[test]
    fn a_pattern_matches_its_path_and_no_other_and_a_shell_reads_one_word() {
        for path in ["base/5/1", "top", "s/a[1]{b}*?.ibd", "s/a#P#p0.ibd", "s/a\\b'c.ibd", "s/!x"] {
            let glob = pattern_of(path);
            let read = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", word(&glob))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(read.stdout).unwrap(), glob, "{path}");
            assert!(matches(&glob, path), "{glob} {path}");
            for other in ["s/a1b.ibd", "base/5/11", "s/aP", "s/b", "base/5/"] {
                assert!(!matches(&glob, other), "{glob} {other}");
            }
        }
        assert_eq!(pattern_of("s/a[1].ibd"), "s/a[[]1[]].ibd");
        let all = pattern_of_all(&["base/5/1".into(), "base/5/1.1".into()]);
        assert_eq!((&*all, &*word(&all)), ("base/5/{1,1.1}", "'base/5/{1,1.1}'"));
        assert!(matches(&all, "base/5/1") && matches(&all, "base/5/1.1"));
        assert!(!matches(&all, "base/5/1.2") && !matches(&all, "base/5/11"));
        assert_eq!(word(""), "''");
    }

    #[test]
    fn a_relation_of_many_segments_has_a_short_pattern() {
        let path = |n: u32| format!("base/5/16384.{n}");
        let mut paths: Vec<String> = (1..5000).map(path).collect();
        paths.extend(["base/5/16384".into(), "base/5/16384_fsm".into()]);
        let all = pattern_of_all(&paths);
        assert!(all.len() < 100, "{} characters", all.len());
        assert!(paths.iter().all(|path| matches(&all, path)), "{all}");
        for other in ["base/5/163841", "base/5/16385", "base/6/16384", "base/5/1.1"] {
            assert!(!matches(&all, other), "{all} {other}");
        }
    }
}
