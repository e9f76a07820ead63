"""`classify` and `regress`: predict labels and scores of texts.

B: number of texts, T: tokens per row, C: number of labels.
"""

import dataclasses
from typing import Unpack, overload

import numpy as np

from keras_bert_d2l.inference.asked_model import asked_model
from keras_bert_d2l.inference.results import Result, ResultList
from keras_bert_d2l.inference.texts import RowOptions, Texts, sigmoid, softmax, text_outputs
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike


@dataclasses.dataclass(frozen=True, repr=False)
class Classification(Result):
    """The predicted label, or labels, of a text.

    Attributes:
        label: The most likely label.
        score: The probability of this label.
        scores: The probability of every label. They need not add up to 1 if a text can have any
            number of labels.
        labels: The labels of the text: the most likely one or, if a text can have any number of
            labels, all labels with a probability of at least 0.5.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Classification("good", 0.9, {"bad": 0.1, "good": 0.9}, labels=("good",))
    ```
    """

    label: str
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...]


@overload
def classify(
    model: SequenceClassifier | PathLike,
    texts: str,
    texts_b: str | None = None,
    **options: Unpack[RowOptions],
) -> Classification: ...
@overload
def classify(
    model: SequenceClassifier | PathLike,
    texts: Texts,
    texts_b: Texts | None = None,
    **options: Unpack[RowOptions],
) -> list[Classification]: ...
def classify(
    model: SequenceClassifier | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Classification | list[Classification]:
    """Predict the label, or labels, of texts or pairs of texts.

    As in training, texts that are too long are truncated at the end. In a pair, the longer text
    is truncated first.

    Args:
        model: The classifier, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: A text, or a list of texts.
        texts_b: The second text of each pair. `None` means single texts.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        max_len: Maximum number of tokens in a row, T. `None` means the model's maximum.

    Returns: one `Classification` per text, in the order of the texts; for a single text, only its
        `Classification`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, `texts` and `texts_b`
            differ in length, or a number is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a film bore".split()))
    bert = kb.BERTModel(9, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    for found in kb.classify(classifier, ["what a film", "a bore"]):
        print(found.label, found.score)
    ```
    """
    model, tokenizer = asked_model(model, SequenceClassifier, tokenizer=tokenizer)
    activate = sigmoid if model.multi_label else softmax
    found: list[Classification] = ResultList()
    for logits in text_outputs(model, tokenizer, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, activate(logits).tolist(), strict=True))
        label = model.labels[int(np.argmax(logits))]
        labels: tuple[str, ...] = (label,)
        if model.multi_label:
            labels = tuple(name for name, score in scores.items() if score >= 0.5)
        found.append(Classification(label, scores[label], scores, labels))
    return found[0] if isinstance(texts, str) else found
