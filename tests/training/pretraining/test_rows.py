"""Rows of a run, and packed rows, which produce the same results as one row per example."""

import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.store.building import build_store, cached_store
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.rows import RunBatches, choose_rows


@pytest.fixture(scope="module")
def tokenizer(options):
    return Tokenizer(options["vocab"])


@pytest.fixture(scope="module")
def store(text, tokenizer, tmp_path_factory):
    """Documents of about 36 tokens."""
    folder = tmp_path_factory.mktemp("rows") / "store"
    return build_store(Corpus.open(text, layout="lines"), tokenizer, folder)


def rows_of(store, replicas=1, **options):
    options = PretrainingOptions(**{"corpus": "a", "steps": 10, "held_out": 0.2} | options)
    return choose_rows(options, store, "nsp", replicas)


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


def test_the_rows_that_fill_up_a_batch_do_not_count_as_padding(store, tokenizer):
    shares = []
    for batch_size in (2, 512):
        options = PretrainingOptions(
            corpus="a", steps=10, batch_size=batch_size, max_len=12, held_out=0.5
        )
        batches = RunBatches(options, "padded", store, tokenizer, "nsp", replicas=1)
        shares.append(batches.padding(options.phases()[0]))
    assert shares[1] == pytest.approx(shares[0], abs=0.1)
    assert shares[1] < 0.2


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("split", ["training", "held_out"])
def test_mask_replace_prob_is_the_share_of_masked_predictions(store, tokenizer, share, split):
    options = PretrainingOptions(
        corpus="a", steps=10, batch_size=16, max_len=64, held_out=0.4, mask_replace_prob=share
    )
    batches = RunBatches(options, "padded", store, tokenizer, "nsp", replicas=1)
    found = []
    for features, _, weights in getattr(batches, split)(options.phases()[0]).take(40):
        seen = tf.gather(features["tokens"], features["pred_positions"], batch_dims=1)
        found.append(seen[weights["mlm"] > 0] == tokenizer.vocab.mask_id)
    assert np.mean(np.concatenate(found)) == pytest.approx(share, abs=0.06)


T, P, E = 48, 7, 4


@pytest.fixture
def packed_batch(tmp_path):
    draw = random.Random(0)
    words = [f"w{n}" for n in range(40)]
    documents = [
        "\n".join(" ".join(draw.choices(words, k=draw.randint(2, 9))) for _ in range(12))
        for _ in range(30)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    tokenizer = Tokenizer(Vocab([*GOOGLE_SPECIALS, *words]))
    corpus = Corpus.open(tmp_path / "text.txt", layout="lines")
    data = pretraining_dataset(
        cached_store(corpus, tokenizer, tmp_path / "cache"),
        tokenizer,
        batch_size=8,
        max_len=T,
        short_seq_prob=0.9,
        rows="packed",
        max_examples=E,
    )
    return next(iter(data.as_numpy_iterator()))


def unpacked(features, labels, weights):
    """Return the same examples with the same masks, one per row, by (row, slot)."""
    rows = []
    for row, slot in zip(*np.nonzero(weights["nsp"]), strict=True):
        place = np.flatnonzero(features["example_ids"][row] == slot + 1)
        size = len(place)
        here = np.isin(features["pred_positions"][row], place) & (weights["mlm"][row] == 1)
        positions, mlm = np.zeros((2, P), np.int32)
        positions[: here.sum()] = features["pred_positions"][row, here] - place[0]
        mlm[: here.sum()] = labels["mlm"][row, here]
        example = {
            "tokens": np.pad(features["tokens"][row, place], (0, T - size)),
            "segments": np.pad(features["segments"][row, place], (0, T - size)),
            "valid_lens": size,
            "pred_positions": positions,
        }
        rows.append((row, slot, here, example, mlm, labels["nsp"][row, slot]))
    stacked = {name: np.stack([r[3][name] for r in rows]).astype(np.int32) for name in rows[0][3]}
    counts = np.array([r[2].sum() for r in rows])
    new_labels = {"mlm": np.stack([r[4] for r in rows]), "nsp": np.array([r[5] for r in rows])}
    new_weights = {
        "mlm": (np.arange(P) < counts[:, None]).astype(np.float32),
        "nsp": np.ones(len(rows), np.float32),
    }
    return stacked, new_labels, new_weights, rows


@pytest.mark.slow
def test_packed_and_unpacked_rows_have_the_same_logits_and_loss(packed_batch):
    features, *_ = packed_batch
    separate = unpacked(*packed_batch)
    assert len(separate[3]) > 1.5 * len(features["tokens"])
    model = BERTModel.from_bert_config(
        BERTConfig(45, 16, 32, 2, 2, 0.0, max_len=T, initializer="truncated_normal")
    )
    model.compile()
    together, apart = model(features), model(separate[0])
    assert together["nsp"].shape == (8, E, 2)
    for number, (row, slot, here, *_) in enumerate(separate[3]):
        np.testing.assert_allclose(together["nsp"][row, slot], apart["nsp"][number], atol=1e-5)
        np.testing.assert_allclose(
            together["mlm"].numpy()[row, here],
            apart["mlm"].numpy()[number, : here.sum()],
            atol=1e-5,
        )
    losses = [
        model.test_on_batch(x, y, w, return_dict=True)["loss"]
        for x, y, w in (packed_batch, separate[:3])
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
