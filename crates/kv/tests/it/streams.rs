//! Streams: the same commands to this server and to a real Redis, waiting, scripts, dumps.

use std::path::Path;

use crate::served::{Client, Served, Value, assert_sound, text};

fn server(directory: &Path) -> Served {
    Served::start(directory)
}

struct Choice(fastrand::Rng);

impl Choice {
    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.0.usize(..all.len())]
    }

    fn key(&mut self) -> String {
        match self.0.u8(..60) {
            0 => "text".to_owned(),
            1 => "none".to_owned(),
            _ => format!("st{}", self.0.u8(..4)),
        }
    }

    fn group(&mut self) -> String {
        format!("g{}", self.0.u8(..3))
    }

    fn consumer(&mut self) -> String {
        format!("c{}", self.0.u8(..4))
    }

    fn id(&mut self) -> String {
        let (ms, seq) = (self.0.u16(..400), self.0.u8(..4));
        match self.0.u8(..40) {
            0 => self
                .of(&[
                    "",
                    "x",
                    "5-",
                    "-5",
                    "18446744073709551615-18446744073709551615",
                    "5--1",
                    "01-02",
                    "1-*",
                ])
                .to_owned(),
            1 => self.of(&["$", ">", "-", "+", "(5", "(0-0"]).to_owned(),
            2..=12 => ms.to_string(),
            _ => format!("{ms}-{seq}"),
        }
    }

    fn border(&mut self, low: bool) -> String {
        match self.0.u8(..8) {
            0..=2 => if low { "-" } else { "+" }.to_owned(),
            3 => format!("({}", self.id()),
            _ => self.id(),
        }
    }

    fn value(&mut self) -> String {
        match self.0.u8(..8) {
            0 => self.0.i64(..).to_string(),
            1 => "x".repeat(self.0.usize(..1500)),
            2 => String::new(),
            _ => self.0.i32(-5000..5000).to_string(),
        }
    }

    fn fields(&mut self) -> Vec<String> {
        let (set, count) = (self.0.u8(..3), self.0.usize(1..4));
        let count = if set == 0 { 2 } else { count };
        (0..count).flat_map(|n| [format!("f{}", n * usize::from(set + 1)), self.value()]).collect()
    }

    fn trim(&mut self, approximate: bool) -> Vec<String> {
        let mut words = Vec::new();
        let by_id = self.0.bool();
        words.push(if by_id { "MINID" } else { "MAXLEN" }.to_owned());
        let whole = approximate && self.0.u8(..4) > 0;
        if whole {
            words.push("~".to_owned());
        } else if self.0.bool() {
            words.push("=".to_owned());
        }
        words.push(if by_id { self.id() } else { self.0.i8(-1..60).to_string() });
        if self.0.u8(..if whole { 3 } else { 12 }) == 0 {
            words.extend([
                "LIMIT".to_owned(),
                self.of(&["0", "5", "15", "100", "-1", "x"]).to_owned(),
            ]);
        }
        words
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one table: a row for each command, and how often it is drawn"
    )]
    fn words(&mut self) -> Vec<String> {
        let s = |text: &str| text.to_owned();
        let (k, l, g, c) = (self.key(), self.key(), self.group(), self.consumer());
        let (i, j) = (self.id(), self.id());
        let count = self.of(&["1", "2", "3", "10", "0", "-1", "x"]).to_owned();
        match self.0.u8(..100) {
            0..=17 => {
                let id = if self.0.bool() { format!("{}-*", self.0.u16(..400)) } else { i };
                [vec![s("XADD"), k, id], self.fields()].concat()
            }
            18..=25 => {
                let mut words = vec![s("XADD"), k];
                if self.0.u8(..4) == 0 {
                    words.push(s("NOMKSTREAM"));
                }
                words.extend(self.trim(true));
                words.push(format!("{}-*", self.0.u16(..400)));
                words.extend(self.fields());
                words
            }
            26 => vec![s("XADD"), k, i, s("f")],
            27 => vec![s("XADD"), k, s("NOMKSTREAM"), s("LIMIT"), count, i, s("f"), s("v")],
            28..=31 => [vec![s("XTRIM"), k], self.trim(true)].concat(),
            32..=37 => vec![s("XDEL"), k, i, j],
            38 => vec![s("XLEN"), k],
            39..=41 => vec![s("XRANGE"), k, self.border(true), self.border(false)],
            42..=43 => vec![s("XREVRANGE"), k, self.border(false), self.border(true)],
            44 => vec![s("XRANGE"), k, self.border(true), self.border(false), s("COUNT"), count],
            45 => vec![s("XREVRANGE"), k, s("+"), s("-"), s("COUNT"), count],
            46..=48 => vec![s("XREAD"), s("COUNT"), count, s("STREAMS"), k, l, i, j],
            49 => vec![
                s("XREAD"),
                s(self.of(&["BLOCK", "GROUP", "NOACK"])),
                s("1"),
                s("STREAMS"),
                k,
                s("$"),
            ],
            50 => vec![s("XREAD"), s("STREAMS"), k, i, j],
            51..=55 => {
                let mut words =
                    vec![s("XGROUP"), s("CREATE"), k, g, s(self.of(&["$", "0", "5", "200", "x"]))];
                if self.0.bool() {
                    words.push(s("MKSTREAM"));
                }
                if self.0.u8(..3) == 0 {
                    words.extend([s("ENTRIESREAD"), s(self.of(&["-1", "0", "7", "-2", "x"]))]);
                }
                words
            }
            56 => {
                vec![s("XGROUP"), s(self.of(&["DESTROY", "CREATE", "SETID", "help", "no"])), k, g]
            }
            57 => vec![s("XGROUP"), s("CREATECONSUMER"), k, g, c],
            58 => vec![s("XGROUP"), s("DELCONSUMER"), k, g, c],
            59 => vec![s("XGROUP"), s("SETID"), k, g, s(self.of(&["0", "$", "-", "+", "30", "x"]))],
            60 => {
                vec![s("XGROUP"), s("SETID"), k, g, i, s("ENTRIESREAD"), s(self.of(&["3", "-1"]))]
            }
            61..=68 => {
                let id = if self.0.u8(..4) == 0 { i } else { s(">") };
                let mut words = vec![s("XREADGROUP"), s("GROUP"), g, c];
                if self.0.u8(..5) == 0 {
                    words.push(s("NOACK"));
                }
                if self.0.bool() {
                    words.extend([s("COUNT"), count]);
                }
                words.extend([s("STREAMS"), k, id]);
                words
            }
            69 => vec![s("XREADGROUP"), s("GROUP"), g, c, s("STREAMS"), k, l, s(">"), s("0")],
            70 => vec![s("XREADGROUP"), s("COUNT"), s("1"), s("NOACK"), s("STREAMS"), k, s(">")],
            71..=74 => vec![s("XACK"), k, g, i, j],
            75 => vec![s("XPENDING"), k, g],
            76..=77 => {
                vec![s("XPENDING"), k, g, self.border(true), self.border(false), count]
            }
            78 => {
                vec![
                    s("XPENDING"),
                    k,
                    g,
                    s("IDLE"),
                    s(self.of(&["0", "100000", "x"])),
                    s("-"),
                    s("+"),
                    count,
                ]
            }
            79 => vec![s("XPENDING"), k, g, s("-"), s("+"), s("10"), c],
            80..=84 => {
                let idle = s(self.of(&["0", "100000", "-5", "x"]));
                let mut words = vec![s("XCLAIM"), k, g, c, idle, i, j];
                for option in
                    ["FORCE", "JUSTID", "IDLE 200000", "TIME 1000", "RETRYCOUNT 7", "LASTID 20-1"]
                {
                    if self.0.u8(..4) == 0 {
                        words.extend(option.split(' ').map(str::to_owned));
                    }
                }
                if self.0.u8(..10) == 0 {
                    words.push(s(self.of(&["x", "IDLE", "LASTID", "TIME"])));
                }
                words
            }
            85..=87 => {
                let idle = s(self.of(&["0", "100000", "-5", "x"]));
                let mut words = vec![s("XAUTOCLAIM"), k, g, c, idle, self.border(true)];
                if self.0.bool() {
                    words.extend([s("COUNT"), count]);
                }
                if self.0.u8(..4) == 0 {
                    words.push(s("JUSTID"));
                }
                words
            }
            88 => {
                let mut words = vec![s("XSETID"), k, i];
                if self.0.bool() {
                    words.extend([s("ENTRIESADDED"), s(self.of(&["3", "300", "-1", "x"]))]);
                }
                if self.0.bool() {
                    words.extend([s("MAXDELETEDID"), j]);
                }
                words
            }
            89..=90 => vec![s("XINFO"), s("STREAM"), k],
            91 => vec![s("XINFO"), s("STREAM"), k, s("FULL"), s("COUNT"), count],
            92 => vec![s("XINFO"), s(self.of(&["GROUPS", "STREAM", "CONSUMERS", "no"])), k],
            93 => vec![s("XINFO"), s("CONSUMERS"), k, g],
            94 => vec![s("XINFO"), s(self.of(&["help", "stream", "GROUPS"]))],
            95 => vec![s(self.of(&["TYPE", "DEL", "OBJECT", "GET", "LLEN", "HGETALL"])), k],
            96 => vec![s(self.of(&["RENAME", "COPY", "SET"])), k, l],
            97 => vec![s("EXPIRE"), k, s("100000")],
            98 => vec![s("OBJECT"), s("ENCODING"), k],
            _ => vec![
                s(self.of(&["XADD", "XLEN", "XACK", "XDEL", "XGROUP", "XINFO", "XPENDING"])),
                k,
            ],
        }
    }

    /// Sets how much fits into a node.
    fn node_sizes(&mut self) -> Vec<String> {
        let sizes = [("100", "4096"), ("10", "4096"), ("100", "200"), ("3", "0"), ("0", "300")];
        let (entries, bytes) = sizes[self.0.usize(..sizes.len())];
        let line = "CONFIG SET stream-node-max-entries {e} stream-node-max-bytes {b}";
        let line = line.replace("{e}", entries).replace("{b}", bytes);
        line.split(' ').map(str::to_owned).collect()
    }
}

