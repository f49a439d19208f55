//! COMMAND: what there is, described as Redis 7.0 describes it (`acl/catalogue.txt`).

use super::acl::{self, Begin, Described, Find, Spec};
use super::arguments::glob;
use super::help::help;
use super::subcommands::{self, Fit};
use super::{Arguments, Context, Done, Refusal, Reply, Row, SYNTAX, TABLE, lookup, word};

pub(super) fn command(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let reply = &mut context.reply;
    match args.get(1).map(|name| word(name)).as_deref() {
        None => {
            reply.list(TABLE.len());
            TABLE.iter().for_each(|row| describe(reply, acl::described(row.name)));
        }
        Some("count") => reply.count(TABLE.len() as u64),
        Some("info") => {
            let names: Vec<Option<&Described>> = match &args[2..] {
                [] => TABLE.iter().map(|row| acl::described(row.name)).collect(),
                names => names.iter().map(|name| named(name)).collect(),
            };
            reply.list(names.len());
            names.into_iter().for_each(|one| describe(reply, one));
        }
        Some("list") => {
            let names = list(&args[2..])?;
            reply.list(names.len());
            names.iter().for_each(|name| reply.bulk(name.as_bytes()));
        }
        Some("docs") => {
            let rows: Vec<&Row> = match &args[2..] {
                [] => TABLE.iter().collect(),
                names => names.iter().filter_map(|name| lookup(name)).collect(),
            };
            reply.map(rows.len());
            for row in rows {
                reply.bulk(row.name.as_bytes());
                reply.map(2);
                reply.bulk(b"summary");
                reply.bulk(row.summary.as_bytes());
                reply.bulk(b"group");
                reply.bulk(row.group.as_bytes());
            }
        }
        Some("getkeys") => {
            let keys = keys(&args[2..])?;
            reply.list(keys.len());
            keys.iter().for_each(|(at, _)| reply.bulk(args[2 + at]));
        }
        Some("getkeysandflags") => {
            let keys = keys(&args[2..])?;
            reply.list(keys.len());
            for (at, flags) in keys {
                reply.list(2);
                reply.bulk(args[2 + at]);
                names_of(reply, flags.into_iter());
            }
        }
        Some("help") => help(context, "command"),
        Some(_) => return Err(subcommands::syntax("command", args)),
    }
    Ok(())
}

/// A command that is here, or its subcommand.
fn named(name: &[u8]) -> Option<&'static Described> {
    let name = word(name);
    let command = name.split_once('|').map_or(name.as_str(), |(command, _)| command);
    lookup(command.as_bytes()).and_then(|_| acl::described(&name))
}

/// The places of a command's keys among its words, and what is done with each.
fn keys(inner: &Arguments<'_>) -> Result<Vec<(usize, Vec<&'static str>)>, Refusal> {
    let unknown = Refusal::Said("ERR Invalid command specified");
    let Some(row) = lookup(inner[0]) else { return Err(unknown) };
    let fit = subcommands::fit(row.name, inner);
    let command = acl::described_with(row.name, inner).filter(|_| fit != Fit::Unknown);
    let command = command.ok_or(unknown)?;
    if !command.has_keys() {
        return Err(Refusal::Said("ERR The command has no key arguments"));
    }
    if !row.takes(inner.len()) || matches!(fit, Fit::WrongCount(_)) {
        return Err(Refusal::Said("ERR Invalid number of arguments specified for command"));
    }
    let keys = command.keys_with_flags(inner);
    // A script or function may have none.
    match keys {
        Some(keys) if !keys.is_empty() => Ok(keys),
        _ if row.group == "scripting" => Ok(Vec::new()),
        _ => Err(Refusal::Said("ERR Invalid arguments specified for command")),
    }
}

/// What COMMAND LIST says, with a filter or without.
fn list(filter: &Arguments<'_>) -> Result<Vec<&'static str>, Refusal> {
    let all = || acl::names_in(None).unwrap_or_default();
    match filter {
        [] => Ok(all()),
        [by, kind, what] if word(by) == "filterby" => match word(kind).as_str() {
            // There are no modules.
            "module" => Ok(Vec::new()),
            "aclcat" => Ok(acl::names_in(Some(&word(what))).unwrap_or_default()),
            "pattern" => {
                let fits = |name: &&str| glob(what, name.as_bytes(), true);
                Ok(all().into_iter().filter(fits).collect())
            }
            _ => Err(SYNTAX),
        },
        _ => Err(SYNTAX),
    }
}

/// Names in no order.
fn names_of<'a>(reply: &mut Reply<'_>, names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
}

fn describe(reply: &mut Reply<'_>, command: Option<&'static Described>) {
    let Some(command) = command else { return reply.null_list() };
    reply.list(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity);
    names_of(reply, command.flags.iter().copied());
    command.places.iter().for_each(|number| reply.integer(*number));
    let categories: Vec<String> = command.categories().map(|name| format!("@{name}")).collect();
    names_of(reply, categories.iter().map(String::as_str));
    // Tips for those who ask many servers of a cluster.
    names_of(reply, std::iter::empty());
    reply.set(command.keys.len());
    command.keys.iter().for_each(|spec| describe_keys(reply, spec));
    let children: Vec<_> = acl::children(command).collect();
    reply.list(children.len());
    children.into_iter().for_each(|child| describe(reply, Some(child)));
}

/// A step of a key specification: its kind, and what belongs to it.
fn describe_step(reply: &mut Reply<'_>, step: &str, kind: &str, numbers: &[(&str, isize)]) {
    reply.bulk(step.as_bytes());
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer(*number as i64);
    }
}

fn describe_keys(reply: &mut Reply<'_>, spec: &Spec) {
    reply.map(3);
    reply.bulk(b"flags");
    names_of(reply, spec.flags.iter().copied());
    match spec.begin {
        Begin::At(at) => describe_step(reply, "begin_search", "index", &[("index", at)]),
        Begin::Word(name, from) => {
            reply.bulk(b"begin_search");
            reply.map(2);
            reply.bulk(b"type");
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(name.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(from as i64);
        }
        Begin::Unknown => describe_step(reply, "begin_search", "unknown", &[]),
    }
    match spec.find {
        Find::Range { last, step, limit } => {
            let numbers = [("lastkey", last), ("keystep", step), ("limit", limit)];
            describe_step(reply, "find_keys", "range", &numbers);
        }
        Find::Count { at, first, step } => {
            let numbers = [("keynumidx", at), ("firstkey", first), ("keystep", step)];
            describe_step(reply, "find_keys", "keynum", &numbers);
        }
        Find::Unknown => describe_step(reply, "find_keys", "unknown", &[]),
    }
}
