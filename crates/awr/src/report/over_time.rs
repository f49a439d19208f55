//! What changed during an interval: average active sessions by wait class, the host's processors,
//! and how the latencies of the top events moved; as charts, and each figure of a chart in a table
//! of the section "Activity Over Time".
//!
//! Measured and sampled figures have charts and tables of their own, each with the word in its
//! title: a source may have both, and they need not agree.
//!
//! Invariants: a chart's slots are the rows of its table; two intervals are drawn on one scale with
//! axes of one length.

use tiersmith_events::WaitClass;

use super::{Section, latency, tables, time};
use crate::chart::{Chart, Line, OverTime, Series, TimeGap, TimeSlot, most_of_area, most_of_heat};
use crate::interval::timeline::{EventKey, Missing, Slot, Timeline};
use crate::snapshot::sampling::CPU;
use crate::table::{Cell, Quantity, Table};
use crate::{Interval, figure};

/// Of how many events the latency is drawn over time.
const EVENTS: usize = 4;

/// How many breaks are listed.
const BREAKS: usize = 50;

/// Values over time, as a chart and as a table.
struct Layers {
    /// What is on the axis: `active sessions`.
    unit: &'static str,
    series: Vec<Series>,
    lines: Vec<Line>,
    slots: Vec<TimeSlot>,
    /// Slots of which the source did not tell all of this: they are holes, not zeros.
    untold: Vec<TimeGap>,
}

/// Charts of all intervals that have steps: measured, then sampled.
pub(super) fn charts(of: &[&Interval]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (title, make, sampled) in KINDS {
        let all: Vec<Option<Layers>> =
            of.iter().map(|of| make(of, of.timeline.as_ref()?)).collect();
        let top = all
            .iter()
            .flatten()
            .map(|layers| most_of_area(layers.series.len(), &layers.slots))
            .fold(0.0, f64::max);
        for (index, layers) in all.into_iter().enumerate() {
            let Some(layers) = layers else { continue };
            let over =
                over(of, index, &title(of[index]), explained(of[index], *sampled), layers.unit);
            let mut over = OverTime { slots: layers.slots, top, ..over };
            over.gaps.extend(layers.untold);
            over.gaps.sort_by_key(|gap| gap.from_unix_ns);
            charts.push(Chart::Area { of: over, series: layers.series, lines: layers.lines });
        }
    }
    charts
}

type Make = fn(&Interval, &Timeline) -> Option<Layers>;
type Title = fn(&Interval) -> String;

/// What is drawn: its title, its values, whether these are sampled.
const KINDS: &[(Title, Make, bool)] = &[
    (
        |of| match of.db_time_ns {
            Some(_) => "Average active sessions by wait class, measured".to_owned(),
            None => {
                "Average sessions waiting by wait class, measured (the source does not tell DB \
                     time)"
                    .to_owned()
            }
        },
        measured,
        false,
    ),
    (|_| "Average active sessions by wait class, sampled (an estimate)".to_owned(), sampled, true),
];

fn explained(of: &Interval, sampled: bool) -> String {
    let steps = of.timeline.as_ref().map_or(0, |line| line.steps);
    let what = match (sampled, &of.sampling) {
        (true, Some(sampling)) => format!(
            "Sessions seen by look, {} looks, one in {} ms; what began and ended between two looks \
             was not seen.",
            figure::count(sampling.looks),
            figure::count(sampling.period_ms)
        ),
        _ => format!("Time by elapsed time. {}", time::parts_explained(&[of])),
    };
    let line = match of.is_remote() {
        true => "The database is on another machine, so its processors are not known.",
        false => "The line is the host's processors that worked, the dashed one how many it has.",
    };
    format!(
        "{what} From {} snapshots; each step is an average. Hatched: nothing is known. {line}",
        figure::count(steps as u64 + 1)
    )
}

