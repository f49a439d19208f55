//! The panes: which table shows what, in which order, and what stands there when there is nothing
//! to show.
//!
//! Invariant: sampled figures are marked in a column of their own, emulated media in the title.

use tiersmith_awr::figure;

use super::plain::sessions;
use super::sheet::{Sheet, left, right};
use super::view::{Event, SeenRow, Statement, Tiers, View};

/// Panes by the number of their key, less one.
pub(super) const NAMES: [&str; 6] = ["Events", "Statements", "Files", "Tiers", "Host", "Sessions"];

/// The pane that also says what is missing.
pub(super) const HOST: usize = 4;

/// What each pane can be sorted by; `s` goes to the next.
pub(super) const ORDERS: [&[&str]; 6] = [
    &["time", "average", "rate", "name"],
    &["time", "average", "calls"],
    &["bytes", "requests", "latency"],
    &["name", "value", "change"],
    &["busy", "name"],
    &["time", "name"],
];

/// The tables of a pane.
pub(super) fn sheets(view: &View, pane: usize, order: usize) -> Vec<Sheet> {
    let order = ORDERS[pane][order % ORDERS[pane].len()];
    match pane {
        0 => vec![events(view, order)],
        1 => vec![statements(view, order)],
        2 => {
            // A source that tells its reads by table only has these alone.
            let by_class =
                (!view.io.is_empty() || view.files.is_empty()).then(|| files(view, order));
            let tables = (!view.files.is_empty()).then(|| tables(view, order));
            by_class.into_iter().chain(tables).collect()
        }
        3 => tiers(view, order),
        HOST => vec![host(view, order)],
        _ => seen(view, order),
    }
}

fn optional(value: Option<f64>, print: fn(f64) -> String) -> String {
    value.map_or("-".to_owned(), print)
}

fn descending<T>(rows: &mut [T], key: impl Fn(&T) -> Option<f64>) {
    rows.sort_by(|a, b| key(b).unwrap_or(-1.0).total_cmp(&key(a).unwrap_or(-1.0)));
}

fn events(view: &View, order: &str) -> Sheet {
    let mut rows: Vec<&Event> = view.events.iter().collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    match order {
        "average" => descending(&mut rows, |row| row.mean_ns),
        "rate" => descending(&mut rows, |row| row.waits_per_s),
        "name" => {}
        _ => descending(&mut rows, |row| Some(row.sessions)),
    }
    let sampled = rows.iter().any(|row| row.how == "sampled");
    let mut notes = Vec::new();
    if rows.iter().any(|row| row.inside) {
        notes.push("* lies inside another wait: its time is in that one too".to_owned());
    }
    if rows.iter().any(|row| row.background) {
        notes.push("bg: background work, not in DB time".to_owned());
    }
    if sampled {
        let looks = view.activity.looks.unwrap_or(0);
        notes.push(format!("sampled: {looks} looks, an estimate; its % is of the sessions seen"));
        if let Some(measured) = view.activity.samples_miss {
            notes.push(format!(
                "measured were {} sessions: on a busy machine samples see less; further off than \
                 by chance",
                sessions(measured)
            ));
        }
        if let Some(measured) = view.activity.samples_exceed {
            notes.push(format!(
                "measured were {} sessions: statements that have not ended are not in that yet",
                sessions(measured)
            ));
        }
    }
    if rows.is_empty() {
        notes.push("no waits in this interval, or none that the source tells".to_owned());
    }
    let how =
        |row: &Event| if row.background { format!("{} bg", row.how) } else { row.how.to_owned() };
    Sheet {
        title: format!("Top events by {order}"),
        columns: vec![
            left("Event", 0),
            left("Class", 4),
            right("Waits/s", 3),
            right("Avg wait", 2),
            right("AAS", 1),
            right("% DB", 1),
            left("How", 1),
        ],
        rows: rows
            .iter()
            .map(|row| {
                vec![
                    if row.inside { format!("{} *", row.name) } else { row.name.clone() },
                    row.class.clone(),
                    optional(row.waits_per_s, figure::number),
                    optional(row.mean_ns, figure::nanoseconds),
                    sessions(row.sessions),
                    optional(row.pct, figure::percent),
                    how(row),
                ]
            })
            .collect(),
        notes,
    }
}

