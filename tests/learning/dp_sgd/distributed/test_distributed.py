"""Two real processes against one: the same lots, sums, noise and guarantee, or the same refusal.

One world runs all scenarios, as starting processes is what takes long. Bugs that other engines had
on several workers have a test each here: every worker adding its own noise, all workers seeing the
same data, a normaliser taken from a worker's batch (Opacus 196, 324).
"""

import itertools

import pytest
import torch

from sfumato.learning.dp_sgd.gradients.summing import ALLOWANCE

from .conftest import load_benchmark

SCENARIOS = (
    "equality", "noise", "seeded_noise", "rows_seen", "normaliser", "facts", "saved", "refusals",
    "charged", "mixed_precision", "ensembles",
    "traffic",
    "neighbours", "adapting",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("world")


@pytest.fixture(scope="module")
def two(folder, run_world):
    return run_world(folder, 2, *SCENARIOS)


def both(two, name):
    return [rank[name] for rank in two]


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one) and one.keys() == other.keys()


# --- equal to one process ---------------------------------------------------------------------


def test_two_ranks_train_as_one_process_does(two):
    for rank in both(two, "equality"):
        assert len(rank) == 28
        for name, found in rank.items():
            assert found["apart"] < 1e-6 < 5e-3 < found["moved"], name


def test_sharded_parameters_in_short_numbers_keep_whole_sums(two):
    for found in both(two, "mixed_precision"):
        assert found["apart"] < 0.02 * found["moved"]
        assert found["kinds"] == {"torch.float32"}
        assert found["eta"] == 2.0**-14 + ALLOWANCE["float32"]


def test_the_operator_is_told_of_all_ranks_together_and_once(two):
    leader, other = both(two, "facts")
    assert len(leader["one"]) == 4
    for kind in ("two", "sharded"):
        assert torch.allclose(torch.tensor(leader[kind]), torch.tensor(leader["one"]), rtol=1e-5)
        assert other[kind] == []


def test_traffic_is_what_the_page_on_scale_says(two):
    scale = load_benchmark("scale")
    for found in both(two, "traffic"):
        assert found["replicated"] == pytest.approx(scale.sent(found["parameters"], 2), rel=0.01)
        each = scale.sent_sharded(found["parameters"], 2)
        assert found["sharded"] == pytest.approx(found["parts"] * each, rel=0.01)


# --- noise once, on every coordinate ------------------------------------------------------------


@pytest.mark.parametrize("source", ["coins", "chacha"])
@pytest.mark.parametrize("sharded", [False, True])
def test_noise_is_added_once_in_total(two, sharded, source):
    one, other = both(two, "noise")
    found = one[sharded, source].double()
    assert torch.equal(
        one[sharded, source], other[sharded, source]
    )  # a single release, the same everywhere
    # 60,000 coordinates: the standard deviation is known to 0.3 %. Each worker's own noise on the
    # whole sum would make it 41 % larger, noise over a rank's share of the lot 100 %.
    for half in found.chunk(2):
        assert float(half.std()) == pytest.approx(one["std"], rel=0.02)
    assert int((found == 0).sum()) == 0
    first, second = (half.flatten()[:30_000] for half in found.chunk(2))
    for a, b in ((first, second), (found[:-1, 0], found[1:, 0]), (found[:, 0], found[:, 1])):
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.03
    assert len(found.unique()) > 0.99 * found.numel()


@pytest.mark.parametrize("sharded", [False, True])
def test_a_noisy_count_has_one_answer(two, sharded):
    (clip, one), (other_clip, other) = (rank[sharded] for rank in both(two, "adapting"))
    assert clip == other_clip != 0.5
    assert same(one, other)


def test_seeded_ranks_do_not_repeat_each_others_noise_and_are_not_private(two):
    one, other = both(two, "seeded_noise")
    assert torch.equal(one["weights"], other["weights"])
    flat = one["weights"].flatten()
    half = (len(flat) + 3 + 1) // 2  # rank 1's part begins there
    repeated = (flat[:1000] == flat[half : half + 1000]).sum()
    assert int(repeated) < 5
    assert not one["private"]


# --- lots ---------------------------------------------------------------------------------------


