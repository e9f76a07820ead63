"""Packed rows produce the same results as one row per example."""

import random

import numpy as np
import pytest

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.store.building import cached_store
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

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
