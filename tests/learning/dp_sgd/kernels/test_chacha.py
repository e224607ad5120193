"""ChaCha20 noise: the published keystream, the exact formula, the normal law, no block twice."""

import copy
import importlib.util
import itertools
import math
import os
import pickle
import shutil
import subprocess
import sys
import threading

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd.kernels import chacha
from sfumato.learning.dp_sgd.kernels.chacha import (
    LANES,
    PER_BLOCK,
    KeyStream,
    Segment,
    block_words,
    fill,
    normals,
)

CPU = torch.device("cpu")
TILE = LANES * PER_BLOCK
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")

# Key, the state's last four words as bytes, keystream: RFC 8439, 2.3.2 and A.1.
ZERO = "00" * 32
VECTORS = [
    (
        bytes(range(32)).hex(), "01000000" "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        ZERO, "00000000" "000000000000000000000000",
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        ZERO, "01000000" "000000000000000000000000",
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        ZERO[:-2] + "01", "01000000" "000000000000000000000000",
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        "00ff" + ZERO[4:], "02000000" "000000000000000000000000",
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    (
        ZERO, "00000000" "000000000000000000000002",
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
]  # fmt: skip


def words_of(key, tail):
    """The ten signed words and the counter that our functions take."""
    last = bytes.fromhex(tail)
    every = np.frombuffer(bytes.fromhex(key) + last[8:], dtype="<i4")
    return tuple(int(w) for w in every), int.from_bytes(last[:8], "little")


def as_bytes(words):
    """(16, count) words to the keystream, block after block."""
    return words.T.contiguous().cpu().numpy().astype("<i4").tobytes()


def twin(numbers, dtype=torch.float32, seed=1, **more):
    out = torch.empty(numbers, dtype=dtype)
    fill(out, 1.0, KeyStream(SeededCoins(seed)).take(numbers), **more)
    return out


# --- the keystream --------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "tail", "stream"), VECTORS)
def test_published_vectors(key, tail, stream):
    words, counter = words_of(key, tail)
    assert as_bytes(block_words(words, counter, 1, CPU)).hex() == stream
    three = as_bytes(block_words(words, max(counter - 1, 0), 3, CPU))
    at = 64 * min(counter, 1)
    assert three[at : at + 64].hex() == stream


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_openssl_gives_the_same_keystream():
    key, tail = SYSTEM.words(4).tobytes(), np.array([2**32 - 3, 77], "<u8").tobytes()
    command = ["openssl", "enc", "-chacha20", "-K", key.hex(), "-iv", tail.hex()]
    done = subprocess.run(command, input=bytes(64 * 50), capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this openssl has no ChaCha20")
    words, counter = words_of(key.hex(), tail.hex())
    assert as_bytes(block_words(words, counter, 50, CPU)) == done.stdout  # past 2^32 blocks, too


def test_the_cryptography_package_gives_the_same_keystream():
    ciphers = pytest.importorskip("cryptography.hazmat.primitives.ciphers")
    key, tail = os.urandom(32), os.urandom(7) + bytes(1) + os.urandom(8)  # counter below 2^56
    cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, tail), mode=None)
    words, counter = words_of(key.hex(), tail.hex())
    ours = as_bytes(block_words(words, counter, 9, CPU))
    assert ours == cipher.encryptor().update(bytes(len(ours)))


# --- the formula ----------------------------------------------------------------------------------

ENDS = [0, 1, 2, 2**23, 2**24 + 1, 2**32 - 1, 2**32, 2**33 - 1, 2**61, 2**62, 2**62 + 2**61]
ENDS += [w - 1 for w in ENDS if w] + [w + 1 for w in ENDS]
ENDS += [2**63 - w - 1 for w in ENDS] + [2**63 + w for w in ENDS]
ENDS += [2**64 - w - 1 for w in ENDS if w < 2**64]
ENDS += [int(2**64 * math.sqrt(0.5)) + d for d in (-(2**40), -1, 0, 1, 2**40)]
ENDS = sorted({w for w in ENDS if 0 <= w < 2**64})


def pairs_to_words(u, v):
    """(16, n) words that hold the pairs four times over."""
    pairs = np.stack([u, v], 1).view(np.uint32).view(np.int32).T  # low u, high u, low v, high v
    return torch.from_numpy(np.tile(pairs, (4, 1)).copy())


def test_both_ends_of_both_uniforms_exactly():
    rng = np.random.default_rng(0)
    grid = np.array(ENDS, dtype=np.uint64)
    any_word = rng.integers(0, 2**64, len(grid), dtype=np.uint64)
    u = np.concatenate([grid, any_word, grid, grid])
    v = np.concatenate([any_word, grid, rng.permutation(grid), grid])
    words = pairs_to_words(u, v)
    small, large = normals(words, torch.float32), normals(words, torch.float64)
    assert bool((small != 0).all() & small.isfinite().all())
    with mpmath.workdps(50):
        for i, (a, b) in enumerate(zip(u.tolist(), v.tolist(), strict=True)):
            radius = mpmath.sqrt(-2 * mpmath.log((mpmath.mpf(a) + 0.5) / 2**64))
            turn = 2 * mpmath.pi * (mpmath.mpf(b) + 0.5) / 2**64
            for j, exact in enumerate((radius * mpmath.cos(turn), radius * mpmath.sin(turn))):
                assert abs(float(small[j, i]) / exact - 1) < 2**-21  # stated: 2^-20
                assert abs(float(large[j, i]) / exact - 1) < 2e-15
    assert torch.equal(small[:2], small[6:])


def test_the_largest_number():
    words = pairs_to_words(np.zeros(1, np.uint64), np.zeros(1, np.uint64))
    largest = float(normals(words, torch.float32)[0, 0])
    assert largest == pytest.approx(math.sqrt(130 * math.log(2)), rel=1e-6)
    assert largest == pytest.approx(9.4925, abs=1e-4)


def test_many_words_in_float32():
    rng = np.random.default_rng(1)
    u, v = rng.integers(0, 2**64, (2, 300_000), dtype=np.uint64)
    u >>= rng.integers(0, 64, len(u), dtype=np.uint64)  # all magnitudes
    u ^= np.where(rng.random(len(u)) < 0.5, np.uint64(2**64 - 1), np.uint64(0))  # at either end
    words = pairs_to_words(u, v)
    exact = normals(words, torch.float64)[:2]
    apart = (normals(words, torch.float32)[:2].double() / exact - 1).abs()
    assert float(apart.max()) < 2**-21
    assert float(apart.mean()) < 2**-24


def test_where_numbers_go():
    segment = KeyStream(SeededCoins(4)).take(3 * TILE - 7)
    out = torch.empty(3 * TILE - 7)
    fill(out, 1.0, segment)
    for place in (0, 1, LANES, TILE - 1, TILE, 2 * TILE + 5 * LANES + 3):
        tile, row, lane = place // TILE, place % TILE // LANES, place % LANES
        block = segment.counter + tile * LANES + lane
        alone = normals(block_words(segment.words, block, 1, CPU), torch.float32)
        assert float(out[place]) == pytest.approx(float(alone[row, 0]), rel=2**-20)


def test_chunks_change_nothing(monkeypatch):
    whole = twin(5 * TILE + 9)
    monkeypatch.setattr(chacha, "_SMALL_CHUNK", 2 * LANES)
    assert torch.equal(whole, twin(5 * TILE + 9))


def test_sum_noise_and_division():
    total = torch.randn(3000, generator=torch.Generator().manual_seed(1))
    noise = twin(3000)
    found = torch.empty(3000)
    fill(found, 0.25, KeyStream(SeededCoins(1)).take(3000), total, 8.0)
    assert torch.equal(found, (total + noise * 0.25) / 8.0)
    fill(total, 0.25, KeyStream(SeededCoins(1)).take(3000), total, 8.0)  # in place
    assert torch.equal(found, total)


# --- the law --------------------------------------------------------------------------------------


def faults(drawn):
    """Names of the tests of the standard normal law that fail, each at about 1 in 10,000."""
    n = len(drawn)
    found = {
        "mean": abs(drawn.mean()) > 4 / math.sqrt(n),
        "variance": abs(drawn.var() - 1) > 4 * math.sqrt(2 / n),
        "skew": abs((drawn**3).mean()) > 4 * math.sqrt(15 / n),
        "fourth moment": abs((drawn**4).mean() - 3) > 4 * math.sqrt(96 / n),
        "shape": stats.kstest(drawn, "norm").pvalue < 1e-4,
    }
    for at in (3.0, 4.0, 4.5):
        expected = 2 * stats.norm.sf(at) * n
        found[f"tail {at}"] = abs((np.abs(drawn) > at).sum() - expected) > 4.5 * expected**0.5
    return {name for name, failed in found.items() if failed}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_normal_law_and_that_two_per_cent_would_show(dtype):
    drawn = twin(1 << 20, dtype, seed=21).double().numpy()
    assert not faults(drawn)
    for wrong in (1.02, 0.98):
        assert {"variance", "fourth moment", "shape"} <= faults(wrong * drawn)
    assert "mean" in faults(drawn + 0.02)


def test_a_pair_is_a_point_in_the_plane():
    drawn = twin(1 << 19, seed=22).double().view(-1, PER_BLOCK, LANES)
    x, y = drawn[:, 0::2].flatten().numpy(), drawn[:, 1::2].flatten().numpy()
    assert stats.kstest((x**2 + y**2) / 2, "expon").pvalue > 1e-3
    assert stats.kstest(np.arctan2(y, x), "uniform", (-math.pi, 2 * math.pi)).pvalue > 1e-3
    limit = 4.5 / math.sqrt(len(x))
    assert abs(np.corrcoef(x, y)[0, 1]) < limit
    assert abs(np.corrcoef(x**2, y**2)[0, 1]) < limit


def test_neighbours_are_independent():
    drawn = twin(1 << 18, seed=23).double()
    shifts = [0, 1, 2, LANES, 2 * LANES, 7 * LANES, TILE, TILE + 1, 17 * TILE]
    rows = torch.stack([drawn.roll(shift) for shift in shifts])
    for power in (rows, rows**2):
        apart = torch.corrcoef(power) - torch.eye(len(shifts))
        assert float(apart.abs().max()) < 4.5 / math.sqrt(len(drawn))
    assert len(drawn.unique()) > 0.98 * len(drawn)  # float32 has few numbers near 1


# --- no block twice -------------------------------------------------------------------------------


def overlaps(segments):
    """Whether two segments share a block."""
    by_key = {}
    for s in segments:
        by_key.setdefault(s.words, []).append((s.counter, s.counter + s.blocks))
    ranges = [sorted(r for r in held if r[0] < r[1]) for held in by_key.values()]
    return any(b[0] < a[1] for held in ranges for a, b in itertools.pairwise(held))


def test_segments_never_overlap():
    streams = [KeyStream(SYSTEM) for _ in range(3)]  # ranks, or runs resumed
    sizes = [0, 1, 5, TILE, TILE + 1, 10 * TILE]
    taken = [s.take(size) for _ in range(20) for s in streams for size in sizes]
    assert len({s.words for s in taken}) == 3
    assert not overlaps(taken)
    assert overlaps([*taken, taken[7]])
    for segment, size in zip(taken, sizes * 60, strict=True):
        assert segment.blocks % LANES == 0
        assert size <= segment.blocks * PER_BLOCK < size + TILE


def test_threads_never_share():
    stream, taken = KeyStream(SYSTEM), []
    run = [
        threading.Thread(target=lambda: taken.extend(stream.take(5000) for _ in range(300)))
        for _ in range(8)
    ]
    for thread in run:
        thread.start()
    for thread in run:
        thread.join()
    assert len(taken) == 2400
    assert len({s.words for s in taken}) == 1
    assert not overlaps(taken)


def test_a_key_is_replaced_before_the_counter_ends(monkeypatch):
    monkeypatch.setattr(chacha, "MOST_BLOCKS", 4 * LANES)
    stream = KeyStream(SYSTEM)
    taken = [stream.take(TILE) for _ in range(10)]
    assert [s.counter // LANES for s in taken] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert len({s.words for s in taken}) == 3
    assert not overlaps(taken)


def test_the_limit_is_far_below_the_counter():
    assert chacha.MOST_BLOCKS == 2**48
    words = tuple(range(10))
    high = as_bytes(block_words(words, 2**48 - 1, 2, CPU))
    assert high[64:] == as_bytes(block_words(words, 2**48, 1, CPU))


def test_keys_come_from_the_coins_at_the_first_call():
    class Counting:
        private = False
        given = ()

        def words(self, count):
            got = SeededCoins(5).words(count)
            self.given = (*self.given, got)
            return got

    coins = Counting()
    stream = KeyStream(coins)
    assert coins.given == ()
    segment = stream.take(1)
    assert [len(words) for words in coins.given] == [5]
    held = np.array(segment.words, "<i4").tobytes()
    assert held == coins.given[0].astype("<u8").tobytes()


def test_another_process_draws_another_key(monkeypatch):
    stream = KeyStream(SYSTEM)
    first = stream.take(TILE)
    monkeypatch.setattr(os, "getpid", lambda: -1)  # a fork that Python did not see
    second = stream.take(TILE)
    monkeypatch.setattr(chacha, "_FORKS", [7])  # one that it saw, and the same process id
    third = stream.take(TILE)
    assert len({s.words for s in (first, second, third)}) == 3
    assert stream.take(TILE).words == third.words


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_real_fork():
    code = """if True:
        import os, torch
        from sfumato.learning.dp_sgd.noise import ChaChaNoise
        source, like = ChaChaNoise(), torch.empty(6, dtype=torch.float64)
        source.normal(like, 1.0)
        state = source._stream._state
        state.lock.acquire()  # a thread that is not in the child
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, repr(source.normal(like, 1.0).tolist()).encode())
            os._exit(0)
        os.wait()
        state.lock.release()
        print(os.read(reading, 4096).decode())
        print(source.normal(like, 1.0).tolist())
        assert source._stream._state is state
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env=environment, timeout=120,
    )  # fmt: skip
    child, parent = done.stdout.strip().splitlines()
    assert len(child.split(",")) == len(parent.split(",")) == 6
    assert not set(child.strip("[]").split(", ")) & set(parent.strip("[]").split(", "))


def test_a_stream_cannot_be_copied_and_shows_nothing():
    stream = KeyStream(SeededCoins(1))
    segment = stream.take(TILE)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"would repeat it\. Make a new source"):
            attempt(stream)
    assert repr(stream) == "KeyStream()"
    assert repr(segment) == f"Segment(blocks={LANES})"


# --- the kernel -----------------------------------------------------------------------------------


def check_kernel(device):
    """All that is asked of the Triton kernel: by interpretation, or on a GPU."""
    from sfumato.learning.dp_sgd.kernels import chacha_triton as kernel

    place = torch.device(device)
    for key, tail, stream in VECTORS[::2]:
        words, counter = words_of(key, tail)
        assert as_bytes(kernel.block_words(words, counter, 1, place)).hex() == stream
    drawn = KeyStream(SYSTEM).take(1).words
    first = 2**32 - 60  # the low half of the counter overflows within
    ours = kernel.block_words(drawn, first, 130, place).cpu()
    assert torch.equal(ours, block_words(drawn, first, 130, CPU))

    count = TILE + 300
    segment = Segment(drawn, first, 2 * LANES)
    total = torch.linspace(-1, 1, count)
    for dtype, precision in (
        (torch.float32, 2**-20),
        (torch.bfloat16, 2**-7),
    ):  # interpreted, cut off
        exact, near = torch.empty(count, dtype=torch.float64), torch.full((count + 9,), 5.0)
        far = near.to(place, dtype)
        fill(exact, 0.3, segment)
        kernel.fill(far[:count], 0.3, segment)
        assert bool((far[count:] == 5).all())  # nothing beyond the end
        apart = (far[:count].cpu().double() / exact - 1).abs()
        assert float(apart.max()) < precision, float(apart.max())
        fill(exact, 0.3, segment, total, 7.0)
        kernel.fill(far[:count], 0.3, segment, total.to(place), 7.0)
        apart = (far[:count].cpu().double() - exact).abs()
        assert float(apart.max()) < precision, float(apart.max())
    both = total.clone().to(place)
    kernel.fill(both[1:], 0.3, segment, both[1:], 7.0)  # in place, and not aligned
    fill(near[: count - 1], 0.3, segment, total[1:], 7.0)
    assert float((both[1:].cpu() - near[: count - 1]).abs().max()) < 1e-6
    kernel.fill(both, 0.0, segment, both, 1.0)
    assert float(both[0]) == -1.0


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")
def test_the_kernel_by_interpretation(interpreted):
    interpreted(__file__)


@on_a_gpu
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")
def test_the_kernel_on_a_gpu():
    check_kernel("cuda")


@on_a_gpu
def test_the_twin_on_a_gpu():
    segment = KeyStream(SYSTEM).take(5000)
    there, here = torch.empty(5000, device="cuda"), torch.empty(5000, dtype=torch.float64)
    fill(there, 1.0, segment)
    fill(here, 1.0, segment)
    assert float((there.cpu().double() / here - 1).abs().max()) < 2**-20
