"""Byte-level byte-pair encoding (BPE) as TensorFlow ops, as in RoBERTa and ModernBERT.

B: texts in the batch, N: characters of all texts, W: words of all texts, U: different words, S:
symbols of these words.

Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units",
section 3.2; github.com/openai/gpt-2, `src/encoder.py`; and github.com/huggingface/tokenizers.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text import definition as definitions
from keras_bert_d2l.text.definition import BYTES, token_bytes
from keras_bert_d2l.text.normalization import rows_of_values
from keras_bert_d2l.text.tokenizer.added_tokens import NO_TOKEN, SPACES, AddedTokens
from keras_bert_d2l.text.tokenizer.characters import previous
from keras_bert_d2l.text.tokenizer.gpt2_words import word_starts
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces
from keras_bert_d2l.text.unicode_forms import normalize, sources
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

_NO_PAIR = tf.int64.max
# Stands for the character 0, at which tensorflow-text would end a text. `_decode` restores it.
_NUL = b"\xff"
_SPACE = "Ġ"  # stands for a space in the tokens


class _Words(NamedTuple):
    """The words of texts. An added token is one word.

    Attributes:
        codes: Code points of all words, int32 `(N,)`.
        strings: The words, strings `(W,)`.
        added: Id of each added token, int32 `(W,)`, and -1 for other words.
        row_splits: First word of each text, int64 `(B + 1,)`.
        origins: The character of the texts that each character comes from, int64 `(N,)`.
    """

    codes: tf.Tensor
    strings: tf.Tensor
    added: tf.Tensor
    row_splits: tf.Tensor
    origins: tf.Tensor


class BytePairSplitter(tf.Module):
    """Splits texts into tokens of byte-level BPE, and joins them.

    Bytes that are not UTF-8 count as U+FFFD.

    Args:
        vocab: A `Vocab` of the kind "bpe".
    """

    def __init__(self, vocab: Vocab) -> None:
        super().__init__(name="splitter")
        definition = vocab.definition or {}
        steps = definitions.steps(definition["normalizer"], "normalizers")
        self._forms = tuple(step["type"] for step in steps)
        (options,) = definitions.steps(definition["pre_tokenizer"], "pretokenizers")
        self._adds_space = options.get("add_prefix_space", True)
        self._splits_words = options.get("use_regex", True)
        self._added = AddedTokens(vocab, self._normalized_token)
        self._byte_pairs = BytePairs(vocab.tokens, definition["model"])
        self._bytes = tuple(token_bytes(token) or token.encode() for token in vocab.tokens)
        self._num_bytes = np.array([*map(len, self._bytes)], np.int64)
        if self._byte_pairs.unk_id is not None:  # stands for one byte
            self._num_bytes[self._byte_pairs.unk_id] = 1
        self._trims = _trims(vocab.tokens, definition)

        # A loop runs several times faster in a graph than eagerly. Functions hide the graphs, so
        # that a SavedModel does not store them a second time.
        signature = [tf.TensorSpec([None], tf.string)]
        ids, pieces = (
            tf.function(function, signature, autograph=False)
            for function in (self._tokenize, self._with_offsets)
        )
        self._in_graph = lambda texts: ids(texts), lambda texts: pieces(texts)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of texts, ragged int32 `(B, None)`."""
        return self._in_graph[0](texts)

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = self._words(texts, with_origins=False)
        ids = self._byte_pairs(words.strings, words.added)
        return _rows(ids.flat_values, tf.gather(ids.row_splits, words.row_splits))

    def tokenize_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the ids of each word of texts, ragged int32 `(number of words, None)`.

        All words but the first of a text have a space before them.
        """
        is_first = tf.ragged.range(words.row_lengths()).flat_values == 0
        values = words.flat_values
        return self.tokenize(tf.where(is_first, values, tf.strings.join([" ", values])))

    def with_offsets(self, texts: tf.Tensor) -> Pieces:
        """Return the ids of texts, and the characters at which each token starts and ends."""
        return self._in_graph[1](texts)

    def _with_offsets(self, texts: tf.Tensor) -> Pieces:
        words = self._words(texts, with_origins=True)
        ids = self._byte_pairs(words.strings, words.added)
        codes = words.codes
        widths = 1 + sum(tf.cast(codes >= limit, tf.int64) for limit in (0x80, 0x800, 0x10000))
        byte_ends = tf.cumsum(widths)
        word_of_token = rows_of_values(ids)
        is_added = tf.gather(words.added != NO_TOKEN, word_of_token)
        word_bytes = tf.cast(tf.strings.length(words.strings), tf.int64)
        num_bytes = tf.where(
            is_added,
            tf.gather(word_bytes, word_of_token),
            tf.gather(self._num_bytes, ids.flat_values),
        )
        token_ends = tf.cumsum(num_bytes)

        def character_of(byte: tf.Tensor) -> tf.Tensor:
            place = tf.searchsorted(byte_ends, byte, side="right", out_type=tf.int64)
            return tf.cast(tf.gather(words.origins, place), tf.int32)

        starts, ends = character_of(token_ends - num_bytes), character_of(token_ends - 1) + 1
        splits = tf.gather(ids.row_splits, words.row_splits)
        tokens = _rows(ids.flat_values, splits)
        if self._trims is not None:
            spaces = [tf.gather(counts, ids.flat_values) for counts in self._trims[:2]]
            of_added = _spaces_around(tf.where(words.added == NO_TOKEN, "", words.strings))
            leading, trailing = (
                tf.where(is_added, tf.gather(own, word_of_token), of_token)
                for own, of_token in zip(of_added, spaces, strict=True)
            )
            if self._trims[2]:
                is_first = tf.range(splits[-1]) == tf.gather(splits, rows_of_values(tokens))
                is_first = (is_first | (starts == 0)) & (leading == 1)  # a space that was added
                leading = tf.where(is_first, 0, leading)
            starts = tf.minimum(starts + leading, ends)
            ends = tf.where(ends >= trailing, tf.maximum(ends - trailing, starts), ends)
        return tokens, _rows(starts, splits), _rows(ends, splits)

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Return the texts of ids, strings `(B,)`."""
        pieces = ids.with_flat_values(tf.gather(tf.constant(self._bytes), ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=1)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")

    def _normalized_token(self, token: str) -> str:
        for form in self._forms:
            token = unicodedata.normalize(form, token)
        return token

    def _words(self, texts: tf.Tensor, with_origins: bool) -> _Words:
        """Cut out the added tokens, normalize the other texts, and split them into words."""
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        texts = tf.strings.regex_replace(texts, r"\x00", _NUL)
        values, splits, origins = self._parts(texts, with_origins)
        added = self._added.ids(values)
        needs_space = tf.zeros_like(added, tf.bool)
        if self._adds_space:
            needs_space = (tf.strings.substr(values, 0, 1) != " ") & (values != "")
            needs_space &= added == NO_TOKEN
            values = tf.where(needs_space, tf.strings.join([" ", values]), values)

        codes = _decode(values)
        owners = rows_of_values(codes)
        is_first = owners != previous(owners, -1)
        is_start = word_starts(codes.flat_values, is_first) if self._splits_words else is_first
        is_start = tf.where(tf.gather(added, owners) == NO_TOKEN, is_start, is_first)
        starts = tf.where(is_start)[:, 0]
        ends = tf.concat([starts, codes.row_splits[-1:]], 0)
        row_starts = tf.gather(codes.row_splits, splits)
        is_new = tf.cast(is_first & tf.gather(needs_space, owners), tf.int64)
        places = tf.range(tf.size(owners, tf.int64)) - tf.cumsum(is_new) + is_new
        places = places if origins is None else tf.gather(origins, places)
        rows = tf.searchsorted(row_starts[1:], tf.range(tf.size(owners, tf.int64)), side="right")
        first = tf.gather(_decode(texts).row_splits, rows)
        return _Words(
            codes.flat_values,
            tf.strings.unicode_encode(_rows(codes.flat_values, ends), "UTF-8"),
            tf.gather(added, tf.gather(owners, starts)),
            tf.searchsorted(starts, row_starts, out_type=tf.int64),
            places - first,
        )

    def _parts(
        self, texts: tf.Tensor, with_origins: bool
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Return the added tokens and the normalized texts between them.

        Returns:
            The parts of all texts, the first part of each text, and the character of the texts
            that each character of the parts comes from, or None if they are the same.
        """
        pieces = self._added.cut(texts, normalized=False)
        values, origins = pieces.flat_values, None
        for form in self._forms:
            is_text = self._added.ids(values) == NO_TOKEN
            new = tf.where(is_text, normalize(values, form), values)
            if with_origins:
                found = sources(_decode(values), _decode(new), form)
                origins = found if origins is None else tf.gather(origins, found)
            values = new
        parts = self._added.cut(values, normalized=True)
        return parts.flat_values, tf.gather(parts.row_splits, pieces.row_splits), origins


class BytePairs(tf.Module):
    """Splits words into the tokens of a BPE model.

    In all words at once, the adjacent symbols whose pair comes first in the list of merges are
    joined, until no pair of the list is left. A table has the words that become a single token.

    Args:
        tokens: The V tokens of the vocabulary.
        model: The `model` of the definition.
    """

    def __init__(self, tokens: Sequence[str], model: ConfigDict) -> None:
        super().__init__(name="byte_pairs")
        own = tokens[: model["num_tokens"]]
        ids = {token: number for number, token in enumerate(own)}
        self._size = len(tokens)
        self.unk_id = ids.get(model.get("unk_token") or "")
        byte_ids = [ids.get(c, self.unk_id) for c in BYTES]
        if None in byte_ids:
            raise ValueError(
                f"The BPE model has no token for the byte {byte_ids.index(None)} and no "
                "`unk_token`, so its tokenizer would lose text. Add the missing tokens of bytes."
            )
        self._byte_ids = np.array(byte_ids, np.int64)
        merges = {
            ids[a] * self._size + ids[b]: rank * self._size + ids[a + b]
            for rank, (a, b) in enumerate(model["merges"])
        }
        self._merges = _table([*merges], [*merges.values()], tf.int64, _NO_PAIR)
        words = {word: ids[token] for token in own if (word := token_bytes(token)) is not None}
        if not model.get("ignore_merges"):
            lengths = self._merged(tf.constant([*words])).row_lengths().numpy()
            is_one = dict(zip(words, lengths == 1, strict=True))
            words = {word: number for word, number in words.items() if is_one[word]}
        self._words = _table([*words], [*words.values()], tf.string, NO_TOKEN)

    def __call__(self, words: tf.Tensor, ids: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of words.

        Args:
            words: Strings `(W,)`.
            ids: The ids of words that are known, int32 `(W,)`, and -1 for the others.

        Returns:
            Ragged int32 `(W, None)`.
        """
        ids = tf.where(ids == NO_TOKEN, self._words.lookup(words), ids)
        others = tf.where(ids == NO_TOKEN)[:, 0]
        num_words = tf.size(ids, tf.int64)

        def with_others() -> tuple[tf.Tensor, tf.Tensor]:
            different, place = tf.unique(tf.gather(words, others), tf.int64)
            merged = self._merged(different)
            lengths = tf.tensor_scatter_nd_update(
                tf.ones_like(ids, tf.int64),
                others[:, tf.newaxis],
                tf.gather(merged.row_lengths(), place),
            )
            starts = tf.tensor_scatter_nd_update(
                tf.range(num_words),
                others[:, tf.newaxis],
                num_words + tf.gather(merged.row_starts(), place),
            )
            taken = tf.ragged.range(starts, starts + lengths)
            values = tf.concat([ids, tf.cast(merged.flat_values, tf.int32)], 0)
            return tf.gather(values, taken.flat_values), taken.row_splits

        flat, splits = tf.cond(
            tf.size(others) > 0, with_others, lambda: (ids, tf.range(num_words + 1))
        )
        return _rows(flat, splits)

    def _merged(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of words, ragged int64 `(U, None)`."""
        symbols = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        symbols = tf.gather(self._byte_ids, tf.cast(symbols, tf.int32))
        lengths = tf.cast(tf.strings.length(words), tf.int64)
        owners = tf.repeat(tf.range(tf.size(words, tf.int64)), lengths)
        shapes = (tf.TensorShape([None]), tf.TensorShape([None]), tf.TensorShape([]))
        symbols, owners, _ = tf.while_loop(
            lambda symbols, owners, is_done: ~is_done,
            self._merge_once,
            (symbols, owners, tf.constant(False)),
            shape_invariants=shapes,
        )
        splits = tf.searchsorted(owners, tf.range(tf.size(words, tf.int64) + 1), out_type=tf.int64)
        return _rows(symbols, splits)

    def _merge_once(
        self, symbols: tf.Tensor, owners: tf.Tensor, _: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Join the first pair of the list of merges that each word has."""
        left, right = symbols[:-1], symbols[1:]
        pairs = tf.where(owners[1:] == owners[:-1], left * self._size + right, -1)
        found = self._merges.lookup(pairs)
        best = tf.gather(tf.math.segment_min(found, owners[:-1]), owners[:-1])
        places = tf.where((found == best) & (found != _NO_PAIR))[:, 0]
        # Of pairs that overlap, as in "aaa", every second one is joined.
        is_alone = places != previous(places, -2) + 1
        first = tf.gather(places, tf.where(is_alone)[:, 0])
        runs = tf.cumsum(tf.cast(is_alone, tf.int32)) - 1
        places = tf.boolean_mask(places, (places - tf.gather(first, runs)) % 2 == 0)
        new = tf.gather(found, places) % self._size
        symbols = tf.tensor_scatter_nd_update(symbols, places[:, tf.newaxis], new)
        is_kept = tf.tensor_scatter_nd_update(
            tf.ones_like(symbols, tf.bool), places[:, tf.newaxis] + 1, tf.zeros_like(new, tf.bool)
        )
        kept = tf.where(is_kept)[:, 0]
        return tf.gather(symbols, kept), tf.gather(owners, kept), tf.size(places) == 0


def _trims(
    tokens: Sequence[str], definition: ConfigDict
) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """Return how many spaces each token starts and ends with.

    The last value is whether those at the start of a text count. None stands for offsets that
    include the spaces.
    """
    if not definitions.trims_offsets(definition):
        return None
    processors = definitions.steps(definition["post_processor"], "processors")
    keeps_first = any(p.get("add_prefix_space", True) for p in processors if "trim_offsets" in p)
    lengths = [(len(t), len(t.lstrip(_SPACE)), len(t.rstrip(_SPACE))) for t in tokens]
    total, without_leading, without_trailing = np.array(lengths, np.int32).T
    return total - without_leading, total - without_trailing, keeps_first


def _spaces_around(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the number of white-space characters at the start and at the end of texts."""
    patterns = (f"^{SPACES}", f"{SPACES}$")
    rests = (tf.strings.regex_replace(texts, pattern, "") for pattern in patterns)
    total, *others = (tf.strings.length(x, unit="UTF8_CHAR") for x in (texts, *rests))
    return total - others[0], total - others[1]


def _decode(texts: tf.Tensor) -> tf.RaggedTensor:
    return tf.strings.unicode_decode(texts, "UTF-8", replacement_char=0)


def _rows(values: tf.Tensor, splits: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def _table(
    keys: Sequence[int | bytes], values: Sequence[int], dtype: tf.DType, default: int
) -> tf.lookup.StaticHashTable:
    value_dtype = tf.int64 if dtype == tf.int64 else tf.int32
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(keys, dtype, [len(keys)]), tf.constant(values, value_dtype, [len(keys)])
        ),
        default,
    )
