"""The options of ``sfumato train``, and what their words mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sfumato.data import Dataset, Declaration

__all__ = [
    "CLIPPINGS",
    "Budget",
    "Chosen",
    "Source",
    "Watched",
    "declaration_at",
    "declares_numbers",
    "device_called",
    "loaded_data",
    "named_values",
    "option",
    "without_password",
]

_PRIVACY, _MODEL, _TRAINING, _AUDIT = "Privacy", "Data and model", "Training", "Audit"
_RUN = "Run"
CLIPPINGS = ("flat", "per-layer", "automatic", "adaptive")


def option(panel: str, text: str, *names: str, **more: Any) -> Any:
    """An option with its help, in a panel of its own."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


class Source:
    """Types of the options about the data."""

    Data = Annotated[
        str,
        option(
            _MODEL,
            "mnist, fashion-mnist, cifar10, digits, labsup, census2000; or a file, folder or "
            "module:function of your own, with --declared.",
        ),
    ]
    Declared = Annotated[
        Path | None,
        option(
            _MODEL,
            "What is public about data of your own: a .toml or .json file (docs/data.md).",
        ),
    ]
    Test = Annotated[str | None, option(_MODEL, "Where your own test set is.")]
    Rows = Annotated[
        int | None,
        option(
            _MODEL,
            "Train on the first so many records only; they are then the data set, of this declared "
            "size.",
        ),
    ]


class Watched:
    """Types of the options about the run itself."""

    Out = Annotated[Path | None, option(_RUN, "A new folder for the run.", "--out", "-o")]
    Minutes = Annotated[
        float | None, option(_RUN, "Stop after so many; sfumato train resume goes on.")
    ]
    Progress = Annotated[
        bool | None, option(_RUN, "By default on a terminal.", "--progress/--no-progress")
    ]
    Device = Annotated[str, option(_RUN, "cpu, cuda, or auto for the best there is.")]


class Chosen:
    """Types of the options that change a recipe; None leaves the preset's value."""

    Preset = Annotated[
        str | None,
        option(_MODEL, "A recipe (sfumato train presets); chosen by the data if left out."),
    ]
    Model = Annotated[
        str | None, option(_MODEL, "By name (sfumato train models), or package.module:function.")
    ]
    ModelOption = Annotated[
        list[str] | None, option(_MODEL, "NAME=VALUE for the model; may be repeated.")
    ]
    FeatureName = Annotated[
        str | None,
        option(
            _MODEL,
            "none, scattering, standardized-scattering and pca (private), or network (public "
            "weights).",
        ),
    ]
    FeatureOption = Annotated[
        list[str] | None, option(_MODEL, "NAME=VALUE for the features; may be repeated.")
    ]
    Noise = Annotated[
        float | None, option(_PRIVACY, "Standard deviation of the noise over the clip norm.")
    ]
    Epochs = Annotated[float | None, option(_TRAINING, "Passes over the data.")]
    Steps = Annotated[int | None, option(_TRAINING, "Number of lots, instead of --epochs.")]
    LotSize = Annotated[int | None, option(_TRAINING, "Expected number of records in a lot.")]
    Lots = Annotated[
        str | None,
        option(_PRIVACY, "poisson, fixed-size, shuffled, streamed or cyclic-poisson."),
    ]
    Correlation = Annotated[
        str | None,
        option(
            _PRIVACY,
            "Noise that cancels over steps, such as banded:16, tree or buffered:4: for streamed "
            "lots (banded also for cyclic-poisson ones).",
        ),
    ]
    MaxLot = Annotated[
        int | None,
        option(
            _PRIVACY,
            "Cut larger Poisson lots to this: best with --neighbours zero-out, where it costs some "
            "of delta; under add-remove the noise counts half.",
        ),
    ]
    Clip = Annotated[float | None, option(_TRAINING, "The clip norm.")]
    ClipKind = Annotated[str | None, option(_TRAINING, f"One of {', '.join(CLIPPINGS)}.")]
    NoiseRamp = Annotated[
        str | None,
        option(_PRIVACY, "FIRST:LAST, factors on the noise over the run, such as 1.5:0.8."),
    ]
    Optimizer = Annotated[str | None, option(_TRAINING, "sgd or adam.")]
    RateStart = Annotated[float | None, option(_TRAINING, "The learning rate.", "--learning-rate")]
    RateEnd = Annotated[
        float | None,
        option(_TRAINING, "Falls to this by the last step.", "--last-learning-rate"),
    ]
    Momentum = Annotated[float | None, option(_TRAINING, "Of the optimizer.")]
    WeightDecay = Annotated[float | None, option(_TRAINING, "Of the optimizer.")]
    Ema = Annotated[
        float | None,
        option(_TRAINING, "Average the weights with this decay; 0 for not.", "--ema-decay"),
    ]
    Augment = Annotated[
        str | None, option(_TRAINING, "shift, flip or flip-shift, for images without features.")
    ]
    Augmentations = Annotated[
        int | None, option(_TRAINING, "Changed copies of each record, averaged before clipping.")
    ]
    BatchSize = Annotated[int | None, option(_TRAINING, "The most rows in memory at a time.")]
    Seed = Annotated[int | None, option(_TRAINING, "Of the initial weights, which are public.")]
    Start = Annotated[
        Path | None,
        option(_MODEL, "Public weights to begin with, such as those of sfumato pretrain."),
    ]
    StartSource = Annotated[
        str | None,
        option(_MODEL, "Where they come from, if the file does not say it; for the record."),
    ]
    HeadRate = Annotated[
        float | None,
        option(_TRAINING, "Learning rate of what --start does not hold, as a multiple."),
    ]
    Precision = Annotated[
        str | None, option(_TRAINING, "Of the model's arithmetic: full or bfloat16.")
    ]
    CanaryCount = Annotated[
        int | None,
        option(_AUDIT, "Plant so many canaries, for sfumato audit --run.", "--canaries"),
    ]
    CanaryKind = Annotated[
        str, option(_AUDIT, "gradient (white-box), mislabelled or natural (black-box).")
    ]
    Like = Annotated[
        Path | None,
        option(_RUN, "A run's record.json: train by its recipe, with the sizes it declares."),
    ]
    TunedOn = Annotated[
        str | None,
        option(_PRIVACY, "Where hyper-parameters of your own come from, for the record."),
    ]


