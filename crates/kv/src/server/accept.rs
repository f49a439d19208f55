//! New connections: who may come in.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, sockopt};

use super::client::Client;
use super::listen::Listener;
use super::secured::Secured;
use crate::command::{Configuration, Identity, Session, UNIX, Users};

/// What the configuration says of new connections.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// Clients at the same time.
    pub(super) most: u64,
    /// Who is not on this machine does not come in.
    protected: bool,
    pub(super) users: Users,
    keepalive: u64,
}

/// What became of a connection.
pub(super) enum Taken {
    Client(Box<Client>),
    /// It was told why, and closed.
    Rejected,
    /// No descriptor is left.
    NoDescriptor,
    /// There is none.
    Nothing,
}

impl Door {
    pub(super) fn of(configuration: &Configuration, users: &Users) -> Door {
        let needs_none = Identity::of_default(users).is_let_in();
        Door {
            most: configuration.number("maxclients"),
            protected: configuration.is_yes("protected-mode") && needs_none,
            users: Users::clone(users),
            keepalive: configuration.number("tcp-keepalive"),
        }
    }

    /// Takes a connection and watches it as `id`.
    pub(super) fn take(&self, listener: &Listener, epoll: &OwnedFd, id: u64, full: bool) -> Taken {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let unix = listener.unix;
        let socket = match rustix::net::accept_with(&listener.socket, flags) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE) => return Taken::NoDescriptor,
            Err(_) => return Taken::Nothing,
        };
        if let Err(refusal) = self.admit(&socket, unix, full) {
            // Best effort: it is closed in any case. Who speaks TLS would not understand it.
            if listener.tls.is_none() {
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                let _ = rustix::net::send(&socket, refusal.as_bytes(), flags);
            }
            return Taken::Rejected;
        }
        let (there, here) = addresses(&socket, unix);
        if !unix {
            // A connection without these works as well.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            if self.keepalive > 0 {
                let _ = sockopt::set_socket_keepalive(&socket, true);
                let _ = sockopt::set_tcp_keepidle(&socket, Duration::from_secs(self.keepalive));
            }
        }
        if epoll::add(epoll, &socket, EventData::new_u64(id), EventFlags::IN).is_err() {
            return Taken::Rejected;
        }
        let session = Session::new(id, there, here, Identity::of_default(&self.users));
        let secured = match &listener.tls {
            None => None,
            Some(config) => match Secured::begin(config) {
                Some(secured) => Some(Box::new(secured)),
                None => return Taken::Rejected,
            },
        };
        Taken::Client(Box::new(Client::new(socket, secured, session)))
    }

    /// Whether a connection may come in.
    fn admit(&self, socket: &OwnedFd, unix: bool, full: bool) -> Result<(), &'static str> {
        if full {
            return Err("-ERR max number of clients reached\r\n");
        }
        if self.protected && !unix && !is_local(socket) {
            return Err(
                "-DENIED the server is in protected mode: no password is set, so only this machine \
                 may \
                 connect. Set requirepass, or say protected-mode no if the network is trusted.\r\n",
            );
        }
        Ok(())
    }
}

/// Where a connection comes from, and where it arrived.
fn addresses(socket: &OwnedFd, unix: bool) -> (String, String) {
    if unix {
        return (UNIX.to_owned(), UNIX.to_owned());
    }
    let text = |address: Option<std::net::SocketAddr>| {
        address.map_or_else(|| "?:0".to_owned(), |address| address.to_string())
    };
    let there = rustix::net::getpeername(socket).ok().flatten();
    let here = rustix::net::getsockname(socket).ok();
    (
        text(there.and_then(|address| address.try_into().ok())),
        text(here.and_then(|address| address.try_into().ok())),
    )
}

/// Whether the other side is on this machine.
fn is_local(socket: &OwnedFd) -> bool {
    let there = rustix::net::getpeername(socket).ok().flatten();
    let there: Option<std::net::SocketAddr> = there.and_then(|address| address.try_into().ok());
    there.is_some_and(|address| address.ip().to_canonical().is_loopback())
}

/// Asks for so many descriptors, or for as many as there may be.
pub(super) fn raise_descriptors(wanted: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if let Some(now) = limit.current.filter(|now| *now < wanted) {
        limit.current = Some(limit.maximum.map_or(wanted, |most| wanted.min(most)).max(now));
        // Fewer clients are served then.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}
