"""Client for a model server: TensorFlow Serving, or the development server, by REST.

B: rows in a request, D: hidden width, k: predictions per mask, M: maximum number of masks per text.
"""

import contextlib
import dataclasses
import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import urllib3
from google.protobuf import json_format
from tensorflow.core.protobuf import meta_graph_pb2

from keras_bert_d2l.checks import check_choice, check_integer, check_that, shown
from keras_bert_d2l.inference.heads import Prediction
from keras_bert_d2l.printing import printable
from keras_bert_d2l.serving.protocol import (
    DEFAULT_SIGNATURE,
    Interface,
    find_interface,
    interfaces,
    to_array,
    to_arrays,
    to_json,
)
from keras_bert_d2l.tasks.choose.predictions import Choice
from keras_bert_d2l.tasks.classify.predictions import Classification
from keras_bert_d2l.tasks.regress.predictions import Regression
from keras_bert_d2l.tasks.rerank.predictions import Ranked, ranked
from keras_bert_d2l.tasks.tag.predictions import Entity, Tag, entities

_Read = TypeVar("_Read")
_Texts: TypeAlias = str | list[str]
_PARSING = (AttributeError, LookupError, TypeError, ValueError, RecursionError, json_format.Error)
_REJECTED = ValueError, "The server rejected the request."
_LATE = TimeoutError, "Increase `timeout`, or send fewer texts per request (`batch_size`)."
_FAILURES: dict[int, tuple[type[Exception], str]] = {  # by HTTP status
    **dict.fromkeys((400, 413), _REJECTED),
    **dict.fromkeys((408, 504), _LATE),
    404: (LookupError, "The server does not have this model or version."),
    503: (ConnectionError, "The server is too busy, or not running: `keras-bert-d2l serve PATH`."),
}


class Metadata(NamedTuple):
    """The served version of a model, and the inputs and outputs of its signatures by name."""

    version: int
    signatures: dict[str, Interface]


