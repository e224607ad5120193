"""Their Trainer with the private engine in it: the same run as a plain loop, and nothing more."""

import math

import numpy as np
import pytest
import torch
import transformers
from tests.learning.huggingface.conftest import (
    LENGTH,
    ROWS,
    WORDS,
    NoNoise,
    Rows,
    adapted,
    bert,
    budget,
    gpt2,
    items,
    public_rows,
    same,
    seeded,
    texts,
    weights,
)
from transformers import TrainerCallback

import sfumato as sf

# --- the same run ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make_model", [gpt2, adapted], ids=["whole", "adapter"])
def test_it_is_the_plain_loop_step_by_step(make, make_model):
    """With the same coins: the same lots, noise, schedule and weights, to the last bit."""
    trainer = make(make_model(), more=seeded())
    trainer.train()
    model = make_model()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.1)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, 4)
    plain = sf.DPSGD(
        model, optimizer, texts(), public_size=ROWS, lot_size=8, steps=4, noise_multiplier=1.0,
        delta=1e-4, batch_size=4, scheduler=schedule, example=sf.made_up_rows(model, texts()),
        **seeded(),
    )  # fmt: skip
    for batch in plain:
        plain.backward(sf.row_losses(model, batch))
    assert same(weights(trainer.model), weights(model))
    assert trainer.guarantee == plain.guarantee
    assert trainer.plan.event == plain.plan.event


@pytest.mark.parametrize("make_model", [gpt2, bert], ids=["GPT-2", "BERT"])
def test_a_plain_loop_needs_no_example(make_model):
    """Made-up zeros and ones will do, masks that leave nothing to attend to included."""
    model = make_model(dropout=0.1)
    data = texts() if make_model is gpt2 else texts() | {"labels": torch.arange(ROWS) % 3}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    plain = sf.DPSGD(
        model, optimizer, data, public_size=ROWS, lot_size=8, steps=2, noise_multiplier=1.0,
        delta=1e-4,
    )  # fmt: skip
    plain.fit(sf.row_losses)
    assert plain.steps_taken == 2


def test_without_noise_and_clipping_it_is_their_trainer(make, tmp_path):
    """One whole lot of rows of one length, each divided by all of its labels, as theirs is."""
    data = texts(8, full=True)
    privacy = {"public_size": 8, "lot_size": 8, "clip": 1e6, "delta": 1e-2}
    privacy["tokens_per_row"] = LENGTH  # the first of which is never predicted
    ours = make(data=data, privacy=privacy, more={"noise": NoNoise()}, max_steps=1)
    ours.train()
    theirs = transformers.Trainer(
        model=gpt2(),
        args=transformers.TrainingArguments(
            str(tmp_path / "theirs"), max_steps=1, per_device_train_batch_size=8, optim="sgd",
            learning_rate=0.1, max_grad_norm=0, use_cpu=True, disable_tqdm=True,
            save_strategy="no",
        ),
        train_dataset=Rows([{n: v[i] for n, v in data.items()} for i in range(8)]),
    )  # fmt: skip
    theirs.train()
    for name, value in weights(theirs.model).items():
        found = weights(ours.model)[name]
        assert torch.allclose(found, value, atol=2e-5), name  # clipped to C (1 - 2^-14)


def test_rows_as_lists_and_as_columns_are_the_same_rows(make):
    by_column = make(more=seeded())
    by_row = make(data=items(), privacy={"max_length": LENGTH}, more=seeded())
    as_a_data_set = make(data=Rows(items()), privacy={"max_length": LENGTH}, more=seeded())
    for trainer in (by_column, by_row, as_a_data_set):
        trainer.train()
    for other in (by_row, as_a_data_set):
        for name, value in weights(by_column.model).items():
            assert torch.allclose(value, weights(other.model)[name], atol=1e-6)


