"""``sfumato attack gradients``: examples reconstructed from the gradient that somebody sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked import Attacked, attacked
from sfumato.cli.attacked_options import Data, Declared, Model, Run, Seed, Test, Trust
from sfumato.cli.defence_options import DEFENCES, parsed_defences
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import number, plain_table, working
from sfumato.cli.statistics_attacks import CURATOR, below, show
from sfumato.cli.train_options import device_called
from sfumato.core import validation
from sfumato.core.pictures import pack_pictures

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.attacks.gradients.likeness import Likeness
    from sfumato.attacks.gradients.matching import Matching
    from sfumato.attacks.gradients.results import Reconstruction
    from sfumato.core.guarantee import Guarantee

__all__ = ["gradients"]

_RESULT = "gradients.json"
_HOW, _DEFENCE = "The attack", "Defences"
_COLUMNS = 10  # examples that are drawn


@dataclass(frozen=True, eq=False)
class Scenario:
    """One defence, and what the attack makes of it."""

    defence: str
    found: Reconstruction
    likeness: Likeness
    right_labels: int
    guarantee: Guarantee | None

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, with the pictures."""
        return {
            "asked": self.defence,
            **self.found.to_dict(),
            "likeness": self.likeness.to_dict(),
            "right_labels": self.right_labels,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "pictures": pack_pictures(self.found.images[self.likeness.order]),
        }


