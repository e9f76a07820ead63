"""d2l.ai, section 15.10: losses, training and encodings."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import book as d2l
from keras_bert_d2l.checkpoints.weights import named_weights

VOCAB = d2l.Vocab(
    "a crane is flying driver came he just left".split(),
    reserved_tokens=["<pad>", "<mask>", "<cls>", "<sep>"],
)
V, B, T, P = len(VOCAB), 4, 12, 2


@pytest.fixture
def net():
    return d2l.BERTModel(V, 16, 32, 2, 1, 0.1, max_len=T)


@pytest.fixture
def batch():
    """A batch of the book's seven tensors. The second prediction of each pair is padding."""
    rng = np.random.default_rng(0)
    return (
        tf.constant(rng.integers(5, V, (B, T)), tf.int32),
        tf.constant([[0] * 6 + [1] * 6] * B),
        tf.constant([T, 9.0, T, 7.0]),
        tf.constant([[1, 0], [2, 0], [3, 0], [4, 0]]),
        tf.constant([[1.0, 0.0]] * B),
        tf.constant([[5, 0], [6, 0], [7, 0], [8, 0]]),
        tf.constant([0, 1, 1, 0]),
    )


def cross_entropy(logits, labels):
    logits = np.asarray(logits, "float64")
    log_sum = np.log(np.exp(logits).sum(-1))
    return log_sum - np.take_along_axis(logits, np.asarray(labels)[..., None], -1)[..., 0]


# 15.10.1: the losses of a batch


def test_the_mlm_loss_is_the_mean_over_real_predictions(net, batch):
    mlm_l, nsp_l, total = d2l._get_batch_loss_bert(net, V, *batch, training=False)
    tokens, segments, valid_lens, positions, weights, mlm_Y, nsp_y = batch
    _, mlm_Y_hat, nsp_Y_hat = net(tokens, segments, valid_lens, positions)
    per_slot = cross_entropy(mlm_Y_hat, mlm_Y)
    assert float(mlm_l) == pytest.approx(np.average(per_slot, weights=weights), rel=1e-5)
    assert float(mlm_l) != pytest.approx(per_slot.mean(), rel=1e-3)  # mean including padded slots
    assert float(nsp_l) == pytest.approx(cross_entropy(nsp_Y_hat, nsp_y).mean(), rel=1e-5)
    assert float(total) == pytest.approx(float(mlm_l) + float(nsp_l))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    of_pytorch = d2l._get_batch_loss_bert(net, loss, V, *batch, training=False)  # its order
    np.testing.assert_array_equal(of_pytorch, (mlm_l, nsp_l, total))


def test_the_losses_have_gradients(net, batch):
    with tf.GradientTape() as tape:
        _, _, total = d2l._get_batch_loss_bert(net, V, *batch)
    assert all(gradient is not None for gradient in tape.gradient(total, net.trainable_variables))


def test_a_vocabulary_size_that_differs_from_the_models_raises(net, batch):
    with pytest.raises(ValueError, match=f"{V}. Received: vocab_size={V + 1}"):
        d2l._get_batch_loss_bert(net, V + 1, *batch)
    with pytest.raises(ValueError, match=f"{V}. Received: vocab_size={V + 1}"):
        d2l.train_bert([batch], net, V + 1, ["/CPU:0"], 1)


# 15.10.1: training


