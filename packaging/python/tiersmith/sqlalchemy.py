"""SQLAlchemy's dialect `sqlite+tiersmith`.

    create_engine("sqlite+tiersmith:///app.db?fast=/mnt/pmem0/app.tier&size=1G")

The parameters are those of tiersmith.connect(). Everything else is SQLAlchemy's own for SQLite.
"""

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from . import PARAMETERS


class Dialect(SQLiteDialect_pysqlite):
    """SQLite on a fast tier."""

    driver = "tiersmith"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls):
        from . import dbapi

        return dbapi

    def create_connect_args(self, url):
        query = dict(url.query)
        given = {name: query.pop(name) for name in PARAMETERS if name in query}
        arguments, options = super().create_connect_args(url.set(query=query))
        return arguments, {**options, **given}
