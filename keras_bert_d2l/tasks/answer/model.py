"""QuestionAnswerer: extractive question answering, and its labels from answers in texts.

B batch, W windows of the contexts of a batch, T tokens.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_bert_d2l.checks import is_integer, shown
from keras_bert_d2l.contract.task import lazy
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.compiling import Training
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.tasks.answer import WINDOW_LEN
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
    preprocessing = lazy("keras_bert_d2l.tasks.answer.rows:QuestionPreprocessor")
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
