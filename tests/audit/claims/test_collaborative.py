"""The specimens of collaborative claims do what Flower 1.41.0 does; and their figures."""

import logging
import math
import time

import numpy as np
import pytest
from scipy import stats

from sfumato.accounting import account
from sfumato.audit.claims import claim
from sfumato.audit.claims import collaborative_specimens as specimens
from sfumato.audit.claims.collaborative import CLIENTS, HEAVY, adaptive_round, broken_update
from sfumato.core.events import FixedSizeSampledEvent, GaussianEvent, dp_sgd, repeat
from sfumato.core.gaussian_profile import gaussian_delta, gaussian_epsilon

# --- Flower, with as little around it as possible -----------------------------------------------


@pytest.fixture(scope="module")
def flower():
    module = pytest.importorskip("flwr", reason="pip install 'sfumato[flower]'")
    if not module.__version__.startswith("1.41."):
        pytest.skip(f"these claims are about Flower 1.41, here is {module.__version__}")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    return module


@pytest.fixture(scope="module")
def wrappers(flower):
    from flwr.serverapp import strategy

    return strategy


def message(*updates, examples=1, bit=None):
    from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict

    arrays = {f"w{i}": Array(np.asarray(u, np.float64)) for i, u in enumerate(updates)}
    numbers = {"num-examples": examples} | ({} if bit is None else {"norm_bit": bit})
    content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord(numbers)})
    about = Metadata(
        run_id=1, message_id="", src_node_id=1, dst_node_id=2, reply_to_message_id="", group_id="",
        created_at=time.time(), ttl=60.0, message_type="train",
    )  # fmt: skip
    return Message(content, metadata=about)


def zeros(size=2):
    from flwr.app import Array, ArrayRecord

    return ArrayRecord({"w0": Array(np.zeros(size))})


def averaged(wrapper, replies):
    wrapper.current_arrays = zeros(len(replies[0].content["arrays"].to_numpy_ndarrays()[0]))
    arrays, _ = wrapper.aggregate_train(1, replies)
    return arrays.to_numpy_ndarrays()[0]


def flowers_seed(seed):
    np.random.seed(seed)  # noqa: NPY002 (Flower draws from it)


QUIET = [np.full(2, 1e-9)] * (CLIENTS - 1)
HARDLY_ANY = 1e-12  # a noise multiplier


def fixed(wrappers, clients=CLIENTS, noise=HARDLY_ANY, **more):
    return wrappers.DifferentialPrivacyServerSideFixedClipping(
        wrappers.FedAvg(), noise, 1.0, clients, **more
    )


# --- a heavy participant ------------------------------------------------------------------------


def test_flower_weighs_by_examples_as_the_specimen_does(wrappers):
    last, weights = np.array([7.0, 0.0]), [1.0] * (CLIENTS - 1) + [HEAVY]
    replies = [message(u) for u in QUIET] + [message(last, examples=int(HEAVY))]
    got = averaged(fixed(wrappers), replies)
    assert got == pytest.approx(specimens.weighted_mean([*QUIET, last], weights, 1.0), abs=1e-9)
    assert got[0] == pytest.approx(0.991, abs=1e-6)  # where 0.1 was assumed


def test_flowers_noise_is_for_a_plain_mean(wrappers):
    flowers_seed(1)
    replies = [message(np.full(20_000, 1e-9), examples=1 + 99 * i) for i in range(CLIENTS)]
    got = averaged(fixed(wrappers, noise=2.0), replies)
    assert got.std() == pytest.approx(specimens.mean_deviation(2.0, 1.0, CLIENTS), rel=0.03)


def test_flower_with_an_accountant_refuses_other_weights(wrappers):
    wrapper = fixed(wrappers, noise=1.0, accountant=flower_accountant(CLIENTS))
    wrapper._pending_events[1] = None
    replies = [message(u) for u in QUIET] + [message(np.ones(2), examples=2)]
    with pytest.raises(ValueError, match="equal client weights"):
        averaged(wrapper, replies)


