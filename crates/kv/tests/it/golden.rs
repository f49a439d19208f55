//! A tier as version 3 wrote it, killed with its last batch in the log only: what this program
//! reads must stay what it was.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use tiersmith_kv::check::check;
use tiersmith_kv::planted::Planted;
use tiersmith_kv::testing::{Contents, Local};
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::Simulator;

const LEN: u64 = 1_310_720;

const LIBRARY: &[u8] =
    b"#!lua name=lib\nredis.register_function('answer', function() return 42 end)";

fn fixture() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/kv-v3/tier.txt"))
}

fn image() -> Vec<u8> {
    image_of(&fixture())
}

/// Lines of 64 bytes that are not zero: offset, then the bytes in hexadecimal digits.
fn image_of(path: &Path) -> Vec<u8> {
    let mut image = vec![0; LEN as usize];
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (at, digits) = line.split_once(' ').unwrap();
        let at: usize = at.parse().unwrap();
        for byte in 0..64 {
            let pair = &digits[byte * 2..byte * 2 + 2];
            image[at + byte] = u8::from_str_radix(pair, 16).unwrap();
        }
    }
    image
}

fn expected() -> Contents {
    let text = |text: &str| text.as_bytes().to_vec();
    let mut all = Contents::new();
    for n in 0..70 {
        all.insert((0, text(&format!("key:{n}"))), (text(&format!("value:{n}")), None));
    }
    all.insert((0, text("long")), (text(&"x".repeat(6000)), None));
    all.insert((0, text("grown")), (text("begin and end"), None));
    all.insert((3, text("expires")), (text("soon"), Some(4_000_000_000_000)));
    all.insert((0, text("hash")), (text("a1b2"), None));
    all.insert((0, text("list")), (text("1, 2, 3"), None));
    all.insert((0, text("longer")), (text(&format!("{}, 2, 3", "1".repeat(1100))), None));
    all.insert((0, text("set")), (text("xy"), None));
    let scores = [b"a".as_slice(), &1_f64.to_le_bytes(), b"b", &2_f64.to_le_bytes()].concat();
    all.insert((0, text("sorted")), (scores, None));
    all.insert((16, text("lib")), (LIBRARY.to_vec(), None));
    all.insert((0, text("last")), (text("in the log only"), None));
    all
}

/// Makes the image anew, as this program writes it: every batch durable, the words of the last one
/// only in the log.
fn write() -> String {
    let simulator = Simulator::new();
    let map = simulator.mapping(vec![0; LEN as usize], 0);
    let mut local = Local::create(map, 4096, Planted::None).unwrap();
    for n in 0..70 {
        local.say(&format!("SET key:{n} value:{n}"));
    }
    local.commit();
    for line in ["SELECT 7", "SET gone 1", "FLUSHDB", "SELECT 0", "APPEND grown begin"] {
        local.say(line);
    }
    local.commit();
    local.run(&[b"APPEND", b"grown", b" and end"]);
    local.say(&format!("SET long {}", "x".repeat(6000)));
    for line in ["SELECT 3", "SET expires soon PXAT 4000000000000", "SELECT 0"] {
        local.say(line);
    }
    local.commit();
    for line in ["HSET hash b 2 a 1", "RPUSH list 1 2 3", "SADD set y x", "ZADD sorted 2 b 1 a"] {
        local.say(line);
    }
    local.say(&format!("RPUSH longer {} 2 3", "1".repeat(1100)));
    assert_eq!(local.run(&[b"FUNCTION", b"LOAD", LIBRARY]), b"$3\r\nlib\r\n");
    local.commit();
    local.run(&[b"SET", b"last", b"in the log only"]);
    local.commit();
    as_text(&simulator)
}

/// What is durable, as text.
fn as_text(simulator: &Simulator) -> String {
    let trace = simulator.trace();
    let mut player = trace.player();
    player.advance_to(trace.len());
    let mut text = "# A key-value tier of version 3. Made by tests/it/golden.rs.\n".to_owned();
    for (number, line) in player.durable()[0].chunks(64).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            write!(text, "{} ", number * 64).unwrap();
            line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
    }
    text
}

