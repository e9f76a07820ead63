"""Client for a model server.

B: rows in a request, D: hidden width, k: predictions per mask.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from keras_bert_d2l.checks import check_choice, check_integer, check_that, shown
from keras_bert_d2l.inference.heads import Prediction
from keras_bert_d2l.serving.client.readers import (
    ANSWERS,
    CHOICES,
    CLASSIFICATIONS,
    MASKS,
    NEXT_SENTENCE_SCORES,
    REGRESSIONS,
    TAGS,
    VECTORS,
    Reader,
    Row,
    ServedAnswer,
)
from keras_bert_d2l.serving.client.transport import Metadata, Rest
from keras_bert_d2l.serving.protocol import (
    DEFAULT_SIGNATURE,
    Arrays,
    Interface,
    encode,
    find_interface,
    to_arrays,
)
from keras_bert_d2l.tasks.choose.predictions import Choice
from keras_bert_d2l.tasks.classify.predictions import Classification
from keras_bert_d2l.tasks.regress.predictions import Regression
from keras_bert_d2l.tasks.tag.predictions import Entity, Tag, entities

DEFAULT_TIMEOUT = 60.0
DEFAULT_BATCH_SIZE = 32


class ServingClient:
    """Client for a model on TensorFlow Serving or on `keras-bert-d2l serve`.

    The client reads the signatures from the server once and checks each request against them
    before sending it. A client is thread-safe.

    Args:
        url: Server address, such as `"http://127.0.0.1:8501"`.
        model: Name of the model on the server.
        version: Version to query. Defaults to the newest version on the server.
        timeout: Timeout per request in seconds.
        batch_size: Maximum number of rows per request. Larger inputs are split.

    Raises:
        ValueError: An argument is out of range.

    All methods that call the server raise `ConnectionError` if no server responds, `TimeoutError`
    if it responds too late, `LookupError` if the server has no such model or version,
    `ValueError` if a value does not match the signature (before anything is sent) or the server
    rejects it, and `RuntimeError` if the server fails.

    Example:

    ```python
    import keras_bert_d2l as kb
    from keras_bert_d2l.serving.server.local_server import LocalServer, running
    from keras_bert_d2l.serving.server.served_model import ServedModel

    vocab = kb.Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text"])
    config = kb.BERTConfig.preset("tiny", vocab_size=len(vocab))
    model = kb.BERTModel.from_bert_config(config)
    folder = kb.export_saved_model(model, "saved_models/demo", tokenizer=kb.Tokenizer(vocab))

    # Instead of `running`, you can start `keras-bert-d2l serve saved_models/demo`.
    with running(LocalServer(ServedModel(folder))) as url:
        with kb.ServingClient(url, "demo") as client:
            print(client.embed(["a text", "a"]).shape)  # (2, 128)
            print(client.fill_mask("a [MASK]")[0][0].token)
    ```
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: int | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        if not model:
            raise ValueError("`model` must be the name of the model on the server. Received: ''.")
        check_that(timeout > 0, "timeout", "above 0", timeout)
        check_integer("batch_size", batch_size, 1)
        self._transport = Rest(url, model, version, timeout)
        self._batch_size = batch_size
        self._known: Metadata | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def metadata(self) -> Metadata:
        """Return the served version and the inputs and outputs of its signatures."""
        self._known = self._transport.metadata()
        return self._known

    def predict(
        self, inputs: Mapping[str, object], signature_name: str = DEFAULT_SIGNATURE
    ) -> dict[str, np.ndarray]:
        """Call any signature.

        Args:
            inputs: One (nested) list or array per input of the signature. The first dimension is
                the number of rows B. Strings are `str`, or `bytes` with any content.
            signature_name: Name of the signature.

        Returns: arrays by name. Strings are `str`, or `bytes` if they are not UTF-8. If several
            requests were sent, outputs of different sizes are padded with zeros or empty strings.
        """
        answers = list(self._batches(inputs, signature_name))
        return {name: _concatenate([one[name] for one in answers]) for name in answers[0]}

    def fill_mask(
        self, texts: str | list[str]
    ) -> list[list[Prediction]] | list[list[list[Prediction]]]:
        """Predict the masked tokens, like `keras_bert_d2l.fill_mask`.

        Args:
            texts: A text, or a list of texts, containing the vocabulary's mask token, for example
                `[MASK]`.

        Returns: for one text, a list with k predictions per mask, most likely first. It is empty
            if the text has no masks. For a list of texts, a list of such lists.
        """
        return self._objects(MASKS, {"text": texts}, "fill_mask")

    def embed(self, texts: str | list[str]) -> np.ndarray:
        """Return one vector per text, like `keras_bert_d2l.embed`.

        Args:
            texts: A text, or a list of texts.

        Returns: float32 `(D,)` for one text, `(B, D)` for a list.
        """
        return np.array(self._objects(VECTORS, {"text": texts}, "embed"))

    def next_sentence_score(
        self, texts: str | list[str], texts_b: str | list[str]
    ) -> float | list[float]:
        """Predict the probability that the second text follows the first.

        Args:
            texts: A text, or a list of texts.
            texts_b: The second text, or a list of second texts of the same length.

        Returns: the probability of "is next". For lists, a list of probabilities.
        """
        return self._objects(NEXT_SENTENCE_SCORES, {"text": texts, "text_b": texts_b}, "nsp")

    def classify(
        self, texts: str | list[str], texts_b: str | list[str] | None = None
    ) -> Classification | list[Classification]:
        """Classify texts with a served `SequenceClassifier`.

        Args:
            texts: A text, or a list of texts.
            texts_b: Second text of each pair, for a model exported with `pairs=True`.

        Returns: a `Classification`. For lists, a list of them.
        """
        return self._objects(CLASSIFICATIONS, _pairs(texts, texts_b))

    def regress(
        self, texts: str | list[str], texts_b: str | list[str] | None = None
    ) -> Regression | list[Regression]:
        """Score texts with a served `SequenceRegressor`.

        Args:
            texts: See `classify`.
            texts_b: See `classify`.

        Returns: a `Regression`. For lists, a list of them.
        """
        return self._objects(REGRESSIONS, _pairs(texts, texts_b))

    def tag(
        self, texts: str | list[str], *, aggregate: Literal["none", "first"] = "none"
    ) -> list[Tag] | list[Entity] | list[list[Tag]] | list[list[Entity]]:
        """Label each word with a served `TokenClassifier`.

        Args:
            texts: A text, or a list of texts.
            aggregate: `"none"`, or `"first"` to join the labels to entities. The other values of
                `keras_bert_d2l.tag` need the labels of all tokens; the server has those of words.

        Returns: one `Tag` per word, or one `Entity` per entity. For a list of texts, a list of such
            lists.
        """
        check_choice("aggregate", aggregate, ("none", "first"))
        found: Any = self._objects(TAGS, {"text": texts})
        if aggregate == "none":
            return found
        several = [found] if isinstance(texts, str) else found
        labels = {one.label for tags in several for one in tags}
        if isinstance(texts, str):
            return entities(found, texts, labels)
        return [entities(tags, text, labels) for tags, text in zip(found, texts, strict=True)]

    def answer(
        self, questions: str | list[str], contexts: str | list[str]
    ) -> ServedAnswer | list[ServedAnswer]:
        """Extract the answers to questions with a served `QuestionAnswerer`.

        Args:
            questions: A question, or a list of questions.
            contexts: The text to search, or a list with one text per question.

        Returns: the best `ServedAnswer`. For lists, a list of them.
        """
        return self._objects(ANSWERS, {"question": questions, "context": contexts})

    def choose(
        self, texts: str | list[str], choices: Sequence[str] | Sequence[Sequence[str]]
    ) -> Choice | list[Choice]:
        """Find the choice that fits each text best with a served `MultipleChoice` model.

        Args:
            texts: A text, or a list of texts.
            choices: The choices for the text, or a list of equally many choices for each text.
                Missing choices may be empty strings, which score 0.

        Returns: a `Choice`. For lists, a list of them.
        """
        return self._objects(CHOICES, {"text": texts, "choices": choices})

    def _objects(
        self, reader: Reader[Row], inputs: Mapping[str, object], signature: str = DEFAULT_SIGNATURE
    ) -> Row | list[Row]:
        """Return one object per row, or a single object if the first input is a single string."""
        reader.check(self._interface(signature).outputs, signature)
        is_single = isinstance(next(iter(inputs.values())), str)
        rows = {name: [value] for name, value in inputs.items()} if is_single else inputs
        found = [one for batch in self._batches(rows, signature) for one in reader.read(batch)]
        return found[0] if is_single else found

    def _batches(
        self, inputs: Mapping[str, object], signature: str
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the outputs for at most `batch_size` rows at a time."""
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
        known = self._known
        if known is None or str(signature) not in known.signatures:
            known = self.metadata()
        return find_interface(known.signatures, signature)


def _pairs(texts: object, texts_b: object) -> dict[str, object]:
    return {"text": texts} if texts_b is None else {"text": texts, "text_b": texts_b}


def _encode(value: object) -> bytes:
    """Encode a text as UTF-8."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise ValueError(f"A text must be str or bytes. Received: {shown(value)}.")
    if "\0" in value:
        raise ValueError(
            f"A text must not contain NUL characters. Received: {shown(value)}. Pass binary data "
            "as bytes."
        )
    return encode(value)


def _num_rows(arrays: Arrays) -> int:
    shapes = {name: array.shape for name, array in arrays.items()}
    sizes = {shape[:1] for shape in shapes.values()}
    if len(sizes) != 1 or not sizes.isdisjoint({(), (0,)}):
        received = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"All inputs must have the same number of rows, at least one. Received: {received}."
        )
    [(num_rows,)] = sizes
    return num_rows


def _decoded(array: np.ndarray) -> np.ndarray:
    """Decode the elements of an array that are valid UTF-8."""
    return np.vectorize(_text, [object])(array) if array.dtype == object else array


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _concatenate(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate arrays along axis 0, padding the other axes to the largest size."""
    if len(arrays) == 1 or not arrays[0].ndim:
        return arrays[0]
    shape = np.max([array.shape for array in arrays], axis=0)
    fill = "" if arrays[0].dtype == object else 0
    return np.concatenate(
        [
            np.pad(x, [(0, 0), *((0, n) for n in shape[1:] - x.shape[1:])], constant_values=fill)
            for x in arrays
        ]
    )
