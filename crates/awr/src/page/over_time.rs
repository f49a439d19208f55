//! Charts whose horizontal axis is time: areas on each other, and heat maps.
//!
//! Shapes are drawn in a box that is stretched to the width of the page, letters outside of it: so
//! a chart fits a phone without its letters changing size. A slot is drawn as wide as it was long,
//! at one height: what is known is an average over the slot, and a sloping line would claim more. A
//! time of which nothing is known stays empty and is hatched.
//!
//! Every slot has its figures as a title, which a mouse shows; the whole chart has a title and a
//! description in words.
//!
//! Invariants: nothing is drawn outside the box; a value that is negative or not finite is drawn as
//! nothing; the layers of an area are in the order of its legend, from the bottom up. Deliberately
//! absent: smoothing, zoom, scripts.

use std::fmt::Write as _;

use super::chart::colour;
use super::escape::escape;
use crate::chart::{Line, OverTime, Series, TimeSlot, length, most_of_area, most_of_heat};
use crate::figure;

/// The height of an area chart, and of a row of a heat map, in pixels.
const HEIGHT: usize = 210;
const ROW: usize = 15;
/// Above the box, so that the uppermost label is not cut.
const ABOVE: usize = 8;
/// Below the box, for the labels of the axis.
const BELOW: usize = 24;
/// Shades of a heat map; each stands for four times as much as the one before.
const SHADES: usize = 7;
const SHADE_FACTOR: f64 = 4.0;

/// The axis: where an instant is, in thousandths of the width.
struct Axis {
    from: u64,
    length: u64,
}

impl Axis {
    fn of(chart: &OverTime) -> Axis {
        let froms = chart
            .slots
            .iter()
            .map(|slot| slot.from_unix_ns)
            .chain(chart.gaps.iter().map(|gap| gap.from_unix_ns));
        let ends = chart
            .slots
            .iter()
            .map(|slot| slot.to_unix_ns)
            .chain(chart.gaps.iter().map(|gap| gap.to_unix_ns));
        let from = froms.min().unwrap_or(0);
        let own = ends.max().unwrap_or(0).saturating_sub(from);
        Axis { from, length: chart.length_ns.max(own).max(1) }
    }

    fn at(&self, unix_ns: u64) -> f64 {
        (unix_ns.saturating_sub(self.from) as f64 / self.length as f64 * 1000.0).clamp(0.0, 1000.0)
    }

    /// Round instants, not more than six, each with its label.
    fn ticks(&self) -> Vec<(f64, String)> {
        const S: u64 = 1_000_000_000;
        const STEPS: [u64; 22] = [
            1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600,
            43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000,
        ];
        let fits = |step: &&u64| self.length / (**step * S) <= 6;
        let step = STEPS.iter().find(fits).map_or(self.length, |step| step * S);
        let mut ticks = Vec::new();
        let mut at = self.from.div_ceil(step).saturating_mul(step);
        let end = self.from.saturating_add(self.length);
        // Bounded also at the end of time, where an instant does not grow any more.
        for _ in 0..10 {
            if at > end {
                break;
            }
            let place = self.at(at);
            let shown = figure::instant(at);
            let (day, time) =
                (shown.get(5..10).unwrap_or_default(), shown.get(11..).unwrap_or_default());
            let label = match () {
                () if step >= 86_400 * S || time == "00:00:00" => day.to_owned(),
                () if step < 60 * S => time.to_owned(),
                () => time.get(..5).unwrap_or_default().to_owned(),
            };
            // At the edges half of a label would be outside.
            if (35.0..=965.0).contains(&place) {
                ticks.push((place, label));
            }
            at = at.saturating_add(step);
        }
        ticks
    }
}

