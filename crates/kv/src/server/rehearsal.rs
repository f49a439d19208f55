//! A server without sockets that follows whatever bytes a primary might send; tests and fuzz
//! targets only.

use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tiersmith_pmem::Mapping;

use super::Server;
use super::link;
use super::replica::Replica;
use crate::command::{Configuration, Following, Link};
use crate::error::Error;
use crate::heap::Heap;
use crate::keyspace::Copied;
use crate::planted::Planted;

/// How long something may take that has an end: a bug that hangs is to be seen as one.
const PATIENCE_S: i64 = 60;

/// Both ends of a connection, where positions are acknowledged; nobody reads them.
fn acknowledged() -> std::io::Result<TcpStream> {
    static ENDS: OnceLock<Option<[TcpStream; 2]>> = OnceLock::new();
    let connect = || -> std::io::Result<[TcpStream; 2]> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let one = TcpStream::connect(listener.local_addr()?)?;
        Ok([one, listener.accept()?.0])
    };
    let ends = ENDS.get_or_init(|| connect().ok()).as_ref();
    ends.ok_or(std::io::ErrorKind::NotConnected)?[0].try_clone()
}

impl Server {
    /// A server on a new tier, which nobody can connect to.
    ///
    /// # Errors
    /// Those of [`Heap::create`].
    pub fn without_sockets(map: Mapping, log_bytes: u64) -> Result<Server, Error> {
        let heap = Heap::create(map, log_bytes, Planted::None)?;
        let mut server = Server::put_together(heap, (Vec::new(), None), Configuration::default())?;
        server.set_clock();
        Ok(server)
    }

    /// Follows a primary that says this and closes the connection then; why that ended, and whether
    /// all of its data are there.
    ///
    /// # Panics
    /// It does not end.
    ///
    /// # Errors
    /// There is no descriptor or thread.
    pub fn follow_bytes(&mut self, bytes: &[u8]) -> std::io::Result<(String, bool)> {
        let following = Following {
            host: "primary".to_owned(),
            port: 1,
            link: Link::Down,
            tried: false,
            heard: Instant::now(),
            why: String::new(),
        };
        self.keys.follows = true;
        let address = self.address(&following);
        self.shared.following = Some(following);
        let line = link::follow_bytes(address, self.resume_at(), bytes.to_vec(), acknowledged()?)?;
        self.replica = Some(Replica::of(line, &self.keys));
        let began = Instant::now();
        while let Some(replica) = &self.replica {
            let mut bell = [PollFd::new(replica.bell(), PollFlags::IN)];
            let wait = Timespec { tv_sec: PATIENCE_S, tv_nsec: 0 };
            let rung = poll(&mut bell, Some(&wait))?;
            assert!(
                rung > 0 && began.elapsed().as_secs() < PATIENCE_S as u64,
                "the following does not end"
            );
            self.hear();
            self.commit();
            self.answer();
            self.acknowledge();
            if self.shared.following.as_ref().is_none_or(|said| said.tried) {
                self.replica = None;
            }
        }
        let why = self.shared.following.take().map(|following| following.why).unwrap_or_default();
        Ok((why, self.keys.copied() == Copied::Whole))
    }
}
