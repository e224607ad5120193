"""What distributed selective SGD reported, and what it cost: the paper's own models.

The paper states epsilon / c, for one parameter and one epoch. A participant uploads c parameters in
each of T epochs, so what holds for her is c T times as much:

    >>> for row in paper_table():
    ...     print(f"{row.model:5} {row.share:<5g} {row.uploaded:7,} {row.epochs:3} "
    ...           f"{row.paper_epsilon:<5g} {row.true_epsilon:12,.0f} {row.closer_epsilon:10,.0f}")
    MNIST 1     105,506   1 1          105,506     52,753
    MNIST 0.1    10,550   1 0.5          5,275      2,638
    MNIST 0.1    10,550   1 1           10,550      5,275
    MNIST 0.01    1,055   1 1            1,055        528
    MNIST 0.01    1,055  10 1           10,550      5,275
    MNIST 0.01    1,055 100 0.01         1,055        528
    SVHN  1     313,546   1 2          627,092    313,546
    SVHN  0.1    31,354   1 2           62,708     31,354
    SVHN  0.01    3,135  10 2           62,700     31,350

Others said so before: "several thousand" for MNIST (Abadi et al., arXiv:1607.00133), and, for SVHN
with 2 for each of more than 300,000 parameters, above 600,000 (Papernot et al., arXiv:1610.05755).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from sfumato.core import validation
from sfumato.federated.selective import SelectiveSharing

__all__ = ["MODELS", "PaperRow", "paper_row", "paper_table"]

MODELS: Final = {"MNIST": 105_506, "SVHN": 313_546}
"""The parameters of the paper's convolutional networks, weights and biases."""

_SETTINGS: Final = (
    ("MNIST", 1.0, 1.0, 1),
    ("MNIST", 0.1, 0.5, 1),
    ("MNIST", 0.1, 1.0, 1),
    ("MNIST", 0.01, 1.0, 1),
    ("MNIST", 0.01, 1.0, 10),
    ("MNIST", 0.01, 0.01, 100),
    ("SVHN", 1.0, 2.0, 1),
    ("SVHN", 0.1, 2.0, 1),
    ("SVHN", 0.01, 2.0, 10),
)
"""Model, theta_u, epsilon / c, epochs. The models are the paper's, the settings examples."""


@final
@dataclass(frozen=True)
class PaperRow:
    """One setting: the number for a parameter, and the one for a participant.

    Attributes:
        model: which network, by its data.
        share: theta_u.
        uploaded: c, the parameters in an upload.
        epochs: T, the uploads.
        paper_epsilon: epsilon / c, as reported.
        true_epsilon: of all uploads, at ``delta``, by the theorem that the paper rests on.
        closer_epsilon: the same with the sensitivities as they are, which halves it: the paper's
            noise is made for 2 gamma, and |g| moves by gamma. With noise for 2 gamma throughout,
            an acceptance costs eps1/4c for the threshold, (2 gamma - s) eps1 / (8 c gamma) for the
            comparison and (gamma + s) eps2 / (4 c gamma) for the value, where the number goes from
            gamma to -s. That is largest at s = 0: c times it is eps1/2 + eps2/4 = epsilon/2.
        delta: of both.
    """

    model: str
    share: float
    uploaded: int
    epochs: int
    paper_epsilon: float
    true_epsilon: float
    closer_epsilon: float
    delta: float


def paper_row(
    model: str, share: float, per_parameter: float, epochs: int, delta: float = 1e-5
) -> PaperRow:
    """One row of the table.

    Args:
        model: ``"MNIST"`` or ``"SVHN"``.
        share: theta_u.
        per_parameter: epsilon / c, as the paper reports it.
        epochs: T.
        delta: at which to compose.
    """
    if model not in MODELS:
        validation.fail("model", f"one of {', '.join(MODELS)}", model)

    def sharing(each: float) -> SelectiveSharing:
        return SelectiveSharing.from_paper(
            each,
            parameters=MODELS[model],
            share=share,
            bound=1.0,  # neither this nor the threshold enters epsilon
            threshold=0.0,
            uploads=epochs,
        )

    whole, half = sharing(per_parameter), sharing(per_parameter / 2)
    return PaperRow(
        model,
        share,
        whole.uploaded,
        epochs,
        whole.paper_epsilon,
        whole.true_epsilon(delta),
        half.true_epsilon(delta),
        delta,
    )


def paper_table(
    settings: Sequence[tuple[str, float, float, int]] = _SETTINGS, delta: float = 1e-5
) -> tuple[PaperRow, ...]:
    """A row for each (model, theta_u, epsilon / c, epochs), by default those above."""
    return tuple(paper_row(*setting, delta=delta) for setting in settings)
