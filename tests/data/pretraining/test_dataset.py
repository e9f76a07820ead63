"""pretraining_dataset: content and reproducibility of batches, and rejected arguments."""

import hashlib
import math
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.data.pretraining import epochs
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.pretraining.masking_options import Masking
from keras_bert_d2l.data.pretraining.pairs import ExampleOptions, make_examples
from keras_bert_d2l.data.pretraining.splitting import split_documents
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from tests.nightly import nightly_except

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST_WORD = 5
SETTINGS = {"batch_size": 8, "max_len": 32}


@pytest.fixture
def text(make_store):
    """Thirty documents of distinct words. Token n of the store is the id `FIRST_WORD + n`."""
    draw = random.Random(0)
    return make_store([[draw.randint(1, 9) for _ in range(draw.randint(2, 16))] for _ in range(30)])


@pytest.fixture
def dataset(text):
    def dataset(**settings):
        return pretraining_dataset(text.store, text.tokenizer, **{**SETTINGS, **settings})

    return dataset


def arrays(batches):
    """Return every batch as one flat list of arrays."""
    return [[array.numpy() for array in tf.nest.flatten(batch)] for batch in batches]


def assert_same(batches, others):
    batches, others = arrays(batches), arrays(others)
    assert len(batches) == len(others)
    for batch, other in zip(batches, others, strict=True):
        for array, another in zip(batch, other, strict=True):
            np.testing.assert_array_equal(array, another)


def unmasked(features, labels, weights):
    """Return the tokens before corruption."""
    tokens = features["tokens"].numpy().copy()
    row, slot = np.nonzero(weights["mlm"].numpy())
    tokens[row, features["pred_positions"].numpy()[row, slot]] = labels["mlm"].numpy()[row, slot]
    return tokens


def document_of(store, token_ids):
    starts = store.sentence_offsets[store.document_offsets]
    return np.searchsorted(starts, token_ids - FIRST_WORD, side="right") - 1


def test_a_batch_has_the_names_shapes_and_dtypes_of_the_model(dataset):
    spec = tf.TensorSpec
    assert dataset().element_spec == (
        {
            "tokens": spec((8, 32), tf.int32),
            "segments": spec((8, 32), tf.int32),
            "valid_lens": spec((8,), tf.int32),
            "pred_positions": spec((8, 5), tf.int32),
        },
        {"mlm": spec((8, 5), tf.int32), "nsp": spec((8,), tf.int32)},
        {"mlm": spec((8, 5), tf.float32), "nsp": spec((8,), tf.float32)},
    )


