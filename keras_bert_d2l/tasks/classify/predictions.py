"""`classify` and `zero_shot`: predict the labels of texts; their evaluation.

B: number of texts, T: tokens per row, C: number of labels of the model, N: of candidate labels.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Sequence
from typing import Self, cast

import numpy as np

from keras_bert_d2l.checks import check_bool, check_that, checked_max_len, shown
from keras_bert_d2l.contract.task import Options
from keras_bert_d2l.data.tasks.texts import TextExamples
from keras_bert_d2l.inference.evaluation import (
    Confusion,
    Evaluation,
    evaluation_of,
    library,
    row_options,
)
from keras_bert_d2l.inference.prediction import (
    Result,
    TextRows,
    Texts,
    asked_model,
    one_per_text,
    predict_texts,
    text_answers,
)
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import check_filled, text_list
from keras_bert_d2l.types import PathLike

TEMPLATE = "This example is {}."


@dataclasses.dataclass(frozen=True, repr=False)
class Classification(Result):
    """The predicted label, or labels, of a text.

    Attributes:
        label: The most likely label.
        score: The probability of this label.
        scores: The probability of every label. They need not add up to 1 if a text can have any
            number of labels.
        labels: The labels of the text: the most likely one or, if a text can have any number of
            labels, all labels with a probability of at least their threshold, usually 0.5.

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

    @classmethod
    def of(
        cls, labels: Sequence[str], scores: Sequence[float], chosen: str | Sequence[bool]
    ) -> Self:
        """Return the result for probabilities in the order of the labels.

        Args:
            labels: The label names.
            scores: Their probabilities.
            chosen: The label of the text, or for each label whether the text has it.
        """
        best = int(np.argmax(scores))
        names = [chosen] if isinstance(chosen, str) else itertools.compress(labels, chosen)
        by_label = dict(zip(labels, scores, strict=True))
        return cls(labels[best], scores[best], by_label, tuple(names))


