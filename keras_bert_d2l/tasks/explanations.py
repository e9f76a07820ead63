"""`explain`: how much each word of a text changes what a model predicts.

T tokens in a row, S steps, D width of the token vectors, C labels.
"""

import contextlib
import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bert_d2l.checks import check_choice, check_integer, check_that, checked_max_len, wrong
from keras_bert_d2l.data.tasks.examples import TaskExamples
from keras_bert_d2l.inference.prediction import (
    Result,
    asked_model,
    model_at,
    predict_batch,
    rows_of,
)
from keras_bert_d2l.models.tasks.labeled_task import LabeledTask
from keras_bert_d2l.models.text_inputs import as_tensors
from keras_bert_d2l.tasks.answer import WINDOW_LEN
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.answer.predictions import MAX_ANSWER_LEN
from keras_bert_d2l.tasks.answer.spans import best_spans
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from keras_bert_d2l.tasks.tag.predictions import tag
from keras_bert_d2l.tasks.tag.rows import split_texts, split_words
from keras_bert_d2l.text.tokenizer.framing import ADDED_TO_ONE, frame_values, truncate
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import TruncationWarning, text_list
from keras_bert_d2l.types import PathLike, Tensor

Method: TypeAlias = Literal["integrated_gradients", "gradient_x_input"]
"""How attributions are computed."""

_Output: TypeAlias = Callable[[Any], Tensor]  # from the outputs of a model to one number per row
_Target: TypeAlias = tuple[str, int | None, _Output]  # its name; its word, in a tagger; its output

_SIDES = ("words", "texts", "texts_b", "questions", "contexts")  # fields of examples
_STEPS = (16, 32, 64, 128, 256, 512)  # tried until the attributions are complete
_GAP, _MOVED = 0.01, 0.05  # of the difference of the outputs; of all attributions
_ROUNDING = 1e-5  # of float32
_TOKENS_AT_ONCE = 2048  # the gradient needs the outputs of all layers
_NO_WORD, _OUTSIDE = -1, "O"  # of special tokens; the label of words that belong to no entity


@dataclasses.dataclass(frozen=True, repr=False)
class Attribution(Result):
    """A word, and how much it changes what a model predicts.

    Attributes:
        word: The word.
        value: The attribution: positive if the word raises the logit of the target.
        start: Index of the word's first character in its text. If words were passed, the text is
            the words joined by spaces.
        end: Index after its last character.
        side: 0 for the first text of a pair, 1 for the second.

    Example:

    ```python
    import keras_bert_d2l as kb

    kb.Attribution("good", value=4.2, start=7, end=11, side=0)
    ```
    """

    word: str
    value: float
    start: int
    end: int
    side: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation(Result):
    """How much each word of a text changes what a model predicts.

    Attributes:
        target: What is explained: a label, the name of a score, or an answer.
        words: The words in the order of the text. Truncated ones have the attribution 0.
        logit: The output for the text: the log-odds of a label, log(p / (1 - p)) for its
            probability p before any calibration; a score; or the start plus the end logit of an
            answer.
        baseline_logit: The same output for the baseline; `None` for gradient times input.
        gap: The sum of the attributions minus `logit - baseline_logit`, which an exact integral
            makes 0; `None` for gradient times input.
        word: For a tagger, the index of the word whose label is explained.

    Example:

    ```python
    import keras_bert_d2l as kb

    words = [kb.Attribution("good", 4.2, 0, 4), kb.Attribution("film", 0.8, 5, 9)]
    kb.Explanation("positive", words, logit=5.1, baseline_logit=0.1, gap=0.0)
    ```
    """

    target: str
    words: list[Attribution]
    logit: float
    baseline_logit: float | None
    gap: float | None
    word: int | None = None


