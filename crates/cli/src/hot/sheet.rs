//! Hot files as text.

use super::{Advice, By, Object, Over};
use crate::messages;
use crate::mounted::{LiveHot, size};

/// Characters of a name that a line has room for.
const NAME_SHOWN: usize = 38;

/// A table of the first `top` objects, what could not be named, and what to do.
pub(crate) fn text(
    hot: &LiveHot,
    objects: &[Object],
    top: usize,
    (by, over): (By, Over),
    (troubles, advice): (&[String], &Advice),
) -> String {
    let home = messages::path(&hot.home);
    let mut out = format!("{home}: hot files, by {}, rates a second\n", words(by));
    if hot.emulated {
        out.push_str("  EMULATED: the tier stands for persistent memory\n");
    }
    if let Some(model) = &hot.home_model {
        let model = messages::line(model);
        out.push_str(&format!(
            "  MODELLED: home is delayed as {model} would be; for studies only\n"
        ));
    }
    let half_lives = "an event counts half after a minute (1m) or an hour (1h)";
    out.push_str(&format!("  known for {:.0} s; {half_lives}\n", hot.known_s));
    let us = |us: Option<f64>| us.map_or("not measured".to_owned(), |us| format!("{us:.0} us"));
    out.push_str(&format!(
        "  a block takes {} from home and {} from the tier\n\n",
        us(hot.home_read_us[over.place()]),
        us(hot.tier_read_us[over.place()])
    ));
    if !objects.is_empty() {
        out.push_str(&table(hot, objects, top, over));
    }
    for trouble in troubles {
        out.push_str(&format!("  NOT NAMED: {}\n", messages::line(trouble)));
    }
    out.push('\n');
    if !advice.pins.is_empty() {
        out.push_str(&pins(hot, advice, over));
    }
    for why in &advice.why {
        out.push_str(&format!("  {}\n", messages::line(why)));
    }
    out
}

fn table(hot: &LiveHot, objects: &[Object], top: usize, over: Over) -> String {
    let mut out = format!(
        "  {:<NAME_SHOWN$} {:<9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>9} {:>8} {:>9}\n",
        "name",
        "what",
        "reads 1m",
        "1h",
        "miss 1m",
        "1h",
        "write 1h",
        "hit %",
        "size",
        "in tier",
        "saves"
    );
    for object in objects.iter().take(top) {
        out.push_str(&line(object, over));
    }
    let more = objects.len().saturating_sub(top) as u64 + hot.files_left_out;
    if more > 0 {
        out.push_str(&format!("  and {more} more (--top)\n"));
    }
    out.push_str(
        "  saves: milliseconds of waiting for home a second that a pin would save at least\n",
    );
    if objects.iter().any(|object| object.relation.is_some()) {
        out.push_str(
            "  size, in tier and a pin of a relation are of its files that were read or \
             written; the others are cold\n",
        );
    }
    out
}

/// The commands that pin what is worth it.
fn pins(hot: &LiveHot, advice: &Advice, over: Over) -> String {
    let bytes: u64 = advice.pins.iter().map(|pin| pin.bytes).sum();
    let saves: Option<f64> = advice.pins.iter().map(|pin| pin.saves_ms_per_s).sum();
    let saves =
        saves.map_or(String::new(), |saves| format!(", {} ms of waiting a second", rate(saves)));
    let mut out = format!("  to pin what is worth it ({}{saves}):\n", size(bytes));
    for pin in &advice.pins {
        out.push_str(&format!(
            "    {}\n      # {}: {}, {} misses a second\n",
            messages::line(&pin.command),
            messages::line(&pin.name),
            size_of(pin),
            rate(pin.misses_per_s)
        ));
    }
    let half_life = hot.half_lives_s[over.place()];
    if hot.known_s < half_life {
        out.push_str(&format!(
            "  these rates are of {:.0} s only: look again when the load has run for longer\n",
            hot.known_s
        ));
    }
    out
}

/// How much a pin is, and of how many files if not of one.
fn size_of(pin: &super::advice::Advised) -> String {
    match pin.files {
        1 => size(pin.bytes),
        files => format!("{} of {files} files", size(pin.bytes)),
    }
}

fn words(by: By) -> &'static str {
    match by {
        By::Saved => "what a pin would save",
        By::Reads => "blocks read",
        By::Misses => "blocks read from home",
        By::Writes => "blocks written",
        By::Bytes => "bytes read and written",
    }
}

