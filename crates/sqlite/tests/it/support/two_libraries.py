"""Two SQLite libraries in one process, each of which loads the extension: the standard library's, and a copy under another path, as
APSW or pysqlite3 bring one. usage: two_libraries.py ORDER LIBRARY DIRECTORY SQLITE

Both open databases of their own, and one together; whatever SQLite frees must be its own memory.
"""
import ctypes
import os
import sys

ORDER, LIBRARY, DIRECTORY, SQLITE = sys.argv[1:5]


def uri(name, tier=True):
    path = os.path.join(DIRECTORY, name)
    return f'file:{path}?vfs=tiersmith' + (f'&fast={path}.tier&size=16M&emulate=1' if tier else '')


class Other:
    """The copy, by its C interface."""

    def __init__(self):
        copy = os.path.join(DIRECTORY, 'libsqlite3-copy.so')
        with open(SQLITE, 'rb') as source, open(copy, 'wb') as target:
            # Under the name it has, the standard library would be given the copy.
            target.write(source.read().replace(b'libsqlite3.so.0', b'libsqliteX.so.0'))
        self.lib = ctypes.CDLL(copy, mode=ctypes.DEFAULT_MODE)
        self.lib.sqlite3_errmsg.restype = ctypes.c_char_p
        self.lib.sqlite3_errmsg.argtypes = [ctypes.c_void_p]
        self.row = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p)
        self.lib.sqlite3_exec.argtypes = [ctypes.c_void_p, ctypes.c_char_p, self.row, ctypes.c_void_p, ctypes.c_void_p]
        self.lib.sqlite3_close.argtypes = [ctypes.c_void_p]
        loader = self.open(':memory:')
        self.lib.sqlite3_enable_load_extension.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.lib.sqlite3_load_extension.argtypes = [ctypes.c_void_p] + [ctypes.c_char_p] * 2 + [ctypes.c_void_p]
        assert self.lib.sqlite3_enable_load_extension(loader, 1) == 0
        assert self.lib.sqlite3_load_extension(loader, LIBRARY.encode(), None, None) == 0, self.lib.sqlite3_errmsg(loader)
        self.lib.sqlite3_close(loader)

    def open(self, name):
        db = ctypes.c_void_p()
        code = self.lib.sqlite3_open_v2(name.encode(), ctypes.byref(db), 2 | 4 | 64, None)
        if code:
            raise RuntimeError(f'{code}: {self.lib.sqlite3_errmsg(db).decode()}')
        return db

    def run(self, db, sql):
        rows = []

        def keep(_, n, values, __):
            rows.append(tuple(None if v is None else v.decode() for v in values[:n]))
            return 0
        code = self.lib.sqlite3_exec(db, sql.encode(), self.row(keep), None, None)
        if code:
            raise RuntimeError(f'{code}: {self.lib.sqlite3_errmsg(db).decode()}')
        return rows

    def close(self, db):
        assert self.lib.sqlite3_close(db) == 0


class Standard:
    def __init__(self):
        import sqlite3
        self.sqlite3 = sqlite3
        loader = self.open(':memory:')
        loader.enable_load_extension(True)
        loader.load_extension(LIBRARY)
        loader.close()

    def open(self, name):
        return self.sqlite3.connect(name, uri=True, isolation_level=None)

    def run(self, db, sql):
        return [tuple(str(v) if v is not None else None for v in row) for row in db.execute(sql).fetchall()]

    def close(self, db):
        db.close()


libraries = [Other(), Standard()] if ORDER == 'copy_first' else [Standard(), Other()]
opened = []
for number, library in enumerate(libraries * 2):
    db = library.open(uri(f'own{number}.db'))
    opened.append((library, db))
    for sql in ('PRAGMA journal_mode=wal', 'CREATE TABLE t(x)', 'INSERT INTO t VALUES (7)', 'PRAGMA tiersmith_stats', 'PRAGMA tiersmith_flush'):
        library.run(db, sql)
for library, db in opened:
    assert library.run(db, 'SELECT x FROM t') == [('7',)]
    # The text of a function, the name of the VFS and a message of an error are each in that SQLite's memory.
    library.run(db, 'SELECT tiersmith_last_error()')
    library.run(db, 'PRAGMA main.temp_store')
    try:
        library.run(library.open(uri('own0.db', False)), 'PRAGMA tiersmith_inspect=nothing')
    except Exception:
        pass
# One database, by both: its locks are in the process.
shared = [(library, library.open(uri('shared.db', tier=n == 0))) for n, library in enumerate(libraries)]
for sql in ('PRAGMA journal_mode=wal', 'CREATE TABLE t(who, n)'):
    shared[0][0].run(shared[0][1], sql)
for n in range(100):
    for who, (library, db) in enumerate(shared):
        library.run(db, f'INSERT INTO t VALUES ({who}, {n})')
for library, db in shared:
    assert library.run(db, 'SELECT who, count(*) FROM t GROUP BY who') == [('0', '100'), ('1', '100')]
    assert library.run(db, 'PRAGMA integrity_check') == [('ok',)]
# What one is refused, it is told by its own library.
for library, _ in shared:
    try:
        library.open(uri('own0.db').replace('own0.db.tier', 'other.tier'))
    except Exception as e:
        told = library.run(library.open(':memory:'), 'SELECT tiersmith_last_error()')[0][0]
        assert 'other.tier' in told, told
    else:
        raise AssertionError('another tier was let in')
for library, db in opened + shared:
    library.close(db)
print('done')
