//! Charts as inline SVG: horizontal bars, bars in parts, a latency histogram; and what is drawn
//! over time.
//!
//! Lengths along the bar are per cent of the width and everything else is in pixels, so a chart
//! fits a phone and a sheet of paper without its letters changing size. Every chart has a title, a
//! description in words that a screen reader speaks, and its figures printed beside the bars:
//! colour alone says nothing.
//!
//! Invariants: a bar is never longer than the chart; a value that is negative or not finite is
//! drawn as nothing. Charts over time are in `over_time.rs`. Deliberately absent: scripts, vertical
//! axes here.

use std::fmt::Write as _;

use super::escape::escape;
use super::over_time;
use crate::chart::{Bar, Chart, Series, length};
use crate::table::Quantity;

/// How many colours there are.
const COLOURS: u8 = 11;

pub(super) fn colour(colour: u8) -> u8 {
    colour % COLOURS
}

/// A length in per cent of the longest.
fn share(value: f64, longest: f64) -> f64 {
    if longest > 0.0 { (length(value) / longest * 100.0).min(100.0) } else { 0.0 }
}

/// Appends the chart as a `<figure>`.
pub(super) fn draw(out: &mut String, chart: &Chart) {
    let (title, explanation) = match chart {
        Chart::Bars { title, explanation, .. }
        | Chart::Stacked { title, explanation, .. }
        | Chart::Histogram { title, explanation, .. } => (title, explanation),
        Chart::Area { of, .. } | Chart::Heat { of, .. } => (&of.title, &of.explanation),
    };
    let class = if matches!(chart, Chart::Area { .. } | Chart::Heat { .. }) {
        " class=\"time\""
    } else {
        ""
    };
    let _ = writeln!(out, "<figure{class}>\n<figcaption>{}</figcaption>", escape(title));
    if !explanation.is_empty() {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(explanation));
    }
    match chart {
        Chart::Bars { quantity, bars, .. } => draw_bars(out, title, *quantity, bars),
        Chart::Stacked { quantity, series, rows, .. } => {
            legend(out, series);
            draw_stacked(out, title, *quantity, series, rows);
        }
        Chart::Histogram { quantity, series, buckets, .. } => {
            if series.len() > 1 {
                legend(out, series);
            }
            draw_histogram(out, title, *quantity, series, buckets);
        }
        Chart::Area { of, series, lines } => over_time::draw_area(out, of, series, lines),
        Chart::Heat { of, buckets } => over_time::draw_heat(out, of, buckets),
    }
    out.push_str("</figure>\n");
}

fn legend(out: &mut String, series: &[Series]) {
    out.push_str("<ul class=\"legend\">");
    for series in series {
        let class = colour(series.colour);
        let _ = write!(out, "<li><span class=\"s{class}\"></span>{}</li>", escape(&series.name));
    }
    out.push_str("</ul>\n");
}

/// What a screen reader speaks instead of the drawing, which is closed by `</div>`.
fn open(out: &mut String, title: &str, description: &str) {
    let spoken = escape(&format!("{title}. {description}"));
    let _ = writeln!(out, "<div role=\"img\" aria-label=\"{spoken}\">");
}

/// The line above a bar: on a phone the figure goes below its label.
fn line(out: &mut String, label: &str, figure: &str) {
    let (label, figure) = (escape(label), escape(figure));
    let _ = writeln!(
        out,
        "<div class=\"bar\"><span>{label}</span><span class=\"quiet\">{figure}</span></div>"
    );
}

fn draw_bars(out: &mut String, title: &str, quantity: Quantity, bars: &[Bar]) {
    let longest = bars.iter().map(|bar| length(bar.value)).fold(0.0, f64::max);
    let figure = |bar: &Bar| {
        let value = quantity.shown(bar.value);
        if bar.detail.is_empty() { value } else { format!("{value}, {}", bar.detail) }
    };
    let spoken: Vec<String> =
        bars.iter().map(|bar| format!("{}: {}", bar.label, figure(bar))).collect();
    open(out, title, &spoken.join("; "));
    for bar in bars {
        let (width, class) = (share(bar.value, longest), colour(bar.colour));
        line(out, &bar.label, &figure(bar));
        let _ = writeln!(
            out,
            "<svg height=\"12\"><rect class=\"track\" width=\"100%\" height=\"12\" rx=\"2\"/>\
             <rect class=\"s{class}\" width=\"{width:.2}%\" height=\"12\" rx=\"2\"/></svg>"
        );
    }
    out.push_str("</div>\n");
}

fn draw_stacked(
    out: &mut String,
    title: &str,
    quantity: Quantity,
    series: &[Series],
    rows: &[(String, Vec<f64>)],
) {
    let sum =
        |values: &[f64]| values.iter().take(series.len()).map(|value| length(*value)).sum::<f64>();
    let longest = rows.iter().map(|(_, values)| sum(values)).fold(0.0, f64::max);
    let parts = |values: &[f64]| {
        let parts = series.iter().zip(values).filter(|(_, value)| length(**value) > 0.0);
        let parts =
            parts.map(|(series, value)| format!("{} {}", series.name, quantity.shown(*value)));
        parts.collect::<Vec<_>>().join(", ")
    };
    let spoken: Vec<String> =
        rows.iter().map(|(label, values)| format!("{label}: {}", parts(values))).collect();
    open(out, title, &spoken.join("; "));
    for (label, values) in rows {
        line(out, label, &quantity.shown(sum(values)));
        out.push_str("<svg height=\"22\"><rect class=\"track\" width=\"100%\" height=\"22\"/>\n");
        let mut x = 0.0;
        for (series, value) in series.iter().zip(values) {
            let width = share(*value, longest);
            if width > 0.0 {
                let (class, name) = (colour(series.colour), escape(&series.name));
                let figure = escape(&quantity.shown(*value));
                let _ = writeln!(
                    out,
                    "<rect class=\"part s{class}\" x=\"{x:.2}%\" width=\"{width:.2}%\" \
                     height=\"22\">\
                     <title>{name}: {figure}</title></rect>"
                );
            }
            x += width;
        }
        out.push_str("</svg>\n");
    }
    out.push_str("</div>\n");
}

