"""`Tokenizer`: convert strings to token ids and back, inside the TensorFlow graph.

B: texts in the batch, T: tokens in a row, W: windows of all pairs.
"""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Self, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import check_choice, check_range, check_type, shown
from keras_bert_d2l.text.definition import from_json
from keras_bert_d2l.text.normalization import SIDES, Normalization, TokenizerOptions, ragged_rows
from keras_bert_d2l.text.tokenizer.byte_pairs import BytePairSplitter
from keras_bert_d2l.text.tokenizer.framing import (
    TRUNCATIONS,
    as_rows,
    check_max_len,
    check_same_number,
    frame_tokens,
    not_converted,
    sliding_windows,
)
from keras_bert_d2l.text.tokenizer.numpy_rows import Ids, framed
from keras_bert_d2l.text.tokenizer.pieces import PieceSplitter
from keras_bert_d2l.text.tokenizer.rust import MOST_CHARACTERS, QuickTokenizer, are_short
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces, WordPieceSplitter
from keras_bert_d2l.text.vocab import JSON_FILE, Vocab
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import ConfigDict, Tensor

Texts: TypeAlias = str | Sequence[str] | Tensor
"""A string, a list of strings, or a string tensor `(B,)`."""


Splitter: TypeAlias = WordPieceSplitter | BytePairSplitter | PieceSplitter


@functools.lru_cache(maxsize=4)
def _splitter(vocab: Vocab, normalization: Normalization | None = None) -> Splitter:
    """Return what splits texts. Equal tokenizers share it: its graphs take a second to trace."""
    with tf.init_scope():  # not in the graph of a first caller
        if normalization is not None:
            return WordPieceSplitter(vocab, normalization)
        return BytePairSplitter(vocab) if vocab.kind == "bpe" else PieceSplitter(vocab)


