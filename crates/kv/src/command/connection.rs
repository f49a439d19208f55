//! The connection itself: who the client is, how it speaks.

use std::collections::HashSet;

use super::arguments::integer;
use super::help::help;
use super::keys::database;
use super::listed::{Kind, Listed};
use super::session::{Replies, UNIX};
use super::{
    Arguments, Context, Done, Refusal, Reply, SYNTAX, Session, Shared, acl, tracking, word,
    wrong_count,
};

pub(super) const WRONG: Refusal =
    Refusal::Said("WRONGPASS invalid username-password pair or user is disabled.");

pub(crate) fn ping(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    if args.len() > 2 {
        return Err(wrong_count("ping"));
    }
    if context.session.subscriptions() > 0 && !context.session.resp3 {
        context.reply.list(2);
        context.reply.bulk(b"pong");
        context.reply.bulk(args.get(1).copied().unwrap_or(b""));
    } else if let Some(text) = args.get(1) {
        context.reply.bulk(text);
    } else {
        context.reply.simple("PONG");
    }
    Ok(())
}

pub(crate) fn echo(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    context.reply.bulk(args[1]);
    Ok(())
}

pub(crate) fn select(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    context.session.db = database(args[1])?;
    context.reply.ok();
    Ok(())
}

pub(crate) fn quit(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    context.session.closing = true;
    context.reply.ok();
    Ok(())
}

pub(crate) fn auth(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    match args {
        [_, _] if context.shared.acl.default_needs_no_password() => {
            return Err(Refusal::Said(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are \
                 you sure your configuration is correct?",
            ));
        }
        [_, password] => acl::authenticate(context, args[0], acl::DEFAULT, password)?,
        [_, user, password] => acl::authenticate(context, args[0], user, password)?,
        _ => return Err(SYNTAX),
    }
    context.reply.ok();
    Ok(())
}

/// What a HELLO asks for.
pub(super) struct Wanted {
    version: Option<i64>,
    name: Option<String>,
}