def collator_of(**options):
    """The library's own, and its tokens."""
    words = {f"w{i}": i for i in range(WORDS - 1)} | {"[PAD]": WORDS - 1}
    from tokenizers import Tokenizer, models

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[PAD]")),
        pad_token="[PAD]",
        mask_token="w0",
    )
    return transformers.DataCollatorForLanguageModeling(tokenizer, **options)


def test_a_collator_that_makes_labels(make):
    """What it fills up with is not counted, whatever token that is."""
    collator = collator_of(mlm=False)
    rows = [[min(t, WORDS - 2) for t in row["input_ids"]] for row in items()]
    data = [{"input_ids": row} for row in rows]
    labelled = [{"input_ids": row, "labels": row} for row in rows]
    reference = make(data=labelled, privacy={"max_length": LENGTH}, more=seeded())
    for fixed in (True, False):
        trainer = make(
            data=data, privacy={"max_length": LENGTH, "pad_to_max_length": fixed},
            more=seeded() | {"data_collator": collator},
        )  # fmt: skip
        trainer.train()
        if fixed:
            reference.train()
        for name, value in weights(reference.model).items():
            assert torch.allclose(value, weights(trainer.model)[name], atol=1e-6)


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("bf16", [False, True])
def test_mixed_precision_checkpointing_dropout_and_evaluation(make, bf16, checkpointed):
    trainer = make(
        gpt2(dropout=0.1), bf16=bf16, gradient_checkpointing=checkpointed, eval_strategy="steps",
        eval_steps=2, more={"eval_dataset": public_rows()},
    )  # fmt: skip
    names = list(trainer.model.state_dict())
    found = trainer.train()
    assert found.global_step == 4
    assert math.isfinite(found.training_loss)
    assert sum("eval_loss" in entry for entry in trainer.state.log_history) == 2
    assert list(trainer.model.state_dict()) == names
    assert trainer.model.training


def test_checkpointing_changes_no_bit(make):
    plain, checked = (make(more=seeded(), gradient_checkpointing=on) for on in (False, True))
    plain.train()
    checked.train()
    assert same(weights(plain.model), weights(checked.model))


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("dropout", 0),
        ("masked words", 1),
        pytest.param("dropout", 1, marks=pytest.mark.slow),
        pytest.param("masked words", 0, marks=pytest.mark.slow),
    ],
)
def test_the_librarys_own_seed_does_not_tell_the_masks(make, kind, workers):
    """A trainer seeds torch, NumPy and Python with 42, and so may everybody."""
    drops = kind == "dropout"
    data = [{"input_ids": [min(t, WORDS - 2) for t in row["input_ids"]]} for row in items()]
    found = []
    for seed in (None, None, 5, 5):
        coins = {} if seed is None else {"coins": sf.SeededCoins(seed)}
        trainer = make(
            gpt2(dropout=0.5 if drops else 0.0), data, privacy={"lot_size": ROWS, "max_length": 6},
            dataloader_num_workers=workers, max_steps=2,
            more=coins | {
                "noise": NoNoise(),
                "data_collator": collator_of(mlm=not drops, mlm_probability=None if drops else 0.5),
            },
        )  # fmt: skip
        assert trainer.args.seed == 42
        trainer.train()
        found.append(weights(trainer.model))
    assert not same(found[0], found[1])
    assert same(found[2], found[3])


def test_classes_with_dropout(make):
    data = texts() | {"labels": torch.arange(ROWS) % 3}
    trainer = make(bert(dropout=0.1), data, label_smoothing_factor=0.1)
    trainer.train()
    assert trainer.dpsgd.steps_taken == 4


def test_pictures_by_column(make):
    model = transformers.ViTForImageClassification(
        transformers.ViTConfig(
            hidden_size=8, intermediate_size=10, num_hidden_layers=1, num_attention_heads=2,
            image_size=8, patch_size=4, num_labels=3,
        )
    )  # fmt: skip
    data = {"pixel_values": torch.randn(ROWS, 3, 8, 8), "labels": torch.arange(ROWS) % 3}
    assert make(model, data).train().global_step == 4


