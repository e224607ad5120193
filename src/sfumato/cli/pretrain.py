"""``sfumato pretrain``: public weights from random processes, to begin private training with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import console, print_json
from sfumato.cli.train_options import Chosen, Watched, device_called, named_values, option

if TYPE_CHECKING:
    from sfumato.learning.pretraining import Pretraining

__all__ = ["pretrain"]

_IMAGES, _TRAINING, _RUN = "Images", "Training", "Run"
_SHOWN = 12


def pretrain(
    out: Annotated[Path, option(_RUN, "A new file for the weights.", "--out", "-o")],
    process: Annotated[
        str, option(_IMAGES, "Which random images: mixed, scenes, dead-leaves or oriented.")
    ] = "mixed",
    images: Annotated[int, option(_IMAGES, "How many of them.")] = 262_144,
    side: Annotated[int, option(_IMAGES, "Of what the network will see, in pixels.")] = 32,
    model: Annotated[str, option(_TRAINING, "A network of images (sfumato train models).")] = "wrn",
    model_option: Chosen.ModelOption = None,
    steps: Annotated[int, option(_TRAINING, "Of the training.")] = 16_000,
    batch: Annotated[int, option(_TRAINING, "Images of a step, each in two views.")] = 512,
    seed: Annotated[int, option(_TRAINING, "Of images, weights and views.")] = 0,
    half: Annotated[bool, option(_RUN, "Compute in bfloat16.")] = False,
    compile: Annotated[bool, option(_RUN, "Compile the network; pays on a GPU.")] = False,
    device: Watched.Device = "auto",
    minutes: Annotated[
        float | None, option(_RUN, "Stop after so many; the same command goes on.")
    ] = None,
    progress: Watched.Progress = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Trains a network on random images, without any data: public weights to begin with.

    Two views of a thing should have like codes, those of different things unlike ones. Private
    training begins with the file by sfumato train dp-sgd --start, and its record says so.
    --plot draws some of the images, in pairs.

    Examples:
    sfumato pretrain --out random.safetensors --half --compile

    sfumato pretrain --out small.safetensors --model-option depth=10 --model-option width=2
    --images 4096 --steps 200 --batch 64
    """
    from sfumato.learning.clock import OutOfTime
    from sfumato.learning.pretraining import Pretraining
    from sfumato.learning.pretraining import pretrain as trained_on_nothing
    from sfumato.learning.recipes.observing import Shown

    how = Pretraining(
        model=model, options=named_values("model-option", model_option), side=side,
        process=process, images=images, steps=steps, batch=batch, seed=seed,
    )  # fmt: skip
    if plot is not None:
        _draw(how, plot)
    shown = Shown(False if as_json else progress)
    why = None
    try:
        trained_on_nothing(
            how, out, device=device_called(device), half=half, compile=compile, minutes=minutes,
            told=lambda done, total: shown.preparing("steps", done, total),
            making=lambda done, total: shown.preparing("images", done, total),
        )  # fmt: skip
    except OutOfTime as stopped:
        why = str(stopped)
    _tell(out, how.source, why, as_json)


def _draw(how: Pretraining, path: Path) -> None:
    """Some of the images that the network learns from."""
    from sfumato.learning.pretraining import random_pairs
    from sfumato.reports.inversion_figures import inversion_figure
    from sfumato.reports.style import save

    pairs = random_pairs(how.process, _SHOWN, 64, seed=how.seed).numpy() / 255
    rows = [("", pairs[:, view], None) for view in (0, 1)]
    save(inversion_figure(rows, [""] * _SHOWN, title="Random images, two of each thing"), path)


def _tell(out: Path, source: str, stopped: str | None, as_json: bool) -> None:
    if as_json:
        more = {} if stopped is None else {"stopped": stopped}
        print_json({"out": str(out), "source": source, "finished": stopped is None} | more)
    elif stopped is not None:
        console().print(f"{stopped}; the same command goes on from there")
    else:
        console().print(f"{out}: {source}", soft_wrap=True)
