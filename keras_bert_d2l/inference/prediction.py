"""What the functions share that ask a model: its loading, batches of similar length, and results.

N: number of rows or texts, B: rows per batch, T: tokens per row, C: number of outputs.
"""

import dataclasses
import os
import reprlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast, overload

import keras
import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind, tokenizer_of
from keras_bert_d2l.checkpoints.loading import load_as_defined, load_kind, load_task
from keras_bert_d2l.checks import check_bool, check_integer, checked_max_len, shown
from keras_bert_d2l.contract.task import embedder
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.models.text_inputs import Preprocessor
from keras_bert_d2l.progress import parts, stage
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import TruncationWarning, text_list
from keras_bert_d2l.types import PathLike, Tensor

Model = TypeVar("Model", bound=BERTModel | TaskModel)
Outputs: TypeAlias = Any
"""The outputs of a model in NumPy: an array or a dictionary of arrays."""

BATCHES_SORTED = 64  # number of batches to sort by length together; bounds the memory use

# Not `Sequence[str]`, because a single string would also match.
Texts = list[str] | tuple[str, ...] | np.ndarray

Asked = TypeVar("Asked")
AskedIn = TypeVar("AskedIn", contravariant=True)
Found = TypeVar("Found")
Built = TypeVar("Built", bound=keras.Model)
Options = ParamSpec("Options")


class Asking(Protocol[AskedIn, Options, Found]):
    """A function that has one result for a text, and a list of results for a list of texts."""

    @overload
    def __call__(
        self, model: AskedIn, texts: str, /, *args: Options.args, **kwargs: Options.kwargs
    ) -> Found: ...
    @overload
    def __call__(
        self, model: AskedIn, texts: Texts, /, *args: Options.args, **kwargs: Options.kwargs
    ) -> list[Found]: ...


def one_per_text(
    result: type[Found],
) -> Callable[
    [Callable[Concatenate[Asked, str | Texts, Options], Found | list[Found]]],
    Asking[Asked, Options, Found],
]:
    """Tell type checkers that a function returns one `result` for each text."""
    return lambda ask: cast(Any, ask)


def asked_model(
    model: keras.Model | PathLike, *kinds: type[Model], tokenizer: Tokenizer | None = None
) -> tuple[Model, Tokenizer]:
    """Return the model that a function asks, and its tokenizer.

    Args:
        model: The model, or the path or the name of its checkpoint, which is then loaded.
        *kinds: The classes that the function takes. If `TextEmbedder` is one, the checkpoint of a
            BERT without a task is loaded as that, with the pooling that its folder defines.
        tokenizer: The tokenizer. `None` means `model.tokenizer`.

    Raises:
        FileNotFoundError: There is no checkpoint.
        ValueError: The model belongs to a different task, there is no tokenizer, or its vocabulary
            does not have the model's size.
    """
    found: Any = model
    if isinstance(model, str | os.PathLike):
        if embedder() in kinds:
            found = load_task(embedder(), model, verbose=False).model
        else:
            found = load_kind(kinds[0], model).model
    check_kind(found, *kinds)
    return found, tokenizer_of(found, tokenizer)


def model_at(model: Model | PathLike) -> Model:
    """Return a model as it is, or load it from the path or the name of its checkpoint.

    A folder that defines how to pool texts gives a `TextEmbedder`.

    Raises:
        FileNotFoundError: There is no checkpoint.
    """
    if not isinstance(model, str | os.PathLike):
        return model
    found: Any = load_as_defined(model, heads=()).model
    return found


_WITH_GRAPHS: weakref.WeakKeyDictionary[Any, dict[object, Any]] = weakref.WeakKeyDictionary()


def with_graph(model: Any, kind: Callable[..., Built], *options: object) -> Built:
    """Return `kind(model, *options)`, a model that shares the layers of another.

    Later calls return the same model, so that Keras does not build its graph again. A new one is
    made if the model has other weights, as after LoRA or quantization.
    """
    weights = [id(weight) for weight in model.weights]
    made = _WITH_GRAPHS.setdefault(model, {})
    key = (kind, *map(str, options))
    if key not in made or made[key][0] != weights:
        made[key] = weights, kind(model, *options)
    return cast(Built, made[key][1])


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_float(self, value: float, level: int) -> str:
        return f"{value:.4g}"


