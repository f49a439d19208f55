//! One trial at a time works on a database, wherever its journal is kept.
//!
//! Two trials that stop, attach and detach under each other would each take the other's steps for
//! a failure. A journal's directory cannot keep them apart: each may be told another. So who takes
//! steps has a name in the kernel (an abstract socket) that is made of the database's directory.
//! It goes with the process, and needs no file beside a database.
//!
//! Deliberately absent: trials that nobody takes the steps of. They hold nothing; each step judges
//! how the database stands when it goes on.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::error::{During, Error, Result};

/// What the name begins with.
const BEGINNING: &[u8] = b"tiersmith-trial:";
/// Bytes of a path that are in the name, which has 107 at the most. Two longer paths with one end
/// would be taken for each other, and one trial wait for the other.
const PATH_MAX: usize = 90;

/// How many names there are for one database.
const NAMES: u8 = 10;

/// Held while the steps of a trial are taken.
#[derive(Debug)]
pub struct Alone(#[allow(dead_code, reason = "held, not used")] UnixListener);

impl Alone {
    /// The database in this directory for this process.
    ///
    /// # Errors
    /// Another trial works on it; the system refuses.
    pub fn on(home: &Path) -> Result<Alone> {
        let owner = home.symlink_metadata().map(|about| about.uid());
        let mut trusted = vec![0, rustix::process::geteuid().as_raw()];
        trusted.extend(owner);
        Alone::among(home, &trusted)
    }

    /// A name that somebody has who is not `trusted` is passed over: else any account could keep
    /// a trial from being brought back.
    fn among(home: &Path, trusted: &[u32]) -> Result<Alone> {
        let path = home.as_os_str().as_bytes();
        let end = path.get(path.len().saturating_sub(PATH_MAX)..).unwrap_or_default();
        for number in 0..NAMES {
            let name = [BEGINNING, &[b'0' + number], end].concat();
            let bound = SocketAddr::from_abstract_name(&name)
                .and_then(|name| UnixListener::bind_addr(&name));
            match bound {
                Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                    if holder(&name).is_none_or(|uid| trusted.contains(&uid)) {
                        break;
                    }
                }
                bound => return bound.map(Alone).during("take the name of a trial of", home),
            }
        }
        Err(Error::Place {
            what: "trial",
            path: home.into(),
            reason: "another trial of it takes its steps now, perhaps with another --state; wait \
                     until that has ended"
                .into(),
        })
    }
}

/// The account of the process that has the name; nothing if it is not to be known. One that lets
/// nobody connect is not waited for.
fn holder(name: &[u8]) -> Option<u32> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let address = SocketAddrUnix::new_abstract_name(name).ok()?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => rustix::net::sockopt::socket_peercred(&socket).ok().map(|peer| peer.uid.as_raw()),
        // Nobody of ours fills the queue of those who want to connect.
        Err(rustix::io::Errno::AGAIN) => Some(u32::MAX),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_has_a_database() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("x".repeat(200));
        let other = dir.path().join("y".repeat(200));
        let first = Alone::on(&home).unwrap();
        let said = Alone::on(&home).unwrap_err().to_string();
        assert!(said.contains("another trial"), "{said}");
        let _second = Alone::on(&other).unwrap();
        drop(first);
        let _first = Alone::on(&home).unwrap();
    }

    #[test]
    fn a_name_that_a_stranger_has_keeps_nobody_away() {
        let dir = tempfile::tempdir().unwrap();
        let stranger = Alone::among(dir.path(), &[]).unwrap();
        let second = Alone::among(dir.path(), &[]).unwrap();
        // Who is trusted counts, whichever name they have.
        let said = Alone::on(dir.path()).unwrap_err().to_string();
        assert!(said.contains("another trial"), "{said}");
        drop((stranger, second));
        // One that accepts nobody is not waited for.
        let full = Alone::among(dir.path(), &[]).unwrap();
        let name = full.0.local_addr().unwrap();
        let mut waiting = Vec::new();
        loop {
            use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect};
            let flags = SocketFlags::NONBLOCK;
            let socket =
                rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
            let socket = socket.unwrap();
            let name = SocketAddrUnix::new_abstract_name(name.as_abstract_name().unwrap());
            if connect(&socket, &name.unwrap()).is_err() {
                break;
            }
            waiting.push(socket);
            if waiting.len() > 900 {
                // No limit that a test could reach.
                return;
            }
        }
        let _mine = Alone::on(dir.path()).unwrap();
    }
}
