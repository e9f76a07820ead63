"""Batches of the book's seven tensors in, a pretrained model and its encodings out (15.10).

B batch, T tokens, P predicted positions, D hidden width.
"""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_bert_d2l.book.vocabulary import Vocab
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.text.tokenizer.segments import get_tokens_and_segments


def try_all_gpus() -> list[str]:
    """Returns the names of all GPUs, or of the CPU where there is none (d2l.ai, section 6.7)."""
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    return gpus or ["/device:CPU:0"]


def to_keras_batch(
    tokens_X: Any,
    segments_X: Any,
    valid_lens_x: Any,
    pred_positions_X: Any,
    mlm_weights_X: Any,
    mlm_Y: Any,
    nsp_y: Any,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Turns the book's seven tensors into what `fit` and `evaluate` take.

    `net.evaluate(valid_iter.map(to_keras_batch))` evaluates a compiled model on held-out text.

    Returns: features, labels and weights, as `kb.pretraining_dataset` yields them.
    """
    features = {
        "tokens": tokens_X,
        "segments": segments_X,
        "valid_lens": tf.cast(tf.reshape(valid_lens_x, [-1]), tf.int32),
        "pred_positions": pred_positions_X,
    }
    labels = {"mlm": mlm_Y, "nsp": nsp_y}
    weights = {"mlm": mlm_weights_X, "nsp": tf.ones_like(nsp_y, dtype=tf.float32)}
    return features, labels, weights


def _get_batch_loss_bert(
    net: BERTModel,
    vocab_size: int,
    tokens_X: Any,
    segments_X: Any,
    valid_lens_x: Any,
    pred_positions_X: Any,
    mlm_weights_X: Any,
    mlm_Y: Any,
    nsp_y: Any,
    *last: Any,
    training: bool = True,
) -> tuple[Any, Any, Any]:
    """Computes the two pretraining losses of a batch, and their sum.

    The MLM loss is the weighted mean, `sum(w * l) / sum(w)`. (The book's PyTorch edition averages
    over all P slots, the padded ones among them.) That edition's order, with `loss` between `net`
    and `vocab_size`, is taken as well; the loss is the cross entropy whatever stands there.

    Args:
        net: The model.
        vocab_size: V, the number of logits of a prediction.
        tokens_X: int `(B, T)`.
        segments_X: int `(B, T)`.
        valid_lens_x: `(B,)`.
        pred_positions_X: int `(B, P)`.
        mlm_weights_X: `(B, P)`, 1 for a prediction and 0 for padding.
        mlm_Y: int `(B, P)`.
        nsp_y: int `(B,)`.
        *last: `nsp_y` in the PyTorch edition's order.
        training: Whether dropout acts.

    Returns: MLM loss, NSP loss and their sum, float32 scalars.
    """
    if last:  # the PyTorch edition's order: `loss` stands in the place of `vocab_size`
        labels = (mlm_weights_X, mlm_Y, nsp_y, *last)
        features = (tokens_X, segments_X, valid_lens_x, pred_positions_X)
        return _get_batch_loss_bert(net, *features, *labels, training=training)
    _, mlm_Y_hat, nsp_Y_hat = net(
        tokens_X, segments_X, tf.reshape(valid_lens_x, [-1]), pred_positions_X, training=training
    )
    _check_vocab_size(vocab_size, mlm_Y_hat.shape[-1])
    loss = WeightedCrossEntropy()
    mlm_l = loss(mlm_Y, mlm_Y_hat, mlm_weights_X)
    nsp_l = loss(nsp_y, nsp_Y_hat)
    return mlm_l, nsp_l, mlm_l + nsp_l


def _check_vocab_size(vocab_size: int, num_logits: int) -> None:
    if vocab_size != num_logits:
        raise ValueError(
            f"`vocab_size` must be that of the model, {num_logits}. Received: {vocab_size}."
        )


def train_bert(
    train_iter: Iterable[Sequence[Any]],
    net: BERTModel,
    vocab_size: int,
    devices: Sequence[Any],
    num_steps: int,
    *last: Any,
    optimizer: keras.optimizers.Optimizer | None = None,
) -> None:
    """Pretrains a model for a number of steps and prints both losses and the speed.

    Trains with the package's losses in a compiled step. Instead of the book's plot there is a
    progress bar. What is printed last are the means of the losses over the steps (MLM weighted,
    so that it is not comparable with that of editions that count padded slots) and the sentence
    pairs per second of the steps after the first, which compiles.

    The PyTorch edition's order, `(train_iter, net, loss, vocab_size, devices, num_steps)`, is taken
    as well; the loss is the cross entropy whatever stands there.

    Args:
        train_iter: Batches of the book's seven tensors; begun anew as often as needed.
        net: The model. It is compiled here.
        vocab_size: The model's V.
        devices: Printed. The training runs where the weights of `net` are.
        num_steps: Number of batches to train on.
        *last: `num_steps` in the PyTorch edition's order.
        optimizer: None: Adam with a learning rate of 1e-4, as in the TensorFlow edition.

    Raises:
        ValueError: `vocab_size` is not the model's, or `train_iter` is empty.
    """
    if last:  # the PyTorch edition's order: `loss` stands in the place of `vocab_size`
        arguments: tuple[Any, ...] = (devices, num_steps, *last)
        return train_bert(train_iter, net, *arguments, optimizer=optimizer)
    _check_vocab_size(vocab_size, net.bert_config.vocab_size)
    net.compile(optimizer=optimizer or keras.optimizers.Adam(1e-4))
    bar = keras.utils.Progbar(num_steps)  # shows the means over the steps so far
    mlm_sum = nsp_sum = seconds = 0.0
    pairs = 0
    for step, batch in enumerate(_take(train_iter, num_steps)):
        start = time.perf_counter()
        logs = net.train_on_batch(*to_keras_batch(*batch), return_dict=True)
        mlm_l, nsp_l = logs["mlm_cross_entropy"], logs["nsp_cross_entropy"]
        mlm_sum += mlm_l
        nsp_sum += nsp_l
        if step > 0 or num_steps == 1:
            pairs += int(batch[0].shape[0])
            seconds += time.perf_counter() - start
        bar.update(step + 1, [("MLM loss", mlm_l), ("NSP loss", nsp_l)])
    print(f"MLM loss {mlm_sum / num_steps:.3f}, NSP loss {nsp_sum / num_steps:.3f}")
    print(f"{pairs / seconds:.1f} sentence pairs/sec on {devices}")


def _take(batches: Iterable[Any], num_steps: int) -> Iterable[Any]:
    """The first `num_steps` batches of as many epochs as it takes."""
    taken = 0
    while taken < num_steps:
        before = taken
        for batch in batches:
            yield batch
            taken += 1
            if taken == num_steps:
                return
        if taken == before:
            raise ValueError("`train_iter` is empty, or was used up: pass a data set of batches.")


def get_bert_encoding(
    net: BERTModel,
    tokens_a: Sequence[str],
    tokens_b: Sequence[str] | None = None,
    *,
    vocab: Vocab,
) -> Any:
    """Encodes one text or a pair of texts.

    The book's function reads `vocab` from its notebook; here it is an argument.

    Args:
        net: The model.
        tokens_a: Tokens of the first text.
        tokens_b: Tokens of the second text, or None.
        vocab: The vocabulary that the model was trained with.

    Returns: the vectors of all tokens, those of `<cls>` and `<sep>` among them, `(1, T, D)`.
    """
    tokens, segments = get_tokens_and_segments(tokens_a, tokens_b)
    encoded_X, _, _ = net(
        tf.constant([vocab[tokens]]),
        tf.constant([segments]),
        tf.constant([len(tokens)]),
        training=False,
    )
    return encoded_X
