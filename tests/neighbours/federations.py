"""Federations: one participant's data, or one participant, comes and goes; or she lies.

Three neighbours are tried. *Data*: an honest participant holds odd rows, and her neighbour's
contribution is zeros. *Presence*: she is there or not, where that is claimed to be covered.
*Lies*: she answers whatever bytes she likes, beside staying away. The others answer always the
same. With the same coins the released weights may differ by what one clip norm moves them, and
rounds, charges, errors and logs not at all.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.neighbours.harness import Case, Outcome, differences, done

__all__ = ["FederationCase", "federation_cases"]

WIDTH, CLASSES, OTHERS, ROUNDS, CLIP = 3, 2, 3, 2, 0.5
SIZE = (WIDTH + 1) * CLASSES
RATE = 1.0
_ROOM = 1e-5


def _rows(odd: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What an honest participant holds, with something odd in her last row."""
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(count, WIDTH, generator=generator)
    y = torch.randint(0, CLASSES, (count,), generator=generator)
    if count and odd == "label":
        y[-1] = 10**6
    elif count and odd == "negative label":
        y[-1] = -100
    elif count and odd:
        x[-1] = {"nan": torch.nan, "inf": torch.inf, "huge": 1e38, "tiny": 1e-40}[odd]
    return x, y


@dataclass(frozen=True)
class Lie:
    """What a participant sends in the place of her contribution.

    Attributes:
        kind: ``bytes`` sends ``data`` itself; ``edit`` puts one byte of it into an honest message;
            ``cut`` an honest message's first half; ``numbers`` a contribution of such numbers;
            ``shape`` one of so many; ``stale`` one for another round; ``error`` none.
        data: bytes.
        value: a number.
    """

    kind: str
    data: bytes = b""
    value: float = 0.0

    def answer(self, order: Any, honest: bytes) -> Any:
        """The message."""
        from sfumato.federated.orders import Contribution

        if self.kind == "bytes":
            return self.data
        if self.kind == "edit":
            place = int(self.value) % len(honest)
            return honest[:place] + self.data[:1] + honest[place + 1 :]
        if self.kind == "cut":
            return honest[: len(honest) // 2]
        if self.kind == "error":
            raise OSError(self.data.decode("latin-1"))
        count = SIZE if self.kind != "shape" else int(abs(self.value)) % 20
        attempt = order.attempt - (self.kind == "stale")
        return Contribution(order.run, max(0, attempt), np.full(count, self.value)).to_bytes()


class _Answers:
    """A participant by a function of the order."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def answer(self, message: bytes) -> bytes:
        from sfumato.federated.orders import Order

        return self._make(Order.from_bytes(message, SIZE, 0))


def _numbers(vector: NDArray[Any]) -> Callable[[Any], bytes]:
    from sfumato.federated.orders import Contribution

    return lambda order: Contribution(order.run, order.attempt, vector).to_bytes()


@dataclass(frozen=True)
class FederationCase(Case):
    """A federation with central noise, and the participant that comes and goes.

    Attributes:
        what: ``data``, ``presence`` or ``lies``.
        rows: how many she holds.
        odd: what is odd about the last of them.
        lie: what she sends, for lies.
        first: whether she stands before the others.
        steps: of her local training.
        work: what is asked of participants: ``updates``, bounded as a whole, or ``selected``
            numbers, each bounded; with the latter she lies.
    """

    kind: ClassVar[str] = "federations"
    what: str = "data"
    rows: int = 5
    odd: str = ""
    lie: Lie = Lie("bytes")
    first: bool = False
    steps: int = 1
    work: str = "updates"

    def broken(self) -> list[str]:
        """Another error or another course, or weights that are too far apart."""
        one, two = self._outcome(True), self._outcome(False)
        found = differences(one, two)
        if one.numbers is None or two.numbers is None:
            return found
        order = np.inf if self.work == "selected" else 2
        moved = [
            float(np.linalg.norm(a - b, order))
            for a, b in zip(one.numbers, two.numbers, strict=False)
        ]
        most = CLIP * RATE / (OTHERS + 1) * (1 + _ROOM)
        if moved and moved[0] > most:  # later rounds begin from other weights
            found.append(f"weights of neighbours are {moved[0]:.4g} apart, not {most:.4g}")
        if any(not np.isfinite(w).all() for w in one.numbers):
            found.append("weights that are no numbers were released")
        return found

    def _outcome(self, there: bool) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix="pair"))
        try:
            return done(lambda out: self._train(out, there, folder), [str(folder)])
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _train(self, outcome: Outcome, there: bool, folder: Path) -> None:
        import sfumato as sf
        from sfumato.federated.coordinator import Coordinator
        from sfumato.federated.federation import Federation
        from sfumato.federated.in_process import InProcess
        from sfumato.federated.noises import CentralNoise, NoNoise
        from sfumato.federated.works import ClientUpdates, SelectedGradients

        chosen: Any = ClientUpdates(steps=self.steps, rate=0.3, clip=CLIP), CentralNoise(0.1)
        if self.work == "selected":
            chosen = SelectedGradients(9.0, 0.5, CLIP, 0.0), NoNoise()
        federation = Federation(
            model="linear", shape=(WIDTH,), classes=CLASSES, participants=OTHERS + 1, rounds=ROUNDS,
            work=chosen[0], noise=chosen[1], server_rate=RATE,
        )  # fmt: skip
        vectors = np.random.default_rng(2).normal(size=(OTHERS, SIZE)) * 0.1
        others = {f"p{i}": _Answers(_numbers(v)) for i, v in enumerate(vectors)}
        her = self._her(federation) if there else self._stand_in()
        mine = {} if her is None else {"her": her}
        members = mine | others if self.first else others | mine
        ledger = sf.Ledger(folder / "ledger.db", create=True)
        ledger.create("clients", sf.Budget(1e6, 1e-3), unit="client")
        seen: list[NDArray[Any]] = []
        course: list[Any] = []

        def watch(facts: Any) -> None:
            course.append((facts.number, facts.rounds, facts.clip, facts.used))
            if self.what == "data":  # names are hers and the others' as before
                course.append((facts.asked, facts.survivors, facts.refused))
                course.append((facts.traffic.received, sorted(facts.traffic.silent)))
            seen.append(coordinator.state.weights.copy())

        coordinator = Coordinator(
            federation, InProcess(members), ledger=ledger, dataset="clients", watch=watch,
            coins=_Steady(),
        )  # fmt: skip
        try:
            coordinator.train()
        finally:
            left = ledger.status("clients").left
            outcome.shape, outcome.numbers = (course, left), seen

    def _her(self, federation: Any) -> Any:
        from sfumato.core.randomness import SeededCoins
        from sfumato.federated.local import LocalData, LocalModel
        from sfumato.federated.member import Member

        if self.what == "lies":
            honest = _numbers(np.full(SIZE, 0.1))
            return _Answers(lambda order: self.lie.answer(order, honest(order)))
        x, y = _rows(self.odd, self.rows)
        local = LocalData(LocalModel(federation.make_model()), x, y)
        return Member(federation, local, name="her", coins=SeededCoins(9))

    def _stand_in(self) -> Any:
        if self.what == "data":
            return _Answers(_numbers(np.zeros(SIZE, np.float32)))
        return None


class _Steady:
    """Coins that give the same at the same call, however many words the calls before it took.

    The choice of participants takes as many as there are participants.
    """

    private = False

    def __init__(self) -> None:
        self._calls = 0

    def words(self, count: int) -> Any:
        self._calls += 1
        return np.random.Philox(self._calls).random_raw(count)


_ODDS = ["", "nan", "inf", "huge", "tiny", "label", "negative label"]
_LIES = st.one_of(
    st.builds(Lie, st.just("bytes"), st.binary(max_size=60)),
    st.builds(
        Lie, st.just("edit"), st.binary(min_size=1, max_size=1), st.integers(0, 999).map(float)
    ),
    st.builds(Lie, st.sampled_from(["cut", "stale"])),
    st.builds(
        Lie, st.sampled_from(["numbers", "shape", "stale"]), st.just(b""),
        st.sampled_from([0.0, 1.0, 7.0, 1e30, 1e308, -1e308, float("nan"), float("inf")]),
    ),
    st.builds(Lie, st.just("error"), st.binary(max_size=9)),
)  # fmt: skip


@st.composite
def federation_cases(draw: st.DrawFn) -> FederationCase:
    """Any federation of four."""
    what = draw(st.sampled_from(["data", "presence", "lies", "lies"]))
    first = draw(st.booleans())
    if what == "lies":
        work = draw(st.sampled_from(["updates", "updates", "selected"]))
        return FederationCase(what, lie=draw(_LIES), first=first, work=work)
    return FederationCase(
        what, draw(st.sampled_from([0, 1, 5, 40])), draw(st.sampled_from(_ODDS)), first=first,
        steps=draw(st.sampled_from([1, 3])),
    )  # fmt: skip
