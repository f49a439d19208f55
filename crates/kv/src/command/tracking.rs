//! CLIENT TRACKING: clients that keep values of their own are told when a key changes.
//!
//! In the default mode a table remembers which client has read which key; a change of the key is
//! told to them and forgotten. With BCAST a client is told of every key that begins as it wants,
//! and nothing is remembered. As in Redis, a key's database does not count, and what is told goes
//! to the client itself (RESP3) or to the one that it names (REDIRECT).
//!
//! **Bounded**: the table holds `tracking-table-max-keys` keys; what is over goes, and is told as
//! if it had changed. Messages count for the output limit of who gets them.
//!
//! Changes come from [`Keyspace::take_touched`](crate::keyspace::Keyspace::take_touched), the list
//! that WATCH lives on: where nobody tracks, watches or waits it is not kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::arguments::integer;
use super::deliveries::{Deliveries, Delivery, What};
use super::names::Names;
use super::{Arguments, Context, Done, Refusal, Reply, Row, SYNTAX, Session, acl, flag, word};

/// Keys that leave a table that is too large at one go, and so many more at each further one.
const EFFORT: usize = 100;

/// Bytes that a prefix takes beside its name, for its client and where it is found.
const PREFIX_BYTES: usize = 128;

/// How a client is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker {
    /// Who is told instead; 0: the client itself.
    redirect: u64,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    /// CLIENT CACHING was said for the next command.
    caching: bool,
    /// Who is to be told is not there.
    broken: bool,
    prefixes: Names,
}

/// Clients of a prefix, and the keys that changed since they were told, with who changed them.
#[derive(Debug, Default)]
struct Prefix {
    clients: BTreeSet<u64>,
    keys: BTreeMap<Vec<u8>, u64>,
}

/// What all clients track.
#[derive(Debug, Default)]
pub(crate) struct Tracking {
    clients: HashMap<u64, Tracker>,
    table: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    items: u64,
    prefixes: BTreeMap<Vec<u8>, Prefix>,
    /// Who runs a command now; 0: nobody.
    pub(crate) current: u64,
    /// A database was emptied, maybe one that was empty.
    pub(crate) emptied: bool,
    /// The keys that were named for the script that runs.
    script_keys: Vec<Vec<u8>>,
    /// Behind the key that left the table last.
    cursor: Vec<u8>,
    /// How often the table was still too large.
    tries: usize,
}

impl Tracking {
    /// Whether anybody wants to know of changes.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Clients, keys, clients of keys, prefixes.
    pub(super) fn counts(&self) -> [u64; 4] {
        [self.clients.len() as u64, self.table.len() as u64, self.items, self.prefixes.len() as u64]
    }

    /// Whether messages of a client can reach nobody, and where they go: for CLIENT LIST.
    pub(crate) fn of(&self, client: u64) -> Option<(i64, String)> {
        let tracker = self.clients.get(&client)?;
        let flags = [(true, 't'), (tracker.broken, 'R'), (tracker.broadcast, 'B')];
        let flags = flags.into_iter().filter(|(has, _)| *has).map(|(_, flag)| flag);
        Some((tracker.redirect as i64, flags.collect()))
    }

    /// Bytes of memory that the prefixes of a client take, about.
    pub(crate) fn memory(&self, client: u64) -> usize {
        self.clients.get(&client).map_or(0, |one| one.prefixes.bytes(PREFIX_BYTES))
    }

    /// Ends the tracking of a client. What the table has of it goes when its keys change.
    pub(crate) fn end(&mut self, client: u64) {
        let Some(tracker) = self.clients.remove(&client) else { return };
        for name in tracker.prefixes {
            if let Some(prefix) = self.prefixes.get_mut(&name) {
                prefix.clients.remove(&client);
                if prefix.clients.is_empty() {
                    self.prefixes.remove(&name);
                }
            }
        }
        if self.clients.is_empty() {
            self.forget_keys();
        }
    }

    fn forget_keys(&mut self) {
        self.table.clear();
        self.items = 0;
    }

    /// The next command of a client begins: what CLIENT CACHING said is over.
    #[cold]
    pub(crate) fn end_caching(&mut self, client: u64) {
        if let Some(tracker) = self.clients.get_mut(&client) {
            tracker.caching = false;
        }
    }

