"""``sfumato attack exposure``: a model of letters that is asked, and numbers of one elsewhere."""

import json
import math
import sys

import numpy as np
import pytest

LETTERS = '''
"""Letters by the three before them: counted, the counts smoothed."""
import numpy as np

ALPHABET, ORDER = "abcdefghijklmnopqrstuvwxyz0123456789 .~", 3
PLANTED = "the code is 4519."


def codes(text):
    return [ALPHABET.index(letter) for letter in "~" * ORDER + text]


def places(rows):
    rows = np.array(rows)
    return tuple(rows[..., at : rows.shape[-1] - ORDER + at] for at in range(ORDER + 1))


def trained(times):
    random = np.random.default_rng(1)
    words = "the code is on page line no bus".split()
    lines = [" ".join(random.choice(words, 3)) + f" {random.integers(10000)}." for _ in range(2000)]
    counts = np.full((len(ALPHABET),) * (ORDER + 1), 0.1)
    for line in lines + [PLANTED] * times:
        np.add.at(counts, places(codes(line)), 1)
    logs = np.log(counts / counts.sum(axis=-1, keepdims=True))
    return lambda texts: -logs[places([codes(text) for text in texts])].sum(axis=1)


def never():
    return trained(0)


def thrice():
    return trained(3)


def often():
    return trained(40)


def one_number():
    return lambda texts: [1.0]


def nothing():
    return 3
'''
PLANTED, OTHER = "the code is 4519.", "the code is 7302."
ASK = "attack exposure --format 'the code is ####.' --model letter_models.py:"
BOTH = f"--canary '{PLANTED}' --canary '{OTHER}'"
MOST = math.log2(10_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("exposure")
    (path / "letter_models.py").write_text(LETTERS)
    yield path
    sys.modules.pop("letter_models", None)


@pytest.fixture
def found(run):
    def canaries(command):
        code, out, err = run(f"{command} --json")
        assert code == 0, err
        told = json.loads(out)
        assert told["channel"] == "curator"
        return told["canaries"]

    return canaries


# --- a model that is asked ----------------------------------------------------------------------


def test_a_secret_planted_often_is_learned_by_heart(found):
    bits = {}
    for model in ("never", "thrice", "often"):
        one, other = found(f"{ASK}{model} {BOTH}")
        assert one["canary"] == PLANTED
        assert (one["method"], one["samples"]) == ("exact", 10_000)
        assert one["most"] == pytest.approx(MOST)
        assert other["bits"] < 7
        bits[model] = one["bits"]
    assert bits["never"] < 7
    assert bits["thrice"] > 8
    assert bits["often"] == pytest.approx(MOST)


def test_secrets_never_planted_are_exposed_as_chance_has_it(found):
    """The mean is 1 / ln 2 with that standard deviation; b bits or more have the share 2^-b."""
    numbers = np.random.default_rng(7).integers(0, 10_000, 200)
    listed = " ".join(f"--canary 'the code is {number:04d}.'" for number in numbers)
    bits = np.array([one["bits"] for one in found(f"{ASK}never {listed}")])
    assert len(bits) == 200
    mean = 1 / math.log(2)
    assert bits.mean() == pytest.approx(mean, abs=4 * mean / math.sqrt(200))
    for b in (1, 2, 3):
        share = 2.0**-b
        error = math.sqrt(share * (1 - share) / 200)
        assert (bits >= b).mean() == pytest.approx(share, abs=4 * error)


def test_a_sample_brackets_the_rank(found):
    exact = found(f"{ASK}thrice {BOTH}")
    for one, truth in zip(
        found(f"{ASK}thrice {BOTH} --samples 3000 --confidence 0.999"), exact, strict=True
    ):
        assert (one["method"], one["samples"], one["confidence"]) == ("sampled", 3000, 0.999)
        assert one["lower"] <= truth["bits"] <= one["upper"]
        assert one["surprise"] == truth["surprise"]
    assert one["bits"] == pytest.approx(truth["bits"], abs=0.5)


def test_a_seed_repeats_a_sample(found):
    asked = f"{ASK}never {BOTH} --samples 500"
    assert found(f"{asked} --seed 3") == found(f"{asked} --seed 3")
    assert found(f"{asked} --seed 3") != found(f"{asked} --seed 4")


def test_large_formats_are_sampled_unless_told_otherwise(run, found):
    large = ASK.replace("####.", "######.")
    (one,) = found(f"{large}never --canary 'the code is 451973.'")
    assert (one["method"], one["samples"]) == ("sampled", 10_000)
    assert one["most"] == pytest.approx(math.log2(10**6))
    (far,) = found(f"{large}never --canary 'the code is 451973.' --extrapolate --samples 400")
    assert (far["method"], far["samples"]) == ("extrapolated", 400)
    assert 0 <= far["law"]["p_value"] <= 1
    code, _, err = run(
        f"{ASK.replace('####', '#' * 8)}never --canary 'the code is 12345678.' --exact"
    )
    assert code == 2
    assert "use --samples" in err


def test_spaces_beyond_floating_point_are_json_too(found):
    digits = "7" * 400
    (one,) = found(
        f"attack exposure --model letter_models.py:never --format '{'#' * 400}' "
        f"--canary {digits} --samples 30"
    )
    assert one["rank"] == "inf"
    assert one["most"] == pytest.approx(400 * math.log2(10))


def test_other_alphabets_and_blanks(found):
    asked = "attack exposure --model letter_models.py:never --alphabet abc --blank ?"
    (one,) = found(f"{asked} --format 'no ??' --canary 'no ca'")
    assert one["samples"] == 9


def test_what_people_see(run, folder):
    code, out, err = run(f"{ASK}often {BOTH} --plot e.png")
    assert code == 0, err
    assert "…" not in out
    shown = " ".join(out.split())
    assert "all 10,000 (exact)" in shown
    assert f"{PLANTED} 13.29 13.29 1 0.0001" in shown
    assert "for the curator only" in shown
    assert (folder / "e.png").stat().st_size > 10_000
    code, out, _ = run(f"{ASK}often {BOTH} --samples 100")
    assert "100 of 10,000 (sampled)" in out
    assert "limits" in out
    code, out, _ = run(f"{ASK}never --canary '{OTHER}' --samples 3000 --extrapolate")
    assert "do not rely on it" in out  # four digits are no sum of many terms


# --- numbers alone ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(folder):
    """What the model said of everything, and of two canaries, as files of all kinds."""
    import importlib.util

    import pyarrow as arrow
    import pyarrow.parquet as parquet

    source = importlib.util.spec_from_file_location("told_letters", folder / "letter_models.py")
    module = importlib.util.module_from_spec(source)
    source.loader.exec_module(module)
    surprise = module.trained(3)
    every = surprise([f"the code is {number:04d}." for number in range(10_000)])
    two = surprise([PLANTED, OTHER])
    np.save(folder / "all.npy", every)
    np.savez(folder / "all.npz", numbers=every)
    parquet.write_table(
        arrow.table({"surprise": every, "n": range(10_000)}), folder / "all.parquet"
    )
    (folder / "all.csv").write_text("".join(f"{float(value)!r}\n" for value in every))
    np.save(folder / "sample.npy", np.random.default_rng(5).choice(every, 2000))
    rows = zip((PLANTED, OTHER), two.tolist(), strict=True)
    (folder / "two.csv").write_text("canary,cost\n" + "".join(f"{a},{b!r}\n" for a, b in rows))
    np.save(folder / "two.npy", two)
    (folder / "odd.csv").write_text("surprise\n0.125\n")
    (folder / "text.csv").write_text("surprise\nlow\n")
    (folder / "gaps.csv").write_text("surprise\n1\nnan\n")
    (folder / "empty.csv").write_text("")
    (folder / "ragged.csv").write_text("1,2\n3,4\n")
    np.save(folder / "square.npy", np.ones((2, 2)))
    return folder


@pytest.mark.parametrize("ending", ["npy", "npz", "parquet", "csv"])
def test_numbers_say_what_the_model_says(told, found, ending):
    asked = found(f"{ASK}thrice {BOTH}")
    assert found(f"attack exposure --scores all.{ending} --canaries two.csv --exact") == asked


def test_canaries_without_names_are_numbered(told, found):
    one, other = found("attack exposure --scores all.npy --canaries two.npy --exact")
    assert (one["canary"], other["canary"]) == ("1", "2")


def test_names_that_look_like_mark_up_are_shown_as_they_are(told, run):
    (told / "marked.csv").write_text("canary,surprise\n[red]4519,0.5\n")
    code, out, err = run("attack exposure --scores all.npy --canaries marked.csv --size 10000")
    assert code == 0, err
    assert "[red]4519" in out


def test_a_sample_of_numbers(told, found):
    exact = found(f"{ASK}thrice {BOTH}")
    files = "attack exposure --scores sample.npy --canaries two.csv --size 10000"
    for one, truth in zip(found(f"{files} --confidence 0.999"), exact, strict=True):
        assert (one["method"], one["samples"]) == ("sampled", 2000)
        assert one["lower"] <= truth["bits"] <= one["upper"]
        assert one["most"] == pytest.approx(MOST)
    assert found(f"{files} --extrapolate")[0]["law"]["scale"] > 0


def test_over_a_whole_space_the_mean_exposure_is_exact(folder, found):
    np.save(folder / "space.npy", np.random.default_rng(6).normal(size=2000))
    every = found("attack exposure --scores space.npy --canaries space.npy --exact")
    mean = math.log2(2000) - math.lgamma(2001) / (2000 * math.log(2))
    assert np.mean([one["bits"] for one in every]) == pytest.approx(mean)
    assert [2.0 ** -one["bits"] for one in every] == pytest.approx([one["chance"] for one in every])


def test_a_column_is_chosen(told, run, found):
    (told / "many.csv").write_text("canary,a,b\nx,1.5,3\ny,2.5,4\n")
    (told / "few.csv").write_text('a,b\n1.5,"9\n2.5,9\n3.5,9"\n4.5,9\n')
    x, y = found("attack exposure --scores few.csv --canaries many.csv --column a --exact")
    assert (x["canary"], x["rank"], y["rank"]) == ("x", 1, 2)
    code, _, err = run("attack exposure --scores few.csv --canaries many.csv --exact")
    assert code == 2
    assert "--column" in err
    assert "'a', 'b'" in err


# --- mistakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "either --model FILE.py:FUNCTION or --scores"),
        ("--model a.py:b --scores all.npy", "either --model FILE.py:FUNCTION or --scores"),
        ("--model a.py:b --canary x", "--format and one or more --canary"),
        ("--model a.py:b --format '#'", "--format and one or more --canary"),
        ("--model a.py:b --format x# --canary x1 --size 9", "--size goes with --scores"),
        ("--model a.py --format x# --canary x1", "FILE.py:FUNCTION"),
        ("--model nowhere.py:b --format x# --canary x1", "can be imported"),
        ("--model letter_models.py:nothing --format x# --canary x1", "a function that returns"),
        ("--model letter_models.py:absent --format x# --canary x1", "has that function"),
        ("--model letter_models.py:one_number --format x# --canary x1", "what surprise returns"),
        ("--model a.py:b --format x# --canary xy", "of the format"),
        ("--model a.py:b --format x --canary x", "number of blanks"),
        ("--model a.py:b --format x# --alphabet 11 --canary x1", "alphabet"),
        ("--model a.py:b --format x# --blank '' --canary x1", "blank must be one letter"),
        ("--model a.py:b --format x# --canary x1 --exact --samples 9", "--exact takes no sample"),
        ("--model a.py:b --format x# --canary x1 --samples 0", "samples must be"),
        ("--model a.py:b --format x# --canary x1 --confidence 1", "confidence must be"),
        ("--model a.py:b --format x# --canary x1 --plot e.doc", "plot file must end in"),
        ("--scores all.npy", "--canaries FILE must be given"),
        ("--scores all.npy --canaries two.csv", "either --exact"),
        ("--scores all.npy --canaries two.csv --exact --size 9", "either --exact"),
        ("--scores all.npy --canaries two.csv --exact --extrapolate", "--exact takes no sample"),
        ("--scores all.npy --canaries two.csv --size 1", "size must be"),
        ("--scores all.npy --canaries two.csv --samples 5 --size 9", "--samples goes with --model"),
        ("--scores sample.npy --canaries odd.csv --exact", "among the candidates"),
        ("--scores all.npy --canaries text.csv --exact", "canaries must be numbers"),
        ("--scores all.npy --canaries gaps.csv --exact", "without gaps"),
        ("--scores all.npy --canaries empty.csv --exact", "one or more lines"),
        ("--scores all.npy --canaries ragged.csv --exact", "as many fields in every line"),
        ("--scores all.npy --canaries square.npy --exact", "one column of numbers"),
        ("--scores all.txt --canaries two.csv --exact", ".csv, .parquet, .npy or .npz"),
        ("--scores absent.csv --canaries two.csv --exact", "absent.csv"),
    ],
)
def test_mistakes(run, told, options, message):
    code, out, err = run(f"attack exposure {options}")
    assert code == 2
    assert not out
    assert message in " ".join(err.split())
