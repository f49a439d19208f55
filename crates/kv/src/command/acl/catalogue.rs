//! What rules can name: every command of Redis 7.0, with its categories and where its keys are.
//!
//! `catalogue.txt` has what COMMAND of Redis 7.0.15 says, also of commands that are not here: a
//! rule that is taken there is taken here, `ACL LIST` puts the same categories together, and
//! COMMAND says the same (`described.rs`). A line is a name (`command|subcommand`), the number of
//! arguments, the flags, the places of the first and last key and their distance, the categories,
//! and the key specifications: `BEGIN:FIND:FLAGS`, BEGIN a place, or a word and the place from
//! which it is looked for; FIND `range/LAST/STEP/LIMIT` or `count/PLACE/FIRST/STEP`; either `?`
//! where only the command itself knows; FLAGS `not_key` where it is a channel.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::super::{Arguments, word};
use crate::number::integer;

/// The categories, in the order in which Redis tries them.
pub(super) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Reading a key.
pub(super) const READS: u8 = 1;
/// Changing a key.
pub(super) const WRITES: u8 = 2;

/// A command or subcommand.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) arity: i64,
    pub(crate) flags: Vec<&'static str>,
    /// First key, last key (negative: from the end), step.
    pub(crate) places: [i64; 3],
    /// A bit for each category.
    pub(super) categories: u32,
    /// Its subcommands, as places in the catalogue.
    pub(super) children: Vec<usize>,
    pub(crate) keys: Vec<Spec>,
}

/// Where keys begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begin {
    At(isize),
    /// Behind a word, which is looked for from a place on.
    Word(&'static str, isize),
    Unknown,
}

/// Which arguments are keys from there on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Find {
    Range { last: isize, step: isize, limit: isize },
    Count { at: isize, first: isize, step: isize },
    Unknown,
}

/// A key specification.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) begin: Begin,
    pub(crate) find: Find,
    pub(crate) flags: Vec<&'static str>,
    access: u8,
    /// It is no channel.
    is_key: bool,
}

/// All commands, by name.
#[derive(Debug)]
pub(super) struct Catalogue {
    pub(super) all: Vec<Command>,
    places: HashMap<&'static str, usize>,
}

/// The catalogue.
pub(super) fn catalogue() -> &'static Catalogue {
    static ALL: LazyLock<Catalogue> =
        LazyLock::new(|| Catalogue::read(include_str!("catalogue.txt")));
    &ALL
}

fn spec(text: &'static str) -> Option<Spec> {
    let mut parts = text.split(':');
    let (begin, find, flags) = (parts.next()?, parts.next()?, parts.next()?);
    let begin = match begin.split_once('@') {
        _ if begin == "?" => Begin::Unknown,
        Some((word, from)) => Begin::Word(word, from.parse().ok()?),
        None => Begin::At(begin.parse().ok()?),
    };
    let mut numbers = find.split('/');
    let kind = numbers.next()?;
    let mut next = || numbers.next()?.parse::<isize>().ok();
    let find = match kind {
        "range" => Find::Range { last: next()?, step: next()?, limit: next()? },
        "count" => Find::Count { at: next()?, first: next()?, step: next()? },
        _ => Find::Unknown,
    };
    let flags: Vec<&str> = flags.split('+').collect();
    let access = flags.iter().fold(0, |all, flag| match *flag {
        "access" => all | READS,
        "insert" | "delete" | "update" => all | WRITES,
        _ => all,
    });
    let is_key = !flags.contains(&"not_key");
    Some(Spec { begin, find, flags, access, is_key })
}

/// A line of the catalogue.
fn command(line: &'static str) -> Option<Command> {
    let mut words = line.split(' ');
    let mut next = || words.next();
    let (name, arity, flags, places, categories) = (next()?, next()?, next()?, next()?, next()?);
    let mut places = places.split(',').map(|place| place.parse().ok());
    let bit = |name| CATEGORIES.iter().position(|known| *known == name).map_or(0, |at| 1 << at);
    Some(Command {
        name,
        arity: arity.parse().ok()?,
        flags: flags.split(',').filter(|flag| *flag != "-").collect(),
        places: [places.next()??, places.next()??, places.next()??],
        categories: categories.split(',').map(bit).fold(0, |all, one| all | one),
        children: Vec::new(),
        keys: words.filter_map(spec).collect(),
    })
}

