"""Selective sharing: exact laws of tiny cases, the noise that is drawn, and faulty versions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.accounting import account
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core import SeededCoins
from sfumato.core.events import event_from_dict
from sfumato.core.neighbours import Neighbours
from sfumato.federated import selective
from sfumato.federated.selective import SelectiveSharing
from sfumato.mechanisms.sampling import discrete_laplace

# --- an oracle: the law of one upload, summed exactly over the threshold's noise ----------------


def at_least(levels, scale):
    """Pr[discrete Laplace >= level], of any level."""
    p = math.exp(-1 / scale)
    levels = np.asarray(levels, np.float64)
    upper = np.exp(-np.abs(levels) / scale) / (1 + p)
    return np.where(levels > 0, upper, 1 - np.exp(-(np.abs(levels) + 1) / scale) / (1 + p))


def exactly(levels, scale):
    p = math.exp(-1 / scale)
    return (1 - p) / (1 + p) * np.exp(-np.abs(np.asarray(levels, np.float64)) / scale)


def first_accepted(sharing, sizes):
    """Pr[the j-th in a fixed order is the first accepted], of each j, and of none."""
    scale = sharing.threshold_scale
    reach = math.ceil(40 * scale)
    limit = math.floor(sharing.steps * sharing.threshold / sharing.bound)
    rho = np.arange(-reach, reach + 1)
    going = exactly(rho, scale)
    law = []
    for size in sizes:
        yes = at_least(limit + rho - size, sharing.query_scale)
        law.append(float(going @ yes))
        going = going * (1 - yes)
    return np.array([*law, going.sum()])


def bounded_law(sharing, level):
    """The law of one uploaded value, on -N..N."""
    n, scale = sharing.steps, sharing.answer_scale
    law = exactly(np.arange(-n, n + 1) - level, scale)
    law[-1], law[0] = at_least(n - level, scale), at_least(n + level, scale)
    return law


SMALL = SelectiveSharing(4.0, parameters=4, share=0.25, bound=0.5, threshold=0.5, passes=1)


def test_the_oracle_is_a_law():
    assert first_accepted(SMALL, [0, 5, SMALL.steps]).sum() == pytest.approx(1.0, abs=1e-9)
    assert bounded_law(SMALL, 300).sum() == pytest.approx(1.0, abs=1e-9)


def accepted_after(sharing, many, rest, own, highest=math.inf):
    """Pr[``many`` of size ``rest`` are refused, then one of size ``own`` is accepted].

    ``highest``: only thresholds up to it.
    """
    scale = sharing.threshold_scale
    reach = math.ceil(40 * scale)
    limit = math.floor(sharing.steps * sharing.threshold / sharing.bound)
    rho = np.arange(-reach, reach + 1)
    kept = exactly(rho, scale) * (limit + rho <= highest)
    refused = 1 - at_least(limit + rho - rest, sharing.query_scale)
    return float((kept * refused**many) @ at_least(limit + rho - own, sharing.query_scale))


@pytest.mark.parametrize("many", [0, 1, 30, 10_000])
def test_the_exact_loss_of_one_upload_is_below_epsilon(many):
    n = SMALL.steps
    for rest, own, other_rest, other_own in [
        (0, n, n, 0),
        (n, n, 0, 0),
        (n, n, 0, -n),
        (0, 0, n, n),
    ]:
        laws = [
            accepted_after(SMALL, many, size, abs(level)) * bounded_law(SMALL, level)
            for size, level in ((rest, own), (other_rest, other_own))
        ]
        # At most 17/18 of epsilon, since size and value do not move fully together.
        assert np.abs(np.log(laws[0] / laws[1])).max() <= 17 / 18 * SMALL.epsilon + 1e-9


def test_the_exact_loss_of_one_upload_comes_near_epsilon():
    n = SMALL.steps
    loss = math.log(accepted_after(SMALL, 30_000, 0, n) / accepted_after(SMALL, 30_000, n, 0))
    assert loss == pytest.approx(8 / 9 * SMALL.epsilon, rel=1e-6)  # the proof is tight


def test_a_value_that_changes_sign_costs_a_ninth():
    first, second = bounded_law(SMALL, SMALL.steps), bounded_law(SMALL, -SMALL.steps)
    loss = float(np.abs(np.log(first / second)).max())
    assert loss == pytest.approx(SMALL.epsilon / 9, rel=1e-6)
    assert loss <= SMALL.epsilon / 9 * (1 + 1e-14)


@pytest.mark.parametrize("noise_too_small", [0.9, 0.5])
def test_the_bound_would_notice_less_noise(noise_too_small):
    n = SMALL.steps
    scale = noise_too_small * SMALL.answer_scale
    loss = math.log(exactly(0, scale) / exactly(2 * n, scale))
    assert loss > SMALL.epsilon / 9 * 1.05


# --- the noise that is really drawn -------------------------------------------------------------


def test_every_scale_is_the_formula():
    sharing = SelectiveSharing(3.0, 1000, 0.05, 0.01, 0.001)
    c, n = 50, sharing.steps
    assert sharing.uploaded == c
    assert sharing.threshold_scale == pytest.approx(2 * c * n / (8 / 9 * 3), rel=1e-14)
    assert sharing.query_scale == pytest.approx(4 * c * n / (8 / 9 * 3), rel=1e-14)
    assert sharing.answer_scale == pytest.approx(2 * c * 2 * n / (2 / 9 * 3), rel=1e-14)


def test_each_comparison_and_each_answer_draws_its_own(monkeypatch):
    drawn = []

    def recorded(scale, size, coins):
        drawn.append((scale, size))
        return discrete_laplace(scale, size, coins)

    monkeypatch.setattr(selective, "discrete_laplace", recorded)
    sharing = SelectiveSharing(50.0, 40, 0.25, 1.0, 0.1)
    indices, _ = sharing.select_and_perturb(np.linspace(-1, 1, 40), SeededCoins(3))
    assert drawn[0] == (sharing.threshold_scale, 10)  # a threshold for each acceptance
    assert drawn[1] == (sharing.query_scale, 40)  # a noise for each question
    assert drawn[-1] == (sharing.answer_scale, len(indices))
    assert {scale for scale, _ in drawn[1:-1]} == {sharing.query_scale}


def test_acceptance_has_the_exact_law():
    sharing = SelectiveSharing(4.0, 1, 1.0, 1.0, 0.5, passes=1)
    coins, runs = SeededCoins(11), 4_000
    for gradient in (0.0, -1.0):
        got = sum(len(sharing.select_and_perturb([gradient], coins)[0]) for _ in range(runs))
        expected = first_accepted(sharing, [abs(gradient) * sharing.steps])[0]
        assert stats.binomtest(got, runs, expected).pvalue > 1e-4


def test_uploaded_values_have_the_exact_law():
    size = 50_000
    sharing = SelectiveSharing(6.0 * size, size, 1.0, 1.0, 0.0, passes=200)
    indices, values = sharing.select_and_perturb(np.full(size, 0.25), SeededCoins(5))
    assert len(indices) == size
    levels = np.rint(values.astype(np.float64) * sharing.steps).astype(int)
    law = bounded_law(sharing, sharing.steps // 4)
    edges = np.linspace(0, len(law), 9, dtype=int)
    expected = np.add.reduceat(law, edges[:-1])
    got = np.histogram(levels + sharing.steps, bins=edges)[0]
    assert stats.chisquare(got, expected / expected.sum() * size).pvalue > 1e-4


def test_thresholds_are_taken_in_turn_and_never_after_the_last():
    order, noisy = np.array([7, 3, 5, 1]), np.array([4, 9, 2, 9])
    assert selective._above(order, noisy, np.array([5, 1, 0])) == [3, 5, 1]
    assert selective._above(order, noisy, np.array([5])) == [3]
    assert selective._above(order, noisy, np.array([100, 0])) == []


def test_large_gradients_are_preferred():
    gradient = np.zeros(2_000)
    gradient[::20] = 1.0
    sharing = SelectiveSharing.from_paper(
        100.0, parameters=2_000, share=0.05, bound=1.0, threshold=0.6, uploads=1
    )
    indices, values = sharing.select_and_perturb(gradient, SeededCoins(2))
    assert len(indices) == 100
    assert np.isin(indices, np.arange(0, 2_000, 20)).mean() > 0.95
    assert values[np.isin(indices, np.arange(0, 2_000, 20))].mean() > 0.7


# --- what a participant may hold ----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=5, max_size=5),
    st.floats(1e-6, 1e6),
    st.integers(0, 2**32),
)
def test_uploads_lie_within_the_bound_whatever_was_given(gradient, bound, seed):
    sharing = SelectiveSharing(2.0, 5, 0.6, bound, bound / 3)
    indices, values = sharing.select_and_perturb(gradient, SeededCoins(seed))
    assert indices.dtype == np.int64
    assert values.dtype == np.float32
    assert len(indices) == len(values) <= sharing.uploaded == 3
    assert np.all(np.diff(indices) > 0)
    assert np.all(np.abs(values.astype(np.float64)) <= bound)


def test_what_is_no_number_counts_as_nothing():
    sharing = SelectiveSharing(2.0, 4, 0.5, 1.0, 0.1)
    odd = [math.nan, math.inf, -math.inf, 1e300]
    first = sharing.select_and_perturb(odd, SeededCoins(1))
    second = sharing.select_and_perturb([0.0, 0.0, 0.0, 1.0], SeededCoins(1))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_unreachable_threshold_ends():
    sharing = SelectiveSharing(1e6, 50, 0.5, 1.0, 1.0, passes=3)
    indices, values = sharing.select_and_perturb(np.zeros(50), SeededCoins(1))
    assert len(indices) == len(values) == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 1e-12}, "epsilon"),
        ({"epsilon": 1e30}, "epsilon"),
        ({"parameters": 0}, "parameters"),
        ({"share": 1.5}, "share"),
        ({"bound": -1}, "bound"),
        ({"bound": 1e-40}, "bound"),
        ({"threshold": 2.0}, "threshold"),
        ({"uploads": 0}, "uploads"),
        ({"passes": 0}, "passes"),
        ({"unit": ""}, "unit"),
    ],
)
def test_bad_parameters_are_named(change, named):
    right = {"epsilon": 1.0, "parameters": 9_000, "share": 0.5, "bound": 1.0, "threshold": 0.1}
    with pytest.raises(ValueError, match=named):
        SelectiveSharing(**(right | change))


@pytest.mark.parametrize("shape", [(4,), (6,), (1, 5), ()])
def test_another_number_of_parameters_is_refused(shape):
    with pytest.raises(ValueError, match="gradient"):
        SelectiveSharing(1.0, 5, 0.5, 1.0, 0.1).select_and_perturb(np.zeros(shape))


# --- what it costs ------------------------------------------------------------------------------


def test_the_guarantee_names_relation_and_unit():
    sharing = SelectiveSharing(0.1, 10, 0.5, 1.0, 0.1, uploads=50, unit="hospital")
    one, all_of_them = sharing.upload_guarantee(), sharing.guarantee(1e-5)
    assert one.neighbours is all_of_them.neighbours is Neighbours.REPLACE_ONE
    assert one.unit == all_of_them.unit == "hospital"
    assert sharing.guarantee().epsilon == pytest.approx(5.0)
    assert all_of_them.epsilon == pytest.approx(2.8447, abs=1e-4)  # optimal composition
    assert all_of_them == account(sharing.event, 1e-5)
    assert event_from_dict(sharing.event.to_dict()) == sharing.event


@pytest.mark.parametrize(("share", "parameters", "uploaded"), [(0.29, 100, 29), (1e-6, 10, 1)])
def test_a_share_is_a_number_of_parameters(share, parameters, uploaded):
    assert SelectiveSharing(1.0, parameters, share, 1.0, 0.1).uploaded == uploaded


# --- faulty versions are caught -----------------------------------------------------------------

TWO = SelectiveSharing(1.0, 2, 1.0, 1.0, 0.0, passes=50)


def audited(upload, first, second, samples=1_200):
    coins = SeededCoins(2_015)

    def draw(gradient, count):
        return np.array([upload(np.array(gradient), coins) for _ in range(count)])

    claim = TWO.upload_guarantee()
    return audit_mechanism(draw, [(first, second)], claim=claim, samples=samples)


def dense(indices, values):
    shown = np.zeros(2)
    shown[indices] = values
    return shown


def test_the_right_version_passes():
    found = audited(
        lambda g, coins: dense(*TWO.select_and_perturb(g, coins)), [1.0, 1.0], [-1.0, -1.0]
    )
    assert not found.refuted


def test_one_noise_for_all_answers_is_caught():
    """Both values get the same draw: equal gradients give equal values, others never do."""

    def upload(gradient, coins):
        noise = discrete_laplace(TWO.answer_scale, 1, coins)[0]
        return TWO.steps * gradient + noise  # shown before they are bounded again

    found = audited(lambda g, coins: np.diff(upload(g, coins)), [0.5, 0.5], [0.5, -0.5])
    assert found.refuted


def test_the_noise_of_a_comparison_shown_again_is_caught():
    """An answer k + nu, with the nu that was compared, shows that the threshold is below it.

    Then each refused parameter tells something of its own (Lyu, Su and Li, section 3).
    """
    many, n = 40, SMALL.steps

    def shown(rest, highest):
        return accepted_after(SMALL, many, rest, 0, highest)

    assert abs(math.log(shown(0, 0) / shown(n, 0))) > 2 * SMALL.epsilon
    assert abs(math.log(shown(0, math.inf) / shown(n, math.inf))) < SMALL.epsilon


def test_a_bound_measured_from_the_data_is_caught():
    def upload(gradient, coins):
        bound = float(np.abs(gradient).max())
        measured = SelectiveSharing(1.0, 2, 1.0, bound, 0.0, passes=50)
        return np.abs(dense(*measured.select_and_perturb(gradient, coins))).max()

    found = audited(upload, [1.0, 0.0], [0.1, 0.0])
    assert found.refuted
