"""Tokenizers that split the words of texts into pieces by a model, such as Unigram.

Added tokens are cut out first, and the parts of a text between them are normalized and split into
words.

B: texts, P: parts of all texts, W: words, N: characters of all texts.

Source: github.com/huggingface/tokenizers, `pre_tokenizers`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.definition import steps
from keras_bert_d2l.text.normalization import encode, in_graph, ragged_rows
from keras_bert_d2l.text.tokenizer.added_tokens import NO_TOKEN, AddedTokens
from keras_bert_d2l.text.tokenizer.characters import (
    SPACE,
    Characters,
    characters_of,
    following,
    places_of,
)
from keras_bert_d2l.text.tokenizer.merges import WORD_START, CharacterPairs, byte_tokens
from keras_bert_d2l.text.tokenizer.normalizers import normalizers_of
from keras_bert_d2l.text.tokenizer.unigram import Unigram
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces
from keras_bert_d2l.text.tokenizer.words import split_words
from keras_bert_d2l.text.unicode_forms import CodeTable, previous
from keras_bert_d2l.text.unicode_gaps import white_space
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.text.word_patterns import Split, splits_of
from keras_bert_d2l.types import ConfigDict

_OWN_STEPS = ("WhitespaceSplit", "Metaspace")  # steps that are faster without a regular expression


class _Tokens(NamedTuple):
    """Tokens: ids, and the first and the last character of each in its text, plus one."""

    ids: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    rows: tf.Tensor  # the part of a text that each comes from


class PieceSplitter(tf.Module):
    """Splits texts into the pieces of a model, and joins them.

    Added tokens are cut out first, and the parts of a text between them are normalized and split
    into words.

    Args:
        vocab: A `Vocab` of the kind "unigram", "character-bpe" or "wordlevel".
    """

    def __init__(self, vocab: Vocab) -> None:
        super().__init__(name="splitter")
        definition = vocab.definition or {}
        model = definition["model"]
        pieces = vocab.tokens[: model["num_tokens"]]
        ids = {piece: number for number, piece in enumerate(pieces)}
        self._kind, self._has_bytes = vocab.kind, bool(model.get("byte_fallback"))
        self._splits_at_marks, words = False, ids
        if vocab.kind == "wordlevel":
            self._model = _of_words(ids[model["unk_token"]])
        elif vocab.kind == "character-bpe":
            self._model = CharacterPairs(pieces, model)
            words = self._model.words_of_one_piece(pieces)
            self._splits_at_marks = self._model.splits_at_marks
        else:
            self._model = Unigram(pieces, model["scores"], model["unk_id"], self._has_bytes)
            with tf.init_scope():
                words = self._model.words_of_one_piece(pieces)
        of_bytes = {n: bytes([b]) for b, n in enumerate(byte_tokens(ids)) if self._has_bytes}
        texts = [of_bytes.get(number, t.encode()) for number, t in enumerate(vocab.tokens)]
        self._texts = np.array(texts, object)
        self._normalizers = normalizers_of(definition)
        found = steps(definition["pre_tokenizer"], "pretokenizers")
        # A `tf.Module` would replace dictionaries inside of the fields.
        self._word_steps = [
            (fields, []) if fields["type"] in _OWN_STEPS else ({"type": ""}, splits_of(fields))
            for fields in found
        ]
        self._replacements = [*_replacements(found + steps(definition["decoder"], "decoders"))]
        self._is_space = CodeTable(dict.fromkeys(white_space(), 1))
        self._added = AddedTokens(vocab, self._normalizers, words)
        self.tokenize = in_graph(lambda texts: self._with_offsets(texts)[0])
        self.with_offsets = in_graph(self._with_offsets)

    def tokenize_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Return the ids of each word of split texts, ragged int32 `(number of words, None)`.

        BPE has a space before all words but the first of a text, apart from added tokens.
        """
        values = words.flat_values
        if self._kind == "character-bpe":
            is_first = tf.ragged.range(words.row_lengths()).flat_values == 0
            spaced = tf.strings.join([" ", values])
            values = tf.where(is_first | self._added.start(values), values, spaced)
        return self.tokenize(values)

    def _with_offsets(self, texts: tf.Tensor) -> Pieces:
        parts = self._added.cut(texts, normalized=False)
        row_splits = tf.cast(parts.row_splits, tf.int32)
        text, added = self._take_added(characters_of(parts), parts.flat_values, normalized=False)
        for normalize in self._normalizers:
            text = normalize(text)
        if self._added.normalized:
            num_characters = tf.math.bincount(text.rows, minlength=tf.size(parts.flat_values))
            whole = tf.RaggedTensor.from_row_lengths(text.codes, num_characters, validate=False)
            smaller = self._added.cut(encode(whole), normalized=True)
            text = text._replace(rows=characters_of(smaller).rows)
            text, more = self._take_added(text, smaller.flat_values, normalized=True)
            # Each part has one more place than it has smaller parts, for an added token.
            owners = tf.cast(smaller.value_rowids(), tf.int32)
            places = tf.range(tf.size(owners)) + owners
            splits = tf.cast(smaller.row_splits, tf.int32)
            splits += tf.range(tf.size(splits))
            text = text._replace(rows=tf.gather(places, text.rows))
            more = more._replace(rows=tf.gather(places, more.rows))
            added = added._replace(rows=tf.gather(splits, added.rows))
            added = _Tokens(*(tf.concat(pair, 0) for pair in zip(added, more, strict=True)))
            row_splits = tf.gather(splits, row_splits)
        tokens = self._pieces(*self._words(text))
        tokens = tf.cond(tf.size(added.ids) > 0, lambda: _in_order(added, tokens), lambda: tokens)
        splits = tf.searchsorted(tokens.rows, row_splits, out_type=tf.int64)
        return tuple(ragged_rows(values, splits) for values in tokens[:3])

    def detokenize(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Return the texts of ids, strings `(B,)`."""
        pieces = ids.with_flat_values(tf.gather(tf.constant(self._texts), ids.flat_values))
        texts = tf.strings.reduce_join(
            pieces, axis=1, separator=" " if self._kind == "wordlevel" else ""
        )
        for pattern, new in self._replacements:
            texts = tf.strings.regex_replace(texts, pattern, new)
        if self._has_bytes:
            texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        return texts

    def _take_added(
        self, text: Characters, parts: tf.Tensor, normalized: bool
    ) -> tuple[Characters, _Tokens]:
        """Separate the added tokens from the rest of the parts of texts."""
        ids = self._added.ids(parts, normalized)
        is_added = ids != NO_TOKEN
        rows = tf.cast(places_of(is_added), tf.int32)
        first = tf.gather(text.sources, tf.searchsorted(text.rows, rows))
        last = tf.gather(text.sources, tf.searchsorted(text.rows, rows, side="right") - 1)
        text = tf.cond(
            tf.size(rows) > 0, lambda: text.keep(~tf.gather(is_added, text.rows)), lambda: text
        )
        return text, _Tokens(tf.gather(ids, rows), first, last + 1, rows)

    def _words(self, text: Characters) -> tuple[Characters, tf.Tensor]:
        """Split texts into words. Also return whether each character starts a word."""
        begins = text.starts_row()
        for fields, splits in self._word_steps:
            for split in splits:
                text, begins = _split(split, text, begins)
            if fields["type"] == "WhitespaceSplit":
                is_space = self._is_space(text.codes) > 0
                kept = places_of(~is_space)
                begins = tf.gather(begins | previous(is_space, False), kept)
                text = text.take(kept)
                continue
            if fields["type"] != "Metaspace":
                continue
            mark, scheme = ord(fields["replacement"]), fields.get("prepend_scheme", "always")
            codes = tf.where(text.codes == SPACE, mark, text.codes)
            if scheme != "never":
                lacks = begins & (codes != mark) & ((text.sources == 0) | (scheme == "always"))
                new = places_of(lacks)
                new += tf.range(tf.size(new, tf.int64))
                size = tf.size(codes) + tf.size(new)
                is_new = tf.scatter_nd(new[:, tf.newaxis], tf.ones_like(new, tf.int32), [size])
                owners = tf.range(size) - tf.cumsum(is_new, exclusive=True)
                text = text.take(owners)
                begins = tf.gather(begins, owners) & (previous(is_new, 0) == 0)
                codes = tf.where(is_new > 0, mark, tf.gather(codes, owners))
            text = text._replace(codes=codes)
            if fields.get("split", True):
                begins |= codes == mark
        if self._splits_at_marks:
            is_mark = text.codes == ord(WORD_START)
            begins |= is_mark & ~previous(is_mark, False)
        return text, begins

    def _pieces(self, text: Characters, begins: tf.Tensor) -> _Tokens:
        """Split words. `begins` is whether each character starts a word."""
        first = places_of(begins)
        words = encode(tf.RaggedTensor.from_row_starts(text.codes, first, validate=False))
        ids, owners, offsets = self._model(words, self._added.word_ids(words))
        starts = tf.gather(tf.cast(first, tf.int32), owners) + offsets
        ends = following(starts, tf.size(begins)) - 1
        if self._has_bytes:  # of the same characters
            is_last = following(starts, -1) != starts
            group = tf.cumsum(tf.cast(is_last, tf.int32), exclusive=True)
            ends = tf.gather(tf.boolean_mask(ends, is_last), group)
        places = (tf.gather(text.sources, starts), tf.gather(text.sources, ends) + 1)
        return _Tokens(ids, *places, tf.gather(text.rows, starts))


def _replacements(decoders: Sequence[ConfigDict]) -> Iterator[tuple[str, str]]:
    """Yield regular expressions, and what replaces them in texts of pieces."""
    for fields in decoders:
        if fields["type"] == "Metaspace":
            mark = re.escape(fields["replacement"])
            yield from [(f"^{mark}", "")] * (fields.get("prepend_scheme") != "never")
            yield mark, " "
        elif fields["type"] == "Replace":
            yield re.escape(fields["pattern"]["String"]), fields["content"].replace("\\", r"\\")
        elif fields["type"] == "Strip":
            yield "^ ", ""


def _of_words(unk_id: int) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]]:
    """Return a model whose pieces are words. Other words become the unknown token."""
    return lambda words, known: (
        tf.where(known == NO_TOKEN, unk_id, known),
        tf.range(tf.size(words)),
        tf.zeros_like(known),
    )


def _split(split: Split, text: Characters, begins: tf.Tensor) -> tuple[Characters, tf.Tensor]:
    """Split words once more."""
    starts = places_of(begins)
    words = encode(tf.RaggedTensor.from_row_starts(text.codes, starts, validate=False))
    parts, is_word = split_words(words, split)
    lengths = tf.strings.length(parts.flat_values, unit="UTF8_CHAR")
    starts = tf.boolean_mask(tf.cumsum(lengths, exclusive=True), is_word)[:, tf.newaxis]
    begins = tf.scatter_nd(starts, tf.ones_like(starts[:, 0]), tf.shape(text.codes)) > 0
    kept = places_of(tf.repeat(is_word, lengths))
    return text.take(kept), tf.gather(begins, kept)


def _in_order(added: _Tokens, tokens: _Tokens) -> _Tokens:
    order = tf.argsort(tf.concat([added.rows, tokens.rows], 0), stable=True)
    pairs = zip(added, tokens, strict=True)
    return _Tokens(*(tf.gather(tf.concat(pair, 0), order) for pair in pairs))
