"""The Python package tiersmith, installed from its wheel: python_package.py TEST DIRECTORY.

Prints "good", or "skipped: WHAT, because WHY". Each test is a process of its own, because SQLite
keeps an extension until the process ends.
"""

import importlib
import os
import sqlite3
import sys
import tempfile
import threading

import tiersmith

directory = sys.argv[2]
PATH = os.path.join(directory, "a b%20?#ü.db")
TIER = {"fast": os.path.join(directory, "app.tier"), "size": "16M", "emulate": True}


def refused(kind, action, *words):
    try:
        action()
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return
    raise AssertionError("it was not refused")


def attaches():
    db = tiersmith.connect(PATH, **TIER)
    assert isinstance(db, tiersmith.library().Connection), type(db)
    assert "attached" in db.execute("PRAGMA tiersmith_stats").fetchone()[0]
    with db:
        db.execute("CREATE TABLE t(x)")
        db.execute("INSERT INTO t VALUES (41)")
    # A second connection, by the path alone, with an option of sqlite3.
    again = tiersmith.connect(PATH, isolation_level=None)
    again.execute("UPDATE t SET x = x + 1")
    assert db.execute("SELECT x FROM t").fetchall() == [(42,)]
    read = tiersmith.connect(tiersmith.uri(PATH) + "&mode=ro", uri=True)
    refused(sqlite3.OperationalError, lambda: read.execute("DELETE FROM t"), "readonly")
    for connection in (db, again, read):
        connection.close()
    plain = sqlite3.connect(PATH)
    refused(sqlite3.DatabaseError, lambda: plain.execute("SELECT x FROM t"), "not a database")


def says_what_is_wrong():
    refused(ValueError, lambda: tiersmith.connect(":memory:", fast="x"), "in memory")
    refused(TypeError, lambda: tiersmith.connect(PATH, fats="x"), "fats")
    refused(TypeError, lambda: tiersmith.uri(PATH, fats="x"), "fats")
    # The extension's own sentence: memory would stand for a disk unasked.
    if os.access("/dev/shm", os.W_OK):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            real = {**TIER, "emulate": False, "fast": os.path.join(memory, "app.tier")}
            refused(tiersmith.library().OperationalError, lambda: tiersmith.connect(PATH, **real), "DAX")
    assert tiersmith.connect(":memory:").execute("SELECT 1").fetchone() == (1,)


def quotes_names():
    assert tiersmith.uri("a?b#c%d &.db") == "file:a%3Fb%23c%25d%20%26.db?vfs=tiersmith"
    assert tiersmith.uri("//srv//a") == "file:/srv//a?vfs=tiersmith"
    assert tiersmith.uri("file:a?mode=ro#x", is_uri=True) == "file:a?mode=ro&vfs=tiersmith"
    assert tiersmith.uri("file:a") == "file:file%3Aa?vfs=tiersmith"
    given = {"fast": ["/m/a&b", "/n"], "size": 65536, "emulate": True, "keep": None}
    assert tiersmith.uri("a", **given) == "file:a?vfs=tiersmith&fast=/m/a%26b,/n&size=65536&emulate=1"


def needs_an_sqlite_that_loads_extensions():
    original = tiersmith.register

    def only(*names):
        def register(module):
            if module.__name__ not in names:
                raise tiersmith.NotSupported(f"{module.__name__} loads none")
            original(module)

        tiersmith.register = register

    only()
    refused(tiersmith.NotSupported, tiersmith.library, "sqlite3 loads none", "tiersmith[sqlite]")
    try:
        import pysqlite3
    except ImportError:
        return "an SQLite of the package's own, because pysqlite3 is not installed"
    only("pysqlite3")
    assert tiersmith.library() is pysqlite3
    db = tiersmith.connect(PATH, **TIER)
    assert isinstance(db, pysqlite3.Connection)
    assert "attached" in db.execute("PRAGMA tiersmith_stats").fetchone()[0]