/// Without what depends on the time of day, or on how Redis's tree looks inside.
fn timeless(words: &[String], value: &Value) -> Value {
    let Value::List(all) = value else { return value.clone() };
    let mut all: Vec<Value> = all.iter().map(|one| timeless(words, one)).collect();
    let pending = words[0] == "XPENDING" || words[0] == "XINFO";
    let blank = match all.as_slice() {
        [Value::Text(_), Value::Text(_), Value::Int(_), Value::Int(_)] if pending => Some(2),
        [Value::Text(_), Value::Int(_), Value::Int(_)] if pending => Some(1),
        _ => None,
    };
    if let Some(at) = blank {
        all[at] = Value::Nil;
    }
    for at in 1..all.len() {
        let Value::Text(name) = &all[at - 1] else { continue };
        if ["idle", "seen-time", "radix-tree-nodes"].contains(&name.as_str()) {
            all[at] = Value::Nil;
        }
    }
    Value::List(all)
}

fn ask(client: &mut Client, words: &[String]) -> Value {
    let bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
    timeless(words, &client.ask(&bytes))
}

/// Gives what one has to both.
fn exchange(from: &mut Client, to: &mut Client, key: &str) {
    if let Some(bytes) = from.ask_bytes(&[b"DUMP", key.as_bytes()]) {
        for client in [to, from] {
            let said = client.ask(&[b"RESTORE", key.as_bytes(), b"0", &bytes, b"REPLACE"]);
            assert_eq!(said, text("OK"), "{key}");
        }
    }
}

