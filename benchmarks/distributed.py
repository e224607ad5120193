"""Private training on several ranks against one process: the same weights, time, memory, traffic.

    torchrun --nproc-per-node 1 benchmarks/distributed.py                 # a GPU, NCCL
    torchrun --nproc-per-node 8 benchmarks/distributed.py --task gpt      # eight of them
    torchrun --nproc-per-node 2 benchmarks/distributed.py --tiny          # processors, gloo

Each way trains twice. First without noise and with seeded lots, next to one process that does the
same: ``off`` is how far the weights end from that process's, over how far these moved. It must be
rounding alone, and the script fails where it is above ``--tolerance``. Then with noise, for the
time of a step (median, after the first ones), the most memory, and what a rank sends in a step:
what the trainer sends is counted, what ``fully_shard`` sends to gather parameters is computed, by
the ring algorithm's (W - 1) / W of the bytes. In the first rows every rank does the whole job by
itself.

Values do not change the time, so data are made up.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from gpu_tasks import Gpt, Task, tasks
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd.distributed import Alone, Ranks, find_ranks

WAYS = ("one process", "one process, compiled", "replicated", "replicated, compiled", "sharded")


class NoNoise:
    """For comparisons."""

    name, private = "none", False

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Zeros."""
        return torch.zeros_like(like)


@dataclass
class Found:
    """A row of the table."""

    way: str
    off: float = float("nan")
    milliseconds: float = float("nan")
    gibibytes: float = float("nan")
    sent: float = 0.0
    gathered: float = 0.0
    problem: str = ""


class Bench:
    """One task on the ranks that there are."""

    def __init__(self, task: Task, rows: int, steps: int, device: str, precision: str) -> None:
        self.task, self.rows, self.steps, self.device = task, rows, steps, device
        self.loss = task.loss(precision, device)
        torch.manual_seed(1)
        self.data = task.batch(4 * rows, device)
        if dist.is_initialized():  # every rank the same rows
            for leaf in self.data:
                dist.broadcast(leaf, 0)
        self._reference: dict[bool, dict[str, Tensor]] = {}

    def run(self, way: str) -> Found:
        """Both runs of one way."""
        found, compiled = Found(way), "compiled" in way
        moved = self._moved(compiled)
        found.off = 0.0 if way.startswith("one") else self._off(way, moved)
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer, times, sent = self._train(way, None, SYSTEM, self.steps)
        found.milliseconds = 1e3 * statistics.median(times[min(5, len(times) - 1) :])
        if self.device == "cuda":
            found.gibibytes = torch.cuda.max_memory_allocated() / 2**30
        found.sent = sent / self.steps
        if way == "sharded":
            found.gathered = self._gathered_bytes(trainer.model)
        return found

    def _off(self, way: str, moved: dict[str, Tensor]) -> float:
        weights = self._weights(self._train(way, NoNoise(), SeededCoins(1), 3)[0].model)
        reference = self._reference["compiled" in way]
        return _length({n: weights[n] - w for n, w in reference.items()}) / _length(moved)

    def _moved(self, compiled: bool) -> dict[str, Tensor]:
        start = self._weights(self.task.model(self.device))
        if compiled not in self._reference:
            way = WAYS[compiled]
            trained = self._train(way, NoNoise(), SeededCoins(1), 3)[0].model
            self._reference[compiled] = self._weights(trained)
        return {n: w - start[n] for n, w in self._reference[compiled].items()}

    def _train(
        self, way: str, noise: Any, coins: Any, steps: int
    ) -> tuple[DPSGD, list[float], int]:
        model = self.task.model(self.device)
        if way == "sharded":
            for block in model.blocks if isinstance(model, Gpt) else ():
                fully_shard(block)
            fully_shard(model)
        ranks: Ranks = Alone() if way.startswith("one") else find_ranks()
        # A step of ordinary length: weights must move for a comparison to say anything.
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=1.0, momentum=0.9)
        plan = TrainingPlan(PoissonLots(self.rows, 4 * self.rows), Flat(1.0), 1.0, steps, 1e-6)
        trainer = DPSGD(
            model, optimizer, self.data, plan=plan, noise=noise, coins=coins, progress=False,
            ranks=ranks,
        )  # fmt: skip
        times: list[float] = []
        last: list[Any] = [self._now(), ranks.sent]

        def after(step: int) -> None:
            now = self._now()
            times.append(now - last[0])
            last[0] = now

        before = ranks.sent
        trainer.fit(self.loss, compile="compiled" in way, after=after)
        return trainer, times, ranks.sent - before

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _weights(self, model: nn.Module) -> dict[str, Tensor]:
        held = {n: p.detach() for n, p in model.named_parameters()}
        whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in held.items()}
        return {n: p.cpu().clone() for n, p in whole.items()}

    def _gathered_bytes(self, model: nn.Module) -> float:
        """Forward and backward, but for the root, which stays whole between them."""
        count = dist.get_world_size()
        root = sum(p.numel() for n, p in model.named_parameters() if "blocks." not in n)
        rest = sum(p.numel() for p in model.parameters()) - root
        return 4 * (root + 2 * rest) * (count - 1) / count


def _length(tensors: dict[str, Tensor]) -> float:
    return float(torch.stack([t.double().norm() for t in tensors.values()]).norm())


def table(found: list[Found]) -> str:
    """In Markdown."""
    lines = [
        "| way | off | ms a step | GiB | MB sent a step | MB gathered a step |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        if row.problem:
            lines.append(f"| {row.way} | {row.problem} | | | | |")
            continue
        memory = "-" if row.gibibytes != row.gibibytes else f"{row.gibibytes:.2f}"
        lines.append(
            f"| {row.way} | {row.off:.1e} | {row.milliseconds:.1f} | {memory} | "
            f"{row.sent / 1e6:.1f} | {row.gathered / 1e6:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Every way, then the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=["gpt", "lora", "vit", "wrn"], default="gpt")
    parser.add_argument("--rows", type=int, help="rows of a lot, on all ranks together")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--tiny", action="store_true", help="seconds, on processors too")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    task = tasks(arguments.tiny)[arguments.task]
    rows = arguments.rows or (8 if arguments.tiny else task.rows * dist.get_world_size())
    steps = 4 if arguments.tiny else arguments.steps
    bench = Bench(task, rows, steps, device, arguments.precision)
    found: list[Found] = []
    for way in arguments.ways:
        if "compiled" in way and arguments.no_compile:
            continue
        found.append(bench.run(way))
        dist.barrier()
    if dist.get_rank() == 0:
        where = torch.cuda.get_device_name() if device == "cuda" else "processors"
        print(
            f"{task.name}, lots of {rows}, {dist.get_world_size()} ranks on {where}, "
            f"{dist.get_backend()}, torch {torch.__version__}, {arguments.precision}\n"
        )
        print(table(found), flush=True)
    wrong = [row.way for row in found if not row.off <= arguments.tolerance]
    dist.destroy_process_group()
    if wrong:
        sys.exit(f"not the same weights as one process: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
