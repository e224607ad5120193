"""Rows made regular, rows made up, and documents cut into rows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.learning.huggingface.conftest import LENGTH, WORDS, bert, gpt2, items, texts
from transformers import DataCollatorForSeq2Seq, default_data_collator

import sfumato as sf
from sfumato.learning.dp_sgd.padding import to_length
from sfumato.learning.huggingface.collating import prepare
from sfumato.learning.huggingface.rows import TokenRows

ANYTHING = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(), st.lists(st.integers(), max_size=9),
    st.lists(st.floats(), max_size=3), st.just([2**80]), st.just(torch.zeros(2, 2)),
    st.lists(st.text(), max_size=3), st.dictionaries(st.text(), st.integers(), max_size=2),
)  # fmt: skip


@given(ANYTHING, ANYTHING)
def test_every_row_becomes_regular_or_is_replaced(tokens, labels):
    """By the trainer's source: nothing a private row holds is an error."""
    from sfumato.learning.dp_sgd.batches import Source

    example = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}]
    regular = TokenRows([{"input_ids": tokens, "labels": labels}, *example], example[0], 4)
    found = Source(regular, collate=default_data_collator, example=[*map(regular.regular, example)])
    batch = found.fetch(np.array([0, 1]))
    assert {name: (value.shape, value.dtype) for name, value in batch.items()} == dict.fromkeys(
        ("input_ids", "labels", "attention_mask"), ((2, 4), torch.long)
    )


@pytest.mark.parametrize("left", [False, True])
def test_rows_are_cut_and_filled_up(left):
    regular = TokenRows([], {"input_ids": [1], "labels": [1]}, 4, pad=9, left=left)
    row = regular.regular({"input_ids": [1, 2], "labels": [1, 2], "else": "dropped"})
    order = slice(None, None, -1) if left else slice(None)
    assert row["input_ids"].tolist()[order] == ([2, 1, 9, 9] if left else [1, 2, 9, 9])
    assert row["labels"].tolist()[order][2:] == [-100, -100]
    assert row["attention_mask"].tolist()[order] == [1, 1, 0, 0]
    long = regular.regular({"input_ids": range(9), "labels": range(9)})
    assert long["input_ids"].tolist() == [0, 1, 2, 3]


def test_made_up_rows_are_plausible_and_always_the_same():
    data = texts()
    made = sf.made_up_rows(gpt2(), data, rows=5)
    again = sf.made_up_rows(gpt2(), texts(7, seed=9), rows=5)
    for name, value in made.items():
        assert torch.equal(value, again[name])
        assert value.dtype == data[name].dtype
    mask = made["attention_mask"]
    assert mask[:, 0].all()
    assert not mask.all()
    assert int(made["input_ids"].max()) < WORDS
    assert torch.equal(made["labels"], torch.where(mask > 0, made["input_ids"], -100))
    classes = sf.made_up_rows(bert(), data | {"labels": torch.zeros(40, dtype=torch.long)})
    assert set(classes["labels"].tolist()) == {0, 1, 2}


def test_made_up_items_have_the_columns_of_the_first_and_nothing_else_of_it():
    one, two = (sf.made_up_rows(gpt2(), rows, length=LENGTH) for rows in (items(), items(seed=4)))
    assert one == two
    assert all(len(row["input_ids"]) == LENGTH for row in one)


def test_a_length_must_be_declared_for_rows_of_their_own():
    with pytest.raises(ValueError, match="max_length must be given"):
        prepare(gpt2(), items(), lambda rows: rows, length=None)


# --- padding to the longest -----------------------------------------------------------------------


def padded(side):
    """What a collator does: to the longest of the batch."""

    def collate(rows):
        longest = max(len(row["input_ids"]) for row in rows)
        filled = TokenRows([], rows[0], longest, left=side == "left")
        found = [filled.regular(row) for row in rows]
        return {name: torch.stack([row[name] for row in found]) for name in found[0]}

    return collate


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_on_the_left_mixes_rows_if_positions_are_counted(make, side, fixed):
    trainer = make(
        data=items(), privacy={"max_length": LENGTH, "pad_to_max_length": fixed},
        more={"data_collator": padded(side)},
    )  # fmt: skip
    if side == "right" or fixed:
        trainer.train()
        return
    with pytest.raises(sf.TrainingError, match="pad_to_max_length=True"):
        trainer.train()
    assert trainer.dpsgd.steps_taken == 0


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(1)
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=WORDS, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2,
            decoder_start_token_id=0, dropout_rate=0.0, attn_implementation="eager",
        )
    )  # fmt: skip


@pytest.mark.parametrize("fixed", [True, False])
def test_summaries_have_lengths_of_their_own(make, fixed):
    """Each padded to its longest by the library's collator, if they are not filled up before."""
    collate = DataCollatorForSeq2Seq(Padding())
    texts = [
        {"input_ids": row["input_ids"], "labels": row["labels"][: 1 + i % 3]}
        for i, row in enumerate(items())
    ]
    trainer = make(
        t5(), data=texts, privacy={"max_length": LENGTH, "pad_to_max_length": fixed},
        more={"data_collator": collate},
    )  # fmt: skip
    trainer.train()
    (batch, left_out) = trainer.dpsgd._source.fetched(np.arange(len(texts)))
    assert left_out is None
    counted = (batch["labels"] != -100).sum(1).tolist()
    assert counted == [len(text["labels"]) for text in texts]


class Padding:
    """What collators ask of a tokenizer."""

    padding_side, pad_token_id, deprecation_warnings = "right", 0, {}

    def pad(self, rows, padding=True, max_length=None, pad_to_multiple_of=None, **more):
        longest = max(len(row["input_ids"]) for row in rows)
        return {
            name: torch.stack([to_length(torch.as_tensor(row[name]), longest) for row in rows])
            for name in rows[0]
            if name != "labels"
        }


def test_filled_up_rows_may_lie_on_the_left(make, monkeypatch):
    trainer = make(data=items(), privacy={"max_length": LENGTH})
    monkeypatch.setattr(trainer, "processing_class", type("T", (), {"padding_side": "left"})())
    trainer.train()
    assert trainer.dpsgd.steps_taken == 4


# --- documents ------------------------------------------------------------------------------------

TEXTS = st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5)


@given(TEXTS, st.integers(1, 5), st.data())
def test_every_token_of_a_document_is_counted_once_and_no_row_has_two_owners(documents, length, d):
    overlap = d.draw(st.integers(0, length - 1))
    chunks = sf.chunk_documents(documents, length, overlap=overlap)
    rows = chunks.rows
    assert len(chunks) == len(rows["input_ids"]) == len(rows["labels"])
    for number, document in enumerate(documents):
        own = chunks.owners == number
        counted = rows["labels"][torch.from_numpy(own)]
        assert counted[counted != -100].tolist() == list(document)
        if len(document) <= length:
            assert own.sum() == bool(document)
    mask = rows["attention_mask"] > 0
    assert torch.equal(rows["input_ids"][~mask], torch.zeros(int((~mask).sum()), dtype=torch.long))


def test_documents_of_one_author_have_one_owner():
    chunks = sf.chunk_documents([[1, 2, 3], [4], [5, 6]], 2, owners=["ann", "bob", "ann"])
    assert chunks.owners.tolist() == ["ann", "ann", "bob", "ann"]
    with pytest.raises(ValueError, match="one for each document"):
        sf.chunk_documents([[1]], 2, owners=["ann", "bob"])
    with pytest.raises(ValueError, match="overlap"):
        sf.chunk_documents([[1]], 2, overlap=2)