def explain(
    model: LabeledTask | QuestionAnswerer | PathLike,
    text: str | Sequence[str],
    text_b: str | None = None,
    *,
    label: str | Sequence[str] | None = None,
    word: int | Sequence[int] | None = None,
    method: Method = "integrated_gradients",
    steps: int | None = None,
    baseline: str | None = None,
    tokenizer: Tokenizer | None = None,
    max_len: int | None = None,
) -> list[Explanation]:
    """Compute how much each word of a text changes what a model predicts.

    Integrated gradients follow the straight line from the token vectors of a baseline to those of
    the text, and attribute the change of the output to the tokens. The baseline is the text with
    `[MASK]` in place of each token; special tokens, positions and segments stay as they are. The
    attributions of all words sum up to the difference of the two outputs. The number of steps
    (points of a Gauss-Legendre quadrature) is doubled until they do to 1%, and until doubling it
    changes the attributions by at most 5% in all.

    Gradient times input takes a single step, at the text itself. It is fast, and its attributions
    sum up to nothing in particular. In models of several blocks, it may name arbitrary words:
    prefer integrated gradients with few `steps`.

    An attribution describes the model, not the world: a high one says neither that the word caused
    the label in the data nor that the prediction is right. It depends on the baseline. It divides
    the effect of words that only act together, such as "not good", among them. Compare baselines,
    and delete words, before you rely on it.

    Source: Sundararajan et al. 2017 (integrated gradients); Shrikumar et al. 2016 (gradient times
    input).

    Args:
        model: A model that classifies, scores, reranks or tags texts or answers questions, or the
            path or the name of its checkpoint, which is loaded at each call.
        text: The text, the query or the question. A tagger also takes a list of words.
        text_b: The second text of a pair: the text for a query, or the context of a question.
        label: The label or the score to explain, or a list of them. `None`: the predicted label,
            all predicted ones with `multi_label`, or all scores.
        word: For a tagger, the index of the word whose label is explained, in the list that `tag`
            returns, or a list of them. `None`: all words with another label than `O`, except those
            whose first token is truncated.
        method: `"integrated_gradients"` or `"gradient_x_input"`.
        steps: Number of steps of integrated gradients. `None`: doubled as above, from 16 to at most
            512, which takes at least 48 in all. With a fixed number, there is no warning about the
            `gap`; 8 to 16 are fast, and usually name the same words.
        baseline: The token of the baseline, such as `"[PAD]"`. `None`: the mask token.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.
        max_len: Maximum number of tokens in a row. `None`: that of the model, at most 384 for
            questions. A longer text is truncated to one row, also where `predict` uses windows, and
            a warning says so.

    Returns: an `Explanation` for each label, score, word or answer.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to another task, a text has no words, or an argument does not
            fit the task, is unknown or out of range.

    Example:

    ```python
    import keras_bert_d2l as kb

    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] what a good bad film".split())
    bert = kb.BERTModel(10, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=32)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=kb.Tokenizer(vocab))
    [found] = kb.explain(classifier, "What a good film")
    print(found.target, found.logit, found.baseline_logit)
    for one in found.words:
        print(one.word, one.value)
    ```
    """
    loaded: Any = model_at(model)
    kinds = (LabeledTask, QuestionAnswerer)
    asked, tokenizer = cast(Any, asked_model)(loaded, *kinds, tokenizer=tokenizer)
    is_tagger, is_reader = (isinstance(asked, one) for one in (TokenClassifier, QuestionAnswerer))
    of_model = f"for a {type(asked).__name__}"
    check_choice("method", method, get_args(Method))
    tried = () if method == "gradient_x_input" else _STEPS if steps is None else (steps,)
    if steps is not None:
        check_that(bool(tried), "steps", f"None with method={method!r}", steps)
        check_integer("steps", steps, 1)
    check_that(is_tagger or isinstance(text, str), "text", f"a string {of_model}", text)
    check_that(is_tagger or word is None, "word", f"None {of_model}", word)
    check_that(not is_reader or label is None, "label", f"None {of_model}", label)
    if is_tagger or is_reader:
        expected = f"{'a string' if is_reader else 'None'} {of_model}"
        check_that((text_b is not None) == is_reader, "text_b", expected, text_b)
    mask = tokenizer.vocab.special_tokens[-1] if baseline is None else baseline
    check_that(mask in tokenizer.vocab, "baseline", "a token of the vocabulary", mask)
    most = min(asked.bert_config.max_len, WINDOW_LEN if is_reader else 1 << 30)  # of one row
    given = checked_max_len(max_len, 3 if text_b is None else 6, max(most, asked.max_row_len))
    row = _Row([text] if text_b is None else [text, text_b], tokenizer, min(most, given), is_reader)
    if is_tagger:
        [tags] = tag(asked, [cast(str, text)], tokenizer=tokenizer, max_len=max_len)
        targets = _of_words(asked, row, [one.label for one in tags], label, word)
    elif is_reader:
        targets = _best_span(predict_batch(asked, row.batch), row)
    else:
        names = _decided(asked, predict_batch(asked, row.batch)) if label is None else label
        targets = ((name, None, _log_odds(asked, name)) for name in _listed(names))
    return [_explanation(asked, row, one, tokenizer.vocab[mask], tried) for one in targets]


def with_explanations(
    model: Any, examples: TaskExamples, records: Iterable[Mapping[str, Any]], **options: Any
) -> Iterator[dict[str, Any]]:
    """Yield records about examples with their `explanations`; for a tagger, those of its `word`.

    There are none for a text without words, for a word whose first token is beyond the row, and for
    a question that leaves no room for its context.
    """
    texts = (getattr(examples, name, None) for name in _SIDES)
    inputs = zip(*getattr(examples, "pairs", filter(None, texts)), strict=True)
    for record, given in zip(records, inputs, strict=True):
        found: list[Explanation] = []
        with contextlib.suppress(_Unexplainable):
            found = explain(model, *given, word=record.get("word"), **options)
        yield {**record, "explanations": [dataclasses.asdict(one) for one in found]}


