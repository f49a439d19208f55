//! Studies of `tiersmith kv`: a small one, a kill, the listing, and where it cannot run.
//!
//! Deliberately absent: figures, and what the server promises (`crates/kv/tests`).

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tiersmith_lab::place::FileSystem;

use crate::study::nothing_left;

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.current_dir(dir).args(arguments).output().unwrap()
}

/// Places that a server's account can enter.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    for name in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    dir
}

/// Of root, the server's account must be able to start the program, which may lie in root's own
/// directories.
fn is_out_of_reach(what: &str, output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let found = said.contains("cannot reach");
    if found {
        eprintln!("skipped: {what}, because the server's account cannot start the program");
    }
    found
}

const SMALL: [&str; 14] = [
    "--target",
    "kv",
    "--home",
    "home",
    "--fast",
    "fast",
    "--emulate",
    "--scale",
    "2M",
    "--no-html",
    "--clients",
    "3",
    "--json",
    "result.json",
];

/// Runs a small study; its text and its result, and nothing where the program cannot be started.
fn small(what: &str, dir: &Path, arguments: &[&str]) -> Option<(String, Value)> {
    let output = tiersmith(dir, &[&["study"], arguments, &SMALL].concat());
    if is_out_of_reach(what, &output) {
        return None;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(dir.join("result.json")).unwrap();
    nothing_left(dir);
    Some((text, serde_json::from_str(&json).unwrap()))
}

fn grown(run: &Value, list: &str, name: &str, field: &str) -> u64 {
    let [begin, end] = ["begin", "end"].map(|at| {
        let all = run["measured"][at][list].as_array().unwrap().clone();
        let one = all.into_iter().find(|one| one["name"] == name).unwrap();
        one[field].as_u64().unwrap()
    });
    end - begin
}

#[test]
fn a_small_study_has_the_servers_own_waits_and_says_that_its_tier_is_emulated() {
    let dir = place();
    let what = "a_small_study_has_the_servers_own_waits_and_says_that_its_tier_is_emulated";
    let small = small(what, dir.path(), &["keys-on-tier", "--seconds", "0.3", "--ratio", "1:1"]);
    let Some((text, result)) = small else { return };
    assert!(text.contains("EMULATED") && text.contains("keys-on-tier"), "{text}");
    assert_eq!(
        (&result["database"], &result["places"]["emulated"]),
        (&"tiersmith kv".into(), &true.into())
    );
    let runs = result["runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["case"] == "keys-on-tier").unwrap();
    let measured = &run["measured"];
    assert_eq!(measured["end"]["source"]["product"], "tiersmith kv");
    let count = |name: &str| measured[name].as_u64().unwrap();
    // Half of what was asked were SETs, and each waited for a fence, which many share.
    assert!(count("transactions") > 0 && count("executes") > count("transactions"), "{measured}");
    let fences = grown(run, "waits", "tier commit", "count");
    assert!(fences > 0 && fences <= count("transactions") + 100, "{fences}: {measured}");
    assert!(grown(run, "waits", "tier commit", "total_ns") > 0);
    assert_eq!(measured["end"]["media"][0]["emulated"], true);
    // Another mix of GETs and SETs than the published one.
    assert!(result["published"].as_array().unwrap().is_empty());
    if runs.len() > 1 {
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("keys-on-")).collect();
        assert!(rows.iter().any(|row| row.contains("tiersmith kv")), "{text}");
        assert!(rows.iter().any(|row| row.contains("Redis") || row.contains("Valkey")), "{text}");
    }
}

#[test]
fn a_killed_server_counts_every_record_that_it_acknowledged_at_its_first_reply() {
    let dir = place();
    let what = "a_killed_server_counts_every_record_that_it_acknowledged_at_its_first_reply";
    // Records are added all the time.
    let arguments = ["recovery", "--seconds", "1", "--load", "ycsb-d"];
    let Some((text, result)) = small(what, dir.path(), &arguments) else { return };
    let runs = result["runs"].as_array().unwrap();
    let of_kv = runs.iter().find(|run| run["target"] == "tiersmith kv").unwrap();
    assert!(of_kv["recovered"]["first_answer_s"].as_f64().unwrap() > 0.0);
    assert!(of_kv["recovered"]["keys"].as_u64().unwrap() > 1000, "{of_kv}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("tiersmith kv with all data on the tier answered after"), "{text}");
    assert!(text.contains("EMULATED") && text.contains("Keys"), "{text}");
}

#[test]
fn the_listing_has_every_server_with_every_sync_and_what_stands_for_the_document() {
    let dir = place();
    let listed = tiersmith(dir.path(), &["study", "--list", "--target", "kv"]);
    let text = String::from_utf8_lossy(&listed.stdout);
    for at in ["on-home", "in-directory", "on-mount"] {
        for server in ["redis", "valkey"] {
            for sync in ["always", "everysec", "no"] {
                let id = format!("keys-{at}-{server}-{sync} ");
                assert!(text.contains(&id), "no {id}in {text}");
            }
        }
    }
    assert!(text.contains("keys-on-tier "), "{text}");
    let all = tiersmith(dir.path(), &["study", "--list", "--all"]);
    let text = String::from_utf8_lossy(&all.stdout);
    for expected in [
        "Here: keys-on-tier on kv, load mixed",
        "Beside it: keys-on-mount-redis-always",
        "Here: recovery on kv, load ycsb-a",
    ] {
        assert!(text.contains(expected), "no `{expected}` in {text}");
    }
    // A file of several cases is shown by the name of each.
    let shown = tiersmith(dir.path(), &["study", "--show", "keys-on-mount-valkey-no"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("id = \"keys-on-mount\""));
    nothing_left(dir.path());
}

#[test]
fn a_medium_that_cannot_be_mapped_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    if FileSystem::of(dir.path()).in_memory() {
        eprintln!("skipped: a study of tiersmith kv on a disk, because there is none here");
        return;
    }
    std::fs::create_dir(dir.path().join("home")).unwrap();
    // One file that is no directory, and a directory of a disk.
    for (fast, expected) in [
        ("file", "a directory is needed; give --fast a directory"),
        ("home", "the medium is a disk; give --fast a directory of a DAX file system"),
    ] {
        let arguments = [
            "study",
            "keys-on-tier",
            "--target",
            "kv",
            "--home",
            "home",
            "--fast",
            fast,
            "--seconds",
            "0.1",
            "--scale",
            "1M",
            "--clients",
            "1",
            "--no-html",
        ];
        let output = tiersmith(dir.path(), &arguments);
        if is_out_of_reach("a_medium_that_cannot_be_mapped_is_refused_with_what_to_do", &output) {
            return;
        }
        let said =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("skipped: keys-on-tier"), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}
