"""A federation of real processes on loopback, over TLS, by the command line: killed, resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sfumato.core.events import EpsilonDeltaEvent
from sfumato.federated.federation import Federation
from sfumato.federated.noises import LocalNoise, SharedNoise
from sfumato.federated.sums import MaskedSum
from sfumato.federated.works import LotGradients
from sfumato.ledger import Budget, BudgetExceeded, Ledger

pytest.importorskip("flwr")

NAMES = ("ward", "clinic", "lab")
SFUMATO = Path(sys.executable).with_name("sfumato")


class Deployment:
    """Processes of one server and three participants, in one folder."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def start(self, name, *arguments, within=()):
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen(
            [*within, SFUMATO, "federate", *map(str, arguments)], cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        log.close()

    def run(self, *arguments):
        command = [SFUMATO, "federate", *map(str, arguments)]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def stop(self):
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def rounds(self):
        path = self.folder / "server" / "rounds.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def wait_for(self, what, true, seconds=150):
        end = time.monotonic() + seconds
        while not true():
            told = {name: self.log(name)[-800:] for name in ("server", *NAMES)}
            assert time.monotonic() < end, f"{what}: {told}"
            time.sleep(0.1)

    def serve(self, *more, progress=("--progress",)):
        nodes = [word for name in NAMES for word in ("--node", f"{name}/node.pub")]
        self.start(
            "server", "serve", "plan.json", "--folder", "server", *nodes, "--data", "digits",
            "--timeout", "60", *progress, *more,
        )  # fmt: skip
        self.wait_for("the server's port", (self.folder / "server/transport/port").exists)

    def join(self, name, *more, host="127.0.0.1", within=(), plan="plan.json"):
        address = f"{host}:" + (self.folder / "server/transport/port").read_text()
        self.start(
            name, "join", plan, "--keys", name, "--address", address, "--authority",
            "server/transport/certificates/ca.pem", "--data", "digits",
            "--part", f"{NAMES.index(name)}/3", *more, within=within,
        )  # fmt: skip


@pytest.fixture
def deployed(tmp_path):
    made = Deployment(tmp_path)
    for name in NAMES:
        made.run("keys", name)
    yield made
    made.stop()


def federation(rounds, noise, **more):
    return Federation(
        "linear", (1, 8, 8), 10, participants=3, rounds=rounds, noise=noise, server_rate=2.0,
        work=LotGradients(lot_rate=0.2, clip=1.0, records=1437), **more,
    )  # fmt: skip


def charges(path, dataset):
    return [e for e in Ledger(path, create=False).history(dataset) if e.kind == "reserve"]


@pytest.mark.slow
def test_killed_participants_and_a_killed_server_and_every_round_sent_is_charged(deployed):
    """One server, three participants, TLS: kill -9 of one and of the other, and the run ends."""
    folder, rounds = deployed.folder, 14
    planned = federation(rounds, LocalNoise(1.0, least=1))
    planned.save(folder / "plan.json")
    ledger = Ledger(folder / "server.db")
    ledger.create("models", Budget(50.0, 1e-5), unit="record")
    own = Ledger(folder / "ward.db")
    own.create("patients", Budget(50.0, 1e-5), unit="record")

    budget = ("--ledger", "server.db", "--dataset", "models")
    hers = ("--ledger", "ward.db", "--dataset", "patients")
    deployed.serve(*budget)
    deployed.join("ward", *hers)
    deployed.join("clinic")
    deployed.join("lab")
    deployed.wait_for("three rounds", lambda: deployed.rounds() >= 3)

    deployed.kill("clinic")
    so_far = deployed.rounds()
    deployed.wait_for("a round without her", lambda: deployed.rounds() >= so_far + 2)
    deployed.join("clinic")

    deployed.kill("server")
    sent = len(charges(folder / "server.db", "models"))
    assert sent >= deployed.rounds()  # what may have been seen is charged
    deployed.serve(*budget)
    deployed.wait_for("the end", (folder / "server/run/record.json").exists, 240)

    record = json.loads((folder / "server/run/record.json").read_text())
    assert record["facts"]["rounds_sent"] == rounds
    assert len(charges(folder / "server.db", "models")) == rounds
    heard = [json.loads(line) for line in (folder / "server/rounds.jsonl").read_text().splitlines()]
    assert [facts["number"] for facts in heard] == sorted({facts["number"] for facts in heard})
    assert {facts["survivors"] for facts in heard} <= {2, 3}
    assert min(facts["survivors"] for facts in heard) == 2
    # Her own ledger paid for each message of hers, and for no more than there were orders.
    paid = len(charges(folder / "ward.db", "patients"))
    assert len(heard) <= paid <= rounds
    assert record["facts"]["accuracy"] > 0.5


@pytest.mark.slow
def test_a_masked_sum_between_processes(deployed):
    folder = deployed.folder
    deployed.run("directory", "directory.json", *(f"{name}/identity.pub" for name in NAMES))
    federation(3, SharedNoise(2.0, least=2), sums=MaskedSum(3)).save(folder / "plan.json")
    masks = ("--directory", "directory.json")
    deployed.serve(*masks)
    for name in NAMES:
        deployed.join(name, *masks)
    deployed.wait_for("the end", (folder / "server/run/record.json").exists, 240)
    heard = [json.loads(line) for line in (folder / "server/rounds.jsonl").read_text().splitlines()]
    assert [(facts["survivors"], facts["used"]) for facts in heard] == [(3, True)] * 3


@pytest.mark.slow
def test_an_operator_hears_why_and_can_interrupt_and_go_on(deployed):
    """A refusal with its reason, a signal, a budget that somebody else spends in the middle."""
    folder, rounds = deployed.folder, 25
    planned = federation(rounds, LocalNoise(3.0, least=1))
    planned.save(folder / "plan.json")
    federation(rounds + 1, LocalNoise(3.0, least=1)).save(folder / "other.json")
    ledger = Ledger(folder / "server.db")
    ledger.create("models", Budget(9.0, 1e-5))
    budget = ("--ledger", "server.db", "--dataset", "models")
    deployed.serve(*budget, progress=())
    deployed.join("ward")
    deployed.join("clinic")
    deployed.wait_for("who is there", lambda: "waiting: 2 of 3 are here" in deployed.log("server"))
    deployed.join("lab", plan="other.json")
    digests = f"the order is of {planned.digest[:8]}, hers is "
    deployed.wait_for("her reason", lambda: digests in deployed.log("server"))
    assert "Traceback" not in deployed.log("lab")
    deployed.wait_for("three rounds", lambda: deployed.rounds() >= 3)

    inside = processes_in(folder)
    assert len(inside) > 4  # the command, three participants, the SuperLink and what it started
    server = deployed.running.pop("server")
    server.send_signal(signal.SIGINT)
    assert server.wait(60) != 0
    goes_on = f"goes on at round {len(charges(folder / 'server.db', 'models')) + 1} of {rounds}"
    assert goes_on in deployed.log("server")
    deployed.wait_for("its server app's end", lambda: len(processes_in(folder)) == 3)

    deployed.serve(*budget, progress=())
    deployed.wait_for("more rounds", lambda: deployed.rounds() >= 6)
    assert "going on at round" in deployed.log("server")
    spend_nearly_all(ledger, "models")
    server = deployed.running.pop("server")
    assert server.wait(120) == 2
    said = deployed.log("server").splitlines()[-1]
    assert f"of {rounds} rounds were sent and charged" in said
    assert "after the budget is raised" in said

    deployed.wait_for("her word", lambda: "nobody answers" in deployed.log("ward"))
    ward = deployed.running.pop("ward")
    ward.send_signal(signal.SIGINT)
    assert ward.wait(60) == 0
    assert "to be told so" in deployed.log("ward").splitlines()[-1]
    assert "Traceback" not in deployed.log("ward")
    assert "round 1 of run" in deployed.log("ward")


@pytest.mark.slow
def test_strangers_and_second_joins_are_told_in_one_line(deployed):
    """A key that nobody registered, and a folder that somebody uses; rounds go on."""
    folder = deployed.folder
    federation(400, LocalNoise(3.0, least=1)).save(folder / "plan.json")
    federation(3, LocalNoise(3.0, least=1)).save(folder / "other.json")
    deployed.run("keys", "stranger")
    deployed.serve("--least", "2", progress=())
    deployed.join("ward")
    deployed.join("clinic")
    deployed.wait_for("two rounds", lambda: deployed.rounds() >= 2)

    held = (folder / "ward/plan.json").read_bytes(), (folder / "ward/node-files/node.json").stat()
    again = subprocess.run(
        [SFUMATO, "federate", "join", "other.json", "--keys", "ward", "--address", "127.0.0.1:1",
         "--authority", "server/transport/certificates/ca.pem", "--data", "digits"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 2
    assert again.stderr.count("\n") == 1
    assert "no other join uses" in again.stderr
    assert (folder / "ward/plan.json").read_bytes() == held[0]
    assert (folder / "ward/node-files/node.json").stat().st_mtime_ns == held[1].st_mtime_ns

    shutil.copytree(folder / "stranger", folder / "aside")
    for name in ("node", "node.pub"):  # lab comes with another key than the one that she gave
        shutil.copy(folder / "aside" / name, folder / "lab" / name)
    deployed.join("lab")
    stranger = deployed.running.pop("lab")
    assert stranger.wait(120) == 3
    (said,) = [line for line in deployed.log("lab").splitlines() if "registered" in line]
    assert "--node" in said
    assert "Traceback" not in deployed.log("lab")
    so_far = deployed.rounds()
    deployed.wait_for("more rounds", lambda: deployed.rounds() > so_far)


def spend_nearly_all(ledger, dataset):
    """Somebody else does, while rounds are being charged."""
    for _ in range(10):
        event = EpsilonDeltaEvent(0.99 * ledger.status(dataset, declared=False).left, 0.0)
        try:
            with ledger.spend(dataset, event) as spending:
                spending.commit()
        except BudgetExceeded:
            continue


def processes_in(folder):
    """Those that run and have this folder in their command or their surroundings."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            told = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
            here = os.readlink(path / "cwd") == str(folder)
        except OSError:
            continue
        if (here or str(folder).encode() in told) and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


class Far:
    """A host of its own, at the other end of a cable that can be pulled: a network namespace."""

    here, there = "10.83.7.1", "10.83.7.2"

    def __init__(self):
        self.name = f"sfumato{os.getpid()}"
        self.cable = f"sf{os.getpid()}"[:12]

    def ip(self, *words):
        return subprocess.run(["ip", *words], check=True, capture_output=True)

    def __enter__(self):
        try:
            self.ip("netns", "add", self.name)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("needs the right to make network namespaces, and iproute2")
        far = f"{self.cable}f"
        self.ip("link", "add", self.cable, "type", "veth", "peer", "name", far, "netns", self.name)
        self.ip("addr", "add", f"{self.here}/24", "dev", self.cable)
        self.ip("link", "set", self.cable, "up")
        for words in (("addr", "add", f"{self.there}/24", "dev", far), ("link", "set", far, "up"),
                      ("link", "set", "lo", "up")):  # fmt: skip
            self.ip("-n", self.name, *words)
        return self

    def __exit__(self, *_):
        self.ip("netns", "del", self.name)

    def pull(self):
        self.ip("link", "set", self.cable, "down")

    def plug(self):
        self.ip("link", "set", self.cable, "up")


@pytest.mark.slow
def test_a_cut_network(deployed):
    """One participant on a host of her own; her cable is pulled, and plugged in again."""
    folder = deployed.folder
    federation(60, LocalNoise(1.0, least=1)).save(folder / "plan.json")
    with Far() as far:
        deployed.serve("--host", "0.0.0.0", "--host-name", far.here, "--host-name", "127.0.0.1")
        deployed.join("ward")
        deployed.join("lab")
        deployed.join("clinic", host=far.here, within=("ip", "netns", "exec", far.name))

        def survivors():
            text = (folder / "server/rounds.jsonl").read_text()
            return [json.loads(line)["survivors"] for line in text.splitlines()]

        deployed.wait_for("two rounds", lambda: deployed.rounds() >= 2)
        assert survivors()[-1] == 3
        far.pull()
        deployed.wait_for("rounds without her", lambda: survivors()[-2:] == [2, 2])
        far.plug()
        deployed.wait_for("a round with her", lambda: survivors()[-1] == 3)
        deployed.kill("clinic")
