"""Models read back from runs, or opened by participants; for nobody else."""

import stat

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sfumato.cli.main import main
from sfumato.federated import federated_model
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.in_process import InProcess
from sfumato.federated.noises import CentralNoise, LocalNoise
from sfumato.federated.sums import HiddenSum
from sfumato.learning.recipes.loading import load_run


def test_a_run_gives_its_model_back(small, tmp_path):
    federation = small.federation(rounds=2, noise=CentralNoise(1.0))
    coordinator = small.coordinator(federation, folder=tmp_path / "run")
    coordinator.train()
    model = federated_model(tmp_path / "run")
    assert not model.training
    np.testing.assert_array_equal(coordinator.layout.read(model), coordinator.state.weights)
    with pytest.raises(ValueError, match="sfumato federate attack"):
        load_run(tmp_path / "run")


def test_what_is_no_such_run_is_said_to_be_none(tmp_path):
    with pytest.raises(ValueError, match="must hold a finished run"):
        federated_model(tmp_path / "nowhere")


@pytest.fixture(scope="module")
def sealed(small, tmp_path_factory):
    pytest.importorskip("tenseal")
    from sfumato.federated.hidden import HiddenMember
    from sfumato.federated.secure.ckks_keys import CkksKeys

    folder, keys = tmp_path_factory.mktemp("hidden"), CkksKeys.generate()
    federation = small.federation(rounds=2, noise=LocalNoise(1.0, least=3), sums=HiddenSum())
    members = {n: HiddenMember(m, keys) for n, m in small.members(federation).items()}
    engine = InProcess(members)
    Coordinator(federation, engine, folder=folder / "run", public_key=keys.public()).train()
    federation.save(folder / "plan.json")
    (folder / "sums.key").write_bytes(keys.to_bytes())
    (folder / "other.key").write_bytes(CkksKeys.generate().to_bytes())
    (folder / "sums.key.pub").write_bytes(keys.public().to_bytes())
    small.federation().save(folder / "plain.json")
    return folder


def opened(folder, *changes, capsys=None):
    words = {"plan": "plan.json", "key": "sums.key", "out": "model.safetensors"} | dict(changes)
    with pytest.raises(SystemExit) as ended:
        main(
            ["federate", "open", str(folder / words["plan"]),
             str(folder / "run/curator/model.ckks"), "--sum-key", str(folder / words["key"]),
             "-o", str(folder / words["out"])]
        )  # fmt: skip
    return ended.value.code


def test_a_participant_opens_the_model_and_the_server_cannot(sealed, capsys):
    with pytest.raises(ValueError, match="encrypted"):
        federated_model(sealed / "run")
    assert opened(sealed) == 0
    written = sealed / "model.safetensors"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert any(bool(torch.any(each != 0)) for each in load_file(written).values())
    capsys.readouterr()
    for change, said in (
        (("out", "model.safetensors"), "must be a new file"),
        (("plan", "plain.json"), "hidden sums"),
        (("key", "sums.key.pub"), "secret key"),
        (("key", "other.key"), "key"),
    ):
        changes = [change] if change[0] == "out" else [change, ("out", "new")]
        assert opened(sealed, *changes) == 2
        assert said in capsys.readouterr().err
        assert not (sealed / "new").exists()
