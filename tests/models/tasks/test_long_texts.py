"""Rows longer than the encoder's maximum: windows, whose outputs are pooled."""

import keras
import numpy as np
import pytest

from keras_bert_d2l import (
    BERTModel,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
    Tokenizer,
    Vocab,
)
from keras_bert_d2l.models.tasks.windows import longest_row
from tests.nightly import nightly_except

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film a what is it".split()
MAX_LEN, ROOM, STEP = 8, 6, 4  # tokens of a text in a window, and to the next window
SHORT, LONG = (
    "good film",
    "a good film is what it is a bad film is it a good film what is it a film",
)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocab(WORDS))


def make(kind, long_texts, tokenizer=None, **options):
    keras.utils.set_random_seed(0)
    bert = BERTModel(len(WORDS), 16, 24, 2, 1, 0.0, MAX_LEN)
    rng = np.random.default_rng(0)
    for weight in bert.weights:
        weight.assign(rng.normal(0, 0.5, weight.shape))
    labels = {} if kind is TextEmbedder else {"labels": ["x", "y"]}
    return kind(bert, **labels, long_texts=long_texts, tokenizer=tokenizer, **options)


def windows_of(text, tokenizer):
    """Return the rows of the windows of a text, each as a batch of its own."""
    ids = tokenizer.tokenize([text])[0].numpy()
    starts = [0, *range(STEP, max(len(ids) - ROOM + STEP, 1), STEP)]
    for start in starts:
        tokens = np.array([[2, *ids[start : start + ROOM], 3]], "int32")
        yield tokens, np.zeros_like(tokens)


def expected(model, text, tokenizer, long_texts):
    """Return the pooled outputs of the windows, computed one by one without padding."""
    outputs = np.concatenate(
        [model.head_outputs(model.encoder(*row)) for row in windows_of(text, tokenizer)]
    )
    pooled = outputs.mean(0) if long_texts == "mean" else outputs.max(0)
    is_unit = isinstance(model, TextEmbedder)
    return pooled / np.linalg.norm(pooled) if is_unit else pooled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "long_texts"),
    [(SequenceClassifier, "max"), (SequenceRegressor, "mean"), (TextEmbedder, "mean")],
)
def test_outputs_are_pooled_over_windows(kind, long_texts, tokenizer):
    model = make(kind, long_texts)
    texts = [SHORT, LONG, "", "good " * (ROOM + 1), "good " * (ROOM + STEP), "bad " * ROOM]
    found = model(tokenizer(texts))
    for text, actual in zip(texts, found, strict=True):
        np.testing.assert_allclose(
            actual, expected(model, text, tokenizer, long_texts), rtol=0, atol=1e-5
        )


def test_the_head_may_read_the_mean_of_each_window(tokenizer):
    model = make(SequenceClassifier, "max", pooling="mean")
    of_windows = make(SequenceClassifier, "cut", pooling="mean")
    of_windows.set_weights(model.get_weights())
    windows = np.concatenate([of_windows(*row) for row in windows_of(LONG, tokenizer)])
    np.testing.assert_allclose(model(tokenizer([LONG])), windows.max(0)[None], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("jit", nightly_except({False}, [False, True]))
def test_a_graph_gives_the_same_as_eager_execution(jit, tokenizer):
    model = make(SequenceClassifier, "mean")
    batch = {name: np.array(x) for name, x in tokenizer([SHORT, LONG]).items()}
    eager = model(batch)
    model.compile(jit_compile=jit)
    np.testing.assert_allclose(model.predict(batch, verbose=0), eager, rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        model.predict({name: x[:1] for name, x in batch.items()}, verbose=0), eager[:1], atol=1e-5
    )


def test_only_the_first_8_windows_of_a_text_count(tokenizer):
    longest = longest_row(MAX_LEN, "mean")
    assert longest == 2 + ROOM + 7 * STEP
    model = make(SequenceClassifier, "mean", tokenizer)
    beginning = "good " * (longest - 2)
    first, second = model(model.preprocessor([beginning, beginning + "bad " * 50]))
    np.testing.assert_allclose(first, second, rtol=0, atol=1e-6)


@pytest.mark.long
def test_a_word_in_a_later_window_is_learned(tokenizer):
    model = make(SequenceClassifier, "max", tokenizer)
    texts = ["what is it " * 4 + word for word in ("good", "bad")]
    model.compile(keras.optimizers.Adam(1e-2))
    batch = {name: np.array(values) for name, values in model.preprocessor(texts).items()}
    history = model.fit(batch, np.array([0, 1]), epochs=30, verbose=0).history
    assert history["loss"][-1] < 0.1 < history["loss"][0]


def test_pairs_are_truncated_as_without_windows(tokenizer):
    pairs = {"texts": [LONG], "texts_b": [SHORT]}
    found = []
    for long_texts in ("cut", "mean"):
        model = make(SequenceClassifier, long_texts, tokenizer)
        found.append(model(model.preprocessor(pairs)))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-6)


def test_the_option_is_saved(tmp_path):
    model = make(SequenceClassifier, "max")
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").long_texts == "max"


def test_tasks_without_windows_refuse_the_option():
    with pytest.raises(ValueError, match=r"`long_texts` must be one of 'cut'\. Received"):
        make(TokenClassifier, "mean")
    with pytest.raises(ValueError, match="`long_texts` must be one of 'cut', 'mean', 'max'"):
        make(SequenceClassifier, "first")
