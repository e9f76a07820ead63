"""WordPiece: split normalized texts into the pieces of a vocabulary, and locate them in the text.

B: texts in the batch. Offsets count characters (code points, as in Python strings) of the original
text. An end offset is the last character plus one.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.normalization import (
    HIDDEN,
    MARK,
    SHORT_SPACES,
    Normalization,
    decode,
    encode,
    in_graph,
    ragged_rows,
    rows_of_values,
    split_at,
    split_at_spaces,
    split_words,
)
from keras_bert_d2l.text.tokenizer.added_tokens import NO_TOKEN, pattern_of, table
from keras_bert_d2l.text.tokenizer.characters import following
from keras_bert_d2l.text.unicode_forms import previous
from keras_bert_d2l.text.unicode_gaps import stand_ins, white_space
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.text.wordpiece_file import MAX_WORD_CHARACTERS

Pieces = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]

_SUFFIX = "##"
_ALL = 2**30  # more bytes than a word has
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
        self._tables = WordPieces(vocab, normalization)  # a SavedModel stores what it tracks
        self._word_pieces = in_graph(self._tables)  # both functions below call one graph
        self.tokenize = in_graph(lambda texts: self._word_pieces(normalization(texts))[0])
        self.with_offsets = in_graph(self._with_offsets)

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
        self._new_ids = np.array([*range(len(vocab)), *vocab[own]], np.int32) if own else None
        self._max_characters = MAX_WORD_CHARACTERS[normalization.compat]
        self._unk_id = vocab.unk_id
        self._pattern = ""
        if own := list(normalization.normalized_tokens):
            plain = dataclasses.replace(normalization, split_special_tokens=True, special_tokens=())
            with tf.init_scope():
                texts = [text.decode() for text in plain(tf.constant(own)).numpy()]
            found = {text: vocab[token] for text, token in zip(texts, own, strict=True) if text}
            # A special token was found before, so none of these may be a part of it.
            pattern = pattern_of({text: {} for text in found}).replace(r"\x{20}", SHORT_SPACES)
            self._pattern = f"{MARK}[^{MARK}]*{MARK}|{pattern}"
            self._whole = table([*found], np.array([*found.values()], np.int32))
            self._word = normalization.markers[vocab.special_tokens[0]]  # is one piece
        ids = {token: n for n, token in enumerate(tokens) if len(token) <= self._max_characters}
        self._ids = table([*ids], np.array([*ids.values()], np.int32))
        lengths = [len(token.removeprefix(_SUFFIX).encode()) for token in tokens]
        self._lengths = np.array(lengths, np.int32)
        # How many bytes pieces have. Few lengths are tried, even if one token is very long.
        self._sizes = np.unique([len(token.encode()) for token in ids]).astype(np.int32)
        with tf.init_scope():
            is_word = split_words(tf.constant(tokens)).row_lengths().numpy() == 1
        # Other tokens, such as "##s" and "don't", are no words. The first is for words without id.
        known = np.where(is_word, np.arange(len(tokens)), NO_TOKEN)
        self._word_ids = np.array([NO_TOKEN, *known], np.int32)

    def __call__(self, normalized: tf.Tensor) -> Pieces:
        if not self._pattern:
            return self._of_words(normalized)
        # Split the texts between the tokens that stay whole in a normalized text.
        parts = split_at(normalized, self._pattern)  # ragged (B, None)
        texts = parts.flat_values
        tokens = self._whole.lookup(tf.strings.regex_replace(texts, SHORT_SPACES, " "))
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
        words = split_at_spaces(normalized)
        pieces = pieces_of_words(words.flat_values, self._known(words.flat_values), self._split)
        ids, owners = pieces.flat_values, rows_of_values(pieces)
        splits = tf.gather(pieces.row_splits, words.row_splits)
        is_unknown = ids >= len(self._lengths)
        lengths = tf.where(is_unknown, ids - len(self._lengths), 0)
        ids = tf.where(is_unknown, self._unk_id, ids)
        lengths = tf.where(is_unknown, lengths, tf.gather(self._lengths, ids))
        # In all texts together, there are the pieces and one space after each word.
        ends = tf.cumsum(tf.cast(lengths, tf.int64)) + owners
        first = tf.gather(tf.pad(ends - owners, [[1, 0]]), splits) + words.row_splits
        ends -= tf.gather(first, rows_of_values(ragged_rows(ids, splits)))
        starts = ends - tf.cast(lengths, tf.int64)
        if self._new_ids is not None:
            ids = tf.gather(self._new_ids, ids)
        return tuple(ragged_rows(values, splits) for values in (ids, starts, ends))

    def _known(self, words: tf.Tensor) -> tf.Tensor:
        """Return the id of each word that is one piece, or -1."""
        return tf.gather(self._word_ids, self._ids.lookup(words) + 1)

    def _split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Split texts without white space. An unknown word becomes V plus its number of bytes."""
        words = split_words(texts)
        ids = self._known(words.flat_values)
        pieces = pieces_of_words(words.flat_values, ids, self._split_word)
        return ragged_rows(pieces.flat_values, tf.gather(pieces.row_splits, words.row_splits))

    def _split_word(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Split words into the longest pieces, from the left; all words at once."""
        num_words = tf.size(words)
        is_long = tf.strings.length(words, unit="UTF8_CHAR") > self._max_characters

        def step(
            rests: tf.Tensor, rows: tf.Tensor, least: tf.Tensor, ids: tf.Tensor, owners: tf.Tensor
        ) -> tuple[tf.Tensor, ...]:
            """Find the longest piece, of at least `least` bytes, at the start of each rest."""
            lengths = tf.strings.length(rests)
            is_possible = (self._sizes >= least) & (self._sizes <= tf.reduce_max(lengths))
            sizes = tf.boolean_mask(self._sizes, is_possible)[tf.newaxis]
            starts = tf.strings.substr(rests[:, tf.newaxis], tf.zeros_like(sizes), sizes)
            found = self._ids.lookup(starts)
            size = tf.maximum(tf.reduce_max(tf.where(found == NO_TOKEN, 0, sizes), 1), 0)
            is_longest = sizes == size[:, tf.newaxis]
            new = tf.maximum(tf.reduce_max(tf.where(is_longest, found, NO_TOKEN), 1), NO_TOKEN)
            goes_on = tf.where((size > 0) & (size < lengths))[:, 0]
            size = tf.gather(size, goes_on)
            rests = tf.gather(rests, goes_on)
            rests = tf.strings.substr(rests, size, tf.fill(tf.shape(size), _ALL))
            return (
                tf.strings.join([_SUFFIX, rests]),
                tf.gather(rows, goes_on),
                len(_SUFFIX) + 1,
                tf.concat([ids, new], 0),
                tf.concat([owners, rows], 0),
            )

        none = tf.zeros([0], tf.int32)
        *_, ids, owners = tf.while_loop(
            lambda rests, *_: tf.size(rests) > 0,
            step,
            [tf.where(is_long, "", words), tf.range(num_words), 1, none, none],
            shape_invariants=[tf.TensorShape(x) for x in ([None], [None], [], [None], [None])],
        )
        order = tf.argsort(owners, stable=True)
        ids, owners = tf.gather(ids, order), tf.gather(owners, order)
        is_unknown = tf.math.unsorted_segment_min(ids, owners, num_words) == NO_TOKEN
        is_unknown = tf.gather(is_unknown, owners)
        kept = tf.where(~is_unknown | (owners != previous(owners, -1)))[:, 0]
        unknown = len(self._lengths) + tf.gather(tf.strings.length(words), owners)
        ids = tf.gather(tf.where(is_unknown, unknown, ids), kept)
        limits = tf.range(num_words + 1)
        return ragged_rows(ids, tf.searchsorted(tf.gather(owners, kept), limits, out_type=tf.int64))


def pieces_of_words(
    words: tf.Tensor, ids: tf.Tensor, split: Callable[[tf.Tensor], tf.RaggedTensor]
) -> tf.RaggedTensor:
    """Return the pieces of words, ragged int32 `(W, None)`.

    Args:
        words: Strings `(W,)`.
        ids: The id of each word that is one piece, int32 `(W,)`, and -1 for other words.
        split: Returns the pieces of different other words, strings `(U,)`, as ragged `(U, None)`.
    """
    others = tf.where(ids == NO_TOKEN)
    different, place = tf.unique(tf.gather_nd(words, others), tf.int64)
    found = split(different)
    num_words = tf.size(words, tf.int64)
    rows = tf.tensor_scatter_nd_update(tf.range(num_words), others, num_words + place)
    (splits,), ids = tf.raw_ops.RaggedGather(
        params_nested_splits=[tf.concat([tf.range(num_words), num_words + found.row_splits], 0)],
        params_dense_values=tf.concat([ids, found.flat_values], 0),
        indices=rows,
        OUTPUT_RAGGED_RANK=1,
    )
    return ragged_rows(ids, splits)


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
