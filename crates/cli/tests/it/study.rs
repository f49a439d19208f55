//! The program as a user meets it: a small study, its files, its snapshots, and Ctrl-C.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn program(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.current_dir(dir);
    command
}

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    program(dir).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["home", "fast"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    dir
}

pub(crate) const SMALL: [&str; 11] = [
    "study",
    "redo-on-tier",
    "--emulate",
    "--home",
    "home",
    "--fast",
    "fast",
    "--scale",
    "4M",
    "--size",
    "64M",
];

pub(crate) fn nothing_left(dir: &Path) {
    for name in ["home", "fast"] {
        let left: Vec<_> =
            std::fs::read_dir(dir.join(name)).unwrap().map(|e| e.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_small_study_prints_writes_its_page_and_json_and_leaves_nothing_else() {
    let dir = place();
    let mut arguments = SMALL.to_vec();
    arguments.extend([
        "--seconds",
        "0.2",
        "--html",
        "page.html",
        "--json",
        "result.json",
        "--snapshots",
        "snapshots",
    ]);
    let output = tiersmith(dir.path(), &arguments);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        printed.contains("redo-on-tier")
            && printed.contains("EMULATED")
            && printed.contains("page: "),
        "{printed}"
    );
    nothing_left(dir.path());
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(
        page.starts_with("<!") && page.contains("EMULATED") && page.trim_end().ends_with("</html>")
    );
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("result.json")).unwrap())
            .unwrap();
    assert_eq!(result["format"], 1);
    assert_eq!(result["runs"].as_array().unwrap().len(), 4);
    assert_eq!(result["places"]["emulated"], true);

    let again = tiersmith(dir.path(), &["study", "--read", "result.json", "--html", "again.html"]);
    let up_to_the_page = |text: &str| text[..text.find("page: ").unwrap()].to_owned();
    assert_eq!(up_to_the_page(&text(&again.stdout)), up_to_the_page(&printed));
    assert_eq!(std::fs::read_to_string(dir.path().join("again.html")).unwrap(), page);
    assert_eq!(
        tiersmith(dir.path(), &["study", "--read", "page.html", "--no-html"]).status.code(),
        Some(2)
    );

    let list = tiersmith(dir.path(), &["awr", "list", "snapshots", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let ids: Vec<String> =
        list["snapshots"].as_array().unwrap().iter().map(|s| s["id"].to_string()).collect();
    assert_eq!(ids.len(), 8);
    let report = tiersmith(dir.path(), &["awr", "report", "--in", "snapshots", &ids[2], &ids[3]]);
    assert!(text(&report.stdout).contains("log file parallel write"), "{}", text(&report.stderr));
    let arguments = ["awr", "compare", "--in", "snapshots", &ids[0], &ids[1], &ids[2], &ids[3]];
    let compared = tiersmith(dir.path(), &arguments);
    assert!(compared.status.success() && text(&compared.stdout).contains("EMULATED"));
    let json = tiersmith(dir.path(), &[&arguments[..], &["--json"]].concat());
    let _: Value = serde_json::from_slice(&json.stdout).unwrap();
    let html = tiersmith(dir.path(), &[&arguments[..], &["--html", "compare.html"]].concat());
    assert!(html.status.success() && dir.path().join("compare.html").exists());

    // Snapshots of two runs are of two instances: their difference would be a wrong number.
    let mixed = tiersmith(dir.path(), &["awr", "report", "--in", "snapshots", &ids[0], &ids[3]]);
    assert_eq!(mixed.status.code(), Some(2));
    // A damaged one is listed as such.
    let path = list["snapshots"][0]["path"].as_str().unwrap();
    std::fs::write(dir.path().join(path), "{").unwrap();
    let listed = tiersmith(dir.path(), &["awr", "list", "snapshots"]);
    assert_eq!(listed.status.code(), Some(1));
    assert!(text(&listed.stdout).contains("damaged: "));
}

#[test]
fn json_on_standard_output_is_all_there_is_on_it() {
    let dir = place();
    let mut arguments = SMALL.to_vec();
    arguments.extend(["--seconds", "0.1", "--no-html", "--json"]);
    let output = tiersmith(dir.path(), &arguments);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["seconds"], 0.1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn interruption_at_any_time_leaves_no_files() {
    for (signal, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        for after_ms in [30, 300, 1500, 2600] {
            let dir = place();
            let mut child = program(dir.path())
                .args(SMALL)
                .args(["--seconds", "20", "--rounds", "2", "--no-html"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(after_ms));
            let killed = Command::new("kill")
                .arg(format!("-{signal}"))
                .arg(child.id().to_string())
                .status()
                .unwrap();
            assert!(killed.success());
            let asked = Instant::now();
            let status = child.wait().unwrap();
            assert!(
                asked.elapsed() < Duration::from_secs(120),
                "it took {:?} to end",
                asked.elapsed()
            );
            use std::os::unix::process::ExitStatusExt;
            let ended = status.code() == Some(128 + number) || status.signal() == Some(number);
            assert!(ended, "{signal} after {after_ms} ms: {status}");
            nothing_left(dir.path());
        }
    }
}

/// A place that a server's account can enter, or nothing and a line that says why there is no
/// server.
fn place_for_redis() -> Option<tempfile::TempDir> {
    let is_there = ["/usr/bin", "/usr/local/bin"]
        .iter()
        .any(|dir| Path::new(dir).join("redis-server").exists());
    if !is_there {
        eprintln!("skipped: a study of Redis, because redis-server is not installed");
        return None;
    }
    let dir = place();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    Some(dir)
}

const SMALL_REDIS: [&str; 13] = [
    "study",
    "redo",
    "--target",
    "redis",
    "--home",
    "home",
    "--fast",
    "fast",
    "--scale",
    "4M",
    "--size",
    "32M",
    "--no-html",
];

fn mounts_below(dir: &Path) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let dir = dir.display().to_string();
    mounts.lines().filter(|line| line.contains(&dir)).map(str::to_owned).collect()
}

fn sockets_of(pid: u32) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap().filter_map(|entry| entry.ok());
    let name = format!("tiersmith-s{pid}-");
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&name))
        .map(|entry| entry.path())
        .collect()
}

