"""The server's attack: examples from what one participant, or a hidden sum of many, sent.

What it sees: the orders it sent and the contributions that came back, heard at the transport of a
real round; where sums are masked, the sum that they opened to. What it is told: how many examples
there are and of which classes (an attacker often reads that off the last layer), and how
participants defend themselves. It runs several searches, and the strongest counts: what is stated
is the worst case for the participant, as far as these searches go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from sfumato.attacks.gradients.defences import Clipping, Gradient
from sfumato.attacks.gradients.likeness import likeness
from sfumato.attacks.gradients.matching import Matching, invert_gradient
from sfumato.attacks.gradients.results import Reconstruction
from sfumato.attacks.gradients.sharing import SharedUpdate
from sfumato.cli.federate_attack_members import DefendedMember
from sfumato.cli.federate_attack_rows import OPEN, Row, Setting, federation_for, promises
from sfumato.cli.federate_attack_world import World
from sfumato.core.pictures import pack_pictures
from sfumato.core.randomness import SeededCoins
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.exchange import Participant
from sfumato.federated.federation import Federation
from sfumato.federated.in_process import InProcess
from sfumato.federated.layout import Layout, Vector
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.sums import MaskedSum, PlainSum
from sfumato.federated.tapping import Heard, Tapped
from sfumato.federated.works import ClientUpdates, LotGradients

__all__ = ["Seen", "invert_round", "opened_sum", "play_round", "server_floor", "server_sees"]

_LOCAL_RATE = 0.1
_SHOWN = 8  # pictures that are kept
_STARTS = 2  # of a search for several images
_MANY = 64  # examples from which on one search has to do


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """What reaches the server in a round, as far as it can tell contributions apart.

    Attributes:
        weights: that the order carried.
        numbers: of one contribution, or of the sum of several.
        members: whose.
    """

    weights: Vector
    numbers: NDArray[np.float64]
    members: tuple[str, ...]


def server_sees(heard: Sequence[Heard], layout: Layout) -> list[Seen]:
    """Each contribution by itself, as it came."""
    weights = Order.from_bytes(heard[0].message, layout.size).weights
    each = [
        Contribution.from_bytes(one.reply, layout.size).numbers.astype(np.float64) for one in heard
    ]
    return [Seen(weights, n, (one.name,)) for n, one in zip(each, heard, strict=True)]


def opened_sum(federation: Federation, before: Vector, after: Vector, names: Sequence[str]) -> Seen:
    """What a masked sum opened to: the server itself moved the weights by it, of known size."""
    moved = after.astype(np.float64) - before
    scale = federation.work.direction * federation.denominator / federation.server_rate
    return Seen(before, scale * moved, tuple(names))


def play_round(
    federation: Federation, model: LocalModel, people: Mapping[str, Participant], seed: int
) -> list[Seen]:
    """A real round, and what reached the server; under masks, nothing but a sum is readable."""
    if not isinstance(federation.sums, MaskedSum):
        tapped = Tapped(InProcess(people))
        Coordinator(federation, tapped, coins=SeededCoins(seed)).train()
        return server_sees(tapped.heard, model.layout)
    from sfumato.federated.masked import MaskedMember
    from sfumato.federated.secure.keys import Directory, IdentityKey

    keys = {name: IdentityKey.generate() for name in people}
    directory = Directory({name: key.public for name, key in keys.items()})
    masked = {
        name: MaskedMember(member, keys[name], directory)
        for name, member in people.items()
        if isinstance(member, Member)
    }
    before = model.layout.read(federation.make_model())
    coordinator = Coordinator(
        federation, InProcess(masked), directory=directory, coins=SeededCoins(seed)
    )
    return [opened_sum(federation, before, coordinator.train().weights, list(masked))]


def invert_round(
    world: World,
    row: Row,
    batch: int,
    *,
    network: str,
    members: int,
    victims: int,
    iterations: int,
    delta: float = 1e-5,
) -> dict[str, Any]:
    """One cell of the matrix: a round of a federation, tapped, and inverted.

    Args:
        world: whose private rows the members have.
        row: the defence.
        batch: examples of a member.
        network: that is trained, by name.
        members: how many there are where contributions are seen one by one.
        victims: how many members' contributions are inverted, one by one.
        iterations: of a search.
        delta: of guarantees.
    """
    count = row.members or members
    federation = _federation(world, row, batch, network, count, delta)
    model = LocalModel(federation.make_model())
    people = _members(world, row, federation, model, batch, count)
    seen = play_round(federation, model, people, world.seed)
    found: list[tuple[Reconstruction, NDArray[np.float32]]] = []
    for place, one in enumerate(seen[:victims]):
        model.layout.write(model.model, one.weights)
        rows = [_rows(world, int(name), batch) for name in one.members]
        images = torch.cat([x for x, _ in rows]).numpy()
        labels = torch.cat([y for _, y in rows]).numpy()
        shared = _shared(federation, row, one, people, model.layout, len(labels))
        found.append(
            (_strongest(model, shared, images, labels, iterations, world.seed + place), images)
        )
    return _cell(found, federation)


def server_floor(world: World, batch: int, victims: int) -> float:
    """The PSNR of who saw nothing and answers with the mean of public pictures."""
    mean = world.known[0].mean(dim=0, keepdim=True).numpy()
    images = torch.cat([_rows(world, i, batch)[0] for i in range(victims)]).numpy()
    return float(likeness(np.repeat(mean, len(images), axis=0), images).psnr.mean())


def _federation(
    world: World, row: Row, batch: int, network: str, count: int, delta: float
) -> Federation:
    """One round in which each member's whole data take part: all epsilon is in one message."""
    setting = Setting(
        network, world.shape, len(world.classes), count, 1, count * batch, 1.0,
        row.steps, batch if batch == 1 else 16 * batch, _LOCAL_RATE, delta=delta, seed=world.seed,
    )  # fmt: skip
    made = federation_for(row, setting)
    if row.kind in ("none", "secure"):  # the plain sum of a member's gradients
        sums = MaskedSum(count // 2 + 1) if row.kind == "secure" and count > 1 else PlainSum()
        return replace(made, work=LotGradients(1.0, OPEN, count * batch), sums=sums)
    return made


def _members(
    world: World, row: Row, federation: Federation, model: LocalModel, batch: int, count: int
) -> dict[str, Participant]:
    def member(place: int) -> Participant:
        local = LocalData(model, *_rows(world, place, batch))
        if row.kind == "own":
            tricks = [each for each in row.own if not hasattr(each, "steps")]
            seed = 1_000 * world.seed + place
            return DefendedMember(federation, local, tricks, whole=True, seed=seed)
        coins = SeededCoins(1_000 * world.seed + place)
        return Member(federation, local, name=str(place), coins=coins)

    return {str(place): member(place) for place in range(count)}


def _rows(world: World, place: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, labels = world.private
    here = slice(place * batch, (place + 1) * batch)
    return inputs[here], labels[here]


def _shared(
    federation: Federation,
    row: Row,
    seen: Seen,
    people: dict[str, Participant],
    layout: Layout,
    examples: int,
) -> SharedUpdate:
    """The contribution as a mean gradient, with all that the attacker is told of it."""
    work = federation.work
    if isinstance(work, ClientUpdates):
        flat = -seen.numbers / (work.rate * work.steps)
    else:
        flat = seen.numbers / examples
    gradient = _parts(flat, layout)
    person = people[seen.members[0]]
    if isinstance(person, DefendedMember) and person.sent is not None:
        return replace(person.sent, gradient=gradient)
    clipped = row.kind == "record" and examples == 1
    return SharedUpdate(gradient, examples, (Clipping(work.clip),) if clipped else ())


def _parts(flat: NDArray[np.float64], layout: Layout) -> Gradient:
    whole, found, at = torch.from_numpy(flat.astype(np.float32)), {}, 0
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        size = int(np.prod(shape))
        found[name] = whole[at : at + size].reshape(shape)
        at += size
    return found


def _strongest(
    model: LocalModel,
    shared: SharedUpdate,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    iterations: int,
    seed: int,
) -> Reconstruction:
    """Of several searches, the one whose images are the most like the originals."""

    def search(how: Matching) -> Reconstruction:
        return invert_gradient(
            model.model, shared, images.shape[1:], labels=labels, matching=how,
            generator=np.random.default_rng([seed, 2]),
        )  # fmt: skip

    if len(images) >= _MANY:
        return search(searches(iterations)[0])
    starts = 1 if len(images) == 1 else _STARTS
    found = [search(how) for how in searches(iterations, starts)]
    return max(found, key=lambda one: float(one.compared(images).psnr.mean()))


def searches(iterations: int, starts: int = 1) -> list[Matching]:
    """Squares, with little and more total variation; and the angle, which no clip changes."""
    return [
        Matching.dlg(iterations, starts, 0.001),
        Matching.dlg(iterations, starts, 0.01),
        Matching("cosine", "lbfgs", iterations, 1.0, 0.001, starts),
    ]


def _cell(
    found: Sequence[tuple[Reconstruction, NDArray[np.float32]]], federation: Federation
) -> dict[str, Any]:
    alike = [one.compared(images) for one, images in found]
    psnr = np.concatenate([one.psnr for one in alike])
    ssim = np.concatenate([one.ssim for one in alike])
    pictures = np.concatenate(
        [one.images[near.order] for (one, _), near in zip(found, alike, strict=True)]
    )
    originals = np.concatenate([images for _, images in found])
    return {
        "value": float(psnr.mean()),
        "best": float(psnr.max()),
        "ssim": float(ssim.mean()),
        "examples": len(psnr),
        "searches": sorted({one.attack for one, _ in found}),
        "promises": promises(federation),
        "pictures": pack_pictures(pictures[:_SHOWN]),
        "originals": pack_pictures(originals[:_SHOWN]),
    }