def test_a_heavy_participant_leaves_a_tenth_of_the_noise(results):
    exact = gaussian_epsilon(1 / (CLIENTS * 0.991), 1e-5)
    assert results["a-heavy-participant"].found.epsilon == pytest.approx(exact, rel=1e-4)


# --- not a number, and nothing ------------------------------------------------------------------


def test_flower_lets_not_a_number_pass_as_the_specimen_does(wrappers):
    replies = [message(u) for u in [*QUIET, broken_update()]]
    got = averaged(fixed(wrappers), replies)
    expected = specimens.weighted_mean(
        [*QUIET, broken_update()], [1.0] * CLIENTS, 1.0, specimens.clipped_by_division
    )
    assert math.isnan(got[0])
    assert math.isnan(expected[0])
    assert got[1] == pytest.approx(expected[1], rel=1e-9)
    assert got[1] == pytest.approx(1e5, rel=1e-6)  # a clip of 1, and n = 10


def test_flower_divides_by_zero_as_the_specimen_does(wrappers):
    replies = [message(u) for u in [*QUIET, np.zeros(2)]]
    with pytest.raises(ZeroDivisionError):
        averaged(fixed(wrappers), replies)
    with pytest.raises(ZeroDivisionError):
        specimens.clipped_by_division(np.zeros(2), 1.0)


def test_a_mod_that_failed_ends_flowers_round_for_all(wrappers):
    from flwr.app import Error, Message

    fine = message(np.ones(2))
    failed = Message(Error(code=0, reason="ZeroDivisionError"), metadata=fine.metadata)
    wrapper = wrappers.DifferentialPrivacyClientSideFixedClipping(wrappers.FedAvg(), 1.0, 1.0, 2)
    assert wrapper.aggregate_train(1, [fine, failed]) == (None, None)


@pytest.mark.parametrize("update", [[0.0, 0.0], [math.nan, 1e6], [math.inf, 0.0], []])
def test_the_right_clip_knows_nothing_of_either(update):
    got = specimens.clipped(np.array(update), 1.0)
    assert not got.any()


@pytest.mark.parametrize("update", [[3.0, 4.0], [1e300, 1e300], [0.3, 0.4], [1e-320, 0.0]])
def test_the_right_clip_is_flat_clipping(update):
    got = np.linalg.norm(specimens.clipped(np.array(update), 1.0))
    assert got == pytest.approx(min(1.0, math.hypot(*update)), rel=1e-12)


# --- adaptive clipping --------------------------------------------------------------------------


def adaptive(wrappers, clients=100, noise=1.0, **more):
    return wrappers.DifferentialPrivacyServerSideAdaptiveClipping(
        wrappers.FedAvg(), noise, clients, **more
    )


def test_flowers_clip_runs_backwards(wrappers):
    """Everything is clipped, so C should grow; it falls, as the specimen's does."""
    wrapper = adaptive(wrappers, clients=10, noise=0.0)
    clip = ours = 0.1
    for _ in range(20):
        averaged(wrapper, [message([5.0, 0.0]) for _ in range(10)])
        clip, ours = specimens.next_clip_backwards(clip, 1.0), specimens.next_clip(ours, 1.0)
    assert wrapper.clipping_norm == pytest.approx(clip, rel=1e-12)
    assert clip == pytest.approx(0.0135, abs=5e-5)
    assert ours == pytest.approx(0.739, abs=5e-4)


def test_flowers_clip_grows_where_nothing_is_clipped(wrappers):
    wrapper = adaptive(wrappers, clients=10, noise=0.0)
    for _ in range(20):
        averaged(wrapper, [message([1e-6, 0.0]) for _ in range(10)])
    assert wrapper.clipping_norm == pytest.approx(0.1 * math.exp(2.0), rel=1e-12)


