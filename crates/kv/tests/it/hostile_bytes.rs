//! Bytes that no client, file or primary sends: what real ones send, changed at random. Each is
//! answered or refused; what the tier holds then is sound, and is the same in another process and
//! after export and import.
//!
//! The same code as the fuzz targets `kv_*` in `fuzz/`, on seeded inputs, so that it runs in every
//! build: `TIERSMITH_INPUTS` sets how many, `TIERSMITH_SEED` which. Each test is a process with
//! limited memory and time, so that what takes too much of them ends it.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tiersmith_kv::planted::Planted;
use tiersmith_kv::testing::Local;
use tiersmith_kv::{export, table_for_people};
use tiersmith_pmem::Mapping;

use crate::hostile::{self, FURNITURE, furnish};
use crate::served::{Client, Served, Value, request};

const CHILD: &str = "TIERSMITH_KV_HOSTILE";
/// Address space, processor time and time of a test.
const LIMITS: &str = "ulimit -v 3000000; ulimit -t 600; exec timeout -k 5 1200 \"$0\" \"$@\"";

/// Runs a test in a process of its own.
fn alone(name: &str, run: fn()) {
    if std::env::var_os(CHILD).is_some() {
        return run();
    }
    let mut command = Command::new("sh");
    command.args(["-c", LIMITS]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads", "1"]).env(CHILD, "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let heard = |line: &&str| line.contains("inputs") || line.contains("skipped: ");
    said.lines().filter(heard).for_each(|line| println!("{line}"));
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {why:.8000}\n{said:.2000}", output.status);
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Gives so many inputs to a target; how many of them it took.
fn give(
    inputs: u64,
    mut make: impl FnMut(&mut fastrand::Rng) -> Vec<u8>,
    target: impl Fn(&[u8]) -> bool,
) -> u64 {
    let seed = from_environment("TIERSMITH_SEED", 20_261_130);
    let inputs = from_environment("TIERSMITH_INPUTS", inputs);
    let (began, mut taken, mut longest) = (Instant::now(), 0, Duration::ZERO);
    for number in 0..inputs {
        let input = make(&mut fastrand::Rng::with_seed(seed + number));
        let one = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| target(&input))) {
            Ok(took) => taken += u64::from(took),
            Err(panic) => {
                eprintln!("TIERSMITH_SEED={} TIERSMITH_INPUTS=1: the input is", seed + number);
                eprintln!("{}", input.escape_ascii());
                resume_unwind(panic);
            }
        }
        longest = longest.max(one.elapsed());
    }
    let took = began.elapsed();
    println!("{inputs} inputs, {taken} taken, {took:.1?}, the longest {longest:.1?}");
    taken
}

/// What counts, lengths and times may not be taken for without a look.
const NUMBERS: [i128; 18] = [
    0,
    -1,
    1,
    2,
    16,
    127,
    128,
    255,
    256,
    65_535,
    1 << 20,
    (1 << 24) + 1,
    i32::MAX as i128,
    u32::MAX as i128,
    1 << 32,
    i64::MAX as i128,
    i64::MIN as i128,
    u64::MAX as i128,
];

