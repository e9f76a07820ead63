"""`tag`: predict the labels of words, or the entities that these mark; evaluation.

B: texts in a batch, T: tokens per row, C: number of labels.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import keras
import numpy as np
import tensorflow as tf

from keras_bert_d2l.checks import check_choice, check_integer, checked_max_len, wrong
from keras_bert_d2l.contract.task import Options
from keras_bert_d2l.inference.evaluation import (
    Confusion,
    Evaluation,
    Mistake,
    evaluation_of,
    row_options,
)
from keras_bert_d2l.inference.prediction import Result, Texts, asked_model, predict_rows
from keras_bert_d2l.models.text_inputs import FEATURES, as_tensors
from keras_bert_d2l.progress import parts
from keras_bert_d2l.tasks.tag.entities import spans, tagging_scores, tags_of
from keras_bert_d2l.tasks.tag.examples import WordExamples
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.rows import WordPreprocessor
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike

ListsOfWords: TypeAlias = Sequence[list[str] | tuple[str, ...]]
Aggregation: TypeAlias = Literal["none", "simple", "first", "average", "max"]
"""How the labels of tokens are joined to entities."""

_BY_FIRST = ("none", "first")  # a word has the label of its first token
_WORDS_AROUND = 8  # words of context on each side of an incorrectly tagged word
_TEXTS_AT_ONCE = 256  # texts whose windows are in memory at the same time


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


def tag(
    model: TokenClassifier | PathLike,
    texts: str | Texts | ListsOfWords,
    *,
    aggregate: Aggregation = "none",
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
    max_len: int | None = None,
) -> list[Any]:
    """Predict the label of every word in texts, or the entities that the labels mark.

    The tokenizer splits a text into words at white space and around punctuation; BPE and Unigram
    split it only at white space. With all of them, each character of a script without spaces, such
    as that of Chinese, Japanese or Thai, is a word. If your data is split differently ("do n't"),
    pass lists of words. As in training, the label of a word is predicted at its first token.

    Every word gets a label. A text of more than T tokens is split into parts that overlap by half,
    and each word gets its label from the part with more of its context. A word without tokens, such
    as an isolated control character, is replaced by the unknown token. A model with a CRF chooses
    the best tags of a whole text, and the score of a tag is its marginal probability; `aggregate`
    is then `"none"` or `"first"`.

    With `aggregate`, labels such as `B-PER` and `I-PER` are joined to one `Entity`, in the schemes
    IOB, IOBES, BILOU and BMES, also written as `PER-B`, `B_PER` or `b-per`. Other labels form an
    entity if they are equal and adjacent. `O` is no entity.

    The entities are those of the strategies of transformers' token-classification pipeline (5.24)
    wherever its words are the same, except that it only knows IOB. Its words differ as follows:

    - With BPE and Unigram, a token begins a word there if it starts at the first character of the
      text, if it or the character before it is the plain space, or if it is the unknown token.
      Tabs, line breaks and other spaces separate no words. A space that is a token of its own, and
      the mark "\u2581" before a word, are words of their own; they may be entities without text.
    - The pipeline keeps spaces at the ends of entities, if the tokenizer counts them as parts of
      tokens; here, they are removed. Also for `"simple"`, a token of spaces alone does not count.
    - A text in a script without spaces is a word there with BPE and Unigram; `"simple"` is the same
      in both.
    - The pipeline truncates a text that is too long, unless it has a `stride`.

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
            range, or `aggregate` is unknown or does not support words or a CRF.

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
    model, tokenizer = asked_model(model, TokenClassifier, tokenizer=tokenizer)
    check_choice("aggregate", aggregate, get_args(Aggregation))
    check_integer("batch_size", batch_size, 1)
    max_len = checked_max_len(max_len, 3, model.max_row_len)
    rows = text_list("texts", texts, words=True)
    are_texts = all(isinstance(row, str) for row in rows)
    if aggregate == "simple" and not are_texts:
        raise ValueError(
            "`aggregate='simple'` requires texts, because it may divide words. Received: lists of "
            "words; pass texts, or use aggregate='first'."
        )
    if model.crf is not None and aggregate not in _BY_FIRST:
        raise wrong("aggregate", f"one of {_BY_FIRST} with a CRF, which tags words", aggregate)
    preprocess = WordPreprocessor(model, tokenizer, max_len)
    found: list[Any] = []
    for part in parts("Tagging", len(rows), _TEXTS_AT_ONCE):
        found += _found(model, preprocess, rows[part], aggregate, batch_size)
    return found[0] if isinstance(texts, str) else found


def entities(tags: Sequence[Tag], text: str, labels: Iterable[str]) -> list[Entity]:
    """Join the tags of a text to entities.

    Args:
        tags: The tags of all words, or of all tokens, with their positions.
        text: The text.
        labels: All labels, which determine the scheme.
    """
    found: list[Entity] = []
    tag_of = tags_of(labels)
    for label, first, stop in spans([tag_of[one.label] for one in tags]):
        start, end = cast(int, tags[first].start), cast(int, tags[stop - 1].end)
        score = float(np.mean([one.score for one in tags[first:stop]]))
        found.append(Entity(text[start:end], label, score, start, end))
    return found