/// Streams with several blocks, removed entries, groups, and what is pending.
const STREAMS: &[&str] = &[
    "XADD s 1-1 a 1 b 2",
    "XADD s 1-2 a 3 b 4",
    "XADD s 300-7 c 5",
    "XADD s 301-0 a 6 b 7",
    "XDEL s 1-1 300-7",
    "XADD empty 5-5 a b",
    "XDEL empty 5-5",
    "XGROUP CREATE s readers 0",
    "XGROUP CREATE s others 1-2 ENTRIESREAD 2",
    "XREADGROUP GROUP readers anna COUNT 1 STREAMS s >",
    "XREADGROUP GROUP readers bert STREAMS s >",
    "XGROUP CREATECONSUMER s others carl",
    "XACK s readers 301-0",
];

/// What they are, as replies.
const SAID: &[(&str, &str)] = &[
    ("XLEN s", ":52\r\n"),
    ("XLEN empty", ":0\r\n"),
    (
        "XRANGE s - 302",
        "*2\r\n*2\r\n$3\r\n1-2\r\n*4\r\n$1\r\na\r\n$1\r\n3\r\n$1\r\nb\r\n$1\r\n4\r\n\
         *2\r\n$5\r\n301-0\r\n*4\r\n$1\r\na\r\n$1\r\n6\r\n$1\r\nb\r\n$1\r\n7\r\n",
    ),
    ("XPENDING s readers - + 2", "*1\r\n*4\r\n$3\r\n1-2\r\n$4\r\nanna\r\n:0\r\n:1\r\n"),
    (
        "XINFO CONSUMERS s others",
        "*1\r\n*6\r\n$4\r\nname\r\n$4\r\ncarl\r\n$7\r\npending\r\n:0\r\n$4\r\nidle\r\n:0\r\n",
    ),
    (
        "XADD empty 5-5 a b",
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item\r\n",
    ),
    ("XREVRANGE s + - COUNT 1", "*1\r\n*2\r\n$6\r\n1049-0\r\n*2\r\n$1\r\nx\r\n$2\r\n49\r\n"),
];

#[test]
fn streams_of_version_3_are_read_as_they_were_written() {
    let path = fixture().with_file_name("streams.txt");
    if std::env::var_os("TIERSMITH_WRITE_FIXTURES").is_some() {
        let simulator = Simulator::new();
        let map = simulator.mapping(vec![0; LEN as usize], 0);
        let mut local = Local::create(map, 4096, Planted::None).unwrap();
        for line in STREAMS {
            assert!(!local.say(line).starts_with('-'), "{line}");
            local.commit();
        }
        for n in 0..50 {
            local.say(&format!("XADD s {}-0 x {n}", 1000 + n));
        }
        local.commit();
        std::fs::write(&path, as_text(&simulator)).unwrap();
    }
    let map = Mapping::in_memory(&image_of(&path), 0);
    let report = check(&map).unwrap();
    assert!(report.is_sound(), "{report}");
    let mut local = Local::open(map, Planted::None).unwrap();
    for (line, said) in SAID {
        assert_eq!(local.say(line), *said, "{line}");
    }
}

#[test]
fn a_tier_of_version_3_is_read_as_it_was_written() {
    if std::env::var_os("TIERSMITH_WRITE_FIXTURES").is_some() {
        std::fs::create_dir_all(fixture().parent().unwrap()).unwrap();
        std::fs::write(fixture(), write()).unwrap();
    }
    let map = Mapping::in_memory(&image(), 0);
    let report = check(&map).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!((report.keys[0], report.keys[3], report.commits), (78, 1, 7));
    assert_eq!(report.libraries, 1);
    let mut local = Local::open(map, Planted::None).unwrap();
    assert_eq!(local.contents(), expected());
    assert!(local.keys().has_trash());
    assert_eq!(local.say("FCALL ANSWER 0"), ":42\r\n");
}

#[test]
fn damage_anywhere_in_use_is_found_or_changes_nothing_and_never_panics_the_check() {
    let sound = image();
    let used: Vec<usize> = (0..sound.len() / 8)
        .filter(|word| sound[word * 8..word * 8 + 8].iter().any(|byte| *byte != 0))
        .collect();
    let mut random = fastrand::Rng::with_seed(5);
    let (mut found, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut damaged = sound.clone();
        let word = *random.choice(&used).unwrap();
        damaged[word * 8 + random.usize(..8)] ^= 1 << random.u8(..8);
        match check(&Mapping::in_memory(&damaged, 0)) {
            Ok(report) if report.is_sound() => {}
            Ok(_) => found += 1,
            Err(_) => refused += 1,
        }
    }
    // Bytes of values, and space that is free, carry no checksum.
    assert!(found > 400, "{found} found, {refused} refused");
}

