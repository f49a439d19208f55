//! The dashboards for Grafana: every metric and label they ask for is one that the endpoint serves
//! of a recorded server, home and machine.
//!
//! `recorded/` holds snapshots of a real PostgreSQL under pgbench, of a real MariaDB, and of the
//! mounted home under that PostgreSQL, whose tier was emulated. Where Prometheus' own `promtool` is
//! installed (Debian's package prometheus), it reads every question and every metric too.

use crate::openmetrics;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tiersmith_awr::host::HostStat;
use tiersmith_awr::metrics::{Content, Format, Scrape, render};
use tiersmith_awr::read_snapshot;

fn below(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The recorded snapshots as the endpoint has them, and the machine.
fn recorded() -> (Vec<Scrape>, HostStat) {
    let mut scrapes = Vec::new();
    let mut host = None;
    for name in ["postgresql", "mariadb", "home"] {
        let snapshot = read_snapshot(&below(&format!("tests/recorded/{name}.json"))).unwrap();
        host = Some(snapshot.host.clone());
        let sampling = snapshot.sampling.clone();
        scrapes.push(Scrape {
            source: name.to_owned(),
            snapshot: Some(snapshot),
            sampling,
            took: Duration::ZERO,
        });
    }
    (scrapes, host.unwrap())
}

/// The labels of every metric that is served of the recorded snapshots.
fn served() -> BTreeMap<String, BTreeSet<String>> {
    let (scrapes, host) = recorded();
    let text = render(&scrapes, &host, Content::default(), Format::OpenMetrics);
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for sample in openmetrics::read(&text).unwrap().samples {
        labels.entry(sample.name).or_default().extend(sample.labels.into_keys());
    }
    labels
}

fn dashboards() -> Vec<(String, Value)> {
    let mut all: Vec<(String, Value)> = fs::read_dir(below("../../docs/grafana"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap())
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// Every question that a dashboard asks Prometheus.
fn questions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (true, Value::String(text)) =
                    (["expr", "definition", "query"].contains(&name.as_str()), value)
                {
                    found.push(text.clone());
                }
                questions(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| questions(value, found)),
        _ => {}
    }
}

/// Metrics of a question, each with the labels it chooses by.
fn metrics(question: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = question;
    while let Some(at) = rest.find("tiersmith_") {
        rest = &rest[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let chosen = after
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'))
            .map_or("", |(inner, _)| inner);
        let labels = chosen
            .split(',')
            .filter_map(|pair| pair.split_once(['=', '!']))
            .map(|(label, _)| label.to_owned());
        found.push((name.to_owned(), labels.collect()));
        rest = after;
    }
    found
}

/// Prometheus' own tool with some words and a text, as a file and on its standard input; nothing if
/// it is not installed.
fn promtool(words: &[&str], text: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.yml");
    fs::write(&input, text).unwrap();
    let mut command = Command::new("promtool");
    command.args(words).stdin(fs::File::open(&input).unwrap());
    if words.contains(&"rules") {
        command.arg(&input);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: promtool {}, because it cannot be run ({error})", words.join(" "));
            return None;
        }
    };
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    // 1: it cannot be read. Another code is advice about names, which differs by version.
    assert!(
        output.status.code().is_some_and(|code| code != 1),
        "promtool {}: {said}",
        words.join(" ")
    );
    Some(said)
}

#[test]
fn prometheus_itself_reads_every_question_of_the_dashboards() {
    let mut rules = String::from("groups:\n- name: dashboards\n  rules:\n");
    let mut count = 0;
    for (_, dashboard) in dashboards() {
        let mut all = Vec::new();
        questions(&dashboard, &mut all);
        // Grafana asks for the values of its variables by a word of its own.
        for question in all.iter().filter(|question| {
            question.contains("tiersmith_") && !question.starts_with("label_values(")
        }) {
            let mut question = question.replace("$__rate_interval", "5m").replace("$__range", "1h");
            for variable in ["$instance", "$source", "$event"] {
                question = question.replace(variable, "x");
            }
            assert!(!question.contains('$'), "{question}");
            count += 1;
            rules.push_str(&format!(
                "  - record: asked:{count}\n    expr: {}\n",
                Value::String(question)
            ));
        }
    }
    assert!(count > 50, "{count}");
    if let Some(said) = promtool(&["check", "rules"], &rules) {
        assert!(said.contains(&format!("{count} rules found")), "{said}");
    }
}

#[test]
fn prometheus_itself_finds_no_fault_with_the_names_and_types_of_metrics() {
    let (scrapes, host) = recorded();
    let text = render(&scrapes, &host, Content::default(), Format::Prometheus);
    promtool(&["check", "metrics"], &text);
}

#[test]
fn every_metric_and_label_of_the_dashboards_is_served() {
    let served = served();
    let mut asked = 0;
    for (file, dashboard) in dashboards() {
        let mut all = Vec::new();
        questions(&dashboard, &mut all);
        for (name, labels) in all.iter().flat_map(|question| metrics(question)) {
            let known = served
                .get(&name)
                .unwrap_or_else(|| panic!("{file} asks for {name}, which is not served"));
            // Prometheus adds the address it asked at.
            for label in labels.iter().filter(|label| *label != "instance") {
                assert!(known.contains(label), "{file}: {name} has no label {label}");
            }
            asked += 1;
        }
    }
    assert!(asked > 80, "{asked}");
}

#[test]
fn the_dashboards_can_be_imported_and_no_two_panels_are_in_one_place() {
    let dashboards = dashboards();
    let names: Vec<&str> = dashboards.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["database.json", "home.json", "host.json"]);
    let mut uids = BTreeSet::new();
    for (file, dashboard) in &dashboards {
        assert!(
            dashboard["schemaVersion"].as_u64().unwrap() >= 38 && dashboard["id"].is_null(),
            "{file}"
        );
        assert!(uids.insert(dashboard["uid"].as_str().unwrap().to_owned()), "{file}");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        assert!(
            variables.iter().any(|variable| variable["type"] == "datasource"),
            "{file}: the reader chooses the data source"
        );
        let panels = dashboard["panels"].as_array().unwrap();
        let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
        for panel in panels {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{file}: {}", panel["title"]);
            let place = |side: &str| panel["gridPos"][side].as_u64().unwrap();
            for x in place("x")..place("x") + place("w") {
                for y in place("y")..place("y") + place("h") {
                    assert!(
                        x < 24 && places.insert((x, y)),
                        "{file}: {} lies on another one",
                        panel["title"]
                    );
                }
            }
            if panel["type"] != "row" {
                assert_eq!(
                    panel["datasource"]["uid"], "${datasource}",
                    "{file}: {}",
                    panel["title"]
                );
                assert!(
                    panel["description"].as_str().is_some_and(|text| !text.is_empty()),
                    "{file}: {}",
                    panel["title"]
                );
            }
        }
    }
}
