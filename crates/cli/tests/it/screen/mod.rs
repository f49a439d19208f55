//! The program on a pseudoterminal that is its controlling terminal: what it writes, the terminal's
//! modes, keys and signals.
//!
//! What was written is looked at as bytes: a word that stands together in cells is written together
//! when it is new on the screen.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

/// For hangs only.
const LIMIT: Duration = Duration::from_secs(150);

/// Asks until the answer is yes.
pub(crate) fn until(what: &str, mut answer: impl FnMut() -> bool) {
    let began = Instant::now();
    while !answer() {
        assert!(began.elapsed() < LIMIT, "waited {LIMIT:?} in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) struct Screen {
    child: Child,
    master: OwnedFd,
    /// Kept open, so that the modes can be asked for when the program is gone.
    terminal: File,
    before: Termios,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    /// Starts the program on a terminal of 80 columns and 24 rows, or says why the test `what` is
    /// skipped.
    pub(crate) fn start(what: &str, arguments: &[&str]) -> Option<Screen> {
        let skip = |why: &str| eprintln!("skipped: {what}, because {why}");
        let opened = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY);
        let Ok(master) =
            opened.and_then(|pty| grantpt(&pty).and_then(|()| unlockpt(&pty)).map(|()| pty))
        else {
            skip("there are no pseudoterminals here");
            return None;
        };
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let Ok(terminal) = File::options().read(true).write(true).custom_flags_noctty().open(&name)
        else {
            skip("a pseudoterminal cannot be opened here");
            return None;
        };
        tcsetwinsize(&terminal, winsize(80, 24)).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let end = || Stdio::from(terminal.try_clone().unwrap());
        // Makes the terminal the controlling one of a session of its own, which is what sizes and
        // signals go by.
        let child = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_tiersmith")])
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .env_remove("REDISCLI_AUTH")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn();
        let Ok(child) = child else {
            skip("setsid is not installed");
            return None;
        };
        let written = Arc::new(Mutex::new(Vec::new()));
        let (to, mut from) = (Arc::clone(&written), File::from(master.try_clone().unwrap()));
        // Ends with an error when the last file of the terminal is closed.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read) = from.read(&mut buffer) {
                if read == 0 {
                    break;
                }
                to.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Some(Screen { child, master, terminal, before, written })
    }

    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until `text` was written since the last key. Only cells that change are written, so a
    /// word that is partly there already is not written whole: now and then everything is asked for
    /// again (Ctrl-L).
    pub(crate) fn shows(&self, text: &str) {
        let began = Instant::now();
        let mut asked = began;
        loop {
            let all = self.written();
            if all.contains(text) {
                return;
            }
            assert!(began.elapsed() < LIMIT, "waited {LIMIT:?} in vain for {text:?} in {all:?}");
            if asked.elapsed() > Duration::from_millis(700) {
                self.send("\u{c}");
                asked = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn send(&self, keys: &str) {
        let mut master = File::from(self.master.try_clone().unwrap());
        master.write_all(keys.as_bytes()).unwrap();
    }

    /// Forgets what was written so far.
    pub(crate) fn forget(&self) {
        self.written.lock().unwrap().clear();
    }

    pub(crate) fn key(&self, keys: &str) {
        // What was there before is no answer to this key.
        self.forget();
        self.send(keys);
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        self.forget();
        tcsetwinsize(self.master.as_fd(), winsize(columns, rows)).unwrap();
    }

    /// Whether the terminal reads lines and shows what is typed, as a shell leaves it.
    pub(crate) fn is_cooked(&self) -> bool {
        let now = tcgetattr(&self.terminal).unwrap();
        let modes = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        now.local_modes.contains(modes)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits until the program is stopped.
    pub(crate) fn stopped(&mut self) {
        let pid = self.pid();
        until("the program to stop", || {
            let state = waitpid(Some(pid), WaitOptions::UNTRACED | WaitOptions::NOHANG).unwrap();
            state.is_some_and(|(_, status)| status.stopped())
        });
    }

    /// Waits for the end: the exit code and what was written since the last key. The modes are
    /// those from before.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        let mut ended: Option<ExitStatus> = None;
        until("the program to end", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        let now = tcgetattr(&self.terminal).unwrap();
        assert_eq!(
            (now.input_modes, now.output_modes, now.control_modes, now.local_modes),
            (
                self.before.input_modes,
                self.before.output_modes,
                self.before.control_modes,
                self.before.local_modes
            ),
            "the terminal's modes are as they were"
        );
        // What the program wrote last may still be on its way through the terminal.
        until("the screen to be given back", || self.written().contains("\u{1b}[?1049l"));
        until("the cursor to be given back", || self.written().contains("\u{1b}[?25h"));
        (ended.and_then(|status| status.code()), self.written())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Opening a terminal must not make it this process's own.
trait WithoutControl {
    fn custom_flags_noctty(&mut self) -> &mut Self;
}

impl WithoutControl for std::fs::OpenOptions {
    fn custom_flags_noctty(&mut self) -> &mut Self {
        use std::os::unix::fs::OpenOptionsExt;
        self.custom_flags(rustix::fs::OFlags::NOCTTY.bits() as i32)
    }
}
