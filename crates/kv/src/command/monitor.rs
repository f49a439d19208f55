//! MONITOR: a client is told of every command that runs, also of those of scripts, of a transaction
//! and of the primary that is followed.
//!
//! As in Redis, commands for the administrator are left out, secrets are replaced by `(redacted)`,
//! and a command that waited for a key is told once, when it began to wait. A line is sent when the
//! batch of its command is durable.

use std::fmt::Write;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::deliveries::{Delivery, What};
use super::session::UNIX;
use super::{Arguments, Context, Done, Refusal, Row, acl, slowlog};

/// What stands for a secret.
const REDACTED: &str = "(redacted)";

pub(crate) fn monitor(context: &mut Context<'_>, _args: &Arguments<'_>) -> Done {
    if context.shared.in_exec {
        return Err(Refusal::Said("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    let session = &mut *context.session;
    if !session.follows && !session.monitors {
        session.monitors = true;
        context.shared.monitors.push(session.id);
        context.reply.ok();
    }
    Ok(())
}

/// Before a command runs: a script is told before what it calls.
#[cold]
pub(super) fn begin(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>) {
    if runs_a_script(row) {
        tell(context, row, args);
    }
}

/// After a command has run.
#[cold]
pub(super) fn end(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>) {
    let told = !runs_a_script(row)
        && context.shared.waking.is_none()
        && !acl::is_hidden_from_monitors(row, args);
    if told {
        tell(context, row, args);
    }
}

/// A transaction that is given up is told of too, so that its end is seen.
#[cold]
pub(super) fn abort(context: &mut Context<'_>) {
    if !context.shared.monitors.is_empty()
        && let Some(row) = super::lookup(b"exec")
    {
        tell(context, row, &[b"exec"]);
    }
}

fn runs_a_script(row: &Row) -> bool {
    row.name.starts_with("eval") || row.name.starts_with("fcall")
}

/// Tells all. A line that is longer than what may wait for a monitor is not made: to quote a value
/// takes up to four times its memory.
fn tell(context: &mut Context<'_>, row: &Row, args: &Arguments<'_>) {
    let begin = beginning(context);
    let bytes = begin.len() + words_bytes(row, args);
    let limit = context.shared.configuration.hot.output_of_monitors().hard;
    let shared = &mut *context.shared;
    let goes = |client: &u64| !shared.deliveries.takes(*client, bytes as u64, limit);
    let (gone, told): (Vec<u64>, Vec<u64>) = shared.monitors.iter().copied().partition(goes);
    gone.into_iter().for_each(|client| shared.deliveries.cut(client));
    if told.is_empty() {
        return;
    }
    let line: Rc<[u8]> = line(begin, bytes, row, args).into();
    for client in told {
        let what = What::Line(Rc::clone(&line));
        shared.deliveries.push(Delivery { client, what }, limit);
    }
}

/// `+seconds.micros [db who]`.
fn beginning(context: &Context<'_>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let who = match context.session.address.as_str() {
        _ if context.shared.in_script => "lua".to_owned(),
        UNIX => format!("unix:{}", context.shared.configuration.text("unixsocket")),
        address => address.to_owned(),
    };
    format!("+{}.{:06} [{} {who}]", now.as_secs(), now.subsec_micros(), context.session.db)
}

/// Bytes of the words of a line, with its end.
fn words_bytes(row: &Row, args: &Arguments<'_>) -> usize {
    let word = |(at, word): (usize, &&[u8])| match slowlog::is_secret(row, args, at) {
        true => REDACTED.len(),
        false => word.iter().map(|byte| quoted_bytes(*byte)).sum(),
    };
    args.iter().enumerate().map(|each| 3 + word(each)).sum::<usize>() + 2
}

/// `+seconds.micros [db who] "word" ...`, as Redis writes it.
fn line(begin: String, bytes: usize, row: &Row, args: &Arguments<'_>) -> Vec<u8> {
    let mut line = begin;
    line.reserve_exact(bytes - line.len());
    for (at, word) in args.iter().enumerate() {
        line.push_str(" \"");
        match slowlog::is_secret(row, args, at) {
            true => line.push_str(REDACTED),
            false => word.iter().for_each(|byte| quote(*byte, &mut line)),
        }
        line.push('"');
    }
    line.push_str("\r\n");
    debug_assert_eq!(line.len(), bytes, "BUG: a line is not as long as it was said to be");
    line.into_bytes()
}

/// How many bytes [`quote`] makes of one.
fn quoted_bytes(byte: u8) -> usize {
    match byte {
        b'\\' | b'"' | b'\n' | b'\r' | b'\t' | 0x07 | 0x08 => 2,
        b' '..=b'~' => 1,
        _ => 4,
    }
}

/// A byte within quotes.
fn quote(byte: u8, line: &mut String) {
    match byte {
        b'\\' | b'"' => {
            line.push('\\');
            line.push(byte.into());
        }
        b'\n' => line.push_str("\\n"),
        b'\r' => line.push_str("\\r"),
        b'\t' => line.push_str("\\t"),
        0x07 => line.push_str("\\a"),
        0x08 => line.push_str("\\b"),
        b' '..=b'~' => line.push(byte.into()),
        // Writing to a string does not fail.
        _ => {
            let _ = write!(line, "\\x{byte:02x}");
        }
    }
}
