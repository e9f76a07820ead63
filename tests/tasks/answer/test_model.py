import types

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import BERTModel, Tokenizer, Vocab
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer, answer_tensors
from keras_bert_d2l.tasks.answer.rows import QuestionPreprocessor, character_spans, window_labels
from keras_bert_d2l.text.tokenizer.framing import answer_spans

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] who what wrote it ada 1843 in a film is good ##s é".split()
MAX_LEN, OVERLAP = 16, 5  # limits questions to 7 tokens
LONG = "é it is a good film a film is a film it is good in films what ada wrote in 1843"
QUESTIONS = ["who wrote it", "what is it", "who is good", "what in 1843"]
CONTEXTS = ["ada wrote it in 1843", "it is a good film", "é is it", LONG]
ANSWERS = [
    {"text": "ada", "start": 0},
    types.SimpleNamespace(text="good film", start=8),
    None,
    ({"text": "ada wrote", "start": LONG.index("ada")}, {"text": "it", "start": 2}),
]
X = {"questions": QUESTIONS, "contexts": CONTEXTS}
FEATURES = ("tokens", "segments", "valid_lens")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocab(WORDS))


@pytest.fixture(scope="module")
def untrained(tokenizer):
    """An eager model, because tracing takes long."""
    model = QuestionAnswerer(BERTModel(len(WORDS), 16, 24, 2, 1, 0.0, MAX_LEN), tokenizer=tokenizer)
    model.compile(run_eagerly=True)
    return model


@pytest.fixture(scope="module")
def windows(tokenizer):
    return tokenizer.windows(QUESTIONS, CONTEXTS, MAX_LEN, OVERLAP)


def of_model(windows):
    return {name: windows[name].numpy() for name in FEATURES}


def as_labels(spans):
    return {"start": spans[:, 0].numpy(), "end": spans[:, 1].numpy()}


def labels_of(windows, contexts, answers):
    starts, ends = character_spans(contexts, answer_tensors(answers))
    spans = answer_spans(windows, starts, ends)
    return window_labels(spans, windows["rows"], starts)


def spans_by_characters(windows, answers):
    plain = answer_tensors(answers)
    starts, texts = plain["start"].numpy(), plain["text"].numpy()
    ends = [start + len(text.decode()) for start, text in zip(starts, texts, strict=True)]
    return answer_spans(windows, starts, ends)


@pytest.mark.long
def test_strings_give_the_same_results_as_their_windows(untrained, windows):
    model, rows = untrained, windows["rows"].numpy()
    assert len(rows) > len(QUESTIONS)
    weights = np.array([1.0, 0.5, 2.0, 3.0], "float32")
    labels = as_labels(spans_by_characters(windows, ANSWERS))
    options = {"sample_weight": weights[rows], "verbose": 0, "return_dict": True}
    expected = pytest.approx(model.evaluate(of_model(windows), labels, **options), rel=1e-5)
    options["sample_weight"] = weights
    assert model.evaluate(X, ANSWERS, **options) == expected
    answers = answer_tensors(ANSWERS)
    elsewhere = {**answers, "start": answers["start"] + 1}
    with pytest.raises(tf.errors.InvalidArgumentError, match="must occur in its context"):
        character_spans(tf.constant(CONTEXTS), elsewhere)


@pytest.mark.slow
def test_predictions_have_one_row_per_window_in_order(untrained, windows):
    model = untrained
    assert model.window_sizes == (MAX_LEN, OVERLAP)
    expected = model.predict(of_model(windows), verbose=0)
    dataset = tf.data.Dataset.from_tensor_slices(X).batch(3)  # batches of different lengths
    for x in (X, dataset):
        logits = model.predict(x, batch_size=4, verbose=0)
        for side in ("start", "end"):
            np.testing.assert_allclose(logits[side], expected[side], atol=1e-5)
    one = {"questions": QUESTIONS[2:3], "contexts": CONTEXTS[2:3]}
    assert model.predict(one, verbose=0)["start"].shape == (1, 9)  # padded to the longest row


def test_answers_can_be_given_as_columns():
    answers = answer_tensors(ANSWERS)
    columns = {name: column.numpy().tolist() for name, column in answers.items()}
    for name, column in answer_tensors(columns).items():
        np.testing.assert_array_equal(column, answers[name])


