//! The names that a database server gives its files.
//!
//! PostgreSQL is first asked whether it is this home's: the number that `initdb` gave the cluster
//! is in `global/pg_control`. A standby and a copy have the same number, so its start must also be
//! that of the server that runs in the home, which `postmaster.pid` has. Then each database of
//! which files are in the list is asked for their relations. MariaDB and MySQL have tables' names
//! in the paths; they are asked for names whose letters only they can read, and before that whether
//! their directory has the home's path. That cannot tell a server on another machine, or in another
//! container, whose directory has the same path.
//!
//! **Invariant**: no name of another PostgreSQL's table is given to a file of this home. What could
//! not be asked or has no name is a sentence, and its files keep their paths.
//! **Deliberately absent**: changing anything, or asking for what is not on the list.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use tiersmith_awr::sources::{self, Address, Asking, Product, Surroundings};

use super::{Object, names};
use crate::messages;
use crate::mounted::LiveHot;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between a server's note of its start in `postmaster.pid` and what it takes for its start.
const START_APART_S: i64 = 10;
/// Tablespaces: that of what all databases share, and of files in `base`.
const PG_GLOBAL: u32 = 1664;
const PG_DEFAULT: u32 = 1663;
/// Nothing that a database's owner has put into the path is called.
const CATALOG_ONLY: &str = "SELECT pg_catalog.set_config('search_path', 'pg_catalog', false)";

/// Names what the list has. What could not be named, and why, one sentence each.
pub(crate) fn name_by(address: &Address, hot: &LiveHot, objects: &mut [Object]) -> Vec<String> {
    match address.product {
        Product::PostgreSql => postgres(address, hot, objects),
        Product::MySql => mysql(address, &hot.at, objects),
        Product::Redis | Product::Machine => vec![format!(
            "{} has no tables; files are listed by their paths. Give the address of PostgreSQL, \
             MariaDB or MySQL",
            address.shown()
        )],
    }
}

fn ask(address: &Address, questions: &[&str]) -> Result<Vec<Vec<String>>, String> {
    let asking = Asking { patience: PATIENCE, ..Asking::default() };
    sources::ask(address, &asking, &Surroundings::of_process(), questions)
        .map_err(|e| messages::line(&e.to_string()))
}

fn postgres(address: &Address, hot: &LiveHot, objects: &mut [Object]) -> Vec<String> {
    let by_path = "its files are listed by their paths";
    let Some(ours) = hot.cluster else {
        return vec![format!(
            "{} has no global/pg_control that says whose files these are; files are listed by \
             their paths",
            messages::path(&hot.home)
        )];
    };
    let first = ask(
        address,
        &[
            CATALOG_ONLY,
            "SELECT system_identifier::text FROM pg_control_system()",
            "SELECT json_build_array(oid::text, datname)::text FROM pg_database",
            "SELECT extract(epoch FROM pg_postmaster_start_time())::bigint::text",
        ],
    );
    let answers = match first {
        Ok(answers) => answers,
        Err(e) => return vec![format!("{e}; files are listed by their paths")],
    };
    let one = |n: usize| answers.get(n).and_then(|rows| rows.first());
    let theirs = one(1).and_then(|id| id.parse().ok());
    let started = one(3).and_then(|at| at.parse().ok());
    if let Some(why) = is_another((ours, hot.server_started_unix_s), (theirs, started)) {
        return vec![format!(
            "{} is not the server of {}: {why}; files are listed by their paths",
            address.shown(),
            messages::path(&hot.home)
        )];
    }
    let databases: BTreeMap<u32, String> = answers
        .get(2)
        .into_iter()
        .flatten()
        .filter_map(|row| serde_json::from_str::<(String, String)>(row).ok())
        .filter_map(|(number, name)| Some((number.parse().ok()?, name)))
        .collect();
    let mut wanted: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
    for relation in objects.iter().filter_map(|object| object.relation) {
        wanted.entry(relation.database).or_default().push(relation.node);
    }
    let mut troubles = Vec::new();
    for (database, nodes) in wanted {
        let of = match database.map(|number| (number, databases.get(&number))) {
            None => None,
            Some((_, Some(name))) => Some(name.clone()),
            Some((number, None)) => {
                troubles.push(format!("there is no database {number} any more; {by_path}"));
                continue;
            }
        };
        // A shared relation any database knows.
        let address = match &of {
            Some(name) => Address { database: Some(name.clone()), ..address.clone() },
            None => address.clone(),
        };
        match relations(&address, database.is_none(), &nodes) {
            Ok(known) => {
                give_names(objects, database, of.as_deref(), &known);
                troubles.extend(without_a_name(of.as_deref(), &nodes, &known));
            }
            Err(e) => troubles.push(format!(
                "{}{e}; {by_path}",
                of.map_or(String::new(), |name| format!("database {}: ", messages::line(&name)))
            )),
        }
    }
    troubles.extend(never_asked_for(objects));
    troubles
}

