//! The screen on terminals of every size, with and without colours; the text of recorded snapshots;
//! hostile names; silence and restarts.
//!
//! Golden texts are in `expected/`; `TIERSMITH_UPDATE=1` writes them anew, and then they are to be
//! read.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use tiersmith_awr::events::WaitClass;
use tiersmith_awr::host::HostStat;
use tiersmith_awr::{
    Interval, IoStat, MediumStat, ON_CPU, Sampling, Seen, Snapshot, Source, StatementStat,
    WaitStat, Who, statistic,
};

use super::keys::Action;
use super::screen::Effect;
use super::{Alphabet, FULL_ROWS, News, Screen, View, text};

/// 2026-08-24 10:00:00 UTC.
const BEGAN_S: u64 = 1_787_565_600;
const HOSTILE: &str = "ev\u{1b}[2J\u{1b}]0;owned\u{7}il\u{202e}\r\n\u{9b}31m";

fn host(tick: u64) -> HostStat {
    let ns = |value: u64| value * tick * 1_000_000;
    serde_json::from_value(serde_json::json!({
        "name": "h", "platform": "Linux", "cpus": {"threads": 2, "cores": 2, "sockets": 1},
        "cpu": {"user_ns": ns(3000), "system_ns": ns(1500), "idle_ns": ns(5000),
        "iowait_ns": ns(500), "steal_ns": 0},
        "load": {"one": 0.5, "five": 0.25, "fifteen": 0.1},
        "memory": {"total_bytes": 8589934592_u64, "available_bytes": 4294967296_u64},
        "disks": [{"name": "sda", "reads": 100 * tick, "read_bytes": 819_200 * tick,
        "read_ms": 50 * tick, "writes": 200 * tick,
                   "write_bytes": 1_638_400 * tick, "write_ms": 900 * tick,
                   "busy_ms": 2_500 * tick}],
        "missing": [], "boot": "b", "queue": {"running": 3, "blocked": 1},
        "pressure": {"cpu_some_us": 500_000 * tick, "io_some_us": 250_000 * tick, "io_full_us": 0,
        "memory_some_us": 0, "memory_full_us": 0}
    }))
    .unwrap()
}

fn blank(product: &str, database: &str, tick: u64) -> Snapshot {
    let source = Source {
        instance: "1".to_owned(),
        database: database.to_owned(),
        product: product.to_owned(),
        version: "1.0".to_owned(),
        path: "a place".to_owned(),
        ..Source::default()
    };
    let mut snapshot =
        Snapshot::at(source, (BEGAN_S + 5 * tick) * 1_000_000_000, 5 * tick * 1_000_000_000 + 1);
    snapshot.host = host(tick);
    snapshot
}

fn wait(
    name: &str,
    class: WaitClass,
    background: bool,
    count: u64,
    total_ns: u64,
    bytes: u64,
) -> WaitStat {
    WaitStat {
        name: name.to_owned(),
        class,
        background,
        help: String::new(),
        count,
        total_ns,
        max_ns: 0,
        bytes,
        buckets: Vec::new(),
    }
}

