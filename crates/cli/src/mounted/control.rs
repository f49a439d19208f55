//! How commands speak to the daemon of a mounted home: a socket beside it, one request and one
//! reply for each connection. Before the reply of a request that takes long, the daemon gives a
//! sign of life every second.
//!
//! A message is its length (four bytes, little-endian) and JSON. Both sides bound what they read,
//! wait for it only so long, and answer what they cannot read with an error. The socket has mode
//! 0600, and both sides ask the kernel who the other one is: the daemon serves its own user and
//! root; a command believes its own user, root, and the home's owner where the vault is the
//! owner's.
//!
//! **Invariant**: no bytes from a socket can make the daemon panic, wait for ever or keep more than
//! [`REQUEST_MAX`] bytes.
//! **Deliberately absent**: what the requests are (`requests.rs`), and do (`answer.rs`).

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::UCred;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tiersmith_dir::{Found, Kind};

use super::moves::LiveMove;
use super::place::Place;
use crate::error::{Error, Result};
use crate::messages;

pub(crate) use super::requests::{Done, Reply, Request, To};

/// Most bytes of a request.
pub(super) const REQUEST_MAX: u32 = 64 << 10;
/// Most bytes of a reply.
const REPLY_MAX: u32 = 64 << 20;
/// How long the daemon waits for a request that has begun, and for a reply to be taken.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a command waits for a daemon to take its request, for an answer that needs no work, and
/// for a sign of life while one is worked on. A daemon that is stopped, or waits for storage that
/// hangs, must not make `status` hang.
const ANSWER: Duration = Duration::from_secs(10);
/// How often the daemon says that a request is being worked on, also while its storage syncs.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// How long root waits for an owner's daemon that gives signs of life and no answer: it may be any
/// program of the owner's. A daemon that works goes on without anybody who waits.
const AT_MOST: Duration = Duration::from_secs(60 * 60);
/// How many commands may wait to be taken.
const BACKLOG: i32 = 128;

/// Asks the daemon of the home at `place`. `None`: none is running.
///
/// # Errors
/// The daemon's own sentence, or why it could not be asked.
pub(crate) fn ask(place: &Place, request: &Request) -> Result<Option<Reply>> {
    ask_and_follow(place, request, &mut |_| {})
}

/// [`ask`], and is told meanwhile how far the daemon is.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_and_follow(
    place: &Place,
    request: &Request,
    far: &mut dyn FnMut(&LiveMove),
) -> Result<Option<Reply>> {
    let Some(mut stream) = connect(place)? else { return Ok(None) };
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok();
    let daemon = peer.and_then(process_of);
    if daemon.is_some_and(is_stopped) {
        // Not asked at all: it would do later what the user was told was not done.
        return Err(silent(place, daemon));
    }
    let cannot = |source: std::io::Error| match is_timeout(&source) {
        true => silent(place, daemon),
        false if source.kind() == ErrorKind::InvalidData => {
            of_another_version(place, daemon, &source)
        }
        false => Error::Io { what: "ask the daemon at", path: place.control(), source },
    };
    stream.set_write_timeout(Some(ANSWER)).map_err(cannot)?;
    match send(&mut stream, request) {
        // It has ended since; reading says the same.
        Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
        other => other.map_err(cannot)?,
    }
    let is_of_another =
        peer.is_none_or(|peer| !peer.uid.is_root() && peer.uid != rustix::process::geteuid());
    let limits = Limits { silence: ANSWER, at_most: is_of_another.then_some(AT_MOST) };
    // Bringing a tier home takes as long as it takes; a look does not.
    let is_a_look = matches!(request, Request::Status | Request::Hot | Request::Snapshot);
    let reply = if is_a_look {
        let mut from =
            Patient { stream: &mut stream, silence: ANSWER, until: Instant::now() + PATIENCE };
        receive::<Reply>(&mut from, REPLY_MAX)
    } else {
        match reply_of_work(&mut stream, &limits, far) {
            Ok(Waited::Replied(reply)) => Ok(reply),
            Ok(Waited::InVain) => return Err(still_at_it(place, daemon)),
            Err(e) if is_timeout(&e) => return Err(no_sign_of_life(place, daemon)),
            Err(e) => Err(e),
        }
    };
    let reply = match reply {
        Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => None,
        other => other.map_err(cannot)?,
    };
    match reply {
        Some(Reply::Failed { error }) => Err(Error::Usage(error)),
        Some(reply) => {
            let mut reply = in_lines(reply).map_err(cannot)?;
            if let Reply::Status { live } = &mut reply {
                // What the kernel says of it counts, and of another user's daemon nothing else.
                let said = if is_of_another { 0 } else { live.pid };
                live.pid = daemon.map_or(said, i32::cast_unsigned);
            }
            let ending = matches!(reply, Reply::Ending);
            if ending || matches!(request, Request::Unmount | Request::Detach) {
                // The daemon keeps the connection until it has ended.
                let _ = stream.set_read_timeout(Some(ANSWER));
                let _ = stream.read(&mut [0]);
            }
            Ok(Some(reply).filter(|_| !ending))
        }
        // It was dying when it was asked, or died of it: there is none now.
        None if matches!(
            request,
            Request::Status | Request::Hot | Request::Snapshot | Request::Unmount | Request::Detach
        ) =>
        {
            Ok(None)
        }
        None => Err(Error::Usage(format!(
            "the daemon of {} ended before it answered; `tiersmith attach {0}` takes up where it \
             was, and {} may say why it ended",
            place.path().display(),
            place.log().display()
        ))),
    }
}