/// Why a server is not that of a home: the cluster's number of each, and when it started.
fn is_another(
    (ours, runs_since): (u64, Option<i64>),
    (theirs, started): (Option<u64>, Option<i64>),
) -> Option<String> {
    if theirs != Some(ours) {
        return Some("its cluster has another number".into());
    }
    match (runs_since, started) {
        (None, _) => Some(
            "no server runs in that directory (it has no postmaster.pid), and a standby or a copy \
             has its cluster's number too"
                .into(),
        ),
        (Some(ours), Some(theirs)) if ours.abs_diff(theirs) <= START_APART_S as u64 => None,
        _ => Some(
            "its cluster has the same number, as a standby and a copy have, but it did not start \
             when the server of that directory did"
                .into(),
        ),
    }
}

/// A sentence about the relations of a database of which it said nothing.
fn without_a_name(of: Option<&str>, asked: &[u32], known: &Known) -> Option<String> {
    let missing = asked.iter().filter(|node| !known.contains_key(node)).count();
    (missing > 0).then(|| {
        format!(
            "{} has no relation for {missing} of the {} whose files are listed: what was dropped, \
             rewritten or left by a crash; listed by their paths",
            of.map_or("the cluster".into(), |of| format!("database {}", messages::line(of))),
            asked.len()
        )
    })
}

/// A sentence about files of relations that no database is asked for.
fn never_asked_for(objects: &[Object]) -> Option<String> {
    let of_relation = |path: &String| path.starts_with("base/") || path.starts_with("pg_tblspc/");
    let asks = |object: &&Object| object.relation.is_none() && object.files.iter().any(of_relation);
    let files = objects.iter().filter(asks).count();
    (files > 0).then(|| {
        format!(
            "{files} files in base and pg_tblspc are of temporary tables, of other tablespaces or \
             of no relation; listed by their paths"
        )
    })
}

/// A relation as its database knows it.
struct Relation {
    kind: String,
    name: String,
    /// The table that it belongs to.
    of: Option<String>,
    /// It is of that table's TOAST.
    toast: bool,
}

type Known = BTreeMap<u32, Relation>;

fn relations(address: &Address, shared: bool, nodes: &[u32]) -> Result<Known, String> {
    let space = if shared { PG_GLOBAL } else { PG_DEFAULT };
    let list = nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let full = |table: &str, space: &str| {
        format!("quote_ident({space}.nspname) || '.' || quote_ident({table}.relname)")
    };
    // Catalogs that the server finds by a map have no number in pg_class. Temporary relations may
    // have one that another relation has too, and files of another name. `b` has the TOAST table.
    let question = format!(
        "SELECT json_build_array(f.node::text, c.relkind::text, {}, {}, b.oid IS NOT NULL)::text \
         FROM unnest('{{{list}}}'::oid[]) AS f(node) \
         JOIN (SELECT r.*, CASE WHEN r.relfilenode <> 0 THEN r.relfilenode \
         ELSE pg_relation_filenode(r.oid) END AS node FROM pg_class r \
         WHERE r.relpersistence <> 't' AND CASE WHEN r.reltablespace <> 0 THEN r.reltablespace \
         ELSE (SELECT d.dattablespace FROM pg_database d WHERE d.datname = current_database()) \
         END = {space}) c ON c.node = f.node \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_index i ON i.indexrelid = c.oid \
         LEFT JOIN pg_class b ON b.reltoastrelid = coalesce(i.indrelid, c.oid) \
         LEFT JOIN pg_class o ON o.oid = coalesce(b.oid, i.indrelid) \
         LEFT JOIN pg_namespace p ON p.oid = o.relnamespace",
        full("c", "n"),
        full("o", "p")
    );
    let answers = ask(address, &[CATALOG_ONLY, &question])?;
    let row = |row: &String| {
        let (node, kind, name, of, toast): (String, String, String, Option<String>, bool) =
            serde_json::from_str(row).ok()?;
        Some((node.parse().ok()?, Relation { kind, name, of, toast }))
    };
    Ok(answers.get(1).into_iter().flatten().filter_map(row).collect())
}

