"""``sfumato report``, as people type it."""

import json
import shutil
import stat

import pytest

from sfumato.reports.facts import Sources
from sfumato.reports.promises import RECORD

TRAIN = (
    "train dp-sgd --data digits --features none --model linear --noise-multiplier 2 --steps 3 "
    "--evaluations 0 --no-progress --out"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Which keeps its runs from test to test."""
    return tmp_path_factory.mktemp("report")


@pytest.fixture
def done(run):
    """The output of a command that must succeed."""

    def out(text):
        code, out, err = run(text)
        assert code == 0, err
        return out

    return out


@pytest.fixture
def trained(done, folder):
    """A run in ``runs/a``."""
    if not (folder / "runs/a").exists():
        done(f"{TRAIN} runs/a")
    return folder / "runs/a"


@pytest.fixture
def asked(done, folder):
    """Answers in ``answers/``, charged to ``privacy.db``."""
    if not (folder / "answers").exists():
        (folder / "answers").mkdir()
        lines = [
            "who,city,age",
            *(f"p{i},{'Rome' if i % 3 else 'Milan'},{i % 90}" for i in range(300)),
        ]
        (folder / "people.csv").write_text("\n".join(lines))
        table = (
            'query people.csv --unit who --max-rows 1 --domain "city=Rome,Milan" --type age=int64'
        )
        first = "--budget 3 --budget-delta 1e-6"
        for name, options, question in (
            ("count", first, 'count --where "age >= 40" --epsilon 0.5'),
            ("cities", "", "count --by city --epsilon 0.5"),
        ):
            out = done(f"{table} {options} {question} --json")
            (folder / f"answers/{name}.json").write_text(out[out.index("{") :])
    return folder / "answers"


# --- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize(("edition", "mode"), [("publishable", 0o644), ("curator", 0o600)])
@pytest.mark.parametrize("ending", ["html", "md", "json"])
def test_both_editions_in_every_format(done, trained, folder, edition, mode, ending):
    out = done(f"report runs/a --edition {edition} -o out/{edition}.{ending}")
    assert f"{edition} edition written to out/{edition}.{ending}" in out
    path = folder / f"out/{edition}.{ending}"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    text = path.read_text()
    assert ("For the curator only" in text or '"edition": "curator"' in text) == (
        edition == "curator"
    )


def test_what_is_missing_is_said_on_the_screen_and_in_json(done, trained):
    shown = done("report runs/a --edition curator -o m.html")
    assert "not on record: a/curator/audit.json" in shown
    found = json.loads(done("report runs/a --edition curator -o m.html --json"))
    assert found["report"] == "m.html"
    assert found["edition"] == "curator"
    assert "a/curator/membership.json" in found["missing"]
    assert json.loads(done("report runs/a -o m.html --json"))["missing"] == []


def test_a_title(done, trained, folder):
    done('report runs/a --title "Our <digits>" -o t.html')
    assert "<h1>Our &lt;digits&gt;</h1>" in (folder / "t.html").read_text()


def test_answers_and_budgets(done, trained, asked, folder):
    done("report runs/a answers --ledger privacy.db -o all.json")
    found = json.loads((folder / "all.json").read_text())
    parts = {section["heading"]: section for section in found["sections"]}
    budget = {fact["from"]: fact["value"] for fact in parts["The budget"]["facts"]}
    status = json.loads(done("ledger show people --url privacy.db --json"))
    for name in ("dataset", "epsilon", "delta", "reading", "left", "releases", "unit"):
        assert budget[f"ledger/people/status#/{name}"] == status[name]
    assert status["releases"] == 2
    statistics = parts["Statistics that were released"]
    for fact in statistics["facts"]:
        name, _, place = fact["from"].removeprefix("computed from ").partition("#")
        kept = Sources({name: json.loads((asked / name).read_text())})
        value = kept.raw(f"{name}#{place}")
        assert fact["from"].startswith("computed from ") or value == fact["value"]
    texts = "\n".join(statistics["text"])
    assert "Count where (age \\>= 40)" in texts
    assert "Rome" in texts
    assert statistics["missing"] == []
    assert set(found["sources"]) == {"a/record.json", "count.json", "cities.json"}


def test_answers_that_were_asked_together(done, asked, folder):
    together = {"answers": [json.loads(path.read_text()) for path in sorted(asked.iterdir())]}
    (folder / "together.json").write_text(json.dumps(together))
    done("report together.json -o together.md")
    text = (folder / "together.md").read_text()
    assert "Milan" in text
    assert "Count where" in text


def test_an_answer_with_seeded_noise_is_the_curator_s_alone(done, asked, folder):
    answer = json.loads((asked / "count.json").read_text()) | {"private": False}
    (folder / "seeded.json").write_text(json.dumps(answer))
    for ending in ("html", "md", "json"):
        done(f"report seeded.json --edition curator -o seeded-report.{ending}")
        assert "NOT PRIVATE" in (folder / f"seeded-report.{ending}").read_text()
        done(f"report seeded.json -o published.{ending}")
        text = (folder / f"published.{ending}").read_text()
        assert "Answers with seeded test coins are left out" in text
        assert "seeded.json" not in text


def test_long_answers_are_cut_and_that_is_said(done, asked, folder):
    answer = json.loads((asked / "cities.json").read_text())
    answer["rows"] = [answer["rows"][0] | {"city": f"c{i}"} for i in range(100)]
    (folder / "long.json").write_text(json.dumps(answer))
    done("report long.json -o long.md")
    text = (folder / "long.md").read_text()
    assert "c29 " in text
    assert "c30 " not in text
    assert "70 more rows are in the file" in text


# --- several runs ---------------------------------------------------------------------------------


def test_runs_of_the_same_name_are_told_apart(done, trained, folder):
    shutil.copytree(trained, folder / "more/a", dirs_exist_ok=True)
    shutil.copytree(trained, folder / "runs/b", dirs_exist_ok=True)
    (folder / "runs/b" / RECORD).unlink(missing_ok=True)
    for edition in ("publishable", "curator"):
        done(f"report more/a runs/b runs/a --edition {edition} -o several.md")
        text = (folder / "several.md").read_text()
        places = [text.index(f"| {name} |") for name in ("more/a", "runs/b", "runs/a")]
        assert places == sorted(places)
        assert "Not on record: `runs/b/record.json`" in text


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("runs/a -o new/x.pdf", "a report must end in .html, .md, .json"),
        ("runs/a --edition secret -o new/x.html", "edition must be one of publishable, curator"),
        ("runs/a -o runs/a/record.json", "a report must have a file of its own"),
        ("answers/count.json -o ./answers/count.json", "a report must have a file of its own"),
        ("runs/absent -o new/x.html", "runs/absent must be a run's folder or an answer"),
        ("empty -o new/x.html", "empty must be one run's folder or hold answers"),
        ("runs -o new/x.html", "runs must be one run's folder or hold answers"),
        ("broken.json -o new/x.html", "broken.json must be JSON"),
        ("nan.json -o new/x.html", "nan.json must be JSON"),
        ("other.json -o new/x.html", "other.json must be an answer of sfumato query"),
        ("list.json -o new/x.html", "list.json must be an answer of sfumato query"),
        ("secret.json -o new/x.html", "secret.json must be an answer of sfumato query"),
        ("damaged -o new/x.html", "damaged/record.json must be JSON"),
        ("killed -o new/x.html", "killed must have ended, but there is no record.json"),
        ("runs/a runs/../runs/a -o new/x.html", "must be given once"),
        ("runs/a --dataset people -o new/x.html", "give --ledger, too"),
        ("runs/a --ledger absent.db -o new/x.html", "absent.db"),
        ("runs/a --ledger privacy.db --dataset nobody -o new/x.html", "nobody"),
    ],
)
def test_what_is_refused(run, trained, asked, folder, arguments, message):
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "damaged").mkdir(exist_ok=True)
    (folder / "killed/curator").mkdir(parents=True, exist_ok=True)
    (folder / "damaged/record.json").write_text("{")
    (folder / "broken.json").write_text("{")
    (folder / "nan.json").write_text('{"query": {}, "rows": [NaN]}')
    (folder / "other.json").write_text('{"attack": 1}')
    (folder / "list.json").write_text("[]")
    (folder / "secret.json").write_text('{"query": {}, "rows": [], "channel": "curator"}')
    code, out, err = run(f"report {arguments}")
    assert code == 2
    assert message in " ".join(err.split())
    assert "written" not in out
    assert not (folder / "new").exists()
