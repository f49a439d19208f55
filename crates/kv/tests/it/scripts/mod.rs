//! The scripts of the crash tests, by family.

use crate::crash_support::{Script, batch};

fn keys(from: u32, to: u32) -> Vec<String> {
    (from..to).map(|n| format!("SET key:{n} value:{n}")).collect()
}

fn numbers(from: u32, to: u32) -> String {
    let all: Vec<String> = (from..to).map(|n| format!("{n}*8")).collect();
    all.join(" ")
}

fn long_numbers(from: u32, to: u32) -> String {
    let all: Vec<String> = (from..to).map(|n| format!("{n}*400")).collect();
    all.join(" ")
}

fn scored(from: u32, to: u32) -> String {
    let all: Vec<String> =
        (from..to).map(|n| format!("{} {n}{n}{n}{n}{n}{n}{n}*60", n * 7 % 31)).collect();
    all.join(" ")
}

/// Loads a library with one function.
fn library(name: &str, returns: &str) -> String {
    format!(
        "FUNCTION LOAD #!lua\tname={name}\nredis.register_function('f_{name}',\
         function()return({returns})end)"
    )
}

pub(crate) fn all() -> Vec<Script> {
    let families = [
        strings_and_keys(),
        scripts_and_libraries(),
        space(),
        hashes(),
        sets(),
        streams(),
        hyperloglogs(),
        lists(),
        log(),
    ];
    families.into_iter().flatten().collect()
}

fn strings_and_keys() -> Vec<Script> {
    vec![
        Script {
            name: "strings",
            units: 8,
            before: vec![batch(&["SET a old", "SET b old*20", "SET n 5"])],
            batches: vec![
                batch(&["SET a new", "SET b new*30"]),
                batch(&["INCR n", "INCRBY n 10"]),
                batch(&["GETSET a third", "SETRANGE b 3 xyz"]),
                batch(&["DEL b", "SET c 1"]),
                batch(&["SETBIT bits 70 1", "BITOP NOT other bits"]),
                batch(&["BITFIELD bits SET u20 61 77 INCRBY i5 90 -9", "BITFIELD c GET u8 0"]),
                batch(&["GETDEL a"]),
            ],
        },
        Script {
            name: "append",
            units: 8,
            before: vec![batch(&["SET a begin", "APPEND a more"])],
            batches: vec![
                batch(&["APPEND a 1"]),
                batch(&["APPEND a 22222222222222222222"]),
                batch(&["APPEND a x*100", "APPEND a yy"]),
                batch(&["SET fresh 1", "APPEND fresh 2"]),
                batch(&["APPEND a z"]),
            ],
        },
        Script {
            name: "expiry",
            units: 8,
            before: vec![batch(&["SET a 1", "SET b 2 PX 5000"])],
            batches: vec![
                batch(&["PEXPIRE a 9000"]),
                batch(&["PEXPIRE a 8000"]),
                batch(&["PERSIST b", "SET c 3 PX 100"]),
                batch(&["SET c 3", "PEXPIRE c 50000"]),
                batch(&["PEXPIREAT a 1"]),
            ],
        },
        Script {
            name: "several",
            units: 8,
            before: vec![batch(&["MSET a 1 b 1 c 1"])],
            batches: vec![
                batch(&["MSET a 2 b 2 d 2"]),
                batch(&["MULTI", "SET a 3", "DEL b", "INCR c", "EXEC"]),
                batch(&["RENAME a e", "COPY c f", "MOVE d 3"]),
                batch(&["MSETNX x 1 y 1"]),
                batch(&["SWAPDB 0 3"]),
            ],
        },
    ]
}

