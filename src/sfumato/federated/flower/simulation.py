"""Coordinator and participants on one machine, in Flower's simulator.

``lead`` runs in this process, in a thread; participants run in Ray's worker processes. What a
participant stores in ``state`` stays with her between messages; she is made anew for each.

Ray moves ``make`` to its workers by pickling it: everything here trusts everything else. That is
what a simulation is; a deployment (:mod:`~sfumato.federated.flower.deployment`) never unpickles.
"""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from flwr.serverapp import Grid, ServerApp

from sfumato.core import validation
from sfumato.federated.flower.client import Make, client_app
from sfumato.federated.flower.grid import GridEngine
from sfumato.federated.flower.quiet import hushed, unchanged_environment, without_warnings

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context

    from sfumato.federated.exchange import Engine

__all__ = ["simulate"]

T = TypeVar("T")


def simulate(
    lead: Callable[[Engine], T],
    make: Make,
    clients: int,
    *,
    workers: int | None = None,
    gpus_per_client: float = 0.0,
    most_bytes: int | None = None,
) -> T:
    """Runs a protocol among virtual participants, and returns what its coordinator returned.

    Args:
        lead: the coordinator's part. It is called once all participants are there.
        make: makes a participant; her node's configuration holds ``partition-id`` (0 to
            ``clients`` - 1) and ``num-partitions``.
        clients: how many there are.
        workers: how many answer at the same time; as many as there are processors if None.
        gpus_per_client: the share of a GPU that each one needs.
        most_bytes: a reply longer than this counts as none.
    """
    clients = validation.count("clients", clients)
    workers = validation.count("workers", workers or os.cpu_count() or 1)
    server = ServerApp()
    returned: list[T] = []

    @server.main()
    def main(grid: Grid, context: Context) -> None:  # pyright: ignore[reportUnusedFunction]
        engine = GridEngine(grid, lanes=1, most_bytes=most_bytes)  # all in memory: nobody blocks
        engine.wait_for(clients, timeout=60.0)
        returned.append(lead(engine))

    with unchanged_environment(), hushed():
        processes = _start_ray(min(workers, clients), gpus_per_client)
        try:
            _run(server, make, clients, gpus_per_client)
        finally:
            _end_ray(processes)
    return returned[0]


def _start_ray(workers: int, gpus_per_client: float) -> list[subprocess.Popen[bytes]]:
    """Before Flower does: with as many workers as are asked for, and without its words.

    Returns:
        Its processes, so that they can be waited for: Ray kills them and looks away.
    """
    with without_warnings():
        import ray
        from ray._private import worker

        if ray.is_initialized():
            raise RuntimeError("Ray runs in this process already: call ray.shutdown() first")
        options: dict[str, Any] = {} if gpus_per_client else {"num_gpus": 0}
        ray.init(
            num_cpus=workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            _node_ip_address="127.0.0.1",
            **options,
        )
        node: Any = getattr(worker, "_global_node", None)
        started = getattr(node, "all_processes", {}).values()
        gc.collect()  # files that Ray left open say so when they are collected: here, not later
        return [one.process for several in started for one in several]


def _end_ray(processes: list[subprocess.Popen[bytes]]) -> None:
    with without_warnings():
        import ray

        ray.shutdown()
        for process in processes:
            _reap(process)
        gc.collect()


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _run(server: ServerApp, make: Make, clients: int, gpus_per_client: float) -> None:
    from flwr.simulation import run_simulation as simulator
    from flwr.supercore.telemetry import EventType

    # The public run_simulation is this and a deprecation notice that recommends the command line.
    # With telemetry off its events go nowhere, but a file in the home directory and a process that
    # looks at the machine are made for them all the same: hence none are made.
    module: Any = sys.modules[simulator.__module__]
    event = module.event
    module.event = _no_event
    try:
        module._run_simulation(
            num_supernodes=clients,
            exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
            client_app=client_app(make),
            server_app=server,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": gpus_per_client}},
        )
    finally:
        module.event = event


def _no_event(*arguments: object, **details: object) -> None:
    return None