/// Words of commands that mean something.
const WORDS: &[&str] = &[
    "NX",
    "XX",
    "GT",
    "LT",
    "EX",
    "PX",
    "PXAT",
    "KEEPTTL",
    "GET",
    "WITHSCORES",
    "WITHVALUES",
    "LIMIT",
    "COUNT",
    "MATCH",
    "*",
    "~",
    "=",
    "-",
    "+",
    "$",
    ">",
    "(1",
    "[a",
    "-inf",
    "+inf",
    "nan",
    "1e308",
    "0x10",
    "BYSCORE",
    "BYLEX",
    "REV",
    "STORE",
    "ALPHA",
    "BY",
    "WEIGHTS",
    "AGGREGATE",
    "MAX",
    "LEFT",
    "RIGHT",
    "BEFORE",
    "AFTER",
    "MAXLEN",
    "MINID",
    "NOMKSTREAM",
    "GROUP",
    "STREAMS",
    "JUSTID",
    "FORCE",
    "IDLE",
    "0-0",
    "1-1",
    "18446744073709551615-18446744073709551615",
    "REPLACE",
    "ABSTTL",
    "ASYNC",
    "SYNC",
    "ON",
    "OFF",
    "BCAST",
    "PREFIX",
    "u8",
    "i64",
    "u63",
    "OVERFLOW",
    "SAT",
    "INCRBY",
    "#1",
    "m",
    "km",
    "FROMMEMBER",
    "BYRADIUS",
    "ASC",
    "MULTI",
    "EXEC",
    "s",
    "n",
    "bits",
    "h",
    "l",
    "set",
    "numbers",
    "z",
    "st",
    "hll",
    "geo",
    "large",
    "g",
    "c",
    "default",
    ">pass",
    "~*",
    "&*",
    "+@all",
    "nopass",
    "allkeys",
    "return 1",
    "return redis.call('set', KEYS[1], ARGV[1])",
    "while true do end",
    "return {1, {2, 'x'}, false}",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "#!lua name=l2\nredis.register_function('f', function(k) return redis.call('get', k[1]) end)",
    "",
];

/// Commands as words.
type Commands = Vec<Vec<Vec<u8>>>;

fn encode(commands: &Commands) -> Vec<u8> {
    let words = |command: &Vec<Vec<u8>>| -> Vec<u8> {
        request(&command.iter().map(Vec::as_slice).collect::<Vec<_>>())
    };
    commands.iter().flat_map(words).collect()
}

/// The commands that these bytes are, up to what is none.
fn commands(bytes: &[u8]) -> Commands {
    fn number(rest: &mut &[u8], kind: u8) -> Option<usize> {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let (line, behind) = rest.split_at(end);
        *rest = &behind[2..];
        std::str::from_utf8(line.strip_prefix(&[kind])?).ok()?.parse().ok()
    }
    let (mut rest, mut all) = (bytes, Vec::new());
    while let Some(count) = number(&mut rest, b'*') {
        let mut words = Vec::new();
        for _ in 0..count {
            let Some(len) = number(&mut rest, b'$') else { return all };
            let Some((word, behind)) = rest.split_at_checked(len) else { return all };
            words.push(word.to_vec());
            rest = &behind[2..];
        }
        all.push(words);
    }
    all
}

fn lines(lines: &[&str]) -> Commands {
    let words = |line: &&str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    lines.iter().map(words).collect()
}

/// The names of all commands.
fn names() -> Vec<Vec<u8>> {
    let table = table_for_people();
    let named = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    named.map(|name| name.as_bytes().to_vec()).collect()
}

/// Changes commands word by word.
fn change_words(random: &mut fastrand::Rng, commands: &mut Commands, names: &[Vec<u8>]) {
    for _ in 0..random.usize(1..8) {
        let at = random.usize(..=commands.len());
        let word = |random: &mut fastrand::Rng| match random.u8(..4) {
            0 => random.choice(NUMBERS).unwrap().to_string().into_bytes(),
            1 => (0..random.usize(..12)).map(|_| random.u8(..)).collect(),
            _ => random.choice(WORDS).unwrap().as_bytes().to_vec(),
        };
        let Some(command) = commands.get_mut(at).filter(|_| random.u8(..6) > 0) else {
            let mut new = vec![random.choice(names).unwrap().clone()];
            new.extend((0..random.usize(..6)).map(|_| word(random)));
            commands.insert(at, new);
            continue;
        };
        let place = random.usize(..=command.len());
        match random.u8(..8) {
            0 if place < command.len() => drop(command.remove(place)),
            1 => command.insert(place, word(random)),
            2 if !command.is_empty() => command[0] = random.choice(names).unwrap().clone(),
            3 if place < command.len() => change(random, &mut command[place], &[]),
            4 => {
                let (again, to) = (command.clone(), random.usize(..=commands.len()));
                commands.insert(to, again);
            }
            5 => {
                let from = random.usize(..commands.len());
                commands.swap(at, from);
            }
            _ if place < command.len() => command[place] = word(random),
            _ => command.push(word(random)),
        }
    }
}

