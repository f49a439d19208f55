//! The command ACL.

use super::super::arguments::{integer, integer_or_refusal};
use super::super::{Arguments, Context, Done, Refusal, lookup, subcommands, word};
use super::catalogue::{CATEGORIES, catalogue};
use super::user::{Denied, Selector, has_spaces};
use super::{DEFAULT, User, file, full_name};
use crate::command::flag;

/// Bits of a password that GENPASS makes at most, and unless it is told.
const PASSWORD_BITS: std::ops::RangeInclusive<i64> = 1..=4096;
const PASSWORD_USUAL: i64 = 256;
/// Entries that LOG shows unless it is told.
const LOG_USUAL: i64 = 10;

const HELP: [&str; 26] = [
    "CAT [<category>]",
    "    List all commands that belong to <category>, or all command categories",
    "    when no category is specified.",
    "DELUSER <username> [<username> ...]",
    "    Delete a list of users.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Returns whether the user can execute the given command without executing the command.",
    "GETUSER <username>",
    "    Get the user's details.",
    "GENPASS [<bits>]",
    "    Generate a secure 256-bit user password. The optional `bits` argument can",
    "    be used to specify a different size.",
    "LIST",
    "    Show users details in config file format.",
    "LOAD",
    "    Reload users from the ACL file.",
    "LOG [<count> | RESET]",
    "    Show the ACL log entries.",
    "SAVE",
    "    Save the current config to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Create or modify a user with the specified attributes.",
    "USERS",
    "    List all the registered usernames.",
    "WHOAMI",
    "    Return the current connection username.",
];

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

pub(crate) fn acl(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    subcommands::check("acl", args)?;
    match (word(args[1]).as_str(), &args[2..]) {
        ("setuser", [name, rules @ ..]) => {
            if has_spaces(name) {
                return Err(Refusal::Said("ERR Usernames can't contain spaces or null characters"));
            }
            context
                .shared
                .acl
                .set_user(name, rules)
                .map_err(|wrong| Refusal::Words(wrong.text()))?;
            context.reply.ok();
        }
        ("deluser", names) => delete(context, names)?,
        ("getuser", [name]) => match context.shared.acl.user(name).cloned() {
            Some(user) => describe(context, &user),
            None => context.reply.null(),
        },
        ("list", []) => {
            let lines: Vec<Vec<u8>> = file::lines(&context.shared.acl.users);
            context.reply.list(lines.len());
            lines.iter().for_each(|line| context.reply.bulk(line));
        }
        ("users", []) => {
            let users = context.shared.acl.users.clone();
            context.reply.list(users.len());
            users.keys().for_each(|name| context.reply.bulk(name));
        }
        ("whoami", []) => context.reply.bulk(&context.session.identity.name),
        ("cat", []) => {
            context.reply.list(CATEGORIES.len());
            CATEGORIES.iter().for_each(|name| context.reply.bulk(name.as_bytes()));
        }
        ("cat", [name]) => category(context, name)?,
        ("genpass", bits @ ([] | [_])) => password(context, bits.first().copied())?,
        ("log", count @ ([] | [_])) => log(context, count.first().copied())?,
        ("dryrun", [name, command @ ..]) => dry_run(context, name, command)?,
        ("load" | "save", []) => file::load_or_save(context, word(args[1]) == "load")?,
        ("help", []) => subcommands::help(context, "acl", &HELP),
        _ => return Err(subcommands::syntax("acl", args)),
    }
    Ok(())
}

fn delete(context: &mut Context<'_>, names: &Arguments<'_>) -> Done {
    if names.contains(&DEFAULT) {
        return Err(Refusal::Said("ERR The 'default' user cannot be removed"));
    }
    let mut users = (*context.shared.acl.users).clone();
    let gone: Vec<Vec<u8>> = names
        .iter()
        .filter(|name| users.remove(**name).is_some())
        .map(|name| name.to_vec())
        .collect();
    context.reply.count(gone.len() as u64);
    if !gone.is_empty() {
        context.shared.acl.replace(users);
        context.shared.acl.changed.extend(gone);
    }
    Ok(())
}

fn describe_selector(context: &mut Context<'_>, selector: &Selector) {
    for (name, value) in [
        ("commands", selector.command_rules().into_bytes()),
        ("keys", selector.key_rules().join(&b' ')),
        ("channels", selector.channel_rules().join(&b' ')),
    ] {
        context.reply.bulk(name.as_bytes());
        context.reply.bulk(&value);
    }
}

