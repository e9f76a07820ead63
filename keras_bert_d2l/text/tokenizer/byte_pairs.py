"""Byte-level byte-pair encoding (BPE) as TensorFlow ops, as in RoBERTa and ModernBERT.

B: texts in the batch, P: parts of all texts, N: characters of all texts, T: tokens of all texts.

Source: github.com/openai/gpt-2, `src/encoder.py`; and github.com/huggingface/tokenizers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text import definition as definitions
from keras_bert_d2l.text.definition import BYTES, token_bytes
from keras_bert_d2l.text.normalization import (
    decode,
    encode,
    in_graph,
    ragged_rows,
    rows_of_values,
    split_at_byte,
)
from keras_bert_d2l.text.tokenizer.added_tokens import NO_TOKEN, SPACES, AddedTokens
from keras_bert_d2l.text.tokenizer.characters import LAST_STABLE, Characters
from keras_bert_d2l.text.tokenizer.merges import LATIN, MARK, BytePairs
from keras_bert_d2l.text.tokenizer.normalizers import normalizers_of
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces
from keras_bert_d2l.text.tokenizer.words import WORD_END, mark_words, split_words
from keras_bert_d2l.text.unicode_forms import previous
from keras_bert_d2l.text.unicode_gaps import character_class, word_classes
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.text.word_patterns import GPT2, Split, pattern_of, word_steps
from keras_bert_d2l.types import ConfigDict

_END = WORD_END.decode(LATIN)
_SPACE = "Ġ"  # stands for a space in the tokens


class _Parts(NamedTuple):
    """The added tokens of texts, and the normalized texts between them.

    Attributes:
        values: Strings `(P,)`.
        added: Id of each added token, int32 `(P,)`, and -1 for other parts.
        row_splits: First part of each text, int64 `(B + 1,)`.
        has_new_space: Whether each part starts with a space that was added, bool `(P,)`.
        origins: The character of all texts that each character comes from, apart from the spaces
            that were added, int64 `(N,)`. None if these are the characters of the texts.
    """

    values: tf.Tensor
    added: tf.Tensor
    row_splits: tf.Tensor
    has_new_space: tf.Tensor
    origins: tf.Tensor | None


class BytePairSplitter(tf.Module):
    """Splits texts into tokens of byte-level BPE, and joins them.

    Bytes that are not UTF-8 count as U+FFFD.

    Args:
        vocab: A `Vocab` of the kind "bpe".
    """

    def __init__(self, vocab: Vocab) -> None:
        super().__init__(name="splitter")
        definition = vocab.definition or {}
        self._normalizers = normalizers_of(definition)
        steps = definitions.steps(definition["normalizer"], "normalizers")
        stable = {LAST_STABLE.get(step["type"], -1) for step in steps}
        last = stable.pop() if len(stable) == 1 else -1
        self._unchanged = rf"[\x{{0}}-\x{{{last:x}}}]*" if last >= 0 else None
        self._splits, options, splits_bytes = word_steps(definition["pre_tokenizer"])
        self._adds_space = options.get("add_prefix_space", True)
        self._words = pattern_of(GPT2) if options.get("use_regex", True) else None
        marks = word_classes()[2] if splits_bytes else ()
        self._byte_marks = character_class(n for n, c in enumerate(BYTES) if ord(c) in marks)
        self._added = AddedTokens(vocab, self._normalizers)
        self._byte_pairs = BytePairs(vocab.tokens, definition)
        texts = (self._added.normalized.get(token, token) for token in vocab.tokens)
        self._bytes = tuple(token_bytes(text) or text.encode() for text in texts)
        self._num_bytes = np.array([*map(len, self._bytes)], np.int64)
        if self._byte_pairs.unk_id is not None:  # stands for one byte
            self._num_bytes[self._byte_pairs.unk_id] = 1
        self._trims = _trims(vocab.tokens, definition)
        self.tokenize = in_graph(self._tokenize)
        self.with_offsets = in_graph(self._with_offsets)

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        return self._tokens(self._parts(texts, with_origins=False))[0]

    def tokenize_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the ids of each word of texts, ragged int32 `(number of words, None)`.

        All words but the first of a text have a space before them, apart from added tokens.
        """
        is_first = tf.ragged.range(words.row_lengths()).flat_values == 0
        values = words.flat_values
        has_none = is_first | self._added.start(values)
        return self.tokenize(tf.where(has_none, values, tf.strings.join([" ", values])))

    def _with_offsets(self, texts: tf.Tensor) -> Pieces:
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        parts = self._parts(texts, with_origins=True)
        tokens, part_of_token = self._tokens(parts)
        codes = decode(parts.values)
        values = codes.flat_values
        widths = 1 + sum(tf.cast(values >= limit, tf.int64) for limit in (0x80, 0x800, 0x10000))
        byte_ends = tf.cumsum(widths)
        is_added = tf.gather(parts.added != NO_TOKEN, part_of_token)
        part_bytes = tf.cast(tf.strings.length(parts.values), tf.int64)
        num_bytes = tf.where(
            is_added,
            tf.gather(part_bytes, part_of_token),
            tf.gather(self._num_bytes, tokens.flat_values),
        )
        token_ends = tf.cumsum(num_bytes)
        origins = _origins(parts, codes, texts)

        def character_of(byte: tf.Tensor) -> tf.Tensor:
            place = tf.searchsorted(byte_ends, byte, side="right", out_type=tf.int64)
            return tf.cast(tf.gather(origins, place), tf.int32)

        starts, ends = character_of(token_ends - num_bytes), character_of(token_ends - 1) + 1
        splits = tokens.row_splits
        if self._trims is not None:
            spaces = [tf.gather(counts, tokens.flat_values) for counts in self._trims[:2]]
            texts = tf.where(parts.added == NO_TOKEN, "", parts.values)
            stripped = (
                tf.strings.regex_replace(texts, at, "") for at in (f"^{SPACES}", f"{SPACES}$")
            )
            total, *rests = (tf.strings.length(x, unit="UTF8_CHAR") for x in (texts, *stripped))
            of_added = [total - rest for rest in rests]
            leading, trailing = (
                tf.where(is_added, tf.gather(own, part_of_token), of_token)
                for own, of_token in zip(of_added, spaces, strict=True)
            )
            if self._trims[2]:
                is_first = tf.range(splits[-1]) == tf.gather(splits, rows_of_values(tokens))
                is_first = (is_first | (starts == 0)) & (leading == 1)  # a space that was added
                leading = tf.where(is_first, 0, leading)
            starts = tf.minimum(starts + leading, ends)
            ends = tf.where(ends >= trailing, tf.maximum(ends - trailing, starts), ends)
        return tokens, ragged_rows(starts, splits), ragged_rows(ends, splits)

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Return the texts of ids, strings `(B,)`."""
        pieces = ids.with_flat_values(tf.gather(tf.constant(self._bytes), ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=1)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")

    def _tokens(self, parts: _Parts) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Return the ids of texts, ragged int32 `(B, None)`, and the part of each, int64 `(T,)`."""
        texts = mark_words(parts.values, self._words) if self._words else parts.values
        is_text = parts.added == NO_TOKEN
        marks = tf.strings.join([MARK, tf.strings.as_string(parts.added)])
        latin = tf.strings.unicode_transcode(tf.where(is_text, texts, marks), LATIN, "UTF-8")
        if self._byte_marks:
            latin = tf.strings.regex_replace(latin, f"[{self._byte_marks}]", rf"{_END}\0{_END}")
        words = split_at_byte(latin, _END.encode())
        ids = self._byte_pairs(words.flat_values)
        splits = tf.gather(ids.row_splits, tf.gather(words.row_splits, parts.row_splits))
        part_of_token = tf.gather(rows_of_values(words), rows_of_values(ids))
        return ragged_rows(ids.flat_values, splits), part_of_token

    def _parts(self, texts: tf.Tensor, with_origins: bool) -> _Parts:
        """Cut out the added tokens, and normalize the texts between them."""
        parts = self._added.cut(texts, normalized=False)
        values, splits, origins = parts.flat_values, parts.row_splits, None
        if self._normalizers:
            is_text = self._added.ids(values, normalized=False) == NO_TOKEN
            values, origins = self._normalized(values, is_text, with_origins)
        if self._added.normalized:
            parts = self._added.cut(values, normalized=True)
            values, splits = parts.flat_values, tf.gather(parts.row_splits, splits)
        added = self._added.ids(values)
        found = _Parts(values, added, splits, tf.zeros_like(added, tf.bool), origins)
        for split in self._splits:
            found = _split(split, found)
        if self._adds_space:
            values = found.values
            needs_space = (tf.strings.substr(values, 0, 1) != " ") & (values != "")
            needs_space &= found.added == NO_TOKEN
            values = tf.where(needs_space, tf.strings.join([" ", values]), values)
            found = found._replace(values=values, has_new_space=needs_space)
        return found

    def _normalized(
        self, values: tf.Tensor, is_text: tf.Tensor, with_origins: bool
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Normalize some texts; also return the character that each character comes from."""
        if self._unchanged is not None:
            is_text &= ~tf.strings.regex_full_match(values, self._unchanged)
        places = tf.where(is_text)
        before = decode(values)

        def changed() -> tuple[tf.Tensor, ...]:
            some = decode(tf.gather_nd(values, places))
            rows = tf.cast(rows_of_values(some), tf.int32)
            text = Characters(some.flat_values, tf.range(tf.size(rows)), rows)
            for normalize in self._normalizers:
                text = normalize(text)
            limits = tf.range(tf.size(places) + 1)
            splits = tf.searchsorted(text.rows, limits, out_type=tf.int64)
            new = encode(ragged_rows(text.codes, splits))
            new = tf.tensor_scatter_nd_update(values, places, new)
            if not with_origins:
                return (new,)
            after = decode(new)
            owners = rows_of_values(after)
            moved = tf.gather(before.row_splits - after.row_splits, owners)
            changed_before = tf.where(tf.gather(is_text, rows_of_values(before)))[:, 0]
            origins = tf.tensor_scatter_nd_update(
                tf.range(tf.size(owners, tf.int64)) + moved,
                tf.where(tf.gather(is_text, owners)),
                tf.gather(changed_before, text.sources),
            )
            return new, origins

        same = (values, tf.range(before.row_splits[-1]))[: 1 + with_origins]
        values, *origins = tf.cond(tf.size(places) > 0, changed, lambda: same)
        return values, origins[0] if with_origins else None


def _split(split: Split, parts: _Parts) -> _Parts:
    """Split the parts of texts between the added tokens."""
    texts = tf.where(parts.added == NO_TOKEN, parts.values, "")
    pieces, is_word = split_words(texts, split)
    owners = rows_of_values(pieces)
    added = tf.gather(parts.added, owners)
    values = tf.where(added == NO_TOKEN, pieces.flat_values, tf.gather(parts.values, owners))
    is_kept = is_word | (added != NO_TOKEN)
    origins = parts.origins
    origins = tf.range(decode(parts.values).row_splits[-1]) if origins is None else origins
    is_kept_character = tf.repeat(is_kept, tf.strings.length(values, unit="UTF8_CHAR"))
    before = tf.concat([[0], tf.cumsum(tf.cast(is_kept, tf.int64))], 0)
    row_splits = tf.gather(before, tf.gather(pieces.row_splits, parts.row_splits))
    origins = tf.boolean_mask(origins, is_kept_character)
    values, added = tf.boolean_mask(values, is_kept), tf.boolean_mask(added, is_kept)
    return _Parts(values, added, row_splits, tf.zeros_like(added, tf.bool), origins)


def _origins(parts: _Parts, codes: tf.RaggedTensor, texts: tf.Tensor) -> tf.Tensor:
    """Return the character of its text that each character of the parts comes from."""
    owners = rows_of_values(codes)
    is_new = (owners != previous(owners, -1)) & tf.gather(parts.has_new_space, owners)
    is_new = tf.cast(is_new, tf.int64)
    places = tf.range(tf.size(owners, tf.int64)) - tf.cumsum(is_new) + is_new
    places = places if parts.origins is None else tf.gather(parts.origins, places)
    text_of_part = rows_of_values(ragged_rows(parts.added, parts.row_splits))
    first = tf.gather(decode(texts).row_splits, tf.gather(text_of_part, owners))
    return places - first


def _trims(
    tokens: Sequence[str], definition: ConfigDict
) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """Return how many spaces each token starts and ends with.

    The last value is whether those at the start of a text count. None stands for offsets that
    include the spaces.
    """
    processors = definitions.steps(definition["post_processor"], "processors")
    with_option = ("RobertaProcessing", "ByteLevel")
    if not any(p["type"] in with_option and p.get("trim_offsets", True) for p in processors):
        return None
    keeps_first = any(p.get("add_prefix_space", True) for p in processors if "trim_offsets" in p)
    lengths = [(len(t), len(t.lstrip(_SPACE)), len(t.rstrip(_SPACE))) for t in tokens]
    total, without_leading, without_trailing = np.array(lengths, np.int32).T
    return total - without_leading, total - without_trailing, keeps_first