/// What a daemon says may be printed line by line, whoever it is.
fn in_lines(reply: Reply) -> std::io::Result<Reply> {
    // Nothing of a snapshot is printed before the workload repository has looked at it.
    if matches!(reply, Reply::Snapshot { .. }) {
        return Ok(reply);
    }
    let mut value = serde_json::to_value(&reply)?;
    messages::lines_of(&mut value);
    Ok(serde_json::from_value(value)?)
}

/// Whether there is a socket, of a daemon that lives or died.
pub(super) fn has_socket(place: &Place) -> bool {
    let found = place.dir().look(place.control_name());
    found.is_ok_and(|found| found.is_some_and(|found| found.kind == Kind::Socket))
}

/// Whether a daemon answers there. One that was killed may take connections until its last thread
/// is gone.
pub(crate) fn is_served(place: &Place) -> bool {
    matches!(ask(place, &Request::Status), Ok(Some(_)) | Err(Error::AnotherVersion(_)))
}

/// How long a command waits for the end of work.
struct Limits {
    /// For the next sign of life.
    silence: Duration,
    /// For a reply, whatever signs there are.
    at_most: Option<Duration>,
}

/// Whether a time limit has passed.
fn is_timeout(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// What came of waiting.
enum Waited {
    /// The reply; `None`: the other side has closed without one.
    Replied(Option<Reply>),
    /// Signs of life, and no reply for as long as there may be none.
    InVain,
}

/// Waits for the reply of a request that takes as long as it takes, while there are signs of life.
/// Each of them is whole in time: a byte now and then is none.
fn reply_of_work(
    stream: &mut UnixStream,
    limits: &Limits,
    far: &mut dyn FnMut(&LiveMove),
) -> std::io::Result<Waited> {
    let began = Instant::now();
    loop {
        let until = Instant::now() + limits.silence;
        let mut from = Patient { stream, silence: limits.silence, until };
        match receive::<Reply>(&mut from, REPLY_MAX)? {
            Some(Reply::Working { .. })
                if limits.at_most.is_some_and(|most| began.elapsed() > most) =>
            {
                return Ok(Waited::InVain);
            }
            Some(Reply::Working { moves }) => moves.iter().for_each(|moves| far(moves)),
            reply => return Ok(Waited::Replied(reply)),
        }
    }
}

/// Reads until there is silence for so long, or until a moment.
struct Patient<'a> {
    stream: &'a mut UnixStream,
    silence: Duration,
    until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now()).min(self.silence);
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