_SHORT = _Short()


class Result:
    """Base class of results, which are dataclasses with `repr=False`.

    Their `repr` rounds numbers to 4 digits and shortens long texts.
    """

    def __repr__(self) -> str:
        fields = dataclasses.fields(cast(Any, self))
        shown = [f"{field.name}={_SHORT.repr(getattr(self, field.name))}" for field in fields]
        return f"{type(self).__name__}({', '.join(shown)})"


def text_pairs(names: tuple[str, str], first: Any, second: Any) -> tuple[list[str], list[str]]:
    """Return the two texts, or lists of texts, of the arguments `names` as lists.

    One text beside a list is repeated for each text of the list.

    Raises:
        ValueError: The lists differ in length.
    """
    lists = text_list(names[0], first), text_list(names[1], second)
    if isinstance(first, str):
        lists = lists[0] * len(lists[1]), lists[1]
    elif isinstance(second, str):
        lists = lists[0], lists[1] * len(lists[0])
    if len(lists[0]) != len(lists[1]):
        raise ValueError(
            f"`{names[0]}` and `{names[1]}` must be lists of texts of the same length, or one of "
            f"them a text. Received: a list of {len(lists[0])} and a list of {len(lists[1])}."
        )
    return lists


@dataclasses.dataclass
class TextRows:
    """Rows of texts, or of pairs of texts, for a model.

    After the last row, a `TruncationWarning` reports how many were truncated.

    Args:
        preprocess: Converts the texts.
        sides: The texts; for pairs, also the second texts.
        truncate: Whether to truncate texts that are too long, instead of raising an error.
        options: Other arguments of `preprocess.rows`: `truncation`, which text of a pair to
            truncate, as for `Tokenizer`, or a `prompt`.

    Call arguments:
        start: Number of the first text.
        stop: Number after the last text.

    Returns: the rows, as from `Tokenizer`.

    Raises:
        ValueError: `truncate` is not a boolean, or is `False` and a text is too long.
    """

    preprocess: Preprocessor
    sides: Sequence[Sequence[str]]
    truncate: bool
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    num_truncated: int = 0

    def __post_init__(self) -> None:
        check_bool("truncate", self.truncate)

    def __call__(self, start: int, stop: int) -> dict[str, Tensor]:
        sides = [side[start:stop] for side in self.sides]
        rows = dict(self.preprocess.rows(*sides, **self.options))
        lengths = np.asarray(rows.pop("num_tokens"))
        max_len = self.preprocess.max_len(len(sides))
        num_truncated = int((lengths > max_len).sum())
        if num_truncated and not self.truncate:
            longest = int(lengths.argmax())
            text = " | ".join(texts[longest] for texts in sides)
            raise ValueError(
                f"A text must have at most {max_len} tokens, including special tokens. "
                f"Received: {lengths[longest]} tokens in {shown(text)} at index {start + longest}. "
                "Split it, or omit `truncate=False`."
            )
        self.num_truncated += num_truncated
        arrays = {name: np.asarray(x) for name, x in rows.items()}
        more = min(max_len, padded_length(lengths)) - arrays["tokens"].shape[1]
        of_tokens = self.preprocess.tokenizer.vocab.pad_id
        for name, value in (("tokens", of_tokens), ("segments", 0)):
            arrays[name] = np.pad(arrays[name], ((0, 0), (0, more)), constant_values=value)
        if self.num_truncated and stop == len(self.sides[0]):
            kind = "pair" if len(sides) > 1 else "text"
            found = TruncationWarning(self.num_truncated, kind, max_len)
            warnings.warn(found, stacklevel=6)
        return arrays