fn scripts_and_libraries() -> Vec<Script> {
    vec![
        Script {
            name: "scripts",
            units: 10,
            before: vec![batch(&["MSET a 1 b 1 n 1", "RPUSH l 1 2"])],
            batches: vec![
                batch(&[
                    "EVAL redis.call('set','a','2')redis.call('incr','n')redis.call('del','b') 0",
                ]),
                // It keeps what it changed before its error.
                batch(&[
                    "EVAL redis.call('set','c',ARGV[1])redis.call('rpush','l',ARGV[1])error('x') 0 \
                     3",
                ]),
                batch(&["MULTI", "EVAL return(redis.call('incr',KEYS[1])) 1 n", "SET d 1", "EXEC"]),
                batch(&["EVAL for\ti=1,150\tdo\tredis.call('set','k'..i,i)end 0"]),
                batch(&["EVAL for\ti=1,150\tdo\tredis.call('del','k'..i)end 0"]),
                batch(&["SET a 3"]),
            ],
        },
        Script {
            name: "libraries",
            units: 30,
            before: vec![vec![library("a", "1"), "SET n 1".to_owned()]],
            batches: vec![
                vec![library("b", "'x'")],
                vec![format!(
                    "{}{}",
                    library("a", "2").replace("LOAD", "LOAD REPLACE"),
                    "\n".repeat(900)
                )],
                vec![library("c", "redis.call('incr','n')+redis.call('incr','m')")],
                batch(&["FCALL f_c 0"]),
                vec![
                    "MULTI".to_owned(),
                    "FUNCTION FLUSH".to_owned(),
                    library("d", "redis.call('set','d','1')"),
                    "FCALL f_d 0".to_owned(),
                    "EXEC".to_owned(),
                ],
                batch(&["!tidy", "FCALL f_d 0"]),
                batch(&["FUNCTION DELETE d", "FLUSHALL"]),
                vec![library("e", "3"), "FUNCTION FLUSH".to_owned()],
                batch(&["!tidy", "SET a 3"]),
            ],
        },
    ]
}

/// The index and the space for values, as they grow and are given back.
fn space() -> Vec<Script> {
    vec![
        Script {
            name: "flush",
            units: 10,
            before: vec![keys(0, 20), batch(&["SELECT 1", "SET other 1"])],
            batches: vec![
                batch(&["SELECT 0", "FLUSHDB"]),
                batch(&["!tidy"]),
                batch(&["SET again 1"]),
                batch(&["!tidy", "!tidy"]),
                batch(&["FLUSHALL"]),
                batch(&["!tidy", "!tidy", "!tidy"]),
            ],
        },
        Script {
            name: "index grows",
            units: 8,
            before: vec![keys(0, 60)],
            batches: vec![keys(60, 66), keys(66, 70), keys(70, 74), batch(&["DEL key:1 key:2"])],
        },
        Script {
            name: "slabs come and go",
            units: 7,
            before: vec![
                // Leaves bytes where a later slab has its bitmap.
                batch(&["SET big x*131200"]),
                batch(&["DEL big"]),
            ],
            batches: vec![
                batch(&["SET a 1"]),
                batch(&["SET b y*300", "SET c z*1000"]),
                batch(&["DEL b c"]),
                batch(&["SET d w*70000"]),
                batch(&["DEL d", "SET e v*2000"]),
                batch(&["SET f u*2000"]),
            ],
        },
    ]
}

fn hashes() -> Vec<Script> {
    vec![
        Script {
            name: "small hashes",
            units: 8,
            before: vec![batch(&["HSET h a 1 b 2", "SET s 1"])],
            batches: vec![
                batch(&["HSET h a 3 c 4", "HINCRBY n x 5"]),
                batch(&["HDEL h b", "HSETNX h d y*300"]),
                batch(&["COPY h h2", "RENAME h h3", "PEXPIRE h3 9000"]),
                batch(&["HDEL n x", "SET h2 string", "DEL h3"]),
            ],
        },
        Script {
            name: "hashes with an index",
            units: 16,
            before: vec![batch(&["HSET h a 1 b 2"])],
            batches: vec![
                batch(&["HSET h p 1*7000 q 2*7000 r 3*7000 s 4*7000 t 5*7000"]),
                batch(&["HSET h a 3 u 6", "HDEL h p", "HINCRBY h b 5"]),
                batch(&["PEXPIRE h 9000", "RENAME h i"]),
                batch(&["HSET h 1 1", "COPY i h REPLACE"]),
                batch(&["DEL i"]),
                batch(&["!tidy", "!tidy"]),
                batch(&["!tidy", "SET h string"]),
                batch(&["!tidy", "!tidy", "FLUSHALL"]),
            ],
        },
    ]
}