/// The process that began to listen at the other end. It may have handed the socket on and ended,
/// and its number may be another's by now: so it is named only while it is that user's, who could
/// end it.
fn process_of(peer: UCred) -> Option<i32> {
    let pid = peer.pid.as_raw_pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    // Real, effective and saved; the fourth is a thread's, which makes files for others.
    let is_peers = |user: &str| user.parse() == Ok(peer.uid.as_raw());
    users.split_whitespace().take(3).all(is_peers).then_some(pid)
}

/// What a message calls it, and how to end it.
fn called(place: &Place, daemon: Option<i32>) -> (String, String) {
    match daemon {
        Some(pid) => (format!("process {pid}"), format!("kill {pid}")),
        None => {
            let who = format!(
                "a process that cannot be told, and listens at {}",
                place.control().display()
            );
            (who, "`ss -xlp` may show it".to_owned())
        }
    }
}

/// A daemon whose answer this program cannot read: it was started from an older or a newer one.
fn of_another_version(place: &Place, daemon: Option<i32>, why: &std::io::Error) -> Error {
    let (process, how) = called(place, daemon);
    Error::AnotherVersion(format!(
        "{process}, which serves {0}, answers in a way that this program does not understand \
         ({why}): it \
         belongs to another version of Tiersmith. It goes on serving. To replace it, stop the \
         database, end \
         it (tiersmith unmount {0}, or {how}), which loses nothing, and attach again",
        place.path().display()
    ))
}

/// Whether a process is stopped, by a signal or a debugger.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it is in brackets, and may hold anything.
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 't']))
}

/// A daemon that takes connections and says nothing.
fn silent(place: &Place, daemon: Option<i32>) -> Error {
    let home = place.path().display();
    let seconds = ANSWER.as_secs();
    Error::Usage(match daemon {
        Some(pid) if is_stopped(pid) => format!(
            "the daemon of {home} does not answer: process {pid} is stopped, and so is everything \
             that uses {home}; `kill -CONT {pid}` lets it go on"
        ),
        Some(pid) => format!(
            "the daemon of {home} (process {pid}) has not answered for {seconds} s; if the storage \
             below it hangs, it waits for that: {} may say more",
            place.log().display()
        ),
        None => format!(
            "the daemon of {home} has not answered for {seconds} s; try again, and see {}",
            place.log().display()
        ),
    })
}

/// A daemon that was asked for work, and then says nothing.
fn no_sign_of_life(place: &Place, daemon: Option<i32>) -> Error {
    if daemon.is_some_and(is_stopped) {
        return silent(place, daemon);
    }
    let (process, how) = called(place, daemon);
    Error::Usage(format!(
        "{process}, which serves {}, has given no sign of life for {} s since it was asked, as a \
         daemon \
         does every second. It may still do what it was asked: {} may say more. If it hangs, or is \
         no \
         daemon of Tiersmith's, end it ({how}), which loses nothing, and try again",
        place.path().display(),
        ANSWER.as_secs(),
        place.log().display()
    ))
}

/// A daemon of another user that gives signs of life, and no answer.
fn still_at_it(place: &Place, daemon: Option<i32>) -> Error {
    let home = place.path().display();
    let (process, how) = called(place, daemon);
    Error::Usage(format!(
        "{process}, which serves {home} for its owner, says since {} minutes that it works on \
         this, so this \
         command waits no longer. A daemon that works goes on by itself: `tiersmith status {home}` \
         says \
         how far it is. If that does not change, end the process ({how}), which loses nothing, and \
         run this again as the home's owner",
        AT_MOST.as_secs() / 60
    ))
}

