//! Places: random members, searches and edges, with the replies and the scores of a real Redis.

use crate::replica::{server, wait_for};
use crate::served::{Client, Served, Value, assert_sound, contents, free_port, text};

/// What is refused, and edges.
const LINES: &[&str] = &[
    "GEOADD",
    "GEOADD e 1 2",
    "GEOADD e nx xx 1 2 a",
    "GEOADD e NX 1 2 a 3 4",
    "GEOADD e GT 1 2 a",
    "GEOADD e CH NX XX ch",
    "GEOADD e x 2 a",
    "GEOADD e 1 x a",
    "GEOADD e 181 2 a",
    "GEOADD e -180.5 86 a",
    "GEOADD e inf -inf a",
    "GEOADD e 1 2 a 200 2 b",
    "EXISTS e",
    "GEODIST e a b",
    "GEODIST e a b x",
    "GEODIST e a b m m",
    "GEOPOS e",
    "GEOPOS e a b",
    "GEOHASH e a",
    "GEOADD e 180 85.05112878 ne -180 -85.05112878 sw 0 0 zero 180 0 line -180 0 same",
    "GEOADD e XX CH 0 0.1 zero 1 1 new",
    "GEOADD e NX CH 5 5 zero 1 1 new",
    "ZRANGE e 0 -1 WITHSCORES",
    "GEOPOS e ne sw zero line same none",
    "GEOHASH e ne sw zero line same none",
    "GEODIST e ne sw KM",
    "GEODIST e line same",
    "GEODIST e line line",
    "GEODIST e line none",
    "ZADD odd -1 negative -1e300 least 1e19 large 9e18 less inf most 4503599627370497.5 part",
    "GEOPOS odd negative least large less most part",
    "GEOHASH odd negative least large less most part",
    "GEODIST odd negative part",
    "SET string 1",
    "GEOADD string 1 2 a",
    "GEOPOS string a",
    "GEORADIUS string x",
    "GEORADIUS string x y z w",
    "GEORADIUS e x 1 1 m",
    "GEORADIUS e 1 99 1 m",
    "GEORADIUS e 1 1 x m",
    "GEORADIUS e 1 1 -1 m",
    "GEORADIUS e 1 1 1 x",
    "GEORADIUS none 1 1 1 x",
    "GEORADIUS e 1 1 1 m COUNT",
    "GEORADIUS e 1 1 1 m COUNT 0",
    "GEORADIUS e 1 1 1 m COUNT -1",
    "GEORADIUS e 1 1 1 m COUNT x",
    "GEORADIUS e 1 1 1 m ANY",
    "GEORADIUS e 1 1 1 m STORE",
    "GEORADIUS e 1 1 1 m STORE x WITHDIST",
    "GEORADIUS_RO e 1 1 1 m STORE x",
    "GEORADIUS e 1 1 1 m FROMMEMBER zero",
    "GEORADIUS none 1 1 1 m STORE e2",
    "GEORADIUSBYMEMBER e none 1 m",
    "GEORADIUSBYMEMBER none none x x",
    "GEORADIUSBYMEMBER none none x x NOTHING",
    "GEORADIUSBYMEMBER_RO e zero 1 km STOREDIST x",
    "GEOSEARCH e FROMMEMBER zero BYRADIUS 1",
    "GEOSEARCH e FROMMEMBER zero BYRADIUS 1 m BYBOX 1 1 m",
    "geosearch e FROMMEMBER zero ASC DESC WITHDIST",
    "GeoSearch e BYRADIUS 1 m ASC DESC",
    "GEOSEARCH e FROMMEMBER zero FROMLONLAT 1 1 BYRADIUS 1 m",
    "GEOSEARCH e FROMLONLAT 1 1 FROMLONLAT 2 2 BYBOX x 1 m",
    "GEOSEARCH e FROMLONLAT 1 1 BYBOX 1 x m",
    "GEOSEARCH e FROMLONLAT 1 1 BYBOX -1 1 m",
    "GEOSEARCH e FROMLONLAT 1 1 BYBOX 1 1 x",
    "GEOSEARCH e FROMMEMBER none BYRADIUS 1 m",
    "GEOSEARCH none FROMMEMBER none BYRADIUS 1 m",
    "GEOSEARCH e FROMMEMBER zero BYRADIUS 1 m STOREDIST",
    "GEOSEARCH e FROMMEMBER zero BYRADIUS 1 m STORE x",
    "GEOSEARCH e FROMMEMBER zero BYRADIUS inf m ASC WITHDIST",
    "GEOSEARCHSTORE x e FROMMEMBER zero BYRADIUS 1 m WITHHASH",
    "GEOSEARCHSTORE x e FROMMEMBER zero BYRADIUS 1 m ANY",
    "GEOSEARCHSTORE x string FROMMEMBER zero BYRADIUS 1 m",
    "GEOSEARCHSTORE string e FROMMEMBER zero BYRADIUS 0 m",
    "ZRANGE string 0 -1 WITHSCORES",
    "GEOSEARCHSTORE string none FROMMEMBER zero BYRADIUS 0 m",
    "EXISTS string",
    "COMMAND GETKEYS GEORADIUS e 1 1 1 m STORE a STOREDIST b",
    "COMMAND GETKEYS GEOSEARCHSTORE a b FROMMEMBER zero BYRADIUS 0 m",
    "COMMAND GETKEYS GEORADIUSBYMEMBER_RO e zero 1 km",
];

