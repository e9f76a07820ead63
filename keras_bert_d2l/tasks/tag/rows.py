"""Tokenize words, and divide long texts into overlapping rows for a tagger.

Training and prediction use the same rows, and count each word in the same one of them.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import IGNORED
from keras_bert_d2l.data.tasks.encoding import Fields, names_and_ids, splits
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.task import EncodingOptions
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, check_max_len, frame_tokens
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.wordpiece import whole_characters
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import Tensor

_NO_WORD = -1
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
        texts, tokens = tf.cast(texts, tf.int64), tf.cast(tokens, tf.int64)
        of_windows = tf.cast(self.texts, tf.int64) * _MOST_TOKENS + tf.cast(self.begins, tf.int64)
        window = tf.searchsorted(of_windows, texts * _MOST_TOKENS + tokens, side="right") - 1
        return window, tf.cast(tokens, tf.int32) - tf.gather(self.starts, window) + 1


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


@dataclasses.dataclass(frozen=True)
class Word:
    """A word, and its character range if it was found in a text."""

    text: str
    start: int | None = None
    end: int | None = None


@dataclasses.dataclass(frozen=True)
class SplitWords:
    """The words and the tokens of texts.

    Attributes:
        words: The words of each text.
        tokens: The token ids of each text, int32 `(tokens,)`.
        firsts: For each text, the index of each word's first token, int `(words,)`.
    """

    words: list[list[Word]]
    tokens: list[np.ndarray]
    firsts: list[np.ndarray]

    def ragged(self) -> tf.RaggedTensor:
        """Return the token ids, int32 `(B, None)`."""
        values = np.concatenate([*self.tokens, np.zeros(0, np.int32)])
        row_splits = splits(np.array([*map(len, self.tokens)]))
        return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def split_texts(
    texts: Sequence[str], tokenizer: Tokenizer, *, into_tokens: bool = False
) -> SplitWords:
    """Split texts into words as the tokenizer does, with the character range of each word.

    With `into_tokens`, every token counts as a word.
    """
    pieces = tokenizer.with_offsets(list(texts))
    splits = pieces["tokens"].row_splits.numpy()
    tokens, starts, ends = (
        pieces[name].flat_values.numpy() for name in ("tokens", "starts", "ends")
    )
    is_first = ~continue_words(tokens, starts, ends, tokenizer.vocab).numpy() | into_tokens
    is_first[splits[:-1][splits[:-1] < splits[1:]]] = True  # a text starts with a word
    words, firsts = [], []
    for text, begin, end in zip(texts, splits[:-1], splits[1:], strict=True):
        first = np.flatnonzero(is_first[begin:end])
        last = np.append(first, end - begin)[1:] - 1
        places = zip(starts[begin:end][first].tolist(), ends[begin:end][last].tolist(), strict=True)
        of_text = [_word(text, *place) for place in places]
        is_word = [bool(word.text) for word in of_text]  # a token may be a space alone
        words.append(list(itertools.compress(of_text, is_word)))
        firsts.append(first[is_word])
    return SplitWords(words, np.split(tokens, splits[1:-1]), firsts)


def continue_words(tokens: Tensor, starts: Tensor, ends: Tensor, vocab: Vocab) -> tf.Tensor:
    """Return whether each token continues the word of the token before it, bool `(tokens,)`."""
    found = tf.gather(vocab.continues, tokens)
    if vocab.kind != "unigram":
        return found
    # An unknown character follows a piece with the space.
    return found | ((tokens == vocab.unk_id) & (starts <= tf.roll(ends, 1, axis=0)))


def split_words(words: Sequence[Sequence[str]], tokenizer: Tokenizer) -> SplitWords:
    """Tokenize texts that are already split into words.

    A word without tokens, such as an invisible character, is replaced by the unknown token.
    """
    flat = tf.constant(text_list("words", [word for row in words for word in row]), tf.string)
    rows = tf.RaggedTensor.from_row_lengths(flat, list(map(len, words)))
    ids = tokenizer.tokenize_words(rows)
    values, lengths = ids.flat_values.numpy(), ids.row_lengths().numpy()
    values = np.insert(values, ids.row_starts().numpy()[lengths == 0], tokenizer.vocab.unk_id)
    starts = splits(np.maximum(lengths, 1))
    of_texts = np.cumsum([0, *map(len, words)])
    places = list(itertools.pairwise(of_texts))
    return SplitWords(
        [[Word(word) for word in row] for row in words],
        [values[starts[begin] : starts[end]] for begin, end in places],
        [starts[begin:end] - starts[begin] for begin, end in places],
    )


def _word(text: str, start: int, end: int) -> Word:
    start, end = whole_characters(text, start, end)
    return Word(text[start:end], start, end)


def encoded_words(examples: WordExamples, tokenizer: Tokenizer, options: EncodingOptions) -> Fields:
    """Encode texts split into words, in several rows if a text is long.

    The first token of a word gets its label, in one of the rows.
    """
    check_max_len(options.max_len, 1, tokenizer.vocab)
    names, ids = names_and_ids(examples, options.labels)
    split = split_words(examples.words, tokenizer)
    windows = windows_of(split.ragged(), options.max_len - ADDED_TO_ONE)
    batch = frame_tokens(windows.tokens, vocab=tokenizer.vocab)
    lengths = batch["valid_lens"].numpy()
    is_token = np.arange(batch["tokens"].shape[1]) < lengths[:, None]
    word_ids = np.full(is_token.shape, _NO_WORD, np.int32)
    words = [np.arange(len(firsts)) for firsts in split.firsts]
    texts = np.repeat(np.arange(len(words)), list(map(len, words)))
    window, place = windows.places(texts, np.concatenate([*split.firsts, np.zeros(0, np.int64)]))
    word_ids[window, place] = np.concatenate([*words, np.zeros(0, np.int64)])
    words_of_rows, token_labels = word_ids[is_token], None
    if ids is not None:
        token_labels = np.full(len(words_of_rows), IGNORED, np.int32)
        token_labels[words_of_rows != _NO_WORD] = ids
    num_rows = np.bincount(windows.texts, minlength=len(split.tokens))
    return {
        "label_names": names,
        "tokens": batch["tokens"].numpy()[is_token],
        "splits": splits(lengths),
        "seconds": lengths,
        "labels": token_labels,
        "examples": windows.texts.numpy(),
        "full_lengths": np.array([len(x) + ADDED_TO_ONE for x in split.tokens], np.int32),
        "num_truncated": int((num_rows > 1).sum()),
        "word_ids": words_of_rows,
        "has_token_labels": True,
    }
