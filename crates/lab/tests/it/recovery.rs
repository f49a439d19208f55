//! Servers that are killed under load, with a stopwatch: small.
//!
//! Deliberately absent: figures; what is durable after a kill (`tpcc.rs`, the crash suite).

use tiersmith_lab::ByteSize;
use tiersmith_lab::case::Load;
use tiersmith_lab::place::{Leftovers, mounts};
use tiersmith_lab::server;
use tiersmith_lab::study::Silent;
use tiersmith_lab::study::recovery::{self, Recovery, Wanted};

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    for place in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(place)).unwrap();
    }
    dir
}

fn wanted(target: &str, dir: &std::path::Path) -> Wanted {
    Wanted {
        target: Some(target.into()),
        clients: Some(2),
        seconds: Some(1.5),
        scale: Some(ByteSize(2 << 20)),
        home: Some(dir.join("home")),
        fast: Some(dir.join("fast")),
        emulate: true,
        ..Wanted::default()
    }
}

fn killed(target: &str, load: Load) -> Option<Recovery> {
    let product = server::product(target).unwrap();
    if let Err(e) = server::find(product).and_then(|_| server::account(product)) {
        eprintln!("skipped: a kill of {target}, because {e}");
        return None;
    }
    let dir = place();
    let wanted = Wanted { load: Some(load), ..wanted(target, dir.path()) };
    let recovery = recovery::run(&wanted, &Leftovers::default(), &Silent).unwrap();
    for place in ["home", "fast"] {
        let left: Vec<_> =
            std::fs::read_dir(dir.path().join(place)).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(!mounts().iter().any(|mount| mount.at.starts_with(dir.path())));
    Some(recovery)
}

/// Each run was up, down, and up again.
fn is_whole(recovery: &Recovery) {
    assert!(!recovery.runs.is_empty(), "{:?}", recovery.not_run);
    for run in &recovery.runs {
        let seen = &run.recovered;
        assert!(seen.before_per_s > 0.0 && seen.first_answer_s > 0.0, "{run:?}");
        assert!(seen.full_s.is_none_or(|full| full >= seen.first_answer_s), "{run:?}");
        let before: f64 =
            seen.timeline.iter().filter(|slot| slot.at_s < -0.05).map(|s| s.per_s).sum();
        // Nothing ends between the slot of the kill and that of the first answer.
        let down =
            seen.timeline.iter().filter(|s| s.at_s > 0.05 && s.at_s + 0.15 < seen.first_answer_s);
        let after = seen.timeline.iter().filter(|slot| slot.at_s + 0.15 > seen.first_answer_s);
        assert!(before > 0.0 && after.map(|slot| slot.per_s).sum::<f64>() > 0.0, "{run:?}");
        assert!(down.into_iter().all(|slot| slot.per_s == 0.0), "{run:?}");
    }
    let text = recovery::render_text(recovery);
    assert!(text.starts_with("Killed with SIGKILL under load"), "{text}");
    for shown in [text, recovery::render_html(recovery)] {
        // In the page, an apostrophe is written in another way.
        let load = recovery.load.split('\'').next().unwrap();
        assert!(shown.contains("answered after") && shown.contains(load), "{shown}");
        assert!(shown.contains("EMULATED"), "{shown}");
    }
}

#[test]
fn a_killed_postgres_is_timed_to_its_first_answer_and_to_full_throughput() {
    if let Some(recovery) = killed("postgres", Load::YcsbA) {
        is_whole(&recovery);
    }
}

#[test]
fn a_killed_mariadb_is_timed_to_its_first_answer_and_to_full_throughput() {
    if let Some(recovery) = killed("mariadb", Load::OltpReadWrite) {
        is_whole(&recovery);
    }
}

#[test]
fn a_killed_redis_is_timed_to_its_first_answer_and_to_full_throughput() {
    if let Some(recovery) = killed("redis", Load::YcsbA) {
        is_whole(&recovery);
    }
}

#[test]
fn what_cannot_be_killed_is_said_and_a_load_that_cannot_be_watched_is_refused() {
    let dir = place();
    let recovery =
        recovery::run(&wanted("sqlite", dir.path()), &Leftovers::default(), &Silent).unwrap();
    assert!(recovery.runs.is_empty());
    let text = recovery::render_text(&recovery);
    assert!(text.contains("skipped: SQLite, because the program that runs is not"), "{text}");
    let adding = Wanted { load: Some(Load::YcsbD), ..wanted("sqlite", dir.path()) };
    let recovery = recovery::run(&adding, &Leftovers::default(), &Silent).unwrap();
    assert!(recovery.not_run[0].1.contains("ycsb-d adds records"), "{:?}", recovery.not_run);
    let slob = Wanted { load: Some(Load::Slob), ..wanted("postgres", dir.path()) };
    let refused = recovery::run(&slob, &Leftovers::default(), &Silent).unwrap_err().to_string();
    assert!(refused.contains("the setting load = slob"), "{refused}");
}
