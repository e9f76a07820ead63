import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, log_softmax, softmax

import keras_bert_d2l as kb
from keras_bert_d2l.models.embedding_losses import ContrastiveLoss
from keras_bert_d2l.models.losses import (
    WeightedBinaryCrossEntropy,
    WeightedCrossEntropy,
    WeightedSquaredError,
)
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS
from keras_bert_d2l.training.distillation.distill import (
    SoftLabelLoss,
    _batches,
    _Lesson,
    hidden_loss,
)
from tests.nightly import nightly_except

WORDS = "the cat dog sat ran on mat rug good bad ##s ##ly".split()
TEXTS = ["the cat sat", "good dogs ran on the mat", "bad rug", "the dog sat on the rug badly"]
TOKENIZER = kb.Tokenizer(kb.Vocab([*GOOGLE_SPECIALS, *WORDS]))
DOCUMENTS = [["the cat sat on the mat", "the dog ran"] * 3, ["good dog", "bad cat ran"] * 3]
MANY = TEXTS * 6
CASES = {
    "classify": (functools.partial(kb.SequenceClassifier, labels=["bad", "good"]), MANY),
    "multi_label": (
        functools.partial(kb.SequenceClassifier, labels=["a", "b"], multi_label=True),
        MANY,
    ),
    "regress": (kb.SequenceRegressor, {"text": MANY, "text_b": MANY[::-1]}),
    "tag": (
        functools.partial(kb.TokenClassifier, labels=["NOUN", "VERB"]),
        kb.WordExamples(words=[text.split() for text in MANY]),
    ),
    "crf": (
        functools.partial(kb.TokenClassifier, labels=["NOUN", "VERB"], crf=True),
        kb.WordExamples(words=[text.split() for text in MANY]),
    ),
    "answer": (kb.QuestionAnswerer, {"question": MANY, "context": MANY[::-1]}),
    "choose": (kb.MultipleChoice, kb.ChoiceExamples(texts=MANY, choices=[["mat", "rug"]] * 24)),
    "embed": (kb.TextEmbedder, MANY),
    "pretrain": (lambda bert: bert, DOCUMENTS * 6),
}


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Run eagerly, because tracing the graph of a small model takes longer than running it."""
    compile = functools.partialmethod(keras.Model.compile, run_eagerly=True)
    monkeypatch.setattr(_Lesson, "compile", compile)


def make_bert(dropout=0.0):
    bert = kb.BERTModel(len(TOKENIZER.vocab), 8, 16, 2, num_blks=3, dropout=dropout, max_len=24)
    bert.tokenizer = TOKENIZER
    rng = np.random.default_rng(0)
    for weight in bert.weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    return bert


def make_teacher(task="classify"):
    kind, data = CASES[task]
    keras.utils.set_random_seed(0)  # for the weights of a new head
    return kind(make_bert()), data


def outputs(count, *, classes=4):
    rng = np.random.default_rng(count)
    return rng.normal(size=(2, 5, 3, classes)).astype("float32")


def test_soft_labels_of_classes_have_the_divergence_of_the_probabilities():
    teacher, student = outputs(1)[0], outputs(2)[0]
    p, q = softmax(teacher / 3, axis=-1), softmax(student / 3, axis=-1)
    expected = 9 * np.sum(p * np.log(p / q), axis=-1)
    loss = SoftLabelLoss(WeightedCrossEntropy, temperature=3.0)
    np.testing.assert_allclose(loss.call(teacher, student), expected, rtol=1e-4)
    weights = np.array([[0, 1, 2], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]], "float32")
    mean = np.sum(expected * weights) / weights.sum()
    assert float(loss(teacher, student, weights)) == pytest.approx(mean, rel=1e-4)
    assert float(loss(teacher, teacher)) == pytest.approx(0, abs=1e-6)


def test_soft_labels_of_independent_classes_have_the_divergence_of_each():
    teacher, student = outputs(1)[0, 0], outputs(2)[0, 0]
    p, q = expit(teacher / 2), expit(student / 2)
    expected = 4 * (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
    loss = SoftLabelLoss(WeightedBinaryCrossEntropy, temperature=2.0)
    np.testing.assert_allclose(loss.call(teacher, student), expected, rtol=1e-3, atol=1e-6)


def test_scores_are_compared_by_their_difference_and_vectors_by_their_cosine():
    teacher, student = outputs(1)[0, 0], outputs(2)[0, 0]
    squares = SoftLabelLoss(WeightedSquaredError, 2.0)(teacher, student)
    assert float(squares) == pytest.approx(np.mean((teacher - student) ** 2), rel=1e-5)
    norms = np.linalg.norm(teacher, axis=1) * np.linalg.norm(student, axis=1)
    expected = 1 - np.mean(np.sum(teacher * student, axis=1) / norms)
    cosines = SoftLabelLoss(ContrastiveLoss, 2.0)(teacher, student)
    assert float(cosines) == pytest.approx(expected, rel=1e-4)


def test_hidden_states_are_compared_at_tokens_only():
    teacher, student = outputs(1)[0], outputs(2)[0]
    is_token = np.array([[1, 1, 0]] * 4 + [[1, 0, 0]], "float32")
    squares = np.mean((teacher - student) ** 2, axis=-1)
    expected = np.sum(squares * is_token) / is_token.sum()
    assert float(hidden_loss(teacher, student, is_token)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_the_loss_of_a_batch_is_that_of_the_outputs_and_of_the_kept_blocks():
    bert = make_bert()
    lesson = _Lesson(bert, student := kb.keep_blocks(bert, [1, 3]), [1, 3], 2.0)
    [batch] = kb.pretraining_dataset(DOCUMENTS, TOKENIZER, batch_size=2, max_len=12).take(1)
    x, y, weights = batch
    found = float(lesson.compute_loss(x, y, lesson(x), weights))
    expected = 0.0
    teach, learn = (model(x, return_hidden_states=True) for model in (bert, student))
    for head in ("mlm", "nsp"):
        p, q = (log_softmax(np.asarray(part[head]) / 2, axis=-1) for part in (teach, learn))
        losses = 4 * np.sum(np.exp(p) * (p - q), axis=-1)
        expected += np.average(losses, weights=weights[head])
    is_token = np.arange(12) < np.asarray(x["valid_lens"])[:, None]
    for block, state in zip([1, 3], learn["hidden_states"][1:], strict=True):
        squares = np.mean((teach["hidden_states"][block] - state) ** 2, axis=-1)
        expected += np.mean(squares[is_token])
    assert found == pytest.approx(expected, rel=1e-4)


def test_the_last_states_are_compared_after_the_final_normalization():
    sizes = {"num_heads": 2, "num_blks": 2, "dropout": 0.0, "max_len": 24}
    options = {"norm_first": True, "final_norm": True}
    teacher = kb.BERTModel(len(TOKENIZER.vocab), 8, 16, **sizes, **options)
    unused = teacher.encoder.blks[1]  # without it, the student is the same model
    for layer in (unused.attention.W_o, unused.ffn.dense2):
        layer.kernel.assign(0 * layer.kernel)
    lesson = _Lesson(teacher, kb.keep_blocks(teacher, [1]), [1], 2.0)
    [batch] = kb.pretraining_dataset(DOCUMENTS, TOKENIZER, batch_size=2, max_len=12).take(1)
    x, y, weights = batch
    assert float(lesson.compute_loss(x, y, lesson(x), weights)) == pytest.approx(0.0, abs=1e-6)


def test_the_loss_of_a_student_in_float16_is_scaled():
    sizes = {"num_heads": 2, "num_blks": 1, "dropout": 0.0, "max_len": 24}
    teacher = kb.BERTModel(len(TOKENIZER.vocab), 8, 16, **sizes, dtype="mixed_float16")
    lesson = _Lesson(teacher, kb.keep_blocks(teacher, [1]), [1], 2.0)
    lesson.compile(kb.BERTAdamW(1e-3))
    assert isinstance(lesson.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.slow
@pytest.mark.parametrize("task", nightly_except(["pretrain"], CASES))
def test_the_loss_of_any_task_is_zero_if_the_student_equals_the_teacher(task):
    teacher, data = make_teacher(task)
    [batch] = _batches(teacher, data, 4, 16, 0)(0).take(1)
    x, _, weights = keras.utils.unpack_x_y_sample_weight(batch)

    def loss(blocks):
        lesson = _Lesson(teacher, kb.keep_blocks(teacher, blocks), blocks, 2.0)
        return float(lesson.compute_loss(x, None, lesson(x), weights))

    assert loss([1, 2, 3]) == pytest.approx(0, abs=1e-6)
    assert loss([1, 3]) > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("task", ["tag", "crf", "pretrain"])
def test_a_student_approaches_its_teacher(task, tmp_path):
    teacher, data = make_teacher(task)
    if task == "crf":
        teacher.crf.transitions.assign(np.eye(2))
    options = {"epochs": 1, "batch_size": 4, "max_len": 16, "verbose": 0}
    kb.save_pretrained(teacher, tmp_path / "teacher")
    student = kb.distill(tmp_path / "teacher", data, [1, 3], learning_rate=1e-2, **options)
    assert distance(teacher, student) < 0.8 * distance(teacher, kb.keep_blocks(teacher, [1, 3]))
    assert type(student) is type(teacher)
    assert student.bert_config.num_blks == 2
    assert student.tokenizer.vocab == teacher.tokenizer.vocab
    if task == "crf":  # learns the logits that suit the CRF
        np.testing.assert_array_equal(student.crf.transitions, np.eye(2))
    assert all(weight.trainable for weight in student.weights)


def distance(teacher, student):
    batch = TOKENIZER(TEXTS)
    found, expected = (model.encoder(**batch).numpy() for model in (student, teacher))
    is_token = np.arange(found.shape[1]) < np.asarray(batch["valid_lens"])[:, None]
    return np.mean((found - expected)[is_token] ** 2)


@pytest.mark.long
def test_a_student_is_saved_loaded_and_repeated_with_the_same_seed(tmp_path):
    teacher, texts = kb.SequenceClassifier(make_bert(dropout=0.1), ["bad", "good"]), MANY
    first, second = (
        kb.distill(teacher, texts[:8], [2], epochs=1, batch_size=4, seed=3, verbose=0)
        for _ in range(2)
    )
    kb.save_pretrained(first, tmp_path / "student")
    loaded = kb.SequenceClassifier.from_pretrained(tmp_path / "student")
    expected = first.predict(TEXTS, verbose=0)
    np.testing.assert_array_equal(second.predict(TEXTS, verbose=0), expected)
    np.testing.assert_array_equal(loaded.predict(TEXTS, verbose=0), expected)


@pytest.mark.long
def test_every_epoch_is_printed_and_a_student_that_diverges_is_not_returned(capsys):
    teacher, data = make_teacher("classify")
    kb.distill(teacher, data, [1], epochs=1, verbose=2)
    assert re.fullmatch(r"Epoch 1/1: loss \d\.\d{4}\n", capsys.readouterr().out)
    with pytest.raises(FloatingPointError, match="diverged: the loss of epoch"):
        kb.distill(teacher, data, [1], learning_rate=1e30, epochs=2, verbose=0)


@pytest.mark.long
def test_heads_that_a_checkpoint_lacked_are_not_taught():
    bert = make_bert()
    bert.missing_heads = frozenset({"nsp"})
    student = kb.distill(bert, DOCUMENTS, [2], epochs=1, batch_size=2, max_len=12, verbose=0)
    assert (student.missing_heads, student.nsp.trainable) == ({"nsp"}, True)
    for old, new in zip(bert.nsp.get_weights(), student.nsp.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    bert.missing_heads = frozenset({"mlm"})
    with pytest.raises(ValueError, match="needs a model with a trained 'mlm' head"):
        kb.distill(bert, DOCUMENTS, [2])


def test_batches_of_a_dataset_are_checked():
    batch = {"tokens": np.full((2, 4), 99), "segments": np.zeros((2, 4), int)}
    with pytest.raises(ValueError, match="`tokens` must be"):
        kb.distill(make_teacher()[0], tf.data.Dataset.from_tensors(batch), [1], epochs=1, verbose=0)


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("classify", {"blocks": [0, 1]}, "`blocks` must be numbers from 1 to 3"),
        ("classify", {"temperature": 0}, "`temperature` must be a positive"),
        ("classify", {"data": CASES["tag"][1]}, "must be examples for the task 'classify'"),
        ("classify", {"epochs": 0}, "`epochs` must be an integer of at least 1"),
        ("classify", {"max_len": 99}, "`max_len` must be from 1 to 24"),
        ("pretrain", {"max_len": 0}, "`max_len` must be an integer of at least 3"),
    ],
)
def test_wrong_arguments_are_rejected(task, arguments, message):
    teacher, data = make_teacher(task)
    with pytest.raises(ValueError, match=message):
        kb.distill(teacher, **{"data": data, "blocks": [1], **arguments})
