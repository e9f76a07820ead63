"""Tokens that stay whole in a text, which Hugging Face's tokenizers find before anything else.

B: texts in the batch.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_bert_d2l.text.normalization import split_at
from keras_bert_d2l.text.tokenizer.characters import Step, normalized_text
from keras_bert_d2l.text.unicode_gaps import character_class, white_space
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

NO_TOKEN = -1
# Stand before added tokens of the original and of the normalized text. No word has these bytes.
_MARKS = (b"\xfe", b"\xff")
SPACES = f"[{character_class(white_space())}]*"


class AddedTokens(tf.Module):
    """Finds the added tokens of a vocabulary in texts.

    Tokens that are not `normalized` are found in the original text, the others later in the
    normalized text. The longest of several matches wins, as in Hugging Face's tokenizers.

    Args:
        vocab: A `Vocab` with a definition.
        normalizers: The normalizers of the tokenizer.
        words: Words whose ids `word_ids` returns, and these ids.
    """

    def __init__(
        self, vocab: Vocab, normalizers: Sequence[Step], words: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(name="added_tokens")
        entries = [e for e in (vocab.definition or {})["added_tokens"] if e["content"]]
        raw = {e["content"]: e for e in entries if not e.get("normalized")}
        tokens = [entry for entry in entries if entry.get("normalized")]
        normalized = {normalized_text(e["content"], normalizers): e for e in tokens}
        # Tokens that were found before must not be cut by those of the normalized text.
        both = [pattern for pattern in (pattern_of(raw), pattern_of(normalized)) if pattern]
        self._patterns = (pattern_of(raw), "|".join(both) if normalized else "")
        self.normalized = {entry["content"]: text for text, entry in normalized.items()}
        # TensorFlow never frees all of a table, so one has all that is looked up.
        ids: dict[bytes, int] = {text.encode(): number for text, number in (words or {}).items()}
        for mark, found in zip(_MARKS, (raw, raw | normalized), strict=True):
            ids |= {mark + text.encode(): vocab[e["content"]] for text, e in found.items()}
        # A table must not be empty.
        self._ids = table([*_MARKS, *ids], np.array([NO_TOKEN, NO_TOKEN, *ids.values()], np.int32))
        self._strips = any(e.get("lstrip") or e.get("rstrip") for e in entries)

    def cut(self, texts: tf.Tensor, normalized: bool) -> tf.RaggedTensor:
        """Split texts before and after each token of the original or of the normalized text.

        Returns:
            The pieces of the texts, ragged strings `(B, None)`. White space that a token includes
            is part of its piece. Pieces between tokens may be empty.
        """
        pattern = self._patterns[normalized]
        if not pattern:
            return tf.RaggedTensor.from_row_lengths(texts, tf.ones_like(texts, tf.int64), False)
        return split_at(texts, pattern)

    def start(self, texts: tf.Tensor) -> tf.Tensor:
        """Return whether each text starts with a token, bool `(B,)`."""
        either = "|".join(pattern for pattern in self._patterns if pattern)
        return tf.strings.regex_full_match(texts, f"(?s)({either or 'x^'}).*")

    def ids(self, pieces: tf.Tensor, normalized: bool = True) -> tf.Tensor:
        """Return the id of each piece of `cut`, int32 `(B,)`, or -1 for other text.

        Without `normalized`, the tokens of the normalized text are other text.
        """
        ids = self._ids.lookup(tf.strings.join([_MARKS[normalized], pieces]))
        if self._strips:
            stripped = tf.strings.regex_replace(pieces, f"^{SPACES}|{SPACES}$", "")
            stripped = tf.strings.join([_MARKS[normalized], stripped])
            ids = tf.where(ids == NO_TOKEN, self._ids.lookup(stripped), ids)
        return ids

    def word_ids(self, words: tf.Tensor) -> tf.Tensor:
        """Return the id of each of the given words, int32 `(B,)`, or -1 for other words."""
        return self._ids.lookup(words)


def table(
    keys: Sequence[str | bytes] | np.ndarray, values: np.ndarray, dtype: tf.DType = tf.string
) -> tf.lookup.StaticHashTable:
    """Return a table with keys of a dtype, in which other keys have the value -1."""
    pairs = tf.lookup.KeyValueTensorInitializer(keys, values, dtype)
    return tf.lookup.StaticHashTable(pairs, NO_TOKEN)


def pattern_of(tokens: Mapping[str, ConfigDict]) -> str:
    """Return a regular expression for tokens that prefers the longest."""
    longest_first = sorted(tokens, key=lambda token: len(token.encode()), reverse=True)
    return "|".join(
        (SPACES if tokens[token].get("lstrip") else "")
        + "".join(rf"\x{{{ord(c):x}}}" for c in token)
        + (SPACES if tokens[token].get("rstrip") else "")
        for token in longest_first
    )
