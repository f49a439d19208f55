//! What may come to the key-value server through a socket or in a file: requests, dumps,
//! append-only files, the stream of a primary; and what must hold afterwards, whatever it was.
//!
//! `crates/kv/tests/it/hostile_bytes.rs` runs the same on seeded inputs in every build.

use tiersmith_kv::check::check;
use tiersmith_kv::planted::Planted;
use tiersmith_kv::testing::{Contents, Local};
use tiersmith_kv::{Server, export};
use tiersmith_pmem::Mapping;

/// Bytes of a tier, and of one slot of its log.
const SIZE: usize = 2 << 20;
const LOG_BYTES: u64 = 16 << 10;
/// The number that `Local` gives libraries of functions in place of a database.
const LIBRARIES: u8 = 16;

/// Something of each type, small and large, for commands to meet.
pub(crate) const FURNITURE: &[&str] = &[
    "SET s hello",
    "SET n 41 PXAT 4000000000000",
    "SETBIT bits 77 1",
    "HSET h a 1 b 2 c three",
    "RPUSH l a b c 1 2 3",
    "SADD set a b c 7",
    "SADD numbers 1 2 3 70000",
    "ZADD z 1 a 2.5 b -inf c",
    "XADD st 1-1 f v g w",
    "XADD st 2-0 f v g w",
    "XADD st 2-1 other v",
    "XGROUP CREATE st g 0",
    "XREADGROUP GROUP g c COUNT 2 STREAMS st >",
    "XDEL st 2-0",
    "PFADD hll a b c",
    "GEOADD geo 13.36 38.11 Palermo 15.08 37.5 Catania",
];

/// The commands of [`FURNITURE`], and values that have an index of their own.
pub(crate) fn furnish(local: &mut Local) {
    for line in FURNITURE {
        let said = local.say(line);
        assert!(!said.starts_with('-'), "{line}: {said}");
    }
    let text = "#!lua name=lib\nredis.register_function('answer', function() return 42 end)";
    local.run(&[&b"FUNCTION"[..], b"LOAD", text.as_bytes()]);
    let mut words: Vec<Vec<u8>> = vec![b"HSET".to_vec(), b"large".to_vec()];
    for n in 0..300 {
        words.extend([format!("field:{n}").into_bytes(), vec![b'v'; 120]]);
    }
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    local.run(&words);
    local.commit();
}

fn empty() -> Local {
    let map = Mapping::in_memory(&vec![0; SIZE], 0);
    Local::create(map, LOG_BYTES, Planted::None).expect("a tier is made")
}

/// The second reader finds nothing wrong with the tier of this image.
fn assert_sound(image: &[u8], what: &str) {
    let report = check(&Mapping::in_memory(image, 0)).expect("the tier is read");
    assert!(report.is_sound(), "{what}: {report}");
}

/// What the tier holds is what another process finds there, and another tier after export and
/// import.
fn assert_kept(local: &Local, what: &str) {
    let image = local.image();
    assert_sound(&image, what);
    let there = local.contents();
    let again = Local::open(Mapping::in_memory(&image, 0), Planted::None).expect("it opens again");
    assert!(again.contents() == there, "{what}: another process finds something else");
    let mut dump = Vec::new();
    export(Mapping::in_memory(&image, 0), &mut dump).expect("it is exported");
    // More room: what grew bit by bit can be packed worse when it comes at once.
    let map = Mapping::in_memory(&vec![0; 2 * SIZE], 0);
    let mut other = Local::create(map, LOG_BYTES, Planted::None).expect("a tier is made");
    if let Err(error) = other.import(&dump) {
        panic!("{what}: its own dump is refused: {error}");
    }
    let kept = |all: Contents| -> Contents {
        // What expires soon may have done so, and the order inside is the tier's own.
        all.into_iter()
            .filter(|(_, (_, expires))| expires.is_none_or(|at| at > 2_000_000_000_000))
            .map(|(place, (mut value, expires))| {
                // How its entries lie in blocks is not the same everywhere.
                if value.starts_with(b"Stream(") {
                    let text = String::from_utf8_lossy(&value);
                    value = text.matches("removed: false").collect::<String>().into_bytes();
                }
                value.sort_unstable();
                (place, (value, expires))
            })
            .collect()
    };
    let (there, found) = (kept(there), kept(other.contents()));
    for (place, value) in &there {
        let other = found.get(place);
        assert!(other == Some(value), "{what}: {place:?} is {value:?}, and {other:?} elsewhere");
    }
    assert!(found.len() == there.len(), "{what}: there is more elsewhere");
}

