import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.tasks import explanations
from keras_bert_d2l.text_arguments import TruncationWarning
from tests.family import PRESETS, WORDS, bert_of
from tests.jax_backend import JAX, needs_jax

TEXT, TEXT_B = "the cat sat on a mat", "good film"
SPECIALS = "[PAD] [UNK] [CLS] [SEP] [MASK]".split()


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer of whole words."""
    return kb.Tokenizer(kb.Vocab([*SPECIALS, *dict.fromkeys(map(str.lower, WORDS)), "##s"]))


@pytest.fixture(scope="module")
def linear(tokenizer):
    """A regressor whose score is the mean of the token vectors, times a vector."""
    options = {"num_blks": 0, "embedding_norm": False, "pooler": False, "max_len": 16}
    config = kb.BERTConfig(len(tokenizer.vocab), 8, 16, num_heads=2, dropout=0.0, **options)
    model = kb.SequenceRegressor(kb.BERTModel.from_bert_config(config), tokenizer=tokenizer)
    for weight in model.weights:
        weight.assign(np.random.default_rng(0).normal(0, 1, weight.shape))
    return model


def spread_weights(model):
    """Give a model random weights with which the words matter."""
    random = np.random.default_rng(3)
    for weight in model.weights:
        if len(weight.shape) > 1:
            weight.assign(random.normal(0, 0.3, weight.shape))
    return model


def values(explanation):
    return [one.value for one in explanation.words]


def test_a_linear_model_has_the_attributions_of_its_weights(linear, tokenizer):
    table = linear.encoder.token_embedding.embeddings.numpy()
    vector = linear.head.kernel.numpy()[:, 0]
    tokens = tokenizer("the cats sat")["tokens"][0].numpy()  # [CLS] the cat ##s sat [SEP]
    of_tokens = table[tokens] @ vector / len(tokens)
    of_mask = table[tokenizer.vocab.mask_id] @ vector / len(tokens)
    of_words = np.array([of_tokens[1], of_tokens[2] + of_tokens[3], of_tokens[4]])
    [found] = kb.explain(linear, "The cats sat")
    np.testing.assert_allclose(values(found), of_words - of_mask * np.array([1, 2, 1]), rtol=1e-5)
    [cheap] = kb.explain(linear, "The cats sat", method="gradient_x_input")
    np.testing.assert_allclose(values(cheap), of_words, rtol=1e-5)
    assert (cheap.baseline_logit, cheap.gap) == (None, None)
    places = [(one.word, one.start, one.end, one.side) for one in found.words]
    assert places == [("The", 0, 3, 0), ("cats", 4, 8, 0), ("sat", 9, 12, 0)]
    [quick] = kb.explain(linear, "The cats sat", steps=1)
    np.testing.assert_allclose(values(quick), values(found), rtol=1e-5)
    [other] = kb.explain(linear, "the cats sat", baseline="cat")
    np.testing.assert_allclose(other.words[1].value, of_tokens[3] - of_tokens[2], rtol=1e-4)


def test_the_attributions_equal_the_integral_of_finite_differences(tokenizer):
    bert = kb.BERTModel(len(tokenizer.vocab), 16, 32, 2, 2, 0.0, 16)
    model = spread_weights(kb.SequenceClassifier(bert, ["a", "b", "c"], tokenizer=tokenizer))
    [found] = kb.explain(model, "the cat sat", label="b")
    rows = tokenizer("the cat sat")
    masked = tf.where(tf.range(5) % 4 > 0, tokenizer.vocab.mask_id, rows["tokens"])
    start, end = model.encoder.token_vectors(masked), model.encoder.token_vectors(rows["tokens"])
    step, shares = 1e-2, (np.arange(200) + 0.5)[:, None, None] / 200

    def log_odds(vectors):
        batch = {name: np.repeat(x, len(vectors), axis=0) for name, x in rows.items()}
        encoded = model.encoder(**batch, token_vectors=tf.cast(vectors, "float32"))
        p = tf.nn.softmax(tf.cast(model.head_outputs(encoded), "float64"))[:, 1].numpy()
        return np.log(p / (1 - p))

    for place, value in zip((1, 2, 3), values(found), strict=True):
        change = np.where(np.arange(5)[:, None] == place, end - start, 0)
        points = start + shares * (end - start)
        differences = log_odds(points + step * change) - log_odds(points - step * change)
        largest = 0.015 * abs(found.logit - found.baseline_logit)  # the sum may be wrong by 1%
        assert value == pytest.approx((differences / (2 * step)).mean(), abs=largest)


@pytest.mark.long
@pytest.mark.parametrize("name", PRESETS)
def test_attributions_sum_up_to_the_difference_of_the_outputs(name):
    bert, labels = bert_of(name), ["O", "B", "C"]
    kinds = [
        (kb.SequenceClassifier(bert, labels), TEXT, None),
        (kb.SequenceClassifier(bert, labels, multi_label=True), TEXT, TEXT_B),
        (kb.SequenceRegressor(bert, labels, activation="sigmoid"), TEXT, None),
        (kb.Reranker(bert), TEXT_B, TEXT),
        (kb.TokenClassifier(bert, labels), TEXT.split(), None),
        (kb.QuestionAnswerer(bert), TEXT_B, TEXT),
    ]
    for model, *texts in kinds:
        sides = [" ".join(side) if isinstance(side, list) else side for side in texts]
        for found in kb.explain(spread_weights(model), *texts):
            change = found.logit - found.baseline_logit
            rounding = 1e-5 * (1 + sum(map(abs, values(found))))
            assert abs(sum(values(found)) - change) <= max(0.01 * abs(change), 2 * rounding)
            assert all(one.word == sides[one.side][one.start : one.end] for one in found.words)
            assert " ".join(one.word for one in found.words) == " ".join(filter(None, sides))


def test_each_task_explains_what_it_predicts(tokenizer):
    bert = kb.BERTModel(len(tokenizer.vocab), 16, 32, 2, 1, 0.0, 16)
    bert.tokenizer = tokenizer
    model = spread_weights(kb.SequenceClassifier(bert, ["a", "b", "c"]))
    [found], said = kb.explain(model, TEXT, TEXT_B), kb.classify(model, TEXT, TEXT_B)
    assert sum(values(found)) == pytest.approx(found.logit - found.baseline_logit, rel=0.01)
    assert found.target == said.label
    assert found.logit == pytest.approx(np.log(said.score / (1 - said.score)), abs=1e-5)
    masks = tokenizer(" ".join(["[MASK]"] * 6), " ".join(["[MASK]"] * 2))
    p = tf.nn.softmax(model(masks))[0, model.labels.index(said.label)]
    assert found.baseline_logit == pytest.approx(np.log(p / (1 - p)), abs=1e-5)
    assert [one.target for one in kb.explain(model, TEXT, label=["b", "a"])] == ["b", "a"]
    tagger = spread_weights(kb.TokenClassifier(bert, ["O", "B", "C"]))
    tags = kb.tag(tagger, TEXT)
    [found] = kb.explain(tagger, TEXT, word=2, method="gradient_x_input")
    assert (found.target, found.word) == (tags[2].label, 2)
    p = tags[2].score
    assert found.logit == pytest.approx(np.log(p / (1 - p)), abs=1e-5)
    marked = [one.word for one in kb.explain(tagger, TEXT, method="gradient_x_input")]
    assert marked == [number for number, one in enumerate(tags) if one.label != "O"] != []
    reader = spread_weights(kb.QuestionAnswerer(bert))
    [best], [found] = kb.answer(reader, TEXT_B, TEXT), kb.explain(reader, TEXT_B, TEXT)
    assert (found.target, found.logit) == (best.text, pytest.approx(best.logit, abs=1e-5))


def test_truncated_words_have_no_attribution_and_are_reported(linear):
    with pytest.warns(TruncationWarning, match="Truncated to 4 tokens"):
        [found] = kb.explain(linear, TEXT, max_len=4)
    assert [value != 0 for value in values(found)] == [True, True, *[False] * 4]


def test_a_model_of_windows_is_explained_in_one_row(tokenizer):
    bert = kb.BERTModel(len(tokenizer.vocab), 8, 16, 2, 1, 0.0, 16)
    model = kb.SequenceRegressor(bert, tokenizer=tokenizer, long_texts="max")
    with pytest.warns(TruncationWarning, match="Truncated to 16 tokens"):
        [found] = kb.explain(model, f"{TEXT} " * 9, max_len=60)
    attributions = values(found)
    assert attributions[0] != 0
    assert not any(attributions[14:])


@pytest.mark.filterwarnings("ignore:Truncated to")
def test_a_word_without_its_first_token_has_no_label_to_explain(tokenizer):
    left = kb.Tokenizer(tokenizer.vocab, truncation_side="left")
    bert = kb.BERTModel(len(tokenizer.vocab), 8, 8, 2, 1, 0.0, 16)
    tagger = spread_weights(kb.TokenClassifier(bert, ["B", "C"], tokenizer=left))
    [found] = kb.explain(tagger, "cats sat", steps=1, max_len=4)  # [CLS] ##s sat [SEP]
    p = tf.nn.softmax(tagger(left("cats sat", max_len=4)))[0, 2, int(found.target == "C")]
    assert (found.word, found.logit) == (1, pytest.approx(np.log(p / (1 - p)), abs=1e-5))
    with pytest.raises(ValueError, match=r"`word` must be one of \[1\], whose"):
        kb.explain(tagger, "cats sat", word=0, max_len=4)


def test_only_texts_without_words_or_room_are_not_explained(tokenizer, linear):
    bert = kb.BERTModel(len(tokenizer.vocab), 8, 8, 2, 1, 0.0, 8)
    long = kb.QuestionExamples(questions=["the cat sat on a"], contexts=["mat"])
    blank, empty = kb.TextExamples(texts=[" "]), kb.WordExamples(words=[[]])
    tagger = kb.TokenClassifier(bert, ["B", "C"], tokenizer=tokenizer)
    reader = kb.QuestionAnswerer(bert, tokenizer=tokenizer)
    for model, examples in ((linear, blank), (reader, long), (tagger, empty)):
        assert [*explanations.with_explanations(model, examples, [{}])] == [{"explanations": []}]
    with pytest.raises(ValueError, match="`method` must be"):
        list(explanations.with_explanations(linear, blank, [{}], method="lime"))


def test_an_incomplete_sum_is_reported(linear, monkeypatch):
    monkeypatch.setattr(explanations, "_gradients", lambda output, vectors: 2 * vectors)
    with pytest.warns(UserWarning, match=r"after 512 steps. Load the model in float32"):
        kb.explain(linear, "the cat")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (["the", "cat"], {}, r"`text` must be a string for a SequenceRegressor. Received: text="),
        ("the cat", {"word": 1}, "`word` must be None for a SequenceRegressor"),
        ("the cat", {"label": "bad"}, "`label` must be .*score.*'bad'"),
        ("the cat", {"method": "lime"}, "`method` must be"),
        ("the cat", {"steps": 0}, "`steps` must be .* 1"),
        ("the cat", {"steps": 8, "method": "gradient_x_input"}, "`steps` must be None with method"),
        ("the cat", {"baseline": "xyz"}, "`baseline` must be a token of the vocabulary.*'xyz'"),
        (" ", {}, "`text` must be a text with words"),
    ],
)
def test_wrong_arguments_are_named(linear, text, options, message):
    with pytest.raises(ValueError, match=message):
        kb.explain(linear, text, **options)


@needs_jax
@pytest.mark.long
def test_models_under_jax_are_explained(fresh_process):
    code = """