/// Round values up to a little above `most`: at most six, the last one is the end of the scale.
fn scale(most: f64) -> Vec<f64> {
    let most = if most.is_finite() && most > 0.0 { most.min(1e300) } else { 1.0 };
    let power = 10f64.powf((most / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|of| of * power)
        .into_iter()
        .find(|step| most / step <= 5.0)
        .unwrap_or(most);
    let count = (most / step).ceil().clamp(1.0, 6.0) as usize;
    (0..=count).map(|n| n as f64 * step).collect()
}

/// A value of the scale, with as many decimals as its step needs.
fn scale_label(value: f64, step: f64) -> String {
    if step < 1e-6 || value >= 1e9 {
        return figure::number(value);
    }
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    figure::grouped(&format!("{value:.decimals$}"))
}

fn spoken(chart: &OverTime, most: f64, more: &str) -> String {
    let axis = Axis::of(chart);
    let end = axis.from.saturating_add(axis.length);
    format!(
        "{} slots from {} to {} UTC; the most is {} {}{more}. The figures are in a table of this \
         report.",
        chart.slots.len(),
        figure::instant(axis.from),
        figure::instant(end),
        figure::number(most),
        chart.unit
    )
}

/// Opens the drawing: labels on the left, then the box that is stretched, `rows` units high.
fn open(
    out: &mut String,
    chart: &OverTime,
    labels: &[(f64, String)],
    height: usize,
    rows: usize,
    description: &str,
) {
    let all = height + ABOVE + BELOW;
    let _ = writeln!(
        out,
        "<div class=\"plot\"><svg class=\"side\" width=\"52\" height=\"{all}\" \
         aria-hidden=\"true\">"
    );
    for (share, label) in labels {
        let y = ABOVE as f64 + height as f64 * (1.0 - share) + 4.0;
        let _ = write!(
            out,
            "<text class=\"quiet\" x=\"46\" y=\"{y:.0}\" text-anchor=\"end\">{}</text>",
            escape(label)
        );
    }
    let spoken = escape(&format!("{}. {description}", chart.title));
    let _ = writeln!(
        out,
        "</svg><svg class=\"wide\" height=\"{all}\" role=\"img\" \
         aria-label=\"{spoken}\">\n<desc>{}</desc>",
        escape(description)
    );
    for (place, label) in Axis::of(chart).ticks() {
        let _ = write!(
            out,
            "<text class=\"quiet\" x=\"{:.1}%\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            place / 10.0,
            height + ABOVE + 17,
            escape(&label)
        );
    }
    let _ = writeln!(
        out,
        "<svg y=\"{ABOVE}\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 1000 {rows}\" \
         preserveAspectRatio=\"none\">\n\
         <rect class=\"track\" width=\"1000\" height=\"{rows}\"/>"
    );
}

/// The gaps, what a mouse shows, and the end.
fn close(
    out: &mut String,
    chart: &OverTime,
    upwards: &str,
    rows: usize,
    shown: impl Fn(&TimeSlot) -> String,
) {
    let axis = Axis::of(chart);
    for gap in &chart.gaps {
        let (from, to) = (axis.at(gap.from_unix_ns), axis.at(gap.to_unix_ns));
        let _ = writeln!(
            out,
            "<rect class=\"gap\" x=\"{from:.1}\" width=\"{:.1}\" \
             height=\"{rows}\"><title>{}</title></rect>",
            (to - from).max(2.0).min(1000.0 - from),
            escape(&format!("{} UTC: {}", span(gap.from_unix_ns, gap.to_unix_ns), gap.reason))
        );
    }
    for slot in &chart.slots {
        let (from, to) = (axis.at(slot.from_unix_ns), axis.at(slot.to_unix_ns));
        let _ = write!(
            out,
            "<rect class=\"hit\" x=\"{from:.1}\" width=\"{:.1}\" \
             height=\"{rows}\"><title>{}</title></rect>",
            to - from,
            escape(&format!("{} UTC: {}", span(slot.from_unix_ns, slot.to_unix_ns), shown(slot)))
        );
    }
    out.push_str("\n</svg></svg></div>\n");
    let end = axis.from.saturating_add(axis.length);
    let _ = writeln!(
        out,
        "<p class=\"axis\">{} &#8593;, time (UTC) &#8594; {}</p>",
        escape(upwards),
        escape(&format!("{} to {}", figure::instant(axis.from), figure::instant(end)))
    );
}

fn span(from: u64, to: u64) -> String {
    let (from, to) = (figure::instant(from), figure::instant(to));
    format!("{} to {}", from.get(5..).unwrap_or_default(), to.get(11..).unwrap_or_default())
}

/// Slots that follow each other without a gap.
fn runs(slots: &[TimeSlot]) -> Vec<&[TimeSlot]> {
    slots.chunk_by(|a, b| a.to_unix_ns == b.from_unix_ns).collect()
}

/// Where the values of an area chart are drawn, in thousandths of its width and height.
struct Plane {
    axis: Axis,
    /// The value at the top.
    top: f64,
}

impl Plane {
    fn y(&self, value: f64) -> f64 {
        (1000.0 - value / self.top * 1000.0).clamp(0.0, 1000.0)
    }

    /// The outline of a layer, on those below it: along its upper edge, and back along its lower.
    fn layer(&self, slots: &[TimeSlot], index: usize) -> String {
        let below = |slot: &TimeSlot, layers: usize| {
            self.y(slot.values.iter().take(layers).map(|value| length(*value)).sum::<f64>())
        };
        let mut path = String::new();
        for run in runs(slots) {
            let Some(first) = run.first().filter(|_| {
                run.iter().any(|slot| slot.values.get(index).is_some_and(|v| length(*v) > 0.0))
            }) else {
                continue;
            };
            let start = self.axis.at(first.from_unix_ns);
            let _ = write!(path, "M{start:.1} {:.1}", below(first, index));
            for slot in run {
                let end = self.axis.at(slot.to_unix_ns);
                let _ = write!(path, "V{:.1}H{end:.1}", below(slot, index + 1));
            }
            for slot in run.iter().rev() {
                let start = self.axis.at(slot.from_unix_ns);
                let _ = write!(path, "V{:.1}H{start:.1}", below(slot, index));
            }
            path.push('Z');
        }
        path
    }

    /// A line, which a slot without its value interrupts.
    fn line(&self, slots: &[TimeSlot], index: usize) -> String {
        let mut path = String::new();
        let mut end = None;
        for slot in slots {
            let Some(value) =
                slot.lines.get(index).copied().flatten().filter(|value| value.is_finite())
            else {
                continue;
            };
            let y = self.y(value);
            let (from, to) = (self.axis.at(slot.from_unix_ns), self.axis.at(slot.to_unix_ns));
            let _ = match end == Some(slot.from_unix_ns) {
                true => write!(path, "V{y:.1}H{to:.1}"),
                false => write!(path, "M{from:.1} {y:.1}H{to:.1}"),
            };
            end = Some(slot.to_unix_ns);
        }
        path
    }
}

pub(super) fn draw_area(out: &mut String, chart: &OverTime, series: &[Series], lines: &[Line]) {
    let most = most_of_area(series.len(), &chart.slots);
    let scale = scale(most.max(length(chart.top)));
    let (top, step) = (scale.last().copied().unwrap_or(1.0), scale.get(1).copied().unwrap_or(1.0));
    let labels: Vec<(f64, String)> =
        scale.iter().map(|value| (value / top, scale_label(*value, step))).collect();
    let plane = Plane { axis: Axis::of(chart), top };
    legend(out, series, lines);
    let sum = |slot: &TimeSlot| {
        slot.values.iter().take(series.len()).map(|value| length(*value)).sum::<f64>()
    };
    let peak = chart.slots.iter().map(sum).fold(0.0, f64::max);
    let names: Vec<&str> = series.iter().map(|of| of.name.as_str()).collect();
    let more = format!("; from the bottom up: {}", names.join(", "));
    open(out, chart, &labels, HEIGHT, 1000, &spoken(chart, peak, &more));
    for value in &scale {
        let _ = write!(out, "<path class=\"grid\" d=\"M0 {0:.1}H1000\"/>", plane.y(*value));
    }
    out.push('\n');
    for (index, of) in series.iter().enumerate() {
        let path = plane.layer(&chart.slots, index);
        let _ = writeln!(out, "<path class=\"layer s{}\" d=\"{path}\"/>", colour(of.colour));
    }
    for (index, line) in lines.iter().enumerate() {
        let path = plane.line(&chart.slots, index);
        let class = if line.limit { "line limit" } else { "line" };
        let _ = writeln!(out, "<path class=\"{class}\" d=\"{path}\"/>");
    }
    close(out, chart, &chart.unit, 1000, |slot| {
        let mut parts = vec![format!("{} {}", figure::number(sum(slot)), chart.unit)];
        let named = series.iter().zip(&slot.values).filter(|(_, value)| length(**value) > 0.0);
        parts.extend(named.map(|(of, value)| format!("{} {}", of.name, figure::number(*value))));
        let known =
            lines.iter().zip(&slot.lines).filter_map(|(line, value)| Some((line, (*value)?)));
        parts.extend(known.map(|(line, value)| format!("{} {}", line.name, figure::number(value))));
        parts.join("; ")
    });
}

/// From the bottom up, then the lines.
fn legend(out: &mut String, series: &[Series], lines: &[Line]) {
    out.push_str("<ul class=\"legend\" aria-label=\"Layers, from the bottom up\">");
    for of in series {
        let _ = write!(
            out,
            "<li><span class=\"s{}\"></span>{}</li>",
            colour(of.colour),
            escape(&of.name)
        );
    }
    for line in lines {
        let class = if line.limit { "rule limit" } else { "rule" };
        let _ = write!(out, "<li><span class=\"{class}\"></span>{}</li>", escape(&line.name));
    }
    out.push_str("</ul>\n");
}

/// Values by second, in shades.
pub(super) fn draw_heat(out: &mut String, chart: &OverTime, buckets: &[String]) {
    let rate = |slot: &TimeSlot, value: f64| {
        let seconds = slot.to_unix_ns.saturating_sub(slot.from_unix_ns).max(1) as f64 / 1e9;
        length(value) / seconds
    };
    let most = most_of_heat(&chart.slots);
    let top = if length(chart.top) > 0.0 { chart.top.max(most) } else { most };
    let shade = |rate: f64| {
        let below = (top / rate).log(SHADE_FACTOR).floor();
        SHADES.saturating_sub(below.clamp(0.0, SHADES as f64) as usize).max(1)
    };
    let rows = buckets.len().max(1);
    let every = if rows > 14 { 2 } else { 1 };
    let labels: Vec<(f64, String)> = buckets
        .iter()
        .enumerate()
        .filter(|(row, _)| row % every == 0)
        .map(|(row, label)| ((row as f64 + 0.5) / rows as f64, label.clone()))
        .collect();
    out.push_str("<ul class=\"legend\" aria-label=\"Shades\">");
    for level in 1..=SHADES {
        let least = top / SHADE_FACTOR.powi(i32::try_from(SHADES - level).unwrap_or(0) + 1);
        let text = match level {
            1 => format!("up to {}", figure::number(top / SHADE_FACTOR.powi(SHADES as i32 - 1))),
            _ => format!("over {}", figure::number(least)),
        };
        let unit =
            if level == SHADES { format!(" {}", escape(&chart.unit)) } else { String::new() };
        if top > 0.0 {
            let _ = write!(out, "<li><span class=\"h{level}\"></span>{text}{unit}</li>");
        }
    }
    out.push_str("</ul>\n");
    let peak = chart
        .slots
        .iter()
        .map(|slot| slot.values.iter().map(|value| rate(slot, *value)).fold(0.0, f64::max))
        .fold(0.0, f64::max);
    open(out, chart, &labels, rows * ROW, rows, &spoken(chart, peak, ""));
    let axis = Axis::of(chart);
    let mut paths = vec![String::new(); SHADES];
    for slot in &chart.slots {
        let (from, to) = (axis.at(slot.from_unix_ns), axis.at(slot.to_unix_ns));
        for (row, value) in
            slot.values.iter().take(rows).enumerate().filter(|(_, value)| length(**value) > 0.0)
        {
            let level = shade(rate(slot, *value));
            let width = to - from;
            // Short latencies are at the bottom.
            let _ =
                write!(paths[level - 1], "M{from:.1} {}h{width:.1}v1h-{width:.1}z", rows - 1 - row);
        }
    }
    for (level, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = writeln!(out, "<path class=\"cell h{}\" d=\"{path}\"/>", level + 1);
    }
    close(out, chart, "latency", rows, |slot| {
        let found =
            buckets.iter().zip(&slot.values).rev().filter(|(_, value)| length(**value) > 0.0);
        let parts: Vec<String> = found
            .map(|(bucket, value)| format!("{bucket} {}/s", figure::number(rate(slot, *value))))
            .collect();
        parts.join("; ")
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::TimeGap;

    const S: u64 = 1_000_000_000;

    fn chart(slots: Vec<TimeSlot>) -> OverTime {
        OverTime {
            title: "t".to_owned(),
            explanation: String::new(),
            unit: "active sessions".to_owned(),
            slots,
            gaps: Vec::new(),
            top: 0.0,
            length_ns: 0,
        }
    }

    #[test]
    fn nothing_is_drawn_outside_the_box_whatever_the_values() {
        let bad = [f64::NAN, f64::INFINITY, -5.0, 0.0, 3.0, f64::MAX];
        let slots = (0..bad.len() as u64)
            .map(|n| TimeSlot {
                from_unix_ns: n * S,
                to_unix_ns: if n == 3 { u64::MAX } else { (n + 1) * S },
                values: bad.to_vec(),
                lines: vec![Some(bad[n as usize]), None],
            })
            .collect();
        let mut chart = chart(slots);
        chart.gaps.push(TimeGap {
            from_unix_ns: 9 * S,
            to_unix_ns: 7 * S,
            reason: "<script>".to_owned(),
        });
        let series: Vec<Series> =
            (0..6).map(|n| Series { name: format!("<b>{n}"), colour: n }).collect();
        let lines = [false, true].map(|limit| Line { name: "<i>".to_owned(), limit });
        let mut out = String::new();
        draw_area(&mut out, &chart, &series, &lines);
        draw_heat(&mut out, &chart, &series.iter().map(|of| of.name.clone()).collect::<Vec<_>>());
        assert!(
            !out.contains("NaN")
                && !out.contains("inf")
                && !out.contains("<b>")
                && !out.contains("<script"),
            "{out}"
        );
        for path in out.split(" d=\"").skip(1) {
            let path = path.split('"').next().unwrap();
            for number in path
                .split(|c: char| c.is_ascii_alphabetic() || c == ' ')
                .filter(|text| !text.is_empty())
            {
                let number: f64 = number.parse().unwrap();
                assert!((-1000.0..=1000.0).contains(&number), "{path}");
            }
        }
    }

    #[test]
    fn a_gap_breaks_the_layers_and_the_lines() {
        let slot = |from: u64| TimeSlot {
            from_unix_ns: from * S,
            to_unix_ns: (from + 1) * S,
            values: vec![1.0],
            lines: vec![Some(1.0)],
        };
        let of = |slots| {
            let mut out = String::new();
            let series = [Series { name: "a".to_owned(), colour: 0 }];
            draw_area(
                &mut out,
                &chart(slots),
                &series,
                &[Line { name: "l".to_owned(), limit: false }],
            );
            let path = |class: &str| {
                out.split(class).nth(1).unwrap().split('"').nth(2).unwrap().matches('M').count()
            };
            (path("layer s0"), path("class=\"line"))
        };
        assert_eq!(of(vec![slot(0), slot(1), slot(2)]), (1, 1));
        assert_eq!(of(vec![slot(0), slot(2)]), (2, 2));
    }

    #[test]
    fn scales_and_ticks_are_round() {
        assert_eq!(scale(3.2), [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(scale(0.0).last(), Some(&1.0));
        let labels = |most: f64| {
            let scale = scale(most);
            scale.iter().map(|value| scale_label(*value, scale[1])).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(0.73), "0.0 0.2 0.4 0.6 0.8");
        assert_eq!(labels(24_000.0), "0 5,000 10,000 15,000 20,000 25,000");
        for most in [f64::MAX, f64::MIN_POSITIVE, 1e-12, 99.0] {
            assert!(
                (2..=7).contains(&scale(most).len())
                    && scale(most).iter().all(|value| value.is_finite()),
                "{most}"
            );
        }
        // 2001-09-09 01:46:40 and an hour.
        let axis = Axis { from: 1_000_000_000 * S, length: 3_600 * S };
        let ticks: Vec<String> = axis.ticks().into_iter().map(|(_, label)| label).collect();
        assert_eq!(ticks, ["01:50", "02:00", "02:10", "02:20", "02:30", "02:40"]);
    }
}