class Budget:
    """Types of the options about the guarantee."""

    Epsilon = Annotated[float | None, option(_PRIVACY, "The guarantee to meet.")]
    Delta = Annotated[float | None, option(_PRIVACY, "1e-5 by default, well below 1/N.")]
    Neighbours = Annotated[
        str | None, option(_PRIVACY, "add-remove (default), replace-one or zero-out.")
    ]
    Unit = Annotated[str | None, option(_PRIVACY, "Whom it protects: record, person, ...")]
    Records = Annotated[
        int | None,
        option(_PRIVACY, "Declared number of records (or owners); need not be exact."),
    ]


def named_values(option: str, texts: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE, where the value is JSON or a word."""
    found: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ValueError(f"--{option} must be NAME=VALUE, such as hidden=200, got {text!r}")
        try:
            found[name.replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            found[name.replace("-", "_")] = value
    return found


def declaration_at(path: Path | None) -> Declaration | None:
    """What is declared in a file, or nothing."""
    if path is None:
        return None
    from sfumato.data import read_declaration

    return read_declaration(path)


def loaded_data(
    source: str,
    declared: Declaration | None,
    test: str | None,
    rows: int | None,
    *,
    numbers: bool = False,
) -> Dataset:
    """What is at ``source``, or its first ``rows``.

    Raises:
        ValueError: for labels that are declared to be numbers, unless ``numbers`` says that they
            may be: before anything is read.
    """
    from sfumato.data import load_dataset
    from sfumato.data.examples import refuse_numbers
    from sfumato.data.first_rows import first_rows

    if declares_numbers(declared) and not numbers:
        refuse_numbers()
    return first_rows(load_dataset(source, declared, test), rows)


def declares_numbers(declared: Declaration | None) -> bool:
    """Whether labels are declared to be numbers."""
    return declared is not None and getattr(declared.declared, "label_bounds", None) is not None


def device_called(name: str) -> str:
    """The device of this name; ``auto`` is a GPU if there is one.

    Raises:
        ValueError: if there is no such device.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        there = torch.empty(0, device=name).device.type != "meta"  # which computes nothing
    except (RuntimeError, AssertionError):  # unknown to torch, or not in this machine
        there = False
    if not there:
        raise ValueError(f"device must be cpu, cuda or auto, and there, got {name!r}")
    return name


def without_password(url: str | None) -> str | None:
    """An address of a ledger as it may be kept in a file."""
    if url is None or "://" not in url:
        return url
    from sqlalchemy.engine import make_url

    plain = make_url(url)._replace(password=None)  # set() takes None for "as it was"
    return plain.difference_update_query(["password"]).render_as_string()
