"""What is said of private labels, and where one is replaced: nothing about being in the data."""

import json
import math

import pytest

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.records import Record
from sfumato.learning.label_dp.number_recipe import NumberRecipe
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.reports import findings, promises
from sfumato.reports.card import PublicRun, privacy_card
from sfumato.reports.curator import CuratorRun, curator_report
from sfumato.reports.documents import Bullets, Paragraph, Picture, facts_of, pieces_of
from sfumato.reports.facts import Sources, amount_text
from sfumato.reports.html import to_html
from sfumato.reports.markdown import to_json, to_markdown
from sfumato.reports.method_facts import method
from sfumato.reports.wording import words_for

FORMATS = (to_html, to_markdown, lambda document: json.dumps(to_json(document)))
OF_MEMBERS = (
    "in the data", "member", "record could be", "could a record", "your record", "one record",
    "records taken", "those who are", "everything of", "whom it protects", "patients",
)  # fmt: skip
RECIPES = {
    "one stage": {"shares": (1.0,), "mixup": (1.0,)},
    "two stages": {},
    "noisy vectors": {"mechanism": "alibi", "shares": (1.0,), "mixup": (1.0,)},
}


def label_record(epsilon=1.0, **options):
    recipe = LabelRecipe(epsilon, **options)
    event = recipe.event(10)
    facts = {
        "data": {"name": "x", "rows": 200, "public_size": 200}, "labels_of_each_stage": [120, 80],
        "labels_lost": 0, "public_features": "none", "tuning": "none", "test_set": "public",
        "inputs_are": "public: the guarantee is about labels alone", "accuracy": 0.9,
    }  # fmt: skip
    record = Record("label-dp", {"recipe": recipe.to_dict()}, event, recipe.guarantee, facts=facts)
    return json.loads(json.dumps(record.to_dict()))


def number_record(epsilon=1.0, **options):
    recipe = NumberRecipe(epsilon, **options)
    facts = label_record()["facts"] | {
        "labels_of_each_stage": [200], "prior": "a noisy histogram of the labels",
        "bins": {"count": 3, "keep": 0.57, "edges": [2.0, 5.0], "means": [1.0, 3.0, 7.0]},
        "root_mean_squared_error": 1.5, "r_squared": 0.5, "error_of_the_middle": 3.0,
        "mean_absolute_error": 1.0,
    }  # fmt: skip
    facts["data"] |= {"classes": [], "target_bounds": [0.0, 10.0]}
    del facts["accuracy"]
    parameters = {"recipe": recipe.to_dict()}
    record = Record("label-dp", parameters, recipe.event, recipe.guarantee, facts=facts)
    return json.loads(json.dumps(record.to_dict()))


def sources(record, name="run"):
    return Sources({"record.json": record}, name)


def card_of(*records):
    return privacy_card(
        [PublicRun(f"run{n}", sources(one, f"run{n}"), {}) for n, one in enumerate(records)]
    )


def said(blocks):
    return " ".join(
        "".join(str(piece) for piece in pieces_of(cell))
        for block in blocks
        if isinstance(block, Paragraph | Bullets)
        for cell in (block.items if isinstance(block, Bullets) else [block.text])
    )


def numbers(blocks):
    return [fact.value for block in blocks for fact in facts_of(block)]


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize("count", [1, 2])
def test_no_edition_speaks_of_being_in_the_data(options, count):
    document = card_of(*[label_record(**options)] * count)
    pictures = [b for section in document.sections for b in section.blocks if type(b) is Picture]
    drawn = [
        text
        for picture in pictures
        for axes in picture.figure.axes
        for text in (axes.get_xlabel(), axes.get_ylabel(), axes.get_title(), picture.alt)
    ]
    assert len(pictures) == count
    for text in [*(make(document) for make in FORMATS), *drawn]:
        for words in OF_MEMBERS:
            assert words not in text.lower(), words


