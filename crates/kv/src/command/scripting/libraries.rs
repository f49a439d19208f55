//! The libraries of functions as an interpreter has them, made from the texts that the tier has.
//!
//! **Invariant**: what is called is what the tier has. Before each use the tier's number of the
//! last change is compared ([`Keyspace::libraries_turn`]); if it is another one, because a copy
//! came or something was taken back, all libraries are made anew.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::interpreter::Scripts;
use super::register::{NAMES, Registered};
use crate::command::{Refusal, Shared};
use crate::keyspace::Keyspace;
use crate::library::{first_line, is_name};

/// Time that a library has to register its functions, as in Redis.
const LOAD: Duration = Duration::from_millis(500);
/// The same of all libraries of a FUNCTION RESTORE: nobody else is answered meanwhile.
const RESTORE: Duration = Duration::from_secs(2);
/// The same of all that were registered already, here or by a primary: the machine may be busy.
const LOAD_AGAIN: Duration = Duration::from_secs(30);
/// Libraries that cannot be made are not tried again so soon, unless there are others: it takes
/// time in which nobody else is answered.
const TRIED_AGAIN: Duration = Duration::from_secs(60);
/// Functions of all libraries. The interpreter has 8000 places for what is held from outside
/// (`LUAI_MAXCSTACK`): those of old and new libraries have half of them during a RESTORE, the
/// arguments of a call and what it returns the others.
pub(super) const FUNCTIONS_MAX: usize = 2000;
/// Bytes of the texts of all libraries, which the interpreter's memory must hold.
pub(super) const TEXTS_MAX: usize = 64 << 20;

/// A library.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) text: Vec<u8>,
    pub(super) functions: BTreeMap<String, Registered>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Libraries {
    pub(super) scripts: Scripts,
    /// Those that the tier has.
    pub(super) known: BTreeMap<String, Library>,
    /// The library of each function, whose name is in small letters here.
    of_function: HashMap<String, String>,
    turn: u64,
}

fn said<T>(text: impl std::fmt::Display) -> Result<T, Refusal> {
    Err(Refusal::Words(format!("ERR {text}")))
}

/// Libraries that cannot be made, by the tier's number, and since when and why.
#[derive(Debug)]
pub(crate) struct Unusable {
    turn: u64,
    since: Instant,
    why: Refusal,
}

/// Whether all libraries of the tier can be used here; if not, which and why not.
pub(crate) fn check(shared: &mut Shared, keys: &Keyspace) -> Result<(), String> {
    if keys.library_count() == 0 {
        return Ok(());
    }
    shared.libraries = None;
    match Libraries::of(keys) {
        Ok(made) => {
            shared.libraries = Some(Box::new(made));
            Ok(())
        }
        Err(refusal) => Err(refusal.text().trim_start_matches("ERR ").to_owned()),
    }
}

impl Libraries {
    /// Those that the tier has.
    fn of(keys: &Keyspace) -> Result<Libraries, Refusal> {
        let scripts = Scripts::new().map_err(|e| {
            Refusal::Words(format!("ERR cannot make an interpreter for functions: {e}"))
        })?;
        let (known, of_function) = (BTreeMap::new(), HashMap::new());
        let turn = keys.libraries_turn();
        let mut all = Libraries { scripts, known, of_function, turn };
        // One function a library at least, so that no more libraries can be right.
        if keys.library_count() > FUNCTIONS_MAX as u64 {
            return said(format!("there are more than {FUNCTIONS_MAX} libraries of functions"));
        }
        let Some(texts) = keys.libraries_within(TEXTS_MAX) else {
            return said(format!("all libraries together have at most {TEXTS_MAX} bytes"));
        };
        if keys.heap().is_noted() {
            return said("a library of functions is damaged");
        }
        let until = Instant::now() + LOAD_AGAIN;
        for (key, text) in texts {
            let library = all.make(&text, false, until).and_then(|(name, library)| {
                all.collides(&library, &[])?;
                if name.as_bytes() != key {
                    return said(format!("its text says that it is {name}"));
                }
                Ok((name, library))
            });
            let name = key;
            match library {
                Ok((name, library)) => all.add(name, library),
                Err(refusal) => {
                    let name = String::from_utf8_lossy(&name);
                    let why = refusal.text();
                    let why = why.trim_start_matches("ERR ");
                    return said(format!("the library of functions {name} cannot be used: {why}"));
                }
            }
        }
        Ok(all)
    }

