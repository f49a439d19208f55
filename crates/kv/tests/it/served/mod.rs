//! A server in a process of its own, and a client that reads any reply; also for a real Redis.
//!
//! The process is this test program again, asked to run one of its tests: it can be killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant};

use tiersmith_kv::planted::Planted;
use tiersmith_kv::{Configuration, Server};
use tiersmith_pmem::{Access, Mapping, OpenOptions};

const ASKED: &str = "TIERSMITH_KV_TEST_SERVES";
/// Bytes of a test's tier.
pub(crate) const TIER: u64 = 64 << 20;

/// The test that serves when it is asked to.
#[test]
fn serves_when_it_is_asked_to() {
    let Some(directory) = std::env::var_os(ASKED) else { return };
    let directory = PathBuf::from(directory);
    let tier = directory.join("tier");
    let len = if tier.exists() { 0 } else { TIER };
    let mut options = OpenOptions::new(Access::Emulated, len);
    options.create = len > 0;
    let mut configuration = Configuration::default();
    configuration.set("port", "0").unwrap();
    // What one thread does is tested by all tests that have one client at a time.
    configuration.set("io-threads", "2").unwrap();
    configuration.set("unixsocket", directory.join("socket").to_str().unwrap()).unwrap();
    if let Ok(text) = std::fs::read_to_string(directory.join("conf")) {
        configuration.read(&text, "conf").unwrap();
        configuration.came_from(&directory.join("conf"));
    }
    let map = Mapping::open(&tier, &options).unwrap();
    let planted = std::fs::read_to_string(directory.join("planted"));
    let planted = planted.map_or(Planted::None, |name| Planted::of_server(&name).unwrap());
    let server = Server::open_with(map, configuration, planted);
    server.unwrap().serve(&AtomicI32::new(0)).unwrap();
}

/// A server, ended when it is dropped.
pub(crate) struct Served {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Served {
    /// Starts the server of this program.
    pub(crate) fn start(directory: &Path) -> Served {
        let command = Command::new(std::env::current_exe().unwrap());
        Served::begin(command, directory)
    }

    /// The same with at most so many descriptors.
    pub(crate) fn start_with_descriptors(directory: &Path, most: u32) -> Served {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]);
        command.arg(std::env::current_exe().unwrap());
        Served::begin(command, directory)
    }

    fn begin(mut command: Command, directory: &Path) -> Served {
        let test = full_name!("serves_when_it_is_asked_to");
        command.args(["--exact", &test, "--nocapture", "--test-threads", "1"]);
        command.env(ASKED, directory);
        Served::wait(command, directory.join("socket"))
    }

    /// Starts a real Redis; nothing if it is not installed.
    pub(crate) fn redis(directory: &Path) -> Option<Served> {
        Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().ok()?;
        let socket = directory.join("redis");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(directory);
        Some(Served::wait(command, socket))
    }

    /// A real Redis with these settings that listens at a port as well; nothing if there is none.
    pub(crate) fn redis_at(directory: &Path, port: u16, settings: &[&str]) -> Option<Served> {
        Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().ok()?;
        let socket = directory.join(format!("redis{port}"));
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(directory).args(settings);
        Some(Served::wait(command, socket))
    }

    fn wait(mut command: Command, socket: PathBuf) -> Served {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // A socket that a killed server left would be found before the new one is there.
        let _ = std::fs::remove_file(&socket);
        let mut served = Served { child: command.spawn().unwrap(), socket };
        let began = Instant::now();
        while UnixStream::connect(&served.socket).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "the server does not come");
            assert!(served.child.try_wait().unwrap().is_none(), "the server ended");
            std::thread::sleep(Duration::from_millis(2));
        }
        served
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it ends by itself.
    pub(crate) fn ends(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(UnixStream::connect(&self.socket).unwrap())
    }
}

/// Any reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Text(String),
    Error(String),
    List(Vec<Value>),
}

/// A connection.
pub(crate) struct Client {
    pub(crate) out: UnixStream,
    input: BufReader<UnixStream>,
}

impl Client {
    /// Connects to a server that may be gone.
    pub(crate) fn to(socket: &Path) -> std::io::Result<Client> {
        UnixStream::connect(socket).map(Client::new)
    }

    fn new(stream: UnixStream) -> Client {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client { input: BufReader::new(stream.try_clone().unwrap()), out: stream }
    }

    pub(crate) fn send(&mut self, words: &[&[u8]]) -> std::io::Result<()> {
        self.out.write_all(&request(words))
    }

