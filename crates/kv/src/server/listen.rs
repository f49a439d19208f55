//! Listening sockets: TCP addresses as Redis's `bind` names them, and a unix socket.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::ServerConfig;

use super::secured;
use crate::command::Configuration;
use crate::error::Error;

/// A socket that clients connect to.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) unix: bool,
    /// Who connects here speaks TLS.
    pub(super) tls: Option<Arc<ServerConfig>>,
}

/// A unix socket's file, which goes when the server ends, if it is still the one that was made.
pub(super) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path) == Some(self.inode) {
            // Best effort: a file that stays is one that nobody answers at.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    found.file_type().is_socket().then(|| (found.dev(), found.ino()))
}

/// Opens what the configuration names; with port 0 and no unix socket nothing, which is refused.
pub(super) fn open(
    configuration: &Configuration,
) -> Result<(Vec<Listener>, Option<SocketFile>), Error> {
    let mut listeners = Vec::new();
    let tls = match configuration.number("tls-port") {
        0 => None,
        _ => Some(secured::settings(configuration)?),
    };
    for (port, tls) in [("port", None), ("tls-port", tls)] {
        let port = configuration.number(port) as u16;
        if port == 0 {
            continue;
        }
        for address in configuration.text("bind").split_whitespace() {
            let optional = address.starts_with('-');
            let name = address.trim_start_matches('-');
            let ip: IpAddr = match name {
                "*" => IpAddr::from([0, 0, 0, 0]),
                name => name.parse().map_err(|_| {
                    Error::Configuration(format!(
                        "`bind` takes addresses like 127.0.0.1 or ::1, and `{name}` is none"
                    ))
                })?,
            };
            match tcp(SocketAddr::new(ip, port), configuration.number("tcp-backlog") as i32) {
                Ok(socket) => listeners.push(Listener { socket, unix: false, tls: tls.clone() }),
                Err(e) if optional && e.kind() == std::io::ErrorKind::AddrNotAvailable => {}
                Err(source) => {
                    let remedy = match source.kind() {
                        std::io::ErrorKind::AddrInUse => {
                            "another server has this port: stop it, or give --port another one"
                        }
                        std::io::ErrorKind::PermissionDenied => "take a port of 1024 or more",
                        _ => "give --bind an address of this machine",
                    };
                    let address = SocketAddr::new(ip, port).to_string();
                    return Err(Error::Listen { address, source, remedy });
                }
            }
        }
    }
    let mut file = None;
    let path = PathBuf::from(configuration.text("unixsocket"));
    if !path.as_os_str().is_empty() {
        let (listener, made) = unix(&path, configuration.text("unixsocketperm"))?;
        listeners.push(listener);
        file = Some(made);
    }
    if listeners.is_empty() {
        return Err(Error::Configuration(
            "nothing to listen on: give --port, `tls-port` or --unixsocket".to_owned(),
        ));
    }
    Ok((listeners, file))
}

fn tcp(address: SocketAddr, backlog: i32) -> std::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(TcpListener::from(socket).into())
}

fn unix(path: &Path, permissions: &str) -> Result<(Listener, SocketFile), Error> {
    let failed =
        |source, remedy| Error::Listen { address: path.display().to_string(), source, remedy };
    let mode = match permissions {
        "" | "0" => 0o700,
        text => {
            u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
                Error::Configuration(format!(
                    "`unixsocketperm` takes a mode like 770, not `{text}`"
                ))
            })?
        }
    };
    // One that a killed server left is in the way; one that somebody answers at stays.
    if inode(path).is_some() && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)
            .map_err(|e| failed(e, "remove the socket that an earlier server left"))?;
    }
    // The mode is that of the socket from its first moment: no chmod of a name that may be another
    // file by then. Nothing else runs in this process yet.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777 & !mode));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    let listener = bound.map_err(|e| {
        failed(e, "name a socket in a directory that this account may write, where no file is yet")
    })?;
    listener.set_nonblocking(true).map_err(|e| failed(e, "try again"))?;
    let inode = inode(path).unwrap_or_default();
    let file = SocketFile { path: path.to_owned(), inode };
    Ok((Listener { socket: listener.into(), unix: true, tls: None }, file))
}
