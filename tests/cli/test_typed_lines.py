"""Whatever is typed: one line on standard error, exit code 0, 1 or 2, and nothing charged."""

import pytest
from tests.cli.rooms import AROUND, Room
from tests.cli.typed_lines import broken_law, typed_lines

PIECES, LINES = 25, 10_000
# What torch's own compiler tells of its future is no error outside of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


@pytest.fixture
def room(furnished, tmp_path, monkeypatch):
    import torch

    for name, value in AROUND.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("urllib.request._opener", None)  # which would keep these addresses
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Room(furnished, tmp_path / "here")
    torch.set_num_threads(threads)


def test_a_slice(room):
    found = [told for _, words in typed_lines(60, seed=1) if (told := room.broken(words))]
    assert not found, "\n".join(found)


@pytest.mark.slow
@pytest.mark.parametrize("piece", range(PIECES))
def test_ten_thousand_lines(room, piece):
    each = LINES // PIECES
    lines = list(typed_lines(each * (piece + 1)))[each * piece :]
    found = [told for _, words in lines if (told := room.broken(words))]
    assert not found, "\n".join(found)


def test_the_same_seed_gives_the_same_lines():
    assert list(typed_lines(100)) == list(typed_lines(100))
    assert list(typed_lines(100)) != list(typed_lines(100, seed=1))


@pytest.mark.parametrize(
    ("code", "err", "law"),
    [
        (2, "sfumato: epsilon must be above 0\n", None),
        (0, "sfumato: note: the data changed\n", None),
        (2, "sfumato: a\nsfumato: b\n", "2 messages"),
        (2, "", "0 messages"),
        (2, "sfumato: \n", "an empty message"),
        (3, "sfumato: a\n", "exit code 3"),
        (2, "sfumato: KeyError: 'a'\n", "raw words: 'KeyError'"),
        (2, "sfumato: [Errno 2] No such file\n", "raw words: '[Errno'"),
        (
            1,
            "sfumato: this should not have happened (a)\n",
            "raw words: 'should not have happened'",
        ),
        (1, "Traceback (most recent call last):\n", "raw words: 'Traceback'"),
        (2, "sfumato: \x1b[31mred\n", "control characters"),
    ],
)
def test_what_breaks_the_law(code, err, law):
    assert broken_law([], code, "", err) == law
