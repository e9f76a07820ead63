"""Signatures of the models that extract the answers to questions from texts.

B: questions in a batch, W: windows of all contexts, T: tokens, L: tokens of the longest answer,
N: candidate spans, n: best spans of a window or a context, k: answers per question.
"""

import tensorflow as tf

from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.serving.signatures.signature import (
    CONTEXT,
    QUESTION,
    Answer,
    ServedModel,
    TextOptions,
)
from keras_bert_d2l.serving.signatures.texts import Batch, Characters, TextSignatures, checked_pairs
from keras_bert_d2l.tasks.answer.model import longest_question
from keras_bert_d2l.tasks.answer.predictions import N_BEST, best_spans
from keras_bert_d2l.text.tokenizer.framing import kept_tokens, sliding_windows
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

MAX_ANSWER_LEN = 30

_NEVER = float("-inf")


class AnswererSignatures(TextSignatures):
    """Signatures of a `QuestionAnswerer`.

    The answers match `keras_bert_d2l.answer`: a context of any length is read in windows of at
    most 384 tokens that overlap by a third, and an answer has at most 30 tokens. A question that
    leaves no room for its context is truncated.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: `top_k` is the number of answers per question, k. With a `null_threshold`, "no
            answer" is one of the candidates.

    Raises:
        ValueError: `top_k` is below 1.
    """

    specs = (QUESTION, CONTEXT)

    def __init__(self, run: ServedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self._top_k, self._null_threshold = options.top_k, options.null_threshold
        check_integer("top_k", self._top_k, 1)
        self._num_best = max(self._top_k, N_BEST)
        self._max_len, self._overlap = run.model.window_sizes

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the answers to questions.

        Args:
            *texts: `question` and `context`, strings `(B,)`.

        Returns: the best answer, each `(B,)`: `answer`, strings, a part of the context; `score`,
            float32, its probability among the max(20, k) best answers (and "no answer" if there
            is a threshold); `start` and `end`, int32, the index of its first character in the
            context and the index after its last one; `null_score`, float32, the logit of "no
            answer" minus the logit of the best span of the context; and `truncated`, bool,
            whether the question was truncated.
            The k best answers, each `(B, k)`: `answers`, `scores`, `starts` and `ends`. "No
            answer" is the empty string from 0 to 0, with a score. If a context has fewer than k
            answers, its row is padded with empty strings and zeros.
        """
        question, context = checked_pairs(*texts)
        windows, truncated = self._windows(question, context)
        logits = self.in_steps(windows, "start", "end")
        num_rows, k = tf.shape(context)[0], self._top_k
        rows = tf.cast(windows["rows"], tf.int64)
        characters = Characters(context)
        best, starts, ends = self._best(windows, logits, num_rows, characters)
        nulls = logits["start"][:, 0] + logits["end"][:, 0]
        null = tf.math.unsorted_segment_min(nulls, rows, num_rows)
        margin = tf.where(best[:, 0] > _NEVER, null - best[:, 0], 0.0)
        first_column = tf.zeros(num_rows, tf.int32)
        if self._null_threshold is not None:
            is_null = (best[:, 0] > _NEVER) & (margin > self._null_threshold)
            best = tf.concat([null[:, tf.newaxis], best], axis=1)
            starts, ends = (tf.pad(x, [[0, 0], [1, 0]]) for x in (starts, ends))
            first_column = tf.where(is_null, 0, 1)
        columns = first_column[:, tf.newaxis] + tf.range(k)
        scores, starts, ends = (
            tf.gather(x, columns, batch_dims=1) for x in (_softmax(best), starts, ends)
        )
        spans = (tf.repeat(tf.range(num_rows), k), tf.reshape(starts, [-1]), tf.reshape(ends, [-1]))
        answers = {
            "answers": tf.reshape(characters.spans(*spans), [num_rows, k]),
            "scores": scores,
            "starts": starts,
            "ends": ends,
        }
        first = {name.removesuffix("s"): column[:, 0] for name, column in answers.items()}
        return {**answers, **first, "null_score": margin, "truncated": truncated}

    def _windows(self, question: tf.Tensor, context: tf.Tensor) -> tuple[Batch, tf.Tensor]:
        """Return the trimmed `Tokenizer.windows` and a mask of the truncated questions."""
        pieces = self.batches.pieces(question)
        most = longest_question(self._max_len, self._overlap, self.vocab.num_added(2))
        truncated = pieces[0].row_lengths() > most
        side = self.batches.truncation_side
        tokens, starts, ends = (kept_tokens(piece, most, side) for piece in pieces)
        windows = sliding_windows(
            (tokens, starts, ends),
            self.batches.pieces(context),
            vocab=self.vocab,
            max_len=self._max_len,
            overlap=self._overlap,
        )
        return self.batches.trim(windows), truncated

    def _best(
        self, windows: Batch, logits: Answer, num_rows: tf.Tensor, characters: Characters
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return the logits, starts and ends of the n best spans per context.

        Each `(B, n)`, padded with minus infinity and zeros.
        """
        spans, window, first, last = best_spans(
            windows, logits, max_answer_len=MAX_ANSWER_LEN, num_best=self._num_best
        )
        start, end = (
            tf.gather_nd(windows[name], tf.stack([window, token], axis=1))
            for name, token in (("starts", first), ("ends", last))
        )
        row = tf.gather(windows["rows"], window)
        start, end = characters.whole(row, start, end, self.vocab.kind)
        if self.vocab.kind != "wordpiece":  # a token may be a space alone
            is_text = start < end
            spans, row, start, end = (tf.boolean_mask(x, is_text) for x in (spans, row, start, end))
        # Windows share tokens and tokens share characters, so a span may be found more than once.
        row, start, end = (tf.cast(x, tf.int64) for x in (row, start, end))
        size = tf.reduce_max(tf.concat([end, [0]], axis=0)) + 1
        distinct, number = tf.unique((row * size + start) * size + end)
        spans = tf.math.unsorted_segment_max(spans, number, tf.size(distinct))
        row, start, end = distinct // size**2, distinct // size % size, distinct % size
        # Windows, and therefore spans, are sorted by context.
        number = tf.RaggedTensor.from_value_rowids(
            tf.range(tf.size(distinct)), row, tf.cast(num_rows, tf.int64), validate=False
        )
        padded = [[0, 0], [0, self._num_best]]
        dense = tf.pad(number.with_values(spans).to_tensor(_NEVER), padded, constant_values=_NEVER)
        best, column = tf.math.top_k(dense, self._num_best)
        is_span = best > _NEVER

        def of_best(values: tf.Tensor) -> tf.Tensor:
            values = tf.pad(number.with_values(tf.cast(values, tf.int32)).to_tensor(), padded)
            return tf.where(is_span, tf.gather(values, column, batch_dims=1), 0)

        return best, of_best(start), of_best(end)


def _softmax(logits: tf.Tensor) -> tf.Tensor:
    """Return the softmax of `(B, n)`, with zeros for minus infinity, even if a row has no spans."""
    is_span = logits > _NEVER
    highest = tf.reduce_max(logits, axis=1, keepdims=True)
    powers = tf.where(is_span, tf.exp(tf.where(is_span, logits - highest, 0.0)), 0.0)
    return tf.math.divide_no_nan(powers, tf.reduce_sum(powers, axis=1, keepdims=True))
