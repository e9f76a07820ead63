"""WordPiece: split normalized texts into the pieces of a vocabulary, and locate them in the text.

B: texts in the batch. Offsets count characters (code points, as in Python strings) of the original
text. An end offset is the last character plus one.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.normalization import (
    HIDDEN,
    MARK,
    Normalization,
    decode,
    encode,
    in_graph,
    ragged_rows,
    rows_of_values,
    split_at,
    tensorflow_text,
)
from keras_bert_d2l.text.tokenizer.added_tokens import NO_TOKEN, pattern_of, table
from keras_bert_d2l.text.tokenizer.characters import following, previous
from keras_bert_d2l.text.unicode_gaps import character_class, stand_ins, white_space
from keras_bert_d2l.text.vocab import Vocab

Pieces = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]

# Longer words become the unknown token.
MAX_WORD_CHARACTERS = {"google": 200, "huggingface": 100}
_MAX_BYTES_PER_CHARACTER = 4
_SUFFIX = "##"
_SPACE = f"[{character_class(white_space())}]"
# Regular expressions that remove spaces after `detokenize` has joined the tokens with spaces.
_SPACING = (
    (r" ##", ""),
    (r" ([.,:;!?%)\]}])", r"\1"),
    (r"([(\[{$]) ", r"\1"),
    (r"(\pL) (['’]) (s|t|d|m|ll|re|ve)\b", r"\1\2\3"),
)


class WordPieceSplitter(tf.Module):
    """Splits texts into WordPiece tokens, and joins them.

    Args:
        vocab: The `Vocab`.
        normalization: The `Normalization` of the texts.
    """

    def __init__(self, vocab: Vocab, normalization: Normalization) -> None:
        super().__init__(name="splitter")
        self.normalization = normalization
        self._tokens = vocab.tokens
        self._word_pieces = WordPieces(vocab, normalization)
        self.with_offsets = in_graph(self._with_offsets)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of texts, ragged int32 `(B, None)`."""
        return self._word_pieces(self.normalization(texts))[0]

    def tokenize_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the ids of each word of texts, ragged int32 `(number of words, None)`."""
        return self.tokenize(words.values)

    def _with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Return the ids of texts, and the characters at which each token starts and ends.

        Each character is also normalized on its own. The number of bytes it contributes to the
        normalized text maps the bytes of a piece back to characters. A character that contributes
        nothing does not belong to any piece: the piece `e` of `e` and a combining accent ends
        before the accent.
        """
        codes = decode(self.normalization.mark(texts))
        ids, starts, ends = self._word_pieces(self.normalization.clean(encode(codes)))

        different, place = tf.unique(codes.flat_values)
        lengths = tf.strings.length(self.normalization.clean(encode(different[:, tf.newaxis])))
        byte_ends = tf.cumsum(tf.cast(tf.gather(lengths, place), tf.int64))
        byte_ends = tf.concat([[0], byte_ends], axis=0)  # number of bytes of the first n characters
        is_of_the_text = _is_of_the_text(codes.flat_values, bool(self.normalization.special_tokens))
        characters = tf.cumsum(tf.cast(is_of_the_text, tf.int32), exclusive=True)

        row_starts = tf.gather(codes.row_starts(), rows_of_values(ids))
        first_byte = tf.gather(byte_ends, row_starts)
        first_character = tf.gather(characters, row_starts)

        def character_of(byte: tf.Tensor) -> tf.Tensor:
            place = tf.searchsorted(
                byte_ends[1:], first_byte + byte, side="right", out_type=tf.int64
            )
            return tf.gather(characters, place) - first_character

        return (
            ids,
            starts.with_flat_values(character_of(starts.flat_values)),
            ends.with_flat_values(character_of(ends.flat_values - 1) + 1),
        )

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Return the texts of ids, strings `(B,)`."""
        pieces = ids.with_flat_values(tf.gather(tf.constant(self._tokens), ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=1, separator=" ")
        for pattern, replacement in _SPACING:
            texts = tf.strings.regex_replace(texts, pattern, replacement)
        return texts


class WordPieces(tf.Module):
    """Splits texts into words, and words into the longest pieces in the vocabulary.

    Args:
        vocab: The `Vocab`.
        normalization: The `Normalization` of the texts.

    Call arguments:
        normalized: Output of `normalization`, strings `(B,)`.

    Returns:
        Three ragged tensors `(B, None)`: the ids, int32, and the byte offsets in the normalized
        text at which each piece starts and ends, int64. A special token or an
        unknown word is one piece.
    """

    def __init__(self, vocab: Vocab, normalization: Normalization) -> None:
        super().__init__(name="word_pieces")
        tokens = _tokens_as_normalized(vocab, normalization)
        # Special tokens of the user may also be ordinary words, such as "AI" in "ÀI". They are
        # found as additional tokens, whose ids are replaced.
        own = list(normalization.special_tokens)
        self._ids = np.array([*range(len(vocab)), *vocab[own]], np.int32) if own else None
        self._max_characters = MAX_WORD_CHARACTERS[normalization.compat]
        self._unk_id = vocab.unk_id
        self._pattern = ""
        if own := list(normalization.normalized_tokens):
            plain = dataclasses.replace(normalization, split_special_tokens=True, special_tokens=())
            with tf.init_scope():
                texts = [text.decode() for text in plain(tf.constant(own)).numpy()]
            found = {text: vocab[token] for text, token in zip(texts, own, strict=True) if text}
            # A special token was found before, so none of these may be a part of it.
            pattern = pattern_of({text: {} for text in found}).replace(r"\x{20}", _SPACE)
            self._pattern = f"{MARK}[^{MARK}]*{MARK}|{pattern}"
            self._table = table([*found], np.array([*found.values()], np.int32))
            self._word = normalization.markers[vocab.special_tokens[0]]  # is one piece
        self._is_suffix = np.array([token.startswith(_SUFFIX) for token in tokens])
        # A word with too many bytes has at least this many pieces after the first.
        longest = max((len(token.encode()) for token in tokens if MARK not in token), default=1)
        self._many_suffixes = self._max_characters // longest
        self._kernel = tensorflow_text().FastWordpieceTokenizer(
            tokens,
            suffix_indicator=_SUFFIX,
            max_bytes_per_word=self._max_characters * _MAX_BYTES_PER_CHARACTER,
            unknown_token=normalization.markers[vocab.special_tokens[1]],
            token_out_type=tf.int32,
        )

    def __call__(self, normalized: tf.Tensor) -> Pieces:
        if not self._pattern:
            return self._of_words(normalized)
        # Split the texts between the tokens that stay whole in a normalized text.
        parts = split_at(normalized, self._pattern)  # ragged (B, None)
        texts = parts.flat_values
        tokens = self._table.lookup(tf.strings.regex_replace(texts, _SPACE, " "))
        ids, starts, ends = self._of_words(tf.where(tokens == NO_TOKEN, texts, self._word))
        lengths = tf.cast(tf.strings.length(texts), tf.int64)
        before = tf.cumsum(lengths, exclusive=True)
        first = tf.gather(tf.pad(before, [[0, 1]]), parts.row_splits)[:-1]
        before -= tf.gather(first, rows_of_values(parts))  # bytes of the row before each part
        part = rows_of_values(ids)
        tokens, lengths, before = (tf.gather(x, part) for x in (tokens, lengths, before))
        is_other, splits = tokens == NO_TOKEN, tf.gather(ids.row_splits, parts.row_splits)
        return (
            ragged_rows(tf.where(is_other, ids.flat_values, tokens), splits),
            ragged_rows(before + starts.flat_values, splits),
            ragged_rows(before + tf.where(is_other, ends.flat_values, lengths), splits),
        )

    def _of_words(self, normalized: tf.Tensor) -> Pieces:
        pieces = self._kernel.tokenize_with_offsets(normalized)
        is_suffix = tf.gather(self._is_suffix, pieces[0].flat_values)
        pieces = tf.cond(
            _has_run(is_suffix, self._many_suffixes),
            lambda: self._without_long_words(normalized, pieces, is_suffix),
            lambda: pieces,
        )
        if self._ids is None:
            return pieces
        ids, starts, ends = pieces
        return ids.with_flat_values(tf.gather(self._ids, ids.flat_values)), starts, ends

    def _without_long_words(
        self, normalized: tf.Tensor, pieces: Pieces, is_suffix: tf.Tensor
    ) -> Pieces:
        """Replace words of too many characters, which the kernel split, with the unknown token."""
        ids, starts, ends = pieces
        first_pieces = tf.where(~is_suffix)[:, 0]
        next_words = tf.concat([first_pieces, [tf.size(is_suffix, tf.int64)]], axis=0)[1:]
        word_starts = tf.gather(starts.flat_values, first_pieces)
        word_ends = tf.gather(ends.flat_values, next_words - 1)
        num_bytes = word_ends - word_starts

        def joined() -> Pieces:
            rows = tf.gather(rows_of_values(ids), first_pieces)
            words = tf.strings.substr(tf.gather(normalized, rows), word_starts, num_bytes)
            is_long = tf.strings.length(words, unit="UTF8_CHAR") > self._max_characters
            word_of_piece = tf.cumsum(tf.cast(~is_suffix, tf.int32)) - 1
            in_long = tf.gather(is_long, word_of_piece)
            is_kept = ~(in_long & is_suffix)
            num_kept_before = tf.cumsum(tf.cast(tf.pad(is_kept, [[1, 0]]), tf.int64))
            splits, kept = tf.gather(num_kept_before, ids.row_splits), tf.where(is_kept)[:, 0]
            new_ids = tf.where(in_long, self._unk_id, ids.flat_values)
            new_ends = tf.where(in_long, tf.gather(word_ends, word_of_piece), ends.flat_values)
            return tuple(
                tf.RaggedTensor.from_row_splits(tf.gather(values, kept), splits, validate=False)
                for values in (new_ids, starts.flat_values, new_ends)
            )

        # A word has at most as many characters as bytes, so usually no word needs to be examined.
        return tf.cond(tf.reduce_any(num_bytes > self._max_characters), joined, lambda: pieces)


def _has_run(flags: tf.Tensor, length: int) -> tf.Tensor:
    """Return whether n consecutive flags are set; n is the largest power of 2 up to `length`."""
    step = 1
    while 2 * step <= length:
        flags = flags[step:] & flags[:-step]
        step *= 2
    return tf.reduce_any(flags) if length else tf.constant(True)


def _tokens_as_normalized(vocab: Vocab, normalization: Normalization) -> list[str]:
    """Return the V tokens as they appear in a normalized text, and the user's special tokens."""
    new = stand_ins(normalization.compat, normalization.tokenize_chinese_chars)
    reserved = (set(new.values()) - new.keys()) | white_space()
    tokens = []
    for position, token in enumerate(vocab.tokens):
        # Reserved characters and white space of the original text never reach a word.
        unreachable = not reserved.isdisjoint(map(ord, token))
        tokens.append(f"{MARK}{position}{MARK}" if unreachable else token.translate(new))
    markers = normalization.markers
    for token in vocab.special_tokens:
        tokens[vocab[token]] = markers[token]
    return [*tokens, *(markers[token] for token in normalization.special_tokens)]


def _is_of_the_text(codes: tf.Tensor, has_hidden: bool) -> tf.Tensor:
    """Return False for characters that `Normalization.mark` added around special tokens."""
    is_mark = codes == ord(MARK)
    is_left = is_mark & (tf.cumsum(tf.cast(is_mark, tf.int32)) % 2 == 1)
    is_right = is_mark & ~is_left
    # A space was added before each left mark and after each right one.
    is_added = following(is_left, False) | previous(is_right, False)
    if has_hidden:
        # The marks around hidden characters were added, too. The right one ends the token, so the
        # first hidden character counts as added in its place.
        is_left &= following(codes >= HIDDEN, False)
        is_added |= is_left | previous(is_left, False)
    return ~is_added
