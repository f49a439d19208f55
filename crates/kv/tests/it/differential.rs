//! The same random commands to this server and to a real Redis: the same replies.

use crate::served::{Client, Served, Value, assert_sound, contents, sorted};

/// Numbers that C reads and other languages do not, and the other way round.
const NUMBERS: &[&str] = &[
    "1.5",
    "-3.25",
    "abc",
    "007",
    " 1",
    "1e3",
    "9223372036854775807",
    "0x10",
    "-0X.8p1",
    "0x",
    "1e400",
    "-1e400",
    "1e-400",
    "4e-320",
    "infinity",
    "nan",
    "1.",
    ".5",
    "0.1",
    "+2",
    "1_0",
    "1 ",
    "0x1p",
    "123456789.123456789",
    "1e4000",
    "\t3",
];

struct Choice(fastrand::Rng);

impl Choice {
    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.0.usize(..all.len())]
    }

    fn key(&mut self) -> String {
        format!("k{}", self.0.u8(..12))
    }

    fn value(&mut self) -> String {
        match self.0.u8(..8) {
            0 => self.0.i64(-20..20).to_string(),
            1 => self.0.i64(..).to_string(),
            2 => "x".repeat(self.0.usize(..3000)),
            3 => String::new(),
            4 => self.of(NUMBERS).to_owned(),
            _ => (0..self.0.usize(..70)).map(|_| self.0.alphanumeric()).collect(),
        }
    }

    fn small(&mut self) -> String {
        match self.0.u8(..10) {
            0 => "x".to_owned(),
            1 => "9223372036854775807".to_owned(),
            2 => "-9223372036854775808".to_owned(),
            _ => self.0.i64(-30..60).to_string(),
        }
    }

    /// A time that no test lives to see, or one that is past, or none.
    fn time(&mut self) -> String {
        self.of(&["100000", "200000", "300000", "0", "-5", "x", "9223372036854775807"]).to_owned()
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one table: a row for each command, and how often it is drawn"
    )]
    fn command(&mut self) -> Vec<String> {
        let (a, b, c) = (self.key(), self.key(), self.key());
        let (v, w) = (self.value(), self.value());
        let (n, m) = (self.small(), self.small());
        let t = self.time();
        let bit = self.of(&["0", "1", "2"]).to_owned();
        let unit = self.of(&["BYTE", "BIT", "x"]).to_owned();
        let s = |text: &str| text.to_owned();
        // Keys that are lists most of the time, and elements that are equal now and then.
        let (l, k) = (format!("l{}", self.0.u8(..4)), format!("l{}", self.0.u8(..4)));
        let (e, f) = (format!("e{}", self.0.u8(..9)), format!("e{}", self.0.u8(..9)));
        let set = |choice: &mut Choice| format!("s{}", choice.0.u8(..4));
        let (q, r, t2) = (set(self), set(self), set(self));
        let q = if self.0.u8(..40) == 0 { self.key() } else { q };
        let zset = |choice: &mut Choice| format!("z{}", choice.0.u8(..4));
        let (z, y, w2) = (zset(self), zset(self), zset(self));
        let z = if self.0.u8(..40) == 0 { self.key() } else { z };
        let number = |choice: &mut Choice| match choice.0.u8(..12) {
            0 => choice.of(NUMBERS).to_owned(),
            _ => {
                let some =
                    ["1", "2", "3", "-4", "0.5", "1e20", "0", "inf", "-inf", "x", "3.14159", "10"];
                choice.of(&some).to_owned()
            }
        };
        let score = |choice: &mut Choice| match choice.0.u8(..12) {
            0 => choice.of(NUMBERS).to_owned(),
            1 => format!("({}", choice.of(NUMBERS)),
            _ => {
                let some =
                    ["-inf", "+inf", "(1", "2", "(3", "-4", "0", "10", "x", "(x", "(inf", "", "("];
                choice.of(&some).to_owned()
            }
        };
        let member = |choice: &mut Choice| {
            let some = ["-", "+", "[e1", "(e1", "[e5", "(e7", "[", "e1", "(e99"];
            choice.of(&some).to_owned()
        };
        let of = |choice: &mut Choice, l: &str, z: &str, q: &str| choice.of(&[l, z, q]).to_owned();
        let (g, h) = (number(self), number(self));
        // All of one score: else there is no order by member.
        let x = format!("x{}", self.0.u8(..2));
        let l = if self.0.u8(..40) == 0 { self.key() } else { l };
        let words: Vec<String> = match self.0.u8(..198) {
            0..=4 => vec![s("SET"), a, v],
            5 => vec![s("SET"), a, v, s(self.of(&["NX", "XX", "GET", "KEEPTTL", "zz"]))],
            6 => vec![s("SET"), a, v, s(self.of(&["EX", "PX"])), t],
            7 => vec![s("SET"), a, v, s("GET"), s(self.of(&["NX", "XX", "KEEPTTL"]))],
            8 => vec![s("SETNX"), a, v],
            9 => vec![s("SETEX"), a, t, v],
            10 => vec![s("PSETEX"), a, t, v],
            11..=13 => vec![s("GET"), a],
            14 => vec![s("GETSET"), a, v],
            15 => vec![s("GETDEL"), a],
            16 => vec![s("GETEX"), a],
            17 => vec![s("GETEX"), a, s(self.of(&["EX", "PX"])), t],
            18 => vec![s("GETEX"), a, s("PERSIST")],
            19 => vec![s("MGET"), a, b, c],
            20 => vec![s("MSET"), a, v, b, w],
            21 => vec![s("MSETNX"), a, v, b, w],
            22 => vec![s("MSET"), a, v, b],
            23 => vec![s("STRLEN"), a],
            24..=26 => vec![s("APPEND"), a, v],
            27 => vec![s("GETRANGE"), a, n, m],
            28 => vec![s("SETRANGE"), a, n, w],
            29 => vec![s("INCR"), a],
            30 => vec![s("DECR"), a],
            31 => vec![s("INCRBY"), a, n],
            32 => vec![s("DECRBY"), a, n],
            33 if self.0.bool() => vec![s("HINCRBYFLOAT"), a, b, number(self)],
            33 => vec![s("INCRBYFLOAT"), a, number(self)],
            34 => vec![s("SUBSTR"), a, n, m],
            35 => vec![s("LCS"), a, b],
            36 => vec![s("LCS"), a, b, s("LEN")],
            37 => vec![s("SETBIT"), a, n, bit],
            38 => vec![s("GETBIT"), a, n],
            39 => vec![s("BITCOUNT"), a],
            40 => vec![s("BITCOUNT"), a, n, m],
            41 => vec![s("BITCOUNT"), a, n, m, unit],
            42 => vec![s("BITPOS"), a, bit],
            43 => vec![s("BITPOS"), a, bit, n],
            44 => vec![s("BITPOS"), a, bit, n, m, unit],
            45 => vec![s("BITOP"), s(self.of(&["AND", "OR", "XOR", "x"])), a, b, c],
            46 => vec![s("BITOP"), s("NOT"), a, b],
            47 => vec![s(self.of(&["DEL", "UNLINK", "EXISTS", "TOUCH"])), a, b, c],
            48 => vec![s("TYPE"), a],
            49 => vec![s(self.of(&["RENAME", "RENAMENX"])), a, b],
            50 => vec![s("COPY"), a, b],
            51 => vec![s("COPY"), a, b, s("REPLACE")],
            52 => vec![s("COPY"), a, b, s("DB"), s(self.of(&["1", "16", "x"]))],
            53 => vec![s("MOVE"), a, s(self.of(&["0", "1", "16"]))],
            54 => vec![s(self.of(&["EXPIRE", "PEXPIRE"])), a, t],
            55 => vec![s("EXPIRE"), a, t, s(self.of(&["NX", "XX", "GT", "LT", "zz"]))],
            56 => vec![s("PERSIST"), a],
            57 => vec![s("DBSIZE")],
            58 => vec![s("SWAPDB"), s("0"), s(self.of(&["1", "0", "16", "x"]))],
            59 => vec![s(self.of(&["GET", "SET", "NOSUCH", "EXPIRE", "SELECT"]))],
            60 => vec![s("TTL"), a],
            61..=63 => vec![s("HSET"), a, b, v],
            64 => vec![s("HSET"), a, b, v, c, w],
            65 => vec![s("HSETNX"), a, b, v],
            66 => vec![s(self.of(&["HGET", "HEXISTS", "HSTRLEN"])), a, b],
            67 => vec![s("HMGET"), a, b, c],
            68 => vec![s(self.of(&["HGETALL", "HKEYS", "HVALS", "HLEN"])), a],
            69..=70 => vec![s("HDEL"), a, b, c],
            71 => vec![s("HINCRBY"), a, b, n],
            72 => vec![s("HMSET"), a, b, v, c],
            73 => vec![s("HRANDFIELD"), a, s("0")],
            74 => vec![s("OBJECT"), s("ENCODING"), l],
            75..=77 => vec![s(self.of(&["LPUSH", "RPUSH"])), l, e, f],
            78 => vec![s(self.of(&["LPUSH", "RPUSH"])), l, e, v],
            79 => vec![s(self.of(&["LPUSHX", "RPUSHX"])), l, f],
            80..=81 => vec![s(self.of(&["LPOP", "RPOP"])), l],
            82 => vec![s(self.of(&["LPOP", "RPOP"])), l, n],
            83..=84 => vec![s("LRANGE"), l, n, m],
            85 => vec![s("LRANGE"), l, s("0"), s("-1")],
            86 => vec![s(self.of(&["LLEN", "TTL", "TTL", "PERSIST", "TYPE", "DEL"])), l],
            87 => vec![s("LINDEX"), l, n],
            88..=89 => vec![s("LSET"), l, n, e],
            90..=91 => vec![s("LINSERT"), l, s(self.of(&["BEFORE", "after", "x"])), e, f],
            92..=93 => vec![s("LREM"), l, s(self.of(&["0", "1", "-1", "2", "-2", "x"])), e],
            94 => vec![
                s("LTRIM"),
                l,
                s(self.of(&["0", "1", "-20", "x"])),
                s(self.of(&["-1", "-2", "30"])),
            ],
            95 => vec![s("LPOS"), l, e],
            96 => vec![s("LPOS"), l, e, s(self.of(&["RANK", "COUNT", "MAXLEN", "x"])), n],
            97 => {
                vec![s("LPOS"), l, e, s("RANK"), s(self.of(&["-1", "2", "-2"])), s("COUNT"), s("0")]
            }
            98 => vec![s("LPOS"), l, e, s("MAXLEN"), n, s("COUNT"), m],
            99..=100 => {
                vec![
                    s("LMOVE"),
                    l,
                    k,
                    s(self.of(&["LEFT", "RIGHT", "x"])),
                    s(self.of(&["left", "right"])),
                ]
            }
            101 => vec![s("RPOPLPUSH"), l, k],
            102 => {
                let sides = self.of(&["LEFT", "RIGHT", "x"]);
                vec![s("LMPOP"), s(self.of(&["2", "1", "0", "3"])), l, k, s(sides), s("COUNT"), n]
            }
            103 => vec![s("LMPOP"), s("2"), l, k, s("LEFT")],
            104 if self.0.u8(..4) > 0 => vec![s("LMPOP"), s("1"), l, s("RIGHT")],
            // Redis takes up to a tenth of a second to see that the time is over.
            104 => match self.0.u8(..5) {
                0 => vec![s("BLPOP"), l, s(self.of(&["0.01", "-1", "x"]))],
                1 => vec![s("BRPOP"), a, l, s("0.01")],
                2 => vec![s("BLMOVE"), l, k, s("LEFT"), s("RIGHT"), s("0.01")],
                3 => vec![s("BLMPOP"), s("0.01"), s("2"), l, k, s("RIGHT"), s("COUNT"), s("2")],
                _ => vec![s("BRPOPLPUSH"), l, k, s("0.01")],
            },
            105..=107 => vec![s("RPUSH"), l, e, f],
            108 => vec![s("LMOVE"), l.clone(), l, s("LEFT"), s("RIGHT")],
            109 => vec![s(self.of(&["RENAME", "COPY", "LPOS", "LMOVE", "BLPOP"])), l, k],
            111..=114 => vec![s("SADD"), q, e, f],
            115 => vec![s("SADD"), q, n, v],
            116..=117 => vec![s("SREM"), q, e, f],
            118 => {
                vec![
                    s(self.of(&["SCARD", "SMEMBERS", "SPOP", "SRANDMEMBER"])),
                    self.0.u8(..12).to_string(),
                ]
            }
            119 => vec![s(self.of(&["SCARD", "SMEMBERS"])), q],
            120 => vec![s("SISMEMBER"), q, e],
            121 => vec![s("SMISMEMBER"), q, e, f, n],
            122 => vec![s("SMOVE"), q, r, e],
            123 => vec![s("SPOP"), q, s(self.of(&["0", "100000", "-1", "x"]))],
            124 => {
                vec![s("SRANDMEMBER"), q, s(self.of(&["0", "100000", "x", "-9223372036854775808"]))]
            }
            125 => vec![s(self.of(&["SINTER", "SUNION", "SDIFF"])), q, r],
            126 => vec![s(self.of(&["SINTER", "SUNION", "SDIFF"])), q, r, a],
            127..=128 => vec![s(self.of(&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"])), q, r, t2],
            129 => vec![s("SINTERCARD"), s(self.of(&["2", "1", "0", "5", "x"])), q, r],
            130 => vec![s("SINTERCARD"), s("2"), q, r, s(self.of(&["LIMIT", "x"])), n],
            131 => {
                vec![s("SSCAN"), q, s(self.of(&["0", "x"])), s("COUNT"), s(self.of(&["1000", "0"]))]
            }
            132 => vec![s(self.of(&["RENAME", "COPY", "SADD"])), q, r],
            133 if self.0.bool() => vec![s("EXPIRE"), q, t],
            133 => vec![s(self.of(&["TTL", "PERSIST", "TYPE", "DEL"])), q],
            134 => vec![s("HSCAN"), a, s("0"), s("COUNT"), s("1000")],
            136..=139 => vec![s("ZADD"), z, g, e, h, f],
            140 => vec![s("ZADD"), z, n, v],
            141 => vec![s("ZADD"), z, s(self.of(&["NX", "XX", "CH", "INCR", "GT", "LT"])), g, e],
            142 => {
                let one = self.of(&["NX", "XX", "CH", "INCR", "GT", "LT"]);
                vec![s("ZADD"), z, s(one), s(self.of(&["CH", "INCR", "NX", "GT"])), g, e]
            }
            143 => vec![s("ZADD"), z, s("CH"), g, e.clone(), h, e],
            144 => vec![s("ZINCRBY"), z, g, e],
            145 => vec![s("ZREM"), z, e.clone(), f, e],
            146 => vec![s(self.of(&["ZCARD", "ZPOPMIN", "ZPOPMAX"])), z],
            147 => vec![s(self.of(&["ZSCORE", "ZRANK", "ZREVRANK"])), z, e],
            148 => vec![s("ZMSCORE"), z, e, f],
            149 => vec![s("ZCOUNT"), z, score(self), score(self)],
            150 => vec![s("ZLEXCOUNT"), x, member(self), member(self)],
            151 => vec![s(self.of(&["ZRANGE", "ZREVRANGE"])), z, n, m],
            152..=153 => {
                vec![s(self.of(&["ZRANGE", "ZREVRANGE"])), z, s("0"), s("-1"), s("WITHSCORES")]
            }
            154 => vec![s("ZRANGE"), z, n, m, s(self.of(&["REV", "BYSCORE", "x"]))],
            155 => vec![s("ZRANGE"), z, score(self), score(self), s("BYSCORE")],
            156 => vec![
                s("ZRANGE"),
                z,
                score(self),
                score(self),
                s("BYSCORE"),
                s("REV"),
                s("WITHSCORES"),
            ],
            157 => {
                let (from, to) = (score(self), score(self));
                vec![s("ZRANGE"), z, from, to, s("BYSCORE"), s("LIMIT"), n, m]
            }
            158 => {
                vec![s("ZRANGE"), x, member(self), member(self), s("BYLEX"), s("LIMIT"), s("1"), n]
            }
            159 => {
                vec![s("ZRANGE"), z, s("0"), s("5"), s("LIMIT"), s("1"), s(self.of(&["-1", "2"]))]
            }
            160 => vec![
                s(self.of(&["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"])),
                z,
                score(self),
                score(self),
            ],
            161 => {
                let (from, to) = (score(self), score(self));
                let name = self.of(&["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]);
                vec![s(name), z, from, to, s("WITHSCORES"), s("LIMIT"), n, m]
            }
            162 => {
                vec![s(self.of(&["ZRANGEBYLEX", "ZREVRANGEBYLEX"])), x, member(self), member(self)]
            }
            163 => vec![s("ZREVRANGEBYLEX"), x, s("+"), s("-"), s(self.of(&["WITHSCORES", "x"]))],
            164 => vec![s("ZRANGESTORE"), y, z, n, m],
            165 => vec![s("ZRANGESTORE"), y, z, score(self), score(self), s("BYSCORE"), s("REV")],
            166 => vec![s("ZREMRANGEBYRANK"), z, n, s("-3")],
            167 => vec![s("ZREMRANGEBYSCORE"), z, score(self), score(self)],
            168 => vec![s("ZREMRANGEBYLEX"), x, member(self), s("[e2")],
            169 => vec![s(self.of(&["ZPOPMIN", "ZPOPMAX"])), z, n],
            170 => vec![
                s("ZMPOP"),
                s(self.of(&["2", "1", "0"])),
                z,
                y,
                s(self.of(&["MIN", "MAX", "x"])),
            ],
            171 => vec![s("ZMPOP"), s("2"), z, y, s("MAX"), s("COUNT"), n],
            172..=173 => {
                vec![s(self.of(&["ZUNION", "ZINTER", "ZDIFF"])), s("2"), z, y, s("WITHSCORES")]
            }
            174 => vec![
                s(self.of(&["ZUNION", "ZINTER", "ZDIFF"])),
                s(self.of(&["1", "0", "3", "x"])),
                z,
                q,
            ],
            175..=176 => {
                let name = self.of(&["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"]);
                vec![s(name), y, s("2"), z, w2]
            }
            177 => {
                let (name, how) =
                    (self.of(&["ZUNION", "ZINTER"]), self.of(&["SUM", "MIN", "MAX", "x"]));
                vec![
                    s(name),
                    s("2"),
                    z,
                    y,
                    s("WEIGHTS"),
                    g,
                    h,
                    s("AGGREGATE"),
                    s(how),
                    s("WITHSCORES"),
                ]
            }
            178 => vec![s("ZINTERCARD"), s(self.of(&["2", "1", "0", "x"])), z, y, s("LIMIT"), n],
            179 => vec![s("ZINTERCARD"), s("2"), z, y],
            180 => vec![s("ZSCAN"), z, s("0"), s("COUNT"), s("1000")],
            181 => vec![s("ZRANDMEMBER"), z, s(self.of(&["0", "10000", "x"]))],
            182 => vec![s(self.of(&["RENAME", "COPY", "ZADD", "ZRANGE"])), z, y],
            183 if self.0.bool() => vec![s("EXPIRE"), z, t],
            183 => vec![s(self.of(&["TTL", "PERSIST", "TYPE", "DEL"])), z],
            184 if self.0.u8(..3) == 0 => {
                vec![s(self.of(&["BZPOPMIN", "BZPOPMAX"])), z, y, s("0.01")]
            }
            184 => vec![s("ZADD"), z, s("inf"), e, s("-inf"), f],
            185 if self.0.u8(..3) == 0 => vec![s("BZMPOP"), s("0.01"), s("2"), z, y, s("MAX")],
            185..=186 => vec![s("ZADD"), z, g, m, h, n],
            187..=188 => vec![s("ZADD"), x, s("0"), e, s("0"), f],
            190 => vec![s("SORT"), of(self, &l, &z, &q), s("ALPHA"), s(self.of(&["ASC", "DESC"]))],
            191 if self.0.bool() => vec![s("SORT"), l],
            191 => vec![s("SORT"), of(self, &l, &z, &q), s("ALPHA"), s("LIMIT"), n, m],
            192 => vec![s("SORT"), of(self, &l, &z, &q), s(self.of(&["BY", "GET", "x"])), s("k*")],
            193 => {
                let (get, how) =
                    (self.of(&["#", "k*", "h*->e1"]), self.of(&["ALPHA", "STORE", "DESC"]));
                vec![
                    s("SORT"),
                    of(self, &l, &z, &q),
                    s("ALPHA"),
                    s("GET"),
                    s("#"),
                    s("GET"),
                    s(get),
                    s(how),
                ]
            }
            194 => vec![s("SORT"), of(self, &l, &z, &q), s("ALPHA"), s("STORE"), k],
            195 => vec![s("SORT"), of(self, &l, &z, &z), s("BY"), s("nosort"), s("DESC")],
            196 => vec![s("RPUSH"), l, n, m],
            197 => vec![s("SORT_RO"), l, s("ALPHA"), s(self.of(&["DESC", "STORE"]))],
            110 => vec![s("EXPIRE"), l, t],
            _ => vec![s(self.of(&["EXPIRETIME", "PTTL"])), c],
        };
        words
    }
}

/// Replies that may differ: times by what a machine takes to answer; texts of the parser.
fn same(words: &[String], ours: &Value, theirs: &Value) -> bool {
    let near = |a: i64, b: i64| a == b || a > 0 && b > 0 && (a - b).abs() <= 2000;
    match (words[0].as_str(), ours, theirs) {
        ("TTL" | "PTTL" | "EXPIRETIME", Value::Int(a), Value::Int(b)) => near(*a, *b),
        // Which one Redis has depends on what the key was before.
        ("OBJECT", Value::Text(ours), Value::Text(theirs)) if ours != "quicklist" => {
            theirs != "quicklist"
        }
        (
            "HGETALL" | "HKEYS" | "HVALS" | "SMEMBERS" | "SPOP" | "SRANDMEMBER" | "ZRANDMEMBER",
            ours,
            theirs,
        )
        | ("SINTER" | "SUNION" | "SDIFF" | "SSCAN" | "HSCAN" | "ZSCAN", ours, theirs) => {
            deep_sorted(ours) == deep_sorted(theirs)
        }
        _ => ours == theirs,
    }
}

/// The same for lists in lists.
fn deep_sorted(value: &Value) -> Value {
    let Value::List(list) = value else { return value.clone() };
    sorted(&Value::List(list.iter().map(deep_sorted).collect()))
}

#[test]
fn random_commands_get_the_replies_that_redis_gives() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let seed = std::env::var("TIERSMITH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut choice = Choice(fastrand::Rng::with_seed(seed));
    let mut in_multi = false;
    let mut differences: Vec<String> = Vec::new();
    for number in 0..30_000 {
        let words = match choice.0.u16(..200) {
            0 => vec!["MULTI".to_owned()],
            1 if in_multi => vec!["DISCARD".to_owned()],
            1..=30 if in_multi => vec!["EXEC".to_owned()],
            31 => vec!["EXEC".to_owned()],
            32 if number % 7 == 0 => vec!["FLUSHDB".to_owned()],
            _ => choice.command(),
        };
        in_multi = match words[0].as_str() {
            "MULTI" => true,
            "EXEC" | "DISCARD" => false,
            _ => in_multi,
        };
        let bytes: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let (mine, their) = (ours.ask(&bytes), theirs.ask(&bytes));
        let equal = same(&words, &mine, &their) || words[0] == "EXEC" && close(&mine, &their);
        if !equal {
            let cut = |value: &Value| {
                format!("{:?}", deep_sorted(value)).chars().take(400).collect::<String>()
            };
            let (mine, their) = (cut(&mine), cut(&their));
            differences
                .push(format!("command {number}: {words:.60?}: ours {mine}, theirs {their}"));
            for client in [&mut ours, &mut theirs] {
                client.say("DISCARD");
                client.say("FLUSHALL");
            }
            in_multi = false;
        }
    }
    assert!(differences.is_empty(), "seed {seed}:\n{}", differences.join("\n"));
    for client in [&mut ours, &mut theirs] {
        client.say("DISCARD");
    }
    let without_times = |all: Vec<(Value, Value, Value)>| -> Vec<(Value, Value)> {
        all.into_iter().map(|(key, value, _)| (key, value)).collect()
    };
    assert_eq!(without_times(contents(&mut ours)), without_times(contents(&mut theirs)));
    drop((ours, server));
    assert_sound(directory.path());
}

/// The replies of an EXEC, in which times may differ by what a machine takes to answer.
fn close(mine: &Value, their: &Value) -> bool {
    match (mine, their) {
        (Value::List(_), Value::List(_)) if sorted(mine) == sorted(their) => true,
        (Value::List(mine), Value::List(their)) => {
            mine.len() == their.len() && mine.iter().zip(their).all(|(a, b)| close(a, b))
        }
        (Value::Int(a), Value::Int(b)) => a == b || *a > 0 && *b > 0 && (a - b).abs() <= 2000,
        _ => mine == their,
    }
}

#[test]
fn many_members_of_one_command_are_those_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let mut random = fastrand::Rng::with_seed(35);
    for round in 0..200 {
        // From a few to so many that they lie together no more; some are there twice.
        let count = random.usize(1..80) * if round % 20 == 0 { 40 } else { 1 };
        let mut line = format!("ZADD z{}", round % 5);
        for _ in 0..count {
            line += &format!(" {} m{}", random.i8(..), random.u16(..1500));
        }
        let mut removed = format!("ZREM z{}", round % 5);
        for _ in 0..random.usize(1..200) {
            removed += &format!(" m{}", random.u16(..1500));
        }
        let all = format!("ZRANGE z{} 0 -1 WITHSCORES", round % 5);
        for line in [line, all.clone(), removed, all] {
            assert_eq!(ours.say(&line), theirs.say(&line), "round {round}: {line}");
        }
    }
    assert!(contents(&mut ours) == contents(&mut theirs));
    drop(server);
    assert_sound(directory.path());
}

#[test]
fn a_number_that_setrange_and_append_change_is_what_it_is_in_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    for first in ["1234", "-9", "9223372036854775807", "0"] {
        for steps in [
            "SETRANGE n 0 2|INCR n|OBJECT ENCODING n",
            "SETRANGE n 1 3|GET n|APPEND n 4|INCRBY n 5",
            "SETRANGE n 6 7|GET n|INCR n|STRLEN n",
            "SETRANGE n 1 x|DECR n|GETRANGE n 0 -1",
            "INCR n|SETRANGE n 0 99|GET n|BITCOUNT n",
            "SETBIT n 6 1|GET n|GETBIT n 6|INCR n",
            "EXPIRE n 100|SETRANGE n 0 8|TTL n|PERSIST n|GET n",
            "OBJECT ENCODING n|SETRANGE n 0 8|OBJECT ENCODING n|SETRANGE n 0 8|OBJECT ENCODING n",
            "APPEND n 1|OBJECT ENCODING n|APPEND n 1|OBJECT ENCODING n|RENAME n m|\
             OBJECT ENCODING m",
            "SETBIT n 7 1|OBJECT ENCODING n|COPY n m REPLACE|OBJECT ENCODING m",
            "SETRANGE n 0 8|EXPIRE n 100|OBJECT ENCODING n|PERSIST n|OBJECT ENCODING n|SET n 1|\
             OBJECT ENCODING n|DEL m|SETRANGE m 0 1|OBJECT ENCODING m|DEL m|APPEND m 1|\
             OBJECT ENCODING m|BITOP AND m n n|OBJECT ENCODING m",
        ] {
            ours.say(&format!("SET n {first}"));
            theirs.say(&format!("SET n {first}"));
            for step in steps.split('|') {
                assert_eq!(ours.say(step), theirs.say(step), "{first}, {steps}, {step}");
            }
        }
    }
}

#[test]
fn hyperloglogs_count_as_in_redis_and_each_reads_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let mut random = fastrand::Rng::with_seed(37);
    let mut dense = 0;
    for round in 0..1500 {
        let (a, b, c) = (random.u8(..6), random.u8(..6), random.u8(..6));
        // Some of a few elements, which are there already, and some of very many.
        let most = if round < 700 { 60 } else { 1 << 30 };
        let count = random.usize(..if round % 10 == 0 { 400 } else { 5 });
        let line = match random.u8(..20) {
            0..=7 => (0..count).fold(format!("PFADD h{a}"), |line, _| {
                format!(
                    "{line} {}",
                    "e".repeat(random.usize(..9)) + &random.u32(..most).to_string()
                )
            }),
            8..=11 => format!("PFCOUNT h{a}"),
            12 => format!("PFCOUNT h{a} h{b} h{c}"),
            13 => format!("PFMERGE h{a} h{b}"),
            14 => format!("PFMERGE h{a} h{b} h{c} none"),
            15 if round % 4 == 0 => format!("DEL h{a}"),
            15 => format!("EXPIRE h{a} 100000"),
            16 => format!("TTL h{a}"),
            17 => ["PFADD s x", "PFCOUNT h1 s", "PFMERGE h1 s", "PFMERGE s", "PFCOUNT l", "PFADD"]
                [random.usize(..6)]
            .to_owned(),
            18 => format!("COPY h{a} h{b} REPLACE"),
            // What the one wrote goes to the other.
            _ => {
                let (key, moved) = (format!("h{a}"), format!("moved{a}"));
                for (from, to) in [(0, 1), (1, 0)] {
                    let clients = [&mut ours, &mut theirs];
                    let Some(value) = clients[from].ask_bytes(&[b"DUMP", key.as_bytes()]) else {
                        continue;
                    };
                    let words = [b"RESTORE", moved.as_bytes(), b"0", &value, b"REPLACE"];
                    assert_eq!(clients[to].ask(&words), Value::Text("OK".to_owned()));
                    let form = clients[from].ask_bytes(&[b"GETRANGE", key.as_bytes(), b"4", b"4"]);
                    dense += u32::from(form == Some(vec![0]));
                }
                format!("PFCOUNT {moved} h{b}")
            }
        };
        let line = if line.starts_with("PFADD s") || line.ends_with(" l") {
            ours.say("SET s string");
            theirs.say("SET s string");
            ours.say("RPUSH l 1");
            theirs.say("RPUSH l 1");
            line
        } else {
            line
        };
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (mine, their) = (ours.say(&line), theirs.say(&line));
        assert!(
            same(&words, &mine, &their),
            "{round}: {line:.80}: ours {mine:?}, theirs {their:?}"
        );
    }
    assert!(dense > 10, "{dense} were dense when they went to the other");
    bytes_that_are_no_hyperloglog_are_refused_alike(&mut ours, &mut theirs);
    drop((ours, server));
    assert_sound(directory.path());
}

/// Bytes that are none, or were one.
fn bytes_that_are_no_hyperloglog_are_refused_alike(ours: &mut Client, theirs: &mut Client) {
    let good = theirs.ask_bytes(&[b"GET", b"h1"]).unwrap();
    theirs.say("DEL small");
    theirs.say("PFADD small a b c");
    let small = theirs.ask_bytes(&[b"GET", b"small"]).unwrap();
    let form = |bytes: &[u8], form: u8| [&bytes[..4], &[form], &bytes[5..]].concat();
    let longer = |bytes: &[u8]| [bytes, b"\x80"].concat();
    let cases = [
        good[..good.len() - 1].to_vec(),
        small[..small.len() - 1].to_vec(),
        small[..16].to_vec(),
        small[..15].to_vec(),
        longer(&good),
        longer(&small),
        form(&good, 1),
        form(&small, 0),
        form(&small, 2),
        b"HYLx\x01".to_vec(),
        Vec::new(),
    ];
    for (number, bytes) in cases.iter().enumerate() {
        for client in [&mut *ours, &mut *theirs] {
            client.ask(&[b"SET", b"bad", bytes]);
        }
        for line in ["PFCOUNT bad", "PFCOUNT h1 bad", "PFMERGE to bad"] {
            assert_eq!(ours.say(line), theirs.say(line), "case {number}: {line}");
        }
    }
}

#[test]
fn a_longest_common_subsequence_and_its_places_are_those_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let seed = 23;
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..200 {
        let letters = 2 + round % 4;
        for key in ["a", "b"] {
            let len = random.usize(1..24);
            let text: String = (0..len).map(|_| char::from(b'a' + random.u8(..letters))).collect();
            let set = format!("SET {key} {text}");
            assert_eq!(ours.say(&set), theirs.say(&set));
        }
        let tail = [
            "",
            "LEN",
            "IDX",
            "IDX WITHMATCHLEN",
            "IDX MINMATCHLEN 2",
            "WITHMATCHLEN MINMATCHLEN 3 IDX",
            "IDX MINMATCHLEN -1",
            "IDX LEN",
            "IDX MINMATCHLEN",
            "MINMATCHLEN x",
            "NONSENSE",
        ];
        for tail in tail {
            for keys in ["a b", "b a", "a none"] {
                let line = format!("LCS {keys} {tail}");
                assert_eq!(ours.say(line.trim()), theirs.say(line.trim()), "{seed}: {line}");
            }
        }
    }
}

