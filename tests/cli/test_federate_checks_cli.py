"""What ``serve`` and ``join`` refuse before anybody listens or joins: one line, exit code 2."""

import json
import shutil
import socket

import pytest

from sfumato.cli.main import main
from sfumato.core.events import GaussianEvent
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.federation import Federation
from sfumato.federated.in_process import InProcess
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise
from sfumato.federated.sums import HiddenSum, MaskedSum
from sfumato.federated.works import ClientUpdates, LotGradients
from sfumato.ledger import Budget, Ledger

pytest.importorskip("flwr")

NAMES = ("ward", "clinic", "lab")


def planned(noise=None, **more):
    given = {
        "shape": (1, 8, 8), "classes": 10, "participants": 3, "rounds": 4,
        "noise": noise or LocalNoise(1.0, least=1),
        "work": LotGradients(lot_rate=0.2, clip=1.0, records=1437),
    }  # fmt: skip
    return Federation("linear", **given | more)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    from sfumato.federated.member_keys import MemberKeys, write_directory

    folder = tmp_path_factory.mktemp("keys")
    made = [MemberKeys.make(folder / name, name) for name in NAMES]
    write_directory(folder / "directory.json", [each.identity_public for each in made])
    write_directory(folder / "two.json", [each.identity_public for each in made[:2]])
    return folder


@pytest.fixture
def here(tmp_path, keys, monkeypatch):
    """A folder with a plan, three members' keys, and ledgers."""
    shutil.copytree(keys, tmp_path, dirs_exist_ok=True)
    planned().save(tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys, *arguments):
    """What is said; one line, and nothing is left running."""
    with pytest.raises(SystemExit) as ended:
        main(["federate", *map(str, arguments)])
    told = capsys.readouterr()
    assert ended.value.code == 2, told.err
    assert told.err.count("\n") == 1, told.err
    assert told.err.startswith("sfumato: ")
    assert "Traceback" not in told.err
    assert told.out == ""
    return told.err


def nodes(*names):
    return [word for name in names or NAMES for word in ("--node", f"{name}/node.pub")]


def serve(capsys, *more, keys=None, folder="server"):
    given = nodes() if keys is None else keys
    return refused(capsys, "serve", "plan.json", "--folder", folder, *given, *more)


def join(capsys, here, *more, authority="ca.pem", address="127.0.0.1:1", data="digits"):
    from sfumato.federated.flower.certificates import make_certificates

    shutil.copy(make_certificates(here / "made").authority, here / "ca.pem")
    return refused(
        capsys, "join", "plan.json", "--keys", "ward", "--address", address, "--authority",
        authority, "--data", data, *more,
    )  # fmt: skip


# --- serve: ledgers -----------------------------------------------------------------------------


def test_a_ledger_that_is_not_there(capsys, here):
    said = serve(capsys, "--ledger", "no.db", "--dataset", "models")
    assert "no ledger at" in said
    assert not (here / "no.db").exists()
    assert not (here / "server").exists()


def test_a_dataset_that_is_not_in_it_or_not_named(capsys, here):
    Ledger(here / "l.db").create("models", Budget(50.0, 1e-5))
    assert "no dataset 'other'" in serve(capsys, "--ledger", "l.db", "--dataset", "other")
    assert "--dataset must be given" in serve(capsys, "--ledger", "l.db")
    assert "must come with --ledger" in serve(capsys, "--dataset", "models")


def test_a_budget_of_another_unit_or_relation(capsys, here):
    book = Ledger(here / "l.db")
    book.create("clients", Budget(50.0, 1e-5), unit="client")
    book.create("plain", Budget(50.0, 1e-5), unit="client", neighbours="add-remove")
    said = serve(capsys, "--ledger", "l.db", "--dataset", "clients")
    assert "protects one record" in said
    assert "--unit record --neighbours add-remove" in said
    planned(work=ClientUpdates()).save(here / "plan.json")
    said = serve(capsys, "--ledger", "l.db", "--dataset", "plain")
    assert "zero-out neighbours" in said
    assert "--unit client --neighbours zero-out" in said