fn describe(context: &mut Context<'_>, user: &User) {
    context.reply.map(6);
    context.reply.bulk(b"flags");
    let flags = user.flags();
    context.reply.set(flags.len());
    flags.iter().for_each(|flag| context.reply.bulk(flag.as_bytes()));
    context.reply.bulk(b"passwords");
    context.reply.list(user.passwords.len());
    user.passwords.iter().for_each(|one| context.reply.bulk(one.as_bytes()));
    let Some((root, others)) = user.selectors.split_first() else { return };
    describe_selector(context, root);
    context.reply.bulk(b"selectors");
    context.reply.list(others.len());
    for selector in others {
        context.reply.map(3);
        describe_selector(context, selector);
    }
}

fn category(context: &mut Context<'_>, name: &[u8]) -> Done {
    let Some(category) =
        CATEGORIES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    else {
        let name = text(&name[..name.len().min(128)]);
        return Err(Refusal::Words(format!("ERR Unknown category '{name}'")));
    };
    let all: Vec<_> = catalogue().all.iter().filter(|one| one.is_in(category)).collect();
    context.reply.list(all.len());
    all.iter().for_each(|one| context.reply.bulk(one.name.as_bytes()));
    Ok(())
}

fn password(context: &mut Context<'_>, bits: Option<&[u8]>) -> Done {
    let bits = bits.map_or(Ok(PASSWORD_USUAL), integer_or_refusal)?;
    if !PASSWORD_BITS.contains(&bits) {
        return Err(Refusal::Said(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a \
             positive number up \
             to 4096",
        ));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let mut filled = 0;
    while filled < bytes.len() {
        // A few bytes come at once, whatever signals there are.
        let got =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty());
        filled += got.map_err(|_| Refusal::Said("ERR the system gives no random numbers"))?;
    }
    let mut made: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    made.truncate(digits);
    context.reply.bulk(made.as_bytes());
    Ok(())
}

fn log(context: &mut Context<'_>, count: Option<&[u8]>) -> Done {
    let most = context.shared.configuration.number("acllog-max-len");
    context.shared.acl.log.shorten(usize::try_from(most).unwrap_or(usize::MAX));
    if count.is_some_and(|word| word.eq_ignore_ascii_case(b"reset")) {
        context.shared.acl.log.shorten(0);
        context.reply.ok();
        return Ok(());
    }
    let count = match count {
        None => LOG_USUAL,
        Some(count) => {
            integer(count).ok_or(Refusal::Said("ERR value is not an integer or out of range"))?
        }
    };
    let entries = context.shared.acl.log.entries();
    let count = usize::try_from(count).unwrap_or(0).min(entries.len());
    context.reply.list(count);
    let now = context.keys.now_ms();
    for entry in entries.take(count) {
        context.reply.map(7);
        context.reply.bulk(b"count");
        context.reply.count(entry.count);
        for (name, value) in [
            ("reason", entry.reason.name().as_bytes()),
            ("context", entry.at.name().as_bytes()),
            ("object", &entry.object),
            ("username", &entry.user),
        ] {
            context.reply.bulk(name.as_bytes());
            context.reply.bulk(value);
        }
        context.reply.bulk(b"age-seconds");
        context.reply.double(now.saturating_sub(entry.when_ms) as f64 / 1000.0);
        context.reply.bulk(b"client-info");
        context.reply.bulk(entry.client.trim_end().as_bytes());
    }
    Ok(())
}

fn dry_run(context: &mut Context<'_>, name: &[u8], command: &Arguments<'_>) -> Done {
    let user = context.shared.acl.user(name).cloned();
    let user =
        user.ok_or_else(|| Refusal::Words(format!("ERR User '{}' not found", text(name))))?;
    let unknown = || Refusal::Words(format!("ERR Command '{}' not found", text(command[0])));
    let row = lookup(command[0]).ok_or_else(unknown)?;
    if subcommands::fit(row.name, command) == subcommands::Fit::Unknown {
        return Err(unknown());
    }
    if !row.takes(command.len()) || subcommands::check(row.name, command).is_err() {
        let name = full_name(row, command);
        return Err(Refusal::Words(format!("ERR wrong number of arguments for '{name}' command")));
    }
    let free = row.flags & flag::WITHOUT_AUTH != 0;
    let place = catalogue().of(row.name, command);
    let denied = match place {
        Some(place) => user.check(place, free, command),
        None if user.is_open() || free => Ok(()),
        None => Err(Denied::Command),
    };
    let said = match denied {
        Ok(()) => {
            context.reply.ok();
            return Ok(());
        }
        Err(Denied::Command) => format!("run the '{}' command", full_name(row, command)),
        Err(Denied::Key(at)) => format!("access the '{}' key", text(command[at])),
        Err(Denied::Channel(at)) => format!("access the '{}' channel", text(command[at])),
    };
    context.reply.bulk(format!("This user has no permissions to {said}").as_bytes());
    Ok(())
}