fn compare(resp3: bool, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let mut choice = Choice(fastrand::Rng::with_seed(seed));
    let mut differences: Vec<String> = Vec::new();
    let mut in_multi = false;
    for client in [&mut ours, &mut theirs] {
        if resp3 {
            client.say("HELLO 3");
        }
        client.say("SET text 1");
    }
    for number in 0..12_000 {
        let words: Vec<String> = match choice.0.u16(..300) {
            0 => vec!["MULTI".to_owned()],
            1..=30 if in_multi => vec!["EXEC".to_owned()],
            31 => choice.node_sizes(),
            32..=36 if !in_multi => {
                let key = choice.key();
                match choice.0.bool() {
                    true => exchange(&mut ours, &mut theirs, &key),
                    false => exchange(&mut theirs, &mut ours, &key),
                }
                vec!["XINFO".to_owned(), "STREAM".to_owned(), key, "FULL".to_owned()]
            }
            _ => choice.words(),
        };
        in_multi = match words[0].as_str() {
            "MULTI" => true,
            "EXEC" => false,
            _ => in_multi,
        };
        let (mine, their) = (ask(&mut ours, &words), ask(&mut theirs, &words));
        let same = if words[0] == "EXEC" {
            // Its replies are those of several commands.
            let all = ["XINFO".to_owned()];
            timeless(&all, &mine) == timeless(&all, &their)
        } else {
            mine == their
        };
        if !same {
            let cut = |value: &Value| format!("{value:?}").chars().take(900).collect::<String>();
            differences.push(format!(
                "command {number}: {words:.60?}:\n  ours   {}\n  theirs {}",
                cut(&mine),
                cut(&their)
            ));
            if differences.len() > 8 {
                break;
            }
            for client in [&mut ours, &mut theirs] {
                client.say("DISCARD");
                client.say("FLUSHALL");
                client.say("SET text 1");
            }
            in_multi = false;
        }
    }
    assert!(differences.is_empty(), "seed {seed}:\n{}", differences.join("\n"));
    drop((ours, server));
    assert_sound(directory.path());
}

