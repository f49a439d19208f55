//! The loadable extension, loaded by the programs that are installed: the `sqlite3` shell and
//! Python.

use crate::programs::{library, program, run};
use std::process::Command;

#[test]
fn the_sqlite3_shell_attaches_by_the_extension_and_is_refused_without() {
    let (Some(library), Some(shell)) = (library(), program("/usr/bin/sqlite3")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (database, tier) = (dir.path().join("app.db"), dir.path().join("app.tier"));
    let load = format!(".load {}", library.with_extension("").display());
    let uri = format!(
        "file:{}?vfs=tiersmith&fast={}&size=16M&emulate=1",
        database.display(),
        tier.display()
    );
    let sql = "CREATE TABLE t(x); INSERT INTO t VALUES (41); PRAGMA journal_mode=wal; UPDATE t SET \
               x=x+1; SELECT x FROM t; \
               SELECT ifnull(tiersmith_last_error(), 'none')";
    // The database is opened when the extension is loaded already.
    let said = run(Command::new(shell).args([
        "-cmd",
        &load,
        "-cmd",
        &format!(".open {uri}"),
        ":memory:",
        sql,
    ]));
    assert_eq!(said, "wal\n42\nnone\n");
    let stock = Command::new(shell).arg(&database).arg("SELECT x FROM t").output().unwrap();
    assert!(!stock.status.success());
    assert!(String::from_utf8_lossy(&stock.stderr).contains("not a database"));
}

#[test]
fn the_programs_limits_and_signals_are_left_to_it() {
    let (Some(library), Some(python)) = (library(), program("/usr/bin/python3")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = r"
import glob, os, resource, signal, sqlite3, sys, time
library, database, tier = sys.argv[1:]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
loader = sqlite3.connect(':memory:')
if not hasattr(loader, 'enable_load_extension'):
    print('SKIPPED: this Python loads no extensions')
    sys.exit(0)
loader.enable_load_extension(True)
loader.load_extension(library)
uri = f'file:{database}?vfs=tiersmith&fast={tier}&size=16M&emulate=1'
connection = sqlite3.connect(uri, uri=True)
connection.execute('CREATE TABLE t(x)')
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
assert limit == (200, hard), limit
def threads_of_ours():
    ours = 0
    for status in glob.glob('/proc/self/task/*/status'):
        lines = dict(line.split(':', 1) for line in open(status))
        blocked = int(lines['SigBlk'], 16)
        if lines['Name'].strip() == 'tiersmith-tier':
            ours += 1
            for name in ('SIGTERM', 'SIGINT', 'SIGALRM', 'SIGCHLD', 'SIGUSR1'):
                assert blocked & 1 << getattr(signal, name) - 1, f'{name} is not blocked'
            for number in (signal.SIGBUS, signal.SIGSEGV):
                assert not blocked & 1 << number - 1, f'{number!r} is blocked'
    return ours
# A thread takes its name when it first runs.
end = time.monotonic() + 60
while (ours := threads_of_ours()) < 1 and time.monotonic() < end:
    time.sleep(0.01)
assert ours == 1, f'{ours} threads of ours'
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
print('done')
";
    let said = run(Command::new(python)
        .args(["-c", script])
        .arg(library.with_extension(""))
        .arg(dir.path().join("app.db"))
        .arg(dir.path().join("app.tier")));
    assert!(said.starts_with("done") || said.starts_with("SKIPPED"), "{said}");
}

#[test]
fn python_attaches_by_the_extension() {
    let (Some(library), Some(python)) = (library(), program("/usr/bin/python3")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let script = r"
import sqlite3, sys
library, database, tier = sys.argv[1:]
loader = sqlite3.connect(':memory:')
if not hasattr(loader, 'enable_load_extension'):
    print('SKIPPED: this Python loads no extensions')
    sys.exit(0)
loader.enable_load_extension(True)
loader.load_extension(library)
uri = f'file:{database}?vfs=tiersmith'
connection = sqlite3.connect(f'{uri}&fast={tier}&size=16M&emulate=1', uri=True)
connection.execute('CREATE TABLE t(x)')
with connection:
    connection.executemany('INSERT INTO t VALUES (?)', [(n,) for n in range(100)])
assert 'EMULATED' in connection.execute('PRAGMA tiersmith_stats').fetchone()[0]
connection.close()
loader.close()
connection = sqlite3.connect(uri, uri=True)
assert connection.execute('SELECT sum(x) FROM t').fetchone() == (4950,)
assert connection.execute('PRAGMA integrity_check').fetchone() == ('ok',)
print('done')
";
    let said = run(Command::new(python)
        .args(["-c", script])
        .arg(library.with_extension(""))
        .arg(dir.path().join("app.db"))
        .arg(dir.path().join("app.tier")));
    assert!(said.starts_with("done") || said.starts_with("SKIPPED"), "{said}");
}
