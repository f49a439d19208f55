//! The names that a database server gives its files.
//!
//! PostgreSQL is first asked whether it is this home's: the number that `initdb` gave the cluster
//! is in `global/pg_control`. Then each database of which files are in the list is asked for their
//! relations. MariaDB and MySQL have tables' names in the paths; they are asked where their
//! directory is, and for names whose letters only they can read.
//!
//! **Invariant**: no name of another server's table is given to a file of this home. What could not
//! be asked is a sentence, and its files keep their paths.
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
        ],
    );
    let answers = match first {
        Ok(answers) => answers,
        Err(e) => return vec![format!("{e}; files are listed by their paths")],
    };
    let theirs = answers.get(1).and_then(|rows| rows.first()).and_then(|id| id.parse().ok());
    if theirs != Some(ours) {
        return vec![format!(
            "{} is not the server of {}: its cluster has another number; files are listed by their \
             paths",
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
            Ok(known) => give_names(objects, database, of.as_deref(), &known),
            Err(e) => troubles.push(format!(
                "{}{e}; {by_path}",
                of.map_or(String::new(), |name| format!("database {}: ", messages::line(&name)))
            )),
        }
    }
    troubles
}

/// A relation as its database knows it: kind, name, and what it belongs to.
type Known = BTreeMap<u32, (String, String, Option<String>)>;

fn relations(address: &Address, shared: bool, nodes: &[u32]) -> Result<Known, String> {
    let space = if shared { 1664 } else { 0 };
    let list = nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let full = |table: &str, space: &str| {
        format!("quote_ident({space}.nspname) || '.' || quote_ident({table}.relname)")
    };
    let question = format!(
        "SELECT json_build_array(f.node::text, c.relkind::text, {}, {})::text \
         FROM unnest('{{{list}}}'::oid[]) AS f(node) \
         JOIN pg_class c ON c.oid = pg_filenode_relation({space}, f.node) \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         LEFT JOIN pg_index i ON i.indexrelid = c.oid \
         LEFT JOIN pg_class o ON o.oid = CASE WHEN c.relkind = 't' THEN \
         (SELECT t.oid FROM pg_class t WHERE t.reltoastrelid = c.oid) ELSE i.indrelid END \
         LEFT JOIN pg_namespace p ON p.oid = o.relnamespace",
        full("c", "n"),
        full("o", "p")
    );
    let answers = ask(address, &[CATALOG_ONLY, &question])?;
    let row = |row: &String| {
        let (node, kind, name, of): (String, String, String, Option<String>) =
            serde_json::from_str(row).ok()?;
        Some((node.parse().ok()?, (kind, name, of)))
    };
    Ok(answers.get(1).into_iter().flatten().filter_map(row).collect())
}

fn give_names(objects: &mut [Object], database: Option<u32>, of: Option<&str>, known: &Known) {
    for object in objects {
        let Some(relation) = object.relation.filter(|one| one.database == database) else {
            continue;
        };
        let Some((kind, name, owner)) = known.get(&relation.node) else { continue };
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
