"""Load a folder of `export_onnx` and answer like a SavedModel, without TensorFlow.

B: texts in a batch, T: tokens in a row, C: labels, D: hidden width.
"""

import os
import pathlib
from collections.abc import Iterator, Mapping
from hashlib import sha256

import numpy as np
import onnxruntime
import tokenizers

from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.reading import DAMAGE, errors_naming, read_json_object
from keras_bert_d2l.serving.protocol import CARD_FILE, ONNX_FILE, Arrays, Interface, Spec
from keras_bert_d2l.serving.server.served import TokenCounter
from keras_bert_d2l.text.vocab import JSON_FILE
from keras_bert_d2l.types import PathLike

_REMEDY = "Export the model with `keras-bert-d2l export-onnx --model CHECKPOINT --out FOLDER`."
_LIKELY = 0.5  # probability from which a label of several applies
_CLASSIFIER = "SequenceClassifier"
_TASKS = (None, _CLASSIFIER, "SequenceRegressor", "TextEmbedder")
_RENAMED = {"sentence_embedding": "embedding", "pooler_output": "pooled"}
_OMITTED = ("last_hidden_state", "mlm_logits")  # outputs that the server does not return
_TEXT = {"text": Spec((None,), np.dtype(object), "text")}
_TOKENS = {
    name: Spec((None,) * rank, np.dtype("int32"), name)
    for name, rank in (("tokens", 2), ("segments", 2), ("valid_lens", 1))
}


