"""Each accountant's curves against independent computations: never below, and hardly above."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, special, stats

import sfumato as sf
from sfumato import events
from sfumato.accounting.atoms import PoissonAtom
from sfumato.accounting.pld import loss_distribution
from sfumato.accounting.rdp import atom_rdp, rdp_vector

ADD, REP, ZERO = sf.Neighbours.ADD_REMOVE, sf.Neighbours.REPLACE_ONE, sf.Neighbours.ZERO_OUT
EPSILONS = np.array([0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 2.0])


def stick(p, q, epsilons=EPSILONS, weight=1.0):
    """The larger hockey-stick divergence of two lists of probabilities, at each epsilon."""
    p, q = np.asarray(p, float), np.asarray(q, float)
    one = [np.maximum(p - math.exp(e) * q, 0).sum() for e in epsilons]
    other = [np.maximum(q - math.exp(e) * p, 0).sum() for e in epsilons]
    return weight * np.maximum(one, other)


def claimed(event, relation=ADD):
    return loss_distribution(event, relation).delta(EPSILONS)


def check(event, truth, relation=ADD, slack=3e-6):
    found = claimed(event, relation)
    assert np.all(found >= truth - 1e-12)
    assert np.all(found <= truth + slack)


WIDTH = 2e-4
GRID = np.arange(-40, 44, WIDTH)


def normal(centre, sigma):
    return stats.norm.pdf(GRID, centre, sigma)


@pytest.mark.parametrize(("sigma", "q"), [(1.0, 0.1), (2.0, 0.01), (0.7, 0.5), (3.0, 1.0)])
def test_sampled_gaussians(sigma, q):
    absent, here = normal(0, sigma), (1 - q) * normal(0, sigma) + q * normal(1, sigma)
    mirrored = (1 - q) * normal(0, sigma) + q * normal(-1, sigma)
    event = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    check(event, stick(here, absent, weight=WIDTH) - 1e-9)
    check(event, stick(here, mirrored, weight=WIDTH) - 1e-9, REP)


@pytest.mark.parametrize("k", [2, 3])
def test_groups_of_sampled_records_line_up(k):
    sigma, q = 1.5, 0.1
    weights = stats.binom.pmf(range(k + 1), k, q)
    here = sum(w * normal(j, sigma) for j, w in enumerate(weights))
    event = events.GroupedEvent(events.PoissonSampledEvent(events.GaussianEvent(sigma), q), k, "x")
    check(event, stick(here, normal(0, sigma), weight=WIDTH) - 1e-9)


def cut_sums(rows, q, most):
    """The density of a noisy sum over a Poisson sample, of which at most so many are kept."""
    law = {}
    for drawn in itertools.product((0, 1), repeat=len(rows)):
        here = [x for x, coin in zip(rows, drawn, strict=True) if coin]
        chance = q ** len(here) * (1 - q) ** (len(rows) - len(here))
        kept = list(itertools.combinations(here, min(most, len(here))))
        for part in kept:
            law[sum(part)] = law.get(sum(part), 0) + chance / len(kept)
    return sum(weight * normal(centre, 1.3) for centre, weight in law.items())


@pytest.mark.parametrize(("n", "most", "q"), [(1, 1, 0.3), (2, 1, 0.5), (4, 2, 0.3), (4, 3, 1.0)])
def test_cut_samples_by_brute_force(n, most, q):
    """Every table of contributions at the bound, one record more, and one replaced."""
    event = events.CutSampledEvent(events.GaussianEvent(1.3), q)
    tables = [(*rest, *more) for rest, more in itertools.product(
        itertools.combinations_with_replacement((-1, 0, 1), n), [(), (-1,), (1,)]
    )]  # fmt: skip
    laws = {table: cut_sums(table, q, most) for table in tables}
    ceiling, replaced = claimed(event), claimed(event, REP)
    largest = 0.0
    for without, more in ((t, u) for t in tables for u in tables if len(t) == n == len(u) - 1):
        if more[:n] == without:
            found = stick(laws[more], laws[without], weight=WIDTH) - 1e-9
            assert np.all(found <= ceiling)
            largest = max(largest, found[3])
            other = laws[(*without, -more[n])]
            assert np.all(stick(laws[more], other, weight=WIDTH) - 1e-9 <= replaced)
    # What is accounted for a sample that is not cut would not do: a record pushes another out.
    uncut = events.PoissonSampledEvent(events.GaussianEvent(1.3), q)
    assert n > most or largest > claimed(uncut)[3]


def test_groups_of_records_in_cut_samples():
    event = events.GroupedEvent(events.CutSampledEvent(events.GaussianEvent(1.3), 0.4), 2, "x")
    ceiling = claimed(event)
    for rest, most in itertools.product([(-1, -1, -1), (-1, 0, 1), (0, 1, 1)], (1, 2, 4)):
        without, more = cut_sums(rest, 0.4, most), cut_sums((*rest, 1, 1), 0.4, most)
        assert np.all(stick(more, without, weight=WIDTH) - 1e-9 <= ceiling)


def test_a_cut_sample_says_nothing_of_blanks():
    event = events.CutSampledEvent(events.GaussianEvent(2.0), 0.3)
    with pytest.raises(ValueError, match="no zero-out guarantee of its own"):
        sf.account(event, 1e-5, neighbours=ZERO)
    with pytest.raises(ValueError, match="must state its noise for add-remove, got zero-out"):
        events.CutSampledEvent(events.GaussianEvent(2.0, ZERO), 0.3)
    whole = events.CutSampledEvent(events.GaussianEvent(2.0), 1.0)
    assert sf.account(whole, 1e-5) == sf.account(events.GaussianEvent(1.0), 1e-5)


@pytest.mark.parametrize("noise", [0.5, 2.0, 10.0])
def test_laplace(noise):
    # delta(eps) = 1 - e^((eps - eps0)/2) for eps below eps0
    check(events.LaplaceEvent(noise), np.maximum(0, -np.expm1((EPSILONS - 1 / noise) / 2)))


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 1), (3.0, 2), (0.7, 3)])
def test_discrete_laplace(scale, shift):
    k = np.arange(-400, 400)
    p = math.tanh(1 / (2 * scale)) * np.exp(-np.abs(k) / scale)
    check(events.DiscreteLaplaceEvent(scale, shift), stick(p, np.roll(p, shift)))


@pytest.mark.parametrize(("sigma", "shift"), [(1.0, 1), (4.0, 3), (0.8, 2)])
def test_discrete_gaussian(sigma, shift):
    k = np.arange(-200, 200)
    p = np.exp(-(k**2) / (2 * sigma**2))
    p /= p.sum()
    check(events.DiscreteGaussianEvent(sigma, shift), stick(p, np.roll(p, shift)), slack=1e-4)


@pytest.mark.parametrize(("epsilon", "categories"), [(0.5, 2), (1.0, 5), (3.0, 10)])
def test_randomised_response(epsilon, categories):
    p = np.ones(categories)
    q = np.ones(categories)
    p[0] = q[1] = math.exp(epsilon)
    truth = stick(p / p.sum(), q / q.sum())
    check(events.RandomizedResponseEvent(epsilon, categories), truth, REP)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.23456, 1e-3)])
def test_opaque(epsilon, delta):
    up = (1 - delta) / (1 + math.exp(-epsilon))
    p = [delta, 0, up, 1 - delta - up]
    q = [0, delta, 1 - delta - up, up]
    check(events.EpsilonDeltaEvent(epsilon, delta), stick(p, q))


def test_bounded_range_is_the_worst_over_where_the_range_lies():
    epsilon, truth = 1.0, np.zeros(len(EPSILONS))
    for top in np.linspace(1e-6, epsilon - 1e-6, 4001):
        high, low = math.exp(top), math.exp(top - epsilon)
        p = (1 - 1 / low) / (1 / high - 1 / low)
        pair = ([p, 1 - p], [p / high, (1 - p) / low])
        truth = np.maximum(truth, [max(0, pair[0][0] - math.exp(e) * pair[1][0]) for e in EPSILONS])
    check(events.ExponentialEvent(epsilon), truth)


def test_bounded_range_covers_real_exponential_mechanisms():
    rng = np.random.default_rng(1)
    ceiling = claimed(events.ExponentialEvent(1.0))
    for _ in range(300):
        scores = rng.uniform(0, 5, 6)
        moved = scores + rng.choice([-1, 0, 1], 6)
        p, q = (np.exp(s / 2) / np.exp(s / 2).sum() for s in (scores, moved))
        assert np.all(stick(p, q) <= ceiling + 1e-12)


def response(epsilon, sample, categories=2):
    """A mechanism on a sample: randomised response about its sum, so replacements matter."""
    p = np.ones(categories)
    p[sum(sample) % categories] = math.exp(epsilon)
    return p / p.sum()


@pytest.mark.parametrize(("n", "m"), [(3, 1), (4, 2), (5, 2), (5, 4)])
def test_fixed_size_samples_by_brute_force(n, m):
    """Every table of bits, every replaced bit, the mechanism averaged over every sample."""
    epsilon = 1.0
    leaf = events.EpsilonDeltaEvent(epsilon, neighbours=REP)
    ceiling = claimed(events.FixedSizeSampledEvent(leaf, m, n), REP)
    samples = list(itertools.combinations(range(n), m))

    def law(table):
        return np.mean([response(epsilon, [table[i] for i in s]) for s in samples], axis=0)

    for table in itertools.product((0, 1), repeat=n):
        neighbour = (1 - table[0], *table[1:])
        assert np.all(stick(law(table), law(neighbour)) <= ceiling + 1e-12)


def test_composed_fixed_size_samples_by_brute_force():
    """Two independent samples of the same table: the product of the laws."""
    epsilon, n, m = 1.0, 4, 1
    leaf = events.EpsilonDeltaEvent(epsilon, neighbours=REP)
    ceiling = claimed(sf.repeat(events.FixedSizeSampledEvent(leaf, m, n), 2), REP)

    def law(table):
        once = np.mean([response(epsilon, [bit]) for bit in table], axis=0)
        return np.outer(once, once).ravel()

    for table in itertools.product((0, 1), repeat=n):
        neighbour = (1 - table[0], *table[1:])
        assert np.all(stick(law(table), law(neighbour)) <= ceiling + 1e-12)


@pytest.mark.parametrize("q", [0.05, 0.3])
def test_poisson_samples_of_opaque_releases(q):
    """Removed: (1 - q) Q + q P against Q, for the worst P, Q there are."""
    p = np.array([1.0, math.exp(-1.0)]) / (1 + math.exp(-1.0))
    q_law = p[::-1]
    mixed = (1 - q) * q_law + q * p
    event = events.PoissonSampledEvent(events.EpsilonDeltaEvent(1.0), q)
    check(event, stick(mixed, q_law))


def test_a_mixed_composition_by_direct_convolution():
    """Laplace, then randomised response on the side: outputs enumerated on a fine grid."""
    density = np.exp(-np.abs(GRID) / 2.0) / 4 * WIDTH
    moved = np.exp(-np.abs(GRID - 1) / 2.0) / 4 * WIDTH
    up = 1 / (1 + math.exp(-0.3))
    p = np.concatenate([up * density, (1 - up) * density])
    q = np.concatenate([(1 - up) * moved, up * moved])
    check(
        [events.LaplaceEvent(2.0), events.EpsilonDeltaEvent(0.3)][0], stick(density, moved) - 1e-7
    )
    both = sf.compose(events.LaplaceEvent(2.0), events.EpsilonDeltaEvent(0.3))
    check(both, stick(p, q) - 1e-7, slack=5e-5)


# --- Rényi --------------------------------------------------------------------------------------

ORDERS = (1.5, 2.0, 4.0, 16.0)


def renyi(p, q, weight=1.0):
    """Both directions' larger divergence, from positive densities."""
    p, q = np.log(p), np.log(q)
    found = []
    for a in ORDERS:
        both = (special.logsumexp(a * x + (1 - a) * y) for x, y in ((p, q), (q, p)))
        found.append((max(both) + math.log(weight)) / (a - 1))
    return np.array(found)


