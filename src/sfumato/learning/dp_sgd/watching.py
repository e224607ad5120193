"""Watching what only the trainer may change: weights, gradients and buffers between its steps."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["Watch"]


class Watch:
    """Notes the state of weights and buffers, and raises if someone else changed them.

    By tensors' version counters and addresses: an edit through ``.data`` goes unseen.
    """

    def __init__(self, model: nn.Module, parameters: Mapping[str, Tensor]) -> None:
        self._model, self._parameters = model, dict(parameters)
        self.accept()

    def accept(self) -> None:
        """Takes the present state as the trainer's own."""
        self._weights = {name: _state(p) for name, p in self._parameters.items()}
        # Buffers are held: a new one cannot come to lie where an old one was.
        self._held = dict(self._model.named_buffers())
        self._buffers = {name: _state(b) for name, b in self._held.items()}

    def check(self) -> None:
        """Raises if something changed since."""
        for name, p in self._parameters.items():
            if p.grad is not None:
                raise TrainingError(
                    f"{name!r} has a gradient that the trainer did not form: call "
                    "trainer.backward(losses) instead of loss.backward(); nothing was applied"
                )
            if not p.requires_grad:
                raise TrainingError(
                    f"{name!r} was frozen during the run: freeze parameters before making the "
                    "trainer"
                )
            if _state(p) != self._weights[name]:
                raise TrainingError(
                    f"{name!r} was edited between two steps: only the trainer's optimizer may "
                    "change weights during a run (for an average of them use ema_decay)"
                )
        own = {id(p) for p in self._parameters.values()}
        for name, p in self._model.named_parameters():
            if p.requires_grad and id(p) not in own:
                raise TrainingError(
                    f"{name!r} became trainable during the run: unfreeze or add parameters before "
                    "making the trainer"
                )
        for name, buffer in self._model.named_buffers():
            if _state(buffer) != self._buffers.get(name):
                raise TrainingError(
                    f"buffer {name!r} changed during the run: it would carry private data into the "
                    "model without noise. Use a layer without running statistics"
                )


def _state(tensor: Tensor) -> tuple[int, int]:
    return tensor._version, tensor.data_ptr()