fn seed(or: u64) -> u64 {
    std::env::var("TIERSMITH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(or)
}

#[test]
fn random_commands_on_streams_get_the_replies_that_redis_gives() {
    compare(false, seed(3));
}

#[test]
fn random_commands_on_streams_get_the_replies_that_redis_gives_in_resp3() {
    compare(true, seed(4));
}

/// Waits until so many clients wait.
fn blocked(client: &mut Client, count: usize) {
    let wanted = format!("blocked_clients:{count}\r\n");
    let began = std::time::Instant::now();
    while !matches!(client.say("INFO clients"), Value::Text(text) if text.contains(&wanted)) {
        assert!(began.elapsed().as_secs() < 20, "not {count} clients are blocked");
    }
}

/// What clients get that wait for entries.
fn waits(served: &Served, resp3: bool) -> Vec<Value> {
    let mut all = Vec::new();
    let mut sender = served.connect();
    let mut clients: Vec<Client> = (0..3).map(|_| served.connect()).collect();
    if resp3 {
        clients.iter_mut().for_each(|client| {
            client.say("HELLO 3");
        });
    }
    // All of those that are in no group get an entry, of any of their streams.
    wait(
        &mut sender,
        &mut clients,
        &[
            "XREAD BLOCK 0 STREAMS s $",
            "XREAD COUNT 1 BLOCK 0 STREAMS t s 0 $",
            "XREAD BLOCK 0 STREAMS s 5",
        ],
    );
    sender.say("MULTI");
    sender.say("XADD s 3-1 a 1");
    sender.say("XADD s 3-2 a 2");
    sender.say("EXEC");
    all.extend(clients[..2].iter_mut().map(|client| client.read().unwrap()));
    blocked(&mut sender, 1);
    sender.say("XADD s 5-1 a 3");
    all.push(clients[2].read().unwrap());
    // Each of a group gets its own.
    all.push(sender.say("XGROUP CREATE s g $"));
    wait(
        &mut sender,
        &mut clients,
        &[
            "XREADGROUP GROUP g one BLOCK 0 STREAMS s >",
            "XREADGROUP GROUP g two BLOCK 0 NOACK STREAMS s >",
            "XREADGROUP GROUP g three BLOCK 0 COUNT 9 STREAMS s >",
        ],
    );
    for (n, client) in clients.iter_mut().enumerate() {
        sender.say(&format!("XADD s 6-{n} a {n}"));
        all.push(client.read().unwrap());
    }
    all.push(sender.say("XPENDING s g"));
    all.extend(gone(&mut sender, &mut clients));
    all.extend(who_may_not_wait(&mut sender, &mut clients[0]));
    // Who waits is let go by another.
    wait(&mut sender, &mut clients, &["XREAD BLOCK 0 STREAMS s $"]);
    let Value::Int(id) = clients[1].say("CLIENT ID") else { panic!("no number") };
    let _ = sender.say(&format!("CLIENT UNBLOCK {} ERROR", id - 1));
    all.push(clients[0].read().unwrap());
    all
}

/// Sends a command that waits from each client, in turn.
fn wait(sender: &mut Client, clients: &mut [Client], lines: &[&str]) {
    for (number, (client, line)) in clients.iter_mut().zip(lines).enumerate() {
        client.send(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>()).unwrap();
        blocked(sender, number + 1);
    }
}

/// Those of a group are told when it, or the stream, is gone; the others wait on.
fn gone(sender: &mut Client, clients: &mut [Client]) -> Vec<Value> {
    let mut all = Vec::new();
    for (line, left) in
        [("XGROUP DESTROY s g", 1), ("DEL s", 1), ("SET s string", 1), ("FLUSHALL", 1)]
    {
        sender.say("DEL s");
        all.push(sender.say("XGROUP CREATE s g $ MKSTREAM"));
        wait(
            sender,
            clients,
            &[
                "XREADGROUP GROUP g one BLOCK 0 STREAMS s >",
                "XREAD BLOCK 0 STREAMS s 0",
                "XREADGROUP GROUP g two BLOCK 0 STREAMS s >",
            ],
        );
        all.push(sender.say(line));
        all.push(clients[0].read().unwrap());
        all.push(clients[2].read().unwrap());
        blocked(sender, left);
        sender.say("DEL s");
        sender.say("XADD s 1-1 a b");
        all.push(clients[1].read().unwrap());
    }
    all
}

/// A time that is over, nobody who may wait, and what is no time.
fn who_may_not_wait(sender: &mut Client, client: &mut Client) -> Vec<Value> {
    let mut all = Vec::new();
    for line in ["XREAD BLOCK 10 STREAMS s $", "XREADGROUP GROUP g c BLOCK 5 STREAMS s >"] {
        all.push(client.say(line));
    }
    sender.say("XGROUP CREATE s g $");
    for line in
        ["MULTI", "XREAD BLOCK 0 STREAMS s $", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "EXEC"]
    {
        all.push(client.say(line));
    }
    for time in ["-1", "x", "1.5"] {
        all.push(client.say(&format!("XREAD BLOCK {time} STREAMS s $")));
    }
    for script in [
        "return redis.call('xread','BLOCK','0','STREAMS','s','$')",
        "return redis.call('xinfo','no','s')",
    ] {
        all.push(client.ask(&[b"EVAL", script.as_bytes(), b"0"]));
    }
    all
}

#[test]
fn who_waits_for_an_entry_gets_what_redis_gives() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path());
    for resp3 in [false, true] {
        let (mine, their) = (waits(&server, resp3), waits(&redis, resp3));
        for (number, (mine, their)) in mine.iter().zip(&their).enumerate() {
            assert_eq!(mine, their, "answer {number}, resp3 {resp3}");
        }
        assert_eq!(mine.len(), their.len());
        server.connect().say("FLUSHALL");
        redis.connect().say("FLUSHALL");
    }
}

