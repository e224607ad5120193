"""Several real processes that run the same scenarios: ``python world.py folder count name ...``.

Torch is imported once; then every rank is a fork. Ranks find each other through a file and talk
over the loopback device. What each scenario returns is left in the folder, pickled, by rank.
"""

import os
import pickle
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))
import scenarios


def live(rank, count, folder, names):
    warnings.simplefilter("error")
    warnings.filterwarnings(
        "ignore", "FSDP2-wrapped module"
    )  # of views, which linear gives on CPUs
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting-{os.getppid()}", rank=rank, world_size=count,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    found = {}
    for name in names:
        torch.manual_seed(0)
        home = folder / name
        home.mkdir(exist_ok=True)
        try:
            found[name] = getattr(scenarios, name)(home)
        except Exception:
            found[name] = {"failed": traceback.format_exc()}
            break  # the others wait, or fail too
    (folder / f"rank-{rank}").write_bytes(pickle.dumps(found))
    if "failed" not in found[names[-1]]:
        dist.barrier()
    os._exit(0)


def main():
    folder, count, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    children = []
    for rank in range(count):
        child = os.fork()
        if not child:
            try:
                live(rank, count, folder, names)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))


if __name__ == "__main__":
    main()
