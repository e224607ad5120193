"""The folder that ``flwr run`` ships: a pyproject and a module that imports from sfumato.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> sorted(path.name for path in write_app_folder(folder.name).iterdir())
['pyproject.toml', 'sfumato_run']
>>> folder.cleanup()
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_app_folder", "write_connection"]

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "sfumato-run"
version = "1.0.0"
description = "Carries a protocol's messages"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "sfumato"

[tool.flwr.app.components]
serverapp = "sfumato_run.apps:server"
clientapp = "sfumato_run.apps:client"

[tool.flwr.app.config]
"""

_MODULE = '"""The apps are sfumato\'s own: nothing else is shipped."""\n\n'
_IMPORT = "from sfumato.federated.flower.apps import client, server\n\n"
_NAMES = '__all__ = ["client", "server"]\n'

_CONNECTION = """\
[superlink]
default = "serving"

[superlink.serving]
address = "{address}"
root-certificates = "{authority}"
"""


def write_app_folder(folder: str | Path) -> Path:
    """Writes it, and returns it."""
    folder = Path(folder)
    module = folder / "sfumato_run"
    module.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(_PROJECT)
    (module / "__init__.py").write_text('"""One run."""\n')
    (module / "apps.py").write_text(_MODULE + _IMPORT + _NAMES)
    return folder


def write_connection(home: str | Path, *, address: str, authority: str | Path) -> None:
    """Tells Flower's command line where the SuperLink is and whom it trusts."""
    home = Path(home)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = _CONNECTION.format(address=address, authority=Path(authority).resolve())
    (home / "config.toml").write_text(text)