/// Reads a HELLO, and logs in who gives a name and a password.
pub(super) fn wanted(
    args: &Arguments<'_>,
    mut log_in: impl FnMut(&[u8], &[u8]) -> Done,
) -> Result<Wanted, Refusal> {
    let version = match args.get(1) {
        None => None,
        Some(text) => Some(
            integer(text)
                .ok_or(Refusal::Said("ERR Protocol version is not an integer or out of range"))?,
        ),
    };
    if version.is_some_and(|version| !matches!(version, 2 | 3)) {
        return Err(Refusal::Said("NOPROTO unsupported protocol version"));
    }
    let mut at = 2;
    let mut name = None;
    while at < args.len() {
        match (word(args[at]).as_str(), args.len() - at) {
            ("auth", 3..) => {
                log_in(args[at + 1], args[at + 2])?;
                at += 3;
            }
            ("setname", 2..) => {
                name = Some(client_name(args[at + 1])?);
                at += 2;
            }
            _ => {
                let option = String::from_utf8_lossy(args[at]);
                return Err(Refusal::Words(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        }
    }
    Ok(Wanted { version, name })
}

/// Answers a HELLO.
pub(super) fn greet(
    session: &mut Session,
    reply: &mut Reply<'_>,
    wanted: Wanted,
    follows: bool,
) -> Done {
    if !session.allowed {
        return Err(Refusal::Said(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP \
             protocol \
             version at the same time",
        ));
    }
    if let Some(name) = wanted.name {
        session.name = name;
    }
    if let Some(version) = wanted.version {
        session.resp3 = version == 3;
        reply.resp3 = version == 3;
    }
    reply.map(7);
    let proto = if session.resp3 { 3 } else { 2 };
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(super::information::REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(proto);
    reply.bulk(b"id");
    reply.count(session.id);
    for (key, value) in
        [("mode", "standalone"), ("role", if follows { "replica" } else { "master" })]
    {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.list(0);
    Ok(())
}

pub(crate) fn hello(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let wanted =
        wanted(args, |name, password| acl::authenticate(context, args[0], name, password))?;
    let follows = context.keys.follows;
    greet(context.session, &mut context.reply, wanted, follows)
}

/// A session as it is for a new connection, but for what others know of it.
pub(super) fn begin_anew(session: &mut Session, identity: acl::Identity) {
    session.multi = None;
    session.db = 0;
    session.resp3 = false;
    session.name.clear();
    session.replies = Replies::On;
    session.allowed = identity.is_let_in();
    session.identity = identity;
}

pub(crate) fn reset(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    context.shared.forget(context.session, context.keys);
    begin_anew(context.session, acl::Identity::of_default(&context.shared.acl.users));
    context.reply.simple("RESET");
    Ok(())
}

fn client_name(argument: &[u8]) -> Result<String, Refusal> {
    if argument.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(String::from_utf8_lossy(argument).into_owned())
    } else {
        Err(Refusal::Said(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ))
    }
}

pub(crate) fn client(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let session = &mut *context.session;
    match (word(args[1]).as_str(), &args[2..]) {
        ("help", []) => help(context, "client"),
        ("id", []) => context.reply.count(session.id),
        ("getname", []) if session.name.is_empty() => context.reply.null(),
        ("getname", []) => context.reply.bulk(session.name.as_bytes()),
        ("setname", [name]) => {
            session.name = client_name(name)?;
            context.reply.ok();
        }
        ("setinfo", [option, value]) => {
            let index = match word(option).as_str() {
                "lib-name" => 0,
                "lib-ver" => 1,
                other => {
                    return Err(Refusal::Words(format!("ERR Unrecognized option '{other}'")));
                }
            };
            session.library[index] = client_name(value)?;
            context.reply.ok();
        }
        ("reply", [how]) => match word(how).as_str() {
            "on" => {
                session.replies = Replies::On;
                context.reply.ok();
            }
            "off" => session.replies = Replies::Off,
            "skip" if session.replies == Replies::Off => {}
            "skip" => session.replies = Replies::SkipNext,
            _ => return Err(SYNTAX),
        },
        ("info", []) => {
            let me = listed(session, context.shared);
            context.reply.text(&me.line);
        }
        ("list", options) => list(context, options)?,
        ("pause", [_] | [_, _]) | ("unpause", []) => super::failover::pause(context, &args[1..])?,
        ("kill", options) => kill(context, options)?,
        ("unblock", [id, how @ ..]) if how.len() < 2 => unblock(context, id, how.first())?,
        ("no-evict", [how]) => {
            session.stays = on_or_off(how)?;
            context.reply.ok();
        }
        ("tracking", [_, ..]) => tracking::set(context, args)?,
        ("caching", [answer]) => tracking::caching(context, answer)?,
        ("getredir", []) => tracking::redirection(context),
        ("trackinginfo", []) => tracking::info(context),
        (name, _) => {
            return Err(Refusal::Words(format!(
                "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP."
            )));
        }
    }
    Ok(())
}

fn list(context: &mut Context<'_>, options: &Arguments<'_>) -> Done {
    list_myself(context);
    let mut all: Vec<&Listed> = context.shared.listed.iter().collect();
    match options {
        [] => {}
        [option, of] if word(option) == "type" => {
            let kind = kind_named(of)?;
            all.retain(|one| Some(one.kind) == kind);
        }
        [option, ids @ ..] if word(option) == "id" && !ids.is_empty() => {
            let ids: HashSet<i64> = ids.iter().filter_map(|id| integer(id)).collect();
            all.retain(|one| ids.contains(&(one.id as i64)));
        }
        _ => return Err(SYNTAX),
    }
    let all: String = all.into_iter().map(|one| one.line.as_str()).collect();
    context.reply.text(&all);
    Ok(())
}

fn unblock(context: &mut Context<'_>, id: &[u8], how: Option<&&[u8]>) -> Done {
    let id = integer(id).and_then(|id| u64::try_from(id).ok());
    let id = id.ok_or(Refusal::Said("ERR value is not an integer or out of range"))?;
    let error = match how.map(|how| word(how)).as_deref() {
        None | Some("timeout") => false,
        Some("error") => true,
        _ => {
            return Err(Refusal::Said("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let waits = context.shared.waiting.values().any(|line| line.contains(&id));
    if waits {
        context.shared.unblock.push((id, error));
    }
    context.reply.integer(i64::from(waits));
    Ok(())
}

fn on_or_off(word: &[u8]) -> Result<bool, Refusal> {
    match word.to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(SYNTAX),
    }
}

/// Which clients CLIENT KILL chooses. Of an option that is said twice, the last one counts.
#[derive(Default)]
struct Chosen<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    here: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    /// Of no kind: the primary, which is no client here.
    kind: Option<Option<Kind>>,
    /// Not the one that says it.
    but: Option<u64>,
}

impl Chosen<'_> {
    fn has(&self, one: &Listed) -> bool {
        self.id.is_none_or(|id| one.id == id)
            && self.address.is_none_or(|address| one.address.as_bytes() == address)
            && self.here.is_none_or(|here| one.here.as_bytes() == here)
            && self.user.is_none_or(|user| one.user == user)
            && self.kind.is_none_or(|kind| kind == Some(one.kind))
            && self.but != Some(one.id)
    }

    /// The primary has no number, address or user here.
    fn may_be_the_primary(&self) -> bool {
        let names_a_client =
            self.id.is_some() || self.address.or(self.here).or(self.user).is_some();
        self.kind == Some(None) && !names_a_client
    }
}

fn kill(context: &mut Context<'_>, options: &Arguments<'_>) -> Done {
    list_myself(context);
    let mut wanted = Chosen::default();
    match options {
        [address] => wanted.address = Some(address),
        pairs if !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
            wanted.but = Some(context.session.id);
            for pair in pairs.chunks_exact(2) {
                match word(pair[0]).as_str() {
                    "id" => {
                        let id = integer(pair[1]).filter(|id| *id > 0);
                        let id = id.and_then(|id| u64::try_from(id).ok());
                        let why = Refusal::Said("ERR client-id should be greater than 0");
                        wanted.id = Some(id.ok_or(why)?);
                    }
                    "addr" => wanted.address = Some(pair[1]),
                    "laddr" => wanted.here = Some(pair[1]),
                    "user" if context.shared.acl.users.contains_key(pair[1]) => {
                        wanted.user = Some(pair[1]);
                    }
                    "user" => {
                        let name = String::from_utf8_lossy(pair[1]);
                        return Err(Refusal::Words(format!("ERR No such user '{name}'")));
                    }
                    "type" => wanted.kind = Some(kind_named(pair[1])?),
                    "skipme" => match word(pair[1]).as_str() {
                        "yes" => wanted.but = Some(context.session.id),
                        "no" => wanted.but = None,
                        _ => return Err(SYNTAX),
                    },
                    _ => return Err(SYNTAX),
                }
            }
        }
        _ => return Err(SYNTAX),
    }
    let listed = context.shared.listed.iter();
    let chosen: Vec<u64> = listed.filter(|one| wanted.has(one)).map(|one| one.id).collect();
    let cuts_primary = wanted.may_be_the_primary() && context.shared.following.is_some();
    match options {
        [_] if chosen.is_empty() => return Err(Refusal::Said("ERR No such client")),
        [_] => context.reply.ok(),
        _ => context.reply.count(chosen.len() as u64 + u64::from(cuts_primary)),
    }
    context.shared.cut_primary |= cuts_primary;
    for id in chosen {
        if id == context.session.id {
            context.session.closing = true;
        } else {
            context.shared.kill.push(id);
        }
    }
    Ok(())
}

/// The kind of this name. The primary of this server is no client: none.
fn kind_named(name: &[u8]) -> Result<Option<Kind>, Refusal> {
    match word(name).as_str() {
        "normal" => Ok(Some(Kind::Normal)),
        "slave" | "replica" => Ok(Some(Kind::Replica)),
        "pubsub" => Ok(Some(Kind::Subscriber)),
        "master" => Ok(None),
        other => Err(Refusal::Words(format!("ERR Unknown client type '{other}'"))),
    }
}

/// A client, for those who choose among all.
pub(crate) fn listed(session: &Session, shared: &Shared) -> Listed {
    let kind = match session.follows {
        true => Kind::Replica,
        false if session.subscriptions() > 0 => Kind::Subscriber,
        false => Kind::Normal,
    };
    Listed {
        id: session.id,
        address: session.address.clone(),
        here: session.here.clone(),
        user: session.identity.name.to_vec(),
        kind,
        line: describe(session, shared),
    }
}

/// Lists the one who asks as it is now. The others were listed before the command began, or the
/// transaction that it is in.
fn list_myself(context: &mut Context<'_>) {
    let me = listed(context.session, context.shared);
    let all = &mut context.shared.listed;
    match all.binary_search_by_key(&me.id, |one| one.id) {
        Ok(at) => all[at] = me,
        Err(at) => all.insert(at, me),
    }
}

/// A client in a line, as CLIENT LIST has it.
pub(crate) fn describe(session: &Session, shared: &Shared) -> String {
    let (redirect, tracking) = shared.tracking.of(session.id).unwrap_or((-1, String::new()));
    let all = [
        (session.follows, "S"),
        (session.monitors, "O"),
        (session.subscriptions() > 0, "P"),
        (session.multi.is_some(), "x"),
        (session.waiting.is_some(), "b"),
        (true, tracking.as_str()),
        (shared.broken.contains(&session.id), "d"),
        (session.address == UNIX, "U"),
        (session.stays, "e"),
    ];
    let mut flags: String = all.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag).collect();
    if flags.is_empty() {
        flags.push('N');
    }
    let buffers = &session.buffers;
    let command = session.last_command.map_or("NULL", |row| row.name);
    let (bar, sub) = match session.last_command {
        Some(row) if row.has_subcommands && !session.last_subcommand.is_empty() => {
            ("|", session.last_subcommand)
        }
        _ => ("", ""),
    };
    format!(
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} \
         multi={} qbuf={} qbuf-free={} argv-mem=0 multi-mem={} rbs={} rbp={} obl=0 oll=0 omem={} \
         tot-mem={} events=r cmd={command}{bar}{sub} user={} redir={} resp={} lib-name={} \
         lib-ver={}\n",
        session.id,
        session.address,
        session.here,
        session.name,
        session.since.elapsed().as_secs(),
        session.last.elapsed().as_secs(),
        flags,
        session.db,
        session.channels.len(),
        session.patterns.len(),
        session.shards.len(),
        session.multi.as_ref().map_or(-1, |queued| queued.commands.len() as i64),
        buffers.input,
        buffers.input_free,
        session.multi.as_ref().map_or(0, |queued| queued.bytes),
        buffers.output_size,
        buffers.output_size,
        buffers.output,
        session.memory(),
        String::from_utf8_lossy(&session.identity.name),
        redirect,
        if session.resp3 { 3 } else { 2 },
        session.library[0],
        session.library[1],
    )
}