def test_documents_are_the_unit(make):
    generator = np.random.default_rng(0)
    documents = [generator.integers(1, WORDS, n).tolist() for n in generator.integers(1, 20, 30)]
    chunks = sf.chunk_documents(documents, LENGTH)
    privacy = {"public_size": 30, "rows_per_owner": 2, "unit": "document"}
    trainer = make(data=chunks.rows, privacy=privacy, more={"owners": chunks.owners})
    trainer.train()
    assert trainer.guarantee.unit == "document"
    column = make(
        data=chunks.rows | {"of": chunks.owners}, privacy=privacy, more={"owners": "of"}
    )  # fmt: skip
    assert np.array_equal(column._owners, chunks.owners)
    with pytest.raises(ValueError, match="unit must name whom"):
        make(data=chunks.rows, privacy=privacy | {"unit": "record"},
             more={"owners": chunks.owners}).train()  # fmt: skip


def test_steps_from_epochs(make):
    trainer = make(max_steps=-1, num_train_epochs=2, logging_strategy="epoch", logging_steps=500)
    assert trainer.plan.steps == 10
    told = []

    class Tells(TrainerCallback):
        def on_epoch_end(self, args, state, control, **_):
            told.append((state.global_step, state.epoch))

    trainer.add_callback(Tells())
    trainer.train()
    assert told == [(5, 1.0), (10, 2.0)]
    assert sum("loss" in entry for entry in trainer.state.log_history) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own, of its next version
def test_compiled(make):
    plain = make(more=seeded())
    compiled = make(privacy={"compile": True}, more=seeded())
    plain.train()
    compiled.train()
    for name, value in weights(plain.model).items():
        assert torch.allclose(value, weights(compiled.model)[name], atol=1e-5), name


def test_own_losses_and_an_example(make):
    def losses(model, batch):
        return sf.row_losses(model, batch) * 2

    trainer = make(more=seeded() | {"losses": losses, "example": texts(6, seed=5)})
    trainer.train()
    assert trainer.dpsgd.steps_taken == 4


def test_a_loss_that_mixes_rows_is_refused_before_anything_is_charged(make, tmp_path):
    ledger = budget(tmp_path / "ledger.db")
    trainer = make(
        privacy={"ledger": str(tmp_path / "ledger.db"), "dataset": "texts"},
        more={"losses": lambda model, batch: sf.row_losses(model, batch) / len(batch["labels"])},
    )  # fmt: skip
    with pytest.raises(sf.TrainingError, match="depends on the other examples"):
        trainer.train()
    assert ledger.status("texts").releases == 0


# --- callbacks and choices ------------------------------------------------------------------------


class Stops(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step == 2


def test_a_callback_may_end_the_run_and_it_can_go_on(make):
    trainer = make(more=seeded() | {"callbacks": [Stops()]})
    assert trainer.train().global_step == 2
    trainer.pop_callback(Stops)
    assert trainer.train().global_step == 4
    with pytest.raises(sf.TrainingError, match="one run"):
        trainer.train()


def test_the_best_weights_by_public_scores(make, tmp_path):
    trainer = make(
        privacy={"eval_data": "public"}, save_strategy="steps", save_steps=1, eval_strategy="steps",
        eval_steps=1, load_best_model_at_end=True, save_only_model=True, save_total_limit=2,
        metric_for_best_model="eval_loss",
        more={"eval_dataset": public_rows(),
              "callbacks": [transformers.EarlyStoppingCallback(early_stopping_patience=3)]},
    )  # fmt: skip
    trainer.train()
    scores = [e["eval_loss"] for e in trainer.state.log_history if "eval_loss" in e]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(scores))
    assert len(list((tmp_path / "out").glob("checkpoint-*"))) <= 3
    assert trainer.record.facts["evaluation_data"] == "public"
