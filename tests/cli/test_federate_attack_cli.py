"""Attacks inside a federation: the participants that play in them, what each observer gets."""

import json
import re
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from sfumato.attacks.gan.adversary import GanAdversary, GanSettings
from sfumato.attacks.gradients.defences import Clipping
from sfumato.attacks.gradients.sharing import batch_gradient
from sfumato.cli import federate_attack_rows
from sfumato.cli.federate_attack import attack
from sfumato.cli.federate_attack_gan import run_gan
from sfumato.cli.federate_attack_members import DefendedMember, GanMember
from sfumato.cli.federate_attack_networks import NETWORKS, SMOOTH, smooth_cnn
from sfumato.cli.federate_attack_outsider import copy_model
from sfumato.cli.federate_attack_page import cautions, cell_name, matrix_table
from sfumato.cli.federate_attack_rows import OPEN, Row, Setting, all_rows, federation_for
from sfumato.cli.federate_attack_server import invert_round, play_round, server_floor
from sfumato.cli.federate_attack_world import world_of
from sfumato.core.randomness import SeededCoins
from sfumato.data import load_dataset
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.federation import Federation
from sfumato.federated.in_process import InProcess
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.sums import MaskedSum
from sfumato.federated.works import ClientUpdates, LotGradients

SHAPE = (1, 8, 8)
LEAKY = NETWORKS["leaky-cnn"]


@pytest.fixture(scope="module")
def world():
    torch.set_num_threads(1)
    return world_of(load_dataset("digits"), 0, 600)


def federation(work, participants=1, model="mlp", classes=10, **more):
    return Federation(model, SHAPE, classes, participants, 1, work, **more)


def order_of(made, model):
    return Order(made.digest, "run", 0, made.work.clip, model.layout.read(model.model))


# --- participants -------------------------------------------------------------------------------


def test_without_a_defence_she_sends_what_an_honest_member_sends(world):
    made = federation(ClientUpdates(steps=4, batch_size=1, rate=0.1, clip=OPEN))
    model = LocalModel(made.make_model())
    local = LocalData(model, world.private[0][:1], world.private[1][:1])
    order = order_of(made, model).to_bytes()
    honest, own = (
        Contribution.from_bytes(each.answer(order), model.layout.size).numbers
        for each in (Member(made, local), DefendedMember(made, local, whole=True))
    )
    assert np.linalg.norm(honest) > 0.01
    np.testing.assert_allclose(own, honest, atol=1e-6)


def test_her_defence_is_in_what_she_sends(world):
    made = federation(ClientUpdates(steps=1, batch_size=1, rate=0.5, clip=OPEN))
    model = LocalModel(made.make_model())
    local = LocalData(model, world.private[0][:4], world.private[1][:4])
    member = DefendedMember(made, local, [Clipping(0.01)], whole=True)
    sent = Contribution.from_bytes(
        member.answer(order_of(made, model).to_bytes()), model.layout.size
    )
    assert np.linalg.norm(sent.numbers) == pytest.approx(0.5 * 0.01, rel=1e-3)
    assert member.sent is not None
    assert member.sent.defence.endswith("clipped to 0.01")


def test_a_defended_member_wants_client_updates(world):
    made = federation(LotGradients(1.0, 1.0, 4))
    local = LocalData(LocalModel(made.make_model()), *world.private)
    with pytest.raises(ValueError, match="client updates"):
        DefendedMember(made, local)


@pytest.mark.parametrize("work", [ClientUpdates(clip=OPEN), LotGradients(0.5, 1.0, 50)])
def test_alone_the_adversary_makes_the_shared_model_hers(world, work):
    """Whatever the wire format: the shared weights move by her own change."""
    made = federation(work, model=SMOOTH, classes=11, server_rate=2.0)
    model = LocalModel(made.make_model())
    settings = GanSettings(steps=1, fakes=16, pictures=2)
    adversary = GanAdversary(SHAPE, 3, 10, settings=settings)
    own = world.private[0][:50].numpy(), world.private[1][:50].numpy()
    member = GanMember(made, adversary, own, model, steps=2, batch_size=8)
    coordinator = Coordinator(made, InProcess({"eve": member}), coins=SeededCoins(0))
    trained = coordinator.train()
    np.testing.assert_allclose(trained.weights, model.layout.read(model.model), atol=1e-5)
    assert adversary.result().rounds == 1


