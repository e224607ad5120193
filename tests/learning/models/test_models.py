"""Models by name: shapes, sizes against numbers computed by hand, and errors."""

import pytest
import torch
from torch import nn

from sfumato.learning.models import describe_model, make_model, model_names

IMAGES = [(1, 28, 28), (3, 32, 32), (1, 8, 8)]
SMALL = {"wrn": {"depth": 10, "width": 1}, "transformer": {"layers": 1, "dim": 16}}


def size(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("name", model_names())
def test_logits_for_images_of_every_size(name, shape):
    model = make_model(name, shape, 5, **SMALL.get(name, {}))
    assert model(torch.rand(2, *shape)).shape == (2, 5)
    assert isinstance(model, nn.Sequential)  # so that it can be cut


@pytest.mark.parametrize(("name", "shape", "options", "expected"), [
    ("linear", (1, 28, 28), {}, 7850),
    ("mlp", (60,), {"hidden": 1000}, 71_010),
    ("mlp", (4,), {"hidden": (5, 6), "activation": "tanh"}, 25 + 36 + 70),
    ("cnn", (1, 28, 28), {}, 26_010),
    ("cnn", (3, 32, 32), {}, 550_570),
    ("feature-cnn", (81, 7, 7), {}, 11_680 + 4_640 + 16_416 + 330),
    ("feature-cnn", (243, 8, 8), {}, 140_032 + 36_928 + 10_250),
    ("feature-cnn", (2, 8, 8), {"widths": 3, "hidden": 4, "stride": 2}, 57 + 196 + 50),
    ("abadi-cnn", (3, 24, 24), {}, 4_864 + 102_464 + 885_120 + 147_840 + 3_850),
    ("wrn", (3, 32, 32), {}, 464 + 121_920 + 526_592 + 2_101_760 + 512 + 2_570),
    # embedding and places; norms, query-key-value, output and perceptron; norm and head
    ("transformer", (1, 28, 28), {}, 1_088 + 49 * 64 + 4 * (256 + 12_480 + 4_160 + 16_576)
        + 128 + 650),
    ("transformer", (1, 8, 8), {"pool": "token", "layers": 1, "dim": 4, "heads": 2, "ratio": 1},
        68 + 4 + 5 * 4 + (16 + 60 + 20 + 40) + 8 + 50),
])  # fmt: skip
def test_sizes(name, shape, options, expected):
    assert size(make_model(name, shape, 10, **options)) == expected


@pytest.mark.parametrize("name", model_names())
def test_each_example_by_itself(name):
    torch.manual_seed(1)
    model = make_model(name, (1, 8, 8), 3, **SMALL.get(name, {}))
    images = torch.rand(4, 1, 8, 8)
    found = model(images)
    images[0] = torch.rand(1, 8, 8)
    assert torch.allclose(model(images)[1:], found[1:], atol=1e-6)
    assert not any(isinstance(m, nn.Dropout | nn.BatchNorm2d) for m in model.modules())
    assert torch.allclose(model.eval()(images), model.train()(images))


def test_convolutions_with_standardised_weights():
    conv = make_model("wrn", (3, 8, 8), 2, depth=10, width=1)[0]
    images = torch.rand(2, 3, 8, 8)
    before = conv(images)
    with torch.no_grad():
        conv.weight.mul_(3).add_(0.7)
    assert torch.allclose(conv(images), before, atol=1e-4)


def test_odd_shapes():
    for shape in ((1, 8, 30), (2, 17, 9), (1, 40, 16)):
        for name in ("cnn", "abadi-cnn", "feature-cnn"):
            assert make_model(name, shape, 2)(torch.rand(1, *shape)).shape == (1, 2)
    assert make_model("cnn", (3, 8, 8), 2, style="two", hidden=3)(torch.rand(1, 3, 8, 8)).numel()
    assert make_model("cnn", (1, 8, 8), 2, style="six", activation="relu")(torch.rand(1, 1, 8, 8))[
        0
    ].numel()


# --- names and options --------------------------------------------------------------------------


@pytest.mark.parametrize("name", model_names())
def test_every_model_is_described(name):
    assert len(describe_model(name).splitlines()) == 1


@pytest.mark.parametrize(("name", "shape", "options", "message"), [
    ("resnet", (1, 8, 8), {}, "one of abadi-cnn, cnn, .*, or 'package"),
    ("mlp", (4,), {"width": 3}, "one of hidden, activation, got 'width'"),
    ("linear", (4,), {"width": 3}, "there are none, got 'width'"),
    ("mlp", (4,), {"activation": "step"}, "one of relu, tanh"),
    ("mlp", (4,), {"hidden": 0}, "hidden must be a whole number"),
    ("mlp", (4,), {"hidden": ()}, "one width or several"),
    ("mlp", (), {}, "shape must be"),
    ("mlp", (0,), {}, "shape must be"),
    ("cnn", (4,), {}, "at least 8x8"),
    ("cnn", (1, 7, 8), {}, "at least 8x8"),
    ("cnn", (1, 8, 8), {"style": "vgg"}, "'two' or 'six'"),
    ("feature-cnn", (4, 2, 2), {"pool": 3}, "small enough"),
    ("wrn", (3, 8, 8), {"depth": 12}, "6 k . 4"),
    ("wrn", (3, 8, 8), {"groups": 5}, "a divisor of 16"),
    ("transformer", (1, 9, 8), {}, "a divisor of height and width"),
    ("transformer", (1, 8, 8), {"dim": 10}, "a multiple of heads"),
    ("transformer", (1, 8, 8), {"pool": "max"}, "'mean' or 'token'"),
])  # fmt: skip
def test_errors_name_the_remedy(name, shape, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(name, shape, 3, **options)


def test_at_least_one_class():
    with pytest.raises(ValueError, match="classes"):
        make_model("linear", (4,), 0)


# --- one's own ----------------------------------------------------------------------------------


def test_a_model_of_one_s_own_from_the_folder_one_is_in(tmp_path, monkeypatch):
    (tmp_path / "own_nets_here.py").write_text(
        "from torch import nn\n"
        "def tiny(shape, classes, bias=True):\n"
        "    return nn.Linear(shape[0], classes, bias=bias)\n"
        "def number(shape, classes):\n"
        "    return 3\n"
    )
    monkeypatch.chdir(tmp_path)
    assert size(make_model("own_nets_here:tiny", (4,), 3)) == 15
    assert size(make_model("own_nets_here:tiny", (4,), 3, bias=False)) == 12
    assert "own_nets_here" in describe_model("own_nets_here:tiny")
    with pytest.raises(ValueError, match=r"returns an nn\.Module"):
        make_model("own_nets_here:number", (4,), 3)
    with pytest.raises(ValueError, match="has that function"):
        make_model("own_nets_here:other", (4,), 3)
    with pytest.raises(ValueError, match="can be imported"):
        make_model("not_a_module_at_all:other", (4,), 3)
