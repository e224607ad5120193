"""Their Trainer with the private engine in it: the same run as a plain loop, and nothing more."""

import json
import math
import stat

import numpy as np
import pytest
import torch
import transformers
from tests.learning.huggingface.conftest import (
    LENGTH,
    ROWS,
    WORDS,
    adapted,
    bert,
    gpt2,
    items,
    texts,
)  # fmt: skip
from transformers import TrainerCallback

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd.noise import CoinNoise


class NoNoise:
    name, private = "none", False

    def normal(self, like, std):
        return torch.zeros_like(like)


def seeded(seed=7):
    coins = SeededCoins(seed)
    return {"coins": coins, "noise": CoinNoise(SeededCoins(seed + 1))}


def budget(path, epsilon=100.0):
    ledger = sf.Ledger(path)
    ledger.create("texts", sf.Budget(epsilon, 2e-4, opaque_delta=1e-4))
    return ledger


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(v, two[n]) for n, v in one.items())


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def public_rows():
    found = texts(12, seed=3)
    return Rows([{name: value[i] for name, value in found.items()} for i in range(12)])


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


def test_a_collator_that_makes_labels(make):
    """What it fills up with is not counted, whatever token that is."""
    words = {f"w{i}": i for i in range(WORDS - 1)} | {"[PAD]": WORDS - 1}
    from tokenizers import Tokenizer, models

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[PAD]")), pad_token="[PAD]"
    )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
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


# --- what lands where -----------------------------------------------------------------------------


def files(folder):
    return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}


def test_what_may_be_published_and_what_may_not(make, tmp_path):
    trainer = make(
        save_strategy="steps", save_steps=2, eval_strategy="steps", eval_steps=2,
        more={"eval_dataset": public_rows()},
    )  # fmt: skip
    trainer.save_metrics("train", trainer.train().metrics)
    trainer.save_state()
    trainer.save_model()
    out, own = tmp_path / "out", tmp_path / "out-curator"
    usual = {"config.json", "generation_config.json", "model.safetensors", "record.json"}
    assert set(files(out)) == usual | {f"checkpoint-{n}/{f}" for n in (2, 4) for f in usual}
    for path in files(out).values():
        if path.suffix == ".json":
            assert "loss" not in path.read_text()
    assert {"trainer_state.json", "train_results.json", "run/started.journal"} <= set(files(own))
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o077 == 0 for p in files(own).values())
    assert "loss" in (own / "trainer_state.json").read_text()


def test_an_ordinary_folder_with_the_keys_it_always_had(make, tmp_path):
    before = list(gpt2().state_dict())
    trainer = make()
    trainer.train()
    trainer.save_model()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(loaded) is type(trainer.model) is transformers.GPT2LMHeadModel
    assert list(loaded.state_dict()) == list(trainer.model.state_dict()) == before
    assert same(weights(loaded), weights(trainer.model))
    assert "forward" not in vars(trainer.model)  # not wrapped
    record = json.loads((tmp_path / "out" / "record.json").read_text())
    assert record["guarantee"]["epsilon"] == trainer.guarantee.epsilon
    assert record["facts"]["model"] == "GPT2LMHeadModel"
    assert "transformers" in record["software"]


def test_an_adapter_s_folder(make, tmp_path):
    peft = pytest.importorskip("peft")
    model = adapted()
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    trainer = make(model)
    trainer.train()
    trainer.save_model()
    now = weights(model)
    assert all(torch.equal(value, now[name]) for name, value in frozen.items())
    loaded = peft.PeftModel.from_pretrained(gpt2(), tmp_path / "out")
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
    assert trainer.record.facts["adapter"] is True


def test_neighbouring_rows_leave_the_same_traces(make, tmp_path, capsys):
    """The same coins, one row replaced by nonsense: only weights differ among what is published."""
    one = items()
    two = [dict(row) for row in one]
    two[3] = {"input_ids": "nonsense", "labels": None}
    two[5] = {"input_ids": [10**12, -4, 3], "labels": [10**12, 0, 99]}
    found = []
    for name, data in (("one", one), ("two", two)):
        trainer = make(
            data=data, out=tmp_path / name, privacy={"max_length": LENGTH}, more=seeded(),
            save_strategy="steps", save_steps=2, logging_strategy="no",
        )  # fmt: skip
        trainer.train()
        trainer.save_model()
        found.append((files(tmp_path / name), files(tmp_path / f"{name}-curator"), trainer.record))
        said = capsys.readouterr()
        assert not said.err
    (first, first_own, record), (second, second_own, other) = found
    assert record == other
    assert first.keys() == second.keys()
    assert first_own.keys() == second_own.keys()
    for name, path in first.items():
        assert path.stat().st_size == second[name].stat().st_size
        if path.suffix != ".safetensors":
            assert path.read_bytes() == second[name].read_bytes(), name