struct Choice(fastrand::Rng);

impl Choice {
    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.0.usize(..all.len())]
    }

    /// Anywhere, near a pole or the line where days begin, or near one place.
    fn place(&mut self) -> String {
        let near = |all: &mut fastrand::Rng, far: f64| (all.f64() - 0.5) * far;
        let random = &mut self.0;
        let (longitude, latitude) = match random.u8(..4) {
            0 => (near(random, 360.0), near(random, 170.1)),
            1 => (near(random, 360.0), if random.bool() { 84.9 } else { -84.9 }),
            2 => ((180.0 - random.f64()) * if random.bool() { 1.0 } else { -1.0 }, 10.0),
            _ => (13.4 + near(random, 0.3), 52.5 + near(random, 0.3)),
        };
        format!("{longitude} {latitude}")
    }

    fn far(&mut self) -> String {
        let far = self.0.f64() * 10_f64.powi(self.0.i32(-1..8));
        if self.0.u8(..20) == 0 { "0".to_owned() } else { far.to_string() }
    }

    fn key(&mut self) -> String {
        format!("g{}", self.0.u8(..3))
    }

    fn member(&mut self) -> String {
        format!("m{}", self.0.u16(..1500))
    }

    fn shape(&mut self) -> String {
        let unit = self.of(&["m", "KM", "mi", "ft", "km", "km"]).to_owned();
        match self.0.bool() {
            true => format!("BYRADIUS {} {unit}", self.far()),
            false => format!("BYBOX {} {} {unit}", self.far(), self.far()),
        }
    }

    fn center(&mut self) -> String {
        match self.0.bool() {
            true => format!("FROMMEMBER {}", self.member()),
            false => format!("FROMLONLAT {}", self.place()),
        }
    }

    /// Options of an order, and of a number.
    fn order(&mut self) -> String {
        let mut options = String::new();
        options += self.of(&["", " ASC", " DESC", " asc"]);
        if self.0.bool() {
            options += &format!(" COUNT {}", self.0.u8(1..40));
            options += self.of(&["", "", " ANY"]);
        }
        options
    }

    fn with(&mut self) -> String {
        ["WITHDIST", "withhash", "WITHCOORD"]
            .into_iter()
            .filter(|_| self.0.bool())
            .fold(String::new(), |all, one| format!("{all} {one}"))
    }

    fn command(&mut self) -> String {
        let (key, member, other) = (self.key(), self.member(), self.member());
        let unit = self.of(&["m", "km", "ft", "mi"]).to_owned();
        let (order, with) = (self.order(), self.with());
        match self.0.u8(..20) {
            0..6 => {
                let options = self.of(&["", "", "NX ", "XX ", "CH ", "XX CH "]);
                let mut line = format!("GEOADD {key} {options}").trim_end().to_owned();
                for _ in 0..self.0.usize(1..5) {
                    line += &format!(" {} {}", self.place(), self.member());
                }
                line
            }
            6 => format!("GEODIST {key} {member} {other} {unit}"),
            7 => format!("GEOPOS {key} {member} {other}"),
            8 => format!("GEOHASH {key} {member} {other}"),
            9 => format!("GEORADIUS {key} {} {} {unit}{with}{order}", self.place(), self.far()),
            10 => format!("GEORADIUSBYMEMBER {key} {member} {} {unit}{with}{order}", self.far()),
            11 => format!("GEORADIUSBYMEMBER_RO {key} {member} {} {unit}{order}", self.far()),
            12 => {
                let store = self.of(&["STORE", "STOREDIST"]).to_owned();
                format!("GEORADIUS {key} {} {} {unit}{order} {store} r", self.place(), self.far())
            }
            13 => {
                let (center, shape) = (self.center(), self.shape());
                let store = self.of(&["", " STOREDIST"]);
                format!("GEOSEARCHSTORE s {key} {center} {shape}{order}{store}")
            }
            14 => format!("ZREM {key} {member} {other}"),
            15 => self.of(&["ZRANGE r 0 -1 WITHSCORES", "ZRANGE s 0 -1 WITHSCORES"]).to_owned(),
            _ => {
                let (center, shape) = (self.center(), self.shape());
                format!("GEOSEARCH {key} {center} {shape}{order}{with}")
            }
        }
    }
}

