"""Private fine-tuning of a Hugging Face GPT-2 beside plain training on one GPU: time and memory.

    python benchmarks/huggingface.py --out huggingface.jsonl [--tasks gpt2,lora] [--together 4]
    python benchmarks/huggingface.py --table huggingface.jsonl
    python benchmarks/huggingface.py --out /tmp/tiny.jsonl --device cpu --tiny     # a rehearsal

How it is measured, and how each engine's clipped sum is checked before it is timed, is the affair
of dp_sgd_gpu.py, whose options these are; bfloat16 alone is the default here. Models are
``transformers.GPT2LMHeadModel`` with random weights and no dropout. Texts are filled up on the
right to one length, a quarter of them by a half, with a mask, and labels of -100 where they are
filled up; a loss is the mean over a text's own tokens. Positions are given for each text, as Opacus
needs.

===========  =====================================================================================
gpt2         124 million parameters, embedding and head tied, 256 tokens, batch 32
gpt2untied   the same with a head of its own, which Opacus asks for: 163 million
gpt2long     tied, 1024 tokens, batch 8
lora         gpt2 frozen, ``peft`` adapters of rank 16 on attention's matrices, batch 32
loralong     the same with 1024 tokens, batch 8
===========  =====================================================================================

Without ``peft``, adapters are left out, and it is said so. "checkpointed" engines compute layers'
activations again in the backward pass (``gradient_checkpointing_enable``).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace

import apart
import dp_sgd_gpu
import gpu_engines
import gpu_tasks
import torch
from gpu_tasks import Batch, Loss, Setting, Task
from torch import Tensor, nn

FILLED = -100


def gpt2(tiny: bool, tokens: int, tied: bool = True) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 64} if tiny else {}
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(
        n_positions=tokens, tie_word_embeddings=tied, use_cache=False, bos_token_id=0,
        eos_token_id=0, **shape, **still,
    )  # fmt: skip
    return GPT2LMHeadModel(config).train()


def lora(tiny: bool, tokens: int) -> nn.Module:
    """Both factors start at random: with the usual zeros there would be nothing to check."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=4 if tiny else 16, lora_dropout=0.0, target_modules=["c_attn", "c_proj"],
        fan_in_fan_out=True, init_lora_weights=False, task_type="CAUSAL_LM",
    )  # fmt: skip
    return get_peft_model(gpt2(tiny, tokens), config).train()  # type: ignore[arg-type]


class Texts(Task):
    """A causal language model of the library, and texts for it."""

    def batch(self, rows: int, device: str) -> Batch:
        """Tokens, and the same as labels where a text is not filled up."""
        x = torch.randint(1, self.classes, (rows, *self.inputs), device=device)
        lengths = torch.where(torch.arange(rows, device=device) % 4 == 3, 2, 1)
        there = torch.arange(self.inputs[0], device=device) < self.inputs[0] // lengths[:, None]
        return torch.where(there, x, 0), torch.where(there, x, FILLED)

    def spread(self, rows: int, device: str) -> Batch:
        """Texts of 2, 4, 8, ... different words, whose gradients differ in length."""
        x, y = self.batch(rows, device)
        words = (2 ** torch.arange(1, rows + 1, device=device)).clamp(max=self.classes)[:, None]
        return x % words, torch.where(y == FILLED, FILLED, x % words)

    def loss(self, precision: str, device: str) -> Loss:
        """``loss(model, x, y)``: one number for each text."""
        from sfumato.learning.huggingface.losses import token_losses

        half = precision == "bf16"

        def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            places = torch.arange(x.shape[1], device=x.device).repeat(len(x), 1)
            with torch.autocast(device, torch.bfloat16, enabled=half):
                out = model(
                    input_ids=x, attention_mask=(y != FILLED).long(), position_ids=places,
                    use_cache=False,
                )  # fmt: skip
                return token_losses(out.logits, y)

        return losses


def tasks(tiny: bool = False) -> dict[str, Task]:
    """All of them by name."""
    short, long = (16, 32) if tiny else (256, 1024)
    words = 64 if tiny else 50_257
    listed = [
        Texts("gpt2", lambda: gpt2(tiny, short), (short,), words, 32),
        Texts("gpt2untied", lambda: gpt2(tiny, short, tied=False), (short,), words, 32),
        Texts("gpt2long", lambda: gpt2(tiny, long), (long,), words, 8),
    ]
    if importlib.util.find_spec("peft") is not None:
        listed += [
            Texts("lora", lambda: lora(tiny, short), (short,), words, 32),
            Texts("loralong", lambda: lora(tiny, long), (long,), words, 8),
        ]
    return {t.name: replace(t, rows=min(t.rows, 16)) if tiny else t for t in listed}


def checkpointed(
    make: Callable[[Setting], gpu_engines.Engine],
) -> Callable[[Setting], gpu_engines.Engine]:
    """The same engine on a model that computes its layers' activations again."""

    def made(setting: Setting) -> gpu_engines.Engine:
        enable = getattr(setting.model, "gradient_checkpointing_enable")  # noqa: B009
        enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return make(setting)

    return made


_ALL = gpu_engines.ENGINES
ENGINES = {
    "plain": _ALL["plain"],
    "plain, checkpointed": checkpointed(_ALL["plain"]),
    "plain+compile": _ALL["plain+compile"],
    "plain+compile, graphs": _ALL["plain+compile, graphs"],
    "sfumato": _ALL["sfumato"],
    "sfumato, checkpointed": checkpointed(_ALL["sfumato"]),
    "sfumato+compile": _ALL["sfumato+compile"],
    "opacus": _ALL["opacus"],
    "opacus ghost": _ALL["opacus ghost"],
}
"""In the order of the table."""


def main() -> None:
    """The other benchmark, with these tasks and engines."""
    gpu_tasks.tasks, gpu_engines.ENGINES, apart.BENCHMARK = tasks, ENGINES, __file__
    if not any(word.startswith("--precisions") for word in sys.argv):
        sys.argv += ["--precisions", "bf16"]
    if "--one" not in sys.argv and importlib.util.find_spec("peft") is None:
        print("peft is not installed: adapters are left out", file=sys.stderr)
    dp_sgd_gpu.main()


if __name__ == "__main__":
    main()
