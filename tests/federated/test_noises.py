"""What noise in shares may be asked for: integers that fit, and as many as can be added up."""

import pytest

from sfumato.federated.noises import SharedNoise


@pytest.mark.parametrize("bits", [7, 63, 64, 68, 0, 8.5])
def test_shares_are_added_in_64_bits_with_room_for_a_sign(bits):
    with pytest.raises(ValueError, match="bits must be"):
        SharedNoise(1.0, least=2, bits=bits)


def test_as_many_bits_as_there_are():
    for bits in (8, 62):
        assert SharedNoise(1.0, least=2, bits=bits).bits == bits


@pytest.mark.parametrize(
    ("name", "bad"), [("multiplier", 0.0), ("least", 0), ("colluders", 0), ("law", "uniform")]
)
def test_what_makes_no_noise_is_refused(name, bad):
    with pytest.raises(ValueError, match=name):
        SharedNoise(**{"multiplier": 1.0, "least": 2} | {name: bad})
