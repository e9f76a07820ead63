"""`classify`, `regress` and `tag`: predict labels of texts, scores of texts, and labels of words.

B: number of texts, T: tokens per row, C: number of labels.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Unpack, overload

import numpy as np

from keras_bert_d2l.checks import check_integer
from keras_bert_d2l.inference.asked_model import AskOptions, asked_model
from keras_bert_d2l.inference.batching import predict_texts, text_list, text_pairs
from keras_bert_d2l.inference.results import Result, ResultList
from keras_bert_d2l.inference.tasks.tagging_rows import (
    SplitWords,
    TaggingRows,
    split_texts,
    split_words,
)
from keras_bert_d2l.models.tasks import (
    SequenceClassifier,
    SequenceRegressor,
    TokenClassifier,
)
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.types import PathLike, Tensor

# Not `Sequence[str]`, because a single string would also match.
Texts = list[str] | tuple[str, ...]
ListsOfWords = Sequence[list[str] | tuple[str, ...]]

_TEXTS_AT_ONCE = 2048  # texts whose words are in memory at the same time


class RowOptions(AskOptions, total=False):
    """Keyword arguments of `classify`, `regress` and `tag`."""

    max_len: int | None


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


@dataclasses.dataclass(frozen=True, repr=False)
class Regression(Result):
    """The predicted score, or scores, of a text.

    Attributes:
        score: The score, or the first one if there are several.
        scores: All scores by name.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Regression(score=3.8, scores={"similarity": 3.8})
    ```
    """

    score: float
    scores: dict[str, float]


@dataclasses.dataclass(frozen=True, repr=False)
class Tag(Result):
    """A word and its predicted label.

    Attributes:
        word: The word.
        label: The most likely label.
        score: The probability of this label.
        start: Index of the word's first character in the text. `None` if words were passed.
        end: Index after the word's last character. `None` if words were passed.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Tag(word="London", label="B-LOC", score=0.98, start=13, end=19)
    ```
    """

    word: str
    label: str
    score: float
    start: int | None
    end: int | None


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
    for logits in _text_outputs(model, tokenizer, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, activate(logits).tolist(), strict=True))
        label = model.labels[int(np.argmax(logits))]
        labels: tuple[str, ...] = (label,)
        if model.multi_label:
            labels = tuple(name for name, score in scores.items() if score >= 0.5)
        found.append(Classification(label, scores[label], scores, labels))
    return found[0] if isinstance(texts, str) else found


@overload
def regress(
    model: SequenceRegressor | PathLike,
    texts: str,
    texts_b: str | None = None,
    **options: Unpack[RowOptions],
) -> Regression: ...
@overload
def regress(
    model: SequenceRegressor | PathLike,
    texts: Texts,
    texts_b: Texts | None = None,
    **options: Unpack[RowOptions],
) -> list[Regression]: ...
def regress(
    model: SequenceRegressor | PathLike,
    texts: str | Texts,
    texts_b: str | Texts | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
) -> Regression | list[Regression]:
    """Predict the scores of texts or pairs of texts.

    Args:
        model: The regressor, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: As for `classify`.
        texts_b: As for `classify`.
        tokenizer: As for `classify`.
        batch_size: As for `classify`.
        max_len: As for `classify`.

    Returns: one `Regression` per text, in the order of the texts; for a single text, only its
        `Regression`.

    Raises:
        FileNotFoundError, ValueError: As for `classify`.

    Example:

    ```python
    import keras_bert_d2l as kb

    tokenizer = kb.Tokenizer(kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a cat sat".split()))
    bert = kb.BERTModel(8, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    regressor = kb.SequenceRegressor(bert, tokenizer=tokenizer)
    kb.regress(regressor, "a cat", "a cat sat").score
    ```
    """
    model, tokenizer = asked_model(model, SequenceRegressor, tokenizer=tokenizer)
    found: list[Regression] = ResultList()
    for outputs in _text_outputs(model, tokenizer, texts, texts_b, batch_size, max_len):
        scores = dict(zip(model.labels, outputs.astype("float64").tolist(), strict=True))
        found.append(Regression(scores[model.labels[0]], scores))
    return found[0] if isinstance(texts, str) else found


@overload
def tag(
    model: TokenClassifier | PathLike, texts: str, **options: Unpack[RowOptions]
) -> list[Tag]: ...
@overload
def tag(
    model: TokenClassifier | PathLike, texts: Texts | ListsOfWords, **options: Unpack[RowOptions]
) -> list[list[Tag]]: ...
def tag(
    model: TokenClassifier | PathLike,
    texts: str | Texts | ListsOfWords,
    *,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
) -> list[Tag] | list[list[Tag]]:
    """Predict the label of every word in texts.

    The tokenizer splits a text into words at white space and around punctuation. If your data is
    split differently ("do n't"), pass lists of words. As in training, the label of a word is
    predicted at its first token.

    Every word gets a label. A text of more than T tokens is split into parts that overlap by half,
    and each word gets its label from the part with more of its context. A word without tokens, such
    as an isolated control character, is replaced by the unknown token.

    Args:
        model: The tagger, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: A text, a list of texts, or a list with the words of each text.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Rows per batch.
        max_len: Maximum number of tokens in a row, T. `None` means the model's maximum.

    Returns: for each text, a list with one `Tag` per word; for a single text, only its list.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, or a number is out
            of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] ada lived in london .".split())
    tokenizer = kb.Tokenizer(vocab)
    bert = kb.BERTModel(10, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    tagger = kb.TokenClassifier(bert, ["O", "B-PER", "B-LOC"], tokenizer=tokenizer)
    for found in kb.tag(tagger, "Ada lived in London."):
        print(found.word, found.label)
    ```
    """
    model, tokenizer = asked_model(model, TokenClassifier, tokenizer=tokenizer)
    check_integer("batch_size", batch_size, 1)
    max_len = checked_max_len(model, max_len, at_least=3)
    rows = [texts] if isinstance(texts, str) else texts
    if not isinstance(rows, Sequence):
        raise ValueError(
            f"`texts` must be a text, or a list of texts or of lists of words. Received: {texts!r}."
        )
    are_texts = all(isinstance(row, str) for row in rows)
    split: Callable[..., SplitWords] = split_texts if are_texts else split_words
    found: list[list[Tag]] = ResultList()
    for start in range(0, len(rows), _TEXTS_AT_ONCE):
        some = split(rows[start : start + _TEXTS_AT_ONCE], tokenizer)
        found += _tag_some(model, tokenizer, some, batch_size, max_len)
    return found[0] if isinstance(texts, str) else found


def checked_max_len(model: TaskModel, max_len: int | None, at_least: int) -> int:
    """Return the maximum number of tokens in a row.

    Raises:
        ValueError: `max_len` is below `at_least` or exceeds the model's maximum.
    """
    most = model.bert_config.max_len
    if max_len is None:
        return most
    if not at_least <= max_len <= most:
        raise ValueError(
            f"`max_len` must be from {at_least} to {most}, the model's maximum. "
            f"Received: max_len={max_len!r}."
        )
    return max_len


def softmax(logits: np.ndarray) -> np.ndarray:
    """Convert logits `(..., C)` to probabilities in float64."""
    logits = logits.astype("float64")
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Convert logits of independent binary decisions to probabilities in float64."""
    return 0.5 + 0.5 * np.tanh(0.5 * logits.astype("float64"))


def _text_outputs(
    model: TaskModel,
    tokenizer: Tokenizer,
    texts: str | Texts,
    texts_b: str | Texts | None,
    batch_size: int,
    max_len: int | None,
) -> Iterator[np.ndarray]:
    """Yield the outputs `(C,)` of each text."""
    first = text_list("texts", texts)
    second = None if texts_b is None else text_pairs(("texts", "texts_b"), texts, texts_b)[1]
    limit = checked_max_len(model, max_len, at_least=3 if second is None else 5)

    def tokenize(start: int, stop: int) -> Mapping[str, Tensor]:
        some_b = None if second is None else second[start:stop]
        return tokenizer(first[start:stop], some_b, max_len=limit)

    return predict_texts(model, tokenize, len(first), batch_size)


def _tag_some(
    model: TokenClassifier, tokenizer: Tokenizer, split: SplitWords, batch_size: int, max_len: int
) -> list[list[Tag]]:
    rows = TaggingRows(split, tokenizer.vocab, max_len)
    outputs = predict_texts(model, rows.batch, len(rows), batch_size)
    found: list[list[Tag]] = []
    for words, logits in zip(split.words, rows.word_outputs(outputs), strict=True):
        probabilities = softmax(logits)  # (words, C)
        labels, scores = probabilities.argmax(axis=-1), probabilities.max(axis=-1)
        found.append(
            ResultList(
                Tag(word.text, model.labels[label], score, word.start, word.end)
                for word, label, score in zip(words, labels.tolist(), scores.tolist(), strict=True)
            )
        )
    return found
