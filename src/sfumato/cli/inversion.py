"""``sfumato attack inversion``: a picture of each class, read off the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked import Attacked, attacked
from sfumato.cli.attacked_options import Data, Declared, Model, Run, Seed, Test, Trust
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import plain_table, working
from sfumato.cli.statistics_attacks import CURATOR, below, show
from sfumato.core.pictures import pack_pictures

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.attacks import Closeness, Inversion, Recognition

__all__ = ["inversion"]

_RESULT = "inversion.json"
_PUBLIC = 10000  # pictures to learn from, at most: the last ones, without members
_EXAMPLES = 1000  # members and others that reconstructions are compared with


def inversion(
    run: Run = None,
    model: Model = None,
    data: Data = None,
    declared: Declared = None,
    test: Test = None,
    trust: Trust = False,
    method: Annotated[
        str, typer.Option(help="prior: with what is known of pictures; mi-face: as published.")
    ] = "prior",
    public: Annotated[
        str | None, typer.Option(help="A public image data set to learn from what pictures are.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Of the search.")] = 300,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Reconstructs a picture of each class, and asks somebody else what is on it.

    Half of the test set trains the independent judge.

    Examples:
    sfumato attack inversion --run runs/a --plot classes.png

    sfumato attack inversion --run runs/a --public fashion-mnist --plot classes.png

    sfumato attack inversion --model my.py:load --data digits --method mi-face
    """
    if method not in ("prior", "mi-face"):
        raise ValueError(f"method must be prior or mi-face, got {method!r}")
    with working("reconstructing"):
        what = attacked(run, model, data, declared, test, trust)
        if len(what.data.shape) != 3:
            raise ValueError("inversion is of images; for tables there is attack attribute")
        found = _invert(what, method, public, steps, seed)
        judged, near = _judged(what, found, seed)
    if plot is not None:
        _draw(what, found, judged, plot)
    result = found.to_dict() | {"recognition": judged.to_dict(), "closeness": near.to_dict()}
    pictures = {
        "names": [what.data.classes[label] for label in found.labels],
        "pictures": pack_pictures(found.images),
    }
    kept = what.keep(_RESULT, result | pictures)
    notes = [str(judged), str(near), CURATOR] + ([] if kept is None else [f"Kept in {kept}"])
    table = _table(what, found, judged)
    show(Group(table, *below(*notes)), result, as_json, {"plot": plot})


def _invert(what: Attacked, method: str, public: str | None, steps: int, seed: int) -> Inversion:
    import numpy as np

    from sfumato.attacks import (
        View,
        invert_with_mi_face,
        invert_with_prior,
        train_autoencoder_prior,
    )
    from sfumato.attacks.candidates import shared_rows
    from sfumato.data import load_dataset
    from sfumato.learning.recipes.inputs import input_shape, inputs_of

    target, shape = what.target.showing(View.GRADIENTS), input_shape(what.data.shape)
    labels = np.arange(len(what.data.classes))
    if method == "mi-face":
        return invert_with_mi_face(target, labels, shape, iterations=steps)
    generator, prior = np.random.default_rng(seed), None
    if public is not None:
        known = load_dataset(public)
        if input_shape(known.shape) != shape:
            raise ValueError(f"public must have images of shape {shape}, got {known.shape}")
        pictures = inputs_of(known.train.inputs[-_PUBLIC:], known.bounds).numpy()
        pictures = pictures[~shared_rows(pictures, what.inputs(what.data.train.inputs))]
        prior = train_autoencoder_prior(pictures, generator=generator)
    return invert_with_prior(target, labels, shape, generator=generator, prior=prior, steps=steps)


def _judged(what: Attacked, found: Inversion, seed: int) -> tuple[Recognition, Closeness]:
    import numpy as np

    from sfumato.attacks import closeness, recognition

    near = closeness(
        found.images, found.labels, what.candidates(_EXAMPLES, seed),
        generator=np.random.default_rng(seed),
    )  # fmt: skip
    return recognition(found.images, found.labels, _judge(what, seed)), near


def _judge(what: Attacked, seed: int) -> Callable[[NDArray[Any]], NDArray[np.float64]]:
    """A network of its own, trained on half of the test set."""
    import numpy as np

    from sfumato.learning.ensembles import Schedule, train_ensemble
    from sfumato.learning.models import make_model
    from sfumato.learning.recipes.inputs import input_shape

    outside, labels = what.data.test
    chosen = np.random.default_rng(seed).random((1, len(labels))) < 0.5
    shape, classes = input_shape(what.data.shape), len(what.data.classes)
    trained = train_ensemble(
        lambda: make_model("mlp", shape, classes, hidden=256), what.inputs(outside), labels,
        chosen, Schedule(20, 64, rate=0.05), seed=seed,
    )  # fmt: skip
    return lambda images: trained.probabilities(images)[0]


def _table(what: Attacked, found: Inversion, judged: Recognition) -> Any:
    table = plain_table(f"Pictures of classes, from {what.target.name}")
    for name in ("class", "model sure", "recognised", "judge sure"):
        table.add_column(name, no_wrap=True, justify="left" if name == "class" else "right")
    for label, sure in zip(found.labels, found.probability, strict=True):
        seen = judged.by_class[int(label)]
        table.add_row(
            what.data.classes[label], f"{sure:.1%}", "yes" if seen.first else "no",
            f"{seen.probability:.1%}",
        )  # fmt: skip
    return table


def _draw(what: Attacked, found: Inversion, judged: Recognition, path: Path) -> None:
    import numpy as np

    from sfumato.reports.inversion_figures import inversion_figure
    from sfumato.reports.style import save

    inside, labels = what.data.train
    means = np.stack(
        [what.inputs(inside[labels == label][:2000]).mean(axis=0) for label in found.labels]
    )
    seen = [bool(judged.by_class[int(label)].first) for label in found.labels]
    rows = [("mean of the class", means, None), (found.attack, found.images, seen)]
    names = [what.data.classes[label] for label in found.labels]
    save(inversion_figure(rows, names), path)
