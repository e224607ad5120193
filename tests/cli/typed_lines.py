"""Command lines that nobody should type, made from the app's own commands, and what holds for all.

Each begins as a line that works (:data:`tests.cli.commands.LINES`); then values are replaced, and
words added, left out and doubled. Values are of the kind that the parameter asks for, read off the
app, or of any other.

What would take long is not typed: options that say how much work is done (:data:`WORK`) get small
numbers or such as cannot be; ``federate serve`` and ``join``, which listen and take part, keep the
word for which they are refused (:data:`KEPT`); data sets are never named that are fetched from
elsewhere (:data:`FETCHED`).
"""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from tests.cli.commands import LINES, leaves

__all__ = ["broken_law", "furnish_badly", "typed_lines"]

# Options and arguments whose numbers are how much work is done.
WORK = frozenset(
    "answers attributes batch batch_size bins budgets candidates categories classes columns "
    "dimension dimensions epochs evaluations games hidden images iterations jobs lots lot_size "
    "members model_option network_option number number_of others participants people points "
    "pretraining_epochs queries questions records relevance_option relevance_classes releases "
    "repeats rounds rows samples seeds shadows side size steps student_option student targets "
    "teachers trials widths winners feature_option minutes most_answers max_rows max_groups vary "
    "heads test_rows shape noise_multiplier sample_rate sigma sigma_check timeout patience "
    "threshold agreement sure person".split()
)
KEPT = {"federate serve": "--folder", "federate join": "--authority", "demo": "--out"}
KEPT |= {"federate attack": "--out", "attack compare": "--out"}
FETCHED = ("mnist", "fashion-mnist", "cifar10")
_WHOLE = ["0", "-1", "1", "2", "3", "5", "8", "+1", "-0", "007", "１", "1_0"]
_REAL = [*_WHOLE, *"0.5 -0.5 1e-5 0.99 nan inf -inf 1e-320 1e-400 .5 1e0 3.0".split()]
_NO_NUMBERS = ["0x10", "1e", "1,5", "1/2", "one", ""]
_HUGE_WHOLE = ["2147483648", "1" + "0" * 18, "9" * 30, "-" + "9" * 30, "9" * 5000]
_HUGE = [*_HUGE_WHOLE, "1e308", "1e309", "-1e308", "1e18"]
_TEXTS = [
    "", " ", "-", "a", "Zoë", "数据", "\u202eabc", "\udcff\udcfe", "\x1b[31mred", "\a", "a\tb\nc",
    "x" * 3000, "[red]", "[/]", "{}", "{0}", "%s", "%(a)s", "null", "[]", "[1, 2", '{"a": 1}',
    '{"a": 1, "a": 2}', '{"query": "count"}', "[" * 300, "a=b", "a=", "=b", "a=[1",
    "learning-rate=", "hidden=-1", "hidden=4", "width=x", "city=", "city=Rome",
    "a:b", "model.py:load",
    "model.py:nothing", "os:getcwd", "a,b", "1,2,3", "0,0", "3,2,1", ",", "0/3", "3/0", "..", ".",
    "'; DROP TABLE entries; --", "age > ", "age > 10", "age IN (", "SELECT 1", "1 = 1", "(" * 200,
    "people", "pictures", "digits", "age", "city", "person", "cpu", "cuda", "cuda:99", "meta",
    "sqlite:///privacy.db", "sqlite:///none.db", "sqlite://", "sqlite:///:memory:", "mysql://a/b",
    "postgresql+nonsense://a/b", "nonsense://", "://", "sqlite:///people.csv", "sqlite:///run",
    "sqlite:///privacy.db?mode=ro&x=%zz", "postgresql://localhost:1/x", "privacy.db", "http://[",
    "http://localhost:1/x", "s3://a/b", "duckdb://people.csv", "spark://",
]  # fmt: skip
_ENDINGS = (
    "csv tsv parquet json jsonl npy npz toml db pem pub safetensors png pdf svg txt csv.gz zip py"
).split()
_ODD_PATHS = [
    "none.csv", "none/at/all.json", "run", "taken.txt/under", "loop.csv", "n" * 300 + ".csv", "",
    "closed.csv", "closed/a.json", "*.csv", "[a].csv", "people.csv", "people.toml", "pictures.npz",
    "pictures.toml", "event.json", "question.json", "federation.json", "model.py", "privacy.db",
    "run/model.safetensors", "run/record.json", "run/curator", "labels", "table", "clinic",
    "clinic/node.pub", "all.csv", "canaries.csv", "\udcff.csv", "~", "new.png", "new.json",
    "new.csv", "new.parquet", "new.npz", "deep.json", "twice.json", "list.json", "null.json",
    "number.json", "latin.toml", "wide.csv", "short.csv",
]  # fmt: skip
_WORD = re.compile(r"[a-z][a-z0-9-]*(?:-[a-z0-9]+)*")