/// A queue as script-heavy libraries keep one: jobs in hashes, events in a capped stream, work
/// given out by a group, and each step one script.
const ADD: &str = "local id = redis.call('INCR', KEYS[1] .. ':id') \
    local key = KEYS[1] .. ':' .. id \
    redis.call('HMSET', key, 'name', ARGV[1], 'attempts', 0) \
    redis.call('XADD', KEYS[1] .. ':jobs', id .. '-1', 'job', id) \
    redis.call('XADD', KEYS[1] .. ':events', 'MAXLEN', '~', 20, id .. '-*', 'event', 'added', \
    'job', id) \
    return id";
const TAKE: &str = "local got = redis.call('XREADGROUP', 'GROUP', 'workers', ARGV[1], 'COUNT', 1, \
                    'STREAMS', \
    KEYS[1] .. ':jobs', '>') \
    if not got then return false end \
    local entry = got[1][2][1] \
    local job = entry[2][2] \
    redis.call('HINCRBY', KEYS[1] .. ':' .. job, 'attempts', 1) \
    redis.call('ZADD', KEYS[1] .. ':active', ARGV[2], entry[1]) \
    return {entry[1], job, redis.call('HGETALL', KEYS[1] .. ':' .. job)}";
const FINISH: &str = "if redis.call('XACK', KEYS[1] .. ':jobs', 'workers', ARGV[1]) == 0 then \
    return redis.error_reply('NOTYOURS job ' .. ARGV[1]) end \
    redis.call('XDEL', KEYS[1] .. ':jobs', ARGV[1]) \
    redis.call('ZREM', KEYS[1] .. ':active', ARGV[1]) \
    local last = redis.call('XREVRANGE', KEYS[1] .. ':events', '+', '-', 'COUNT', 1) \
    return {redis.call('XLEN', KEYS[1] .. ':jobs'), last[1][1], redis.call('XLEN', KEYS[1] .. \
    ':events')}";