def test_windows_get_the_same_labels_as_examples_read_from_files(tokenizer):
    rng = np.random.default_rng(0)
    letters = LONG + " "
    questions, contexts, answers = [], [], []
    for number in range(60):
        context = "".join(rng.choice([*letters, "é", "🙂"], rng.integers(1, 80)))
        first, end = sorted(rng.integers(0, len(context) + 1, 2))
        has_answer = number % 5 and context[first:end].strip()
        answers.append({"text": context[first:end], "start": int(first)} if has_answer else None)
        questions.append("what is it")
        contexts.append(context)
    windows = tokenizer.windows(questions, contexts, MAX_LEN, OVERLAP)
    spans = spans_by_characters(windows, answers).numpy()
    rows = windows["rows"].numpy()
    found = np.bincount(rows, spans[:, 0] > 0) > 0
    is_lost = np.array([one is not None for one in answers]) & ~found
    assert 0 < is_lost.sum() < 30 < found.sum() + is_lost.sum()
    spans[is_lost[rows]] = -100
    labels = labels_of(windows, contexts, answers)
    np.testing.assert_array_equal(labels["start"], spans[:, 0])
    np.testing.assert_array_equal(labels["end"], spans[:, 1])


def test_a_row_without_an_answer_is_labeled_with_the_start_token(tokenizer):
    windows = tokenizer.windows(["what is it"] * 4, ["it is é"] * 4, MAX_LEN, OVERLAP)
    for nothing in (None, (), []):
        labels = labels_of(windows, ["it is é"] * 4, [nothing] * 4)
        assert labels["start"].numpy().tolist() == labels["end"].numpy().tolist() == [0] * 4


def right(text="ada", start=0):
    return [{"text": text, "start": start}, *ANSWERS[1:]]


BAD = {
    "elsewhere": ({}, right(start=1), r"'ada' at character 1 of context 0.*has 'da '"),
    "below 0": ({}, right(start=-20), "at character -20"),
    "after the end": ({}, right(start=900), "at character 900"),
    "blank": ({}, right(text=" "), 'must have a "text" and its "start".*as answer 0'),
    "no start": ({}, [{"text": "ada"}, *ANSWERS[1:]], "as answer 0"),
    "a string": ({}, ["ada", *ANSWERS[1:]], "Received: 'ada' as answer 0"),
    "positions": ({}, {"start": [1] * 4, "end": [2] * 4}, "Received: the keys .'end', 'start'"),
    "too few answers": ({}, ANSWERS[:3], "4 questions, 4 contexts, 3 answers, 3 starts"),
    "too few starts": ({}, {"text": ["ada"] * 4, "start": [0]}, "4 answers, 1 starts"),
    "one answer": ({}, {"text": "ada", "start": 0}, "4 contexts, 1 answers, 1 starts"),
    "too few contexts": ({"contexts": CONTEXTS[:1]}, ANSWERS, "4 questions, 1 contexts"),
    "no room": (
        {"questions": ["it " * 8] * 4},
        ANSWERS,
        "at most 7 tokens.*8 tokens in question 0",
    ),
    "an unknown key": ({"texts": QUESTIONS}, ANSWERS, "the keys .'contexts', 'questions', 'texts'"),
}


@pytest.mark.parametrize(("changes", "answers", "message"), BAD.values(), ids=BAD)
def test_invalid_examples_raise(changes, answers, message, untrained):
    with pytest.raises(ValueError, match=message):
        untrained.fit({**X, **changes}, answers, verbose=0)


def test_invalid_questions_raise(untrained):
    model = untrained
    with pytest.raises(ValueError, match=r"no dictionary"):
        model.predict(QUESTIONS, verbose=0)
    with pytest.raises(ValueError, match=r"the keys \['questions'\]"):
        model.predict({"questions": QUESTIONS}, verbose=0)
    with pytest.raises(ValueError, match="at most 7 tokens"):
        model.predict({**X, "questions": ["it " * 8] * 4}, verbose=0)
    long = {"questions": ["it " * 8] * 4, "contexts": CONTEXTS}
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="at most 7 tokens"):
        untrained.predict(tf.data.Dataset.from_tensor_slices(long).batch(4), verbose=0)
    with pytest.raises(ValueError, match=r"the keys \['questions'\]"):
        tf.data.Dataset.from_tensor_slices({"questions": QUESTIONS}).batch(4).map(
            lambda x: untrained.preprocessor(x)
        )
    pairs = {"texts": QUESTIONS, "texts_b": CONTEXTS}
    with pytest.raises(ValueError, match=r"the keys \['texts', 'texts_b'\]"):
        model.predict(tf.data.Dataset.from_tensor_slices(pairs).batch(4), verbose=0)


def test_an_overlap_that_is_too_large_raises(untrained):
    tokenizer = untrained.tokenizer
    assert QuestionPreprocessor(untrained, tokenizer, 16, 11).longest_question == 1
    too_large = QuestionPreprocessor(untrained, tokenizer, 16, 12)
    with pytest.raises(ValueError, match=r"below 12 for max_len=16\. Received: overlap=12"):
        too_large.check_questions(["it"])


def test_labels_of_a_dataset_that_are_only_strings_are_rejected(untrained):
    dataset = tf.data.Dataset.from_tensor_slices((X, ["ada", "film", "", "wrote"])).batch(2)
    with pytest.raises(ValueError, match=r"must be \{'text': \(B,\), 'start': \(B,\)\}, the ans"):
        untrained.fit(dataset)