@pytest.fixture
def eager():
    """Run compiled functions eagerly, which is faster for a few steps."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.slow
def test_training_lowers_the_loss_over_several_epochs_and_prints_the_speed(batch, capsys, eager):
    net = d2l.BERTModel(V, 16, 32, 2, 0, 0.1, max_len=T)
    two_batches = tf.data.Dataset.from_tensors(batch).repeat(2)
    before = float(d2l._get_batch_loss_bert(net, V, *batch, training=False)[2])
    optimizer = keras.optimizers.Adam(0.02)
    d2l.train_bert(two_batches, net, V, ["/CPU:0"], 9, optimizer=optimizer)
    after = float(d2l._get_batch_loss_bert(net, V, *batch, training=False)[2])
    assert after < before - 0.5
    assert int(net.optimizer.iterations) == 9
    speed = capsys.readouterr().out.splitlines()[-1]
    assert speed.endswith(" sentence pairs/sec on ['/CPU:0']")
    assert float(speed.split()[0]) > 0


@pytest.mark.slow
def test_the_printed_losses_are_the_means_over_the_steps(batch, capsys, eager):
    net = d2l.BERTModel(V, 16, 32, 2, 0, 0.0, max_len=T)
    batches = [batch, (tf.reverse(batch[0], [1]), *batch[1:])]
    still = keras.optimizers.SGD(0.0)
    d2l.train_bert(batches, net, V, [], 2, optimizer=still)
    losses = [d2l._get_batch_loss_bert(net, V, *one)[:2] for one in batches]
    mlm_l, nsp_l = np.mean(losses, axis=0)
    assert f"MLM loss {mlm_l:.3f}, NSP loss {nsp_l:.3f}\n" in capsys.readouterr().out
    # The PyTorch edition's order of the arguments, the default optimizer and a single step
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    d2l.train_bert(batches, net, loss, V, d2l.try_all_gpus(), 1)
    assert "sentence pairs/sec on ['/device:CPU:0']" in capsys.readouterr().out
    assert float(net.optimizer.learning_rate) == pytest.approx(1e-4)


def test_an_empty_iterator_raises(net):
    with pytest.raises(ValueError, match="`train_iter` is empty"):
        d2l.train_bert([], net, V, ["/CPU:0"], 1)


@pytest.mark.long
def test_a_compiled_model_evaluates_held_out_batches(net, batch):
    net.compile(run_eagerly=True)
    valid_iter = tf.data.Dataset.from_tensors(batch).map(d2l.to_keras_batch)
    losses = net.evaluate(valid_iter, verbose=0, return_dict=True)
    mlm_l, nsp_l, _ = d2l._get_batch_loss_bert(net, V, *batch, training=False)
    assert losses["mlm_cross_entropy"] == pytest.approx(float(mlm_l), rel=1e-5)
    assert losses["nsp_cross_entropy"] == pytest.approx(float(nsp_l), rel=1e-5)


# 15.10.2: encodings


def test_texts_and_pairs_are_encoded_with_their_special_tokens(net):
    tokens_a = ["a", "crane", "is", "flying"]
    encoded_text = d2l.get_bert_encoding(net, tokens_a, vocab=VOCAB)
    # <cls>, a, crane, is, flying, <sep>
    assert encoded_text.shape == (1, 6, 16)
    tokens_a, tokens_b = ["a", "crane", "driver", "came"], ["he", "just", "left"]
    encoded_pair = d2l.get_bert_encoding(net, tokens_a, tokens_b, vocab=VOCAB)
    # <cls>, a, crane, driver, came, <sep>, he, just, left, <sep>
    assert encoded_pair.shape == (1, 10, 16)
    # The same word in a different context
    assert not np.allclose(encoded_text[0, 2], encoded_pair[0, 2], atol=1e-3)
    tokens, segments = d2l.get_tokens_and_segments(["a", "crane", "is", "flying"])
    expected, _, _ = net(np.array([VOCAB[tokens]]), np.array([segments]))  # without dropout
    np.testing.assert_allclose(encoded_text, expected, atol=1e-6)


# The book's own PyTorch model with random weights


def torch_names(name):
    """Return the name of a weight in the book's PyTorch model, and whether it is transposed."""
    replacements = {"/": ".", "blk_": "blks.", "mlp.dense": "mlp.0", "mlp.ln": "mlp.2"}
    replacements |= {"mlp.logits": "mlp.3", "hidden.": "hidden.0.", "nsp.dense": "nsp.output"}
    replacements |= {"embeddings": "weight", "kernel": "weight", "gamma": "weight", "beta": "bias"}
    torch_name = name
    for ours, theirs in replacements.items():
        torch_name = torch_name.replace(ours, theirs)
    return torch_name, name.endswith("kernel")


@pytest.mark.slow
def test_the_books_pytorch_weights_reproduce_its_outputs_and_the_weighted_loss(data_dir):
    book = dict(np.load(data_dir / "golden" / "variants" / "d2l.npz"))
    net = d2l.BERTModel(1000, 64, 128, 4, 2, 0.2, max_len=64, layer_norm_epsilon=1e-5)
    for name, weight in named_weights(net).items():
        torch_name, transposed = torch_names(name)
        values = book.pop(f"w/{torch_name}")
        weight.assign(values.T if transposed else values)
    assert not [name for name in book if name.startswith("w/")]

    tokens, segments, valid_lens, positions = (
        book[name] for name in ("tokens", "segments", "valid_lens", "pred_positions")
    )
    for lengths, suffix in ((valid_lens, ""), (None, "_novl")):
        outputs = net(tokens, segments, lengths, positions)
        for output, name in zip(outputs, ("encoded_X", "mlm_Y_hat", "nsp_Y_hat"), strict=True):
            np.testing.assert_allclose(output, book[f"{name}{suffix}"], atol=2e-5)
    batch = (tokens, segments, valid_lens, positions)
    labels = [book[name] for name in ("mlm_weights", "mlm_Y", "nsp_y")]
    mlm_l, nsp_l, _ = d2l._get_batch_loss_bert(net, 1000, *batch, *labels, training=False)
    assert float(mlm_l) == pytest.approx(float(book["weighted_mlm_l"]), rel=1e-5)
    assert float(nsp_l) == pytest.approx(float(book["book_nsp_l"]), rel=1e-5)
