//! The rooms of the store, and of every part: who imports whom, read from the source as text.
//!
//! A room is a folder of a crate's `src`, or a file that stands beside the folders. Imports are all
//! paths that begin with `crate`, `super` or `self`, in code; what the front page of a room
//! (`mod.rs`, `lib.rs`) names of the room itself is no import.
//!
//! Each rule has a list of what breaks it today. The test fails on anything that is not listed and
//! on a line that is not needed any more, so the lists only get shorter.
//!
//! Deliberately absent: tests and what only they use (`crash`, `testing.rs`); calls of methods, of
//! which a text does not say where they lead. The rule on `impl` keeps those honest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The store's rooms from the bottom up: each may import those before it.
const ROOMS: &[&str] = &[
    "sync",
    "waits",
    "planted",
    "address",
    "profile",
    "home",
    "format",
    "error",
    "medium",
    "plain",
    "options",
    "cache",
    "tier",
    "ledger",
    "note",
    "environment",
    "known",
    "homeward",
    "mover",
    "file",
    "lend",
    "names",
    "stats",
    "store",
    "recover",
    "detach",
    "api",
    "attach",
    "check",
];

/// Imports of a room above.
const UPWARD: &[(&str, &[&str])] = &[];

/// Files of a part that import each other, more than two at a time.
const FILES_IN_CYCLES: &[(&str, usize)] = &[];

/// Folders of the other parts that import each other.
const ROOMS_IN_CYCLES: &[(&str, &str)] = &[];

/// `impl Type` in another room than the type's.
const IMPLS_ELSEWHERE: &[(&str, &str)] = &[];

/// How often `tiersmith_pmem` or `tiersmith_block` is named outside the rooms that may know it.
const PMEM_NAMED: &[(&str, usize)] = &[];

/// How often a tier's mapping is asked for outside those rooms.
const MAPPING_ASKED: &[(&str, usize)] = &[];

/// `durable: bool`: durability has three values.
const DURABLE_BOOL: &[(&str, usize)] = &[];

/// Prefetches, prefaults and fences in `file/`, which says what it wants and not how.
const MACHINE_WORDS: &[(&str, usize)] = &[];

/// Where the store may name `tiersmith_pmem` and `tiersmith_block`: the medium, the mapped ledger,
/// errors, the API that shows it to doors.
const MAY_NAME_PMEM: [&str; 4] = ["medium/", "ledger/lanes.rs", "error.rs", "lib.rs"];

/// Files and folders of tests within `src`.
const TESTS: [&str; 8] = [
    "/tests/",
    "/tests.rs",
    "_test.rs",
    "_tests.rs",
    "/testing.rs",
    "/suite.rs",
    "/crash/",
    "/sim/",
];

/// One source file: its name below `src`, its module's path, its code.
struct Source {
    name: String,
    module: Vec<String>,
    code: String,
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file: without comments, and up to its module of tests.
fn code(text: &str) -> String {
    let mut lines = Vec::new();
    let mut of_tests = false;
    for line in text.lines() {
        if of_tests && line.starts_with("mod ") && line.ends_with('{') {
            break;
        }
        of_tests = line == "#[cfg(test)]" || (of_tests && line.starts_with("#["));
        let code = line.find("//").filter(|at| !line[..*at].contains('"'));
        lines.push(&line[..code.unwrap_or(line.len())]);
    }
    lines.join("\n")
}

fn sources(part: &str) -> Vec<Source> {
    let src = crates().join(part).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    files.sort();
    files
        .into_iter()
        .map(|path| (path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned(), path))
        .filter(|(name, _)| !TESTS.iter().any(|tests| format!("/{name}").contains(tests)))
        .map(|(name, path)| {
            let stem = name.trim_end_matches(".rs");
            let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
            if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
                module.pop();
            }
            Source { name, module, code: code(&fs::read_to_string(path).unwrap()) }
        })
        .collect()
}

fn parts() -> Vec<String> {
    let entries = fs::read_dir(crates()).unwrap();
    let mut parts: Vec<String> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    parts.sort();
    parts
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The paths of a tree such as `a::{b, c::{d, e}}`, each after `prefix`. Returns what is left.
fn tree<'a>(mut rest: &'a str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        rest = rest.trim_start();
        if let Some(group) = rest.strip_prefix('{') {
            rest = group;
            loop {
                rest = tree(rest, &path, paths).trim_start();
                match rest.strip_prefix(',') {
                    Some(more) if more.trim_start().starts_with('}') => rest = more.trim_start(),
                    Some(more) => {
                        rest = more;
                        continue;
                    }
                    None => {}
                }
                return rest.strip_prefix('}').unwrap_or(rest);
            }
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end == 0 {
            break;
        }
        path.push(rest[..end].to_owned());
        rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(more) => rest = more,
            None => break,
        }
    }
    paths.push(path);
    rest.strip_prefix(" as ").map_or(rest, |name| name.trim_start_matches(is_word))
}