def test_every_unit_of_a_lot_is_with_one_rank(two):
    one, other = both(two, "rows_seen")
    counted = [
        [(step, row) for step, rows, weights, _ in rank["seen"]
         for row, weight in zip(rows, weights, strict=True) if weight]
        for rank in (one, other)
    ]  # fmt: skip
    assert not set(counted[0]) & set(counted[1])
    lots = {(step, row) for step, lot in enumerate(one["lots"]) for row in lot}
    assert set(counted[0]) | set(counted[1]) == lots
    assert len(counted[0]) + len(counted[1]) == len(lots)
    assert any(len(lot) % 2 for lot in one["lots"])  # so that somebody was filled up
    assert abs(len(counted[0]) - len(counted[1])) <= len(one["lots"])


def test_all_ranks_take_the_same_turns(two):
    one, other = (
        [(s, len(rows)) for s, rows, *_ in rank["seen"]] for rank in both(two, "rows_seen")
    )
    assert one == other
    padded = sum(len(rows) - present for rank in both(two, "rows_seen")
                 for _, rows, _, present in rank["seen"])  # fmt: skip
    assert padded == sum(len(lot) % 2 for lot in both(two, "rows_seen")[0]["lots"])


def test_the_sum_is_divided_by_the_whole_lots_expected_size(two):
    for found in both(two, "normaliser"):
        assert found["length"] == pytest.approx(1.0 - ALLOWANCE["float32"], rel=1e-3)


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ddp", "give the trainer the module itself"),
        ("plan", "same plan, but rank 1"),
        ("rows", "same number of rows"),
        ("other model", "same model"),
        ("batch size", "same batch size"),
        ("coins", "same kind of coins"),
        ("same noise", "two ranks draw the same noise"),
        ("same generator", "two ranks draw the same noise"),
        ("optimizer", "same optimizer"),
        ("other rows", "same rows"),
        ("deferred", "made on every rank"),
        ("compiled shards", "compile=False"),
        ("half sharded", "call fully_shard on it, too"),
        ("hybrid", "hybrid"),
        ("tensor parallel", "tensor parallelism"),
        ("kept to itself", "keep to itself"),
        ("drifting", "same weights, but rank 1"),
        ("other layout", "same model"),
        ("unsendable", "JSON and arrays"),
        ("later steps", "same number of steps taken, but rank 1"),
        ("later clip norm", "same clip norm, but rank 1"),
    ],
)
def test_wrong_use_is_refused_on_every_rank(two, name, words):
    for rank in both(two, "refusals"):
        assert words in rank[name]


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("where", ["values", "gradients", "loss"])
def test_examples_that_are_mixed_across_ranks_are_refused_on_every_rank(two, where, sharded):
    name = f"{where} across ranks"
    for rank in both(two, "refusals"):
        assert "of another rank's" in rank[name, sharded]
        assert rank[name, sharded, "steps"] == 0


def test_words_that_are_mixed_across_ranks_are_refused_though_they_cannot_be_nan(two):
    for rank in both(two, "refusals"):
        assert "of another rank's" in rank["words across ranks"]


@pytest.mark.parametrize(
    ("held", "used"),
    [("float64", "float32"), ("float64", "bfloat16"), ("float32", "float64")],
)
def test_sums_in_another_precision_than_they_are_clipped_for_are_refused(two, held, used):
    for rank in both(two, "refusals"):
        found = rank[getattr(torch, held), getattr(torch, used)]
        assert f"held in torch.{held} and used in torch.{used}" in found
        assert "leave out param_dtype" in found


def test_what_is_wrong_on_one_rank_is_told_to_the_others(two):
    one, other = both(two, "refusals")
    assert "rank 1 was refused before the run" in one["one rank mixes"]
    assert "depends on the other examples" in other["one rank mixes"]
    assert "depends on the other examples" in one["one rank mixes"]
    assert "rank 1 was refused" in one["one rank's loss"]


def test_what_goes_wrong_after_a_step_on_one_rank_ends_the_loop_on_all(two):
    one, other = both(two, "refusals")
    assert other["after"] == "ValueError: a secret of rank 1"
    assert one["after"] == "TrainingError: rank 1 met a ValueError in after, at step 2"


def test_first_weights_are_rank_0s(two):
    one, other = both(two, "refusals")
    assert same(one["initial"], other["initial"])
    assert same(one["initial average"], other["initial average"])