def test_a_row_is_two_texts_between_special_tokens_and_padding(text, dataset):
    for features, labels, weights in dataset():
        rows = zip(
            unmasked(features, labels, weights),
            features["segments"].numpy(),
            features["valid_lens"].numpy(),
            labels["nsp"].numpy(),
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
            assert segments.tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (
                32 - length
            )
            assert is_next == (document_of(text.store, a[0]) == document_of(text.store, b[0]))


def test_only_predicted_positions_are_corrupted(dataset):
    num_masked = num_predicted = 0
    for features, labels, weights in dataset(epochs=5):
        before, after = unmasked(features, labels, weights), features["tokens"].numpy()
        predicted = np.zeros_like(before, bool)
        row, slot = np.nonzero(weights["mlm"].numpy())
        predicted[row, features["pred_positions"].numpy()[row, slot]] = True
        assert (before[predicted] >= FIRST_WORD).all()
        np.testing.assert_array_equal(before[~predicted], after[~predicted])
        for length, count in zip(features["valid_lens"].numpy(), predicted.sum(1), strict=True):
            assert count == min(5, max(1, round(0.15 * int(length))))
        num_predicted += predicted.sum()
        num_masked += (after == MASK).sum()
    tolerance = 4 * math.sqrt(0.8 * 0.2 / num_predicted)
    assert num_masked / num_predicted == pytest.approx(0.8, abs=tolerance)


@pytest.mark.parametrize(
    ("exclude", "message"),
    [(7, "a list of token ids"), (("the",), "`exclude`"), ((999,), "ids of the vocabulary")],
)
def test_excluded_tokens_must_be_ids(exclude, message, documents, words, tmp_path):
    corpus = documents([["w0 w1", "w2"]] * 6)
    with pytest.raises(ValueError, match=message):
        pretraining_dataset(
            corpus, words(20), **SETTINGS, masking=Masking(exclude=exclude), cache_dir=tmp_path
        )


@pytest.mark.slow
def test_special_tokens_of_the_user_are_neither_predicted_nor_inserted(documents, words, tmp_path):
    vocab = words(8).vocab
    tokenizer = Tokenizer(vocab, special_tokens=["w0", "w1"])
    corpus = documents([[f"w0 w{2 + n % 6} w1 w{2 + n % 5}"] * 6 for n in range(6)])
    masking = Masking(replace=(0, 1, 0), rate=0.5)
    batches = pretraining_dataset(
        corpus, tokenizer, **SETTINGS, masking=masking, epochs=1, cache_dir=tmp_path
    )
    own, seen = vocab[["w0", "w1"]], 0
    for features, labels, weights in batches:
        seen += int(np.isin(features["tokens"], own).sum())
        assert not np.isin(labels["mlm"].numpy()[weights["mlm"].numpy() > 0], own).any()
        corrupted = np.take_along_axis(
            features["tokens"].numpy(), features["pred_positions"].numpy(), axis=1
        )
        assert not np.isin(corrupted[weights["mlm"].numpy() > 0], own).any()
    assert seen


@pytest.mark.parametrize(
    ("max_len", "given", "num_predictions"),
    [(128, None, 19), (50, None, 8), (5, None, 1), (32, 3, 3)],
)
def test_there_are_enough_predictions_for_a_full_row(dataset, max_len, given, num_predictions):
    features, _, _ = dataset(max_len=max_len, num_predictions=given).element_spec
    assert features["pred_positions"].shape == (8, num_predictions)


def test_an_epoch_contains_every_pair_once(text, dataset):
    pairs = make_examples(text.store, ExampleOptions(max_len=32, seed=4), epoch=0)
    expected = [
        (*range(a_start, a_end), *range(b_start, b_end))
        for a_start, a_end, b_start, b_end in pairs.texts.reshape(-1, 4)
    ]
    found = []
    for features, labels, weights in dataset(seed=4, drop_remainder=False):
        for row, weight in zip(
            unmasked(features, labels, weights), weights["nsp"].numpy(), strict=True
        ):
            if weight:
                found.append(tuple(row[row >= FIRST_WORD] - FIRST_WORD))
    assert found != expected  # the rows are shuffled
    assert sorted(found) == sorted(expected)


def test_the_last_batch_is_filled_up_with_rows_of_weight_0(text, dataset):
    num_pairs = len(make_examples(text.store, ExampleOptions(max_len=32), epoch=0))
    assert num_pairs % 8
    batches = list(dataset(drop_remainder=False))
    assert len(batches) == math.ceil(num_pairs / 8)
    assert sum(weights["nsp"].numpy().sum() for _, _, weights in batches) == num_pairs
    features, labels, weights = batches[-1]
    filling = weights["nsp"].numpy() == 0
    assert filling.tolist() == [False] * (num_pairs % 8) + [True] * (8 - num_pairs % 8)
    assert (weights["mlm"].numpy()[filling] == 0).all()
    assert (labels["mlm"].numpy()[filling] == 0).all()
    assert (features["valid_lens"].numpy()[filling] == 3).all()
    assert features["tokens"][-1, :4].numpy().tolist() == [CLS, SEP, SEP, PAD]


@pytest.mark.slow
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_the_number_of_steps_is_known(dataset, drop_remainder):
    one, three = (dataset(epochs=epochs, drop_remainder=drop_remainder) for epochs in (1, 3))
    assert three.cardinality() == 3 * one.cardinality() == len(list(three))


@pytest.mark.slow
def test_every_epoch_has_the_same_number_of_full_batches(dataset):
    # Some of these epochs have fewer pairs than epoch 0, some have more.
    for _, _, weights in dataset(epochs=30):
        assert weights["nsp"].numpy().all()
        assert weights["mlm"].numpy().any(axis=1).all()


@pytest.mark.slow
def test_an_endless_dataset_equals_many_epochs(dataset):
    endless = dataset(epochs=None)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    finite = dataset(epochs=3)
    assert_same(endless.take(finite.cardinality()), finite)


@pytest.mark.slow
def test_batches_are_determined_by_the_seed(dataset):
    assert_same(dataset(), dataset())
    first, other = arrays(dataset())[0], arrays(dataset(seed=1))[0]
    assert (first[0] != other[0]).any()


def test_epochs_differ_in_pairs_and_masks(dataset):
    epochs = arrays(dataset(epochs=2, batch_size=32))
    half = len(epochs) // 2
    assert all((a[0] != b[0]).any() for a, b in zip(epochs[:half], epochs[half:], strict=True))


def test_the_same_text_gets_new_masks_in_every_epoch(make_store):
    text = make_store([[3], [3]])  # only the order and the masks are random
    positions = {
        tuple(features["pred_positions"].numpy().ravel())
        for features, _, _ in pretraining_dataset(
            text.store, text.tokenizer, batch_size=2, max_len=9, epochs=20
        )
    }
    assert len(positions) > 5


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [3, None])
def test_first_step_continues_an_uninterrupted_run(dataset, epochs):
    steps = int(dataset().cardinality())
    uninterrupted = list(dataset(epochs=3))
    for first_step in (1, steps - 1, steps, 2 * steps + 1):
        resumed = dataset(epochs=epochs, first_step=first_step)
        assert_same(resumed.take(3), uninterrupted[first_step : first_step + 3])