def gradients(
    run: Run = None,
    model: Model = None,
    data: Data = None,
    declared: Declared = None,
    test: Test = None,
    trust: Trust = False,
    network: Annotated[
        str | None,
        typer.Option(
            help="An untrained network by name, as in the first round, instead of a run or model: "
            "leaky-cnn (sigmoids), relu-cnn, cnn, mlp, ...",
            rich_help_panel="What is attacked",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Examples behind the gradient.")] = 1,
    defence: Annotated[
        list[str] | None,
        typer.Option(help=f"Once for each that is compared: {DEFENCES}.", rich_help_panel=_DEFENCE),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="Of dp-sgd=EPSILON.", rich_help_panel=_DEFENCE)
    ] = 1e-5,
    method: Annotated[
        str,
        typer.Option(
            help="dlg: squared distance, L-BFGS, for smooth networks; inverting: cosine and total "
            "variation, for all.",
            rich_help_panel=_HOW,
        ),
    ] = "inverting",
    iterations: Annotated[
        int | None,
        typer.Option(help="Of the search: 300 for dlg, 2400 by default.", rich_help_panel=_HOW),
    ] = None,
    trials: Annotated[int, typer.Option(help="Random starts.", rich_help_panel=_HOW)] = 1,
    variation: Annotated[
        float | None,
        typer.Option(
            help="Weight of total variation: 0.001 for dlg, 0.01 by default; more against noise.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    known_labels: Annotated[
        bool, typer.Option(help="The attacker knows the classes.", rich_help_panel=_HOW)
    ] = False,
    device: Annotated[str, typer.Option(help="Such as cuda.", rich_help_panel=_HOW)] = "cpu",
    seed: Seed = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Reconstructs the examples behind a gradient that a participant shares, by each defence.

    The participant has a batch of the training set. Who gets her gradient knows the model.

    Examples:
    sfumato attack gradients --network leaky-cnn --data cifar10 --method dlg --iterations 1000
    --defence none --defence prune=0.9 --defence dp-sgd=8 --plot leaked.png

    sfumato attack gradients --run runs/a --batch 4 --defence none --defence local=5

    sfumato attack gradients --network mlp --data digits --defence clip=1+noise=0.001
    """
    if (network is None) == (run is None and model is None):
        raise ValueError("one of --network, --run or --model must be given")
    scenarios = [(text, parsed_defences(text, delta)) for text in defence or ["none"]]
    how = _matching(method, iterations, trials, variation)
    with working("inverting gradients"):
        place = device_called(device)
        what, module = _attacked(network, run, model, data, declared, test, trust, seed, place)
        images, labels = _batch(what, validation.count("batch", batch), seed)
        found = [
            _scenario(module, images, labels, text, chosen, how, known_labels, delta, seed)
            for text, chosen in scenarios
        ]
    if plot is not None:
        _draw(images, labels, what.data.classes, found, plot)
    result: dict[str, Any] = {
        "model": what.target.name,
        "data": what.data.name,
        "batch": batch,
        "scenarios": [each.to_dict() for each in found],
        "originals": pack_pictures(images),
    }
    kept = what.keep(_RESULT, result)
    notes = [CURATOR] + ([] if kept is None else [f"Kept in {kept}"])
    show(Group(_table(what, found), *below(*notes)), result, as_json, {"plot": plot})


def _matching(
    method: str, iterations: int | None, trials: int, variation: float | None
) -> Matching:
    from sfumato.attacks.gradients.matching import Matching

    if method not in ("dlg", "inverting"):
        raise ValueError(f"method must be inverting or dlg, got {method!r}")
    weight = (0.001 if method == "dlg" else 0.01) if variation is None else variation
    if method == "dlg":
        return Matching.dlg(iterations or 300, trials, weight)
    return Matching(iterations=iterations or 2400, trials=trials, variation=weight, rate=0.05)


def _attacked(
    network: str | None,
    run: Path | None,
    model: str | None,
    data: str | None,
    declared: Path | None,
    test: str | None,
    trust: bool,
    seed: int,
    device: str,
) -> tuple[Attacked, Any]:
    """The model and its data; its module on the device."""
    import torch

    from sfumato.attacks.targets import Target
    from sfumato.cli.train_options import loaded_data
    from sfumato.learning.recipes.inputs import input_shape

    if network is None:
        what = attacked(run, model, data, declared, test, trust)
        return what, what.target.module.to(device)
    if data is None:
        raise ValueError("--data must be given with --network: what participants hold")
    from sfumato.data import read_declaration

    loaded = loaded_data(data, None if declared is None else read_declaration(declared), test, None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = _network(network, input_shape(loaded.shape), len(loaded.classes))
    name = f"{network}, untrained"
    return Attacked(Target.of_module(made, name), loaded), made.to(device)


def _network(name: str, shape: tuple[int, ...], classes: int) -> Any:
    from sfumato.attacks.gradients.networks import leaky_cnn, relu_cnn
    from sfumato.learning.models import make_model

    own = {"leaky-cnn": leaky_cnn, "relu-cnn": relu_cnn}
    return own[name](shape, classes) if name in own else make_model(name, shape, classes)


def _batch(what: Attacked, batch: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows of the training set, by the seed."""
    import numpy as np

    inputs, labels = what.data.train
    if batch > len(labels):
        validation.fail("batch", f"at most the {len(labels)} rows there are", batch)
    rows = np.random.default_rng(seed).choice(len(labels), batch, replace=False)
    return what.inputs(inputs[rows]), np.asarray(labels[rows], dtype=np.int64)


def _scenario(
    module: Any,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    text: str,
    chosen: tuple[Any, ...],
    how: Matching,
    known: bool,
    delta: float,
    seed: int,
) -> Scenario:
    import numpy as np
    import torch

    from sfumato.accounting import account
    from sfumato.attacks.gradients.matching import invert_gradient
    from sfumato.attacks.gradients.sharing import share_gradient

    place = next(module.parameters()).device
    sent = share_gradient(
        module, torch.from_numpy(images).to(place), torch.from_numpy(labels).to(place),
        defences=chosen, generator=np.random.default_rng([seed, 1]),
    )  # fmt: skip
    found = invert_gradient(
        module, sent, images.shape[1:], generator=np.random.default_rng([seed, 2]), matching=how,
        labels=labels if known else None,
    )  # fmt: skip
    guarantee = None if sent.event is None else account(sent.event, delta)
    size = int(max(labels.max(), found.labels.max())) + 1
    counts = [np.bincount(each, minlength=size) for each in (labels, found.labels)]
    right = int(np.minimum(*counts).sum())
    return Scenario(text, found, found.compared(images), right, guarantee)


def _table(what: Attacked, found: list[Scenario]) -> Any:
    table = plain_table(f"Examples from a shared gradient, {what.target.name}")
    heads = ("defence", "PSNR, dB", "the best", "SSIM", "labels right", "epsilon of the update")
    for head in heads:
        table.add_column(head, no_wrap=True, justify="left" if head == "defence" else "right")
    for each in found:
        alike, batch = each.likeness, len(each.found.labels)
        table.add_row(
            each.defence, f"{alike.psnr.mean():.1f}", f"{alike.psnr.max():.1f}",
            f"{alike.ssim.mean():.2f}", f"{each.right_labels} of {batch}",
            "no guarantee" if each.guarantee is None else number(each.guarantee.epsilon),
        )  # fmt: skip
    return table


def _draw(
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    found: list[Scenario],
    path: Path,
) -> None:
    from sfumato.reports.style import save

    if images.ndim != 4:
        raise ValueError("a plot is of images: leave out --plot for rows of numbers")
    save(_figure(images, [classes[label] for label in labels], found), path)


def _figure(images: NDArray[np.float32], names: list[str], found: list[Scenario]) -> Any:
    """A row for each defence; of a single example a column for each."""
    import numpy as np

    from sfumato.reports.inversion_figures import inversion_figure

    title, shown = "Read off a shared gradient", slice(0, _COLUMNS)
    said = [f"{each.defence}\n{each.likeness.psnr.mean():.1f} dB" for each in found]
    back = [each.found.images[each.likeness.order] for each in found]
    if len(images) == 1:
        pictures = np.concatenate([images, *back])
        return inversion_figure([(names[0], pictures, None)], ["original", *said], title=title)
    rows: list[Any] = [("originals", images[shown], None)]
    rows += [(text, found[shown], None) for text, found in zip(said, back, strict=True)]
    return inversion_figure(rows, names[shown], title=title)
