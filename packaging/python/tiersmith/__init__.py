"""SQLite databases on a fast tier, with the interface of the module sqlite3.

    import tiersmith
    db = tiersmith.connect("app.db", fast="/mnt/pmem0/app.tier", size="1G")

connect() returns an ordinary sqlite3.Connection. The first open with `fast` attaches the database;
later opens need only its path. `tiersmith detach app.db` gives the plain file back.

One process has an attached database open, with any number of threads and connections. A child made
by fork() is refused: open the database after the fork. See docs/guide/sqlite.md.
"""

import ctypes
import importlib
import os
import threading
from urllib.parse import quote

__all__ = ["NotSupported", "PARAMETERS", "connect", "library", "register", "uri"]

#: What a database is attached with; docs/guide/sqlite.md has the table.
PARAMETERS = ("fast", "size", "maxsize", "next", "emulate", "block", "keep", "place", "sigbus")

EXTENSION = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtiersmith_sqlite.so")

_lock = threading.Lock()
_registered = set()
_library = None
# What SQLite has been given the address of is never freed.
_entries = []


class NotSupported(ImportError):
    """No SQLite of this Python can be given the extension."""


def connect(database, *arguments, **options):
    """sqlite3.connect(), for a database on a fast tier or a plain one.

    Takes the PARAMETERS as keywords, and hands everything else on to sqlite3.connect().
    """
    given = {name: options.pop(name) for name in PARAMETERS if name in options}
    name = os.fsdecode(database)
    is_uri = options.pop("uri", False)
    if name in ("", ":memory:"):
        if given:
            raise ValueError(f"a database in memory has no tier: {', '.join(given)}")
        return library().connect(name, *arguments, **options)
    name = uri(name, is_uri=is_uri, **given)
    return library().connect(name, *arguments, uri=True, **options)


def uri(database, is_uri=False, **given):
    """The URI that opens a database through Tiersmith, with any of the PARAMETERS.

    With `is_uri`, a name that begins with "file:" is a URI already, and is added to.
    """
    name = os.fsdecode(database)
    if is_uri and name.startswith("file:"):
        name, _, fragment = name.partition("#")
    else:
        # Two slashes would begin the name of a host.
        path = "/" + name.lstrip("/") if name.startswith("/") else name
        name = "file:" + quote(os.fsencode(path))
    words = ["vfs=tiersmith"]
    for key, value in given.items():
        if key not in PARAMETERS:
            raise TypeError(f"there is no parameter {key}; there are {', '.join(PARAMETERS)}")
        if value is None:
            continue
        if isinstance(value, bool):
            value = int(value)
        elif isinstance(value, (list, tuple)):
            value = ",".join(os.fsdecode(member) for member in value)
        elif isinstance(value, (bytes, os.PathLike)):
            value = os.fsdecode(value)
        words.append(key + "=" + quote(os.fsencode(str(value)), safe="/,"))
    return name + ("&" if "?" in name else "?") + "&".join(words)


def library():
    """The module with which databases are opened: sqlite3, or pysqlite3 where only that works."""
    global _library
    if _library is None:
        refused = []
        for name in ("sqlite3", "pysqlite3"):
            try:
                module = importlib.import_module(name)
                register(module)
            except ImportError as error:
                refused.append(str(error))
                continue
            _library = module
            break
        else:
            raise NotSupported(
                f"cannot open databases with Tiersmith: {'; '.join(refused)}. Install an SQLite that "
                "loads extensions: pip install 'tiersmith[sqlite]'"
            )
    return _library


def register(module):
    """Makes the VFS `tiersmith` known to the SQLite of this module, once.

    Raises NotSupported if that SQLite cannot be given an extension.
    """
    with _lock:
        if module.Connection in _registered:
            return
        loader = module.connect(":memory:")
        try:
            if hasattr(loader, "enable_load_extension"):
                loader.enable_load_extension(True)
                # SQLite adds the ending.
                loader.load_extension(os.path.splitext(EXTENSION)[0])
            else:
                _register_by_entry_point(module)
        finally:
            loader.close()
        _registered.add(module.Connection)


def _register_by_entry_point(module):
    """Many Pythons are built without load_extension(), over an SQLite that has what it needs.

    That SQLite calls what sqlite3_auto_extension() was given at the next open, as it calls an
    extension that it loads. The program is asked for no right that it does not have: it could
    load any library into itself anyway.
    """
    cannot = f"the module {module.__name__} of this Python loads no extensions"
    package = "" if module.__name__.startswith("sqlite3") else module.__name__ + "."
    try:
        compiled = importlib.import_module(package + "_sqlite3")
        # By the module, and so from the SQLite that it is linked to; none of its own: it is in the
        # interpreter.
        sqlite = ctypes.CDLL(getattr(compiled, "__file__", None))
        add, remove = sqlite.sqlite3_auto_extension, sqlite.sqlite3_cancel_auto_extension
    except (ImportError, OSError, AttributeError) as error:
        raise NotSupported(f"{cannot} ({error})") from error
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)
    begin = kind(("sqlite3_tiersmithsqlite_init", ctypes.CDLL(EXTENSION)))
    answers = []

    @kind
    def entry(connection, message, routines):
        # 0: loaded. 256: loaded, and to stay so, which this way of loading takes for an error.
        # An SQLite that was built without extensions hands out no routines.
        answers.append(begin(connection, message, routines) if routines else None)
        return 0 if answers[-1] in (None, 0, 256) else 1

    _entries.append(entry)
    for function in (add, remove):
        function.argtypes, function.restype = [kind], ctypes.c_int
    add(entry)
    try:
        module.connect(":memory:").close()
    finally:
        remove(entry)
    if not answers or None in answers:
        raise NotSupported(f"{cannot}, and neither does its SQLite {module.sqlite_version}")
