"""A hospital's admissions, released as statistics that may be published.

    python examples/hospital_statistics.py --out statistics

The table is made up, by a public generator that is part of this file: it is nobody's. It looks as
such tables do: several visits a patient, missing ages, stays of -3 and 9,999 days.

FOLDER gets what may be published and nothing else. The ledger stays in FOLDER-curator.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

import sfumato as sf
from sfumato.attacks.differencing import Filter, Guesses, best_accuracy, count_attack
from sfumato.reports.card import fingerprint, privacy_card
from sfumato.reports.facts import Sources
from sfumato.reports.writing import write_document

WARDS = ["cardiology", "maternity", "oncology", "surgery"]
ROWS_A_PATIENT = 4  # of a patient's visits, at most 4 count: known in public, not measured
BUDGET = sf.Budget(epsilon=2.0)


def made_up_admissions(patients: int) -> pd.DataFrame:
    """One row a visit, the same table every time."""
    random = np.random.default_rng(2025)
    visits = np.repeat(np.arange(patients), 1 + random.poisson(0.7, patients))
    people = pd.DataFrame(
        {
            "birth_year": random.integers(1935, 2007, patients),
            "district": random.integers(1, 41, patients),
            "sex": random.choice(["f", "m"], patients),
            "depression": (random.random(patients) < 0.08).astype(int),
        }
    )
    table = people.iloc[visits].reset_index(drop=True)
    table.insert(0, "patient_id", visits)
    table["ward"] = random.choice(WARDS, len(table), p=[0.3, 0.2, 0.15, 0.35])
    table["emergency"] = (random.random(len(table)) < 0.4).astype(int)
    table["age"] = 2025.0 - table.pop("birth_year")
    table["days"] = np.ceil(random.gamma(1.5, 4.0, len(table)))
    table["born"] = 2025 - table["age"].astype(int)
    odd = random.random((3, len(table))) < 0.01
    table.loc[odd[0], "age"] = np.nan
    table.loc[odd[1], "days"] = 9999.0
    table.loc[odd[2], "days"] = -3.0
    return table


def publish(people: sf.Protected, out: Path) -> list[sf.Answer]:
    """Asks, and writes what was answered: figures, a table, and a page with the guarantee."""
    edges = [18, 30, 45, 60, 75, 91]  # declared
    questions = {
        "patients": sf.CountUnits(epsilon=0.1),
        "admissions": sf.Count(epsilon=0.2),
        "days in hospital, mean": sf.Mean("days", 0, 60, epsilon=0.3),
        "days in hospital, median": sf.Median("days", 0, 60, epsilon=0.3),
        "days in hospital, 9 of 10 at most": sf.Quantile("days", 0.9, 0, 60, epsilon=0.3),
        "ward by emergency": sf.Crosstab(("ward", "emergency"), epsilon=0.3),
        "age": sf.Histogram("age", edges, epsilon=0.2),
    }
    # One request: all are paid for or none. With a key, asking again returns the stored answers.
    answers = people.ask(*questions.values(), key="yearly statistics, 2025")
    (out / "answers.json").write_text(
        json.dumps({"answers": [answer.to_dict() for answer in answers]}, indent=1)
    )
    rows = [
        {"statistic": name, "group": " ".join(map(str, cell.keys)), "value": cell.value,
         "low": cell.low, "high": cell.high}
        for name, answer in zip(questions, answers, strict=True) for cell in answer.cells
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(out / "statistics.csv", index=False)
    sf.plot(answers[-1], title="Admissions by age").save(out / "age.png")
    sf.plot(answers[-2], title="Admissions by ward and emergency").save(out / "wards.png")
    told = Sources(
        {"answers.json": json.loads((out / "answers.json").read_text())},
        marks={"answers.json": fingerprint(out / "answers.json")},
    )
    budget = Sources({"status": people.ledger.status(people.dataset).to_dict()}, "ledger")
    write_document(privacy_card([], [budget], [told], "Admissions"), out / "card.html")
    return answers


def attack(table: pd.DataFrame, people: sf.Protected, screen: Console) -> dict[str, object]:
    """Two harmless counts, and what lies between them: one patient's diagnosis."""
    patients = table.drop_duplicates("patient_id")
    alone = ~patients.duplicated(["born", "district", "sex"], keep=False)
    one = patients[alone & (patients["depression"] == 1)].iloc[0]
    known = {"born": int(one["born"]), "district": int(one["district"]), "sex": str(one["sex"])}
    secret = {"depression": 1}

    def exactly(who: Filter) -> int:
        return int(who.mask(patients).sum())

    def privately(who: Filter) -> int:
        return int(people.where(str(who)).count_units(epsilon=0.1))

    exact, private = count_attack(exactly, known, secret), count_attack(privately, known, secret)
    # How good is such a guess? Played many times by the curator, who publishes none of it: on the
    # exact counts with her and without her secret, each answered with the same noise as above.
    games, noise = 4000, sf.DiscreteLaplace.calibrate(sf.Sensitivity(1.0), epsilon=0.1)
    truth = np.arange(games) % 2 == 0
    her = noise.perturb(exact.but_one + truth) - noise.perturb(np.full(games, exact.but_one))
    guesses = Guesses.compare(her > 0.5, truth)
    screen.print("\n[bold]Attack: is the patient we know depressed?[/bold] (curator only)")
    screen.print(
        f"  the attacker asks  {exact.questions[0]}\n  and                {exact.questions[1]}"
    )
    screen.print(f"  exact counts:      {exact}  so yes, for certain")
    screen.print(f"  private counts:    {private}  which says next to nothing:")
    screen.print(f"  played again:      {guesses};\n  epsilon 0.2 allows "
                 f"{best_accuracy(0.2):.1%}, a coin has 50%")  # fmt: skip
    return {"exact": exact, "private": private, "guesses": guesses}