#[test]
fn what_is_no_tier_is_refused_in_a_sentence() {
    let mut image = image();
    for (change, said) in [(8, "version 1"), (0, "not a key-value tier")] {
        for copy in [0, 4096] {
            image[copy + change] ^= 2;
        }
        let Err(error) = Local::open(Mapping::in_memory(&image, 0), Planted::None) else {
            panic!("it opens");
        };
        assert!(error.to_string().contains(said), "{error}");
        let reads = "this program reads version 3";
        assert!(change != 8 || error.to_string().contains(reads), "{error}");
    }
}

/// What any client may ask of a damaged tier.
const QUESTIONS: &[&str] = &[
    "GET key:1",
    "SET key:2 new",
    "APPEND grown more",
    "SELECT 3",
    "GET expires",
    "EXPIRE expires 100",
    "SELECT 0",
    "KEYS *",
    "SCAN 0 COUNT 1000",
    "RANDOMKEY",
    "DEL key:5 key:6 key:7",
    "RENAME key:8 other",
    "HGETALL hash",
    "HSET hash x y",
    "HSET large x y",
    "HDEL large 3",
    "HGETALL large",
    "COPY large again",
    "LRANGE list 0 -1",
    "LINDEX list 300",
    "LPUSH list x",
    "LINSERT list BEFORE 17 y",
    "LTRIM list 5 -9",
    "RPOP list 40",
    "DEL list",
    "ZRANGE sorted 0 -1 WITHSCORES",
    "ZADD sorted 5 17 6 x",
    "ZRANGEBYSCORE sorted 20 30",
    "ZREM sorted 3 4 5",
    "ZPOPMAX sorted 50",
    "DEL sorted",
    "XLEN stream",
    "XRANGE stream - +",
    "XADD stream 500-1 a b",
    "XDEL stream 30-0 99-0 180-0",
    "XTRIM stream MAXLEN 100",
    "XINFO STREAM stream FULL",
    "XREADGROUP GROUP g c COUNT 3 STREAMS stream >",
    "XREADGROUP GROUP g c COUNT 3 STREAMS stream 0",
    "XACK stream g 20-0",
    "XCLAIM stream g d 0 21-0 22-0",
    "XAUTOCLAIM stream g d 0 0",
    "XPENDING stream g - + 10",
    "XGROUP DELCONSUMER stream g c",
    "COPY stream streams",
    "XGROUP DESTROY stream g",
    "DEL stream",
    "MULTI",
    "INCR count",
    "DEL large",
    "EXEC",
    "INFO",
    "!tidy",
    "SELECT 7",
    "SET new 1",
    "FCALL answer 0",
    "FUNCTION LIST WITHCODE",
    "FUNCTION DUMP",
    "FUNCTION DELETE lib",
    "FUNCTION FLUSH",
    "FLUSHALL",
    "!tidy",
    "!tidy",
    "SET last 1",
];

/// A few of the words that are `used`, by their number, are others.
fn damaged(sound: &[u8], used: &[usize], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut damaged = sound.to_vec();
    for _ in 0..random.usize(1..4) {
        let at = *random.choice(used).unwrap() * 8;
        match random.u8(..3) {
            0 => damaged[at..at + 8].copy_from_slice(&random.u64(..).to_le_bytes()),
            1 => damaged[at + random.usize(..8)] ^= 1 << random.u8(..8),
            _ => {
                let from = *random.choice(used).unwrap() * 8;
                damaged.copy_within(from..from + 8, at);
            }
        }
    }
    damaged
}

