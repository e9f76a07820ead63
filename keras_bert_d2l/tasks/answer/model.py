"""QuestionAnswerer: extractive question answering.

B batch, T tokens.
"""

from collections.abc import Sequence

import keras

from keras_bert_d2l.checks import check_type
from keras_bert_d2l.layers.heads import dense_head
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.losses import WeightedCrossEntropy, label_metrics
from keras_bert_d2l.models.tasks.task_model import (
    TaskModel,
    Training,
)
from keras_bert_d2l.models.tasks.text_inputs import Batch, Texts, as_tensors
from keras_bert_d2l.tasks.answer import WINDOW_LEN
from keras_bert_d2l.tasks.answer import labels as answer_labels
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
        check_type("bert", bert, BERTModel)
        super().__init__(bert, head=dense_head(bert, 2), **options)

    def answer(self, encoded_X: Tensor, is_token: Tensor | None = None) -> Tensor:
        logits = super().answer(encoded_X)  # (B, T, 2)
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
        return answer_labels.answer_tensors(y)

    def checked_texts(self, x: object, y: Tensor | None = None) -> Texts:
        answer_labels.check_keys(x)
        texts = as_tensors(x)
        lengths = self.tokenizer.tokenize(texts["questions"]).row_lengths()
        most = answer_labels.longest_question(*self.window_sizes)
        answer_labels.check_examples(texts, y, lengths, most)
        return texts

    def text_batch(self, texts: Texts) -> Batch:
        answer_labels.check_keys(texts)
        max_len, overlap = self.window_sizes
        return self.tokenizer.windows(texts["questions"], texts["contexts"], max_len, overlap)

    def text_targets(
        self, texts: Texts, batch: Batch, labels: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        starts, ends = answer_labels.character_spans(texts["contexts"], labels)
        spans = self.tokenizer.answer_spans(batch, starts, ends)
        labels = answer_labels.window_labels(spans, batch["rows"], starts)
        return labels, *answer_labels.of_windows(weights, batch["rows"])
