"""What holds for every student."""

import json

import pytest
import torch

from sfumato.learning.pate.students import (
    Student,
    accuracy_of,
    describe_student,
    load_student,
    logits_of,
    make_student,
    student_names,
)

SMALL = {
    "fixmatch": {"width": 2, "batch": 4, "unlabelled_batch": 8, "rounds": 2},
    "gan": {"batch": 4},
    "supervised": {"width": 2, "batch": 4},
}
SETTINGS = list(SMALL.items())
SETTINGS.append(("supervised", {"batch": 4, "features": "scattering"}))
each = pytest.mark.parametrize(("name", "options"), SETTINGS)


@pytest.fixture(scope="module")
def public():
    """Images with stripes that lie or stand, and their classes."""
    coins = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 2
    stripes = (torch.arange(8) // 2 % 2).float().expand(1, 8, 8)
    both = torch.stack([stripes.transpose(1, 2), stripes])
    return 0.8 * both[labels] + 0.2 * torch.rand(24, 1, 8, 8, generator=coins), labels


class CutOffError(Exception):
    pass


def small(name, options, **more):
    return make_student(name, classes=2, **options, **more)


def same(a, b):
    first, second = a.state_dict(), b.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


def test_every_student_is_tried():
    assert set(SMALL) == set(student_names())


@each
def test_settings_go_through_json_and_back(name, options):
    student = small(name, options, steps=7)
    assert Student.from_dict(json.loads(json.dumps(student.to_dict()))) == student


@each
def test_a_run_cut_off_and_resumed_is_the_same_to_the_bit(name, options, public, tmp_path):
    images, labels = public
    student = small(name, options, steps=7)
    seen = []

    def cut(done, total):
        seen.append((done, total))
        if done == 5:
            raise CutOffError

    def fit(folder, progress=None):
        return student.fit(
            images, images[:8], labels[:8], folder=folder, keep_every=2, seed=3, progress=progress
        )

    whole = student.fit(images, images[:8], labels[:8], seed=3)
    with pytest.raises(CutOffError):
        fit(tmp_path, cut)
    torch.rand(3)  # what others draw in between does not matter
    again = fit(tmp_path, lambda done, total: seen.append((done, total)))
    assert same(again, whole)
    assert [done for done, _ in seen] == [1, 2, 3, 4, 5, 5, 6, 7]
    assert {path.name for path in tmp_path.iterdir()} == {"student.json", "model.safetensors"}
    assert same(fit(tmp_path, cut), whole)  # finished: nothing is trained
    assert same(load_student(tmp_path), whole)


@each
def test_a_seed_is_all_the_chance_there_is(name, options, public):
    images, labels = public
    student = small(name, options, steps=3)
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first = student.fit(images, images[:8], labels[:8], seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(6)
    assert same(student.fit(images, images[:8], labels[:8], seed=1), first)
    assert not same(student.fit(images, images[:8], labels[:8], seed=2), first)


@each
def test_lying_stripes_are_told_from_standing_ones(name, options, public):
    images, labels = public
    network = small(name, options, steps=60).fit(images, images[:6], labels[:6])
    assert not network.training
    assert accuracy_of(network, images, labels) == 1.0
    bytes_ = (255 * images).round().to(torch.uint8)
    assert logits_of(network, bytes_, batch=7).argmax(1).tolist() == labels.tolist()


@each
def test_bytes_are_floats_times_255(name, options, public):
    images, labels = public
    bytes_ = (255 * images).round().to(torch.uint8)
    student = small(name, options, steps=2)
    one = student.fit(bytes_, bytes_[:8].numpy(), labels[:8].numpy())
    two = student.fit(bytes_.float() / 255, bytes_[:8].float() / 255, labels[:8])
    assert same(one, two)


@each
def test_a_class_without_any_label_is_no_error(name, options, public):
    images, _ = public
    network = small(name, options, steps=2).fit(images, images[:1], torch.tensor([1]))
    assert logits_of(network, images).shape == (24, 2)
    assert logits_of(network, images).isfinite().all()


# --- rows of a table --------------------------------------------------------------------------


def columns(public):
    images, labels = public
    return images.flatten(1), labels


@pytest.mark.parametrize("hidden", [0, 5])
def test_columns_are_learnt_from(public, hidden):
    rows, labels = columns(public)
    student = make_student("supervised", classes=2, steps=60, batch=4, rate=0.03, hidden=hidden)
    network = student.fit(rows, rows[:6], labels[:6])
    assert accuracy_of(network, rows, labels) == 1.0
    sizes = [tuple(weight.shape) for weight in network.parameters()]
    assert sizes == ([(5, 64), (5,), (2, 5), (2,)] if hidden else [(2, 64), (2,)])


def test_a_linear_layer_on_columns_is_logistic_regression(public):
    """Without smoothing and decay: the gradient vanishes where the layer ends."""
    rows, labels = columns(public)
    labels = labels.clone()
    labels[:5] = 1 - labels[:5]  # so that it has an optimum
    few = rows[:, :3]
    student = make_student(
        "supervised", classes=2, steps=300, batch=24, rate=0.2, smoothing=0.0, weight_decay=0.0
    )
    errors = student.fit(None, few, labels)(few).softmax(1) - torch.eye(2)[labels]
    assert float((few.T @ errors / 24).abs().max()) < 1e-3
    assert float(errors.mean(0).abs().max()) < 1e-3


def test_the_gan_takes_columns_and_fixmatch_says_who_does(public):
    rows, labels = columns(public)
    small("gan", SMALL["gan"], steps=2).fit(rows, rows[:8], labels[:8])
    with pytest.raises(ValueError, match=r"takes images, got rows of 64 columns.*'supervised'"):
        small("fixmatch", SMALL["fixmatch"], steps=2).fit(rows, rows[:8], labels[:8])


def test_a_folder_is_for_one_student(public, tmp_path):
    images, labels = public
    student = small("supervised", SMALL["supervised"], steps=1)
    student.fit(None, images[:8], labels[:8], folder=tmp_path)
    for changed, seed in ((1 - labels[:8], 0), (labels[:8], 1)):
        with pytest.raises(ValueError, match="give another folder"):
            student.fit(None, images[:8], changed, folder=tmp_path, seed=seed)
    with pytest.raises(ValueError, match="folder must be a folder with a finished student"):
        load_student(tmp_path / "nothing")


def test_bad_arguments_are_named(public):
    images, labels = public
    student = small("supervised", SMALL["supervised"], steps=1)
    cases = [
        ((None, images[:2], torch.tensor([0, 2])), "labels must be from 0 to 1.*got 2"),
        ((None, images[:2], torch.tensor([0, -1])), "labels must be from 0 to 1.*got -1"),
        ((None, images[:2], labels[:3]), "labels must be one for each of the 2"),
        ((None, images[:2], torch.tensor([0.0, 1.0])), "labels must be whole numbers"),
        ((None, images[:0], labels[:0]), "inputs_labelled must be at least one"),
        ((images[:, :, 1:], images[:2], labels[:2]), "inputs_unlabelled must be inputs of the"),
        ((None, images[:2] * torch.nan, labels[:2]), "inputs_labelled must be finite"),
        ((None, images[:2, 0, 0, 0], labels[:2]), r"inputs_labelled must be \(n, \*shape\)"),
        ((None, images[:2, 0], labels[:2]), "shape of an input must be"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            student.fit(*arguments)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        student.fit(None, images[:2], labels[:2], seed=-1)


@pytest.mark.parametrize("name", SMALL)
def test_bad_settings_are_named(name):
    with pytest.raises(ValueError, match=f"option of '{name}' must be one of classes, steps"):
        make_student(name, nonsense=1)
    for option, value in (("steps", 0), ("classes", 0), ("batch", 0), ("rate", -1), ("average", 1)):
        with pytest.raises(ValueError, match=f"{option} must be"):
            make_student(name, **{option: value})
    assert "steps=" in describe_student(name)
    with pytest.raises(ValueError, match="student must be one of fixmatch, gan, supervised"):
        make_student("best")
    with pytest.raises(ValueError, match="features must be 'none' or 'scattering'"):
        make_student("supervised", features="pixels")
