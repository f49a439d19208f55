//! The screen as text: for `--once`, for a terminal without a cursor, and for what is no terminal.
//!
//! Invariant: no line is wider than asked for; nothing here is an escape sequence.

use tiersmith_awr::figure;

use super::activity::{Activity, Basis, KINDS};
use super::panes;
use super::sheet::fit;
use super::shown::Alphabet;
use super::view::View;

/// Rows of a pane in a text that nobody scrolls.
pub(crate) const FULL_ROWS: usize = 15;

/// What was looked at.
pub(super) fn heading(view: &View, alphabet: Alphabet) -> String {
    let emulated = if view.emulated { "  EMULATED tier" } else { "" };
    // Of a version its number: what packagers put behind it is long.
    let version = view.version.split(' ').next().unwrap_or_default();
    let parts =
        [&view.database, &view.product, version, &view.source].map(|part| alphabet.shown(part));
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    format!("tiersmith top{emulated}  {}", parts.join("  "))
}

/// When, and over how long.
pub(super) fn when(view: &View) -> String {
    let at = figure::instant(view.taken_unix_ns);
    format!("{} UTC, {} s", at.get(11..).unwrap_or_default(), figure::number(view.elapsed_s))
}

/// Sessions on average: what is next to nothing says so.
pub(super) fn sessions(value: f64) -> String {
    if value > 0.0 && value < 0.001 { "<0.001".to_owned() } else { figure::number(value) }
}

/// Who was active, and the counters by time.
pub(super) fn rates(view: &View) -> String {
    let mut parts = vec![active(&view.activity)];
    for rate in &view.rates {
        let value = match rate.unit {
            "bytes" => figure::bytes(rate.per_s.round()),
            _ => figure::number(rate.per_s),
        };
        parts.push(format!("{} {value}/s", rate.short));
    }
    parts.join("  ")
}

fn active(of: &Activity) -> String {
    let total = sessions(of.total);
    match (of.basis, of.measured) {
        (Basis::Measured, Some(measured)) => format!("AAS {} (measured)", sessions(measured)),
        (Basis::Measured, None) => format!("in waits {total} (measured)"),
        (Basis::Sampled, measured) => {
            let looks = of.looks.unwrap_or(0);
            let besides = match (measured, of.samples_miss) {
                (Some(aas), Some(_)) if of.total < aas => {
                    let seen = figure::percent(of.total / aas * 100.0);
                    format!(", which see {seen} % of the measured {}", sessions(aas))
                }
                (Some(aas), _) => format!("; measured {}", sessions(aas)),
                (None, _) => String::new(),
            };
            format!("AAS {total} (sampled, {looks} looks{besides})")
        }
        (Basis::Processors, _) => format!("processors {total} (measured)"),
    }
}

/// The title of the chart.
pub(super) fn title(of: &Activity) -> &'static str {
    match of.basis {
        Basis::Measured => "Average active sessions by wait class, measured",
        Basis::Sampled => "Average active sessions by wait class, sampled",
        Basis::Processors => "Processors at work on this machine",
    }
}

/// The machine in a line; whose it is, if not the database's.
pub(super) fn host(view: &View) -> String {
    let host = &view.host;
    let mut parts = Vec::new();
    if view.remote {
        parts.push("not the database's:".to_owned());
    }
    if let Some(cpu) = host.cpu_pct {
        let [user, system, disk, steal, idle] =
            [cpu.user, cpu.system, cpu.iowait, cpu.steal, cpu.idle].map(figure::percent);
        let of = host.cpus.map_or(String::new(), |cpus| format!(" of {cpus}"));
        parts.push(format!("CPU %{of}: us {user} sy {system} wa {disk} st {steal} id {idle}"));
    }
    if let Some((running, blocked)) = host.running.zip(host.blocked) {
        parts.push(format!("run {running} blk {blocked}"));
    }
    if let Some([one, ..]) = host.load {
        parts.push(format!("load {}", figure::number(one)));
    }
    parts.join("  ")
}

/// One interval as text, `width` cells wide, at most `rows` rows of each table.
pub(crate) fn text(view: &View, alphabet: Alphabet, width: usize, rows: usize) -> String {
    let mut lines =
        vec![heading(view, alphabet), when(view), rates(view), host(view), String::new()];
    lines.push(title(&view.activity).to_owned());
    let cpus = view.activity.cpus.map_or(String::new(), |cpus| format!(", of {cpus} processors"));
    lines.push(format!("  in all {}{cpus}", sessions(view.activity.total)));
    for layer in &view.activity.layers {
        let share = layer.sessions / view.activity.total;
        let bar = "#".repeat((share * 30.0).round().clamp(0.0, 30.0) as usize);
        lines.push(format!(
            "  {} {:<16} {:>8} {:>5} % {bar}",
            KINDS[layer.kind].letter,
            layer.name,
            sessions(layer.sessions),
            figure::percent(share * 100.0)
        ));
    }
    for pane in 0..panes::NAMES.len() {
        for sheet in panes::sheets(view, pane, 0) {
            lines.push(String::new());
            lines.push(sheet.title.clone());
            if !sheet.rows.is_empty() {
                lines.extend(sheet.lines(width, alphabet).into_iter().take(rows + 1));
            }
            if sheet.rows.len() > rows {
                lines.push(format!("({} more)", sheet.rows.len() - rows));
            }
            lines.extend(sheet.notes.iter().map(|note| format!("({})", alphabet.shown(note))));
        }
    }
    if !view.notes.is_empty() {
        lines.push(String::new());
        lines.extend(view.notes.iter().map(|note| format!("Note: {}", alphabet.shown(note))));
    }
    let mut out = String::new();
    for line in lines {
        out.push_str(fit(&line, width).trim_end());
        out.push('\n');
    }
    out
}