@pytest.mark.slow
def test_no_batch_is_left_after_the_last_step(dataset):
    steps = int(dataset().cardinality())
    assert dataset(epochs=3, first_step=steps + 1).cardinality() == 2 * steps - 1
    assert not list(dataset(epochs=3, first_step=3 * steps))


@pytest.mark.slow
def test_skipping_steps_takes_no_time(dataset):
    features, _, _ = next(iter(dataset(epochs=None, first_step=10**12)))
    assert features["tokens"].shape == (8, 32)


@pytest.mark.slow
@pytest.mark.parametrize("first_step", [0, 40, 10**6, 10**12])
def test_resuming_builds_at_most_two_epochs(dataset, monkeypatch, first_step):
    made = []

    def counting(*arguments, epoch):
        made.append(epoch)
        return make_examples(*arguments, epoch=epoch)

    monkeypatch.setattr(epochs, "make_examples", counting)
    steps = int(dataset(epochs=1).cardinality())
    made.clear()
    list(dataset(epochs=first_step // steps + 1, first_step=first_step))
    assert set(made) == {0, first_step // steps}
    assert len(made) <= 2


def test_global_random_generators_are_not_used(dataset):
    tf.random.set_seed(1)
    np.random.seed(1)
    random.seed(1)
    expected = (tf.random.uniform(()).numpy(), np.random.random(), random.random())
    tf.random.set_seed(1)
    np.random.seed(1)
    random.seed(1)
    list(dataset(epochs=2))
    assert (tf.random.uniform(()).numpy(), np.random.random(), random.random()) == expected


@pytest.mark.long
def test_two_processes_give_the_same_batches(text, dataset, fresh_process, tmp_path):
    text.tokenizer.vocab.to_file(tmp_path / "vocab.txt")
    code = """
        import sys
        import numpy as np
        import tensorflow as tf
        from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
        from keras_bert_d2l.data.store.building import TokenStore
        from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
        from keras_bert_d2l.text.vocab import Vocab

        store, vocab = TokenStore.open(sys.argv[1]), Vocab.from_file(sys.argv[2])
        batches = pretraining_dataset(
            store, Tokenizer(vocab), batch_size=8, max_len=32, epochs=2, seed=7
        )
        arrays = [array.numpy() for batch in batches for array in tf.nest.flatten(batch)]
        np.savez("batches.npz", *arrays)
    """
    arguments = (text.store.directory, tmp_path / "vocab.txt")
    fresh_process(code, *arguments, PYTHONHASHSEED="1")  # ours is random
    expected = [array for batch in arrays(dataset(epochs=2, seed=7)) for array in batch]
    with np.load(tmp_path / "batches.npz") as stored:
        assert len(stored) == len(expected) > 0
        for array, other in zip(expected, stored.values(), strict=True):
            np.testing.assert_array_equal(array, other)


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


@pytest.mark.slow
def test_the_dataset_can_be_distributed_over_two_devices(dataset):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed = strategy.experimental_distribute_dataset(dataset(drop_remainder=False))
    rows = []
    for features, _, _ in distributed:
        halves = strategy.experimental_local_results(features["tokens"])
        assert [half.shape for half in halves] == [(4, 32), (4, 32)]
        rows.extend(tf.concat(halves, 0).numpy())
    expected = [features["tokens"].numpy() for features, _, _ in dataset(drop_remainder=False)]
    np.testing.assert_array_equal(rows, np.concatenate(expected))


def test_held_out_documents_are_never_in_the_training_part(text, dataset):
    documents = {}
    for split in ("train", "held_out"):
        documents[split] = set()
        for batch in dataset(split=split, held_out=0.2, epochs=3, drop_remainder=False):
            tokens = unmasked(*batch)
            documents[split].update(document_of(text.store, tokens[tokens >= FIRST_WORD]))
    assert len(documents["held_out"]) == 6
    assert documents["train"] == set(range(30)) - documents["held_out"]


def test_the_split_does_not_depend_on_the_order_of_documents():
    hashes = np.random.default_rng(0).integers(2**63, size=1000).astype(np.uint64)
    order = np.random.default_rng(1).permutation(1000)
    held_out = split_documents(hashes, "held_out", 0.05)
    assert len(held_out) == 50
    assert set(hashes[held_out]) == set(
        hashes[order][split_documents(hashes[order], "held_out", 0.05)]
    )
    rest = split_documents(hashes, "train", 0.05)
    assert sorted([*held_out, *rest]) == list(range(1000))


def test_identical_documents_are_in_the_same_part_of_the_split():
    hashes = np.array([9, 1, 3, 1, 1, 7], np.uint64)
    for share in (0.01, 0.99):  # both parts have two different documents
        assert split_documents(hashes, "held_out", share).tolist() == [1, 2, 3, 4]
        assert split_documents(hashes, "train", share).tolist() == [0, 5]


@pytest.mark.parametrize("hashes", [[1], [1, 2, 3], [1, 1, 1, 1, 2], [1, 1, 5, 6]])
def test_a_split_with_one_document_in_a_part_is_rejected(hashes):
    with pytest.raises(ValueError, match="at least two different documents in each.*blank lines"):
        split_documents(np.array(hashes, np.uint64), "train", 0.05)


@pytest.mark.parametrize("held_out", [0.0, 0.001, 0.5, 0.999])
def test_a_split_has_at_least_two_documents_in_each_part(held_out):
    hashes = np.arange(10, dtype=np.uint64)
    if held_out == 0:
        with pytest.raises(ValueError, match="between 0 and 1"):
            split_documents(hashes, "train", held_out)
    else:
        expected = min(max(2, round(10 * held_out)), 8)
        assert len(split_documents(hashes, "held_out", held_out)) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be an integer of at least 1"),
        ({"epochs": 0}, "`epochs` must be an integer of at least 1"),
        ({"seed": -1}, "`seed` must be an integer of at least 0"),
        ({"first_step": -1}, "`first_step` must be an integer of at least 0"),
        ({"first_step": 10_000}, r"`first_step` must be at most \d+, the .* 1 epochs of \d+ steps"),
        ({"num_predictions": 33}, "at most max_len=32"),
        ({"num_predictions": 0}, "`num_predictions` must be an integer of at least 1"),
        ({"max_len": 4}, "`max_len` must be an integer of at least 5"),
        ({"split": "test"}, "'train', 'held_out'. Received: split='test'"),
        ({"split": "train", "held_out": 1.5}, "between 0 and 1. Received: held_out=1.5"),
        ({"masking": "words"}, "`strategy` must be one of"),
        ({"objective": "mlm"}, "`objective` must be one of 'nsp', 'sop', 'none'"),
        ({"cross_documents": True}, "`cross_documents` requires objective='none'"),
        ({"short_seq_prob": 1.5}, "`short_seq_prob` must be a number between 0 and 1"),
        ({"rows": "square"}, "`rows` must be one of 'padded', 'packed', 'bucketed'"),
        ({"max_examples": 0}, "`max_examples` must be an integer of at least 1"),
        ({"shard": (2, 2)}, "an index from 0 to count - 1"),
        ({"shard": 2}, "an index from 0 to count - 1"),
        ({"max_len": "32"}, "`max_len` must be an integer.*Received: max_len='32'"),
        ({"num_predictions": 2.5}, "`num_predictions` must be an integer"),
        ({"short_seq_prob": "0.1"}, "`short_seq_prob` must be a number"),
        ({"split": "train", "held_out": "0.1"}, "`held_out` must be a number"),
        (
            {"masking": 5},
            r"`masking` must be a `Masking`. Received: 5 \(int\). Pass one of 'token'",
        ),
        ({"drop_remainder": "x"}, "`drop_remainder` must be True or False. Received: .*'x'"),
        ({"batch_size": 50, "shard": (0, 2)}, "fewer than the 100 of one batch"),
        ({"batch_size": 1000}, r"only \d+ rows, fewer than the 1000 of one batch"),
    ],
)
def test_the_error_for_an_argument_out_of_range_names_it(dataset, settings, message):
    with pytest.raises(ValueError, match=message):
        dataset(**settings)


def test_the_examples_of_an_epoch_are_made_once(text, monkeypatch):
    made = []

    def counted(*arguments, epoch):
        made.append(epoch)
        return make_examples(*arguments, epoch=epoch)

    monkeypatch.setattr(epochs, "make_examples", counted)
    batches = pretraining_dataset(text.store, text.tokenizer, **{**SETTINGS, "epochs": 2})
    assert made == [0]
    assert len(list(batches)) == batches.cardinality()
    assert made == [0, 1]


def test_one_document_is_not_enough_for_next_sentence_pairs(make_store):
    text = make_store([[5] * 100])
    with pytest.raises(ValueError, match="at least two documents"):
        pretraining_dataset(text.store, text.tokenizer, **SETTINGS)


def test_a_store_with_a_different_vocabulary_is_rejected(text, words):
    with pytest.raises(ValueError, match="built with a different vocabulary"):
        pretraining_dataset(text.store, words(3), **SETTINGS)


@pytest.mark.parametrize("corpus", ["book.txt", pathlib.Path("book.txt"), ["book.txt"], [], 3])
def test_a_path_instead_of_a_corpus_is_rejected(text, corpus):
    with pytest.raises(ValueError, match=r"`corpus_or_store` must.*Received: .*`Corpus\.open`"):
        pretraining_dataset(corpus, text.tokenizer, **SETTINGS)


def test_a_path_instead_of_a_tokenizer_is_rejected(text):
    for corpus in (text.store, [["w0 w1"], ["w2 w3"]]):
        with pytest.raises(ValueError, match=r"`tokenizer` must be a `Tokenizer`.*'vocab\.txt'"):
            pretraining_dataset(corpus, "vocab.txt", **SETTINGS)


@pytest.mark.slow
def test_a_list_of_documents_gives_the_batches_of_the_same_text_in_a_file(words, tmp_path):
    documents = [[f"w{n} w{n + 1}", f"w{n + 2}"] for n in range(20)]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in documents))
    settings = {**SETTINGS, "cache_dir": tmp_path / "cache"}
    assert_same(
        pretraining_dataset(documents, words(30), **settings),
        pretraining_dataset(Corpus.open(path, layout="lines"), words(30), **settings),
    )


