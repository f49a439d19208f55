//! Runs a script on simulated memory, stops it everywhere, and looks at what a power cut leaves.
//!
//! A script is a list of batches; a batch is a list of commands that one commit makes durable. What
//! may be found at a cut is the contents after the batches that were acknowledged, or those after
//! the one that was under way: nothing between, nothing older, nothing lost in the heap. What is
//! found must also carry on: the rest of the script gives what it gave without the cut.

use tiersmith_kv::check::check;
use tiersmith_kv::planted::Planted;
use tiersmith_kv::testing::{Contents, Local};
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{Event, Simulator};

/// A batch: command lines, words parted by spaces; `*N` at a word's end repeats it N times; `!tidy`
/// does what the server does between batches.
pub(crate) type Batch = Vec<String>;

pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) units: u64,
    /// Batches that come before the recording.
    pub(crate) before: Vec<Batch>,
    pub(crate) batches: Vec<Batch>,
}

pub(crate) const LOG_BYTES: u64 = 4096;

pub(crate) fn batch(lines: &[&str]) -> Batch {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

fn word(text: &str) -> Vec<u8> {
    match text.rsplit_once('*').and_then(|(part, times)| Some((part, times.parse().ok()?))) {
        Some((part, times)) if !part.is_empty() => part.repeat(times).into_bytes(),
        _ => text.as_bytes().to_vec(),
    }
}

pub(crate) fn play(local: &mut Local, batch: &Batch) {
    for line in batch {
        if line == "!tidy" {
            local.tidy();
            continue;
        }
        let words: Vec<Vec<u8>> = line.split(' ').map(word).collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        local.run(&words);
    }
}

/// Explores a script; the first violation, if there is one, and how many images were looked at.
pub(crate) fn explore(
    script: &Script,
    planted: Planted,
    images_per_cut: usize,
) -> Result<usize, String> {
    // A tier draws the seed of its hashes: the same in each run, so that what is found is found
    // again.
    fastrand::seed(2);
    let simulator = Simulator::new();
    let len = 16384 + 2 * LOG_BYTES + 65536 + script.units * (65536 + 8);
    let map = simulator.mapping(vec![0; len.next_multiple_of(4096) as usize], 0);
    let mut local = Local::create(map, LOG_BYTES, planted).unwrap();
    for batch in &script.before {
        play(&mut local, batch);
        local.commit();
    }
    simulator.rebase();
    let mut states = vec![local.contents()];
    for (number, batch) in (1..).zip(&script.batches) {
        play(&mut local, batch);
        local.commit();
        simulator.mark(number);
        states.push(local.contents());
    }
    drop(local);
    let trace = simulator.trace();
    let mut player = trace.player();
    let mut looked_at = 0;
    for cut in trace.cut_points() {
        let mut acked = 0;
        for event in trace.events().take(cut) {
            if let Event::Mark(number) = event {
                acked = *number as usize;
            }
        }
        player.advance_to(cut);
        let mut buffer = player.buffer();
        for choice in player.images(images_per_cut, cut as u64) {
            let image = &player.image(&choice, &mut buffer)[0];
            looked_at += 1;
            look(script, image, &states, acked, planted).map_err(|why| {
                format!("{}: cut {cut}, {acked} acknowledged: {why}", script.name)
            })?;
        }
    }
    Ok(looked_at)
}

fn look(
    script: &Script,
    image: &[u8],
    states: &[Contents],
    acked: usize,
    planted: Planted,
) -> Result<(), String> {
    let map = Mapping::in_memory(image, 0);
    let report = check(&map).map_err(|e| e.to_string())?;
    if !report.is_sound() {
        return Err(format!("{report}"));
    }
    let mut local = Local::open(map, planted).map_err(|e| e.to_string())?;
    let found = local.contents();
    let state = (acked..=acked + 1)
        .find(|state| states.get(*state) == Some(&found))
        .ok_or_else(|| differences(&found, states.get(acked), states.get(acked + 1)))?;
    sound(&local, "after recovery")?;
    // The batch that was under way is sent again and not finished: it must not come to count.
    if let Some(batch) = script.batches.get(state) {
        let before = local.keys().heap().commits();
        play(&mut local, batch);
        if local.keys().heap().commits() == before {
            let again = Local::open(Mapping::in_memory(&local.image(), 0), planted);
            if again.map_err(|e| e.to_string())?.contents() != found {
                return Err("a batch that was never committed counts after a second crash".into());
            }
        }
        local.commit();
        if states.get(state + 1) != Some(&local.contents()) {
            return Err("the batch gives something else when it is sent again".into());
        }
        sound(&local, "after going on")?;
    }
    Ok(())
}

fn sound(local: &Local, when: &str) -> Result<(), String> {
    let report = check(&Mapping::in_memory(&local.image(), 0)).map_err(|e| e.to_string())?;
    if report.is_sound() { Ok(()) } else { Err(format!("{when}: {report}")) }
}

fn differences(found: &Contents, old: Option<&Contents>, new: Option<&Contents>) -> String {
    let short = |contents: Option<&Contents>| match contents {
        None => "nothing".to_owned(),
        Some(contents) => contents
            .iter()
            .map(|((db, key), (value, at))| {
                let value = String::from_utf8_lossy(&value[..value.len().min(12)]).into_owned();
                format!("{db}:{}={value} {at:?}", String::from_utf8_lossy(key))
            })
            .take(12)
            .collect::<Vec<_>>()
            .join(", "),
    };
    format!("found {}; old {}; new {}", short(Some(found)), short(old), short(new))
}
