"""What a guarantee says: against closed forms, and against records that were changed."""

import math

import pytest
from scipy.stats import norm

from sfumato.accounting import account, privacy_profile
from sfumato.core.events import (
    CutSampledEvent,
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    NotPrivateEvent,
    event_from_dict,
)
from sfumato.core.guarantee import Guarantee
from sfumato.reports import promises
from sfumato.reports.documents import Bullets, Missing, Paragraph, Table, facts_of, pieces_of
from sfumato.reports.facts import NotOnRecord, Sources

SIGMAS = (0.4, 1.0, 5.0)
TOLERANCE = 2e-3  # relative; the curve is read from finitely many epsilons, and from above


def sources(record, origin="run"):
    return Sources({"record.json": record}, origin)


def facts(blocks):
    return [fact for block in blocks for fact in facts_of(block)]


def said(blocks):
    return " ".join(
        "".join(str(piece) for piece in pieces_of(cell))
        for block in blocks
        if isinstance(block, Paragraph | Bullets)
        for cell in (block.items if isinstance(block, Bullets) else [block.text])
    )


def power(sigma, rate):
    return norm.cdf(norm.ppf(rate) + 1 / sigma)


def close_from_above(found, truth):
    return truth * (1 - 1e-9) <= found <= truth * (1 + TOLERANCE)


# --- one Gaussian release, whose whole curve is known ---------------------------------------------


@pytest.mark.parametrize("sigma", SIGMAS)
def test_how_well_a_coin_is_guessed(gaussian_record, sigma):
    _, right, _ = facts(promises.promises(sources(gaussian_record(sigma))))
    truth = norm.cdf(1 / (2 * sigma))  # (1 + advantage) / 2
    assert close_from_above(right.value, truth)
    assert not close_from_above(right.value, norm.cdf(1 / (2.2 * sigma)))  # a tenth off
    assert right.source == "computed from run/record.json#/event"