KINDS = {
    "padded": {},
    "whole words": {"masking": "whole_word", "objective": "sop"},
    "packed": {"rows": "packed", "short_seq_prob": 0.8, "max_examples": 4},
    "bucketed": {"rows": "bucketed", "short_seq_prob": 0.8},
    "full sentences": {"objective": "none", "cross_documents": True, "masking": "span"},
}


def row_digests(batches, first_step=0):
    """Return a digest of each row, by (step, position in the batch)."""
    digests = {}
    for step, batch in enumerate(arrays(batches), first_step):
        for row in range(len(batch[0])):
            content = b"".join(array[row].tobytes() for array in batch)
            digests[step, row] = hashlib.sha256(content).hexdigest()
    return digests


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_except({"packed"}, KINDS))
def test_concatenated_shards_equal_one_worker(dataset, kind):
    expected = row_digests(dataset(batch_size=8, epochs=2, **KINDS[kind]))
    assert len(set(expected.values())) > 0.95 * len(expected)
    for count in (2, 4):
        size = 8 // count
        found = {}
        for index in range(count):
            shard = dataset(batch_size=size, epochs=2, shard=(index, count), **KINDS[kind])
            rows = row_digests(shard)
            found |= {(step, index * size + row): rows[step, row] for step, row in rows}
        assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_except({"whole words"}, KINDS))
