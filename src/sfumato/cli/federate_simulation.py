"""A federation whose participants are all on this machine."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from sfumato.core import validation
from sfumato.core.events import promises_nothing, repeat
from sfumato.data import Dataset
from sfumato.federated.coordinator import Coordinator, Trained
from sfumato.federated.exchange import Engine, Participant
from sfumato.federated.federation import Federation
from sfumato.federated.in_process import InProcess
from sfumato.federated.introducing import Introduced
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.partitions import partition
from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.federated.sums import HiddenSum, MaskedSum
from sfumato.federated.views import RELEASED, round_event
from sfumato.federated.watching import RoundFacts
from sfumato.learning.recipes.inputs import inputs_of, labels_of
from sfumato.learning.runs.folder import RunFolder

__all__ = ["Crowd", "Simulation", "check_engine", "check_ledger"]

_HEADER = "sfumato"


def check_engine(engine: str) -> None:
    """Refuses one that there is not."""
    if engine not in ("process", "flower"):
        validation.fail("engine", "'process' or 'flower'", engine)


def check_ledger(federation: Federation, ledger: str, dataset: str, rounds: int) -> None:
    """Refuses a ledger that cannot pay for so many rounds; nothing is charged.

    Raises:
        ValueError: if it, or the data set in it, is not there, protects something else or has not
            enough left.
    """
    from sfumato.ledger import Ledger

    event = round_event(federation, RELEASED)
    if promises_nothing(event):
        raise ValueError(
            "a ledger cannot pay for rounds without noise: give noise (--noise central), or no "
            "--ledger"
        )
    book = Ledger(ledger, create=False)
    try:
        unit = book.terms(dataset).unit
        if unit != event.unit_name:
            raise ValueError(
                f"--dataset must be one whose budget protects one {event.unit_name}, as the "
                f"federation does, but that of {dataset!r} protects one {unit}: sfumato ledger "
                f"create NAME --unit {event.unit_name} --neighbours {event.relation.value} ..."
            )
        found = book.preview(dataset, repeat(event, rounds))
        if not found.passes:
            raise ValueError(
                f"--dataset {dataset} must have budget left for {rounds} rounds (sfumato federate "
                f"plan says how much they need): {found.events[0].reason}"
            )
    finally:
        book.close()


@final
class Crowd:
    """All participants: their rows, and their keys where sums need any.

    Args:
        federation: what they agreed on.
        inputs: all rows.
        labels: of all rows.
        parts: which rows each one has.
        keys: secrets: of each one under masked sums, of all of them under hidden ones.
    """

    def __init__(
        self,
        federation: Federation,
        inputs: Tensor,
        labels: Tensor,
        parts: Sequence[NDArray[np.int64]],
        keys: Mapping[str, bytes] | None = None,
    ) -> None:
        self.federation = federation
        self._inputs, self._labels, self._parts = inputs, labels, parts
        self.keys = _made_keys(federation, self.names) if keys is None else dict(keys)
        self._model: LocalModel | None = None

    @property
    def names(self) -> list[str]:
        """Of all participants."""
        return [f"participant-{number}" for number in range(self.federation.participants)]

    @property
    def directory(self) -> Directory:
        """Everybody's public keys, for masked sums."""
        return Directory(
            {name: IdentityKey.from_bytes(key).public for name, key in self.keys.items()}
        )

    def participant(
        self, number: int, state: MutableMapping[str, bytes] | None = None
    ) -> Participant:
        """One of them; all of one process share a model, which each loads the weights into."""
        if self._model is None:
            self._model = LocalModel(self.federation.make_model())
        rows, name = self._parts[number], self.names[number]
        local = LocalData(self._model, self._inputs[rows], self._labels[rows])
        member = Member(self.federation, local, name=name, state=state)
        if isinstance(self.federation.sums, HiddenSum):
            from sfumato.federated.hidden import HiddenMember
            from sfumato.federated.secure.ckks_keys import CkksKeys

            return HiddenMember(member, CkksKeys(self.keys["all"]))
        if isinstance(self.federation.sums, MaskedSum):
            from sfumato.federated.masked import MaskedMember

            return MaskedMember(member, IdentityKey.from_bytes(self.keys[name]), self.directory)
        return member

    def coordinator_keys(self) -> dict[str, Any]:
        """What a coordinator needs to know of them, as its arguments."""
        if isinstance(self.federation.sums, HiddenSum):
            from sfumato.federated.secure.ckks_keys import CkksKeys

            return {"public_key": CkksKeys(self.keys["all"]).public()}
        masked = isinstance(self.federation.sums, MaskedSum)
        return {"directory": self.directory} if masked else {}

    def save(self, path: Path) -> None:
        """To a file, for processes that play some of them."""
        ends = np.cumsum([len(part) for part in self._parts])
        arrays = {
            "inputs": self._inputs,
            "labels": self._labels,
            "rows": torch.from_numpy(np.concatenate(self._parts)),
            "ends": torch.from_numpy(ends),
        }
        told = {
            "federation": self.federation.to_dict(),
            "keys": {name: key.hex() for name, key in self.keys.items()},
        }
        save_file(arrays, path, metadata={_HEADER: json.dumps(told)})

    @staticmethod
    @functools.cache
    def load(path: Path) -> Crowd:
        """From a file, once a process."""
        with safe_open(path, "pt") as file:
            told = json.loads(file.metadata()[_HEADER])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        parts = np.split(arrays["rows"].numpy(), arrays["ends"].numpy()[:-1])
        keys = {name: bytes.fromhex(key) for name, key in told["keys"].items()}
        federation = Federation.from_dict(told["federation"])
        return Crowd(federation, arrays["inputs"], arrays["labels"], parts, keys)


