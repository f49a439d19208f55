//! What to pin, if anything: the files whose misses cost most and that fit, as long as the room
//! that they take is worth less to others.
//!
//! A pin is worth it when
//!
//! 1. a read from home takes longer than one from the tier, as far as that was measured,
//! 2. the misses that it would spare are at least [`SHARE_LEAST`] of all and cost at least
//!    [`SAVES_LEAST_MS_PER_S`], or where nothing was measured are [`MISSES_LEAST`] a second,
//! 3. it fits into what pins may take of the tier, with those before it on the list, and
//! 4. it has more misses than the copies have hits that would have to go for it. As many are taken
//!    to be lost as other files' copies have on the average; those that go are the least read.
//!
//! A command is for a shell: none is given for a path that is not plain text, and every name is one
//! line.
//!
//! **Deliberately absent**: what a larger tier would do (`status` has curves for that).

use serde::Serialize;

use super::{Object, Over, miss_costs_us, names};
use crate::messages;
use crate::mounted::{HotTier, LiveHot, size};

/// Of all misses.
const SHARE_LEAST: f64 = 0.01;
/// Milliseconds of waiting a second: a thousandth of one session's time.
const SAVES_LEAST_MS_PER_S: f64 = 1.0;
/// Misses a second.
const MISSES_LEAST: f64 = 1.0;
/// Commands that are given.
const PINS_MOST: usize = 10;

/// A file or relation to pin.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Advised {
    pub(crate) command: String,
    pub(crate) name: String,
    /// How many files the command is of.
    pub(crate) files: u64,
    /// What comes to be pinned.
    pub(crate) bytes: u64,
    pub(crate) misses_per_s: f64,
    pub(crate) saves_ms_per_s: Option<f64>,
}

/// What to do.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Advice {
    pub(crate) pins: Vec<Advised>,
    /// Why not more, or why none.
    pub(crate) why: Vec<String>,
}

/// What is left of a tier while pins are given out.
struct Room<'a> {
    tier: &'a HotTier,
    pinned: u64,
    free: u64,
    /// Hits a second of a byte that others have in the tier.
    hits_per_byte: f64,
}

/// Objects that are not to be pinned although they miss.
#[derive(Default)]
struct LeftOut {
    /// That cost too little.
    little: u64,
    /// That do not fit, as they are named.
    full: Vec<String>,
    /// That would cost others as much.
    displacing: u64,
    /// That have no command.
    odd: u64,
}

impl Advice {
    /// `objects`: the hottest first, by what a pin would save.
    pub(crate) fn of(hot: &LiveHot, objects: &[Object], over: Over) -> Advice {
        if let Some(why) = nothing_to_gain(hot, objects, over) {
            return Advice { pins: Vec::new(), why: vec![why] };
        }
        let mut rooms: Vec<Room<'_>> =
            hot.tiers.iter().map(|tier| Room::of(tier, objects, over)).collect();
        let (pins, left_out) = choose(hot, objects, over, &mut rooms);
        let mut why = left_out.why(&rooms);
        if pins.is_empty() && why.is_empty() {
            let missed =
                |object: &&Object| object.can_be_pinned() && object.rates(over).misses > 0.0;
            let there = objects.iter().filter(missed).filter(|object| object.is_there()).count();
            why.push(little_to_gain(left_out.little, there, miss_costs_us(hot, over).is_some()));
        } else if pins.is_empty() {
            why.insert(0, "no pin that helps fits".into());
        }
        Advice { pins, why }
    }
}

/// Why no pin could help, where it is seen without a look at single files.
fn nothing_to_gain(hot: &LiveHot, objects: &[Object], over: Over) -> Option<String> {
    let reads: f64 = objects.iter().map(|object| object.rates(over).reads()).sum();
    if reads == 0.0 {
        return Some(format!(
            "nothing to gain from a pin: no block was read of the files that the tier knows \
             now, in {:.0} s",
            hot.known_s
        ));
    }
    let place = over.place();
    (miss_costs_us(hot, over) == Some(0.0)).then(|| {
        format!(
            "nothing to gain from a pin: a block from home takes {:.0} us, and one from the \
             tier {:.0} us. The home's file system seems to have these blocks in memory",
            hot.home_read_us[place].unwrap_or_default(),
            hot.tier_read_us[place].unwrap_or_default()
        )
    })
}