fn sets() -> Vec<Script> {
    vec![
        Script {
            name: "sets",
            units: 18,
            before: vec![
                batch(&["SADD s a b c", "SADD t c d"]),
                vec![format!("SADD u {}", long_numbers(0, 40))],
            ],
            batches: vec![
                batch(&["SADD s e", "SREM s a", "SMOVE s t b"]),
                vec![format!("SADD v {}", long_numbers(0, 50))],
                batch(&["SREM u 7777777*100", "SADD u new"]),
                batch(&["SINTERSTORE w u v", "SUNIONSTORE x s t"]),
                batch(&["SDIFFSTORE v v v", "COPY u y"]),
                batch(&["SREM s c e", "SREM x b c d"]),
                batch(&["DEL u"]),
                batch(&["!tidy", "!tidy"]),
                batch(&["FLUSHALL"]),
                batch(&["!tidy", "!tidy", "!tidy"]),
            ],
        },
        Script {
            name: "sorted sets",
            units: 18,
            before: vec![batch(&["ZADD z 1 a 2 b 3 c"]), vec![format!("ZADD y {}", scored(0, 90))]],
            batches: vec![
                batch(&["ZADD z 5 a 2.5 d", "ZINCRBY z -4 c", "ZREM z b"]),
                batch(&["ZADD y 44.5 7777777*60", "ZINCRBY y 100 new"]),
                batch(&["ZPOPMIN y 2", "ZADD y XX GT CH 1000 8888888*60"]),
                vec![format!("ZADD y {}", scored(200, 230))],
                batch(&["ZREMRANGEBYRANK y 5 9", "ZRANGESTORE w y 0 3"]),
                batch(&["ZUNIONSTORE v 2 z w WEIGHTS 2 1"]),
                batch(&[
                    "GEOADD g 13.4 52.5 a -179 -80 b 13.5 52.6 c",
                    "GEOSEARCHSTORE v g FROMMEMBER a BYRADIUS 50 km STOREDIST",
                ]),
                batch(&["COPY y x"]),
                batch(&["DEL y", "ZPOPMAX z 9"]),
                batch(&["!tidy", "!tidy"]),
                batch(&["FLUSHALL"]),
                batch(&["!tidy", "!tidy", "!tidy"]),
            ],
        },
    ]
}

fn streams() -> Vec<Script> {
    vec![
        Script {
            name: "streams",
            units: 18,
            before: vec![batch(&["XADD s 1-1 a 1", "XADD s 1-2 a 2 b 3*30", "XADD s 1-3 c 3"])],
            batches: vec![
                batch(&["XADD s 2-1 a 3", "XADD s 2-2 a 4", "XADD t 5-5 a b"]),
                batch(&["XDEL s 1-2"]),
                batch(&["XDEL s 1-1", "XSETID t 6-0 MAXDELETEDID 5-1"]),
                batch(&["XADD s 3-1 a x*1500", "XADD s 3-2 a y*1500"]),
                batch(&["XADD s 3-3 a z*1500", "XADD s 3-4 a z*9000"]),
                batch(&["XTRIM s MAXLEN 5"]),
                batch(&["XADD s MAXLEN 3 4-1 b 1"]),
                batch(&["MULTI", "XADD s 5-1 c 1", "XDEL s 4-1", "XADD t 7-0 x y", "EXEC"]),
                batch(&["COPY s u", "PEXPIRE t 9000"]),
                batch(&["XTRIM u MAXLEN 0", "RENAME s v"]),
                batch(&["XADD u 9-9 a 1"]),
                batch(&["DEL v", "XDEL u 9-9"]),
                batch(&["!tidy", "!tidy", "FLUSHALL"]),
                batch(&["!tidy", "!tidy", "!tidy"]),
            ],
        },
        Script {
            name: "stream groups",
            units: 14,
            before: vec![
                batch(&["XADD s 1-1 a 1", "XADD s 1-2 a 2", "XADD s 1-3 a 3", "XADD s 1-4 a 4"]),
                batch(&["XGROUP CREATE s g 0"]),
            ],
            batches: vec![
                batch(&["XREADGROUP GROUP g c COUNT 2 STREAMS s >"]),
                batch(&["XREADGROUP GROUP g d COUNT 1 STREAMS s >", "XACK s g 1-1"]),
                batch(&["XCLAIM s g d 0 1-2", "XGROUP CREATECONSUMER s g e"]),
                batch(&["XGROUP CREATE s h $", "XREADGROUP GROUP h c STREAMS s 0"]),
                batch(&["XDEL s 1-3", "XAUTOCLAIM s g e 0 0"]),
                batch(&["XREADGROUP GROUP g c STREAMS s >", "XREADGROUP GROUP g e STREAMS s 0"]),
                // What is more than half a slot of the log is committed by itself.
                batch(&["COPY s t"]),
                batch(&["XGROUP SETID t g 0"]),
                batch(&["XGROUP DELCONSUMER s g e"]),
                batch(&["XGROUP DESTROY s g", "XREADGROUP GROUP g f STREAMS t >"]),
                batch(&["!tidy"]),
                batch(&["DEL t"]),
                batch(&["!tidy", "DEL s"]),
                batch(&["!tidy", "!tidy", "FLUSHALL"]),
                batch(&["!tidy", "!tidy", "!tidy"]),
            ],
        },
    ]
}