/// What the charts of one interval have in common.
fn over(of: &[&Interval], index: usize, title: &str, explanation: String, unit: &str) -> OverTime {
    let line = of[index].timeline.as_ref();
    let gap = |missing: &Missing| TimeGap {
        from_unix_ns: missing.from_unix_ns,
        to_unix_ns: missing.to_unix_ns,
        reason: missing.reason.clone(),
    };
    OverTime {
        title: format!("{}{title}", set(of, index)),
        explanation,
        unit: unit.to_owned(),
        slots: Vec::new(),
        gaps: line.map_or(Vec::new(), |line| line.breaks.iter().map(gap).collect()),
        top: 0.0,
        length_ns: of
            .iter()
            .filter_map(|of| of.timeline.as_ref())
            .map(Timeline::length_ns)
            .max()
            .unwrap_or(0),
    }
}

/// Which of two intervals it is.
fn set(of: &[&Interval], index: usize) -> String {
    match of.len() {
        1 => String::new(),
        _ => format!("{}: ", tables::ORDINALS[index.min(1)]),
    }
}

fn series(name: &str, class: Option<WaitClass>) -> Series {
    Series { name: name.to_owned(), colour: time::colour(class) }
}

/// The host's processors: how many worked, and how many there are.
fn host_lines<'a>(
    slots: impl Iterator<Item = &'a Slot> + Clone,
) -> (Vec<Line>, Vec<Vec<Option<f64>>>) {
    let values: Vec<Vec<Option<f64>>> = slots
        .clone()
        .map(|slot| vec![slot.processors_busy(), slot.processors.map(f64::from)])
        .collect();
    if values.iter().all(|values| values[0].is_none()) {
        return (Vec::new(), values.into_iter().map(|_| Vec::new()).collect());
    }
    let line = |name: &str, limit| Line { name: name.to_owned(), limit };
    (vec![line("host processors busy", false), line("host processors", true)], values)
}

/// What of its time a source tells, in the whole interval and in some slot: what a slot does not
/// tell is not zero there.
struct Told {
    db_time: bool,
    db_cpu: bool,
    waits: bool,
}

impl Told {
    fn of(of: &Interval, line: &Timeline) -> Told {
        let any = |tells: fn(&Slot) -> bool| line.slots.iter().any(tells);
        Told {
            db_time: of.db_time_ns.is_some() && any(|slot| slot.db_time_ns.is_some()),
            db_cpu: of.db_cpu_ns.is_some() && any(|slot| slot.db_cpu_ns.is_some()),
            waits: any(|slot| slot.classes.as_ref().is_some_and(|classes| !classes.is_empty())),
        }
    }

    /// The slots that tell all of it, and why the others are holes.
    fn slots<'a>(&self, line: &'a Timeline) -> (Vec<&'a Slot>, Vec<TimeGap>) {
        let (mut slots, mut untold) = (Vec::new(), Vec::new());
        for slot in &line.slots {
            let lacks = [
                (self.db_time && slot.db_time_ns.is_none(), "DB time"),
                (self.db_cpu && slot.db_cpu_ns.is_none(), "DB CPU"),
                (self.waits && slot.classes.is_none(), "the waits"),
            ];
            let names: Vec<&str> =
                lacks.into_iter().filter(|(lacks, _)| *lacks).map(|(_, name)| name).collect();
            if names.is_empty() {
                slots.push(slot);
            } else {
                untold.push(TimeGap {
                    from_unix_ns: slot.from_unix_ns,
                    to_unix_ns: slot.to_unix_ns,
                    reason: format!("the source did not tell {} in all of it", names.join(", ")),
                });
            }
        }
        (slots, untold)
    }

    /// DB time of a slot that is neither DB CPU nor a wait.
    fn rest_of(&self, slot: &Slot) -> u64 {
        let cpu_ns = slot.db_cpu_ns.filter(|_| self.db_cpu).unwrap_or(0);
        let named = slot
            .classes
            .iter()
            .flat_map(|of| of.values())
            .fold(cpu_ns, |sum, ns| sum.saturating_add(*ns));
        slot.db_time_ns.filter(|_| self.db_time).map_or(0, |time| time.saturating_sub(named))
    }
}