def test_one_rank_pays_and_a_refusal_is_everyones(two):
    one, other = both(two, "charged")
    assert one["first"] == other["first"] == ""
    assert one["second"].startswith("BudgetExceeded")
    assert one["second"] == other["second"]
    assert one["first steps"] == other["first steps"] == 4
    assert one["second steps"] == other["second steps"] == 0
    assert one["kinds"] == ["open", "plan", "reserve", "commit"]  # one run, charged once
    assert one["left"] == pytest.approx(0.5, abs=1e-6)
    assert one["first record"] == other["first record"]
    assert one["first record"]["facts"]["ledger"]["entry"] is not None
    assert one["folder"] == other["folder"] != ""


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
def test_a_bad_row_changes_nothing_but_the_weights(two, kind):
    for rank in both(two, "neighbours"):
        usual, bad = rank[kind]
        assert usual == bad
        assert usual[-1]  # and those stay finite


# --- ensembles ----------------------------------------------------------------------------------


def test_ensembles_shared_out_are_what_one_process_trains(two):
    for rank, found in enumerate(both(two, "ensembles")):
        assert same(found["shadows"], found["shadows alone"])
        assert same(found["teachers"], found["teachers alone"])
        groups = (0, 2) if rank == 0 else (1,)
        assert found["epochs"] == [2 * number + epoch for number in groups for epoch in (1, 2)]


def test_ensembles_on_several_ranks_need_a_folder_that_all_see(two):
    for found in both(two, "ensembles"):
        assert "folder must be given" in found["no folder"]
        assert "folder must be one that all ranks see" in found["own folders"]


def test_a_model_that_cannot_be_made_on_one_rank_stops_all(two):
    one, other = both(two, "ensembles")
    assert one["broken"] == "TrainingError: rank 1 met a ValueError while it trained its models"
    assert other["broken"] == "ValueError: no such model"


# --- checkpoints --------------------------------------------------------------------------------


def test_another_number_of_ranks_goes_on(two, folder, run_world):
    (alone,) = run_world(folder, 1, "resumed")
    for name, found in alone["resumed"].items():
        saved = both(two, "saved")[0][name]
        assert same(saved, found["at"]), name
        assert found["taken"] == 3
        assert found["steps"] == 6
        assert found["lost"] == 0
        assert found["state"] >= 6  # the optimizer's
        moved = max(float((found["end"][n] - saved[n]).abs().max()) for n in saved)
        assert moved > 1e-3


@pytest.mark.slow
def test_three_ranks_go_on_with_what_two_saved(tmp_path, run_world):
    two = run_world(tmp_path, 2, "saved")
    three = run_world(tmp_path, 3, "resumed")
    for rank, name in itertools.product(range(3), two[0]["saved"]):
        assert same(two[0]["saved"][name], three[rank]["resumed"][name]["at"])
        assert same(three[0]["resumed"][name]["end"], three[rank]["resumed"][name]["end"])


@pytest.mark.slow
def test_four_ranks_with_fewer_units_than_ranks_train_as_one_process_does(tmp_path, run_world):
    for rank in run_world(tmp_path, 4, "short", "normaliser"):
        for found in rank["short"].values():
            assert found["apart"] < 1e-6 < found["moved"]
        assert rank["normaliser"]["length"] == pytest.approx(1.0, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 4])
def test_any_two_ranks_that_share_what_they_have_are_refused(tmp_path, run_world, count):
    for rank in run_world(tmp_path, count, "pairs"):
        assert rank["pairs"].pop("usual") == ""
        assert len(rank["pairs"]) == count * (count - 1) // 2
        for found in rank["pairs"].values():
            assert "of another rank's" in found


@pytest.mark.slow
def test_batches_may_be_prepared_ahead(tmp_path, run_world):
    for rank in run_world(tmp_path, 2, "workers"):
        for found in rank["workers"].values():
            assert found["apart"] < 1e-6 < found["moved"]


@pytest.mark.slow
def test_replicas_may_be_compiled(tmp_path, run_world):
    for rank in run_world(tmp_path, 2, "compiled"):
        assert rank["compiled"]["mlp"]["apart"] < 1e-6
