//! What the scripts in `packaging` make is installed and used, as somebody new would.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tiersmith");

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a program to a good end; what it printed.
fn good(command: &mut Command) -> String {
    let done: Output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = text(&done.stdout);
    assert!(done.status.success(), "{command:?}: {said}{}", text(&done.stderr));
    said
}

/// The first word of each line that begins with `-` or `--` in a help text or a page.
fn options(text: &str) -> Vec<String> {
    let words = text.lines().filter(|line| line.trim_start().starts_with('-'));
    let words = words.flat_map(|line| line.split([' ', ',', '=', '[']));
    let mut found: Vec<String> =
        words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn every_command_has_a_man_page_with_its_options_examples_and_exit_codes() {
    let dir = tempfile::tempdir().unwrap();
    good(Command::new(packaging("pages/build")).arg(dir.path()).arg(PROGRAM));
    let mut pages = 0;
    let groff = Command::new("groff").arg("--version").output().is_ok();
    if !groff {
        eprintln!("skipped: a formatter's look at the man pages, because groff is not installed");
    }
    for entry in fs::read_dir(dir.path().join("man/man1")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().strip_suffix(".1.gz").unwrap().to_owned();
        let page = good(Command::new("gzip").arg("-dc").arg(&path));
        let words: Vec<&str> = name.split('-').skip(1).collect();
        let help = good(Command::new(PROGRAM).args(words).arg("--help"));
        let plain = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
        for option in options(&help) {
            assert!(plain.contains(&option), "{name} has no {option}: {plain}");
        }
        assert!(page.contains("\n.SH \"EXIT STATUS\"\n"), "{page}");
        assert!(name == "tiersmith" || page.contains("\n.SH EXAMPLES\n"), "{page}");
        assert!(!page.contains("as\\-daemon"), "a hidden option is shown: {page}");
        if groff {
            let source = dir.path().join("page");
            fs::write(&source, &page).unwrap();
            let done = Command::new("groff").args(["-man", "-ww", "-z"]).arg(&source).output().unwrap();
            assert_eq!(text(&done.stderr), "", "{name}");
        }
        pages += 1;
    }
    assert!(pages >= 27, "{pages} pages");
}

#[test]
fn bash_completes_commands_and_options_and_offers_nothing_hidden() {
    let dir = tempfile::tempdir().unwrap();
    good(Command::new(packaging("pages/build")).arg(dir.path()).arg(PROGRAM));
    for (shell, file) in [
        ("bash", "bash-completion/completions/tiersmith"),
        ("zsh", "zsh/vendor-completions/_tiersmith"),
        ("fish", "fish/vendor_completions.d/tiersmith.fish"),
    ] {
        let path = dir.path().join(file);
        let script = fs::read_to_string(&path).unwrap();
        assert!(script.contains("sync-on-write"), "{shell}: {script}");
        assert!(!script.contains("as-daemon") && !script.contains("manual"), "{shell}: {script}");
        match Command::new(shell).arg("-n").arg(&path).output() {
            Ok(done) => assert!(done.status.success(), "{shell}: {}", text(&done.stderr)),
            Err(e) => eprintln!("skipped: the completions in {shell}, because it cannot be run ({e})"),
        }
    }
    let ask = |words: &[&str]| {
        let script = ". \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                      _tiersmith tiersmith \"${@: -1}\" \"${@: -2:1}\"; echo \"${COMPREPLY[@]}\"";
        let file = dir.path().join("bash-completion/completions/tiersmith");
        good(Command::new("bash").args(["-c", script]).arg(file).args(words)).trim().to_owned()
    };
    assert_eq!(ask(&["tiersmith", "att"]), "attach");
    assert_eq!(ask(&["tiersmith", "attach", "--emu"]), "--emulate");
    assert_eq!(ask(&["tiersmith", "attach", "--lend", ""]), "auto no");
    assert_eq!(ask(&["tiersmith", "awr", "rep"]), "report");
}