#[test]
fn places_distances_and_searches_are_those_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Served::redis(directory.path()) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path(), "");
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let mut choice = Choice(fastrand::Rng::with_seed(34));
    // So many that the first of the sets is large.
    for n in 0..1500 {
        let line = format!("GEOADD g0 {} m{n}", choice.place());
        assert_eq!(ours.say(&line), theirs.say(&line), "{line}");
    }
    let (mut found, mut refused) = (0, 0);
    for protocol in ["2", "3"] {
        ours.say(&format!("HELLO {protocol}"));
        theirs.say(&format!("HELLO {protocol}"));
        for line in LINES {
            assert_eq!(ours.say(line), theirs.say(line), "RESP{protocol}: {line}");
        }
        for round in 0..3000 {
            let line = choice.command();
            let (mine, their) = (ours.say(&line), theirs.say(&line));
            assert_eq!(mine, their, "RESP{protocol}, round {round}: {line}");
            found += usize::from(matches!(&mine, Value::List(all) if all.len() > 3));
            refused += usize::from(matches!(mine, Value::Error(_)));
        }
    }
    assert!(found > 500 && refused < 1500, "{found} found something, {refused} were refused");
    for client in [&mut ours, &mut theirs] {
        client.say("HELLO 2");
    }
    assert!(contents(&mut ours) == contents(&mut theirs));
    drop(server);
    assert_sound(directory.path());
}

#[test]
fn replicas_of_both_kinds_have_the_same_places() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (our_port, their_port) = (free_port(), free_port());
    let Some(redis) = Served::redis_at(other.path(), their_port, &[]) else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let server = server(directory.path(), &format!("port {our_port}\n"));
    let (mut ours, mut theirs) = (server.connect(), redis.connect());
    let write = |client: &mut Client, ties: bool| {
        let mut choice = Choice(fastrand::Rng::with_seed(7));
        for _ in 0..600 {
            client.say(&choice.command());
        }
        // Of those at one distance each server keeps others, and Redis does not say which.
        for n in 0..if ties { 70 } else { 3 } {
            client.say(&format!("GEOADD tie 10 10 t{n}"));
        }
        client.say("GEOSEARCHSTORE kept tie FROMLONLAT 10 10 BYRADIUS 1 km COUNT 3");
        client.say("GEORADIUS tie 10 10 1 km COUNT 5 STOREDIST kept_too");
        client.say("SET gone 1");
        client.say("GEOSEARCHSTORE gone tie FROMLONLAT 80 10 BYRADIUS 1 km COUNT 3");
        assert_eq!(client.say("SET last 1"), text("OK"));
    };
    let compare = |from: &mut Client, to: &mut Client, port: u16, ties: bool| {
        from.say("FLUSHALL");
        assert_eq!(to.say(&format!("REPLICAOF 127.0.0.1 {port}")), text("OK"));
        write(from, ties);
        wait_for("the last key", || to.say("GET last") == text("1"));
        let (one, two) = (contents(from), contents(to));
        assert!(one == two && one.len() > 3, "port {port}: {one:?}\n{two:?}");
        to.say("REPLICAOF NO ONE");
    };
    compare(&mut ours, &mut theirs, our_port, true);
    compare(&mut theirs, &mut ours, their_port, false);
}