@pytest.mark.parametrize("options", RECIPES.values(), ids=RECIPES)
def test_what_is_said_instead(options):
    document = card_of(label_record(**options))
    headings = [section.heading for section in document.sections]
    assert headings[1] == "What it promises about your label"
    assert headings[4] == "Could your label be guessed?"
    texts = [section.blocks for section in document.sections]
    assert "can depend on any one label is limited: epsilon 1 at delta 0" in said(texts[0])
    assert "your label, or another in its place" in said(texts[1])
    assert "Nothing is promised about inputs" in said(texts[2])
    assert "Nothing is promised about taking part" in said(texts[2])
    assert "Several labels together are protected less: two by epsilon 2 at" in said(texts[2])
    (picture,) = [block for block in texts[3] if isinstance(block, Picture)]
    assert picture.figure.axes[0].get_ylabel() == "share of labels used, missed, at least"
    assert "knows all inputs, yours among them, and all other labels" in said(texts[4])


def test_how_likely_a_label_is_guessed():
    """Two stages are charged as pure epsilon: 1 - f(k) = min(e^eps k, 1 - e^-eps (1 - k))."""
    _, table = promises.reconstruction(sources(label_record(1.0)))
    found = [(prior.value, bound.value) for prior, bound in table.rows]
    assert [prior for prior, _ in found] == [0.5, 0.1, 0.01, 0.001]
    for prior, bound in found:
        truth = min(math.e * prior, 1 - (1 - prior) / math.e)
        assert truth * (1 - 1e-9) <= bound <= truth * 1.002
    _, right, at_one_in_a_hundred = numbers(promises.promises(sources(label_record(1.0))))
    assert right == pytest.approx(math.e / (1 + math.e), rel=2e-3)
    assert at_one_in_a_hundred == pytest.approx(math.e / 100, rel=2e-3)


def test_how_it_was_made_speaks_of_rows_and_labels():
    (table, *_) = method(sources(label_record()))
    rows = {label: str(fact) for label, fact in table.rows}
    assert rows["what it protects"] == "one label"
    assert rows["rows taken, the first"] == "200"


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_labels_that_are_numbers(share):
    record = number_record(2.0, histogram_share=share)
    assert promises.is_sound(sources(record))
    document = card_of(record)
    for make in FORMATS:
        text = make(document).lower()
        for words in (*OF_MEMBERS, "accura"):
            assert words not in text, words
    (table, *missing) = method(sources(record))
    assert not missing
    rows = {label: str(fact) for label, fact in table.rows}
    assert rows["each label is told once, as"] == "one of 3 intervals, by randomised response"
    assert rows["the number is between, as declared"] == "0 and 10"
    assert rows["of epsilon, for a histogram"] == f"{share:g}"
    assert rows["network"] == "none: least squares alone"
    text = to_markdown(document)
    assert "epsilon 2 at delta 0 (replace one label)" in text
    assert f"Off by {amount_text(1.5)} on its test set (public)" in text
    assert f"The mean absolute error is {amount_text(1.0)}." in text


@pytest.mark.parametrize("unit", ["record", "person"])
def test_private_labels_that_claim_to_protect_more_are_found_out(unit):
    record = label_record()
    record["guarantee"]["unit"] = record["event"]["unit"] = unit
    known = sources(record)
    assert not promises.is_sound(known)
    assert promises.claimed(known) == "does not follow from its event"
    assert "protects labels alone, which is not what is claimed" in said(promises.lead(known))
    document = card_of(record)
    assert [section.heading for section in document.sections] == ["The guarantee"]
    for make in FORMATS:
        assert "Do not rely on it" in make(document)


def attacked(record, name):
    rates = [0.0, 0.1, 1.0]
    attack = {
        "attack": "loss", "auc": 0.6, "others": 100,
        "roc": {"false_positive_rates": rates, "true_positive_rates": rates},
    }  # fmt: skip
    parts = {"record.json": record, findings.MEMBERSHIP: {"attacks": [attack]}}
    return Sources(parts, name)


