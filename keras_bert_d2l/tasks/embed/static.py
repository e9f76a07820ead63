"""Distill a text embedder into a table with one vector per token, without an encoder.

N: texts, V: vocabulary size, W: width of the teacher, D: width of the student.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checkpoints.checks import check_kind, check_vocabulary
from keras_bert_d2l.checkpoints.formats.huggingface.static import static_config
from keras_bert_d2l.checks import check_integer, check_that
from keras_bert_d2l.inference.prediction import predict_batch
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.progress import parts
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.embed.predictions import embed
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, kept_tokens
from keras_bert_d2l.text_arguments import text_list

_SPECIAL = re.compile(r"\[.+\]")  # such as [CLS] and [unused1], with WordPiece
_SMOOTHING = 1e-4  # of the frequencies, as in model2vec
_PENALTY = 0.03  # for changing the vectors of tokens: 0.01 is about equally good
_ROUNDING = 1e-12  # squared relative error of float32 sums
_STEPS = 100  # of the conjugate gradient method
_WIDTH = 256
_ROWS = 1024  # tokens that the teacher embeds at once

Product: TypeAlias = Callable[[tf.Tensor], tf.Tensor]


def distill_static(
    model: TextEmbedder,
    texts: Sequence[str] | None = None,
    *,
    num_hiddens: int | None = None,
    batch_size: int = 32,
) -> TextEmbedder:
    """Distill a text embedder into a static one, which is about 100 times as fast in batches.

    The vector of a text is the mean of the vectors of its tokens, scaled to length 1, so the order
    of the words does not count. The result is a `TextEmbedder` of a BERT without blocks and
    positions. It can be used, trained, saved and exported like any other.

    The teacher embeds each token of the vocabulary on its own. These vectors are reduced to their
    principal components and weighted by the rank of the token in the vocabulary, because frequent
    tokens mean little. With `texts`, they are then changed so that the vectors of these texts are
    as close to those of the teacher as possible (ridge regression). A few thousand texts like
    those that the student will process make it much better.

    Source: model2vec (github.com/MinishLab/model2vec); the weights are those of Arora et al. 2017
    (SIF) for frequencies that follow Zipf's law. Fitting to texts is the idea of its Tokenlearn.

    Args:
        model: The teacher, with its tokenizer.
        texts: Texts to learn from, without labels. `None`: only the vocabulary.
        num_hiddens: Width of the vectors, D; at most that of the teacher. `None`: 256, or that of
            the teacher if it is smaller.
        batch_size: Texts per batch of the teacher.

    Returns: the student, with the tokenizer of the teacher.

    Raises:
        ValueError: The model is not a `TextEmbedder` with a tokenizer, or an argument is out of
            range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog sat".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    teacher = kb.TextEmbedder(bert, tokenizer=tokenizer)
    student = kb.distill_static(teacher, ["the cat sat", "the dog sat"], num_hiddens=8)
    kb.embed(student, "the cat")
    ```
    """
    check_kind(model, TextEmbedder)
    check_vocabulary(model, model.tokenizer)
    width = model.embedding_width
    num_hiddens = min(_WIDTH, width) if num_hiddens is None else num_hiddens
    check_integer("num_hiddens", num_hiddens, 1)
    expected = f"at most {width}, the width of the teacher"
    check_that(num_hiddens <= width, "num_hiddens", expected, num_hiddens)
    table = _token_vectors(model)
    if texts is None:
        table = table @ _principal_axes(table, num_hiddens)
    else:
        found = text_list("texts", texts)
        if not found:
            raise ValueError(
                "`texts` must contain at least one text. Received: an empty list. Pass None to "
                "use only the vocabulary."
            )
        targets = embed(model, found, prompt_name="document", batch_size=batch_size)
        axes = _principal_axes(targets, num_hiddens)
        # The teacher truncates long texts, and adds `[CLS]` and `[SEP]`.
        room, side = model.max_row_len - ADDED_TO_ONE, model.tokenizer.truncation_side
        tokens = kept_tokens(model.tokenizer.tokenize(tf.constant(found)), room, side)
        table = _fitted(table @ axes, targets @ axes, tokens)
    return _static_embedder(table, model)


def _token_vectors(model: TextEmbedder) -> np.ndarray:
    """Return the weighted vectors of all tokens, float32 `(V, W)`; 0 for special tokens."""
    vocab = model.tokenizer.vocab
    vectors = np.zeros((len(vocab), model.embedding_width), np.float32)
    is_special = np.isin(np.arange(len(vocab)), vocab.special_ids)
    if vocab.kind == "wordpiece":
        is_special |= [bool(_SPECIAL.fullmatch(token)) for token in vocab.tokens]
    ids = np.flatnonzero(~is_special)
    for part in parts("Computing the vectors of tokens", len(ids), _ROWS):
        some = ids[part].astype(np.int32)
        ends = np.full_like(some, vocab.cls_id), np.full_like(some, vocab.sep_id)
        tokens = np.stack([ends[0], some, ends[1]], axis=1)
        lens = np.full(len(some), 3, np.int32)
        batch = {"tokens": tokens, "segments": np.zeros_like(tokens), "valid_lens": lens}
        vectors[some] = predict_batch(model, batch)[:, : model.embedding_width]
    frequencies = 1 / np.arange(2, len(ids) + 2)
    frequencies /= frequencies.sum()
    weights = _SMOOTHING / (_SMOOTHING + frequencies)
    vectors[ids] = (vectors[ids] - vectors[ids].mean(axis=0)) * weights[:, np.newaxis]
    return vectors


def _principal_axes(vectors: np.ndarray, number: int) -> np.ndarray:
    """Return the axes along which vectors `(N, W)` are longest, `(W, number)`."""
    return np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1][:, :number]


def _fitted(table: np.ndarray, targets: np.ndarray, tokens: tf.RaggedTensor) -> np.ndarray:
    """Change token vectors `(V, D)` so that their means over texts approach `targets` `(N, D)`.

    Args:
        table: The token vectors.
        targets: The vectors of the texts.
        tokens: Token ids of the texts, ragged `(N, None)`.
    """
    shares = tf.gather(1 / tokens.row_lengths(), tokens.value_rowids())
    indices = tf.stack([tokens.value_rowids(), tf.cast(tokens.values, tf.int64)], axis=1)
    means = tf.sparse.reorder(
        tf.SparseTensor(indices, tf.cast(shares, tf.float32), (len(targets), len(table)))
    )

    def of_texts(vectors: tf.Tensor) -> tf.Tensor:
        return tf.sparse.sparse_dense_matmul(means, vectors)

    def of_tokens(vectors: tf.Tensor) -> tf.Tensor:
        return tf.sparse.sparse_dense_matmul(means, vectors, adjoint_a=True)

    before = of_texts(table)
    scale = tf.math.divide_no_nan(tf.reduce_sum(before * targets), tf.reduce_sum(tf.square(before)))
    change = _solve(
        lambda x: of_tokens(of_texts(x)) + _PENALTY * x, of_tokens(targets - scale * before)
    )
    return scale.numpy() * table + change.numpy()


def _solve(product: Product, right: tf.Tensor) -> tf.Tensor:
    """Solve `product(x) = right` for each column by the conjugate gradient method."""
    x = tf.zeros_like(right)
    rest = direction = right
    size = first = tf.reduce_sum(tf.square(rest), axis=0)
    for _ in range(_STEPS):
        along = product(direction)
        step = tf.math.divide_no_nan(size, tf.reduce_sum(direction * along, axis=0))
        step = tf.where(size > _ROUNDING * first, step, 0)  # further steps would diverge
        x, rest = x + step * direction, rest - step * along
        before, size = size, tf.reduce_sum(tf.square(rest), axis=0)
        direction = rest + tf.math.divide_no_nan(size, before) * direction
    return x


def _static_embedder(table: np.ndarray, teacher: TextEmbedder) -> TextEmbedder:
    """Return an embedder of the mean token vector."""
    config = static_config(
        *table.shape, pad_id=teacher.bert_config.pad_id, max_len=teacher.max_row_len
    )
    bert = BERTModel.from_bert_config(config)
    student = TextEmbedder(bert, include_special=False, tokenizer=teacher.tokenizer)
    student.encoder.token_embedding.embeddings.assign(table)
    return student
