"""`tag`: predict the labels of words, or the entities that these labels mark; their evaluation.

T: tokens per row, C: number of labels.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, cast, get_args, overload

import numpy as np

from keras_bert_d2l.checks import check_choice, check_integer
from keras_bert_d2l.inference.asking import (
    Result,
    Texts,
    asked_model,
    checked_max_len,
    softmax,
)
from keras_bert_d2l.inference.batching import predict_texts
from keras_bert_d2l.inference.evaluation import (
    Confusion,
    Evaluation,
    Mistake,
    evaluation_of,
    row_options,
)
from keras_bert_d2l.progress import parts
from keras_bert_d2l.tasks.tag.entities import spans, tagging_scores
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.rows import SplitWords, split_texts, split_words, windows_of
from keras_bert_d2l.tasks.tag.schemes import scheme_of
from keras_bert_d2l.tasks.task import EvaluationOptions
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, frame_tokens
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike, Tensor

ListsOfWords: TypeAlias = Sequence[list[str] | tuple[str, ...]]
Joining: TypeAlias = Literal["simple", "first", "average", "max"]
"""How the labels of tokens are joined to entities."""

_PREFIXES = tuple(f"{letter}-" for letter in "BIESLU")
_WORDS_AROUND = 8  # words of context on each side of an incorrectly tagged word
_TEXTS_AT_ONCE = 2048  # texts whose words are in memory at the same time


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


@dataclasses.dataclass(frozen=True, repr=False)
class Entity(Result):
    """Successive words, or tokens, whose labels mark one entity.

    Attributes:
        text: The characters from `start` to `end`.
        label: The type of the entity: the label without a prefix such as `B-`.
        score: The mean of the probabilities of the labels.
        start: Index of the first character in the text. If words were passed, the text is the words
            joined by spaces.
        end: Index after the last character.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Entity(text="New York", label="LOC", score=0.98, start=13, end=21)
    ```
    """

    text: str
    label: str
    score: float
    start: int
    end: int


class RowOptions(TypedDict, total=False):
    """Keyword arguments of `tag`."""

    tokenizer: Tokenizer | None
    batch_size: int
    max_len: int | None


@overload
def tag(
    model: TokenClassifier | PathLike,
    texts: str,
    *,
    aggregate: Literal["none"] = "none",
    **options: Unpack[RowOptions],
) -> list[Tag]: ...
@overload
def tag(
    model: TokenClassifier | PathLike,
    texts: Texts | ListsOfWords,
    *,
    aggregate: Literal["none"] = "none",
    **options: Unpack[RowOptions],
) -> list[list[Tag]]: ...
@overload
def tag(
    model: TokenClassifier | PathLike,
    texts: str,
    *,
    aggregate: Joining,
    **options: Unpack[RowOptions],
) -> list[Entity]: ...
@overload
def tag(
    model: TokenClassifier | PathLike,
    texts: Texts | ListsOfWords,
    *,
    aggregate: Joining,
    **options: Unpack[RowOptions],
) -> list[list[Entity]]: ...
def tag(
    model: TokenClassifier | PathLike,
    texts: str | Texts | ListsOfWords,
    *,
    aggregate: Literal["none"] | Joining = "none",
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
) -> list[Tag] | list[Entity] | list[list[Tag]] | list[list[Entity]]:
    """Predict the label of every word in texts, or the entities that the labels mark.

    The tokenizer splits a text into words at white space and around punctuation; BPE and Unigram
    split it only at white space. If your data is split differently ("do n't"), pass lists of words.
    As in training, the label of a word is predicted at its first token.

    Every word gets a label. A text of more than T tokens is split into parts that overlap by half,
    and each word gets its label from the part with more of its context. A word without tokens, such
    as an isolated control character, is replaced by the unknown token.

    With `aggregate`, labels such as `B-PER` and `I-PER` are joined to one `Entity`, in the schemes
    IOB, IOBES, BILOU and BMES, also written as `PER-B`, `B_PER` or `b-per`. Other labels form an
    entity if they are equal and adjacent. `O` is no entity. The entities equal those of the
    strategies of transformers' token-classification pipeline, except that it only knows IOB.

    Args:
        model: The tagger, or the path or the name of its checkpoint, which is loaded at each
            call.
        texts: A text, a list of texts, or a list with the words of each text.
        aggregate: `"none"` returns the label of every word. The others return entities, from the
            label of each word: that of its `"first"` token, that of the token with the highest
            probability (`"max"`), or that with the highest mean probability over its tokens
            (`"average"`). `"simple"` joins the labels of tokens instead of words, so an entity may
            be a part of a word; it requires texts.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        batch_size: Rows per batch.
        max_len: Maximum number of tokens in a row, T. `None` means the model's maximum.

    Returns: for each text, a list with one `Tag` per word, or a list of `Entity` objects; for a
        single text, only its list.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task or has no tokenizer, a number is out of
            range, or `aggregate` is unknown or does not support words.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] ada lived in london .".split())
    tokenizer = kb.Tokenizer(vocab)
    bert = kb.BERTModel(10, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    tagger = kb.TokenClassifier(bert, ["O", "B-PER", "B-LOC"], tokenizer=tokenizer)
    for found in kb.tag(tagger, "Ada lived in London."):
        print(found.word, found.label)
    for entity in kb.tag(tagger, "Ada lived in London.", aggregate="first"):
        print(entity.text, entity.label, entity.start, entity.end)
    ```
    """
    model, tokenizer = asked_model(model, TokenClassifier, tokenizer=tokenizer, texts=(texts,))
    check_choice("aggregate", aggregate, ("none", *get_args(Joining)))
    check_integer("batch_size", batch_size, 1)
    max_len = checked_max_len(max_len, 3, model.max_row_len)
    rows = text_list("texts", texts, words=True)
    split = _splitter(rows, aggregate)
    found: list[Any] = []
    for part in parts("Tagging", len(rows), _TEXTS_AT_ONCE):
        some = rows[part]
        tags = _tags(model, tokenizer, split(some, tokenizer), aggregate, batch_size, max_len)
        if aggregate == "none":
            found += tags
        else:
            found += [
                entities(*_in_text(row, one), model.labels)
                for row, one in zip(some, tags, strict=True)
            ]
    return found[0] if isinstance(texts, str) else found


def entities(tags: Sequence[Tag], text: str, labels: Iterable[str]) -> list[Entity]:
    """Join the tags of a text to entities.

    Args:
        tags: The tags of all words, or of all tokens, with their positions.
        text: The text.
        labels: All labels, which determine the scheme.
    """
    found: list[Entity] = []
    scheme = scheme_of(labels) or {}
    for label, first, stop in spans([scheme.get(x.label, _own_tag(x.label)) for x in tags]):
        start, end = cast(int, tags[first].start), cast(int, tags[stop - 1].end)
        score = float(np.mean([one.score for one in tags[first:stop]]))
        found.append(Entity(text[start:end], label, score, start, end))
    return found


def _own_tag(label: str) -> str:
    """Return a label as `O`, or with a prefix: equal labels without one form one entity."""
    return label if label == "O" or label[:2] in _PREFIXES else f"I-{label}"


def _in_text(row: str | Sequence[str], tags: Sequence[Tag]) -> tuple[Sequence[Tag], str]:
    """Return the tags with their positions in the text, which words form with spaces, and it."""
    if isinstance(row, str):
        return tags, row
    starts = itertools.accumulate((len(word) + 1 for word in row), initial=0)
    placed = [
        dataclasses.replace(one, start=start, end=start + len(one.word))
        for one, start in zip(tags, starts, strict=False)
    ]
    return placed, " ".join(row)


def _splitter(rows: Sequence[str] | ListsOfWords, aggregate: str) -> Callable[..., SplitWords]:
    """Return the function that splits texts, or lists of words, into what gets a label."""
    if all(isinstance(row, str) for row in rows):
        return functools.partial(split_texts, into_tokens=aggregate == "simple")
    if aggregate == "simple":
        raise ValueError(
            "`aggregate='simple'` requires texts, because it may divide words. Received: lists of "
            "words; pass texts, or use aggregate='first'."
        )
    return split_words


def _tags(
    model: TokenClassifier,
    tokenizer: Tokenizer,
    split: SplitWords,
    aggregate: str,
    batch_size: int,
    max_len: int,
) -> list[list[Tag]]:
    windows = windows_of(split.ragged(), max_len - ADDED_TO_ONE)

    def batch(start: int, stop: int) -> dict[str, Tensor]:
        return frame_tokens(windows.tokens[start:stop], vocab=tokenizer.vocab)

    outputs = predict_texts(model, batch, len(windows.texts), batch_size)
    texts, starts, begins = (x.numpy() for x in (windows.texts, windows.starts, windows.begins))
    sizes = np.array([*map(len, split.tokens)])
    is_last = np.diff(texts, append=-1) != 0
    stops = np.where(is_last, sizes[texts], np.roll(begins, -1))  # of the tokens that count
    rows = zip(texts, begins - starts + 1, stops - starts + 1, outputs, strict=True)
    of_texts = itertools.groupby(rows, key=lambda row: row[0])
    found: list[list[Tag]] = []
    for words, firsts, (_, of_text) in zip(split.words, split.firsts, of_texts, strict=True):
        logits = np.concatenate([output[begin:stop] for _, begin, stop, output in of_text])
        probabilities = _of_words(softmax(logits), firsts, aggregate)  # (words, C)
        labels, scores = probabilities.argmax(axis=-1), probabilities.max(axis=-1)
        found.append(
            [
                Tag(word.text, model.labels[label], score, word.start, word.end)
                for word, label, score in zip(words, labels.tolist(), scores.tolist(), strict=True)
            ]
        )
    return found


def _of_words(probabilities: np.ndarray, firsts: np.ndarray, aggregate: str) -> np.ndarray:
    """Return the probabilities of words, `(words, C)`, from those of their tokens `(tokens, C)`.

    Args:
        probabilities: Those of all tokens of a text.
        firsts: The first token of each word.
        aggregate: As for `tag`.
    """
    if aggregate not in ("average", "max") or not len(firsts):
        return probabilities[firsts]
    words = np.split(probabilities, firsts[1:])
    if aggregate == "average":
        return np.array([word.mean(axis=0) for word in words])
    return np.array([word[word.max(axis=1).argmax()] for word in words])


def evaluate_tags(
    model: TokenClassifier, examples: WordExamples, options: EvaluationOptions
) -> Evaluation:
    """Evaluate the labels of words."""
    found = tag(model, examples.words, **row_options(options))
    gold, predicted = examples.labels or (), [[one.label for one in tags] for tags in found]
    mistakes = [
        Mistake(name, _in_context(words, place), label, one.label, one.score)
        for name, words, labels, tags in zip(examples.ids, examples.words, gold, found, strict=True)
        for place, (label, one) in enumerate(zip(labels, tags, strict=True))
        if one.label != label
    ]
    metrics = tagging_scores(gold, predicted, model.labels)
    of_words = itertools.chain.from_iterable
    confusion = Confusion.of(of_words(gold), of_words(predicted), model.labels)
    return evaluation_of(examples, metrics, found, mistakes, confusion)


def _in_context(words: Sequence[str], place: int) -> str:
    before, after = words[max(0, place - _WORDS_AROUND) : place], words[place + 1 :]
    return " ".join([*before, f"[{words[place]}]", *after[:_WORDS_AROUND]])