/// DB CPU, wait classes and what is not accounted for, as they were measured.
fn measured(of: &Interval, line: &Timeline) -> Option<Layers> {
    let told = Told::of(of, line);
    if !line.is_worth_drawing() || !(told.db_time || told.waits) {
        return None;
    }
    let (slots, untold) = told.slots(line);
    if slots.is_empty() {
        return None;
    }
    let class_of = |slot: &Slot, class: &WaitClass| {
        slot.classes.as_ref().and_then(|of| of.get(class)).copied()
    };
    let classes: Vec<WaitClass> = WaitClass::ALL
        .into_iter()
        .filter(|class| slots.iter().any(|slot| class_of(slot, class).is_some()))
        .collect();
    let rest = slots.iter().any(|slot| told.rest_of(slot) > 0);
    let mut names = Vec::new();
    if told.db_cpu {
        names.push(series(time::DB_CPU, None));
    }
    names.extend(classes.iter().map(|class| series(class.name(), Some(*class))));
    if rest {
        let name =
            if told.db_cpu { "not accounted for" } else { "CPU (not told) and not accounted for" };
        names.push(Series { name: name.to_owned(), colour: 10 });
    }
    let (lines, mut line_values) = host_lines(slots.iter().copied());
    let points = slots.iter().zip(line_values.iter_mut()).map(|(slot, lines)| {
        let mut values = Vec::new();
        if told.db_cpu {
            values.push(slot.average(slot.db_cpu_ns.unwrap_or(0)));
        }
        values.extend(classes.iter().map(|class| slot.average(class_of(slot, class).unwrap_or(0))));
        if rest {
            values.push(slot.average(told.rest_of(slot)));
        }
        TimeSlot {
            from_unix_ns: slot.from_unix_ns,
            to_unix_ns: slot.to_unix_ns,
            values,
            lines: std::mem::take(lines),
        }
    });
    let slots = points.collect();
    Some(Layers { unit: "active sessions", series: names, lines, slots, untold })
}

/// Work and wait classes, as samples saw them.
fn sampled(_: &Interval, line: &Timeline) -> Option<Layers> {
    let slots: Vec<(&Slot, u64, &std::collections::BTreeMap<String, u64>)> = line
        .slots
        .iter()
        .filter_map(|slot| {
            slot.sampled
                .as_ref()
                .filter(|(looks, _)| *looks > 0)
                .map(|(looks, seen)| (slot, *looks, seen))
        })
        .collect();
    if !line.is_worth_drawing() || slots.is_empty() {
        return None;
    }
    let classes = std::iter::once(None).chain(WaitClass::ALL.into_iter().map(Some));
    let classes: Vec<Option<WaitClass>> = classes
        .filter(|class| {
            slots.iter().any(|(.., seen)| seen.contains_key(class.map_or(CPU, WaitClass::name)))
        })
        .collect();
    let names =
        classes.iter().map(|class| series(class.map_or(CPU, WaitClass::name), *class)).collect();
    let (lines, mut line_values) = host_lines(slots.iter().map(|(slot, ..)| *slot));
    let points = slots.iter().zip(line_values.iter_mut()).map(|((slot, looks, seen), lines)| {
        let value = |class: &Option<WaitClass>| {
            seen.get(class.map_or(CPU, WaitClass::name)).copied().unwrap_or(0) as f64
                / *looks as f64
        };
        TimeSlot {
            from_unix_ns: slot.from_unix_ns,
            to_unix_ns: slot.to_unix_ns,
            values: classes.iter().map(value).collect(),
            lines: std::mem::take(lines),
        }
    });
    let slots = points.collect();
    Some(Layers { unit: "active sessions", series: names, lines, slots, untold: Vec::new() })
}

