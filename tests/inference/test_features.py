"""`extract_features` gives the encoder's own states, in the order of the texts."""

import itertools
import tracemalloc

import numpy as np
import pytest

from keras_bert_d2l import BERTModel, Features, extract_features, write_features
from keras_bert_d2l.text_arguments import TruncationWarning

TEXTS = ["the cat sat on the mat", "ran", "good dogs sat", "the rug"] * 3


def states_of(bert, tokenizer, text):
    """Return the hidden states of one text, `(L, T, D)`, computed without a batch."""
    states = bert.encoder(**tokenizer([text]), return_hidden_states=True)["hidden_states"]
    return np.stack(states)[:, 0]


@pytest.mark.slow
def test_vectors_are_those_of_the_chosen_layers_without_padding(words_bert, words_tokenizer):
    found = list(
        extract_features(
            words_bert, TEXTS, layers=[0, -1, 1], tokenizer=words_tokenizer, batch_size=2
        )
    )
    assert [one.text for one in found] == TEXTS
    for text, one in zip(TEXTS, found, strict=True):
        expected = states_of(words_bert, words_tokenizer, text)
        np.testing.assert_allclose(one.vectors, expected[[0, 2, 1]], rtol=0, atol=1e-5)
    assert found[2].tokens == ("[CLS]", "good", "dog", "##s", "sat", "[SEP]")


@pytest.mark.long
def test_pooling_gives_one_vector_for_each_layer(words_bert, words_tokenizer):
    states = [states_of(words_bert, words_tokenizer, text)[1:] for text in TEXTS[:4]]
    for pooling, pool in (("cls", lambda X: X[:, 0]), ("mean", np.mean), ("max", np.max)):
        options = {"layers": [1, 2], "pooling": pooling, "tokenizer": words_tokenizer}
        found = extract_features(words_bert, TEXTS[:4], **options)
        for of_text, one in zip(states, found, strict=True):
            expected = pool(of_text) if pooling == "cls" else pool(of_text, axis=1)
            np.testing.assert_allclose(one.vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_the_last_layer_is_behind_the_final_normalization(words_tokenizer):
    bert = BERTModel(
        len(words_tokenizer.vocab), 8, 16, 2, 1, 0.0, 16, norm_first=True, final_norm=True
    )
    [one] = extract_features(bert, ["the cat"], tokenizer=words_tokenizer)
    encoded = bert.encoder(**words_tokenizer(["the cat"]))
    np.testing.assert_allclose(one.vectors[0], encoded[0], rtol=0, atol=1e-6)


def test_texts_are_read_a_few_batches_ahead(words_bert, words_tokenizer):
    taken = itertools.count()
    endless = (f"the cat {next(taken) % 7}" for _ in itertools.count())
    found = extract_features(words_bert, endless, tokenizer=words_tokenizer, batch_size=4)
    for _ in range(40):
        next(found)
    assert next(taken) <= 64


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": [3]}, r"numbers from -3 to 2.* Received: \[3\]"),
        ({"layers": []}, "`layers` must be a list"),
        ({"layers": "-1"}, "`layers` must be a list"),
        ({"pooling": "sum"}, "`pooling` must be one of"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"texts": "the cat"}, "`texts` must be an iterable of texts"),
        ({"texts": {"text": ["the cat"]}}, "`texts` must be a text or a list of texts"),
        ({"texts": ["the cat sat " * 9], "truncate": False}, "at most 16 tokens"),
    ],
)
def test_wrong_arguments_are_refused(options, message, words_bert, words_tokenizer):
    arguments = {"texts": ["the cat"], "tokenizer": words_tokenizer, **options}
    with pytest.raises(ValueError, match=message):
        list(extract_features(words_bert, **arguments))


def test_long_texts_can_be_truncated(words_bert, words_tokenizer):
    with pytest.warns(TruncationWarning, match="Truncated to 16 tokens.*: 1 text. Where"):
        [one] = extract_features(words_bert, ["the cat sat " * 9], tokenizer=words_tokenizer)
    assert one.vectors.shape == (1, 16, 8)
    assert one.tokens[-1] == "[SEP]"


RNG = np.random.default_rng(0)


def make_features(lengths, pooled=False):
    for length in lengths:
        shape = (2, 4) if pooled else (2, length, 4)
        tokens = tuple(f"t{index}" for index in range(length))
        yield Features(f"text “{length}”", tokens, RNG.normal(size=shape).astype("float32"))


def test_npz_contains_a_row_for_each_text_or_for_each_token(tmp_path):
    pooled, expected = list(make_features([3, 1, 5], pooled=True)), list(make_features([3, 1, 5]))
    write_features(tmp_path / "vectors.npz", pooled)
    with np.load(tmp_path / "vectors.npz") as arrays:
        assert list(arrays) == ["vectors"]
        np.testing.assert_array_equal(arrays["vectors"], [one.vectors for one in pooled])
    write_features(tmp_path / "vectors.npz", expected)
    with np.load(tmp_path / "vectors.npz") as arrays:
        starts, vectors = arrays["starts"], arrays["vectors"]
    np.testing.assert_array_equal(starts, [0, 3, 4, 9])
    for index, one in enumerate(expected):
        rows = vectors[starts[index] : starts[index + 1]]
        np.testing.assert_array_equal(rows.swapaxes(0, 1), one.vectors)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_texts(tmp_path):
    write_features(tmp_path / "first.npz", make_features([8]))  # imports what it needs
    peaks = []
    for count in (300, 1500):
        tracemalloc.start()
        write_features(tmp_path / f"{count}.npz", make_features([8] * count))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] + 200_000, peaks


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "vectors.npz"
    write_features(path, make_features([3]))
    before = path.read_bytes()

    def broken():
        yield from make_features([3])
        raise ValueError("broken text")

    with pytest.raises(ValueError, match="broken text"):
        write_features(path, broken())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_an_unknown_format_or_without_texts_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`path` must end in .npz"):
        write_features(tmp_path / "vectors.csv", make_features([3]))
    with pytest.raises(ValueError, match="at least one text"):
        write_features(tmp_path / "vectors.npz", [])
    assert list(tmp_path.iterdir()) == []
