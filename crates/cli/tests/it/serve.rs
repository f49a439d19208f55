//! `tiersmith awr serve`: metrics of real sources by HTTP, one that is down among them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::redis::Redis;

/// For hangs only.
const LIMIT: Duration = Duration::from_secs(120);

struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tiersmith"))
            .args(["awr", "serve", "--json", "--listen", "127.0.0.1:0", "--patience", "60s"])
            .args(arguments)
            .env_remove("REDISCLI_AUTH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !said.trim_end().ends_with('}') {
            assert!(lines.read_line(&mut said).unwrap() > 0, "it ended: {said}");
        }
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        let url = said["listen"].as_str().unwrap();
        let address =
            url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        Served { child, address }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let accept = "application/openmetrics-text;version=1.0.0";
        stream
            .write_all(
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n")
                    .as_bytes(),
            )
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_machine_is_served_and_a_source_that_is_down_is_said_to_be() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = format!("unix://{}/none.sock", dir.path().display());
    let served = Served::start(&["--source", "host", "--source", &nowhere]);
    assert!(served.get("/healthz").ends_with("\r\n\r\nok\n"));
    let text = served.get("/metrics");
    assert!(
        text.contains("\ntiersmith_up{source=\"host\"} 1\n") && text.ends_with("\n# EOF\n"),
        "{text}"
    );
    assert!(text.contains("none.sock\"} 0\n"), "{text}");
    assert!(text.contains("\ntiersmith_host_cpu_seconds_total{mode=\"user\"} "), "{text}");
}

#[test]
fn a_server_that_is_started_later_is_served_from_then_on_and_is_down_when_it_is() {
    let what = "a_server_that_is_started_later_is_served_from_then_on_and_is_down_when_it_is";
    let Some(mut server) = Redis::start(what) else { return };
    let url = server.url();
    server.stop();
    let served = Served::start(&["--source", &url]);
    let is_up = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("tiersmith_up{")).unwrap();
        line.ends_with(" 1")
    };
    assert!(!is_up(&served.get("/metrics")));
    server.start_again();
    // An answer is shared with whoever asks within a second of it.
    let until = |up: bool| {
        let began = std::time::Instant::now();
        loop {
            let text = served.get("/metrics");
            if is_up(&text) == up {
                return text;
            }
            assert!(began.elapsed() < LIMIT, "{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let text = until(true);
    assert!(
        text.contains("tiersmith_db_time_seconds_total{") && text.contains("product=\"Redis\""),
        "{text}"
    );
    assert!(!text.contains("tiersmith_statement"), "{text}");
    server.stop();
    let text = until(false);
    assert!(
        !text.contains("tiersmith_db_time"),
        "no figure of a server that does not answer: {text}"
    );
}

#[test]
fn what_cannot_be_served_is_refused_with_one_sentence() {
    let refused: [(&[&str], &str); 6] = [
        (&["--source", "host", "--allow-host", "http://db1"], "for instance"),
        (&["--source", "redis://:hunter2@localhost"], "password in it"),
        (&["--source", "host", "--source", "host"], "given twice"),
        (&["--source", "host", "--listen", "nowhere"], "ADDRESS:PORT"),
        (&["--source", "host", "--sample", "1ms"], "100ms or more"),
        (&["--source", "host", "--top-statements", "900"], "900"),
    ];
    for (arguments, expected) in refused {
        let output = Command::new(env!("CARGO_BIN_EXE_tiersmith"))
            .args(["awr", "serve", "--for", "1ms"])
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected) && !error.contains("hunter2"), "{arguments:?}: {error}");
    }
}
