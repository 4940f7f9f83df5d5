"""Tables in databases, by a query or as the only table: files of SQLite (Python brings it) and DuckDB (an extra), and servers,
by a URL, through SQLAlchemy (an extra) and a driver of the user's choice.

A query may read and nothing else: files are opened for reading, and SQLite is asked to reject all other statements.

Secrets stay out of what is written down: a URL says ${NAME} where a password belongs, and the environment variable of that name
holds it. A URL with a password in it is rejected, so that no run folder, report or error can show one.

>>> is_url("postgresql://reader:${PASSWORD}@db.example.org/clinic"), is_url("data/clinic.csv")
(True, False)
>>> reject_password("mysql://reader:hunter2@db.example.org/clinic")
Traceback (most recent call last):
polyfed.errors.ConfigError: mysql://db.example.org/clinic: there is a password in this URL; write ${PASSWORD} in its place, ...
"""

from __future__ import annotations

import os
import re
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from polyfed.data.features.matrix import at
from polyfed.errors import ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

SQLITE, DUCKDB = (".sqlite", ".sqlite3", ".db"), (".duckdb",)
_STATEMENTS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
EXAMPLE = "postgresql://user:${PASSWORD}@host/name"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SECRET = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_READING = re.compile(r"\s*(?:(?:--[^\n]*\n|/\*.*?\*/)\s*)*(?:SELECT|WITH)\b", re.IGNORECASE | re.DOTALL)
# How each server is asked to let nothing be written; others roll back at the end.
_READ_ONLY = {
    "sqlite": "PRAGMA query_only = ON",
    "postgresql": "SET TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}


def is_url(source: object) -> bool:
    return isinstance(source, str) and _SCHEME.match(source) is not None


def url_name(url: str) -> str:
    """What a database is called.

    >>> url_name("postgresql://db.example.org/clinic?sslmode=require")
    'clinic'
    """
    return Path(url.partition("://")[2].partition("?")[0]).stem or "data"


def reject_password(url: str) -> None:
    """An error that does not repeat it, if a URL holds a secret and not the name of a variable that does."""
    try:
        parts = urlsplit(url)
        secret = parts.password
    except ValueError:  # nothing of it is shown, for it is not known which part is which
        raise ConfigError("the URL of the database cannot be read", remedy=f"write for example {EXAMPLE}") from None
    given = [value for name, value in parse_qsl(parts.query) if _SECRET.search(name)]
    if any(_VARIABLE.sub("", text) for text in [secret or "", *given]):
        host = parts.netloc.rpartition("@")[2]
        what = "there is a password in this URL"
        remedy = "write ${PASSWORD} in its place, in single quotes, and set the environment variable PASSWORD"
        raise ConfigError(what, where=f"{parts.scheme}://{host}{parts.path}", remedy=remedy)


def read_server(url: str, query: str | None) -> pd.DataFrame:
    """What a query finds in a database, or its only table."""
    reject_password(url)
    with at(url):
        _reject_empty(query)
        if query is not None and _READING.match(query) is None:
            raise query_failed("it does not begin with SELECT or WITH")
        try:
            import sqlalchemy
            import sqlalchemy.exc
        except ImportError:
            raise MissingExtraError(
                "database servers need SQLAlchemy", remedy="pip install 'polyfed[tables]'"
            ) from None
        engine = _engine(sqlalchemy, url)
        try:
            with engine.connect() as connection:
                if statement := _READ_ONLY.get(engine.dialect.name):
                    connection.exec_driver_sql(statement)
                if query is None:
                    inspector = sqlalchemy.inspect(connection)
                    query = whole_table([*inspector.get_table_names(), *inspector.get_view_names()], engine.dialect)
                found = connection.execute(sqlalchemy.text(query.replace(":", "\\:")))
                return _frame([tuple(row) for row in found], list(found.keys()))
        except sqlalchemy.exc.OperationalError as error:
            raise _shown(error, url, "cannot be reached, or the query fails") from None
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise _shown(error, url, "the query fails") from None
        finally:
            engine.dispose()


def _engine(sqlalchemy: Any, url: str) -> Any:
    """The database with its secrets filled in."""
    filled = _VARIABLE.sub(lambda found: quote(_secret(found[1]), safe=""), url)
    try:
        address = sqlalchemy.make_url(filled)
        engine = sqlalchemy.create_engine(address)
    except sqlalchemy.exc.NoSuchModuleError:
        what = f"databases of {url.partition(':')[0]!r} are not known"
        raise ConfigError(what, remedy="name one that SQLAlchemy knows, for example postgresql://") from None
    except ImportError as error:
        package = error.name or "a driver"
        remedy = f"pip install {package}, or name another driver"
        raise MissingExtraError(f"this database needs {package}", remedy=remedy) from None
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise ConfigError("this is no URL of a database", remedy=f"write for example {EXAMPLE}") from None
    if engine.dialect.name == "sqlite" and not Path(unquote(address.database or "")).is_file():
        raise DataError("there is no such file", remedy="correct the path")  # it would be made
    return engine


def _secret(name: str) -> str:
    if (value := os.environ.get(name)) is None:
        raise ConfigError(f"environment variable {name} is not set", remedy="set it")
    return value


def _shown(error: Exception, url: str, what: str) -> DataError:
    """What a server says, without what it must not say."""
    reported = " ".join(str(getattr(error, "orig", None) or error).split())
    for name in _VARIABLE.findall(url):
        for secret in {_secret(name), quote(_secret(name), safe="")} - {""}:
            reported = reported.replace(secret, f"${{{name}}}")
    remedy = "correct the query (it may only read), or the URL"
    return DataError(f"{what}: {reported[:300].rstrip('.')}", where=url, remedy=remedy)


def _frame(rows: list[tuple[Any, ...]], names: list[str]) -> pd.DataFrame:
    """A table of them, with exact decimals as numbers."""
    from pandas import DataFrame

    frame = DataFrame(rows, columns=names)
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        if column.dtype.kind == "O" and len(there := column.dropna()) and all(isinstance(v, Decimal) for v in there):
            frame.isetitem(position, column.astype(float))
    return frame


def is_database(path: Path) -> bool:
    return path.suffix.lower() in (*SQLITE, *DUCKDB)


def read_query(path: Path, query: str | None) -> pd.DataFrame:
    _reject_empty(query)
    return (_from_sqlite if path.suffix.lower() in SQLITE else _from_duckdb)(path, query)


def _reject_empty(query: str | None) -> None:
    if query is not None and not query.strip():
        raise ConfigError("the query is empty", remedy="write for example SELECT * FROM patients")


def _from_sqlite(path: Path, query: str | None) -> pd.DataFrame:
    from pandas import DataFrame

    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        query = query or whole_table([name for name in names if not name.startswith("sqlite_")])
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _STATEMENTS else sqlite3.SQLITE_DENY
        )
        cursor = connection.execute(query)
        if cursor.description is None:
            raise query_failed("it finds nothing to read")
        return DataFrame(cursor.fetchall(), columns=[column[0] for column in cursor.description])
    except sqlite3.Warning as error:  # several statements at once
        raise query_failed(error) from None
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error) or "malformed" in str(error):
            raise DataError("is no database of SQLite, or damaged", remedy="write it anew") from None
        raise query_failed(error) from None
    finally:
        connection.close()


def _from_duckdb(path: Path, query: str | None) -> pd.DataFrame:
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError("databases of DuckDB need duckdb", remedy="pip install 'polyfed[tables]'") from None
    try:
        with duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"}) as connection:
            found = connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
            return connection.execute(query or whole_table([name for (name,) in found])).df()
    except duckdb.IOException:
        raise DataError("is no database of DuckDB, or damaged", remedy="write it anew") from None
    except duckdb.Error as error:
        raise query_failed(error) from None


def whole_table(names: list[str], dialect: Any = None) -> str:
    """The query that reads the only table there is, its name quoted as this dialect (of SQLAlchemy) has it."""
    if len(names) != 1:
        shown = f"has {len(names)} tables ({', '.join(sorted(names)[:20])})" if names else "has no table"
        raise DataError(shown, remedy="say with a query what is to be read (--query)")
    if dialect is not None:
        return f"SELECT * FROM {dialect.identifier_preparer.quote_identifier(names[0])}"
    return 'SELECT * FROM "{}"'.format(names[0].replace('"', '""'))


def query_failed(error: object) -> DataError:
    reported = " ".join(str(error).split()).rstrip(".")
    return DataError(f"the query fails: {reported}", remedy="correct it: it may only read (SELECT ...)")