@pytest.mark.parametrize("sigma", SIGMAS)
def test_how_many_are_found_at_one_false_alarm_in_a_hundred(gaussian_record, sigma):
    _, _, found = facts(promises.promises(sources(gaussian_record(sigma))))
    assert close_from_above(found.value, power(sigma, 0.01))
    assert not close_from_above(found.value, power(1.1 * sigma, 0.01))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_how_likely_a_record_is_reconstructed(gaussian_record, sigma):
    (_, table) = promises.reconstruction(sources(gaussian_record(sigma)))
    assert isinstance(table, Table)
    assert [prior.value for prior, _ in table.rows] == [0.1, 0.01, 0.001, 1e-6]
    for prior, bound in table.rows:
        assert close_from_above(bound.value, power(sigma, prior.value))
        assert not close_from_above(bound.value, power(1.1 * sigma, prior.value))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_epsilon_at_other_deltas(gaussian_record, sigma):
    (table,) = promises.deltas(sources(gaussian_record(sigma, delta=3e-7)))
    assert [delta.value for delta, _ in table.rows] == [1e-4, 1e-5, 1e-6, 3e-7, 1e-8]
    mu = 1 / sigma
    for delta, epsilon in table.rows:
        spent = norm.cdf(mu / 2 - epsilon.value / mu) - math.exp(epsilon.value) * norm.cdf(
            -mu / 2 - epsilon.value / mu
        )
        assert spent == pytest.approx(delta.value, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_what_several_together_have(gaussian_record, epsilon):
    claim = Guarantee(epsilon, 1e-6, "add-remove")
    event = EpsilonDeltaEvent(epsilon, 1e-6)
    known = gaussian_record(event=event, guarantee=claim)
    found = [fact.value for fact in facts(promises.limits(sources(known)))]
    _, two, delta_of_two, three, delta_of_three = found
    e = math.exp(epsilon)
    assert (two, three) == pytest.approx((2 * epsilon, 3 * epsilon))
    assert delta_of_two == pytest.approx(1e-6 * (1 + e))
    assert delta_of_three == pytest.approx(1e-6 * (1 + e + e * e))


def test_groups_of_which_nothing_is_left_are_not_told(gaussian_record):
    text = said(promises.limits(sources(gaussian_record(0.3))))
    assert "two by" not in text
    assert "protected less: a family" in text


def test_the_curve_of_a_real_run(files, runs):
    record = files["private/record.json"]
    event, delta = event_from_dict(record["event"]), record["guarantee"]["delta"]
    profile = privacy_profile(event, [1e-6, delta], rates=[0.01, 0.1])
    _, right, found = facts(promises.promises(sources(record)))
    assert right.value == pytest.approx((1 + profile.advantage) / 2, rel=1e-9)
    assert found.value == pytest.approx(profile.power_at(0.01), rel=1e-9)
    (table,) = promises.deltas(sources(record))
    at = {one.value: epsilon.value for one, epsilon in table.rows}
    assert at[1e-6] == pytest.approx(account(event, 1e-6).epsilon, rel=1e-9)
    assert at[delta] == pytest.approx(record["guarantee"]["epsilon"], rel=1e-6)


def test_the_picture_names_its_record(gaussian_record):
    (picture,) = promises.trade_off(sources(gaussian_record()))
    assert picture.source == "computed from run/record.json#/event"
    assert "wrongly accused" in picture.alt
    axes = picture.figure.axes[0]
    x, y = axes.lines[1].get_data()
    for a, b in zip(x[5:-5:20], y[5:-5:20], strict=True):
        assert b <= norm.cdf(norm.ppf(1 - a) - 1.0) + 1e-9  # a lower bound on the true curve
        assert b == pytest.approx(norm.cdf(norm.ppf(1 - a) - 1.0), abs=2e-3)


# --- in words -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("neighbours", "words"),
    [
        ("add-remove", "contain your record. Whoever"),
        ("replace-one", "contain your record, or something else in its place"),
        ("zero-out", "contain your record, or a blank in its place"),
    ],
)
def test_the_coin_is_that_of_the_relation(gaussian_record, neighbours, words):
    event = GaussianEvent(1.0, neighbours=neighbours)
    known = gaussian_record(event=event, guarantee=account(event, 1e-5))
    assert words in said(promises.promises(sources(known)))


@pytest.mark.parametrize(
    ("unit", "words"),
    [("person", "everything of yours"), ("hospital", "everything of one hospital")],
)
def test_whom_it_speaks_to(gaussian_record, unit, words):
    event = GaussianEvent(1.0, unit=unit)
    known = gaussian_record(event=event, guarantee=account(event, 1e-5))
    assert words in said(promises.promises(sources(known)))
    assert f"any one {unit} in the data" in said(promises.lead(sources(known)))


def test_finding_members_is_said_of_coins(gaussian_record):
    text = said(promises.promises(sources(gaussian_record())))
    assert "If a coin decided for each whether they are in the data, then whoever" in text
    assert "of those who are, whatever else they know." in text
    assert "Both hold whatever else" not in text


@pytest.mark.parametrize(
    ("neighbours", "rows", "told"),
    [("add-remove", 200, True), ("add-remove", None, False), ("replace-one", 200, False)],
)
def test_the_first_rows_are_a_table_of_their_own(gaussian_record, neighbours, rows, told):
    event = GaussianEvent(1.0, neighbours=neighbours)
    on_record = {"test_set": "none", "data": {"name": "x", "rows": rows}}
    known = gaussian_record(event=event, guarantee=account(event, 1e-5), facts=on_record)
    text = said(promises.limits(sources(known)))
    assert ("The first 200 rows of a larger table" in text) == told
    assert ("is a replacement among those taken" in text) == told


def cut_record(gaussian_record, claimed=None, most=30):
    plan = {"lots": {"max_size": most}, "claimed_epsilon": claimed}
    return gaussian_record(delta=1e-5, parameters={"plan": plan})


