//! What the scripts download is verified before it is used: the function that does so, and that
//! every script calls it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Commands that fetch what no signature vouches for. Packages of apt and crates are verified by
/// apt and cargo.
const FETCHES: [&str; 5] = ["curl ", "wget ", "npm pack ", "npm install ", "git clone "];
/// How apt is told to take what is not signed.
const UNSIGNED: [&str; 4] =
    ["allow-unauthenticated", "AllowUnauthenticated", "AllowInsecure", "trusted=yes"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Calls `verify` for a file of this contents, with this list of checksums.
fn verify(dir: &Path, contents: &str, name: &str, checksums: &str) -> Output {
    let (file, list) = (dir.join("file"), dir.join("checksums"));
    fs::write(&file, contents).unwrap();
    fs::write(&list, checksums).unwrap();
    let script = ". .ci/verify.sh; checksums=$1; verify \"$2\" \"$3\"";
    let mut bash = Command::new("bash");
    bash.args(["-euc", script, "bash"]).arg(list).arg(file).arg(name).current_dir(root());
    bash.output().unwrap()
}

/// Of "right\n".
const SHA256: &str = "55c97802b397ef4da0d8e2ecf4a8fa33c1f4755da0eacec54c62cacbbcfd9713";

#[test]
fn a_download_with_another_checksum_is_refused_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let list = format!("# name\n{SHA256} tool-1\n");
    let right = verify(dir, "right\n", "tool-1", &list);
    assert!(right.status.success(), "{right:?}");
    assert!(dir.join("file").exists());
    for (contents, name, said) in [
        ("wrong\n", "tool-1", "somebody changed the file"),
        ("", "tool-1", "somebody changed the file"),
        ("right\n", "tool-2", "has no checksum for it"),
        ("right\n", "name", "has no checksum for it"),
    ] {
        let refused = verify(dir, contents, name, &list);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && text.contains(said),
            "{contents:?}, {name}: {refused:?}"
        );
        assert!(!dir.join("file").exists(), "{contents:?}, {name}: it was left");
    }
}

#[test]
fn every_download_of_a_script_is_verified() {
    let root = root();
    let mut scripts = vec![root.join("check"), root.join("study"), root.join("fuzz/seeds.sh")];
    let ci = fs::read_dir(root.join(".ci")).unwrap().map(|entry| entry.unwrap().path());
    scripts.extend(ci.filter(|path| path.extension().is_some_and(|ending| ending == "sh")));
    let (mut faults, mut fetches) = (Vec::new(), 0);
    for script in scripts {
        let text = fs::read_to_string(&script).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            let at = format!("{}:{}: {}", script.display(), n + 1, line.trim());
            if UNSIGNED.iter().any(|word| line.contains(word)) {
                faults.push(at.clone());
            }
            let fetch = FETCHES.iter().any(|fetch| line.contains(fetch));
            let other = ["#", "have curl"].iter().any(|start| line.trim_start().starts_with(start));
            // A package that was verified just before: npm checks what that depends on by the
            // checksums of its registry.
            let is_verified = line.contains("npm install")
                && lines[..n].iter().rev().take(2).any(|line| line.contains("verify \""));
            if fetch && !other && !is_verified {
                fetches += 1;
                if !lines[n..].iter().take(8).any(|line| line.contains("verify \"")) {
                    faults.push(at);
                }
            }
        }
    }
    assert!(fetches >= 2, "{fetches} downloads were found");
    assert!(faults.is_empty(), "not verified:\n{}", faults.join("\n"));
}

#[test]
fn every_checksum_is_one_and_has_one_name() {
    let text = fs::read_to_string(root().join(".ci/checksums")).unwrap();
    let mut names = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sum, name) = line.split_once(' ').unwrap();
        assert!(
            [64, 128].contains(&sum.len()) && sum.bytes().all(|b| b.is_ascii_hexdigit()),
            "{line}"
        );
        assert!(names.insert(name), "{name} is there twice");
    }
}