fn statements(view: &View, order: &str) -> Sheet {
    let mut rows: Vec<&Statement> = view.statements.iter().collect();
    match order {
        "average" => descending(&mut rows, |row| row.mean_ns),
        "calls" => descending(&mut rows, |row| Some(row.calls_per_s)),
        _ => descending(&mut rows, |row| Some(row.sessions)),
    }
    let mut notes = Vec::new();
    if view.statements_left_out > 0 {
        notes.push(format!(
            "{} could not be followed through the interval",
            view.statements_left_out
        ));
    }
    if rows.is_empty() {
        // The source says itself what would give them.
        let why = view.notes.iter().find(|note| note.contains("statements"));
        notes.push(why.cloned().unwrap_or_else(|| {
            "no statements in this interval, or none that the source tells".to_owned()
        }));
    }
    let text =
        |row: &Statement| if row.text.is_empty() { row.id.clone() } else { row.text.clone() };
    Sheet {
        title: format!("Top statements by {order}"),
        columns: vec![
            right("AAS", 1),
            right("% DB", 1),
            right("Calls/s", 2),
            right("Average", 1),
            right("Rows/call", 4),
            right("Hit %", 3),
            left("Statement", 0),
        ],
        rows: rows
            .iter()
            .map(|row| {
                vec![
                    sessions(row.sessions),
                    optional(row.pct, figure::percent),
                    figure::number(row.calls_per_s),
                    optional(row.mean_ns, figure::nanoseconds),
                    optional(row.rows_per_call, figure::number),
                    optional(row.hit_pct, figure::percent),
                    text(row),
                ]
            })
            .collect(),
        notes,
    }
}

fn files(view: &View, order: &str) -> Sheet {
    let mut rows: Vec<_> = view.io.iter().collect();
    match order {
        "requests" => descending(&mut rows, |row| Some(row.reads_per_s + row.writes_per_s)),
        "latency" => descending(&mut rows, |row| {
            Some(row.read_mean_ns.unwrap_or(-1.0).max(row.write_mean_ns.unwrap_or(-1.0)))
        }),
        _ => descending(&mut rows, |row| Some(row.read_bytes_per_s + row.write_bytes_per_s)),
    }
    let none = "no reads or writes in this interval, or none that the source tells";
    Sheet {
        title: format!("Reads and writes of files by {order}"),
        columns: vec![
            left("Files", 0),
            left("On", 1),
            right("Reads/s", 3),
            right("Read B/s", 2),
            right("Avg read", 2),
            right("Writes/s", 3),
            right("Write B/s", 2),
            right("Avg write", 2),
        ],
        rows: rows
            .iter()
            .map(|row| {
                vec![
                    row.file_class.clone(),
                    row.tier.clone(),
                    figure::number(row.reads_per_s),
                    figure::bytes(row.read_bytes_per_s.round()),
                    optional(row.read_mean_ns, figure::nanoseconds),
                    figure::number(row.writes_per_s),
                    figure::bytes(row.write_bytes_per_s.round()),
                    optional(row.write_mean_ns, figure::nanoseconds),
                ]
            })
            .collect(),
        notes: rows.is_empty().then(|| none.to_owned()).into_iter().collect(),
    }
}