/// Every path in the code that begins with `crate`, `super` or `self`, from the crate's root.
fn paths(code: &str, module: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(is_word) || code[..at].ends_with("::") {
                continue;
            }
            let mut paths = Vec::new();
            tree(&code[at..], &[], &mut paths);
            for path in paths {
                let mut place = module.to_vec();
                for word in path {
                    match word.as_str() {
                        "crate" => place.clear(),
                        "super" => drop(place.pop()),
                        "self" => {}
                        _ => place.push(word),
                    }
                }
                found.push(place);
            }
        }
    }
    found
}

/// Imports of a part: from each file to the files that hold what it names.
fn imports(sources: &[Source]) -> BTreeMap<usize, BTreeSet<usize>> {
    let by_module: BTreeMap<&[String], usize> =
        sources.iter().enumerate().map(|(n, source)| (&source.module[..], n)).collect();
    // What the root shows again under a name of its own.
    let mut shown = BTreeMap::new();
    if let Some(root) = sources.iter().find(|source| source.name == "lib.rs") {
        for (at, _) in root.code.match_indices("use ") {
            let mut paths = Vec::new();
            tree(&root.code[at + 4..], &[], &mut paths);
            for path in paths.into_iter().filter(|path| path.len() > 1) {
                shown.insert(path.last().unwrap().clone(), path);
            }
        }
    }
    let mut imports = BTreeMap::new();
    for (from, source) in sources.iter().enumerate() {
        let mut to = BTreeSet::new();
        for mut path in paths(&source.code, &source.module) {
            if let [name, rest @ ..] = &path[..]
                && !by_module.contains_key(&path[..1])
                && let Some(real) = shown.get(name)
            {
                path = [real, rest].concat();
            }
            let module = (0..=path.len()).rev().find_map(|len| by_module.get(&path[..len]));
            to.extend(module.copied());
        }
        let own = |other: &usize| sources[*other].module.starts_with(&source.module);
        to.retain(|other| !own(other) && !sources[*other].module.is_empty());
        imports.insert(from, to);
    }
    imports
}

