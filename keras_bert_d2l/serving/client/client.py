"""Texts to a running model server, answers as Python objects back.

B rows in a request, D hidden width, k predictions for a mask.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self, overload

import numpy as np

from keras_bert_d2l.inference.pretraining.fill_mask import Prediction
from keras_bert_d2l.inference.tasks.labels import Classification, Regression, Tag
from keras_bert_d2l.serving.client.answers import (
    ANSWERS,
    CLASSIFICATIONS,
    MASKS,
    NEXT_SENTENCE_SCORES,
    REGRESSIONS,
    TAGS,
    VECTORS,
    Reader,
    ServedAnswer,
)
from keras_bert_d2l.serving.client.transports import GRPC, Metadata, Rest, Transport
from keras_bert_d2l.serving.protocol.rest_json import DEFAULT_SIGNATURE
from keras_bert_d2l.serving.protocol.tensors import Interface, find_interface, to_arrays

DEFAULT_TIMEOUT = 60.0
DEFAULT_BATCH_SIZE = 32
_TRANSPORTS: dict[str, type[Rest] | type[GRPC]] = {"rest": Rest, "grpc": GRPC}


class ServingClient:
    """Asks a model of TensorFlow Serving, or of `keras-bert-d2l serve`.

    The signatures are read from the server once, and each request is checked against them before
    it is sent. A client can be used from several threads.

    Args:
        url: Where the server is: `"http://127.0.0.1:8501"`, or for gRPC `"127.0.0.1:8500"`.
        model: The model's name for the server.
        version: The version to ask; `None`: the newest one that the server has.
        transport: `"rest"`, or `"grpc"`, which needs tensorflow-serving-api.
        timeout: Seconds for each answer of the server.
        batch_size: Most rows in a request; what is larger is sent in several.

    Raises:
        ValueError: An argument is out of range.
        ImportError: tensorflow-serving-api is not installed.

    Every method that asks raises `ConnectionError` where no server answers, `TimeoutError`,
    `LookupError` where the server has no such model or version, `ValueError` where a value is not
    what the signature takes (before anything is sent) or where the server refuses it, and
    `RuntimeError` where the server fails.

    Example:

    ```python
    with ServingClient("http://127.0.0.1:8501", "mine") as client:
        vectors = client.embed(["one text", "another text"])
        for prediction in client.fill_mask("the [MASK] of my text")[0]:
            print(prediction.token, prediction.score)
    ```
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: int | None = None,
        *,
        transport: Literal["rest", "grpc"] = "rest",
        timeout: float = DEFAULT_TIMEOUT,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        if transport not in _TRANSPORTS:
            raise ValueError(f"`transport` must be 'rest' or 'grpc'. Received: {transport!r}.")
        if not model:
            raise ValueError("`model` must be the name that the server has for the model.")
        if not timeout > 0:
            raise ValueError(f"`timeout` must be above 0. Received: timeout={timeout!r}.")
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1. Received: {batch_size!r}.")
        self._transport: Transport = _TRANSPORTS[transport](url, model, version, timeout)
        self._batch_size = batch_size
        self._known: Metadata | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections."""
        self._transport.close()

    def status(self) -> dict[int, str]:
        """Returns the state of each version that the server knows, such as `{1: "AVAILABLE"}`."""
        return self._transport.status()

    def metadata(self) -> Metadata:
        """Returns the version that answers, and what its signatures take and return."""
        self._known = self._transport.metadata()
        return self._known

    def predict(
        self, inputs: Mapping[str, Any], signature: str = DEFAULT_SIGNATURE
    ) -> dict[str, np.ndarray]:
        """Asks any signature.

        Args:
            inputs: For each of its arguments a (nested) list or an array, whose first dimension
                is the number of rows B. Strings are `str`, or `bytes` of any content.
            signature: Its name.

        Returns: arrays by name. Strings are objects of type `str`, or `bytes` where they are no
            UTF-8. Where requests were split and their answers are not of one width, the narrower
            ones are filled up with zeros and empty strings.
        """
        answers = list(self._batches(inputs, signature))
        return {name: _concatenate([one[name] for one in answers]) for name in answers[0]}

    @overload
    def fill_mask(self, texts: str) -> list[list[Prediction]]: ...
    @overload
    def fill_mask(self, texts: list[str]) -> list[list[list[Prediction]]]: ...
    def fill_mask(self, texts: str | list[str]) -> list[Any]:
        """Predicts the tokens behind the masks of texts, as `keras_bert_d2l.fill_mask`.

        Args:
            texts: A text, or a list of texts, with masks as the vocabulary spells them.

        Returns: for one text a list with an entry for each mask, which is the list of its k
            predictions, the likeliest first; for a list of texts the list of these. A text
            without a mask has none.
        """
        return self._objects(MASKS, {"text": texts}, "fill_mask")

    def embed(self, texts: str | list[str]) -> np.ndarray:
        """Describes texts by vectors.

        Args:
            texts: A text, or a list of texts.

        Returns: float32 `(D,)` for one text, `(B, D)` for a list.
        """
        return np.array(self._objects(VECTORS, {"text": texts}, "embed"))

    @overload
    def next_sentence_score(self, texts: str, texts_b: str) -> float: ...
    @overload
    def next_sentence_score(self, texts: list[str], texts_b: list[str]) -> list[float]: ...
    def next_sentence_score(self, texts: str | list[str], texts_b: str | list[str]) -> Any:
        """Says how likely a text goes on with another one.

        Args:
            texts: A text, or a list of texts.
            texts_b: As many others.

        Returns: the probability of "is next"; for lists a list.
        """
        return self._objects(NEXT_SENTENCE_SCORES, {"text": texts, "text_b": texts_b}, "nsp")

    @overload
    def classify(self, texts: str, texts_b: str | None = None) -> Classification: ...
    @overload
    def classify(
        self, texts: list[str], texts_b: list[str] | None = None
    ) -> list[Classification]: ...
    def classify(self, texts: str | list[str], texts_b: str | list[str] | None = None) -> Any:
        """Asks a `SequenceClassifier` for labels.

        Args:
            texts: A text, or a list of texts.
            texts_b: The second texts of pairs, for a model that was exported for pairs.

        Returns: a `Classification`; for a list a list.
        """
        return self._objects(CLASSIFICATIONS, _pairs(texts, texts_b))

    @overload
    def regress(self, texts: str, texts_b: str | None = None) -> Regression: ...
    @overload
    def regress(self, texts: list[str], texts_b: list[str] | None = None) -> list[Regression]: ...
    def regress(self, texts: str | list[str], texts_b: str | list[str] | None = None) -> Any:
        """Asks a `SequenceRegressor` for scores.

        Args:
            texts: As for `classify`.
            texts_b: As for `classify`.

        Returns: a `Regression`; for a list a list.
        """
        return self._objects(REGRESSIONS, _pairs(texts, texts_b))

    @overload
    def tag(self, texts: str) -> list[Tag]: ...
    @overload
    def tag(self, texts: list[str]) -> list[list[Tag]]: ...
    def tag(self, texts: str | list[str]) -> Any:
        """Asks a `TokenClassifier` for the label of each word.

        Args:
            texts: A text, or a list of texts.

        Returns: a list of `Tag`s; for a list of texts a list of these.
        """
        return self._objects(TAGS, {"text": texts})

    @overload
    def answer(self, questions: str, contexts: str) -> ServedAnswer: ...
    @overload
    def answer(self, questions: list[str], contexts: list[str]) -> list[ServedAnswer]: ...
    def answer(self, questions: str | list[str], contexts: str | list[str]) -> Any:
        """Asks a `QuestionAnswerer` where in a text the answer to a question is.

        Args:
            questions: A question, or a list of questions.
            contexts: The text with the answer; for a list as many texts.

        Returns: the best `ServedAnswer`; for lists a list.
        """
        return self._objects(ANSWERS, {"question": questions, "context": contexts})

    def _objects(
        self, reader: Reader, inputs: Mapping[str, Any], signature: str = DEFAULT_SIGNATURE
    ) -> Any:
        """An object for each row, or, where the inputs are single strings, the only one."""
        reader.check(self._interface(signature).outputs, signature)
        is_one = all(isinstance(value, str) for value in inputs.values())
        rows = {name: [value] for name, value in inputs.items()} if is_one else inputs
        found = [one for batch in self._batches(rows, signature) for one in reader.read(batch)]
        return found[0] if is_one else found

    def _batches(
        self, inputs: Mapping[str, Any], signature: str
    ) -> Iterator[dict[str, np.ndarray]]:
        """The answers to the rows, at most `batch_size` at once."""
        interface = self._interface(signature)
        arrays = to_arrays(inputs, interface.inputs, _encode)
        num_rows = _num_rows(arrays)
        for start in range(0, num_rows, self._batch_size):
            batch = {name: x[start : start + self._batch_size] for name, x in arrays.items()}
            try:
                answer = self._transport.predict(signature, batch, interface.outputs)
            except (ValueError, LookupError, RuntimeError):
                self._known = None  # the server may have loaded a version with other signatures
                raise
            yield {name: _decoded(array) for name, array in answer.items()}

    def _interface(self, signature: str) -> Interface:
        if not isinstance(signature, str):
            raise ValueError(f"`signature` must be a string. Received: {signature!r:.80}.")
        known = self._known
        if known is None or signature not in known.signatures:
            known = self.metadata()
        return find_interface(known.signatures, signature)


def _pairs(texts: Any, texts_b: Any) -> dict[str, Any]:
    return {"text": texts} if texts_b is None else {"text": texts, "text_b": texts_b}


def _encode(value: Any) -> bytes:
    """The bytes that are sent for a text."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError(f"A text must be a str, or bytes. Received: {value!r:.80}.")
    if "\0" in value:
        raise ValueError(
            f"A text must not hold the character NUL: is it a text? Received: {value!r:.80}."
        )
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"A text must not hold lone surrogates, which UTF-8 cannot express. Received: "
            f"{value!r:.80}; `text.encode('utf-8', 'replace')` takes them out."
        ) from error


def _num_rows(arrays: Mapping[str, np.ndarray]) -> int:
    sizes = {name: array.shape[0] if array.ndim else None for name, array in arrays.items()}
    if len(set(sizes.values())) != 1 or None in sizes.values():
        told = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ValueError(f"All inputs must have equally many rows. Received: {told}.")
    num_rows = next(iter(sizes.values()))
    if not num_rows:
        raise ValueError("At least one row is expected. Received: empty lists.")
    return int(num_rows)


def _decoded(array: np.ndarray) -> np.ndarray:
    """Strings as `str`, as far as they are UTF-8."""
    if array.dtype != object:
        return array
    decoded = np.empty(array.size, object)
    decoded[:] = [_text(value) for value in array.ravel()]
    return decoded.reshape(array.shape)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _concatenate(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all arrays, as wide as the widest."""
    if len(arrays) == 1 or not arrays[0].ndim:
        return arrays[0]
    shape = np.max([array.shape for array in arrays], axis=0)
    widened = []
    for array in arrays:
        width = [(0, 0), *((0, size) for size in shape[1:] - array.shape[1:])]
        fill: Any = "" if array.dtype == object else 0
        widened.append(np.pad(array, width, constant_values=fill))
    return np.concatenate(widened)
