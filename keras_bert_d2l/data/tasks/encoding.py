"""Encode task examples as token ids and label ids without padding, the fields of `TaskRows`.

N: examples, R: rows (a long context gives several rows per example), B: texts tokenized together,
T: tokens per row.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_bert_d2l.data.tasks.examples import (
    ChoiceExamples,
    Label,
    PairExamples,
    QuestionExamples,
    TextExamples,
    WordExamples,
)
from keras_bert_d2l.data.tasks.labels import check_label_names, label_ids
from keras_bert_d2l.data.tasks.word_windows import windows, word_tokens
from keras_bert_d2l.ranges import IGNORED, negative_of
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, ADDED_TO_PAIR, check_max_len, frame
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

Fields: TypeAlias = dict[str, Any]
"""Keyword arguments of `TaskRows`."""

_RowsOfWindows: TypeAlias = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]]

_TEXTS_TOGETHER = 4096
_WORDS_TOGETHER = 1 << 17
_QUESTIONS_TOGETHER = 128  # contexts are long, and their offsets take memory
_WORTH_A_GRAPH = 5_000  # questions; compiling takes seconds, but makes encoding five times as fast
_NO_WORD = -1
_NO_ANSWER = (0, 0)


def encoded_texts(
    examples: TextExamples, tokenizer: Tokenizer, labels: Sequence[str] | None, max_len: int
) -> Fields:
    """Encode texts or pairs, one row each."""
    sides = [side for side in (examples.texts, examples.texts_b) if side is not None]
    check_max_len(max_len, len(sides))
    names, ids = _names_and_ids(examples, labels)

    def in_part(chosen: slice) -> tuple[tf.Tensor, ...]:
        texts = [tokenizer.tokenize(tf.constant(side[chosen])) for side in sides]
        batch = frame(*texts, vocab=tokenizer.vocab, max_len=max_len)
        full_lengths = tf.add_n([side.row_lengths() for side in texts])
        return (*_unpadded(batch), full_lengths)

    tokens, lengths, seconds, full_lengths = _in_parts(in_part, len(examples), _TEXTS_TOGETHER)
    full_lengths += ADDED_TO_PAIR if len(sides) == 2 else ADDED_TO_ONE
    return {
        "label_names": names,
        "tokens": tokens,
        "splits": splits(lengths),
        "seconds": seconds,
        "labels": ids,
        "examples": np.arange(len(lengths), dtype=np.int32),
        "full_lengths": full_lengths.astype(np.int32),
        "num_truncated": int((full_lengths > lengths).sum()),
    }


def encoded_pairs(examples: PairExamples, tokenizer: Tokenizer, max_len: int) -> Fields:
    """Encode each text of a pair, or of a triplet, as a row of its own, one after the other."""
    sides = (examples.texts, examples.texts_b, examples.negatives)
    together = list(zip(*filter(None, sides), strict=True))
    number = len(together[0])
    texts = TextExamples(texts=tuple(itertools.chain.from_iterable(together)))
    fields = encoded_texts(texts, tokenizer, None, max_len)
    full_lengths = fields["full_lengths"].reshape(-1, number)
    return {
        **fields,
        "labels": _cosines_or_groups(examples, number),
        "examples": np.arange(len(texts), dtype=np.int32) // number,
        "full_lengths": full_lengths.max(axis=1),
        "num_truncated": int((full_lengths > max_len).any(axis=1).sum()),
        "rows_together": number,
    }


def encoded_choices(examples: ChoiceExamples, tokenizer: Tokenizer, max_len: int) -> Fields:
    """Encode each text with each of its choices, one row after the other.

    A batch needs the same number of choices for all texts, so examples with another number than
    most have are dropped.
    """
    counts = np.array(list(map(len, examples.choices)))
    number = int(np.bincount(counts).argmax())
    kept = np.flatnonzero(counts == number)
    fields = encoded_texts(
        TextExamples(
            texts=tuple(examples.texts[n] for n in kept for _ in range(number)),
            texts_b=tuple(choice for n in kept for choice in examples.choices[n]),
        ),
        *(tokenizer, None, max_len),
    )
    lengths = fields["full_lengths"].reshape(-1, number).max(axis=1)
    full_lengths = np.zeros(len(examples), np.int32)
    full_lengths[kept] = lengths
    labels = examples.labels and np.repeat(np.array(examples.labels, np.int32)[kept], number)
    num_dropped = len(examples) - len(kept)
    reason = f"not {number} choices, as most examples have"
    return {
        **fields,
        "labels": labels,
        "examples": np.repeat(kept.astype(np.int32), number),
        "full_lengths": full_lengths,
        "num_truncated": int((lengths > max_len).sum()),
        "rows_together": number,
        "dropped": {reason: num_dropped} if num_dropped else {},
    }


def _cosines_or_groups(examples: PairExamples, number: int) -> np.ndarray:
    """Return the label of each of the N * `number` texts.

    With scores, these are the cosines to learn. Otherwise, they are groups of similar texts: pairs
    that share a text are in the same group, so that no text is a negative of itself. The label of a
    negative is -1, or if its text is in a pair of group g, `negative_of(g)`.
    """
    if examples.labels is not None:
        return np.repeat(as_cosines(examples.labels), number)
    texts = [*examples.texts, *(examples.texts_b or ()), *(examples.negatives or ())]
    ids = np.unique(np.array(texts, object), return_inverse=True)[1].reshape(number, -1)
    pairs, groups, before = ids[:2], np.arange(len(examples)), None
    while before is None or (groups != before).any():
        before = groups  # each text passes the smallest group of its pairs on to all of them
        of_text = np.full(ids.max() + 1, len(examples))
        np.minimum.at(of_text, pairs.ravel(), np.tile(groups, 2))
        groups = of_text[pairs].min(axis=0)
    labels = np.repeat(groups[:, np.newaxis], number, axis=1)
    of_negatives = of_text[ids[2:].T]
    is_in_a_pair = of_negatives < len(examples)
    labels[:, 2:] = np.where(is_in_a_pair, negative_of(of_negatives), -1)
    return labels.ravel().astype(np.int32)


def as_cosines(scores: Sequence[Label], like: Sequence[Label] | None = None) -> np.ndarray:
    """Return scores as cosines, float32 `(N,)`.

    Args:
        scores: The scores.
        like: Scores that define the scale, such as those of the training data. If some are outside
            [-1, 1], their range is mapped to [0, 1], linearly. `None`: `scores`.
    """
    values = np.array(scores, np.float32)
    known = values if like is None else np.array(like, np.float32)
    if np.abs(known).max() > 1:
        lowest, highest = known.min(), known.max()
        values = (values - lowest) / max(highest - lowest, np.float32(1e-12))
    return np.clip(values, -1, 1)


def encoded_words(
    examples: WordExamples, tokenizer: Tokenizer, labels: Sequence[str] | None, max_len: int
) -> Fields:
    """Encode texts split into words, in several rows if a text is long.

    The first token of a word gets its label, in one of the rows.
    """
    check_max_len(max_len, 1)
    names, ids = _names_and_ids(examples, labels)
    words = [word for text in examples.words for word in text]
    pieces, sizes = _in_parts(
        lambda chosen: word_tokens(words[chosen], tokenizer), len(words), _WORDS_TOGETHER
    )
    num_words = np.array(list(map(len, examples.words)))
    word_begin = splits(sizes)  # the first token of each word in `pieces`
    text_begin = word_begin[splits(num_words)]
    num_tokens = np.diff(text_begin)
    of_texts = [windows(length, max_len - ADDED_TO_ONE) for length in num_tokens.tolist()]
    num_rows = np.array(list(map(len, of_texts)))
    owners = np.repeat(np.arange(len(of_texts), dtype=np.int32), num_rows)
    in_rows = np.array(list(itertools.chain.from_iterable(of_texts)))
    start, end, _, stop = (in_rows + text_begin[owners, np.newaxis]).T
    lengths = end - start + ADDED_TO_ONE
    row_begin = splits(lengths)
    # Of the tokens of a row, the first and the last are special and may be out of range.
    source = np.arange(row_begin[-1]) + np.repeat(start - 1 - row_begin[:-1], lengths)
    tokens = pieces.take(source, mode="clip")
    tokens[row_begin[:-1]] = tokenizer.vocab.cls_id
    tokens[row_begin[1:] - 1] = tokenizer.vocab.sep_id
    # The row in which each word counts, and the place of its first token.
    row = np.searchsorted(stop, word_begin[:-1], side="right")
    place = row_begin[row] + 1 + word_begin[:-1] - start[row]
    word_ids = np.full(len(tokens), _NO_WORD, np.int32)
    word_ids[place] = np.arange(len(words)) - np.repeat(splits(num_words)[:-1], num_words)
    token_labels = None
    if ids is not None:
        token_labels = np.full(len(tokens), IGNORED, np.int32)
        token_labels[place] = ids
    return {
        "label_names": names,
        "tokens": tokens,
        "splits": row_begin,
        "seconds": lengths.astype(np.int32),
        "labels": token_labels,
        "examples": owners,
        "full_lengths": (num_tokens + ADDED_TO_ONE).astype(np.int32),
        "num_truncated": int((num_rows > 1).sum()),
        "word_ids": word_ids,
    }


def encoded_questions(
    examples: QuestionExamples, tokenizer: Tokenizer, max_len: int, overlap: int | None
) -> Fields:
    """Encode questions with the windows of their contexts, one row per window."""
    overlap = max_len // 3 if overlap is None else overlap
    question_lengths, fitting, dropped = _question_lengths(examples, tokenizer, max_len, overlap)
    rows_of_windows: _RowsOfWindows
    rows_of_windows = functools.partial(_rows_of_windows, tokenizer, max_len, overlap)
    if len(fitting) > _WORTH_A_GRAPH:
        rows_of_windows = _windows_graph(tokenizer, max_len, overlap)

    def in_part(chosen: slice) -> tuple[tf.Tensor, ...]:
        numbers = fitting[chosen]
        *of_rows, rows = rows_of_windows(
            tf.constant([examples.questions[number] for number in numbers]),
            tf.constant([examples.contexts[number] for number in numbers]),
            tf.constant([_first_answer(examples, number) for number in numbers], tf.int32),
        )
        return (*of_rows, tf.gather(tf.constant(numbers, tf.int32), rows))

    tokens, lengths, seconds, spans, owners = _in_parts(in_part, len(fitting), _QUESTIONS_TOGETHER)
    num_rows = np.bincount(owners, minlength=len(examples))
    # The rows of one context overlap, and each repeats the question.
    alone = lengths - question_lengths[owners] - ADDED_TO_PAIR - overlap
    full_lengths = np.bincount(owners, alone, len(examples)).astype(np.int32)
    full_lengths += (num_rows > 0) * (question_lengths + ADDED_TO_PAIR + overlap)
    labels = None
    if examples.answers is not None:
        labels, num_lost = _without_lost_answers(examples, spans, owners)
        if num_lost:
            dropped["answer does not fit in any row, so it is not learned"] = num_lost
    return {
        "label_names": (),
        "tokens": tokens,
        "splits": splits(lengths),
        "seconds": seconds,
        "labels": labels,
        "examples": owners,
        "full_lengths": full_lengths,
        "num_truncated": int((num_rows > 1).sum()),
        "dropped": dropped,
    }


def _names_and_ids(
    examples: TextExamples | WordExamples, labels: Sequence[str] | None
) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Return the label names, and the label ids or scores (None if unknown)."""
    if examples.task == "regress":
        return (), None if examples.labels is None else np.asarray(examples.labels, np.float32)
    if examples.labels is None:
        return tuple(labels or ()), None
    is_multi = isinstance(examples, TextExamples) and examples.multi_label
    names = check_label_names(examples, labels, at_least=1 if is_multi else 2)
    return names, label_ids(examples, names)


