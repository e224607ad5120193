"""DP-SGD engines beside plain training on one GPU: time and memory of a step, in one table.

    python benchmarks/dp_sgd_gpu.py --out results.jsonl [--tasks wrn,gpt] [--precisions bf16]
    python benchmarks/dp_sgd_gpu.py --out results.jsonl --together 8 --largest --memory 16
    python benchmarks/dp_sgd_gpu.py --table results.jsonl
    python benchmarks/dp_sgd_gpu.py --out /tmp/tiny.jsonl --device cpu --tiny      # a rehearsal

Tasks are described in gpu_tasks.py, engines in gpu_engines.py. Each engine runs in a process of its
own; results are appended to the file as they come, and what the file holds is not run again. With
``--together N``, so many processes compile and check at the same time, then wait; they are timed
one after the other, while no other does anything.

*Precision.* "tf32": float32 tensors, TF32 products allowed. "bf16": autocast to bfloat16 inside the
loss, for which TF32 is allowed, too. cuDNN may try which of its kernels is quickest.

*Time.* The median of single steps, each between two CUDA events, after warm-up; the host waits for
the device only at the end. *Memory.* The most that was allocated during those steps: parameters,
optimizer, batches and all. What CUDA graphs hold for themselves, which the allocator does not count
as allocated, is added. *Baseline.* The quickest of all plain candidates (eager or compiled,
channels last or not, CUDA graphs or not) at the same precision; both ratios are to that one run.

*Sums.* After the warm-up, and before anything is timed, each private engine's clipped sum is
checked on fresh examples: eight, repeated at random up to the full batch, so that the very code
that is timed is checked, against a loop over the eight, one backward pass each, clipped and added
up, all in float64. The clip norm is 0.7 times the median norm, so that a norm that is wrong, or
left out, shows. The error is that of the whole sum, relative, in L2; beside it stands the rounding:
how far off one ordinary backward pass of the same batch at the same precision is, its losses
weighted with the true clip factors. An engine is refused as wrong if its error is above twice the
rounding and above 5e-3 (tf32) or 3e-2 (bf16); or if its sum is longer or shorter than the ordinary
pass makes it by more than 5e-3 or 2e-2. (Rounding in bfloat16 moves the sum of a small residual
network by a sixth, in directions of its own, but hardly changes its length, while wrong norms do.)
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import apart

Result = dict[str, Any]
EXAMPLES = 8
TOLERATED = {"tf32": (5e-3, 5e-3), "bf16": (3e-2, 2e-2)}
WARM, MOST_WARM, SETTLE = 6, 20, 3


# --- one engine, in a process of its own ----------------------------------------------------------


def prepare(given: argparse.Namespace) -> None:
    import torch

    warnings.simplefilter("ignore")
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    if given.device == "cpu":
        torch.set_num_threads(2)
    elif given.memory:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, given.memory * 2**30 / total))


def check(engine, setting, precision) -> Result:
    """How far an engine's clipped sum is off, how far rounding explains it, and a verdict."""
    import torch
    from gpu_tasks import distance, length, reference, weighted_sum

    task, device = setting.task, setting.device
    twin = task.model(device)
    with torch.no_grad():
        for p, now in zip(twin.parameters(), setting.model.parameters(), strict=True):
            p.copy_(now)
    x, y = task.spread(EXAMPLES, device)
    index = torch.randperm(setting.rows, device=device) % EXAMPLES
    counts = torch.bincount(index, minlength=EXAMPLES).tolist()
    found = engine.clipped_sum(x[index], y[index])
    exact_x, exact_loss = x.double() if x.is_floating_point() else x, task.loss("float64", device)
    clip = setting.clip * (1 - engine.allowance)
    right, norms = reference(exact_loss, twin.double(), exact_x, y, counts, clip)
    weights = torch.tensor([min(1.0, clip / norm) for norm in norms], device=device)
    plain = weighted_sum(setting.loss, twin.float(), x[index], y[index], weights[index])
    error, rounding = distance(found, right), distance(plain, right)
    scale = length(found) / length(plain)
    result: Result = {"error": error, "rounding": rounding, "scale": scale}
    result["clipped"] = sum(norm > clip for norm in norms)
    most, off = TOLERATED[precision]
    if not (error <= max(most, 2 * rounding) and abs(scale - 1) <= off):
        result["failed"] = f"wrong sums (error {error:.2g}, length {scale:.3g} of what is right)"
    return result