fn give_names(objects: &mut [Object], database: Option<u32>, of: Option<&str>, known: &Known) {
    for object in objects {
        let Some(relation) = object.relation.filter(|one| one.database == database) else {
            continue;
        };
        let Some(Relation { kind, name, of: owner, toast }) = known.get(&relation.node) else {
            continue;
        };
        let of = of.map_or(String::new(), |of| format!("{of}: "));
        object.kind = match kind.as_str() {
            "r" => "table",
            "i" => "index",
            "t" => "TOAST",
            "m" => "materialized view",
            "S" => "sequence",
            _ => "relation",
        }
        .into();
        object.name = match owner {
            // The TOAST table's own name is a number.
            Some(owner) if kind == "t" => format!("{of}TOAST of {owner}"),
            Some(owner) if *toast => format!("{of}TOAST index of {owner}"),
            Some(owner) => format!("{of}{name} of {owner}"),
            None => format!("{of}{name}"),
        };
    }
}

fn mysql(address: &Address, at: &Path, objects: &mut [Object]) -> Vec<String> {
    let tables: Vec<(usize, names::Table)> = objects
        .iter()
        .enumerate()
        .filter_map(|(n, object)| Some((n, names::table(object.files.first()?)?)))
        .filter(|(_, table)| table.needs_server())
        .collect();
    let parts: Vec<&String> = tables.iter().flat_map(|(_, table)| &table.parts).collect();
    let mut questions = vec!["SELECT @@datadir AS d".to_owned()];
    questions.extend(parts.iter().map(|part| {
        let hex: String = part.bytes().map(|byte| format!("{byte:02x}")).collect();
        format!("SELECT CONVERT(_filename X'{hex}' USING utf8mb4) AS n")
    }));
    let questions: Vec<&str> = questions.iter().map(String::as_str).collect();
    let answers = match ask(address, &questions) {
        Ok(answers) => answers,
        Err(e) => {
            return vec![format!(
                "{e}; tables are named by their paths alone, and files that are no table's are \
                 listed"
            )];
        }
    };
    let directory = answers.first().and_then(|rows| rows.first()).cloned().unwrap_or_default();
    if !is_same(Path::new(&directory), at) {
        return vec![format!(
            "{} keeps its tables in {}, and not in {}; tables are named by their paths alone",
            address.shown(),
            messages::line(&directory),
            messages::path(at)
        )];
    }
    let mut given = answers.iter().skip(1).map(|rows| rows.first());
    for (n, table) in tables {
        let parts: Vec<Option<String>> =
            table.parts.iter().map(|_| given.next().flatten().cloned()).collect();
        if let Some(parts) = parts.into_iter().collect::<Option<Vec<_>>>() {
            objects[n].name = names::Table::named(&parts);
        }
    }
    Vec::new()
}

/// Whether two paths are one directory, also where one of them goes through links.
fn is_same(one: &Path, other: &Path) -> bool {
    let trimmed = |path: &Path| {
        let bytes = path.as_os_str().as_bytes();
        bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec()
    };
    trimmed(one) == trimmed(other)
        || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|o| o == one))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, home};
    use super::super::{Over, objects};
    use super::*;

    #[test]
    fn a_standby_and_a_copy_are_not_the_server_though_their_number_is_the_same() {
        assert_eq!(is_another((7, Some(1000)), (Some(7), Some(1004))), None);
        for (ours, theirs, words) in [
            ((7, Some(1000)), (Some(8), Some(1000)), "another number"),
            ((7, Some(1000)), (None, None), "another number"),
            ((7, None), (Some(7), Some(1000)), "no server runs"),
            ((7, Some(1000)), (Some(7), Some(1011)), "did not start when"),
            ((7, Some(i64::MIN)), (Some(7), Some(i64::MAX)), "did not start when"),
            ((7, Some(1000)), (Some(7), None), "did not start when"),
        ] {
            let why = is_another(ours, theirs).unwrap_or_default();
            assert!(why.contains(words), "{ours:?} {theirs:?}: {why}");
        }
    }

    #[test]
    fn what_has_no_name_is_told_of_each_database_and_of_what_nobody_was_asked() {
        let relation = || Relation { kind: "r".into(), name: "t".into(), of: None, toast: false };
        let known: Known = [(1, relation()), (2, relation())].into();
        assert_eq!(without_a_name(Some("d"), &[1, 2], &known), None);
        let said = without_a_name(Some("d\n"), &[1, 2, 3], &known).unwrap();
        assert!(said.contains("has no relation for 1 of the 3") && !said.contains('\n'), "{said}");
        assert!(without_a_name(None, &[9], &known).unwrap().starts_with("the cluster has"));
        let of = |path: &str| {
            let hot = home("postgres", vec![file("base/5/1", 1.0, 1.0), file(path, 1.0, 1.0)]);
            never_asked_for(&objects(&hot, true, Over::Hour))
        };
        for path in ["base/5/t3_7", "pg_tblspc/16384/PG_15_202209061/5/9"] {
            assert!(of(path).unwrap().starts_with("1 files"), "{path}");
        }
        assert_eq!((of("base/5/2"), of("pg_wal/1")), (None, None));
    }
}
