"""Hugging Face models: the engine's gradients beside autograd's, one example at a time.

Complaints of others that these cover: adapters silently wrong, tied and frozen parameters, norms by
Gram matrices that differ from written-out ones (``harness`` compares both ways), padding.
"""

import pytest
import torch

transformers = pytest.importorskip("transformers")

from sfumato.learning.huggingface.losses import row_losses  # noqa: E402

WORDS, LENGTH = 13, 6


def gpt2(**more):
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS, n_positions=8, n_embd=8, n_layer=2, n_head=2, **(STILL | more)
        )
    )


STILL = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def llama(**more):
    """Grouped queries, rotary positions, RMS norms, a head of its own."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS, hidden_size=8, intermediate_size=10, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=8, **more,
        )
    )  # fmt: skip


def bert(dropout=0.0, **more):
    """A padding token's embedding never moves."""
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS, hidden_size=8, intermediate_size=10, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=8, num_labels=3,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **more,
        )
    )  # fmt: skip


def distilbert(dropout=0.0, **more):
    return transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=WORDS, dim=8, hidden_dim=10, n_layers=2, n_heads=2, num_labels=3,
            max_position_embeddings=8, dropout=dropout, attention_dropout=dropout,
            seq_classif_dropout=dropout, **more,
        )
    )  # fmt: skip


def adapted(model, targets, dropout=0.0, **more):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=2, lora_dropout=dropout, target_modules=targets, init_lora_weights=False,
        fan_in_fan_out=any(name.startswith("c_") for name in targets), **more,
    )  # fmt: skip
    return peft.get_peft_model(model, config)


def texts(batch):
    """Tokens of several lengths, masks, and labels of which some do not count."""
    ids = torch.randint(0, WORDS, (batch, LENGTH))
    lengths = torch.randint(1, LENGTH + 1, (batch, 1))
    mask = (torch.arange(LENGTH) < lengths).long()
    labels = torch.where((mask > 0) & (torch.rand(batch, LENGTH) < 0.8), ids, -100)
    return ids, mask, labels


def classed(batch):
    ids, mask, _ = texts(batch)
    return ids, mask, torch.randint(0, 3, (batch,))


def loss(model, ids, mask, labels):
    return row_losses(model, {"input_ids": ids, "attention_mask": mask, "labels": labels})


MODELS = {
    "GPT-2": (gpt2, texts),
    "Llama": (llama, texts),
    "BERT": (bert, classed),
    "DistilBERT": (distilbert, classed),
}
ADAPTERS = {
    "GPT-2": (lambda **d: adapted(gpt2(), ["c_attn", "c_fc"], **d), texts),
    "Llama": (lambda **d: adapted(llama(), ["q_proj", "v_proj", "down_proj"], **d), texts),
    "BERT": (lambda **d: adapted(bert(), ["query"], modules_to_save=["classifier"], **d), classed),
    "embeddings": (lambda **d: adapted(gpt2(), ["c_proj", "wte"], **d), texts),
}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("make_model", "make"), MODELS.values(), ids=MODELS.keys())
def test_whole_models(harness, make_model, make, attention):
    model = make_model(attn_implementation=attention)
    harness(model, make, loss, sizes=(4,))


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(("make_model", "make"), ADAPTERS.values(), ids=ADAPTERS.keys())
def test_adapters_of_a_frozen_model(harness, make_model, make, copies):
    model = make_model()
    tape = harness(model, make, loss, copies=copies, sizes=(4,))
    assert all("lora" in name or "modules_to_save" in name for name in tape.parameters)


def test_a_tied_head_has_the_gradient_of_both_uses(harness):
    model = gpt2()
    assert model.lm_head.weight is model.transformer.wte.weight
    inputs = texts(5)
    found = harness.record(harness.learn(model, texts, loss), model, inputs, loss)
    expected = harness.loop(model, inputs, loss)
    assert "lm_head.weight" not in found.pieces
    harness.compare(found, expected)


@pytest.mark.parametrize("frozen", ["embeddings", "all but the head"])
def test_parts_that_are_frozen(harness, frozen):
    model = llama()
    for name, p in model.named_parameters():
        head = "lm_head" in name
        p.requires_grad_(head if frozen == "all but the head" else "embed" not in name)
    harness(model, texts, loss, sizes=(4,))


@pytest.mark.parametrize("make_model", [gpt2, llama], ids=["GPT-2", "Llama"])
def test_checkpointed_layers_give_the_same(harness, make_model):
    model = make_model()
    model.train()
    tape, inputs = harness.learn(model, texts, loss), texts(5)
    plain = harness.record(tape, model, inputs, loss)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    checked = harness.record(tape, model, inputs, loss)
    assert plain.pieces.keys() == checked.pieces.keys()
    for name, piece in plain.pieces.items():
        assert torch.equal(piece.written(), checked.pieces[name].written()), name


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("name", ["BERT", "DistilBERT", "adapter"])
def test_with_dropout(harness, name, checkpointed):
    """The same draws in both: each example's loss in the batch, differentiated by autograd."""
    models = {
        "BERT": lambda: bert(0.3),
        "DistilBERT": lambda: distilbert(0.3),
        "adapter": lambda: adapted(bert(0.3), ["query", "value"], dropout=0.3),
    }
    model, inputs = models[name](), classed(4)
    model.train()
    tape = harness.learn(model, classed, loss)
    if checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    torch.manual_seed(5)
    found = harness.record(tape, model, inputs, loss)
    torch.manual_seed(5)
    losses = loss(model, *inputs)
    own = {n: p for n, p in model.named_parameters() if p.requires_grad}
    each = [
        torch.autograd.grad(
            row, list(own.values()), retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for row in losses
    ]
    expected = {n: torch.stack([g[i] for g in each]) for i, n in enumerate(own)}
    harness.compare(found, expected)


@pytest.mark.parametrize(("make_model", "make"), MODELS.values(), ids=MODELS.keys())
def test_in_single_precision(harness, make_model, make):
    model, inputs = make_model().float(), make(6)
    tape = harness.learn(model, make, loss)
    found = harness.record(tape, model, inputs, loss)
    expected = harness.loop(model.double(), inputs, loss)
    for name, reference in expected.items():
        if name not in found.pieces:
            assert not reference.any(), name
            continue
        off = (found.pieces[name].written().double() - reference).abs().max()
        assert float(off) < 2e-5, name


def test_in_mixed_precision_norms_and_sums_speak_of_one_vector(harness):
    """What is clipped is what is summed, whatever bfloat16 made of it."""
    model, inputs = gpt2().float(), texts(6)

    def mixed(model, *inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(model, *inputs)

    tape = harness.learn(model, texts, mixed)
    for ghost in (True, False):
        with harness.choosing(ghost):
            found = harness.record(tape, model, inputs, mixed)
            for name, piece in found.pieces.items():
                written = piece.written().double()
                true = written.flatten(1).square().sum(1)
                norms = piece.squared_norms().double()
                assert torch.allclose(norms, true, rtol=2e-3, atol=1e-9), name
                total = piece.weighted_sum(torch.ones(6, dtype=torch.float32)).double()
                assert torch.allclose(total, written.sum(0), atol=1e-5), name
