//! Users and what they may do (ACL): AUTH, the check before each command, and the command ACL.
//!
//! What is here answers as Redis 7.0 does; its rules name every command of Redis (`catalogue.rs`).
//! `user.rs` has one user and its rules, `commands.rs` what ACL says, `file.rs` the file of users.
//!
//! **Invariants**: a password is kept as its SHA-256 and is in no message; a user's rules change
//! all or none; who is not open is checked before every command, also of a script and of an EXEC.

mod catalogue;
mod commands;
mod file;
mod log;
mod user;

use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use commands::acl;
pub(crate) use file::{for_configuration, load_at_start};
pub(crate) use log::Where;
pub(crate) use user::User;

use super::{Arguments, Context, Refusal, Row, Session, flag, lookup, subcommands};
pub(crate) use catalogue::{Begin, Command as Described, Find, Spec};
use catalogue::{CATEGORIES, catalogue};
use log::{Log, Reason};
use user::Denied;

/// The user that everybody is who says no other name.
pub(crate) const DEFAULT: &[u8] = b"default";

/// All users; who keeps them keeps them as they were.
pub(crate) type Users = Arc<BTreeMap<Vec<u8>, Arc<User>>>;

/// The users, and who was refused.
#[derive(Debug)]
pub(crate) struct Acl {
    pub(crate) users: Users,
    /// Counts changes, so that sessions notice them.
    generation: u64,
    log: Log,
    /// Users that changed or went, whose clients are still to be looked at.
    changed: Vec<Vec<u8>>,
    /// Users that ACL LOAD read anew, whose clients go.
    reloaded: Vec<Vec<u8>>,
}

/// The user that a session is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) name: Vec<u8>,
    user: Arc<User>,
    generation: u64,
}

impl Identity {
    /// The default user, before anybody has said another name.
    pub(crate) fn of_default(users: &Users) -> Identity {
        Identity::of(DEFAULT, users).unwrap_or_else(Identity::unlimited)
    }

    /// A user by name. Changes that were made before are noticed with the first command.
    pub(crate) fn of(name: &[u8], users: &Users) -> Option<Identity> {
        let user = Arc::clone(users.get(name)?);
        Some(Identity { name: name.to_vec(), user, generation: 0 })
    }

    /// Who may do everything: a primary, or a file of commands.
    pub(crate) fn unlimited() -> Identity {
        Identity {
            name: DEFAULT.to_vec(),
            user: Arc::new(User::default_user()),
            generation: u64::MAX,
        }
    }

    /// Whether it is let in without a password.
    pub(crate) fn is_let_in(&self) -> bool {
        self.user.on && self.user.no_password
    }
}

/// Who somebody is that gives this name and password.
pub(crate) fn log_in(users: &Users, name: &[u8], password: &[u8]) -> Option<Identity> {
    let identity = Identity::of(name, users)?;
    identity.user.lets_in(password).then_some(identity)
}

/// Whether somebody may run a command while a script keeps everybody waiting; its name, if not.
pub(crate) fn may_run(
    users: &Users,
    session: &Session,
    args: &Arguments<'_>,
) -> Result<(), String> {
    let row = args.first().and_then(|name| lookup(name));
    let (Some(row), Some(user)) = (row, users.get(&session.identity.name)) else { return Ok(()) };
    let free = row.flags & flag::WITHOUT_AUTH != 0;
    let place = catalogue().of(row.name, args);
    let allowed =
        user.is_open() || free || place.is_some_and(|place| user.check(place, free, args).is_ok());
    if allowed { Ok(()) } else { Err(full_name(row, args)) }
}

/// The keys among the arguments of a command; nothing: it never has any.
pub(crate) fn keys_of<'a>(row: &Row, args: &'a Arguments<'a>) -> Option<Vec<&'a [u8]>> {
    let command = described_with(row.name, args)?;
    let places = command.has_keys().then(|| command.keys(args))?;
    Some(places.into_iter().filter_map(|(at, _)| args.get(at).copied()).collect())
}

/// What Redis says of a command or subcommand, by its name in small letters.
pub(crate) fn described(name: &str) -> Option<&'static Described> {
    let all = catalogue();
    all.find(name).map(|place| &all.all[place])
}