fn line(object: &Object, over: Over) -> String {
    let rates = object.rates(over);
    let ratio = match rates.reads() {
        0.0 => "-".to_owned(),
        reads => format!("{:.1}", 100.0 * rates.hits / reads),
    };
    let in_tier = match object.size {
        _ if object.pinned => "pinned".to_owned(),
        0 => "-".to_owned(),
        size => format!("{:.0} %", (100.0 * object.in_tier_bytes as f64 / size as f64).min(100.0)),
    };
    format!(
        "  {:<NAME_SHOWN$} {:<9} {:>8} {:>8} {:>8} {:>8} {:>8} {ratio:>6} {:>9} {in_tier:>8} \
         {:>9}\n",
        shown(object),
        object.kind.chars().take(9).collect::<String>(),
        rate(object.minute.reads()),
        rate(object.hour.reads()),
        rate(object.minute.misses),
        rate(object.hour.misses),
        rate(object.hour.writes),
        size(object.size),
        object.saves_ms_per_s.map_or("-".to_owned(), rate),
    )
}

/// A rate in as few characters as tell it.
fn rate(rate: f64) -> String {
    match rate {
        _ if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        _ if rate >= 100.0 => format!("{rate:.0}"),
        _ if rate >= 10.0 => format!("{rate:.1}"),
        _ => format!("{rate:.2}"),
    }
}

/// As much as a line has room for: of a path its end, of a name its beginning.
fn shown(object: &Object) -> String {
    let name = messages::line(&object.name);
    let long = name.chars().count();
    if long <= NAME_SHOWN {
        return name;
    }
    match object.kind.as_str() {
        "file" => "...".chars().chain(name.chars().skip(long + 3 - NAME_SHOWN)).collect(),
        _ => name.chars().take(NAME_SHOWN - 3).chain("...".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{file, home};
    use super::super::{By, objects, sort};
    use super::*;
    use crate::mounted::HotFile;

    #[test]
    fn the_table_lines_up_and_says_what_to_pin_and_of_how_much_time_that_is() {
        let long = format!("base/5/{}", "1".repeat(60));
        let mut hot = home("postgres", vec![file(&long, 1e6, 12.0), file("base/5/2", 0.0, 0.0)]);
        hot.known_s = 90.0;
        let mut all = objects(&hot, true, Over::Hour);
        sort(&mut all, By::Saved, Over::Hour);
        let advice = Advice::of(&hot, &all, Over::Hour);
        let troubles = ["the server does not answer".to_owned()];
        let said = text(&hot, &all, 1, (By::Saved, Over::Hour), (&troubles, &advice));
        let table: Vec<&str> = said.lines().skip(5).take(2).collect();
        assert!(table[0].starts_with("  name") && table[1].starts_with("  ...1"), "{said}");
        assert_eq!(table[0].chars().count(), table[1].chars().count(), "{said}");
        for words in [
            "EMULATED",
            "1010 us from home and 10 us",
            "and 1 more",
            "NOT NAMED: the server does not answer",
            "tiersmith pin /srv/db base/5/1",
            "of 90 s only",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn a_name_that_somebody_else_chose_stays_in_its_line() {
        for bad in ["\n", "\t", "\x1b", "\r", "\u{85}"] {
            let evil = format!("x{bad}    tiersmith detach /srv/db");
            let files = vec![
                file(&format!("base/5/{evil}"), 1.0, 50.0),
                HotFile { size: 200 << 20, ..file("base/5/3", 0.0, 80.0) },
                file("base/5/2", 0.0, 50.0),
            ];
            let mut hot = home("postgres", files);
            hot.home_model = Some(evil.clone());
            let mut all = objects(&hot, true, Over::Hour);
            // As a server gives them.
            for object in &mut all[1..] {
                object.name = evil.clone();
            }
            let plain = |name: &str| {
                let mut all = all.clone();
                all.iter_mut().for_each(|object| object.name = name.into());
                all
            };
            let said = |all: &[Object]| {
                let advice = Advice::of(&hot, all, Over::Hour);
                text(&hot, all, 9, (By::Saved, Over::Hour), (std::slice::from_ref(&evil), &advice))
            };
            let (shown, harmless) = (said(&all), said(&plain("x")));
            assert!(!shown.contains(bad) || bad == "\n", "{bad:?}: {shown:?}");
            assert_eq!(shown.lines().count(), harmless.lines().count(), "{shown}");
            let command = |line: &&str| line.trim_start().starts_with("tiersmith ");
            let commands: Vec<&str> = shown.lines().filter(command).collect();
            assert_eq!(commands, ["    tiersmith pin /srv/db base/5/2"], "{shown}");
            hot.home = format!("/srv/{evil}").into();
            let advice = Advice::of(&hot, &all, Over::Hour);
            let shown = text(&hot, &all, 9, (By::Saved, Over::Hour), (&[], &advice));
            assert!(!shown.lines().any(|line| command(&line)), "{shown}");
        }
    }
}
