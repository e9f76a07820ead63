"""What the model that finds answers in texts answers.

B questions in a batch, W windows of all contexts, T tokens, L tokens of the longest answer,
N spans that may be answers, n best of them in a window or a context, k answers.
"""

import math

import tensorflow as tf

from keras_bert_d2l.inference.tasks.answers import N_BEST
from keras_bert_d2l.models.tasks.answer_labels import longest_question
from keras_bert_d2l.serving.signatures.characters import Characters
from keras_bert_d2l.serving.signatures.length_buckets import TextBatches
from keras_bert_d2l.serving.signatures.requests import CONTEXT, PREDICT, QUESTION
from keras_bert_d2l.serving.signatures.task import TaskTokenSignatures
from keras_bert_d2l.text.tokenizer.windows import sliding_windows

MAX_ANSWER_LEN = 30

_NEVER = float("-inf")
_WINDOWS_AT_ONCE = 32  # that pass through the model: it bounds the memory for a long context


class SpanAnswers:
    """The answers to questions that stand in texts, by a `QuestionAnswerer`.

    They are those of `answer`: a context of any length is read in windows of at most 384 tokens
    that have a third in common, and an answer has at most 30 tokens. Of a question that leaves no
    room for its context the end is not read.

    Args:
        of_tokens: The answers to token ids.
        batches: Makes batches of texts.
        top_k: Number of answers to each question, k.
        null_threshold: No answer comes first, as the empty string, where its `null_score` is
            above this; `None`: there always is an answer.

    Raises:
        ValueError: `top_k` is below 1, or `null_threshold` is no finite number.

    Call arguments:
        question: Strings `(B,)`.
        context: Strings `(B,)`.

    Returns: each `(B,)`: `answer`, strings, parts of the contexts; `score`, float32, its
        probability among the best answers, 20 or k if that is more, no answer being one more where
        there is a threshold; `start` and `end`, int32, its first character in the context and its
        last one plus one; `null_score`, float32, by how much the logits of no answer are above
        those of the best part of the context; and `truncated`, bool, whether the question lost its
        end.
        `answers`, `scores`, `starts` and `ends` `(B, k)` are the k best. No answer is the empty
        string from 0 to 0, and has a score. Where a context has fewer than k, there are empty
        strings and zeros.
    """

    method = PREDICT
    specs = (QUESTION, CONTEXT)

    def __init__(
        self,
        of_tokens: TaskTokenSignatures,
        batches: TextBatches,
        top_k: int,
        null_threshold: float | None = None,
    ) -> None:
        if top_k < 1:
            raise ValueError(f"`top_k` must be at least 1. Received: top_k={top_k!r}.")
        if null_threshold is not None:
            _check_threshold(null_threshold)
        self._null_threshold = null_threshold
        self._of_tokens = of_tokens
        self._batches = batches
        self._top_k = top_k
        self._num_best = max(top_k, N_BEST)
        self._max_len, self._overlap = of_tokens.model.window_sizes

    def __call__(self, *texts: tf.Tensor) -> dict[str, tf.Tensor]:
        question, context = self._batches.equally_many(*texts)
        windows, truncated = self._windows(question, context)
        logits = self._logits(windows)
        num_rows = tf.shape(context)[0]
        rows = tf.cast(windows["rows"], tf.int64)
        characters = Characters(context)
        best, starts, ends = self._best(windows, logits, num_rows, characters)
        nulls = logits["start"][:, 0] + logits["end"][:, 0]
        null = tf.math.unsorted_segment_min(nulls, rows, num_rows)
        margin = tf.where(best[:, 0] > _NEVER, null - best[:, 0], 0.0)
        k = self._top_k
        if self._null_threshold is None:
            scores, starts, ends = (x[:, :k] for x in (_shares(best), starts, ends))
        else:
            is_null = (best[:, 0] > _NEVER) & (margin > self._null_threshold)
            best = tf.concat([null[:, tf.newaxis], best], axis=1)
            starts, ends = (tf.pad(x, [[0, 0], [1, 0]]) for x in (starts, ends))
            columns = tf.where(is_null, 0, 1)[:, tf.newaxis] + tf.range(k)
            scores, starts, ends = (
                tf.gather(x, columns, batch_dims=1) for x in (_shares(best), starts, ends)
            )
        owners = tf.repeat(tf.range(num_rows), k)
        flat = characters.stretches(owners, tf.reshape(starts, [-1]), tf.reshape(ends, [-1]))
        answers = {
            "answers": tf.reshape(flat, [num_rows, k]),
            "scores": scores,
            "starts": starts,
            "ends": ends,
        }
        first = {name.removesuffix("s"): column[:, 0] for name, column in answers.items()}
        return {**answers, **first, "null_score": margin, "truncated": truncated}

    def _windows(
        self, question: tf.Tensor, context: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """What `Tokenizer.windows` returns, cut, and which questions lost their ends."""
        pieces = self._batches.pieces(question)
        most = longest_question(self._max_len, self._overlap)
        truncated = pieces[0].row_lengths() > most
        tokens, starts, ends = (piece[:, :most] for piece in pieces)
        windows = sliding_windows(
            (tokens, starts, ends),
            self._batches.pieces(context),
            vocab=self._batches.tokenizer.vocab,
            max_len=self._max_len,
            overlap=self._overlap,
        )
        return self._batches.cut(windows), truncated

    def _logits(self, windows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The logits `(W, T)` of starts and ends, some windows after the others."""
        batch = {name: windows[name] for name in ("tokens", "segments", "valid_lens")}
        num_windows = tf.shape(windows["rows"])[0]
        # Once even for no window: there has to be something to concatenate. The size is fixed, as
        # TensorFlow 2.12 does not know the attribute by which a list grows, and ignores it.
        num_parts = tf.maximum((num_windows + _WINDOWS_AT_ONCE - 1) // _WINDOWS_AT_ONCE, 1)
        found = {
            side: tf.TensorArray(
                tf.float32, num_parts, infer_shape=False, element_shape=(None, None)
            )
            for side in ("start", "end")
        }

        def goes_on(number: tf.Tensor, found: dict[str, tf.TensorArray]) -> tf.Tensor:
            return number < num_parts

        def more(
            number: tf.Tensor, found: dict[str, tf.TensorArray]
        ) -> tuple[tf.Tensor, dict[str, tf.TensorArray]]:
            first = number * _WINDOWS_AT_ONCE
            some = {name: x[first : first + _WINDOWS_AT_ONCE] for name, x in batch.items()}
            logits = self._of_tokens(**some)
            return number + 1, {name: x.write(number, logits[name]) for name, x in found.items()}

        _, found = tf.while_loop(goes_on, more, (tf.constant(0), found), parallel_iterations=1)
        return {name: array.concat() for name, array in found.items()}

    def _best(
        self,
        windows: dict[str, tf.Tensor],
        logits: dict[str, tf.Tensor],
        num_rows: tf.Tensor,
        characters: Characters,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The logits of the n best spans of each context, where they start, and where they end.

        Each `(B, n)`; where there are fewer, minus infinity and zeros.
        """
        spans, (window, first, last) = self._best_of_windows(windows, logits)
        start, end = (
            tf.gather_nd(windows[name], tf.stack([window, token], axis=1))
            for name, token in (("starts", first), ("ends", last))
        )
        row = tf.gather(windows["rows"], window)
        end = characters.behind_accents(row, end)
        # Windows have tokens in common, and tokens characters: the same span is found repeatedly.
        row, start, end = (tf.cast(x, tf.int64) for x in (row, start, end))
        size = tf.reduce_max(tf.concat([end, [0]], axis=0)) + 1
        different, number = tf.unique((row * size + start) * size + end)
        spans = tf.math.unsorted_segment_max(spans, number, tf.size(different))
        row, start, end = different // size**2, different // size % size, different % size
        # As the windows are in the order of their contexts, so are the spans.
        number = tf.RaggedTensor.from_value_rowids(
            tf.range(tf.size(different)), row, tf.cast(num_rows, tf.int64), validate=False
        )
        padded = [[0, 0], [0, self._num_best]]
        dense = tf.pad(number.with_values(spans).to_tensor(_NEVER), padded, constant_values=_NEVER)
        best, column = tf.math.top_k(dense, self._num_best)
        is_there = best > _NEVER

        def of_best(values: tf.Tensor) -> tf.Tensor:
            values = tf.pad(number.with_values(tf.cast(values, tf.int32)).to_tensor(), padded)
            return tf.where(is_there, tf.gather(values, column, batch_dims=1), 0)

        return best, of_best(start), of_best(end)

    def _best_of_windows(
        self, windows: dict[str, tf.Tensor], logits: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        """The logits of the n best spans of each window, and their window, first and last token.

        Each `(N,)`, in the order of the windows.
        """
        is_context = (windows["segments"] == 1) & (windows["ends"] > windows["starts"])
        starts, ends = (tf.where(is_context, logits[side], _NEVER) for side in ("start", "end"))
        # (W, T, L): the spans from each token to itself and to the next ones.
        ends = tf.pad(ends, [[0, 0], [0, MAX_ANSWER_LEN]], constant_values=_NEVER)
        length = tf.shape(starts)[1]
        to = tf.range(length)[:, tf.newaxis] + tf.range(MAX_ANSWER_LEN)
        spans = starts[:, :, tf.newaxis] + tf.gather(ends, to, axis=1)
        flat = tf.reshape(spans, [tf.shape(spans)[0], length * MAX_ANSWER_LEN])
        flat = tf.pad(flat, [[0, 0], [0, self._num_best]], constant_values=_NEVER)
        best, place = tf.math.top_k(flat, self._num_best)
        is_span = best > _NEVER
        window = tf.cast(tf.where(is_span)[:, 0], tf.int32)
        place = tf.boolean_mask(place, is_span)
        first = place // MAX_ANSWER_LEN
        return tf.boolean_mask(best, is_span), (window, first, first + place % MAX_ANSWER_LEN)


def _check_threshold(null_threshold: float) -> None:
    is_number = isinstance(null_threshold, int | float) and not isinstance(null_threshold, bool)
    if not is_number or not math.isfinite(null_threshold):
        raise ValueError(
            "`null_threshold` must be a finite number, or None, with which there always is an "
            f"answer. Received: null_threshold={null_threshold!r}."
        )


def _shares(logits: tf.Tensor) -> tf.Tensor:
    """The softmax of `(B, n)`; zeros for minus infinity, even where there is nothing else."""
    is_there = logits > _NEVER
    highest = tf.reduce_max(logits, axis=1, keepdims=True)
    powers = tf.where(is_there, tf.exp(tf.where(is_there, logits - highest, 0.0)), 0.0)
    return tf.math.divide_no_nan(powers, tf.reduce_sum(powers, axis=1, keepdims=True))
