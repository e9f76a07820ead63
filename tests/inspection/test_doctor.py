"""Tests of the doctor: faults are planted in the losses of a run, in batches and in weights."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.inspection.doctor import CHECKS
from tests.cli.conftest import invoke

WORDS = "red green blue"
VOCAB = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()])
CONFIG = kb.BERTConfig(len(VOCAB), 16, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=16)


def names_of(diagnosis):
    return [finding.name for finding in diagnosis.faults]


def test_limits_are_inclusive_and_nan_is_a_fault():
    padding = dataclasses.replace(CHECKS[-1], number=0.5)
    assert not padding.is_fault
    assert padding.limits == "at most 0.5"
    assert dataclasses.replace(padding, number=0.6).is_fault
    assert dataclasses.replace(padding, number=math.nan).is_fault


@pytest.fixture
def make_run(tmp_path):
    """A function that writes the metrics of a run: lengths of rows, losses, held-out losses."""

    def make_run(rows, losses, held_out, causal=()):
        (tmp_path / "run.yaml").write_text("corpus: text.txt\n")
        records = [{"step": 0, "val_mlm_cross_entropy": 3.0}]
        for n, (length, loss, other) in enumerate(zip(rows, losses, held_out, strict=True)):
            record = {"step": n + 1, "loss": loss, "val_mlm_cross_entropy": other}
            record |= {"sequences/s": 50.0, "tokens/s": 50.0 * length}
            records.append(record | ({"next_token_accuracy": 0.2} if n in causal else {}))
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / "metrics.jsonl").write_text(lines)
        return tmp_path

    return make_run


@pytest.mark.parametrize(
    ("rows", "losses", "held_out", "faults"),
    [
        ([128] * 3, [2.4, 2.2, 2.0], [2.4, 2.3, 2.2], []),
        ([128] * 3, [2.4, 2.0, 2.3], [2.4, 2.3, 2.2], ["rising loss"]),
        ([128] * 3, [2.4, 2.39, 2.38], [2.4, 2.3, 2.2], ["flat loss"]),
        ([128] * 3, [2.4, 2.2, 2.0], [2.4, 2.2, 2.6], ["overfitting"]),
        ([128] * 2, [2.4, math.nan], [2.4, 2.2], ["rising loss"]),
        # Longer rows have higher losses, and shorter ones say nothing about the held-out losses.
        ([16, 16, 128], [2.0, 1.5, 2.4], [2.4, 2.3, 2.2], []),
        ([128, 16, 16], [2.4, 2.2, 2.0], [2.4, 2.2, 2.6], []),
    ],
)
def test_faults_of_losses_are_found_in_a_run(make_run, rows, losses, held_out, faults):
    assert names_of(kb.doctor(make_run(rows, losses, held_out))) == faults


def test_losses_of_next_tokens_are_not_compared_with_those_of_masked_tokens(make_run):
    run = make_run([128] * 4, [3.0, 2.9, 2.0, 1.9], [2.4, 2.2, 2.1, 2.6], causal=(2, 3))
    assert names_of(kb.doctor(run)) == []


def test_the_command_prints_faults_and_sets_the_exit_code(make_run):
    run = make_run([128] * 3, [2.4, 2.0, 2.3], [2.4, 2.3, 2.2])
    result = invoke("doctor", run)
    assert result.exit_code == 1
    assert "rising loss" in result.stdout
    assert "3 checks, 1 fault" in result.stdout
    make_run([128] * 2, [2.4, 2.2], [2.4, 2.3])
    assert invoke("doctor", run).exit_code == 0


@pytest.fixture
def bert():
    keras.utils.set_random_seed(0)
    model = kb.BERTModel.from_bert_config(CONFIG)
    model.tokenizer = kb.Tokenizer(VOCAB)
    model.compile(kb.BERTAdamW())
    return model


def batches(text=WORDS):
    documents = [[f"{text} {text}", text] for _ in range(40)]
    data = kb.pretraining_dataset(documents, kb.Tokenizer(VOCAB), batch_size=8, max_len=16, seed=0)
    return data.take(1)


def answers(x, y, w):
    rows = tf.repeat(tf.range(tf.shape(y["mlm"])[0])[:, None], tf.shape(y["mlm"])[1], axis=1)
    places = tf.stack([rows, x["pred_positions"]], axis=-1)
    return {**x, "tokens": tf.tensor_scatter_nd_update(x["tokens"], places, y["mlm"])}, y, w


def short_rows(x, y, w):
    return {**x, "valid_lens": x["valid_lens"] // 3}, y, w


def without_predictions(x, y, w):
    return x, y, tf.nest.map_structure(tf.zeros_like, w)


FAULTS = {
    "visible answers": lambda: batches().map(answers),
    "padding": lambda: batches().map(short_rows),
    "unused weights": lambda: batches().map(without_predictions),
    "unknown words": lambda: batches("red зелёный blue"),
}


@pytest.mark.slow
def test_a_model_and_its_batches_are_examined_without_changing_them(bert):
    before = bert.get_weights()
    diagnosis = kb.doctor(data=batches(), model=bert)
    assert not diagnosis.faults, str(diagnosis)
    of_losses = {"rising loss", "flat loss", "overfitting"}
    assert {one.name for one in diagnosis.findings} == {one.name for one in CHECKS} - of_losses
    for name, plant in FAULTS.items():
        assert name in names_of(kb.doctor(data=plant(), model=bert))
    assert all(map(np.array_equal, before, bert.get_weights()))
    bert.mlm.mlp.layers[-1].kernel.assign(1e4 * bert.mlm.mlp.layers[-1].kernel)
    assert {"initial loss", "gradient norm"} <= {*names_of(kb.doctor(data=batches(), model=bert))}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Pass either the folder of a `run`, or the training batches"),
        ({"run": "x", "data": "y", "model": "z"}, "Received: run='x', data='y'"),
        ({"run": "nowhere"}, "'nowhere' is not a run"),
    ],
)
def test_wrong_arguments_are_reported(arguments, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        kb.doctor(**arguments)


def test_wrong_models_and_batches_are_reported(bert):
    some = tf.data.Dataset.from_tensors(({"tokens": [[1]], "segments": [[0]]}, [0]))
    for data, model, message in (
        ("x.tsv", bert, "`data` must be a `DatasetV2`"),
        (some, kb.BERTModel.from_bert_config(CONFIG), "`model` must be compiled"),
        (some.take(0), bert, "must contain batches"),
    ):
        with pytest.raises(ValueError, match=message):
            kb.doctor(data=data, model=model)
