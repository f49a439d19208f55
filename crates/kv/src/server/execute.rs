//! What a client has sent is executed: read some requests ahead, ask for the memory of their keys,
//! execute one after the other.
//!
//! **Invariant**: a request that was read ahead means what it would have meant had it come alone;
//! what is not executed is read again.

use std::rc::Rc;
use std::time::Instant;

use smallvec::SmallVec;

use super::busy;
use super::client::Client;
use super::request::{AHEAD, Ahead, Filled, Limits};
use super::{OUTPUT_PAUSE, Server, say};
use crate::command::{Buffers, Listed, REPLIES_MAX, Reply, Session, listed, step};
use crate::keyspace::Expected;

/// A longer second word is no key that is worth a hash of its own.
const KEY_MAX: usize = 1 << 10;

impl Server {
    /// Executes every whole request that a client has sent.
    pub(super) fn execute(&mut self, client: &mut Client) {
        let input = std::mem::take(&mut client.input);
        let mut done = 0;
        client.session.last = Instant::now();
        self.shared.clock = Some(self.shared.ticks.now());
        let hot = self.shared.configuration.hot;
        // What a client sends after its last request is nobody's.
        if client.session.closing {
            done = input.len();
        }
        let parsed = !client.ahead.is_empty();
        let mut ahead = std::mem::take(if parsed { &mut client.ahead } else { &mut self.ahead });
        if parsed {
            self.expect(client.session.db, &ahead, &input);
        }
        while client.may_execute() {
            if ahead.is_empty() {
                let limits = Limits { bulk: hot.bulk, allowed: client.session.allowed };
                // A password changes the limits of what is behind it; what a pause holds back would
                // be read again and again.
                let alone = !limits.allowed || self.shared.pause.is_some();
                let most = if alone { 1 } else { AHEAD };
                match ahead.fill(&mut client.request, &input[done..], limits, most) {
                    Filled::Some => self.expect(client.session.db, &ahead, &input[done..]),
                    Filled::More => break,
                    Filled::Wrong(why) => {
                        Reply { out: &mut client.output, resp3: false }.error(&why);
                        client.session.closing = true;
                        break;
                    }
                }
            }
            let allowed = client.session.allowed;
            let (arguments, bytes) = ahead.first(&input[done..]);
            if self.shared.pause.is_some() && self.holds_back(&client.session, &arguments) {
                self.hold_back(client);
                break;
            }
            let cut = arguments.first().is_some_and(|name| is_browsers(name));
            if !cut {
                let left = (input.len() - done, input.capacity() - input.len());
                self.one(&mut client.session, &arguments, &mut client.output, left);
            }
            drop(arguments);
            let too_much = client.output.len() > REPLIES_MAX;
            if cut || too_much || client.unsent() as u64 > self.output_limit(client) {
                client.cut();
            }
            done += bytes;
            ahead.pop();
            if allowed && !client.session.allowed {
                // What is behind it was read with the limits of a client that is known, and so was
                // the begin of a request that is not whole yet.
                ahead.forget(&mut client.request);
            }
        }
        ahead.give_up(&mut client.request);
        *(if parsed { &mut client.ahead } else { &mut self.ahead }) = ahead;
        self.shared.clock = None;
        client.input = input;
        client.consume(done);
        client.session.closing |= client.input.len() as u64 > hot.query_buffer;
        client.paused = client.unsent() > OUTPUT_PAUSE;
        if !client.pending && (client.unsent() > 0 || client.session.closing) {
            client.pending = true;
            self.pending.push(client.session.id);
        }
    }

    /// Asks for the memory of the keys that requests name which are read and not executed yet: by
    /// then it is in a cache. A request alone has nothing to hide the wait behind.
    fn expect(&self, db: u8, ahead: &Ahead, input: &[u8]) {
        if ahead.len() < 2 {
            return;
        }
        let keys = ahead.keys(input).filter(|key| key.len() <= KEY_MAX);
        let expected: SmallVec<[Expected; AHEAD]> =
            keys.filter_map(|key| self.keys.expect(db, key)).collect();
        expected.iter().for_each(|one| self.keys.expect_entry(one));
    }

