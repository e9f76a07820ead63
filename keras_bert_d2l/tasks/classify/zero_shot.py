"""`zero_shot`: choose among labels that the model was not trained on.

B: number of texts, N: number of candidate labels, C: number of labels of the model.
"""

import numpy as np

from keras_bert_d2l.checks import check_bool, check_that, shown
from keras_bert_d2l.inference.batching import TextRows, predict_texts
from keras_bert_d2l.inference.prediction import (
    Texts,
    asked_model,
    checked_max_len,
    one_per_text,
    softmax,
)
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.classify.predictions import Classification
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import check_filled, text_list
from keras_bert_d2l.types import PathLike

TEMPLATE = "This example is {}."


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
    rows = TextRows(model.preprocessing(model, tokenizer, max_len), sides, truncate, "only_first")
    outputs = list(predict_texts(model, rows, len(sides[0]), batch_size))
    logits = np.reshape(outputs, (len(found), len(labels), len(model.labels)))  # (B, N, C)
    if is_alone:
        scores = softmax(logits[..., [contradicts, entails]])[..., 1]  # (B, N)
    else:
        scores = softmax(logits[..., entails])
    results = [
        Classification.of(labels, row.tolist(), row >= 0.5 if multi_label else labels[row.argmax()])
        for row in scores
    ]
    return results[0] if isinstance(texts, str) else results


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
    if not isinstance(template, str) or "{}" not in template:
        raise ValueError(
            "`template` must contain {} in place of the label, as in 'This example is {}.'. "
            f"Received: {shown(template)}."
        )
    return [template.replace("{}", label) for label in labels]