def choose_clip(task, loss, device) -> float:
    from gpu_tasks import reference

    x, y = task.spread(EXAMPLES, device)
    _, norms = reference(loss, task.model(device), x, y, [1] * EXAMPLES, math.inf)
    return 0.7 * statistics.median(norms)


def build(given, rows, clip):
    """The setting and the engine."""
    from gpu_engines import ENGINES
    from gpu_tasks import Setting, tasks

    task = tasks(given.tiny)[given.tasks]
    loss = task.loss(given.precisions, given.device)
    clip = clip or choose_clip(task, loss, given.device)
    model = task.model(given.device)
    setting = Setting(task, model, loss, given.device, rows, clip, given.fastdp)
    return setting, ENGINES[given.engines](setting)


def synchronise(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def warm_up(engine, batches, device) -> int:
    """Steps until none takes much longer than the quickest: all is compiled by then."""
    times: list[float] = []
    while len(times) < WARM or (times[-1] > 2 * min(times) and len(times) < MOST_WARM):
        start = time.perf_counter()
        engine.step(*batches[len(times) % len(batches)])
        synchronise(device)
        times.append(time.perf_counter() - start)
    return len(times)


def timed(engine, batches, steps, device) -> list[float]:
    """Milliseconds of each step."""
    import torch

    if device == "cpu":
        times = []
        for i in range(steps):
            start = time.perf_counter()
            engine.step(*batches[i % len(batches)])
            times.append(1e3 * (time.perf_counter() - start))
        return times
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(steps)
    ]
    torch.cuda.synchronize()
    for i, (start, end) in enumerate(events):
        start.record()
        engine.step(*batches[i % len(batches)])
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def forget(device: str) -> None:
    """Lets go of what is no longer needed, and starts to measure memory anew."""
    gc.collect()
    if device != "cpu":
        import torch

        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_memory(device: str) -> int:
    """Bytes. CUDA graphs' own pools count in full: their inside is not "allocated" at replay."""
    if device == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    import torch

    held = torch.cuda.memory_snapshot()
    pools = [s for s in held if tuple(s.get("segment_pool_id", (0, 0))) != (0, 0)]
    hidden = sum(s["total_size"] - s["allocated_size"] for s in pools)
    return torch.cuda.max_memory_allocated() + hidden


def wait_for_turn(given: argparse.Namespace) -> None:
    """Says that all is ready; goes on when told to."""
    if given.turns:
        synchronise(given.device)
        print(apart.READY, flush=True)
        sys.stdin.readline()


def measure(given: argparse.Namespace) -> Result:
    """One engine: sums checked, then timed."""
    from gpu_tasks import tasks

    prepare(given)
    task = tasks(given.tiny)[given.tasks]
    rows = given.rows or task.rows
    setting, engine = build(given, rows, None)
    batches = [task.batch(rows, given.device) for _ in range(2)]
    result: Result = {"rows": rows, "warm": warm_up(engine, batches, given.device)}
    result["clip"] = setting.clip
    if engine.private:
        result |= check(engine, setting, given.precisions)
        if "failed" in result:
            return result
    wait_for_turn(given)
    for i in range(SETTLE):
        engine.step(*batches[i % 2])
    forget(given.device)
    times = timed(engine, batches, given.steps, given.device)
    result |= {"ms": statistics.median(times), "quartiles": statistics.quantiles(times, n=4)}
    result["bytes"] = peak_memory(given.device)
    return result


# --- the largest batch, each trial in a process of its own: what one leaves behind is no matter ---


def room(given: argparse.Namespace) -> float:
    """Bytes there are."""
    if given.memory or given.device == "cpu":
        return (given.memory or 1) * 2**30
    import torch

    return torch.cuda.get_device_properties(0).total_memory


def needed(given: argparse.Namespace) -> Result:
    """Bytes that three steps with ``--trial`` examples take; None if there are not so many."""
    if given.device == "cpu" and given.trial > 64:
        return {"needed": None}  # a rehearsal has no limit of its own
    prepare(given)
    setting, engine = build(given, given.trial, given.clip)
    batch = setting.task.batch(given.trial, given.device)
    for _ in range(3):
        engine.step(*batch)
    synchronise(given.device)
    return {"needed": peak_memory(given.device)}


