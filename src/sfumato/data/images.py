"""Image data sets by name: fetched once, checked, kept.

    data = sf.load_images("mnist")
    inputs, labels = data.train  # uint8 of shape (60000, 28, 28, 1), int64

The first time, the data set is fetched from the first of its sources that answers, and kept under
:func:`~sfumato.data.cache.cache_folder`. Every time, the SHA-256 of what is kept is checked; a file
that was damaged is fetched again. Two processes that ask at once fetch once. What is known of a
data set can be had without fetching anything:

    >>> facts = image_facts("cifar10")
    >>> facts.train, facts.shape, facts.classes[:3]
    (50000, (32, 32, 3), ('airplane', 'automobile', 'bird'))
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.data.cache import cache_folder, exclusive, write_whole
from sfumato.data.examples import Dataset, Examples
from sfumato.data.idx import read_idx
from sfumato.data.image_facts import (
    CIFAR10,
    DIGITS,
    FASHION_MNIST,
    MNIST,
    ImageFacts,
)

__all__ = [
    "fetch_images",
    "image_facts",
    "image_names",
    "images_folder",
    "images_present",
    "load_images",
    "save_images",
]

_IMAGES = {facts.name: facts for facts in (MNIST, FASHION_MNIST, CIFAR10, DIGITS)}


def image_names() -> tuple[str, ...]:
    """The image data sets there are."""
    return tuple(_IMAGES)


def image_facts(name: str) -> ImageFacts:
    """What is published of the data set ``name``; fetches nothing."""
    if name not in _IMAGES:
        validation.fail("images", f"one of {', '.join(_IMAGES)}", name)
    return _IMAGES[name]


def images_folder(name: str) -> Path:
    """The folder of the data set's files in the cache, whether or not they are there."""
    return cache_folder() / "images" / image_facts(name).name


def images_present(name: str) -> bool:
    """Whether the files are in the cache; looks at their names, not into them."""
    folder = images_folder(name)
    return all((folder / file.name).is_file() for file in image_facts(name).files)


def load_images(name: str) -> Dataset:
    """The data set ``name``, fetched if it is not in the cache.

    Images are uint8 of shape (examples, rows, columns, channels), also with one channel; labels are
    int64. The arrays are the caller's own and may be written to.

    Raises:
        ValueError: for an unknown name.
        DataUnavailable: if it is not in the cache and no source has it; says all that was tried.
    """
    facts = image_facts(name)
    images, labels, test_images, test_labels = _kept(facts) or _fetched(facts)
    return Dataset(
        name=facts.name,
        train=_examples(facts, images, labels),
        test=_examples(facts, test_images, test_labels),
        classes=facts.classes,
        shape=facts.shape,
        bounds=(0.0, 255.0),
        source=facts.source,
        license=facts.license,
        citation=facts.citation,
        public_size=facts.train,
        test_is_public=True,
    )


def fetch_images(name: str) -> Path:
    """Makes sure that the data set is in the cache and undamaged; its folder.

    Raises:
        ValueError, DataUnavailable: as :func:`load_images`.
    """
    facts = image_facts(name)
    if _kept(facts) is None:
        _fetched(facts)
    return images_folder(name)


def save_images(data: Dataset, path: Path | str) -> Path:
    """Writes a data set of images as one ``.npz`` file, which ``load_own`` reads."""
    path = Path(path)
    if path.suffix.lower() != ".npz":
        validation.fail("path", "a file that ends in .npz", str(path))
    arrays = {
        "train_images": data.train.inputs,
        "train_labels": data.train.labels,
        "test_images": data.test.inputs,
        "test_labels": data.test.labels,
    }

    def write(unfinished: Path) -> None:
        with unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    return write_whole(path, write)


def _examples(facts: ImageFacts, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Examples:
    if facts.header:
        images, labels = read_idx(images), read_idx(labels)
    return Examples(images.reshape(-1, *facts.shape), labels.astype(np.int64))


def _kept(facts: ImageFacts) -> list[NDArray[np.uint8]] | None:
    """The files' bytes from the cache, or None unless all are there and right."""
    folder = images_folder(facts.name)
    contents: list[NDArray[np.uint8]] = []
    for file in facts.files:
        try:
            content = np.fromfile(folder / file.name, dtype=np.uint8)
        except OSError:
            return None
        if hashlib.sha256(content.data).hexdigest() != file.sha256:
            return None
        contents.append(content)
    return contents


def _fetched(facts: ImageFacts) -> list[NDArray[np.uint8]]:
    """The files' bytes, after they were put into the cache by this process or by another."""
    from sfumato.data.fetching import fetch

    folder = images_folder(facts.name)
    with exclusive(folder / ".lock"):
        if (contents := _kept(facts)) is not None:
            return contents  # another process was first
        fetch(facts, folder)
    if (contents := _kept(facts)) is None:
        raise OSError(f"the files of {facts.name} in {folder} were changed while they were read")
    return contents
