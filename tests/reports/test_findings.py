"""What attacks and audits found."""

import copy

import pytest

from sfumato.core.pictures import pack_pictures
from sfumato.reports import findings
from sfumato.reports.documents import Missing, Paragraph, Picture, Table, facts_of, pieces_of
from sfumato.reports.drawing import drawn
from sfumato.reports.facts import NotOnRecord, Sources


@pytest.fixture
def known(files):
    """The private run's records, to be changed at will."""
    return {
        name.removeprefix("private/"): copy.deepcopy(value)
        for name, value in files.items()
        if name.startswith("private/")
    }


def sources(records, name="private"):
    return Sources(records, name)


def only(blocks, kind):
    return [block for block in blocks if isinstance(block, kind)]


def words(block):
    return "".join(str(piece) for piece in pieces_of(block.text))


# --- membership -----------------------------------------------------------------------------------


def test_the_strongest_attack_surely_finds_the_most_where_false_alarms_are_rare(known):
    attacks = known[findings.MEMBERSHIP]["attacks"]
    for attack in attacks:
        attack["auc"], attack["power"][0]["interval"] = 0.6, [0.01, 0.9]
    attacks[1]["power"][0]["interval"] = [0.02, 0.03]
    attacks[2]["auc"] = 0.99
    assert findings.best_attack(sources(known)) == f"{findings.MEMBERSHIP}#/attacks/1"
    for attack in attacks:  # not measured: then by AUC
        del attack["power"]
    assert findings.best_attack(sources(known)) == f"{findings.MEMBERSHIP}#/attacks/2"
    for attack in attacks:
        del attack["auc"]
    with pytest.raises(NotOnRecord, match="auc"):
        findings.best_attack(sources(known))
    with pytest.raises(NotOnRecord, match=r"private/curator/membership\.json"):
        findings.best_attack(sources({}))


def test_every_attack_is_in_the_table(known):
    blocks = findings.memberships({"private": sources(known)})
    picture, table, sure = blocks
    assert isinstance(picture, Picture)
    assert "confidence of 95.0 %" in words(sure)  # once, not in every row
    attacks = known[findings.MEMBERSHIP]["attacks"]
    assert [row[0].value for row in table.rows] == [attack["attack"] for attack in attacks]
    assert [row[1].value for row in table.rows] == [attack["auc"] for attack in attacks]
    limits = [[low.value, high.value] for low, _, high in (row[2] for row in table.rows)]
    assert limits == [attack["auc_interval"] for attack in attacks]
    assert {row[4] for row in table.rows} == {"too few others to tell"}  # 120 cannot show 0.1 %


def test_what_is_found_is_looked_up_by_its_rate_not_its_place(known):
    at = known[findings.MEMBERSHIP]["attacks"][0]
    at["power"] = [
        {"false_alarms": 0.001, "members_found": 0.5, "measurable": True},
        {"false_alarms": 0.01, "members_found": 0.25, "measurable": True},
    ]
    run, place = sources(known), f"{findings.MEMBERSHIP}#/attacks/0"
    assert findings.power(run, place).value == 0.25
    assert findings.power(run, place, 0.001).value == 0.5
    at["power"][1]["measurable"] = False
    assert findings.power(run, place) == "too few others to tell"
    assert findings.power(run, place, 0.1) == "not on record"
    del at["power"]
    assert findings.power(run, place) == "not on record"


def test_the_forbidden_part_is_that_of_the_whole_claim(known):
    """With its delta: without it the figure would forbid what the claim allows."""
    (picture,) = only(findings.memberships({"private": sources(known)}), Picture)
    (axes,) = picture.figure.axes
    label = next(line.get_label() for line in axes.lines if "bound" in str(line.get_label()))
    assert "delta 1e-05" in label
    claimed = known["record.json"]["guarantee"]["epsilon"]
    shown = float(label.split("epsilon ")[1].split(",")[0])
    assert claimed <= shown <= 1.01 * claimed


