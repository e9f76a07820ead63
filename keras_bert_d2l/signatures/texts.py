"""The signatures that take strings: tokenization, character spans, and what all models share.

B: texts in a batch, T: tokens in a row, N: spans, D: hidden width.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert_d2l.contract.registry import task_named
from keras_bert_d2l.models.tasks.preprocessor import FEATURES, Preprocessor
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.signatures.signature import (
    TEXT,
    TEXT_B,
    Answer,
    ExportedModel,
    Signature,
    TextOptions,
    filled,
    traced_once,
)
from keras_bert_d2l.text.normalization import character_class, encode
from keras_bert_d2l.text.tokenizer.framing import require
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.unicode_gaps import white_space
from keras_bert_d2l.text.vocab import Vocab

_ACCENT, _SPACE = r"\p{Mn}", f"[{character_class(white_space())}]"
_WINDOWS_PER_STEP = 32  # maximum batch size of the model, to limit memory use
_STEP = 8  # the shortest length, and the distance between the lengths up to 64

Batch = dict[str, tf.Tensor]
"""`tokens` and `segments`, int32 `(B, T)`, and `valid_lens`, int32 `(B,)`."""


class Characters:
    """The characters of texts, computed with TensorFlow's built-in ops.

    A character is a code point, as in Python strings. Each byte that is not UTF-8 counts as one
    character and becomes the replacement character, because JSON is UTF-8.

    Args:
        texts: Strings `(B,)`.
    """

    def __init__(self, texts: tf.Tensor) -> None:
        self._codes = tf.strings.unicode_decode(texts, "UTF-8")

    def spans(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Return spans of the texts.

        Args:
            rows: Index of the text of each span, int `(N,)`.
            starts: Index of the first character of each span, int32 `(N,)`.
            ends: Index after the last character of each span, int32 `(N,)`.

        Returns: strings `(N,)`.
        """
        # `tf.strings.substr` would need a copy of the complete text for each span.
        offset = self._num_before(rows)
        places = tf.ragged.range(offset + starts, offset + ends)
        return encode(places.with_values(tf.gather(self._codes.values, places.values)))

    def whole(
        self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, has_spaces: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Exclude the spaces around spans of tokens, and move their ends past combining accents.

        Tokens of some tokenizers begin or end with spaces. Normalization may remove accents, so no
        token contains them. They belong to the letter before.

        Args:
            rows: Index of the text of each span, int `(N,)`.
            starts: Index of the first character of each span, int32 `(N,)`.
            ends: Index after the last character of each span, int32 `(N,)`.
            has_spaces: Whether tokens may contain spaces. Those of WordPiece do not.

        Returns: the starts and the ends, both `(N,)`.
        """
        if has_spaces:
            starts = self.starts_after_spaces(rows, starts)
            ends = self.ends_before_spaces(rows, ends)
        return starts, self.ends_with_accents(rows, ends)

    def ends_with_accents(self, rows: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Extend the ends `(N,)` of spans past the combining accents that follow."""
        return self._past(_ACCENT, rows, ends)

    def starts_after_spaces(self, rows: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Move the starts `(N,)` of spans past the spaces there."""
        return self._past(_SPACE, rows, starts)

    def ends_before_spaces(self, rows: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Move the ends `(N,)` of spans before the spaces there."""
        offset = self._num_before(rows)
        others = tf.concat([[-1], self._others(_SPACE)], axis=0)
        last = tf.gather(others, tf.searchsorted(others, offset + ends) - 1)
        return tf.maximum(last + 1 - offset, 0)

    def _past(self, pattern: str, rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
        """Move places in texts, int32 `(N,)`, past the following characters of a pattern."""
        others = self._others(pattern)
        text_ends = tf.cast(tf.gather(self._codes.row_limits(), rows), tf.int32)
        offset = self._num_before(rows)
        number = tf.searchsorted(others, offset + places)
        # If only such characters follow, the place is where the last text ends.
        following = tf.concat([others, [tf.size(self._codes.values)]], axis=0)
        return tf.minimum(tf.gather(following, number), text_ends) - offset

    def _others(self, pattern: str) -> tf.Tensor:
        """Return the places of the characters that do not match a pattern, int32 `(M,)`."""
        distinct, place = tf.unique(self._codes.values)
        matches = tf.strings.regex_full_match(encode(distinct[:, tf.newaxis]), pattern)
        return tf.cast(tf.where(~tf.gather(matches, place))[:, 0], tf.int32)

    def _num_before(self, rows: tf.Tensor) -> tf.Tensor:
        """Return the total number of characters in the texts before each row's text."""
        return tf.cast(tf.gather(self._codes.row_starts(), rows), tf.int32)


def padded_lengths(max_len: int) -> tuple[int, ...]:
    """Return the lengths T that rows are padded to: 8, 16, 24, ..., 64, 80, 96, ... and `max_len`.

    Padding adds at most 7 tokens to texts of up to 64 tokens, and at most a quarter to longer ones.
    A server prepares kernels and memory for each shape, so a few fixed lengths limit this work.
    """
    lengths, length, step = [], _STEP, _STEP
    while length < max_len:
        lengths.append(length)
        step *= 2 if length == 8 * step else 1
        length += step
    return (*lengths, max_len)


def mask_positions(tokens: tf.Tensor, vocab: Vocab) -> tf.Tensor:
    """Return the positions of the masks in each row `(B, T)`, padded with 0, int32 `(B, M)`."""
    is_mask = tokens == vocab.mask_id
    places = tf.broadcast_to(tf.range(tf.shape(is_mask)[1]), tf.shape(is_mask))
    return tf.ragged.boolean_mask(places, is_mask).to_tensor(0)  # 0 is [CLS], never a mask


def checked_pairs(text: tf.Tensor, text_b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the texts of pairs. The graph fails if their shapes differ."""
    message = "Both inputs must have the same number of texts, one pair per row."
    with tf.control_dependencies(require(tf.shape(text) == tf.shape(text_b), message)):
        return tf.identity(text), tf.identity(text_b)


class TextSignatures:
    """String signatures of a model, with a subclass for every kind of model but `TextEmbedder`.

    Texts longer than the model's `max_len` are truncated and flagged in the output
    `truncated` (bool `(B,)`). Rows are padded to the next of a few lengths, which does not affect
    the outputs.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: The options that apply to the kind of model.

    Attributes:
        specs: String inputs of `answer`.
        preprocess: Converts strings to rows.
        lengths: The lengths that rows may have.
    """

    specs: tuple[tf.TensorSpec, ...] = (TEXT,)

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        self.run = run
        self.vocab = tokenizer.vocab
        model = run.model
        kind = model.preprocessing if isinstance(model, TaskModel) else Preprocessor
        self.preprocess: Any = kind(model, tokenizer)
        self.lengths = padded_lengths(self.preprocess.max_len(1 + options.pairs))
        self._single = traced_once(self._batch, (TEXT,))

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return the outputs of `serving_default` for strings, each `(B,)`."""
        return self.embed(*texts)

    def batch(self, text: tf.Tensor, text_b: tf.Tensor | None = None) -> tuple[Batch, tf.Tensor]:
        """Return the rows of texts or pairs, and whether each was truncated, bool `(B,)`."""
        return self._single(text) if text_b is None else self._batch(*checked_pairs(text, text_b))

    def _batch(self, *texts: tf.Tensor) -> tuple[Batch, tf.Tensor]:
        rows = self.preprocess.rows(*texts)
        truncated = rows["num_tokens"] > self.preprocess.max_len(len(texts))
        return self.padded(rows), truncated

    def padded(self, rows: Batch) -> Batch:
        """Return the features of rows, padded to the shortest sufficient of the lengths."""
        lengths = tf.constant(self.lengths)
        place = tf.searchsorted(lengths, tf.shape(rows["tokens"])[1:])
        features = {name: rows[name] for name in (*FEATURES, "starts", "ends") if name in rows}
        return self.preprocess.padded(features, tf.gather(lengths, place)[0])

    def in_steps(self, windows: Batch, *outputs: str) -> Answer:
        """Run the model on the windows of long texts, a few at a time.

        Args:
            windows: The batch, `(W, T)`.
            *outputs: The names of the outputs to return, with one place per token.
        """
        num_windows = tf.shape(windows["valid_lens"])[0]
        num_steps = tf.maximum(-(-num_windows // _WINDOWS_PER_STEP), 1)
        size = -(-num_windows // num_steps)  # steps of equal size; the last window may repeat
        places = tf.minimum(tf.range(num_steps * size), num_windows - 1)

        def run(places: tf.Tensor) -> Answer:
            names = ("tokens", "segments", "valid_lens")
            found = self.run(**{name: tf.gather(windows[name], places) for name in names})
            return {name: found[name] for name in outputs}

        found = tf.map_fn(
            run,
            tf.reshape(places, [num_steps, size]),
            fn_output_signature=dict.fromkeys(outputs, tf.float32),
            parallel_iterations=1,
        )
        return {
            name: tf.reshape(x, tf.concat([[num_steps * size], tf.shape(x)[2:]], 0))[:num_windows]
            for name, x in found.items()
        }

    def embed(self, text: tf.Tensor) -> Answer:
        """Return one vector per text.

        Args:
            text: Strings `(B,)`.

        Returns: `embedding`, float32 `(B, D)`, as from `keras_bert_d2l.embed`, and `truncated`,
            bool `(B,)`.
        """
        batch, truncated = self.batch(text)
        return {"embedding": self.run(**batch)["embedding"], "truncated": truncated}

    def signatures(self) -> dict[str, Signature]:
        """Return the signatures by name."""
        answer = traced_once(self.answer, self.specs)
        found = {"serving_default": self.of_strings(answer, *self.specs)}
        if self.run.embeds:
            found["embed"] = self.of_strings(self.embed, TEXT)
        return found

    def of_strings(self, function: Callable[..., Answer], *specs: tf.TensorSpec) -> Signature:
        """Return the signature of a function of texts, and perhaps other inputs."""
        return Signature(function, specs, tuple(filled(spec, self._example) for spec in specs))

    @property
    def _example(self) -> bytes:
        """Text for warming up a server: a mask, so that `fill_mask` has something to predict."""
        return self.vocab.to_tokens(self.vocab.mask_id).encode()


class AnswerSignatures(TextSignatures):
    """Signatures of a model with one answer per text or pair of texts: what its `answer` says.

    Args:
        run: The model.
        tokenizer: The model's tokenizer.
        options: With `pairs`, the inputs are pairs of texts, as always if the task needs pairs.
    """

    def __init__(self, run: ExportedModel, tokenizer: Tokenizer, options: TextOptions) -> None:
        are_pairs = options.pairs or task_named(run.model.task).needs_text_b
        super().__init__(run, tokenizer, options._replace(pairs=are_pairs))
        self.specs = (TEXT, TEXT_B) if are_pairs else (TEXT,)

    def answer(self, *texts: tf.Tensor) -> Answer:
        """Return what the model says about texts.

        Args:
            *texts: `text`, and for pairs `text_b`, strings `(B,)`.

        Returns: the tensors of the model's `answer`; `truncated`, bool `(B,)`; and for a model with
            labels `labels`, strings `(B, C)` in the order of their ids, and with an `id` also the
            `label`, strings `(B,)`.
        """
        batch, truncated = self.batch(*texts)
        model: Any = self.run.model
        answer = dict(model.answer(self.run(**batch)[model.outputs[0]]))
        if hasattr(model, "labels"):
            names = tf.constant(np.array(model.labels, object))[tf.newaxis]
            answer["labels"] = tf.tile(names, [tf.shape(truncated)[0], 1])
            if "id" in answer:
                answer["label"] = tf.gather(answer["labels"], answer["id"], batch_dims=1)
        return {**answer, "truncated": truncated}
