"""The parts of the encoder under the book's argument orders (d2l.ai, sections 11.3, 11.5, 11.7).

Each function here returns a layer of `keras_bert_d2l.layers`. The book has two orders: the short
one of its PyTorch edition, and a long one, which its TensorFlow slides still use, that also names
the widths of keys, queries and values. Both default to projections without a bias.
"""

from typing import Any

from keras_bert_d2l.layers import attention, masks, transformer

_LONG_ORDER = frozenset(("key_size", "query_size", "value_size", "norm_shape"))


def masked_softmax(X: Any, valid_lens: Any) -> Any:
    """Softmax over the last axis, in which entries past the valid length get no weight.

    Args:
        X: Scores, `(B, Q, K)`.
        valid_lens: `(B,)`, `(B, Q)`, or None where all entries count.

    Returns: weights of the shape and dtype of `X`.
    """
    return masks.masked_softmax(X, masks.valid_lens_mask(valid_lens, X.shape[-1]))


def AddNorm(norm_shape: int | list[int], dropout: float, **options: Any) -> transformer.AddNorm:
    """Residual connection and layer normalisation, `ln(dropout(Y) + X)`.

    Args:
        norm_shape: Width of the last axis, as a number or a list of one. Nothing but the last axis
            is normalised; the width itself is found out from the input.
        dropout: Rate of the dropout on `Y`.
        **options: Of `keras_bert_d2l.layers.transformer.AddNorm`.
    """
    _width_of(norm_shape)
    return transformer.AddNorm(dropout, **options)


def MultiHeadAttention(*args: Any, **kwargs: Any) -> attention.MultiHeadAttention:
    """Multi-head attention.

    Takes `(num_hiddens, num_heads, dropout, bias=False)` or
    `(key_size, query_size, value_size, num_hiddens, num_heads, dropout, bias=False)`, and the
    options of `keras_bert_d2l.layers.attention.MultiHeadAttention` by keyword. The widths of keys,
    queries and values are found out from the input, as in the book.
    """
    if len(args) > 4 or _LONG_ORDER & kwargs.keys():
        return _attention_in_long_order(*args, **kwargs)
    return _attention(*args, **kwargs)


def TransformerEncoderBlock(*args: Any, **kwargs: Any) -> transformer.TransformerEncoderBlock:
    """One block of the encoder: self-attention and a feed-forward layer.

    Takes `(num_hiddens, ffn_num_hiddens, num_heads, dropout, use_bias=False)` or
    `(key_size, query_size, value_size, num_hiddens, norm_shape, ffn_num_hiddens, num_heads,
    dropout, bias=False)`, and the options of
    `keras_bert_d2l.layers.transformer.TransformerEncoderBlock` by keyword.

    Raises:
        ValueError: In the long order, a width is not `num_hiddens`: the residual connection needs
            them equal.
    """
    if len(args) > 5 or _LONG_ORDER & kwargs.keys():
        return _block_in_long_order(*args, **kwargs)
    return _block(*args, **kwargs)


def _attention(
    num_hiddens: int, num_heads: int, dropout: float, bias: bool = False, **options: Any
) -> attention.MultiHeadAttention:
    return attention.MultiHeadAttention(num_hiddens, num_heads, dropout, bias, **options)


def _attention_in_long_order(
    key_size: int,
    query_size: int,
    value_size: int,
    num_hiddens: int,
    num_heads: int,
    dropout: float,
    bias: bool = False,
    **options: Any,
) -> attention.MultiHeadAttention:
    return _attention(num_hiddens, num_heads, dropout, bias, **options)


def _block(
    num_hiddens: int,
    ffn_num_hiddens: int,
    num_heads: int,
    dropout: float,
    use_bias: bool = False,
    **options: Any,
) -> transformer.TransformerEncoderBlock:
    return transformer.TransformerEncoderBlock(
        num_hiddens, ffn_num_hiddens, num_heads, dropout, use_bias, **options
    )


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
    **options: Any,
) -> transformer.TransformerEncoderBlock:
    widths = {
        "key_size": key_size,
        "query_size": query_size,
        "value_size": value_size,
        "norm_shape": _width_of(norm_shape),
    }
    for name, width in widths.items():
        if width != num_hiddens:
            raise ValueError(
                f"`{name}` must be `num_hiddens` in an encoder block, whose output is added to its "
                f"input. Received: {name}={width}, num_hiddens={num_hiddens}."
            )
    return _block(num_hiddens, ffn_num_hiddens, num_heads, dropout, bias, **options)


def _width_of(norm_shape: int | list[int]) -> int:
    """The width that a `norm_shape` of one axis names."""
    axes = [norm_shape] if isinstance(norm_shape, int) else list(norm_shape)
    if len(axes) != 1:
        raise ValueError(
            "`norm_shape` must name the width of the last axis alone, as in [num_hiddens]. "
            f"Received: norm_shape={norm_shape!r}."
        )
    return axes[0]
