"""What is said of runs that tell numbers: errors in their own units, and nothing of accuracy."""

import copy
import json
import re

import numpy as np
import pytest

from sfumato.core.randomness import SeededCoins
from sfumato.data import Dataset, Examples
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.training import train_erm
from sfumato.reports.card import PublicRun, privacy_card
from sfumato.reports.curator import CuratorRun, curator_report
from sfumato.reports.facts import Sources, amount_text
from sfumato.reports.html import to_html
from sfumato.reports.markdown import to_json, to_markdown

FORMATS = (to_html, to_markdown, lambda document: json.dumps(to_json(document)))


def data(numbers=True, public=True):
    rng = np.random.default_rng(0)

    def examples(count):
        inputs = rng.random((count, 2), dtype=np.float32)
        wages = 20_000 + 60_000 * inputs[:, 0].astype(np.float64)
        return Examples(inputs, wages if numbers else (wages > 50_000).astype(np.int64))

    labels = {"target_bounds": (0, 100_000)} if numbers else {}
    return Dataset(
        "wages", examples(1000), examples(200), () if numbers else ("poor", "rich"), (2,),
        (0.0, 1.0), "made up", public_size=1000, test_is_public=public, **labels,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of numbers on public and on private test rows, of classes, and with seeded noise."""
    at = tmp_path_factory.mktemp("numbers")
    numbers, ridge = ErmRecipe("regression", epsilon=5.0), ErmRecipe("ridge", alpha=3.0)
    train_erm(numbers, data(), out=at / "public")
    train_erm(ridge, data(public=False), out=at / "private")
    train_erm(ErmRecipe(epsilon=5.0), data(numbers=False), out=at / "classes")
    train_erm(numbers, data(), out=at / "seeded", coins=SeededCoins(1))
    return at


def record_of(folder, name):
    return json.loads((folder / name / "record.json").read_text())


def card(folder, *names):
    return to_markdown(privacy_card([PublicRun.read(folder / name) for name in names]))


def glance(text):
    lines = text[text.index("## At a glance") :].splitlines()
    return [line for line in lines if line.startswith("|")]


def test_errors_stand_where_accuracy_would(folder):
    facts = record_of(folder, "public")["facts"]
    text = card(folder, "public")
    off, middle = (facts[name] for name in ("root_mean_squared_error", "error_of_the_middle"))
    assert middle > 1000  # dollars, so that commas are seen
    assert f"Off by {amount_text(off)} on its test set (public)" in text
    assert f"R squared is {facts['r_squared']:.4g}" in text
    assert f"middle between 0 and 100,000, as declared, is off by {amount_text(middle)}" in text
    assert "linear regression, of a number" in text
    assert "noise on the coefficients of a quadratic objective" in text
    assert "Not on record" not in text
    assert "network" not in text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("names", [["public"], ["private"], ["public", "private"]])
def test_nothing_speaks_of_accuracy(form, names, folder):
    runs = [PublicRun.read(folder / name) for name in names]
    mine = [CuratorRun.read(folder / name) for name in names]
    for document in (privacy_card(runs), curator_report(mine)):
        assert "accura" not in form(document).lower()


def test_no_error_of_private_rows_is_public(folder):
    kept = json.loads((folder / "private" / "curator" / "results.json").read_text())
    text = card(folder, "private", "public")
    assert "No error may be told in public" in text
    alone = to_json(privacy_card([PublicRun.read(folder / "private")]))
    places = [fact["from"] for section in alone["sections"] for fact in section["facts"]]
    assert places
    assert not any("error" in place or "results" in place for place in places)
    assert glance(text)[2].endswith("| not told |")
    assert "penalty, alpha | 3" in text
    mine = to_markdown(curator_report([CuratorRun.read(folder / "private")]))
    assert f"off by {amount_text(kept['root_mean_squared_error'])}" in mine
    assert "none is made for numbers" in mine


def test_errors_and_accuracies_side_by_side(folder):
    names = ["public", "classes"]
    mine = to_markdown(curator_report([CuratorRun.read(folder / name) for name in names]))
    for text in (card(folder, *names), mine):
        head, _, numbers, classes = glance(text)[:4]
        assert "accuracy or error on its test set" in head
        assert "| off by " in numbers
        assert "%" not in numbers
        assert re.search(r"\| [0-9.]+ % \|", classes)
    assert "accuracy on its test set" in glance(card(folder, "classes", "classes"))[0]
    assert "Who was trained on?" in mine
    assert "attack membership --run public" not in mine
    alone = to_markdown(curator_report([CuratorRun.read(folder / "public")]))
    assert "Who was trained on?" not in alone
    assert "Is the promise kept?" in alone


def test_classes_have_no_learning_curve_to_miss(folder):
    text = card(folder, "classes")
    assert "Right on" in text
    assert "logistic regression, of classes" in text
    assert "Not on record" not in text


def test_seeded_noise_tells_no_error(folder):
    text = card(folder, "seeded", "public")
    assert "seeded test coins are left out" in text
    told = to_markdown(curator_report([CuratorRun.read(folder / "seeded")]))
    assert "No error may be told in public" in told


def test_every_number_of_a_page_comes_from_the_record(folder, read_html, at_place, places_in):
    page = read_html(to_html(privacy_card([PublicRun.read(folder / "public")])))
    files = {"public/record.json": record_of(folder, "public")}
    assert any("root_mean_squared_error" in place for _, place, _ in page.data)
    for _, source, _ in page.data:
        for place in places_in(source):
            at_place(files, place)
    assert not re.search(r"\d", page.loose.replace(files["public/record.json"]["method"], ""))


@pytest.mark.parametrize(
    ("spoil", "missing"),
    [
        (lambda facts: facts.pop("root_mean_squared_error"), "root_mean_squared_error"),
        (lambda facts: facts.update(error_of_the_middle="x"), "error_of_the_middle"),
        (lambda facts: facts["data"].update(target_bounds=[1]), "target_bounds"),
    ],
)
def test_what_is_not_on_record_is_said_to_be_missing(spoil, missing, folder):
    record = copy.deepcopy(record_of(folder, "public"))
    spoil(record["facts"])
    run = PublicRun("r", Sources({"record.json": record}, "r"), {})
    text = to_markdown(privacy_card([run, run]))
    assert "Not on record" in text
    assert f"{missing}`" in text or f"{missing} (in a form" in text
    assert "accuracy or" not in text


def test_an_r_squared_without_meaning_is_left_out(folder):
    record = copy.deepcopy(record_of(folder, "public"))
    record["facts"]["r_squared"] = None
    run = PublicRun("r", Sources({"record.json": record}, "r"), {})
    text = to_markdown(privacy_card([run]))
    assert "Off by" in text
    assert "R squared" not in text
    assert "Not on record" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (0.5, "0.5000"), (9.99996, "10.000"), (99_999.6, "100,000"), (-3.0, "-3.000"),
        (1e20, "1e+20"), (1.234e-7, "1.234e-07"),
    ],
)  # fmt: skip
def test_amounts(value, text):
    assert amount_text(value) == text
