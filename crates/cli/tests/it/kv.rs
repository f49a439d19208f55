//! `tiersmith kv` from its start to its check: what it says, what it refuses, what a kill leaves.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn tiersmith(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tiersmith")).args(arguments).output().unwrap()
}

/// A server that is killed when it is dropped.
struct Served(Child, String);

impl Drop for Served {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(tier: &Path, socket: &Path) -> Served {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tiersmith"))
        .args(["kv", "--size", "16M", "--emulate", "--port", "0", "--tier"])
        .arg(tier)
        .arg("--unixsocket")
        .arg(socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Served(child, line)
}

fn ask(socket: &Path, line: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_killed_server_goes_on_with_what_it_acknowledged_and_its_tier_is_sound() {
    let directory = tempfile::tempdir().unwrap();
    let (tier, socket) = (directory.path().join("tier"), directory.path().join("socket"));
    let named = tier.to_str().unwrap();
    let served = serve(&tier, &socket);
    assert!(served.1.contains("EMULATED") && served.1.contains(": 0 keys"), "{}", served.1);
    assert!(ask(&socket, "SET greeting hello").starts_with("+OK"));
    assert!(ask(&socket, "INFO tier").contains("tier_label:EMULATED"));
    let second =
        tiersmith(&["kv", "--tier", named, "--emulate", "--port", "0", "--unixsocket", "x"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(!String::from_utf8_lossy(&second.stderr).contains("panicked"));
    let in_use = tiersmith(&["kv", "check", named]);
    assert_eq!(in_use.status.code(), Some(2), "a tier that is served is not checked");
    drop(served);
    let checked = tiersmith(&["kv", "check", named]);
    assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
    let served = serve(&tier, &socket);
    assert!(served.1.contains(": 1 keys"), "{}", served.1);
    assert!(ask(&socket, "GET greeting").contains("hello"));
    for key in ["a", "b", "c"] {
        ask(&socket, &format!("SET {key} 1"));
    }
    drop(served);
    // The number of buckets, which none of the last two commits has in its record.
    let mut bytes = std::fs::read(&tier).unwrap();
    bytes[12032] = 0;
    std::fs::write(&tier, &bytes).unwrap();
    let checked = tiersmith(&["kv", "check", named, "--json"]);
    assert_eq!(checked.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(json["sound"], false);
}

#[test]
fn what_is_no_tier_is_left_alone_and_a_disk_is_no_persistent_memory() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other");
    std::fs::write(&other, "somebody's data ".repeat(100_000)).unwrap();
    let before = std::fs::read(&other).unwrap();
    let named = other.to_str().unwrap();
    for arguments in [
        &["kv", "--tier", named, "--emulate", "--port", "0", "--unixsocket", "x"][..],
        &["kv", "check", named],
    ] {
        let output = tiersmith(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("not a key-value tier"), "{said}");
    }
    assert!(std::fs::read(&other).unwrap() == before, "the file was changed");
    let new = directory.path().join("new");
    let output = tiersmith(&["kv", "--tier", new.to_str().unwrap(), "--size", "16M"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!new.exists());
    for (setting, said) in [("appendfsync=no", "always `always`"), ("port", "takes NAME=VALUE")] {
        let tier = new.to_str().unwrap();
        let output = tiersmith(&["kv", "--tier", tier, "--emulate", "--set", setting]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(said), "{error}");
    }
}

#[test]
fn a_dump_is_imported_into_an_empty_tier_and_into_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let (tier, dump) = (directory.path().join("tier"), directory.path().join("dump.rdb"));
    // One key, and no checksum.
    std::fs::write(&dump, b"REDIS0010\xfe\x00\x00\x03key\x05value\xff\0\0\0\0\0\0\0\0").unwrap();
    let arguments =
        ["kv", "import", dump.to_str().unwrap(), "--size", "16M", "--emulate", "--tier"];
    let import = || tiersmith(&[&arguments[..], &[tier.to_str().unwrap()]].concat());
    let done = import();
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains("1 keys imported"));
    let again = import();
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("1 keys, and an import would mix"));
    // A Redis that writes an append-only file names its parts in a manifest.
    let manifest = directory.path().join("a.manifest");
    std::fs::write(&manifest, "file part.aof seq 1 type i\nfile dump.rdb seq 1 type b\n").unwrap();
    std::fs::write(
        directory.path().join("part.aof"),
        "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*1\r\n",
    )
    .unwrap();
    let other = directory.path().join("other");
    let arguments =
        ["kv", "import", manifest.to_str().unwrap(), "--size", "16M", "--emulate", "--tier"];
    let done = tiersmith(&[&arguments[..], &[other.to_str().unwrap()]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("2 keys imported; the last 4 bytes"), "{said}");
    // And back.
    let back = directory.path().join("back.rdb");
    let arguments =
        ["kv", "export", back.to_str().unwrap(), "--emulate", "--tier", tier.to_str().unwrap()];
    let done = tiersmith(&arguments);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains("1 keys exported"));
    let bytes = std::fs::read(&back).unwrap();
    assert!(bytes.starts_with(b"REDIS0009\xfe\x00\x00\x03key\x05value\xff"), "{bytes:?}");
    let again = tiersmith(&arguments);
    assert_eq!(again.status.code(), Some(2), "a file that is there is left alone");
    assert!(std::fs::read(&back).unwrap() == bytes);
    let socket = directory.path().join("socket");
    let served = serve(&tier, &socket);
    assert!(ask(&socket, "GET key").contains("value"));
    for key in ["a", "b", "c"] {
        ask(&socket, &format!("SET {key} 1"));
    }
    drop(served);
    // A copy of which a part is missing is no export, and no part of it stays. None of the last two
    // commits has this word in its record.
    let mut image = std::fs::read(&tier).unwrap();
    image[8192 + 16] = 1;
    let part = directory.path().join("part");
    std::fs::write(&part, &image).unwrap();
    let named = part.to_str().unwrap();
    let nothing = directory.path().join("nothing.rdb");
    let refused =
        tiersmith(&["kv", "export", nothing.to_str().unwrap(), "--emulate", "--tier", named]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("a part is missing") && !nothing.exists()
    );
    let checked = tiersmith(&["kv", "check", named]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("a part is missing"));
}

/// What a file of a repository holds.
fn snapshot_of(file: &Path) -> serde_json::Value {
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    kept["snapshot"].clone()
}

#[test]
fn a_recording_has_the_servers_own_waits_its_tier_and_the_fence_in_db_time() {
    let directory = tempfile::tempdir().unwrap();
    let (tier, socket) = (directory.path().join("tier"), directory.path().join("socket"));
    let _served = serve(&tier, &socket);
    let url = format!("unix://{}", socket.display());
    let to = directory.path().join("awr");
    std::fs::create_dir(&to).unwrap();
    let take = || {
        let taken = tiersmith(&["awr", "snapshot", "--source", &url, "--to", to.to_str().unwrap()]);
        assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    };
    take();
    for n in 0..50 {
        ask(&socket, &format!("SET key{n} value"));
    }
    take();
    let mut files: Vec<_> =
        std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "json"));
    files.sort();
    let [begin, end] = [&files[0], &files[1]].map(|file| snapshot_of(file));
    let wait = |of: &serde_json::Value, name: &str| {
        let all = of["waits"].as_array().unwrap().clone();
        all.into_iter().find(|wait| wait["name"] == name).unwrap()
    };
    // Every wait that the server has is explained.
    for one in end["waits"].as_array().unwrap() {
        assert!(!one["help"].as_str().unwrap().is_empty(), "{one}");
    }
    let grown = |name: &str, field: &str| {
        wait(&end, name)[field].as_u64().unwrap() - wait(&begin, name)[field].as_u64().unwrap()
    };
    assert_eq!(
        (grown("tier commit", "count"), &wait(&end, "tier commit")["class"]),
        (50, &"Commit".into())
    );
    assert_eq!(wait(&end, "trash emptied")["background"], true);
    let db_time = |of: &serde_json::Value| of["db_time_ns"].as_u64().unwrap();
    assert!(db_time(&end) - db_time(&begin) >= grown("tier commit", "total_ns"));
    assert_eq!(end["media"][0]["emulated"], true);
    let report = tiersmith(&["awr", "report", "--in", to.to_str().unwrap(), "1", "2"]);
    let text = String::from_utf8_lossy(&report.stdout);
    for shown in ["tiersmith kv", "EMULATED", "tier commit", "Commit"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}