# --- going on -------------------------------------------------------------------------------------


class Killed(TrainerCallback):
    def __init__(self, after):
        self.after = after

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.after:
            raise KeyboardInterrupt


def test_a_killed_run_goes_on_and_is_charged_once(make, tmp_path):
    path = tmp_path / "ledger.db"
    ledger = budget(path)
    privacy = {"ledger": str(path), "dataset": "texts"}
    arguments = {"save_strategy": "steps", "save_steps": 2, "optim": "adamw_torch", "max_steps": 6}
    killed = make(privacy=privacy, more={"callbacks": [Killed(after=3)]}, **arguments)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    del killed
    with pytest.raises(ValueError, match="holds a run that began already"):
        make(privacy=privacy, **arguments).train()
    going_on = make(privacy=privacy, **arguments)
    found = going_on.train(resume_from_checkpoint=True)
    assert found.global_step == 6
    record = going_on.record
    assert record.facts["steps_lost"] == 1  # the third, which no checkpoint holds
    spent = [e for e in ledger.history("texts") if e.kind == "reserve"]
    assert len(spent) == 1
    assert ledger.verify("texts").ok
    assert [e["step"] for e in going_on.state.log_history if "loss" in e][-1] == 6
    with pytest.raises(ValueError, match="of this run's folders"):
        make(privacy=privacy, **arguments).train(resume_from_checkpoint="/elsewhere/checkpoint-2")


def test_a_budget_that_is_too_small_is_refused_before_a_row_is_read(make, tmp_path):
    path = tmp_path / "ledger.db"
    budget(path, epsilon=0.1)

    class Watched(Rows):
        read = False

        def __getitem__(self, i):
            type(self).read = type(self).read or i > 0
            return super().__getitem__(i)

    trainer = make(
        data=Watched(items()),
        privacy={"ledger": str(path), "dataset": "texts", "max_length": LENGTH},
    )  # fmt: skip
    with pytest.raises(sf.BudgetExceeded):
        trainer.train()
    assert not Watched.read  # but for the first, whose structure is looked at


# --- sensitivity ----------------------------------------------------------------------------------


class Spy:
    """No noise; remembers what noise was asked for."""

    name, private = "spy", False

    def __init__(self):
        self.sums, self.stds = [], []

    def normal(self, like, std):
        self.sums.append(like.flatten().clone())
        self.stds.append(std)
        return torch.zeros_like(like)


def first_sum(make, data, owners=None, **privacy):
    """Of a lot with everybody in it: what the first step's noise is added to."""
    spy = Spy()
    units = len(data["input_ids"]) if owners is None else len(set(owners))
    trainer = make(
        data=data, max_steps=1, more={"noise": spy, "owners": owners},
        privacy={"public_size": 30, "lot_size": 30, "clip": 0.3, "delta": 1e-3} | privacy,
    )  # fmt: skip
    trainer.train()
    assert spy.stds == [pytest.approx(0.3)] * len(spy.sums)
    assert units <= 30
    return torch.cat(spy.sums)


def without(data, rows):
    kept = torch.tensor([i for i in range(len(data["input_ids"])) if i not in rows])
    return {name: value[kept] for name, value in data.items()}


@pytest.mark.parametrize("kind", ["usual", "nonsense", "empty"])
def test_one_row_more_moves_the_sum_by_the_clip_norm_at_most(make, kind):
    data = texts(20)
    if kind == "nonsense":
        data["input_ids"][4], data["labels"][4] = 10**9, torch.arange(LENGTH)
    if kind == "empty":
        data["attention_mask"][4], data["labels"][4] = 0, -100
    moved = float((first_sum(make, data) - first_sum(make, without(data, [4]))).norm())
    assert moved <= 0.3
    if kind == "empty":
        assert moved < 1e-6
    else:
        assert moved > 0.29  # these are long gradients, and are all clipped


def test_one_document_more_moves_the_sum_by_the_clip_norm_at_most(make):
    data, owners = texts(20), np.repeat(np.arange(5), 4)
    less = np.delete(owners, [4, 5, 6, 7])
    given = {"unit": "document", "rows_per_owner": 4}
    found = first_sum(make, data, owners, **given)
    moved = float((found - first_sum(make, without(data, [4, 5, 6, 7]), less, **given)).norm())
    assert 0.29 < moved <= 0.3
    by_row = float((first_sum(make, data) - first_sum(make, without(data, [4, 5, 6, 7]))).norm())
    assert by_row > 0.31  # four rows of one document, if rows were the unit