def needed_apart(given: argparse.Namespace, job: tuple[str, str, str], rows: int, clip: float):
    """The same, in a process of its own.

    Raises:
        RuntimeError: if it ended for another reason than too little memory.
    """
    found = apart.Apart(given, job, trial=rows, clip=clip).result()
    if found.get("failed") == "out of memory":
        return None
    if "failed" in found:
        raise RuntimeError(found["failed"])
    used = found["needed"]
    print(f"{rows} rows: {(used or 0) / 2**20:.0f} MiB", file=sys.stderr, flush=True)
    return used


def with_largest(given: argparse.Namespace, job: tuple[str, str, str], result: Result) -> Result:
    """The result, with the largest batch where that was asked for and the engine runs."""
    if not given.largest or "failed" in result:
        return result
    clip, begin = result["clip"], given.guess or result["rows"]
    try:
        most = largest_batch(lambda n: needed_apart(given, job, n, clip), begin, room(given))
    except RuntimeError as error:
        return result | {"largest": f"? ({error})"}
    return result | {"largest": most}


def largest_batch(needed: Callable[[int], int | None], start: int, limit: float) -> int:
    """The largest batch that fits, to 6 %, in few trials: each compiles anew.

    Memory grows as a straight line, nearly: the next trial is where the line through the last two
    meets the limit, or half-way if that was too much.

    Args:
        needed: bytes of a batch, or None if it does not fit.
        start: a batch to begin with.
        limit: bytes there are.

    >>> tried = []
    >>> def line(n): tried.append(n); return 50 + 3 * n if 50 + 3 * n <= 3000 else None
    >>> largest_batch(line, 32, 3000), tried
    (983, [32, 657, 983, 1041])
    >>> largest_batch(lambda n: 1 if n <= 5 else None, 32, 3000)
    5
    """
    fitted, bad, n = [(0, 0)], 0, start
    while True:
        used = needed(n)
        if used is None:
            bad = n
        else:
            fitted.append((n, used))
        good = fitted[-1][0]
        if bad and bad - good <= max(1, 0.06 * good):
            return good
        n = max(good + 1, int(1.06 * good), predicted(fitted[-2:], limit))
        if bad and n >= bad:
            n = (good + bad) // 2


def predicted(fitted: list[tuple[int, int]], limit: float) -> int:
    """Where a line through two points meets the limit."""
    (n, before), (m, now) = [(0, 0), *fitted][-2:]
    slope = (now - before) / (m - n) if m > n else 0.0
    return int(m + (limit - now) / slope) if slope > 0 else 2 * m


# --- all of them ----------------------------------------------------------------------------------