def until_refused(people: sf.Protected, screen: Console) -> int:
    """Asks one question again and again, to average the noise away; the ledger ends it."""
    answered = 0
    try:
        while True:
            people.where("ward = 'oncology'").count_units(epsilon=0.05)
            answered += 1
    except sf.BudgetExceeded as refusal:
        screen.print(f"\n[bold]Averaging:[/bold] {answered} more answers, then the ledger says")
        screen.print(f"  {refusal}", markup=False)
    return answered


def main(out: Path, small: bool = False) -> dict[str, object]:
    """Makes the table, publishes, attacks."""
    screen, own = Console(highlight=False), out.with_name(f"{out.name}-curator")
    if out.exists() or own.exists():
        sys.exit(f"{out} holds an earlier run. A budget is never reset: give another --out")
    out.mkdir(parents=True)
    own.mkdir(mode=0o700)
    table = made_up_admissions(3_000 if small else 30_000)
    people = sf.protect(
        table,
        name="admissions",
        unit="patient_id",
        unit_name="patient",
        max_rows_per_unit=ROWS_A_PATIENT,
        domains={"ward": WARDS, "emergency": [0, 1]},
        budget=BUDGET,
        ledger=f"sqlite:///{own / 'privacy.db'}",
    )
    screen.print(f"[bold]A made-up hospital[/bold], {people}")
    with screen.status("asking the table"):
        answers = publish(people, out)
    patients, admissions, mean, median, long, wards, ages = answers
    truth = table.groupby("patient_id").size()
    shown = Table("statistic", "released", "95% interval", "truth (curator only)", box=None)
    for name, answer, exact in (
        ("patients", patients, f"{len(truth):,}"),
        ("admissions", admissions, f"{truth.sum():,}"),
        ("days, mean", mean, f"{table['days'].clip(0, 60).mean():.2f}"),
        ("days, median", median, f"{table['days'].median():g}"),
        ("days, 90%", long, f"{table['days'].quantile(0.9):g}"),
    ):
        low, high = answer.interval
        shown.add_row(name, f"{answer.value:,.5g}", f"{low:,.5g} to {high:,.5g}", exact)
    screen.print(shown)
    left_out = truth.sum() - truth.clip(upper=ROWS_A_PATIENT).sum()
    screen.print(
        f"Visits beyond {ROWS_A_PATIENT} of a patient are left out: {left_out} (curator only)."
    )
    screen.print(
        f"[bold]By ward[/bold] (0: planned, 1: emergency)\n{wards}\n[bold]By age[/bold]\n{ages}"
    )
    found = attack(table, people, screen)
    asked_again = until_refused(people, screen)
    screen.print(f"\n{people.status}", markup=False)
    listed = ", ".join(sorted(path.name for path in out.iterdir()))
    screen.print(f"\nMay be published, {out}: {listed}. The ledger is in {own}.", soft_wrap=True)
    return {
        "answers": answers,
        "asked_again": asked_again,
        "people": people,
        "table": table,
    } | found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A hospital's admissions, released as statistics.")
    parser.add_argument("--out", type=Path, default=Path("statistics"), metavar="FOLDER")
    parser.add_argument("--small", action="store_true", help="3,000 patients instead of 30,000")
    arguments = parser.parse_args()
    main(arguments.out, arguments.small)
