"""What is published about the named image data sets: counts, classes, checksums, citation.

Each is kept as four files, whose SHA-256 is written here. The files of MNIST and Fashion-MNIST are
the published ones, unpacked (idx format). CIFAR-10 and the digits are bare bytes: the images in the
order example, row, column, channel, one byte a value, and one byte a label.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["CIFAR10", "DIGITS", "FASHION_MNIST", "MNIST", "ImageFacts", "ImageFile"]


@dataclass(frozen=True)
class ImageFile:
    """One of a data set's four files.

    Attributes:
        name: of the file.
        sha256: of its content.
    """

    name: str
    sha256: str


@dataclass(frozen=True)
class ImageFacts:
    """What is public about an image data set.

    Attributes:
        name: what it is called.
        about: what the pictures show, in a sentence.
        shape: of one image: rows, columns, channels.
        classes: in the order of the labels.
        train, test: how many examples; the split is the published one, or as ``about`` says.
        files: the images and labels to train on, then the images and labels to test on.
        header: whether the files carry an idx header.
        download_bytes: about how much is fetched, from the largest source.
        source: where it comes from.
        license: on what terms.
        citation: whose work it is.
    """

    name: str
    about: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    train: int
    test: int
    files: tuple[ImageFile, ImageFile, ImageFile, ImageFile]
    header: bool
    download_bytes: int
    source: str
    license: str
    citation: str

    @property
    def bytes(self) -> int:
        """How much room it takes in the cache."""
        examples = (self.train + self.test) * (math.prod(self.shape) + 1)
        return examples + (2 * (16 + 8) if self.header else 0)

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        return f"{self.name}: {self.train:,} + {self.test:,} images of {shape}. {self.about}"


def _idx(*sha256: str) -> tuple[ImageFile, ImageFile, ImageFile, ImageFile]:
    return (
        ImageFile("train-images-idx3-ubyte", sha256[0]),
        ImageFile("train-labels-idx1-ubyte", sha256[1]),
        ImageFile("t10k-images-idx3-ubyte", sha256[2]),
        ImageFile("t10k-labels-idx1-ubyte", sha256[3]),
    )


def _bare(*sha256: str) -> tuple[ImageFile, ImageFile, ImageFile, ImageFile]:
    return (
        ImageFile("train-images.bin", sha256[0]),
        ImageFile("train-labels.bin", sha256[1]),
        ImageFile("test-images.bin", sha256[2]),
        ImageFile("test-labels.bin", sha256[3]),
    )


_TEN = tuple("0123456789")

MNIST = ImageFacts(
    name="mnist",
    about="Handwritten digits of about 500 writers, other writers in the test set.",
    shape=(28, 28, 1),
    classes=_TEN,
    train=60_000,
    test=10_000,
    files=_idx(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    header=True,
    download_bytes=11_600_000,
    source="http://yann.lecun.com/exdb/mnist/",
    license="CC BY-SA 3.0",
    citation=(
        "LeCun, Bottou, Bengio and Haffner, 'Gradient-based learning applied to document "
        "recognition', Proceedings of the IEEE 86(11), 2278-2324 (1998)"
    ),
)

FASHION_MNIST = ImageFacts(
    name="fashion-mnist",
    about="Articles of a fashion shop, made to take the place of MNIST.",
    shape=(28, 28, 1),
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    train=60_000,
    test=10_000,
    files=_idx(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    header=True,
    download_bytes=30_900_000,
    source="https://github.com/zalandoresearch/fashion-mnist",
    license="MIT",
    citation=(
        "Xiao, Rasul and Vollgraf, 'Fashion-MNIST: a novel image dataset for benchmarking machine "
        "learning algorithms', arXiv:1708.07747 (2017)"
    ),
)

CIFAR10 = ImageFacts(
    name="cifar10",
    about="Small colour photographs of animals and vehicles.",
    shape=(32, 32, 3),
    classes=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    train=50_000,
    test=10_000,
    files=_bare(
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    header=False,
    download_bytes=170_000_000,
    source="https://www.cs.toronto.edu/~kriz/cifar.html",
    license="none stated; cite the report",
    citation=(
        "Krizhevsky, 'Learning multiple layers of features from tiny images', technical report, "
        "University of Toronto (2009)"
    ),
)

DIGITS = ImageFacts(
    name="digits",
    about=(
        "Handwritten digits, small, from scikit-learn. The values 0 to 16 are stretched to 0 to "
        "255; the last 360 rows of the 1,797 are the test set."
    ),
    shape=(8, 8, 1),
    classes=_TEN,
    train=1_437,
    test=360,
    files=_bare(
        "1a5fd3b5c524e826767083c882fe4f8c91850d3568a78caadaa66eb3fe78f5b6",
        "00d355536cfe54c3c5aaa1bbc756008bcc5ba7030407f225954ebda1d1ca46c9",
        "a422c8110b35908d8bc868469498d8bc67c5d5f4357631b3ded0ee283ca6a1e9",
        "7a7a9acee298b8862700d7c2a0341a0ee3744e1369c9107a26149f5d0e61b304",
    ),
    header=False,
    download_bytes=0,
    source="https://archive.ics.uci.edu/dataset/80, by way of scikit-learn",
    license="CC BY 4.0",
    citation=(
        "Alpaydin and Kaynak, 'Optical recognition of handwritten digits', UCI Machine Learning "
        "Repository (1998)"
    ),
)