import keras, keras_bert_d2l as kb; keras.utils.set_random_seed(2)
tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat".split()))
bert = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
model = kb.SequenceClassifier(bert, ["a", "b"], tokenizer=tokenizer)
for weight in model.weights:
    weight.assign(10 * weight.numpy())
[found] = kb.explain(model, "the cat sat")
change = found.logit - found.baseline_logit
assert abs(found.gap) <= 0.01 * abs(change) + 1e-4, found
"""
    fresh_process(code, **JAX)


@pytest.mark.long
def test_deleting_the_marked_words_changes_decisions_on_sst2_more_than_deleting_others(data_dir):
    keras.utils.set_random_seed(0)
    train, dev = (
        kb.read_examples("classify", data_dir / "sst2" / f"{name}.tsv.gz")
        for name in ("train", "dev")
    )
    tokenizer = kb.load_tokenizer("novels-small")
    bert = kb.BERTModel(len(tokenizer.vocab), 64, 128, 2, 1, 0.1, 128)
    model = kb.SequenceClassifier(bert, ["0", "1"], pooling="mean", tokenizer=tokenizer)
    model.compile(kb.BERTAdamW(2e-3))
    model.fit(list(train.texts[:12_000]), list(train.labels[:12_000]), batch_size=64, verbose=0)
    texts = [text for text in dev.texts if 8 <= len(text.split()) <= 20][:30]
    random, left = np.random.default_rng(0), {"marked": [], "random": []}
    for text in texts:
        [found] = kb.explain(model, text)
        best = sorted(found.words, key=lambda one: -one.value)[:2]
        others = random.choice(len(found.words), 2, replace=False)
        for name, words in (("marked", best), ("random", [found.words[n] for n in others])):
            gone = {n for one in words for n in range(one.start, one.end)}
            left[name].append("".join(c for n, c in enumerate(text) if n not in gone))
    said = kb.classify(model, texts)

    def drop(name):
        after = kb.classify(model, left[name])
        pairs = zip(said, after, strict=True)
        return np.mean([one.score - other.scores[one.label] for one, other in pairs])

    assert drop("marked") > 2 * max(drop("random"), 0.02)