# --- what the server sees -----------------------------------------------------------------------


def test_the_server_sees_gradients_or_their_sum_only(world):
    made = federation(LotGradients(1.0, OPEN, 3), participants=3)
    model = LocalModel(made.make_model())
    people = {
        str(i): Member(
            made, LocalData(model, world.private[0][i : i + 1], world.private[1][i : i + 1])
        )
        for i in range(3)
    }
    single = play_round(made, model, people, 0)
    masked = replace(made, sums=MaskedSum(2))
    others = {name: Member(masked, one.local, name=name) for name, one in people.items()}
    (hidden,) = play_round(masked, model, others, 0)
    assert [one.members for one in single] == [("0",), ("1",), ("2",)]
    assert hidden.members == ("0", "1", "2")
    np.testing.assert_allclose(hidden.numbers, sum(one.numbers for one in single), atol=1e-5)
    model.layout.write(model.model, single[0].weights)
    inputs, labels = (part[:1] for part in world.private)
    found = model.layout.flat(batch_gradient(model.model, model.parameters, inputs, labels))
    np.testing.assert_allclose(single[0].numbers, found, atol=1e-5)


def inverted(world, row, batch=1, iterations=60, members=3):
    return invert_round(
        world, row, batch, network=LEAKY, members=members, victims=1, iterations=iterations
    )


@pytest.mark.slow
def test_a_message_gives_its_image_away_and_a_private_one_does_not(world):
    floor = server_floor(world, 1, 1)
    plain = inverted(world, Row("none"))
    private = inverted(world, Row("record", "record", epsilon=8.0))
    assert plain["value"] > 25 > floor
    assert private["value"] < floor
    assert plain["promises"] == {"server": None, "released models": None}
    assert 7.9 < private["promises"]["server"]["epsilon"] <= 8


def test_noise_by_the_server_does_not_protect_from_the_server(world):
    cell = inverted(world, Row("central", "record", epsilon=8.0, trusted=True))
    assert cell["value"] > 25
    assert cell["promises"]["server"] is None
    assert cell["promises"]["released models"]["epsilon"] <= 8


def test_a_secure_sum_of_one_protects_nobody(world):
    one, few = (inverted(world, Row("sum", "secure", members=n), iterations=60) for n in (1, 8))
    assert one["value"] > 20 > few["value"]
    assert (one["examples"], few["examples"]) == (1, 8)


def test_local_steps_are_differentiated_through(world):
    row = next(row for row in all_rows([8.0], [1]) if "local" in row.name)
    assert row.steps == 4
    assert inverted(world, row, iterations=60)["value"] > 20


# --- those who see models -----------------------------------------------------------------------


def test_a_gan_and_a_copy_are_scored(world):
    row = Row("clip", "own", (Clipping(1.0),))
    seen = []
    drawn = run_gan(world, row, rounds=2, told=seen.append)
    assert 0 <= drawn["value"] <= 1
    assert drawn["images"] == 32
    assert drawn["victim"] == "3"
    assert [facts.number for facts in seen] == [1, 2]
    assert not any(facts.refused or facts.traffic.silent for facts in seen)
    copied = copy_model(world, Row("none"), rounds=2, members=2, queries=64)
    assert copied["value"] > 0.5
    assert copied["queries"] == 64
    assert copied["interval"][0] <= copied["value"] <= copied["interval"][1]


def test_scores_stand_beside_what_they_must_be_read_with():
    row = Row("none")
    copied = {"value": 0.83, "constant": 0.61, "queries": 180, "accuracy": 0.31, "promises": {}}
    told = {cell_name("outsider", row.name): copied | {"promises": dict.fromkeys(
        ("server", "released models"))}}  # fmt: skip
    few, short, most = cautions(told, 1000)
    assert few.startswith("* The model under attack is right in less than half")
    assert "commonest class" in short
    assert "asked 180 of 1000 questions" in most
    assert "83 (61) %*" in [
        cell for column in matrix_table([row], told, "digits").columns for cell in column.cells
    ]
    learnt = {name: cell | {"accuracy": 0.9, "queries": 1000} for name, cell in told.items()}
    assert cautions(learnt, 1000) == [short]
    assert cautions({}, 1000) == []


