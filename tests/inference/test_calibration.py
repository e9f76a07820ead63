"""Temperatures and thresholds equal those of scipy and scikit-learn; probabilities use them."""

import keras
import numpy as np
import pytest
import scipy.optimize
import scipy.special
import sklearn.metrics

import keras_bert_d2l as kb
from keras_bert_d2l.inference.calibration import best_threshold, fit_temperature
from tests.jax_backend import JAX, needs_jax
from tests.nightly import nightly_except

WORDS = [f"w{n}" for n in range(20)]
TOKENIZER = kb.Tokenizer(kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
TEXTS = [" ".join(row) for row in np.random.default_rng(0).choice(WORDS, (80, 4))]
LABELS = ["a", "b", "c"]
SEVERAL = {"multi_label": True, "temperature": 2.5, "thresholds": [0.25, 0.5, 0.75]}


def make(kind, *args, scale=5, **options):
    """Return a model with random weights whose logits differ by a few units."""
    sizes = {"num_hiddens": 8, "ffn_num_hiddens": 8, "max_len": 12}
    config = kb.BERTConfig.preset("tiny", vocab_size=25, dropout=0.0, **sizes)
    keras.utils.set_random_seed(0)
    model = kind(kb.BERTModel.from_bert_config(config), *args, tokenizer=TOKENIZER, **options)
    model.run_eagerly = True
    kernel = model.head.kernel
    kernel.assign(np.random.default_rng(1).normal(0, scale, kernel.shape))
    return model


def drawn(logits):
    """Return labels with the probabilities of the logits divided by 3."""
    return (logits / 3 + np.random.default_rng(2).gumbel(size=logits.shape)).argmax(axis=-1)


def test_a_known_temperature_is_found_and_equals_that_of_scipy():
    logits = np.random.default_rng(0).normal(size=(20_000, 5)) * 4
    labels = drawn(logits)

    def loss(temperature):
        return -scipy.special.log_softmax(logits / temperature, axis=1)[
            np.arange(len(labels)), labels
        ].mean()

    found = fit_temperature(loss)
    assert found == pytest.approx(3, rel=0.05)
    expected = scipy.optimize.minimize_scalar(loss, bounds=(0.1, 10), method="bounded")
    assert loss(found) <= expected.fun + 1e-12


@pytest.mark.parametrize("digits", [1, 3])
def test_a_threshold_has_the_best_f1_of_all(digits):
    rng = np.random.default_rng(0)
    for size in range(30, 60, 10):
        scores = np.round(rng.random(size), digits).astype("float32")
        has_label = (rng.random(size) < 0.7 * scores) | (np.arange(size) < 10)
        found = best_threshold(scores, has_label)
        f1 = [
            sklearn.metrics.f1_score(has_label, scores >= least) for least in (found, 0.5, *scores)
        ]
        assert f1[0] == max(f1)
        assert found == 0.5 or f1[0] > f1[1]
    assert best_threshold(scores, np.arange(size) < 9) == 0.5


def classify(model):
    logits = model.predict(TEXTS)
    labels = drawn(logits)
    return kb.TextExamples(texts=TEXTS, labels=[LABELS[n] for n in labels]), logits, labels


def several(model):
    logits = model.predict(TEXTS)
    hot = np.random.default_rng(2).random(logits.shape) < scipy.special.expit(logits / 3)
    labels = [tuple(np.array(LABELS)[row].tolist()) for row in hot]
    two = np.stack([np.zeros(logits.size), logits.ravel()], axis=1)
    return kb.TextExamples(texts=TEXTS, labels=labels), two, hot.ravel().astype(int)


def tag(model):
    words = [text.split() for text in TEXTS]
    logits = model.predict(words)[:, 1:5]  # of the words, which have one token each
    labels = drawn(logits)
    named = [[LABELS[n] for n in row] for row in labels]
    return kb.WordExamples(words=words, labels=named), logits.reshape(-1, 3), labels.ravel()


def choose(model):
    choices = [(WORDS[n % 20], WORDS[n % 7 - 7], WORDS[n % 3 + 4]) for n in range(len(TEXTS))]
    logits = model.predict({"texts": TEXTS, "choices": choices})
    labels = drawn(logits)
    examples = kb.ChoiceExamples(texts=TEXTS, choices=choices, labels=labels.tolist())
    return examples, logits, labels


CASES = {
    classify: lambda: make(kb.SequenceClassifier, LABELS, pooling="mean"),
    several: lambda: make(kb.SequenceClassifier, LABELS, pooling="mean", multi_label=True),
    tag: lambda: make(kb.TokenClassifier, LABELS),
    choose: lambda: make(kb.MultipleChoice, pooling="mean", scale=60),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", nightly_except({"classify", "tag"}, CASES))
def test_the_temperature_of_a_model_is_that_of_scipy_and_keeps_its_decisions(case):
    model = CASES[case]()
    examples, logits, labels = case(model)

    def loss(temperature):
        all_logs = scipy.special.log_softmax(logits.astype("float64") / temperature, axis=1)
        return -all_logs[np.arange(len(labels)), labels].sum()

    found = kb.calibrate(model, examples)
    options = {"bounds": (0.1, 10), "method": "bounded", "options": {"xatol": 1e-8}}
    expected = scipy.optimize.minimize_scalar(loss, **options).x
    assert model.temperature == found.temperature == pytest.approx(expected, rel=1e-3)
    assert expected > 1.5
    before, after = found.before, kb.evaluate(model, examples).decisions
    np.testing.assert_array_equal(before.is_right, after.is_right)
    assert before.calibration_error > max(after.calibration_error, found.after.calibration_error)
    assert not np.array_equal(np.sort(found.after.confidence), np.sort(after.confidence))
    assert (found.thresholds is None) == (case is not several)


@pytest.mark.long
def test_the_temperature_of_a_crf_divides_all_its_scores():
    model, rng = make(kb.TokenClassifier, LABELS, crf=True), np.random.default_rng(1)
    examples, logits, labels = tag(model)
    logits, labels = logits.reshape(-1, 4, 3), labels.reshape(-1, 4)
    for weight in model.crf.weights:
        weight.assign(3 * rng.normal(size=weight.shape))
    scaled = kb.CRF(3)

    def loss(temperature):
        for mine, theirs in zip(scaled.weights, model.crf.weights, strict=True):
            mine.assign(theirs / temperature)
        return -float(np.sum(scaled.log_likelihood(logits / temperature, labels)))

    found = kb.calibrate(model, examples).temperature
    assert 1.2 < found < 9
    assert loss(found) < min(loss(0.98 * found), loss(1.02 * found))
    decisions = kb.evaluate(model, examples).decisions
    loss(found)  # scales the weights
    best = np.asarray(model.crf.viterbi(logits))
    expected = np.take_along_axis(np.asarray(scaled.marginals(logits / found)), best[..., None], 2)
    np.testing.assert_allclose(decisions.confidence, expected.ravel(), rtol=1e-4)
    np.testing.assert_array_equal(decisions.is_right, (best == labels).ravel())


def temperatures():
    """Return those of two taggers whose weights do not depend on the backend."""
    found, rng = [], np.random.default_rng(0)
    for crf in (False, True):
        model = make(kb.TokenClassifier, LABELS, crf=crf)
        for weight in model.weights:
            weight.assign(rng.normal(size=weight.shape))
        found.append(kb.calibrate(model, tag(model)[0]).temperature)
    return found


@needs_jax
@pytest.mark.long
def test_jax_finds_the_temperatures_of_tensorflow(fresh_process):
    code = "del sys.modules['sklearn']\nfrom tests.inference.test_calibration import temperatures"
    said = fresh_process(f"{code}\nprint(*temperatures())", **JAX)
    found = [float(one) for one in said.split()[-2:]]
    np.testing.assert_allclose(found, temperatures(), rtol=1e-3)
    assert 1 not in found


@pytest.mark.long
def test_probabilities_are_those_of_the_divided_logits():
    model = make(kb.SequenceClassifier, LABELS, temperature=2.5)
    p = scipy.special.softmax(model.predict(TEXTS[:3]) / 2.5, axis=1)
    np.testing.assert_allclose(model.predict(TEXTS[:3], probabilities=True), p, rtol=1e-5)
    scores = [[*one.scores.values()] for one in kb.classify(model, TEXTS[:3])]
    np.testing.assert_allclose(scores, p, rtol=1e-5)
    options = {"multi_label": True, "thresholds": [0, 0.5, 0.99], "scale": 9}
    model = make(kb.SequenceClassifier, LABELS, **options)
    p = scipy.special.expit(model.predict(TEXTS))
    chosen = [[n in one.labels for n in LABELS] for one in kb.classify(model, TEXTS)]
    np.testing.assert_array_equal(chosen, p >= [0, 0.5, 0.99])


def test_the_temperature_stays_1_without_errors_and_with_few_examples():
    model = make(kb.SequenceClassifier, ["a", "b"])
    names = [one.label for one in kb.classify(model, TEXTS)]
    assert kb.calibrate(model, kb.TextExamples(texts=TEXTS, labels=names)).temperature == 1
    names = ["b" if name == "a" else "a" for name in names]  # all wrong
    wrong = kb.TextExamples(texts=TEXTS, labels=names)
    assert kb.calibrate(model, wrong).temperature == pytest.approx(10)
    few = kb.TextExamples(texts=TEXTS[:19], labels=names[:19])
    assert kb.calibrate(model, few).temperature == model.temperature == 1
    one = kb.TextExamples(texts=TEXTS[:1], labels=names[:1])
    assert len(kb.calibrate(model, one).after.confidence) == 1


@pytest.mark.long
def test_training_resets_the_calibration():
    model = make(kb.SequenceClassifier, LABELS, **SEVERAL)
    model.compile("sgd", run_eagerly=True)
    model.evaluate(TEXTS[:2], [["a"], []], verbose=0)
    assert model.temperature == 2.5
    model.fit(TEXTS[:2], [["a"], []], verbose=0)
    assert (model.temperature, model.thresholds) == (1, None)


@pytest.mark.parametrize(
    "form",
    nightly_except(["native", "huggingface"], ["keras", "native", "huggingface", "kerashub"]),
)
def test_files_keep_the_calibration(form, tmp_path):
    model = make(kb.SequenceClassifier, LABELS, **SEVERAL)
    if form == "keras":
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
    else:
        kb.save_pretrained(model, tmp_path / "model", format=form)
        loaded = kb.load_pretrained(tmp_path / "model").model
    assert (loaded.temperature, loaded.thresholds) == (2.5, (0.25, 0.5, 0.75))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"temperature": 2.5', '"temperature": 0', "`temperature` must be a positive"),
        ('"temperature": 2.5', '"temperature": "x"', "`temperature` must be a positive"),
        ('"calibration": {', '"calibration": 3, "x": {', "`calibration` must be a `dict`"),
    ],
)
def test_damaged_calibrations_are_refused(old, new, message, tmp_path):
    model = make(kb.SequenceClassifier, LABELS, temperature=2.5)
    kb.save_pretrained(model, tmp_path / "model", format="huggingface")
    file = tmp_path / "model/config.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    (tmp_path / "model/SHA256SUMS").unlink()
    with pytest.raises(ValueError, match=message):
        kb.load_pretrained(tmp_path / "model")