const STALLED: &str = "local claimed = redis.call('XAUTOCLAIM', KEYS[1] .. ':jobs', 'workers', \
                       ARGV[1], 0, '0', \
    'COUNT', 5) \
    local ids = {} \
    for _, entry in ipairs(claimed[2]) do table.insert(ids, entry[1]) end \
    return {claimed[1], ids, cjson.encode(claimed[3])}";

#[test]
fn a_queue_of_streams_and_scripts_does_what_it_does_with_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let mut random = fastrand::Rng::with_seed(8);
    let mut taken: Vec<String> = Vec::new();
    for client in [&mut ours, &mut theirs] {
        client.say("XGROUP CREATE q:jobs workers 0 MKSTREAM");
    }
    let mut both = |words: &[&[u8]]| {
        let (mine, their) = (ours.ask(words), theirs.ask(words));
        assert_eq!(
            mine,
            their,
            "{:?}",
            words.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>()
        );
        mine
    };
    let eval = |script: &'static str, args: &[&str]| -> Vec<Vec<u8>> {
        let head = ["EVAL", script, "1", "q"];
        head.iter().chain(args).map(|word| word.as_bytes().to_vec()).collect()
    };
    let mut finished = 0;
    for round in 0..1500 {
        let worker = format!("worker{}", random.u8(..3));
        let words = match random.u8(..10) {
            0..=3 => eval(ADD, &[&format!("job {round}")]),
            4..=6 => eval(TAKE, &[&worker, &round.to_string()]),
            7 => eval(STALLED, &[&worker]),
            _ if taken.is_empty() => continue,
            _ => {
                let at = random.usize(..taken.len());
                let id = if random.bool() { taken.swap_remove(at) } else { taken[at].clone() };
                eval(FINISH, &[&id])
            }
        };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let said = both(&words);
        if let Value::List(all) = &said
            && words[1] == TAKE.as_bytes()
            && let Value::Text(id) = &all[0]
        {
            taken.push(id.clone());
        }
        finished += u32::from(words[1] == FINISH.as_bytes() && matches!(said, Value::List(_)));
    }
    both(&[b"XPENDING", b"q:jobs", b"workers"]);
    both(&[b"XRANGE", b"q:events", b"-", b"+"]);
    assert!(finished > 100, "{finished}");
    drop((ours, server));
    assert_sound(directory.path());
}

