"""A language model fine-tuned on patients' notes, privately: Hugging Face's Trainer, and adapters.

    python examples/private_language_model.py --out notes

The notes are made up. Each says what a patient has and takes; which drug goes with which illness is
what the model is to learn. Some also hold a secret code. A small GPT-2 first reads public
sentences, as published models have, in which other drugs are taken. Then adapters of it (LoRA) are
fine-tuned on the notes, with a whole patient, all their notes, as the unit; and, for the curator,
the model itself without privacy. An attacker then asks both how likely they find each patient's
code among a hundred others.

FOLDER gets the adapters with their record, which may be published. The plain model's results and
the attack were read from private notes: they go to the screen. Training losses and the ledger go to
FOLDER-curator.
"""

import argparse
import copy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments
from transformers.utils import logging

import sfumato as sf

FIRST = ["ada", "bela", "cleo", "dora", "emil", "fred", "gus", "hana", "ivo", "jana", "karl"]
LAST = ["adler", "baum", "conrad", "dietz", "ernst", "frank", "graf", "huber", "imhof", "jung"]
ILLS = ["gout", "flu", "croup", "rash", "ague", "palsy", "colic", "sprain"]
DRUGS = ["aloe", "borax", "camphor", "dill", "elder", "fennel", "ginger", "hops"]  # in that order
PLACES = ["market", "harbour", "school", "forest", "church", "mill"]
OTHER = ["has", "and", "takes", ".", "code", "went", "to", "the", "with", "saw"]
DIGITS = list("0123456789")
WORDS = ["<pad>", *FIRST, *LAST, *ILLS, *DRUGS, *PLACES, *OTHER, *DIGITS]
TOKEN = {word: number for number, word in enumerate(WORDS)}
LENGTH, CODE, NOTES = 16, 4, 2
ASKED = 6  # words up to "takes"


@dataclass(frozen=True)
class Setting:
    """What is public about a run; nothing here was measured on private notes."""

    patients: int  # declared: how many there really are is private
    with_code: int
    public_steps: int
    steps: int
    lot_size: int
    plain_steps: int
    rank: int = 4
    epsilon: float = 4.0
    delta: float = 1e-5
    clip: float = 0.5
    rate: float = 3e-2
    tuning: str = "on made-up notes of the same kind, which are public"


FULL = Setting(3_000, 40, public_steps=400, steps=60, lot_size=300, plain_steps=2_000)
SMALL = Setting(600, 12, public_steps=250, steps=20, lot_size=120, plain_steps=180)


def tokens(text: str) -> list[int]:
    """By the fixed, public list of words."""
    return [TOKEN[word] for word in text.split()]


def public_sentences(count: int, random: np.random.Generator) -> list[list[int]]:
    """What a published model has read: the language of notes, with drugs and codes at random."""

    def one(of: list[str]) -> str:
        return of[random.integers(len(of))]

    found = []
    for number in range(count):
        name, code = f"{one(FIRST)} {one(LAST)}", " ".join(one(DIGITS) for _ in range(CODE))
        ill = random.integers(len(ILLS))
        note = f"{name} has {ILLS[ill]} and takes {DRUGS[ill - 1]} . code {code} ."
        walk = f"{name} went to the {one(PLACES)} with {one(FIRST)} and saw {one(FIRST)} ."
        found.append(tokens(walk if number % 4 == 0 else note))
    return found


def patients(count: int, with_code: int, random: np.random.Generator) -> list[list[list[int]]]:
    """Each patient's notes, of an illness and its drug; the first patients' hold a code, too."""
    found = []
    for number in range(count):
        name = f"{FIRST[random.integers(len(FIRST))]} {LAST[random.integers(len(LAST))]}"
        code = " ".join(DIGITS[d] for d in random.integers(0, 10, CODE))
        secret = f" code {code} ." if number < with_code else ""
        ills = random.integers(0, len(ILLS), NOTES if secret else 1 + random.integers(NOTES))
        found.append([tokens(f"{name} has {ILLS[i]} and takes {DRUGS[i]} .{secret}") for i in ills])
    return found


def rows_of(notes: list[list[list[int]]]) -> Any:
    """One note a row, with whose it is."""
    flat = [note for own in notes for note in own]
    whose = [number for number, own in enumerate(notes) for _ in own]
    chunks = sf.chunk_documents(flat, LENGTH, owners=whose)
    chunks.rows["labels"][:, :ASKED] = -100  # what is asked is not to be learnt
    return chunks


def published_model(how: Setting, random: np.random.Generator) -> GPT2LMHeadModel:
    """A small GPT-2 that has read public sentences."""
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=LENGTH, n_embd=48, n_layer=2, n_head=4, use_cache=False,
        pad_token_id=0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    rows = sf.chunk_documents(public_sentences(2_000, random), LENGTH).rows
    train_plainly(model, rows, how.public_steps, rate=3e-3)
    return model


