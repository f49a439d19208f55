"""Programs that fork with a database open, as Python programs do: usage: fork_models.py MODEL LIBRARY DIRECTORY JOURNAL_MODE

Each model ends with 500 rows of the parent's in the database, written in part while its children do what they do, and checks what
each of them is told. Exits with an exception when something is not as it should be.
"""
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time

MODEL, LIBRARY, DIRECTORY, JOURNAL = sys.argv[1:5]
DATABASE = os.path.join(DIRECTORY, 'app.db')
ATTACH = f'file:{DATABASE}?vfs=tiersmith&fast={DATABASE}.tier&size=16M&emulate=1'
AGAIN = f'file:{DATABASE}?vfs=tiersmith'

loader = sqlite3.connect(':memory:')
if not hasattr(loader, 'enable_load_extension'):
    print('SKIPPED: this Python loads no extensions')
    sys.exit(0)
loader.enable_load_extension(True)
loader.load_extension(LIBRARY)
loader.close()


def connect(uri):
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0.1)


def commits(db, who, n):
    for i in range(n):
        db.execute('INSERT INTO t VALUES (?, ?)', (who, i))


def last_error():
    return sqlite3.connect(':memory:').execute('SELECT tiersmith_last_error()').fetchone()[0] or ''


def told(work):
    """What a program is told by `work`: SQLite's message and Tiersmith's."""
    try:
        work()
    except sqlite3.Error as e:
        return f'{type(e).__name__}: {e}: {last_error()}'
    return 'let in'


def use(db):
    return told(lambda: commits(db, 1, 300))


def open_and_use():
    return told(lambda: commits(connect(AGAIN), 1, 300))


def forked(work, end=os._exit):
    """A child that sends what `work` returns; `end` is how it ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.write(writer, work().encode())
        os.close(writer)
        end(0)
    os.close(writer)
    return child, reader


def heard(children):
    """What the children sent; all of them ended well."""
    said = []
    for child, reader in children:
        with os.fdopen(reader) as pipe:
            said.append(pipe.read())
        status = os.waitpid(child, 0)[1]
        assert status == 0, f'a child ended with {status}: {said[-1]}'
    return said


def must_say(said, *words):
    for one in said:
        for word in words:
            assert word in one, f'{one!r} does not say {word!r}'


IN_USE = ('is in use by process %d' % os.getpid(), 'one process at a time')
FORKED = ('was opened by process %d' % os.getpid(), 'after the fork')
ROWS = 500

if MODEL == 'opens_after_parent_closed':
    db = connect(ATTACH)
    db.execute(f'PRAGMA journal_mode={JOURNAL}')
    db.execute('CREATE TABLE t(who, n)')
    commits(db, 0, 200)
    db.close()

    def takes_over():
        mine = connect(AGAIN)
        commits(mine, 0, 300)
        mine.close()
        return 'done'
    assert heard([forked(takes_over)]) == ['done']
elif MODEL == 'forked_before':
    go, start = os.pipe()

    def waits():
        os.close(start)
        os.read(go, 1)
        return open_and_use()
    children = [forked(waits) for _ in range(3)]
    db = connect(ATTACH)
    db.execute(f'PRAGMA journal_mode={JOURNAL}')
    db.execute('CREATE TABLE t(who, n)')
    commits(db, 0, 200)
    os.close(start)
    commits(db, 0, 300)
    must_say(heard(children), *IN_USE)
    db.close()
elif MODEL == 'opens_in_the_worker':
    # What the sentence advises: nothing is open at the fork, and one worker opens the database.
    def worker():
        db = connect(ATTACH)
        db.execute(f'PRAGMA journal_mode={JOURNAL}')
        db.execute('CREATE TABLE t(who, n)')
        commits(db, 0, 500)
        return 'done'
    assert heard([forked(worker)]) == ['done']
else:
    db = connect(ATTACH)
    db.execute(f'PRAGMA journal_mode={JOURNAL}')
    db.execute('CREATE TABLE t(who, n)')
    commits(db, 0, 200)
    if MODEL == 'new_connections':
        children = [forked(open_and_use) for _ in range(3)]
        commits(db, 0, 300)
        said = heard(children)
        must_say(said, *IN_USE)
        # SQLite's own message has it.
        must_say([one.split(': tiersmith:')[1] for one in said], *IN_USE)
    elif MODEL == 'inherited_connection':
        children = [forked(lambda: use(db)) for _ in range(3)]
        commits(db, 0, 300)
        must_say(heard(children), *FORKED)
    elif MODEL == 'inherited_pragma':
        # A pragma carries the sentence itself.
        said = heard([forked(lambda: told(lambda: db.execute('PRAGMA tiersmith_stats').fetchall()))])
        must_say([one.split(': tiersmith:')[0] for one in said], *FORKED)
        commits(db, 0, 300)
    elif MODEL == 'inherited_in_transaction':
        db.execute('BEGIN')
        commits(db, 0, 150)
        children = [forked(lambda: told(lambda: db.execute(end))) for end in ('COMMIT', 'ROLLBACK')]
        must_say(heard(children)[:1], *FORKED)
        commits(db, 0, 150)
        db.execute('COMMIT')
    elif MODEL == 'pool':
        # A connection at module level, inherited by the workers of a pool, and one that a worker tries to open.
        def task(n):
            return use(db) if n % 2 else open_and_use()
        with multiprocessing.get_context('fork').Pool(3) as pool:
            answers = pool.map_async(task, range(6))
            commits(db, 0, 300)
            for n, answer in enumerate(answers.get()):
                must_say([answer], *(FORKED if n % 2 else IN_USE))
    elif MODEL == 'preload':
        # As gunicorn --preload: the application opens the database, workers inherit it, serve, and end as programs do.
        def serve():
            answer = use(db)
            db.close()
            return answer
        for _ in range(3):
            workers = [forked(serve, sys.exit) for _ in range(2)]
            commits(db, 0, 100)
            must_say(heard(workers), *FORKED)
    elif MODEL == 'never_touched':
        # The child does nothing with it; ending, Python closes what it inherited.
        child = forked(lambda: (time.sleep(0.2), 'idle')[1], sys.exit)
        commits(db, 0, 200)
        assert heard([child]) == ['idle']
        commits(db, 0, 100)
    elif MODEL == 'programs':
        # Started by vfork and by fork: they inherit nothing, and the parent goes on.
        for before in (None, lambda: None):
            subprocess.run(['true'], check=True, preexec_fn=before)
            commits(db, 0, 100)
        arguments = [sys.executable, __file__, 'as_a_program', *sys.argv[2:]]
        other = subprocess.run(arguments, capture_output=True, text=True)
        assert other.returncode != 0 and IN_USE[0] in other.stderr, other
        commits(db, 0, 100)
    elif MODEL == 'as_a_program':
        sys.exit('it was let in')
    else:
        sys.exit(f'no model {MODEL}')
    db.close()

db = connect(AGAIN)
assert db.execute('SELECT count(*), sum(who) FROM t').fetchone() == (ROWS, 0), db.execute('SELECT who, count(*) FROM t GROUP BY 1').fetchall()
assert db.execute('PRAGMA integrity_check').fetchone() == ('ok',)
print('done')