@dataclasses.dataclass(frozen=True)
class ServedAnswer:
    """An answer extracted from a context.

    Attributes:
        text: `context[start:end]`, or `""` for no answer.
        score: Probability of the answer among the max(20, k) best answers.
        start: Index of the first character of the answer in its context.
        end: Index after its last character.
        null_score: Logit of "no answer" minus the logit of the best span of the context.
    """

    text: str
    score: float
    start: int
    end: int
    null_score: float


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
        timeout: float = 60.0,
        batch_size: int = 32,
    ) -> None:
        is_url = str(url).startswith(("http://", "https://"))
        check_that(is_url, "url", "an address that starts with http:// or https://", url)
        check_that(bool(model), "model", "the name of the model on the server", model)
        check_that(timeout > 0, "timeout", "above 0", timeout)
        check_integer("batch_size", batch_size, 1)
        self._url = f"{url.rstrip('/')}/v1/models/{urllib.parse.quote(model, safe='')}"
        if version is not None:
            self._url += f"/versions/{version}"
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout, maxsize=16)
        self._batch_size = batch_size
        self._known: Metadata | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def metadata(self) -> Metadata:
        """Return the served version and the inputs and outputs of its signatures."""
        known = self._known = self._request("/metadata", _metadata)
        return known

    def predict(
        self, inputs: Mapping[str, object], signature_name: str = DEFAULT_SIGNATURE
    ) -> dict[str, np.ndarray]:
        """Call any signature.

        Args:
            inputs: One (nested) list or array per input of the signature. The first dimension is
                the number of rows B. An input without dimensions is sent with all of them. Strings
                are `str`, or `bytes` with any content.
            signature_name: Name of the signature.

        Returns: arrays by name. Strings are `str`, or `bytes` if they are not UTF-8. If several
            requests were sent, outputs of different sizes are padded with zeros or empty strings.
        """
        specs, outputs = self._interface(signature_name)
        arrays = to_arrays(inputs, specs)
        sizes = {x.shape[:1] for name, x in arrays.items() if specs[name].shape != ()}
        if len(sizes) != 1 or not sizes.isdisjoint({(), (0,)}):
            received = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
            raise ValueError(
                f"All inputs must have the same number of rows, at least one. Received: {received}."
            )

        def read(document: dict[str, Any]) -> dict[str, np.ndarray]:
            answer = document["outputs"]
            if len(outputs) == 1:  # a single output has no name
                answer = dict.fromkeys(outputs, answer)
            return {name: to_array(answer[name], spec) for name, spec in outputs.items()}

        answers = []
        [(num_rows,)] = sizes
        for start in range(0, num_rows, self._batch_size):
            end = start + self._batch_size
            columns = {k: to_json(x[start:end] if x.ndim else x) for k, x in arrays.items()}
            body = {"signature_name": signature_name, "inputs": columns}
            try:
                answers.append(self._request(":predict", read, body))
            except (ValueError, LookupError, RuntimeError):
                self._known = None  # the server may have loaded a version with other signatures
                raise
        return {name: _joined([one[name] for one in answers]) for name in outputs}

    def fill_mask(self, texts: _Texts) -> list[list[Prediction]] | list[list[list[Prediction]]]:
        """Predict the masked tokens, like `keras_bert_d2l.fill_mask`.

        Args:
            texts: A text, or a list of texts, containing the vocabulary's mask token, for example
                `[MASK]`.

        Returns: for one text, a list with k predictions per mask, most likely first. It is empty
            if the text has no masks. For a list of texts, a list of such lists.
        """
        needed = ("positions", "tokens", "ids", "scores")
        return self._ask(_masks, {"text": texts}, needed, "fill_mask")

    def embed(
        self, texts: _Texts, *, prompt_name: Literal["query", "document"] | None = None
    ) -> np.ndarray:
        """Return one vector per text, like `keras_bert_d2l.embed`.

        Args:
            texts: A text, or a list of texts.
            prompt_name: What the texts are, for a model with prompts. `None`: the model's default
                prompt is used.

        Returns: float32 `(D,)` for one text, `(B, D)` for a list.
        """
        signature = "embed"
        if prompt_name is not None:
            check_choice("prompt_name", prompt_name, ("query", "document"))
            named = f"embed_{prompt_name}"
            if named in (self._known or self.metadata()).signatures:  # else it has no such prompt
                signature = named
        return np.array(self._ask(list, {"text": texts}, ("embedding",), signature), np.float32)

    def rerank(self, query: str, texts: list[str], *, top_k: int | None = None) -> list[Ranked]:
        """Sort texts by how well they answer a query, like `keras_bert_d2l.rerank`.

        Args:
            query: The query.
            texts: The texts, at least one.
            top_k: Maximum number of results. `None`: all texts.

        Returns: one `Ranked` per text, best first.
        """
        found = self.predict({"query": query, "texts": texts}, "rerank")
        return ranked(texts, found["scores"], top_k)

    def next_sentence_score(self, texts: _Texts, texts_b: _Texts) -> float | list[float]:
        """Predict the probability that the second text follows the first.

        Args:
            texts: A text, or a list of texts.
            texts_b: The second text, or a list of second texts of the same length.

        Returns: the probability of "is next". For lists, a list of probabilities.
        """
        inputs = {"text": texts, "text_b": texts_b}
        return self._ask(lambda scores: float(scores[1]), inputs, ("nsp",), "nsp")

    def classify(
        self, texts: _Texts, texts_b: _Texts | None = None
    ) -> Classification | list[Classification]:
        """Classify texts with a served `SequenceClassifier`.

        Args:
            texts: A text, or a list of texts.
            texts_b: Second text of each pair, for a model exported with `pairs=True`.

        Returns: a `Classification`. For lists, a list of them.
        """
        outputs = self._interface(DEFAULT_SIGNATURE).outputs
        needed = ("labels", "scores", "is_label" if "is_label" in outputs else "label")
        return self._ask(Classification.of, {"text": texts, "text_b": texts_b}, needed)

    def regress(
        self, texts: _Texts, texts_b: _Texts | None = None
    ) -> Regression | list[Regression]:
        """Score texts with a served `SequenceRegressor`.

        Args and returns: as of `classify`, but a `Regression`.
        """
        inputs = {"text": texts, "text_b": texts_b}
        others = ("label", "is_label", "words")  # of classifiers and taggers
        return self._ask(Regression.of, inputs, ("labels", "scores"), none_of=others)

    def tag(
        self, texts: _Texts, *, aggregate: Literal["none", "first"] = "none"
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
        if isinstance(texts, str):
            return self.tag([texts], aggregate=aggregate)[0]  # type: ignore[return-value]
        needed = ("words", "labels", "scores", "starts", "ends")
        found = self._ask(_tags, {"text": texts}, needed)
        if aggregate == "none":
            return found
        labels = {one.label for tags in found for one in tags}
        return [entities(tags, text, labels) for tags, text in zip(found, texts, strict=True)]

    def answer(self, questions: _Texts, contexts: _Texts) -> ServedAnswer | list[ServedAnswer]:
        """Extract the answers to questions with a served `QuestionAnswerer`.

        Args:
            questions: A question, or a list of questions.
            contexts: The text to search, or a list with one text per question.

        Returns: the best `ServedAnswer`. For lists, a list of them.
        """
        needed = ("answer", "score", "start", "end", "null_score")
        return self._ask(ServedAnswer, {"question": questions, "context": contexts}, needed)

    def choose(
        self, texts: _Texts, choices: Sequence[str] | Sequence[Sequence[str]]
    ) -> Choice | list[Choice]:
        """Find the choice that fits each text best with a served `MultipleChoice` model.

        Args:
            texts: A text, or a list of texts.
            choices: The choices for the text, or a list of equally many choices for each text.
                Missing choices may be empty strings, which score 0.

        Returns: a `Choice`. For lists, a list of them.
        """
        needed = ("index", "choice", "score", "scores")
        return self._ask(_choice, {"text": texts, "choices": choices}, needed)

    def _ask(
        self,
        convert: Callable[..., object],
        inputs: Mapping[str, object],
        needed: Sequence[str],
        signature: str = DEFAULT_SIGNATURE,
        none_of: Sequence[str] = (),
    ) -> Any:
        """Return what `convert` makes of the `needed` outputs of each row, or of a single text.

        `none_of` are outputs of other tasks whose signatures also have all that are needed.
        """
        names = self._interface(signature).outputs.keys()
        if not names >= {*needed} or not names.isdisjoint(none_of):
            without = f" without {', '.join(none_of)}" if none_of else ""
            raise ValueError(
                f"The signature {shown(signature)} must return {', '.join(needed)}{without}. "
                "Received: a model whose signature returns "
                f"{', '.join(sorted(names)):.200}. Query a model for this task."
            )
        rows = {name: value for name, value in inputs.items() if value is not None}
        is_single = isinstance(next(iter(rows.values()), None), str)
        if is_single:
            rows = {name: [value] for name, value in rows.items()}
        outputs = self.predict(rows, signature)
        columns = (outputs[name].tolist() for name in needed)
        found = [convert(*row) for row in zip(*columns, strict=True)]
        return found[0] if is_single else found

    def _interface(self, signature: str) -> Interface:
        return find_interface((self._known or self.metadata()).signatures, signature)

    def _request(
        self,
        ending: str,
        read: Callable[[dict[str, Any]], _Read],
        body: Mapping[str, object] | None = None,
    ) -> _Read:
        """Send a request, and return what `read` makes of the JSON of the response.

        Without a `body`, the method is GET.
        """
        url = self._url + ending
        try:
            reply = self._pool.request("POST" if body else "GET", url, json=body)
        except urllib3.exceptions.HTTPError as error:
            is_late = isinstance(error, urllib3.exceptions.ReadTimeoutError)
            raise _failure(504 if is_late else 503, url, f"did not respond: {error}") from error
        if reply.status != 200:
            # The way TensorFlow Serving escapes its messages is not always valid JSON.
            reason = reply.data[:500].decode("utf-8", "replace")
            with contextlib.suppress(*_PARSING):
                reason = str(json.loads(reply.data)["error"])
            raise _failure(reply.status, url, f"returned {reply.status}: {printable(reason)}")
        try:
            return read(json.loads(reply.data))
        except _PARSING as error:
            raise RuntimeError(
                f"{url} did not respond like a model server: {error!r:.200}. Check the address. If "
                "the server has just loaded a different version, try again."
            ) from error


def _failure(status: int, url: str, reason: str) -> Exception:
    """Return the exception for an HTTP status."""
    failed = RuntimeError, "The server failed, or is not a model server."
    kind, message = _FAILURES.get(status, failed)
    return kind(f"{message} {url} {reason}")


def _metadata(document: dict[str, Any]) -> Metadata:
    definitions = document["metadata"]["signature_def"]["signature_def"]
    found = {
        name: json_format.ParseDict(one, meta_graph_pb2.SignatureDef(), ignore_unknown_fields=True)
        for name, one in definitions.items()
    }
    return Metadata(int(document["model_spec"]["version"]), interfaces(found))


def _masks(places: list[int], *outputs: list) -> list[list[Prediction]]:
    # Rows are padded to M masks with position 0, which is [CLS].
    return [
        [Prediction(*one) for one in zip(*mask, strict=True)]
        for place, *mask in zip(places, *outputs, strict=True)
        if place
    ]


def _tags(*outputs: list) -> list[Tag]:
    words = (Tag(*word) for word in zip(*outputs, strict=True))
    return [tag for tag in words if tag.end]  # rows are padded with zeros


def _choice(index: int, choice: str, score: float, scores: list[float]) -> Choice:
    return Choice(index, choice, score, tuple(scores))


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate arrays along axis 0, padding the other axes, and decode UTF-8."""
    found = arrays[0]
    if arrays[1:] and found.ndim:
        shape = np.max([array.shape for array in arrays], axis=0)
        widths = [[(0, 0), *((0, n) for n in shape[1:] - x.shape[1:])] for x in arrays]
        fill = b"" if found.dtype == object else 0
        padded = (np.pad(x, w, constant_values=fill) for x, w in zip(arrays, widths, strict=True))
        found = np.concatenate([*padded])
    return np.vectorize(_text, [object])(found) if found.dtype == object else found


def _text(value: bytes) -> str | bytes:
    with contextlib.suppress(UnicodeDecodeError):
        return value.decode("utf-8")
    return value
