"""Pretraining on batches of the book's seven tensors, and text encoding (d2l.ai, section 15.10).

B batch, T tokens, P predicted positions, D hidden width.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, cast

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.book.vocabulary import Vocab, check_vocab
from keras_bert_d2l.checks import check_integer, check_that, check_type
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy
from keras_bert_d2l.text.tokenizer.framing import get_tokens_and_segments
from keras_bert_d2l.types import Tensor

Tensors: TypeAlias = dict[str, Tensor]


def try_all_gpus() -> list[str]:
    """Return the names of all GPUs, or of the CPU if there is none (d2l.ai, section 6.7).

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> len(d2l.try_all_gpus()) > 0
        True
    """
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    return gpus or ["/device:CPU:0"]


def to_keras_batch(
    tokens_X: Tensor,
    segments_X: Tensor,
    valid_lens_x: Tensor,
    pred_positions_X: Tensor,
    mlm_weights_X: Tensor,
    mlm_Y: Tensor,
    nsp_y: Tensor,
) -> tuple[Tensors, Tensors, Tensors]:
    """Convert the book's seven tensors to a batch for `fit` and `evaluate`.

    `net.evaluate(valid_iter.map(to_keras_batch))` evaluates a compiled model on held-out text.

    Returns:
        Features, labels and weights, as `kb.pretraining_dataset` yields them.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> tokens, one = np.ones((2, 6), "int32"), np.ones((2, 1), "int32")
        >>> batch = tokens, 0 * tokens, np.array([6, 6]), one, 1.0 * one, one, np.array([0, 1])
        >>> features, labels, weights = d2l.to_keras_batch(*batch)
        >>> list(features)
        ['tokens', 'segments', 'valid_lens', 'pred_positions']
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
    tokens_X: Tensor,
    segments_X: Tensor,
    valid_lens_x: Tensor,
    pred_positions_X: Tensor,
    mlm_weights_X: Tensor,
    mlm_Y: Tensor,
    nsp_y: Tensor,
    *last: Tensor,
    training: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the two pretraining losses of a batch, and their sum.

    The book's PyTorch edition has a bug: its MLM loss is the mean over all P positions, including
    the padding. Here it is the weighted mean `sum(w * l) / sum(w)`.

    The PyTorch edition's argument order, with `loss` between `net` and `vocab_size`, is accepted
    too. `loss` is then ignored, and the cross-entropy is used.

    Args:
        net: The model.
        vocab_size: The vocabulary size of the model.
        tokens_X: Token ids, int `(B, T)`.
        segments_X: Segment ids, int `(B, T)`.
        valid_lens_x: Number of non-padding tokens, `(B,)`.
        pred_positions_X: Positions to predict, int `(B, P)`.
        mlm_weights_X: 1 for a prediction and 0 for padding, `(B, P)`.
        mlm_Y: The original token ids, int `(B, P)`.
        nsp_y: 1 if the second sentence is the next one, else 0, int `(B,)`.
        *last: `nsp_y` in the PyTorch edition's argument order.
        training: Whether to apply dropout.

    Returns:
        MLM loss, NSP loss and their sum, float32 scalars.

    Raises:
        ValueError: `vocab_size` differs from the model's vocabulary size.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> net = d2l.BERTModel(50, 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
        >>> tokens, one = np.ones((2, 6), "int32"), np.ones((2, 1), "int32")
        >>> batch = tokens, 0 * tokens, np.array([6, 6]), one, 1.0 * one, one, np.array([0, 1])
        >>> mlm_l, nsp_l, loss = d2l._get_batch_loss_bert(net, 50, *batch)
        >>> bool(loss == mlm_l + nsp_l)
        True
    """
    if last:  # the PyTorch edition's order, with `loss` in the position of `vocab_size`
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
    is_same = vocab_size == num_logits
    check_that(is_same, "vocab_size", f"that of the model, {num_logits}", vocab_size)


def train_bert(
    train_iter: Iterable[Sequence[Tensor]],
    net: BERTModel,
    vocab_size: int,
    devices: Sequence[object],
    num_steps: int,
    *last: int,
    optimizer: keras.optimizers.Optimizer | None = None,
) -> None:
    r"""Pretrain a model for a number of steps, and print both losses and the speed.

    The training step is compiled and uses the package's losses. A progress bar replaces the book's
    plot. At the end, the mean losses over all steps and the number of sentence pairs per second are
    printed. The speed excludes the first step, which includes compilation. The MLM loss is
    weighted, so it is not comparable with the loss of the book's PyTorch edition, which counts
    padding by mistake.

    The PyTorch edition's argument order, `(train_iter, net, loss, vocab_size, devices, num_steps)`,
    is accepted too. `loss` is then ignored, and the cross-entropy is used.

    Args:
        train_iter: Batches of the book's seven tensors, iterated as often as needed.
        net: The model. It is compiled here.
        vocab_size: The vocabulary size of the model.
        devices: Only printed. Training runs on the device of the weights of `net`.
        num_steps: Number of batches to train on.
        *last: `num_steps` in the PyTorch edition's argument order.
        optimizer: The optimizer. `None`: Adam with a learning rate of 1e-4, as in the TensorFlow
            edition.

    Raises:
        ValueError: `vocab_size` differs from the model's, or `train_iter` is empty.

    Example:

    ```python
    import pathlib

    from keras_bert_d2l import book as d2l

    text = "the cat sat . it slept .\na dog ran . it came home .\n"
    pathlib.Path("wiki.train.tokens").write_text(5 * text)
    train_iter, vocab = d2l.load_data_wiki(4, 16, ".")
    net = d2l.BERTModel(len(vocab), 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    d2l.train_bert(train_iter, net, len(vocab), d2l.try_all_gpus(), num_steps=2)
    ```
    """
    if last:  # the PyTorch edition's order, with `loss` in the position of `vocab_size`
        order = cast(tuple[int, Sequence[object], int], (devices, num_steps, *last))
        return train_bert(train_iter, net, *order, optimizer=optimizer)
    check_type("train_iter", train_iter, Iterable, "Pass a dataset of batches.")
    check_type("net", net, BERTModel)
    check_integer("num_steps", num_steps, 1)
    _check_vocab_size(vocab_size, net.bert_config.vocab_size)
    net.compile(optimizer=optimizer or keras.optimizers.Adam(1e-4))
    bar = keras.utils.Progbar(num_steps)  # shows running means
    losses, seconds, pairs = [], 0.0, 0
    for step, batch in enumerate(itertools.islice(_epochs(train_iter), num_steps)):
        start = time.perf_counter()
        # The JAX backend does not accept TensorFlow's tensors.
        arrays = keras.tree.map_structure(keras.ops.convert_to_numpy, to_keras_batch(*batch))
        logs = net.train_on_batch(*arrays, return_dict=True)
        losses.append((logs["mlm_cross_entropy"], logs["nsp_cross_entropy"]))
        if step > 0 or num_steps == 1:
            pairs += int(batch[0].shape[0])
            seconds += time.perf_counter() - start
        bar.update(step + 1, list(zip(("MLM loss", "NSP loss"), losses[-1], strict=True)))
    mlm_l, nsp_l = np.mean(losses, axis=0)
    print(f"MLM loss {mlm_l:.3f}, NSP loss {nsp_l:.3f}")
    print(f"{pairs / seconds:.1f} sentence pairs/sec on {devices}")


def _epochs(batches: Iterable[Sequence[Tensor]]) -> Iterator[Sequence[Tensor]]:
    """Yield the batches of one epoch after another, indefinitely."""
    while True:
        iterator = iter(batches)
        first = next(iterator, None)
        if first is None:
            raise ValueError("`train_iter` is empty or exhausted. Pass a dataset of batches.")
        yield first
        yield from iterator


def get_bert_encoding(
    net: BERTModel, tokens_a: Sequence[str], tokens_b: Sequence[str] | None = None, *, vocab: Vocab
) -> Tensor:
    """Encode one text or a pair of texts.

    The book's function reads the global variable `vocab`. Here `vocab` is an argument.

    Args:
        net: The model.
        tokens_a: Tokens of the first text.
        tokens_b: Tokens of the second text, or `None`.
        vocab: The vocabulary that the model was trained with.

    Returns:
        The encoded tokens, including `<cls>` and `<sep>`, `(1, T, D)`.

    Example:
        >>> from keras_bert_d2l import book as d2l
        >>> specials = ["<pad>", "<mask>", "<cls>", "<sep>"]
        >>> vocab = d2l.Vocab(["a", "cat"], reserved_tokens=specials)
        >>> net = d2l.BERTModel(50, 8, 16, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
        >>> tuple(d2l.get_bert_encoding(net, ["a", "cat"], vocab=vocab).shape)
        (1, 4, 8)
    """
    check_type("net", net, BERTModel)
    check_vocab(vocab)
    tokens, segments = get_tokens_and_segments(tokens_a, tokens_b)
    encoded_X, _, _ = net(
        tf.constant([vocab[tokens]]),
        tf.constant([segments]),
        tf.constant([len(tokens)]),
        training=False,
    )
    return encoded_X
