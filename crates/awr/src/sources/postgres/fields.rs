//! The fields of rows, as PostgreSQL gives them in JSON. A number that a version does not have is
//! absent, and never zero.

use serde_json::Value;

use super::super::ms_to_ns;
use super::{Answers, Row};

/// The rows of a view; none if it was not asked for.
pub(super) fn rows<'a>(answers: &'a Answers, view: &str) -> &'a [Row] {
    answers.rows.get(view).map_or(&[], Vec::as_slice)
}

/// A count; nothing if the version does not have the field, or it is null.
pub(super) fn number(row: &Row, field: &str) -> Option<u64> {
    match row.get(field)? {
        Value::Number(number) => number.as_u64().or_else(|| {
            // Sums are of type numeric and may carry a point.
            number
                .as_f64()
                .filter(|value| *value >= 0.0 && *value < 1.8e19)
                .map(|value| value as u64)
        }),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A time in milliseconds, in nanoseconds.
pub(super) fn milliseconds(row: &Row, field: &str) -> Option<u64> {
    row.get(field)?.as_f64().and_then(ms_to_ns)
}

/// A text; empty if the version does not have the field, or it is null.
pub(super) fn text(row: &Row, field: &str) -> String {
    match row.get(field) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

/// A sum over rows; nothing if no row has the field.
pub(super) fn sum(rows: &[&Row], of: impl Fn(&Row) -> Option<u64>) -> Option<u64> {
    rows.iter()
        .filter_map(|row| of(row))
        .fold(None, |sum, value| Some(sum.unwrap_or(0u64).saturating_add(value)))
}