def _question_lengths(
    examples: QuestionExamples, tokenizer: Tokenizer, max_len: int, overlap: int
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Return question lengths, the indices of questions that fit, and counts of the others."""
    (lengths,) = _in_parts(
        lambda chosen: (tokenizer.tokenize(tf.constant(examples.questions[chosen])).row_lengths(),),
        len(examples),
        _TEXTS_TOGETHER,
    )
    fitting = np.flatnonzero(max_len - ADDED_TO_PAIR - lengths > overlap)
    if not len(fitting):
        raise ValueError(
            f"A question must leave more than overlap={overlap} tokens of max_len={max_len} for "
            f"its context. Received: questions of at least {lengths.min():,} tokens. Increase "
            "`max_len` or shorten the questions."
        )
    num_long = len(examples) - len(fitting)
    reason = f"question too long for max_len={max_len} and overlap={overlap}"
    return lengths, fitting, {reason: num_long} if num_long else {}


def _first_answer(examples: QuestionExamples, number: int) -> tuple[int, int]:
    answers = examples.answers[number] if examples.answers is not None else ()
    return (answers[0].start, answers[0].end) if answers else _NO_ANSWER


def _without_lost_answers(
    examples: QuestionExamples, spans: np.ndarray, owners: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return the spans to learn, and the number of answers that do not fit in any row.

    The loss ignores the rows of these answers. Otherwise, they would be learned as "no answer".
    """
    has_answer = np.array([bool(answers) for answers in examples.answers or ()])
    is_found = np.bincount(owners, spans[:, 0] > 0, len(examples)) > 0
    is_lost = (has_answer & ~is_found)[owners]
    return np.where(is_lost[:, np.newaxis], IGNORED, spans), len(np.unique(owners[is_lost]))


def _rows_of_windows(
    tokenizer: Tokenizer,
    max_len: int,
    overlap: int,
    questions: tf.Tensor,
    contexts: tf.Tensor,
    answers: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """Return the rows of B questions; `answers (B, 2)` are character ranges of the contexts."""
    windows = tokenizer.windows(questions, contexts, max_len, overlap)
    spans = tokenizer.answer_spans(windows, answers[:, 0], answers[:, 1])
    return (*_unpadded(windows), spans, windows["rows"])


@functools.lru_cache(maxsize=4)
def _windows_graph(
    tokenizer: Tokenizer, max_len: int, overlap: int
) -> Callable[..., tuple[tf.Tensor, ...]]:
    texts, answers = tf.TensorSpec((None,), tf.string), tf.TensorSpec((None, 2), tf.int32)
    return tf.function(
        functools.partial(_rows_of_windows, tokenizer, max_len, overlap),
        input_signature=[texts, texts, answers],
    )


def _in_parts(
    part: Callable[[slice], Sequence[tf.Tensor | np.ndarray]], number: int, together: int
) -> tuple[np.ndarray, ...]:
    """Encode `number` texts or words, `together` at a time, and concatenate the arrays."""
    slices = (slice(first, first + together) for first in range(0, max(1, number), together))
    parts = [list(map(np.asarray, part(chosen))) for chosen in slices]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _unpadded(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return tokens without padding, the length of each row, and the start of its second text."""
    lengths = batch["valid_lens"]
    seconds = lengths - tf.reduce_sum(batch["segments"], axis=1)
    return _ragged(batch["tokens"], lengths), lengths, seconds


def _ragged(rows: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Return the values of rows `(B, T)` without their padding, concatenated."""
    return tf.boolean_mask(rows, tf.sequence_mask(lengths, tf.shape(rows)[1]))


def splits(lengths: np.ndarray) -> np.ndarray:
    """Return the start of each row in the concatenated rows, and the end of the last row."""
    return np.append(0, np.cumsum(lengths, dtype=np.int64))