#[test]
fn the_limits_of_encodings_and_a_server_without_functions_are_those_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = Served::start(directory.path());
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    for (setting, member) in [
        ("hash-max-ziplist-entries 3", "HSET k {n} v"),
        ("hash-max-listpack-value 2", "HSET k {n}xx v"),
        ("set-max-intset-entries 3", "SADD k {n}"),
        ("zset-max-ziplist-entries 3", "ZADD k 1 {n}"),
        ("zset-max-listpack-value 2", "ZADD k 1 {n}xx"),
    ] {
        let set = format!("CONFIG SET {setting}");
        let (name, _) = setting.split_once(' ').unwrap();
        let get = format!("CONFIG GET {name}");
        for line in [set.as_str(), &get, "DEL k"] {
            assert_eq!(ours.say(line), theirs.say(line), "{line}");
        }
        for n in 1..6 {
            let add = member.replace("{n}", &n.to_string());
            for line in [add.as_str(), "OBJECT ENCODING k"] {
                assert_eq!(ours.say(line), theirs.say(line), "{setting}: {line}");
            }
        }
    }
    for line in [
        "FUNCTION FLUSH",
        "FUNCTION FLUSH ASYNC",
        "FUNCTION FLUSH never",
        "FUNCTION LIST",
        "FUNCTION LIST WITHCODE LIBRARYNAME x*",
        "FUNCTION LIST LIBRARYNAME",
        "FUNCTION DELETE none",
        "FUNCTION KILL",
        "MOVE k notanumber",
        "MOVE k 99",
    ] {
        assert_eq!(ours.say(line), theirs.say(line), "{line}");
    }
}