/// A server whose waits are sampled, after `tick` intervals of 5 s.
fn server(tick: u64) -> Snapshot {
    let mut of = blank("PostgreSQL", "shop", tick);
    of.db_time_ns = Some(8_000_000_000 * tick);
    of.add_counter(statistic::USER_COMMITS, "transactions", 1_000 * tick);
    of.add_counter(statistic::REDO_SIZE, "bytes", (10 << 20) * tick);
    of.waits = vec![
        wait(
            "db file sequential read",
            WaitClass::UserIo,
            false,
            500 * tick,
            1_000_000_000 * tick,
            0,
        ),
        wait("data file write", WaitClass::SystemIo, true, 50 * tick, 100_000_000 * tick, 0),
    ];
    let mut sampling = Sampling::new("one".to_owned(), 1000);
    for _ in 0..tick {
        for _ in 0..5 {
            sampling.looks += 1;
            sampling.saw(ON_CPU, None);
            sampling.saw("IO: WALSync", Some(WaitClass::Commit));
        }
        for _ in 0..3 {
            sampling.saw("IO: DataFileRead", Some(WaitClass::UserIo));
        }
        sampling.saw_session(&Seen {
            event: HOSTILE,
            class: Some(WaitClass::Application),
            session: Who { id: "42", text: HOSTILE },
            statement: Who { id: "7", text: HOSTILE },
            blocker: Some(Who { id: "17", text: "idle in transaction" }),
        });
    }
    of.sampling = Some(sampling);
    for (id, words, ms) in
        [("1", "SELECT abalance FROM pgbench_accounts WHERE aid = $1", 3), ("2", HOSTILE, 2)]
    {
        of.statements.push(StatementStat {
            id: id.to_owned(),
            text: words.to_owned(),
            calls: 1_000 * tick,
            total_ns: ms * 1_000_000_000 * tick,
            rows: 1_000 * tick,
            pages_hit: Some(900 * tick),
            pages_read: Some(100 * tick),
            redo_bytes: None,
            temp_bytes: None,
        });
    }
    of.add_io(IoStat {
        file_class: "data".into(),
        tier: "home".into(),
        reads: 500 * tick,
        read_bytes: (4 << 20) * tick,
        read_ns: 1_000_000_000 * tick,
        ..IoStat::default()
    });
    of
}

/// A mounted home on an emulated tier.
fn home(tick: u64) -> Snapshot {
    let mut of = blank("a mounted home, profile postgresql", "db", tick);
    of.waits = vec![
        wait(
            "tier block write",
            WaitClass::UserIo,
            false,
            2_000 * tick,
            40_000_000 * tick,
            (16 << 20) * tick,
        ),
        wait("log file sync", WaitClass::Commit, false, 1_000 * tick, 2_500_000_000 * tick, 0),
        wait("free buffer waits", WaitClass::Configuration, false, 5 * tick, 20_000_000 * tick, 0),
        wait(
            "db file parallel write",
            WaitClass::SystemIo,
            true,
            100 * tick,
            900_000_000 * tick,
            (5 << 20) * tick,
        ),
    ];
    of.add_counter(statistic::FLASH_HITS, "blocks", 900 * tick);
    of.add_counter(statistic::FLASH_MISSES, "blocks", 100 * tick);
    of.add_level("tier dirty", "bytes", 2 << 20);
    of.add_level("tier cached", "bytes", 20 << 20);
    of.add_level("tier free", "bytes", 10 << 20);
    of.add_medium(MediumStat {
        name: "fast".into(),
        kind: "a file".into(),
        emulated: true,
        bytes: 32 << 20,
        used_bytes: 22 << 20,
    });
    of
}

fn interval(of: fn(u64) -> Snapshot, tick: u64) -> Interval {
    Interval::between(&of(tick), &of(tick + 1)).unwrap()
}

fn screen(colour: bool) -> Screen {
    Screen::new("a place", Duration::from_secs(5), true, Alphabet::Unicode, colour, BEGAN_S)
}

/// A screen after some intervals.
fn filled(of: fn(u64) -> Snapshot, colour: bool) -> Screen {
    let mut screen = screen(colour);
    screen.hear(News::Begins, BEGAN_S);
    for tick in 0..8 {
        screen.hear(News::Interval(Box::new(interval(of, tick))), BEGAN_S + 5 * tick + 5);
    }
    screen
}

fn drawn(screen: &mut Screen, columns: u16, rows: u16, now_s: u64) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| screen.draw(frame, now_s)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let mut out = String::new();
    for row in buffer.content.chunks(width) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/expected").join(name);
    if std::env::var_os("TIERSMITH_UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{} is different:\n{text}", path.display());
}

fn assert_harmless(text: &str) {
    let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(bad), "{text:?}");
}

#[test]
fn the_text_of_one_interval_is_the_recorded_one() {
    for (name, of) in [("server.txt", server as fn(u64) -> Snapshot), ("home.txt", home)] {
        let text = text(&View::of(&interval(of, 0)), Alphabet::Unicode, 80, FULL_ROWS);
        assert_harmless(&text);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_golden(name, &text);
    }
}