#[test]
fn a_small_study_of_a_server_says_what_ran_and_what_did_not() {
    let Some(dir) = place_for_redis() else { return };
    let mut arguments = SMALL_REDIS.to_vec();
    arguments.extend(["--seconds", "0.3", "--json", "result.json"]);
    let output = tiersmith(dir.path(), &arguments);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(printed.contains("Redis") && printed.contains("server-on-home"), "{printed}");
    nothing_left(dir.path());
    assert!(mounts_below(dir.path()).is_empty());
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("result.json")).unwrap())
            .unwrap();
    assert_eq!(result["database"], "Redis");
    let again = tiersmith(dir.path(), &["study", "--read", "result.json", "--no-html"]);
    assert_eq!(text(&again.stdout), printed);

    let listed = tiersmith(dir.path(), &["study", "--list", "--target", "redis"]);
    assert!(text(&listed.stdout).contains("server-all-on-mount"));
    for (arguments, expected) in [
        (["study", "--target", "oracle", "--no-html"], "sqlite, postgres, mariadb, redis"),
        (["study", "--load", "tpch", "--no-html"], "slob, tpcb"),
    ] {
        let refused = tiersmith(dir.path(), &arguments);
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains(expected), "{}", text(&refused.stderr));
    }
}

#[test]
fn a_study_of_a_server_that_is_interrupted_leaves_no_server_no_mount_and_no_file() {
    for signal in ["INT", "TERM"] {
        let Some(dir) = place_for_redis() else { return };
        let mut child = program(dir.path())
            .args(SMALL_REDIS)
            .args(["--seconds", "600", "--case", "server-redo-on-mount"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        // A server runs: its socket's directory is there, and something is in it.
        while !sockets_of(child.id()).iter().any(|dir| dir.join("redis.sock").exists()) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            assert!(began.elapsed() < Duration::from_secs(240), "no server was started");
            std::thread::sleep(Duration::from_millis(20));
        }
        let killed = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(child.id().to_string())
            .status()
            .unwrap();
        assert!(killed.success());
        assert!(!child.wait().unwrap().success());
        nothing_left(dir.path());
        assert!(mounts_below(dir.path()).is_empty(), "{:?}", mounts_below(dir.path()));
        assert!(sockets_of(child.id()).is_empty());
    }
}

#[test]
fn all_published_experiments_are_on_one_page_with_figures_or_with_the_reason_why_not() {
    let dir = place();
    let arguments = [
        "study",
        "all",
        "--quick",
        "--emulate",
        "--target",
        "sqlite",
        "--seconds",
        "0.2",
        "--home",
        "home",
        "--fast",
        "fast",
        "--json",
        "all.json",
        "--html",
        "all.html",
    ];
    let output = tiersmith(dir.path(), &arguments);
    let (printed, refused) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{printed}{refused}");
    // The verdict comes first.
    let verdict = printed.split("\n\n").nth(1).unwrap().replace('\n', " ");
    assert!(
        verdict.contains(" of 42 published experiments were run on this machine; "),
        "{verdict}"
    );
    let survey: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("all.json")).unwrap())
            .unwrap();
    let experiments = survey["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 42);
    let outcome = |id: &str| {
        let one = experiments.iter().find(|one| one["experiment"]["id"] == id).unwrap();
        one["outcome"].clone()
    };
    assert_eq!(outcome("sandisk-2015-all")["ran"][0]["case"], "tpcc-all-on-tier");
    assert_eq!(outcome("flash-cache-2022-pmem")["ran"][0]["target"], "sqlite");
    assert_eq!(outcome("optane-2019-fio-4k")["ran"].as_array().unwrap().len(), 2);
    let redis = outcome("optane-2019-redis-latency")["not-here"].to_string();
    assert!(redis.contains("--target leaves kv out"), "{redis}");
    assert!(outcome("sandisk-2015-cost")["nothing"].to_string().contains("57 %"));
    let page = std::fs::read_to_string(dir.path().join("all.html")).unwrap();
    for shown in [&printed, &page] {
        for expected in [
            "EMULATED",
            "Ours beside the printed figures",
            "derived from TPC-C, not comparable with published results",
            "saving of 63 %",
            "What was not run",
            "optane-2019-redis-latency",
        ] {
            assert!(shown.contains(expected), "no `{expected}` in {shown}");
        }
        for one in experiments.iter().filter(|one| one["outcome"]["ran"].is_null()) {
            let id = one["experiment"]["id"].as_str().unwrap();
            assert!(shown.contains(id), "{id} is missing in {shown}");
        }
    }
    // The five-fold gain of the document stands beside ours.
    let gain = |line: &&str| {
        line.contains("sandisk-2015-all") && line.contains("trans ratio") && line.contains("5.17")
    };
    let ours = printed.lines().find(gain).unwrap_or_else(|| panic!("{printed}"));
    let ours: f64 = ours.split_whitespace().last().unwrap().parse().unwrap();
    assert!(ours > 0.0, "{printed}");
    for made in ["all.json", "all.html"] {
        std::fs::remove_file(dir.path().join(made)).unwrap();
    }
    nothing_left(dir.path());
}