@one_per_text(Classification)
def classify(
    model: SequenceClassifier | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
    truncate: bool = True,
) -> Classification | list[Classification]:
    """Predict the label, or labels, of texts or pairs of texts.

    As in training, texts that are too long are truncated, at the end unless the tokenizer has
    `truncation_side="left"`. In a pair, the longer text is truncated first.

    Args:
        model: The classifier, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: A text, or several: a list, a tuple, a column of pandas, an array or a tensor of
            strings.
        texts_b: The second text of each pair. `None` means single texts. One text beside a list
            is repeated for each text of the list.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Texts per batch.
        max_len: Maximum number of tokens in a row, T. `None` means the model's maximum.
        truncate: Whether to truncate texts that are too long; a warning reports how many. With
            `False`, they raise an error.

    Returns: one `Classification` per text, in the order of the texts; for a single text or
        pair, only its `Classification`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, `texts` and `texts_b`
            differ in length, one of them is not a text, a text is too long with `truncate=False`,
            or a number is out of range.

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
    answers = text_answers(model, tokenizer, texts, texts_b, batch_size, max_len, truncate)
    found = []
    for one in answers:
        chosen = one["is_label"] if model.multi_label else model.labels[one["id"]]
        found.append(Classification.of(model.labels, one["scores"], chosen))
    return found[0] if isinstance(texts, str) and isinstance(texts_b, str | None) else found


@one_per_text(Classification)
def zero_shot(
    model: SequenceClassifier | PathLike,
    texts: str | Texts,
    labels: Texts,
    *,
    template: str = TEMPLATE,
    multi_label: bool = False,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
    truncate: bool = True,
) -> Classification | list[Classification]:
    """Classify texts into any labels, with a model for natural language inference.

    The model is asked whether the text entails the hypothesis "This example is LABEL." for each
    label. N labels therefore cost as much as N texts. If a pair is too long, the text is truncated,
    never the hypothesis.

    Source: Yin et al. 2019 (Benchmarking Zero-shot Text Classification); transformers,
    `ZeroShotClassificationPipeline`, which gives the same scores.

    Args:
        model: A classifier of pairs with a label that begins with "entail", for example one that
            was fine-tuned on MNLI; or the path or the name of its checkpoint, which is loaded at
            each call.
        texts: A text, or several, as for `classify`. None may be empty.
        labels: The candidate labels, N.
        template: The hypothesis, with `{}` in place of the label.
        multi_label: Whether a text can have any number of the labels. The probability of a label is
            then that of entailment against contradiction; otherwise, the labels compete by their
            logits of entailment. A single label is always judged alone.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Pairs of a text and a label per batch.
        max_len: Maximum number of tokens in a pair. `None` means the model's maximum.
        truncate: As for `classify`; the warning counts pairs of a text and a label.

    Returns: one `Classification` per text, in the order of the texts; for a single text, only its
        `Classification`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model is not for natural language inference or has no tokenizer, a text or a
            label is empty, the labels are not different texts, a pair is too long with
            `truncate=False`, `template` has no `{}`, or a number is out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    words = "[PAD] [UNK] [CLS] [SEP] [MASK] this example is about . sport film the match"
    tokenizer = kb.Tokenizer(kb.Vocab(words.split()))
    bert = kb.BERTModel(14, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    nli = ["entailment", "neutral", "contradiction"]
    model = kb.SequenceClassifier(bert, nli, tokenizer=tokenizer)
    kb.zero_shot(model, "the match", ["sport", "film"], template="This is about {}.").label
    ```
    """
    model, tokenizer = asked_model(model, SequenceClassifier, tokenizer=tokenizer)
    multi_label = check_bool("multi_label", multi_label)
    check_that(not isinstance(labels, str), "labels", "a list of texts", labels)
    labels = text_list("labels", labels)
    hypotheses = _hypotheses(labels, template)
    is_alone = multi_label or len(labels) == 1
    entails, contradicts = _columns(model.labels, is_alone)
    found = text_list("texts", texts)
    check_filled("text", found)
    sides = [text for text in found for _ in labels], hypotheses * len(found)
    max_len = checked_max_len(max_len, 5, model.bert_config.max_len)
    preprocess = model.preprocessing(model, tokenizer, max_len)
    rows = TextRows(preprocess, sides, truncate, {"truncation": "only_first"})
    outputs = list(predict_texts(model, rows, len(sides[0]), batch_size))
    logits = np.reshape(outputs, (len(found), len(labels), len(model.labels)))  # (B, N, C)
    if is_alone:
        scores = _softmax(logits[..., [contradicts, entails]])[..., 1]  # (B, N)
    else:
        scores = _softmax(logits[..., entails])
    results = [
        Classification.of(labels, row.tolist(), row >= 0.5 if multi_label else labels[row.argmax()])
        for row in scores
    ]
    return results[0] if isinstance(texts, str) else results


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Convert logits `(..., C)` to probabilities in float64."""
    logits = logits.astype("float64")
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def _columns(labels: tuple[str, ...], is_alone: bool) -> tuple[int, int]:
    """Return the columns of entailment and, if `is_alone`, of contradiction."""
    columns = [
        next((n for n, name in enumerate(labels) if name.lower().startswith(start)), None)
        for start in ("entail", "contradict")
    ]
    if columns[1] is None and columns[0] is not None and len(labels) == 2:
        columns[1] = 1 - columns[0]  # such as "not_entailment"
    entails, contradicts = columns
    if entails is None or (is_alone and contradicts is None):
        raise ValueError(
            "`model` must be for natural language inference, with labels that begin with "
            f"'entail' and 'contradict'. Received: a model with the labels {shown(labels)}."
        )
    return entails, contradicts or 0


def _hypotheses(labels: list[str], template: str) -> list[str]:
    check_filled("label", labels)
    if not labels or len(set(labels)) < len(labels):
        raise ValueError(f"`labels` must be different texts. Received: {shown(labels)}.")
    expected = "a text with {} in place of the label, as in 'This example is {}.'"
    check_that(isinstance(template, str) and "{}" in template, "template", expected, template)
    return [template.replace("{}", label) for label in labels]


def classification_scores(
    gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> dict[str, float]:
    """Return the metrics for texts with one label each.

    Args:
        gold: The correct label of each text.
        predicted: The predicted label of each text.
        labels: The labels of the model, in the order of their ids.

    Returns: `accuracy`; `macro_f1`, the mean F1 of the labels that occur in either sequence;
        `matthews`, the correlation coefficient; and, if there are two labels, `f1` of the second.

    Raises:
        ImportError: scikit-learn is not installed.
    """
    metrics = library("sklearn.metrics")
    gold, predicted = list(gold), list(predicted)
    with warnings.catch_warnings():  # about a single label, whose Matthews coefficient is 0
        warnings.simplefilter("ignore")
        scores = {
            "accuracy": metrics.accuracy_score(gold, predicted),
            "macro_f1": metrics.f1_score(gold, predicted, average="macro", zero_division=0.0),
            "matthews": metrics.matthews_corrcoef(gold, predicted),
        }
        if len(labels) == 2:
            scores["f1"] = metrics.f1_score(
                gold, predicted, labels=labels[1:], average="macro", zero_division=0.0
            )
    return {name: float(score) for name, score in scores.items()}


def multi_label_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], labels: Sequence[str]
) -> dict[str, float]:
    """Return the metrics for texts with any number of labels.

    Args:
        gold: The correct labels of each text.
        predicted: The predicted labels of each text.
        labels: The labels of the model.

    Returns: `subset_accuracy`, the share of texts whose labels are all correct; `micro_f1`, F1
        over all decisions; `macro_f1`, the mean F1 of all labels (0 for unused ones).

    Raises:
        ImportError: scikit-learn is not installed.
    """
    metrics = library("sklearn.metrics")
    decisions = [
        np.array([[label in row for label in labels] for row in map(set, rows)], "int32")
        for rows in (gold, predicted)
    ]
    # With a single column, scikit-learn would treat the label and its absence as two classes.
    options = {"labels": [1] if len(labels) == 1 else None, "zero_division": 0.0}
    scores = {
        "subset_accuracy": (decisions[0] == decisions[1]).all(axis=1).mean(),
        "micro_f1": metrics.f1_score(*decisions, average="micro", **options),
        "macro_f1": metrics.f1_score(*decisions, average="macro", **options),
    }
    return {name: float(score) for name, score in scores.items()}


def evaluate_labels(
    model: SequenceClassifier, examples: TextExamples, options: Options
) -> Evaluation:
    """Evaluate the labels of texts."""
    found = classify(model, examples.texts, examples.texts_b, **row_options(options))
    if examples.multi_label:
        several = cast("tuple[tuple[str, ...], ...]", examples.labels)
        metrics = multi_label_scores(several, [one.labels for one in found], model.labels)
        pairs = zip(found, several, strict=True)
        scores = ((one.scores[x], x in gold) for one, gold in pairs for x in model.labels)
        return evaluation_of(examples, metrics, found, decisions=scores)
    gold, predicted = cast("tuple[str, ...]", examples.labels), [one.label for one in found]
    metrics = classification_scores(gold, predicted, model.labels)
    confusion = Confusion.of(gold, predicted, model.labels)
    decisions = ((one.score, one.label == label) for one, label in zip(found, gold, strict=True))
    return evaluation_of(examples, metrics, found, confusion=confusion, decisions=decisions)
