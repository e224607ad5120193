"""Real databases for tests, for the fuzzer and for crash storms."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

__all__ = ["Server", "has_java", "server_programs", "server_with_collations", "spark_session"]


def server_programs() -> list[Path]:
    """The programs that make a database of the distribution's PostgreSQL; none if there is none."""
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


class Server:
    """The distribution's PostgreSQL in a folder of its own, reached by a socket there.

    Attributes:
        url: of its one database.
    """

    def __init__(self) -> None:
        program = server_programs()[-1]
        self._folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path must be
        self._data = self._folder / "data"
        self._options: dict[str, Any] = {
            "cwd": self._folder, "stdout": subprocess.DEVNULL, "check": True
        }  # fmt: skip
        if os.geteuid() == 0:  # as whom PostgreSQL does not run
            shutil.chown(self._folder, "postgres")
            self._options["user"] = "postgres"
        self.url = f"postgresql://postgres@/postgres?host={self._folder}"
        log = self._folder / "log"
        self._control = [program.with_name("pg_ctl"), "-D", self._data, "-w", "-l", log]
        subprocess.run(
            [program, "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            **self._options,
        )

    def start(self) -> None:
        """Starts it; after it was killed, too."""
        settings = f"-c listen_addresses= -c fsync=off -k {self._folder}"
        subprocess.run([*self._control, "-o", settings, "start"], **self._options)

    def stop(self) -> None:
        """Ends it, and removes the folder."""
        subprocess.run([*self._control, "-m", "immediate", "stop"], **self._options)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Of the process that the others are children of."""
        return int((self._data / "postmaster.pid").read_text().split()[0])


@contextlib.contextmanager
def server_with_collations() -> Generator[str]:
    """The distribution's PostgreSQL, which has ICU's collations and citext, as a URL."""
    import psycopg

    server = Server()
    server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            """CREATE EXTENSION citext;
            CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2',
                                       deterministic = false);
            CREATE COLLATION any_accent (provider = icu, locale = 'und-u-ks-level1-kc-true',
                                         deterministic = false);
            CREATE DOMAIN city AS citext;
            CREATE TYPE cities AS ENUM ('rome', 'ROME', 'bari')"""
        )
    try:
        yield server.url
    finally:
        server.stop()


def has_java() -> bool:
    """Whether there is a Java for Spark."""
    return bool(shutil.which("java") or os.environ.get("JAVA_HOME"))


@contextlib.contextmanager
def spark_session() -> Generator[Any]:
    """A Spark session on one thread, in ANSI mode as by default."""
    from pyspark.sql import SparkSession

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark's own, about pandas and time zones
        session = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "localhost")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        assert session.conf.get("spark.sql.ansi.enabled") == "true"
        yield session
        session.stop()
