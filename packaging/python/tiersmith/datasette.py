"""Datasette's plugin: `datasette app.db` opens an attached database through Tiersmith.

Datasette gives its own URI to SQLite, so Tiersmith becomes the default for the whole process.
A database that was never attached is opened as ever.
"""

import os
import warnings

from datasette.utils.sqlite import sqlite3

from . import NotSupported, register

os.environ.setdefault("TIERSMITH_SQLITE_DEFAULT", "1")
try:
    register(sqlite3)
except NotSupported as error:
    warnings.warn(f"Datasette cannot open databases of Tiersmith: {error}", stacklevel=1)