def test_wrong_arguments_are_refused():
    bert = make(kb.SequenceClassifier, LABELS)
    for kind, options in (
        (kb.SequenceRegressor, {"temperature": 2}),
        (kb.SequenceClassifier, {"labels": LABELS, "thresholds": [0.5] * 3}),
        (kb.SequenceClassifier, {"labels": LABELS, "thresholds": [0.5], "multi_label": True}),
        (kb.SequenceClassifier, {"labels": LABELS, "temperature": float("inf")}),
    ):
        with pytest.raises(ValueError, match="`(temperature|thresholds)` must be"):
            kind(kb.BERTModel.from_layers(bert.encoder), **options)
    with pytest.raises(ValueError, match="`model` must be a task model with probabilities"):
        kb.calibrate(kb.SequenceRegressor(kb.BERTModel.from_layers(bert.encoder)), [("a", 1.0)])


def test_the_expected_calibration_error_is_that_of_its_definition():
    confidence, drawn_right = np.random.default_rng(0).random((2, 500))
    confidence, is_right = confidence**0.3, drawn_right < 0.6
    confidence[:3] = 0, 1, 0.2
    decisions, expected = kb.Decisions(confidence, is_right), 0.0
    for b in range(15):
        chosen = (confidence > (b / 15 if b else -1)) & (confidence <= (b + 1) / 15)
        if chosen.any():
            expected += chosen.mean() * abs(confidence[chosen].mean() - is_right[chosen].mean())
    assert decisions.calibration_error == pytest.approx(expected)
    assert sum(count for *_, count in decisions.bins()) == 500


def test_risks_are_those_of_the_most_confident_decisions():
    decisions = kb.Decisions.of([(0.9, True), (0.8, False), (0.8, True), (0.6, False)])
    assert decisions.risk_coverage() == [(0.25, 0), (0.75, pytest.approx(1 / 3)), (1, 0.5)]
    assert decisions.with_confidence(0.8) == (0.75, pytest.approx(2 / 3))
    assert np.isnan(decisions.with_confidence(0.95)[1])
    with pytest.raises(ValueError, match="`least` must be a positive, finite number of at most 1"):
        decisions.with_confidence(90)