#[test]
fn a_stream_that_is_no_dump_makes_no_key_and_ends_no_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path());
    let mut ours = server.connect();
    for n in 0..130 {
        ours.say(&format!("XADD s {n}-1 f{} {n} g {}", n % 5 / 4, "x".repeat(n % 90)));
    }
    for line in [
        "XDEL s 3-1 50-1",
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g one COUNT 9 STREAMS s >",
        "XREADGROUP GROUP g two COUNT 9 STREAMS s >",
    ] {
        ours.say(line);
    }
    let dump = ours.ask_bytes(&[b"DUMP", b"s"]).unwrap();
    let mut random = fastrand::Rng::with_seed(6);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..4000 {
        let mut bytes = dump.clone();
        let len = bytes.len();
        // Without a checksum, which is then not compared.
        bytes[len - 8..].fill(0);
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..len - 10);
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] ^= 1 << random.u8(..8),
                _ => bytes.copy_within(at..(at + 3).min(len - 10), random.usize(..len - 20)),
            }
        }
        match ours.ask(&[b"RESTORE", b"other", b"0", &bytes, b"REPLACE"]) {
            Value::Error(_) => refused += 1,
            _ => {
                taken += 1;
                for line in [
                    "XINFO STREAM other FULL",
                    "XDEL other 9-1",
                    "XADD other * a b",
                    "XTRIM other MAXLEN 3",
                ] {
                    ours.say(line);
                }
            }
        }
    }
    assert!(refused > 1000 && taken > 100, "{refused} refused, {taken} taken");
    assert_eq!(ours.say("PING"), text("PONG"));
    drop((ours, server));
    assert_sound(directory.path());
}

#[test]
fn entries_take_about_as_much_of_the_tier_as_of_redis_memory() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path());
    let usage = |client: &mut Client, value: &str| {
        for n in 1..5000 {
            client.say(&format!("XADD s {n}-0 sensor {n} value {value}"));
        }
        let line = "MEMORY USAGE s SAMPLES 0";
        let Value::Int(bytes) = client.say(line) else { panic!("no number") };
        client.say("DEL s");
        bytes
    };
    for value in ["17", &"v".repeat(100), &"v".repeat(1000)] {
        let used = [&server, &redis].map(|served| usage(&mut served.connect(), value));
        println!(
            "{} bytes of value: {} bytes an entry, Redis {}",
            value.len(),
            used[0] / 5000,
            used[1] / 5000
        );
        assert!(used[0] * 10 <= used[1] * 12, "{used:?}");
    }
}

/// What a client knows of its stream, whose entries have the numbers from 1: what was acknowledged,
/// and what was sent at most.
#[derive(Debug, Default)]
struct Known {
    added: (u64, u64),
    given: (u64, u64),
    done: std::collections::BTreeSet<u64>,
    /// An XACK whose reply did not come.
    maybe_done: Option<u64>,
}

