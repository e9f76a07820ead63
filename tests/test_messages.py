"""Tests that a message quotes only the beginning of a long value."""

import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.checks import shown, shown_names
from keras_bert_d2l.cli import main
from keras_bert_d2l.serving.protocol import Spec, read_object, request_columns, to_arrays

MOST = 600  # characters
LONG = "long " * 2000
VALUES = {
    "text": LONG,
    "bytes": b"b" * 10_000,
    "texts": [LONG] * 50,
    "numbers": list(range(10_000)),
    "nested": [[[LONG] * 9] * 9] * 9,
    "dictionary": {f"{i}{LONG}": LONG for i in range(50)},
    "rows": [{"text": LONG, LONG: LONG}] * 20,
    "array": np.array([LONG] * 10, object),
    "floats": np.linspace(0, 1, 10_000),
    "tensor": tf.constant([LONG] * 10),
    "set": {LONG + str(i) for i in range(50)},
    "integer": 10**5000,
    "type": type("C" * 10_000, (), {}),
}
VOCAB = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a film".split())
SIZES = {"vocab_size": 7, "num_hiddens": 8, "ffn_num_hiddens": 16, "num_heads": 2, "num_blks": 1}
CONFIG = kb.BERTConfig(**SIZES, dropout=0.1, max_len=16)


@pytest.fixture(scope="module")
def bert():
    bert = kb.BERTModel.from_bert_config(CONFIG)
    bert.tokenizer = kb.Tokenizer(VOCAB)
    return bert


def check_message(function, *arguments, **options):
    """Call a function, whose error or warnings must be short, and return its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function(*arguments, **options)
            messages = []
        except Exception as error:
            messages = [str(error)]
    for message in (*messages, *(str(one.message) for one in caught)):
        assert len(message) <= MOST, message[: 2 * MOST]
    return messages


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_quoted_value_has_at_most_100_characters(value):
    assert len(shown(value)) <= 100
    assert len(shown_names([value] * 10_000)) <= 200
    assert shown("word") == "'word'"
    assert shown_names(["a", 1]) == "'a', 1"


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_errors_of_python_functions_quote_little(value, bert):
    model = kb.SequenceClassifier(bert, ["x", "y"])
    doors = [
        *(
            (kb.BERTConfig, {**SIZES, "dropout": 0.1, name: value})
            for name in ("dropout", "max_len", "activation")
        ),
        (kb.Masking, {"replace": value}),
        (kb.Masking, {"rate": value}),
        (kb.Vocab, {"tokens": value}),
        (VOCAB.to_tokens, {"ids": value}),
        (kb.ServingClient, {"url": value, "model": "m"}),
        (kb.SequenceClassifier, {"bert": bert, "labels": value}),
        (kb.SequenceClassifier, {"bert": bert, "labels": ["x", "y"], "pooling": value}),
        (kb.zero_shot, {"model": bert, "texts": "a", "labels": value, "template": value}),
        (kb.classify, {"model": model, "texts": "a", "max_len": value}),
        (kb.classify, {"model": model, "texts": value, "batch_size": value}),
        (kb.answer, {"model": [value], "questions": "a", "contexts": "a"}),
        (kb.read_examples, {"data": [{"text": "a", "label": "b"}], "task": value}),
        (kb.read_examples, {"data": [{"text": "a", "label": value}], "task": "classify"}),
        (kb.read_examples, {"data": {"text": value}, "task": "classify"}),
        (kb.read_examples, {"data": {"a": ["b"]}, "task": "classify", "text": value}),
        (kb.load_pretrained, {"path": "none", "num_heads": value}),
        (model.compile, {"class_weights": value}),
        (model.fit, {"x": ["a"], "y": value}),
        (model.fit, {"x": ["a"], "y": ["x"], "class_weight": value}),
        (kb.finetune, {"model": model, "train": [value], "dev": [value], "run_dir": "none"}),
    ]
    for function, options in doors:
        check_message(function, **options)


ROW = {"text": LONG, "label": LONG, LONG: LONG, "question": LONG, "context": "a", "answers": LONG}


@pytest.mark.parametrize("task", ["classify", "regress", "tag", "answer", "choose", "embed"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", json.dumps(ROW) + "\n" + LONG),
        ("a.json", json.dumps({LONG: [LONG], LONG + "2": [LONG]})),
        ("a.json", json.dumps({"data": LONG, LONG: {LONG: LONG}})),
        ("a.tsv", f"text\t{LONG}\t{LONG}\nlabel\t{LONG}\n"),
        ("a.csv", ",".join(f"{LONG}{i}" for i in range(99)) + "\n" + "a," * 99),
        ("a.conll", f"{LONG.replace(' ', '')} {LONG.replace(' ', '')}\nb\n"),
    ],
)
def test_errors_of_data_files_quote_little(task, name, content, tmp_path):
    (tmp_path / name).write_text(content)
    check_message(kb.read_examples, tmp_path / name, task)
    check_message(kb.read_examples, tmp_path / name, task, text=LONG, label=LONG)


@pytest.mark.parametrize("value", [LONG, [LONG] * 99, {LONG: LONG}, 10**4000, [[[LONG] * 9] * 9]])
@pytest.mark.parametrize("field", ["dropout", "activation", "model_type", LONG])
@pytest.mark.parametrize("name", ["config.json", "bert_config.json"])
def test_errors_of_checkpoint_files_quote_little(name, field, value, tmp_path):
    fields = {"format": "keras_bert_d2l", **CONFIG.to_dict()}
    (tmp_path / name).write_text(json.dumps({**fields, field: value}))
    (tmp_path / "vocab.txt").write_text("\n".join([LONG, LONG]))
    assert check_message(kb.load_pretrained, tmp_path)
    assert check_message(kb.Vocab.from_file, tmp_path / "vocab.txt")


SPECS = {"text": Spec((None,), np.dtype(object)), "ids": Spec((None, None), np.dtype("int32"))}


@pytest.mark.parametrize("value", [LONG, [LONG] * 99, {LONG: LONG}, 1.5, [[[LONG] * 9] * 9, 1]])
def test_errors_of_request_bodies_quote_little(value):
    columns = [{"text": value, "ids": value}, {LONG: value}, {"text": [value], "ids": [value]}]
    for body in ({"inputs": columns[0]}, {"instances": value}, {"inputs": columns[1]}, value):
        if check_message(read_object, json.dumps(body).encode()):
            continue
        check_message(request_columns, body, SPECS)
    for column in columns:
        assert check_message(to_arrays, column, SPECS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "--model", "novels-small", "--batch-size", LONG, "a"),
        ("finetune", LONG, "--task", LONG, "--out", "out"),
        ("finetune", "a.tsv", "--task", "classify", "--out", "out", "--class-weights", LONG),
        ("pretrain", "a.txt", "--out", "out", "--lr-schedule", LONG),
        (LONG,),
        ("embed", f"--{LONG}", "a"),
    ],
)
def test_errors_of_commands_quote_little(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(arguments)
    assert 10 < len(capsys.readouterr().err) <= MOST
