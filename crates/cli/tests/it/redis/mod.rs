//! A Redis on a socket in a temporary directory, for tests; it ends with its value, also after a
//! panic.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For hangs only.
const LIMIT: Duration = Duration::from_secs(150);

pub(crate) struct Redis {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Redis {
    /// Starts one, or says why the test `what` is skipped.
    pub(crate) fn start(what: &str) -> Option<Redis> {
        let runs = Command::new("redis-server")
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        if !runs.is_ok_and(|status| status.success()) {
            eprintln!("skipped: {what}, because no Redis server is installed");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("ts-top-").tempdir().unwrap();
        if dir.path().as_os_str().len() > 80 {
            eprintln!(
                "skipped: {what}, because the path of the temporary directory is too long for a \
                 socket"
            );
            return None;
        }
        let mut redis = Redis { dir, child: None };
        redis.start_again();
        Some(redis)
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("r.sock")
    }

    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn start_again(&mut self) {
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(self.socket())
            .arg("--dir")
            .arg(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.child = Some(child);
        let began = Instant::now();
        while !self.answers() {
            assert!(began.elapsed() < LIMIT, "waited {LIMIT:?} in vain for Redis to answer");
            assert!(self.child.as_mut().unwrap().try_wait().unwrap().is_none(), "Redis ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.socket()) else { return false };
        let mut answer = [0; 5];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && &answer == b"+PONG"
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_file(self.socket());
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.stop();
    }
}