    /// A client has read keys.
    fn remember(&mut self, client: u64, keys: &[&[u8]]) {
        let Some(tracker) = self.clients.get(&client) else { return };
        let out = tracker.opt_in && !tracker.caching || tracker.opt_out && tracker.caching;
        if tracker.broadcast || out {
            return;
        }
        for key in keys {
            let key = *key;
            if !self.table.contains_key(key) {
                self.table.insert(key.to_vec(), BTreeSet::new());
            }
            if let Some(clients) = self.table.get_mut(key) {
                self.items += u64::from(clients.insert(client));
            }
        }
    }

    /// A key has changed.
    pub(crate) fn changed(&mut self, key: &[u8], deliveries: &mut Deliveries, limit: u64) {
        let by = self.current;
        for (name, prefix) in &mut self.prefixes {
            if key.starts_with(name) {
                prefix.keys.insert(key.to_vec(), by);
            }
        }
        self.invalidate(key, deliveries, limit);
    }

    /// Tells who has read a key that it is not remembered any more.
    fn invalidate(&mut self, key: &[u8], deliveries: &mut Deliveries, limit: u64) {
        let Some(readers) = self.table.remove(key) else { return };
        self.items -= readers.len() as u64;
        let keys: Rc<[Vec<u8>]> = Rc::new([key.to_vec()]);
        for client in readers {
            let Some(tracker) = self.clients.get(&client) else { continue };
            let own = tracker.no_loop && client == self.current;
            if !(tracker.broadcast || own) {
                tracker.tell(client, Some(keys.clone()), deliveries, limit);
            }
        }
    }

    /// All keys have changed.
    pub(crate) fn flushed(&mut self, deliveries: &mut Deliveries, limit: u64) {
        for (client, tracker) in &self.clients {
            tracker.tell(*client, None, deliveries, limit);
        }
        self.forget_keys();
    }

    /// Tells the clients of prefixes what changed since they were told.
    pub(crate) fn broadcast(&mut self, deliveries: &mut Deliveries, limit: u64) {
        for prefix in self.prefixes.values_mut() {
            if prefix.keys.is_empty() {
                continue;
            }
            let changed = std::mem::take(&mut prefix.keys);
            let all: Rc<[Vec<u8>]> = changed.keys().cloned().collect();
            for client in &prefix.clients {
                let Some(tracker) = self.clients.get(client) else { continue };
                let keys: Rc<[Vec<u8>]> = match tracker.no_loop {
                    true => changed
                        .iter()
                        .filter(|(_, by)| *by != client)
                        .map(|(key, _)| key.clone())
                        .collect(),
                    false => all.clone(),
                };
                if !keys.is_empty() {
                    tracker.tell(*client, Some(keys), deliveries, limit);
                }
            }
        }
    }

    /// Takes keys from a table that has more than it may; 0: any number.
    pub(crate) fn keep_limit(&mut self, most: u64, deliveries: &mut Deliveries, limit: u64) {
        let over = |all: &Tracking| most > 0 && all.table.len() as u64 > most;
        if !over(self) {
            self.tries = 0;
            return;
        }
        self.tries += 1;
        for _ in 0..EFFORT * self.tries {
            let next = self.table.range::<Vec<u8>, _>(&self.cursor..).next();
            let Some(key) = next.or(self.table.iter().next()).map(|(key, _)| key.clone()) else {
                break;
            };
            self.invalidate(&key, deliveries, limit);
            self.cursor = key;
            if !over(self) {
                self.tries = 0;
                break;
            }
        }
    }

    /// Who was to be told for a client is not there; whether the client knew that.
    pub(crate) fn note_broken(&mut self, client: u64) {
        if let Some(tracker) = self.clients.get_mut(&client) {
            tracker.broken = true;
        }
    }
}

impl Tracker {
    fn tell(
        &self,
        client: u64,
        keys: Option<Rc<[Vec<u8>]>>,
        deliveries: &mut Deliveries,
        limit: u64,
    ) {
        let to = if self.redirect == 0 { client } else { self.redirect };
        let what = What::Invalid { tracker: client, redirected: self.redirect != 0, keys };
        deliveries.push(Delivery { client: to, what }, limit);
    }
}

