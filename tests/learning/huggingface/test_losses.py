"""One loss for each row, whatever its company."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.learning.huggingface.conftest import LENGTH, WORDS, adapted, bert, gpt2, texts
from torch.nn import functional as F
from transformers.trainer_pt_utils import LabelSmoother

import sfumato as sf


def row_of(numbers, words=5):
    generator = torch.Generator().manual_seed(sum(numbers) + len(numbers))
    return torch.randn(len(numbers), words, generator=generator), torch.tensor(numbers)


ROWS = st.lists(
    st.lists(st.integers(-101, 6), min_size=4, max_size=4), min_size=1, max_size=5
)  # fmt: skip


@given(ROWS, st.booleans(), st.sampled_from([None, 1, 7]))
def test_a_row_s_loss_is_a_function_of_that_row(labels, shift, length):
    """In company, and counted by hand: the mean over its own tokens, or the sum over a number."""
    found = [row_of(row) for row in labels]
    logits, targets = torch.stack([f[0] for f in found]), torch.stack([f[1] for f in found])
    together = sf.token_losses(logits, targets, shift=shift, length=length)
    for i, row in enumerate(labels):
        alone = sf.token_losses(logits[i : i + 1], targets[i : i + 1], shift=shift, length=length)
        by_hand = []
        for place, word in enumerate(row[1:] if shift else row):
            if 0 <= word < 5:
                by_hand.append(-logits[i, place].log_softmax(0)[word])
        total = torch.stack(by_hand).sum() if by_hand else torch.zeros(())
        expected = total / (length or max(1, len(by_hand)))
        assert torch.allclose(together[i], expected, atol=1e-6)
        assert torch.equal(together[i], alone[0])


def test_a_row_without_counted_tokens_contributes_exactly_nothing():
    logits = torch.randn(3, 4, 5, requires_grad=True)
    labels = torch.tensor([[0, 1, 2, 3], [-100] * 4, [3, 99, -7, -100]])
    losses = sf.token_losses(logits, labels)
    assert losses[1:].tolist() == [0.0, 0.0]
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert gradient[0].any()
    assert not gradient[1:].any()


def test_of_one_row_it_is_the_library_s_own():
    model = gpt2().eval()
    rows = texts(5)
    for i in range(5):
        one = {name: value[i : i + 1] for name, value in rows.items()}
        assert torch.allclose(sf.row_losses(model, one)[0], model(**one).loss, atol=1e-6)


@pytest.mark.parametrize("shift", [True, False])
def test_smoothed_labels_are_the_library_s_too(shift):
    logits, labels = torch.randn(1, 4, 5), torch.tensor([[1, 2, -100, 4]])
    ours = sf.token_losses(logits, labels, shift=shift, label_smoothing=0.2)
    theirs = LabelSmoother(epsilon=0.2)({"logits": logits}, labels, shift_labels=shift)
    assert torch.allclose(ours[0], theirs, atol=1e-6)


KINDS = {
    "one class": (3, torch.tensor([0, 2, 1]), "single_label_classification"),
    "a number": (1, torch.tensor([0.5, -1.0, 2.0]), "regression"),
    "several classes": (3, torch.tensor([[1.0, 0, 1]] * 3), "multi_label_classification"),
}


@pytest.mark.parametrize(("labels", "targets", "kind"), KINDS.values(), ids=KINDS.keys())
def test_classes_by_the_library_s_rules(labels, targets, kind):
    model = bert(labels=labels).eval()
    batch = {"input_ids": texts(3)["input_ids"], "labels": targets}
    ours = sf.row_losses(model, batch)
    for i in range(3):
        theirs = model(input_ids=batch["input_ids"][i : i + 1], labels=targets[i : i + 1]).loss
        assert torch.allclose(ours[i], theirs, atol=1e-6)
    assert model.config.problem_type == kind  # it has found the same


def test_classes_out_of_range_count_for_nothing():
    logits = torch.randn(3, 2, requires_grad=True)
    losses = sf.class_losses(logits, torch.tensor([1, 2, -5]))
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert losses[1:].tolist() == [0.0, 0.0]
    assert gradient[0].any()
    assert not gradient[1:].any()


@pytest.mark.parametrize("make_model", [gpt2, bert, adapted], ids=["GPT-2", "BERT", "adapter"])
def test_private_rows_never_raise(make_model):
    """Tokens and labels that do not exist, and a mask that leaves nothing."""
    model = make_model()
    rows = {
        "input_ids": torch.tensor([[WORDS, -1, 10**9, 1, 2, 3]] * 2),
        "attention_mask": torch.tensor([[0] * LENGTH, [1] * LENGTH]),
    }
    one_class = make_model is bert
    rows["labels"] = torch.tensor([10**9, -3]) if one_class else rows["input_ids"]
    assert sf.row_losses(model, rows).shape == (2,)


def test_without_labels_a_causal_model_s_are_its_tokens():
    rows = texts(4)
    labels = rows.pop("labels")
    model = gpt2().eval()
    assert torch.equal(sf.row_losses(model, rows), sf.row_losses(model, rows | {"labels": labels}))
    with pytest.raises(sf.TrainingError, match="no labels"):
        sf.row_losses(bert(), rows)


def test_padding_and_others_padding_change_nothing():
    """A row alone, filled up, beside a row that is full: the library picks another kernel then."""
    model, rows = gpt2().double().eval(), texts(6)
    rows["input_ids"][0], rows["attention_mask"][0] = 3, 1
    short = {name: value[1:2, :3] for name, value in rows.items()}
    short["attention_mask"] = torch.ones_like(short["attention_mask"])
    short["labels"] = short["input_ids"]
    alone = sf.row_losses(model, short)
    filled = {name: F.pad(value, (0, 3)) for name, value in short.items()}
    filled["labels"] = F.pad(short["labels"], (0, 3), value=-100)
    among = {name: torch.cat([filled[name], rows[name][:1]]) for name in rows}
    assert torch.allclose(alone, sf.row_losses(model, filled), atol=1e-12)
    assert torch.allclose(alone[0], sf.row_losses(model, among)[0], atol=1e-12)


def test_masked_and_sequence_to_sequence_models():
    from transformers import BertConfig, BertForMaskedLM, T5Config, T5ForConditionalGeneration

    rows = texts(3)
    words = BertForMaskedLM(
        BertConfig(
            vocab_size=WORDS, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2,
        )
    ).eval()  # fmt: skip
    sums = T5ForConditionalGeneration(
        T5Config(
            vocab_size=WORDS, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2,
            decoder_start_token_id=0,
        )
    ).eval()  # fmt: skip
    for model in (words, sums):
        for i in range(3):
            one = {name: value[i : i + 1] for name, value in rows.items()}
            assert torch.allclose(sf.row_losses(model, one)[0], model(**one).loss, atol=1e-5)


def test_other_heads_are_refused_with_the_remedy():
    from transformers import BertConfig, BertModel

    with pytest.raises(sf.TrainingError, match="give losses=f"):
        sf.row_losses(BertModel(BertConfig(num_hidden_layers=1, hidden_size=12)), texts(2))