/// Changes bytes; `others`: what parts may come from.
fn change(random: &mut fastrand::Rng, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..random.usize(1..5) {
        let len = bytes.len();
        let at = random.usize(..=len);
        let end = (at + random.usize(..24)).min(len);
        match random.u8(..10) {
            0 if at < len => bytes[at] = random.u8(..),
            1 if at < len => bytes[at] ^= 1 << random.u8(..8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let part = bytes[at..end].to_vec();
                let to = random.usize(..=len);
                bytes.splice(to..to, part);
            }
            4 => {
                let word = random.choice(WORDS).unwrap().as_bytes();
                bytes.splice(at..at, word.iter().copied());
            }
            5 if random.u8(..4) == 0 => bytes.truncate(at),
            6 => {
                let number = random.choice(NUMBERS).unwrap().to_le_bytes();
                let mut number = number[..1 << random.u8(..4)].to_vec();
                if random.bool() {
                    number.reverse();
                }
                let end = (at + number.len()).min(len);
                bytes.splice(at..end, number);
            }
            7 => {
                // A number in digits.
                let digit = |at: &usize| bytes[*at].is_ascii_digit();
                let Some(from) = (at..len).find(digit) else { continue };
                let to = (from..len).find(|at| !digit(at)).unwrap_or(len);
                let number = random.choice(NUMBERS).unwrap().to_string();
                bytes.splice(from..to, number.into_bytes());
            }
            _ => {
                let Some(other) = random.choice(others) else { continue };
                let from = random.usize(..=other.len());
                let part = &other[from..(from + random.usize(..200)).min(other.len())];
                let to = if random.bool() { at } else { (at + part.len()).min(len) };
                bytes.splice(at..to, part.iter().copied());
            }
        }
    }
}

/// More than [`FURNITURE`], of what files and primaries have.
const MORE: &[&str] = &[
    "SELECT 3",
    "SET other db",
    "SELECT 0",
    "INCRBY n 5",
    "EXPIRE s 100000000",
    "LPOP l",
    "ZINCRBY z 3 a",
    "XACK st g 1-1",
    "XGROUP CREATECONSUMER st g d",
    "BITFIELD bits SET u8 0 200",
    "SUNIONSTORE inter set numbers",
    "HINCRBYFLOAT h a 1.5",
    "LINSERT l BEFORE c x",
    "RENAME inter renamed",
    "MULTI",
    "SET a 1",
    "RPUSH b 2",
    "EXEC",
    "PERSIST n",
    "GETDEL a",
];

/// The dump that this program writes.
fn own_dump() -> Vec<u8> {
    let map = Mapping::in_memory(&vec![0; 1 << 20], 0);
    let mut local = Local::create(map, 16 << 10, Planted::None).unwrap();
    furnish(&mut local);
    let mut dump = Vec::new();
    export(Mapping::in_memory(&local.image(), 0), &mut dump).unwrap();
    dump
}

/// What a real Redis wrote with these settings: its dump, and its append-only files; nothing if it
/// is not installed.
fn of_redis(directory: &Path, settings: &[&str]) -> Option<(Served, Client)> {
    let port = crate::served::free_port();
    let settings = [&["--rdbchecksum", "no", "--repl-diskless-sync", "no"][..], settings].concat();
    let Some(server) = Served::redis_at(directory, port, &settings) else {
        println!("skipped: seeds of a real Redis, because redis-server is not installed");
        return None;
    };
    let mut client = server.connect();
    // So much that it is not packed any more.
    let large: Vec<String> = (0..200).map(|n| format!("{} m{n}", n * 7)).collect();
    client.say(&format!("ZADD bigz {}", large.join(" ")));
    client.say(&format!("SADD bigset {}", large.join(" ")));
    client.say(&format!("RPUSH biglist {}", large.join(" ")));
    client.say(&format!("SET long {}", "abcdef".repeat(50)));
    for line in FURNITURE.iter().chain(MORE) {
        let said = client.say(line);
        assert!(!matches!(said, Value::Error(_)), "{line}: {said:?}");
    }
    Some((server, client))
}

