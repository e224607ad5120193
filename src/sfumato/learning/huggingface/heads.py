"""What a ``transformers`` model is for, read off its class and configuration; nothing is imported.

Adapters of ``peft`` are looked through: what counts is the model inside.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import nn

from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["Head", "base_of", "head_of", "limits_of"]

Head = Literal["causal", "tokens", "classes", "sequence to sequence"]
"""Of which kind a model's labels are."""

_HEADS: tuple[tuple[str, Head], ...] = (
    ("ForCausalLM", "causal"),
    ("LMHeadModel", "causal"),
    ("ForMaskedLM", "tokens"),
    ("ForTokenClassification", "tokens"),
    ("ForSequenceClassification", "classes"),
    ("ForImageClassification", "classes"),
    ("ForConditionalGeneration", "sequence to sequence"),
)


def base_of(model: nn.Module) -> Any:
    """The model inside an adapter, or the model."""
    found: Any = model
    return found.get_base_model() if hasattr(found, "peft_config") else found


def head_of(model: nn.Module) -> Head:
    """Of which kind its labels are.

    Raises:
        TrainingError: if the class's name does not tell.
    """
    names = [each.__name__ for each in type(base_of(model)).__mro__]
    for ending, head in _HEADS:
        if any(name.endswith(ending) for name in names):
            return head
    raise TrainingError(
        f"the losses of a {names[0]} are not known here: give losses=f, where f(model, batch) is "
        "one number for each row, and depends on that row alone"
    )


def limits_of(model: nn.Module) -> dict[str, int]:
    """For each argument that is looked up in a table, how many rows the table has."""
    base = base_of(model)
    config = getattr(base, "config", None)
    try:
        tokens = getattr(base.get_input_embeddings(), "num_embeddings", None)
    except NotImplementedError:  # a model of sounds or pictures has no table of tokens
        tokens = None
    found = {
        "input_ids": tokens,
        "decoder_input_ids": tokens,
        "token_type_ids": getattr(config, "type_vocab_size", None),
        "position_ids": getattr(config, "max_position_embeddings", None),
    }
    return {name: limit for name, limit in found.items() if limit}
