"""Django's backend for SQLite, with databases on a fast tier.

    DATABASES = {"default": {
        "ENGINE": "tiersmith.django",
        "NAME": "/srv/app/app.db",
        "OPTIONS": {"fast": "/mnt/pmem0/app.tier", "size": "1G"},
    }}

One process has the database open: a server with threads (gunicorn with one worker, for example).
"""

from django.db.backends.sqlite3 import base

from .. import PARAMETERS, register, uri


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's own for SQLite; only the name that is opened differs."""

    def get_connection_params(self):
        options = super().get_connection_params()
        given = {name: options.pop(name) for name in PARAMETERS if name in options}
        # The database of Django's tests.
        if not self.is_in_memory_db():
            register(base.Database)
            options["database"] = uri(options["database"], is_uri=True, **given)
        return options