    /// The libraries, as the tier has them now.
    pub(super) fn current<'a>(
        kept: &'a mut Option<Box<Libraries>>,
        unusable: &mut Option<Unusable>,
        keys: &Keyspace,
    ) -> Result<&'a mut Libraries, Refusal> {
        let turn = keys.libraries_turn();
        if kept.as_ref().is_none_or(|all| all.turn != turn) {
            *kept = None;
            if let Some(Unusable { why, .. }) = unusable
                .as_ref()
                .filter(|found| found.turn == turn && found.since.elapsed() < TRIED_AGAIN)
            {
                return Err(why.clone());
            }
            *unusable = None;
            match Libraries::of(keys) {
                Ok(made) => *kept = Some(Box::new(made)),
                Err(why) => {
                    *unusable = Some(Unusable { turn, since: Instant::now(), why: why.clone() });
                    return Err(why);
                }
            }
        }
        kept.as_deref_mut().ok_or(Refusal::Said("ERR BUG: there are no libraries"))
    }

    /// Makes a library of a text, and does not add it. `new`: there must be none of its name.
    pub(super) fn make(
        &self,
        text: &[u8],
        new: bool,
        until: Instant,
    ) -> Result<(String, Library), Refusal> {
        let (engine, name, body) = first_line(text).or_else(said)?;
        if !is_name(name.as_bytes()) {
            return said(NAMES);
        }
        if !engine.eq_ignore_ascii_case("lua") {
            return said(format!("Engine '{engine}' not found"));
        }
        if new && self.known.contains_key(&name) {
            return said(format!("Library '{name}' already exists"));
        }
        self.scripts.registry.open();
        let done = self.scripts.load_library(body, until);
        let functions = self.scripts.registry.close();
        if let Err(why) = done {
            return said(why);
        }
        if functions.is_empty() {
            return said("No functions registered");
        }
        Ok((name, Library { text: text.to_vec(), functions }))
    }

    /// Whether a function of a library is one of another library; `without`: those go.
    pub(super) fn collides(&self, library: &Library, without: &[&str]) -> Result<(), Refusal> {
        for function in library.functions.keys() {
            let of = self.of_function.get(&function.to_ascii_lowercase());
            if of.is_some_and(|of| !without.contains(&of.as_str())) {
                return said(format!("Function {function} already exists"));
            }
        }
        self.bound(without, library.functions.len(), library.text.len())
    }

    /// Whether there may be so many functions and bytes beside those that stay.
    fn bound(&self, without: &[&str], functions: usize, texts: usize) -> Result<(), Refusal> {
        let staying = || self.known.iter().filter(|(name, _)| !without.contains(&name.as_str()));
        let others: usize = staying().map(|(_, other)| other.functions.len()).sum();
        if others + functions > FUNCTIONS_MAX {
            return said(format!("all libraries together have at most {FUNCTIONS_MAX} functions"));
        }
        let others: usize = staying().map(|(_, other)| other.text.len()).sum();
        if others + texts > TEXTS_MAX {
            return said(format!("all libraries together have at most {TEXTS_MAX} bytes"));
        }
        Ok(())
    }

    /// Adds a library, in place of the one that has its name.
    fn add(&mut self, name: String, library: Library) {
        if self.known.contains_key(&name) {
            self.forget(&name);
        }
        for function in library.functions.keys() {
            self.of_function.insert(function.to_ascii_lowercase(), name.clone());
        }
        self.known.insert(name, library);
    }

    fn forget(&mut self, name: &str) {
        self.known.remove(name);
        self.of_function.retain(|_, of| of != name);
    }

    /// Puts libraries into the tier and here, in place of those of these names, or of all.
    pub(super) fn put(
        &mut self,
        keys: &mut Keyspace,
        all: Vec<(String, Library)>,
        flush: bool,
    ) -> Result<(), Refusal> {
        if flush {
            self.flush(keys);
        }
        for (name, library) in all {
            // What the tier has not got is not here: without it the numbers differ.
            keys.put_library(name.as_bytes(), &library.text)?;
            self.add(name, library);
            self.turn = keys.libraries_turn();
        }
        Ok(())
    }

    /// Whether libraries that are to be put together, in place of those of their names or of all,
    /// have no function twice.
    pub(super) fn fit_together(
        &self,
        all: &[(String, Library)],
        flush: bool,
    ) -> Result<(), Refusal> {
        let staying = self.known.keys().filter(|_| flush);
        let without: Vec<&str> =
            staying.chain(all.iter().map(|(name, _)| name)).map(String::as_str).collect();
        let mut seen = HashSet::new();
        let (mut functions, mut texts) = (0, 0);
        for (_, library) in all {
            self.collides(library, &without)?;
            functions += library.functions.len();
            texts += library.text.len();
            for function in library.functions.keys() {
                if !seen.insert(function.to_ascii_lowercase()) {
                    return said(format!("Function {function} already exists"));
                }
            }
        }
        self.bound(&without, functions, texts)
    }

    /// A library was removed from the tier, whose number was `before`.
    pub(super) fn removed(&mut self, keys: &Keyspace, name: &[u8], before: u64) {
        if self.turn == before {
            self.forget(&String::from_utf8_lossy(name));
            self.turn = keys.libraries_turn();
        }
    }

    /// Removes all.
    pub(super) fn flush(&mut self, keys: &mut Keyspace) {
        keys.flush_libraries();
        self.known.clear();
        self.of_function.clear();
        self.turn = keys.libraries_turn();
    }

    /// A function, by a name whose letters may be small or large: its name, and what it is.
    pub(super) fn function(&self, name: &[u8]) -> Option<(&str, &Registered)> {
        let small = String::from_utf8_lossy(name).to_ascii_lowercase();
        let library = self.known.get(self.of_function.get(&small)?)?;
        let found = library.functions.iter().find(|(name, _)| name.eq_ignore_ascii_case(&small));
        found.map(|(name, registered)| (name.as_str(), registered))
    }

    /// How many libraries there are, and how many functions.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let functions = self.known.values().map(|library| library.functions.len());
        [self.known.len(), functions.sum()]
    }

    /// Bytes that the interpreter uses.
    pub(crate) fn memory(&self) -> usize {
        self.scripts.memory()
    }

    /// Until when FUNCTION LOAD, or `all` of RESTORE, have to be made; a primary's get more time.
    pub(super) fn until(keys: &Keyspace, all: bool) -> Instant {
        let most = match all {
            _ if keys.for_primary => LOAD_AGAIN,
            true => RESTORE,
            false => LOAD,
        };
        Instant::now() + most
    }
}
