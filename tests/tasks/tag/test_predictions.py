import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.inference.evaluation import Mistake, evaluate
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import Entity, Tag, entities, tag
from tests.serving.conftest import functions_run_eagerly

ANIMALS = {(None, 0): 2.0, ("cat", 1): 1.0, ("dog", 2): 1.0}
TAGS = ["thing", "cat", "dog"]
SPAN_TAGS = ["O", "B-PET", "I-PET"]


@pytest.fixture(scope="module")
def tagger(open_task):
    return open_task(TokenClassifier, ANIMALS, labels=TAGS)


def test_words_are_returned_with_their_labels_and_character_ranges(tagger):
    text = "The  cat's dogs,\tcatly\nrug"
    found = tag(tagger, text)
    assert [(one.word, one.label) for one in found] == [
        ("The", "thing"),
        ("cat", "cat"),
        ("'", "thing"),
        ("s", "thing"),
        ("dogs", "dog"),  # dog ##s
        (",", "thing"),
        ("catly", "cat"),
        ("rug", "thing"),
    ]
    assert all(text[one.start : one.end] == one.word for one in found)
    assert all(1 / 3 < one.score < 1 for one in found)


def test_combining_accents_belong_to_their_word(tagger):
    text = "cat\u0301 do\u0301g dog\u0308."
    found = tag(tagger, text)
    assert [one.word for one in found] == ["cat\u0301", "do\u0301g", "dog\u0308", "."]
    assert [one.label for one in found] == ["cat", "dog", "dog", "thing"]


def test_words_passed_as_lists_are_not_split_further(tagger):
    words = [["the", "cat,dog", "mat"], [], ["dogs", "\u200b", "cat"], ["\u0301"]]
    found = tag(tagger, words)
    assert [[one.word for one in row] for row in found] == words
    assert [[one.label for one in row] for row in found] == [
        ["thing", "cat", "thing"],  # the label of the first token
        [],
        ["dog", "thing", "cat"],
        ["thing"],
    ]
    assert found[0][0] == Tag("the", "thing", found[0][0].score, None, None)


def test_an_empty_text_has_no_tags(tagger):
    assert tag(tagger, "") == tag(tagger, " \n") == tag(tagger, []) == []
    assert tag(tagger, ["", "cat"])[0] == tag(tagger, [[]])[0] == []


def test_tagging_a_text_equals_tagging_its_words(words_bert, words_tokenizer):
    model = TokenClassifier(words_bert, ["a", "b", "c"], tokenizer=words_tokenizer)
    model.run_eagerly = True
    words = ["the", "dogs", "sat", "badly", "on", ".", "mat"]
    [of_words] = tag(model, [words])
    of_text = tag(model, " ".join(words))
    assert [(x.word, x.label, x.score) for x in of_text] == [
        (x.word, x.label, pytest.approx(x.score)) for x in of_words
    ]
    first_pieces = 1 + words_tokenizer.tokenize_words([words]).row_starts().numpy()
    logits = np.asarray(model(words_tokenizer(" ".join(words))))[0]
    expected = logits[first_pieces].argmax(axis=-1)
    assert [x.label for x in of_words] == [model.labels[number] for number in expected]


@pytest.mark.slow
def test_every_word_of_a_long_text_gets_a_label(tagger):
    rng = np.random.default_rng(0)
    words = [
        rng.choice(["cat", "dogs", "rugs", "mat"], size).tolist() for size in (0, 1, 14, 15, 50)
    ]
    wanted = {"cat": "cat", "dogs": "dog", "rugs": "thing", "mat": "thing"}
    for max_len in (3, 4, 9, None):
        found = tag(tagger, words, max_len=max_len)
        assert [[one.label for one in row] for row in found] == [
            [wanted[word] for word in row] for row in words
        ]


def test_a_word_of_a_long_text_is_labeled_from_the_row_with_more_context(
    words_bert, words_tokenizer
):
    model = TokenClassifier(words_bert, ["a", "b", "c"], tokenizer=words_tokenizer)
    model.run_eagerly = True
    words = "the cat sat on mat good dog ran".split()  # in rows of 4: 0-3, 2-5, 4-7
    [found] = tag(model, [words], max_len=6)
    for first, places in ((0, range(3)), (2, range(3, 5)), (4, range(5, 8))):
        [alone] = tag(model, [words[first : first + 4]])
        for place in places:
            assert found[place].score == pytest.approx(alone[place - first].score, rel=1e-5)


@pytest.mark.long
def test_tagged_texts_keep_their_order_across_chunks(tagger):
    texts = ["cat", "dog rug", ""] * 800
    found = tag(tagger, texts, batch_size=1024)
    labels = [[one.label for one in row] for row in found]
    assert labels == [["cat"], ["dog", "thing"], []] * 800


def test_a_mixture_of_texts_and_lists_of_words_is_rejected(tagger):
    with pytest.raises(ValueError, match="all strings or all lists. Received: 'dog' at index 1"):
        tag(tagger, [["cat"], "dog"])


def tags(text, labels, scores=None):
    """Return the tags of words separated by single spaces."""
    found, start = [], 0
    for word, label, score in zip(text.split(), labels, scores or [1.0] * 9, strict=False):
        found.append(Tag(word, label, score, start, start + len(word)))
        start += len(word) + 1
    return found


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("B-A I-A O B-A B-A", [("the cat", "A"), ("on", "A"), ("mat", "A")]),  # IOB2
        ("B-A E-A S-A S-A O", [("the cat", "A"), ("sat", "A"), ("on", "A")]),  # IOBES
        ("N N V O N", [("the cat", "N"), ("sat", "V"), ("mat", "N")]),  # no scheme
        ("O O O O O", []),
    ],
)
def test_labels_are_joined_to_entities(labels, expected):
    text = "the cat sat on mat"
    found = entities(tags(text, labels.split()), text, labels.split())
    assert [(one.text, one.label) for one in found] == expected
    assert all(text[one.start : one.end] == one.text for one in found)