def test_a_budget_that_does_not_pay_for_all_rounds(capsys, here):
    book = Ledger(here / "l.db")
    book.create("small", Budget(1.0, 1e-5))
    said = serve(capsys, "--ledger", "l.db", "--dataset", "small")
    assert "this plan will read epsilon" in said
    assert "has 1 left" in said
    assert "0 rounds" in said
    enough = float(said.partition("(epsilon ")[2].split()[0])
    book.create("enough", Budget(enough, 1e-5))
    book.create("closed", Budget(enough, 1e-5), closed=True)
    book.create("shared", Budget(enough, 1e-5))
    with book.spend("shared", GaussianEvent(3.0)) as spending:
        spending.commit()
    # The next refusal is another one: this budget is enough.
    more = ("--data", "nothing")
    assert "--data" in serve(capsys, "--ledger", "l.db", "--dataset", "enough", *more)
    assert "has 0 left" in serve(capsys, "--ledger", "l.db", "--dataset", "closed")
    assert "will read" in serve(capsys, "--ledger", "l.db", "--dataset", "shared")
    assert [e.kind for e in book.history("small")] == ["open"]


def test_rounds_without_noise_have_no_ledger(capsys, here):
    planned(NoNoise()).save(here / "plan.json")
    Ledger(here / "l.db").create("models", Budget(1.0, 1e-5))
    assert "without noise" in serve(capsys, "--ledger", "l.db", "--dataset", "models")


# --- serve: folders -----------------------------------------------------------------------------


def run_in(folder, federation, rounds_left=0):
    """A run of this federation in a server's folder, cut off before the last rounds."""
    import torch

    model = LocalModel(federation.make_model())
    rows = LocalData(model, torch.zeros(4, 1, 8, 8), torch.zeros(4, dtype=torch.int64))
    members = {name: Member(federation, rows, name=name) for name in NAMES}

    def watch(facts):
        if facts.number == facts.rounds - rounds_left:
            raise KeyboardInterrupt

    coordinator = Coordinator(federation, InProcess(members), folder=folder / "run", watch=watch)
    if rounds_left:
        with pytest.raises(KeyboardInterrupt):
            coordinator.train()
    else:
        coordinator._watch = lambda facts: None
        coordinator.train()


def test_a_folder_with_a_finished_run_or_with_another(capsys, here):
    run_in(here / "done", planned())
    assert "finished run" in serve(capsys, folder="done")
    run_in(here / "other", planned(rounds=5), rounds_left=1)
    assert "of another" in serve(capsys, folder="other")
    assert "participant's keys" in serve(capsys, folder="ward")
    assert "is a file" in serve(capsys, folder="plan.json")


def test_a_run_that_was_cut_off_needs_a_budget_for_the_rest_alone(capsys, here):
    from sfumato.cli.federate_checking import check_server_ledger, rounds_sent

    run_in(here / "server", planned(), rounds_left=1)
    assert rounds_sent(here / "server") == 3
    assert rounds_sent(here / "nowhere") == 0
    book = Ledger(here / "l.db")
    event = planned().view("released models").event.event
    needed = book.create("one", Budget(5.0, 1e-5)) or book.preview("one", event).reading
    book.create("models", Budget(needed * 1.01, 1e-5))
    check_server_ledger(planned(), str(here / "l.db"), "models", "", 3)
    with pytest.raises(ValueError, match="the 2 rounds that are left will read"):
        check_server_ledger(planned(), str(here / "l.db"), "models", "", 2)


def test_a_run_goes_on_with_the_budget_that_it_began_with(capsys, here):
    run_in(here / "server", planned(), rounds_left=1)
    Ledger(here / "l.db").create("models", Budget(50.0, 1e-5))
    said = serve(capsys, "--ledger", "l.db", "--dataset", "models")
    assert "began with, none at all" in said


# --- serve: keys --------------------------------------------------------------------------------


def test_keys_that_are_no_node_keys(capsys, here):
    def with_(*words):
        return [*nodes("clinic", "lab"), "--node", *words]

    said = serve(capsys, keys=with_("ward/node"))
    assert "private key" in said
    assert "give ward/node.pub" in said
    said = serve(capsys, keys=with_("ward/identity.pub"))
    assert "identity key" in said
    assert "node.pub" in said
    assert "identity key" in serve(capsys, keys=with_("ward/identity"))
    assert "no node's public key" in serve(capsys, keys=with_("plan.json"))
    assert "there is no nowhere.pub" in serve(capsys, keys=with_("nowhere.pub"))