def test_rdp_of_integer_and_finite_laws():
    k = np.arange(-600, 600)
    p = math.tanh(1 / 6) * np.exp(-np.abs(k) / 3.0)
    moved = math.tanh(1 / 6) * np.exp(-np.abs(k - 2) / 3.0)
    found = atom_rdp(events.DiscreteLaplaceEvent(3.0, 2), ORDERS).values
    assert found == pytest.approx(renyi(p, moved), rel=1e-9)
    rr = np.array([math.e, 1, 1]) / (math.e + 2)
    found = atom_rdp(events.RandomizedResponseEvent(1.0, 3), ORDERS).values
    assert found == pytest.approx(renyi(rr, rr[[1, 0, 2]]), rel=1e-9)


def test_rdp_of_laplace_against_quadrature():
    for order, found in zip(ORDERS, atom_rdp(events.LaplaceEvent(2.0), ORDERS).values, strict=True):

        def density(x, a=order):
            return math.exp(-a * abs(x) / 2 - (1 - a) * abs(x - 1) / 2) / 4

        total = integrate.quad(density, -200, 200, points=[0, 1], limit=400)[0]
        assert found == pytest.approx(math.log(total) / (order - 1), rel=1e-7)


@pytest.mark.parametrize(("records", "replace"), [(1, True), (2, False), (3, False)])
def test_rdp_of_sampled_groups_and_replacements(records, replace):
    sigma, q = 2.0, 0.1
    weights = stats.binom.pmf(range(records + 1), records, q)
    here = sum(w * normal(j, sigma) for j, w in enumerate(weights))
    other = (
        sum(w * normal(-j, sigma) for j, w in enumerate(weights)) if replace else normal(0, sigma)
    )
    near = np.abs(GRID) < 30
    atom = PoissonAtom(events.GaussianEvent(sigma), q, records, replace)
    found = atom_rdp(atom, ORDERS[:3]).values
    assert found == pytest.approx(renyi(here[near], other[near], WIDTH)[:3], rel=1e-6)