/// A connection, if somebody listens. Of a stopped daemon whose queue is full, connecting would
/// wait for ever without a limit.
fn connect_to(path: &Path) -> std::io::Result<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn connect(place: &Place) -> Result<Option<UnixStream>> {
    let cannot = |source| Error::Io { what: "ask the daemon at", path: place.control(), source };
    // A pipe or a file there is nobody's socket; a link is not followed, to another home's daemon
    // for one. So the socket itself is held, and connected to by the kernel's name of it, which is
    // short besides: a socket's path may have a hundred bytes, a home's more.
    let handle = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = match rustix::fs::openat(place.dir(), place.control_name(), handle, Mode::empty())
    {
        Ok(socket) if Found::of(&socket).map_err(cannot)?.kind == Kind::Socket => socket,
        Ok(_) | Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(cannot(e.into())),
    };
    let stream = match connect_to(Path::new(&format!("/proc/self/fd/{}", socket.as_raw_fd()))) {
        Ok(stream) => stream,
        Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(silent(place, None)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            return Err(Error::Usage(format!(
                "cannot ask the daemon of {}: it serves its own user and root only; run this as \
                 that user, or as root",
                place.path().display()
            )));
        }
        Err(e) => return Err(cannot(e)),
    };
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|e| cannot(e.into()))?.uid;
    let of_owner = Some(peer.as_raw()) == place.owner();
    if peer.is_root() || peer == rustix::process::geteuid() {
        return Ok(Some(stream));
    }
    // The owner's daemon has locked the files away in a vault of the owner's. Without that it
    // serves nothing, and whoever listens could keep root waiting.
    if of_owner && place.keeper() != Some(peer.as_raw()) {
        return Ok(None);
    }
    if !of_owner {
        return Err(Error::Usage(format!(
            "what answers at {} belongs to user {}, who has nothing to do with this home; remove \
             that socket",
            place.control().display(),
            peer.as_raw()
        )));
    }
    Ok(Some(stream))
}

/// The daemon's end. The socket's file goes when it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: UnixListener,
    place: Place,
}

impl Listener {
    /// Makes the socket. The caller has the home locked, so a socket that is there is a dead
    /// daemon's.
    ///
    /// # Errors
    /// When something else than a socket has its name, or it cannot be made.
    pub(super) fn bind(place: &Place) -> Result<Listener> {
        let cannot =
            |source| Error::Io { what: "make the daemon's socket", path: place.control(), source };
        let (dir, name) = (place.dir(), place.control_name());
        match dir.look(&name).map_err(cannot)? {
            Some(found) if found.kind != Kind::Socket => {
                return Err(Error::Usage(format!(
                    "cannot make the daemon's socket: {} is there and is no socket; remove it",
                    place.control().display()
                )));
            }
            Some(_) => dir.remove(&name).map_err(cannot)?,
            None => {}
        }
        let socket = listen(&dir.through(name)).map_err(cannot)?;
        Ok(Listener { socket, place: place.clone() })
    }
}

/// A listening socket of mode 0600 from the first instant: the file takes its permissions from the
/// socket. Changed by path afterwards they could be those of another file, where the home's user
/// may write in the directory.
fn listen(path: &Path) -> std::io::Result<UnixListener> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

impl Drop for Listener {
    fn drop(&mut self) {
        // A later daemon removes what could not be removed here.
        let _ = self.place.dir().remove(self.place.control_name());
    }
}

/// Whether the daemon serves whoever is at the other end.
pub(super) fn is_allowed(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// Sends one message.
pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length =
        u32::try_from(body.len()).map_err(|_| std::io::Error::other("the message is too long"))?;
    let mut whole = length.to_le_bytes().to_vec();
    whole.extend_from_slice(&body);
    to.write_all(&whole)?;
    to.flush()
}