fn tables(view: &View, order: &str) -> Sheet {
    let mut rows: Vec<_> = view.files.iter().collect();
    match order {
        "latency" => descending(&mut rows, |row| row.mib_ns),
        _ => descending(&mut rows, |row| Some(row.read_bytes_per_s)),
    }
    Sheet {
        title: "Reads by table or file".to_owned(),
        columns: vec![
            left("Read most", 0),
            right("Read B/s", 1),
            right("per MiB", 2),
            right("Size", 3),
        ],
        rows: rows
            .iter()
            .map(|row| {
                vec![
                    row.name.clone(),
                    figure::bytes(row.read_bytes_per_s.round()),
                    optional(row.mib_ns, figure::nanoseconds),
                    row.bytes.map_or("-".to_owned(), |bytes| figure::bytes(bytes as f64)),
                ]
            })
            .collect(),
        notes: Vec::new(),
    }
}

fn tiers(view: &View, order: &str) -> Vec<Sheet> {
    let mut sheets = vec![media(&view.tiers)];
    if !view.tiers.levels.is_empty() {
        sheets.push(levels(&view.tiers, order));
    }
    sheets
}

fn media(of: &Tiers) -> Sheet {
    let mut notes = Vec::new();
    if let Some(hit) = of.hit_pct {
        notes.push(format!("hit ratio {} %", figure::percent(hit)));
    }
    if let (Some(dirty), Some(rate)) = (of.dirty_bytes, of.destaged_bytes_per_s) {
        let (dirty, rate) = (figure::bytes(dirty as f64), figure::bytes(rate.round()));
        let lag = match (of.drain_s, of.dirty_bytes) {
            (_, Some(0)) => "nothing to drain".to_owned(),
            (Some(seconds), _) => format!("drained in {} s at this rate", figure::number(seconds)),
            (None, _) => "nothing was destaged in this interval".to_owned(),
        };
        notes.push(format!("dirty {dirty}, destaged {rate}/s: {lag}"));
    }
    if let Some(full) = of.full_per_s.filter(|full| *full > 0.0) {
        notes.push(format!("tier full: {} waits for a free block a second", figure::number(full)));
    }
    if of.media.is_empty() {
        notes.push("no fast tier here".to_owned());
    }
    let known =
        |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| figure::bytes(bytes as f64));
    Sheet {
        title: "Tiers".to_owned(),
        columns: vec![
            left("Tier", 1),
            right("Size", 2),
            right("Used", 1),
            right("Used %", 1),
            left("On", 0),
        ],
        rows: of
            .media
            .iter()
            .map(|medium| {
                let used = medium.used_bytes.zip(medium.bytes);
                let pct = used.map(|(used, all)| used as f64 / all as f64 * 100.0);
                let kind = if medium.emulated { "EMULATED: " } else { "" };
                vec![
                    medium.name.clone(),
                    known(medium.bytes),
                    known(medium.used_bytes),
                    optional(pct, figure::percent),
                    format!("{kind}{}", medium.kind),
                ]
            })
            .collect(),
        notes,
    }
}

fn levels(of: &Tiers, order: &str) -> Sheet {
    let mut levels: Vec<_> = of.levels.iter().collect();
    match order {
        "value" => descending(&mut levels, |level| Some(level.value as f64)),
        "change" => descending(&mut levels, |level| level.change_per_s.map(f64::abs)),
        _ => levels.sort_by(|a, b| a.name.cmp(&b.name)),
    }
    let print = |unit: &str, value: f64| match unit {
        "bytes" => figure::bytes(value.round()),
        _ => figure::number(value),
    };
    Sheet {
        title: format!("Levels by {order}"),
        columns: vec![left("Level", 0), right("Now", 1), right("Change/s", 2), left("Unit", 3)],
        rows: levels
            .iter()
            .map(|level| {
                let change = level.change_per_s.map(|change| print(&level.unit, change));
                let now = match level.unit.as_str() {
                    "bytes" => figure::bytes(level.value as f64),
                    _ => figure::count(level.value),
                };
                vec![
                    level.name.clone(),
                    now,
                    change.unwrap_or_else(|| "-".to_owned()),
                    level.unit.clone(),
                ]
            })
            .collect(),
        notes: Vec::new(),
    }
}

