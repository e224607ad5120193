"""The steps of the demo: commands as they would be typed, each with the file that it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PRIVATE", "Part", "Step", "demo_parts", "run_names"]

PRIVATE = ("epsilon-3", "wavelets-3", "wavelets-1")
"""Names of the private runs."""

_ROWS = {"mnist": 4000}  # the first so many; all of a smaller set
_NETWORK = "--preset cnn --model mlp --model-option hidden=200"
_TABLE = (
    "query mothers.csv --dataset mothers --unit person_id --max-rows 1 --unit-name mother "
    "--budget 1 --url privacy.db --type worked=int64 --type kids=int64 --type faminc=float64 "
    "--domain kids=2,3,4,5,6"
)


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        command: as typed after ``sfumato``.
        leaves: the file that is there once it is done; it is not done again.
        saves: whether its JSON goes into that file.
    """

    command: str
    leaves: str
    saves: bool = False


@dataclass(frozen=True)
class Part:
    """Steps with a heading, and what they are about."""

    heading: str
    why: str
    steps: Sequence[Step]


def run_names() -> list[str]:
    """Of all runs, the one without privacy first."""
    return ["plain", *PRIVATE]


def demo_parts(data: str, public: bool, table: bool) -> list[Part]:
    """Everything the demo does, in order.

    Args:
        data: mnist, or digits where that cannot be had.
        public: whether there are pictures of the same kind that are nobody's members.
        table: whether the table of mothers can be had.
    """
    parts = [_statistics()] if table else []
    return [*parts, _training(data), _membership(), _inversion(data, public), _audits()]


def _statistics() -> Part:
    return Part(
        "Three statistics from a census, out of one budget",
        "Every answer is noisy, says how far off it may be, and is charged before it is computed.",
        [
            Step("data get labsup --out mothers.csv", "mothers.csv"),
            Step(
                f'{_TABLE} count --where "worked = 1" --epsilon 0.1 --key demo-1 --json',
                "statistics/worked.json", True,
            ),
            Step(
                f"{_TABLE} mean faminc 0 200 --epsilon 0.2 --key demo-2 --json",
                "statistics/income.json", True,
            ),
            Step(
                f"{_TABLE} count --by kids --epsilon 0.2 --key demo-3 --json",
                "statistics/children.json", True,
            ),
        ],
    )  # fmt: skip


def _training(data: str) -> Part:
    rows = f" --rows {_ROWS[data]}" if data in _ROWS else ""
    lot = 1000 if data in _ROWS else 300
    private = (
        f"train dp-sgd --data {data}{rows} --neighbours zero-out --canaries 500 "
        f"--ledger privacy.db --dataset {data}"
    )
    tuned = '--tuned-on "earlier runs on MNIST, not charged"'
    return Part(
        "Four models: one without privacy, three with",
        "The same records; the first two are the same network. The others look at pictures "
        "through fixed wavelets, which cost no privacy and save much of it.",
        [
            Step(
                f"ledger create {data} --epsilon 8 --delta 1e-4 --neighbours zero-out "
                "--url privacy.db --json",
                "budget.json", True,
            ),
            Step(
                f"train plain --data {data}{rows} {_NETWORK} --epochs 40 --batch-size 32 "
                "--learning-rate 0.05 --out plain",
                "plain/record.json",
            ),
            Step(
                f"{private} {_NETWORK} --lot-size {lot} {tuned} --epsilon 3 --out epsilon-3",
                "epsilon-3/record.json",
            ),
            *(
                Step(
                    f"{private} --preset scattering-linear --epsilon {epsilon} "
                    f"--out wavelets-{epsilon}",
                    f"wavelets-{epsilon}/record.json",
                )
                for epsilon in (3, 1)
            ),
        ],
    )  # fmt: skip


def _membership() -> Part:
    return Part(
        "Who was trained on?",
        "Attackers of all kinds look for members. They find some of the first model's, and none "
        "that they may not find of the others'.",
        [
            Step(
                f"attack membership --run {name} --rows 2000 --shadows 8",
                f"{name}/curator/membership.json",
            )
            for name in run_names()
        ],
    )


def _inversion(data: str, public: bool) -> Part:
    learned = f" --public {data}" if public else ""
    return Part(
        "What does a class look like?",
        "A model that is right knows what its classes look like, privately trained or not. It "
        "shows prototypes, and nobody's own picture.",
        [
            Step(f"attack inversion --run {name}{learned}", f"{name}/curator/inversion.json")
            for name in ("plain", "epsilon-3")
        ],
    )


def _audits() -> Part:
    return Part(
        "Is the promise kept?",
        "Canaries were planted among the records. An audit that found more of them than epsilon "
        "allows would have found a mistake.",
        [Step(f"audit --run {name}", f"{name}/curator/audit.json") for name in PRIVATE],
    )