def test_the_score_of_an_entity_is_the_mean_of_its_labels():
    labels, scores = ["O", "B-A", "I-A"], [0.9, 0.5, 0.75]
    [found] = entities(tags("the new cat", labels, scores), "the new cat", labels)
    assert found == Entity("new cat", "A", 0.625, 4, 11)


@pytest.mark.slow
def test_the_label_of_a_word_depends_on_the_strategy(words_bert, words_tokenizer):
    model = TokenClassifier(words_bert, ["x", "y", "z"])
    model.head.kernel.assign(np.random.default_rng(164).normal(size=(8, 3)))
    model.run_eagerly = True
    logits = np.asarray(model(words_tokenizer("catsly")), "float64")[0, 1:4]  # cat ##s ##ly
    tokens = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows = {
        "first": tokens[0],
        "average": tokens.mean(axis=0),
        "max": tokens[tokens.max(axis=1).argmax()],
    }
    for aggregate, row in rows.items():
        score = pytest.approx(row.max(), rel=1e-5)
        expected = Entity("catsly", "xyz"[row.argmax()], score, 0, 6)
        assert tag(model, "catsly", aggregate=aggregate) == [expected]
        assert tag(model, [["catsly"], []], aggregate=aggregate) == [[expected], []]
        assert tag(model, ["", " "], aggregate=aggregate) == [[], []]
    assert len({"xyz"[row.argmax()] for row in rows.values()}) == 2
    simple = tag(model, "catsly", aggregate="simple")
    assert "".join(one.text for one in simple) == "catsly"
    assert [one.label for one in simple] == ["xyz"[one] for one in tokens.argmax(axis=1)]


def test_words_are_joined_by_spaces_for_the_positions_of_entities(tagger):
    [found] = tag(tagger, [["the", "cat", "cats", "rug"]], aggregate="first")
    assert [(one.text, one.start, one.end) for one in found] == [
        ("the", 0, 3),
        ("cat cats", 4, 12),
        ("rug", 13, 16),
    ]


@pytest.mark.parametrize(
    "labels",
    [
        SPAN_TAGS,
        ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "I-B", "E-B"],
        ["0", "a_b", "a_i", "c_b", "c_i"],
        ["NOUN", "VERB"],
        ["O", "\u00c9", "x"],
    ],
)
@pytest.mark.parametrize("name", ["entities", "word_entities"])
def test_signatures_join_words_to_the_entities_of_python(name, labels, open_task, words_tokenizer):
    words = "the cat dog sat ran on mat rug".split()
    weights = {(word, n % len(labels)): 9.0 for n, word in enumerate(words)}
    model = open_task(TokenClassifier, weights, labels=labels)
    rng = np.random.default_rng(0)
    texts = ["", " ", *(" ".join(rng.choice(words, rng.integers(1, 15))) for _ in range(40)), "cat"]
    given = tf.constant(texts)
    if name == "word_entities":
        texts = [["", "cat"], ["dog", "", "mat rug"], *(text.split() for text in texts)]
        given = tf.ragged.constant(texts).to_tensor()
    signature = model_signatures(model, words_tokenizer, TextOptions(False, 1, None))[name]
    with functions_run_eagerly():
        found = {name: x.numpy() for name, x in signature.function(given).items()}
    assert not found.pop("truncated").any()
    for row, expected in enumerate(tag(model, texts, aggregate="first")):
        columns = [x[row, : len(expected)].tolist() for x in found.values()]
        rows = [(a.decode(), b.decode(), *rest) for a, b, *rest in zip(*columns, strict=True)]
        assert rows == [(x.text, x.label, pytest.approx(x.score), x.start, x.end) for x in expected]
        assert not any(x[row, len(expected) :].any() for x in found.values())
    assert max(map(len, found["texts"].tolist())) > 2


def test_unknown_strategies_and_parts_of_given_words_are_rejected(tagger):
    with pytest.raises(ValueError, match="`aggregate` must be one of 'none', 'simple', .*'mean'"):
        tag(tagger, "cat", aggregate="mean")
    with pytest.raises(ValueError, match="'simple'` requires texts.*lists of words"):
        tag(tagger, [["cat"]], aggregate="simple")
    with pytest.raises(ValueError, match="`max_len` must be from 3 to 16"):
        tag(tagger, "cat", max_len=17)


@pytest.fixture(scope="module")
def span_tagger(open_task):
    weights = {(None, 0): 2.0, ("cat", 1): 1.0, ("dog", 2): 1.0}
    return open_task(TokenClassifier, weights, labels=SPAN_TAGS)


def test_a_span_tagger_is_evaluated_on_words_and_on_spans(span_tagger):
    words = (("the", "cat", "dog", "sat"), (), ("a", "dog", "ran"))
    labels = (("O", "B-PET", "I-PET", "O"), (), ("O", "O", "O"))
    evaluation = evaluate(span_tagger, WordExamples(words=words, labels=labels))
    assert evaluation.metrics == {
        "accuracy": pytest.approx(6 / 7),
        "precision": 0.5,
        "recall": 1,
        "f1": pytest.approx(2 / 3),
        "expected_calibration_error": evaluation.decisions.calibration_error,
    }
    score = evaluation.predictions[2][1].score
    assert evaluation.errors == [Mistake("2", "a [dog] ran", "O", "I-PET", score, 1)]
    assert evaluation.confusion.counts.tolist() == [[4, 0, 1], [0, 1, 0], [0, 0, 1]]
