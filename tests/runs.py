"""Every kind of run that resumes, small, with its lots counted: for tests that copy its folder."""

import shutil
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.accounting import Trials
from sfumato.data import Dataset, Examples
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.federation import Federation
from sfumato.federated.flower.state import FolderState
from sfumato.federated.in_process import InProcess
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member, Refusal
from sfumato.federated.noises import CentralNoise, LocalNoise
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.works import ClientUpdates
from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingPlan
from sfumato.learning.label_dp import label_preset, train_label_dp
from sfumato.learning.label_dp import randomising as randomising_module
from sfumato.learning.pate import Answering, AnswerPlan, Ballots, GaussianMax
from sfumato.learning.recipes import Recipe
from sfumato.learning.recipes import tuning as tuning_module
from sfumato.learning.recipes.rates import Rate
from sfumato.learning.recipes.tuning import Search, tune
from sfumato.ledger import Budget, Ledger, LedgerError

__all__ = ["RUNS", "CutOff", "Kind"]

generator = torch.Generator().manual_seed(6)
X = torch.rand(60, 4, generator=generator)
Y = (X[:, 0] > 0.5).long()
DATA = Dataset(
    name="rows", train=Examples(X.numpy(), Y.numpy()), test=Examples(X.numpy(), Y.numpy()),
    classes=("a", "b"), shape=(4,), bounds=(0.0, 1.0), source="made here", public_size=60,
    test_is_public=True,
)  # fmt: skip


class CutOff(BaseException):
    """Nothing is tidied up by who catches errors."""


class Kind:
    """Runs of one kind; each lot is counted before it is read."""

    unit, neighbours, lots = "record", "add-remove", 6
    whole = True  # whether one entry pays for all lots; else each has its own

    def __init__(self, home, monkeypatch):
        self.home, self.monkeypatch = home, monkeypatch
        self.ledger = Ledger(home / "privacy.db")
        self.ledger.create("people", Budget(1e4, 1e-2), unit=self.unit, neighbours=self.neighbours)
        self.paid = {"ledger": self.ledger, "dataset": "people"}
        self.run = self.most = 0
        self.inside = lambda: None
        self.prepare()

    def prepare(self):
        """Has lots counted."""

    def count(self):
        """One lot is about to be read."""
        if self.left == 0:
            raise CutOff
        self.left -= 1
        self.run += 1
        self.inside()

    def go_on(self, name, most=10**6):
        """So many lots at most; whether the run came to its end, or was refused ("refused")."""
        self.left, before = most, getattr(self, "left", 0)
        try:
            self.work(self.home / name)
        except CutOff:
            return "cut off"
        except (LedgerError, Refusal):
            return "refused"
        except ValueError as error:
            if "finished run" not in str(error) and "nothing to resume" not in str(error):
                raise
        finally:
            self.left = before
        return "ended"

    def read(self):
        """How many lots were run in all places, and kept."""
        return self.run

    def copy(self):
        shutil.copytree(self.home / "a", self.home / "b")


class Training(Kind):
    def work(self, folder):
        begun = folder.exists()
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        plan = TrainingPlan(PoissonLots(20, 60), Flat(1.0), 5.0, self.lots, 1e-5)
        trainer = DPSGD(
            model, optimizer, (X, Y), plan=plan, checkpoints=folder, checkpoint_every=2,
            progress=False, **self.paid,
        )  # fmt: skip
        if begun:
            trainer.resume()
        loop = iter(trainer)
        try:
            for x, y in loop:
                if not trainer.rehearsing:
                    self.count()
                trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
        except CutOff:
            trainer._resuming._store._steps._charge = None  # killed: it gives nothing back
            raise
        finally:
            loop.close()


class TrainingInBlocks(Training):
    """A turn is two steps."""

    lots = 150