#[test]
fn a_source_that_tells_reads_by_table_alone_has_these_in_the_pane_of_files() {
    let tables = |tick: u64| {
        let mut of = server(tick);
        of.io.clear();
        let file = |name: &str, mib: u64| tiersmith_awr::FileStat {
            id: name.to_owned(),
            name: name.to_owned(),
            bytes: Some(1 << 30),
            read_bytes: (mib * tick) << 20,
            read_ns: None,
        };
        of.files = vec![file("public.orders", 50), file("public.\u{1b}[2J", 5)];
        of
    };
    let mut screen = screen(false);
    screen.hear(News::Begins, BEGAN_S);
    let interval = Interval::between(&tables(1), &tables(2)).unwrap();
    screen.hear(News::Interval(Box::new(interval)), BEGAN_S + 5);
    screen.act(Action::Pane(2));
    let text = lines(&drawn(&mut screen, 80, 24, BEGAN_S + 5));
    assert_harmless(&text);
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(at("public.orders") < at("public.\\u{1b}"), "{text}");
    assert!(text.contains("10.0 MiB") && !text.contains("no reads or writes"), "{text}");
}

#[test]
fn eighty_columns_and_twenty_four_rows_show_everything_that_matters() {
    let mut server = filled(server, true);
    assert_golden("server-80x24.txt", &lines(&drawn(&mut server, 80, 24, BEGAN_S + 40)));
    let mut home = filled(home, true);
    home.act(Action::Pane(3));
    assert_golden("home-80x24.txt", &lines(&drawn(&mut home, 80, 24, BEGAN_S + 40)));
}

#[test]
fn every_size_can_be_drawn_and_small_ones_degrade() {
    let mut screen = filled(server, true);
    let tiny = lines(&drawn(&mut screen, 29, 4, BEGAN_S + 40));
    assert!(tiny.starts_with("29 x 4 is too small"), "{tiny}");
    let small = lines(&drawn(&mut screen, 40, 10, BEGAN_S + 40));
    assert!(
        small.contains("[1 Events]") && small.contains("AAS") && !small.contains("intervals"),
        "{small}"
    );
    let large = lines(&drawn(&mut screen, 200, 60, BEGAN_S + 40));
    assert!(
        large.contains("[1 Events]")
            && large.contains("[2 Statements]")
            && large.contains("[3 Files]"),
        "{large}"
    );
    for columns in [1, 2, 7, 30, 31, 59, 60, 61, 79, 200] {
        for rows in [1, 2, 4, 5, 6, 7, 8, 9, 16, 17, 18, 36, 60] {
            for action in [Action::Pane(0), Action::Pane(4), Action::Help] {
                screen.act(action);
                drawn(&mut screen, columns, rows, BEGAN_S + 40);
            }
        }
    }
    // An empty screen, too.
    for (columns, rows) in [(80, 24), (30, 5), (200, 60)] {
        drawn(&mut self::screen(true), columns, rows, BEGAN_S);
    }
}

#[test]
fn hostile_names_reach_no_cell() {
    for of in [server as fn(u64) -> Snapshot, home] {
        let mut screen = filled(of, true);
        screen.hear(News::Gap(HOSTILE.to_owned()), BEGAN_S + 45);
        for pane in 0..6 {
            screen.act(Action::Pane(pane));
            let shown = lines(&drawn(&mut screen, 120, 50, BEGAN_S + 40));
            assert_harmless(&shown);
            assert!(
                of(1).sampling.is_none() || pane > 1 || shown.contains("ev\\u{1b}[2J"),
                "{shown}"
            );
        }
    }
    let ascii = text(&View::of(&interval(server, 0)), Alphabet::Ascii, 100, FULL_ROWS);
    assert!(ascii.is_ascii());
}