def test_the_client_side_runs_backwards_too(wrappers):
    wrapper = wrappers.DifferentialPrivacyClientSideAdaptiveClipping(wrappers.FedAvg(), 0.0, 10)
    averaged(wrapper, [message([0.1, 0.0], bit=1) for _ in range(10)])
    assert wrapper.clipping_norm == pytest.approx(specimens.next_clip_backwards(0.1, 1.0))


def test_a_clip_that_runs_forwards_settles():
    rng = np.random.default_rng(1)
    lengths, clip = np.exp(rng.standard_normal(1_000)), 0.1
    for _ in range(200):
        clip = specimens.next_clip(clip, float((lengths > clip).mean()))
    assert clip == pytest.approx(np.median(lengths), rel=0.01)


def test_flowers_noise_is_for_the_next_clip(wrappers):
    flowers_seed(2)
    size = 20_000
    wrapper = adaptive(wrappers, clients=40, initial_clipping_norm=1.0, clip_norm_lr=2.0)
    got = averaged(wrapper, [message(np.full(size, 1.0)) for _ in range(40)])
    assert wrapper.clipping_norm < 0.5  # about 1/e
    expected = specimens.mean_deviation(wrapper.noise_multiplier, wrapper.clipping_norm, 40)
    assert got.std() == pytest.approx(expected, rel=0.03)
    assert got.mean() * math.sqrt(size) == pytest.approx(1.0, abs=0.2)  # clipped to the old one


@pytest.mark.parametrize("name", ["AdaptiveClipping", "FixedClipping"])
def test_flowers_old_wrappers_do_the_same(flower, name):
    """Weights by examples, and for an adaptive clip noise for the next one, backwards."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import strategy as old

    flowers_seed(4)
    size, heavy, kind = 20_000, 991, getattr(old, f"DifferentialPrivacyServerSide{name}")
    if name == "AdaptiveClipping":
        wrapper = kind(old.FedAvg(), 1.0, 100, 1.0, clip_norm_lr=2.0)
    else:
        wrapper = kind(old.FedAvg(), 1.0, 1.0, 100)
    wrapper.current_round_params = [np.zeros(size)]

    def result(update, examples):
        sent = ndarrays_to_parameters([update])
        return None, FitRes(Status(Code.OK, ""), sent, examples, {})

    short = np.full(size, 1e-9)
    results = [result(np.ones(size), heavy), *[result(short, 1)] * 9, *[result(-short, 0)] * 90]
    got = parameters_to_ndarrays(wrapper.aggregate_fit(1, results, [])[0])[0]
    assert got.mean() * math.sqrt(size) == pytest.approx(heavy / (heavy + 9), abs=0.1)
    noise = specimens.mean_deviation(wrapper.noise_multiplier, wrapper.clipping_norm, 100)
    assert got.std() == pytest.approx(noise, rel=0.03)
    if name == "AdaptiveClipping":  # one in a hundred was clipped, and C grew by e
        assert wrapper.clipping_norm > 2


def test_the_adaptive_round_is_a_mean_over_the_next_clip(results):
    promise = claim("noise-for-the-next-clip").claimed
    found = results["noise-for-the-next-clip"].found.epsilon
    own = (1 - 0.01) ** -0.5
    draws = own * np.exp(-0.2 * (0.5 + np.random.default_rng(3).standard_normal(4_000) / 20)) / 2
    simulated = np.mean([gaussian_delta(m, found) for m in draws])
    assert simulated == pytest.approx(1e-5, rel=0.05)
    # With the clip's own noise the round is within its promise, and nearly exhausts it.
    right = adaptive_round(1.0, 100, False, promise).epsilon
    assert right == pytest.approx(gaussian_epsilon(own / 2, 1e-5), rel=1e-4)
    # A faster rate makes it worse.
    assert adaptive_round(1.0, 100, True, promise, rate=1.0).epsilon > 1.5 * found


# --- whom a number is about ---------------------------------------------------------------------


def flower_accountant(population, sampling="NO_AMPLIFICATION", relation="ADD_OR_REMOVE_ONE"):
    from flwr import serverapp

    return serverapp.RdpAccountant(
        serverapp.PrivacyConfig(
            target_delta=1e-5,
            population_size=population,
            neighboring_relation=serverapp.NeighboringRelation[relation],
            sampling_method=serverapp.SamplingMethod[sampling],
        )
    )


def flower_epsilon(accountant, noise, sample, population, rounds):
    from flwr import serverapp

    accountant.compose(serverapp.GaussianPrivacyEvent(noise, sample, population), rounds)
    return accountant.get_epsilon(1e-5)


def test_flowers_account_of_a_sample_is_the_claimed_one(flower):
    told = flower_epsilon(flower_accountant(101), 2.0, 100, 101, 1)
    assert told == pytest.approx(
        claim("a-sample-of-fixed-size-as-removal").claimed.epsilon, rel=0.01
    )


def test_whoever_leaves_flowers_sample_is_replaced(wrappers):
    """With 101 people a sample of 100 may have her in another's place: 2C / n apart."""
    others, hers = [np.array([1.0, 0.0])] * 100, np.array([-1.0, 0.0])
    wrapper = fixed(wrappers, clients=100)
    apart = averaged(wrapper, [message(u) for u in others]) - averaged(
        wrapper, [message(u) for u in [*others[1:], hers]]
    )
    assert apart[0] == pytest.approx(2 / 100, rel=1e-6)