class Tokenizer(tf.Module):
    """Tokenizer that runs inside the TensorFlow graph: WordPiece, BPE, Unigram or WordLevel.

    The vocabulary determines which. All but WordPiece have no options, and give the ids of
    Hugging Face's tokenizers. WordPiece works as follows.

    Texts are cleaned, lowercased and stripped of accents (if `lowercase`), split at white space
    and punctuation, and then split into the longest pieces in the vocabulary. With
    `compat="google"`, the ids equal those of google-research/bert's `tokenization.py` for all
    characters of Unicode 14, except for a capital sigma beside a character newer than Unicode 13.
    With `compat="huggingface"`, they equal those of `BertTokenizer` (tokenizers 0.23.3). The two
    differ for words of 101 to 200 characters, private-use characters, the final sigma, and about a
    thousand characters newer than Unicode 8. In a tensor, a word with bytes that are not UTF-8
    becomes the unknown token.

    A special token in the text, such as `"[MASK]"` in the spelling of the vocabulary, stays
    one token, as in Hugging Face but not in google. Your own `special_tokens` stay whole in the
    same way, for example markers of entities, `"[E1]"` and `"[/E1]"`. They are found before the
    text is cleaned and lowercased, so case matters, and the longest match wins.

    A tokenizer works eagerly, in a `tf.function`, in `tf.data.Dataset.map`, and in a SavedModel. It
    consists of operations of TensorFlow itself. It can be pickled and copied. In a dataset, map
    after batching: one call on a thousand texts is much faster than a thousand calls.
    If the library tokenizers is installed, it answers calls on a few short texts outside of graphs,
    in less time, where it gives the same ids and offsets.

    Args:
        vocab: The `Vocab`.
        lowercase: Whether the vocabulary is "uncased": lowercase and without accents.
        compat: Which tokenizer to match, `"google"` or `"huggingface"`.
        split_special_tokens: Whether to treat special tokens in a text as ordinary text.
        strip_accents: Whether to remove accents. `None` means the value of `lowercase`; any other
            value than that requires `compat="huggingface"`.
        tokenize_chinese_chars: Whether each Chinese character is a word of its own. `False`
            requires `compat="huggingface"`.
        special_tokens: More tokens of the vocabulary that stay whole in a text. `add_tokens` adds
            new ones to a model and its tokenizer; a vocabulary of BERT has unused ones, such as
            `"[unused1]"`.
        normalized_tokens: Tokens of the vocabulary that stay whole wherever the cleaned and
            lowercased text has them, also inside a word. Added tokens of Hugging Face's files that
            are not special are such tokens.
        truncation_side: Which end of a long text to truncate, `"right"` or `"left"`, which keeps
            the end of the text. All kinds of tokenizer have this option.

    Attributes:
        vocab: As given.
        truncation_side: As given.
        frame: `frame_tokens` with both of them, which builds the rows of a call from token ids.

    Call arguments:
        texts: A string, a list of strings, or a string tensor `(B,)`. For a single string, B = 1.
        texts_b: The second text of each pair, like `texts`; None for single texts.
        max_len: Length T of every row, or None to pad to the longest row. Longer texts are
            truncated, at the end unless `truncation_side` is `"left"`.
        truncation: Which text of a pair to truncate. `"longest_first"` truncates the longer text
            until both have the same length, and then both. An odd token stays with the text that
            was longer, or with `texts_b` if the lengths were equal. `"only_first"` and
            `"only_second"` truncate only that text.

    Returns:
        A dictionary of int32 tensors: `tokens` `(B, T)`, which are `[CLS] a [SEP]` or
        `[CLS] a [SEP] b [SEP]` and padding; `segments` `(B, T)`, 1 from `b` to the last `[SEP]`
        and 0 elsewhere; `valid_lens` `(B,)`, the number of tokens without padding.

    Raises:
        ValueError: If the texts are not strings or have more than one dimension, the two texts
            have different numbers of rows, `max_len` has no room for one token of each text, or an
            option has an invalid value.

    Example:
        >>> import keras_bert_d2l as kb
        >>> vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s"])
        >>> tokenizer = kb.Tokenizer(vocab)
        >>> batch = tokenizer(["The cats", "cat"], max_len=6)
        >>> batch["tokens"].numpy().tolist()
        [[2, 5, 6, 7, 3, 0], [2, 6, 3, 0, 0, 0]]
        >>> tokenizer.detokenize(batch["tokens"]).numpy().tolist()
        [b'the cats', b'cat']
    """

    def __init__(
        self,
        vocab: Vocab,
        lowercase: bool = True,
        compat: str = "google",
        split_special_tokens: bool = False,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        special_tokens: Sequence[str] = (),
        normalized_tokens: Sequence[str] = (),
        truncation_side: str = "right",
    ) -> None:
        super().__init__(name="tokenizer")
        self.vocab = check_type("vocab", vocab, Vocab, "Read one by `Vocab.from_file(path)`.")
        self.truncation_side = check_choice("truncation_side", truncation_side, SIDES)
        self.frame = functools.partial(frame_tokens, vocab=vocab, truncation_side=truncation_side)
        self._quick = functools.cache(lambda: QuickTokenizer.of(vocab, {**self.options}))
        own = (lowercase, compat, split_special_tokens, strip_accents, tokenize_chinese_chars)
        normalization = Normalization(vocab.special_tokens, *own, special_tokens, normalized_tokens)
        self._splitter: Splitter
        if vocab.kind != "wordpiece":
            defaults = Normalization(()).options()
            for name, value in normalization.options().items():
                if value != defaults.get(name):
                    raise ValueError(
                        f"`{name}` is an option of WordPiece. Received: {name}={shown(value)} with "
                        f"a vocabulary of the kind {vocab.kind!r}, whose {JSON_FILE} defines "
                        f"everything else. Omit {name}={shown(value)}."
                    )
            self._splitter = _splitter(vocab)
            return
        missing = [token for token in (*special_tokens, *normalized_tokens) if token not in vocab]
        if missing:
            raise ValueError(
                "`special_tokens` and `normalized_tokens` must be in the vocabulary. Received: "
                f"{shown(missing[0])}, which is not in it. `add_tokens(..., special=True)` adds it "
                "to a model and a tokenizer."
            )
        self._splitter = _splitter(vocab, normalization)

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self.options.items())
        return f"Tokenizer({', '.join([repr(self.vocab), *options])})"

    @property
    def options(self) -> TokenizerOptions:
        """Keyword arguments for which `Tokenizer(vocab, **options)` creates the same tokenizer."""
        options = TokenizerOptions()
        if isinstance(self._splitter, WordPieceSplitter):
            options = self._splitter.normalization.options()
        if self.truncation_side != SIDES[0]:
            options["truncation_side"] = self.truncation_side
        return options

    def get_config(self) -> ConfigDict:
        """Return the vocabulary, as one string, and the options as plain JSON values."""
        if self.vocab.kind != "wordpiece":
            return {JSON_FILE: self.vocab.to_text(), **self.options}
        return {"vocab": "\n".join(self.vocab), **self.options}

    @classmethod
    def from_config(cls, config: ConfigDict) -> Self:
        """Create a tokenizer from the result of `get_config`."""
        options = dict(config)
        if JSON_FILE in config:
            return cls(Vocab(*from_json(json.loads(options.pop(JSON_FILE)))), **options)
        return cls(Vocab(options.pop("vocab").split("\n")), **options)

    def __reduce__(self) -> tuple[Callable[[ConfigDict], Self], tuple[ConfigDict]]:
        """Pickle what defines the tokenizer, because TensorFlow's tables cannot be pickled."""
        return self.from_config, (self.get_config(),)

    @not_converted
    def __call__(
        self,
        texts: Texts,
        texts_b: Texts | None = None,
        max_len: int | None = None,
        truncation: str = "longest_first",
    ) -> dict[str, tf.Tensor]:
        sides = (texts,) if texts_b is None else (texts, texts_b)
        batch = self.rows(*sides, max_len=max_len, truncation=truncation)
        del batch["num_tokens"]
        return batch

    @not_converted
    def rows(
        self,
        *texts: Texts,
        max_len: int | None,
        truncation: str = "longest_first",
        pad: bool = True,
    ) -> dict[str, tf.Tensor]:
        """Return what a call returns, and the number of tokens of each row before truncation.

        Args:
            *texts: The texts, or the first and the second texts of pairs.
            max_len: As in a call.
            truncation: As in a call.
            pad: Whether to pad to `max_len`. False: to the longest row, if that is shorter.

        Returns:
            Also `num_tokens`, int64 `(B,)`.
        """
        max_len = check_max_len(max_len, len(texts), self.vocab)
        tokens = [self.tokenize(side) for side in texts]
        if tf.executing_eagerly() and truncation == TRUNCATIONS[0]:
            check_same_number(tokens[0], tokens[-1])
            sides = [Ids(x.flat_values.numpy(), np.diff(x.row_splits.numpy())) for x in tokens]
            rows = framed(sides, self.vocab, max_len, pad=pad, truncation_side=self.truncation_side)
            return {name: tf.constant(values) for name, values in rows.items()}
        batch = self.frame(*tokens, max_len=max_len, truncation=truncation, pad=pad)
        batch["num_tokens"] = tf.add_n([x.row_lengths() for x in tokens])
        batch["num_tokens"] += self.vocab.num_added(len(tokens))
        return batch

    @not_converted
    def tokenize(self, texts: Texts) -> tf.RaggedTensor:
        """Return the token ids of texts, ragged int32 `(B, None)`, without adding special tokens.

        Args:
            texts: A string, a list of strings, or a string tensor `(B,)`.

        Raises:
            ValueError: If the texts are not strings or have more than one dimension.
        """
        if few := self._few(texts):
            quick, strings = few
            return _ragged([one.ids for one in quick.encode(strings)])
        return self._splitter.tokenize(as_texts(texts))

    def is_quick(self, *texts: Texts) -> bool:
        """Return whether a call outside of graphs takes less time than one in a graph.

        That is so for a few short texts, if the library tokenizers is installed.
        """
        return all(self._few(side) for side in texts)

    def _few(self, texts: Texts) -> tuple[QuickTokenizer, list[str]] | None:
        """Return texts and what splits them in place of TensorFlow's operations, or None."""
        strings = _strings(texts) if tf.executing_eagerly() else None
        if not strings or not are_short(strings) or (quick := self._quick()) is None:
            return None
        return (quick, strings) if quick.knows(strings) else None

    def _pieces(self, texts: Texts) -> Pieces:
        """Return the ids of texts, and the first and the last character of each, plus one."""
        if few := self._few(texts):
            quick, strings = few
            found = quick.encode(strings)
            spans = [[*zip(*one.offsets, strict=True)] or [(), ()] for one in found]
            starts, ends = zip(*spans, strict=True)
            return tuple(map(_ragged, ([one.ids for one in found], starts, ends)))
        return self._splitter.with_offsets(as_texts(texts))

    @not_converted
    def tokenize_words(self, words: Sequence[Sequence[str]] | Tensor) -> tf.RaggedTensor:
        """Return the ids of each word of split texts, ragged int32 `(number of words, None)`.

        Tokenizers that know spaces take the words as they stand in a text: a space comes before
        each word but the first.

        Args:
            words: The words of each text, ragged strings `(B, None)` or lists of lists.

        Raises:
            ValueError: If the words are not strings.
        """
        return self._splitter.tokenize_words(as_words(words))

    @not_converted
    def with_offsets(self, texts: Texts) -> dict[str, tf.RaggedTensor]:
        """Return the token ids of texts, and the position of each token in its text.

        Token t of a text comes from `text[starts[t]:ends[t]]`. Offsets count characters (code
        points, as in Python strings) of the original text.

        Args:
            texts: A string, a list of strings, or a string tensor `(B,)`.

        Returns:
            A dictionary of ragged int32 tensors `(B, None)`: `tokens` as from `tokenize`, `starts`,
            and `ends` (the last character plus one).

        Raises:
            ValueError: If the texts are not strings or have more than one dimension.
        """
        names = ("tokens", "starts", "ends")
        return dict(zip(names, self._pieces(texts), strict=True))

    @not_converted
    def windows(
        self, questions: Texts, contexts: Texts, max_len: int, overlap: int = 0
    ) -> dict[str, tf.Tensor]:
        """Combine each question with every part of its context, in rows of `max_len` tokens.

        The parts are as long as possible and overlap by `overlap` tokens. A context that fits
        into one row gives one window.

        Args:
            questions: The first text of each pair, as in a call. Questions are never truncated.
            contexts: The second text of each pair.
            max_len: Length T of every row.
            overlap: Number of tokens that a window shares with the previous window.

        Returns:
            A dictionary of int32 tensors. `tokens`, `segments` and `valid_lens` are as in a call,
            with W rows. `starts` and `ends` `(W, T)` are the character offsets of each token in
            its question or context, 0 for special tokens and padding. `rows` `(W,)` is the index
            of the pair that each window comes from. `answer_spans` finds answers in the windows.

        Raises:
            ValueError: If a question leaves no room for its context (in a graph, an
                `InvalidArgumentError`), or an argument is invalid.
        """
        pieces_a, pieces_b = self._pieces(questions), self._pieces(contexts)
        check_same_number(pieces_a[0], pieces_b[0])
        return sliding_windows(
            pieces_a, pieces_b, vocab=self.vocab, max_len=max_len, overlap=overlap
        )

    @not_converted
    def detokenize(self, ids: Tensor) -> tf.Tensor:
        """Turn token ids into readable texts.

        Padding, start and separator tokens are dropped; other special tokens are kept.

        BPE and Unigram restore the normalized text, and WordLevel joins words by spaces. WordPiece
        joins pieces into words, without a space before `. , : ; ! ? % ) ] }`, after `( [ { $`, or
        within contractions such as "don't". The original case, accents and spacing are lost.

        Args:
            ids: int `(B, T)`, dense, ragged or nested lists; or one row `(T,)`, which gives B = 1.

        Returns:
            Strings `(B,)`.

        Raises:
            ValueError: If the ids are not integers, have the wrong number of dimensions, or are not
                in the vocabulary (checked only in eager mode).
        """
        ids = as_rows(ids)
        values = ids.flat_values
        if tf.executing_eagerly():
            check_range("ids", values, 0, len(self.vocab) - 1, "Pass ids of this vocabulary.")
        framing = (self.vocab.pad_id, self.vocab.cls_id, self.vocab.sep_id)
        is_text = tf.reduce_all(values[:, tf.newaxis] != tf.constant(framing, values.dtype), axis=1)
        ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(is_text))
        return self._splitter.detokenize(ids)