def test_private_labels_forbid_no_attack_on_membership(gaussian_record):
    for record, forbids in ((label_record(), False), (gaussian_record(), True)):
        picture = findings.memberships({"run": attacked(record, "run")})[0]
        assert isinstance(picture, Picture)
        assert ("what the claim forbids" in str(picture.caption)) == forbids


def test_epsilons_of_labels_are_no_line_with_those_of_records(gaussian_record):
    public = {"accuracy": 0.8, "test_set": "public", "data": {"name": "x", "rows": 200}}
    other = gaussian_record(facts=public)
    made = [
        CuratorRun(name, sources(record, name), {})
        for name, record in (("mine", label_record()), ("theirs", other))
    ]
    costs = next(s for s in curator_report(made).sections if s.heading == "What privacy costs")
    picture, note = costs.blocks
    assert "no run without privacy trains the same kind of model" in note.text
    names = picture.figure.axes[0].get_legend_handles_labels()[1]
    assert "mine, labels alone" in names


# --- where one is replaced ------------------------------------------------------------------------


def relation_of(gaussian_record, relation, unit="record"):
    event = GaussianEvent(1.0, neighbours=relation, unit=unit)
    return sources(gaussian_record(event=event, guarantee=account(event, 1e-5)))


@pytest.mark.parametrize("unit", ["record", "person", "hospital"])
@pytest.mark.parametrize(
    ("relation", "other", "told"),
    [
        ("replace-one", "something else", "nothing is promised about taking part or not"),
        ("zero-out", "a blank", "How many places there are in the data is not hidden"),
    ],
)
def test_a_replacement_promises_nothing_about_membership(
    gaussian_record, relation, other, told, unit
):
    known = relation_of(gaussian_record, relation, unit)
    text = said(promises.promises(known))
    assert f"the data contain what is theirs, or {other} in its place, then whoever" in text
    assert "of those whose own was used, whatever else they know" in text
    beyond = said(promises.limits(known))
    assert told in beyond
    (picture,) = promises.trade_off(known)
    axes = picture.figure.axes[0]
    spoken = " ".join([text, beyond, picture.alt, axes.get_xlabel(), axes.get_ylabel()])
    for words in ("member", "they are in the data", "those in the data", "you are in the data"):
        assert words not in spoken


def test_with_and_without_is_about_membership(gaussian_record):
    known = relation_of(gaussian_record, "add-remove")
    assert "whether they are in the data" in said(promises.promises(known))
    assert "whether you are in the data or not" in said(promises.limits(known))
    assert "taking part" not in said(promises.limits(known))
    (picture,) = promises.trade_off(known)
    assert picture.figure.axes[0].get_ylabel() == "share of members missed, at least"


@pytest.mark.parametrize("relation", Neighbours)
@pytest.mark.parametrize("unit", ["record", "person", "hospital", "label"])
def test_every_prior_is_a_point_of_the_curve(unit, relation):
    assert set(words_for(unit, relation).priors) <= set(promises._RATES)


def test_labels_under_any_relation_are_labels():
    for relation in Neighbours:
        claim = Guarantee(1.0, 0.0, relation, "label")
        words = words_for(claim.unit, claim.neighbours)
        for text in (*words.coin, *words.found, words.general, words.many, *words.not_hidden):
            assert "in the data" not in text
            assert "member" not in text


@pytest.mark.parametrize("relation", Neighbours)
@pytest.mark.parametrize("unit", ["record", "label"])
def test_names_of_axes_are_not_cut(gaussian_record, unit, relation):
    (picture,) = promises.trade_off(relation_of(gaussian_record, relation, unit))
    figure = picture.figure
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for name in (axes.xaxis.label, axes.yaxis.label):
        box = name.get_window_extent()
        assert min(box.x0, box.y0) >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
