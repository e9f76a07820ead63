"""The encoder's layers with the book's argument orders (d2l.ai, sections 11.3, 11.5 and 11.7).

The functions that are named like layers return layers of `keras_bert_d2l.layers`. The book has two
argument orders. The short one is used in its PyTorch edition. The long one, which its TensorFlow
slides still use, starts with the widths of keys, queries and values. In both, projections have no
bias by default.
"""

from typing import Any

from keras_bert_d2l.checks import check_integer, check_that
from keras_bert_d2l.layers import sublayers, transformer
from keras_bert_d2l.layers.kernels import attention as kernels
from keras_bert_d2l.layers.kernels.attention import joined_mask
from keras_bert_d2l.types import Option, Tensor

_WIDTHS = ("key_size", "query_size", "value_size")


def masked_softmax(X: Tensor, valid_lens: Tensor | None) -> Tensor:
    """Return the softmax over the last axis, with zero weight on entries past the valid length.

    Args:
        X: Scores, `(B, Q, K)`.
        valid_lens: Valid lengths, `(B,)` or `(B, Q)`. `None`: all entries are valid.

    Returns:
        Weights with the shape and dtype of `X`.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> weights = d2l.masked_softmax(np.zeros((1, 1, 4), "float32"), np.array([2]))
        >>> np.asarray(weights).tolist()
        [[[0.5, 0.5, 0.0, 0.0]]]
    """
    check_that(hasattr(X, "shape"), "X", "a tensor of shape (B, Q, K)", X)
    return kernels.masked_softmax(X, joined_mask(X.shape[-1], valid_lens))


def AddNorm(norm_shape: int | list[int], dropout: float, **options: Option) -> sublayers.AddNorm:
    """Return a layer for `ln(dropout(Y) + X)`: residual connection and layer normalization.

    The book's TensorFlow edition passes `norm_shape` to Keras as an axis, which fails. Here it is
    the width of the last axis, as in the PyTorch edition. Only the last axis is normalized.

    Args:
        norm_shape: Width of the last axis, as a number or a list of one number. It is only
            checked: the layer takes the width from its input.
        dropout: Dropout rate for `Y`.
        **options: Keyword arguments of `keras_bert_d2l.layers.sublayers.AddNorm`.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> X = np.ones((2, 3, 4), "float32")
        >>> tuple(d2l.AddNorm(4, dropout=0.5)(X, X).shape)
        (2, 3, 4)
    """
    _width_of(norm_shape)
    return sublayers.AddNorm(dropout, **options)


def MultiHeadAttention(*args: Any, **kwargs: Any) -> sublayers.MultiHeadAttention:
    """Return a multi-head attention layer.

    The arguments are `(num_hiddens, num_heads, dropout, bias=False)` or
    `(key_size, query_size, value_size, num_hiddens, num_heads, dropout, bias=False)`, and the
    keyword arguments of `keras_bert_d2l.layers.sublayers.MultiHeadAttention`. The widths of keys,
    queries and values are inferred from the input, as in the book.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> X = np.ones((2, 4, 100), "float32")
        >>> attention = d2l.MultiHeadAttention(100, 5, 0.5)
        >>> tuple(attention(X, X, X, np.array([3, 2])).shape)
        (2, 4, 100)
    """
    named = [kwargs.pop(name) for name in _WIDTHS if name in kwargs]
    if len(args) > 4 or named:  # in the long order, the first arguments are not needed
        args = args[len(_WIDTHS) - len(named) :]
    if len(args) < 4 and "use_bias" not in kwargs:
        kwargs["use_bias"] = kwargs.pop("bias", False)
    return sublayers.MultiHeadAttention(*args, **kwargs)


def TransformerEncoderBlock(*args: Any, **kwargs: Any) -> transformer.TransformerEncoderBlock:
    """Return a Transformer encoder block: self-attention and a feed-forward network.

    The arguments are `(num_hiddens, ffn_num_hiddens, num_heads, dropout, use_bias=False)` or
    `(key_size, query_size, value_size, num_hiddens, norm_shape, ffn_num_hiddens, num_heads,
    dropout, bias=False)`, and the keyword arguments of
    `keras_bert_d2l.layers.transformer.TransformerEncoderBlock`.

    Raises:
        ValueError: In the long order, a width differs from `num_hiddens`. The residual connection
            requires equal widths.

    Example:
        >>> import numpy as np
        >>> from keras_bert_d2l import book as d2l
        >>> X = np.ones((2, 100, 24), "float32")
        >>> tuple(d2l.TransformerEncoderBlock(24, 48, 8, 0.5)(X, np.array([3, 2])).shape)
        (2, 100, 24)
    """
    if len(args) > 5 or not kwargs.keys().isdisjoint((*_WIDTHS, "norm_shape")):
        return _block_in_long_order(*args, **kwargs)
    if len(args) < 5:
        kwargs.setdefault("use_bias", False)
    return transformer.TransformerEncoderBlock(*args, **kwargs)


def _block_in_long_order(
    key_size: int,
    query_size: int,
    value_size: int,
    num_hiddens: int,
    norm_shape: int | list[int],
    ffn_num_hiddens: int,
    num_heads: int,
    dropout: float,
    bias: bool = False,
    **options: Option,
) -> transformer.TransformerEncoderBlock:
    widths = {
        "key_size": key_size,
        "query_size": query_size,
        "value_size": value_size,
        "norm_shape": _width_of(norm_shape),
    }
    expected = f"num_hiddens={num_hiddens}, because an encoder block adds its output to its input"
    for name, width in widths.items():
        check_that(width == num_hiddens, name, expected, width)
    return transformer.TransformerEncoderBlock(
        num_hiddens, ffn_num_hiddens, num_heads, dropout, bias, **options
    )


def _width_of(norm_shape: int | list[int]) -> int:
    """Return the width in a `norm_shape`, which must have one axis."""
    if isinstance(norm_shape, list | tuple) and len(norm_shape) == 1:
        norm_shape = norm_shape[0]
    return check_integer("norm_shape", norm_shape, 1, ", the width of the last axis")
