//! The other clients while a script takes long: -BUSY, SCRIPT KILL, SHUTDOWN NOSAVE, and what Redis
//! allows beside a script (`command/beside.rs`).
//!
//! **Invariant**: nobody is sent anything here who still waits for a reply: that reply belongs to
//! the batch of the script, which is not committed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::epoll;
use smallvec::SmallVec;

use super::accept::{Door, Taken};
use super::client::{Client, Io};
use super::listen::Listener;
use super::request::{Limits, Next};
use crate::command::{
    Beside, Bystanders, Configuration, Reply, Running, Session, Told, Users, beside_a_script,
    log_in, may_run, stats,
};

/// Connections that are taken at one go.
const ACCEPT_MAX: usize = 16;

const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
const BUSY_FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";
const UNKILLABLE: &str = "UNKILLABLE Sorry the script already executed write commands against the \
                          dataset. You can either \
     wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE \
     command.";

/// Whether a command may run a script.
pub(super) fn may_run_script(session: &Session, name: &[u8]) -> bool {
    let runs = |name: &[u8]| {
        name.get(..4).is_some_and(|first| first.eq_ignore_ascii_case(b"eval"))
            || name.get(..5).is_some_and(|first| first.eq_ignore_ascii_case(b"fcall"))
    };
    let queued = || session.multi.iter().flat_map(|queued| &queued.commands);
    runs(name) || name.eq_ignore_ascii_case(b"exec") && queued().any(|command| runs(&command[0]))
}

/// The clients, whose server cannot attend to them.
pub(super) struct Crowd {
    clients: HashMap<u64, Box<Client>>,
    next_id: u64,
    /// Those who were told something, or said something that is left for later.
    touched: Vec<u64>,
    /// Those of whom an I/O thread has read something that is not executed.
    read: Vec<u64>,
    epoll: Rc<OwnedFd>,
    listeners: Rc<[Listener]>,
    door: Door,
    bulk: u64,
    query_buffer: u64,
    /// The server is a replica.
    follows: bool,
}

impl std::fmt::Debug for Crowd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crowd").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}

impl Crowd {
    pub(super) fn new(epoll: Rc<OwnedFd>, listeners: Rc<[Listener]>) -> Crowd {
        let (clients, touched, door) = (HashMap::new(), Vec::new(), Door::default());
        Crowd {
            clients,
            next_id: 0,
            touched,
            read: Vec::new(),
            epoll,
            listeners,
            door,
            bulk: 0,
            query_buffer: 0,
            follows: false,
        }
    }

    /// Takes the clients over; `read`: an I/O thread has read from them.
    pub(super) fn begin(
        &mut self,
        clients: HashMap<u64, Box<Client>>,
        (next_id, read): (u64, &[u64]),
        configuration: &Configuration,
        users: &Users,
        follows: bool,
    ) {
        self.follows = follows;
        (self.clients, self.next_id) = (clients, next_id);
        self.read = read.to_vec();
        self.door = Door::of(configuration, users);
        self.bulk = configuration.hot.bulk;
        self.query_buffer = configuration.hot.query_buffer;
    }

    /// Gives them back, with those that their server has to look at.
    pub(super) fn end(&mut self) -> (HashMap<u64, Box<Client>>, u64, Vec<u64>) {
        (std::mem::take(&mut self.clients), self.next_id, std::mem::take(&mut self.touched))
    }

    fn accept(&mut self, number: usize) {
        for _ in 0..ACCEPT_MAX {
            let full = self.clients.len() as u64 >= self.door.most;
            match self.door.take(&self.listeners[number], &self.epoll, self.next_id, full) {
                Taken::Client(client) => {
                    self.clients.insert(self.next_id, client);
                    self.next_id += 1;
                }
                Taken::Rejected => {}
                Taken::NoDescriptor | Taken::Nothing => return,
            }
        }
    }

