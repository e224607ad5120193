"""What tests of reports share: small real runs, hand-made records, and readers of reports."""

import contextlib
import copy
import io
import json
import re
import shlex
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from sfumato.accounting import account
from sfumato.cli.main import main
from sfumato.core.events import GaussianEvent
from sfumato.core.records import Record

_SMALL = "--data digits --features none --model mlp --model-option hidden=16 --seed 1 --no-progress"


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder of runs: ``private``, attacked in every way and audited; ``plain``, attacked."""
    import torch

    folder = tmp_path_factory.mktemp("runs")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for text in (
        f"train dp-sgd {_SMALL} --noise-multiplier 2 --steps 20 --canaries 60 --evaluations 3 "
        "--out {0}/private",
        f"train plain {_SMALL} --rows 200 --epochs 2 --out {{0}}/plain",
        "attack membership --run {0}/private --rows 120",
        "attack membership --run {0}/plain --rows 120",
        "attack inversion --run {0}/private --steps 10",
        "audit --run {0}/private",
    ):
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, pytest.raises(SystemExit) as ended:
            main(shlex.split(text.format(folder)))
        assert not ended.value.code, text
    torch.set_num_threads(threads)
    return folder


@pytest.fixture
def files(runs):
    """Every JSON file of these runs, parsed, by its name behind the run's; a copy."""
    return {
        str(path.relative_to(runs)): json.loads(path.read_text()) for path in runs.rglob("*.json")
    }


@pytest.fixture(scope="session")
def gaussian_record():
    """Makes the record of one Gaussian release."""

    def make(sigma=1.0, delta=1e-5, **changes):
        event = GaussianEvent(sigma)
        known = {
            "method": "gaussian", "parameters": {"recipe": {"model": "none"}}, "event": event,
            "guarantee": account(event, delta),
            "facts": {"test_set": "none", "data": {"name": "x"}},
        }  # fmt: skip
        return copy.deepcopy(Record(**(known | changes)).to_dict())

    return make


@pytest.fixture(scope="session")
def at_place():
    """Looks up ``file#/place`` in files; an implementation of its own."""

    def look(files, source):
        name, _, place = source.partition("#")
        value = files[name]
        for part in place.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            value = value[int(part)] if isinstance(value, list) else value[part]
        return value

    return look


class _Reader(HTMLParser):
    """Numbers with their places, and all text that stands anywhere else."""

    SILENT = frozenset({"style", "code", "svg", "title", "data"})

    def __init__(self):
        super().__init__()
        self.data, self.loose, self.tags, self.figures, self._inside = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag == "data":
            self.data.append([found.get("value"), found["data-from"], ""])
        if tag == "figure":
            self.figures.append(found["data-from"])
        if tag not in ("meta", "link"):
            self._inside.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data):
        if "data" in self._inside:
            self.data[-1][2] += data
        elif not self.SILENT & set(self._inside):
            self.loose.append(data)


@pytest.fixture(scope="session")
def read_html():
    """A page's numbers (value, place, text), loose text, tags with attributes, and figures."""

    def read(text):
        reader = _Reader()
        reader.feed(text)
        return SimpleNamespace(
            data=reader.data, loose=" ".join(reader.loose), tags=reader.tags,
            figures=reader.figures,
        )  # fmt: skip

    return read


@pytest.fixture(scope="session")
def places_in():
    """The places that a source names; it may be several, and something computed from them."""

    def places(source):
        bare = re.sub(r"^computed from ", "", source)
        return bare.split(", ")

    return places
