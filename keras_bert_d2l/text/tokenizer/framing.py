"""Build model inputs from token ids: truncate texts or slide windows, add special tokens, and pad.

B: rows, T: tokens in a row, W: windows of all B pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import tensorflow as tf

from keras_bert_d2l.checks import check_choice, check_integer, check_list, check_type, shown
from keras_bert_d2l.text.normalization import SIDES, rows_of_values
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, Vocab
from keras_bert_d2l.types import Tensor

TRUNCATIONS = ("longest_first", "only_first", "only_second")
ADDED_TO_ONE = 2  # start and separator
_Function = TypeVar("_Function", bound=Callable)


def not_converted(function: _Function) -> _Function:
    """Exclude a function from AutoGraph, which would take seconds to find nothing to convert."""
    return tf.autograph.experimental.do_not_convert(function)


@not_converted
def frame_tokens(
    tokens_a: Tensor,
    tokens_b: Tensor | None = None,
    *,
    vocab: Vocab,
    max_len: int | None = None,
    truncation: str = "longest_first",
    truncation_side: str = "right",
    pad: bool = True,
) -> dict[str, tf.Tensor]:
    """Build padded rows `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` from token ids.

    A vocabulary such as RoBERTa's has two separators between the texts of a pair.

    `Tokenizer` does this with the ids of strings. Use this function for ids from elsewhere, such as
    a `tf.data` pipeline that pairs sentences by itself. It uses TensorFlow ops only.

    Args:
        tokens_a: Ids of the first texts without special tokens, int `(B, None)`: ragged, dense or
            nested lists. All ids of a dense tensor count, so it must have no padding.
        tokens_b: Ids of the second texts, with the same number of rows, or None.
        vocab: The `Vocab`, for its special tokens.
        max_len: Length T of every row, or None to pad to the longest row.
        truncation: Which text of a pair to truncate, as in `Tokenizer`.
        truncation_side: Which end of a text to truncate, as in `Tokenizer`.
        pad: Whether to pad to `max_len`. False: to the longest row, if that is shorter.

    Returns:
        A dictionary of int32 tensors: `tokens` `(B, T)`; `segments` `(B, T)`, 1 from `b` to the
        last separator and 0 elsewhere; `valid_lens` `(B,)`, the number of tokens without padding.

    Raises:
        ValueError: If the ids are not integers, the two texts have different numbers of rows,
            `max_len` has no room for one token of each text, an option has an invalid value, or
            `truncation` would remove a text completely.

    Example:
        >>> import keras_bert_d2l as kb
        >>> vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat"])
        >>> batch = kb.frame_tokens([[5, 6], [6]], [[7], [7]], vocab=vocab, max_len=6)
        >>> batch["tokens"].numpy().tolist()
        [[2, 5, 6, 3, 7, 3], [2, 6, 3, 7, 3, 0]]
        >>> batch["segments"].numpy().tolist(), batch["valid_lens"].numpy().tolist()
        ([[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]], [6, 5])
    """
    check_type("vocab", vocab, Vocab, "Pass `tokenizer.vocab`.")
    max_len = check_max_len(max_len, 1 if tokens_b is None else 2, vocab)
    tokens_a = as_rows(tokens_a)
    if tokens_b is not None:
        tokens_b = as_rows(tokens_b)
        check_same_number(tokens_a, tokens_b)
    tokens_a, tokens_b = truncate(tokens_a, tokens_b, vocab, max_len, truncation, truncation_side)
    max_len = max_len if pad else None
    special = (vocab.cls_id, vocab.sep_id, vocab.pad_id)
    tokens, first_lens, valid_lens = _framed(tokens_a, tokens_b, special, max_len, vocab)
    num_tokens = tf.shape(tokens)[1] if max_len is None else max_len
    in_first = tf.sequence_mask(first_lens, num_tokens, tf.int32)
    segments = tf.sequence_mask(valid_lens, num_tokens, tf.int32) - in_first
    return {"tokens": tokens, "segments": segments, "valid_lens": tf.cast(valid_lens, tf.int32)}


def sliding_windows(
    questions: Pieces, contexts: Pieces, *, vocab: Vocab, max_len: int, overlap: int
) -> dict[str, tf.Tensor]:
    """Return the rows of `Tokenizer.windows` for texts that are already split into pieces."""
    check_integer("max_len", max_len, vocab.num_added(2) + 2)
    check_integer("overlap", overlap, 0)
    question_lengths = questions[0].row_lengths()
    context_lengths = contexts[0].row_lengths()
    room = tf.constant(max_len - vocab.num_added(2), tf.int64) - question_lengths
    message = (
        f"A question leaves no more than overlap={overlap} tokens of max_len={max_len} for its "
        "context. Increase `max_len`, decrease `overlap`, or shorten the question."
    )
    with tf.control_dependencies(require(room > overlap, message)):
        step = room - overlap
    num_more = tf.maximum(context_lengths - room + step - 1, 0) // step
    numbers = tf.ragged.range(num_more + 1)  # the windows of each pair: 0, 1, ...
    rows = rows_of_values(numbers)
    first = numbers.flat_values * tf.gather(step, rows)
    end = tf.minimum(first + tf.gather(room, rows), tf.gather(context_lengths, rows))
    row_starts = tf.gather(contexts[0].row_starts(), rows)
    taken = tf.ragged.range(row_starts + first, row_starts + end)

    tokens, starts, ends = (
        (tf.gather(a, rows), tf.gather(b.flat_values, taken))
        for a, b in zip(questions, contexts, strict=True)
    )
    return {
        **frame_tokens(*tokens, vocab=vocab, max_len=max_len),
        "starts": frame_values(*starts, 0, max_len, vocab),
        "ends": frame_values(*ends, 0, max_len, vocab),
        "rows": tf.cast(rows, tf.int32),
    }


@not_converted
def answer_spans(windows: Mapping[str, Tensor], starts: Tensor, ends: Tensor) -> tf.Tensor:
    """Find the tokens of answers in windows. Answers are given as character ranges of the contexts.

    Args:
        windows: The complete output of `Tokenizer.windows`.
        starts: First character of the answer in each context, int `(B,)`.
        ends: Last character of the answer plus one, int `(B,)`.

    Returns:
        The positions of the first and the last token of the answer in each window, int32 `(W, 2)`.
        Both are 0, the start token, if the window does not contain the complete answer.

    Example:
        >>> import keras_bert_d2l as kb
        >>> words = "who sat the cat on a mat".split()
        >>> vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
        >>> windows = kb.Tokenizer(vocab).windows("who sat", "the cat sat on a mat", max_len=9)
        >>> kb.answer_spans(windows, [4], [7]).numpy().tolist()  # "cat"
        [[5, 5], [0, 0]]
    """
    in_context = tf.convert_to_tensor(windows["segments"]) == 1
    token_starts = tf.where(in_context, windows["starts"], 0)
    token_ends = tf.where(in_context, windows["ends"], 0)
    is_text = token_starts < token_ends
    rows = tf.convert_to_tensor(windows["rows"])
    starts, ends = (tf.gather(tf.convert_to_tensor(x, tf.int32), rows) for x in (starts, ends))
    overlaps = is_text & (token_ends > starts[:, tf.newaxis]) & (token_starts < ends[:, tf.newaxis])
    overlaps = tf.cast(overlaps, tf.int32)
    first_token = tf.argmax(overlaps, axis=1, output_type=tf.int32)
    from_the_end = tf.argmax(overlaps[:, ::-1], axis=1, output_type=tf.int32)
    last_token = tf.shape(overlaps)[1] - 1 - from_the_end

    window_start = tf.reduce_min(tf.where(is_text, token_starts, tf.int32.max), axis=1)
    window_end = tf.reduce_max(token_ends, axis=1)
    # A context may start or end with characters that belong to no token, such as white space or a
    # combining accent. The first and the last window of each context include them.
    is_other = rows[1:] != rows[:-1]
    window_start = tf.where(tf.pad(is_other, [[1, 0]], constant_values=True), 0, window_start)
    is_last = tf.pad(is_other, [[0, 1]], constant_values=True)
    window_end = tf.where(is_last, tf.int32.max, window_end)
    is_found = tf.reduce_max(overlaps, axis=1) == 1
    is_found &= (window_start <= starts) & (ends <= window_end)
    spans = tf.stack([first_token, last_token], axis=1)
    return tf.where(is_found[:, tf.newaxis], spans, 0)


def frame_values(
    values_a: tf.RaggedTensor,
    values_b: tf.RaggedTensor | None,
    outside: int,
    max_len: int | None,
    vocab: Vocab,
) -> tf.Tensor:
    """Arrange one value per token into rows `(B, T)` that match those of `frame_tokens`.

    `outside` fills the positions of special tokens and padding.
    """
    return _framed(values_a, values_b, (outside,) * 3, max_len, vocab)[0]


def truncate(
    tokens_a: tf.RaggedTensor,
    tokens_b: tf.RaggedTensor | None,
    vocab: Vocab,
    max_len: int | None,
    truncation: str = "longest_first",
    side: str = "right",
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None]:
    """Truncate texts until they fit `max_len` with special tokens, as in `frame_tokens`."""
    check_choice("truncation", truncation, TRUNCATIONS)
    check_choice("truncation_side", side, SIDES)
    if tokens_b is None and truncation == "only_second":
        raise ValueError(
            "truncation='only_second' truncates the second text of a pair. Received: no second "
            "text."
        )
    if max_len is None:
        return tokens_a, tokens_b
    if tokens_b is None:
        return kept_tokens(tokens_a, max_len - ADDED_TO_ONE, side), None
    room = tf.constant(max_len - vocab.num_added(2), tf.int64)
    lengths_a, lengths_b = tokens_a.row_lengths(), tokens_b.row_lengths()
    if truncation == "longest_first":
        lengths_a, lengths_b = _longest_first(lengths_a, lengths_b, room)
    elif truncation == "only_first":
        lengths_a = _what_is_left(lengths_a, room - lengths_b, max_len)
    else:
        lengths_b = _what_is_left(lengths_b, room - lengths_a, max_len)
    return kept_tokens(tokens_a, lengths_a, side), kept_tokens(tokens_b, lengths_b, side)


def as_rows(ids: Tensor) -> tf.RaggedTensor:
    """Convert nested lists, a tensor or one row `(T,)` of ids to ragged int32 `(B, None)`."""
    expected = "Ids must be integers of shape (B, T), dense or ragged, or (T,) for one row."
    try:
        if isinstance(ids, list | tuple) and any(isinstance(row, list | tuple) for row in ids):
            ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected} Received: {shown(ids)}.") from error
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    if ids.shape.rank != 2 or not ids.dtype.is_integer:
        raise ValueError(f"{expected} Received: {ids.dtype.name} of shape {ids.shape}.")
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.RaggedTensor.from_tensor(ids)
    return tf.cast(ids, tf.int32).with_row_splits_dtype(tf.int64)


def check_max_len(max_len: int | None, num_texts: int, vocab: Vocab) -> int | None:
    """Return `max_len` as a plain integer or None.

    Raise a `ValueError` if it has no room for one token of each text.
    """
    if max_len is None:
        return None
    num_added = vocab.num_added(num_texts)
    reason = f" ({num_added} special tokens and one token of each text), or None"
    check_integer("max_len", max_len, num_added + num_texts, reason)
    return int(max_len)


def check_same_number(tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor) -> None:
    """Raise a `ValueError` if the numbers of rows differ; in a graph, add an assertion."""
    message = "Each row is one pair, so there must be as many second texts as first texts."
    num_a, num_b = tokens_a.shape[0], tokens_b.shape[0]
    if num_a is None or num_b is None:
        require(tokens_a.nrows() == tokens_b.nrows(), message)
    elif num_a != num_b:
        raise ValueError(f"{message} Received: {num_a} and {num_b}.")


def require(condition: tf.Tensor, message: str) -> list[tf.Operation]:
    """Check that `condition` (bool, any shape) is true everywhere.

    In eager mode, raise a `ValueError` with the message. In a graph, return an assertion to use as
    a control dependency.
    """
    holds = tf.reduce_all(condition)
    if not tf.executing_eagerly():
        return [tf.debugging.Assert(holds, [message])]
    if not holds:
        raise ValueError(message)
    return []


def _longest_first(
    lengths_a: tf.Tensor, lengths_b: tf.Tensor, room: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    longer, shorter = tf.maximum(lengths_a, lengths_b), tf.minimum(lengths_a, lengths_b)
    kept_of_shorter = tf.minimum(shorter, room // 2)
    kept_of_longer = tf.minimum(longer, room - kept_of_shorter)
    a_is_longer = lengths_a > lengths_b
    return (
        tf.where(a_is_longer, kept_of_longer, kept_of_shorter),
        tf.where(a_is_longer, kept_of_shorter, kept_of_longer),
    )


def _what_is_left(lengths: tf.Tensor, room: tf.Tensor, max_len: int) -> tf.Tensor:
    kept = tf.minimum(lengths, room)
    message = (
        f"Truncation would remove one text, because the other text alone is too long for "
        f"max_len={max_len}. Increase `max_len`, or use truncation='longest_first'."
    )
    with tf.control_dependencies(require((kept == lengths) | (kept > 0), message)):
        return tf.identity(kept)


def kept_tokens(rows: tf.RaggedTensor, most: tf.Tensor | int, side: str) -> tf.RaggedTensor:
    """Return at most `most`, or `most[i]`, values of each row i, truncated at a side."""
    kept = tf.minimum(rows.row_lengths(), tf.cast(most, tf.int64))
    starts = rows.row_starts() if side == "right" else rows.row_limits() - kept
    return tf.gather(rows.flat_values, tf.ragged.range(starts, starts + kept))


def _framed(
    values_a: tf.RaggedTensor,
    values_b: tf.RaggedTensor | None,
    special: tuple[int, int, int],
    max_len: int | None,
    vocab: Vocab,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Arrange values and the special start, end and padding value into padded rows.

    Every position of a row is looked up in one list of all values. Concatenating ragged tensors
    would need many times as many operations.

    Returns:
        The rows `(B, T)`; the length of each row up to its second text, or its end, int64 `(B,)`;
        and its length without padding, int64 `(B,)`.
    """
    special = tf.constant(special, values_a.dtype)
    texts = [values_a] if values_b is None else [values_a, values_b]
    flat = tf.concat([*(text.flat_values for text in texts), special], axis=0)
    texts[1:1] = [None] * (vocab.num_separators - 1) * (len(texts) - 1)  # each adds a separator
    start, end, padding = (tf.size(flat, tf.int64) - n for n in (3, 2, 1))
    lengths = [1 + values_a.row_lengths() + 1]
    for text in texts[1:]:
        lengths.append(lengths[-1] + (0 if text is None else text.row_lengths()) + 1)
    least = ADDED_TO_ONE  # a batch without rows is as wide as an empty text
    longest = tf.reduce_max(tf.concat([lengths[-1], [least]], 0)) if max_len is None else max_len
    positions = tf.range(tf.cast(longest, tf.int64))

    places = tf.where(positions == 0, start, padding)
    first, num_before = tf.ones_like(lengths[0]), tf.constant(0, tf.int64)
    for text, length in zip(texts, lengths, strict=True):
        last = length[:, tf.newaxis] - 1
        places = tf.where(positions == last, end, places)
        if text is not None:
            of_text = (num_before + text.row_starts() - first)[:, tf.newaxis] + positions
            is_text = (positions >= first[:, tf.newaxis]) & (positions < last)
            places = tf.where(is_text, of_text, places)
            num_before += tf.size(text.flat_values, tf.int64)
        first = length
    return tf.gather(flat, places), lengths[-2:][0], lengths[-1]


