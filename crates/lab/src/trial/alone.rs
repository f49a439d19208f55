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
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use crate::error::{During, Error, Result};

/// What the name begins with.
const BEGINNING: &[u8] = b"tiersmith-trial:";
/// Bytes of a path that are in the name, which has 107 at the most. Two longer paths with one end
/// would be taken for each other, and one trial wait for the other.
const PATH_MAX: usize = 90;

/// Held while the steps of a trial are taken.
#[derive(Debug)]
pub struct Alone(#[allow(dead_code, reason = "held, not used")] UnixListener);

impl Alone {
    /// The database in this directory for this process.
    ///
    /// # Errors
    /// Another trial works on it; the system refuses.
    pub fn on(home: &Path) -> Result<Alone> {
        let path = home.as_os_str().as_bytes();
        let end = path.get(path.len().saturating_sub(PATH_MAX)..).unwrap_or_default();
        let name = SocketAddr::from_abstract_name([BEGINNING, end].concat());
        let bound = name.and_then(|name| UnixListener::bind_addr(&name));
        if bound.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::AddrInUse) {
            return Err(Error::Place {
                what: "trial",
                path: home.into(),
                reason: "another trial of it takes its steps now, perhaps with another --state; \
                         wait until that has ended"
                    .into(),
            });
        }
        bound.map(Alone).during("take the name of a trial of", home)
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
}