/// Receives one message; `None` when the other side has closed without one.
pub(super) fn receive<T: DeserializeOwned>(
    from: &mut impl Read,
    most: u32,
) -> std::io::Result<Option<T>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length > most {
        return Err(std::io::Error::new(
            ErrorKind::InvalidData,
            format!(
                "a message of {length} bytes was announced, and {most} is the most there may be"
            ),
        ));
    }
    // The memory grows with what arrives, not with what was announced.
    let mut body = Vec::new();
    from.take(length.into()).read_to_end(&mut body)?;
    if body.len() as u64 != u64::from(length) {
        return Err(std::io::Error::new(
            ErrorKind::UnexpectedEof,
            "the message ended before its length",
        ));
    }
    serde_json::from_slice(&body).map(Some).map_err(|e| {
        std::io::Error::new(ErrorKind::InvalidData, format!("the message cannot be read: {e}"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    /// Listens as another user at the socket of a home of that user's, and takes no connection.
    fn a_silent_socket_of(user: u32) -> (tempfile::TempDir, Place, UnixListener) {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::fs::chown;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::create_dir(dir.path().join("db")).unwrap();
        for owned in [dir.path(), &dir.path().join("db")] {
            chown(owned, Some(user), None).unwrap();
        }
        let place = Place::find(&dir.path().join("db")).unwrap();
        let at = dir.path().join(place.control_name());
        let listen = move || {
            let uid = rustix::process::Uid::from_raw(user);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            UnixListener::bind(at).unwrap()
        };
        let listener = std::thread::spawn(listen).join().unwrap();
        (dir, place, listener)
    }

    #[test]
    fn the_homes_owner_is_believed_only_where_the_vault_is_the_owners() {
        use std::os::unix::fs::chown;
        const OWNER: u32 = 54_321;
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: who root believes, because it needs root");
            return;
        }
        let (dir, place, _silent) = a_silent_socket_of(OWNER);
        // Of a plain home, and of one that root has attached, nobody is asked: `detach` waits long.
        let vault = dir.path().join("db.tiersmith-home");
        for attached in [false, true] {
            if attached {
                std::fs::rename(dir.path().join("db"), dir.path().join("home")).unwrap();
                std::fs::create_dir(&vault).unwrap();
                std::fs::rename(dir.path().join("home"), vault.join("home")).unwrap();
            }
            let (asked, ended) = std::sync::mpsc::channel();
            let of = place.clone();
            drop(std::thread::spawn(move || {
                asked.send(ask(&of, &Request::Detach).map(|reply| reply.is_none()))
            }));
            assert!(ended.recv_timeout(ANSWER).unwrap().unwrap(), "attached: {attached}");
        }
        chown(&vault, Some(OWNER), None).unwrap();
        assert!(connect(&place).unwrap().is_some());
    }

    #[test]
    fn a_link_that_is_put_in_the_sockets_place_leads_no_command_to_another_daemon() {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use std::sync::atomic::{AtomicBool, Ordering};
        let dir = tempfile::tempdir().unwrap();
        let (home, others) = (dir.path().join("db"), dir.path().join("others"));
        std::fs::create_dir(&home).unwrap();
        let place = Place::find(&home).unwrap();
        let socket = dir.path().join(place.control_name());
        let ours = UnixListener::bind(&socket).unwrap();
        let other = UnixListener::bind(&others).unwrap();
        other.set_nonblocking(true).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&others, &link).unwrap();
        drop(std::thread::spawn(move || while ours.accept().is_ok() {}));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let swap = || {
                while !stop.load(Ordering::Relaxed) {
                    renameat_with(CWD, &socket, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                }
            };
            let _ = scope.spawn(swap);
            let began = Instant::now();
            let mut asked = false;
            while !asked && began.elapsed() < Duration::from_secs(3) {
                let _ = connect(&place);
                asked = other.accept().is_ok();
            }
            stop.store(true, Ordering::Relaxed);
            assert!(!asked, "another home's daemon was asked");
        });
    }

    #[test]
    fn an_answer_that_comes_byte_by_byte_is_not_waited_for() {
        let mut ours = other_side(|mut theirs| {
            let _ = theirs.write_all(&REPLY_MAX.to_le_bytes());
            while theirs.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let until = Instant::now() + Duration::from_millis(200);
        let mut from = Patient { stream: &mut ours, silence: ANSWER, until };
        let error = receive::<Reply>(&mut from, REPLY_MAX);
        assert!(is_timeout(&error.unwrap_err()));
    }

    /// A stream whose other side does this.
    fn other_side(acts: impl FnOnce(UnixStream) + Send + 'static) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(std::thread::spawn(move || acts(theirs)));
        ours
    }

    const SHORT: Limits =
        Limits { silence: Duration::from_millis(500), at_most: Some(Duration::from_secs(2)) };

    #[test]
    fn a_daemon_that_works_is_waited_for_while_it_gives_signs_of_life() {
        let mut ours = other_side(|mut theirs| {
            for _ in 0..10 {
                send(&mut theirs, &Reply::Working { moves: None }).unwrap();
                std::thread::sleep(Duration::from_millis(100));
            }
            send(&mut theirs, &Reply::Done { done: Done::default() }).unwrap();
        });
        let reply = reply_of_work(&mut ours, &SHORT, &mut |_| {}).unwrap();
        assert!(matches!(reply, Waited::Replied(Some(Reply::Done { .. }))));
    }

    #[test]
    fn a_daemon_that_is_silent_or_drips_is_not_waited_for() {
        for interval in [Duration::from_secs(3600), Duration::from_millis(200)] {
            let mut ours = other_side(move |mut theirs| {
                let mut sign = Vec::new();
                send(&mut sign, &Reply::Working { moves: None }).unwrap();
                for byte in sign.iter().cycle() {
                    std::thread::sleep(interval);
                    if theirs.write_all(&[*byte]).is_err() {
                        return;
                    }
                }
            });
            let began = Instant::now();
            let error = reply_of_work(&mut ours, &SHORT, &mut |_| {}).err().unwrap();
            assert!(is_timeout(&error), "{interval:?}: {error}");
            assert!(began.elapsed() < ANSWER, "{interval:?}: {:?}", began.elapsed());
        }
    }

    #[test]
    fn signs_of_life_of_another_users_daemon_are_no_answer_in_the_end() {
        let endless = |mut theirs: UnixStream| {
            while send(&mut theirs, &Reply::Working { moves: None }).is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let mut ours = other_side(endless);
        assert!(matches!(reply_of_work(&mut ours, &SHORT, &mut |_| {}).unwrap(), Waited::InVain));
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        for request in [
            Request::Status,
            Request::Flush { pattern: None },
            Request::Move { pattern: "base/**".into(), to: To::Home, bytes_per_s: Some(1) },
        ] {
            let mut bytes = Vec::new();
            send(&mut bytes, &request).unwrap();
            assert_eq!(
                receive::<Request>(&mut bytes.as_slice(), REQUEST_MAX).unwrap(),
                Some(request)
            );
        }
    }

    #[test]
    fn hostile_bytes_are_an_error_and_nothing_else() {
        let mut seed = 7_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        let mut sound = Vec::new();
        send(&mut sound, &Request::Pin { pattern: "*".into(), bytes_per_s: None }).unwrap();
        for _ in 0..5000 {
            let mut bytes = sound.clone();
            let at = usize::from(random()) % bytes.len();
            bytes[at] = random();
            bytes.truncate(1 + usize::from(random()) % bytes.len());
            let _ = receive::<Request>(&mut bytes.as_slice(), REQUEST_MAX);
        }
        let huge = [0xff; 4096];
        let error = receive::<Request>(&mut huge.as_slice(), REQUEST_MAX).unwrap_err();
        assert!(error.to_string().contains("the most there may be"), "{error}");
        let deep = format!("{}1", "[".repeat(60_000));
        let mut bytes = (deep.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(deep.as_bytes());
        assert!(receive::<Request>(&mut bytes.as_slice(), REQUEST_MAX).is_err());
        assert!(receive::<Request>(&mut [].as_slice(), REQUEST_MAX).unwrap().is_none());
    }
}
