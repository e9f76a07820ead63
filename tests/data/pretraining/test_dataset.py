"""pretraining_dataset: content and reproducibility of batches, and rejected arguments."""

import functools
import math
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.pretraining.masking import STRATEGIES, Masking, mask_tokens
from keras_bert_d2l.text.tokenizer.framing import frame_tokens
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_WORD = 5
NUM_PAIRS = 78  # in epoch 0 with `max_len=32`
STEPS = NUM_PAIRS // 8
SETTINGS = {"batch_size": 8, "max_len": 32}


@pytest.fixture(scope="module")
def dataset(text):
    """A function that returns a dataset; for the same settings the same one."""

    @functools.cache
    def dataset(**settings):
        return pretraining_dataset(text.store, text.tokenizer, **SETTINGS | settings)

    return dataset


@pytest.fixture(scope="module")
def batches(dataset):
    """Two epochs of every pair, as arrays."""
    return read(dataset(epochs=2, drop_remainder=False))


def read(dataset):
    return list(dataset.as_numpy_iterator())


def assert_same(batches, others):
    for batch, other in zip(batches, others, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, batch, other)


def predicted(features, weights):
    """Return the rows and the columns of the predicted tokens."""
    row, slot = np.nonzero(weights["mlm"])
    return row, features["pred_positions"][row, slot]


def unmasked(features, labels, weights):
    """Return the tokens before corruption."""
    tokens = features["tokens"].copy()
    tokens[predicted(features, weights)] = labels["mlm"][weights["mlm"] > 0]
    return tokens


def document_of(store, token_ids):
    starts = store.sentence_offsets[store.document_offsets]
    return np.searchsorted(starts, token_ids - FIRST_WORD, side="right") - 1


def spec(*shape, dtype=tf.int32):
    return tf.TensorSpec(shape, dtype)


def test_a_batch_has_the_names_shapes_and_dtypes_of_the_model(dataset):
    features = {
        "tokens": spec(8, 32),
        "segments": spec(8, 32),
        "valid_lens": spec(8),
        "pred_positions": spec(8, 5),
    }
    mlm, weights = spec(8, 5), spec(8, 5, dtype=tf.float32)
    assert dataset(epochs=2, drop_remainder=False).element_spec == (
        features,
        {"mlm": mlm, "nsp": spec(8)},
        {"mlm": weights, "nsp": spec(8, dtype=tf.float32)},
    )
    only_mlm = dataset(objective="none", masking="span")
    assert only_mlm.element_spec == (features, {"mlm": mlm}, {"mlm": weights})


