//! The published schemas in `docs/schema`: every kind of report and snapshot is what they say, and
//! what they do not say is not there.
//!
//! The checker below knows the part of JSON Schema 2020-12 that the two files use, and refuses a
//! word that it does not know: a schema cannot say something that is not checked.

use std::path::Path;

use crate::fixture::day::{Day, snapshots};
use crate::fixture::{home_interval, tier_interval};
use serde_json::Value;
use tiersmith_awr::host::{Pressure, RunQueue};
use tiersmith_awr::{Interval, IoStat, Report, Snapshot, Source, Timeline, compare, report};

struct Schemas {
    snapshot: Value,
    report: Value,
}

impl Schemas {
    fn read() -> Schemas {
        let read = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(name);
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        Schemas { snapshot: read("snapshot-1.json"), report: read("report-1.json") }
    }

    /// What a reference in `file` points to, and the file it is in.
    fn find<'a>(&'a self, reference: &str, file: &'a Value) -> (&'a Value, &'a Value) {
        let (name, pointer) = reference.split_once('#').unwrap();
        let file = if name.is_empty() {
            file
        } else {
            [&self.snapshot, &self.report][usize::from(name != "snapshot-1.json")]
        };
        (file.pointer(pointer).unwrap_or_else(|| panic!("{reference} is not there")), file)
    }

    /// What is wrong with a value, and where.
    fn wrong(&self, value: &Value, schema: &Value, file: &Value, at: &str) -> Option<String> {
        let Value::Object(words) = schema else {
            return (schema != &Value::Bool(true)).then(|| format!("{at}: nothing may be here"));
        };
        words.iter().find_map(|(word, of)| self.wrong_by(value, (word, of), words, file, at))
    }

    fn wrong_by(
        &self,
        value: &Value,
        (word, of): (&String, &Value),
        words: &serde_json::Map<String, Value>,
        file: &Value,
        at: &str,
    ) -> Option<String> {
        let said = |wrong: bool| wrong.then(|| format!("{at}: {value} is not of {word} {of}"));
        match word.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" => None,
            "$ref" => {
                let (schema, file) = self.find(of.as_str().unwrap(), file);
                self.wrong(value, schema, file, at)
            }
            "const" => said(value != of),
            "enum" => said(!of.as_array().unwrap().contains(value)),
            "type" => {
                let types: Vec<&str> = of.as_array().map_or_else(
                    || vec![of.as_str().unwrap()],
                    |of| of.iter().map(|of| of.as_str().unwrap()).collect(),
                );
                said(!types.iter().any(|of| is_of(value, of)))
            }
            "minimum" => said(value.as_f64().is_some_and(|value| value < of.as_f64().unwrap())),
            "maximum" => said(value.as_f64().is_some_and(|value| value > of.as_f64().unwrap())),
            "pattern" => {
                assert_eq!(of, "^[0-9a-f]{16}$", "the checker knows one pattern");
                said(value.as_str().is_some_and(|text| {
                    text.len() != 16
                        || text.bytes().any(|c| !matches!(c, b'0'..=b'9' | b'a'..=b'f'))
                }))
            }
            "required" => {
                let missing =
                    of.as_array().unwrap().iter().find(|name| {
                        value.is_object() && value.get(name.as_str().unwrap()).is_none()
                    });
                missing.map(|name| format!("{at}: {name} is missing"))
            }
            "properties" => {
                let known = fields(value)
                    .filter_map(|(place, name, value)| Some((place, value, of.get(name)?)));
                self.wrong_inside(known, file, at)
            }
            "additionalProperties" => {
                let known = words.get("properties");
                let is_known = |name: &str| known.is_some_and(|known| known.get(name).is_some());
                let others = fields(value).filter(|(_, name, _)| !is_known(name));
                self.wrong_inside(others.map(|(place, _, value)| (place, value, of)), file, at)
            }
            "prefixItems" => {
                let pairs = items(value).zip(of.as_array().unwrap());
                self.wrong_inside(pairs.map(|((place, value), of)| (place, value, of)), file, at)
            }
            "items" => {
                let prefix = words.get("prefixItems");
                let prefix = prefix.map_or(0, |prefix| prefix.as_array().unwrap().len());
                let others = items(value).skip(prefix);
                self.wrong_inside(others.map(|(place, value)| (place, value, of)), file, at)
            }
            "anyOf" | "oneOf" => {
                let schemas = of.as_array().unwrap().iter();
                let wrong = schemas.map(|schema| self.wrong(value, schema, file, at)).collect();
                wrong_of_branches(word, wrong, at)
            }
            other => panic!("the checker does not know `{other}`"),
        }
    }

    /// What is wrong with the first field or item that is wrong. Each has its place in the value,
    /// which is at `at`, and its schema.
    fn wrong_inside<'a>(
        &self,
        mut parts: impl Iterator<Item = (String, &'a Value, &'a Value)>,
        file: &Value,
        at: &str,
    ) -> Option<String> {
        parts.find_map(|(place, value, schema)| {
            self.wrong(value, schema, file, &format!("{at}{place}"))
        })
    }

    fn report_is_sound(&self, report: &Report) -> Value {
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(self.wrong(&json, &self.report, &self.report, "report"), None);
        json
    }

    fn snapshot_is_sound(&self, snapshot: &Snapshot) -> Value {
        let json: Value = serde_json::from_str(&snapshot.to_json()).unwrap();
        assert_eq!(self.wrong(&json, &self.snapshot, &self.snapshot, "snapshot"), None);
        json
    }
}