def test_a_shard_can_resume_at_any_step(dataset, kind):
    settings = {"batch_size": 2, "epochs": 3, "shard": (1, 2), **KINDS[kind]}
    expected = row_digests(dataset(**settings))
    steps = max(step for step, _ in expected) + 1
    for first in random.Random(0).sample(range(steps), 3):
        rest = row_digests(dataset(first_step=first, **settings), first)
        assert rest == {key: row for key, row in expected.items() if key[0] >= first}


def test_the_batch_size_does_not_change_the_rows(dataset):
    many, few = (row_digests(dataset(batch_size=size, drop_remainder=False)) for size in (3, 16))
    flat = [few[key] for key in sorted(few)]
    for number, key in enumerate(sorted(many)):
        assert number >= 78 or many[key] == flat[number]


@pytest.mark.slow
@pytest.mark.parametrize("drop_remainder", nightly_except({False}, [True, False]))
def test_all_shards_have_the_same_number_of_steps(dataset, drop_remainder):
    settings = {"batch_size": 3, "drop_remainder": drop_remainder}
    numbers = {int(dataset(shard=(n, 3), **settings).cardinality()) for n in range(3)}
    assert len(numbers) == 1
    rows = sum(
        weights["nsp"].numpy().sum()
        for n in range(3)
        for _, _, weights in dataset(shard=(n, 3), **settings)
    )
    assert rows == (72 if drop_remainder else 78)


