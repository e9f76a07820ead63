"""Signatures of the models that extract the answers to questions from texts.

B: questions in a batch, W: windows of all contexts, T: tokens, L: tokens of the longest answer,
N: candidate spans, n: best spans of a window or a context, k: answers per question.
"""

import tensorflow as tf

from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.signatures.signature import (
    CONTEXT,
    QUESTION,
    Answer,
    ExportedModel,
    TextOptions,
)
from keras_bert_d2l.signatures.texts import TextSignatures, checked_pairs
from keras_bert_d2l.tasks.answer.predictions import checked_null_threshold
from keras_bert_d2l.tasks.answer.spans import N_BEST, PLACES, best_answers, best_spans
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer

MAX_ANSWER_LEN = 30


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

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        super().__init__(run, tokenizer, options)
        self._top_k = options.top_k
        self._null_threshold = checked_null_threshold(options.null_threshold)
        check_integer("top_k", self._top_k, 1)
        self._num_best = max(self._top_k, N_BEST)

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
        rows = self.preprocess.rows(question, context)
        windows = {**self.padded(rows), "rows": rows["rows"]}
        logits = self.in_steps(windows, "start", "end")
        spans = best_spans(windows, logits, MAX_ANSWER_LEN, self._num_best)
        nulls = logits["start"][:, 0] + logits["end"][:, 0]
        found = best_answers(
            {name: windows[name] for name in PLACES},
            spans,
            nulls,
            context,
            has_spaces=self.vocab.kind != "wordpiece",
            num_best=self._num_best,
            top_k=self._top_k,
            null_threshold=self._null_threshold,
        )
        margin = found["null"] - found["best"]
        answers = {name: found[name] for name in ("answers", "scores", "starts", "ends")}
        first = {name.removesuffix("s"): column[:, 0] for name, column in answers.items()}
        return {**answers, **first, "null_score": margin, "truncated": rows["truncated"]}
