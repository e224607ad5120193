"""Files of weights that somebody declares public: read whole, checked, never unpickled."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from sfumato.core import validation

__all__ = ["check_weights", "checked_digest", "checked_source", "public_weights"]


def checked_digest(given: str | None, path: str) -> str:
    """A file's SHA-256 as declared, or, where none is, as it is now.

    Raises:
        ValueError: if what was declared is no digest.
        FileNotFoundError: if there is no file to take it from.
    """
    if given is None:
        return _digest(_bytes(path))
    if not isinstance(given, str) or not re.fullmatch("[0-9a-f]{64}", given):
        validation.fail("sha256", "64 hexadecimal digits, or None for the file as it is", given)
    return given


def checked_source(source: str) -> str:
    """One line that says where weights come from."""
    said = validation.name("source", source)
    if "\n" in said:
        validation.fail("source", "one line", said)
    return said


def public_weights(path: str, sha256: str | None, names: Collection[str]) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by the names of a model's weights.

    The file of a run (``model.safetensors``) holds features as part 0 and the model as part 1, so
    its names begin with these. If such names are all there are, and none is the model's, the
    model's part is taken.

    Args:
        path: the file.
        sha256: its digest.
        names: of the model's weights.

    Raises:
        ValueError: if it is another file than the one with this digest, or none of that format.
    """
    content = _bytes(path)
    if _digest(content) != sha256:
        raise ValueError(
            f"path must be the file with SHA-256 {sha256}, got {path!r} with "
            f"{_digest(content)}: restore the file, or declare the new one"
        )
    try:
        weights = load(content)
        own = [name for name in weights if name.startswith("1.")]
        of_a_run = own and all(name.startswith(("0.", "1.")) for name in weights)
        if of_a_run and not set(weights) & set(names):
            return {name.removeprefix("1."): weights[name] for name in own}
        return weights
    except SafetensorError as error:
        raise ValueError(f"path must be a safetensors file, got {path!r}: {error}") from None


def check_weights(
    weights: Mapping[str, Tensor], own: Mapping[str, Tensor], rest: set[str], path: str
) -> None:
    """Raises unless a file holds finite weights for all of ``own``, and besides only of ``rest``.

    Raises:
        ValueError: naming the first that does not fit.
    """
    missing = sorted(set(own) - set(weights))
    extra = sorted(set(weights) - set(own) - rest)
    if missing or extra:
        what = f"misses {missing[0]!r}" if missing else f"has {extra[0]!r}, which is none of them"
        raise ValueError(
            f"path must hold the weights of the model, got {path!r}, which {what}: check model and "
            "options"
        )
    for name, value in own.items():
        if value.shape != weights[name].shape:
            raise ValueError(
                f"path must hold {name!r} with shape {tuple(value.shape)}, got "
                f"{tuple(weights[name].shape)} in {path!r}: check options and the inputs' shape"
            )
        if not weights[name].isfinite().all():
            raise ValueError(f"path must hold finite weights, got {name!r} in {path!r}")


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(f"path must be a file that is there, got {path!r}") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
