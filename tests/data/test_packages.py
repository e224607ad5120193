"""The package managers as programs: missing, failing, leaving what they should not."""

import os
import stat

import pytest

from sfumato.data import packages
from sfumato.data.packages import debian_package, npm_package


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """A PATH with made-up programs first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def make(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return make


@pytest.fixture
def place(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def test_the_archive_of_an_npm_package(programs, place):
    programs("npm", 'echo "$@" > said; touch some-1.0.tgz')
    assert npm_package("some@1.0", place) == place / "some-1.0.tgz"
    said = (place / "said").read_text()
    assert said.startswith("pack some@1.0 ")
    assert "--ignore-scripts" in said


def test_what_npm_says_becomes_the_error(programs, place):
    programs("npm", "echo 'npm ERR! 404 Not Found' >&2; exit 1")
    with pytest.raises(OSError, match=r"npm ended with 1: npm ERR! 404"):
        npm_package("some@1.0", place)


def test_npm_that_leaves_nothing(programs, place):
    programs("npm", "exit 0")
    with pytest.raises(OSError, match=r"npm pack some@1\.0 left 0 files"):
        npm_package("some@1.0", place)


def test_npm_that_does_not_end(programs, place, monkeypatch):
    monkeypatch.setattr(packages, "_SECONDS", 0.1)
    programs("npm", "exec sleep 20")
    with pytest.raises(OSError, match=r"npm did not end within 0\.1 seconds"):
        npm_package("some@1.0", place)


@pytest.mark.parametrize(("fetch", "program"), [(npm_package, "npm"), (debian_package, "dpkg-deb")])
def test_a_missing_program_is_named(monkeypatch, place, fetch, program):
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(OSError, match=f"{program} is not installed"):
        fetch("some", place)


def test_lists_of_packages_are_fetched_where_the_system_has_none(programs, place):
    programs(
        "apt-get",
        'echo "$@" >> said; case "$*" in download*) exit 100;; *download*) touch some.deb;; esac',
    )
    programs("dpkg-deb", "mkdir $3")
    assert debian_package("some", place) == place / "unpacked"
    first, second, third = (place / "said").read_text().splitlines()
    assert first == "download some"
    assert second.endswith("update")
    assert f"Dir::State::Lists={place}" in second
    assert third.endswith("download some")
