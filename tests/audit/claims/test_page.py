"""The page docs/claims.md shows what runs: exact figures to the last digit, sampled ones nearly."""

import math
import re
from pathlib import Path

import pytest

from sfumato.accounting import account
from sfumato.audit.claims import Kind, claim, claims
from sfumato.audit.claims.lower_bounds import sampled_gaussian_at_least
from sfumato.audit.claims.order_filter import ORDERS
from sfumato.audit.claims.table import row
from sfumato.core.events import dp_sgd
from sfumato.core.gaussian_profile import gaussian_epsilon

PAGE = Path(__file__).parents[3] / "docs" / "claims.md"
NAMES = [known.name for known in claims()]


@pytest.fixture(scope="module")
def rows():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    found = {name: line for line in lines if (name := _named(line))}
    assert len(found) == sum(bool(_named(line)) for line in lines)
    return found


def _named(line):
    match = re.match(r"\| \*\*.*?\*\* \(`([a-z0-9-]+)`\)", line)
    return match and match.group(1)


def _figure(line):
    return float(re.fullmatch(r"ε ([\d.]+)", line.split(" | ")[3]).group(1))


def test_every_claim_is_on_the_page_in_order(rows):
    assert list(rows) == NAMES


@pytest.mark.parametrize("name", [name for name in NAMES if claim(name).kind is Kind.EXACT])
def test_exact_rows_are_what_runs(name, rows, results):
    assert rows[name] == row(results[name])


@pytest.mark.parametrize("name", [name for name in NAMES if claim(name).kind is Kind.SAMPLED])
def test_sampled_rows_are_nearly_what_runs(name, rows, results):
    page, now = rows[name], row(results[name])
    assert _figure(page) == pytest.approx(_figure(now), rel=0.25)
    assert page.replace(page.split(" | ")[3], "") == now.replace(now.split(" | ")[3], "")


# --- what could not be refuted ------------------------------------------------------------------


def test_the_published_eight_is_true_though_its_accounting_is_not():
    printed = account(dp_sgd(2.0, 0.01, 2 * 36_412), 1e-5, accountant="moments").epsilon
    rule = account(dp_sgd(2.0, 0.01, 2 * 36_412), 1e-5).epsilon
    truth = account(dp_sgd(math.sqrt(2), 0.01, 36_412), 1e-5).epsilon
    assert printed == pytest.approx(8.0, abs=1e-3)
    assert truth == pytest.approx(7.312, abs=1e-3)
    assert rule < sampled_gaussian_at_least(math.sqrt(2), 0.01, 36_412, 1e-5) < truth < printed


def test_the_lectures_figures_are_true_of_gaussian_steps():
    assert gaussian_epsilon(4.0 / 100, 0.1) == pytest.approx(343.6, abs=0.1)
    assert account(dp_sgd(4.0, 0.01, 10_000), 1e-5).epsilon == pytest.approx(0.947, abs=1e-3)


def test_privatekubes_own_limits_leave_room():
    left = sum((a - 1) ** (a - 1) / a**a for a in ORDERS if a >= 2)
    assert left == pytest.approx(0.93, abs=0.005)
    assert math.log(1e5) / (1.75 - 1) > 15  # at lower orders nothing fits
