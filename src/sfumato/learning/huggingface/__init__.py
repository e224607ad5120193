"""Private fine-tuning of Hugging Face ``transformers`` models, whole or by adapters (``peft``).

Read in this order: ``losses`` (one number for each row), ``rows`` (private rows made regular, and
public ones made up), ``documents`` (whose row it is), ``arguments`` (what private training needs to
know besides ``TrainingArguments``), ``refusals`` (what it cannot be combined with, and why),
``keeping`` (what lands where) and ``trainer`` (their ``Trainer``, with our engine in it).

Only ``trainer`` imports the library; the others work on any model of its shape.
"""
