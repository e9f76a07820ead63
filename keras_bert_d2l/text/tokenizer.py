"""Strings in, token ids out, and back: a `Tokenizer` made of TensorFlow ops.

B: texts in the batch, T: tokens in a row.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text._tensorflow_text import tensorflow_text
from keras_bert_d2l.text.normalization import MAX_WORD_CHARACTERS, normalize, special_markers
from keras_bert_d2l.text.vocab import Vocab

_MAX_BYTES_PER_CHARACTER = 4
_ADDED_TO_ONE, _ADDED_TO_PAIR = 2, 3  # start and separator; start and two separators

# What `detokenize` takes back after the tokens were joined by spaces.
_SPACING = (
    (r" ##", ""),
    (r" ([.,:;!?%)\]}])", r"\1"),
    (r"([(\[{$]) ", r"\1"),
    (r"(\pL) (['’]) (s|t|d|m|ll|re|ve)\b", r"\1\2\3"),
)


class Tokenizer(tf.Module):
    """Turns texts into the token ids of a WordPiece vocabulary, inside the TensorFlow graph.

    The ids are those of `tokenization.py` of google-research/bert: clean, lower and strip accents
    (`lowercase`), split at white space and punctuation, then take the longest pieces that the
    vocabulary has. One thing differs: a special token written in the text (`"[MASK]"`, in the
    spelling of the vocabulary) stays whole, and `<unk>`, which corpora write for a rare word,
    always is the unknown token. A word with bytes that are not UTF-8 is unknown.

    It works eagerly, in a `tf.function`, in `tf.data.Dataset.map` (map after batching: one call
    on a thousand texts is far faster than a thousand calls) and in a SavedModel, which then loads
    where `tensorflow` and `tensorflow_text` are imported.

    Args:
        vocab: The `Vocab`.
        lowercase: Whether the vocabulary is of lowered words without accents ("uncased").

    Call arguments:
        texts: A string, a list of strings, or a string tensor `(B,)` (a single one: B = 1).
        texts_b: The second text of each pair, as `texts`; None for single texts.
        max_len: None (rows are as long as the longest) or the length T of every row. What is too
            long loses tokens at its end; of a pair, the longer text loses them until both are
            equally long, and then both do: an odd token stays with the text that was longer, or
            with `texts_b`.

    Returns: a dictionary of int32 tensors: `tokens` `(B, T)`, that is `[CLS] a [SEP]` or
        `[CLS] a [SEP] b [SEP]` and padding; `segments` `(B, T)`, 1 from `b` to the last `[SEP]`
        and 0 elsewhere; `valid_lens` `(B,)`, tokens that are no padding.

    Raises:
        ImportError: tensorflow-text is not installed or does not match TensorFlow.
        ValueError: The texts are no strings or of a higher rank, the two texts are not equally
            many, or `max_len` has no room for a token of each text.
    """

    def __init__(self, vocab: Vocab, lowercase: bool = True) -> None:
        super().__init__(name="tokenizer")
        if not isinstance(vocab, Vocab):
            raise ValueError(
                f"`vocab` must be a Vocab. Received: {vocab!r:.80}; "
                "`Vocab.from_file(path)` reads one."
            )
        self.vocab = vocab
        self.lowercase = lowercase
        tokens = list(vocab.tokens)
        markers = special_markers(vocab.special_tokens, lowercase)
        for position, marker in zip(vocab.special_ids, markers, strict=True):
            tokens[position] = marker
        self._wordpiece = tensorflow_text().FastWordpieceTokenizer(
            tokens,
            max_bytes_per_word=MAX_WORD_CHARACTERS * _MAX_BYTES_PER_CHARACTER,
            unknown_token=markers[1],
            token_out_type=tf.int32,
        )

    def __call__(
        self, texts: Any, texts_b: Any = None, max_len: int | None = None
    ) -> dict[str, tf.Tensor]:
        is_pair = texts_b is not None
        _check_max_len(max_len, _ADDED_TO_PAIR if is_pair else _ADDED_TO_ONE, 1 + is_pair)
        tokens_a = self.tokenize(texts)
        tokens_b = self.tokenize(texts_b) if is_pair else None
        if tokens_b is not None:
            _check_same_number(tokens_a, tokens_b)
        if max_len is not None:
            tokens_a, tokens_b = _truncate(tokens_a, tokens_b, max_len)
        return self._pack(tokens_a, tokens_b, max_len)

    def tokenize(self, texts: Any) -> tf.RaggedTensor:
        """Returns the token ids of texts, without adding special tokens.

        Args:
            texts: A string, a list of strings, or a string tensor `(B,)`.

        Returns: ids, ragged int32 `(B, None)`.

        Raises:
            ValueError: The texts are no strings or of a higher rank.
        """
        texts = _as_texts(texts)
        return self._wordpiece.tokenize(normalize(texts, self.vocab.special_tokens, self.lowercase))

    def detokenize(self, ids: Any) -> tf.Tensor:
        """Returns readable texts for token ids.

        Padding, start and separator are left out, other special tokens are written as they are.
        Pieces are joined to words; there is no space before `. , : ; ! ? % ) ] }`, after
        `( [ { $`, nor within contractions such as "don't". Case, accents and the remaining
        spaces of the original text are lost.

        Args:
            ids: int `(B, T)`, dense, ragged or nested lists; or one row `(T,)`, then B = 1.

        Returns: strings `(B,)`.

        Raises:
            ValueError: The ids are no integers, of another rank, or (called eagerly) outside the
                vocabulary.
        """
        ids = _as_ids(ids, len(self.vocab))
        values = ids.flat_values
        framing = (self.vocab.pad_id, self.vocab.cls_id, self.vocab.sep_id)
        is_text = tf.reduce_all(values[:, tf.newaxis] != tf.constant(framing, values.dtype), axis=1)
        ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(is_text))
        pieces = ids.with_flat_values(tf.gather(tf.constant(self.vocab.tokens), ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=1, separator=" ")
        for pattern, replacement in _SPACING:
            texts = tf.strings.regex_replace(texts, pattern, replacement)
        return texts

    def _pack(
        self, tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor | None, max_len: int | None
    ) -> dict[str, tf.Tensor]:
        start = tf.fill([tokens_a.nrows(), 1], self.vocab.cls_id)
        end = tf.fill([tokens_a.nrows(), 1], self.vocab.sep_id)
        first = tf.concat([start, tokens_a, end], axis=1)
        row = first if tokens_b is None else tf.concat([first, tokens_b, end], axis=1)
        tokens = row.to_tensor(self.vocab.pad_id, shape=(None, max_len))
        valid_lens = tf.cast(row.row_lengths(), tf.int32)
        num_tokens = tf.shape(tokens)[1]
        in_first = tf.sequence_mask(first.row_lengths(), num_tokens, tf.int32)
        segments = tf.sequence_mask(valid_lens, num_tokens, tf.int32) - in_first
        if max_len is not None:
            segments = tf.ensure_shape(segments, (None, max_len))
        return {"tokens": tokens, "segments": segments, "valid_lens": valid_lens}


def _truncate(
    tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor | None, max_len: int
) -> tuple[tf.RaggedTensor, tf.RaggedTensor | None]:
    if tokens_b is None:
        return tokens_a[:, : max_len - _ADDED_TO_ONE], None
    room = tf.constant(max_len - _ADDED_TO_PAIR, tf.int64)
    lengths_a, lengths_b = tokens_a.row_lengths(), tokens_b.row_lengths()
    kept_of_shorter = tf.minimum(tf.minimum(lengths_a, lengths_b), room // 2)
    kept_of_longer = tf.minimum(tf.maximum(lengths_a, lengths_b), room - kept_of_shorter)
    a_is_longer = lengths_a > lengths_b
    return (
        _first(tokens_a, tf.where(a_is_longer, kept_of_longer, kept_of_shorter)),
        _first(tokens_b, tf.where(a_is_longer, kept_of_shorter, kept_of_longer)),
    )


def _first(rows: tf.RaggedTensor, kept: tf.Tensor) -> tf.RaggedTensor:
    """Returns the first `kept[i]` values of each row i."""
    return tf.ragged.boolean_mask(rows, tf.ragged.range(rows.row_lengths()) < kept[:, tf.newaxis])


def _as_texts(texts: Any) -> tf.Tensor:
    expected = "Texts must be a string, a list of strings or a string tensor (B,)."
    try:
        tensor = tf.convert_to_tensor(texts, tf.string)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{expected} Received: {texts!r:.120} ({type(texts).__name__})."
        ) from error
    if tensor.shape.rank is not None and tensor.shape.rank > 1:
        raise ValueError(
            f"{expected} Received: a tensor of shape {tensor.shape}; flatten it first."
        )
    return tensor if tensor.shape.rank == 1 else tf.reshape(tensor, [-1])


def _as_ids(ids: Any, vocab_size: int) -> tf.RaggedTensor:
    expected = "Ids must be integers (B, T), dense or ragged, or one row (T,)."
    try:
        if isinstance(ids, list | tuple) and any(isinstance(row, list | tuple) for row in ids):
            ids = tf.ragged.constant(ids, tf.int32, ragged_rank=1)
        elif not isinstance(ids, tf.RaggedTensor):
            ids = tf.convert_to_tensor(ids)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected} Received: {ids!r:.120}.") from error
    if ids.shape.rank == 1:
        ids = ids[tf.newaxis]
    if ids.shape.rank != 2 or not ids.dtype.is_integer:
        raise ValueError(f"{expected} Received: {ids.dtype.name} of shape {ids.shape}.")
    if not isinstance(ids, tf.RaggedTensor):
        ids = tf.RaggedTensor.from_tensor(ids)
    if tf.executing_eagerly():
        outside = ids.flat_values.numpy()
        outside = outside[(outside < 0) | (outside >= vocab_size)]
        if outside.size:
            raise ValueError(
                f"An id must be in 0..{vocab_size - 1}, this vocabulary has {vocab_size} tokens. "
                f"Received: {outside[0]}."
            )
    return ids


def _check_max_len(max_len: int | None, num_added: int, num_texts: int) -> None:
    if max_len is None:
        return
    is_int = isinstance(max_len, int | np.integer) and not isinstance(max_len, bool)
    if not is_int or max_len < num_added + num_texts:
        raise ValueError(
            f"`max_len` must be None or an integer of at least {num_added + num_texts}: "
            f"{num_added} special tokens and one of each text. Received: max_len={max_len!r}."
        )


def _check_same_number(tokens_a: tf.RaggedTensor, tokens_b: tf.RaggedTensor) -> None:
    num_a, num_b = tokens_a.shape[0], tokens_b.shape[0]
    if num_a is not None and num_b is not None and num_a != num_b:
        raise ValueError(
            "`texts` and `texts_b` must be equally many, one pair a row. Received: "
            f"{num_a} and {num_b}."
        )