/// What Redis says of a command, or of its subcommand among these words.
pub(crate) fn described_with(name: &str, args: &Arguments<'_>) -> Option<&'static Described> {
    let all = catalogue();
    all.of(name, args).map(|place| &all.all[place])
}

/// The subcommands of a command.
pub(crate) fn children(of: &'static Described) -> impl Iterator<Item = &'static Described> {
    of.children.iter().map(|place| &catalogue().all[*place])
}

/// The commands of Redis that are here, and their subcommands, of a category or all; nothing: there
/// is no such category.
pub(crate) fn names_in(category: Option<&str>) -> Option<Vec<&'static str>> {
    let category = match category {
        Some(name) => Some(CATEGORIES.iter().position(|known| *known == name)?),
        None => None,
    };
    let here = |name: &str| {
        let (command, sub) = name.split_once('|').unwrap_or((name, ""));
        let known = subcommands::of(command).unwrap_or_default();
        lookup(command.as_bytes()).is_some()
            && (sub.is_empty() || known.iter().any(|(known, _)| *known == sub))
    };
    let all = catalogue().all.iter();
    let fits = all.filter(|one| category.is_none_or(|category| one.is_in(category)));
    Some(fits.map(|one| one.name).filter(|name| here(name)).collect())
}

impl Acl {
    /// With the default user, who has this password, or needs none if it is empty.
    pub(crate) fn new(password: &str) -> Acl {
        let users = BTreeMap::from([(DEFAULT.to_vec(), Arc::new(User::default_user()))]);
        let mut acl = Acl {
            users: Arc::new(users),
            generation: 1,
            log: Log::default(),
            changed: Vec::new(),
            reloaded: Vec::new(),
        };
        if !password.is_empty() {
            acl.set_password(password);
        }
        acl
    }

    /// What `requirepass` says.
    pub(crate) fn set_password(&mut self, password: &str) {
        let new = match password {
            "" => b"nopass".to_vec(),
            password => [b">", password.as_bytes()].concat(),
        };
        let mut user = self.user(DEFAULT).map_or_else(User::default_user, |user| (**user).clone());
        for rule in [b"resetpass".as_slice(), &new] {
            let applied = user.apply(rule);
            debug_assert!(applied.is_ok(), "BUG: a rule of passwords");
        }
        self.put(DEFAULT, user);
    }

    /// Whether the default user is let in without a password.
    pub(crate) fn default_needs_no_password(&self) -> bool {
        self.user(DEFAULT).is_some_and(|user| user.no_password)
    }

    fn user(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    fn put(&mut self, name: &[u8], user: User) {
        Arc::make_mut(&mut self.users).insert(name.to_vec(), Arc::new(user));
        self.generation += 1;
    }

    fn replace(&mut self, users: BTreeMap<Vec<u8>, Arc<User>>) {
        self.users = Arc::new(users);
        self.generation += 1;
    }

    /// Applies rules to a user, who is made if there is none; all of them or none.
    ///
    /// # Errors
    /// What is wrong, and with which rule.
    fn set_user(&mut self, name: &[u8], rules: &[&[u8]]) -> Result<(), WrongRule> {
        let rules = merged(rules)?;
        let mut user = self.user(name).map_or_else(User::new, |user| (**user).clone());
        for rule in rules {
            user.apply(&rule).map_err(|why| WrongRule::Rule(rule, why))?;
        }
        self.put(name, user);
        self.changed.push(name.to_vec());
        Ok(())
    }

    /// A line `NAME RULE...` of the configuration, of whose user nothing is there before.
    ///
    /// # Errors
    /// What is wrong with it; no password is in it.
    pub(crate) fn set_user_line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
        let (name, rules) = words.split_first().ok_or("`user` takes a name and rules")?;
        let first: &[&[u8]] = if *name == DEFAULT { &[b"reset"] } else { &[] };
        self.set_user(name, &[first, rules].concat()).map_err(|wrong| wrong.without_password())
    }

    /// Whether some session's user has changed since this was asked last, and what to look at.
    pub(crate) fn take_changes(&mut self) -> Option<Changes> {
        if self.changed.is_empty() && self.reloaded.is_empty() {
            return None;
        }
        Some(Changes {
            users: std::mem::take(&mut self.changed),
            reloaded: std::mem::take(&mut self.reloaded),
        })
    }

    /// Whether a session may stay: its user is there, and may have what it is subscribed to.
    pub(crate) fn may_stay(&self, session: &Session, changes: &Changes) -> bool {
        if changes.reloaded.contains(&session.identity.name) {
            return false;
        }
        if !changes.users.contains(&session.identity.name) {
            return true;
        }
        let Some(user) = self.user(&session.identity.name) else { return false };
        let has = |name: &Vec<u8>, pattern| {
            user.selectors.iter().any(|one| one.has_channel(name, pattern))
        };
        session.channels.iter().chain(session.shards.iter()).all(|name| has(name, false))
            && session.patterns.iter().all(|name| has(name, true))
    }
}

/// Users whose clients are to be looked at.
#[derive(Debug)]
pub(crate) struct Changes {
    users: Vec<Vec<u8>>,
    reloaded: Vec<Vec<u8>>,
}

/// What is wrong with rules.
#[derive(Debug)]
enum WrongRule {
    /// A bracket is not closed in what begins with this.
    Open(Vec<u8>),
    Rule(Vec<u8>, &'static str),
}

impl WrongRule {
    /// In Redis's words, for who said it.
    fn text(&self) -> String {
        match self {
            WrongRule::Open(first) => format!(
                "ERR Unmatched parenthesis in acl selector starting at '{}'.",
                String::from_utf8_lossy(first)
            ),
            WrongRule::Rule(rule, why) => {
                let rule = String::from_utf8_lossy(rule);
                format!("ERR Error in ACL SETUSER modifier '{rule}': {why}")
            }
        }
    }

    /// For a message that others may read.
    fn without_password(&self) -> String {
        match self {
            WrongRule::Rule(rule, why)
                if !matches!(rule.first(), Some(b'>' | b'<' | b'#' | b'!')) =>
            {
                format!(
                    "the rule `{}` is wrong: {why}",
                    String::from_utf8_lossy(rule).escape_debug()
                )
            }
            WrongRule::Rule(_, why) => format!("a rule about a password is wrong: {why}"),
            WrongRule::Open(_) => "a selector's bracket is not closed".to_owned(),
        }
    }
}

/// Rules, of which those within brackets are one.
fn merged(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, WrongRule> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<(Vec<u8>, &[u8])> = None;
    for rule in rules {
        match &mut open {
            Some((selector, _)) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
                if rule.ends_with(b")") {
                    all.extend(open.take().map(|(selector, _)| selector));
                }
            }
            None if rule.starts_with(b"(") && !rule.ends_with(b")") => {
                open = Some((rule.to_vec(), rule))
            }
            None => all.push(rule.to_vec()),
        }
    }
    match open {
        None => Ok(all),
        Some((_, first)) => Err(WrongRule::Open(first.to_vec())),
    }
}

/// Whether monitors are not told of a command or its subcommand, because it has Redis's flag for
/// administrators.
pub(super) fn is_hidden_from_monitors(row: &Row, args: &Arguments<'_>) -> bool {
    // Of the category alone.
    if matches!(row.name, "lastsave" | "role") {
        return false;
    }
    let all = catalogue();
    let admin = CATEGORIES.iter().position(|name| *name == "admin");
    let found = all.of(row.name, args).and_then(|place| all.all.get(place));
    found.zip(admin).is_some_and(|(command, admin)| command.is_in(admin))
}

/// The full name of a command, with its subcommand.
fn full_name(row: &Row, args: &Arguments<'_>) -> String {
    let place = catalogue().of(row.name, args);
    place.map_or(row.name, |place| catalogue().all[place].name).to_owned()
}

/// Brings the session's user up to date. One that is gone may do nothing more.
fn refresh(session: &mut Session, acl: &Acl) {
    if session.identity.generation != acl.generation && session.identity.generation != u64::MAX {
        session.identity.generation = acl.generation;
        match acl.user(&session.identity.name) {
            Some(user) => session.identity.user = Arc::clone(user),
            None => session.identity.user = Arc::new(User::new()),
        }
    }
}

/// Whether the session's user may run a command.
#[inline]
fn check(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>) -> Result<(), Denied> {
    refresh(context.session, &context.shared.acl);
    if context.session.identity.user.is_open() {
        return Ok(());
    }
    let free = row.flags & flag::WITHOUT_AUTH != 0;
    match catalogue().of(row.name, args) {
        Some(place) => context.session.identity.user.check(place, free, args),
        // Not one of Redis's: for those who may do everything.
        None if free => Ok(()),
        None => Err(Denied::Command),
    }
}

/// Notes that a user was refused.
fn note(context: &mut Context<'_>, denied: Denied, at: Where, row: &Row, args: &Arguments<'_>) {
    let (reason, object) = match denied {
        Denied::Command => (Reason::Command, full_name(row, args).into_bytes()),
        Denied::Key(place) => (Reason::Key, args[place].to_vec()),
        Denied::Channel(place) => (Reason::Channel, args[place].to_vec()),
    };
    let client = super::describe(context.session, context.shared);
    let (name, now) = (context.session.identity.name.clone(), context.keys.now_ms());
    context.shared.acl.log.add(reason, at, object, name, client, now);
}

/// Why a client may not run a command, if it may not.
pub(super) fn refuse(
    context: &mut Context<'_>,
    row: &Row,
    args: &Arguments<'_>,
) -> Result<(), Refusal> {
    let Err(denied) = check(context, row, args) else { return Ok(()) };
    let at = if context.session.multi.is_some() { Where::Multi } else { Where::TopLevel };
    note(context, denied, at, row, args);
    Err(match denied {
        Denied::Command => Refusal::Words(format!(
            "NOPERM this user has no permissions to run the '{}' command",
            full_name(row, args)
        )),
        Denied::Key(_) => Refusal::Said(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        ),
        Denied::Channel(_) => Refusal::Said(
            "NOPERM this user has no permissions to access one of the channels used as arguments",
        ),
    })
}

fn what(denied: Denied) -> &'static str {
    match denied {
        Denied::Command => "can't run this command or subcommand",
        Denied::Key(_) => {
            "can't access at least one of the keys mentioned in the command arguments"
        }
        Denied::Channel(_) => "can't publish to the channel mentioned in the command",
    }
}

