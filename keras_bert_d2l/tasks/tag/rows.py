"""Tokenize words, and divide long texts into overlapping rows for a tagger.

Training and prediction use the same rows, and count each word in the same one of them.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


class Window(NamedTuple):
    """The part of a text in one row, as indices of its tokens.

    Attributes:
        start: The first token.
        end: The index after the last token.
        begin: The first token that counts in this row. Others have more context in another row.
        stop: The index after the last token that counts.
    """

    start: int
    end: int
    begin: int
    stop: int


def windows(num_tokens: int, room: int) -> list[Window]:
    """Divide a text into windows of at most `room` tokens, which overlap by half if it is longer.

    The middle of an overlap separates the tokens that count in one window and in the next.
    """
    last = max(0, num_tokens - room)
    starts = [*range(0, last, max(1, room // 2)), last]
    ends = [min(start + room, num_tokens) for start in starts]
    middles = [(start + end) // 2 for start, end in zip(starts[1:], ends[:-1], strict=True)]
    begins, stops = [0, *middles], [*middles, num_tokens]
    return list(map(Window, starts, ends, begins, stops))


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


class TaggingRows:
    """The rows of texts for a tagger. A long text has several rows, which overlap by half.

    If a token is in two rows, the output from the row with more of its context is used.

    Args:
        split: The words and tokens of the texts.
        vocab: The vocabulary, for its special tokens.
        max_len: Maximum number of tokens in a row, T, including special tokens.

    Attributes:
        windows: The windows of each text, one for each of its rows.
        tokens_of_rows: The token ids of each row, without special tokens.
    """

    def __init__(self, split: SplitWords, vocab: Vocab, max_len: int) -> None:
        self._vocab = vocab
        room = max_len - ADDED_TO_ONE
        self.windows = [windows(len(tokens), room) for tokens in split.tokens]
        self.tokens_of_rows = [
            tokens[window.start : window.end]
            for tokens, of_text in zip(split.tokens, self.windows, strict=True)
            for window in of_text
        ]

    def __len__(self) -> int:
        return len(self.tokens_of_rows)

    def batch(self, start: int, stop: int) -> Mapping[str, Tensor]:
        """Return the rows from `start` to `stop` as inputs of the model."""
        rows = self.tokens_of_rows[start:stop]
        tokens = tf.RaggedTensor.from_row_lengths(np.concatenate(rows), list(map(len, rows)))
        return frame_tokens(tokens, vocab=self._vocab)

    def token_outputs(self, outputs: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the outputs for the tokens of each text, `(tokens, C)`.

        Args:
            outputs: The outputs for the tokens of each row, `(T, C)`, in the order of the rows.
        """
        of_rows = iter(outputs)
        for of_text in self.windows:
            kept = [
                next(of_rows)[begin - start + 1 : stop - start + 1]  # + 1: rows start with [CLS]
                for start, _, begin, stop in of_text
            ]
            yield np.concatenate(kept)


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
    rows, vocab = TaggingRows(split, tokenizer.vocab, options.max_len), tokenizer.vocab
    tokens = [np.array([vocab.cls_id, *row, vocab.sep_id]) for row in rows.tokens_of_rows]
    word_ids = []
    for of_text, firsts in zip(rows.windows, split.firsts, strict=True):
        for start, end, begin, stop in of_text:
            words = np.flatnonzero((begin <= firsts) & (firsts < stop))
            word_ids.append(np.full(end - start + ADDED_TO_ONE, _NO_WORD, np.int32))
            word_ids[-1][firsts[words] - start + 1] = words  # + 1: rows start with [CLS]
    words_of_rows, token_labels = np.concatenate(word_ids), None
    if ids is not None:
        token_labels = np.full(len(words_of_rows), IGNORED, np.int32)
        token_labels[words_of_rows != _NO_WORD] = ids
    num_rows = list(map(len, rows.windows))
    lengths = np.array(list(map(len, tokens)), np.int32)
    return {
        "label_names": names,
        "tokens": np.concatenate(tokens, dtype=np.int32),
        "splits": splits(lengths),
        "seconds": lengths,
        "labels": token_labels,
        "examples": np.repeat(np.arange(len(num_rows), dtype=np.int32), num_rows),
        "full_lengths": np.array([len(x) + ADDED_TO_ONE for x in split.tokens], np.int32),
        "num_truncated": sum(number > 1 for number in num_rows),
        "word_ids": words_of_rows,
        "has_token_labels": True,
    }
