//! What the scripts in `packaging` make is installed and used, as somebody new would.

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

/// The SQLite extension that was built beside the program, or why there is none.
fn extension() -> Option<PathBuf> {
    let target = Path::new(PROGRAM).parent().unwrap();
    let found = [target.join("deps"), target.to_path_buf()]
        .map(|dir| dir.join("libtiersmith_sqlite.so"))
        .into_iter()
        .find(|library| library.exists());
    if found.is_none() {
        eprintln!(
            "skipped: packages, because there is no libtiersmith_sqlite.so in {}",
            target.display()
        );
    }
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
        let name =
            path.file_name().unwrap().to_str().unwrap().strip_suffix(".1.gz").unwrap().to_owned();
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
            let done =
                Command::new("groff").args(["-man", "-ww", "-z"]).arg(&source).output().unwrap();
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
            Err(e) => {
                eprintln!("skipped: the completions in {shell}, because it cannot be run ({e})")
            }
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

/// What is done in the root: each line is a step that must succeed.
const INSTALLED: &str = r#"
set -eux
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
dpkg --no-triggers --force-unsafe-io -i /srv/packages/*-1_*.deb
dpkg --verify tiersmith
[ "$(command -v tiersmith)" = /usr/bin/tiersmith ]
tiersmith --version
gzip -dc /usr/share/man/man1/tiersmith-attach.1.gz | grep -q EXAMPLES
[ -f /usr/lib/systemd/system/tiersmith@.service ]
if command -v sqlite3; then
    sqlite3 -cmd '.load libtiersmith_sqlite' :memory: 'SELECT tiersmith_last_error()'
fi

mkdir /srv/db /srv/fast
echo before >/srv/db/file
tiersmith attach /srv/db --fast /srv/fast --size 24M --emulate
pid=$(tiersmith status /srv/db --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
exec 3>>/srv/db/file
echo attached >&3
# A newer package, with the file open: the daemon goes on.
dpkg --no-triggers --force-unsafe-io -i /srv/packages/*-2_*.deb
echo upgraded >&3
case $(readlink /proc/$pid/exe) in /usr/bin/tiersmith*deleted*) ;; *) exit 1 ;; esac
[ "$(dpkg-query -W -f '${Version}' tiersmith)" = "${VERSION}-2" ]
tiersmith status /srv/db
# Not removed while it serves a home, which it names; and then nothing has changed.
if dpkg --no-triggers -r tiersmith 2>/srv/refused; then exit 1; fi
grep -q /srv/db /srv/refused
[ -x /usr/bin/tiersmith ] && kill -0 "$pid"
exec 3>&-
tiersmith unmount /srv/db
[ ! -e "/proc/$pid" ] || sleep 1
tiersmith attach /srv/db
echo new >>/srv/db/file
tiersmith detach /srv/db
[ "$(cat /srv/db/file)" = "$(printf 'before\nattached\nupgraded\nnew')" ]
dpkg --no-triggers -r tiersmith
[ ! -e /usr/bin/tiersmith ] && [ ! -e /usr/share/doc/tiersmith ]
[ "$(cat /srv/db/file)" = "$(printf 'before\nattached\nupgraded\nnew')" ]
"#;

/// The root is this machine's as it is, and what is written stays in memory.
const ROOT: &str = r#"
set -eu
mount -t tmpfs -o mode=755 tmpfs "$1/over"
mkdir "$1/over/upper" "$1/over/work" "$1/over/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/over/upper,workdir=$1/over/work" overlay "$1/over/root" || exit 77
mount --rbind /dev "$1/over/root/dev"
mount -t proc proc "$1/over/root/proc"
mount --bind "$1/srv" "$1/over/root/srv"
exec chroot "$1/over/root" sh -c "$2"
"#;

#[test]
fn the_debian_package_is_installed_upgraded_under_a_running_daemon_and_removed() {
    let Some(extension) = extension() else { return };
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return eprintln!("skipped: the Debian package, because there is no dpkg-deb");
    }
    let dir = tempfile::tempdir().unwrap();
    let packages = dir.path().join("srv/packages");
    for revision in ["1", "2"] {
        good(
            Command::new(packaging("deb/build"))
                .arg(&packages)
                .args([Path::new(PROGRAM), &extension])
                .env("TIERSMITH_DEB_REVISION", revision)
                .env("DPKG_DEB_COMPRESSOR_TYPE", "none"),
        );
    }
    for entry in fs::read_dir(&packages).unwrap() {
        let listed = good(Command::new("dpkg-deb").arg("-c").arg(entry.unwrap().path()));
        let owned = |line: &str| line.contains(" root/root ") && !line.contains("rw-rw");
        assert!(listed.lines().all(owned), "{listed}");
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return eprintln!("skipped: the installed package, because root and /dev/fuse are needed");
    }
    fs::create_dir(dir.path().join("over")).unwrap();
    let run = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"])
        .args(["sh", "-c", ROOT, "sh"])
        .arg(dir.path())
        .arg(INSTALLED)
        .env("VERSION", env!("CARGO_PKG_VERSION"))
        .current_dir("/")
        .output()
        .unwrap();
    let said = text(&run.stdout) + &text(&run.stderr);
    if run.status.code() == Some(77) {
        return eprintln!(
            "skipped: the installed package, because no root can be laid over this one"
        );
    }
    assert!(run.status.success(), "{said}");
}

/// A program of somebody who uses better-sqlite3, with the database as its argument.
const NODE_PROGRAM: &str = r"
const tiersmith = require('tiersmith');
const db = tiersmith.open(process.argv[1]);
db.pragma('journal_mode = WAL');
const add = db.prepare('INSERT INTO t VALUES (?)');
db.transaction(() => { for (let n = 0; n < 100; n++) add.run(n); })();
const again = tiersmith.open(process.argv[1], { readonly: true });
console.log(again.prepare('SELECT count(*) AS n FROM t').get().n);
console.log(/attached/.test(db.pragma('tiersmith_stats', { simple: true })));
tiersmith.open(process.argv[1] + '.plain').exec('CREATE TABLE p(x)').close();
";

#[test]
fn the_npm_package_opens_an_attached_database_for_better_sqlite3() {
    let Some(extension) = extension() else { return };
    if !Command::new("npm").arg("--version").output().is_ok_and(|done| done.status.success()) {
        return eprintln!("skipped: the npm package, because npm is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    good(Command::new(packaging("npm/build")).arg(dir.path()).arg(&extension));
    let modules = dir.path().join("node_modules");
    fs::create_dir_all(modules.join("tiersmith")).unwrap();
    let file = dir.path().join(concat!("tiersmith-", env!("CARGO_PKG_VERSION"), ".tgz"));
    let mut unpack = Command::new("tar");
    unpack
        .arg("-xzf")
        .arg(file)
        .arg("--strip-components=1")
        .arg("-C")
        .arg(modules.join("tiersmith"));
    good(&mut unpack);
    let there = std::env::var("NODE_PATH").unwrap_or_default();
    let node = |script: &str| {
        let mut command = Command::new("node");
        command.env("NODE_PATH", format!("{}:{there}", modules.display())).args(["-e", script]);
        command
    };
    let found = node("new (require('better-sqlite3'))(':memory:')").output().unwrap();
    if !found.status.success() {
        return eprintln!(
            "skipped: the npm package in use, because better-sqlite3 is not in NODE_PATH"
        );
    }
    let database = dir.path().join("app.db");
    rusqlite::Connection::open(&database).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    let mut attach = Command::new(PROGRAM);
    attach.arg("attach").arg(&database).arg("--fast").arg(dir.path()).args([
        "--size",
        "16M",
        "--emulate",
    ]);
    good(&mut attach);
    assert_eq!(good(node(NODE_PROGRAM).arg(&database)), "100\ntrue\n");
    good(Command::new(PROGRAM).arg("detach").arg(&database));
    let count = |name: &Path, table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        rusqlite::Connection::open(name)
            .unwrap()
            .query_row(&sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    assert_eq!(count(&database, "t"), 100);
    assert_eq!(count(&dir.path().join("app.db.plain"), "p"), 0);
}
