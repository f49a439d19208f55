//! That the model and the code stay bound to each other: the scenes and flaws of both are one list
//! (`scenes`), and what threads of the code share goes through what shuttle can see.

use super::Flaw;
use crate::scenes::{SCENES, Scene, scene};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tiersmith_store::Planted;

/// The flaws that a scene of the model is tried with are those of the list.
pub(super) fn assert_listed(name: &str, flaws: &[Flaw]) {
    let Scene { flaws: both, model, .. } = scene(name);
    let tried: BTreeSet<String> = flaws.iter().map(|flaw| format!("{flaw:?}")).collect();
    let listed = both.iter().chain(*model).map(|flaw| (*flaw).to_owned()).collect();
    assert_eq!(tried, listed, "the flaws of `{name}`, here and in tests/scenes");
}

fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

/// The names in the calls of `prove`.
fn proved(sources: &[(PathBuf, String)]) -> Vec<&str> {
    let calls = sources.iter().flat_map(|(_, text)| text.split("prove(\"").skip(1));
    let mut names: Vec<&str> = calls.map(|rest| rest.split('"').next().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_model_and_the_code_play_the_same_scenes_with_the_same_flaws() {
    let mut model = sources("tests/it/interleavings");
    model.retain(|(path, _)| !path.ends_with("bound.rs"));
    let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/interleavings.rs");
    model.push((this.clone(), std::fs::read_to_string(this).unwrap()));
    let names = |code: bool| {
        let mut names: Vec<&str> =
            SCENES.iter().filter(|s| !code || s.in_code).map(|scene| scene.name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(proved(&model), names(false), "the scenes of the model, and tests/scenes");
    assert_eq!(
        proved(&sources("tests/shuttle")),
        names(true),
        "the scenes of shuttle, and tests/scenes"
    );
    let both: BTreeSet<String> =
        SCENES.iter().flat_map(|s| s.flaws).map(|flaw| (*flaw).to_owned()).collect();
    let planted: BTreeSet<String> =
        Planted::RACES.iter().map(|planted| format!("{planted:?}")).collect();
    assert_eq!(both, planted, "the flaws of tests/scenes, and those that can be planted");
}

#[test]
fn what_threads_of_the_store_share_goes_through_what_shuttle_can_see() {
    // Homes answer under a lock of their own, and are asked one thing at a time; crash tests play
    // traces; nobody decides by what is counted of files.
    let others = ["src/home/", "src/crash/", "src/sync.rs", "src/sync/", "src/cache/usage.rs"];
    let mut past = Vec::new();
    for (path, text) in sources("src") {
        let path = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        if others.iter().any(|other| path.starts_with(other)) && !path.ends_with("held.rs") {
            continue;
        }
        let program = text.split("#[cfg(test)]").next().unwrap();
        for (n, line) in program.lines().enumerate() {
            let atomics = line.contains("sync::atomic")
                && (line.contains("Atomic") || line.contains("fence"));
            let direct = line.contains("std::sync::Mutex") || line.contains("std::thread::sleep");
            if line.contains("parking_lot")
                || line.contains("spin::")
                || direct
                || (atomics && line.contains("std::"))
            {
                past.push(format!("{path}:{}: {}", n + 1, line.trim()));
            }
        }
    }
    past.retain(|line| !line.starts_with("src/") || !line.contains("/tests.rs"));
    assert!(past.is_empty(), "not through crate::sync:\n{}", past.join("\n"));
}
