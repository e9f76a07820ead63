"""Embed, label and rerank texts in pipelines of Apache Beam, on many machines in parallel."""

import threading
from collections.abc import Sequence
from typing import Any

import keras

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.loading import load_pretrained, load_task
from keras_bert_d2l.checks import check_choice
from keras_bert_d2l.contract.task import task_named
from keras_bert_d2l.data.store.beam import apache_beam
from keras_bert_d2l.types import Option, PathLike

try:
    from apache_beam.ml.inference.base import ModelHandler, PredictionResult
except ImportError:  # the constructor says how to install it
    ModelHandler = object

_FUNCTIONS = ("embed", "embed_sparse", "classify", "regress", "tag", "rerank")
_AT_ONCE = 1024  # elements per batch of Beam, at most
_ONE_AT_A_TIME = threading.Lock()  # a function uses all cores, and traces its graph once


class KerasBERTHandler(ModelHandler):
    """Runs a function of this package on a collection of texts with Beam's `RunInference`.

    Each worker process loads the model once, for all its threads. Beam collects the elements into
    batches, which the function runs in smaller ones, sorted by length. To keep a key beside each
    text, use Beam's `KeyedModelHandler`.

    Source: github.com/apache/beam, `sdks/python/apache_beam/ml/inference/base.py`.

    Args:
        path: The checkpoint, as for `load_pretrained`: a folder that every worker can read under
            this path, or a name of the Hugging Face Hub.
        function: `"embed"`, `"embed_sparse"`, `"classify"`, `"regress"` or `"tag"` of texts, or
            `"rerank"` of pairs of a query and a list of texts.
        **options: Options of the function, such as `prompt_name="document"` or `batch_size=64`.

    Raises:
        ImportError: Apache Beam is not installed.
        ValueError: `function` is unknown.

    Example:
        >>> import apache_beam as beam
        >>> from apache_beam.ml.inference.base import RunInference
        >>> import keras_bert_d2l as kb
        >>> handler = kb.KerasBERTHandler("minilm", "embed", batch_size=64)
        >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
        ...     texts = pipeline | beam.Create(["a first text", "a second text"])
        ...     vectors = texts | RunInference(handler) | beam.Map(lambda found: found.inference)
    """

    def __init__(self, path: PathLike, function: str = "embed", **options: Option) -> None:
        apache_beam()
        check_choice("function", function, _FUNCTIONS)
        super().__init__(max_batch_size=_AT_ONCE)
        self._path, self._function, self._options = str(path), function, options

    def load_model(self) -> keras.Model:
        """Load the model, in a worker."""
        if self._function in ("embed", "rerank"):
            return load_task(task_named(self._function).model, self._path, verbose=False).model
        return load_pretrained(self._path, heads=(), verbose=False).model

    def run_inference(
        self, batch: Sequence[Any], model: keras.Model, inference_args: dict[str, Any] | None = None
    ) -> list[Any]:
        """Return a `PredictionResult` for each element; its `inference` is what the function says.

        Args:
            batch: The texts, or the pairs of a query and its texts.
            model: The model.
            inference_args: More options of the function.
        """
        ask, options = getattr(kb, self._function), {**self._options, **(inference_args or {})}
        with _ONE_AT_A_TIME:
            if self._function == "rerank":
                found = [ask(model, query, texts, **options) for query, texts in batch]
            else:
                found = ask(model, list(batch), **options)
        return [PredictionResult(*pair, self._path) for pair in zip(batch, found, strict=True)]
