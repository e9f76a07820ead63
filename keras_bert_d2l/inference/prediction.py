"""What the functions share that ask a model: its loading, its rows of texts, and their results.

B: number of texts, T: tokens per row, C: number of outputs.
"""

import dataclasses
import os
import reprlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

import keras
import numpy as np

from keras_bert_d2l.checkpoints.checks import check_kind, tokenizer_of
from keras_bert_d2l.checkpoints.loading import load_as_defined, load_pretrained, load_task
from keras_bert_d2l.checks import check_integer, check_that
from keras_bert_d2l.contract.registry import embedder
from keras_bert_d2l.inference.batching import TextRows, predict_texts, text_pairs
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.own_model import shared_bert
from keras_bert_d2l.models.tasks.preprocessor import Preprocessor
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text_arguments import text_list
from keras_bert_d2l.types import PathLike, Tensor

Model = TypeVar("Model", bound=BERTModel | TaskModel)


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
    model: keras.Model | PathLike,
    *kinds: type[Model],
    tokenizer: Tokenizer | None = None,
) -> tuple[Model, Tokenizer]:
    """Return the model that a function asks, and its tokenizer.

    Args:
        model: The model, or the path or the name of its checkpoint, which is then loaded. A Keras
            model of one's own is asked as a `BERTModel` that shares its layers.
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
            found = load_pretrained(model, heads=(), verbose=False).model
    elif BERTModel in kinds:
        found = shared_bert(model)
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
    """Return `kind(model, *options)`, a model that shares the encoder of another.

    Later calls return the same model, so that Keras does not build its graph again. A new one is
    made if the encoder has other weights, as after LoRA or quantization.
    """
    weights = [id(weight) for weight in model.encoder.weights]
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


def checked_max_len(max_len: int | None, at_least: int, most: int) -> int:
    """Return the maximum number of tokens in a row, for `None` that of the model, `most`.

    Raises:
        ValueError: `max_len` is below `at_least` or exceeds the model's maximum.
    """
    if max_len is None:
        return most
    check_integer("max_len", max_len, 1)
    is_right = at_least <= max_len <= most
    check_that(is_right, "max_len", f"from {at_least} to {most}, the model's maximum", max_len)
    return max_len


def softmax(logits: np.ndarray) -> np.ndarray:
    """Convert logits `(..., C)` to probabilities in float64."""
    logits = logits.astype("float64")
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


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
        sides, at_least, most = [text_list("texts", texts)], 3, model.max_row_len
    else:
        sides = [*text_pairs(("texts", "texts_b"), texts, texts_b)]
        at_least, most = 5, model.bert_config.max_len
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