/// Sets of nodes that reach each other, of more than one.
fn cycles<T: Ord + Clone>(edges: &BTreeMap<T, BTreeSet<T>>) -> BTreeSet<BTreeSet<T>> {
    let reached = |from: &T| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<T> = vec![from.clone()];
        while let Some(node) = next.pop() {
            for to in edges.get(&node).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<T, BTreeSet<T>> =
        edges.keys().map(|node| (node.clone(), reached(node))).collect();
    let mutual = |node: &T| {
        let there =
            all[node].iter().filter(|to| all.get(*to).is_some_and(|back| back.contains(node)));
        there.cloned().chain([node.clone()]).collect::<BTreeSet<T>>()
    };
    edges.keys().map(mutual).filter(|cycle| cycle.len() > 1).collect()
}

fn room(source: &Source) -> Option<&str> {
    source.module.first().map(String::as_str)
}

/// Fails with what is new and with what the list names in vain.
fn compare<T: Ord + std::fmt::Debug>(rule: &str, found: BTreeSet<T>, listed: BTreeSet<T>) {
    let new = found.difference(&listed).map(|fault| format!("    {fault:?},   is new"));
    let old = listed
        .difference(&found)
        .map(|fault| format!("    {fault:?},   is gone: take the line out"));
    let faults: Vec<String> = new.chain(old).collect();
    assert!(faults.is_empty(), "{rule} (crates/store/tests/it/rooms.rs):\n{}", faults.join("\n"));
}

/// How often any of these stands in the code of each file for which `counts` holds.
fn count(
    part: &str,
    words: &[&str],
    counts: impl Fn(&str) -> bool,
    found: &mut BTreeSet<(String, usize)>,
) {
    for source in sources(part).iter().filter(|source| counts(&source.name)) {
        let count = words.iter().map(|word| source.code.matches(word).count()).sum();
        if count > 0 {
            found.insert((format!("{part}/{}", source.name), count));
        }
    }
}

fn listed(list: &[(&str, usize)]) -> BTreeSet<(String, usize)> {
    list.iter().map(|(file, count)| ((*file).to_owned(), *count)).collect()
}

#[test]
fn the_store_imports_downwards_only() {
    let sources = sources("store");
    let there: BTreeSet<&str> = sources.iter().filter_map(room).collect();
    let named: BTreeSet<&str> = ROOMS.iter().copied().collect();
    compare("the rooms that there are", there, named);
    let height = |room: &str| ROOMS.iter().position(|r| *r == room).unwrap();
    let mut upward = BTreeSet::new();
    for (from, to) in imports(&sources) {
        let from = &sources[from];
        let Some(here) = room(from) else { continue };
        for there in to.iter().filter_map(|to| room(&sources[*to])) {
            if height(there) > height(here) {
                upward.insert((from.name.clone(), there.to_owned()));
            }
        }
    }
    let listed = UPWARD
        .iter()
        .flat_map(|(file, rooms)| rooms.iter().map(move |r| ((*file).to_owned(), (*r).to_owned())))
        .collect();
    compare("a file imports a room above its own", upward, listed);
}

#[test]
fn at_most_two_files_import_each_other() {
    let mut found = BTreeSet::new();
    for part in parts() {
        let sources = sources(&part);
        let cycles = cycles(&imports(&sources));
        let large: Vec<_> = cycles.iter().filter(|cycle| cycle.len() > 2).collect();
        for cycle in &large {
            let names: Vec<&str> = cycle.iter().map(|n| &*sources[*n].name).collect();
            println!("{part}: {}", names.join(" "));
        }
        let files: usize = large.iter().map(|cycle| cycle.len()).sum();
        if files > 0 {
            found.insert((part, files));
        }
    }
    compare("more than two files import each other", found, listed(FILES_IN_CYCLES));
}

#[test]
fn no_folders_import_each_other() {
    let mut found = BTreeSet::new();
    // The store's have an order of their own.
    for part in parts().into_iter().filter(|part| part != "store") {
        let sources = sources(&part);
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in imports(&sources) {
            let Some(here) = room(&sources[from]) else { continue };
            let there =
                to.iter().filter_map(|to| room(&sources[*to])).filter(|there| *there != here);
            edges.entry(here).or_default().extend(there);
        }
        let is_folder = |room: &&str| crates().join(&part).join("src").join(room).is_dir();
        for cycle in cycles(&edges).iter().filter(|cycle| cycle.iter().any(is_folder)) {
            let rooms: Vec<&str> = cycle.iter().copied().collect();
            found.insert((part.clone(), rooms.join(" ")));
        }
    }
    let listed =
        ROOMS_IN_CYCLES.iter().map(|(part, rooms)| ((*part).to_owned(), (*rooms).to_owned()));
    compare("folders that import each other", found, listed.collect());
}

/// Rooms that show data to people: nothing in their part needs to know them.
const RENDERERS: [(&str, &str); 1] = [("awr", "render")];

#[test]
fn nothing_imports_a_renderer() {
    let mut found = BTreeSet::new();
    for (part, renderer) in RENDERERS {
        let sources = sources(part);
        assert!(
            sources.iter().any(|source| room(source) == Some(renderer)),
            "{part} has no {renderer}"
        );
        for (from, to) in imports(&sources) {
            let from = &sources[from];
            let knows = to.iter().any(|to| room(&sources[*to]) == Some(renderer));
            // The root shows the room to other parts.
            if knows && ![None, Some(renderer)].contains(&room(from)) && from.name != "lib.rs" {
                found.insert(format!("{part}/{}", from.name));
            }
        }
    }
    compare("a file imports what shows it", found, BTreeSet::new());
}

/// The name after one of these words at the beginning of a line, behind `pub` or not.
fn defined<'a>(line: &'a str, words: &[&str]) -> Option<&'a str> {
    let line = line
        .strip_prefix("pub(")
        .map_or(line, |rest| &rest[rest.find(") ").map_or(0, |at| at + 2)..]);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

/// The type of an `impl` that is not of a trait.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        // `impl<F: Fn() -> T> Type` is not written here; parameters have no `>` within.
        Some(generic) => &generic[generic.find("> ")? + 2..],
        None => rest.strip_prefix(' ')?,
    };
    let head = rest.split('{').next()?;
    (!head.contains(" for ")).then(|| defined(rest, &[""]))?
}