class Labels(Kind):
    unit, neighbours = "label", "replace-one"

    def prepare(self):
        self.monkeypatch.setattr(randomising_module, "PIECE", 10)
        real = randomising_module._randomised

        def counted(recipe, labels, sets, coins):
            if len(labels) > 1:  # of one label, nobody's, to see that it can be done
                self.count()
            return real(recipe, labels, sets, coins)

        self.monkeypatch.setattr(randomising_module, "_randomised", counted)

    def work(self, folder):
        recipe = label_preset(DATA, 2.0, 1, epochs=1.0)
        train_label_dp(recipe, DATA, out=folder, resume=folder.exists(), **self.paid)


class Candidates(Kind):
    def prepare(self):
        base = Recipe("linear", lot_size=20, rate=Rate(1.0), steps=1, origin="a test")
        several = tuple(replace(base, rate=Rate(rate)) for rate in (0.5, 2.0))
        self.search = Search(several, Trials(1.5), 4.0, 1e-4)
        self.monkeypatch.setattr(Trials, "draw", lambda *_: self.lots)
        real = tuning_module.train

        def counted(*args, **more):
            self.count()
            return real(*args, **more)

        self.monkeypatch.setattr(tuning_module, "train", counted)

    def read(self):
        """A run that was at work while a copy went on is thrown away."""
        return len({p.read_bytes() for p in self.home.glob("*/curator/trials/*/model.safetensors")})

    def work(self, folder):
        begun = folder.exists()
        tune(None if begun else self.search, DATA, out=folder, resume=begun, **self.paid)


class Answers(Kind):
    whole = False

    def work(self, folder):
        folder.mkdir(exist_ok=True)
        plan = AnswerPlan(GaussianMax(30.0), self.lots)
        votes = Ballots(np.array([[90, 10]] * 20))
        answering = Answering(votes, plan, journal=folder / "answers.jsonl", **self.paid)
        asked = {answer.question for answer in answering.answers}
        of = Ballots.of

        def counted(ballots, question):
            self.count()
            return of(ballots, question)

        self.monkeypatch.setattr(Ballots, "of", counted)
        try:
            for _ in answering.ask_all([q for q in range(20) if q not in asked]):
                pass
        finally:
            self.monkeypatch.setattr(Ballots, "of", of)
            answering._journal.run.close()


class Rounds(Kind):
    unit = "client"
    whole = False

    def work(self, folder):
        federation = Federation(
            model="linear", shape=(4,), classes=2, participants=2, rounds=self.lots,
            work=ClientUpdates(steps=2, rate=0.2), noise=CentralNoise(2.0),
        )  # fmt: skip

        def answer(message):
            self.count()
            order = Order.from_bytes(message, 10, 0)
            return Contribution(order.run, order.attempt, np.zeros(10)).to_bytes()

        who = type("Who", (), {"answer": staticmethod(answer)})()
        coordinator = Coordinator(federation, InProcess({"a": who}), folder=folder, **self.paid)
        coordinator.train()


class Messages(Kind):
    """A participant, whose memory is copied."""

    unit, neighbours = "client", "zero-out"
    whole = False

    def work(self, folder):
        federation = Federation(
            model="linear", shape=(4,), classes=2, participants=3, rounds=self.lots,
            work=ClientUpdates(steps=2, rate=0.2), noise=LocalNoise(2.0, least=2),
        )  # fmt: skip
        local = LocalData(LocalModel(federation.make_model()), X, Y)
        with FolderState(folder) as state:
            member = Member(federation, local, state=state, **self.paid)
            real = local.trained

            def counted(*args, **more):
                self.count()
                return real(*args, **more)

            local.trained = counted
            zeros = np.zeros(local.layout.size, np.float32)
            for attempt in range(self.lots + 4):
                order = Order(federation.digest, "r", attempt, 1.0, zeros)
                try:
                    member.answer(order.to_bytes())
                except Refusal as refusal:
                    if "answered before" not in str(refusal) and "given" not in str(refusal):
                        raise


RUNS = {
    kind.__name__.lower(): kind
    for kind in (Training, TrainingInBlocks, Labels, Candidates, Answers, Rounds, Messages)
}