/// The same for a command of an EXEC, whose user may have changed since it was queued.
pub(super) fn refuse_queued(
    context: &mut Context<'_>,
    row: &Row,
    args: &Arguments<'_>,
) -> Result<(), Refusal> {
    let Err(denied) = check(context, row, args) else { return Ok(()) };
    note(context, denied, Where::Multi, row, args);
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
    };
    Err(Refusal::Words(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
         call. This \
         command is no longer allowed for the following reason: {reason}"
    )))
}

/// Whether the client may read any key with this command, as SORT's patterns need it.
pub(super) fn may_read_all_keys(context: &Context<'_>, args: &Arguments<'_>) -> bool {
    let row = args.first().and_then(|name| lookup(name));
    let (Some(row), Some(place)) = (row, row.and_then(|row| catalogue().of(row.name, args))) else {
        return false;
    };
    let free = row.flags & flag::WITHOUT_AUTH != 0;
    context.keys.for_primary || context.session.identity.user.reads_all_keys(place, free, args)
}

/// Whether the client may execute a command.
pub(super) fn may(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>) -> bool {
    check(context, row, args).is_ok()
}

/// The same for a command of a script.
pub(super) fn refuse_in_script(
    context: &mut Context<'_>,
    row: &Row,
    args: &Arguments<'_>,
) -> Result<(), Refusal> {
    let Err(denied) = check(context, row, args) else { return Ok(()) };
    note(context, denied, Where::Script, row, args);
    Err(Refusal::Words(format!("ERR The user executing the script {}", what(denied))))
}

/// Logs a client in, which said so with this command.
pub(super) fn authenticate(
    context: &mut Context<'_>,
    said: &[u8],
    name: &[u8],
    password: &[u8],
) -> Result<(), Refusal> {
    match log_in(&context.shared.acl.users, name, password) {
        Some(identity) => {
            context.session.identity = identity;
            context.session.allowed = true;
            Ok(())
        }
        None => {
            let at = if context.session.multi.is_some() { Where::Multi } else { Where::TopLevel };
            let client = super::describe(context.session, context.shared);
            let (name, now) = (name.to_vec(), context.keys.now_ms());
            context.shared.acl.log.add(Reason::Auth, at, said.to_vec(), name, client, now);
            Err(Refusal::Said("WRONGPASS invalid username-password pair or user is disabled."))
        }
    }
}
