"""The tape: sees every torch function that a forward pass calls with a trainable parameter.

    tape = Tape(dict(model.named_parameters()), sites)
    with tape.recording(rows=rows, units=units):
        losses = model(x)                      # the model is neither wrapped nor changed
    gradients = tape.gradients(losses.sum())   # one backward pass, no weight gradients

Each call is one of three: *batched*, with a rule or the fallback for each parameter in it;
*derived* (made of parameters alone, such as a transposed weight), which is then tracked like a
parameter; or one that yields no gradient. What a call is was learned beforehand on a batch of a
telling size (see :mod:`~sfumato.learning.dp_sgd.gradients.layout`): ``sites`` holds it.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.gradients.calls import Call, Key, is_in_place
from sfumato.learning.dp_sgd.gradients.checkpointed import hooks_here, run_backward
from sfumato.learning.dp_sgd.gradients.decomposed import DECOMPOSED
from sfumato.learning.dp_sgd.gradients.derived import Derived, Function, to_parameters
from sfumato.learning.dp_sgd.gradients.fallback import give_fallback
from sfumato.learning.dp_sgd.gradients.graph import first_nodes
from sfumato.learning.dp_sgd.gradients.layout import AmbiguousLayout, find_layout
from sfumato.learning.dp_sgd.gradients.memory import Scratch
from sfumato.learning.dp_sgd.gradients.pieces import Piece
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.gradients.rules import RULES
from sfumato.learning.dp_sgd.gradients.settling import settle
from sfumato.learning.dp_sgd.gradients.uses import NotCovered, Site, Use, function_name
from sfumato.learning.functions import standardised_conv2d

__all__ = ["Gradients", "Sites", "Tape"]

Sites = dict[Hashable, Site]
"""What was learned of each place: by function and parameters' names."""


_FINAL = {F.batch_norm, F.embedding, F.instance_norm}
"""Where a rule's refusal is final: the fallback would be wrong there, not just slow."""


@dataclass
class Gradients:
    """Every parameter's gradients for U units, after one backward pass."""

    units: int
    pieces: dict[str, Piece]

    def squared_norms(self, name: str) -> Tensor | None:
        """(U,), or None for a parameter that had no part in the loss."""
        return self.pieces[name].squared_norms() if name in self.pieces else None


