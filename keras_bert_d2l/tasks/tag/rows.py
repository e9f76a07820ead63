"""Tokenize words, and divide long texts into overlapping rows for a tagger.

Training, prediction and exports use the same rows, and count each word in the same one of them.

B: texts, W: windows of all texts, T: tokens in a window, N: words or tokens of all texts.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import IGNORED, shown
from keras_bert_d2l.contract.task import EncodingOptions
from keras_bert_d2l.data.tasks.rows import Fields, names_and_ids, splits
from keras_bert_d2l.models.text_inputs import Batch, Preprocessor, Texts, as_tensors
from keras_bert_d2l.signatures.characters import Characters
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, check_max_len
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer, as_words
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import Tensor

_NO_WORD = _NO_TOKEN = -1
_MOST_TOKENS = 1 << 32  # in a text


class Windows(NamedTuple):
    """The rows of texts, in order. A long text has several, which overlap by half.

    Every token counts in one of them: that with more of its context.

    Attributes:
        texts: The index of the text of each window, int32 `(W,)`.
        starts: The index of the first token of each window in its text, int32 `(W,)`.
        begins: The index of the first token that counts in each window, int32 `(W,)`.
        tokens: The tokens of the windows, int32 `(W, None)`.
    """

    texts: tf.Tensor
    starts: tf.Tensor
    begins: tf.Tensor
    tokens: tf.RaggedTensor

    def places(self, texts: tf.Tensor, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the window in which each token counts, and its place there after `[CLS]`.

        Args:
            texts: The index of the text of each token, int `(N,)`.
            tokens: The index of each token in its text, int `(N,)`.

        Returns: both int32 `(N,)`.
        """
        return _places(self, tf.cast(texts, tf.int64), tf.cast(tokens, tf.int64))


