"""Small models with random weights, rows for them, and a trainer with everything else filled in."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

import sfumato as sf  # noqa: E402
from sfumato.core.randomness import SeededCoins  # noqa: E402
from sfumato.learning.dp_sgd.noise import CoinNoise  # noqa: E402

WORDS, LENGTH, ROWS = 13, 6, 40


@pytest.fixture(autouse=True)
def _quiet():
    """No bars, and one thread: these tensors are too small to share out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    yield
    torch.set_num_threads(threads)


def gpt2(dropout=0.0, **more):
    torch.manual_seed(1)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=WORDS, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2,
            resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
            bos_token_id=0, eos_token_id=0, **more,
        )
    )  # fmt: skip


def bert(dropout=0.0, labels=3, **more):
    torch.manual_seed(1)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=WORDS, hidden_size=8, intermediate_size=10, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=8, num_labels=labels,
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **more,
        )
    )  # fmt: skip


def adapted(model=None, **more):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(
        r=2, lora_dropout=0.0, target_modules=["c_attn"], fan_in_fan_out=True,
        task_type="CAUSAL_LM", **more,
    )  # fmt: skip
    return peft.get_peft_model(model or gpt2(), config)


def texts(rows=ROWS, seed=0, full=False):
    """By column, filled up on the right."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (rows, LENGTH), generator=generator)
    lengths = torch.randint(LENGTH if full else 2, LENGTH + 1, (rows, 1), generator=generator)
    mask = (torch.arange(LENGTH) < lengths).long()
    labels = torch.where(mask > 0, ids, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def items(rows=ROWS, seed=0):
    """The same as a list of dictionaries of lists, each as long as it is."""
    found = texts(rows, seed)
    lengths = found["attention_mask"].sum(1).tolist()
    return [
        {"input_ids": ids[:n].tolist(), "labels": ids[:n].tolist()}
        for ids, n in zip(found["input_ids"], lengths, strict=True)
    ]


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


@pytest.fixture
def make(tmp_path):
    """``make(model, data, privacy={...}, max_steps=4, ...)``."""

    def made(model=None, data=None, *, privacy=None, more=None, out=None, **arguments):
        given = {
            "max_steps": 4, "per_device_train_batch_size": 4, "save_strategy": "no",
            "learning_rate": 0.1, "optim": "sgd", "lr_scheduler_type": "linear",
            "logging_steps": 1, "disable_tqdm": True, "use_cpu": True,
        }  # fmt: skip
        private = {"noise_multiplier": 1.0, "delta": 1e-4, "public_size": ROWS, "lot_size": 8}
        return sf.PrivateTrainer(
            model=gpt2() if model is None else model,
            args=transformers.TrainingArguments(
                str(out or tmp_path / "out"), **(given | arguments)
            ),
            train_dataset=texts() if data is None else data,
            privacy=sf.PrivacyArguments(**(private | (privacy or {}))),
            **(more or {}),
        )

    return made