def test_as_many_keys_as_participants_and_no_key_twice(capsys, here):
    assert "3 participants, got 2" in serve(capsys, keys=nodes("ward", "lab"))
    (here / "copy.pub").write_text((here / "ward/node.pub").read_text().strip() + " a comment\n")
    said = serve(capsys, keys=[*nodes("ward", "lab"), "--node", "copy.pub"])
    assert "are the same" in said


def test_with_how_many_to_begin(capsys, here):
    assert "at most the plan's 3" in serve(capsys, "--least", 4)
    assert "--least must be at least 2" in serve(capsys, "--least", 1)  # one, and who looks
    planned(CentralNoise(1.0)).save(here / "plan.json")
    assert "--least must be at least 1" in serve(capsys, "--least", 0)


def test_the_directory_of_masked_sums(capsys, here):
    masked = planned(SharedNoise(2.0, least=2), sums=MaskedSum(3))
    assert "no masked sums" in serve(capsys, "--directory", "directory.json")
    masked.save(here / "plan.json")
    assert "--directory must be given" in serve(capsys)
    assert "must be a directory" in serve(capsys, "--directory", "plan.json")
    assert "must be a directory" in serve(capsys, "--directory", "ward")
    assert "No such file" in serve(capsys, "--directory", "nowhere.json")
    assert "holds 2" in serve(capsys, "--directory", "two.json")


def test_the_key_of_hidden_sums(capsys, here):
    pytest.importorskip("tenseal")
    assert "no hidden sums" in serve(capsys, "--sum-key", "sums.key")
    planned(sums=HiddenSum()).save(here / "plan.json")
    assert "--sum-key must be given" in serve(capsys)
    with pytest.raises(SystemExit):
        main(["federate", "sum-key", "sums.key"])
    capsys.readouterr()
    said = serve(capsys, "--sum-key", "sums.key")
    assert "holds the secret one" in said
    assert "give sums.key.pub" in said
    assert "is none" in serve(capsys, "--sum-key", "plan.json")
    assert "public one" in join(capsys, here, "--sum-key", "sums.key.pub")
    assert "is not: give" in join(capsys, here, "--sum-key", "plan.json")


# --- serve: the network, and data ---------------------------------------------------------------


def test_ports_and_hosts(capsys, here):
    assert "--port must be" in serve(capsys, "--port", 65_536)
    assert "--port must be" in serve(capsys, "--port", -1)
    assert "of this machine" in serve(capsys, "--host", "192.0.2.7")
    assert "of this machine" in serve(capsys, "--host", "no such host")
    with socket.socket() as somebody:
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        port = somebody.getsockname()[1]
        assert "somebody listens" in serve(capsys, "--port", port)
        (here / "server/transport").mkdir(parents=True)
        (here / "server/transport/port").write_text(str(port))
        assert "somebody listens" in serve(capsys)  # the one that is kept


def test_data_that_the_model_is_not_for(capsys, here):
    assert "--data must be one of" in serve(capsys, "--data", "nothing")
    planned(shape=(1, 28, 28)).save(here / "plan.json")
    assert "1 x 28 x 28" in serve(capsys, "--data", "digits")
    planned(classes=9).save(here / "plan.json")
    assert "9 classes" in serve(capsys, "--data", "digits")
    assert not (here / "server").exists()
    assert "timeout" in serve(capsys, "--timeout", 0)
    assert "patience" in serve(capsys, "--patience", -1)


# --- join ---------------------------------------------------------------------------------------


def test_who_serves(capsys, here):
    for address in ("lab.example.org", "127.0.0.1:", ":8000", "https://lab:8000", "lab:99999"):
        assert "host:port" in join(capsys, here, address=address)
    assert "there is no nowhere.pem" in join(capsys, here, authority="nowhere.pem")
    assert "is none" in join(capsys, here, authority="plan.json")
    assert "private key" in join(capsys, here, authority="made/ca-key.pem")
    assert "there is no ward" in join(capsys, here, authority="ward")


