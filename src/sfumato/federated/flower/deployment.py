"""A coordinator and participants in processes, and on machines, of their own.

The coordinator::

    keys = public_keys_that_participants_sent
    hosts = ["lab.example.org"]
    with Coordinator("runs/lab", host="0.0.0.0", port=8000, hosts=hosts, nodes=keys) as c:
        result = c.lead("hospital.training:lead", {"rounds": 20}, least=3).wait()

Each participant, who got ``ca.pem`` and sent ``ward.pub``::

    join("runs/ward", "lab.example.org:8000", "ca.pem", "ward", "hospital.training:participant")

``lead(engine, settings)`` is the coordinator's part; it returns bytes or None. After a crash of
the coordinator, a Coordinator on the same folder has the same address, certificates and registered
nodes; ``lead`` is called anew and goes on from a checkpoint of its own. Nodes come back by
themselves, and remember. All that is kept is in the folders, for their owners only.
"""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, final

from sfumato.core import validation
from sfumato.federated.flower.app_folder import write_app_folder, write_connection
from sfumato.federated.flower.apps import FOLDER, MAKE
from sfumato.federated.flower.certificates import make_certificates
from sfumato.federated.flower.client import STATE_FOLDER
from sfumato.federated.flower.leading import LeadFailed, Leading
from sfumato.federated.flower.limits import Limits
from sfumato.federated.flower.naming import check_name
from sfumato.federated.flower.node_folder import NodeFolder
from sfumato.federated.flower.node_keys import read_node_public
from sfumato.federated.flower.processes import Started, free_port, start, wait_until
from sfumato.federated.flower.quiet import environment
from sfumato.learning.durable import write_whole

__all__ = ["Coordinator", "LeadFailed", "Leading", "join", "node_command", "serve"]