def jobs(given: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Task, precision and engine, in the order in which they run."""
    from gpu_engines import ENGINES, engines_for
    from gpu_tasks import tasks

    known = tasks(given.tiny)
    engines = given.engines.split("/") if given.engines else None
    wanted = given.tasks.split(",") if given.tasks else list(known)
    refuse("tasks", wanted, known)
    refuse("engines", engines or [], ENGINES)
    refuse("precisions", given.precisions.split(","), TOLERATED)
    for name in wanted:
        for precision in given.precisions.split(","):
            yield from (
                (name, precision, engine)
                for engine in engines_for(known[name], bool(given.fastdp))
                if engines is None or engine in engines
            )


def refuse(what: str, given: list[str], known: Iterable[str]) -> None:
    """Ends with a message if some of these are unknown."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        sys.exit(f"unknown {what} {unknown}: choose from {' / '.join(known)}")


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def read(files: list[str]) -> list[Result]:
    lines = [line for f in files if Path(f).exists() for line in Path(f).read_text().splitlines()]
    return [json.loads(line) for line in lines]


def run_all(given: argparse.Namespace) -> None:
    import torch

    if given.device != "cpu" and not torch.cuda.is_available():
        sys.exit("no GPU here: --device cpu --tiny is a rehearsal without one")
    held = {(r["task"], r["precision"], r["engine"]) for r in read([given.out])}
    wanted = [job for job in jobs(given) if job not in held]
    alone = []
    for first in range(0, len(wanted), given.together):
        some = [apart.Apart(given, job) for job in wanted[first : first + given.together]]
        found: list[tuple[apart.Apart, Result]] = []
        for one in some:
            one.prepared()
        for one in some:
            result = one.result()
            if len(some) > 1 and result.get("failed") == "out of memory":
                alone.append(one.job)  # others held some of it
            else:
                found.append((one, result))
        for one, result in found:  # when all are timed, and nobody holds memory any more
            note(given, one, with_largest(given, one.job, result))
    for job in alone:
        one = apart.Apart(given, job)
        one.prepared()
        note(given, one, with_largest(given, job, one.result()))


def note(given: argparse.Namespace, one: apart.Apart, result: Result) -> None:
    """Appends a result to the file, and shows it."""
    result = dict(zip(("task", "precision", "engine"), one.job, strict=True)) | result
    with Path(given.out).open("a") as file:
        file.write(json.dumps(result) + "\n")
    _, ms, _, mib, _, most, error = cells(result, None)
    shown = f"{ms} ms, {mib} MiB, largest {most or '-'}, error {error or '-'}"
    shown = result.get("failed", shown)
    took = time.perf_counter() - one.started
    print(f"{' | '.join(one.job)}: {shown}  ({took:.0f} s)", file=sys.stderr, flush=True)


def print_table(results: list[Result]) -> None:
    """Markdown; the last result of each engine counts."""
    from gpu_engines import ENGINES

    latest = {(r["task"], r["precision"], r["engine"]): r for r in results}
    order = {name: i for i, name in enumerate(ENGINES)}
    for task, precision in dict.fromkeys((t, p) for t, p, _ in latest):
        rows = [r for (t, p, _), r in latest.items() if (t, p) == (task, precision)]
        rows.sort(key=lambda r: order.get(r["engine"], 99))
        plain = [r for r in rows if r["engine"].startswith("plain") and "ms" in r]
        base = min(plain, key=lambda r: r["ms"]) if plain else None
        size = next((r["rows"] for r in rows if "rows" in r), "?")
        print(f"\n**{task}**, {precision}, batch {size}\n")
        print("| engine | ms | of plain | peak MiB | of plain | largest batch | error (rounding) |")
        print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
        for r in rows:
            print(f"| {' | '.join(cells(r, base))} |")


def cells(r: Result, base: Result | None) -> list[str]:
    name = f"**{r['engine']}** (baseline)" if r is base else r["engine"]
    error = f"{r['error']:.1e} ({r['rounding']:.1e})" if "error" in r else ""
    if "failed" in r:
        return [name, f"failed: {r['failed']}".replace("|", "/"), "", "", "", "", error]
    ratios = [f"{r[k] / base[k]:.2f}x" if base else "" for k in ("ms", "bytes")]
    largest = str(r.get("largest", ""))
    return [
        name, f"{r['ms']:.2f}", ratios[0], f"{r['bytes'] / 2**20:.0f}", ratios[1], largest, error
    ]  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    add = parser.add_argument
    add("--tasks", default="", help="some of them, by commas")
    add("--precisions", default="tf32,bf16")
    add("--engines", default="", help="some of them, by slashes: 'plain/sfumato+compile'")
    add("--steps", type=at_least_one, default=20, help="timed steps")
    add("--rows", type=int, default=0, help="another batch than the task's")
    add("--device", default="cuda")
    add("--tiny", action="store_true", help="small models and batches, for a rehearsal")
    add("--together", type=at_least_one, default=1, help="so many engines compile at a time")
    add("--largest", action="store_true", help="also find the largest batch that fits")
    add("--memory", type=float, default=0, help="GiB at most")
    add("--guess", type=int, default=0, help="where to begin the search for the largest batch")
    add("--fastdp", default="", help="a checkout of fast-differential-privacy")
    add("--limit", type=float, default=300, help="seconds for one engine")
    add("--out", default="dp_sgd_gpu.jsonl", help="results are appended here")
    add("--table", nargs="+", help="only print the table of these files")
    add("--one", action="store_true", help="one engine in this process; prints JSON")
    add("--trial", type=int, default=0, help="with --one: bytes that so many examples take")
    add("--clip", type=float, default=0.0, help="for that")
    add("--turns", action="store_true", help="wait for a line before the timing")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.one:
        print(json.dumps(needed(given) if given.trial else measure(given)))
    elif given.table:
        print_table(read(given.table))
    else:
        run_all(given)
        print_table(read([given.out]))


if __name__ == "__main__":
    main()