#[test]
fn without_colours_the_letters_are_the_same_and_no_cell_has_a_colour() {
    let coloured = drawn(&mut filled(server, true), 80, 24, BEGAN_S + 40);
    let plain = drawn(&mut filled(server, false), 80, 24, BEGAN_S + 40);
    assert_eq!(lines(&coloured), lines(&plain));
    assert!(plain.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(coloured.content.iter().any(|cell| cell.bg == Color::Green));
}

#[test]
fn silence_is_said_and_leaves_a_gap_and_figures_come_again_afterwards() {
    let mut screen = filled(server, false);
    screen.hear(News::Silent(format!("cannot connect {HOSTILE}")), BEGAN_S + 45);
    screen.hear(News::Silent("cannot connect".to_owned()), BEGAN_S + 50);
    let shown = lines(&drawn(&mut screen, 80, 24, BEGAN_S + 52));
    assert!(
        shown.contains("no answer since 10:00:40 (12 s), trying again: cannot connect"),
        "{shown}"
    );
    assert!(shown.contains("!!"), "{shown}");
    screen.hear(News::Begins, BEGAN_S + 55);
    screen.hear(News::Interval(Box::new(interval(server, 20))), BEGAN_S + 60);
    let shown = lines(&drawn(&mut screen, 80, 24, BEGAN_S + 60));
    assert!(
        !shown.contains("no answer") && shown.contains("AAS 2.80 (sampled, 5 looks"),
        "{shown}"
    );
    // An answer that never comes is noticed without anybody saying so.
    let shown = lines(&drawn(&mut screen, 80, 24, BEGAN_S + 90));
    assert!(shown.contains("no answer since 10:01:00 (30 s), still waiting"), "{shown}");
}

#[test]
fn a_restart_is_a_gap_with_its_reason_and_nothing_is_negative() {
    let (before, mut after) = (server(3), server(1));
    after.taken_unix_ns = before.taken_unix_ns + 5_000_000_000;
    after.monotonic_ns = before.monotonic_ns + 5_000_000_000;
    let error = Interval::between(&before, &after).unwrap_err();
    let mut screen = filled(server, false);
    screen.hear(News::Gap(error.to_string()), BEGAN_S + 45);
    let shown = lines(&drawn(&mut screen, 80, 24, BEGAN_S + 45));
    assert!(shown.contains("gap: the source was restarted") && shown.contains('!'), "{shown}");
}

#[test]
fn keys_choose_sort_scroll_and_pause() {
    let mut screen = filled(server, false);
    let shown = |screen: &mut Screen| lines(&drawn(screen, 80, 24, BEGAN_S + 40));
    screen.act(Action::Previous);
    assert!(shown(&mut screen).contains("[6 Sessions]"));
    screen.act(Action::Next);
    screen.act(Action::Sort);
    assert!(shown(&mut screen).contains("sort: average"));
    screen.act(Action::Bottom);
    let bottom = shown(&mut screen);
    screen.act(Action::Page(1));
    assert_eq!(bottom, shown(&mut screen), "there is nothing below the last row");
    screen.act(Action::Top);
    screen.act(Action::Pause);
    let paused = shown(&mut screen);
    assert!(paused.contains("PAUSED"), "{paused}");
    screen.hear(News::Interval(Box::new(interval(home, 20))), BEGAN_S + 45);
    assert_eq!(shown(&mut screen), paused, "what comes meanwhile is not shown");
    screen.act(Action::Pause);
    assert!(shown(&mut screen).contains("mounted home"), "and is there afterwards");
    screen.act(Action::Help);
    let help = shown(&mut screen);
    assert!(help.contains("Letters in the chart") && help.contains("M Commit"), "{help}");
    assert!(help.contains("every 5.00 s, and looked at once a second"), "{help}");
    assert_eq!(screen.act(Action::Quit), Effect::None, "it ends the help");
    assert_eq!(screen.act(Action::Longer), Effect::Every(Duration::from_secs(10)));
    assert_eq!(screen.act(Action::Shorter), Effect::Every(Duration::from_secs(5)));
    assert_eq!(screen.act(Action::Quit), Effect::Quit);
}

#[test]
fn json_has_what_was_measured_and_leaves_out_what_was_not() {
    let view = serde_json::to_value(View::of(&interval(server, 0))).unwrap();
    assert_eq!(view["kind"], "tiersmith top");
    assert_eq!(view["activity"]["basis"], "sampled");
    assert_eq!(view["activity"]["looks"], 5);
    assert!((view["activity"]["total"].as_f64().unwrap() - 2.8).abs() < 1e-9);
    assert!((view["activity"]["measured"].as_f64().unwrap() - 1.6).abs() < 1e-9);
    let home = serde_json::to_value(View::of(&interval(self::home, 0))).unwrap();
    assert_eq!((&home["emulated"], &home["activity"]["basis"]), (&true.into(), &"measured".into()));
    assert!((home["tiers"]["hit_pct"].as_f64().unwrap() - 90.0).abs() < 1e-9);
    assert!((home["tiers"]["drain_s"].as_f64().unwrap() - 2.0).abs() < 1e-9, "2 MiB at 1 MiB/s");
    assert!(home["activity"]["measured"].is_null(), "it does not tell DB time");
}

#[test]
fn samples_that_miss_much_say_how_much() {
    let busy = |tick: u64| {
        let mut of = server(tick);
        of.db_time_ns = Some(80_000_000_000 * tick);
        of
    };
    let view = View::of(&Interval::between(&busy(0), &busy(1)).unwrap());
    let said = text(&view, Alphabet::Unicode, 100, FULL_ROWS);
    assert!(
        said.contains("AAS 2.80 (sampled, 5 looks, which see 17.5 % of the measured 16.00)"),
        "{said}"
    );
    assert!(said.contains("on a busy machine samples see less"), "{said}");
    assert_eq!(serde_json::to_value(&view).unwrap()["activity"]["samples_miss"], 16.0);
    let near = View::of(&interval(server, 0));
    assert!(
        !text(&near, Alphabet::Unicode, 100, FULL_ROWS).contains("see less"),
        "chance explains it"
    );
    // The other way round it is the measured time that misses what has not ended.
    let idle = |tick: u64| {
        let mut of = server(tick);
        of.db_time_ns = Some(tick);
        of
    };
    let view = View::of(&Interval::between(&idle(0), &idle(1)).unwrap());
    let said = text(&view, Alphabet::Unicode, 100, FULL_ROWS);
    assert!(
        said.contains("have not ended are not in that yet") && !said.contains("see less"),
        "{said}"
    );
    let json = serde_json::to_value(&view).unwrap();
    assert!(
        json["activity"]["samples_miss"].is_null()
            && json["activity"]["samples_exceed"].is_number()
    );
}

#[test]
fn the_machine_that_asks_is_not_shown_as_that_of_a_database_elsewhere() {
    let remote = |tick: u64| {
        let mut of = server(tick);
        of.source.remote = Some(true);
        of
    };
    let view = View::of(&Interval::between(&remote(0), &remote(1)).unwrap());
    let said = text(&view, Alphabet::Unicode, 100, FULL_ROWS);
    assert!(said.contains("not the database's:  CPU %"), "{said}");
    assert!(said.contains("Disks of this machine, not of the database's"), "{said}");
    assert!(!said.contains("of 2 processors"), "no line of processors: {said}");
    let json = serde_json::to_value(&view).unwrap();
    assert_eq!((json["remote"].as_bool(), json["activity"]["cpus"].is_null()), (Some(true), true));
}

#[test]
fn sessions_have_a_pane_with_those_that_hold_others_up_first() {
    let mut screen = filled(server, true);
    screen.act(Action::Pane(5));
    let shown = lines(&drawn(&mut screen, 120, 50, BEGAN_S + 40));
    let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text} in {shown}"));
    assert!(at("[6 Sessions]") < at("Sessions that hold others up"), "{shown}");
    assert!(at("idle in transaction") < at("Statements seen"), "{shown}");
    let mut screen = filled(home, true);
    screen.act(Action::Pane(5));
    let shown = lines(&drawn(&mut screen, 120, 50, BEGAN_S + 40));
    assert!(shown.contains("this source is not sampled"), "{shown}");
    let json = serde_json::to_value(View::of(&interval(server, 0))).unwrap();
    assert_eq!(json["seen"]["blockers"][0]["id"], "17");
    assert!(serde_json::to_value(View::of(&interval(self::home, 0))).unwrap()["seen"].is_null());
}