/// Sessions that hold others up, where there are any; sessions; and statements by what they wait
/// for.
fn seen(view: &View, order: &str) -> Vec<Sheet> {
    let sheet = |title: &str, [id, time, what]: [&'static str; 3], rows: &[SeenRow]| {
        let mut rows: Vec<&SeenRow> = rows.iter().collect();
        if order == "name" {
            rows.sort_by(|a, b| (&a.text, &a.id).cmp(&(&b.text, &b.id)));
        }
        let cells = |row: &&SeenRow| {
            let text = if row.text.is_empty() { "(text not kept)" } else { &row.text };
            vec![row.id.clone(), sessions(row.sessions), row.wait.clone(), text.to_owned()]
        };
        Sheet {
            title: format!("{title} by {order}"),
            columns: vec![left(id, 1), right(time, 1), left("Waits most for", 2), left(what, 0)],
            rows: rows.iter().map(cells).collect(),
            notes: Vec::new(),
        }
    };
    let Some(of) = &view.seen else {
        let mut none = sheet("Sessions", ["Session", "AAS", "User"], &[]);
        none.notes.push("this source is not sampled: nobody looked who was active".to_owned());
        return vec![none];
    };
    let mut sheets = Vec::new();
    if !of.blockers.is_empty() {
        let columns = ["Session", "Held up", "What it does"];
        sheets.push(sheet("Sessions that hold others up", columns, &of.blockers));
    }
    let mut active = sheet("Sessions", ["Session", "AAS", "User"], &of.sessions);
    active.notes.push(match of.sessions.is_empty() {
        true => "nobody was seen at work".to_owned(),
        false => "sampled: an estimate".to_owned(),
    });
    sheets.push(active);
    if !of.statements.is_empty() {
        sheets.push(sheet("Statements seen", ["Query id", "AAS", "Statement"], &of.statements));
    }
    sheets
}

fn host(view: &View, order: &str) -> Sheet {
    let host = &view.host;
    let mut disks: Vec<_> = host.disks.iter().collect();
    match order {
        "name" => disks.sort_by(|a, b| a.name.cmp(&b.name)),
        _ => descending(&mut disks, |disk| Some(disk.busy_pct)),
    }
    let mut notes = Vec::new();
    if let Some(of) = host.pressure_pct {
        let [cpu, io, memory] = [of.cpu, of.io, of.memory].map(figure::percent);
        notes.push(format!(
            "held up for want of: CPU {cpu} %, disks {io} %, memory {memory} % of the interval"
        ));
    }
    if let (Some(all), Some(left)) = (host.memory_bytes, host.memory_available_bytes) {
        let [all, left] = [all, left].map(|bytes| figure::bytes(bytes as f64));
        notes.push(format!("memory {all}, available {left}"));
    }
    if disks.is_empty() {
        notes.push("no disk did anything in this interval".to_owned());
    }
    Sheet {
        title: match view.remote {
            true => format!("Disks of this machine, not of the database's, by {order}"),
            false => format!("Disks of this machine by {order}"),
        },
        columns: vec![
            left("Disk", 0),
            right("Reads/s", 2),
            right("Read B/s", 3),
            right("Avg read", 1),
            right("Writes/s", 2),
            right("Write B/s", 3),
            right("Avg write", 1),
            right("Busy %", 1),
        ],
        rows: disks
            .iter()
            .map(|disk| {
                vec![
                    disk.name.clone(),
                    figure::number(disk.reads_per_s),
                    figure::bytes(disk.read_bytes_per_s.round()),
                    optional(disk.read_mean_ns, figure::nanoseconds),
                    figure::number(disk.writes_per_s),
                    figure::bytes(disk.write_bytes_per_s.round()),
                    optional(disk.write_mean_ns, figure::nanoseconds),
                    figure::percent(disk.busy_pct),
                ]
            })
            .collect(),
        notes,
    }
}
