"""Examples of a task in, the fields of its rows out: token ids without padding, and label ids.

N: examples, R: rows (windows of a long text are several rows of one example), B: texts that are
tokenised in one go, T: tokens in a row.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.data.tasks.examples import QuestionExamples, TextExamples, WordExamples
from keras_bert_d2l.data.tasks.labels import (
    check_label_names,
    label_ids,
)
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, ADDED_TO_PAIR, check_max_len, frame
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.windows import answer_spans

IGNORED = -100  # the label of a token or a row that a loss leaves out
_TEXTS_TOGETHER = 4096
_QUESTIONS_TOGETHER = 128  # contexts are long, and their offsets take memory
_WORTH_A_GRAPH = 5_000  # questions: one takes seconds to make, and is then five times as fast
_NO_WORD = -1
_NO_ANSWER = (0, 0)


def encoded_texts(
    examples: TextExamples, tokenizer: Tokenizer, labels: Sequence[str] | None, max_len: int
) -> dict[str, Any]:
    """Returns the fields of `TaskRows` for texts or pairs."""
    is_pair = examples.texts_b is not None
    check_max_len(max_len, 1 + is_pair)
    names, text_labels = _text_labels(examples, labels)
    sides = [side for side in (examples.texts, examples.texts_b) if side is not None]

    def in_part(chosen: slice) -> tuple[Any, ...]:
        ids = [tokenizer.tokenize(tf.constant(side[chosen])) for side in sides]
        batch = frame(*ids, vocab=tokenizer.vocab, max_len=max_len)
        lengths = batch["valid_lens"]
        full_lengths = tf.add_n([side.row_lengths() for side in ids])
        full_lengths += ADDED_TO_PAIR if is_pair else ADDED_TO_ONE
        seconds = lengths - tf.reduce_sum(batch["segments"], axis=1)
        return _ragged(batch["tokens"], lengths), lengths, seconds, full_lengths

    tokens, lengths, seconds, full_lengths = _in_parts(in_part, len(examples), _TEXTS_TOGETHER)
    return {
        "task": examples.task,
        "label_names": names,
        "tokens": tokens,
        "splits": _splits(lengths),
        "seconds": seconds,
        "labels": text_labels,
        "examples": np.arange(len(examples), dtype=np.int32),
        "full_lengths": full_lengths.astype(np.int32),
        "num_truncated": int((full_lengths > lengths).sum()),
        "pad_id": tokenizer.vocab.pad_id,
    }


def encoded_words(
    examples: WordExamples, tokenizer: Tokenizer, labels: Sequence[str] | None, max_len: int
) -> dict[str, Any]:
    """Returns the fields of `TaskRows` for texts that are words."""
    check_max_len(max_len, 1)
    names = tuple(labels or ())
    if examples.labels is not None:
        names = check_label_names(examples, labels, at_least=2)

    def in_part(chosen: slice) -> tuple[Any, ...]:
        words = examples.words[chosen]
        flat = tf.constant([word for text in words for word in text], tf.string)
        num_words = tf.constant([len(text) for text in words], tf.int64)
        batch = tokenizer.from_words(tf.RaggedTensor.from_row_lengths(flat, num_words))
        lengths = batch["valid_lens"]
        of_tokens = (_ragged(batch[name], lengths) for name in ("tokens", "word_ids"))
        return (*of_tokens, lengths)

    tokens, word_ids, full_lengths = _in_parts(in_part, len(examples), _TEXTS_TOGETHER)
    lengths = np.minimum(full_lengths, max_len)
    position = np.arange(len(tokens)) - np.repeat(_splits(full_lengths)[:-1], full_lengths)
    is_kept = position < np.repeat(lengths, full_lengths)
    tokens, word_ids, splits = tokens[is_kept], word_ids[is_kept], _splits(lengths)
    last = splits[1:] - 1
    tokens[last], word_ids[last] = tokenizer.vocab.sep_id, _NO_WORD
    before = np.append(_NO_WORD, word_ids[:-1])
    is_first = (word_ids != _NO_WORD) & (word_ids != before)
    num_words = np.array([len(words) for words in examples.words])
    token_labels = None
    if examples.labels is not None:
        place = (_splits(num_words)[:-1].repeat(lengths) + word_ids)[is_first]
        token_labels = np.full(len(tokens), IGNORED, np.int32)
        token_labels[is_first] = label_ids(examples, names)[place]
    return {
        "task": examples.task,
        "label_names": names,
        "tokens": tokens,
        "splits": splits,
        "seconds": lengths.astype(np.int32),
        "labels": token_labels,
        "examples": np.arange(len(examples), dtype=np.int32),
        "word_ids": word_ids,
        "full_lengths": full_lengths.astype(np.int32),
        "num_truncated": int((full_lengths > lengths).sum()),
        "num_words_cut": int(num_words.sum() - is_first.sum()),
        "pad_id": tokenizer.vocab.pad_id,
    }


def encoded_questions(
    examples: QuestionExamples, tokenizer: Tokenizer, max_len: int, overlap: int | None
) -> dict[str, Any]:
    """Returns the fields of `TaskRows` for questions and the windows of their contexts."""
    overlap = max_len // 3 if overlap is None else overlap
    question_lengths, fitting, dropped = _question_lengths(examples, tokenizer, max_len, overlap)
    rows_of_windows = functools.partial(_rows_of_windows, tokenizer, max_len, overlap)
    if len(fitting) > _WORTH_A_GRAPH:
        rows_of_windows = _windows_graph(tokenizer, max_len, overlap)

    def in_part(chosen: slice) -> tuple[Any, ...]:
        numbers = fitting[chosen]
        *of_rows, rows = rows_of_windows(
            tf.constant([examples.questions[number] for number in numbers]),
            tf.constant([examples.contexts[number] for number in numbers]),
            tf.constant([_first_answer(examples, number) for number in numbers], tf.int32),
        )
        return (*of_rows, tf.gather(tf.constant(numbers, tf.int32), rows))

    tokens, lengths, seconds, spans, owners = _in_parts(in_part, len(fitting), _QUESTIONS_TOGETHER)
    num_rows = np.bincount(owners, minlength=len(examples))
    # Parts of a context have tokens in common, and each row repeats the question.
    alone = lengths - question_lengths[owners] - ADDED_TO_PAIR - overlap
    full_lengths = np.bincount(owners, alone, len(examples)).astype(np.int32)
    full_lengths += (num_rows > 0) * (question_lengths + ADDED_TO_PAIR + overlap)
    labels = None
    if examples.answers is not None:
        labels, num_lost = _without_lost_answers(examples, spans, owners)
        if num_lost:
            dropped["no row has room for the whole answer, which is not learnt"] = num_lost
    return {
        "task": examples.task,
        "label_names": (),
        "tokens": tokens,
        "splits": _splits(lengths),
        "seconds": seconds,
        "labels": labels,
        "examples": owners,
        "full_lengths": full_lengths,
        "num_truncated": int((num_rows > 1).sum()),
        "dropped": dropped,
        "pad_id": tokenizer.vocab.pad_id,
    }


def _text_labels(
    examples: TextExamples, labels: Sequence[str] | None
) -> tuple[tuple[str, ...], np.ndarray | None]:
    if examples.task == "regress":
        scores = examples.labels
        return (), None if scores is None else np.asarray(scores, np.float32)
    if examples.labels is None:
        return tuple(labels or ()), None
    names = check_label_names(examples, labels, at_least=2 - examples.multi_label)
    return names, label_ids(examples, names)


def _question_lengths(
    examples: QuestionExamples, tokenizer: Tokenizer, max_len: int, overlap: int
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Tokens of each question, the numbers of those that fit, and how many do not."""
    (lengths,) = _in_parts(
        lambda chosen: (tokenizer.tokenize(tf.constant(examples.questions[chosen])).row_lengths(),),
        len(examples),
        _TEXTS_TOGETHER,
    )
    fitting = np.flatnonzero(max_len - ADDED_TO_PAIR - lengths > overlap)
    if not len(fitting):
        raise ValueError(
            f"A question must leave more than overlap={overlap} tokens of max_len={max_len} to "
            f"its context. Received: questions of at least {lengths.min():,} tokens. Raise "
            "`max_len`, lower `overlap` or shorten the questions."
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
    """Spans to learn, and how many answers are in no row: not to be taken for "no answer"."""
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
    """What the rows of B questions consist of; answers are characters `(B, 2)`."""
    windows = tokenizer.windows(questions, contexts, max_len, overlap)
    lengths = windows["valid_lens"]
    spans = answer_spans(windows, answers[:, 0], answers[:, 1])
    seconds = lengths - tf.reduce_sum(windows["segments"], axis=1)
    return _ragged(windows["tokens"], lengths), lengths, seconds, spans, windows["rows"]


@functools.lru_cache(maxsize=4)
def _windows_graph(tokenizer: Tokenizer, max_len: int, overlap: int) -> Any:
    texts, answers = tf.TensorSpec((None,), tf.string), tf.TensorSpec((None, 2), tf.int32)
    return tf.function(
        functools.partial(_rows_of_windows, tokenizer, max_len, overlap),
        input_signature=[texts, texts, answers],
    )


def _in_parts(
    part: Callable[[slice], Sequence[tf.Tensor]], number: int, together: int
) -> tuple[np.ndarray, ...]:
    """Returns the arrays of all parts of `number` texts, end to end."""
    slices = (slice(first, first + together) for first in range(0, number, together))
    parts = [[tensor.numpy() for tensor in part(chosen)] for chosen in slices]
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def _ragged(rows: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """The values of rows `(B, T)` without their padding, end to end."""
    return tf.boolean_mask(rows, tf.sequence_mask(lengths, tf.shape(rows)[1]))


def _splits(lengths: np.ndarray) -> np.ndarray:
    return np.append(0, np.cumsum(lengths, dtype=np.int64))
