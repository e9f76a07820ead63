"""Load a folder of `export_onnx` and answer like a SavedModel, without TensorFlow.

B: texts in a batch, T: tokens in a row, M: maximum number of masks per text, C: labels, D: hidden
width, k: predictions per mask.
"""

import os
import pathlib
from collections.abc import Mapping
from hashlib import sha256

import numpy as np
import onnxruntime
import tokenizers

from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.reading import DAMAGE, check_folder, errors_naming, read_json_object
from keras_bert_d2l.serving.protocol import CARD_FILE, ONNX_FILE, Arrays, Interface, Spec
from keras_bert_d2l.serving.server.served import TokenCounter
from keras_bert_d2l.text.vocab import JSON_FILE, Vocab, vocab_file_in
from keras_bert_d2l.types import PathLike

_REMEDY = "Export the model with `keras-bert-d2l export --format onnx`."
_OURS = {"sentence_embedding": "embedding", "pooler_output": "pooled"}
# Outputs of the file that each signature answers with, if the file has them. That of
# `serving_default` has all further ones, the model's answer.
_OTHERS = ("logits", "nsp_logits", "mlm_logits", "mlm_ids", "mlm_scores", "last_hidden_state")
_ANSWERS = {
    "tokens": ("sentence_embedding", "pooler_output", "nsp_logits", "logits"),
    "embed": ("sentence_embedding",),
    "nsp": ("nsp",),
    "fill_mask": ("mlm_ids", "mlm_scores"),
}
_PAIR = {name: Spec((None,), np.dtype(object), name) for name in ("text", "text_b")}
_TEXT = {"text": _PAIR["text"]}
_TOKENS = {
    name: Spec((None,) * rank, np.dtype("int32"), name)
    for name, rank in (("tokens", 2), ("segments", 2), ("valid_lens", 1))
}
_EMPTY = np.array([b""], object)


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
        check_folder(folder)
        if verify:
            verify_checksums(folder)
        with errors_naming(path, " is not a folder of `export --format onnx`", _REMEDY, DAMAGE):
            card = read_json_object(folder / CARD_FILE)
            self._config, self._task = card["config"], card["task"] or {"kind": None}
            vocabulary, options = card["vocabulary"], card["tokenizer"] or {}
            self._keeps_end = options.get("truncation_side") == "left"
            pad = read_json_object(folder / "config.json")["pad_token_id"]
            shapes = {name: tensor["shape"] for name, tensor in card["outputs"].items()}
        self._outputs = {*shapes}
        self._answer = tuple(name for name in shapes if name not in _OTHERS)
        of_tokens = any("length" in shapes[name] for name in self._answer)
        if not self._answer or of_tokens or vocabulary is None:
            raise ValueError(
                "An ONNX folder is served if it has a tokenizer and one answer per text. Received: "
                f"{os.fspath(path)!r}, a {self._task['kind']} with the outputs "
                f"{', '.join(shapes)}. Serve the SavedModel of `keras-bert-d2l export` instead."
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
        self.counter = TokenCounter(self._lengths, (cls, sep, pad), self.max_len)
        self._run_options = onnxruntime.RunOptions()
        # Otherwise, the memory of the largest request would be kept.
        self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._inputs = {one.name for one in self._session.get_inputs()}
        self.interfaces: dict[str, Interface] = {}
        texts = _PAIR if self._task.get("pairs") else _TEXT
        signatures = {"serving_default": texts, "tokens": _TOKENS}
        if "sentence_embedding" in self._outputs:
            signatures["embed"] = _TEXT
        if "nsp" in self._outputs:
            signatures["nsp"] = _PAIR
        if "mlm_ids" in self._outputs:
            self._vocab = Vocab.from_file(vocab_file_in(folder))
            signatures["fill_mask"] = _TEXT
        example = {**dict.fromkeys(_PAIR, _EMPTY), "valid_lens": np.ones(1, "int32")}
        for name, specs in signatures.items():  # the outputs for a short text tell their shapes
            self.interfaces[name] = Interface(specs, {})
            given = {key: example.get(key, np.zeros((1, 1), "int32")) for key in specs}
            for key, x in self.ask(name, given).items():
                sizes = [size or None for size in x.shape[1:]]  # an empty text has no masks
                self.interfaces[name].outputs[key] = Spec((None, *sizes), x.dtype, key)

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
            return self._run(signature, **inputs)
        texts = [*inputs.values()]
        # If there are no texts, the model computes with an empty one.
        batch, truncated = self._batch(texts if any(map(len, texts)) else [_EMPTY] * len(texts))
        if signature == "fill_mask":
            found = self._fill_mask(batch)
        else:
            found = dict(self._run(signature, **batch))
        if "labels" in self._task and signature == "serving_default":
            labels = np.array([label.encode() for label in self._task["labels"]], object)
            found["labels"] = np.tile(labels, (len(truncated), 1))
            found |= {"label": labels[found["id"]]} if "id" in found else {}
        found["truncated"] = truncated
        return {name: x[: len(texts[0])] for name, x in found.items()}

    def _fill_mask(self, batch: Arrays) -> dict[str, np.ndarray]:
        """Return what the signature of a SavedModel answers, each `(B, M)` or `(B, M, k)`."""
        is_mask = batch["tokens"] == self._vocab.mask_id
        numbers = is_mask.sum(axis=1)
        is_real = np.arange(numbers.max()) < numbers[:, None]
        positions = np.zeros(is_real.shape, "int32")
        positions[is_real] = is_mask.nonzero()[1]
        found = self._run("fill_mask", positions, **batch)
        ids, scores = (found[name] * is_real[..., None] for name in _ANSWERS["fill_mask"])
        tokens = np.full(ids.shape, b"", object)
        for place in zip(*is_real.nonzero(), strict=True):
            tokens[place] = [self._vocab.spelled(x).encode() for x in ids[place].tolist()]
        return {"tokens": tokens, "scores": scores, "ids": ids, "positions": positions}

    def _run(
        self, signature: str, positions: np.ndarray | None = None, **batch: np.ndarray
    ) -> Arrays:
        """Return the outputs of the file for a batch, by our names.

        `fill_mask` also needs the `positions` of the masks, `(B, M)`.
        """
        tokens, segments, valid_lens = (batch[name] for name in _TOKENS)
        width = tokens.shape[1]
        if segments.shape != tokens.shape or valid_lens.shape != tokens.shape[:1]:
            raise ValueError("`tokens`, `segments` and `valid_lens` must have the same rows.")
        num_tokens = self._config.get("num_tokens") or self._config["vocab_size"]
        num_segments = max(self._config["num_segments"], 2)
        _check("tokens", tokens, 0, num_tokens - 1)
        _check("segments", segments, 0, num_segments - 1)
        _check("valid_lens", valid_lens, 1, width)
        _check("tokens", np.array([width]), 1, self.max_len, " per row")
        given = {
            "input_ids": tokens,
            "token_type_ids": segments,
            "attention_mask": np.arange(width) < valid_lens[:, None],
        }
        given = {name: x.astype("int64") for name, x in given.items() if name in self._inputs}
        if positions is not None:
            given["pred_positions"] = positions.astype("int64")
        wanted = _ANSWERS.get(signature, self._answer)
        names = [name for name in wanted if name in self._outputs]
        outputs = self._session.run(names, given, self._run_options)
        found = {_OURS.get(name, name): x for name, x in zip(names, outputs, strict=True)}
        return {k: x.astype("int32") if x.dtype == "int64" else x for k, x in found.items()}

    def _batch(self, texts: list[np.ndarray]) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return the inputs of `_run` for texts or pairs, and whether each was truncated.

        The library could truncate pairs, too, but it keeps every combination of what it removes
        from both texts, which are millions if the texts are very long.
        """
        if len({*map(len, texts)}) > 1:
            raise ValueError("Both inputs must have the same number of texts, one pair per row.")
        cls, sep, pad = self.counter.special_ids
        num_added = self._tokenizer.num_special_tokens_to_add(is_pair=len(texts) > 1)
        room, rows, truncated = self.max_len - num_added, [], []
        for parts in zip(*map(self._encode, texts), strict=True):
            truncated.append(sum(map(len, parts)) > room)
            kept = _kept(room, *map(len, parts))
            first, *second = (
                part.ids[max(len(part) - size, 0) :] if self._keeps_end else part.ids[:size]
                for part, size in zip(parts, kept, strict=False)
            )
            separators = [sep] * (num_added - len(texts))
            rows.append(([cls, *first, *separators], [x for ids in second for x in (*ids, sep)]))
        valid_lens = np.array([len(first) + len(second) for first, second in rows])
        tokens = np.full((len(rows), max(valid_lens)), pad)
        segments = np.zeros_like(tokens)
        for row, (first, second) in enumerate(rows):
            tokens[row, : valid_lens[row]] = first + second
            segments[row, len(first) : valid_lens[row]] = 1
        batch = {"tokens": tokens, "segments": segments, "valid_lens": valid_lens}
        return batch, np.array(truncated)

    def _encode(self, texts: np.ndarray) -> list[tokenizers.Encoding]:
        """Tokenize texts, without special tokens."""
        strings = [text.decode("utf-8", "replace") for text in texts]
        return self._tokenizer.encode_batch(strings, add_special_tokens=False)

    def _lengths(self, texts: np.ndarray) -> np.ndarray:
        return np.array([*map(len, self._encode(texts))]) + 2  # the tokens before and after a text


def _kept(room: int, first: int, second: int = 0) -> tuple[int, ...]:
    """Return how many tokens of two texts fit into `room`, from their lengths."""
    of_shorter = min(first, second, room // 2)
    kept = of_shorter, room - of_shorter
    return kept[::-1] if first > second else kept


def _check(name: str, x: np.ndarray, least: int, most: int, what: str = "") -> None:
    for wrong in x[(x < least) | (x > most)]:
        raise ValueError(f"`{name}` must be from {least} to {most}{what}. Received: {wrong}.")
