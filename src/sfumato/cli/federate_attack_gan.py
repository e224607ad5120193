"""The participant's attack: a GAN inside a federation, seen by an independent judge.

What she sees: the weights in every order, as each participant does. Honest members have the first
half of the classes, she the second and one label more. The attack runs on the class in the middle
of theirs; what she draws in the last rounds is shown to the judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sfumato.attacks.gan.adversary import GanAdversary, GanSettings
from sfumato.attacks.gan.networks import make_network
from sfumato.attacks.inversion.scoring import recognition
from sfumato.cli.federate_attack_members import DefendedMember, GanMember
from sfumato.cli.federate_attack_networks import SMOOTH
from sfumato.cli.federate_attack_rows import Row, Setting, federation_for, promises
from sfumato.cli.federate_attack_world import World
from sfumato.core.pictures import pack_pictures
from sfumato.core.randomness import SeededCoins
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.exchange import Participant
from sfumato.federated.federation import Federation
from sfumato.federated.in_process import InProcess
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.watching import RoundFacts, nobody

__all__ = ["honest_member", "run_gan"]

HONEST = 2
LOT = 256
_SHOWN = 8
_KEPT = 4  # of rounds that were kept, so many of the last are judged


def run_gan(
    world: World,
    row: Row,
    *,
    rounds: int,
    delta: float = 1e-5,
    control: bool = False,
    told: Callable[[RoundFacts], None] = nobody,
) -> dict[str, Any]:
    """One cell of the matrix: all rounds of a federation with her in it.

    Args:
        world: who has what.
        row: the defence of the honest members.
        rounds: of the federation.
        delta: of guarantees.
        control: whether nobody has the class that she is after: what the judge sees then is not
            anybody's.
        told: of every round.
    """
    inputs, labels = world.private
    half = len(world.classes) // 2
    victim = half // 2 + 1
    theirs = (labels < half) & ((labels != victim) | (not control))
    setting = Setting(
        SMOOTH, world.shape, len(world.classes) + 1, HONEST + 1, rounds, int((labels < half).sum()),
        min(1.0, LOT / int((labels < half).sum())), 2, 64, 0.1, delta=delta, seed=world.seed,
    )  # fmt: skip
    federation = federation_for(row, setting)
    model = LocalModel(federation.make_model())
    adversary = GanAdversary(
        world.shape, victim, len(world.classes), seed=world.seed,
        network=lambda: make_network(world.shape, width=16),
        settings=GanSettings(steps=4, fakes=128, every=max(1, rounds // 12)),
    )  # fmt: skip
    own = inputs[labels >= half].numpy(), labels[labels >= half].numpy()
    eve = GanMember(
        federation, adversary, own, model, steps=3, rate=0.05, seed=1_000 * world.seed + 99
    )
    people: dict[str, Participant] = {"adversary": eve}
    x, y = inputs[theirs], labels[theirs]
    for place in range(HONEST):
        local = LocalData(model, x[place::HONEST], y[place::HONEST])
        people[f"member {place}"] = honest_member(row, federation, local, world.seed, place)
    trained = Coordinator(
        federation, InProcess(people), test=world.test, test_every=rounds,
        coins=SeededCoins(world.seed), watch=told,
    ).train()  # fmt: skip
    result = adversary.result()
    images, wanted = result.last(min(_KEPT, len(result.kept)))
    judged = recognition(images, wanted, world.judged)
    seen = world.judged(result.pictures[-1][:_SHOWN]).argmax(axis=1) == victim
    return {
        "value": judged.accuracy,
        "interval": list(judged.accuracy_interval),
        "images": len(images),
        "victim": world.classes[victim],
        "accuracy": trained.accuracy,
        "promises": promises(federation),
        "pictures": pack_pictures(result.pictures[-1][:_SHOWN]),
        "seen": seen.tolist(),
        "originals": pack_pictures(inputs[labels == victim][:_SHOWN].numpy()),
    }


def honest_member(
    row: Row, federation: Federation, local: LocalData, seed: int, place: int
) -> Participant:
    """A member who follows the federation; or, in a row of its own, one with her own defence."""
    if row.kind == "own":
        tricks = [each for each in row.own if not hasattr(each, "steps")]
        return DefendedMember(federation, local, tricks, seed=1_000 * seed + place)
    return Member(federation, local, name=str(place), coins=SeededCoins(1_000 * seed + place))