def test_without_an_objective_only_masked_tokens_are_predicted(text, dataset):
    features_spec, labels_spec, weights_spec = dataset(objective="none").element_spec
    assert set(labels_spec) == set(weights_spec) == {"mlm"}
    assert set(features_spec) == {"tokens", "segments", "valid_lens", "pred_positions"}
    found = []
    for features, labels, weights in dataset(objective="none", drop_remainder=False):
        tokens = unmasked(features, {**labels}, weights)
        assert not features["segments"].numpy().any()
        assert (tokens[:, 0] == CLS).all()
        found.extend(tokens[tokens >= FIRST_WORD] - FIRST_WORD)
    assert sorted(found) == list(range(text.store.num_tokens))


def test_documents_in_one_row_are_separated(text, dataset):
    for features, labels, weights in dataset(objective="none", cross_documents=True):
        for tokens, length in zip(
            unmasked(features, labels, weights), features["valid_lens"].numpy(), strict=True
        ):
            ends = np.flatnonzero(tokens == SEP)
            assert ends[-1] == length - 1
            for start, end in zip([1, *(ends[:-1] + 1)], ends, strict=True):
                owners = document_of(text.store, tokens[start:end])
                assert len(set(owners)) == 1


def test_swapped_texts_keep_their_segments(text, dataset):
    for features, labels, weights in dataset(objective="sop"):
        tokens = unmasked(features, labels, weights)
        for row, segments, in_order in zip(
            tokens, features["segments"].numpy(), labels["nsp"].numpy(), strict=True
        ):
            is_word = row >= FIRST_WORD
            a, b = row[is_word & (segments == 0)], row[is_word & (segments == 1)]
            assert (a[-1] < b[0]) == in_order


@pytest.mark.slow
def test_packed_rows_contain_the_examples_of_padded_rows(text, dataset):
    settings = {"short_seq_prob": 0.9, "batch_size": 2, "drop_remainder": False}
    padded, packed = set(), set()
    for features, labels, weights in dataset(**settings):
        rows = zip(unmasked(features, labels, weights), labels["nsp"].numpy(), strict=True)
        padded |= {(tuple(row[row != PAD]), is_next) for row, is_next in rows}
    for batch in dataset(rows="packed", **settings):
        features, labels, weights = batch
        tokens = unmasked(*batch)
        for row, slot in zip(*np.nonzero(weights["nsp"].numpy()), strict=True):
            is_here = features["example_ids"].numpy()[row] == slot + 1
            example = tokens[row, is_here]
            assert features["cls_positions"].numpy()[row, slot] == np.argmax(is_here)
            np.testing.assert_array_equal(
                features["position_ids"].numpy()[row, is_here], range(len(example))
            )
            packed.add((tuple(example), labels["nsp"].numpy()[row, slot]))
    empty = (CLS, SEP, SEP)
    assert {example for example in padded if example[0] != empty} == packed