fn hyperloglogs() -> Vec<Script> {
    vec![Script {
        name: "hyperloglogs",
        units: 10,
        before: vec![batch(&["PFADD h a b c", "SET s 1"])],
        batches: vec![
            batch(&["PFADD h d e", "PFADD i x y", "PFADD h a"]),
            batch(&["PFMERGE j h i", "PFCOUNT h i", "PEXPIRE i 9000"]),
            // From here on it is dense.
            vec![format!("PFADD h {}", numbers(0, 1500))],
            batch(&["PFADD h f g", "PFMERGE i h"]),
            batch(&["DEL h", "PFADD h z"]),
        ],
    }]
}

fn lists() -> Vec<Script> {
    vec![
        Script {
            name: "small lists",
            units: 14,
            before: vec![batch(&["RPUSH l a b c", "SET s 1"])],
            batches: vec![
                batch(&["LPUSH l x", "RPUSH l y*300", "RPUSH m 1"]),
                batch(&["LPOP l", "LSET l 1 z*200", "LINSERT l BEFORE c q"]),
                batch(&["LMOVE l m LEFT RIGHT", "LREM l 1 c", "COPY l n"]),
                batch(&["RPOP m 5", "DEL l", "PEXPIRE n 9000"]),
            ],
        },
        Script {
            name: "lists with a sequence",
            units: 18,
            before: vec![vec![format!("RPUSH l {}", numbers(0, 120))]],
            batches: vec![
                batch(&["LPUSH l first", "RPUSH l last"]),
                // What is more than half a slot of the log is committed by itself.
                vec![format!("RPUSH l {}", numbers(120, 180))],
                batch(&["LINSERT l AFTER 3030303030303030 mid"]),
                batch(&["LSET l 40 other*40", "LPOP l", "RPOP l 3", "LREM l 0 77"]),
                batch(&["LTRIM l 55 -60"]),
                batch(&["LMOVE l m LEFT LEFT", "RENAME l n"]),
                batch(&["COPY n o"]),
                batch(&["PEXPIRE n 9000"]),
                batch(&["DEL n"]),
                batch(&["!tidy", "!tidy"]),
                batch(&["FLUSHALL"]),
                batch(&["!tidy", "!tidy", "!tidy"]),
            ],
        },
    ]
}

/// The log: changes of the same words, and more than it has room for.
fn log() -> Vec<Script> {
    vec![
        Script {
            name: "the same again",
            units: 8,
            before: vec![batch(&["SET a 1*100", "SET b 1*100"])],
            batches: vec![
                batch(&["SET a 2*100", "SET a 3*100"]),
                batch(&["SET b 2*100", "DEL b", "SET b 4*100"]),
                batch(&["SET a 5*100"]),
                batch(&["SET a 6*100"]),
            ],
        },
        Script {
            name: "changed, given back, used again",
            units: 8,
            before: vec![batch(&["SET a 1", "SET l 1*140000"])],
            batches: vec![
                batch(&["APPEND a 2", "DEL a", "PEXPIRE l 9000", "DEL l"]),
                batch(&["SET b 1", "SET m 2*140000"]),
                batch(&["PEXPIRE b 9000", "DEL b"]),
                batch(&["SET c 1"]),
            ],
        },
        {
            let many: Vec<String> = (0..300).map(|n| format!("k{n} v")).collect();
            let more: Vec<String> = (0..300).map(|n| format!("k{n} w*70")).collect();
            Script {
                name: "beyond the log",
                units: 10,
                before: vec![batch(&["SET old 1"])],
                batches: vec![
                    vec![format!("MSET {}", many.join(" "))],
                    // Into the units where the body was.
                    batch(&["SET a b*140000"]),
                    vec![format!("MSET {}", more.join(" "))],
                    batch(&["SET old 2"]),
                ],
            }
        },
    ]
}
