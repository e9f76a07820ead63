"""QuestionAnswerer: extractive question answering, and its labels from answers in texts.

B batch, W windows of the contexts of a batch, T tokens.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_bert_d2l.checks import is_integer, shown
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.keras_objects import Training
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.tasks.text_inputs import Batch, Texts, as_tensors
from keras_bert_d2l.tasks.answer import WINDOW_LEN, window_labels
from keras_bert_d2l.types import Option, Tensor


@keras.saving.register_keras_serializable("keras_bert_d2l")
class QuestionAnswerer(TaskModel):
    """Extractive question answering model, which predicts the answer's span in a context.

    `fit`, `evaluate` and `predict` also take strings. `x` is
    `{"questions": [...], "contexts": [...]}`. `y` is a list with one entry per question:
    `{"text": ..., "start": ...}`, the answer and the index of its first character in the context,
    or an object with these attributes; or a list of answers (only the first is used); or
    `None` or an empty list if the context has no answer. Both can also be given as a dataset of
    batches, with the labels `{"text": (B,), "start": (B,)}` and the text `""` for no answer.

    A long context is split into overlapping windows, one per row. `fit` and `evaluate` then see
    more rows than questions, each with the weight of its question. Rows that do not contain the
    complete answer are labeled as having no answer; if no row contains it, all rows of the question
    are ignored. `predict` returns one row per window, in order;
    `tokenizer.windows(questions, contexts, *model.window_sizes)["rows"]` contains the index of each
    row's question. Use `answer` to get answers as text.

    Source: Devlin et al. 2019, section 4.2; transformers, `BertForQuestionAnswering`.

    Args:
        bert: The pretrained model.
        **options: `tokenizer`, which converts strings to batches, and `name`.

    Call arguments: As for `SequenceClassifier`.

    Returns: `{"start": (B, T), "end": (B, T)}`, logits of the answer's first and last token.
        Labels are token positions, `{"start": (B,), "end": (B,)}`; -100 is ignored.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] who wrote it ada".split())
    bert = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", vocab_size=len(vocab)))
    answerer = kb.QuestionAnswerer(bert, tokenizer=kb.Tokenizer(vocab))
    answerer.compile(kb.BERTAdamW(3e-5))
    x = {"questions": ["Who wrote it?"], "contexts": ["Ada wrote it."]}
    answerer.fit(x, [{"text": "Ada", "start": 0}])
    ```
    """

    task = "answer"
    outputs = ("start", "end")
    gives_tokens = True
    dataset_labels = (
        "{'text': (B,), 'start': (B,)}, the answers and the indices of their first characters in "
        "the contexts"
    )

    def __init__(self, bert: BERTModel, **options: Option) -> None:
        super().__init__(bert, head=2, **options)

    def head_outputs(self, encoded_X: Tensor, is_token: Tensor | None = None) -> Tensor:
        logits = super().head_outputs(encoded_X)  # (B, T, 2)
        return {"start": logits[..., 0], "end": logits[..., 1]}

    def default_training(self, class_weights: Sequence[float] | None) -> Training:
        sides = ("start", "end")
        return Training(
            {side: WeightedCrossEntropy() for side in sides},
            {side: label_metrics() for side in sides},
            dict.fromkeys(sides, 0.5),
        )

    def num_classes(self, length: Tensor) -> dict[str, Tensor]:
        return {"start": length, "end": length}

    @property
    def window_sizes(self) -> tuple[int, int]:
        """Number of tokens in a window, and number of tokens shared with the next window."""
        max_len = min(WINDOW_LEN, self.bert_config.max_len)
        return max_len, max_len // 3

    def label_ids(self, y: object) -> Tensor:
        return answer_tensors(y)

    def checked_texts(self, x: object, y: Tensor | None = None) -> Texts:
        check_keys(x)
        texts = as_tensors(x)
        check_examples(texts, y)
        lengths = self.tokenizer.tokenize(texts["questions"]).row_lengths()
        check_questions(lengths.numpy(), *self.window_sizes, self.tokenizer.vocab.num_added(2))
        return texts

    def text_batch(self, texts: Texts) -> Batch:
        check_keys(texts)
        max_len, overlap = self.window_sizes
        return self.tokenizer.windows(texts["questions"], texts["contexts"], max_len, overlap)

    def text_targets(
        self, texts: Texts, batch: Batch, labels: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        import tensorflow as tf

        starts, ends = character_spans(texts["contexts"], labels)
        spans = self.tokenizer.answer_spans(batch, starts, ends)
        labels = window_labels(spans, batch["rows"], starts)
        return labels, *(tf.gather(of_questions, batch["rows"]) for of_questions in weights)


def answer_tensors(answers: object) -> Tensor:
    """Convert the answers to questions to tensors.

    Args:
        answers: A list with one entry per question: `{"text": str, "start": int}`, the answer and
            the index of its first character in the context, or an object with these attributes;
            or a list of answers (only the first is used); or `None` or an empty list for no
            answer. Alternatively `{"text": ..., "start": ...}` with the texts and starts of
            all questions. Anything else, for example token positions, is returned unchanged.

    Returns: `{"text": (B,), "start": (B,)}`, strings and int32; `""` and 0 for no answer.

    Raises:
        ValueError: An answer has no text or no start.
    """
    import tensorflow as tf

    texts: Any
    starts: Any
    if isinstance(answers, Mapping) and answers.keys() == {"text", "start"}:
        texts, starts = (np.reshape(answers[name], -1) for name in ("text", "start"))
    elif isinstance(answers, list | tuple | np.ndarray):
        plain = [_plain(number, answer) for number, answer in enumerate(answers)]
        texts, starts = [text for text, _ in plain], [start for _, start in plain]
    else:
        return answers
    return {"text": tf.constant(texts, tf.string), "start": tf.constant(starts, tf.int32)}


def check_keys(texts: object) -> None:
    """Raise `ValueError` unless `texts` is a dictionary of questions and contexts."""
    if not isinstance(texts, Mapping) or texts.keys() != {"questions", "contexts"}:
        received = (
            f"the keys {shown(sorted(texts))}" if isinstance(texts, Mapping) else "no dictionary"
        )
        raise ValueError(
            'A QuestionAnswerer takes strings as {"questions": [...], "contexts": [...]}. '
            f"Received: {received}."
        )


def check_examples(texts: Batch, answers: Tensor | None) -> None:
    """Raise `ValueError` if in-memory examples are inconsistent.

    Args:
        texts: Questions and contexts, as tensors.
        answers: The answers, as tensors, or `None`.
    """
    parts = dict(texts)
    if answers is not None:
        _check_answers(answers)
        parts |= {"answers": answers["text"], "starts": answers["start"]}
    sizes = {name: len(part) for name, part in parts.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "There must be one context per question and, for training, one answer or None per "
            f"question. Received: {', '.join(f'{size} {name}' for name, size in sizes.items())}."
        )
    if answers is None:
        return
    for number in np.flatnonzero(~_occur_in(answers, texts["contexts"]).numpy())[:1]:
        text, start = answers["text"][number].numpy().decode(), int(answers["start"][number])
        context = texts["contexts"][number].numpy().decode(errors="replace")
        there = context[start : start + len(text)] if start >= 0 else ""
        raise ValueError(
            f"An answer must occur in its context. Received: {shown(text)} at character {start} of "
            f"context {number}, but the context has {shown(there)} there."
        )


def character_spans(contexts: Tensor, answers: Batch) -> tuple[Tensor, Tensor]:
    """Return the start and the exclusive end of each answer, in characters of its context.

    Both are int32 `(B,)`, with -1 for no answer. A TensorFlow assertion fails if the context does
    not contain the answer at its start.
    """
    import tensorflow as tf

    _check_answers(answers)
    message = "An answer must occur in its context, at the character given as its start."
    is_right = tf.debugging.Assert(tf.reduce_all(_occur_in(answers, contexts)), [message])
    with tf.control_dependencies([is_right]):
        lengths = _length(answers["text"])
    starts = tf.where(lengths > 0, tf.cast(answers["start"], tf.int32), -1)
    return starts, tf.where(lengths > 0, starts + lengths, -1)


def longest_question(max_len: int, overlap: int, num_added: int) -> int:
    """Return the maximum question length for which every window contains new context.

    Args:
        max_len: Number of tokens in a window.
        overlap: Number of tokens that a window shares with the next one.
        num_added: Number of special tokens in a window.

    Raises:
        ValueError: Even a one-token question does not fit.
    """
    room = max_len - num_added - 1
    if (most := room - overlap) < 1:
        raise ValueError(
            "`overlap` must leave space in each window for a question and new context: it must be "
            f"below {room} for max_len={max_len}. Received: overlap={overlap}."
        )
    return most


def check_questions(lengths: np.ndarray, max_len: int, overlap: int, num_added: int) -> None:
    """Raise `ValueError` if a question has so many tokens that a window has no new context."""
    most = longest_question(max_len, overlap, num_added)
    for number in np.flatnonzero(lengths > most)[:1]:
        raise ValueError(
            f"A question must have at most {most} tokens, so that a window of {max_len} tokens has "
            f"space for more context than the {overlap} tokens it shares with the next window. "
            f"Received: {lengths[number]} tokens in question {number}; shorten it or remove it."
        )


def _check_answers(answers: object) -> None:
    if not isinstance(answers, Mapping) or answers.keys() != {"text", "start"}:
        received = f"the keys {sorted(answers)}" if isinstance(answers, Mapping) else repr(answers)
        raise ValueError(
            'The answers must be a list with one {"text": ..., "start": ...} or None per question, '
            "or in a dataset a dictionary of two tensors with these keys. "
            f"Received: {received:.120}."
        )


def _occur_in(answers: Batch, contexts: Tensor) -> Tensor:
    """Return a mask `(B,)` of the answers that occur at their start in the context."""
    import tensorflow as tf

    starts = tf.cast(answers["start"], tf.int32)
    # `substr` fails for a position past the end.
    places = tf.clip_by_value(starts, 0, _length(contexts))
    lengths = _length(answers["text"])
    there = tf.strings.substr(contexts, places, lengths, unit="UTF8_CHAR")
    return (starts >= 0) & (there == answers["text"])


def _length(texts: Tensor) -> Tensor:
    import tensorflow as tf

    return tf.strings.length(texts, unit="UTF8_CHAR")


def _plain(number: int, answer: object) -> tuple[str, int]:
    if isinstance(answer, list | tuple | np.ndarray):
        first = answer[0] if len(answer) else None
    else:
        first = answer
    if first is None:
        return "", 0
    get = first.get if isinstance(first, Mapping) else functools.partial(getattr, first)
    text, start = get("text", None), get("start", None)
    if not isinstance(text, str) or not text.strip() or not is_integer(start):
        raise ValueError(
            'An answer must have a "text" and its "start", the index of its first character in the '
            f"context; None means no answer. Received: {shown(first)} as answer {number}."
        )
    return text, int(start)
