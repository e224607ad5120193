"""What a private Trainer leaves behind, who may see it, and how a killed run goes on."""

import json
import shutil
import stat

import pytest
import torch
import transformers
from tests.learning.huggingface.conftest import (
    LENGTH,
    Rows,
    adapted,
    budget,
    gpt2,
    items,
    public_rows,
    same,
    seeded,
    weights,
)
from transformers import TrainerCallback

import sfumato as sf

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
    assert {"trainer_state.json", "train_results.json", "run/journal.jsonl"} <= set(files(own))
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


def test_without_the_curators_folder_a_run_is_not_charged_anew(make, tmp_path):
    path = tmp_path / "ledger.db"
    ledger = budget(path)
    privacy = {"ledger": str(path), "dataset": "texts"}
    arguments = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    killed = make(privacy=privacy, more={"callbacks": [Killed(after=3)]}, **arguments)
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    folder, away = killed.curator.path, tmp_path / "away"
    del killed
    folder.rename(away)
    with pytest.raises(ValueError, match=r"put that folder back.*charge of its own"):
        make(privacy=privacy, **arguments).train(resume_from_checkpoint=True)
    shutil.rmtree(folder)
    away.rename(folder)
    assert make(privacy=privacy, **arguments).train(resume_from_checkpoint=True).global_step == 6
    assert [e.kind for e in ledger.history("texts")].count("reserve") == 1


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
