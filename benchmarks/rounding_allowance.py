"""What summing up matrices in bfloat16 by ordinary products costs: how much longer norms become.

    python benchmarks/rounding_allowance.py [--tasks gpt,vit] [--examples 2]

The models of gpu_tasks.py as they start, in bfloat16, on two examples each: the norm of all their
matrices that are used over several places, with and without the allowance for rounding. Clipped
contributions are shorter by as much, as if the noise were larger. Needs no GPU.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from gpu_tasks import Task, tasks
from torch import Tensor, nn

from sfumato.learning.dp_sgd.kernels.products import gram_norms

MATRIX = [1, 1, 1, 1, 0, 0, 1, 1]


def factors(task: Task, examples: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Activations and output gradients of every matrix, in bfloat16."""
    model, found = task.model("cpu"), dict[str, tuple[Tensor, Tensor]]()

    def watch(name: str, module: nn.Module) -> None:
        def forward(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            x = inputs[0].detach().bfloat16()
            output.register_hook(lambda g: found.__setitem__(name, (x, g.detach().bfloat16())))

        module.register_forward_hook(forward)

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            watch(name, module)
    x, y = task.batch(examples, "cpu")
    task.loss("bf16", "cpu")(model, x, y).sum().backward()
    return {name: pair for name, pair in found.items() if pair[0].ndim == 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--tasks", default="gpt,vit")
    parser.add_argument("--examples", type=int, default=2)
    given = parser.parse_args()
    for name in given.tasks.split(","):
        torch.manual_seed(0)
        exact, charged, ratios = 0.0, 0.0, []
        for x, g in factors(tasks()[name], given.examples).values():
            pair = (x.unsqueeze(2), g.unsqueeze(2), MATRIX, given.examples)
            without, within = gram_norms(*pair).double(), gram_norms(*pair, rounded=True).double()
            exact, charged = exact + without, charged + within
            ratios += (within / without).sqrt().tolist()
        whole = (charged / exact).sqrt().mean()
        print(
            f"{name}: norms longer by {100 * (whole - 1):.2f} %; single matrices by "
            f"{100 * (statistics.median(ratios) - 1):.2f} % (median), "
            f"{100 * (max(ratios) - 1):.2f} % (most)"
        )


if __name__ == "__main__":
    main()
