"""Features that read private rows, attacked: what a fit releases shows its claim and no more.

Two tables differ by one row of the longest reach. Each is fitted over and over; what left the noise
is kept (the matrix of second moments, the sums of statistics), and an audit tells the two apart.
The noise is Gaussian, so the audit bounds mu, and with a wrong constant it refutes the claim.
"""

import dataclasses

import numpy as np
import pytest
import torch

from sfumato.accounting import account
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.features import PrivatePCA, StandardizedScattering, pca, standardized

DELTA, NOISE, SAMPLES = 1e-5, 0.4, 1400  # mu is 2.5, where counting is sharpest
SHARE = 0.7
SIZE = 3
SHAPE = (1, 4, 4)
OTHERS = torch.tensor([[0.3, -0.2, 0.1], [0.0, 2.0, 0.0]])
IMAGES = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(1))
BRIGHT = torch.full((1, *SHAPE), 1e4)
LONG = {
    "along an axis": torch.tensor([[1e6, 0.0, 0.0]]),
    "between the axes": torch.tensor([[5.0, -5.0, 5.0]]),
}
UPPER = np.triu_indices(SIZE)


@pytest.fixture
def seen(monkeypatch):
    """What left the noise, in the order of the fits."""
    kept, moments, scales = [], pca.noisy, standardized._scales

    def matrix(*arguments):
        kept.append(moments(*arguments))
        return kept[-1]

    def sums(noisy):
        kept.append(np.array(noisy))
        return scales(noisy)

    monkeypatch.setattr(pca, "noisy", matrix)
    monkeypatch.setattr(standardized, "_scales", sums)
    return kept


def audit_fits(features, pair, seen, relation=Neighbours.ADD_REMOVE, claimed=None):
    """Of fits to both tables of ``pair``; the claim is the event's, or another's."""
    module, coins = features.build(tuple(pair[0].shape[1:])), SeededCoins(1)

    def draw(rows, count):
        seen.clear()
        for _ in range(count):
            features.fit(module, rows, coins)
        released = np.stack(seen)
        return released[:, *UPPER] if released.ndim == 3 else released

    event = (claimed or features).event(relation, "record")
    claim = account(event, DELTA, neighbours=relation)
    return audit_mechanism(draw, [pair], claim=claim, samples=SAMPLES, gaussian=True)


def with_row(row):
    return OTHERS, torch.cat([OTHERS, row])


REPLACED = tuple(torch.cat([OTHERS, row[None]]) for row in torch.eye(SIZE)[:2])
IMAGE = (IMAGES, torch.cat([IMAGES, BRIGHT]))


# --- private components ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", LONG)
def test_second_moments_show_their_claim_and_no_more(row, seen):
    found = audit_fits(PrivatePCA(2, NOISE), with_row(LONG[row]), seen)
    assert not found.refuted
    assert found.epsilon >= SHARE * found.claim.epsilon


def test_a_replaced_row_shows_its_own_claim_and_more_than_that_of_an_added_one(seen):
    features = PrivatePCA(2, NOISE)
    found = audit_fits(features, REPLACED, seen, Neighbours.REPLACE_ONE)
    assert not found.refuted
    assert found.epsilon >= SHARE * found.claim.epsilon
    assert found.epsilon > account(features.event("add-remove", "record"), DELTA).epsilon


def weak_noise(patch):
    """A fifth too little, on every number."""
    for module in (pca, standardized):
        usual = module.add_gaussian

        def weaker(values, sigma, *rest, usual=usual):
            return usual(values, 0.8 * sigma, *rest)

        patch.setattr(module, "add_gaussian", weaker)


def halved_twice(patch):
    """Half the noise off the diagonal, where half its variance is meant."""
    patch.setattr(pca, "at_least_product", lambda s, _: s / 2)


def long_rows(patch):
    """Rows of norm 1.2."""
    usual = pca._scaled
    patch.setattr(pca, "_scaled", lambda rows: 1.2 * usual(rows))


@pytest.mark.parametrize(
    ("wrong", "row"),
    [
        (weak_noise, "along an axis"),
        (halved_twice, "between the axes"),
        (long_rows, "along an axis"),
    ],
    ids=["weak noise", "halved twice", "long rows"],
)
def test_wrong_components_are_refuted(monkeypatch, seen, wrong, row):
    wrong(monkeypatch)
    assert audit_fits(PrivatePCA(2, NOISE), with_row(LONG[row]), seen).refuted


# --- standardised scattering ----------------------------------------------------------------------

SCATTERING = StandardizedScattering(NOISE, scales=1, orientations=2)


def test_statistics_show_their_claim_and_no_more(seen):
    found = audit_fits(SCATTERING, IMAGE, seen)
    assert not found.refuted
    assert found.epsilon >= SHARE * found.claim.epsilon


def clipped_late(patch):
    """Each part to norm 1.6, not 1."""
    usual = standardized._clipped
    patch.setattr(standardized, "_clipped", lambda rows: 1.6 * usual(rows))


@pytest.mark.parametrize("wrong", [weak_noise, clipped_late])
def test_wrong_statistics_are_refuted(monkeypatch, seen, wrong):
    wrong(monkeypatch)
    assert audit_fits(SCATTERING, IMAGE, seen).refuted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("features", "pair"),
    [(PrivatePCA(2, NOISE), with_row(row)) for row in LONG.values()] + [(SCATTERING, IMAGE)],
    ids=[*LONG, "scattering"],
)
def test_a_tenth_is_refuted_at_length(monkeypatch, seen, features, pair):
    """The same fits, with a claim of more noise than they have."""
    monkeypatch.setitem(globals(), "SAMPLES", 10_000)
    found = audit_fits(features, pair, seen)
    assert not found.refuted
    assert found.epsilon >= 0.85 * found.claim.epsilon
    more = dataclasses.replace(features, noise_multiplier=NOISE / 0.9)
    assert audit_fits(features, pair, seen, claimed=more).refuted
