"""Windows of rows that are too long for the encoder, and the pooling of their outputs.

B batch, T tokens, L tokens in a window, W windows of the longest row, C outputs per row.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

from keras import ops

from keras_bert_d2l.layers.pooling import PoolingKind, pooled
from keras_bert_d2l.types import Tensor

LongTexts: TypeAlias = Literal["cut", "mean", "max"]
LONG_TEXTS: tuple[LongTexts, ...] = get_args(LongTexts)
MAX_WINDOWS = 8  # limits the memory that one text can take


def longest_row(max_len: int, long_texts: LongTexts) -> int:
    """Return the maximum number of tokens in a row of a model whose encoder takes `max_len`."""
    if long_texts == "cut":
        return max_len
    room, step = _room_and_step(max_len)
    return 2 + room + step * (MAX_WINDOWS - 1)


def over_windows(
    run: Callable[[Tensor, Tensor, Tensor], Tensor],
    tokens: Tensor,
    segments: Tensor,
    valid_lens: Tensor | None,
    max_len: int,
    long_texts: LongTexts,
) -> Tensor:
    """Run a model on windows of single texts, and pool its outputs over the windows of each text.

    Each window begins with the row's first token, `[CLS]`, and ends with its last one, `[SEP]`.
    Windows overlap by a third. A text that fits into one window gives the same outputs as without
    windows.

    Args:
        run: Returns the outputs `(N, C)` for tokens, segments and valid lengths of N rows.
        tokens: Token ids, `(B, T)`.
        segments: Segment ids, `(B, T)`.
        valid_lens: Number of non-padding tokens in each row, `(B,)`. `None`: all tokens.
        max_len: Maximum number of tokens in a window.
        long_texts: `"mean"` or `"max"` of the outputs.

    Returns: the outputs, `(B, C)`.
    """
    tokens = ops.cast(tokens, "int32")
    num_rows, length = ops.shape(tokens)
    lens = ops.zeros_like(tokens[:, 0]) + length if valid_lens is None else valid_lens
    lens = ops.cast(lens, "int32")[:, None]  # (B, 1)
    room, step = _room_and_step(max_len)
    # XLA needs numbers for static shapes, which are not known in every graph.
    lower, higher = (min, max) if isinstance(length, int) else (ops.minimum, ops.maximum)
    num_windows = higher(length - max_len + step - 1, 0) // step + 1
    starts = ops.arange(num_windows, dtype="int32") * step  # (W,)
    in_window = ops.clip(lens - 2 - starts, 0, room)  # tokens of the text in each window, (B, W)
    is_window = (starts == 0) | (in_window > room - step)  # has more than the overlap

    place = ops.arange(lower(length, max_len), dtype="int32")  # (L,)
    is_inside = place <= in_window[:, :, None]  # (B, W, L): the first token or one of the text
    is_end = place == in_window[:, :, None] + 1
    index = ops.where(place == 0, 0, starts[:, None] + place)  # (W, L)
    index = ops.where(is_inside, index, ops.where(is_end, lens[:, :, None] - 1, 0))

    def of_windows(values: Tensor) -> Tensor:
        values = ops.cast(values, "int32")[:, None, :]
        taken = ops.take_along_axis(
            ops.broadcast_to(values, (num_rows, num_windows, length)), index, axis=2
        )
        taken = ops.where(is_inside | is_end, taken, 0)
        return ops.reshape(taken, (-1, ops.shape(place)[0]))

    outputs = run(of_windows(tokens), of_windows(segments), ops.reshape(in_window + 2, (-1,)))
    outputs = ops.reshape(outputs, (num_rows, num_windows, outputs.shape[-1]))
    kind: PoolingKind = "max" if long_texts == "max" else "mean"
    return pooled(outputs, ops.cast(is_window, "int32"), kind)


def _room_and_step(max_len: int) -> tuple[int, int]:
    """Return the number of a text's tokens in a window, and from one window to the next."""
    room = max_len - 2
    return room, room - room // 3