/// The events whose latency is drawn: those with the most time in any of the intervals, foreground
/// before background.
fn drawn_events(of: &[&Interval]) -> Vec<EventKey> {
    let mut events: Vec<(EventKey, u64)> = Vec::new();
    for wait in of.iter().flat_map(|of| &of.waits) {
        if wait.class == WaitClass::Idle || wait.histogram.count() == 0 {
            continue;
        }
        match events.iter_mut().find(|(key, _)| key.0 == wait.name && key.1 == wait.background) {
            Some((_, ns)) => *ns = (*ns).max(wait.total_ns),
            None => events.push(((wait.name.clone(), wait.background), wait.total_ns)),
        }
    }
    events.sort_by(|(a, a_ns), (b, b_ns)| {
        (a.1, std::cmp::Reverse(a_ns), &a.0).cmp(&(b.1, std::cmp::Reverse(b_ns), &b.0))
    });
    events.truncate(EVENTS);
    events.into_iter().map(|(key, _)| key).collect()
}

/// The first and the last power of two of a microsecond that occurs, and the slots with their
/// counts.
fn latencies(lines: &[&Timeline], event: &EventKey) -> Option<(usize, usize, Vec<Vec<TimeSlot>>)> {
    let counts =
        || lines.iter().flat_map(|line| &line.slots).filter_map(|slot| slot.histograms.get(event));
    let used = |at: &usize| counts().any(|counts| counts.get(*at).is_some_and(|count| *count > 0));
    let most = counts().map(Vec::len).max()?;
    let (first, last) = ((0..most).find(used)?, (0..most).rev().find(used)?);
    let slot = |slot: &Slot| TimeSlot {
        from_unix_ns: slot.from_unix_ns,
        to_unix_ns: slot.to_unix_ns,
        values: (first..=last)
            .map(|at| {
                slot.histograms.get(event).and_then(|counts| counts.get(at)).copied().unwrap_or(0)
                    as f64
            })
            .collect(),
        lines: Vec::new(),
    };
    Some((first, last, lines.iter().map(|line| line.slots.iter().map(slot).collect()).collect()))
}

fn event_name(event: &EventKey) -> String {
    if event.1 { format!("{} (bg)", event.0) } else { event.0.clone() }
}

/// Heat maps of the top events' latencies.
pub(super) fn heat_maps(of: &[&Interval]) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (event, (first, last, all)) in events_over_time(of) {
        let top = all.iter().map(|(_, slots)| most_of_heat(slots)).fold(0.0, f64::max);
        for (index, slots) in all {
            let title = format!("Latency of {} over time", event_name(&event));
            let explanation =
                "Waits by second and by how long they took: the darker, the more (in \
                               a dark page: the brighter)."
                    .to_owned();
            let over = over(of, index, &title, explanation, "waits/s");
            charts.push(Chart::Heat {
                of: OverTime { slots, top, ..over },
                buckets: (first..=last).map(|at| format!("<{}", latency::border(at))).collect(),
            });
        }
    }
    charts
}

type OfEvent = (usize, usize, Vec<(usize, Vec<TimeSlot>)>);

fn events_over_time(of: &[&Interval]) -> Vec<(EventKey, OfEvent)> {
    let lines: Vec<(usize, &Timeline)> = of
        .iter()
        .enumerate()
        .filter_map(|(index, of)| {
            Some((index, of.timeline.as_ref().filter(|line| line.is_worth_drawing())?))
        })
        .collect();
    let only: Vec<&Timeline> = lines.iter().map(|(_, line)| *line).collect();
    let events = drawn_events(of).into_iter().filter_map(|event| {
        let (first, last, all) = latencies(&only, &event)?;
        let all = lines.iter().map(|(index, _)| *index).zip(all).collect();
        Some((event, (first, last, all)))
    });
    events.collect()
}

