"""What their Trainer offers and private training cannot have: refused when the trainer is made."""

import pytest
import torch
import transformers
from tests.learning.huggingface.conftest import gpt2, public_rows, texts
from transformers import EarlyStoppingCallback, HfArgumentParser, TrainingArguments

import sfumato as sf
from sfumato.learning.huggingface.refusals import refuse_arguments

SCORED = {
    "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "metric_for_best_model": "loss",
}  # fmt: skip
REFUSED = {
    "gradient_accumulation_steps": ({"gradient_accumulation_steps": 2}, "lot_size says"),
    "max_grad_norm": ({"max_grad_norm": 0.5}, r"PrivacyArguments\(clip="),
    "sampling by length": ({"train_sampling_strategy": "group_by_length"}, "leave it 'random'"),
    "drop_last": ({"dataloader_drop_last": True}, "random samples"),
    "data_seed": ({"data_seed": 1}, "knows the lots"),
    "plateau": ({"lr_scheduler_type": "reduce_lr_on_plateau", **SCORED}, "fixed in advance"),
    "layerwise": ({"optim": "galore_adamw_layerwise"}, "before noise is added"),
    "report_to": ({"report_to": "tensorboard"}, "use 'none'"),
    "push_to_hub": ({"push_to_hub": True}, "look at what is published"),
    "torch_compile": ({"torch_compile": True}, r"PrivacyArguments\(compile=True\)"),
    "fp16": ({"fp16": True}, "bf16=True"),
    "liger": ({"use_liger_kernel": True}, "hide the model's functions"),
    "neftune": ({"neftune_noise_alpha": 5.0}, "not offered"),
    "debug": ({"debug": "underflow_overflow"}, "depends on private rows"),
    "auto_find_batch_size": ({"auto_find_batch_size": True}, "per_device_train_batch_size"),
    "best model": (
        {"load_best_model_at_end": True, "save_strategy": "steps", **SCORED},
        r"eval_data='public'",
    ),
    "best checkpoint": ({"save_strategy": "best", **SCORED}, r"eval_data='public'"),
}


@pytest.mark.parametrize(("given", "remedy"), REFUSED.values(), ids=REFUSED.keys())
def test_arguments(tmp_path, given, remedy):
    """At once, before a model or a row is looked at."""
    args = TrainingArguments(str(tmp_path / "out"), use_cpu=True)
    for name, value in given.items():  # some cannot even be made without other packages
        setattr(args, name, value)
    with pytest.raises(ValueError, match=remedy) as raised:
        refuse_arguments(args, sf.PrivacyArguments())
    assert next(iter(given)) in str(raised.value)


def test_columns_are_no_evaluation_data(make):
    """Their Trainer takes a dictionary for several data sets, and fails in the first evaluation."""
    with pytest.raises(ValueError, match=r"eval_dataset must be a data set.*'input_ids'"):
        make(more={"eval_dataset": texts(4)})
    make(more={"eval_dataset": {"one": public_rows(), "two": public_rows()}})


def test_the_trainer_asks_when_made_and_again_before_a_run(make):
    with pytest.raises(ValueError, match="gradient_accumulation_steps=3"):
        make(gradient_accumulation_steps=3)
    with pytest.raises(ValueError, match="look at what is published"):  # before one is made
        make(push_to_hub=True)
    trainer = make()
    trainer.args.max_grad_norm = 7.0
    with pytest.raises(ValueError, match=r"max_grad_norm=7\.0"):
        trainer.train()


def test_defaults_are_accepted(tmp_path):
    refuse_arguments(TrainingArguments(str(tmp_path)), sf.PrivacyArguments())


def test_scores_of_public_data_may_choose(tmp_path):
    args = TrainingArguments(
        str(tmp_path), load_best_model_at_end=True, save_strategy="best", **SCORED
    )
    refuse_arguments(args, sf.PrivacyArguments(eval_data="public"))


