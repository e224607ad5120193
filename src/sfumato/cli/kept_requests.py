"""What a run's folder keeps of the command that began it, read strictly."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

from sfumato.core.json_files import as_written

if TYPE_CHECKING:
    from sfumato.data import Declaration
    from sfumato.learning.runs import RunFolder

__all__ = ["kept_declaration", "kept_request", "kept_settings"]

_WORD, _COUNT = (str, NoneType), (int, NoneType)
_SOURCE = {
    "data": (str,), "declared": (dict, NoneType), "test": _WORD, "rows": _COUNT,
    "unlabelled": _WORD, "teacher_labels": _WORD, "teacher_votes": _WORD,
}  # fmt: skip
_NEEDED = ("data", "declared", "test")
_SETTINGS = {
    "public_size": _COUNT, "dataset": (str,), "analyst": (str,), "evaluations": (int,),
    "checkpoint_every": _COUNT, "compile": (bool,), "small_checkpoints": (bool,), "half": (bool,),
    "minutes": (int, float, NoneType), "pretrained": _WORD,
}  # fmt: skip


def kept_request(folder: RunFolder) -> dict[str, Any]:
    """What was asked for; where it came from, its settings and its ledger are as they are written.

    Raises:
        ValueError: if there is no run, or its request was damaged or edited.
    """
    request = folder.request()
    with as_written(folder.request_file):
        if "source" in request:
            source = _of_kinds("source", request["source"], _SOURCE)
            if missing := [name for name in _NEEDED if name not in source]:
                raise KeyError(missing[0])
        if "settings" in request:
            _of_kinds("settings", request["settings"], _SETTINGS)
        _of_kinds("request", {"ledger": request.get("ledger")}, {"ledger": _WORD})
    return request


def kept_settings(folder: RunFolder, request: dict[str, Any]) -> dict[str, Any]:
    """How the run was to be carried out; runs of other kinds than DP-SGD keep none.

    Raises:
        ValueError: if the request was edited so that there are none.
    """
    with as_written(folder.request_file):
        return request["settings"]


def kept_declaration(folder: RunFolder, request: dict[str, Any]) -> Declaration | None:
    """What was declared of the data.

    Raises:
        ValueError: if it was damaged or edited.
    """
    from sfumato.data import Declaration

    said = request["source"]["declared"]
    with as_written(folder.request_file):
        return None if said is None else Declaration.from_dict(said)


def _of_kinds(name: str, held: Any, known: dict[str, tuple[type, ...]]) -> dict[str, Any]:
    if not isinstance(held, dict):
        raise ValueError(f"{name} must be an object, got {held!r}")
    for key, value in held.items():
        if type(value) not in known.get(key, ()):
            raise ValueError(f"{name} must not have {key!r} as {value!r}")
    return held