def _made_keys(federation: Federation, names: Sequence[str]) -> dict[str, bytes]:
    if isinstance(federation.sums, MaskedSum):
        return {name: IdentityKey.generate().to_bytes() for name in names}
    if isinstance(federation.sums, HiddenSum):
        from sfumato.federated.secure.ckks_keys import CkksKeys

        return {"all": CkksKeys.generate().to_bytes()}
    return {}


def _nothing() -> None:
    """Done when all is ready."""


@final
class Simulation:
    """One data set, cut up among participants.

    Args:
        federation: what they agreed on.
        data: all rows.
        how: of the cut.
        seed: of the cut.
    """

    def __init__(self, federation: Federation, data: Dataset, how: str, seed: int) -> None:
        self.federation = federation
        parts = partition(data.train.labels, federation.participants, how, seed=seed)
        rows = inputs_of(data.train.inputs, data.bounds)
        self.crowd = Crowd(
            federation, rows, labels_of(data.train.labels, federation.classes), parts
        )
        self.test: tuple[Tensor, Tensor] | None = None
        if len(data.test.labels):
            labels = labels_of(data.test.labels, federation.classes)
            self.test = inputs_of(data.test.inputs, data.bounds), labels

    def run(
        self,
        engine: str,
        out: Path | None,
        ledger: str | None,
        dataset: str,
        watch: Callable[[RoundFacts], None],
        ready: Callable[[], None] = _nothing,
    ) -> Trained:
        """All rounds.

        Args:
            engine: "process" or "flower".
            out: the run's folder.
            ledger: to charge.
            dataset: whose budget in it.
            watch: is told of every round.
            ready: called when nothing is wrong with all of these, before the first round.
        """
        check_engine(engine)
        if ledger is not None:
            begun = out is not None and RunFolder(out).begun  # then some are paid for
            check_ledger(self.federation, ledger, dataset, 1 if begun else self.federation.rounds)
        told, crowd = (out, ledger, dataset, watch, ready), self.crowd
        if engine == "process":
            everyone = {name: crowd.participant(i) for i, name in enumerate(crowd.names)}
            return self._lead(InProcess(everyone), *told)
        from sfumato.federated.flower.simulation import simulate

        with tempfile.TemporaryDirectory() as folder:  # for its owner alone
            path = Path(folder) / "crowd.safetensors"
            crowd.save(path)
            return simulate(
                lambda grid: self._lead(Introduced(grid), *told), _Made(path), len(crowd.names)
            )

    def _lead(
        self,
        engine: Engine,
        out: Path | None,
        ledger: str | None,
        dataset: str,
        watch: Callable[[RoundFacts], None],
        ready: Callable[[], None],
    ) -> Trained:
        from sfumato.ledger import Ledger

        options = self.crowd.coordinator_keys()
        if ledger is not None:
            options |= {"ledger": Ledger(ledger, create=False), "dataset": dataset}
        every = max(1, self.federation.rounds // 20)
        coordinator = Coordinator(
            self.federation, engine, folder=out, test=self.test, test_every=every, watch=watch,
            **options,
        )  # fmt: skip
        ready()
        return coordinator.train()


@final
class _Made:
    """Makes a participant in a process of Flower's simulator."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(
        self, config: Mapping[str, object], state: MutableMapping[str, bytes]
    ) -> Participant:
        return Crowd.load(self._path).participant(int(str(config["partition-id"])), state)