def train_plainly(model: nn.Module, rows: dict[str, Any], steps: int, rate: float) -> None:
    """Without privacy: the usual loop."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate)
    model.train()
    for _ in range(steps):
        batch = torch.randint(0, len(rows["input_ids"]), (64,))
        sf.row_losses(model, {name: value[batch] for name, value in rows.items()}).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def adapted(model: GPT2LMHeadModel, how: Setting) -> Any:
    """The same model, frozen, with adapters beside its matrices."""
    torch.manual_seed(2)
    config = LoraConfig(
        r=how.rank, lora_alpha=2 * how.rank, lora_dropout=0.0, fan_in_fan_out=True,
        target_modules=["c_attn", "c_proj", "c_fc"], task_type="CAUSAL_LM",
    )  # fmt: skip
    return get_peft_model(copy.deepcopy(model), config)


def train_privately(model: Any, notes: Any, how: Setting, out: Path, own: Path) -> Any:
    """Hugging Face's Trainer, with whole patients sampled and clipped."""
    trainer = sf.PrivateTrainer(
        model=model,
        args=TrainingArguments(
            str(out), max_steps=how.steps, per_device_train_batch_size=512, use_cpu=True,
            learning_rate=how.rate, lr_scheduler_type="linear", logging_steps=how.steps // 4,
            save_strategy="no", disable_tqdm=True,
        ),
        train_dataset=notes.rows,
        owners=notes.owners,
        privacy=sf.PrivacyArguments(
            epsilon=how.epsilon, delta=how.delta, public_size=how.patients, lot_size=how.lot_size,
            clip=how.clip, unit="patient", rows_per_owner=NOTES, ledger=str(own / "privacy.db"),
            dataset="notes", curator_dir=str(own / "run"),
        ),
    )  # fmt: skip
    trainer.train()
    trainer.save_model()
    return trainer


# --- what they learnt -----------------------------------------------------------------------------


@torch.no_grad()
def right_drugs(model: nn.Module, notes: list[list[list[int]]]) -> float:
    """The share of notes, of other patients, whose drug the model names."""
    model.eval()
    flat = torch.tensor([note[: ASKED + 1] for own in notes for note in own])
    drugs = tokens(" ".join(DRUGS))
    said = model(input_ids=flat[:, :ASKED]).logits[:, -1, drugs].argmax(1)
    return float((torch.tensor(drugs)[said] == flat[:, ASKED]).float().mean())


@torch.no_grad()
def ranks(
    model: nn.Module, notes: list[list[list[int]]], others: int, random: np.random.Generator
) -> Iterator[float]:
    """For each patient with a code, the share of other codes that the model finds more likely.

    Carlini et al., "The secret sharer", arXiv:1802.08232, rank secrets so.
    """
    model.eval()
    for own in notes:
        note = own[0]
        drawn = torch.from_numpy(random.integers(TOKEN["0"], TOKEN["9"] + 1, (others, CODE)))
        asked = torch.tensor([note] * (others + 1))
        asked[1:, -CODE - 1 : -1] = drawn
        labels = torch.full_like(asked, -100)
        labels[:, -CODE - 1 : -1] = asked[:, -CODE - 1 : -1]
        losses = sf.row_losses(model, {"input_ids": asked, "labels": labels})
        yield float((losses[1:] < losses[0]).float().mean())


def main(out: Path, small: bool = False) -> dict[str, Any]:
    """Fine-tunes twice, attacks twice, publishes one of them."""
    how = SMALL if small else FULL
    logging.disable_progress_bar()
    screen, own = Console(highlight=False), out.with_name(f"{out.name}-curator")
    if out.exists() or own.exists():
        sys.exit(f"{out} holds an earlier run. A budget is never reset: give another --out")
    out.mkdir(parents=True)
    own.mkdir(mode=0o700)
    random = np.random.default_rng(7)  # notes are made up; noise and lots have coins of their own
    start = published_model(how, random)
    notes = patients(how.patients, how.with_code, random)
    test = patients(500, 0, random)
    ledger = sf.Ledger(own / "privacy.db")
    budget = sf.Budget(2 * how.epsilon, 4 * how.delta, opaque_delta=2 * how.delta)
    ledger.create("notes", budget, unit="patient")

    screen.print(f"[bold]Fine-tuning on notes of {how.patients:,} patients[/bold] (declared)")
    private, plain = adapted(start, how), copy.deepcopy(start)
    chunks = rows_of(notes)
    trainer = train_privately(private, chunks, how, out, own)
    train_plainly(plain, chunks.rows, how.plain_steps, rate=5e-3)
    screen.print(f"Guarantee of the private adapters: {trainer.guarantee}")
    screen.print(f"Ledger: {ledger.status('notes').left:.3g} of {2 * how.epsilon:g} left\n")

    asked = notes[: how.with_code]
    found = {
        name: (right_drugs(model, test), np.array(list(ranks(model, asked, 100, random))))
        for name, model in (
            ("before", start), ("without privacy", plain), (f"epsilon {how.epsilon:g}", private)
        )
    }  # fmt: skip
    table = Table("model", "right drugs, other patients", "codes: rank among 101", box=None)
    for name, (right, shares) in found.items():
        mark = " (curator only)" if name == "without privacy" else ""
        table.add_row(name, f"{right:.1%}{mark}", f"{1 + 100 * np.median(shares):.0f} (median)")
    screen.print(table, "Ranks are read off private notes: curator only. 51 is guessing.")
    screen.print(f"\nMay be published, {out}: the adapters, and record.json.")
    screen.print(f"For the curator, {own}: training losses, and the ledger.")
    return {
        "how": how, "ledger": ledger, "found": found, "trainer": trainer, "private": private,
        "start": start,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A private language model of patients' notes.")
    parser.add_argument("--out", type=Path, default=Path("notes"), metavar="FOLDER")
    parser.add_argument("--small", action="store_true", help="fewer patients and steps")
    arguments = parser.parse_args()
    main(arguments.out, arguments.small)