fn draw_histogram(
    out: &mut String,
    title: &str,
    quantity: Quantity,
    series: &[Series],
    buckets: &[(String, Vec<f64>)],
) {
    const BAR: usize = 13;
    // Room for the label before the bars and for the figure after the longest.
    const FROM: f64 = 16.0;
    const ALONG: f64 = 66.0;
    let row_height = series.len() * BAR + 7;
    let values = buckets.iter().flat_map(|(_, values)| values.iter().take(series.len()));
    let longest = values.map(|value| length(*value)).fold(0.0, f64::max);
    let spoken: Vec<String> = buckets
        .iter()
        .map(|(label, values)| {
            let values = series
                .iter()
                .zip(values)
                .map(|(series, value)| format!("{} {}", series.name, quantity.shown(*value)));
            format!("{label}: {}", values.collect::<Vec<_>>().join(", "))
        })
        .collect();
    open(out, title, &spoken.join("; "));
    let _ = writeln!(out, "<svg height=\"{}\">", buckets.len() * row_height + 4);
    for (row, (label, values)) in buckets.iter().enumerate() {
        let top = row * row_height;
        let middle = top + (series.len() * BAR) / 2 + 5;
        let _ = writeln!(
            out,
            "<text x=\"{:.2}%\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            FROM - 1.5,
            escape(&short(label, 16))
        );
        for (bar, (series, value)) in series.iter().zip(values).enumerate() {
            let y = top + bar * BAR;
            let width = share(*value, longest) * ALONG / 100.0;
            // Nothing is drawn as nothing: a figure beside each would hide those that say
            // something.
            if length(*value) > 0.0 {
                let _ = writeln!(
                    out,
                    "<rect class=\"s{}\" x=\"{FROM:.2}%\" y=\"{}\" width=\"{width:.2}%\" \
                     height=\"{}\"/>\
                     <text class=\"quiet\" x=\"{:.2}%\" y=\"{}\">{}</text>",
                    colour(series.colour),
                    y + 1,
                    BAR - 2,
                    FROM + width + 1.0,
                    y + BAR - 2,
                    escape(&quantity.shown(*value))
                );
            }
        }
    }
    out.push_str("</svg>\n</div>\n");
}

/// A label that fits before the bars; the whole of it is in the spoken description.
fn short(label: &str, most: usize) -> String {
    if label.chars().count() <= most {
        return label.to_owned();
    }
    let kept: String = label.chars().take(most - 1).collect();
    format!("{}\u{2026}", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(chart: &Chart) -> String {
        let mut out = String::new();
        draw(&mut out, chart);
        out
    }

    #[test]
    fn no_bar_is_longer_than_the_chart_whatever_the_values() {
        let bad = [f64::NAN, f64::INFINITY, -5.0, 0.0, 3.0, f64::MAX];
        let bars = bad.map(|value| Bar {
            label: "bar".to_owned(),
            value,
            detail: String::new(),
            colour: 255,
        });
        let series: Vec<Series> =
            (0..6).map(|n| Series { name: format!("part {n}"), colour: n }).collect();
        let rows = vec![("row".to_owned(), bad.to_vec()), ("short".to_owned(), vec![1.0])];
        let (title, explanation, quantity) =
            (String::from("t"), String::from("e"), Quantity::Nanoseconds);
        let charts = [
            Chart::Bars {
                title: title.clone(),
                explanation: explanation.clone(),
                quantity,
                bars: bars.to_vec(),
            },
            Chart::Stacked {
                title: title.clone(),
                explanation: explanation.clone(),
                quantity,
                series: series.clone(),
                rows: rows.clone(),
            },
            Chart::Histogram { title, explanation, quantity, series, buckets: rows },
        ];
        for chart in &charts {
            for width in drawn(chart).split("width=\"").skip(1) {
                let width: f64 = width.split('%').next().unwrap().parse().unwrap();
                assert!((0.0..=100.0).contains(&width), "{width}");
            }
        }
    }

    #[test]
    fn an_empty_chart_is_drawn() {
        let chart = Chart::Bars {
            title: String::new(),
            explanation: String::new(),
            quantity: Quantity::Number,
            bars: Vec::new(),
        };
        assert!(drawn(&chart).contains("</figure>"));
    }

    #[test]
    fn a_hostile_label_stays_text() {
        let bar = Bar {
            label: "</svg><script>".to_owned(),
            value: 1.0,
            detail: "\"<b>".to_owned(),
            colour: 1,
        };
        let chart = Chart::Bars {
            title: "<img onerror='x'>".to_owned(),
            explanation: "<i>".to_owned(),
            quantity: Quantity::Seconds,
            bars: vec![bar],
        };
        let page = drawn(&chart);
        for tag in ["<script", "<img", "<b>", "<i>"] {
            assert!(!page.contains(tag), "{tag} in {page}");
        }
    }
}
