"""Pictures of one's own: a folder with a sub-folder for each class, or arrays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.data.declared import Pictures
from sfumato.data.examples import Examples

__all__ = ["pictures_of_arrays", "pictures_of_folder"]

_ENDINGS = (".png", ".jpg", ".jpeg")
_MOST_PIXELS = 50_000_000  # a picture that claims more counts as one that cannot be read
_FOUR = ("train_images", "train_labels", "test_images", "test_labels")


def pictures_of_folder(folder: Path, declared: Pictures) -> Examples:
    """All PNG and JPEG files in the sub-folder of each class, in the order of their names.

    Raises:
        ValueError: if a class has no sub-folder; it may be empty.
    """
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(declared.classes):
        place = folder / str(name)
        if not place.is_dir():
            validation.fail("source", f"a folder with a sub-folder {name!s}", str(folder))
        found = sorted(path for path in place.iterdir() if path.suffix.lower() in _ENDINGS)
        files += found
        labels += [label] * len(found)
    images = declared.blank(len(files))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they would tell of a picture
        for image, path in zip(images, files, strict=True):
            _read_into(image, path)
    return Examples(images, np.array(labels, dtype=np.int64))


def _read_into(image: NDArray[np.uint8], path: Path) -> None:
    """Writes the picture over the blank one, unless it cannot be read, for whatever reason."""
    from PIL import Image

    rows, columns, channels = image.shape
    try:
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                return
            plain = picture.convert("L" if channels == 1 else "RGB")
            if plain.size != (columns, rows):
                plain = plain.resize((columns, rows), Image.Resampling.BILINEAR)
            image[...] = np.asarray(plain).reshape(image.shape)
    except Exception:  # an error would tell of the picture
        return


def pictures_of_arrays(arrays: Any, declared: Pictures) -> tuple[Examples, Examples | None]:
    """Arrays ``images`` and ``labels``, or ``train_images`` and so on for both parts."""
    if not isinstance(arrays, Mapping):
        raise ValueError(
            "the function must give images and labels, or a mapping with these names, "
            f"got {type(arrays).__name__}"
        )
    if all(name in arrays for name in _FOUR):
        train, train_labels, test, test_labels = (arrays[name] for name in _FOUR)
        return _checked(train, train_labels, declared), _checked(test, test_labels, declared)
    if "images" not in arrays or "labels" not in arrays:
        raise ValueError(f"arrays must be images and labels, or {', '.join(_FOUR)}")
    return _checked(arrays["images"], arrays["labels"], declared), None


def _checked(images: Any, labels: Any, declared: Pictures) -> Examples:
    images = np.asarray(images)
    # A list stays one: as an array, one odd label would change the type of all.
    labels = labels if isinstance(labels, list | tuple) else np.asarray(labels)
    if images.dtype != np.uint8:
        raise ValueError(
            f"images must be of type uint8, got {images.dtype}: scale them to 0 to 255 by a "
            "declared range, and round"
        )
    if images.ndim == 3 and declared.shape[2] == 1:
        images = images[..., np.newaxis]
    if images.shape[1:] != declared.shape:
        validation.fail("images", f"each of shape {declared.shape}", images.shape[1:])
    if (isinstance(labels, np.ndarray) and labels.ndim != 1) or len(labels) != len(images):
        raise ValueError("labels must be one for each image, in one dimension")
    return Examples(np.array(images), declared.labels(labels))