def _strings(texts: Texts) -> list[str] | None:
    """Return a few texts as strings, or None for bytes that are not UTF-8 and for no texts."""
    if not tf.is_tensor(texts):
        is_long = isinstance(texts, str | list | tuple) and len(texts) > MOST_CHARACTERS
        found = [texts] if isinstance(texts, bytes) else texts
        return None if is_long else text_list("texts", found)
    if not isinstance(texts, tf.Tensor) or texts.dtype != tf.string or texts.shape.rank > 1:
        return None
    try:
        return [text.decode() for text in tf.reshape(texts, [-1]).numpy().tolist()]
    except UnicodeDecodeError:
        return None


def _ragged(rows: Sequence[Sequence[int]]) -> tf.RaggedTensor:
    """Return rows of integers as ragged int32 `(B, None)`."""
    ids = Ids.of(rows)
    return ragged_rows(ids.values, np.append(0, np.cumsum(ids.lengths)))


def as_texts(texts: Texts) -> tf.Tensor:
    """Convert texts to strings `(B,)`."""
    expected = "Texts must be a string, a list of strings or a string tensor (B,)."
    if not tf.is_tensor(texts):
        texts = text_list("texts", [texts] if isinstance(texts, bytes) else texts)
    try:
        tensor = tf.convert_to_tensor(texts, tf.string)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{expected} Received: {shown(texts)} ({type(texts).__name__})."
        ) from error
    if tensor.shape.rank is not None and tensor.shape.rank > 1:
        raise ValueError(
            f"{expected} Received: a tensor of shape {tensor.shape}. Flatten it first."
        )
    return tensor if tensor.shape.rank == 1 else tf.reshape(tensor, [-1])


def as_words(words: Sequence[Sequence[str]] | Tensor) -> tf.RaggedTensor:
    """Convert the words of texts to ragged strings `(B, None)`."""
    expected = "Words must be a list of words for each text, or ragged strings (B, None)."
    rows: Tensor = words
    if not isinstance(words, tf.RaggedTensor | tf.Tensor):
        found = text_list("words", words, words=True)
        is_flat = bool(found) and isinstance(found[0], str)
        rows = tf.constant(found) if is_flat else tf.ragged.constant(found, tf.string, 1)
    if rows.shape.rank != 2 or rows.dtype != tf.string:
        raise ValueError(f"{expected} Received: {rows.dtype.name} of shape {rows.shape}.")
    if not isinstance(rows, tf.RaggedTensor):
        rows = tf.RaggedTensor.from_tensor(rows)
    return rows.with_row_splits_dtype(tf.int64)
