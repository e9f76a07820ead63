"""Load a folder of `export_onnx` and answer like a SavedModel, without TensorFlow.

B: texts in a batch, T: tokens in a row, W: rows of all texts, M: maximum number of masks per text,
N: maximum number of words or choices per text, k: predictions per mask or answers per question.
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnxruntime
import tokenizers

from keras_bert_d2l.files import verify_checksums
from keras_bert_d2l.reading import DAMAGE, errors_naming, read_json_object
from keras_bert_d2l.serving.protocol import (
    CARD_FILE,
    CRF_FILE,
    ONNX_FILE,
    Arrays,
    Interface,
    Spec,
    Specs,
)
from keras_bert_d2l.serving.server.onnx_tags import Tagger
from keras_bert_d2l.serving.server.onnx_texts import NUM_BEST, NumPyPreprocessor
from keras_bert_d2l.text.vocab import JSON_FILE, Vocab, vocab_file_in
from keras_bert_d2l.types import PathLike

_REMEDY = "Export the model with `keras-bert-d2l export --format onnx`."
_SIDES = ("start_logits", "end_logits")
_OURS = {
    "sentence_embedding": "embedding",
    "pooler_output": "pooled",
    "start_logits": "start",
    "end_logits": "end",
}
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
# Outputs of the file that each signature answers with, if the file has them. That of
# `serving_default` has all further ones, the model's answer.
_OTHERS = ("logits", "nsp_logits", "mlm_logits", "mlm_ids", "mlm_scores", "last_hidden_state")
_ANSWERS = {
    "tokens": (
        "sentence_embedding",
        "pooler_output",
        "nsp_logits",
        "logits",
        "start_logits",
        "end_logits",
    ),
    **dict.fromkeys(("embed", "embed_query", "embed_document"), ("sentence_embedding",)),
    "nsp": ("nsp",),
    "fill_mask": ("mlm_ids", "mlm_scores"),
    "tags": ("id", "score"),
    "crf": ("logits",),
    "spans": _SIDES,
    "rerank": ("scores", "logits"),
}
_PAIR = {name: Spec((None,), np.dtype(object), name) for name in ("text", "text_b")}
_TEXT = {"text": _PAIR["text"]}
_TOKENS = {
    name: Spec((None,) * rank, np.dtype("int32"), name)
    for name, rank in (("tokens", 2), ("segments", 2), ("valid_lens", 1))
}
_QUESTION = {name: Spec((None,), np.dtype(object), name) for name in ("question", "context")}
_RERANK = {"query": Spec((), np.dtype(object), "query")}
_RERANK["texts"] = Spec((None,), np.dtype(object), "texts")
_CHOICES = {**_TEXT, "choices": Spec((None, None), np.dtype(object), "choices")}
_WORDS = {"words": Spec((None, None), np.dtype(object), "words")}
_OF_TAGGERS = {"entities": _TEXT, "words": _WORDS, "word_entities": _WORDS}
_EMPTY = np.array([b""], object)
_OF_ANSWERS = ("answers", "scores", "starts", "ends")  # the first of each is the best
_TOKENS_PER_STEP = 1024  # with padding; larger steps take more memory and no less time
_TOP_K = 5  # answers per question, as in the signatures of SavedModels


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
        with errors_naming(path, " is not a folder of `export --format onnx`", _REMEDY, DAMAGE):
            card = read_json_object(folder / CARD_FILE)
            self._config, self._task = card["config"], card["task"] or {"kind": None}
            vocabulary, options = card["vocabulary"], card["tokenizer"] or {}
            side = options.get("truncation_side", "right")
            self.prompts: Mapping[str, str] = {
                name: f"{text}" for name, text in card.get("prompts", {}).items()
            }
            self._skips_prompts = "prompt_lens" in card["inputs"]
            shapes = {name: tensor["shape"] for name, tensor in card["outputs"].items()}
        self._outputs = {*shapes}
        self._labels = np.array([x.encode() for x in self._task.get("labels", ())], object)
        has_crf = bool(self._task.get("crf"))
        others = _OTHERS[has_crf:]  # the logits are what a CRF needs
        self._answer = tuple(name for name in shapes if name not in others)
        self._long, texts = self._texts_of(shapes)
        if not self._answer or vocabulary is None or texts is None:
            raise ValueError(
                "An ONNX folder is served if it has a tokenizer and an answer. Received: "
                f"{os.fspath(path)!r}, a {self._task['kind']} with the outputs "
                f"{', '.join(shapes)}. Serve the SavedModel of `keras-bert-d2l export` instead."
            )
        self.version, self.name = 1, folder.name
        self._max_len = self._task.get("max_len") or self._config["max_len"]
        self.max_len = None if self._long else self._max_len
        session_options = onnxruntime.SessionOptions()
        session_options.log_severity_level = 3  # it warns about the default of `pred_positions`
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(file := os.fspath(folder / JSON_FILE))
            file = os.fspath(folder / ONNX_FILE)
            self._session = onnxruntime.InferenceSession(file, session_options)
            file = os.fspath(folder / CRF_FILE)
            self._crf = onnxruntime.InferenceSession(file, session_options) if has_crf else None
        except Exception as error:  # the libraries raise Exception itself and types of their own
            raise ValueError(f"{file!r} is damaged. Export the model again. {error}") from error
        if self._tokenizer.get_vocab_size() != vocabulary["size"]:
            raise ValueError(
                f"{os.fspath(folder / JSON_FILE)!r} must have the vocabulary of the model, "
                f"{vocabulary['size']} tokens. Received: {self._tokenizer.get_vocab_size()} "
                f"tokens. {_REMEDY}"
            )
        self._vocab = Vocab.from_file(vocab_file_in(folder))
        self._rows = NumPyPreprocessor(self._tokenizer, self._vocab, self._max_len, side)
        self._shrink = onnxruntime.RunOptions()
        # Otherwise, the memory of the largest batch would be kept. Batches of one step do without,
        # because it takes about a tenth of their time.
        self._shrink.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._inputs = {one.name for one in self._session.get_inputs()}
        self.interfaces: dict[str, Interface] = {}
        self._describe(texts, shapes)

    def _describe(self, texts: Specs, shapes: Mapping[str, Sequence]) -> None:
        """Set the inputs and outputs of all signatures, for the outputs `shapes` of the file."""
        signatures = {"serving_default": texts, "tokens": _TOKENS}
        signatures |= dict.fromkeys(self.prompts, _TEXT)
        if "nsp" in self._outputs:
            signatures["nsp"] = _PAIR
        if "mlm_ids" in self._outputs:
            signatures["fill_mask"] = _TEXT
        if self._long == self._tags:
            signatures |= _OF_TAGGERS
        if self._task.get("ranks"):
            signatures["rerank"] = _RERANK
        example = dict.fromkeys((*_PAIR, *_QUESTION, "texts"), _EMPTY)
        example["query"] = _EMPTY[0]
        example |= dict.fromkeys(("choices", "words"), np.zeros((1, 0), object))
        example["valid_lens"] = np.ones(1, "int32")
        for name, specs in signatures.items():  # the outputs for a short text tell their shapes
            self.interfaces[name] = Interface({**specs}, {})
            given = {key: example.get(key, np.zeros((1, 1), "int32")) for key in specs}
            for key, x in self.ask(name, given).items():
                sizes = [size or None for size in x.shape[1:]]  # an empty text has no masks
                if name == "tokens":
                    known = shapes[_THEIRS.get(key, key)][1:]
                    sizes = [n if isinstance(n, int) else None for n in known[: len(sizes)]]
                self.interfaces[name].outputs[key] = Spec((None, *sizes), x.dtype, key)

    def _texts_of(self, shapes: Mapping[str, Sequence]) -> tuple[Callable | None, Specs | None]:
        """Return the method that answers with several places of long texts, and the text inputs.

        The inputs are `None` if no method knows what the outputs for the tokens mean.
        """
        if "start_logits" in shapes and self._task.get("window_sizes"):
            return self._spans, _QUESTION
        if any("length" in shapes[name] for name in self._answer):
            has_labels = {"id", "score"} <= {*shapes} or self._task.get("crf")
            return self._tags, _TEXT if has_labels else None
        if "index" in shapes:
            return None, _CHOICES
        return None, _PAIR if self._task.get("pairs") else _TEXT

    def ask(self, signature: str, inputs: Arrays) -> Arrays:
        """Call a signature and return its outputs; see `Served`."""
        if "tokens" in inputs:
            return self._run(signature, **inputs)
        if "query" in inputs:
            return self._rerank(**inputs)
        texts = [*inputs.values()]
        if len({*map(len, texts)}) > 1:
            raise ValueError(
                "All inputs must have the same number of texts: one pair, or one text with its "
                "choices, per row."
            )
        # If there are no texts, the model computes with empty ones.
        given = texts if len(texts[0]) else [np.full((1, *x.shape[1:]), b"", object) for x in texts]
        if signature in _OF_TAGGERS:
            found = self._tags(given[0], joins=signature != "words")
        elif signature == "serving_default" and self._long:
            found = self._long(*given)
        elif "choices" in inputs:
            found = self._choices(*given)
        else:
            found = self._of_texts(signature, *given)
        return {name: x[: len(texts[0])] for name, x in found.items()}

    def _of_texts(self, signature: str, *texts: np.ndarray) -> dict[str, np.ndarray]:
        """Return one answer per text or pair."""
        prompt = self.prompts.get(signature, self.prompts.get("embed", ""))
        if prompt:
            texts = tuple(np.array([prompt.encode() + x for x in side], object) for side in texts)
        batch, truncated = self._rows.of_texts(*texts)
        if self._skips_prompts:
            batch = {**batch, "prompt_lens": np.full(len(truncated), self._prompt_len(prompt))}
        if signature == "fill_mask":
            found = self._fill_mask(batch)
        else:
            found = {name: np.array(x) for name, x in self._of_rows(signature, batch).items()}
        if "labels" in self._task and signature == "serving_default":
            found["labels"] = np.tile(self._labels, (len(truncated), 1))
            found |= {"label": self._labels[found["id"]]} if "id" in found else {}
        return {**found, "truncated": truncated}

    def _rerank(self, query: np.ndarray, texts: np.ndarray) -> dict[str, np.ndarray]:
        """Return the scores of texts for a query."""
        given, places = np.unique(texts if len(texts) else _EMPTY, return_inverse=True)
        repeated = np.full(len(given), query, object)
        batch, truncated = self._rows.of_texts(repeated, given)
        found = {name: np.concatenate(x) for name, x in self._of_rows("rerank", batch).items()}
        found |= {"num_tokens": batch["valid_lens"].astype("int32"), "truncated": truncated}
        return {name: x[places[: len(texts)]] for name, x in found.items()}

    def _prompt_len(self, prompt: str) -> int:
        """Return the number of first tokens in a row that belong to `[CLS]` and a prompt."""
        [encoded] = self._rows.encode(np.array([prompt.encode()], object))
        return 1 + min(len(encoded), self._max_len - 2) if prompt else 0

    def _choices(self, texts: np.ndarray, choices: np.ndarray) -> dict[str, np.ndarray]:
        """Return the best choice of each text. Empty choices are padding, with scores of 0."""
        found = {
            "choice": np.full(len(texts), b"", object),
            "index": np.zeros(len(texts), "int32"),
            "score": np.zeros(len(texts), "float32"),
            "scores": np.zeros(choices.shape, "float32"),
            "truncated": np.zeros(len(texts), bool),
        }
        for row, (text, all_choices) in enumerate(zip(texts, choices, strict=True)):
            [places] = (all_choices != b"").nonzero()
            if len(places):
                repeated = np.full(len(places), text, object)
                batch, truncated = self._rows.of_texts(repeated, all_choices[places])
                answer = self._run("serving_default", **batch)  # of all rows as choices of one text
                best = places[answer["index"][0]]
                found["choice"][row], found["index"][row] = all_choices[best], best
                found["score"][row], found["truncated"][row] = answer["score"][0], truncated.any()
                found["scores"][row, places] = answer["scores"][0]
        return found

    def _tags(self, texts: np.ndarray, joins: bool = False) -> Arrays:
        """Return the labels of words, or the entities, from windows of each text."""
        tagger = Tagger(self._rows, self._of_rows, self._task["labels"], self._crf)
        return tagger.ask(texts, joins)

    def _spans(self, questions: np.ndarray, contexts: np.ndarray) -> dict[str, np.ndarray]:
        """Return the best answers of contexts, `(B, k)`, from windows of each context."""
        encoded = map(self._rows.encode, (questions, contexts))
        found = [self._answer_of(*texts) for texts in zip(*encoded, contexts, strict=True)]
        columns = {name: np.array([one[name] for one in found]) for name in found[0]}
        columns["answers"] = columns["answers"].astype(object)
        first = {name.removesuffix("s"): columns[name][:, 0] for name in _OF_ANSWERS}
        return {**columns, **first}

    def _answer_of(
        self, question: tokenizers.Encoding, context: tokenizers.Encoding, text: bytes
    ) -> dict[str, object]:
        """Return what is answered about one context, with k best answers."""
        max_len, overlap = self._task["window_sizes"]
        num_added, string = self._vocab.num_added(2), text.decode("utf-8", "replace")
        most = max_len - num_added - 1 - overlap  # tokens of a question
        ids = self._rows.kept(question.ids, most)
        room, head = max_len - num_added - len(ids), num_added - 1 + len(ids)
        last = max(len(context) - room, 0)
        begins = range(0, last + room - overlap, room - overlap)
        rows = [[ids, context.ids[begin : begin + room]] for begin in begins]
        starts, ends = self._of_rows("spans", self._rows.framed(rows)).values()
        windows = [
            (begin, *(logits[head : head + len(tokens)] for logits in of_row))
            for begin, (_, tokens), *of_row in zip(begins, rows, starts, ends, strict=True)
        ]
        null = min(start[0] + end[0] for start, end in zip(starts, ends, strict=True))
        spans = self._rows.best_spans(context, string, windows, NUM_BEST)
        best, first = (spans[0][1] if spans else null), 0
        threshold = self._task.get("null_threshold")
        if threshold is not None:  # "no answer" is the first answer or none, and has a probability
            first = int(not spans or null - best <= threshold)
            spans = [((0, 0), null), *spans]
        logits = np.array([logit for _, logit in spans] or [null], "float32")
        powers = np.exp(logits - logits.max()) if spans else np.zeros(1, "float32")
        scores = (powers / max(powers.sum(), 1))[first:]
        places = np.zeros((_TOP_K, 2), "int32")
        for row, (place, _) in enumerate(spans[first : first + _TOP_K]):
            places[row] = place
        return {
            "answers": [string[start:end].encode() for start, end in places],
            "scores": np.append(scores, np.zeros(_TOP_K, "float32"))[:_TOP_K],
            "starts": places[:, 0],
            "ends": places[:, 1],
            "null_score": np.float32(null - best),
            "truncated": len(question) > most,
        }

    def _of_rows(self, signature: str, batch: Arrays) -> dict[str, list]:
        """Return the outputs of the file for each row, from a few rows at a time."""
        lengths = batch["valid_lens"]
        order = np.argsort(-lengths, kind="stable")  # similar lengths need little padding
        found, begin = dict[str, list](), 0
        while begin < len(order):
            width = lengths[order[begin]]
            rows = order[begin : begin + max(1, _TOKENS_PER_STEP // width)]
            some = {name: x[rows, :width] if x.ndim > 1 else x[rows] for name, x in batch.items()}
            for name, x in self._run(signature, **some).items():
                found.setdefault(name, []).extend(x)
            begin += len(rows)
        places = np.argsort(order)
        return {name: [x[place] for place in places] for name, x in found.items()}

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
        _check("tokens", np.array([width]), 1, self._config["max_len"], " per row")
        given = {
            "input_ids": tokens,
            "token_type_ids": segments,
            "attention_mask": np.arange(width) < valid_lens[:, None],
        }
        given = {name: x.astype("int64") for name, x in given.items() if name in self._inputs}
        given |= {name: x for name, x in batch.items() if name == "prompt_lens"}
        if positions is not None:
            given["pred_positions"] = positions.astype("int64")
        wanted = _ANSWERS.get(signature, self._answer)
        names = [name for name in wanted if name in self._outputs]
        options = self._shrink if tokens.size > _TOKENS_PER_STEP else None
        outputs = self._session.run(names, given, options)
        found = {_OURS.get(name, name): x for name, x in zip(names, outputs, strict=True)}
        if signature == "tokens" and "index" in self._outputs:
            found["logits"] = found["logits"][:, 0]  # one score per row
        return {k: x.astype("int32") if x.dtype == "int64" else x for k, x in found.items()}

    def count_tokens(self, texts: Sequence[str]) -> int:
        """Return the number of tokens that the model reads, as in `Served`."""
        encoded = self._tokenizer.encode_batch(texts)
        return sum(min(len(one), self._max_len) for one in encoded)


def _check(name: str, x: np.ndarray, least: int, most: int, what: str = "") -> None:
    for wrong in x[(x < least) | (x > most)]:
        raise ValueError(f"`{name}` must be from {least} to {most}{what}. Received: {wrong}.")