#[test]
fn a_damaged_tier_answers_or_refuses_and_never_panics_or_gives_another_value() {
    // The tier's own seed and names come from it as well.
    fastrand::seed(17);
    let mut local =
        Local::create(Mapping::in_memory(&vec![0; 4 << 20], 0), 4096, Planted::None).unwrap();
    let strings = ["hash", "list", "longer", "set", "sorted"].map(str::as_bytes);
    let strings = |key: &[u8]| !strings.contains(&key);
    for ((db, key), (value, expires)) in expected().into_iter().filter(|((_, key), _)| strings(key))
    {
        if db == 16 {
            continue;
        }
        local.say(&format!("SELECT {db}"));
        local.run(&[b"SET", &key, &value]);
        if let Some(at) = expires {
            local.run(&[b"PEXPIREAT", &key, at.to_string().as_bytes()]);
        }
    }
    local.say("SELECT 0");
    local.say("HSET hash a 1 b 2");
    let fields: Vec<String> = (0..900).map(|n| format!("{n} {}", "v".repeat(40))).collect();
    assert!(local.say(&format!("HSET large {}", fields.join(" "))).starts_with(':'));
    let members: Vec<String> =
        (0..900).map(|n| format!("{} {n}:{}", n % 90, "m".repeat(30))).collect();
    assert_eq!(local.say(&format!("ZADD sorted {}", members.join(" "))), ":900\r\n");
    let elements: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    assert_eq!(local.say(&format!("RPUSH list {}", elements.join(" "))), ":400\r\n");
    for n in 1..250 {
        local.say(&format!("XADD stream {n}-0 field {n}"));
    }
    local.say("XGROUP CREATE stream g 0");
    local.say("XREADGROUP GROUP g c COUNT 150 STREAMS stream >");
    local.run(&[b"FUNCTION", b"LOAD", LIBRARY]);
    local.commit();
    let sound = local.image();
    let answers: Vec<String> = QUESTIONS.iter().map(|line| local.say(line)).collect();
    let used: Vec<usize> = (0..sound.len() / 8)
        .filter(|word| sound[word * 8..word * 8 + 8].iter().any(|byte| *byte != 0))
        .collect();
    let mut random = fastrand::Rng::with_seed(17);
    let (mut refused, mut opened) = (0, 0);
    for round in 0..1000 {
        let map = Mapping::in_memory(&damaged(&sound, &used, &mut random), 0);
        let Ok(mut local) = Local::open(map, Planted::None) else { continue };
        opened += 1;
        for (line, sound) in QUESTIONS.iter().zip(&answers) {
            if *line == "!tidy" {
                local.tidy();
                continue;
            }
            let answer = local.say(line);
            if answer.contains("the tier is damaged") {
                refused += 1;
            } else if *line == "FCALL answer 0" {
                assert!(answer == *sound || answer.starts_with('-'), "round {round}: {answer:?}");
            } else if *line == "GET key:1" || *line == "GET expires" {
                // The key may not be found; what is found is what was written.
                let gone = answer == "$-1\r\n";
                assert!(gone || answer == *sound, "round {round}, {line}: {answer:?}");
            }
            local.commit();
        }
    }
    assert!(opened > 300 && refused > 300, "{opened} opened, {refused} refused");
}

/// The tier of `local` with another byte at `at` of the value of `key`.
fn with_damaged_value(local: &Local, key: &str, at: usize) -> Local {
    let mut image = local.image();
    let place = image.windows(key.len()).rposition(|bytes| bytes == key.as_bytes()).unwrap();
    image[place + key.len() + at] ^= 0x40;
    Local::open(Mapping::in_memory(&image, 0), Planted::None).unwrap()
}

#[test]
fn who_waits_for_an_element_that_is_damaged_is_told_so() {
    let mut local =
        Local::create(Mapping::in_memory(&vec![0; 4 << 20], 0), 4096, Planted::None).unwrap();
    local.say("RPUSH elements a b c");
    local.commit();
    // Of the first element's length, behind the count and the length of no name.
    let mut local = with_damaged_value(&local, "elements", 10);
    for command in ["BLPOP elements 0", "BLMPOP 0 1 elements LEFT", "LPOP elements"] {
        assert!(local.say(command).contains("the tier is damaged"), "{command}");
    }
}

#[test]
fn a_key_whose_value_leads_nowhere_can_be_removed_replaced_and_flushed() {
    let mut local =
        Local::create(Mapping::in_memory(&vec![0; 4 << 20], 0), 4096, Planted::None).unwrap();
    let elements: Vec<String> = (0..400).map(|n| n.to_string()).collect();
    local.say(&format!("RPUSH elements {}", elements.join(" ")));
    local.say("PEXPIREAT elements 5000");
    local.say("SET other 1");
    local.commit();
    let image = || with_damaged_value(&local, "elements", 2);
    assert!(image().say("LLEN elements").contains("the tier is damaged"));
    assert_eq!(image().say("DEL elements"), ":1\r\n");
    assert_eq!(image().say("SET elements 1"), "+OK\r\n");
    assert_eq!(image().say("RENAME other elements"), "+OK\r\n");
    let mut late = image();
    late.set_now_ms(6000);
    assert_eq!(late.say("GET elements"), "$-1\r\n");
    let mut flushed = image();
    assert_eq!(flushed.say("FLUSHALL"), "+OK\r\n");
    (0..1000).for_each(|_| flushed.tidy());
    assert!(!flushed.keys().has_trash());
    assert_eq!(flushed.say("SET last 1"), "+OK\r\n");
}