def test_an_attack_above_the_claim_is_a_warning(known):
    quiet = only(findings.memberships({"p": sources(known)}), Paragraph)
    assert [block.kind for block in quiet] == ["note"]
    known[findings.MEMBERSHIP]["attacks"][1]["exceeds_claim"] = True
    blocks = findings.memberships({"private": sources(known)})
    warning, _ = only(blocks, Paragraph)
    assert warning.kind == "warning"
    assert "more than the claim allows" in words(warning)


def test_what_was_not_attacked_is_missing_with_a_remedy(known):
    runs = {"private": sources(known), "other": sources({}, "other")}
    (missing,) = only(findings.memberships(runs), Missing)
    assert missing.place == "other/curator/membership.json"
    assert missing.command == "sfumato attack membership --run other"
    assert len(only(findings.memberships(runs), Picture)) == 1


def test_nobody_is_exposed_where_no_attack_tells(known):
    """Scores of a private run are noise: who has the largest is nobody in particular."""

    def told(auc, found):
        for attack in known[findings.MEMBERSHIP]["attacks"]:
            attack["auc"], attack["auc_interval"] = auc[1], auc[::2]
            attack["power"][0] |= {"members_found": found[0], "interval": found[1:]}
        blocks = findings.most_exposed({"private": sources(known)})
        return words(blocks[0]) if isinstance(blocks[0], Paragraph) else "shown"

    del known[findings.MEMBERSHIP]["attacks"][5:]
    assert "nobody is shown" in told([0.45, 0.5, 0.55], [0.02, 0.0, 0.05])
    # One of five is above guessing by luck once in eight times.
    assert "nobody is shown" in told([0.505, 0.55, 0.595], [0.02, 0.0, 0.05])
    assert told([0.52, 0.55, 0.58], [0.02, 0.0, 0.05]) == "shown"
    assert "nobody is shown" in told([0.45, 0.5, 0.55], [0.04, 0.012, 0.09])
    assert told([0.45, 0.5, 0.55], [0.08, 0.04, 0.13]) == "shown"  # few false alarms


def test_the_most_exposed_as_pictures_or_rows(known):
    for attack in known[findings.MEMBERSHIP]["attacks"]:
        attack["auc"], attack["auc_interval"] = 0.56, [0.53, 0.59]
    (picture,) = findings.most_exposed({"private": sources(known)})
    assert isinstance(picture, Picture)
    assert picture.source.endswith("/pictures")
    for attack in known[findings.MEMBERSHIP]["attacks"]:
        del attack["pictures"]
    (table,) = findings.most_exposed({"private": sources(known)})
    assert isinstance(table, Table)
    at = findings.best_attack(sources(known))
    exposed = sources(known).raw(f"{at}/most_exposed")
    assert [row[2].value for row in table.rows] == [one["score"] for one in exposed]


# --- inversion ------------------------------------------------------------------------------------


def test_pictures_of_classes(known):
    picture, table, sure = findings.inversions({"private": sources(known)})
    assert "Limits hold with a confidence of" in words(sure)
    judged = known[findings.INVERSION]["recognition"]
    assert table.rows[0][1].value == judged["accuracy"]
    assert isinstance(picture, Picture)
    assert picture.source == "private/curator/inversion.json#/pictures"


def test_runs_with_other_classes_have_a_picture_of_their_own(known):
    other = copy.deepcopy(known)
    other[findings.INVERSION] |= {
        "names": ["cat", "dog"], "classes": [1, 0],
        "pictures": pack_pictures([[[0.0, 1.0]], [[1.0, 0.0]]]),
        "recognition": {
            "accuracy": 0.5, "by_class": {"0": {"first": 1}, "1": {"first": 0}},
        },
    }  # fmt: skip
    runs = {"a": sources(known), "b": sources(other), "c": sources(known)}
    blocks = findings.inversions(runs)
    assert len(only(blocks, Picture)) == 2
    (table,) = only(blocks, Table)
    assert [row[0] for row in table.rows] == ["a", "b", "c"]
    second = only(blocks, Picture)[1].figure
    frames = [axes.spines["left"].get_edgecolor() for axes in second.axes]
    assert frames[0] != frames[1]  # the first column is class 1, which was not recognised
    recognised = only(blocks, Picture)[1].figure.axes[1].spines["left"].get_edgecolor()
    assert recognised[0] > recognised[2]  # orange