#[test]
fn the_past_is_scrolled_to_and_stays_on_the_screen_until_the_newest_is_asked_for() {
    let mut screen = filled(server, false);
    let shown = |screen: &mut Screen| lines(&drawn(screen, 80, 24, BEGAN_S + 40));
    let newest = shown(&mut screen);
    screen.hear(News::Gap("restarted".to_owned()), BEGAN_S + 45);
    screen.hear(News::Begins, BEGAN_S + 50);
    screen.act(Action::Back(1));
    let past = shown(&mut screen);
    assert!(
        past.contains("PAST: 1 BACK") && past.contains("8 intervals, 35 s, to 10:00:40"),
        "{past}"
    );
    let below =
        |screen: &str| screen.lines().skip(1).take(20).map(str::to_owned).collect::<Vec<_>>();
    screen.hear(News::Interval(Box::new(interval(home, 20))), BEGAN_S + 55);
    screen.hear(News::Silent("away".to_owned()), BEGAN_S + 60);
    assert_eq!(below(&shown(&mut screen)), below(&past), "what comes meanwhile moves nothing");
    // The gap after it, then what came.
    for text in ["no figures: no answer, a restart", "a mounted home"] {
        screen.act(Action::Back(-1));
        assert!(shown(&mut screen).contains(text), "{text}: {}", shown(&mut screen));
    }
    screen.act(Action::Back(i64::MAX));
    assert!(shown(&mut screen).contains("1 intervals, 0 s, to 10:00:05"), "{}", shown(&mut screen));
    screen.act(Action::Newest);
    assert!(shown(&mut screen).contains("no answer since"), "{}", shown(&mut screen));
    assert!(newest.contains("p pause"), "{newest}");
}

