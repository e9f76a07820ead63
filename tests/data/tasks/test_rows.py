import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.checks import negative_of
from keras_bert_d2l.data.tasks.rows import TaskRows
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.tasks.answer.examples import Answer, QuestionExamples
from keras_bert_d2l.tasks.choose.examples import ChoiceExamples
from keras_bert_d2l.tasks.embed.examples import PairExamples, as_cosines
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.tag.rows import split_words, windows_of
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab

PIECES = "a crane is fly ##ing over the lake it who what do ##es . ?".split()
PAD, CLS, SEP = 0, 2, 3
CONTEXT = "a crane is flying over the lake . it is a crane ."  # 14 tokens


@pytest.fixture(scope="module")
def tokenizer():
    vocab = Vocab([*GOOGLE_SPECIALS, *PIECES])
    assert (vocab.pad_id, vocab.cls_id, vocab.sep_id) == (PAD, CLS, SEP)
    return Tokenizer(vocab)


@pytest.fixture(scope="module")
def many(tokenizer):
    """Return rows of 103 texts of 1 to 20 words; example n has the label n % 2."""
    lengths = np.random.default_rng(0).integers(1, 21, 103)
    words = [PIECES[n % 3] for n in range(20)]
    texts = tuple(" ".join(words[:length]) for length in lengths)
    labels = tuple("no yes".split()[n % 2] for n in range(len(texts)))
    examples = TextExamples(texts=texts, labels=labels)
    return TaskRows.encode(examples, tokenizer, max_len=16)


def ids(tokenizer, text):
    return [tokenizer.vocab.tokens.index(token) for token in text.split()]


def one_batch(rows, number=None):
    """Return the first groups of rows, or all, as a batch, without building a pipeline."""
    number = len(rows._groups()) - 1 if number is None else number
    return rows._batch_function()(tf.range(number))


def test_choices_form_rows_with_their_text(tokenizer):
    texts = ("a crane", "it", "who", "what is it ?")
    choices = (("is flying", "a"), ("over", "the lake"), ("is", "it", "?"), ("it", "is"))
    examples = ChoiceExamples(texts=texts, choices=choices, labels=[1, 0, 2, 1])
    rows = TaskRows.encode(examples, tokenizer, max_len=6)
    assert rows.dropped == {"not 2 choices, as most examples have": 1}
    assert rows.examples.tolist() == [0, 0, 1, 1, 3, 3]
    assert (rows.num_truncated, rows.full_lengths.tolist()) == (2, [8, 6, 0, 8])
    features, labels = one_batch(rows)
    assert labels.numpy().tolist() == [1, 0, 1]
    kept = [0, 1, 3]
    sides = [texts[n] for n in kept for _ in range(2)], [c for n in kept for c in choices[n]]
    flat = tokenizer(*sides, 6)
    for name, values in flat.items():
        shape = (3, 2, *values.shape[1:])
        np.testing.assert_array_equal(features[name], tf.reshape(values, shape))
    unlabeled = TaskRows.encode(examples.without_labels(), tokenizer, max_len=6)
    assert one_batch(unlabeled, 2)["tokens"].shape == (2, 2, 6)


def test_batches_equal_the_output_of_the_tokenizer(tokenizer):
    texts = ("a crane", "who is it ?", "the lake is flying over the lake")
    texts_b = ("it is flying .", "what", "a crane does")
    for second in (None, texts_b):
        examples = TextExamples(texts=texts, texts_b=second, labels=("x", "y", "x"))
        rows = TaskRows.encode(examples, tokenizer, max_len=9)
        features, labels = one_batch(rows)
        expected = tokenizer(texts, examples.texts_b, max_len=9)
        longest = int(max(expected["valid_lens"]))
        for name in ("tokens", "segments"):
            assert features[name].dtype == tf.int32
            np.testing.assert_array_equal(features[name], expected[name][:, :longest])
        np.testing.assert_array_equal(features["valid_lens"], expected["valid_lens"])
        np.testing.assert_array_equal(labels, [0, 1, 0])