    /// Answers what a client has sent. One that is gone is noticed later.
    fn attend(&mut self, id: u64, running: &Running) -> Told {
        let Some(client) = self.clients.get_mut(&id) else { return Told::Nothing };
        let ready = !client.session.follows
            && client.unsent() == 0
            && client.session.waiting.is_none()
            && !client.session.closing;
        if !ready {
            return Told::Nothing;
        }
        // An I/O thread has read something already, in the batch of the script.
        let was_read = !client.ahead.is_empty();
        match client.receive() {
            Io::Some(_) => {}
            Io::Later if was_read => {}
            Io::Later | Io::Gone => return Told::Nothing,
        }
        // What it has parsed is the server's, which parses it again.
        client.ahead.give_up(&mut client.request);
        let (mut told, mut done) = (Told::Nothing, 0);
        let input = std::mem::take(&mut client.input);
        while told == Told::Nothing && !client.session.closing {
            let limits = Limits { bulk: self.bulk, allowed: client.session.allowed };
            match client.request.read(&input[done..], limits) {
                Next::Whole(bytes) => {
                    let mut arguments: SmallVec<[&[u8]; 8]> = SmallVec::new();
                    client.request.arguments(&input[done..], &mut arguments);
                    let resp3 = client.session.resp3;
                    let mut reply = Reply { out: &mut client.output, resp3 };
                    let busy = if running.function.is_some() { BUSY_FUNCTION } else { BUSY };
                    let beside = Beside { busy, users: &self.door.users, follows: self.follows };
                    told = answer(&mut client.session, &arguments, &mut reply, &beside, running);
                    drop(arguments);
                    done += bytes;
                    client.request.reset();
                }
                Next::More => break,
                Next::Wrong(why) => {
                    Reply { out: &mut client.output, resp3: false }.error(&why);
                    client.session.closing = true;
                }
            }
        }
        client.input = input;
        client.consume(done);
        client.session.closing |= client.input.len() as u64 > self.query_buffer;
        // Whatever is left is the server's.
        client.send();
        self.touched.push(id);
        told
    }
}

fn answer(
    session: &mut Session,
    arguments: &[&[u8]],
    reply: &mut Reply<'_>,
    beside: &Beside<'_>,
    running: &Running,
) -> Told {
    let is = |at: usize, word: &str| {
        arguments.get(at).is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
    };
    match arguments {
        [] => {}
        [_, _] | [_, _, _] if is(0, "auth") => {
            let (user, given) = match arguments {
                [_, given] => (&b"default"[..], *given),
                [_, user, given] => (*user, *given),
                _ => return Told::Nothing,
            };
            match log_in(beside.users, user, given) {
                Some(identity) => {
                    (session.identity, session.allowed) = (identity, true);
                    reply.ok();
                }
                None => {
                    reply.error("WRONGPASS invalid username-password pair or user is disabled.")
                }
            }
        }
        _ if !session.allowed && !is(0, "hello") && !is(0, "reset") => {
            reply.error("NOAUTH Authentication required.")
        }
        _ if let Err(name) = may_run(beside.users, session, arguments) => {
            reply
                .error(&format!("NOPERM this user has no permissions to run the '{name}' command"));
        }
        [_, _] if (is(0, "script") || is(0, "function")) && is(1, "kill") => {
            if running.wrote {
                reply.error(UNKILLABLE);
            } else if is(0, "function") != running.function.is_some() {
                reply.error(beside.busy);
            } else {
                reply.ok();
                return Told::Kill;
            }
        }
        [_, _] if is(0, "function") && is(1, "stats") && running.function.is_some() => {
            stats(reply, Some(running), running.known);
        }
        [_, _] if is(0, "shutdown") && is(1, "nosave") => return Told::ShutDown,
        [_] if is(0, "quit") => {
            session.closing = true;
            reply.ok();
        }
        _ if beside_a_script(session, arguments, reply, beside) => {}
        _ => {
            if let Some(queued) = &mut session.multi {
                queued.refused = true;
            }
            reply.error(beside.busy);
        }
    }
    Told::Nothing
}

impl Bystanders for Rc<RefCell<Crowd>> {
    fn answer(&mut self, running: &Running) -> Told {
        let mut crowd = self.borrow_mut();
        // The system tells nobody of what is read already.
        for id in std::mem::take(&mut crowd.read) {
            let told = crowd.attend(id, running);
            if told != Told::Nothing {
                return told;
            }
        }
        let mut ready = Vec::with_capacity(256);
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&crowd.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&now))
            .is_err()
        {
            return Told::Nothing;
        }
        for event in &ready {
            let number = event.data.u64();
            if number < crowd.listeners.len() as u64 {
                crowd.accept(number as usize);
                continue;
            }
            let told = crowd.attend(number, running);
            if told != Told::Nothing {
                return told;
            }
        }
        Told::Nothing
    }
}