class ServedONNX:
    """A model in a folder of `export_onnx`, as a `Served`.

    Args:
        path: The folder. Its `tokenizer.json` tokenizes.
        verify: Whether to compare the files with the folder's `SHA256SUMS`, if it has one.

    Raises:
        ValueError: A file is missing, is damaged, has changed or belongs to another model, or the
            kind of model is not supported.
    """

    def __init__(self, path: PathLike, *, verify: bool = True) -> None:
        folder = pathlib.Path(path).resolve()
        if verify:
            verify_checksums(folder)
        with errors_naming(path, " is not a folder of `export-onnx`", _REMEDY, DAMAGE):
            card = read_json_object(folder / CARD_FILE)
            self._config, self._task = card["config"], card["task"] or {"kind": None}
            vocabulary = card["vocabulary"]
            pad = read_json_object(folder / "config.json")["pad_token_id"]
        if self._task["kind"] not in _TASKS or vocabulary is None:
            raise ValueError(
                "An ONNX folder is served if it has a tokenizer and a BERTModel, TextEmbedder, "
                f"SequenceClassifier or SequenceRegressor. Received: {os.fspath(path)!r}, a "
                f"{self._task['kind']}. Serve the SavedModel of `keras-bert-d2l export` instead."
            )
        self.version, self.name, self.max_len = 1, folder.name, self._config["max_len"]
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # it warns about the default of `pred_positions`
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(file := os.fspath(folder / JSON_FILE))
            cls, sep = self._tokenizer.encode("").ids
            file = os.fspath(folder / ONNX_FILE)
            self._session = onnxruntime.InferenceSession(file, options)
        except Exception as error:  # the libraries raise Exception itself and types of their own
            raise ValueError(f"{file!r} is damaged. Export the model again. {error}") from error
        self._check_vocabulary(vocabulary, folder / JSON_FILE)
        self._tokenizer.enable_truncation(self.max_len)
        self._tokenizer.enable_padding(pad_id=pad)
        self.counter = TokenCounter(self._lengths, (cls, sep, pad), self.max_len)
        self._run_options = onnxruntime.RunOptions()
        # Otherwise, the memory of the largest request would be kept.
        self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._inputs = {one.name for one in self._session.get_inputs()}
        self._outputs = [x.name for x in self._session.get_outputs() if x.name not in _OMITTED]
        self.interfaces: dict[str, Interface] = {}
        signatures = {"serving_default": _TEXT, "tokens": _TOKENS}
        if "sentence_embedding" in self._outputs:
            signatures["embed"] = _TEXT
        example = {"text": np.array([b""], object), "valid_lens": np.ones(1, "int32")}
        for name, specs in signatures.items():  # the outputs for a short text tell their shapes
            self.interfaces[name] = Interface(specs, {})
            given = {key: example.get(key, np.zeros((1, 1), "int32")) for key in specs}
            for key, x in self.ask(name, given).items():
                self.interfaces[name].outputs[key] = Spec((None, *x.shape[1:]), x.dtype, key)

    def _check_vocabulary(self, expected: Mapping[str, object], file: pathlib.Path) -> None:
        """Raise `ValueError` if the vocabulary is not the one that the model card describes."""
        ids = self._tokenizer.get_vocab()
        text = "".join(f"{token}\n" for token in sorted(ids, key=ids.__getitem__))
        is_hashed = isinstance(self._tokenizer.model, tokenizers.models.WordPiece)
        is_other = is_hashed and sha256(text.encode()).hexdigest() != expected["sha256"]
        if len(ids) != expected["size"] or is_other:
            raise ValueError(
                f"{os.fspath(file)!r} must have the vocabulary of the model, {expected['size']} "
                f"tokens. Received: {len(ids)} tokens of another vocabulary. {_REMEDY}"
            )

    def ask(self, signature: str, inputs: Arrays) -> Arrays:
        """Call a signature and return its outputs; see `Served`."""
        if "tokens" in inputs:
            return self._run(**inputs)
        # If there are no texts, the model computes with an empty one.
        rows = self._encode(inputs["text"]) or self._encode(np.array([b""], object))
        tokens, segments, mask = np.array(
            [(row.ids, row.type_ids, row.attention_mask) for row in rows]
        ).swapaxes(0, 1)
        found = dict(self._answer(signature, self._run(tokens, segments, mask.sum(axis=1))))
        found["truncated"] = np.array([bool(row.overflowing) for row in rows])
        return {name: x[: len(inputs["text"])] for name, x in found.items()}

    def _answer(self, signature: str, outputs: Arrays) -> Iterator[tuple[str, np.ndarray]]:
        """Yield what a SavedModel answers, from the outputs of `tokens`."""
        if "embedding" in outputs:
            yield "embedding", outputs["embedding"]
            if signature != "embed":
                yield from ((k, x) for k, x in outputs.items() if k == "pooled")
                yield from (("nsp", _softmax(x)) for k, x in outputs.items() if k == "nsp_logits")
            return
        scores = outputs["logits"]
        labels = np.array([label.encode() for label in self._task["labels"]], object)
        yield "labels", np.tile(labels, (len(scores), 1))
        if self._task["kind"] == _CLASSIFIER and self._task["multi_label"]:
            scores = 1 / (1 + np.exp(-scores))
            yield "is_label", scores >= _LIKELY
        elif self._task["kind"] == _CLASSIFIER:
            best, scores = scores.argmax(axis=1).astype("int32"), _softmax(scores)
            yield from (("label", labels[best]), ("score", scores.max(axis=1)), ("id", best))
        yield "scores", scores

    def _run(self, tokens: np.ndarray, segments: np.ndarray, valid_lens: np.ndarray) -> Arrays:
        """Return the outputs of the file for a batch, by our names."""
        width = tokens.shape[1]
        if segments.shape != tokens.shape or valid_lens.shape != tokens.shape[:1]:
            raise ValueError("`tokens`, `segments` and `valid_lens` must have the same rows.")
        num_tokens = self._config.get("num_tokens") or self._config["vocab_size"]
        num_segments = max(self._config["num_segments"], 2)
        _check("tokens", tokens, 0, num_tokens - 1)
        _check("segments", segments, 0, num_segments - 1)
        _check("valid_lens", valid_lens, 1, width)
        _check("tokens", np.array([width]), 1, self.max_len, " per row")
        batch = {
            "input_ids": tokens,
            "token_type_ids": segments,
            "attention_mask": np.arange(width) < valid_lens[:, None],
        }
        batch = {name: x.astype("int64") for name, x in batch.items() if name in self._inputs}
        outputs = self._session.run(self._outputs, batch, self._run_options)
        return {_RENAMED.get(name, name): x for name, x in zip(self._outputs, outputs, strict=True)}

    def _encode(self, texts: np.ndarray) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch([text.decode("utf-8", "replace") for text in texts])

    def _lengths(self, texts: np.ndarray) -> np.ndarray:
        return np.array([sum(row.attention_mask) for row in self._encode(texts)])


def _check(name: str, x: np.ndarray, least: int, most: int, what: str = "") -> None:
    for wrong in x[(x < least) | (x > most)]:
        raise ValueError(f"`{name}` must be from {least} to {most}{what}. Received: {wrong}.")


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)
