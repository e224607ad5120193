import json
import subprocess
import sys

import pytest

from sfumato.audit.claims import Claim, Kind, claim, claims, claims_table, register, run_claims
from sfumato.audit.claims import registry as room
from sfumato.audit.findings import Finding
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours

PROMISE = Guarantee(1.0, 0.0, Neighbours.ADD_REMOVE)


def a_claim(name="noise-forgotten", found=2.0):
    return Claim(
        name=name,
        title="Noise forgotten",
        statement="No noise | is private.",
        source="Nowhere",
        claimed=PROMISE,
        audit=lambda: Finding(found, 0.0, 1.0, "exact", PROMISE),
        corrected="Add some:",
        holds=PROMISE,
        corrected_audit=lambda: Finding(0.5, 0.0, 1.0, "exact", PROMISE),
        kind=Kind.EXACT,
    )


@pytest.fixture
def own_registry(monkeypatch):
    claims()  # the topics register themselves once
    monkeypatch.setattr(room, "_BUILDERS", dict(room._BUILDERS))


def test_names_are_unique_and_every_claim_says_where_it_was_printed():
    known = claims()
    assert len({c.name for c in known}) == len(known) >= 46
    assert len({c.title for c in known}) == len(known)
    for c in known:
        assert c.statement.rstrip().endswith((".", ")"))
        assert c.source
        assert c.corrected


def test_another_room_adds_a_claim(own_registry):
    before = len(claims())

    @register
    def noise_forgotten():
        return a_claim()

    assert len(claims()) == before + 1
    (result,) = run_claims(["noise-forgotten"])
    assert result.refuted
    assert result.repaired
    assert noise_forgotten() is claim("noise-forgotten")  # built once
    assert claims()[-1].name == "noise-forgotten"


@pytest.mark.slow
def test_the_order_does_not_depend_on_what_was_imported_first():
    code = (
        "import sfumato.audit.claims.implementation\n"
        "from sfumato.audit.claims import claims\n"
        "print(*(c.name for c in claims()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [c.name for c in claims()]


def test_a_claim_that_holds_is_not_refuted():
    assert not a_claim(found=1.0).run().refuted


def test_a_name_is_registered_once(own_registry):
    def noise_forgotten():
        return a_claim()

    register(noise_forgotten)
    with pytest.raises(ValueError, match="not registered yet"):
        register(noise_forgotten)


def test_a_function_and_its_claim_have_one_name(own_registry):
    @register
    def noise_remembered():
        return a_claim()

    with pytest.raises(ValueError, match="noise-remembered"):
        claim("noise-remembered")


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match="exponential-without-the-2"):
        claim("nonsense")


@pytest.mark.parametrize("name", ["", "Two Words", "ends-", "under_score"])
def test_a_name_is_a_slug(name):
    with pytest.raises(ValueError, match="hyphens"):
        a_claim(name)


def test_the_table_has_a_row_for_each_result():
    lines = claims_table([a_claim().run()]).splitlines()
    assert len(lines) == 3
    assert lines[0].count("|") == lines[1].count("|") == 7
    assert "No noise \\| is private." in lines[2]
    assert "| ε 1 | ε 2 | exact |" in lines[2]


def test_a_result_is_a_record():
    data = json.loads(json.dumps(a_claim().run().to_dict()))
    assert data["name"] == "noise-forgotten"
    assert data["refuted"] is True
    assert data["found"]["epsilon_at_least"] == 2.0
    assert data["claimed"]["neighbours"] == "add-remove"