def furnish_badly(folder: Path) -> None:
    """Adds files of garbage, empty ones, and files that cannot be read."""
    garbage = random.Random(0).randbytes(400)
    for ending in _ENDINGS:
        (folder / f"garbage.{ending}").write_bytes(garbage)
        (folder / f"empty.{ending}").write_bytes(b"")
        (folder / f"folder.{ending}").mkdir()
    for name, text in {
        "deep.json": "[" * 100_000,
        "twice.json": '{"a": 1, "a": 2}',
        "list.json": "[1, 2, [3]]",
        "null.json": "null",
        "number.json": "1e999",
        "closed.csv": "a\n1\n",
        "wide.csv": "a,b,c\n1\n",
        "short.csv": "person\n",
    }.items():
        (folder / name).write_text(text)
    (folder / "latin.toml").write_bytes('label = "Zoë"\n'.encode("latin-1"))
    (folder / "loop.csv").symlink_to("loop.csv")
    (folder / "closed").mkdir()
    (folder / "closed.csv").chmod(0)
    (folder / "closed").chmod(0)


def typed_lines(number: int, seed: int = 0) -> Iterator[tuple[str, list[str]]]:
    """So many, each with the command it is of; the same for the same seed."""
    every = leaves()
    names = sorted(every)
    groups = {"query": _query_parameters()}
    for n in range(number):
        chance = random.Random(f"{seed} {n}")
        name = names[n % len(names)]
        more = groups.get(name.partition(" ")[0], [])
        yield name, _Typist(name, every[name], more, chance).line()


def _query_parameters() -> list[click.Parameter]:

    from sfumato.cli.main import every_command

    return list(every_command().commands["query"].params)