def test_flower_with_an_accountant_refuses_one_fewer(wrappers):
    wrapper = fixed(wrappers, clients=100, noise=1.0, accountant=flower_accountant(101))
    wrapper._pending_events[1] = None
    wrapper.current_arrays = zeros()
    assert wrapper.aggregate_train(1, [message(np.ones(2)) for _ in range(99)]) == (None, None)


@pytest.mark.parametrize("sampling", ["POISSON", "WITHOUT_REPLACEMENT"])
def test_flowers_wrappers_accept_no_amplification_alone(wrappers, sampling):
    relation = "ADD_OR_REMOVE_ONE" if sampling == "POISSON" else "REPLACE_ONE"
    with pytest.raises(ValueError, match="no-amplification"):
        fixed(wrappers, noise=1.0, accountant=flower_accountant(10_000, sampling, relation))


def test_an_account_without_amplification_is_wasteful(flower):
    told = flower_epsilon(flower_accountant(10_000), 1.0, 100, 10_000, 1_000)
    gaussians = account(repeat(GaussianEvent(1.0), 1_000), 1e-5).epsilon
    sampled = repeat(FixedSizeSampledEvent(GaussianEvent(1.0), 100, 10_000), 1_000)
    assert told == pytest.approx(654.9, abs=0.1)
    assert gaussians == pytest.approx(634.0, abs=0.1)
    assert account(sampled, 1e-5, accountant="rdp").epsilon == pytest.approx(20.99, abs=0.01)
    assert account(sampled, 1e-5).epsilon == pytest.approx(14.83, abs=0.01)
    assert account(dp_sgd(1.0, 0.01, 1_000), 1e-5).epsilon == pytest.approx(1.83, abs=0.01)


def test_flowers_accountant_alone_is_fed_the_multiplier_of_a_removal(flower):
    """Without a wrapper it takes fixed samples; z then has to be sigma / 2C."""
    known = flower_accountant(10_000, "WITHOUT_REPLACEMENT", "REPLACE_ONE")
    assert flower_epsilon(known, 1.0, 100, 10_000, 1_000) == pytest.approx(3.576, abs=1e-3)
    halved = flower_accountant(10_000, "WITHOUT_REPLACEMENT", "REPLACE_ONE")
    assert flower_epsilon(halved, 0.5, 100, 10_000, 1_000) == pytest.approx(20.99, abs=0.02)


