"""Tiersmith as a module of Python's database API: all of sqlite3, with connect() of Tiersmith."""

from . import connect, library

__all__ = ["connect"]

_module = library()


def __getattr__(name):
    return getattr(_module, name)