def refuses_a_forked_child():
    db = tiersmith.connect(PATH, **TIER)
    db.execute("CREATE TABLE t(x)")
    child = os.fork()
    if child == 0:
        try:
            refused(tiersmith.library().OperationalError, lambda: tiersmith.connect(PATH), str(os.getppid()))
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    db.execute("INSERT INTO t VALUES (1)")
    db.commit()


def sqlalchemy():
    from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, func, select
    from sqlalchemy.engine import URL

    query = {"fast": TIER["fast"], "size": "16M", "emulate": "1"}
    engine = create_engine(URL.create("sqlite+tiersmith", database=PATH, query=query))
    tables = MetaData()
    people = Table("people", tables, Column("id", Integer, primary_key=True), Column("name", String))
    tables.create_all(engine)

    def add():
        with engine.begin() as connection:
            for n in range(50):
                connection.execute(people.insert().values(name=f"n{n}"))

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(people)).scalar() == 150
        assert "attached" in connection.exec_driver_sql("PRAGMA tiersmith_stats").scalar()
    engine.dispose()
    assert create_engine("sqlite+tiersmith://").connect().exec_driver_sql("SELECT 1").scalar() == 1


def django():
    from django.conf import settings

    database = {"ENGINE": "tiersmith.django", "NAME": PATH, "OPTIONS": dict(TIER)}
    memory = {"ENGINE": "tiersmith.django", "NAME": ":memory:", "OPTIONS": dict(TIER)}
    settings.configure(DATABASES={"default": database, "memory": memory}, USE_TZ=True, INSTALLED_APPS=[])
    import django

    django.setup()
    from django.db import connection, connections, models, transaction

    class Person(models.Model):
        name = models.CharField(max_length=20)

        class Meta:
            app_label = "people"

    with connection.schema_editor() as editor:
        editor.create_model(Person)
    with transaction.atomic():
        Person.objects.bulk_create(Person(name=f"n{n}") for n in range(100))
    refused(RuntimeError, lambda: transaction.atomic()(fails)(Person), "undone")
    assert Person.objects.filter(name__regex="^n1.$").count() == 10
    assert Person.objects.count() == 100
    with connection.cursor() as cursor:
        assert "attached" in cursor.execute("PRAGMA tiersmith_stats").fetchone()[0]
    with connections["memory"].cursor() as cursor:
        assert cursor.execute("SELECT 1").fetchone() == (1,)


def fails(model):
    model.objects.create(name="never")
    raise RuntimeError("undone")


def datasette():
    import asyncio

    from datasette.app import Datasette
    from datasette.utils.sqlite import sqlite3 as used

    path = os.path.join(directory, "app.db")
    tiersmith.register(used)
    db = used.connect(tiersmith.uri(path, **TIER), uri=True)
    db.execute("CREATE TABLE t(x)")
    db.execute("INSERT INTO t VALUES (42)")
    db.commit()
    db.close()
    plain = os.path.join(directory, "plain.db")
    used.connect(plain).execute("CREATE TABLE p(x)").connection.close()

    async def ask():
        site = Datasette([path, plain])
        await site.invoke_startup()
        rows = (await site.client.get("/app.json?sql=select+x+from+t&_shape=arrays")).json()
        names = (await site.client.get("/plain.json")).json()
        return rows["rows"], [table["name"] for table in names["tables"]]

    assert asyncio.run(ask()) == ([[42]], ["p"])


NEEDS = {"sqlalchemy": "SQLAlchemy", "django": "Django", "datasette": "Datasette"}
name = sys.argv[1]
if name in NEEDS:
    try:
        importlib.import_module(name)
    except ImportError:
        print(f"skipped: {NEEDS[name]} with Tiersmith, because {sys.executable} does not have it")
        sys.exit(0)
answer = globals()[name]()
print(f"skipped: {answer}" if answer else "good")