@pytest.mark.parametrize(
    ("claimed", "kept"),
    [(None, [1e-4, 1e-5]), (5.0, [1e-4, 1e-5, 1e-6]), (3.9, [1e-4])],
)
def test_cut_lots_hold_up_to_the_claimed_epsilon_alone(gaussian_record, claimed, kept):
    record = cut_record(gaussian_record, claimed)
    largest = claimed or record["guarantee"]["epsilon"]
    (table,) = promises.deltas(sources(record))
    assert [delta.value for delta, _ in table.rows] == kept
    assert max(epsilon.value for _, epsilon in table.rows) <= largest
    profile = privacy_profile(
        event_from_dict(record["event"]), [1e-5], rates=[1e-6], largest_epsilon=largest
    )
    (_, chances) = promises.reconstruction(sources(record))
    at_one_in_a_million = chances.rows[-1][1].value
    assert at_one_in_a_million == pytest.approx(profile.power_at(1e-6), rel=1e-9)
    touches_at = -norm.ppf(1e-6) - 0.5  # the epsilon whose line gives this point of the curve
    assert (at_one_in_a_million > 1.001 * power(1.0, 1e-6)) == (largest < touches_at)


def test_lots_that_cost_no_delta_hold_at_every_epsilon(gaussian_record):
    record = cut_record(gaussian_record, most=None)
    assert len(promises.deltas(sources(record))[0].rows) == 4
    event = CutSampledEvent(GaussianEvent(4.0), 0.5)  # the cut is accounted in it
    plan = {"lots": {"max_size": 30}, "claimed_epsilon": None}
    own = gaussian_record(
        event=event, guarantee=account(event, 1e-5), parameters={"plan": plan}
    )  # fmt: skip
    assert len(promises.deltas(sources(own))[0].rows) == 4


def test_words_hold_no_digits(gaussian_record):
    known = sources(gaussian_record())
    for make in (promises.lead, promises.promises, promises.limits, promises.reconstruction):
        for block in make(known):
            cells = block.items if isinstance(block, Bullets) else [getattr(block, "text", "")]
            for cell in cells:
                words = "".join(piece for piece in pieces_of(cell) if isinstance(piece, str))
                assert not any(letter.isdigit() for letter in words), words


# --- records that were changed --------------------------------------------------------------------


def warnings_of(record):
    blocks = promises.lead(sources(record))
    return [b for b in blocks if isinstance(b, Paragraph) and b.kind == "warning"]


def test_an_honest_record_has_no_warning(gaussian_record, files):
    assert warnings_of(gaussian_record()) == []
    assert warnings_of(files["private/record.json"]) == []


@pytest.mark.parametrize(
    "forged", [{"epsilon": 1.0}, {"delta": 1e-9}, {"delta": 0.0}, {"unit": "person"}]
)
def test_a_guarantee_that_does_not_follow_is_found_out(gaussian_record, forged):
    record = gaussian_record()
    record["guarantee"] |= forged
    (warning,) = warnings_of(record)
    assert "Do not rely on it" in said([warning])


def test_a_lowered_epsilon_is_found_out_in_a_real_run(files):
    record = files["private/record.json"]
    true = record["guarantee"]["epsilon"]
    record["guarantee"]["epsilon"] = 0.99 * true
    (warning,) = warnings_of(record)
    (found,) = facts([warning])
    assert found.value == pytest.approx(true, rel=1e-6)


def test_a_pure_epsilon_is_checked_too(gaussian_record):
    event = LaplaceEvent(1.0)
    record = gaussian_record(event=event, guarantee=account(event, 0.0))
    assert warnings_of(record) == []
    record["guarantee"]["epsilon"] = 0.9
    assert len(warnings_of(record)) == 1


def test_a_relation_that_does_not_follow_is_found_out(gaussian_record):
    event = GaussianEvent(1.0, neighbours="replace-one")
    record = gaussian_record(event=event, guarantee=account(event, 1e-5))
    record["guarantee"]["neighbours"] = "add-remove"
    assert len(warnings_of(record)) == 1
    with pytest.raises(NotOnRecord, match="trade-off curve"):
        promises.promises(sources(record))