# --- audits ---------------------------------------------------------------------------------------


def test_a_lower_bound_is_rounded_down_and_a_claim_up(known):
    known[findings.AUDIT] |= {"epsilon_at_least": 0.67266}
    known[findings.AUDIT]["claim"]["epsilon"] = known["record.json"]["guarantee"]["epsilon"] = (
        1.4901
    )
    picture, told, note = findings.audits({"private": sources(known)})
    assert "at least 0.672, and 1.5 is claimed" in words(told)
    assert "cannot prove" in note.text
    assert "at least 0.672 of 1.5" in drawn(picture.figure, "x")


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"canaries": 60}, "60 canaries)"),
        ({"games": 400, "questions": 40}, "400 games)"),
        ({"rows": 700, "pairs_tried": 9}, "700 reports)"),
        ({"what": "the same way on a table of 4 rows"}, "; the same way on a table of 4 rows)"),
        ({}, "95). Verdict"),
    ],
)
def test_every_method_is_audited_by_what_it_leaves(known, facts, shown):
    known[findings.AUDIT] |= {"confidence": 0.95, "facts": facts}
    assert shown in words(only(findings.audits({"p": sources(known)}), Paragraph)[0])


def test_a_refuted_claim_is_a_warning(known):
    assert only(findings.audits({"p": sources(known)}), Paragraph)[0].kind == "plain"
    known[findings.AUDIT] |= {"epsilon_at_least": 9.0, "verdict": "refuted"}
    told = only(findings.audits({"private": sources(known)}), Paragraph)[0]
    assert told.kind == "warning"


def test_an_audit_of_another_claim_is_a_warning(known):
    known["record.json"]["guarantee"]["epsilon"] *= 0.5
    told = only(findings.audits({"private": sources(known)}), Paragraph)
    assert "Audit it again" in words(told[1])


def test_runs_that_claim_nothing_are_not_audited(files):
    plain = Sources({"record.json": files["plain/record.json"]}, "plain")
    assert findings.audits({"plain": plain}) == []


def test_what_was_not_audited_is_missing(known):
    del known[findings.AUDIT]
    (missing,) = findings.audits({"private": sources(known)})
    assert missing.place == "private/curator/audit.json"
    assert "--canaries" in missing.remedy


def test_every_fact_is_on_record(known, at_place):
    run = sources(known, "private")
    files = {f"private/{name}": value for name, value in known.items()}
    for make in (
        findings.memberships, findings.most_exposed, findings.inversions, findings.audits,
    ):  # fmt: skip
        for block in make({"private": run}):
            for fact in facts_of(block):
                assert at_place(files, fact.source) == fact.value


def test_an_audit_says_what_it_takes_for_granted_and_could_have_seen(known):
    known[findings.AUDIT] |= {
        "assumption": "the noise is Gaussian", "remark": "all scores are equal",
        "most_that_could_be_shown": 1.2345,
    }  # fmt: skip
    told = words(only(findings.audits({"p": sources(known)}), Paragraph)[0])
    assert " if the noise is Gaussian, and " in told
    assert "; all scores are equal; at most epsilon 1.23 could have been shown." in told
    for name in ("assumption", "remark", "most_that_could_be_shown"):
        del known[findings.AUDIT][name]  # as of older versions
    old = words(only(findings.audits({"p": sources(known)}), Paragraph)[0])
    assert " if " not in old
    assert "could have been shown" not in old
