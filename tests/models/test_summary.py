"""`summary`: the rows of blocks and heads, which add up."""

import re

import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.contract.registry import task_kinds
from tests.own_model import own_model

ROW = re.compile(r"│ ( *└ )?(\S+) \(\w+\) +│ (\S.*?) +│ +([\d,]+) │")
SIZES = {"vocab_size": 60, "num_hiddens": 32, "ffn_num_hiddens": 48, "num_heads": 2, "num_blks": 2}


def bert(preset="google"):
    return kb.BERTModel.from_bert_config(kb.BERTConfig.preset(preset, **SIZES))


def task(kind):
    labels = {"labels": ["a", "b"]} if "labels" in task_kinds()[kind].fields else {}
    pooling = {"pooling": "mean"} if kind == "SequenceClassifier" else {}
    return task_kinds()[kind](bert(), **labels, **pooling)


MAKERS = [(bert, preset, {}) for preset in ("d2l", "iksran", "google", "codertimo")]
MAKERS += [(task, kind, {}) for kind in task_kinds()] + [(own_model, 60, {"expand_nested": True})]


@pytest.mark.parametrize(("make", "argument", "options"), MAKERS)
def test_the_rows_show_the_blocks_and_add_up(make, argument, options, monkeypatch):
    monkeypatch.setenv("COLUMNS", "170")
    model, lines = make(argument), []
    model.summary(160, print_fn=lines.append, **options)
    rows = [(a, b, c, int(n.replace(",", ""))) for a, b, c, n in ROW.findall("\n".join(lines))]
    counts = {name: count for indent, name, _, count in rows if not indent}
    assert sum(counts.values()) == model.count_params()
    assert sum(count for indent, *_, count in rows if indent) == counts["encoder"]
    assert {"encoder", "blk_0"} < {name for _, name, *_ in rows}
    assert not any("?" in shape for *_, shape, _ in rows)