def _found(
    model: TokenClassifier,
    preprocess: WordPreprocessor,
    texts: Sequence[str] | ListsOfWords,
    aggregate: str,
    batch_size: int,
) -> Iterator[list[Tag] | list[Entity]]:
    """Yield the tags or the entities of texts, or of lists of words."""
    rows = preprocess.rows(as_tensors(texts), into_tokens=aggregate == "simple")
    split, windows = rows["split"], rows["windows"]
    tokens = split.tokens.with_values(tf.ragged.range(split.tokens.row_lengths()).values)
    window, place = (x.numpy() for x in windows.places(tokens.value_rowids(), tokens.values))
    bounds = np.searchsorted(window, np.arange(len(windows.texts) + 1))  # of their tokens
    logits = np.zeros((len(window), len(model.labels)), "float32")
    features = {name: rows[name] for name in FEATURES}
    for numbers, outputs in predict_rows(model, features, batch_size):
        for number, output in zip(numbers, outputs, strict=True):
            of_window = slice(*bounds[number : number + 2])
            logits[of_window] = output[place[of_window]]
    if aggregate in _BY_FIRST:
        starts = tf.gather(split.tokens.row_starts(), split.firsts.value_rowids())
        of_firsts = tf.gather(logits, starts + split.firsts.values)
        answers = answer_of_words(model, of_firsts, split.firsts)
        columns = [_by_text(split.firsts.with_values(answers[name])) for name in ("id", "score")]
    else:
        scores = keras.ops.convert_to_numpy(model.answer(logits)["scores"])
        of_tokens = np.split(scores, split.tokens.row_splits.numpy()[1:-1])
        pairs = zip(of_tokens, _by_text(split.firsts), strict=True)
        joined = [_of_words(one, firsts, aggregate) for one, firsts in pairs]  # each (words, C)
        columns = [[x.argmax(axis=-1) for x in joined], [x.max(axis=-1) for x in joined]]
    columns += map(_by_text, (split.starts, split.ends))
    for row, *values in zip(texts, *columns, strict=True):
        text = row if isinstance(row, str) else " ".join(row)
        is_placed = text is row or aggregate != "none"
        tags = [
            Tag(text[a:b], model.labels[n], score, *((a, b) if is_placed else (None, None)))
            for n, score, a, b in zip(*(x.tolist() for x in values), strict=True)
        ]
        yield tags if aggregate == "none" else entities(tags, text, model.labels)


def answer_of_words(
    model: TokenClassifier, logits: tf.Tensor, words: tf.RaggedTensor
) -> dict[str, tf.Tensor]:
    """Return what the logits of words `(N, C)` say: `id` and `score`, each `(N,)`.

    Args:
        model: The model.
        logits: The logits of the first tokens of all words.
        words: Values for the words of each text, ragged `(B, None)`.
    """
    if model.crf is None:
        return {name: tf.convert_to_tensor(x) for name, x in model.answer(logits).items()}
    rows, num_words = words.with_values(logits).to_tensor(), words.row_lengths()
    rows = tf.pad(rows, [[0, 0], [0, 1], [0, 0]])  # a loop needs a step, even without words
    found = model.answer(rows, num_words)
    is_word = tf.sequence_mask(num_words, tf.shape(rows)[1])
    return {name: tf.boolean_mask(found[name], is_word) for name in ("id", "score")}


def _by_text(values: tf.RaggedTensor) -> list[np.ndarray]:
    return np.split(values.values.numpy(), values.row_splits.numpy()[1:-1])


def _of_words(probabilities: np.ndarray, firsts: np.ndarray, aggregate: str) -> np.ndarray:
    """Return the probabilities of words, `(words, C)`, from those of their tokens `(tokens, C)`.

    Args:
        probabilities: Those of all tokens of a text.
        firsts: The first token of each word.
        aggregate: As for `tag`.
    """
    if aggregate == "simple" or not len(firsts):
        return probabilities[firsts]
    words = np.split(probabilities, firsts[1:])
    if aggregate == "average":
        return np.array([word.mean(axis=0) for word in words])
    return np.array([word[word.max(axis=1).argmax()] for word in words])


def evaluate_tags(model: TokenClassifier, examples: WordExamples, options: Options) -> Evaluation:
    """Evaluate the labels of words."""
    found = tag(model, examples.words, **row_options(options))
    gold, predicted = examples.labels or (), [[one.label for one in tags] for tags in found]
    mistakes = [
        Mistake(name, _in_context(words, place), label, one.label, one.score, place)
        for name, words, labels, tags in zip(examples.ids, examples.words, gold, found, strict=True)
        for place, (label, one) in enumerate(zip(labels, tags, strict=True))
        if one.label != label
    ]
    metrics = tagging_scores(gold, predicted, model.labels)
    of_words = itertools.chain.from_iterable
    confusion = Confusion.of(of_words(gold), of_words(predicted), model.labels)
    pairs = zip(of_words(found), of_words(gold), strict=True)
    decisions = ((one.score, one.label == label) for one, label in pairs)
    return evaluation_of(examples, metrics, found, mistakes, confusion, decisions)


def _in_context(words: Sequence[str], place: int) -> str:
    before, after = words[max(0, place - _WORDS_AROUND) : place], words[place + 1 :]
    return " ".join([*before, f"[{words[place]}]", *after[:_WORDS_AROUND]])
