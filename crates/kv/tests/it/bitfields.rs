//! BITFIELD: random numbers of every width, with the replies of a real Redis.

use crate::served::{Served, Value, assert_sound, contents, text};

/// What is refused, and edges.
const LINES: &[&str] = &[
    "BITFIELD",
    "BITFIELD none",
    "BITFIELD none GET u8 0",
    "EXISTS none",
    "BITFIELD none GET u64 0",
    "BITFIELD none GET u0 0",
    "BITFIELD none GET i65 0",
    "BITFIELD none GET x8 0",
    "BITFIELD none GET u 0",
    "BITFIELD none GET u8 -1",
    "BITFIELD none GET u8 #-1",
    "BITFIELD none GET u8 4294967296",
    "BITFIELD none GET u8 #9223372036854775807",
    "BITFIELD none GET u8",
    "BITFIELD none SET u8 0",
    "BITFIELD none SET u8 0 x",
    "BITFIELD none OVERFLOW x",
    "BITFIELD none OVERFLOW",
    "BITFIELD none NOTHING u8 0",
    "EXISTS none",
    "BITFIELD new OVERFLOW FAIL SET u8 0 256 SET u8 8 1",
    "GET new",
    "BITFIELD new SET u8 #1 65 GET u8 #1 INCRBY u8 #1 200",
    "BITFIELD i SET i64 3 -9223372036854775808 INCRBY i64 3 -1 OVERFLOW SAT INCRBY i64 3 1",
    "BITFIELD i SET u63 7 -1 OVERFLOW SAT SET u8 7 -1 INCRBY u8 7 -300",
    "BITFIELD_RO new GET u8 0 GET u8 8",
    "BITFIELD_RO new GET u8 0 SET u8 8 1",
    "RPUSH list a",
    "BITFIELD list GET u8 0",
    "BITFIELD list SET u8 0 1",
    "SET times 1 PX 100000",
    "BITFIELD times SET u8 0 50",
    "PERSIST times",
];

#[test]
fn numbers_of_every_width_are_what_redis_makes_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    for line in LINES {
        assert_eq!(ours.say(line), theirs.say(line), "{line}");
    }
    let mut random = fastrand::Rng::with_seed(31);
    for round in 0..4000 {
        let mut line = format!("BITFIELD k{}", random.u8(..4));
        for _ in 0..random.usize(1..4) {
            if random.bool() {
                line += [" OVERFLOW WRAP", " OVERFLOW SAT", " OVERFLOW FAIL"][random.usize(..3)];
            }
            let width = match random.bool() {
                true => format!("i{}", random.u8(1..=64)),
                false => format!("u{}", random.u8(1..=63)),
            };
            let at = random.u16(..300);
            let sharp = if random.u8(..4) == 0 { "#" } else { "" };
            let number = random.i64(..) >> random.u8(..64);
            line += &match random.u8(..3) {
                0 => format!(" GET {width} {sharp}{at}"),
                1 => format!(" SET {width} {sharp}{at} {number}"),
                _ => format!(" INCRBY {width} {sharp}{at} {number}"),
            };
        }
        assert_eq!(ours.say(&line), theirs.say(&line), "round {round}: {line}");
    }
    assert!(contents(&mut ours) == contents(&mut theirs));
    // The largest place that there is, and the first one behind it.
    let last = ours.say("BITFIELD last SET u8 4294967288 7 GET u8 4294967288");
    assert!(matches!(&last, Value::Error(text) if text.starts_with("OOM")), "{last:?}");
    let behind = ours.say("BITFIELD last SET u9 4294967288 7");
    assert!(matches!(&behind, Value::Error(text) if text.contains("bit offset")), "{behind:?}");
    assert_eq!(ours.say("PING"), text("PONG"));
    drop(server);
    assert_sound(directory.path());
}
