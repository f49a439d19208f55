//! Places: members of a sorted set whose scores are places on the earth. What a score is, and how
//! far two are apart, is in `geohash.rs`.

use super::super::arguments::{integer_or_refusal, print_score};
use super::super::{Arguments, Context, Done, Refusal, SYNTAX, word};
use super::geohash::{Place, Shape};
use super::{NOT_A_FLOAT, Options, add, range, sorted};
use crate::keyspace::{Found, Scored, order};
use crate::number::float;

const NO_PLACE: Refusal = Refusal::Said("ERR could not decode requested zset member");
/// Members that are read at once.
const AT_ONCE: u64 = 512;

/// Longitude and latitude.
fn place(args: &Arguments<'_>) -> Result<Place, Refusal> {
    let longitude = float(args[0]).ok_or(NOT_A_FLOAT)?;
    let latitude = float(args[1]).ok_or(NOT_A_FLOAT)?;
    let place = Place { longitude, latitude };
    if !place.is_on_map() {
        return Err(Refusal::Words(format!(
            "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
        )));
    }
    Ok(place)
}

/// The meters of a unit.
fn unit(argument: &[u8]) -> Result<f64, Refusal> {
    match word(argument).as_str() {
        "m" => Ok(1.0),
        "km" => Ok(1000.0),
        "ft" => Ok(0.3048),
        "mi" => Ok(1609.34),
        _ => Err(Refusal::Said("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// `radius unit`: the circle, and the meters of the unit.
fn circle(args: &Arguments<'_>) -> Result<(Shape, f64), Refusal> {
    let radius = float(args[0]).ok_or(Refusal::Said("ERR need numeric radius"))?;
    if radius < 0.0 {
        return Err(Refusal::Said("ERR radius cannot be negative"));
    }
    let meters = unit(args[1])?;
    Ok((Shape::Circle(radius * meters), meters))
}

/// `width height unit`.
fn rectangle(args: &Arguments<'_>) -> Result<(Shape, f64), Refusal> {
    let width = float(args[0]).ok_or(Refusal::Said("ERR need numeric width"))?;
    let height = float(args[1]).ok_or(Refusal::Said("ERR need numeric height"))?;
    if width < 0.0 || height < 0.0 {
        return Err(Refusal::Said("ERR height or width cannot be negative"));
    }
    let meters = unit(args[2])?;
    Ok((Shape::Box { width: width * meters, height: height * meters }, meters))
}

pub(crate) fn geoadd(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let mut options = Options::default();
    let mut at = 2;
    while let Some(option) = args.get(at) {
        match word(option).as_str() {
            "nx" => options.only_new = true,
            "xx" => options.only_old = true,
            "ch" => options.count_changed = true,
            _ => break,
        }
        at += 1;
    }
    let places = args[at..].chunks_exact(3);
    if !places.remainder().is_empty() || options.only_new && options.only_old {
        return Err(SYNTAX);
    }
    let mut scored = Vec::new();
    for one in places {
        scored.push((place(&one[..2])?.score().to_string(), one[2]));
    }
    let pairs: Vec<&[u8]> =
        scored.iter().flat_map(|(score, member)| [score.as_bytes(), *member]).collect();
    add(context, args[1], &pairs, &options)?;
    if context.keys.feeds() {
        // As in Redis: what replicas get needs no arithmetic.
        let words = [&b"ZADD"[..]].into_iter().chain(args[1..at].iter().copied()).chain(pairs);
        context.shared.instead = Some(words.map(<[u8]>::to_vec).collect());
    }
    Ok(())
}

/// The place of a member.
fn place_of(context: &Context<'_>, found: Option<&Found>, member: &[u8]) -> Option<Place> {
    found.and_then(|found| context.keys.score(found, member)).map(Place::of_score)
}

fn reply_distance(context: &mut Context<'_>, distance: f64) {
    let digits = (distance * 10_000.0).round_ties_even() as u64;
    context.reply.bulk(format!("{}.{:04}", digits / 10_000, digits % 10_000).as_bytes());
}

fn reply_place(context: &mut Context<'_>, place: Place) {
    context.reply.list(2);
    context.reply.coordinate(place.longitude);
    context.reply.coordinate(place.latitude);
}

pub(crate) fn geodist(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let meters = match args.get(4) {
        Some(_) if args.len() > 5 => return Err(SYNTAX),
        Some(name) => unit(name)?,
        None => 1.0,
    };
    let found = sorted(context, args[1])?;
    let [one, other] = [args[2], args[3]].map(|member| place_of(context, found.as_ref(), member));
    match one.zip(other) {
        Some((one, other)) => reply_distance(context, one.distance(other) / meters),
        None => context.reply.null(),
    }
    Ok(())
}

pub(crate) fn geohash(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = sorted(context, args[1])?;
    context.reply.list(args.len() - 2);
    for member in &args[2..] {
        let hash = place_of(context, found.as_ref(), member).map(Place::geohash);
        context.reply.bulk_or_null(hash.as_ref().map(String::as_bytes));
    }
    Ok(())
}

pub(crate) fn geopos(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = sorted(context, args[1])?;
    context.reply.list(args.len() - 2);
    for member in &args[2..] {
        match place_of(context, found.as_ref(), member) {
            Some(place) => reply_place(context, place),
            None => context.reply.null_list(),
        }
    }
    Ok(())
}

/// Which command searches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Radius { may_store: bool },
    Search,
    Store,
}

/// What a command looks for, and what it makes of it.
struct Asked<'a> {
    center: Option<Place>,
    /// The shape, and the meters of its unit.
    shape: Option<(Shape, f64)>,
    distances: bool,
    hashes: bool,
    places: bool,
    any: bool,
    descending: Option<bool>,
    /// 0: all.
    count: u64,
    store: Option<&'a [u8]>,
    store_distance: bool,
}

/// A member that was found.
struct Hit {
    member: Vec<u8>,
    score: f64,
    place: Place,
    distance: f64,
}

impl<'a> Asked<'a> {
    fn new(center: Option<Place>, shape: Option<(Shape, f64)>) -> Asked<'a> {
        Asked {
            center,
            shape,
            distances: false,
            hashes: false,
            places: false,
            any: false,
            descending: None,
            count: 0,
            store: None,
            store_distance: false,
        }
    }

    /// Reads the options. Without a sorted set a member's place is any.
    fn read(
        &mut self,
        context: &Context<'_>,
        found: Option<&Found>,
        by: Command,
        mut options: &'a Arguments<'a>,
    ) -> Result<(), Refusal> {
        let (searches, may_store) = match by {
            Command::Radius { may_store } => (false, may_store),
            Command::Search | Command::Store => (true, false),
        };
        let [mut from_member, mut from_place, mut by_circle, mut by_box] = [false; 4];
        while let Some((option, rest)) = options.split_first() {
            let mut takes = 0;
            match (word(option).as_str(), rest.len()) {
                ("withdist", _) => self.distances = true,
                ("withhash", _) => self.hashes = true,
                ("withcoord", _) => self.places = true,
                ("any", _) => self.any = true,
                ("asc", _) => self.descending = Some(false),
                ("desc", _) => self.descending = Some(true),
                ("count", 1..) => {
                    let count = integer_or_refusal(rest[0])?;
                    self.count = u64::try_from(count)
                        .ok()
                        .filter(|count| *count > 0)
                        .ok_or(Refusal::Said("ERR COUNT must be > 0"))?;
                    takes = 1;
                }
                (how @ ("store" | "storedist"), 1..) if may_store => {
                    (self.store, self.store_distance) = (Some(rest[0]), how == "storedist");
                    takes = 1;
                }
                ("storedist", _) if by == Command::Store => self.store_distance = true,
                ("frommember", 1..) if searches && !from_place => {
                    let place = match found {
                        Some(_) => place_of(context, found, rest[0]).ok_or(NO_PLACE)?,
                        None => Place::default(),
                    };
                    (self.center, from_member, takes) = (Some(place), true, 1);
                }
                ("fromlonlat", 2..) if searches && !from_member => {
                    (self.center, from_place, takes) = (Some(place(rest)?), true, 2);
                }
                ("byradius", 2..) if searches && !by_box => {
                    (self.shape, by_circle, takes) = (Some(circle(rest)?), true, 2);
                }
                ("bybox", 3..) if searches && !by_circle => {
                    (self.shape, by_box, takes) = (Some(rectangle(rest)?), true, 3);
                }
                _ => return Err(SYNTAX),
            }
            options = &rest[takes..];
        }
        Ok(())
    }

    /// What cannot be together, or must be there.
    fn check(&self, by: Command, name: &[u8]) -> Done {
        let name = String::from_utf8_lossy(name);
        if self.store.is_some() && (self.distances || self.hashes || self.places) {
            let what = match by {
                Command::Store => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(Refusal::Words(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let searches = !matches!(by, Command::Radius { .. });
        if searches && self.center.is_none() {
            return Err(Refusal::Words(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if searches && self.shape.is_none() {
            return Err(Refusal::Words(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if self.any && self.count == 0 {
            return Err(Refusal::Said("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// Members that are within, at most so many if any will do.
    fn hits(&self, context: &Context<'_>, found: &Found, center: Place, shape: Shape) -> Vec<Hit> {
        let most = if self.any { self.count } else { u64::MAX };
        let mut hits = Vec::new();
        for (first, behind) in shape.ranges(center) {
            let mut from = context.keys.rank(found, |_, score| score < first);
            let to = context.keys.rank(found, |_, score| score < behind);
            while from < to {
                let members = context.keys.scored(found, from, to.min(from + AT_ONCE));
                if members.is_empty() {
                    break;
                }
                from += members.len() as u64;
                for (member, score) in members {
                    if hits.len() as u64 >= most {
                        return hits;
                    }
                    let place = Place::of_score(score);
                    if let Some(distance) = shape.distance_within(center, place) {
                        hits.push(Hit { member, score, place, distance });
                    }
                }
            }
        }
        hits
    }

    /// Those that are wanted, in the order in which they are wanted.
    fn chosen(&self, mut hits: Vec<Hit>) -> Vec<Hit> {
        // The nearest, unless any will do.
        let nearest = (self.count > 0 && !self.any).then_some(false);
        if let Some(descending) = self.descending.or(nearest) {
            hits.sort_by(|one, other| {
                let order = one.distance.total_cmp(&other.distance);
                if descending { order.reverse() } else { order }
            });
        }
        if self.count > 0 {
            hits.truncate(usize::try_from(self.count).unwrap_or(usize::MAX));
        }
        hits
    }

    fn reply(&self, context: &mut Context<'_>, hits: &[Hit], meters: f64) {
        let more = [self.distances, self.hashes, self.places].into_iter().filter(|one| *one);
        let more = more.count();
        context.reply.list(hits.len());
        for hit in hits {
            if more > 0 {
                context.reply.list(1 + more);
            }
            context.reply.bulk(&hit.member);
            if self.distances {
                reply_distance(context, hit.distance / meters);
            }
            if self.hashes {
                context.reply.integer(hit.score as i64);
            }
            if self.places {
                reply_place(context, hit.place);
            }
        }
    }

    fn store(
        &self,
        context: &mut Context<'_>,
        (key, event): (&[u8], &'static str),
        hits: Vec<Hit>,
        meters: f64,
    ) -> Done {
        let mut members: Vec<Scored> = hits
            .into_iter()
            .map(|hit| {
                (hit.member, if self.store_distance { hit.distance / meters } else { hit.score })
            })
            .collect();
        members.sort_by(|one, other| order((&one.0, one.1), (&other.0, other.1)));
        range::store(context, key, &members, event)?;
        if self.count > 0 && context.keys.feeds() {
            Asked::tell_replicas(context, key, &members);
        }
        Ok(())
    }

    /// Which of several at one distance a COUNT leaves out is this server's choice, and a replica
    /// that is a Redis has another: they are named.
    fn tell_replicas(context: &mut Context<'_>, key: &[u8], members: &[Scored]) {
        let remove = [&b"DEL"[..], key];
        if members.is_empty() {
            context.shared.instead = Some(remove.map(<[u8]>::to_vec).into());
            return;
        }
        context.keys.feed(context.session.db, &remove);
        let pairs = members
            .iter()
            .flat_map(|(name, score)| [print_score(*score).into_bytes(), name.clone()]);
        let words = [b"ZADD".to_vec(), key.to_vec()].into_iter().chain(pairs);
        context.shared.instead = Some(words.collect());
    }
}

/// What is within a shape is told or stored.
fn search<'a>(
    context: &mut Context<'_>,
    found: Option<&Found>,
    mut asked: Asked<'a>,
    by: Command,
    (args, options): (&Arguments<'_>, &'a Arguments<'a>),
) -> Done {
    asked.read(context, found, by, options)?;
    asked.check(by, args[0])?;
    let (hits, meters) = match (found, asked.center, asked.shape) {
        (Some(found), Some(center), Some((shape, meters))) => {
            (asked.chosen(asked.hits(context, found, center, shape)), meters)
        }
        _ => (Vec::new(), 1.0),
    };
    match asked.store {
        Some(key) => {
            let event = match by {
                Command::Radius { .. } => "georadiusstore",
                _ => "geosearchstore",
            };
            asked.store(context, (key, event), hits, meters)
        }
        None => {
            asked.reply(context, &hits, meters);
            Ok(())
        }
    }
}

fn radius(context: &mut Context<'_>, args: &Arguments<'_>, may_store: bool) -> Done {
    let found = sorted(context, args[1])?;
    let center = place(&args[2..])?;
    let asked = Asked::new(Some(center), Some(circle(&args[4..])?));
    search(context, found.as_ref(), asked, Command::Radius { may_store }, (args, &args[6..]))
}

fn radius_by_member(context: &mut Context<'_>, args: &Arguments<'_>, may_store: bool) -> Done {
    let found = sorted(context, args[1])?;
    let asked = match &found {
        Some(_) => {
            let center = place_of(context, found.as_ref(), args[2]).ok_or(NO_PLACE)?;
            Asked::new(Some(center), Some(circle(&args[3..])?))
        }
        None => Asked::new(None, None),
    };
    search(context, found.as_ref(), asked, Command::Radius { may_store }, (args, &args[5..]))
}

pub(crate) fn georadius(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    radius(context, args, true)
}

pub(crate) fn georadius_ro(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    radius(context, args, false)
}

pub(crate) fn georadiusbymember(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    radius_by_member(context, args, true)
}

pub(crate) fn georadiusbymember_ro(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    radius_by_member(context, args, false)
}

pub(crate) fn geosearch(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = sorted(context, args[1])?;
    search(context, found.as_ref(), Asked::new(None, None), Command::Search, (args, &args[2..]))
}

pub(crate) fn geosearchstore(context: &mut Context<'_>, args: &Arguments<'_>) -> Done {
    let found = sorted(context, args[2])?;
    let asked = Asked { store: Some(args[1]), ..Asked::new(None, None) };
    search(context, found.as_ref(), asked, Command::Store, (args, &args[3..]))
}