def test_rdp_of_a_sampled_gaussian_at_whole_orders():
    """Mironov, Talwar and Zhang's binomial sum, with many digits."""
    sigma, q = 1.1, 0.02
    found = atom_rdp(PoissonAtom(events.GaussianEvent(sigma), q, 1, False), (2.0, 8.0, 32.0)).values
    for order, value in zip((2, 8, 32), found, strict=True):
        with mpmath.workdps(50):
            total = mpmath.fsum(
                mpmath.binomial(order, k)
                * mpmath.mpf(1 - q) ** (order - k)
                * mpmath.mpf(q) ** k
                * mpmath.exp(k * (k - 1) / (2 * mpmath.mpf(sigma) ** 2))
                for k in range(order + 1)
            )
            assert value == pytest.approx(float(mpmath.log(total)) / (order - 1), rel=1e-9)


def test_zcdp_and_curves():
    assert rdp_vector(events.ZcdpEvent(0.1), ADD, ORDERS).values == pytest.approx(
        0.1 * np.array(ORDERS)
    )
    curve = events.RdpCurveEvent((2.0, 4.0), (0.2, 0.4))
    assert rdp_vector(curve, ADD, ORDERS).values.tolist() == [0.2, 0.2, 0.4, math.inf]


def test_a_negative_or_broken_rdp_is_never_read_as_no_loss():
    from sfumato.accounting.rdp import epsilon_from_rdp

    broken = np.array([-1e-9, math.nan, 0.5, math.inf])
    assert epsilon_from_rdp(ORDERS, broken, 1e-5) == epsilon_from_rdp((4.0,), np.array([0.5]), 1e-5)
    assert epsilon_from_rdp(ORDERS, np.full(4, math.nan), 1e-5) == math.inf