/// The fields of an object: the place, the name and the value of each.
fn fields(value: &Value) -> impl Iterator<Item = (String, &String, &Value)> {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, value)| (format!(".{name}"), name, value))
}

/// The items of a list, each with its place.
fn items(value: &Value) -> impl Iterator<Item = (String, &Value)> {
    let items = value.as_array().into_iter().flatten().enumerate();
    items.map(|(index, value)| (format!("[{index}]"), value))
}

/// What is wrong with a value of which each branch says what it finds wrong.
fn wrong_of_branches(word: &str, wrong: Vec<Option<String>>, at: &str) -> Option<String> {
    let fitting = wrong.iter().filter(|wrong| wrong.is_none()).count();
    let good = if word == "oneOf" { fitting == 1 } else { fitting > 0 };
    // The reason that is deepest in the value is about the branch that was meant.
    let deepest = || {
        wrong
            .iter()
            .flatten()
            .max_by_key(|reason| reason.split(": ").next().unwrap_or_default().len())
    };
    (!good).then(|| deepest().cloned().unwrap_or_else(|| format!("{at}: fits {fitting} of {word}")))
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the checker does not know the type `{other}`"),
    }
}

fn over(all: &[Snapshot]) -> Interval {
    Interval::between(&all[0], all.last().unwrap())
        .unwrap()
        .with_timeline(Timeline::of_snapshots(all))
}

/// A snapshot with every field there is.
fn full() -> Snapshot {
    let mut of = snapshots(Day { minutes: 2, ..Day::default() }).pop().unwrap();
    of.missing.push("a grant".to_owned());
    of.resets.insert("all".to_owned(), "yesterday".to_owned());
    of.partial.insert("waits".to_owned());
    of.add_level("dirty", "bytes", 7);
    of.add_io(IoStat {
        file_class: "x".to_owned(),
        tier: "home".to_owned(),
        untimed: true,
        ..IoStat::default()
    });
    of.source.settings.insert("a".to_owned(), "b".to_owned());
    of.process_cpu_ns = Some(1);
    let read = tiersmith_awr::host::read();
    (of.host.load, of.host.memory) = (read.load, read.memory);
    of.host.platform = Some("Linux".to_owned());
    of.host.boot = Some("one".to_owned());
    of.host.queue = Some(RunQueue { running: 1, blocked: 2 });
    of.host.pressure = Some(Pressure::default());
    let disk =
        tiersmith_awr::host::DiskStat { flushes: Some(2), flush_ms: Some(1), ..Default::default() };
    of.host.disks = Some(vec![disk]);
    of.host.missing.push("something".to_owned());
    add_objects(&mut of);
    of.printed.push(tiersmith_awr::Printed {
        title: "Segments by Physical Reads".to_owned(),
        columns: vec!["Owner".to_owned()],
        rows: vec![vec!["APP".to_owned()]],
    });
    of.printed_number = Some(24_703);
    let session = tiersmith_awr::Who { id: "7", text: "u@d" };
    of.sampling.get_or_insert_default().saw_session(&tiersmith_awr::Seen {
        event: "Lock: tuple",
        class: Some(tiersmith_awr::events::WaitClass::Application),
        session,
        statement: tiersmith_awr::Who { id: "5", text: "UPDATE t" },
        blocker: Some(session),
    });
    of.source.remote = Some(true);
    of
}