def get_tokens_and_segments(
    tokens_a: Sequence[str], tokens_b: Sequence[str] | None = None
) -> tuple[list[str], list[int]]:
    """Join one or two lists of tokens into a BERT input sequence (d2l.ai, section 15.8.4).

    The sequence is `<cls> a <sep>` or `<cls> a <sep> b <sep>`. Segment 0 ends with the first
    `<sep>`. The inputs are not changed.

    Args:
        tokens_a: Tokens of the first text.
        tokens_b: Tokens of the second text, or None for a single text.

    Returns:
        The tokens including the special tokens, and a list of the same length with the segment of
        each token, 0 or 1.

    Raises:
        ValueError: If an argument is a string instead of a list of tokens.

    Example:
        >>> import keras_bert_d2l as kb
        >>> kb.get_tokens_and_segments(["the", "cat"], ["sat"])
        (['<cls>', 'the', 'cat', '<sep>', 'sat', '<sep>'], [0, 0, 0, 0, 1, 1])
    """
    check_list("tokens_a", tokens_a, "tokens, such as `text.split()`")
    if tokens_b is not None:
        check_list("tokens_b", tokens_b, "tokens, such as `text.split()`")
    _, _, start, separator, _ = BOOK_SPECIALS
    tokens = [start, *tokens_a, separator]
    segments = [0] * len(tokens)
    if tokens_b is not None:
        tokens += [*tokens_b, separator]
        segments += [1] * (len(tokens_b) + 1)
    return tokens, segments