/// Tells a client that what is kept of keys, or of all, is not true any more: by it, or by the
/// client that it is told for.
pub(crate) fn say_invalid(
    session: &Session,
    out: &mut Vec<u8>,
    redirected: bool,
    keys: Option<&[Vec<u8>]>,
) {
    let mut reply = Reply { out, resp3: session.resp3 };
    if reply.resp3 {
        reply.push(2);
        reply.bulk(b"invalidate");
    } else if session.subscriptions() > 0 && redirected {
        reply.push(3);
        reply.bulk(b"message");
        reply.bulk(b"__redis__:invalidate");
    } else {
        // Between replies of RESP2 there is no place for it.
        return;
    }
    match keys {
        Some(keys) => {
            reply.list(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
        None => reply.null(),
    }
}

/// A client that tracks begins a command, which may be a script.
#[cold]
pub(super) fn begin(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>) {
    if !context.shared.in_script && row.group == "scripting" {
        let keys = acl::keys_of(row, args).unwrap_or_default();
        context.shared.tracking.script_keys = keys.into_iter().map(<[u8]>::to_vec).collect();
    }
}

/// A client that tracks has run a command. What a script has read counts as all keys that were
/// named for it, as in Redis.
///
/// What changed before is told first, by the same transaction or script too, or by the time that
/// was over for a key: the client has read what came after it.
#[cold]
pub(super) fn note_reads(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>) {
    if row.flags & flag::READ == 0 {
        return;
    }
    context.shared.break_watches(context.keys);
    let tracking = &mut context.shared.tracking;
    if context.shared.in_script {
        let keys = std::mem::take(&mut tracking.script_keys);
        let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        tracking.remember(context.session.id, &names);
        tracking.script_keys = keys;
    } else {
        tracking.remember(context.session.id, &acl::keys_of(row, args).unwrap_or_default());
    }
}

/// What CLIENT TRACKING is told.
fn read(context: &Context<'_>, args: &Arguments<'_>) -> Result<Tracker, Refusal> {
    let mut wanted = Tracker::default();
    let mut prefixes: Vec<&[u8]> = Vec::new();
    let mut rest = args[3..].iter();
    while let Some(option) = rest.next() {
        match (word(option).as_str(), rest.as_slice()) {
            ("redirect", [_, ..]) if wanted.redirect != 0 => {
                return Err(Refusal::Said(
                    "ERR A client can only redirect to a single other client",
                ));
            }
            ("redirect", [id, ..]) => {
                let id = integer(id)
                    .ok_or(Refusal::Said("ERR value is not an integer or out of range"))?;
                let there = context.shared.listed.iter().any(|one| one.id as i64 == id);
                wanted.redirect = u64::try_from(id).ok().filter(|_| there).ok_or(Refusal::Said(
                    "ERR The client ID you want redirect to does not exist",
                ))?;
                rest.next();
            }
            ("prefix", [prefix, ..]) => {
                prefixes.push(prefix);
                rest.next();
            }
            ("bcast", _) => wanted.broadcast = true,
            ("optin", _) => wanted.opt_in = true,
            ("optout", _) => wanted.opt_out = true,
            ("noloop", _) => wanted.no_loop = true,
            _ => return Err(SYNTAX),
        }
    }
    if word(args[2]) == "on" {
        let old = context.shared.tracking.clients.get(&context.session.id);
        check(&wanted, old, &prefixes)?;
    }
    if wanted.broadcast && prefixes.is_empty() {
        prefixes.push(b"");
    }
    for prefix in prefixes {
        wanted.prefixes.insert(prefix);
    }
    Ok(wanted)
}

/// Whether options fit each other, and what the client tracks already.
fn check(wanted: &Tracker, old: Option<&Tracker>, prefixes: &[&[u8]]) -> Done {
    let said = |text| Err(Refusal::Said(text));
    if !wanted.broadcast && !prefixes.is_empty() {
        return said("ERR PREFIX option requires BCAST mode to be enabled");
    }
    if old.is_some_and(|old| old.broadcast != wanted.broadcast) {
        return said(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        );
    }
    if wanted.broadcast && (wanted.opt_in || wanted.opt_out) {
        return said("ERR OPTIN and OPTOUT are not compatible with BCAST");
    }
    if wanted.opt_in && wanted.opt_out {
        return said("ERR You can't specify both OPTIN mode and OPTOUT mode");
    }
    if old.is_some_and(|old| wanted.opt_in && old.opt_out || wanted.opt_out && old.opt_in) {
        return said(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        );
    }
    let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    let collision = |one: &[u8], with: &str, other: &[u8]| {
        let (one, other) = (String::from_utf8_lossy(one), String::from_utf8_lossy(other));
        Err(Refusal::Words(format!(
            "ERR Prefix '{one}' overlaps with {with} prefix '{other}'. Prefixes for a single \
             client must not overlap."
        )))
    };
    for (number, one) in prefixes.iter().enumerate() {
        let mut olds = old.into_iter().flat_map(|old| &old.prefixes);
        if let Some(other) = olds.find(|other| overlap(one, other)) {
            return collision(one, "an existing", other);
        }
        if let Some(other) = prefixes[number + 1..].iter().find(|other| overlap(one, other)) {
            return collision(one, "another provided", other);
        }
    }
    Ok(())
}

/// `CLIENT TRACKING on|off [REDIRECT id] [PREFIX prefix ...] [BCAST] [OPTIN] [OPTOUT] [NOLOOP]`.
pub(super) fn set(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let mut wanted = read(context, args)?;
    // What changed before, in the same transaction, is for who tracked then.
    context.shared.break_watches(context.keys);
    let id = context.session.id;
    let tracking = &mut context.shared.tracking;
    match word(args[2]).as_str() {
        "on" => {
            for name in &wanted.prefixes {
                tracking.prefixes.entry(name.clone()).or_default().clients.insert(id);
            }
            if !tracking.is_on() {
                // Of before anybody tracked.
                tracking.emptied = false;
            }
            if let Some(old) = tracking.clients.remove(&id) {
                for name in &old.prefixes {
                    wanted.prefixes.insert(name);
                }
                wanted.caching = old.caching;
            }
            tracking.clients.insert(id, wanted);
        }
        "off" => tracking.end(id),
        _ => return Err(SYNTAX),
    }
    context.session.tracks = tracking.clients.contains_key(&id);
    context.shared.note_who_watches(context.keys);
    context.reply.ok();
    Ok(())
}

/// `CLIENT CACHING YES|NO`.
pub(super) fn caching(context: &mut Context<'_>, answer: &[u8]) -> Done {
    let said = |text| Err(Refusal::Said(text));
    let Some(tracker) = context.shared.tracking.clients.get_mut(&context.session.id) else {
        return said(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        );
    };
    match word(answer).as_str() {
        "yes" if tracker.opt_in => tracker.caching = true,
        "yes" => {
            return said(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            );
        }
        "no" if tracker.opt_out => tracker.caching = true,
        "no" => {
            return said(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            );
        }
        _ => return Err(SYNTAX),
    }
    context.reply.ok();
    Ok(())
}

/// `CLIENT GETREDIR`.
pub(super) fn redirection(context: &mut Context<'_>) {
    let tracker = context.shared.tracking.clients.get(&context.session.id);
    context.reply.integer(tracker.map_or(-1, |tracker| tracker.redirect as i64));
}

/// `CLIENT TRACKINGINFO`.
pub(super) fn info(context: &mut Context<'_>) {
    let tracker = context.shared.tracking.clients.get(&context.session.id);
    let mut flags = vec![if tracker.is_some() { "on" } else { "off" }];
    if let Some(one) = tracker {
        let all = [
            (one.broadcast, "bcast"),
            (one.opt_in, "optin"),
            (one.opt_in && one.caching, "caching-yes"),
            (one.opt_out, "optout"),
            (one.opt_out && one.caching, "caching-no"),
            (one.no_loop, "noloop"),
            (one.broken, "broken_redirect"),
        ];
        flags.extend(all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name));
    }
    let reply = &mut context.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(tracker.map_or(-1, |tracker| tracker.redirect as i64));
    reply.bulk(b"prefixes");
    reply.list(tracker.map_or(0, |tracker| tracker.prefixes.len()));
    tracker.into_iter().flat_map(|tracker| &tracker.prefixes).for_each(|name| reply.bulk(name));
}
