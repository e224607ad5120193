"""What the attack returns: pictures over rounds, in words and for JSON."""

import json

import numpy as np
import pytest

from sfumato.attacks.gan.results import GanAttack


def attack():
    pictures = np.arange(3 * 2 * 4, dtype=np.float32).reshape(3, 2, 1, 2, 2)
    sure = np.array([0.1, 0.2, 0.5, 0.75])
    return GanAttack(7, 9, np.array([1, 2, 4]), pictures, sure, 1, (0.0, 24.0))


def test_the_last_pictures_come_with_their_class():
    found = attack()
    images, labels = found.last()
    assert np.array_equal(images, found.pictures[2])
    assert labels.tolist() == [7, 7]
    images, labels = found.last(3)
    assert np.array_equal(images, found.pictures.reshape(6, 1, 2, 2))
    assert labels.tolist() == [7] * 6
    for wrong in (0, 4):
        with pytest.raises(ValueError, match=f"rounds must be .* got {wrong}"):
            found.last(wrong)


def test_results_say_themselves():
    found = attack()
    assert str(found) == (
        "GAN attack on class 7 under label 9: 4 rounds, pictures kept of 3; in the end the shared "
        "model is 75.0% sure of them"
    )
    assert "2 of 1 x 2 x 2 after 3 rounds" in found._repr_html_()


def test_results_go_to_json_without_the_pictures():
    told = json.loads(json.dumps(attack().to_dict()))
    assert told["channel"] == "curator"
    assert (told["victim_class"], told["fake_class"], told["kept"]) == (7, 9, [1, 2, 4])
    assert (told["shape"], told["pictures"], told["skipped"]) == ([1, 2, 2], 2, 1)
    assert told["probability"] == [0.1, 0.2, 0.5, 0.75]