@pytest.mark.parametrize(
    ("texts_b", "max_len", "number", "full_lengths"),
    [(None, 5, 1, [4, 10, 5]), (("a", "a", "a a a"), 8, 2, [6, 12, 9])],
)
def test_truncated_examples_are_counted(tokenizer, texts_b, max_len, number, full_lengths):
    texts = ("a crane", "the lake is flying over the lake", "a a a")
    examples = TextExamples(texts=texts, texts_b=texts_b)
    rows = TaskRows.encode(examples, tokenizer, max_len=max_len)
    assert (rows.num_truncated, rows.full_lengths.tolist()) == (number, full_lengths)
    assert rows.lengths.tolist() == [min(length, max_len) for length in full_lengths]


def test_an_epoch_contains_each_row_once(many):
    dataset = many.batches(8, epoch=0)
    assert int(dataset.cardinality()) == 13
    order = many._order(8, seed=0, epoch=0)
    np.testing.assert_array_equal(np.sort(order), np.arange(103))
    batches = list(dataset)
    assert [len(labels) for _, labels in batches] == [8] * 12 + [7]
    assert many.label_names == ("no", "yes")
    np.testing.assert_array_equal(one_batch(many)[1], many.labels)  # in the order of the rows
    seen = np.concatenate([labels for _, labels in batches])
    np.testing.assert_array_equal(seen, many.labels[order])
    lengths = np.concatenate([features["valid_lens"] for features, _ in batches])
    np.testing.assert_array_equal(lengths, many.lengths[order])


def test_the_order_depends_only_on_seed_and_epoch(many):
    same = many._order(8, seed=5, epoch=1)
    np.testing.assert_array_equal(same, many._order(8, seed=5, epoch=1))
    assert (same != many._order(8, seed=5, epoch=2)).any()
    assert (same != many._order(8, seed=6, epoch=1)).any()


def test_batches_are_padded_to_their_longest_row_with_little_padding(many):
    num_places = 0
    for features, _ in many.batches(8, epoch=3):
        longest = int(max(features["valid_lens"]))
        assert features["tokens"].shape == features["segments"].shape
        assert features["tokens"].shape[1] == longest
        mask = np.arange(longest) < np.array(features["valid_lens"])[:, np.newaxis]
        np.testing.assert_array_equal(np.array(features["tokens"]) != PAD, mask)
        num_places += mask.size
    assert 1 - many.lengths.sum() / num_places < 0.1
    in_order = sum(tf.size(features["tokens"]) for features, _ in many.batches(8))
    assert num_places < 0.85 * int(in_order)