class Tape(TorchFunctionMode):
    """Records uses of ``parameters`` by name.

    Args:
        parameters: the trainable ones.
        sites: what is known of each place; filled in while ``learning``.

    Attributes:
        leaves: what stands for each parameter in the autograd graph: itself, or a stand-in.
    """

    def __init__(self, parameters: Mapping[str, Tensor], sites: Sites | None = None) -> None:
        super().__init__()
        self.parameters = dict(parameters)
        self.sites: Sites = {} if sites is None else sites
        self.scratch = Scratch()
        self.on_call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None
        self.on_needed: Callable[[str], None] | None = None
        self.leaves = dict(parameters)
        self._inputs_by_structure: dict[Hashable, list[int]] = {}
        self._rows = self._units = 0
        self._learning = False
        self._active = False
        self._replaying = False
        self._calls = []
        self.clear()

    def clear(self) -> None:
        """Forgets what was recorded."""
        self._tracked = {id(p): (name, p) for name, p in self.parameters.items()}
        self._names = {key: name for key, (name, _) in self._tracked.items()}
        for call in self._calls:
            call.release()
        self._calls: list[Call] = []
        self._derived: list[Derived] = []
        self._counts: Counter[str] = Counter()
        self._deferred: Exception | None = None
        self._checkpointed = False

    def stand_in(self, name: str, tensor: Tensor) -> None:
        """From now on ``tensor`` is used in place of a parameter that is held in parts."""
        self.leaves[name] = tensor
        self._tracked[id(tensor)] = (name, tensor)
        self._names[id(tensor)] = name

    def _need(self, tensors: Iterable[Tensor]) -> None:
        """Says that these parameters' values will be read after the backward pass."""
        if self.on_needed is not None:
            for tensor in tensors:
                self.on_needed(self._names[id(tensor)].split(" (")[0])

    @contextlib.contextmanager
    def recording(self, rows: int, units: int, learning: bool = False) -> Generator[None]:
        """Records what is called inside; several passes add up until :meth:`gradients`."""
        if self._active:  # a model called inside a model
            yield
            return
        self._rows, self._units, self._learning = rows, units, learning
        self._active = True
        try:
            with self:
                yield
        finally:
            self._active = False

    def recorded(self) -> set[Node]:
        """The nodes of the autograd graph at which a use of a parameter was recorded."""
        return {call.edge.node for call in self._calls}

    # --- while the forward pass runs --------------------------------------------------------------

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs the function, and notes it if a tracked tensor is among its arguments."""
        kwargs = kwargs or {}
        if self._replaying and not torch.is_grad_enabled():  # the backward pass itself
            return func(*args, **kwargs)
        if not self._checkpointed:
            self._checkpointed = hooks_here() is not None
        if self.on_call is not None:
            replaced = self.on_call(func, args, kwargs)
            if replaced is not NotImplemented:
                return replaced
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)
        tracked = list(self._tracked_among(args, kwargs))
        if not tracked:
            return func(*args, **kwargs)
        expand = DECOMPOSED.get(function_name(func))
        if expand is not None:
            try:
                with self:  # its parts are functions with rules
                    return expand(*args, **kwargs)
            except NotCovered as error:
                self._defer(error)
        out = func(*args, **kwargs)
        try:
            self._note(func, args, kwargs, out, tracked)
        except (NotCovered, AmbiguousLayout) as error:
            self._defer(error)
        return out

    def _defer(self, error: Exception) -> None:
        """Keeps the first refusal until the backward pass: a forward pass is the user's own."""
        if self._deferred is None and not self._replaying:
            self._deferred = error

    def raise_deferred(self) -> None:
        """Raises what was refused while the forward pass ran, if anything was."""
        if self._deferred is not None:
            error, self._deferred = self._deferred, None
            self.clear()
            raise error

    def _tracked_among(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
        for value in (*args, *kwargs.values()):
            if id(value) in self._names:
                yield value
            elif type(value) in (list, tuple):
                yield from (item for item in value if id(item) in self._names)

    def _note(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        tracked: list[Tensor],
    ) -> None:
        what, call = function_name(func), (func, args, kwargs)
        targets = tuple(dict.fromkeys(self._names[id(t)] for t in tracked))
        outputs = [out] if isinstance(out, Tensor) else _tensors(out)
        if what == "__setitem__" and any(t.requires_grad for t in tracked):
            raise NotCovered(f"{targets[0]!r} is written into, or into another tensor")
        if is_in_place(what) and any(o.requires_grad and id(o) in self._names for o in outputs):
            raise NotCovered(f"{what} changes {targets[0]!r} in place")
        live = [o for o in outputs if o.requires_grad and id(o) not in self._names]
        if not live:
            return
        where = tuple(i for i, v in enumerate((*args, *kwargs.values())) if id(v) in self._names)
        key = Key(what, targets, where, live[0].ndim)
        site = self._site(key, args, kwargs, live[0])
        if site.output is None:
            if any(layout is not None for layout in site.inputs):
                raise NotCovered(f"{key} loses the batch: examples are mixed")
            self._derive(call, outputs, tracked)
        elif len(outputs) > 1:
            raise NotCovered(f"{key} gives several batches")
        else:
            self._await(call, live[0], key, site)

    def _site(
        self, key: Key, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> Site:
        if not self._learning:
            if key not in self.sites:
                raise NotCovered(
                    f"{key} was not called in the check before training: the model's structure "
                    "must not depend on the data"
                )
            site = self.sites[key]
            if site.output is not None and not site.output.holds(output.shape, self._rows):
                raise NotCovered(
                    f"{key} has its batch in another place than when it was "
                    "checked, or ran on other rows beside the loss: evaluate after backward, under "
                    "torch.no_grad()"
                )
            return site
        inputs = tuple(
            find_layout(leaf.shape, self._rows) if id(leaf) not in self._names else None
            for leaf in pytree.tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor)
        )
        site = Site(find_layout(output.shape, self._rows), inputs)
        if self.sites.setdefault(key, site) != site:
            raise NotCovered(f"{key} has its batch in two places")
        return site

    def _derive(self, call: Function, outputs: list[Tensor], tracked: list[Tensor]) -> None:
        parents = tuple({id(t): t for t in tracked}.values())
        self._need(parents)
        if self._replaying:
            names = self._names_given(call, parents)
        else:
            self._counts.update(self._names[id(p)] for p in parents)
            root = self._names[id(parents[0])].split(" (")[0]
            base = f"{root} ({function_name(call[0])} {len(self._derived)}"
            names = tuple(f"{base}.{i})" for i in range(len(outputs)))
            self._derived.append(Derived(*call, parents, names))
        for name, output in zip(names, outputs, strict=True):
            self._tracked[id(output)] = (name, output)
            self._names[id(output)] = name

    def _names_given(self, call: Function, parents: tuple[Tensor, ...]) -> tuple[str, ...]:
        """What a call on parameters alone was named when its part ran first."""
        named = [self._names[id(p)] for p in parents]
        for made in self._derived:
            if made.is_of(call) and [self._names[id(p)] for p in made.parents] == named:
                return made.names
        raise NotCovered(f"{function_name(call[0])} was not called in the part's first run")

    def _await(self, call: Function, output: Tensor, key: Key, site: Site) -> None:
        func, args, kwargs = call
        if func is standardised_conv2d:
            self._need(self._tracked_among(args, kwargs))
        use = Use(site, self._units, self._names, self.scratch, self._made_finite(call, output))
        refusal: NotCovered | None = None
        if func in RULES:
            try:
                RULES[func](use, *args, **kwargs)
            except NotCovered as error:
                refusal = error
        if any(id(t) not in use.builds for t in self._tracked_among(args, kwargs)):
            if func in _FINAL or is_in_place(key.what):
                raise refusal or NotCovered(f"{key} works in place")
            self._need(self._tracked_among(args, kwargs))  # it runs the function again
            try:
                give_fallback(use, func, args, kwargs, self._rows)
            except NotCovered as error:
                raise refusal or error from error
        if self._replaying:  # what it keeps, the checkpoint has now
            return
        awaited = Call(use, key, get_gradient_edge(output))
        self._calls.append(awaited)
        self._counts.update(key.targets)
        awaited.hook = output.register_hook(lambda grad: self._receive(awaited, grad))

    def _made_finite(self, call: Function, output: Tensor) -> bool:
        """Sees to it, if this tape does, that the output's gradient comes without infinities."""
        return False

    # --- while the backward pass runs -------------------------------------------------------------

    def _receive(self, call: Call, grad: Tensor) -> None:
        call.use.load()  # in the user's precision, if a part of the model runs again for it
        with torch.no_grad(), torch.autocast(grad.device.type, enabled=False), full_precision():
            call.use.check_kept()
            for target, build in call.use.builds.items():
                name, _ = self._tracked[target]
                piece = build(grad.detach())
                call.pieces[name] = settle(piece) if self._counts[name] == 1 else piece
            call.use.builds.clear()

    def gradients(self, total: Tensor) -> Gradients:
        """One backward pass from ``total``, the sum over examples; forgets the recording.

        Raises:
            NotCovered: if a use of a parameter has no exact per-example gradient.
        """
        self.raise_deferred()
        try:
            starts = self._starts()
            if starts:
                self.run_backward(total, [self._calls[i].edge for i in starts])
            with torch.no_grad(), full_precision():
                return Gradients(self._units, self._gather())
        finally:
            self.clear()

    def run_backward(self, total: Tensor, inputs: list[Any]) -> tuple[Tensor | None, ...]:
        """``torch.autograd.grad``; the tape watches the second runs of checkpointed parts."""
        if not self._checkpointed:
            return torch.autograd.grad(total, inputs, allow_unused=True)
        self._replaying = True
        try:
            with self:
                return run_backward(total, inputs)
        finally:
            self._replaying = False

    def _starts(self) -> list[int]:
        """The calls from which no other call can be reached: a backward pass to them meets all."""
        structure = tuple(call.key for call in self._calls)
        if structure not in self._inputs_by_structure:
            nodes = [call.edge.node for call in self._calls]
            self._inputs_by_structure[structure] = first_nodes(nodes)
        return self._inputs_by_structure[structure]

    def _gather(self) -> dict[str, Piece]:
        found: dict[str, list[Piece]] = {}
        for call in self._calls:
            for name, piece in call.pieces.items():
                found.setdefault(name, []).append(piece)
        return to_parameters(found, self._derived, self._names)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, Tensor)]
    return []
