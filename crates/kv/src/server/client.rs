//! One connection: what has come, what is to go.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::request::{AHEAD, Ahead, Filled, Limits, Request};
use super::secured::Secured;
use crate::command::{Buffers, Session};

/// Bytes that are read at one go.
const READ: usize = 64 << 10;
/// A buffer of more is given back when it is empty.
const KEEP: usize = 256 << 10;

/// A client.
pub(super) struct Client {
    pub(super) socket: OwnedFd,
    /// It speaks TLS.
    pub(super) secured: Option<Box<Secured>>,
    pub(super) session: Session,
    pub(super) request: Request,
    /// What an I/O thread has parsed; empty between two batches.
    pub(super) ahead: Ahead,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    sent: usize,
    /// Waits for the socket to take more.
    pub(super) blocked: bool,
    /// Nothing more is executed until it has taken what there is.
    pub(super) paused: bool,
    /// Since when it has more to take than the soft limit.
    pub(super) over_since: Option<Instant>,
    /// Bytes that it took when it was counted last.
    pub(super) counted: u64,
    /// Is among those that get their replies after the commit.
    pub(super) pending: bool,
}

/// How a read or a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    /// So many bytes went; there may be more to do.
    Some(usize),
    /// Nothing for now.
    Later,
    /// The other side is gone.
    Gone,
}

impl Client {
    pub(super) fn new(socket: OwnedFd, secured: Option<Box<Secured>>, session: Session) -> Client {
        Client {
            socket,
            secured,
            session,
            request: Request::default(),
            ahead: Ahead::default(),
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            blocked: false,
            paused: false,
            over_since: None,
            counted: 0,
            pending: false,
        }
    }

    /// Whether its next request may be executed.
    pub(super) fn may_execute(&self) -> bool {
        !self.session.closing
            && self.session.waiting.is_none()
            && self.unsent() <= super::OUTPUT_PAUSE
    }

    /// Reads what has come.
    pub(super) fn receive(&mut self) -> Io {
        if let Some(secured) = &mut self.secured {
            return secured.receive(&self.socket, &mut self.input);
        }
        let before = self.input.len();
        // As much as there is already, up to a MiB: a value of 512 MB is not read in 8192 parts.
        self.input.reserve(before.clamp(READ, 1 << 20));
        let got = loop {
            // Not filled with zeros before: for a small request that takes longer than the rest.
            let space = rustix::buffer::spare_capacity(&mut self.input);
            match rustix::net::recv(&self.socket, space, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Ok((_, got)) => break Ok(got),
                Err(errno) => break Err(errno),
            }
        };
        match got {
            Ok(0) => Io::Gone,
            Ok(got) => Io::Some(got),
            Err(Errno::AGAIN) => Io::Later,
            Err(_) => Io::Gone,
        }
    }

    /// Reads what has come and parses the first requests, for an I/O thread; `bulk`: the longest
    /// argument, or nothing where requests are not to be parsed yet.
    pub(super) fn receive_and_parse(&mut self, bulk: Option<u64>) -> Io {
        let received = self.receive();
        if let Some(bulk) = bulk.filter(|_| received != Io::Later && self.may_execute()) {
            let limits = Limits { bulk, allowed: self.session.allowed };
            // A password changes the limits of what is behind it.
            let most = if limits.allowed { AHEAD } else { 1 };
            let filled = self.ahead.fill(&mut self.request, &self.input, limits, most);
            if let Filled::Wrong(_) = filled {
                // The one who executes finds it again, and says so.
                self.request.reset();
            }
        }
        received
    }

    /// Forgets the first bytes of the input.
    pub(super) fn consume(&mut self, bytes: usize) {
        if bytes == self.input.len() {
            self.input.clear();
        } else {
            self.input.drain(..bytes);
        }
        if self.input.is_empty() && self.input.capacity() > KEEP {
            self.input = Vec::new();
        }
    }

    /// Ends the client, which gets nothing that it has not got yet.
    pub(super) fn cut(&mut self) {
        self.session.closing = true;
        self.output = Vec::new();
        self.sent = 0;
        // What is encrypted does not go either, and what comes is nobody's.
        self.secured = None;
    }

    /// Bytes that are still to go; of what is encrypted already, one stands for all.
    pub(super) fn unsent(&self) -> usize {
        let sealed = self.secured.as_ref().is_some_and(|secured| secured.is_waiting());
        self.output.len() - self.sent + usize::from(sealed)
    }

    /// What is in memory for it.
    pub(super) fn buffers(&self) -> Buffers {
        Buffers {
            input: self.input.len(),
            input_free: self.input.capacity() - self.input.len(),
            output: self.unsent(),
            output_size: self.output.capacity(),
        }
    }

    /// Encrypts and sends what there is to send.
    fn send_secured(&mut self) -> Io {
        let Some(secured) = &mut self.secured else { return Io::Gone };
        let Some(sent) = secured.send(&self.socket, &self.output[self.sent..]) else {
            return Io::Gone;
        };
        self.sent += sent;
        if self.sent == self.output.len() {
            self.forget_sent();
        } else {
            self.forget_part();
        }
        if sent > 0 || self.unsent() == 0 { Io::Some(sent) } else { Io::Later }
    }

    /// Forgets what was sent of an output that is never empty, because its reader is slow.
    fn forget_part(&mut self) {
        if self.sent > KEEP && self.sent > self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }

    fn forget_sent(&mut self) {
        self.output.clear();
        self.sent = 0;
        if self.output.capacity() > KEEP {
            self.output = Vec::new();
        }
    }

    /// Sends what there is to send.
    pub(super) fn send(&mut self) -> Io {
        if self.secured.is_some() {
            return self.send_secured();
        }
        let mut all = 0;
        while self.unsent() > 0 {
            match rustix::net::send(&self.socket, &self.output[self.sent..], SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.sent += sent;
                    all += sent;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.forget_part();
                    return if all > 0 { Io::Some(all) } else { Io::Later };
                }
                Err(_) => return Io::Gone,
            }
        }
        self.forget_sent();
        Io::Some(all)
    }
}
