"""`keras-bert-d2l grammar`."""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import Flag, Model, PositiveInt
from keras_bert_d2l.cli.loading import load
from keras_bert_d2l.cli.options_from_records import Integer
from keras_bert_d2l.cli.outputs import check_output, nonempty_path
from keras_bert_d2l.progress import stage
from keras_bert_d2l.training.option_records import Precision

_LENGTH = 16  # tokens of a typical sentence


def grammar(
    *,
    data: Path,
    model: Model = OWN_MODEL,
    word_wise: Flag = False,
    batch_size: PositiveInt = 256,
    precision: Precision = "auto",
    seed: Integer = 0,
    json: Annotated[Path | None, Parameter(converter=nonempty_path)] = None,
) -> None:
    """Measure how often a model prefers the grammatical sentence of a minimal pair, as in BLiMP.

    Prints the accuracy of each phenomenon with its 95% bootstrap interval. A sentence of n tokens
    costs as much as n texts, because each token is masked once.

    For example: `keras-bert-d2l grammar --model runs/mine --data blimp.jsonl --json blimp.json`

    Args:
        data: JSON lines with `sentence_good`, `sentence_bad` and, optionally, `UID`, the name of
            the phenomenon; also CSV or TSV, and .gz or .xz.
        word_wise: With each masked token, also mask the later tokens of its word.
        batch_size: Masked copies of sentences per batch.
        precision: Keras dtype policy. By default (auto), a short measurement decides between
            float32 and mixed_bfloat16, which changes the answer for about one pair in 500.
        seed: Seed of the bootstrap intervals.
        json: Also write the results to this JSON file.
    """
    check_output("json", json, inputs=[data])
    bert = _load(model, precision, batch_size)
    with stage("Scoring sentences"):
        found = kb.minimal_pairs(bert, data, word_wise=word_wise, batch_size=batch_size, seed=seed)
    _print(found)
    if json is not None:
        from keras_bert_d2l.files import write_json

        facts = {"model": model, "data": str(data), "word_wise": word_wise, "seed": seed}
        facts["precision"] = bert.dtype_policy.name
        fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        del fields["scores"]
        write_json(json, {**facts, **fields})
        print(f"Written to {json}")


def _load(model: str, precision: Precision, batch_size: int) -> "kb.BERTModel":
    """Load the model in a precision, or in the one that is faster on this machine."""
    bert = load(model).model
    if precision == "auto":
        from keras_bert_d2l.training.devices.precision import choose_precision

        say = functools.partial(print, file=sys.stderr)
        precision = choose_precision(bert.bert_config, _LENGTH * batch_size, say=say)
    if precision == bert.dtype_policy.name:
        return bert
    import keras

    keras.config.set_dtype_policy(precision)
    return load(model).model


def _print(found: "kb.MinimalPairs") -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    table = Table("phenomenon", *(Column(x, justify="right") for x in ("accuracy", "95% interval")))
    by_uid = [(uid, x, found.interval_by_uid[uid]) for uid, x in found.by_uid.items()]
    for uid, accuracy, (low, high) in [*by_uid, ("all", found.accuracy, found.interval)]:
        table.add_row(Text(uid), f"{accuracy:.1%}", f"{low:.1%} to {high:.1%}")
    Console().print(table, Text(f"{found.num_pairs:,} pairs"), sep="\n")