#[test]
fn a_type_is_implemented_in_its_own_room() {
    let mut found = BTreeSet::new();
    for part in parts() {
        let sources = sources(&part);
        let mut rooms: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
        for source in &sources {
            for line in source.code.lines() {
                if let Some(name) = defined(line, &["struct ", "enum ", "union "]) {
                    rooms.entry(name).or_default().insert(room(source));
                }
            }
        }
        for source in &sources {
            for name in source.code.lines().filter_map(implemented) {
                if rooms.get(name).is_some_and(|rooms| !rooms.contains(&room(source))) {
                    found.insert((format!("{part}/{}", source.name), name.to_owned()));
                }
            }
        }
    }
    let listed =
        IMPLS_ELSEWHERE.iter().map(|(file, name)| ((*file).to_owned(), (*name).to_owned()));
    compare("an impl in another room than its type", found, listed.collect());
}

#[test]
fn only_the_medium_and_the_mapped_ledger_know_memory() {
    let others = |name: &str| !MAY_NAME_PMEM.iter().any(|room| name.starts_with(room));
    let mut named = BTreeSet::new();
    count("store", &["tiersmith_pmem", "tiersmith_block"], others, &mut named);
    compare("`tiersmith_pmem` or `tiersmith_block` is named", named, listed(PMEM_NAMED));
    let mut asked = BTreeSet::new();
    count("store", &[".mapping("], others, &mut asked);
    compare("a tier's mapping is asked for", asked, listed(MAPPING_ASKED));
}

#[test]
fn durability_is_no_bool() {
    let mut found = BTreeSet::new();
    for part in parts() {
        count(&part, &["durable: bool"], |_| true, &mut found);
    }
    compare("`durable: bool`", found, listed(DURABLE_BOOL));
}

#[test]
fn files_say_what_they_want_and_not_how() {
    let mut found = BTreeSet::new();
    let of_files = |name: &str| name.starts_with("file/");
    count("store", &["prefetch", "prefault", "fence"], of_files, &mut found);
    compare("words of the machine in file/", found, listed(MACHINE_WORDS));
}

#[test]
fn the_architecture_names_the_folders_that_there_are() {
    let text = fs::read_to_string(crates().join("../ARCHITECTURE.md")).unwrap();
    let (_, store) = text.split_once("### `crates/store/src`").unwrap();
    let store = store.split_once("\n### ").unwrap().0;
    let is_folder = |word: &&str| word.ends_with('/') && word.matches('/').count() == 1;
    let named = store.split('`').filter(is_folder).map(str::to_owned).collect();
    let entries = fs::read_dir(crates().join("store/src")).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    let there =
        folders.map(|folder| format!("{}/", folder.file_name().to_str().unwrap())).collect();
    compare("the store's folders and ARCHITECTURE.md", there, named);
}

#[test]
fn a_policy_is_chosen_in_one_place() {
    let others = ["mod", "budget", "policy", "scan", "usage", "what_if"];
    let cache =
        fs::read_dir(crates().join("store/src/cache")).unwrap().map(|entry| entry.unwrap().path());
    let policies: Vec<String> = cache
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !others.contains(&&**name))
        .map(|name| format!("{name}::"))
        .collect();
    let chosen = |source: &Source| policies.iter().any(|policy| source.code.contains(policy));
    let names: Vec<String> =
        sources("store").into_iter().filter(chosen).map(|source| source.name).collect();
    assert_eq!(names, ["cache/policy.rs"], "who names a policy, and not what has been chosen");
}

#[test]
fn the_walk_sees_each_way_to_import() {
    let module = ["file".to_owned(), "write".to_owned()];
    let all = |code: &str| {
        paths(code, &module).iter().map(|path| path.join("::")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(all("use crate::a::{b, c::{D, self}, E as F,};"), "a::b a::c::D a::c a::E");
    assert_eq!(all("use super::{map::Leaf, State};"), "file::map::Leaf file::State");
    assert_eq!(all("let x = crate::tier::batch::Few::new();"), "tier::batch::Few::new");
    assert_eq!(all("pub(crate) use self::x::Y;"), "file::write::x::Y");
    assert_eq!(all("pub(crate) fn x() { supercrate::y() }"), "");
    assert_eq!(
        code("a // crate::b\n#[cfg(test)]\nmod tests {\n    use crate::c;\n}"),
        "a \n#[cfg(test)]"
    );
    assert_eq!(implemented("impl<'a> Kept<'a> {"), Some("Kept"));
    assert_eq!(implemented("impl Drop for Kept<'_> {"), None);
    assert_eq!(defined("pub(crate) struct Inner {", &["struct "]), Some("Inner"));
}