class _Unexplainable(ValueError):
    """A text without words, or a word or a context that is beyond the row."""


def _check(is_there: bool, name: str, expected: str, value: object) -> None:
    """Raise `_Unexplainable` with the message of `check_that`."""
    if not is_there:
        raise _Unexplainable(wrong(name, expected, value))


class _Row:
    """The row of a text or a pair of texts.

    Args:
        texts: The texts, or the words of one text.
        tokenizer: The tokenizer.
        max_len: Maximum number of tokens. A longer row is truncated.
        is_reader: Whether to truncate only the second text.

    Attributes:
        batch: The features, of one row.
        texts: The texts. Given words are joined by spaces.
        words: Each word, its first character, that after its last one, and its side.
        owners: The index of the word of each token, -1 for special tokens, int `(T,)`.
        places: The position of the first token of each word of a single text. It is not between
            the special tokens if this token is truncated.
    """

    def __init__(self, texts: list[Any], tokenizer: Any, max_len: int, is_reader: bool) -> None:
        vocab, tokens, owners = tokenizer.vocab, [], []
        self.texts, self.words = [], cast(list[tuple[str, int, int, int]], [])
        for side, text in enumerate(text_list("text", texts, words=True)):
            if isinstance(text, str):
                split: Any = split_texts(tf.constant([text]), tokenizer)
                places = [x.values.numpy().tolist() for x in (split.starts, split.ends)]
            else:
                split = split_words(as_tensors([text]), tokenizer)
                ends = [*itertools.accumulate(len(word) + 1 for word in text)]
                places, text = [[0, *ends][: len(ends)], [end - 1 for end in ends]], " ".join(text)
            _check(any(places), "text_b" if side else "text", "a text with words", text)
            # A token between two words, such as a space alone, belongs to the one before.
            numbers = np.arange(len(split.tokens.values))
            own = np.searchsorted(split.firsts.values, numbers, side="right") - 1
            own = np.maximum(own, 0).astype("int32") + len(self.words)
            owners.append(split.tokens.with_values(own))
            tokens.append(split.tokens)
            self.words += [(text[n:m], n, m, side) for n, m in zip(*places, strict=True)]
            self.texts.append(text)
        fits = not is_reader or len(tokens[0].values) + vocab.num_added(2) < max_len
        _check(fits, "text", "a question that leaves room for its context", texts[0])
        if sum(len(x.values) for x in tokens) + vocab.num_added(len(tokens)) > max_len:
            kind = "pair" if len(tokens) > 1 else "text"
            warnings.warn(TruncationWarning(1, kind, max_len), stacklevel=3)
        how = "only_second" if is_reader else "longest_first"
        batch = tokenizer.frame(*tokens, max_len=max_len, truncation=how, pad=False)
        self.batch = {name: x.numpy() for name, x in batch.items()}
        first, second = (*owners, None)[:2]
        kept = truncate(first, second, vocab, max_len, how, tokenizer.truncation_side)
        self.owners = frame_values(*kept, _NO_WORD, None, vocab).numpy()[0]
        self.places = split.firsts.values.numpy() + 1  # after the start token
        if tokenizer.truncation_side == "left":
            self.places -= len(own) + ADDED_TO_ONE - len(self.owners)


def _decided(model: LabeledTask, outputs: np.ndarray) -> str | Sequence[str]:
    """Return the label that a model predicts, or all of them, or the names of its scores."""
    [said], names = rows_of(model.answer(outputs)), model.labels
    if "is_label" in said:
        return [*itertools.compress(names, said["is_label"])]
    return names[said.get("id", 0)] if "id" in said or len(names) == 1 else names


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | int) else list(value)


def _log_odds(model: LabeledTask, label: str, place: int | None = None) -> _Output:
    """Return what computes the log-odds of a label, or a score, `(S,)` from `(S, C)`.

    Args:
        model: The model.
        label: The label.
        place: The position of the token that has the label, for outputs `(S, T, C)`.
    """
    number = model.labels.index(check_choice("label", label, model.labels))

    def output(logits: Tensor) -> Tensor:
        logits = logits if place is None else logits[:, place]
        if model.labels_are in ("rows", "scores"):
            return logits[:, number]
        others = ops.concatenate([logits[:, :number], logits[:, number + 1 :]], axis=-1)
        return logits[:, number] - ops.logsumexp(others, axis=-1)

    return output


