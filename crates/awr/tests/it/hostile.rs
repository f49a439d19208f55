//! What others send, seeded: the properties of the fuzz targets on inputs made of the pieces that
//! such texts are made of, in every build.
//!
//! Not the fuzzer: that looks on its own, see `fuzz/README.md`.
use crate::foreign;

/// Texts of these pieces.
fn texts(seed: u64, count: usize, most: usize, pieces: &[&str], mut with: impl FnMut(&str)) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..count {
        let text: String = (0..rng.usize(0..most))
            .map(|_| rng.choice(pieces).copied().unwrap_or_default())
            .collect();
        with(&text);
    }
}

#[test]
fn any_text_report_is_an_error_or_a_report() {
    let pieces = [
        "\nStatistic                Total\n---------------- ---------\n",
        "\nForeground Wait Events   DB/Inst: X/x Snaps: 1-2\n\nEvent                Waits   Time \
         (s)\n---------------- --------- ---------\n",
        "log file sync           12        4\n",
        "user commits            1.2E+10\n",
        "user commits           ########\n",
        "\n\n",
        "-> note\n",
        "  DB Time: 1.5 (mins)\n",
        "Parameter Name  Begin value\n--------------- -----------\n<script>        \u{1b}[2J\n",
        "é",
        "\u{c}",
        "------",
        " ",
    ];
    texts(1, 300, 25, &pieces, foreign::import_text);
}

#[test]
fn any_page_is_an_error_or_a_report() {
    let pieces = [
        "<table summary=\"x\">",
        "</table>",
        "<tr>",
        "<td>",
        "<th>",
        "Event",
        "Waits",
        "Total(s)",
        "Time (s)",
        "Statistic",
        "Total",
        "I#",
        "DB time (s)",
        "12",
        "1,234.5K",
        "#####",
        "<h3>Foreground Wait Events</h3>",
        "&lt;script&gt;",
        "&#27;",
        "<td colspan=9>",
        "Parameter Name",
        "Value",
        "Filetype Name",
        "Reads: Data",
        "Writes: Data",
        "<",
        "<!--",
    ];
    texts(2, 500, 50, &pieces, foreign::import_html);
}

#[test]
fn a_damaged_snapshot_is_refused_or_is_written_as_it_was_read() {
    let mut of = tiersmith_awr::Snapshot::at(tiersmith_awr::Source::default(), 5, 7);
    of.db_time_ns = Some(3);
    of.add_counter("user commits", "transactions", 9);
    of.add_level("x", "bytes", 1);
    of.files.push(tiersmith_awr::FileStat {
        id: "1".to_owned(),
        name: "t".to_owned(),
        ..Default::default()
    });
    let whole = of.to_json();
    let body = &whole[whole.find("\"snapshot\":").unwrap() + 11..whole.trim_end().len() - 1];
    foreign::snapshot(&whole);
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..400 {
        let mut bytes = body.as_bytes().to_vec();
        for _ in 0..rng.usize(0..6) {
            let at = rng.usize(0..bytes.len());
            match rng.u8(0..3) {
                0 => bytes[at] = *rng.choice(b"09-\"[]{},:.e\xffnul").unwrap(),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, *rng.choice(b"09-\"[]{},:.e ").unwrap()),
            }
        }
        foreign::snapshot(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn any_answer_of_a_redis_is_an_error_or_a_reply() {
    let pieces =
        ["*", "$", "%", ":", "1", "-1", "3", "\r\n", "ab", "+", "_", "9999999999", ">", "=", "!"];
    texts(4, 5000, 20, &pieces, |text| foreign::resp(text.as_bytes()));
}

#[test]
fn no_address_repeats_a_password() {
    let pieces = [
        "postgresql",
        "://",
        "@",
        ":",
        "/",
        "?",
        "host=",
        "%",
        "%40",
        "%00",
        "[",
        "]",
        "é",
        "1",
        "&",
        "#",
        "\\",
        " ",
        "password=",
    ];
    texts(5, 10_000, 9, &pieces, foreign::address);
}

#[test]
fn no_literal_survives() {
    let pieces = [
        "select", " ", "'", "''", "\\", "\"", "`", "$", "$q$", "--", "/*", "*/", "#", "\n", "e",
        "1", "E'", "x", "é", "1e", "_",
    ];
    texts(6, 10_000, 14, &pieces, foreign::redaction);
}