#[test]
fn an_interval_whose_figures_are_not_kept_says_so_and_pausing_keeps_its_place() {
    let mut screen = screen(false);
    screen.hear(News::Begins, BEGAN_S);
    for tick in 0..130 {
        screen.hear(News::Interval(Box::new(interval(server, tick))), BEGAN_S + 5 * tick + 5);
    }
    let shown = |screen: &mut Screen| lines(&drawn(screen, 80, 24, BEGAN_S + 650));
    screen.act(Action::Back(119));
    let kept = shown(&mut screen);
    assert!(kept.contains("AAS 2.80"), "{kept}");
    screen.act(Action::Back(1));
    assert!(shown(&mut screen).contains("are not kept any more"), "{}", shown(&mut screen));
    screen.act(Action::Back(-1));
    screen.act(Action::Pause);
    screen.hear(News::Interval(Box::new(interval(server, 130))), BEGAN_S + 655);
    assert_eq!(shown(&mut screen), kept);
    screen.act(Action::Pause);
    assert!(shown(&mut screen).contains("PAST: 120 BACK"), "{}", shown(&mut screen));
}

#[test]
fn the_help_lists_every_key_that_does_something() {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    let help: Vec<&str> =
        super::keys::HELP.iter().flat_map(|(keys, _)| keys.split([' ', ','])).collect();
    let lists = |name: &str| help.contains(&name);
    for c in ' '..='~' {
        let name = match c {
            ' ' => "Space".to_owned(),
            '=' => "+".to_owned(),
            '_' => "-".to_owned(),
            '2'..='6' => "1".to_owned(),
            c => c.to_ascii_lowercase().to_string(),
        };
        let plain = super::keys::action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
        assert!(plain.is_none() || lists(&name), "{c:?}");
        let control = super::keys::action(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
        assert!(control.is_none() || lists(&format!("Ctrl-{}", c.to_ascii_uppercase())), "{c:?}");
    }
    for (code, name) in [
        (KeyCode::Esc, "Esc"),
        (KeyCode::Tab, "Tab"),
        (KeyCode::BackTab, "Shift-Tab"),
        (KeyCode::Left, "Left"),
        (KeyCode::Right, "Right"),
        (KeyCode::Up, "Up"),
        (KeyCode::Down, "Down"),
        (KeyCode::PageUp, "PageUp"),
        (KeyCode::PageDown, "PageDown"),
        (KeyCode::Home, "Home"),
        (KeyCode::End, "End"),
    ] {
        assert!(
            super::keys::action(KeyEvent::new(code, KeyModifiers::NONE)).is_some() && lists(name)
        );
    }
    assert!(help.contains(&super::panes::NAMES.len().to_string().as_str()), "1 to the last pane");
}
