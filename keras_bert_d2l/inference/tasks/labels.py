"""Texts in, labels, scores or tagged words out.

B texts, T tokens of a row, C labels.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from keras_bert_d2l.checkpoints.checks import check_vocabulary
from keras_bert_d2l.inference.batching import check_batch_size, predict_texts
from keras_bert_d2l.inference.tasks.tagging_rows import (
    SplitWords,
    TaggingRows,
    split_texts,
    split_words,
)
from keras_bert_d2l.models.tasks import (
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel

# The function that asks each model.
_ASKED_BY: dict[type[TaskModel], str] = {
    SequenceClassifier: "classify",
    SequenceRegressor: "regress",
    TokenClassifier: "tag",
    QuestionAnswerer: "answer",
    TextEmbedder: "embed",
}
# A string is a sequence of strings, too, and no list of texts.
Texts = list[str] | tuple[str, ...]
ListsOfWords = Sequence[list[str] | tuple[str, ...]]

_TEXTS_AT_ONCE = 2048  # of which the words are held in memory


@dataclasses.dataclass(frozen=True)
class Classification:
    """What a text is.

    Attributes:
        label: The likeliest label.
        score: Its probability.
        scores: The probability of every label. Those of a model with several labels for a text
            need not add up to 1.
        labels: The labels that the text has: the likeliest one, or, where a text can have any
            number of labels, those with a probability of at least a half.
    """

    label: str
    score: float
    scores: dict[str, float]
    labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Regression:
    """What a text scores.

    Attributes:
        score: The score; the first of several.
        scores: Every score by its name.
    """

    score: float
    scores: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Tag:
    """A word and its label.

    Attributes:
        word: The word.
        label: Its likeliest label.
        score: The probability of that label.
        start: The word's first character in its text; `None` for words that were given as such.
        end: Its last character plus one; or `None`.
    """

    word: str
    label: str
    score: float
    start: int | None
    end: int | None


@overload
def classify(
    model: SequenceClassifier,
    texts: str,
    texts_b: str | None = None,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Classification: ...
@overload
def classify(
    model: SequenceClassifier,
    texts: Texts,
    texts_b: Texts | None = None,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> list[Classification]: ...
def classify(
    model: SequenceClassifier,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Any:
    """Tells which label texts or pairs of texts have, or which labels.

    As in training, a text that is too long loses its end, of a pair the longer text.

    Args:
        model: The classifier, with its tokenizer.
        texts: A text, or a list of texts.
        texts_b: The second text of each pair; `None` for single texts.
        batch_size: Number of texts that pass through the model at once.
        max_len: Most tokens of a row, T; `None`: what the model can read.

    Returns: a `Classification` for each text, in their order; for one text its own.

    Raises:
        ValueError: The model is that of another task or has no tokenizer, the texts are not
            equally many, or a number is out of range.

    Example:

    ```python
    classifier = load_pretrained("runs/sst2/best").model
    for found in classify(classifier, ["what a film", "a bore"]):
        print(found.label, found.score)
    ```
    """
    check_task(model, SequenceClassifier)
    if isinstance(texts, str):
        return classify(model, [texts], _one(texts_b), max_len=max_len)[0]
    activate = sigmoid if model.multi_label else softmax
    found = []
    for logits in _text_outputs(model, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, activate(logits).tolist(), strict=True))
        label = model.labels[int(np.argmax(logits))]
        labels: tuple[str, ...] = (label,)
        if model.multi_label:
            labels = tuple(name for name, score in scores.items() if score >= 0.5)
        found.append(Classification(label, scores[label], scores, labels))
    return found


@overload
def regress(
    model: SequenceRegressor,
    texts: str,
    texts_b: str | None = None,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Regression: ...
@overload
def regress(
    model: SequenceRegressor,
    texts: Texts,
    texts_b: Texts | None = None,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> list[Regression]: ...
def regress(
    model: SequenceRegressor,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Any:
    """Gives texts or pairs of texts their scores.

    Args:
        model: The regressor, with its tokenizer.
        texts: As for `classify`.
        texts_b: As for `classify`.
        batch_size: As for `classify`.
        max_len: As for `classify`.

    Returns: a `Regression` for each text, in their order; for one text its own.

    Raises:
        ValueError: As of `classify`.
    """
    check_task(model, SequenceRegressor)
    if isinstance(texts, str):
        return regress(model, [texts], _one(texts_b), max_len=max_len)[0]
    found = []
    for outputs in _text_outputs(model, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, outputs.astype("float64").tolist(), strict=True))
        found.append(Regression(scores[model.labels[0]], scores))
    return found


@overload
def tag(
    model: TokenClassifier, texts: str, *, batch_size: int = 32, max_len: int | None = None
) -> list[Tag]: ...
@overload
def tag(
    model: TokenClassifier,
    texts: Texts | ListsOfWords,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> list[list[Tag]]: ...
def tag(
    model: TokenClassifier,
    texts: str | Texts | ListsOfWords,
    *,
    batch_size: int = 32,
    max_len: int | None = None,
) -> list[Any]:
    """Gives every word of texts its label.

    A text is split into words as the tokenizer does it: at white space and around punctuation. Of
    data whose words are split otherwise ("do n't"), pass the words. The label of a word is that
    of its first token, as in training.

    No word is without a label: a text of more than T tokens passes through the model in parts
    that overlap by a half, and a word is read in the part that shows more of what is around it;
    a word of which the tokenizer leaves nothing (a lone control character) is read as unknown.

    Args:
        model: The tagger, with its tokenizer.
        texts: A text; a list of texts; or a list with the words of each text.
        batch_size: Number of rows that pass through the model at once.
        max_len: Most tokens of a row, T; `None`: what the model can read.

    Returns: for each text the list of its `Tag`s, one for each word; for one text its own.

    Raises:
        ValueError: The model is that of another task or has no tokenizer, or a number is out of
            range.

    Example:

    ```python
    for found in tag(tagger, "Ada Lovelace lived in London."):
        print(found.word, found.label)
    ```
    """
    check_task(model, TokenClassifier)
    check_batch_size(batch_size)
    max_len = checked_max_len(model, max_len, at_least=3)
    if isinstance(texts, str):
        return _tag_some(model, split_texts([texts], model.tokenizer), batch_size, max_len)[0]
    found: list[list[Tag]] = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        some: Any = list(texts[start : start + _TEXTS_AT_ONCE])
        split = split_texts if all(isinstance(text, str) for text in some) else split_words
        found += _tag_some(model, split(some, model.tokenizer), batch_size, max_len)
    return found


def check_task(model: Any, kind: type[TaskModel]) -> None:
    """Refuses the model of another task, and one without its tokenizer."""
    if not isinstance(model, kind):
        other = _ASKED_BY.get(type(model))
        hint = f"`{other}` asks that one" if other else f"train one: {kind.__name__}(bert, ...)"
        raise ValueError(
            f"`{_ASKED_BY[kind]}` needs a {kind.__name__}. Received: a {type(model).__name__}; "
            f"{hint}."
        )
    check_vocabulary(model, model.tokenizer)


def checked_max_len(model: TaskModel, max_len: int | None, at_least: int) -> int:
    """Returns how many tokens a row may have; refuses more than the model can read."""
    most = model.bert_config.max_len
    if max_len is None:
        return most
    if not at_least <= max_len <= most:
        raise ValueError(
            f"`max_len` must be in {at_least}..{most}, which is what the model can read. Received: "
            f"max_len={max_len!r}."
        )
    return max_len


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities for logits `(..., C)`, float64."""
    logits = logits.astype("float64")
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probability of each yes-or-no decision, float64."""
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype("float64"))


def _one(text_b: Any) -> list[str] | None:
    return None if text_b is None else [text_b]


def _text_outputs(
    model: TaskModel,
    texts: Sequence[str],
    texts_b: Any,
    batch_size: int,
    max_len: int | None,
) -> Iterator[np.ndarray]:
    """Yields the outputs `(C,)` for each text."""
    num_texts = len(texts)
    if texts_b is not None and (isinstance(texts_b, str) or len(texts_b) != num_texts):
        received = 1 if isinstance(texts_b, str) else len(texts_b)
        raise ValueError(
            "`texts` and `texts_b` must be equally many, one pair a row. Received: "
            f"{num_texts} and {received}."
        )
    limit = checked_max_len(model, max_len, at_least=3 if texts_b is None else 5)

    def tokenize(start: int, stop: int) -> Mapping[str, Any]:
        second = None if texts_b is None else list(texts_b[start:stop])
        return model.tokenizer(list(texts[start:stop]), second, max_len=limit)

    return predict_texts(model, tokenize, num_texts, batch_size)


def _tag_some(
    model: TokenClassifier, split: SplitWords, batch_size: int, max_len: int
) -> list[list[Tag]]:
    rows = TaggingRows(split, model.tokenizer.vocab, max_len)
    outputs = predict_texts(model, rows.batch, len(rows), batch_size)
    found = []
    for words, logits in zip(split.words, rows.word_outputs(outputs), strict=True):
        probabilities = softmax(logits)  # (words, C)
        best = probabilities.argmax(axis=-1)
        scores = np.take_along_axis(probabilities, best[:, np.newaxis], axis=-1)[:, 0].tolist()
        found.append(
            [
                Tag(word.text, model.labels[label], score, word.start, word.end)
                for word, label, score in zip(words, best.tolist(), scores, strict=True)
            ]
        )
    return found