def test_a_row_is_two_texts_between_special_tokens_and_padding(text, batches):
    for features, labels, weights in batches:
        is_real = weights["nsp"] > 0
        rows = zip(
            unmasked(features, labels, weights)[is_real],
            features["segments"][is_real],
            features["valid_lens"][is_real],
            labels["nsp"][is_real],
            strict=True,
        )
        for tokens, segments, length, is_next in rows:
            first_sep, last = np.flatnonzero(tokens == SEP)
            a, b = tokens[1:first_sep], tokens[first_sep + 1 : last]
            assert tokens[0] == CLS
            assert last == length - 1
            assert (tokens[length:] == PAD).all()
            np.testing.assert_array_equal(np.diff(a), 1)  # successive tokens of the store
            np.testing.assert_array_equal(np.diff(b), 1)
            expected = [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (32 - length)
            assert segments.tolist() == expected
            assert is_next == (document_of(text.store, a[0]) == document_of(text.store, b[0]))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_framing_and_masking_by_oneself_give_the_same_batches(text, dataset, strategy):
    vocab = text.tokenizer.vocab
    features, labels, weights = read(dataset(seed=3, masking=strategy).take(1))[0]
    rows = unmasked(features, labels, weights)
    pairs = [np.split(row, np.flatnonzero(row == SEP)) for row in rows]
    texts = ([pair[n][1:].tolist() for pair in pairs] for n in (0, 1))
    batch = frame_tokens(*texts, vocab=vocab, max_len=32)
    masked = mask_tokens(
        batch["tokens"],
        batch["valid_lens"],
        np.random.default_rng((3, 0, 2)).integers(1 << 63, size=8),  # seed, epoch, stream of masks
        vocab=vocab,
        masking=strategy,
        num_predictions=5,
    )
    batch |= {"tokens": masked.tokens, "pred_positions": masked.positions}
    expected = batch, {"nsp": labels["nsp"], "mlm": masked.labels}, masked.weights
    assert_same([expected], [(features, labels, weights["mlm"])])


def test_only_predicted_positions_are_corrupted(batches):
    num_masked = num_predicted = 0
    for features, labels, weights in batches:
        before, after = unmasked(features, labels, weights), features["tokens"]
        is_predicted = np.zeros_like(before, bool)
        is_predicted[predicted(features, weights)] = True
        assert (before[is_predicted] >= FIRST_WORD).all()
        np.testing.assert_array_equal(before[~is_predicted], after[~is_predicted])
        counts = np.clip(np.round(0.15 * features["valid_lens"]), 1, 5) * weights["nsp"]
        np.testing.assert_array_equal(is_predicted.sum(axis=1), counts)
        num_predicted += is_predicted.sum()
        num_masked += (after == MASK).sum()
    tolerance = 4 * math.sqrt(0.8 * 0.2 / num_predicted)
    assert num_masked / num_predicted == pytest.approx(0.8, abs=tolerance)


def test_the_last_batch_is_filled_up_with_rows_of_weight_0(batches):
    assert len(batches) == 2 * math.ceil(NUM_PAIRS / 8)
    epoch = batches[: STEPS + 1]
    assert sum(weights["nsp"].sum() for _, _, weights in epoch) == NUM_PAIRS
    features, labels, weights = epoch[-1]
    filling = weights["nsp"] == 0
    assert filling.tolist() == [False] * (NUM_PAIRS % 8) + [True] * (8 - NUM_PAIRS % 8)
    assert (weights["mlm"][filling] == 0).all()
    assert (labels["mlm"][filling] == 0).all()
    assert (features["valid_lens"][filling] == 3).all()
    assert features["tokens"][-1, :4].tolist() == [CLS, SEP, SEP, PAD]


def test_the_masking_options_are_applied_and_special_tokens_of_the_user_excluded(
    documents, words, tmp_path
):
    vocab = words(8).vocab
    tokenizer = Tokenizer(vocab, special_tokens=["w0", "w1"])
    corpus = documents([[f"w0 w{2 + n % 6} w1 w{2 + n % 5}"] * 6 for n in range(6)])
    masking = Masking(replace=(0, 1, 0), rate=0.4)
    batches = pretraining_dataset(
        corpus, tokenizer, **SETTINGS, masking=masking, epochs=1, cache_dir=tmp_path
    )
    own, seen = vocab[["w0", "w1"]], 0
    for features, labels, weights in batches.as_numpy_iterator():
        seen += int(np.isin(features["tokens"], own).sum())
        assert not np.isin(labels["mlm"][weights["mlm"] > 0], own).any()
        corrupted = features["tokens"][predicted(features, weights)]
        assert not np.isin(corrupted, [*own, MASK]).any()
        assert features["pred_positions"].shape == (8, 13)
        expected = np.round(0.4 * features["valid_lens"])
        np.testing.assert_array_equal(weights["mlm"].sum(axis=1), expected)
    assert seen


@pytest.mark.slow
def test_a_resumed_dataset_continues_an_uninterrupted_one(dataset):
    whole = dataset(epochs=3)
    uninterrupted = read(whole)
    assert whole.cardinality() == len(uninterrupted) == 3 * STEPS
    endless = dataset(epochs=None, first_step=STEPS - 1)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert_same(read(endless.take(3)), uninterrupted[STEPS - 1 : STEPS + 2])
    rest = dataset(epochs=3, first_step=2 * STEPS + 1)
    assert rest.cardinality() == STEPS - 1
    assert_same(read(rest), uninterrupted[2 * STEPS + 1 :])
    assert not read(dataset(epochs=3, first_step=3 * STEPS))


def test_the_seed_alone_determines_the_batches(dataset, text, batches):
    def drawn():
        return tf.random.uniform(()).numpy(), np.random.random(), random.random()

    def seed():
        tf.random.set_seed(1)
        np.random.seed(1)
        random.seed(1)

    seed()
    expected = drawn()
    seed()
    settings = SETTINGS | {"epochs": 2, "drop_remainder": False}
    assert_same(read(pretraining_dataset(text.store, text.tokenizer, **settings)), batches)
    assert drawn() == expected, "the global random generators are not used"
    first, *_ = next(dataset(seed=1).as_numpy_iterator())
    assert (first["tokens"] != batches[0][0]["tokens"]).any()


@pytest.mark.long
def test_ten_times_the_text_needs_at_most_a_tenth_more_memory(fresh_process, tmp_path):
    code = """
        import random, resource
        from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
        from keras_bert_d2l.text.corpus import Corpus
        from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
        from keras_bert_d2l.text.vocab import Vocab

        WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(100))]

        class Text(Corpus):
            description = "random words"
            def __init__(self, num_documents):
                self.num_documents = num_documents
            def fingerprint(self):
                return str(self.num_documents)
            def pieces(self):
                yield self
            def __iter__(self):
                draw = random.Random(0)
                for _ in range(self.num_documents):
                    yield [" ".join(draw.choices(WORDS[5:], k=20)) for _ in range(50)]

        for num_documents in (800, 8000):
            for _ in pretraining_dataset(
                Text(num_documents), Tokenizer(Vocab(WORDS)), batch_size=64, epochs=2, cache_dir="."
            ):
                pass
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """
    small, large = map(int, fresh_process(code).split()[-2:])
    assert large < 1.1 * small


def test_held_out_documents_are_never_in_the_training_part(text, dataset):
    found = {}
    for split in ("train", "held_out"):
        part = read(dataset(split=split, held_out=0.2, epochs=3, batch_size=4))
        tokens = np.concatenate([unmasked(*batch) for batch in part])
        found[split] = set(document_of(text.store, tokens[tokens >= FIRST_WORD]))
    assert len(found["held_out"]) == 6
    assert found["train"] == set(range(30)) - found["held_out"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"masking": Masking(exclude=(9999,))}, "`exclude` must be from 0 to .* Received: 9999"),
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
        ({"epochs": 0}, "`epochs` must be an integer of at least 1"),
        ({"seed": -1}, "`seed` must be an integer of at least 0"),
        ({"first_step": -1}, "`first_step` must be an integer of at least 0"),
        ({"first_step": 10_000}, r"`first_step` must be at most \d+, the .* 1 epochs of \d+ steps"),
        ({"num_predictions": 33}, "at most max_len=32"),
        ({"max_len": 4}, "`max_len` must be an integer of at least 5"),
        ({"causal": True}, "`causal` .*Received: causal=True, objective='nsp'"),
        ({"causal": True, "objective": "none", "num_predictions": 3}, "num_predictions=3"),
        ({"split": "test"}, "'train', 'held_out'. Received: split='test'"),
        ({"split": "train", "held_out": 1.5}, "between 0 and 1. Received: held_out=1.5"),
        ({"masking": "words"}, "`strategy` must be one of"),
        ({"objective": "mlm"}, "`objective` must be one of 'nsp', 'sop', 'none'"),
        ({"short_seq_prob": 1.5}, "`short_seq_prob` must be a number between 0 and 1"),
        ({"rows": "square"}, "`rows` must be one of 'padded', 'packed', 'bucketed'"),
        ({"max_examples": 0}, "`max_examples` must be an integer of at least 1"),
        ({"shard": (2, 2)}, "an index from 0 to count - 1"),
        ({"masking": 5}, r"`masking` must be a `Masking`. Received: 5"),
        ({"drop_remainder": "x"}, "`drop_remainder` must be True or False. Received: .*'x'"),
        ({"batch_size": 50, "shard": (0, 2)}, "fewer than the 100 of one batch"),
    ],
)
def test_the_error_for_an_argument_out_of_range_names_it(dataset, settings, message):
    with pytest.raises(ValueError, match=message):
        dataset(**settings)


def test_a_store_with_a_different_vocabulary_is_rejected(text, words):
    with pytest.raises(ValueError, match="`tokenizer` must be the one"):
        pretraining_dataset(text.store, words(3), **SETTINGS)


@pytest.mark.parametrize("corpus", ["book.txt", pathlib.Path("book.txt"), ["book.txt"], [], 3])
def test_a_path_instead_of_a_corpus_is_rejected(text, corpus):
    with pytest.raises(ValueError, match=r"`corpus_or_store` must.*Received: .*`Corpus\.open`"):
        pretraining_dataset(corpus, text.tokenizer, **SETTINGS)


def test_a_path_instead_of_a_tokenizer_is_rejected(text):
    for corpus in (text.store, [["w0 w1"], ["w2 w3"]]):
        with pytest.raises(ValueError, match=r"`tokenizer` must be a `Tokenizer`.*'vocab\.txt'"):
            pretraining_dataset(corpus, "vocab.txt", **SETTINGS)