/// A file, a table, an index and a plan, with every field there is.
fn add_objects(of: &mut Snapshot) {
    of.files.push(tiersmith_awr::FileStat {
        id: "1".to_owned(),
        name: "public.t".to_owned(),
        bytes: Some(8192),
        read_bytes: 8192,
        read_ns: Some(1),
    });
    of.tables.push(tiersmith_awr::TableStat {
        id: "1".to_owned(),
        name: "public.t".to_owned(),
        bytes: Some(8192),
        autovacuums: Some(1),
        analyzes: Some(2),
        updated_rows: Some(3),
        hot_rows: Some(1),
        vacuumed_unix_s: Some(1_800_000_000),
        ..Default::default()
    });
    let mut index =
        tiersmith_awr::ObjectStat::new(tiersmith_awr::ObjectKind::Index, "7", "public.i");
    index.detail = "t".to_owned();
    index.counts.insert("scans".to_owned(), 3);
    index.levels.insert("bytes".to_owned(), 8192);
    of.objects.push(index);
    of.plans.push(tiersmith_awr::PlanStat {
        id: "p".to_owned(),
        statement: "5".to_owned(),
        sql: "SELECT ?".to_owned(),
        text: "Result  (cost=0.00..0.01 rows=1 width=4)".to_owned(),
        calls: 2,
        total_ns: 9,
        max_ns: 6,
    });
}

#[test]
fn every_kind_of_report_is_what_the_schema_says() {
    let schemas = Schemas::read();
    let empty = Source { instance: "i".to_owned(), ..Source::default() };
    let nothing =
        Interval::between(&Snapshot::at(empty.clone(), 0, 0), &Snapshot::at(empty, 1, 1)).unwrap();
    let restarted = snapshots(Day { minutes: 20, restart: Some(8), ..Day::default() });
    let restarted = Interval::between(&restarted[8], &restarted[20])
        .unwrap()
        .with_timeline(Timeline::of_snapshots(&restarted));
    let hour = over(&snapshots(Day::default()));
    let mut all = String::new();
    for of in [&home_interval(), &tier_interval(), &nothing, &restarted, &hour] {
        all.push_str(&schemas.report_is_sound(&report(of)).to_string());
        all.push_str(&schemas.report_is_sound(&compare(of, &hour)).to_string());
    }
    for kind in ["bars", "stacked", "histogram", "area", "heat", "details", "gaps", "reason"] {
        assert!(all.contains(&format!("\"{kind}\":")), "no report of this test has {kind}");
    }
}

#[test]
fn every_kind_of_snapshot_is_what_the_schema_says() {
    let schemas = Schemas::read();
    let full = schemas.snapshot_is_sound(&full());
    schemas.snapshot_is_sound(&Snapshot::at(Source::default(), 0, 0));
    schemas.snapshot_is_sound(&Snapshot::now(Source::default()));
    schemas.snapshot_is_sound(&home_interval().begin);
    // Every field that the schema knows is in the full one: a field that went is noticed as well.
    let fields = schemas.snapshot["$defs"]["body"]["properties"].as_object().unwrap();
    for name in fields.keys() {
        assert!(full["snapshot"].get(name).is_some(), "a full snapshot has no {name}");
    }
    for (name, of) in [("host", "host"), ("source", "source"), ("sampling", "sampling")] {
        for field in schemas.snapshot["$defs"][of]["properties"].as_object().unwrap().keys() {
            assert!(
                full["snapshot"][name].get(field).is_some(),
                "a full snapshot has no {name}.{field}"
            );
        }
    }
}

#[test]
fn a_field_that_the_schema_does_not_know_and_one_that_went_are_noticed() {
    let schemas = Schemas::read();
    let good: Value = serde_json::from_str(
        &report(&over(&snapshots(Day { minutes: 5, ..Day::default() }))).json(),
    )
    .unwrap();
    let wrong = |json: &Value| schemas.wrong(json, &schemas.report, &schemas.report, "report");
    assert_eq!(wrong(&good), None);
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 7] = [
        ("report.more", |json| json["more"] = 1.into()),
        ("report.sections[0].items[0].table.more", |json| {
            json["sections"][0]["items"][0]["table"]["more"] = 1.into()
        }),
        ("report.snapshots[0].waits[0].more", |json| {
            json["snapshots"][0]["waits"][0]["more"] = 1.into()
        }),
        ("report.snapshots[0].host.more", |json| json["snapshots"][0]["host"]["more"] = 1.into()),
        ("report.snapshots[0].waits[0].class", |json| {
            json["snapshots"][0]["waits"][0]["class"] = "Queueing".into()
        }),
        ("report.format", |json| json["format"] = 2.into()),
        ("report", |json| drop(json.as_object_mut().unwrap().remove("banners"))),
    ];
    for (place, change) in changes {
        let mut json = good.clone();
        change(&mut json);
        let found = wrong(&json).unwrap_or_else(|| panic!("{place} was not noticed"));
        assert!(found.starts_with(&format!("{place}: ")), "{place}: {found}");
    }
}
