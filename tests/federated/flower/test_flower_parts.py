"""Certificates, node keys, processes, names, the app folder."""

from __future__ import annotations

import os
import signal
import ssl
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from sfumato.federated.flower.app_folder import write_app_folder, write_connection
from sfumato.federated.flower.certificates import make_certificates
from sfumato.federated.flower.naming import named
from sfumato.federated.flower.node_keys import make_node_key
from sfumato.federated.flower.processes import free_port, start, wait_until
from sfumato.federated.flower.quiet import QUIET, environment


def handshake(authority: Path, made: Any, host: str) -> None:
    """A TLS handshake in memory, as ``host``."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(made.certificate, made.key)
    trusting = ssl.create_default_context(cafile=str(authority))
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(up, down, server_side=True)
    client = trusting.wrap_bio(down, up, server_hostname=host)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


def test_certificates_hold_for_their_hosts_only(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "a", hosts=["lab.example.org", "192.0.2.7"])
    for host in ("localhost", "127.0.0.1", "::1", "lab.example.org", "192.0.2.7"):
        handshake(made.authority, made, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(made.authority, made, "elsewhere.example.org")


def test_another_authority_does_not_hold(tmp_path: Path) -> None:
    made = make_certificates(tmp_path / "a")
    other = make_certificates(tmp_path / "b")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(other.authority, made, "localhost")


def test_certificates_are_made_once_and_keys_are_private(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    before = made.certificate.read_bytes()
    assert make_certificates(tmp_path).certificate.read_bytes() == before
    for key in (made.key, tmp_path / "ca-key.pem"):
        assert key.stat().st_mode & 0o777 == 0o600
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value.ca


def test_node_keys_are_made_once(tmp_path: Path) -> None:
    key = make_node_key(tmp_path / "keys" / "ward")
    before = key.private.read_bytes()
    assert make_node_key(tmp_path / "keys" / "ward") == key
    assert key.private.read_bytes() == before


def test_a_process_is_ended_with_all_it_started(tmp_path: Path) -> None:
    child = "import subprocess, sys, time\n"
    grandchild = "import time; print('up', flush=True); time.sleep(600)"
    # The grandchild leaves the group, as Flower's executor does, and neither listens to SIGTERM.
    child += "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    child += f"p = subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session=True)"
    child += "\nprint('pid', p.pid, flush=True); time.sleep(600)"
    process = start("parent", [sys.executable, "-c", child], tmp_path)
    try:
        wait_until(
            "both are up", lambda: "up" in process.last_words(), timeout=60.0, processes=[process]
        )
        pid = int(process.last_words().split("pid ")[1].split()[0])
        process.stop(grace=0.2)
        assert not process.alive
        assert process.wait(1.0) == -signal.SIGKILL
        wait_until("its child is gone", lambda: not _runs(pid), timeout=30.0)
        assert process.log.stat().st_mode & 0o777 == 0o600
    finally:
        process.kill()


def test_what_it_leaves_behind_is_ended_too(tmp_path: Path) -> None:
    """It ends when it is asked to, and its child, in a group of its own, does not."""
    grandchild = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    grandchild += "print('up', flush=True); time.sleep(600)"
    child = "import subprocess, sys, time\n"
    child += f"p = subprocess.Popen([sys.executable, '-c', {grandchild!r}], start_new_session=True)"
    child += "\nprint('pid', p.pid, flush=True); time.sleep(600)"
    process = start("parent", [sys.executable, "-c", child], tmp_path)
    try:
        wait_until(
            "both are up", lambda: "up" in process.last_words(), timeout=60.0, processes=[process]
        )
        pid = int(process.last_words().split("pid ")[1].split()[0])
        process.stop(grace=30.0)
        assert process.wait(1.0) == -signal.SIGTERM
        wait_until("its child is gone", lambda: not _runs(pid), timeout=30.0)
    finally:
        process.kill()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_waiting_ends_when_what_is_waited_for_cannot_come(tmp_path: Path) -> None:
    process = start("loser", [sys.executable, "-c", "print('out of luck')"], tmp_path)
    with pytest.raises(RuntimeError, match="out of luck"):
        wait_until("it wins", lambda: False, timeout=60.0, processes=[process])
    with pytest.raises(TimeoutError, match="it wins"):
        wait_until("it wins", lambda: False, timeout=0.1)
    process.kill()
    assert 0 < free_port() < 65536


def test_a_process_that_takes_longer(tmp_path: Path) -> None:
    process = start("sleeper", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path)
    try:
        with pytest.raises(TimeoutError, match="sleeper"):
            process.wait(0.1)
    finally:
        process.kill()


@pytest.mark.parametrize(
    "text", ["", "math", "math:", ":sqrt", "math:sqrt()", "ma th:sqrt", "a:b:c"]
)
def test_names_of_no_function(text: str) -> None:
    with pytest.raises(ValueError, match="module:function"):
        named(text)


def test_names_of_nothing_that_can_be_called() -> None:
    with pytest.raises(ValueError, match="function"):
        named("math:pi")


def test_the_app_folder_refers_to_ours_and_ships_nothing_else(tmp_path: Path) -> None:
    folder = write_app_folder(tmp_path / "app")
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == ["pyproject.toml", "sfumato_run/__init__.py", "sfumato_run/apps.py"]
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["tool"]["flwr"]["app"]["components"]["serverapp"] == "sfumato_run.apps:server"
    assert project["project"]["dependencies"] == []


def test_the_connection_always_has_a_certificate(tmp_path: Path) -> None:
    write_connection(tmp_path, address="127.0.0.1:1", authority=tmp_path / "ca.pem")
    config = tomllib.loads((tmp_path / "config.toml").read_text())
    assert "insecure" not in config["superlink"]["serving"]
    assert config["superlink"]["serving"]["root-certificates"].endswith("ca.pem")


def test_the_environment_is_quiet(tmp_path: Path) -> None:
    surroundings = environment(tmp_path)
    assert all(surroundings[name] == value for name, value in QUIET.items())
    assert os.environ["FLWR_TELEMETRY_ENABLED"] == "0"
