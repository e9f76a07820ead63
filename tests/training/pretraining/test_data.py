"""How examples fill the rows of a run."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.training.pretraining.data import RunBatches
from keras_bert_d2l.training.pretraining.options import PretrainingOptions


@pytest.fixture(scope="module")
def tokenizer(options):
    return Tokenizer(options["vocab"])


@pytest.fixture(scope="module")
def store(text, tokenizer, tmp_path_factory):
    """Documents of about 36 tokens."""
    folder = tmp_path_factory.mktemp("rows") / "store"
    return build_store(Corpus.open(text, layout="lines"), tokenizer, folder)


def rows_of(store, replicas=1, num_separators=1, **options):
    options = PretrainingOptions(**{"corpus": "a", "steps": 10, "held_out": 0.2} | options)
    tokenizer = SimpleNamespace(vocab=SimpleNamespace(num_separators=num_separators))
    found = RunBatches(options, store, tokenizer, "nsp", replicas)
    return found.rows, found.phases


def totals(batches):
    """Return the means per step of the examples, the tokens and the predictions."""
    sums = [
        (w["nsp"].numpy().sum(), f["valid_lens"].numpy().sum(), w["mlm"].numpy().sum())
        for f, _, w in batches
    ]
    return np.mean(sums, axis=0)


def test_rows_are_packed_if_that_saves_tokens(store):
    rows, [phase] = rows_of(store, max_len=128)
    assert rows == "packed"
    assert phase.batch_size < 40  # instead of 64
    assert rows_of(store, max_len=12) == (
        "padded",
        [(0, 10, 64, 12, 0.15, False)],
    )  # the examples fill them


def test_a_second_separator_takes_a_token_of_every_pair(store):
    found = (rows_of(store, 1, number, max_len=128, batch_size=4096)[1] for number in (1, 2))
    rows = [phase.batch_size for [phase] in found]
    assert rows[0] < rows[1] < 1.2 * rows[0]


@pytest.mark.slow
def test_a_step_on_packed_rows_has_as_many_examples_tokens_and_predictions(store, tokenizer):
    options = {"max_len": 64, "batch_size": 16}
    _, [phase] = rows_of(store, **options)
    common = {"max_len": 64, "epochs": 4, "split": "train", "held_out": 0.2}
    padded = pretraining_dataset(store, tokenizer, **common, batch_size=16)
    packed = pretraining_dataset(
        store, tokenizer, **common, batch_size=phase.batch_size, rows="packed"
    )
    np.testing.assert_allclose(totals(packed) / totals(padded), 1, atol=0.1)


def test_the_rows_of_a_step_are_a_multiple_of_the_devices(store):
    _, [one] = rows_of(store, max_len=128)
    _, [eight] = rows_of(store, replicas=8, max_len=128)
    assert eight.batch_size == -(-one.batch_size // 8) * 8


@pytest.mark.parametrize("rows", ["padded", "bucketed"])
def test_a_given_layout_keeps_its_rows_per_step(rows, store):
    assert rows_of(store, max_len=128, rows=rows) == (rows, [(0, 10, 64, 128, 0.15, False)])


def test_packed_rows_on_request_have_as_many_examples_too(store):
    assert rows_of(store, max_len=128, rows="packed") == rows_of(store, max_len=128)


def test_each_phase_has_its_own_number_of_rows(store):
    _, [short, whole] = rows_of(store, max_len=96, short_steps=5)
    assert (short.max_len, short.batch_size) == (12, 512)  # full already
    assert whole.batch_size < 64


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("split", ["training", "held_out"])
def test_mask_replace_prob_is_the_share_of_masked_predictions(store, tokenizer, share, split):
    given = {"steps": 10, "batch_size": 16, "max_len": 64, "held_out": 0.4, "rows": "padded"}
    options = PretrainingOptions(corpus="a", mask_replace_prob=share, **given)
    batches = RunBatches(options, store, tokenizer, "nsp", replicas=1)
    found = []
    for features, _, weights in getattr(batches, split)(options.phases()[0]).take(40):
        seen = tf.gather(features["tokens"], features["pred_positions"], batch_dims=1)
        found.append(seen[weights["mlm"] > 0] == tokenizer.vocab.mask_id)
    assert np.mean(np.concatenate(found)) == pytest.approx(share, abs=0.06)