@final
class Coordinator:
    """A SuperLink with TLS and node keys, in a process of its own.

    Args:
        folder: all it keeps: certificates, registered nodes, logs. The same folder again is the
            same coordinator again.
        host: the address it listens on; loopback unless told otherwise.
        port: 0 for a free one. It is remembered: later starts use the same.
        hosts: other names and addresses by which participants reach it, for its certificate.
        nodes: files with public keys that may come in from the start on (:meth:`register`).
        limits: what it takes in from the network.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        hosts: Iterable[str] = (),
        nodes: Iterable[str | Path] = (),
        limits: Limits | None = None,
    ) -> None:
        keys = [Path(key) for key in nodes]
        self._limits = limits or Limits()
        self.folder = Path(folder).resolve()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        named = [*hosts] if host in ("0.0.0.0", "::") else [host, *hosts]
        self._certificates = make_certificates(self.folder / "certificates", hosts=named)
        self._host, self._port = host, self._same_port(host, port)
        local = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        self.address = f"{local}:{self._port}"
        self._home = self.folder / "flower"
        write_connection(self._home, address=self.address, authority=self._certificates.authority)
        self._environment = {**environment(self._home), FOLDER: str(self.folder)}
        # Before anybody can ask: a node that comes early waits, and is not told that it is unknown.
        self._admit(*keys)
        self.superlink = self._start()
        try:
            for key in keys:
                self.register(key)
        except BaseException:
            self.stop()
            raise

    @property
    def authority(self) -> Path:
        """The certificate that participants need."""
        return self._certificates.authority

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def register(self, public_key: str | Path) -> None:
        """Lets a node in. Doing so twice does no harm."""
        key = Path(public_key)
        self._admit(key)
        text, known = key.read_text().strip(), self._lines("registered")
        if text in known:
            return
        self._flwr("supernode", "register", str(key.resolve()), "serving")
        self._keep("registered", [*known, text])

    def lead(
        self,
        function: str,
        settings: Mapping[str, Any] | None = None,
        *,
        least: int = 1,
        patience: float = 600.0,
        most_bytes: int | None = None,
    ) -> Leading:
        """Starts the coordinator's part, and returns at once.

        Args:
            function: ``module:function``, called with the engine and the settings.
            settings: JSON. They stay on this machine.
            least: how many participants must be online before it is called.
            patience: for how many seconds to wait for them.
            most_bytes: a reply longer than this counts as none.
        """
        check_name("function", function)
        plan = {
            "id": uuid.uuid4().hex,
            "lead": function,
            "settings": dict(settings or {}),
            "least": validation.at_least("least", least, 0),
            "patience": validation.positive("patience", patience),
            "most_bytes": most_bytes,
        }
        self._stop_earlier_run()
        write_whole(self.folder / "plan.json", json.dumps(plan, allow_nan=False).encode())
        app = write_app_folder(self.folder / "app" / "sfumato-run")
        said = self._flwr("run", str(app), "serving", "--format", "json")
        run = json.loads(said[said.index("{") :])["run-id"]
        (self.folder / "run-id").write_text(str(run))
        return Leading(self.folder, plan["id"], self.superlink)

    def stop(self) -> None:
        """Ends it. Its folder stays."""
        self.superlink.stop()

    def _admit(self, *public_keys: Path) -> None:
        """Puts keys on the list of those whom the door lets in."""
        lines = [*self._lines("admitted"), *self._lines("registered")]
        lines += [read_node_public(key) for key in public_keys]
        self._keep("admitted", list(dict.fromkeys(lines)))

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def _keep(self, name: str, lines: Iterable[str]) -> None:
        write_whole(self.folder / name, "".join(f"{line}\n" for line in lines).encode())

    def _start(self) -> Started:
        certificates = self._certificates
        superlink = start(
            "superlink",
            [
                *(sys.executable, "-m", "sfumato.federated.flower.superlink"),
                *(self._limits.to_json(), str(self.folder / "admitted")),
                *("--host", self._host, "--port", str(self._port)),
                *("--ssl-ca-certfile", str(certificates.authority)),
                *("--ssl-certfile", str(certificates.certificate)),
                *("--ssl-keyfile", str(certificates.key)),
                *("--database", str(self.folder / "superlink.db")),
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
            ],
            self.folder,
            environment=self._environment,
            bound=True,  # a coordinator that is killed leaves nobody at its port
        )
        try:
            wait_until("it answers", self._answers, timeout=120.0, processes=[superlink])
        except BaseException:
            superlink.kill()
            raise
        return superlink

    def _answers(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.authority))
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=5.0)
        try:
            connection.request("GET", "/v1/fleet/")
            connection.getresponse().read()
            return True
        except OSError:
            return False
        finally:
            connection.close()

    def _same_port(self, host: str, port: int) -> int:
        kept = self.folder / "port"
        if port == 0:
            port = int(kept.read_text()) if kept.exists() else free_port(host)
        kept.write_text(str(port))
        return port

    def _stop_earlier_run(self) -> None:
        """So that nobody acts on messages of a coordinator that was killed."""
        earlier = self.folder / "run-id"
        if earlier.exists():
            self._flwr("stop", earlier.read_text(), "serving", check=False)  # most have ended
            earlier.unlink()

    def _flwr(self, *arguments: str, check: bool = True) -> str:
        program = Path(sys.executable).with_name("flwr")
        done = subprocess.run(
            [str(program) if program.exists() else shutil.which("flwr") or "flwr", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120.0,
            check=False,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"flwr {arguments[0]} failed: {done.stdout}{done.stderr}")
        return done.stdout


def serve(
    folder: str | Path,
    lead: str,
    *,
    settings: Mapping[str, Any] | None = None,
    nodes: Iterable[str | Path] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    hosts: Iterable[str] = (),
    least: int = 1,
    patience: float = 600.0,
    timeout: float = 86_400.0,
    limits: Limits | None = None,
) -> bytes | None:
    """Runs a coordinator from start to end, and returns what ``lead`` returned.

    Args:
        folder: see :class:`Coordinator`.
        lead: see :meth:`Coordinator.lead`.
        settings: see :meth:`Coordinator.lead`.
        nodes: files with the public keys of those who may take part.
        host: see :class:`Coordinator`.
        port: see :class:`Coordinator`.
        hosts: see :class:`Coordinator`.
        least: see :meth:`Coordinator.lead`.
        patience: see :meth:`Coordinator.lead`.
        timeout: for how many seconds it may go on.
        limits: see :class:`Coordinator`.
    """
    check_name("lead", lead)
    with Coordinator(
        folder, host=host, port=port, hosts=hosts, nodes=nodes, limits=limits
    ) as coordinator:
        return coordinator.lead(lead, settings, least=least, patience=patience).wait(timeout)


def join(
    folder: str | Path,
    address: str,
    authority: str | Path,
    key: str | Path,
    make: str,
    node_config: Mapping[str, str | int | float | bool] | None = None,
    *,
    runner: Literal["sfumato", "flower"] = "sfumato",
    patience: float = 25.0,
) -> Started:
    """Starts one participant's node, and returns at once; for the others see :func:`node_command`.

    All that she keeps and her log are in ``folder``, which is hers until the node ends.

    Raises:
        BlockingIOError: if another node has the folder; nothing in it is changed then.
    """
    check_name("make", make)
    with NodeFolder(folder) as held:
        command, surroundings = node_command(
            held, address, authority, key, make, node_config, runner=runner, patience=patience
        )
        return start("node", command, held.files, environment=surroundings, handles=[held.handle])


def node_command(
    held: NodeFolder,
    address: str,
    authority: str | Path,
    key: str | Path,
    make: str,
    node_config: Mapping[str, str | int | float | bool] | None = None,
    *,
    runner: Literal["sfumato", "flower"] = "sfumato",
    patience: float = 25.0,
) -> tuple[list[str], dict[str, str]]:
    """The command of one participant's node, and its environment; what it needs is written.

    Args:
        held: her folder, which the node must go on to hold.
        address: the coordinator's ``host:port``.
        authority: the coordinator's ``ca.pem``.
        key: the node's private key (:func:`~sfumato.federated.flower.node_keys.make_node_key`).
        make: ``module:function`` that makes the participant from the node's configuration and what
            she remembers (:data:`~sfumato.federated.flower.client.Make`).
        node_config: whatever she needs to know, such as where her data are.
        runner: whose node: ours (:mod:`~sfumato.federated.flower.node`), or Flower's SuperNode,
            which is slower and runs whatever app the coordinator's side ships: for those who trust
            it with that.
        patience: for how many seconds our node tries to be let in.
    """
    folder = held.prepare()
    config = dict(node_config or {})
    surroundings = environment(folder / "flower")
    if runner == "flower":
        return _supernode(folder, address, authority, key, {MAKE: make, **config}), surroundings
    if runner != "sfumato":
        validation.fail("runner", "'sfumato' or 'flower'", runner)
    plan = {
        "folder": str(folder),
        "address": address,
        "authority": str(Path(authority).resolve()),
        "key": str(Path(key).resolve()),
        "make": make,
        "node_config": config,
        "patience": validation.non_negative("patience", patience),
    }
    write_whole(folder / "node.json", json.dumps(plan).encode())
    module = "sfumato.federated.flower.node"
    return [sys.executable, "-m", module, str(folder / "node.json")], surroundings


def _supernode(
    folder: Path,
    address: str,
    authority: str | Path,
    key: str | Path,
    config: Mapping[str, str | int | float | bool],
) -> list[str]:
    values = {STATE_FOLDER: str(folder / "state"), **config}
    return [
        str(Path(sys.executable).with_name("flower-supernode")),
        *("--superlink", address, "--root-certificates", str(Path(authority).resolve())),
        *("--auth-supernode-private-key", str(Path(key).resolve())),
        *("--port", str(free_port())),
        *("--node-config", " ".join(f"{name}={json.dumps(v)}" for name, v in values.items())),
    ]