    /// A command given as words parted by spaces.
    pub(crate) fn say(&mut self, line: &str) -> Value {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.ask(&words)
    }

    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Value {
        self.send(words).unwrap();
        self.read().unwrap()
    }

    /// The bytes of a bulk string; nothing if there is none.
    pub(crate) fn ask_bytes(&mut self, words: &[&[u8]]) -> Option<Vec<u8>> {
        self.send(words).unwrap();
        let mut line = String::new();
        self.input.read_line(&mut line).unwrap();
        let len: usize = line.trim_end().strip_prefix('$')?.parse().ok()?;
        let mut bytes = vec![0; len + 2];
        self.input.read_exact(&mut bytes).unwrap();
        bytes.truncate(len);
        Some(bytes)
    }

    pub(crate) fn read(&mut self) -> std::io::Result<Value> {
        let mut line = String::new();
        let gone = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let mut bytes = Vec::new();
        self.input.read_until(b'\n', &mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(gone());
        }
        line.push_str(&String::from_utf8_lossy(&bytes[..bytes.len() - 2]));
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap_or_else(|_| panic!("{line}"));
        Ok(match kind {
            "+" | "," | "#" => Value::Text(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(number()),
            "_" => Value::Nil,
            "$" | "=" => match usize::try_from(number()) {
                Err(_) => Value::Nil,
                Ok(len) => {
                    let mut bytes = vec![0; len + 2];
                    self.input.read_exact(&mut bytes)?;
                    bytes.truncate(len);
                    Value::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
            },
            "*" | "%" | "~" | ">" => match usize::try_from(number()) {
                Err(_) => Value::Nil,
                Ok(count) => {
                    let count = if kind == "%" { count * 2 } else { count };
                    Value::List((0..count).map(|_| self.read()).collect::<Result<_, _>>()?)
                }
            },
            _ => panic!("no reply begins like {line}"),
        })
    }
}

/// A request's bytes.
pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend_from_slice(word);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// Text.
pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// Whether the tier is sound, as the second reader sees it.
pub(crate) fn assert_sound(directory: &Path) {
    let report = tiersmith_kv::check::check_file(&directory.join("tier")).unwrap();
    assert!(report.is_sound(), "{report}");
}

/// A list in the order of its elements: Redis's is that of a table as soon as a value is long.
pub(crate) fn sorted(value: &Value) -> Value {
    let Value::List(list) = value else { return value.clone() };
    let mut list = list.clone();
    list.sort();
    Value::List(list)
}

/// All keys with their values and when they expire.
pub(crate) fn contents(client: &mut Client) -> Vec<(Value, Value, Value)> {
    let mut all = Vec::new();
    for db in 0..4 {
        client.say(&format!("SELECT {db}"));
        let Value::List(mut keys) = client.say("KEYS *") else { panic!("no list") };
        keys.sort();
        for key in keys {
            let Value::Text(name) = &key else { panic!("no key") };
            let value = match client.say(&format!("TYPE {name}")) {
                Value::Text(kind) if kind == "hash" => {
                    sorted(&client.say(&format!("HGETALL {name}")))
                }
                Value::Text(kind) if kind == "set" => {
                    sorted(&client.say(&format!("SMEMBERS {name}")))
                }
                Value::Text(kind) if kind == "zset" => {
                    client.say(&format!("ZRANGE {name} 0 -1 WITHSCORES"))
                }
                Value::Text(kind) if kind == "list" => client.say(&format!("LRANGE {name} 0 -1")),
                Value::Text(kind) if kind == "stream" => {
                    without_looks(&client.say(&format!("XINFO STREAM {name} FULL COUNT 0")))
                }
                _ => client.say(&format!("GET {name}")),
            };
            let expires = client.say(&format!("PEXPIRETIME {name}"));
            all.push((key, value, expires));
        }
    }
    client.say("SELECT 0");
    all
}

/// What XINFO says, without how a tree looks inside, when a consumer was seen, and what a group has
/// read, which Redis's commands for others do not say.
fn without_looks(info: &Value) -> Value {
    let Value::List(all) = info else { return info.clone() };
    let mut all: Vec<Value> = all.iter().map(without_looks).collect();
    for at in 1..all.len() {
        let blank = ["radix-tree-nodes", "seen-time", "entries-read", "lag"];
        if blank.iter().any(|name| all[at - 1] == text(name)) {
            all[at] = Value::Nil;
        }
    }
    Value::List(all)
}

/// A port that nobody listens at.
pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