class _Typist:
    """Types one line of a command, wrongly."""

    def __init__(
        self, name: str, command: click.Command, more: list[click.Parameter], chance: random.Random
    ) -> None:
        self.name, self.chance = name, chance
        self.words = shlex.split(LINES[name])
        path = name.split()
        # Of a group with options of its own, the question's words come last.
        self.begin = max(i for i, word in enumerate(self.words) if word == path[-1]) + 1
        self.options = {p.opts[0]: p for p in command.params if p.param_type_name == "option"}
        self.group = {p.opts[0]: p for p in more if p.param_type_name == "option"}
        self.arguments = [p for p in command.params if p.param_type_name == "argument"]

    def line(self) -> list[str]:
        for _ in range(self.chance.choice((1, 1, 1, 2, 2, 3, 5))):
            change = self.chance.choices(
                (
                    self.replace,
                    self.add,
                    self.really,
                    self.drop,
                    self.double,
                    self.surplus,
                    self.unknown,
                ),
                (8, 12, 0.7, 0.7, 0.7, 0.5, 0.3),
            )[0]
            change()
        return [word for word in self.words if "\0" not in word]

    def replace(self) -> None:
        """Another value for an option or an argument that is there."""
        places = [
            (i, p)
            for i, word in enumerate(self.words[:-1])
            if (p := self.options.get(word) or self.group.get(word)) and not p.is_flag
            and word != KEPT.get(self.name)
        ]  # fmt: skip
        words = self._positions()
        if places and (not words or self.chance.random() < 0.7):
            at, parameter = self.chance.choice(places)
            self.words[at + 1] = self.value(parameter)
        elif words:
            at, parameter = self.chance.choice(words)
            self.words[at] = self.value(parameter)

    def add(self) -> None:
        """An option that the line has not, or has once more."""
        group = bool(self.group) and self.chance.random() < 0.4
        known = self.group if group else self.options
        known = {name: p for name, p in known.items() if name != KEPT.get(self.name)}
        if not known:
            return
        name, parameter = self.chance.choice(sorted(known.items()))
        if parameter.is_flag:
            added = [self.chance.choice([*parameter.opts, *parameter.secondary_opts])]
        else:
            added = [name, self.value(parameter)]
        # Behind what is there already: of an option given twice the last counts.
        at = self.begin - 1 if group else len(self.words)
        self.words[at:at] = added
        self.begin += len(added) if group else 0

    def really(self) -> None:
        """Not for a try alone, where that can be said."""
        if "--dry-run" in self.words:
            self.words.remove("--dry-run")
            self.words += ["--out", "new"]

    def drop(self) -> None:
        """A word less."""
        at = self.chance.randrange(self.begin - 1, len(self.words))
        if self.words[at] != KEPT.get(self.name, "") and self.words[at - 1] != KEPT.get(self.name):
            del self.words[at]

    def double(self) -> None:
        """A word twice."""
        at = self.chance.randrange(len(self.words))
        self.words.insert(at, self.words[at])

    def surplus(self) -> None:
        """Arguments that nobody asked for."""
        self.words.append(self.chance.choice(_TEXTS + _ODD_PATHS))

    def unknown(self) -> None:
        """Options that there are not."""
        self.words.append(self.chance.choice(["--nonsense", "--json=1", "-x", "--", "-", "--help"]))

    def _positions(self) -> list[tuple[int, click.Parameter]]:
        found, at, taken = [], self.begin, 0
        while at < len(self.words):
            known = self.options.get(self.words[at])
            if known is not None:
                at += 1 if known.is_flag else 2
                continue
            if self.words[at] not in FETCHED and taken < len(self.arguments):
                found.append((at, self.arguments[taken]))
                taken += self.arguments[taken].nargs == 1
            at += 1
        return found

    def value(self, parameter: click.Parameter) -> str:
        """Of the parameter's kind, most of the time."""
        kind = getattr(parameter.type, "name", "text")
        small = parameter.name in WORK
        paths = [f"{kind}.{e}" for kind in ("garbage", "empty", "folder") for e in _ENDINGS]
        pools = {
            "integer": _WHOLE if small else _WHOLE + _HUGE_WHOLE,
            "float": _REAL if small else _REAL + _HUGE,
            "text": _TEXTS + self._hinted(parameter),
            "path": paths + _ODD_PATHS * 2,
            "no number": _NO_NUMBERS,
        }
        pool = {"_whole": "float"}.get(kind, kind if kind in pools else "text")
        if self.chance.random() < (0.3 if pool == "text" else 0.1):
            pool = self.chance.choice(sorted(pools))
        return self.chance.choice(pools[pool])

    def _hinted(self, parameter: click.Parameter) -> list[str]:
        """Words of the parameter's help: among them what it takes."""
        words = _WORD.findall((getattr(parameter, "help", None) or "").lower())
        return [word for word in words if word not in FETCHED] * 3


# --- what holds ---------------------------------------------------------------------------------

# What libraries and Python itself say, where nobody put it into words.
_RAW = re.compile(
    r"Traceback|should not have happened|\b[A-Z]\w*(?:Error|Exception|Warning)\b|\[Errno"
    r"|codec can't|Expecting|object has no attribute|unsupported operand|NoneType"
    r"|not subscriptable|literal for|could not convert|index out of|not iterable|unpack"
    r"|math domain|positional argument|encountered in|<class |<function |object at 0x"
    r"|surrogates|cannot import|__init__\("
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def broken_law(words: list[str], code: int, out: str, err: str) -> str | None:
    """Which law a line's outcome breaks, if any."""
    told = [line for line in err.splitlines() if line.startswith("sfumato: ")]
    told = [line for line in told if not line.startswith(("sfumato: note: ", "sfumato: opened "))]
    if code not in (0, 1, 2):
        return f"exit code {code}"
    if "Traceback" in out:
        return "a traceback on standard output"
    shown = err
    for word in sorted(words, key=len, reverse=True):
        shown = shown.replace(" ".join(word.split()), "...") if len(word) > 3 else shown
    found = _RAW.search(shown)
    if found:
        return f"raw words: {found[0]!r}"
    if _CONTROL.search(err):
        return "control characters"
    if code and "Usage: " in out:
        return None  # help, for a group without a command
    if code and len(told) != 1:
        return f"{len(told)} messages"
    if code and not told[0].removeprefix("sfumato: ").strip():
        return "an empty message"
    return None
