"""``sfumato attack tensor``: the examples behind a two-layer network's gradient, provably."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked_options import Seed
from sfumato.cli.options import AsJson
from sfumato.cli.output import plain_table, working
from sfumato.cli.statistics_attacks import below, show
from sfumato.core import validation

__all__ = ["tensor"]

_HEADS = ("seed", "error", "error / sqrt(d/m)", "signs right")


def tensor(
    dimension: Annotated[int, typer.Option(help="d, numbers of an example.")] = 50,
    hidden: Annotated[int, typer.Option(help="m, hidden units.")] = 20_000,
    batch: Annotated[int, typer.Option(help="B, examples behind the gradient.")] = 3,
    activation: Annotated[str, typer.Option(help="cubic, tanh, sigmoid, softplus or relu.")] = (
        "cubic"
    ),
    noise: Annotated[
        float, typer.Option(help="Noise on the gradient, in units of its standard deviation.")
    ] = 0.0,
    trials: Annotated[int, typer.Option(help="Made-up batches and networks.")] = 3,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Reads examples of length 1 off the gradient by the output weights of a wide network.

    Examples and networks are made up: the attack is a theorem's, with error about B sqrt(d/m).

    Examples:
    sfumato attack tensor --dimension 50 --hidden 40000 --batch 3

    sfumato attack tensor --activation tanh --noise 1
    """
    with working("decomposing tensors"):
        rows = [
            _trial(dimension, hidden, batch, activation, noise, [seed, number])
            for number in range(validation.count("trials", trials))
        ]
    table = plain_table(f"Two-layer network, {activation}: d {dimension}, m {hidden}, B {batch}")
    for head in _HEADS:
        table.add_column(head, justify="right", no_wrap=True)
    for number, row in enumerate(rows):
        right = f"{row['signs_right']} of {batch}"
        table.add_row(str(number), f"{row['error']:.3f}", f"{row['scaled_error']:.2f}", right)
    mean = sum(row["error"] for row in rows) / len(rows)
    note = f"Error {mean:.3f} in the mean; examples that are guessed at random are off by 1.41."
    result = {
        "dimension": dimension, "hidden": hidden, "batch": batch, "activation": activation,
        "noise": noise, "error": mean, "scaled_error": mean / math.sqrt(dimension / hidden),
        "trials": rows,
    }  # fmt: skip
    show(Group(table, *below(note)), result, as_json, {})


def _trial(
    dimension: int, hidden: int, batch: int, activation: str, noise: float, seed: list[int]
) -> dict[str, Any]:
    import numpy as np

    from sfumato.attacks.gradients.tensor.activations import ACTIVATIONS, CUBIC
    from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs
    from sfumato.attacks.gradients.tensor.observing import noisy
    from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor
    from sfumato.attacks.gradients.tensor.scoring import match_inputs

    known = {"cubic" if each is CUBIC else name: each for name, each in ACTIVATIONS.items()}
    if activation not in known:
        raise ValueError(f"activation must be one of {', '.join(known)}, got {activation!r}")
    generator, chosen = np.random.default_rng(seed), known[activation]
    network = TwoLayerNetwork.draw(dimension, hidden, chosen, generator=generator)
    inputs = unit_inputs(batch, dimension, generator=generator)
    labels = np.where(generator.random(batch) < 0.5, -1.0, 1.0) * generator.uniform(0.5, 1.5, batch)
    gradient = network.gradient(inputs, labels)
    if noise:
        gradient = noisy(gradient, noise, generator=generator)
    found = reconstruct_by_tensor(
        gradient, network.hidden, chosen, batch, generator=generator, labels=labels
    )
    match = match_inputs(found, inputs)
    return {
        "error": match.error, "scaled_error": match.scaled_error,
        "signs_right": round(match.signs_right * batch),
    }  # fmt: skip