    /// Executes a command; `left`: bytes of the input with those behind it, and what is free.
    fn one(
        &mut self,
        session: &mut Session,
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
        left: (usize, usize),
    ) {
        let Some(name) = arguments.first() else { return };
        let (before, follows, tracked) = (out.len(), session.follows, session.tracks);
        let messages = self.shared.deliveries.len();
        if name.eq_ignore_ascii_case(b"client") && session.allowed {
            session.buffers = Buffers {
                input: left.0,
                input_free: left.1,
                output: 0,
                output_size: out.capacity(),
            };
            if session.multi.is_none() && looks_at_clients(arguments) {
                self.list_clients(session);
            }
        } else if let Some(queued) = session.multi.as_ref().filter(|_| is_exec(name)) {
            // What is queued is about the clients that there are then.
            let looks = |one: &Vec<Vec<u8>>| {
                let all: SmallVec<[&[u8]; 8]> = one.iter().map(Vec::as_slice).collect();
                looks_at_clients(&all)
            };
            if queued.commands.iter().any(looks) {
                self.list_clients(session);
            }
        }
        if busy::may_run_script(session, name) {
            self.step_beside_others(session, arguments, out);
        } else {
            step(&mut self.keys, &mut self.shared, session, arguments, out);
        }
        if session.tracks || tracked {
            // It is told of its own changes before the reply to what it says next.
            let own = self.shared.deliveries.take_own(messages, session.id);
            own.iter().for_each(|one| say(session, out, &one.what));
        }
        if follows {
            // A replica takes nothing but the stream.
            out.truncate(before);
        }
        self.shared.line_up(session, &mut self.keys);
        self.part_from_users(session);
        self.end_killed();
        self.wake();
        if self.shared.wanted.is_some() {
            // What follows in a pipeline is for the new state.
            self.change_primary();
            self.shared.clock = None;
        }
    }

    /// Cuts the clients whose user is gone, or may not have what they are subscribed to any more.
    fn part_from_users(&mut self, session: &mut Session) {
        let Some(changes) = self.shared.acl.take_changes() else { return };
        let gone = |session: &Session| !self.shared.acl.may_stay(session, &changes);
        session.closing |= gone(session);
        let others = self.clients.values().map(|client| &client.session);
        let gone: Vec<u64> = others.filter(|one| gone(one)).map(|one| one.id).collect();
        self.shared.kill.extend(gone);
    }

    /// Executes a command that may take long; the crowd of the others is answered meanwhile.
    fn step_beside_others(
        &mut self,
        session: &mut Session,
        arguments: &[&[u8]],
        out: &mut Vec<u8>,
    ) {
        self.crowd.borrow_mut().begin(
            std::mem::take(&mut self.clients),
            (self.next_id, &self.read),
            &self.shared.configuration,
            &self.shared.acl.users,
            self.keys.follows,
        );
        let before = self.keys.changes();
        self.shared.bystanders = Some(Box::new(Rc::clone(&self.crowd)));
        step(&mut self.keys, &mut self.shared, session, arguments, out);
        self.shared.bystanders = None;
        let touched;
        (self.clients, self.next_id, touched) = self.crowd.borrow_mut().end();
        // With the one that has run it.
        self.shared.clients = self.clients.len() + 1;
        let wrote = self.keys.changes() != before;
        for id in touched {
            // What it sent behind what was answered is executed now.
            self.resumed.push(id);
            let Some(client) = self.clients.get_mut(&id) else { continue };
            self.shared.catch_up(&mut client.session, &mut self.keys, wrote);
            if !client.pending {
                client.pending = true;
                self.pending.push(id);
            }
        }
    }

    /// Makes the lines that CLIENT LIST and CLIENT KILL look at.
    pub(super) fn list_clients(&mut self, asking: &Session) {
        self.clients.values_mut().for_each(|client| client.session.buffers = client.buffers());
        let others = self.clients.values().map(|client| &client.session);
        let sessions = others.chain(std::iter::once(asking));
        let mut all: Vec<Listed> = sessions.map(|one| listed(one, &self.shared)).collect();
        all.sort_by_key(|one| one.id);
        self.shared.listed = all;
    }
}

/// Whether a command is one of CLIENT about others. With many clients the list takes its time, and
/// each says CLIENT SETINFO when it connects.
fn looks_at_clients(arguments: &[&[u8]]) -> bool {
    let [name, subcommand, ..] = arguments else { return false };
    name.eq_ignore_ascii_case(b"client")
        && ["kill", "list", "tracking"]
            .iter()
            .any(|one| subcommand.eq_ignore_ascii_case(one.as_bytes()))
}

fn is_exec(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"exec")
}

/// Whether a request is one of HTTP, with which a web page could reach a server on its reader's
/// machine: Redis cuts these too.
fn is_browsers(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