def test_bucketed_rows_are_padded_to_a_multiple_of_eight(dataset):
    lengths = set()
    for features, _, _ in dataset(rows="bucketed", short_seq_prob=0.9, batch_size=2):
        longest = features["valid_lens"].numpy().max()
        assert features["tokens"].shape[1] == min(32, math.ceil(longest / 8) * 8)
        lengths.add(features["tokens"].shape[1])
    assert len(lengths) > 2


@pytest.mark.slow
def test_the_masking_options_are_applied(dataset):
    masking = Masking(rate=0.4, replace=(0.0, 0.0, 1.0))
    features_spec, _, _ = dataset(masking=masking).element_spec
    assert features_spec["pred_positions"].shape == (8, 13)
    for features, labels, weights in dataset(masking=masking):
        np.testing.assert_array_equal(features["tokens"], unmasked(features, labels, weights))
        expected = np.round(0.4 * features["valid_lens"].numpy())
        np.testing.assert_array_equal(weights["mlm"].numpy().sum(axis=1), expected)


@pytest.mark.parametrize("objective", ["nsp", "sop", "none"])
def test_examples_differ_from_epoch_to_epoch(text, objective):
    first, again, other = (
        make_examples(text.store, ExampleOptions(objective=objective, max_len=32), epoch=epoch)
        for epoch in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.texts, again.texts)
    if objective != "none":  # full sentences do not depend on the epoch
        assert first.texts.tolist() != other.texts.tolist()


@pytest.mark.slow
def test_two_small_documents_give_ten_different_rows(tmp_path):
    s1, s2, s3, s4 = "the cat sat on the mat .", "the mat sat .", "dogs bark .", "cats sleep ."
    (tmp_path / "text.txt").write_text(f"{s1}\n{s2}\n\n{s3}\n{s4}\n")
    tokenizer = Tokenizer(Vocab([*GOOGLE_SPECIALS, *sorted({*f"{s1} {s2} {s3} {s4}".split()})]))
    dataset = pretraining_dataset(
        Corpus.open(tmp_path / "text.txt", layout="lines"),
        tokenizer,
        batch_size=1,
        max_len=32,
        epochs=50,
        cache_dir=tmp_path / "cache",
    )
    found = set()
    for features, labels, weights in dataset:
        tokens = unmasked(features, labels, weights)[0, : features["valid_lens"][0]]
        found.add((" ".join(tokenizer.vocab.to_tokens(tokens)), int(labels["nsp"][0])))
    rows = {(s1, s2, 1), (s3, s4, 1)}
    for first, second, others in ((s1, s2, (s4, f"{s3} {s4}")), (s3, s4, (s2, f"{s1} {s2}"))):
        rows |= {(a, b, 0) for a in (first, second) for b in others}
    assert found == {(f"[CLS] {a} [SEP] {b} [SEP]", is_next) for a, b, is_next in rows}


@pytest.mark.slow
def test_rows_of_wikitext_are_full_and_half_of_the_pairs_are_true(data_dir, tmp_path):
    tokenizer = Tokenizer(Vocab.from_file(data_dir / "vocab" / "bert-base-uncased-vocab.txt"))
    corpus = Corpus.open(
        data_dir / "corpus" / "wikitext-2" / "wiki.valid.tokens.gz", layout="wikitext"
    )
    dataset = pretraining_dataset(
        corpus, tokenizer, batch_size=64, drop_remainder=False, cache_dir=tmp_path
    )
    lengths, is_next = [], []
    for features, labels, weights in dataset:
        is_real = weights["nsp"].numpy() == 1
        lengths.extend(features["valid_lens"].numpy()[is_real])
        is_next.extend(labels["nsp"].numpy()[is_real])
    assert np.mean(lengths) > 0.95 * 128
    assert np.mean(is_next) == pytest.approx(0.5, abs=2 / math.sqrt(len(is_next)))