def test_a_larger_epsilon_than_needed_is_no_fraud(gaussian_record):
    record = gaussian_record()
    record["guarantee"]["epsilon"] = 9.0
    assert warnings_of(record) == []


# --- what promises nothing ------------------------------------------------------------------------


def test_whether_anything_is_promised(gaussian_record):
    assert promises.promises_something(sources(gaussian_record())) is True
    assert promises.promises_something(Sources({})) is None
    for epsilon in (None, "abc", "nan", [1], {}):
        record = gaussian_record()
        record["guarantee"]["epsilon"] = epsilon
        assert promises.promises_something(sources(record)) is None
    record["guarantee"]["epsilon"] = "inf"
    assert promises.promises_something(sources(record)) is False


def test_an_event_that_promises_nothing_decides(gaussian_record):
    record = gaussian_record()
    record["event"] = NotPrivateEvent().to_dict()
    assert promises.promises_something(sources(record)) is False
    assert "NOT PRIVATE" in said(promises.lead(sources(record)))


def test_seeded_noise_promises_nothing(gaussian_record):
    known = sources(gaussian_record(private=False))
    text = said(promises.lead(known))
    assert text.startswith("NOT PRIVATE: made with seeded test coins")
    assert "Had its noise been secret" in text
    for make in (promises.promises, promises.limits, promises.deltas, promises.trade_off,
                 promises.reconstruction):  # fmt: skip
        with pytest.raises(NotOnRecord, match="private"):
            make(known)


def test_nothing_is_promised_unless_the_record_says_it_is_private(gaussian_record):
    record = gaussian_record()
    del record["private"]
    with pytest.raises(NotOnRecord, match=r"run/record\.json#/private"):
        promises.lead(sources(record))
    record["private"] = "yes"
    with pytest.raises(NotOnRecord, match="private"):
        promises.promises(sources(record))


def test_without_its_event_a_guarantee_is_stated_and_not_vouched_for(gaussian_record):
    record = gaussian_record()
    del record["event"]
    blocks = promises.lead(sources(record))
    assert "is limited: epsilon" in said(blocks)
    assert blocks[-1] == Missing("run/record.json#/event")


# --- parameters that were changed -----------------------------------------------------------------


def trained(gaussian_record, stated=1.0, phases=((1.0, 1.0),), **plan):
    """A record whose plan states a noise multiplier; the event has 1."""
    record = gaussian_record(1.0)
    known = {"noise_multiplier": stated, "schedule": {"phases": phases}}
    return record | {"parameters": {"plan": known | plan}}


@pytest.mark.parametrize("wrap", [lambda plan: {"plan": plan}, lambda plan: plan])
def test_a_noise_multiplier_that_is_not_the_events_is_told(gaussian_record, wrap):
    right, wrong = (trained(gaussian_record, stated) for stated in (1.0, 100.0))
    for record in (right, wrong):
        record["parameters"] = wrap(record["parameters"]["plan"])
    warning = "state a noise multiplier of 100, which is not that of the event"
    assert "not that of the event" not in said(promises.lead(sources(right)))
    assert warning in said(promises.lead(sources(wrong)))
    assert "the record was changed" in said(promises.lead(sources(wrong)))


@pytest.mark.parametrize(
    "plan",
    [
        {"stated": 2.0, "phases": ((1.0, 0.5),)},
        {"stated": 7.0, "phases": ((0.5, 1.5), (0.5, 0.5))},
        {"stated": 7.0, "correlation": {"kind": "tree"}},
    ],
    ids=["a factor", "falling", "correlated"],
)
def test_noise_that_changes_over_steps_is_not_compared(gaussian_record, plan):
    assert "not that of the event" not in said(
        promises.lead(sources(trained(gaussian_record, **plan)))
    )