/// Gives the rooms to the objects, one after another.
fn choose(
    hot: &LiveHot,
    objects: &[Object],
    over: Over,
    rooms: &mut [Room<'_>],
) -> (Vec<Advised>, LeftOut) {
    let (mut pins, mut left_out) = (Vec::new(), LeftOut::default());
    let all_misses: f64 = objects.iter().map(|object| object.rates(over).misses).sum();
    for object in objects {
        let misses = object.avoidable();
        let enough = object
            .saves_ms_per_s
            .map_or(misses >= MISSES_LEAST, |saves| saves >= SAVES_LEAST_MS_PER_S);
        if misses <= 0.0 {
            continue;
        }
        if !enough || misses < SHARE_LEAST * all_misses {
            left_out.little += 1;
            continue;
        }
        let Some(room) = rooms.iter_mut().find(|room| room.tier.name == object.tier) else {
            continue;
        };
        let bytes = object.loose.size;
        if bytes > room.pins() {
            left_out.full.push(format!("{} ({})", messages::line(&object.name), size(bytes)));
            continue;
        }
        if room.loses(object) >= misses {
            left_out.displacing += 1;
            continue;
        }
        if pins.len() == PINS_MOST {
            break;
        }
        let Some(command) = command(hot, object) else {
            left_out.odd += 1;
            continue;
        };
        room.take(object, bytes);
        pins.push(Advised {
            command,
            name: messages::line(&object.name),
            files: object.files.len() as u64,
            bytes,
            misses_per_s: misses,
            saves_ms_per_s: object.saves_ms_per_s,
        });
    }
    (pins, left_out)
}

impl LeftOut {
    /// What hindered pins that would help.
    fn why(&self, rooms: &[Room<'_>]) -> Vec<String> {
        let mut why = Vec::new();
        if !self.full.is_empty() {
            let room: u64 = rooms.iter().map(Room::pins).sum();
            let more = self.full.len().saturating_sub(3);
            let named = &self.full[..self.full.len() - more];
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            why.push(format!(
                "does not fit into the {} that pins may still take: {}{more}",
                size(room),
                named.join(", ")
            ));
        }
        if self.displacing > 0 {
            why.push(format!(
                "{} more would drive out copies of other files that are hit as often as \
                 they miss",
                self.displacing
            ));
        }
        if self.odd > 0 {
            why.push(format!(
                "no command is given for {} that would help: the path of the home or of its \
                 files has characters that are no plain text",
                self.odd
            ));
        }
        why
    }
}

/// Why there are no pins, where nothing hindered one. `little`: files that miss and cost too
/// little; `there`: files that missed and are whole in the tier.
fn little_to_gain(little: u64, there: usize, is_measured: bool) -> String {
    match little {
        0 if there > 0 => format!(
            "nothing to gain from a pin: what missed ({there} of the list) is whole in the \
             tier by now, and stays while it is read"
        ),
        0 => "nothing to gain from a pin: no file that can be pinned misses the tier".into(),
        _ => format!(
            "nothing to gain from a pin: no file has {:.0} % of the misses and costs {} \
             by them",
            100.0 * SHARE_LEAST,
            match is_measured {
                true => format!("{SAVES_LEAST_MS_PER_S:.0} ms of waiting a second"),
                false => format!("{MISSES_LEAST:.0} read from home a second"),
            }
        ),
    }
}

/// The command that pins these files; `None` where it could not be copied as it is.
fn command(hot: &LiveHot, object: &Object) -> Option<String> {
    let home = hot.home.display().to_string();
    let is_plain = |text: &str| !text.contains('\u{fffd}') && messages::line(text) == text;
    let plain = is_plain(&home) && object.files.iter().all(|path| is_plain(path));
    let words = || (names::word(&home), names::word(&object.pattern));
    let command = plain.then(words).map(|(home, path)| format!("tiersmith pin {home} {path}"));
    command.filter(|command| is_plain(command))
}

impl<'a> Room<'a> {
    fn of(tier: &'a HotTier, objects: &[Object], over: Over) -> Room<'a> {
        let others = objects.iter().filter(|object| object.tier == tier.name);
        let hits: f64 = others.map(|object| object.loose.hits[over.place()]).sum();
        Room {
            tier,
            pinned: tier.pinned_bytes,
            free: tier.free_bytes,
            hits_per_byte: hits / tier.others_bytes.max(1) as f64,
        }
    }

    /// Bytes that may still be pinned.
    fn pins(&self) -> u64 {
        self.tier.pins_most_bytes.saturating_sub(self.pinned)
    }

    /// Bytes that are not in the tier yet.
    fn comes(object: &Object) -> u64 {
        object.loose.size.saturating_sub(object.loose.in_tier_bytes)
    }

    /// Hits a second that others would lose. Of what is not pinned, the store keeps a quarter free.
    fn loses(&self, object: &Object) -> f64 {
        let pinned = self.pinned.saturating_add(object.loose.size);
        let kept_free = self.tier.usable_bytes.saturating_sub(pinned) / 4;
        let goes = (Room::comes(object) + kept_free).saturating_sub(self.free);
        goes.min(self.tier.others_bytes) as f64 * self.hits_per_byte
    }

    fn take(&mut self, object: &Object, bytes: u64) {
        self.pinned += bytes;
        self.free = self.free.saturating_sub(Room::comes(object));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, file, home};
    use super::super::{By, objects, sort};
    use super::*;
    use crate::mounted::HotFile;

    fn advice(hot: &LiveHot) -> Advice {
        let mut objects = objects(hot, true, Over::Hour);
        sort(&mut objects, By::Saved, Over::Hour);
        Advice::of(hot, &objects, Over::Hour)
    }

    fn pinned(advice: &Advice) -> Vec<&str> {
        advice.pins.iter().map(|pin| pin.name.as_str()).collect()
    }

    fn sized(path: &str, misses: f64, mib: u64) -> HotFile {
        HotFile { size: mib * MIB, ..file(path, 0.0, misses) }
    }

    #[test]
    fn the_hottest_that_fit_are_to_be_pinned_and_what_does_not_fit_is_named() {
        let hot = home(
            "postgres",
            vec![
                sized("base/5/1", 50.0, 20),
                sized("base/5/2", 90.0, 71),
                sized("base/5/3", 40.0, 10),
                sized("base/5/4", 0.5, 1),
                sized("base/5/5", 0.0, 1),
            ],
        );
        let advice = advice(&hot);
        assert_eq!(pinned(&advice), ["base/5/1", "base/5/3"]);
        assert_eq!(advice.pins[0].command, "tiersmith pin /srv/db base/5/1");
        assert_eq!(advice.pins[0].saves_ms_per_s, Some(50.0));
        assert!(advice.why[0].contains("base/5/2 (71M)"), "{:?}", advice.why);
    }

    #[test]
    fn a_pin_that_costs_others_as_many_hits_as_it_saves_is_not_advised() {
        // Beside 55 MiB that are pinned are 25, of which copies get three quarters: of the 40 MiB
        // that there are, with a hundred hits a second, 21.25 go, and 53 of the hits.
        let with = |misses| {
            let cached = HotFile { in_tier_bytes: 40 * MIB, ..file("base/5/9", 100.0, 0.0) };
            home("postgres", vec![sized("base/5/1", misses, 55), cached])
        };
        let too_few = advice(&with(53.0));
        assert!(too_few.pins.is_empty(), "{too_few:?}");
        assert!(too_few.why.iter().any(|why| why.contains("drive out")), "{too_few:?}");
        assert_eq!(pinned(&advice(&with(53.5))), ["base/5/1"]);
    }

    #[test]
    fn where_there_is_nothing_to_gain_it_says_so_and_why() {
        let why = |hot: &LiveHot| {
            let advice = advice(hot);
            assert!(advice.pins.is_empty(), "{advice:?}");
            advice.why.join("; ")
        };
        assert!(why(&home("postgres", vec![])).contains("no block was read"));
        let hits = home("postgres", vec![file("base/5/1", 900.0, 0.0)]);
        assert!(why(&hits).contains("no file that can be pinned misses"));
        let there = HotFile { in_tier_bytes: 8 * MIB, ..file("base/5/1", 900.0, 90.0) };
        let there = home("postgres", vec![there]);
        assert!(why(&there).contains("whole in the tier by now"), "{}", why(&there));
        let few = home("postgres", vec![file("base/5/1", 900.0, 0.9)]);
        assert!(why(&few).contains("no file has 1 %"), "{}", why(&few));
        let mut in_memory = home("postgres", vec![file("base/5/1", 9.0, 9000.0)]);
        in_memory.home_read_us = [Some(9.0); 2];
        assert!(why(&in_memory).contains("in memory"), "{}", why(&in_memory));
        let mut cannot = vec![file("pg_wal/1", 0.0, 99.0), file("base/5/1", 0.0, 99.0)];
        (cannot[0].is_data, cannot[1].pinned) = (false, true);
        assert!(why(&home("postgres", cannot)).contains("no file that can be pinned"));
    }

    #[test]
    fn without_a_measured_read_misses_alone_decide() {
        let mut hot = home("postgres", vec![file("base/5/1", 0.0, 2.0)]);
        hot.home_read_us = [None; 2];
        assert_eq!(pinned(&advice(&hot)), ["base/5/1"]);
        hot.files[0].rates[1].misses = 0.9;
        assert!(advice(&hot).pins.is_empty());
    }

    #[test]
    fn of_a_relation_that_is_pinned_in_part_only_the_rest_has_to_fit() {
        let mut pinned_part = sized("base/5/1", 0.0, 60);
        (pinned_part.pinned, pinned_part.in_tier_bytes) = (true, 60 * MIB);
        let mut hot = home("postgres", vec![pinned_part, sized("base/5/1.1", 50.0, 8)]);
        hot.tiers[0].pinned_bytes = 60 * MIB;
        let advice = advice(&hot);
        assert_eq!(pinned(&advice), ["base/5/1"], "{advice:?}");
        assert_eq!(advice.pins[0].bytes, 8 * MIB);
    }

    #[test]
    fn hits_of_pinned_segments_are_not_what_others_would_lose() {
        // All the hits are of a segment that is pinned: what would go is read by nobody.
        let hits = HotFile { pinned: true, ..file("base/5/1", 1e6, 0.0) };
        let files = vec![hits, file("base/5/1.1", 0.0, 0.1), sized("base/5/2", 40.0, 55)];
        assert_eq!(pinned(&advice(&home("postgres", files))), ["base/5/2"]);
    }

    #[test]
    fn a_file_that_is_nearly_all_in_the_tier_promises_no_more_than_its_rest() {
        let warm = HotFile { in_tier_bytes: 8 * MIB - 8192, ..file("base/5/1", 900.0, 90.0) };
        let warm = advice(&home("postgres", vec![warm]));
        assert!(warm.pins.is_empty(), "{warm:?}");
        // It was read in within the hour, and does not miss now.
        let mut was = file("base/5/1", 900.0, 90.0);
        was.rates[0].misses = 0.0;
        let was = advice(&home("postgres", vec![was]));
        assert!(was.pins.is_empty(), "{was:?}");
    }

    #[test]
    fn no_command_is_given_for_a_path_that_a_terminal_would_read() {
        for bad in ["\n", "\t", "\x1b", "\r", "\u{9b}", "\u{fffd}"] {
            let path = format!("base/5/x{bad}tiersmith detach /srv/db");
            let evil = file(&path, 0.0, 50.0);
            let mut hot = home("postgres", vec![evil, file("base/5/2", 0.0, 50.0)]);
            let told = advice(&hot);
            assert_eq!(pinned(&told), ["base/5/2"], "{told:?}");
            assert!(told.why.iter().any(|why| why.contains("no command")), "{told:?}");
            hot.home = format!("/srv/x{bad}y").into();
            assert!(advice(&hot).pins.is_empty(), "{bad:?}");
        }
    }
}