def length_batches(lengths: Tensor, batch_size: int) -> Iterator[np.ndarray]:
    """Yield the row indices of each batch `(B,)`, with the longest rows first.

    The largest batch comes first so that an out-of-memory error occurs immediately.

    Args:
        lengths: Number of tokens in each row, int `(N,)`.
        batch_size: Rows per batch, B.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def padded_length(valid_lens: Tensor, step: int = 8) -> int:
    """Return the padded length: the length of the longest row, rounded up to a multiple of `step`.

    JAX recompiles for each length, so that their number must be small.
    """
    return -(-int(np.max(valid_lens)) // step) * step


def predict_batch(model: keras.Model, batch: Mapping[str, Tensor]) -> Outputs:
    """Return a model's outputs for one batch of any length as NumPy arrays.

    The model runs as a graph, which is built once per model and is several times faster than eager
    execution.

    Raises:
        ValueError: An output is NaN.
    """
    if keras.backend.backend() == "tensorflow" and not model.compiled:
        model.jit_compile = False  # XLA would recompile for every batch length
    outputs = model.predict_on_batch(dict(batch))
    if any(np.isnan(output).any() for output in keras.tree.flatten(outputs)):
        raise ValueError(
            "`model` must have finite outputs. Received: outputs that are NaN. Its training has "
            "diverged, or its weights are damaged."
        )
    return outputs


def predict_rows(
    model: keras.Model, rows: Mapping[str, Tensor], batch_size: int
) -> Iterator[tuple[np.ndarray, Outputs]]:
    """Run a model on rows in batches of similar length.

    Args:
        model: A `BERTModel` or a task model.
        rows: `tokens` and `segments` int `(N, T)`, `valid_lens` int `(N,)`, and any other inputs
            of the model with N rows. Unnecessary padding is removed.
        batch_size: Rows per batch, B.

    Yields: the row indices of a batch, int `(B,)`, and the model's outputs for these rows: an
        array or a dictionary of arrays with B rows.
    """
    arrays = {name: np.asarray(values) for name, values in rows.items()}
    with stage("Predicting", len(arrays["valid_lens"])) as work:
        for numbers in length_batches(arrays["valid_lens"], batch_size):
            batch = {name: values[numbers] for name, values in arrays.items()}
            longest = padded_length(batch["valid_lens"])
            for name in ("tokens", "segments"):
                batch[name] = batch[name][:, :longest]
            yield numbers, predict_batch(model, batch)
            work.advance(len(numbers))


def predict_texts(
    model: keras.Model,
    tokenize: Callable[[int, int], Mapping[str, Tensor]],
    num_texts: int,
    batch_size: int,
) -> Iterator[Outputs]:
    """Yield a model's outputs for each text, in the order of the texts.

    Args:
        model: The model.
        tokenize: Function `tokenize(start, stop)` that returns one row per text in
            `range(start, stop)`, in the format of the argument `rows` of `predict_rows`.
        num_texts: Number of texts.
        batch_size: Texts per batch.

    Yields: the outputs for one text: an array or a dictionary of arrays without the dimension B.
        Per-token outputs have the padded length of the batch.
    """
    check_integer("batch_size", batch_size, 1)
    step = batch_size * BATCHES_SORTED
    for part in parts("Predicting", num_texts, step):
        outputs: list[Outputs] = [None] * (part.stop - part.start)
        rows = tokenize(part.start, part.stop)
        for numbers, batch in predict_rows(model, rows, batch_size):
            for place, number in enumerate(numbers):
                outputs[number] = keras.tree.map_structure(lambda x, at=place: x[at], batch)
        yield from outputs


def text_outputs(
    model: TaskModel,
    tokenizer: Tokenizer,
    texts: str | Texts,
    texts_b: str | Texts | None,
    batch_size: int,
    max_len: int | None,
    truncate: bool = True,
) -> Iterator[np.ndarray]:
    """Yield the outputs `(C,)` of each text, or of each pair."""
    if texts_b is None:
        sides, at_least = [text_list("texts", texts)], 3
    else:
        sides, at_least = [*text_pairs(("texts", "texts_b"), texts, texts_b)], 5
    most = model.preprocessing(model, tokenizer).max_len(len(sides))
    limit = checked_max_len(max_len, at_least, most)
    rows = TextRows(Preprocessor(model, tokenizer, limit), sides, truncate)
    return predict_texts(model, rows, len(sides[0]), batch_size)


def text_answers(model: Any, *args: Any) -> list[dict[str, Any]]:
    """Return what `model.answer` says about each text, as exports do; see `text_outputs`."""
    outputs = list(text_outputs(model, *args))
    return rows_of(model.answer(np.array(outputs, "float32"))) if outputs else []


def rows_of(answer: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Return the rows of an answer as numbers and lists by name."""
    columns = [keras.ops.convert_to_numpy(values).tolist() for values in answer.values()]
    return [dict(zip(answer, row, strict=True)) for row in zip(*columns, strict=True)]
