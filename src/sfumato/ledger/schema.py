"""The tables, their guards, and how an older file becomes a newer one.

``ledger_entries`` is the ledger. The other tables hold what can be computed from it (so that a
request need not read it all), the version, and the identities of data that only the curator sees.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    select,
)

from sfumato.ledger.errors import LedgerError

__all__ = ["VERSION", "caps", "datasets", "entries", "identities", "meta", "plans", "prepare"]

metadata = MetaData()

meta = Table(
    "ledger_meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

datasets = Table(
    "ledger_datasets",
    metadata,
    Column("name", String(200), primary_key=True),
    Column("terms", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("head", String(64), nullable=False),
    Column("spent", Text, nullable=False),
    Column("caps", Integer, nullable=False),
)

entries = Table(
    "ledger_entries",
    metadata,
    Column("dataset", String(200), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("mark", String(300)),
    Column("payload", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
)

_MARKED = entries.c.mark.is_not(None)
Index(
    "ledger_entries_mark",
    entries.c.dataset,
    entries.c.mark,
    unique=True,
    sqlite_where=_MARKED,
    postgresql_where=_MARKED,
)

caps = Table(
    "ledger_caps",
    metadata,
    Column("dataset", String(200), primary_key=True),
    Column("cap", BigInteger, primary_key=True, autoincrement=False),
    Column("analyst", String(200)),
    Column("terms", Text, nullable=False),
    Column("spent", Text, nullable=False),
)

plans = Table(
    "ledger_plans",
    metadata,
    Column("dataset", String(200), primary_key=True),
    Column("plan", BigInteger, primary_key=True, autoincrement=False),
    Column("drawn", BigInteger, nullable=False),
)

identities = Table(
    "ledger_identities",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("dataset", String(200), nullable=False, index=True),
    Column("fingerprint", String(64), nullable=False, index=True),
    Column("source", Text, nullable=False),
    Column("at", String(40), nullable=False),
    Column("table_name", String(200), nullable=False, server_default=""),
)

_REFUSAL = "the entries of a ledger are never changed or deleted"

_SQLITE_GUARDS = [
    f"CREATE TRIGGER IF NOT EXISTS ledger_entries_no_{verb.lower()} BEFORE {verb} "
    f"ON ledger_entries BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
    for verb in ("UPDATE", "DELETE")
]

_POSTGRESQL_GUARDS = [
    "CREATE OR REPLACE FUNCTION ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}'; END $$",
    "CREATE OR REPLACE TRIGGER ledger_entries_no_change BEFORE UPDATE OR DELETE OR TRUNCATE "
    "ON ledger_entries FOR EACH STATEMENT EXECUTE FUNCTION ledger_refuse()",
]


def _first(connection: Connection) -> None:
    """All tables as they are now; what older ones lack, the migrations after this one add."""
    metadata.create_all(connection)
    sqlite = connection.dialect.name == "sqlite"
    for statement in _SQLITE_GUARDS if sqlite else _POSTGRESQL_GUARDS:
        connection.exec_driver_sql(statement)


def _tables_of_datasets(connection: Connection) -> None:
    """Version 2: entries about a dataset's tables, and whose table a fingerprint is of."""
    column = identities.c.table_name
    if column.name not in {one["name"] for one in inspect(connection).get_columns(identities.name)}:
        connection.exec_driver_sql(
            f"ALTER TABLE {identities.name} ADD COLUMN {column.name} VARCHAR(200) "
            "NOT NULL DEFAULT ''"
        )


_MIGRATIONS: list[Callable[[Connection], None]] = [_first, _tables_of_datasets]
"""Number n brings a ledger from version n to n + 1."""

VERSION = len(_MIGRATIONS)


def version_of(connection: Connection) -> int:
    """The version of the tables there, 0 if there are none."""
    if not inspect(connection).has_table(meta.name):
        return 0
    found = connection.scalar(select(meta.c.value).where(meta.c.name == "version"))
    return int(found) if found is not None else 0


def prepare(connection: Connection) -> None:
    """Makes or upgrades the tables; to be called while no one else can write.

    Raises:
        LedgerError: if a newer sfumato wrote them.
    """
    found = version_of(connection)
    require_known(found)
    for migrate in _MIGRATIONS[found:]:
        migrate(connection)
    if found == 0:
        connection.execute(meta.insert().values(name="version", value=str(VERSION)))
        connection.execute(
            meta.insert().values(name="fingerprint secret", value=secrets.token_hex(32))
        )
    elif found < VERSION:
        connection.execute(meta.update().where(meta.c.name == "version").values(value=str(VERSION)))


def require_known(version: int) -> None:
    """Refuses tables that a newer sfumato made."""
    if version > VERSION:
        raise LedgerError(
            f"this ledger has version {version}, this sfumato knows versions up to {VERSION}: "
            "upgrade sfumato"
        )