def test_stopping_early_by_private_scores(make):
    with pytest.raises(ValueError, match="EarlyStoppingCallback cannot be had"):
        make(
            eval_strategy="steps", eval_steps=1, metric_for_best_model="loss",
            more={"eval_dataset": public_rows(), "callbacks": [EarlyStoppingCallback()]},
        )  # fmt: skip


def test_a_loss_of_the_whole_batch(make):
    with pytest.raises(ValueError, match="losses=f"):
        make(more={"compute_loss_func": lambda *_, **__: torch.zeros(())})


@pytest.mark.parametrize("name", ["compute_loss", "training_step", "get_train_dataloader"])
def test_a_method_of_a_subclass_that_would_never_be_called(tmp_path, name):
    kind = type("Mine", (sf.PrivateTrainer,), {name: lambda *_, **__: None})
    with pytest.raises(ValueError, match=rf"Mine\.{name} would never be called"):
        kind(model=gpt2(), args=TrainingArguments(str(tmp_path), use_cpu=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.training_step(t.model, texts(2)),
        lambda t: t.hyperparameter_search(),
        lambda t: t.train(trial={"learning_rate": 1.0}),
        lambda t: t.push_to_hub(),
        lambda t: t.create_model_card(),
        lambda t: t.record,
    ],
)
def test_ways_around_it(make, call):
    with pytest.raises(sf.TrainingError):
        call(make())


def test_the_curator_s_folder_lies_outside(make, tmp_path):
    with pytest.raises(ValueError, match="outside output_dir"):
        make(privacy={"curator_dir": str(tmp_path / "out" / "curator")})


@pytest.mark.parametrize(
    ("privacy", "reason"),
    [
        ({"epsilon": 3.0}, "both given"),
        ({"eval_data": "secret"}, "eval_data"),
        ({"delta": None}, "delta must be given"),
        ({"lot_size": None}, "lot_size must be given"),
        ({"ledger": "somewhere.db"}, "there is no ledger"),
        ({"compile": True}, "gradient_checkpointing must be False"),
    ],
)
def test_the_private_side(make, privacy, reason):
    with pytest.raises((ValueError, sf.TrainingError, OSError), match=reason):
        make(privacy=privacy, gradient_checkpointing=True)


def test_a_plan_says_everything(make):
    plan = sf.TrainingPlan.make(
        sf.PoissonLots(8, 40), sf.PerLayer(0.5), noise_multiplier=1.0, steps=3, delta=1e-4
    )
    nothing = dict.fromkeys(("noise_multiplier", "delta", "public_size", "lot_size"))
    trainer = make(privacy=nothing, more={"plan": plan}, max_steps=-1)
    trainer.train()
    assert trainer.dpsgd.steps_taken == 3
    with pytest.raises(ValueError, match="leave max_steps out"):
        make(privacy=nothing, more={"plan": plan}, max_steps=4)
    with pytest.raises(ValueError, match="leave out"):
        make(more={"plan": plan}, max_steps=-1)


def test_the_private_side_can_be_read_from_a_command_line(tmp_path):
    words = "--output_dir x --max_steps 5 --epsilon 3 --delta 1e-5 --public_size 100 --lot_size 10"
    parser = HfArgumentParser((TrainingArguments, sf.PrivacyArguments))
    args, privacy = parser.parse_args_into_dataclasses(words.split())
    assert (args.max_steps, privacy.epsilon, privacy.public_size) == (5, 3.0, 100)
    assert privacy.pad_to_max_length is True


def test_a_mixin_for_other_trainers(tmp_path):
    class Mine(sf.PrivateTrainerMixin, transformers.Seq2SeqTrainer):
        pass

    trainer = Mine(
        model=gpt2(),
        args=transformers.Seq2SeqTrainingArguments(
            str(tmp_path / "out"), max_steps=2, use_cpu=True, save_strategy="no", disable_tqdm=True
        ),
        train_dataset=texts(),
        privacy=sf.PrivacyArguments(noise_multiplier=1.0, delta=1e-4, public_size=40, lot_size=8),
    )
    assert trainer.train().global_step == 2