def test_the_judge_sees_digits_and_not_noise(world):
    x, y = world.test
    named = world.judged(x.numpy()).argmax(axis=1)
    assert (named == y.numpy()).mean() > 0.85
    noise = np.random.default_rng(0).random((64, *SHAPE)).astype(np.float32) ** 4
    assert (world.judged(noise).argmax(axis=1) == 10).mean() > 0.9


# --- defences -----------------------------------------------------------------------------------


def test_every_row_is_calibrated_for_its_run():
    setting = Setting(SMOOTH, SHAPE, 10, 5, 7, 500, 0.1, 2, 16, 0.1)
    for row in all_rows([2.0], [1, 10]):
        made = federation_for(row, setting)
        server, released = (made.guarantee(who).epsilon for who in ("server", "released models"))
        assert released <= 2.0 if row.epsilon else released == np.inf
        assert server <= 2.0 if row.epsilon and not row.trusted else server == np.inf
    names = [row.name for row in all_rows([8.0, 1.0], [1])]
    assert len(set(names)) == len(names)


def test_networks_have_names_that_federations_know():
    for name in NETWORKS.values():
        made = Federation(name, (1, 28, 28), 10, 1, 1, ClientUpdates()).make_model()
        assert made(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    with pytest.raises(ValueError, match="4x4"):
        smooth_cnn((7,), 3)


def test_pictures_are_needed():
    with pytest.raises(ValueError, match="square pictures"):
        world_of(load_dataset("census2000"), 0, 10)


# --- the command --------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch):
    """The command with three defences, so that it is quick."""
    few = lambda epsilons, members: [  # noqa: E731
        Row("none"),
        Row(f"record DP, epsilon {epsilons[0]:g}", "record", epsilon=epsilons[0]),
        Row(f"secure sum of {members[0]}", "secure", members=members[0]),
    ]
    monkeypatch.setattr(federate_attack_rows, "all_rows", few)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(attack)

    def called(*words):
        few = ["--data", "digits", "--iterations", "3", "--rounds", "1", "--members", "2"]
        return CliRunner().invoke(app, [*few, *words])

    return called


@pytest.mark.slow
def test_a_page_for_the_curator_that_is_kept_cell_by_cell(command, tmp_path):
    out = tmp_path / "attacks"
    first = command("--only", "server", "--out", str(out))
    assert first.exit_code == 0, first.output
    assert "for the curator only" in first.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    for name in ("matrix.json", "matrix.png", "page.html"):
        assert stat.S_IMODE((out / name).stat().st_mode) == 0o600
    kept = json.loads((out / "matrix.json").read_text())
    assert len(kept["cells"]) == 6
    assert set(kept["floors"]) == {"one", "four"}
    kept["cells"]["one: none"]["value"] = 99.5
    (out / "matrix.json").write_text(json.dumps(kept))
    again = command("--only", "server", "--only", "outsider", "--out", str(out), "--json")
    found = json.loads(again.stdout)
    assert found["cells"]["one: none"]["value"] == 99.5  # it was not computed again
    assert len(found["cells"]) == 9
    assert found["cells"]["outsider: secure sum of 2"]["as"] == "outsider: none"
    text = (out / "page.html").read_text()
    assert text.index("Curator") < text.index("<table>")
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)
    other = command("--only", "server", "--out", str(out), "--seed", "5")
    assert other.exit_code != 0
    assert "seed 0 instead of 5" in str(other.exception)


def test_the_same_seed_gives_the_same_cells(world):
    private = Row("record", "record", epsilon=8.0)
    one, two = (inverted(world, private, iterations=5) for _ in range(2))
    assert one == two
    one, two = (run_gan(world, private, rounds=1) for _ in range(2))
    assert one == two


def test_only_known_attackers(command):
    found = command("--only", "thief")
    assert "server, gan, outsider" in str(found.exception)