/// The figures of all charts over time, and what is missing in them.
pub(super) fn section(of: &[&Interval]) -> Section {
    let mut section = Section::new("Activity Over Time");
    section.table_if_any(breaks(of));
    for (title, make, _) in KINDS {
        for (index, of_one) in of.iter().enumerate() {
            let Some(layers) = of_one.timeline.as_ref().and_then(|line| make(of_one, line)) else {
                continue;
            };
            section.table(layers_table(&format!("{}{}", set(of, index), title(of_one)), &layers));
        }
    }
    for (event, (first, last, all)) in events_over_time(of) {
        for (index, slots) in all {
            section.table(latency_table(
                &format!("{}Latency of {}", set(of, index), event_name(&event)),
                first,
                last,
                &slots,
            ));
        }
    }
    section
}

fn breaks(of: &[&Interval]) -> Table {
    let mut table = Table::new("Times of Which Nothing Is Known");
    if of.len() > 1 {
        table = table.text("Set", "Which of the two intervals.");
    }
    table = table
        .figures("From", "UTC", "When it begins.")
        .figures("Length", "s", "How long it was, as far as the snapshots tell.")
        .text("Reason", "Why there are no figures.");
    for (index, of_one) in of.iter().enumerate() {
        for missing in of_one.timeline.iter().flat_map(|line| &line.breaks) {
            let mut cells = Vec::new();
            if of.len() > 1 {
                cells.push(Cell::text(["1st", "2nd"][index.min(1)]));
            }
            cells.extend([
                Cell::text(figure::instant(missing.from_unix_ns)),
                Cell::seconds(missing.to_unix_ns.saturating_sub(missing.from_unix_ns) as f64 / 1e9),
                Cell::text(&missing.reason),
            ]);
            table.row(cells);
        }
    }
    table.first(BREAKS, "tiersmith awr list has them.");
    table
}

fn begin_cells(slot: &TimeSlot) -> Vec<Cell> {
    let length = slot.to_unix_ns.saturating_sub(slot.from_unix_ns) as f64 / 1e9;
    vec![Cell::text(figure::instant(slot.from_unix_ns)), Cell::seconds(length)]
}

fn with_begin(caption: &str) -> Table {
    Table::new(caption)
        .text("Begin (UTC)", "When the slot begins.")
        .figures("Length", "s", "How long it is; its figures are averages over it.")
        .details()
}

fn layers_table(caption: &str, layers: &Layers) -> Table {
    let mut table = with_begin(caption).figures("All", "", "The sum of the parts that follow.");
    for series in &layers.series {
        table = table.figures(&series.name, "", "Sessions in this part on average.");
    }
    for line in &layers.lines {
        table = table.figures(&line.name, "", "Processors of the host; not a part of the sum.");
    }
    for slot in &layers.slots {
        let mut cells = begin_cells(slot);
        cells.push(Cell::number(slot.values.iter().sum::<f64>()));
        cells.extend(slot.values.iter().map(|value| Cell::number(*value)));
        cells.extend(slot.lines.iter().map(|value| Cell::of(Quantity::Number, *value)));
        table.row(cells);
    }
    if let Some(first) = layers.untold.first() {
        table.note(format!(
            "Left out: {} slots, the first from {} UTC: {}.",
            layers.untold.len(),
            figure::instant(first.from_unix_ns),
            first.reason
        ));
    }
    table
}

fn latency_table(caption: &str, first: usize, last: usize, slots: &[TimeSlot]) -> Table {
    let mut table = with_begin(caption).figures("Waits", "", "Waits that ended in the slot.");
    for at in first..=last {
        table = table.figures(
            &format!("<{}", latency::border(at)),
            "",
            "Waits shorter than this, and not counted before it.",
        );
    }
    for slot in slots {
        let count = |value: f64| Cell::count(value as u64);
        let mut cells = begin_cells(slot);
        cells.push(count(slot.values.iter().sum()));
        cells.extend(slot.values.iter().map(|value| count(*value)));
        table.row(cells);
    }
    table
}