def _of_words(model: Any, row: _Row, tags: list[str], label: Any, word: Any) -> Iterator[_Target]:
    """Yield the targets for the labels of words, of which `tags` has the predicted ones."""
    places = {n: int(x) for n, x in enumerate(row.places) if 0 < x < len(row.owners) - 1}
    marked = [n for n in places if tags[n] != _OUTSIDE]
    for number in _listed(marked if word is None else word):
        _check(number in places, "word", f"one of {[*places]}, whose first tokens fit", number)
        for name in _listed(tags[number] if label is None else label):
            yield name, number, _log_odds(model, name, places[number])


def _best_span(outputs: Any, row: _Row) -> Iterator[_Target]:
    """Yield the target for the answer with the highest logit."""
    owners = row.owners[None]
    context = {"starts": owners, "ends": owners + (owners != _NO_WORD)}
    spans = best_spans({**row.batch, **context}, outputs, MAX_ANSWER_LEN, 1)
    first, last = (int(x[0]) for x in spans[2:])
    (_, start, *_), (_, _, end, _) = (row.words[row.owners[place]] for place in (first, last))
    yield row.texts[1][start:end], None, lambda x: x["start"][:, first] + x["end"][:, last]


def _explanation(
    model: Any, row: _Row, target: _Target, mask: int, steps: Sequence[int]
) -> Explanation:
    """Compute the attributions of the tokens of a row, and sum them up per word.

    They are integrated gradients with one of these numbers of steps, or gradients times inputs.
    """
    name, word, of_outputs = target

    def output(vectors: Tensor) -> Tensor:
        batch = {key: np.repeat(x, vectors.shape[0], axis=0) for key, x in row.batch.items()}
        encoded = model.encoder(**batch, token_vectors=vectors)
        outputs = model.head_outputs(encoded, model.is_token(batch["tokens"], batch["valid_lens"]))
        return ops.cast(of_outputs(outputs), "float32")

    tokens, is_word = row.batch["tokens"], row.owners != _NO_WORD
    both = np.concatenate([np.where(is_word, mask, tokens), tokens])
    vectors = ops.convert_to_numpy(ops.cast(model.encoder.token_vectors(both), "float32"))
    before, after = ops.convert_to_numpy(output(vectors)).tolist()
    if not steps:
        of_tokens, gap = (_gradients(output, vectors[1:]) * vectors[1:]).sum((0, 2)), None
    else:
        of_tokens, gap = _integrated(output, vectors, after - before, steps)
    values = np.bincount(row.owners[is_word], of_tokens[is_word], len(row.words)).tolist()
    words = [Attribution(one[0], x, *one[1:]) for one, x in zip(row.words, values, strict=True)]
    return Explanation(name, words, after, None if gap is None else before, gap, word)


def _integrated(
    output: _Output, vectors: np.ndarray, change: float, steps: Sequence[int]
) -> tuple[np.ndarray, float]:
    """Return the integrated gradients of tokens, `(T,)`, and the error of their sum.

    Args:
        output: The output, from vectors `(S, T, D)`.
        vectors: Those of the baseline and of the text, `(2, T, D)`.
        change: The difference of the outputs for the two.
        steps: Numbers of steps to try, until the attributions are complete and stable. A single one
            is not judged.
    """
    path, gap, before = vectors[1] - vectors[0], 0.0, np.full(vectors.shape[1], np.inf)
    size = max(1, _TOKENS_AT_ONCE // len(path))
    for num_steps in steps:
        of_tokens = np.zeros(len(path))
        shares, weights = np.array(np.polynomial.legendre.leggauss(num_steps)) / 2
        for some in (slice(n, n + size) for n in range(0, num_steps, size)):
            points = vectors[0] + (shares[some, None, None] + 0.5) * path
            found = _gradients(output, points.astype("float32"))
            of_tokens += np.einsum("s,std,td->t", weights[some], found, path)
        gap = float(of_tokens.sum()) - change
        total, moved = np.abs(of_tokens).sum(), np.abs(of_tokens - before).sum()
        is_stable, before = moved <= max(_MOVED * total, _ROUNDING), of_tokens
        if is_stable and abs(gap) <= max(_GAP * abs(change), _ROUNDING * (1 + total)):
            return of_tokens, gap
    message = f"The attributions differ by {gap:.3g} from the change of the output, {change:.3g}, "
    message += f"after {num_steps} steps. Load the model in float32, or choose another `baseline`."
    if len(steps) > 1:
        warnings.warn(message, stacklevel=4)
    return of_tokens, gap


def _gradients(output: _Output, vectors: np.ndarray) -> np.ndarray:
    """Return the gradients `(S, T, D)` of outputs `(S,)` by the vectors `(S, T, D)`."""
    if keras.backend.backend() == "jax":
        import jax

        return np.asarray(jax.grad(lambda x: ops.sum(output(x)))(vectors))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        x = tf.constant(vectors)
        tape.watch(x)
        outputs = output(x)
    return np.asarray(tape.gradient(outputs, x))