impl Catalogue {
    fn read(text: &'static str) -> Catalogue {
        let mut all: Vec<Command> = text.lines().filter_map(command).collect();
        let places: HashMap<_, _> =
            all.iter().enumerate().map(|(at, one)| (one.name, at)).collect();
        for at in 0..all.len() {
            if let Some((parent, _)) = all[at].name.split_once('|')
                && let Some(parent) = places.get(parent)
            {
                all[*parent].children.push(at);
            }
        }
        Catalogue { all, places }
    }

    /// The place of a command, in small letters.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The place of the command that these arguments are, or of its subcommand.
    pub(super) fn of(&self, command: &str, args: &Arguments<'_>) -> Option<usize> {
        let place = self.find(command)?;
        if self.all[place].children.is_empty() {
            return Some(place);
        }
        let sub = args.get(1).and_then(|name| self.find(&format!("{command}|{}", word(name))));
        Some(sub.unwrap_or(place))
    }
}

impl Command {
    pub(super) fn is_in(&self, category: usize) -> bool {
        self.categories >> category & 1 == 1
    }

    /// Whether it can have keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.iter().any(|spec| spec.is_key)
    }

    /// Whether it is a subcommand that says how the command is used.
    pub(crate) fn helps(&self) -> bool {
        self.name.ends_with("|help")
    }

    /// The names of its categories.
    pub(crate) fn categories(&self) -> impl Iterator<Item = &'static str> {
        (0..CATEGORIES.len()).filter(|one| self.is_in(*one)).map(|one| CATEGORIES[one])
    }

    /// Whether it is refused where the memory is full.
    pub(crate) fn takes_space(&self) -> bool {
        self.flags.contains(&"denyoom")
    }

    /// The keys among the arguments of this command: their places, and what is done with them, in
    /// the words of Redis; nothing: there are fewer arguments than a number of keys says.
    pub(crate) fn keys_with_flags(
        &self,
        args: &Arguments<'_>,
    ) -> Option<Vec<(usize, Vec<&'static str>)>> {
        let specs = || self.keys.iter().filter(|spec| spec.is_key);
        if specs().any(|spec| spec.lacks_keys(args)) {
            return None;
        }
        let has = |from: usize, names: &[&str]| {
            args.iter().skip(from).any(|one| names.contains(&word(one).as_str()))
        };
        let found = specs().flat_map(|spec| {
            let flags = match self.name {
                "set" if has(3, &["get"]) => vec!["RW", "access", "update"],
                "set" => vec!["OW", "update"],
                "bitfield" if !has(2, &["set", "incrby"]) => vec!["RO", "access"],
                "bitfield" => vec!["RW", "access", "update"],
                _ => spec.flags.clone(),
            };
            spec.keys(args).into_iter().map(move |at| (at, flags.clone()))
        });
        let mut found: Vec<_> = found.collect();
        found.extend(self.stores_at(args).map(|at| (at, vec!["OW", "update"])));
        Some(found)
    }

    /// Where SORT stores what it found: the last STORE counts. What options take are no options.
    fn stores_at(&self, args: &Arguments<'_>) -> Option<usize> {
        if self.name != "sort" {
            return None;
        }
        let (mut at, mut found) = (2, None);
        while let Some(option) = args.get(at) {
            let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
            at += match () {
                () if is("limit") => 3,
                () if is("by") || is("get") => 2,
                () if is("store") => {
                    found = (at + 1 < args.len()).then_some(at + 1).or(found);
                    2
                }
                () => 1,
            };
        }
        found
    }

    /// The keys among the arguments of this command: their places, and what is done with them.
    pub(super) fn keys(&self, args: &Arguments<'_>) -> Vec<(usize, u8)> {
        let is = |at: usize, name: &str| args.get(at).is_some_and(|one| word(one) == name);
        let mut found = Vec::new();
        for spec in self.keys.iter().filter(|spec| spec.is_key) {
            found.extend(spec.keys(args).into_iter().map(|at| (at, spec.access)));
        }
        match self.name {
            // GET reads the old value.
            "set" => {
                let reads = (3..args.len()).any(|at| is(at, "get"));
                found
                    .iter_mut()
                    .for_each(|(_, access)| *access = WRITES | if reads { READS } else { 0 });
            }
            _ => found.extend(self.stores_at(args).map(|at| (at, WRITES))),
        }
        found
    }
}

