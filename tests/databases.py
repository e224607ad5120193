"""Real databases for tests and for the fuzzer."""

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

__all__ = ["has_java", "server_programs", "server_with_collations", "spark_session"]


def server_programs() -> list[Path]:
    """The programs that make a database of the distribution's PostgreSQL; none if there is none."""
    return sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@contextlib.contextmanager
def server_with_collations() -> Generator[str]:
    """The distribution's PostgreSQL, which has ICU's collations and citext, as a URL."""
    import psycopg

    program = server_programs()[-1]
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    options = {"cwd": folder, "stdout": subprocess.DEVNULL, "check": True}
    if os.geteuid() == 0:  # as whom PostgreSQL does not run
        shutil.chown(folder, "postgres")
        options["user"] = "postgres"
    data, control = folder / "data", program.with_name("pg_ctl")
    subprocess.run(
        [program, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
        **options,
    )
    settings = f"-c listen_addresses= -c fsync=off -k {folder}"
    control = [control, "-D", data, "-w", "-l", folder / "log"]
    subprocess.run([*control, "-o", settings, "start"], **options)
    url = f"postgresql://postgres@/postgres?host={folder}"
    with psycopg.connect(url, autocommit=True) as connection:
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
        yield url
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], **options)
        shutil.rmtree(folder, ignore_errors=True)


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
