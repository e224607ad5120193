"""What sources hand out becomes the same files, and a damaged archive a plain error."""

import gzip
import io
import json
import tarfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sfumato.data import image_facts, unpacking
from sfumato.data.unpacking import cifar_binary, cifar_png, gzipped, npm_idx, png_rows

MNIST, CIFAR10 = image_facts("mnist"), image_facts("cifar10")
NAMES = [file.name for file in MNIST.files]


def tar_of(path, members):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def png_of(images):
    file = io.BytesIO()
    Image.fromarray(images.reshape(len(images), -1, 3)).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module")
def photographs():
    """Six batches of two images, with labels."""
    generator = np.random.default_rng(1)
    images = generator.integers(0, 256, (6, 2, 32, 32, 3)).astype(np.uint8)
    return images, generator.integers(0, 10, (6, 2)).astype(np.uint8)


def test_both_kinds_of_cifar10_archive_give_the_same_files(photographs, tmp_path):
    images, labels = photographs
    parts = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    binary = {
        f"cifar-10-batches-bin/{part}.bin": b"".join(
            bytes([label]) + image.transpose(2, 0, 1).tobytes()
            for image, label in zip(images[i], labels[i], strict=True)
        )
        for i, part in enumerate(parts)
    }
    png = {f"package/{part}.png": png_of(images[i]) for i, part in enumerate(parts)}
    png["package/train_lables.json"] = json.dumps(labels[:5].ravel().tolist()).encode()
    png["package/test_lables.json"] = json.dumps(labels[5].tolist()).encode()
    tar_of(tmp_path / "cifar-10-binary.tar.gz", binary)
    found = cifar_binary(CIFAR10, tmp_path)
    assert found == cifar_png(CIFAR10, tar_of(tmp_path / "package.tgz", png))
    assert found["train-images.bin"] == images[:5].tobytes()
    assert found["test-labels.bin"] == labels[5].tobytes()


def test_files_packed_alone_are_found_anywhere_in_the_folder(tmp_path):
    deep = tmp_path / "usr" / "share"
    deep.mkdir(parents=True)
    for name in NAMES:
        (deep / f"{name}.gz").write_bytes(gzip.compress(name.encode()))
    assert gzipped(MNIST, tmp_path) == {name: name.encode() for name in NAMES}
    (deep / f"{NAMES[0]}.gz").unlink()
    with pytest.raises(FileNotFoundError, match=f"{NAMES[0]}.gz is missing"):
        gzipped(MNIST, tmp_path)


def test_members_are_taken_by_exact_name(tmp_path):
    members = {f"package/data/{name}": name.encode() for name in NAMES}
    evil = {"../evil": b"x", "package/data/more": b"y"}
    found = npm_idx(MNIST, tar_of(tmp_path / "good.tgz", members | evil))
    assert found == {name: name.encode() for name in NAMES}
    assert not (tmp_path.parent / "evil").exists()
    del members[f"package/data/{NAMES[2]}"]
    with pytest.raises(KeyError, match="t10k-images"):
        npm_idx(MNIST, tar_of(tmp_path / "bad.tgz", members))


def test_a_file_that_swells_beyond_measure_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(unpacking, "_MOST", 100)
    for name in NAMES:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(bytes(1000)))
    with pytest.raises(ValueError, match="is too long"):
        gzipped(MNIST, tmp_path)


GOOD = png_of(np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3))


def test_each_row_of_pixels_is_an_image():
    images = png_rows(GOOD, (4, 4, 3))
    assert images.shape == (2, 4, 4, 3)
    assert images.ravel().tolist() == list(range(96))


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.booleans())
def test_a_damaged_png_is_a_value_error_or_images(at, byte, cut):
    changed = GOOD[:at] if cut else GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]
    try:
        images = png_rows(changed, (4, 4, 3))
    except ValueError:
        return
    assert images.shape[1:] == (4, 4, 3)


@pytest.mark.parametrize("shape", [(5, 4, 3), (2, 2, 3)])
def test_a_png_of_another_width_is_refused(shape):
    with pytest.raises(ValueError, match="RGB image of 16 x 2 pixels"):
        png_rows(GOOD, shape)
