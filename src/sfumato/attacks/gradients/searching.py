"""Two searches for images, many trials at once; on a GPU a step is recorded and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Told", "adam_on_signs", "lbfgs"]

Told = Callable[[int, int], None]
"""How many steps are done, of how many."""

_FALLS = (3 / 8, 5 / 8, 7 / 8)
_FIRST, _SECOND, _SMALL = 0.9, 0.999, 1e-8  # Adam's
_WARM = 3  # steps before a recording
_TELL = 100


def adam_on_signs(
    costs: Callable[[Tensor], Tensor],
    starts: Tensor,
    bounds: tuple[float, float],
    iterations: int,
    rate: float,
    told: Told | None = None,
) -> tuple[Tensor, NDArray[np.float64]]:
    """Adam, fed with the sign of every slope; images stay within bounds.

    Args:
        costs: from images of all trials to the cost of each, differentiable.
        starts: (trials, ...).
        bounds: the least and the greatest value.
        iterations: how many steps.
        rate: of the first; falls to a tenth at 3/8, 5/8 and 7/8 of the steps.
        told: of progress.

    Returns:
        The last images of each trial, and their cost.
    """
    images = starts.clone().requires_grad_(True)
    mean, square = torch.zeros_like(starts), torch.zeros_like(starts)
    number, now = (torch.zeros((), device=starts.device) for _ in range(2))

    def step() -> None:
        (slopes,) = torch.autograd.grad(costs(images).sum(), images)
        with torch.no_grad():
            signs = slopes.sign().nan_to_num_(0.0)
            number.add_(1)
            mean.mul_(_FIRST).add_(signs, alpha=1 - _FIRST)
            square.mul_(_SECOND).add_(signs.square(), alpha=1 - _SECOND)
            ahead = mean / (1 - _FIRST**number)
            images.sub_(now * ahead / ((square / (1 - _SECOND**number)).sqrt() + _SMALL))
            images.clamp_(*bounds)

    run = _recorded(step, [images, mean, square, number], now, rate) if starts.is_cuda else step
    for done in range(iterations):
        fallen = sum(done >= share * iterations for share in _FALLS)
        now.fill_(rate * 0.1**fallen)
        run()
        if told is not None and (done % _TELL == 0 or done + 1 == iterations):
            told(done + 1, iterations)
    with torch.no_grad():
        return images.detach(), costs(images).double().cpu().numpy()


def _recorded(
    step: Callable[[], None], state: list[Tensor], now: Tensor, rate: float
) -> Callable[[], None]:
    """The step as a CUDA graph, or as it is if it cannot be recorded; the state is as before."""
    before = [part.detach().clone() for part in state]
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        now.fill_(rate)
        for _ in range(_WARM):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph, run = torch.cuda.CUDAGraph(), step
    try:
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    except RuntimeError as error:
        warnings.warn(f"not recorded, and slower for it: {error}", stacklevel=2)
    with torch.no_grad():
        for part, old in zip(state, before, strict=True):
            part.copy_(old)
    return run


def lbfgs(
    costs: Callable[[Tensor], Tensor],
    starts: Tensor,
    bounds: tuple[float, float],
    iterations: int,
    told: Told | None = None,
) -> tuple[Tensor, NDArray[np.float64]]:
    """Limited-memory BFGS with a line search, trial by trial, within bounds at the end.

    A trial whose cost is no number has failed, and keeps its start.
    """
    images, found = starts.clone(), np.full(len(starts), np.inf)
    for trial in range(len(starts)):
        one = starts[trial : trial + 1].clone().requires_grad_(True)
        search = torch.optim.LBFGS(
            [one], lr=1.0, max_iter=iterations, history_size=100, tolerance_grad=1e-12,
            tolerance_change=1e-14, line_search_fn="strong_wolfe",
        )  # fmt: skip

        def closure(one: Tensor = one) -> Tensor:
            cost = costs(one).sum()
            (one.grad,) = torch.autograd.grad(cost, one)
            return cost

        search.step(closure)  # pyright: ignore[reportArgumentType]
        with torch.no_grad():
            ended = one.detach().clamp(*bounds)
            cost = float(costs(ended).sum())
        if np.isfinite(cost):
            images[trial], found[trial] = ended[0], cost
        if told is not None:
            told(trial + 1, len(starts))
    return images, found