impl Spec {
    /// Whether it wants keys that are not there.
    fn lacks_keys(&self, args: &Arguments<'_>) -> bool {
        match (self.begin, self.find) {
            (Begin::At(from), Find::Count { at, first, step }) => {
                let number = usize::try_from(from + at).ok().and_then(|at| args.get(at));
                let number = number.and_then(|text| integer(text));
                let last = number.and_then(|number| {
                    let number = isize::try_from(number).ok().filter(|number| *number > 0)?;
                    (number - 1).checked_mul(step)?.checked_add(from + first)
                });
                last.is_none_or(|last| last >= args.len() as isize)
            }
            (Begin::At(from), Find::Range { .. }) => from >= args.len() as isize,
            _ => false,
        }
    }

    fn keys(&self, args: &Arguments<'_>) -> Vec<usize> {
        let count = args.len() as isize;
        let first = match self.begin {
            Begin::Unknown => return Vec::new(),
            Begin::At(at) => at,
            Begin::Word(name, from) => {
                let is = |at: &isize| {
                    let found = usize::try_from(*at).ok().and_then(|at| args.get(at));
                    found.is_some_and(|one| one.eq_ignore_ascii_case(name.as_bytes()))
                };
                let found = match from {
                    from if from >= 0 => (from..count).find(is),
                    from => (1..=(count + from)).rev().find(is),
                };
                let Some(found) = found else { return Vec::new() };
                found + 1
            }
        };
        let (first, last, step) = match self.find {
            Find::Unknown => return Vec::new(),
            Find::Range { last, step, limit } => {
                let last = match last {
                    last if last >= 0 => first + last,
                    last if limit <= 1 => count + last,
                    last => first + (count - first) / limit + last,
                };
                (first, last, step)
            }
            Find::Count { at, first: begin, step } => {
                let number = usize::try_from(first + at).ok().and_then(|at| args.get(at));
                let number = number.and_then(|text| integer(text)).unwrap_or(0);
                let number = isize::try_from(number).unwrap_or(0).clamp(0, count);
                (first + begin, first + begin + (number - 1) * step, step)
            }
        };
        let mut places = Vec::new();
        let mut at = first;
        while at <= last && at < count && step > 0 {
            places.extend(usize::try_from(at));
            at += step;
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_redis_finds_them() {
        let all = catalogue();
        for (line, wanted) in [
            ("get k", "1r"),
            ("set k v", "1w"),
            ("set k v get", "1rw"),
            ("mset a 1 b 2", "1w 3w"),
            ("del a b", "1w 2w"),
            ("xread count 1 streams a b 0 0", "4r 5r"),
            ("xreadgroup group g c streams a >", "5r"),
            ("eval return 2 a b c", "3rw 4rw"),
            ("zunionstore d 2 a b weights 1 2", "1w 3r 4r"),
            ("sort k store d", "1r 3w"),
            ("sort k store d by store e", "1r 3w"),
            ("sort k by store desc", "1r"),
            ("sort k get store limit 0 store store d", "1r 8w"),
            ("sort k store", "1r"),
            ("eval return -9223372036854775808 a", ""),
            ("eval return 0 a", ""),
            ("spublish c m", ""),
            ("ssubscribe c d", ""),
            ("bitop and d a b", "2w 3r 4r"),
            ("xgroup create k g 0", "2w"),
            ("ping", ""),
            ("eval return x a", ""),
            ("eval return 99 a", "3rw"),
            ("lmpop 1 l left", "2rw"),
        ] {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let name = line.split(' ').next().unwrap_or_default();
            let place = all.of(name, &words).expect("it is there");
            let shown: Vec<String> = all.all[place]
                .keys(&words)
                .iter()
                .map(|(at, access)| {
                    let letter = |bit, letter| if access & bit != 0 { letter } else { "" };
                    format!("{at}{}{}", letter(READS, "r"), letter(WRITES, "w"))
                })
                .collect();
            assert!(
                shown.join(" ") == wanted
                    || line.starts_with("xreadgroup")
                    || line.starts_with("lmpop"),
                "{line}: {shown:?}"
            );
        }
        assert!(all.all.len() > 300 && all.find("xgroup|create").is_some());
        let lines = include_str!("catalogue.txt").lines().count();
        assert_eq!(all.all.len(), lines, "a line means nothing");
    }
}
