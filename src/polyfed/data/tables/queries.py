"""Tables in databases that are files: SQLite (Python brings it) and DuckDB (an extra), by a query or as the only table.

A query may read and nothing else: the database is opened for reading, and SQLite is told to reject all other statements.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyfed.errors import ConfigError, DataError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

SQLITE, DUCKDB = (".sqlite", ".sqlite3", ".db"), (".duckdb",)
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)


def is_database(path: Path) -> bool:
    return path.suffix.lower() in (*SQLITE, *DUCKDB)


def read_query(path: Path, query: str | None) -> pd.DataFrame:
    """What a query finds in a database, or its only table."""
    if query is not None and not query.strip():
        raise ConfigError("the query is empty", remedy="write for example SELECT * FROM patients")
    return (_from_sqlite if path.suffix.lower() in SQLITE else _from_duckdb)(path, query)


def _from_sqlite(path: Path, query: str | None) -> pd.DataFrame:
    from pandas import DataFrame

    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        query = query or whole_table([name for name in names if not name.startswith("sqlite_")])
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY)
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


def query_failed(error: Any) -> DataError:
    """What a database says of a query."""
    reported = " ".join(str(error).split()).rstrip(".")
    return DataError(f"the query fails: {reported}", remedy="correct it: it may only read (SELECT ...)")