def test_her_directory(capsys, here):
    planned(SharedNoise(2.0, least=2), sums=MaskedSum(3)).save(here / "plan.json")
    assert "--directory must be given" in join(capsys, here)
    assert "must be a directory" in join(capsys, here, "--directory", "plan.json")
    held = json.loads((here / "directory.json").read_text())
    (here / "swapped.json").write_text(json.dumps(held | {"ward": "12" * 32}))
    assert "holds another" in join(capsys, here, "--directory", "swapped.json")
    (here / "without.json").write_text(
        json.dumps({name.replace("ward", "x"): key for name, key in held.items()})
    )
    assert "must hold 'ward'" in join(capsys, here, "--directory", "without.json")


def test_her_ledger(capsys, here):
    Ledger(here / "l.db").create("patients", Budget(50.0, 1e-5))
    assert "nothing is charged" in join(capsys, here, "--dataset", "patients")
    assert "--dataset must be given" in join(capsys, here, "--ledger", "l.db")
    assert "no dataset 'x'" in join(capsys, here, "--ledger", "l.db", "--dataset", "x")
    assert "no ledger at" in join(capsys, here, "--ledger", "no.db", "--dataset", "x")
    planned(CentralNoise(1.0)).save(here / "plan.json")
    assert "without noise" in join(capsys, here, "--ledger", "l.db", "--dataset", "patients")


def test_a_budget_that_ends_before_the_rounds_is_told(here):
    from sfumato.cli.federate_checking import check_member_ledger

    book = Ledger(here / "l.db")
    book.create("small", Budget(2.5, 1e-5))
    book.create("large", Budget(50.0, 1e-5))
    place = str(here / "l.db")
    assert "answers of 4" in check_member_ledger(planned(), place, "small")
    assert check_member_ledger(planned(), place, "large") == ""
    assert check_member_ledger(planned(), None, "") == ""


def test_her_data(capsys, here):
    assert "must be one of" in join(capsys, here, data="nothing")
    assert "--part must be" in join(capsys, here, "--part", "3/3")
    own = ("--part", "0/3", "--declared", "patients.toml")
    assert "depends on all of them" in join(capsys, here, *own, data="patients.csv")
    planned(shape=(1, 28, 28)).save(here / "plan.json")
    assert "1 x 28 x 28" in join(capsys, here)
    planned(classes=9).save(here / "plan.json")
    assert "9 classes" in join(capsys, here)
    assert not (here / "ward/node-files").exists()


def test_a_key_that_was_lost_is_not_made_anew_in_silence(capsys, here):
    for name in ("node.pub", "node", "identity"):
        before = (here / "ward" / name).read_bytes()
        (here / "ward" / name).unlink()
        assert f"{name} is missing" in join(capsys, here)
        assert not (here / "ward" / name).exists()
        (here / "ward" / name).write_bytes(before)
    assert "must hold a member's keys" in refused(
        capsys, "join", "plan.json", "--keys", "made", "--address", "a:1", "--authority", "ca.pem",
        "--data", "digits",
    )  # fmt: skip


def test_files_that_are_no_public_keys(capsys, here):
    said = refused(capsys, "directory", "new.json", "ward/identity.pub", "plan.json")
    assert "identity.pub" in said
    assert "different" in refused(capsys, "directory", "new.json", *["ward/identity.pub"] * 2)
    assert not (here / "new.json").exists()
    (here / "ward/identity.pub").write_text("{}")
    assert "identity.pub" in join(capsys, here)


# --- the door, and a participant's folder -------------------------------------------------------


def test_limits_that_the_federation_itself_could_not_keep(capsys, here):
    assert "at least 70 for 3 participants" in serve(capsys, "--most-connections", "69")
    assert "--most-message must be at least 1 (MiB)" in serve(capsys, "--most-message", "0.001")
    assert "most_message" in serve(capsys, "--most-message", "0")
    assert "most_strangers" in serve(capsys, "--most-strangers", "5000")
    assert "admission" in serve(capsys, "--admission", "0")
    assert "idle" in serve(capsys, "--idle", "-1")
    assert not (here / "server").exists()


def test_a_second_join_on_a_folder_changes_nothing(capsys, here):
    from sfumato.federated.flower.node_folder import NodeFolder

    def files():
        return {path: path.read_bytes() for path in (here / "ward").rglob("*") if path.is_file()}

    (here / "ward" / "plan.json").write_text("the first one's plan")
    before = files()
    with NodeFolder(here / "ward"):
        said = join(capsys, here)
    assert "no other join uses" in said
    assert "Nothing was changed" in said
    assert files() == before
    assert not (here / "ward" / "node-files").exists()