def test_the_sample_of_fixed_size_is_as_simulated():
    rng, runs = np.random.default_rng(4), 400_000
    hers = np.where(rng.random(runs) < 100 / 101, -2.0, 0.0) + 2 * rng.standard_normal(runs)
    for threshold in (-4.0, -1.0, 1.0):
        exact = (1 / 101) * stats.norm.sf(threshold / 2) + (100 / 101) * stats.norm.sf(
            (threshold + 2) / 2
        )
        assert (hers > threshold).mean() == pytest.approx(exact, abs=0.003)


# --- local noise --------------------------------------------------------------------------------


def test_flowers_local_noise_is_the_specimens_in_every_round(flower):
    from flwr.clientapp.mod import LocalDpMod

    flowers_seed(3)
    size = 20_000
    mod = LocalDpMod(1.0, 2.0, 8.0, 1e-5)
    for _ in range(2):  # the second message has no less noise than the first
        sent = mod(message(np.zeros(size)), None, lambda *_: message(np.full(size, 3.0)))
        got = sent.content["arrays"].to_numpy_ndarrays()[0]
        assert got.std() == pytest.approx(specimens.local_deviation(2.0, 8.0, 1e-5), rel=0.03)
    assert not [name for name in vars(mod) if "spent" in name or "round" in name]


def test_flowers_old_local_noise_is_the_same(flower):
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.supercore.differential_privacy import add_localdp_gaussian_noise_to_params

    flowers_seed(5)
    sent = add_localdp_gaussian_noise_to_params(
        ndarrays_to_parameters([np.zeros(20_000)]), 2.0, 8.0, 1e-5
    )
    got = parameters_to_ndarrays(sent)[0]
    assert got.std() == pytest.approx(specimens.local_deviation(2.0, 8.0, 1e-5), rel=0.03)


def test_flowers_local_sensitivity_is_whatever_it_is_told(flower):
    from flwr.clientapp.mod import LocalDpMod

    mod = LocalDpMod(clipping_norm=5.0, sensitivity=0.0, epsilon=1.0, delta=1e-5)
    sent = mod(message(np.zeros(2)), None, lambda *_: message(np.array([3.0, 4.0])))
    got = sent.content["arrays"].to_numpy_ndarrays()[0]
    assert got == pytest.approx([3.0, 4.0])  # no noise at all


def test_fifty_messages_cost_117(results):
    multiplier = math.sqrt(2 * math.log(1.25e5)) / 8
    found = results["local-noise-for-one-message"].found.epsilon
    assert found == pytest.approx(117.1, abs=0.05)
    assert gaussian_epsilon(multiplier, 1e-5) == pytest.approx(7.914, abs=1e-3)  # one is right
    halved = gaussian_epsilon(multiplier / 2 / math.sqrt(50), 1e-5)
    assert halved == pytest.approx(371.3, abs=0.1)  # with a sensitivity of C


# --- selective sharing --------------------------------------------------------------------------


def test_the_answers_alone_show_a_ninth_of_the_total(results):
    found = results["epsilon-of-one-parameter"].found
    assert found.epsilon == pytest.approx(105_506 / 9, rel=1e-6)
    assert 580 < found.facts["at_delta_1e-5"] < 600  # an event that happens half of the time
    exact = 105_506 * (math.log(0.5) - 0.5 * math.log((p := math.exp(-1 / 9) / 2) * (1 - p)))
    assert found.facts["at_delta_1e-5"] == pytest.approx(exact, rel=0.02)


def test_the_specimen_has_the_noise_of_the_module():
    from sfumato.federated.selective import SelectiveSharing

    _, scale = specimens.fresh_answers(np.ones(50), 2.0, 0.3)
    ours = SelectiveSharing.from_paper(0.3, parameters=50, share=1.0, bound=2.0, threshold=0.0)
    assert scale == pytest.approx(ours.answer_scale / ours.steps * 2.0, rel=1e-12)