/// Adds, reads and acknowledges until the server is killed.
fn work_until_killed(mut client: Client, id: u64, seed: u64, known: &mut Known) {
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let line = match random.u8(..3) {
            0 => {
                known.added.1 += 1;
                format!(
                    "XADD k{id} {}-0 number {}",
                    known.added.1,
                    "7".repeat(random.usize(1..300))
                )
            }
            1 if known.given.0 < known.added.0 => {
                known.given.1 += 1;
                format!("XREADGROUP GROUP g c{} COUNT 1 STREAMS k{id} >", random.u8(..3))
            }
            _ => {
                let mut open = (1..=known.given.0).filter(|number| !known.done.contains(number));
                let Some(number) = open.nth(random.usize(..4)) else { continue };
                known.maybe_done = Some(number);
                format!("XACK k{id} g {number}-0")
            }
        };
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        if client.send(&words).is_err() {
            return;
        }
        match client.read() {
            Err(_) => return,
            Ok(Value::Error(why)) => panic!("{line}: {why}"),
            Ok(_) => {}
        }
        (known.added.0, known.given.0) = (known.added.1, known.given.1);
        known.done.extend(known.maybe_done.take());
    }
}

/// The number of an ID.
fn number_of(id: &Value) -> u64 {
    let Value::Text(id) = id else { panic!("no ID: {id:?}") };
    id.split_once('-').unwrap().0.parse().unwrap()
}

/// The stream has what was acknowledged, and no more than was sent.
fn look_at_stream(client: &mut Client, id: u64, known: &mut Known) {
    let numbers = |value: &Value| -> Vec<u64> {
        let Value::List(all) = value else { panic!("no list: {value:?}") };
        let first = |entry: &Value| match entry {
            Value::List(entry) => number_of(&entry[0]),
            other => panic!("no entry: {other:?}"),
        };
        all.iter().map(first).collect()
    };
    let added = numbers(&client.say(&format!("XRANGE k{id} - +")));
    let count = added.len() as u64;
    assert_eq!(added, (1..=count).collect::<Vec<_>>());
    assert!((known.added.0..=known.added.1).contains(&count), "{count}, {known:?}");
    let pending = numbers(&client.say(&format!("XPENDING k{id} g - + 1000000")));
    let open = |given: u64, done: &std::collections::BTreeSet<u64>| -> Vec<u64> {
        (1..=given).filter(|number| !done.contains(number)).collect()
    };
    let with_maybe: std::collections::BTreeSet<u64> =
        known.done.iter().copied().chain(known.maybe_done).collect();
    let given = (known.given.0..=known.given.1)
        .find(|given| [&known.done, &with_maybe].iter().any(|done| open(*given, done) == pending));
    let given = given.unwrap_or_else(|| panic!("{pending:?} is pending; {known:?}"));
    if open(given, &known.done) != pending {
        known.done = with_maybe;
    }
    (known.added, known.given, known.maybe_done) = ((count, count), (given, given), None);
}

#[test]
fn streams_and_what_is_pending_survive_kills() {
    let directory = tempfile::tempdir().unwrap();
    let mut all: Vec<Known> = (0..3).map(|_| Known::default()).collect();
    for round in 0..5 {
        let mut served = server(directory.path());
        let mut reader = served.connect();
        for (id, known) in (0..).zip(&mut all) {
            match round {
                0 => {
                    assert_eq!(reader.say(&format!("XGROUP CREATE k{id} g 0 MKSTREAM")), text("OK"))
                }
                _ => look_at_stream(&mut reader, id, known),
            }
        }
        let clients: Vec<_> = (0..3).map(|_| served.connect()).collect();
        std::thread::scope(|scope| {
            for ((client, id), known) in clients.into_iter().zip(0..).zip(&mut all) {
                scope.spawn(move || work_until_killed(client, id, round * 10 + id, known));
            }
            std::thread::sleep(std::time::Duration::from_millis(150 + round * 13));
            served.kill();
        });
        assert_sound(directory.path());
    }
    assert!(all.iter().any(|known| known.done.len() > 50), "nothing was acknowledged");
}
