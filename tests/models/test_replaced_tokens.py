import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from keras_bert_d2l import BERTAdamW
from keras_bert_d2l.models.losses import LogitAUC
from keras_bert_d2l.models.replaced_tokens import ReplacedTokenDetection, replace_tokens
from tests.nightly import nightly_except


@pytest.fixture
def make_both(make_model, make_batch):
    """Return a function that creates a generator and a discriminator, and a batch for them."""

    def make(embeddings="shared", **options):
        keras.utils.set_random_seed(0)
        heads = {"replaced_tokens": True, "next_sentence": False, "pooler": False}
        model = ReplacedTokenDetection(make_model(**heads, **options), 0.5, embeddings)
        features, labels, weights = make_batch()
        features["originals"] = labels.pop("mlm")
        is_token = np.arange(16) < features["valid_lens"][:, None]
        labels = {"mlm": features["originals"], "rtd": np.zeros((8, 16), "int32")}
        return model, (features, labels, {"mlm": weights["mlm"], "rtd": is_token.astype("float32")})

    return make


def learning(model, batch, head):
    """Return the ids of the weights that the loss of one head changes."""
    features, labels, weights = batch
    model.compile(BERTAdamW(1e-3), jit_compile=False)
    with tf.GradientTape() as tape:
        outputs = model(features, training=True)
        only = {name: x * float(name == head) for name, x in weights.items()}
        loss = model.split_loss({**labels, "rtd": outputs["replaced"]}, outputs, only)
    trained = model.trainable_variables
    found = tape.gradient(loss, [x.value for x in trained], unconnected_gradients="zero")
    sizes = [np.abs(tf.convert_to_tensor(gradient)).max() for gradient in found]
    return {id(weight) for weight, size in zip(trained, sizes, strict=True) if size}


def test_drawn_tokens_replace_those_at_the_predicted_positions():
    tokens = np.array([[2, 4, 6, 4, 3], [2, 7, 4, 3, 0]])
    positions = np.array([[1, 3], [2, 0]])  # position 0 is not predicted
    drawn, originals = np.array([[8, 9], [7, 5]]), np.array([[8, 5], [6, 0]])
    found = replace_tokens(tokens, positions, drawn, originals)
    np.testing.assert_array_equal(found[0], [[2, 8, 6, 9, 3], [2, 7, 7, 3, 0]])
    np.testing.assert_array_equal(found[1], [[0, 0, 0, 1, 0], [0, 0, 1, 0, 0]])


@pytest.mark.parametrize("embeddings", nightly_except(["disentangled"], ["shared", "disentangled"]))
def test_the_loss_is_that_of_masked_words_and_fifty_times_that_of_tokens(make_both, embeddings):
    model, (features, labels, weights) = make_both(embeddings)
    model.compile(jit_compile=False)
    outputs = {name: x.numpy() for name, x in model(features).items()}
    words = -np.take_along_axis(log_softmax(outputs["mlm"], -1), labels["mlm"][..., None], -1)
    signed = np.where(outputs["replaced"], -outputs["rtd"], outputs["rtd"])
    expected = np.average(words[..., 0], weights=weights["mlm"])
    expected += 50 * np.average(np.logaddexp(0, signed), weights=weights["rtd"])
    found = model.evaluate(tf.data.Dataset.from_tensors((features, labels, weights)), verbose=0)
    assert found[0] == pytest.approx(expected, rel=1e-5)
    assert 0 < outputs["replaced"].sum() <= (features["pred_positions"] > 0).sum()


@pytest.mark.long
def test_the_embedding_learns_from_both_losses_if_it_is_shared_or_else_from_one(make_both):
    for embeddings in ("shared", "disentangled"):
        model, batch = make_both(embeddings)
        table = model.generator.encoder.token_embedding.embeddings
        assert (table is model.encoder.token_embedding.embeddings) == (embeddings == "shared")
        generator = {id(weight) for weight in model.generator.weights}
        assert learning(model, batch, "mlm") == generator
        found = learning(model, batch, "rtd")
        parts = (model.encoder, model.discriminator.rtd)
        assert found == {id(weight) for part in parts for weight in part.weights}
        assert found.isdisjoint(generator) == (embeddings == "disentangled")


def test_the_discriminator_alone_has_the_sum_of_disentangled_embeddings(make_both):
    model, (features, *_) = make_both("disentangled")
    table = model.encoder.token_embedding.embeddings
    np.testing.assert_array_equal(table, np.zeros(table.shape))
    table.assign(np.random.default_rng(0).normal(size=table.shape))
    batch = {name: features[name] for name in ("tokens", "segments", "valid_lens")}
    expected = model.discriminator(batch)["rtd"]
    np.testing.assert_allclose(model.trained()(batch)["rtd"], expected, rtol=0, atol=1e-5)


def test_the_generator_has_whole_heads_and_evaluations_draw_the_same_tokens(make_both):
    model, (features, *_) = make_both(tie_embeddings=True)
    config = model.generator.bert_config
    assert (config.num_hiddens, config.ffn_num_hiddens, config.num_heads) == (16, 32, 1)
    assert (config.embedding_width, config.replaced_tokens) == (32, False)
    first, second = (model(features)["replaced"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    drawn = [model(features, training=True)["replaced"].numpy() for _ in range(4)]
    assert len({x.tobytes() for x in drawn}) > 1


def test_the_auc_of_logits_ignores_labels_of_weight_0():
    auc = LogitAUC()
    auc.update_state([[0, 1, 1, 0]], [[-2.0, -1.0, 2.0, 9.0]], [[1.0, 1.0, 1.0, 0.0]])
    assert float(auc.result()) == pytest.approx(1.0, abs=1e-6)
    auc.update_state([[1, 0]], [[-9.0, 3.0]])
    assert float(auc.result()) == pytest.approx(2 / 6, abs=1e-3)  # of 3 x 2 pairs