def test_every_kind_of_label_is_encoded(tokenizer):
    texts = ("a", "crane", "is")
    scores = TextExamples(task="regress", texts=texts, labels=(0.5, 1.0, -2.0))
    _, labels = one_batch(TaskRows.encode(scores, tokenizer, max_len=8))
    assert labels.dtype == tf.float32
    np.testing.assert_array_equal(labels, [0.5, 1.0, -2.0])
    several = TextExamples(texts=texts, labels=(("x", "z"), (), ("y",)))
    _, labels = one_batch(TaskRows.encode(several, tokenizer, max_len=8))
    np.testing.assert_array_equal(labels, [[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    unknown = TaskRows.encode(TextExamples(texts=texts), tokenizer, labels=("x", "y"), max_len=8)
    assert set(one_batch(unknown)) == {"tokens", "segments", "valid_lens"}
    names = TextExamples(texts=texts, labels=("x", "y", "x"))
    _, labels = one_batch(TaskRows.encode(names, tokenizer, labels=("y", "x"), max_len=8))
    np.testing.assert_array_equal(labels, [1, 0, 1])


def test_labels_that_cannot_be_learned_are_rejected(tokenizer):
    def texts(*labels, **fields):
        return TextExamples(texts=["a"] * len(labels), labels=labels, source="dev.tsv", **fields)

    tags = WordExamples(words=(("a", "is"),), labels=(("O", "B"),))
    for examples, labels, max_len, message in (
        (texts("x", "x"), None, 8, "at least 2 different labels.*only one label, 'x'"),
        (texts("x", "new", ids=["1", "2"]), ("x", "y"), 8, "'x', 'y'.*dev.tsv.*'new'"),
        (tags, ("O", "I"), 8, "Received: .*'B'"),
        (tags, ("O", "O"), 8, "`labels` must.*'O', 'O'"),
        (tags.subset([]), ("O", "B"), 8, "There are no examples"),
        (texts("x", "x"), ("x", "y"), 2, "`max_len`"),
    ):
        with pytest.raises(ValueError, match=message):
            TaskRows.encode(examples, tokenizer, labels=labels, max_len=max_len)


def test_the_first_token_of_a_word_has_its_label(tokenizer):
    words = (("a", "crane", "flying", "."), ("\u200b", "does", "it"))
    labels = (("D", "N", "V", "P"), ("X", "V", "N"))
    rows = TaskRows.encode(WordExamples(words=words, labels=labels), tokenizer, max_len=8)
    features, found = one_batch(rows)
    names = [[rows.label_names[n] if n >= 0 else "" for n in row] for row in found.numpy()]
    assert names == [["", "D", "N", "V", "", "P", ""], ["", "X", "V", "", "N", "", ""]]
    expected = [CLS, *ids(tokenizer, "a crane fly ##ing ."), SEP]
    assert features["tokens"][0].numpy().tolist() == expected
    # The word without a visible character is the unknown token, as in prediction.
    assert features["tokens"][1].numpy().tolist()[1] == tokenizer.vocab.unk_id
    assert rows.word_ids.tolist() == [-1, 0, 1, 2, -1, 3, -1, -1, 0, 1, -1, 2, -1]
    assert rows.num_truncated == 0
    assert set(found.numpy().ravel()[[0, 4]]) == {-100}


@pytest.mark.parametrize("max_len", [3, 4, 9, 32])
def test_every_word_has_its_label_in_the_row_that_predicts_it(tokenizer, max_len):
    draw = np.random.default_rng(0)
    words = [draw.choice(["a", "flying", "lake", "\u200b"], size) for size in (1, 40, 7, 90, 2, 0)]
    words = tuple(tuple(map(str, text)) for text in words)
    labels = tuple(tuple(f"l{draw.integers(9)}" for _ in text) for text in words)
    rows = TaskRows.encode(WordExamples(words=words, labels=labels), tokenizer, max_len=max_len)
    assert rows.lengths.max() <= max_len
    split = split_words(tf.ragged.constant(words, ragged_rank=1), tokenizer)
    windows = windows_of(split.tokens, max_len - 2)
    assert windows.texts.numpy().tolist() == rows.examples.tolist()
    # If a model returns the labels of the rows, prediction finds each word's label.
    for text, firsts in enumerate(split.firsts.to_list()):
        found = windows.places([text] * len(firsts), firsts)
        labels_of = [
            rows.labels[rows.splits[row] + place] for row, place in zip(*found, strict=True)
        ]
        assert [rows.label_names[n] for n in labels_of] == list(labels[text])
    assert (rows.labels >= 0).sum() == sum(map(len, words))


def asked(*questions, contexts, answers):
    return QuestionExamples(questions=questions, contexts=contexts, answers=answers)


def test_a_long_context_is_split_into_rows(tokenizer):
    answers = ([Answer("the lake", CONTEXT.index("the lake")), Answer("a crane", 0)], [])
    examples = asked(
        "what is it ?", "who ?", contexts=(CONTEXT, "it is a crane ."), answers=answers
    )
    rows = TaskRows.encode(examples, tokenizer, max_len=14, overlap=3)  # 7 tokens of the context
    assert rows.examples.tolist() == [0, 0, 0, 1]
    assert rows.num_truncated == 1
    assert rows.full_lengths.tolist() == [4 + 14 + 3, 2 + 5 + 3]
    features, labels = one_batch(rows)
    spans = zip(labels["start"].numpy(), labels["end"].numpy(), strict=True)
    for number, (start, end) in enumerate(spans):
        tokens = features["tokens"][number].numpy().tolist()
        found = tokens[start : end + 1] if start else []
        assert tokens[:6] == [CLS, *ids(tokenizer, "what is it ?"), SEP] or number == 3
        has_answer = ids(tokenizer, "the lake")[1] in tokens and number < 3
        assert found == (ids(tokenizer, "the lake") if has_answer else [])
    assert labels["start"].numpy().any()
    assert rows.labels[3].tolist() == [0, 0]


def test_an_answer_that_does_not_fit_in_any_row_is_ignored_and_counted(tokenizer):
    long_answer = Answer("crane is flying over the lake", 2)  # 7 tokens
    answers = ([long_answer], [Answer("lake", CONTEXT.index("lake"))])
    examples = asked("who ?", "who ?", contexts=(CONTEXT, CONTEXT), answers=answers)
    rows = TaskRows.encode(examples, tokenizer, max_len=10, overlap=2)
    assert (rows.labels[rows.examples == 0] == -100).all()
    assert (rows.labels[rows.examples == 1] >= 0).all()
    assert sum(rows.dropped.values()) == 1
    assert "answer does not fit in any row" in rows.lost_in_words()[0]


def test_questions_without_room_for_the_context_are_counted_or_rejected(tokenizer):
    questions = ("what is it over the lake ?", "who ?")
    examples = asked(*questions, contexts=(CONTEXT, "it ."), answers=([], []))
    rows = TaskRows.encode(examples, tokenizer, max_len=10, overlap=2)
    assert rows.examples.tolist() == [1]
    assert rows.full_lengths.tolist() == [0, 7]
    assert rows.dropped == {"question too long for max_len=10 and overlap=2": 1}
    with pytest.raises(ValueError, match="A question must leave.*at least 7 tokens"):
        TaskRows.encode(examples.subset([0]), tokenizer, max_len=10, overlap=2)


def test_the_texts_of_a_pair_are_successive_rows_of_the_same_batch(tokenizer):
    texts, texts_b = ["a crane", "who", "a crane", "lake"], ["it", "do it", "flying over", "what ?"]
    pairs = PairExamples(texts=texts, texts_b=texts_b)
    rows = TaskRows.encode(pairs, tokenizer, max_len=4)
    assert (len(rows), rows.num_truncated) == (8, 1)
    assert rows.full_lengths.tolist() == [4, 4, 5, 4]
    features, labels = one_batch(rows)
    together = [text for pair in zip(texts, texts_b, strict=True) for text in pair]
    np.testing.assert_array_equal(features["tokens"], tokenizer(together, max_len=4)["tokens"])
    assert labels.numpy().tolist() == [0, 0, 1, 1, 0, 0, 3, 3]  # an anchor is a group
    for features, labels in rows.batches(2, epoch=0):
        assert len(features["tokens"]) == 4
        np.testing.assert_array_equal(labels[::2], labels[1::2])
    triplets = dataclasses.replace(pairs, negatives=texts_b[::-1])
    _, labels = one_batch(TaskRows.encode(triplets, tokenizer, max_len=4))
    # The second texts of pairs 3, 2, 1 and 0 are the negatives.
    others = [negative_of(group) for group in (3, 0, 1, 0)]
    expected = [[0, 0, others[0]], [1, 1, others[1]], [0, 0, others[2]], [3, 3, others[3]]]
    assert labels.numpy().reshape(-1, 3).tolist() == expected


def test_pairs_that_share_a_text_are_in_the_same_group(tokenizer):
    pairs = PairExamples(texts=["a", "b", "b", "c", "d"], texts_b=["x", "x", "y", "z", "a"])
    labels = TaskRows.encode(pairs, tokenizer, max_len=4).labels.reshape(-1, 2)
    np.testing.assert_array_equal(labels[:, 0], labels[:, 1])
    assert labels[:, 0].tolist() == [0, 0, 0, 3, 0]  # the last one has the text "a"


def test_scores_of_pairs_become_cosines(tokenizer):
    def labels(scores):
        pairs = PairExamples(texts=["a"] * 3, texts_b=["it"] * 3, labels=scores)
        return TaskRows.encode(pairs, tokenizer, max_len=4).labels.tolist()

    assert labels([0, 5, 2.5]) == [0, 0, 1, 1, 0.5, 0.5]
    assert labels([-1, 0.25, 0]) == [-1, -1, 0.25, 0.25, 0, 0]  # are cosines already
    assert as_cosines([0, 1, 6], like=[0, 5]).tolist() == [0, pytest.approx(0.2), 1]