fn dumps() -> Vec<Vec<u8>> {
    let mut all = vec![own_dump()];
    for packed in ["512", "0"] {
        let directory = tempfile::tempdir().unwrap();
        let settings =
            ["--hash-max-listpack-entries", packed, "--zset-max-listpack-entries", packed];
        if let Some((_server, mut client)) = of_redis(directory.path(), &settings) {
            client.say("SAVE");
            all.push(std::fs::read(directory.path().join("dump.rdb")).unwrap());
        }
    }
    all
}

#[test]
fn any_dump_is_imported_as_a_whole_or_not_at_all() {
    alone(&full_name!("any_dump_is_imported_as_a_whole_or_not_at_all"), || {
        let seeds = dumps();
        assert!(seeds.iter().all(|seed| hostile::dump(seed)));
        let make = |random: &mut fastrand::Rng| {
            let mut input = random.choice(&seeds).unwrap().clone();
            change(random, &mut input, &seeds);
            input
        };
        let taken = give(400, make, hostile::dump);
        assert!(taken > 10 || std::env::var_os("TIERSMITH_INPUTS").is_some(), "{taken} were taken");
    });
}

/// Append-only files of a real Redis.
fn append_only_files() -> Vec<Vec<u8>> {
    let mut all = vec![encode(&lines(&[FURNITURE, MORE].concat()))];
    for preamble in ["yes", "no"] {
        let directory = tempfile::tempdir().unwrap();
        let settings =
            ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", preamble];
        let settings = [&settings[..], &["--aof-timestamp-enabled", "yes"][..]].concat();
        let Some((_server, mut client)) = of_redis(directory.path(), &settings) else { continue };
        client.say("BGREWRITEAOF");
        let info = |client: &mut Client| format!("{:?}", client.say("INFO persistence"));
        while info(&mut client).contains("aof_rewrite_in_progress:1") {
            std::thread::sleep(Duration::from_millis(20));
        }
        for line in MORE {
            client.say(line);
        }
        let files = std::fs::read_dir(directory.path().join("appendonlydir")).unwrap();
        let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_none_or(|ending| ending != "manifest"));
        files.sort();
        // The base comes first, as its manifest says, and both are one file to what follows.
        all.push(files.iter().flat_map(|file| std::fs::read(file).unwrap()).collect());
    }
    all
}

#[test]
fn any_append_only_file_is_imported_as_a_whole_or_not_at_all() {
    alone(&full_name!("any_append_only_file_is_imported_as_a_whole_or_not_at_all"), || {
        let (seeds, names) = (append_only_files(), names());
        for seed in &seeds {
            assert!(hostile::append_only(seed), "{}", seed.escape_ascii());
        }
        let make = |random: &mut fastrand::Rng| {
            let mut input = random.choice(&seeds).unwrap().clone();
            let mut commands = commands(&input);
            if random.u8(..3) > 0 && !commands.is_empty() {
                // Not of those that are there only to fill it.
                commands.retain(|command| command.len() < 50);
                change_words(random, &mut commands, &names);
                input = encode(&commands);
            }
            if random.u8(..3) == 0 {
                change(random, &mut input, &seeds);
            }
            input
        };
        give(400, make, hostile::append_only);
    });
}

