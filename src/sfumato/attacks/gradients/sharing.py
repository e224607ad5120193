"""What a participant of collaborative learning sends: a gradient, after whatever defends it.

The participant has B examples and the shared weights w. She sends

    G = (1/B) sum_i grad l(w; x_i, y_i),    l the cross entropy,

or, with k local steps of rate r, the average G = (w_0 - w_k) / (r k) of the k gradients on her way.
Defences stand between the examples and G; see :mod:`~sfumato.attacks.gradients.defences`.

    >>> import torch
    >>> model = nn.Linear(2, 3)
    >>> sent = share_gradient(model, torch.ones(4, 2), torch.tensor([0, 1, 2, 1]))
    >>> {name: tuple(part.shape) for name, part in sent.gradient.items()}, sent.batch
    ({'weight': (3, 2), 'bias': (3,)}, 4)

The model is used in evaluation mode, so that running averages neither leak nor change. Nothing here
is a release: it plays a participant for an attack on her. Noise follows the ``generator`` given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, final

import numpy as np
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from sfumato.attacks.gradients.defences import Defence, Dropout, Gradient, LocalSteps, Masks
from sfumato.attacks.torch_models import evaluating
from sfumato.core import validation
from sfumato.core.events import Event, compose, repeat

__all__ = [
    "SharedUpdate",
    "batch_gradient",
    "local_average",
    "masked",
    "share_gradient",
    "share_gradients",
    "trainable",
]

_Kind = TypeVar("_Kind", bound=Defence)


@final
@dataclass(frozen=True, eq=False)
class SharedUpdate:
    """What was sent, and what the attacker knows about how.

    Attributes:
        gradient: by the name of the parameter.
        batch: B, how many examples it was made of.
        defences: what was done to it, in this order. An attacker is told: secrecy of a method is
            no protection.
        masks: which activations dropout left, in the order in which they are computed; given to the
            attacker, who often reads them off gradients that are zero.
        event: what the update amounts to as a private release; None if it is none.
    """

    gradient: Gradient
    batch: int
    defences: tuple[Defence, ...] = ()
    masks: Masks | None = None
    event: Event | None = None

    @property
    def local(self) -> LocalSteps:
        """The steps that it was made in: one, unless said otherwise."""
        return _local(self.defences)

    @property
    def defence(self) -> str:
        """In words."""
        return ", ".join(str(each) for each in self.defences) or "none"


def share_gradient(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    defences: Sequence[Defence] = (),
    generator: np.random.Generator | None = None,
) -> SharedUpdate:
    """The update that a participant with these examples sends.

    Args:
        module: the shared model, from a batch of inputs to logits.
        inputs: (B, ...), on the model's device.
        labels: (B,), class numbers.
        defences: in the order in which they are applied; at most one :class:`LocalSteps` and one
            :class:`Dropout`, wherever they stand.
        generator: of masks and noise; needed if a defence draws any.

    Raises:
        ValueError: for defences that do not go together, or no generator where one is needed.
    """
    if len(inputs) == 0 or len(inputs) != len(labels):
        validation.fail(
            "labels", f"one for each of {len(inputs)} inputs, at least one", len(labels)
        )
    chosen = tuple(defences)
    found, masks = share_gradients(
        module, inputs[None], labels[None], defences=chosen, generator=generator
    )
    first = None if masks is None else {name: mask[0] for name, mask in masks.items()}
    update = {name: part[0] for name, part in found.items()}
    return SharedUpdate(update, len(inputs), chosen, first, _event(chosen, _local(chosen)))


def share_gradients(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    defences: Sequence[Defence] = (),
    generator: np.random.Generator | None = None,
) -> tuple[Gradient, Masks | None]:
    """The updates of n participants with B examples each, computed at once, one a row.

    Args:
        module: the shared model.
        inputs: (n, B, ...).
        labels: (n, B).
        defences: of each of them, with masks and noise of her own.
        generator: of those.

    Returns:
        The updates, and the masks of dropout.
    """
    local, dropout = _local(defences), _only(defences, Dropout)
    if generator is None and any(each.random for each in defences):
        validation.fail("generator", "given where a defence draws masks or noise", None)
    masks = None
    with evaluating(module):
        if dropout is not None:
            assert generator is not None
            masks = dropout.masks(module, inputs[0], len(inputs), generator)
        found = _averages(module, inputs, labels, local, tuple(defences), masks, generator)
    for each in defences:
        found = each.on_updates(found, generator)
    return found, masks


def trainable(module: nn.Module) -> Gradient:
    """The parameters that are learned, detached, by name."""
    found = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    if not found:
        validation.fail("module", "one with a parameter that is trained", type(module).__name__)
    return found


def batch_gradient(
    module: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor, labels: Tensor
) -> Gradient:
    """Of the mean cross entropy by the weights. Labels are class numbers, or rows of shares.

    Differentiable by the inputs and by labels that are shares.
    """

    def loss(at: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(functional_call(module, at, (inputs,)), labels)

    return grad(loss)(dict(weights))


def local_average(
    module: nn.Module,
    weights: Mapping[str, Tensor],
    inputs: Tensor,
    labels: Tensor,
    local: LocalSteps,
) -> Gradient:
    """The average gradient over k local steps of descent, differentiable by the inputs.

    Each step takes the next ``local.batch`` examples, or all of them.
    """
    at, total = dict(weights), None
    for step in range(local.steps):
        rows = local.rows(step, len(inputs), inputs.device)
        found = batch_gradient(module, at, inputs[rows], labels[rows])
        at = {name: w - local.rate * found[name] for name, w in at.items()}
        total = found if total is None else {name: total[name] + found[name] for name in found}
    assert total is not None
    return {name: part / local.steps for name, part in total.items()}


@contextlib.contextmanager
def masked(module: nn.Module, masks: Masks | None) -> Iterator[None]:
    """The module with these activations left out."""
    if masks is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        for name, mask in masks.items():
            layer = module.get_submodule(name)
            hook = layer.register_forward_hook(lambda _layer, _given, out, mask=mask: out * mask)
            stack.callback(hook.remove)
        yield


def _averages(
    module: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    local: LocalSteps,
    defences: tuple[Defence, ...],
    masks: Masks | None,
    generator: np.random.Generator | None,
) -> Gradient:
    """Over the local steps of each participant, examples one by one where a defence needs that."""
    people, total = len(inputs), None
    weights = {name: w[None].expand(people, *w.shape) for name, w in trainable(module).items()}
    for step in range(local.steps):
        rows = local.rows(step, inputs.shape[1], inputs.device)
        found = _step(module, weights, inputs[:, rows], labels[:, rows], defences, masks)
        for each in defences:
            found = each.on_step(found, len(rows), generator)
        weights = {name: w - local.rate * found[name] for name, w in weights.items()}
        total = found if total is None else {name: total[name] + found[name] for name in found}
    assert total is not None
    return {name: part / local.steps for name, part in total.items()}


def _step(
    module: nn.Module,
    weights: Gradient,
    inputs: Tensor,
    labels: Tensor,
    defences: tuple[Defence, ...],
    masks: Masks | None,
) -> Gradient:
    """The mean gradient of each participant at weights of her own."""
    one_by_one = any(each.needs_examples for each in defences)

    def person(at: Gradient, x: Tensor, y: Tensor, mask: Masks | None) -> Gradient:
        with masked(module, mask):
            if not one_by_one:
                return batch_gradient(module, at, x, y)
            single = vmap(partial(batch_gradient, module), in_dims=(None, 0, 0))
            return single(at, x[:, None], y[:, None])

    found = vmap(person, in_dims=(0, 0, 0, None if masks is None else 0))(
        weights, inputs, labels, masks
    )
    found = {name: part.detach() for name, part in found.items()}
    if not one_by_one:
        return found
    people, batch = labels.shape
    each = {name: part.flatten(0, 1) for name, part in found.items()}
    for defence in defences:
        each = defence.on_examples(each)
    return {n: part.unflatten(0, (people, batch)).mean(dim=1) for n, part in each.items()}


def _event(defences: tuple[Defence, ...], local: LocalSteps) -> Event | None:
    """All that private defences release, one event a step."""
    events = [event for each in defences if (event := each.event()) is not None]
    return repeat(compose(*events), local.steps) if events else None


def _local(defences: Sequence[Defence]) -> LocalSteps:
    found = _only(defences, LocalSteps)
    return LocalSteps() if found is None else found


def _only(defences: Sequence[Defence], kind: type[_Kind]) -> _Kind | None:
    found = [each for each in defences if isinstance(each, kind)]
    if len(found) > 1:
        validation.fail("defences", f"at most one {kind.__name__}", len(found))
    return found[0] if found else None