const OF_SQLITE: [&str; 9] =
    ["study", "recovery", "--target", "sqlite", "--no-html", "--home", "home", "--fast", "fast"];

#[test]
fn a_process_that_uses_sqlite_is_killed_and_timed_with_its_database_plain_and_in_the_tier() {
    let dir = place();
    let short = ["--seconds", "1", "--scale", "8M", "--emulate", "--json"];
    let output = tiersmith(dir.path(), &[&OF_SQLITE[..], &short].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = found["runs"].as_array().unwrap();
    let cases: Vec<_> = runs.iter().map(|run| run["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["redo-on-home", "all-on-tier"], "{found}");
    for run in runs {
        let recovered = &run["recovered"];
        assert!(recovered["before_per_s"].as_f64().unwrap() > 0.0, "{run}");
        assert!(recovered["first_answer_s"].as_f64().unwrap() > 0.0, "{run}");
        let slots = recovered["timeline"].as_array().unwrap();
        let at = |slot: &Value| slot["at_s"].as_f64().unwrap();
        assert!(at(slots.first().unwrap()) < 0.0 && at(slots.last().unwrap()) > 0.0, "{run}");
    }
    nothing_left(dir.path());
}

#[test]
fn a_process_that_cannot_run_its_load_ends_the_recovery_with_its_own_words() {
    let dir = place();
    let task = dir.path().join("task");
    std::fs::write(&task, "{\"case\": 1}").unwrap();
    let output = tiersmith(dir.path(), &["study", "--carry-out", "task"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot read task"), "{}", text(&output.stderr));
    std::fs::remove_file(task).unwrap();
    nothing_left(dir.path());
}

#[test]
fn a_recovery_says_what_it_could_not_kill_and_refuses_a_load_it_cannot_watch() {
    let dir = place();
    let output = tiersmith(dir.path(), &[&OF_SQLITE[..], &["--load", "ycsb-d"]].concat());
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(printed.contains("skipped: SQLite, because ycsb-d adds records"), "{printed}");
    let json = tiersmith(dir.path(), &[&OF_SQLITE[..], &["--load", "ycsb-d", "--json"]].concat());
    let found: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(found["not_run"][0][0], "SQLite");
    let refused = tiersmith(dir.path(), &[&OF_SQLITE[..], &["--load", "slob"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("the setting load = slob is refused"),
        "{}",
        text(&refused.stderr)
    );
    nothing_left(dir.path());
}

#[test]
fn probe_lists_and_measures_and_removes_its_files() {
    let dir = place();
    let list = tiersmith(dir.path(), &["probe", "--list"]);
    assert!(list.status.success() && text(&list.stdout).contains("Persistent memory"));
    let output = tiersmith(dir.path(), &["probe", "home", "--seconds", "0.01", "--json"]);
    let probe: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = probe["measured"][0]["measurements"].as_array().unwrap();
    assert_eq!(figures.len(), 9);
    assert!(figures.iter().all(
        |f| f["count"].as_u64().unwrap() > 0 && f["p99_ns"].as_u64() >= f["median_ns"].as_u64()
    ));
    let many =
        ["probe", "home", "--seconds", "0.01", "--threads", "2", "--depth", "2", "--mix", "50"];
    let probe: Value =
        serde_json::from_slice(&tiersmith(dir.path(), &[&many[..], &["--json"]].concat()).stdout)
            .unwrap();
    assert_eq!(probe["queue"], serde_json::json!({"threads": 2, "depth": 2, "reads_pct": 50}));
    let figures = probe["measured"][0]["measurements"].as_array().unwrap();
    assert!(
        figures.iter().all(|f| f["at_once"] == 4 && f["p999_ns"].as_u64() >= f["p95_ns"].as_u64())
    );
    let printed = text(&tiersmith(dir.path(), &many).stdout);
    assert!(printed.contains("4 at once") && printed.contains("50/50"), "{printed}");
    assert!(printed.contains("p95") && printed.contains("p99.9"), "{printed}");
    let none = tiersmith(dir.path(), &["probe", "home", "--depth", "0"]);
    assert!(
        text(&none.stderr).contains("the setting depth = 0 is refused"),
        "{}",
        text(&none.stderr)
    );
    nothing_left(dir.path());
    let shared = Path::new("/dev/shm");
    if shared.is_dir() {
        let mapped = tiersmith(
            dir.path(),
            &["probe", "/dev/shm", "--seconds", "0.01", "--threads", "2", "--depth", "4"],
        );
        let (printed, refused) = (text(&mapped.stdout), text(&mapped.stderr));
        if refused.contains("128 MiB must be free") {
            eprintln!("skipped: measuring /dev/shm, because it is too small here");
        } else {
            assert!(
                printed.contains("EMULATED") && printed.contains("mapped"),
                "{printed}{refused}"
            );
            assert!(printed.contains("has no queue"), "{printed}");
        }
        let left = std::fs::read_dir(shared).unwrap().filter_map(|e| e.ok()).map(|e| e.file_name());
        assert!(
            !left.into_iter().any(|name| name.to_string_lossy().starts_with(".tiersmith-probe"))
        );
    }
}

/// A file system of 1 MiB is no place to measure in; asked for by name it is an error, found by
/// itself it is a line.
#[test]
fn a_place_that_is_too_small_to_measure_is_named_and_the_rest_is_measured() {
    let dir = place();
    let tiersmith = env!("CARGO_BIN_EXE_tiersmith");
    let script = format!(
        "mount -t tmpfs -o size=1M none /dev/shm || exit 99; '{tiersmith}' probe --seconds 0.01 \
         --json && '{tiersmith}' probe --seconds 0.001; \
         '{tiersmith}' probe /dev/shm"
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .current_dir(dir.path().join("home"))
        .stdin(Stdio::null())
        .output();
    let why = match &output {
        Err(e) => Some(format!("unshare cannot be run: {e}")),
        // The script's own word for it, or unshare's before there was a script.
        Ok(output) if output.status.code() == Some(99) => Some(text(&output.stderr)),
        Ok(output) if text(&output.stderr).starts_with("unshare: ") => Some(text(&output.stderr)),
        Ok(_) => None,
    };
    if let Some(why) = why {
        eprintln!(
            "skipped: a small /dev/shm, because there can be no mount of it here: {}",
            why.trim()
        );
        return;
    }
    let output = output.unwrap();
    let (printed, refused) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{printed}{refused}");
    let json = printed.find("\n}\n").map(|end| &printed[..end + 2]).unwrap();
    let probe: Value = serde_json::from_str(json).unwrap();
    if probe["measured"].as_array().unwrap().is_empty() {
        // Only then: the directory of this test is on a file system with too little room.
        let all = probe["skipped"].as_array().unwrap();
        let room =
            |one: &Value| one["because"].as_str().unwrap().starts_with("128 MiB must be free");
        assert!(all.len() > 1 && all.iter().all(room), "{json}");
        eprintln!(
            "skipped: what is measured beside a small /dev/shm, because nowhere here are 128 MiB \
             free"
        );
        return;
    }
    let small =
        probe["skipped"].as_array().unwrap().iter().find(|one| one["path"] == "/dev/shm").unwrap();
    assert!(small["because"].as_str().unwrap().starts_with("128 MiB must be free"), "{json}");
    assert!(
        printed.contains("skipped: measuring /dev/shm, because 128 MiB must be free"),
        "{printed}"
    );
    assert!(refused.contains("cannot measure /dev/shm: 128 MiB must be free"), "{refused}");
    nothing_left(dir.path());
}