#[test]
fn any_request_is_answered_or_ends_the_connection() {
    alone(&full_name!("any_request_is_answered_or_ends_the_connection"), || {
        let names = names();
        let seed = lines(&[FURNITURE, MORE].concat());
        let make = |random: &mut fastrand::Rng| {
            let mut commands = seed.clone();
            random.shuffle(&mut commands);
            commands.truncate(random.usize(..8));
            for _ in 0..4 {
                change_words(random, &mut commands, &names);
            }
            let mut input = encode(&commands);
            if random.u8(..4) == 0 {
                change(random, &mut input, &[]);
            }
            input
        };
        give(400, make, |input| {
            hostile::requests(input);
            true
        });
    });
}

/// What primaries say: the handshake, all of their data, and commands.
fn streams() -> Vec<Vec<u8>> {
    let head = format!("+PONG\r\n+OK\r\n+OK\r\n+FULLRESYNC {} 100\r\n", "a".repeat(40));
    let behind = encode(&lines(&[&["SELECT 0", "PING"][..], FURNITURE, MORE].concat()));
    let dump = own_dump();
    let (body, _) = dump.split_last_chunk::<8>().unwrap();
    let data = [body, &[0; 8]].concat();
    let mark = "b".repeat(40);
    let mut all = vec![
        [head.as_bytes(), format!("${}\r\n", data.len()).as_bytes(), &data, &behind].concat(),
        [head.as_bytes(), format!("$EOF:{mark}\r\n").as_bytes(), &data, mark.as_bytes(), &behind]
            .concat(),
    ];
    let directory = tempfile::tempdir().unwrap();
    if let Some((server, mut client)) = of_redis(directory.path(), &[]) {
        let stream = std::os::unix::net::UnixStream::connect(&server.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let mut bytes = Vec::new();
        for words in [
            &["PING"][..],
            &["REPLCONF", "listening-port", "1"],
            &["REPLCONF", "capa", "eof", "capa", "psync2"],
            &["PSYNC", "?", "-1"],
        ] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            (&stream).write_all(&request(&words)).unwrap();
            // It refuses a PSYNC before its replies are read.
            let mut one = [0];
            while one != *b"\n" {
                std::io::Read::read_exact(&mut &stream, &mut one).unwrap();
                bytes.push(one[0]);
            }
        }
        // Until nothing comes any more, with commands while it is followed.
        let (mut part, mut said) = ([0; 4096], false);
        while let Ok(got @ 1..) = std::io::Read::read(&mut &stream, &mut part) {
            bytes.extend_from_slice(&part[..got]);
            let has_data = bytes.windows(7).any(|part| part == b"aof-bas");
            if has_data && !std::mem::replace(&mut said, true) {
                for line in MORE {
                    client.say(line);
                }
                client.say("SET the-end 1");
            }
            if bytes.windows(7).any(|part| part == b"the-end") {
                break;
            }
        }
        all.push(bytes);
    }
    all
}

#[test]
fn whatever_a_primary_says_is_followed_or_the_reason_said() {
    alone(&full_name!("whatever_a_primary_says_is_followed_or_the_reason_said"), || {
        let (seeds, names) = (streams(), names());
        for seed in &seeds {
            assert!(hostile::primary(seed), "{}", seed.escape_ascii());
        }
        let make = |random: &mut fastrand::Rng| {
            let mut input = random.choice(&seeds).unwrap().clone();
            let from = input.windows(16).position(|part| part == b"*2\r\n$6\r\nSELECT\r\n");
            if let Some(from) = from.filter(|_| random.u8(..4) > 0) {
                let mut commands = commands(&input[from..]);
                change_words(random, &mut commands, &names);
                input.truncate(from);
                input.extend(encode(&commands));
            }
            if random.u8(..3) == 0 {
                change(random, &mut input, &seeds);
            }
            input
        };
        let taken = give(300, make, hostile::primary);
        assert!(taken > 10 || std::env::var_os("TIERSMITH_INPUTS").is_some(), "{taken} were taken");
    });
}