/// Asks every key about itself, changes it a little, and removes it. Errors are answers.
fn use_it(local: &mut Local) {
    let keys: Vec<(u8, Vec<u8>)> = local.contents().into_keys().take(40).collect();
    for (db, key) in keys.iter().filter(|(db, _)| *db < LIBRARIES) {
        local.say(&format!("SELECT {db}"));
        for words in [
            &[&b"TYPE"[..], key][..],
            &[b"PTTL", key],
            &[b"EXPIRETIME", key],
            &[b"OBJECT", b"ENCODING", key],
            &[b"MEMORY", b"USAGE", key],
            &[b"DUMP", key],
            &[b"SORT", key, b"ALPHA", b"LIMIT", b"0", b"10"],
            &[b"GETRANGE", key, b"-5", b"-1"],
            &[b"APPEND", key, b"x"],
            &[b"INCR", key],
            &[b"LRANGE", key, b"0", b"-1"],
            &[b"LPOP", key],
            &[b"RPUSH", key, b"x"],
            &[b"LINSERT", key, b"BEFORE", b"x", b"y"],
            &[b"HGETALL", key],
            &[b"HSET", key, b"x", b"y"],
            &[b"HSCAN", key, b"0"],
            &[b"SMEMBERS", key],
            &[b"SADD", key, b"x"],
            &[b"SPOP", key],
            &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"],
            &[b"ZRANK", key, b"x"],
            &[b"ZADD", key, b"INCR", b"1", b"x"],
            &[b"ZPOPMIN", key],
            &[b"GEOPOS", key, b"x"],
            &[b"PFCOUNT", key],
            &[b"XINFO", b"STREAM", key, b"FULL"],
            &[b"XRANGE", key, b"-", b"+"],
            &[b"XREVRANGE", key, b"+", b"-", b"COUNT", b"3"],
            &[b"XADD", key, b"MAXLEN", b"~", b"5", b"*", b"f", b"v"],
            &[b"XAUTOCLAIM", key, b"g", b"other", b"0", b"0"],
            &[b"XTRIM", key, b"MAXLEN", b"1"],
            &[b"XSETID", key, b"5-5"],
            &[b"COPY", key, b"copy", b"REPLACE"],
            &[b"RENAME", b"copy", b"renamed"],
            &[b"UNLINK", b"renamed"],
            &[b"EXPIRE", key, b"100", b"GT"],
        ] {
            local.run(words);
        }
        local.commit();
    }
    for line in ["SELECT 0", "DBSIZE", "SCAN 0", "INFO", "FUNCTION LIST WITHCODE", "FUNCTION STATS"]
    {
        local.say(line);
    }
    local.has_sound_libraries();
}

/// What a FLUSHALL took away is freed bit by bit.
fn empty_trash(local: &mut Local) {
    for _ in 0..10_000 {
        if !local.keys().has_trash() {
            return;
        }
        local.tidy();
    }
    panic!("the trash is never empty");
}

/// Uses what is there, and then nothing is left of it.
fn use_up(mut local: Local, what: &str) {
    use_it(&mut local);
    assert_sound(&local.image(), what);
    for line in ["FLUSHALL", "FUNCTION FLUSH"] {
        let said = local.say(line);
        assert!(said.starts_with('+'), "{what}: {line}: {said}");
    }
    local.commit();
    empty_trash(&mut local);
    assert!(local.contents().is_empty(), "{what}: something is left");
    assert_sound(&local.image(), what);
}

/// Requests of a client: each is answered or ends the connection, and what the tier holds then is
/// whole.
pub fn requests(input: &[u8]) {
    let mut local = empty();
    furnish(&mut local);
    let out = local.hear(input);
    assert!(out.is_empty() || out.ends_with(b"\r\n"), "a reply has no end");
    assert_kept(&local, "after requests");
    // With a client that may do everything, and settings as they were.
    let map = Mapping::in_memory(&local.image(), 0);
    use_up(Local::open(map, Planted::None).expect("it opens"), "after requests");
}

/// A file to import: all of it is there, or an error, and nothing.
fn file(input: &[u8]) -> bool {
    let mut local = empty();
    match local.import(input) {
        Ok(_) => {
            assert_kept(&local, "after an import");
            use_up(local, "after an import");
            true
        }
        Err(error) => {
            let said = error.to_string();
            assert!(said.len() < 2000 && !said.chars().any(char::is_control), "{said:?}");
            empty_trash(&mut local);
            assert_sound(&local.image(), &said);
            assert!(local.contents().is_empty(), "{said}: a part is there");
            false
        }
    }
}

/// A dump as it is, and without its checksum, which a fuzzer cannot guess. Whether one of both was
/// imported.
pub fn dump(input: &[u8]) -> bool {
    let whole = file(input);
    let Some((body, _)) = input.split_last_chunk::<8>() else { return whole };
    file(&[body, &[0; 8]].concat()) || whole
}

/// An append-only file. Whether it was imported.
pub fn append_only(input: &[u8]) -> bool {
    file(input)
}

/// What a primary says from the first word on. Whether it was followed.
pub fn primary(input: &[u8]) -> bool {
    let map = Mapping::in_memory(&vec![0; SIZE], 0);
    let mut server = Server::without_sockets(map, LOG_BYTES).expect("a server is made");
    let (why, followed) = server.follow_bytes(input).expect("it follows");
    assert!(why.len() < 20_000, "a reason of {} bytes", why.len());
    let image = |server: &Server| {
        let mut bytes = vec![0; SIZE];
        server.keys().heap().read(0, &mut bytes);
        bytes
    };
    assert_sound(&image(&server), &why);
    // Once more, now with something to go on from.
    server.follow_bytes(input).expect("it follows");
    let image = image(&server);
    assert_sound(&image, &why);
    let local = Local::open(Mapping::in_memory(&image, 0), Planted::None).expect("it opens");
    if local.copied().is_none_or(|(whole, _)| whole) {
        assert_kept(&local, &why);
    }
    followed
}