@tf.function(autograph=False, reduce_retracing=True)
def _places(windows: Windows, texts: tf.Tensor, tokens: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    of_windows = tf.cast(windows.texts, tf.int64) * _MOST_TOKENS
    of_windows += tf.cast(windows.begins, tf.int64)
    window = tf.searchsorted(of_windows, texts * _MOST_TOKENS + tokens, side="right") - 1
    return window, tf.cast(tokens, tf.int32) - tf.gather(windows.starts, window) + 1


@tf.function(autograph=False, reduce_retracing=True)
def windows_of(tokens: tf.RaggedTensor, room: int) -> Windows:
    """Return windows of at most `room` tokens over the tokens `(B, None)` of texts."""
    sizes = tf.cast(tokens.row_lengths(), tf.int32)
    step = max(1, room // 2)
    last = tf.maximum(sizes - room, 0)
    places = tf.ragged.range(-(-last // step) + 1)
    texts = tf.cast(places.value_rowids(), tf.int32)
    starts = tf.minimum(places.values * step, tf.gather(last, texts))
    ends = tf.minimum(starts + room, tf.gather(sizes, texts))
    # The middle of an overlap separates the tokens that count in one window and in the next.
    begins = tf.where(places.values == 0, 0, (starts + tf.roll(ends, 1, axis=0)) // 2)
    firsts = tf.gather(tf.cast(tokens.row_starts(), tf.int32), texts)
    of_windows = tf.ragged.range(firsts + starts, firsts + ends)
    kept = of_windows.with_values(tf.gather(tokens.values, of_windows.values))
    return Windows(texts, starts, begins, kept)


class Split(NamedTuple):
    """The tokens and the words of texts.

    Attributes:
        tokens: The token ids of each text, ragged int32 `(B, None)`.
        firsts: The index of the first token of each word in its text, ragged int64 `(B, None)`.
        starts: The index of the first character of each word in its text, ragged int32 `(B, None)`.
            The text of given words is these, joined by spaces.
        ends: The index after its last character, like `starts`.
    """

    tokens: tf.RaggedTensor
    firsts: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


def split_texts(texts: Tensor, tokenizer: Tokenizer, *, into_tokens: bool = False) -> Split:
    """Split texts `(B,)` into words as the tokenizer does; `into_tokens`, every token is a word.

    In scripts without spaces, such as that of Chinese, each character is a word.
    """
    parts, places = (texts, None) if into_tokens else _spaced(texts)
    pieces, vocab = tokenizer.with_offsets(parts), tokenizer.vocab
    continues = tf.zeros(len(vocab), tf.bool) if into_tokens else tf.constant(vocab.continues)
    joins = vocab.kind in ("unigram", "character-bpe") and not into_tokens
    unknown = vocab.unk_id if joins else _NO_TOKEN
    return _split(texts, places, pieces, continues, unknown, vocab.kind != "wordpiece")


@tf.function(autograph=False, reduce_retracing=True)
def _spaced(texts: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
    return Characters(texts).spaced(texts)


@tf.function(autograph=False, reduce_retracing=True)
def _split(
    texts: tf.Tensor,
    places_of_parts: tf.RaggedTensor | None,
    pieces: dict[str, tf.RaggedTensor],
    continues: tf.Tensor,
    unknown: int,
    has_spaces: bool,
) -> Split:
    """Return the words of texts.

    Args:
        texts: The texts, `(B,)`.
        places_of_parts: The index in `texts` of each character of the texts that the tokens are
            from, ragged int32 `(B, None)`; `None` if these are the same.
        pieces: Their tokens, as `Tokenizer.with_offsets` returns them.
        continues: Whether each token of the vocabulary continues a word, bool `(V,)`.
        unknown: The id of the token that continues a word if no character is between them.
        has_spaces: Whether tokens may contain spaces.
    """
    tokens, starts, ends = (pieces[name] for name in ("tokens", "starts", "ends"))
    places = tf.ragged.range(tokens.row_lengths())
    is_near = starts.values <= tf.roll(ends.values, 1, axis=0)
    is_continued = tf.gather(continues, tokens.values) | ((tokens.values == unknown) & is_near)
    is_first = (places.values == 0) | ~is_continued
    is_last = tf.roll(is_first, -1, axis=0)  # the next token starts a word or a text
    firsts, lasts = _where(is_first, places), _where(is_last, places)
    rows = firsts.value_rowids()
    row_starts = tf.gather(tokens.row_starts(), rows)
    begin = tf.gather(starts.values, row_starts + firsts.values)
    end = tf.gather(ends.values, row_starts + lasts.values)
    if places_of_parts is not None:
        of_parts = tf.cast(tf.gather(places_of_parts.row_starts(), rows), tf.int32)
        last = tf.maximum(begin, end - 1) + of_parts
        is_one = tf.cast(begin < end, tf.int32)
        begin = tf.gather(places_of_parts.values, begin + of_parts)
        end = tf.gather(places_of_parts.values, last) + is_one
    begin, end = Characters(texts).whole(rows, begin, end, has_spaces)
    words = [firsts, firsts.with_values(begin), firsts.with_values(end)]
    if has_spaces:  # a token may be a space alone
        words = [_where(begin < end, column) for column in words]
    return Split(tokens, *words)


def _where(mask: tf.Tensor, rows: tf.RaggedTensor) -> tf.RaggedTensor:
    """Return the values of rows for which a mask is true. One value of the mask for each."""
    before = tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)
    splits = tf.gather(before, rows.row_splits)
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(rows.values, mask), splits, validate=False
    )


def split_words(words: tf.RaggedTensor, tokenizer: Tokenizer) -> Split:
    """Tokenize texts that are split into words, strings `(B, None)`.

    A word without tokens, such as an invisible character, is replaced by the unknown token.
    """
    ids = tokenizer.tokenize_words(words)
    is_empty, unknown = ids.row_lengths() == 0, tf.size(ids.values, tf.int64)
    places = tf.ragged.range(
        tf.where(is_empty, unknown, ids.row_starts()),
        tf.where(is_empty, unknown + 1, ids.row_limits()),
    )
    ids = tf.gather(tf.concat([ids.values, [tokenizer.vocab.unk_id]], 0), places)
    splits = tf.gather(ids.row_splits, words.row_splits)
    tokens = tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False)
    rows = words.value_rowids()
    firsts = ids.row_starts() - tf.gather(splits, rows)
    lengths = tf.cast(tf.strings.unicode_decode(words.values, "UTF-8").row_lengths(), tf.int32)
    starts = tf.cumsum(lengths + 1, exclusive=True)
    starts -= tf.gather(starts, tf.gather(words.row_splits, rows))
    return Split(tokens, *map(words.with_values, (firsts, starts, starts + lengths)))


class WordPreprocessor(Preprocessor):
    """Converts words, ragged `(B, None)`; a long text gives several rows, which overlap by half.

    The first token of a word gets its label, in one of the rows.
    """

    has_windows = True

    def checked(self, x: Any, y: Tensor | None = None) -> Texts:
        if y is not None and not isinstance(y, tf.RaggedTensor):
            raise ValueError(
                "The labels of words must be a list of labels for each text, or a ragged tensor. "
                f"Received: {shown(y)}."
            )
        texts = as_tensors(x)
        if y is not None:
            _check_word_counts(texts, y)
        return texts

    def rows(self, *texts: Any, **options: Any) -> Batch:
        """Return the rows of words, or of texts `(B,)`.

        Args:
            *texts: The words or the texts.
            **options: `into_tokens`, whether every token of a text counts as a word.

        Returns: also their `windows` and the `split` of the texts.
        """
        [words] = texts
        if words.shape.rank == 1:
            split = split_texts(words, self.tokenizer, **options)
        else:
            split = split_words(as_words(words), self.tokenizer)
        return self.of_split(split)

    def of_split(self, split: Split) -> Batch:
        """Return what `rows` returns for texts that are split into words and tokens."""
        windows = windows_of(split.tokens, self.max_len() - ADDED_TO_ONE)
        batch = self.tokenizer.frame(windows.tokens)
        return {**batch, "windows": windows, "split": split}

    def targets(
        self, texts: Texts, batch: Batch, labels: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        windows, firsts = batch["windows"], batch["split"].firsts
        places = tf.stack(windows.places(firsts.value_rowids(), firsts.values), axis=1)
        ignored = tf.fill(tf.shape(batch["tokens"]), IGNORED)
        of_tokens = tf.tensor_scatter_nd_update(ignored, places, tf.cast(labels.values, tf.int32))
        return of_tokens, *(tf.gather(of_texts, windows.texts) for of_texts in weights)


def _check_word_counts(words: Tensor, labels: Tensor) -> None:
    """Raise `ValueError` unless every word has one label; both are ragged `(B, None)`."""
    if words.shape.rank != 2:
        raise ValueError(
            "Texts must be given as a list of words for each text, or as ragged strings (B, None). "
            f"Received: {words.dtype.name} of shape {words.shape}."
        )
    of_words = as_words(words).row_lengths().numpy()
    of_labels = labels.row_lengths().numpy()
    for row in np.flatnonzero(of_words != of_labels)[:1]:
        raise ValueError(
            f"Every word must have one label. Received: {of_words[row]} words but {of_labels[row]} "
            f"labels in text {row}."
        )


def encoded_words(examples: WordExamples, tokenizer: Tokenizer, options: EncodingOptions) -> Fields:
    """Encode texts split into words, in several rows if a text is long.

    The first token of a word gets its label, in one of the rows.
    """
    check_max_len(options.max_len, 1, tokenizer.vocab)
    names, ids = names_and_ids(examples, options.labels)
    words = text_list("words", [word for row in examples.words for word in row])
    sizes = [*map(len, examples.words)]
    flat = tf.constant(words, tf.string)
    split = split_words(tf.RaggedTensor.from_row_lengths(flat, sizes), tokenizer)
    windows = windows_of(split.tokens, options.max_len - ADDED_TO_ONE)
    batch = tokenizer.frame(windows.tokens)
    lengths = batch["valid_lens"].numpy()
    is_token = np.arange(batch["tokens"].shape[1]) < lengths[:, None]
    word_ids = np.full(is_token.shape, _NO_WORD, np.int32)
    window, place = windows.places(split.firsts.value_rowids(), split.firsts.values)
    word_ids[window, place] = tf.ragged.range(split.firsts.row_lengths()).values
    words_of_rows, token_labels = word_ids[is_token], None
    if ids is not None:
        token_labels = np.full(len(words_of_rows), IGNORED, np.int32)
        token_labels[words_of_rows != _NO_WORD] = ids
    num_rows = np.bincount(windows.texts, minlength=len(examples))
    return {
        "label_names": names,
        "tokens": batch["tokens"].numpy()[is_token],
        "splits": splits(lengths),
        "seconds": lengths,
        "labels": token_labels,
        "examples": windows.texts.numpy(),
        "full_lengths": split.tokens.row_lengths().numpy().astype(np.int32) + ADDED_TO_ONE,
        "num_truncated": int((num_rows > 1).sum()),
        "word_ids": words_of_rows,
        "has_token_labels": True,
    }
