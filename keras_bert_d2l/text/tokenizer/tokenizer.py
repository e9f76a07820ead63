"""Strings in, token ids out, and back: a `Tokenizer` made of TensorFlow ops.

B: texts in the batch, T: tokens in a row, W: windows of all texts.
"""

from typing import Any

import tensorflow as tf

from keras_bert_d2l.text.normalization import Normalization
from keras_bert_d2l.text.tokenizer.framing import (
    ADDED_TO_ONE,
    ADDED_TO_PAIR,
    as_rows,
    check_max_len,
    check_same_number,
    frame,
    frame_values,
    truncate,
)
from keras_bert_d2l.text.tokenizer.offsets import pieces_with_offsets
from keras_bert_d2l.text.tokenizer.windows import answer_spans, sliding_windows
from keras_bert_d2l.text.tokenizer.wordpiece import Pieces, WordPieces
from keras_bert_d2l.text.vocab.vocab import Vocab

# What `detokenize` takes back after the tokens were joined by spaces.
_SPACING = (
    (r" ##", ""),
    (r" ([.,:;!?%)\]}])", r"\1"),
    (r"([(\[{$]) ", r"\1"),
    (r"(\pL) (['’]) (s|t|d|m|ll|re|ve)\b", r"\1\2\3"),
)
_NO_WORD = -1


class Tokenizer(tf.Module):
    """Turns texts into the token ids of a WordPiece vocabulary, inside the TensorFlow graph.

    Clean, lower and strip accents (`lowercase`), split at white space and punctuation, then take
    the longest pieces that the vocabulary has. With `compat="google"` the ids are those of
    `tokenization.py` of google-research/bert, for every text of characters of Unicode 14; with
    `compat="huggingface"` those of `BertTokenizer` (tokenizers 0.23.3). The two differ in words of
    101 to 200 characters, in private-use characters, in the final sigma and in a thousand
    characters that are younger than Unicode 8. A word with bytes that are not UTF-8 is unknown.

    A special token written in the text (`"[MASK]"`, in the spelling of the vocabulary) stays
    whole, as it does at Hugging Face's and not at google's.

    It works eagerly, in a `tf.function`, in `tf.data.Dataset.map` (map after batching: one call
    on a thousand texts is far faster than a thousand calls) and in a SavedModel, which then loads
    where `tensorflow` and `tensorflow_text` are imported.

    Args:
        vocab: The `Vocab`.
        lowercase: Whether the vocabulary is of lowered words without accents ("uncased").
        compat: Whose ids are wanted, `"google"` or `"huggingface"`.
        split_special_tokens: Whether special tokens in a text are text like any other.

    Call arguments:
        texts: A string, a list of strings, or a string tensor `(B,)` (a single one: B = 1).
        texts_b: The second text of each pair, as `texts`; None for single texts.
        max_len: None (rows are as long as the longest) or the length T of every row. What is too
            long loses tokens at its end.
        truncation: Which text of a pair loses them: `"longest_first"`, that is the longer text
            until both are equally long, and then both (an odd token stays with the text that was
            longer, or with `texts_b`), `"only_first"` or `"only_second"`.

    Returns: a dictionary of int32 tensors: `tokens` `(B, T)`, that is `[CLS] a [SEP]` or
        `[CLS] a [SEP] b [SEP]` and padding; `segments` `(B, T)`, 1 from `b` to the last `[SEP]`
        and 0 elsewhere; `valid_lens` `(B,)`, tokens that are no padding.

    Raises:
        ImportError: tensorflow-text is not installed or does not match TensorFlow.
        ValueError: The texts are no strings or of a higher rank, the two texts are not equally
            many, `max_len` has no room for a token of each text, or an option has no such value.
    """

    def __init__(
        self,
        vocab: Vocab,
        lowercase: bool = True,
        compat: str = "google",
        split_special_tokens: bool = False,
    ) -> None:
        super().__init__(name="tokenizer")
        if not isinstance(vocab, Vocab):
            raise ValueError(
                f"`vocab` must be a Vocab. Received: {vocab!r:.80}; "
                "`Vocab.from_file(path)` reads one."
            )
        self.vocab = vocab
        self.lowercase = lowercase
        self.compat = compat
        self.split_special_tokens = split_special_tokens
        self._normalize = Normalization(
            vocab.special_tokens, lowercase, compat, split_special_tokens
        )
        self._word_pieces = WordPieces(vocab, self._normalize)

    @property
    def options(self) -> dict[str, Any]:
        """What `Tokenizer(vocab, **options)` makes the same tokenizer of."""
        return {
            "lowercase": self.lowercase,
            "compat": self.compat,
            "split_special_tokens": self.split_special_tokens,
        }

    def __call__(
        self,
        texts: Any,
        texts_b: Any = None,
        max_len: int | None = None,
        truncation: str = "longest_first",
    ) -> dict[str, tf.Tensor]:
        is_pair = texts_b is not None
        check_max_len(max_len, ADDED_TO_PAIR if is_pair else ADDED_TO_ONE, 1 + is_pair)
        tokens_a = self.tokenize(texts)
        tokens_b = self.tokenize(texts_b) if is_pair else None
        return frame(tokens_a, tokens_b, vocab=self.vocab, max_len=max_len, truncation=truncation)

    def tokenize(self, texts: Any) -> tf.RaggedTensor:
        """Returns the token ids of texts, without adding special tokens.

        Args:
            texts: A string, a list of strings, or a string tensor `(B,)`.

        Returns: ids, ragged int32 `(B, None)`.

        Raises:
            ValueError: The texts are no strings or of a higher rank.
        """
        return self._word_pieces.ids(self._normalize(_as_texts(texts)))

    def with_offsets(self, texts: Any) -> dict[str, tf.RaggedTensor]:
        """Returns the token ids of texts and where in the text each token stands.

        Offsets count characters (code points, as Python's strings do) of the original text: token
        t of a text is made of `text[starts[t]:ends[t]]`. `text.offsets.tokens_at` goes back.

        Args:
            texts: A string, a list of strings, or a string tensor `(B,)`.

        Returns: a dictionary of ragged int32 tensors `(B, None)`: `tokens` (those of `tokenize`),
            `starts`, and `ends` (the last character plus one).

        Raises:
            ValueError: The texts are no strings or of a higher rank.
        """
        names = ("tokens", "starts", "ends")
        return dict(zip(names, self._with_offsets(texts), strict=True))

    def windows(
        self, questions: Any, contexts: Any, max_len: int, overlap: int = 0
    ) -> dict[str, tf.Tensor]:
        """Puts each question before every part of its context, as far as rows have room.

        The parts of a context are as long as `max_len` allows and overlap by `overlap` tokens; a
        context that fits is one window.

        Args:
            questions: The first text of each pair, as `texts` of a call, never cut.
            contexts: The second text, B as well.
            max_len: Length T of every row.
            overlap: Tokens that a window has in common with the one before.

        Returns: a dictionary of int32 tensors: `tokens`, `segments` `(W, T)` and `valid_lens`
            `(W,)` as those of a call; `starts` and `ends` `(W, T)`, the characters of the
            question (segment 0) or the context (segment 1) that a token is made of, both 0 for
            special tokens and padding; `rows` `(W,)`, the pair that a window is of.
            `answer_spans` finds answers in them.

        Raises:
            ValueError: A question leaves no room (in a graph an `InvalidArgumentError`), or an
                argument is not what it should be.
        """
        pieces_a, pieces_b = self._with_offsets(questions), self._with_offsets(contexts)
        check_same_number(pieces_a[0], pieces_b[0])
        return sliding_windows(
            pieces_a, pieces_b, vocab=self.vocab, max_len=max_len, overlap=overlap
        )

    def answer_spans(self, windows: dict[str, Any], starts: Any, ends: Any) -> tf.Tensor:
        """Returns where answers are in `windows`, as `text.windows.answer_spans`."""
        return answer_spans(windows, starts, ends)

    def from_words(self, words: Any, max_len: int | None = None) -> dict[str, tf.Tensor]:
        """Makes a batch of texts that are split into words, and says which token is of which.

        Args:
            words: Words of each text, ragged strings `(B, None)` or lists of lists; a word may
                give several tokens, or none.
            max_len: None (rows are as long as the longest) or the length T of every row.

        Returns: `tokens`, `segments` and `valid_lens` as those of a call, and `word_ids`, int32
            `(B, T)`: the word's position in its text, -1 for special tokens and padding.

        Raises:
            ValueError: The words are no strings, or `max_len` has no room for one token.
        """
        check_max_len(max_len, ADDED_TO_ONE, 1)
        words = _as_words(words)
        pieces = words.with_values(self.tokenize(words.values))
        positions = tf.ragged.range(words.row_lengths())
        word_ids = tf.repeat(tf.cast(positions.values, tf.int32), pieces.values.row_lengths())
        tokens = pieces.merge_dims(1, 2)
        word_ids, _ = truncate(tokens.with_values(word_ids), None, max_len)
        return {
            **frame(tokens, vocab=self.vocab, max_len=max_len),
            "word_ids": frame_values(word_ids, None, _NO_WORD, max_len),
        }

    def detokenize(self, ids: Any) -> tf.Tensor:
        """Returns readable texts for token ids.

        Padding, start and separator are left out, other special tokens are written as they are.
        Pieces are joined to words; there is no space before `. , : ; ! ? % ) ] }`, after
        `( [ { $`, nor within contractions such as "don't". Case, accents and the remaining
        spaces of the original text are lost.

        Args:
            ids: int `(B, T)`, dense, ragged or nested lists; or one row `(T,)`, then B = 1.

        Returns: strings `(B,)`.

        Raises:
            ValueError: The ids are no integers, of another rank, or (called eagerly) outside the
                vocabulary.
        """
        ids = as_rows(ids)
        _check_ids(ids, len(self.vocab))
        values = ids.flat_values
        framing = (self.vocab.pad_id, self.vocab.cls_id, self.vocab.sep_id)
        is_text = tf.reduce_all(values[:, tf.newaxis] != tf.constant(framing, values.dtype), axis=1)
        ids = tf.ragged.boolean_mask(ids, ids.with_flat_values(is_text))
        pieces = ids.with_flat_values(tf.gather(tf.constant(self.vocab.tokens), ids.flat_values))
        texts = tf.strings.reduce_join(pieces, axis=1, separator=" ")
        for pattern, replacement in _SPACING:
            texts = tf.strings.regex_replace(texts, pattern, replacement)
        return texts

    def _with_offsets(self, texts: Any) -> Pieces:
        return pieces_with_offsets(_as_texts(texts), self._normalize, self._word_pieces)


def _as_texts(texts: Any) -> tf.Tensor:
    expected = "Texts must be a string, a list of strings or a string tensor (B,)."
    try:
        tensor = tf.convert_to_tensor(texts, tf.string)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{expected} Received: {texts!r:.120} ({type(texts).__name__})."
        ) from error
    if tensor.shape.rank is not None and tensor.shape.rank > 1:
        raise ValueError(
            f"{expected} Received: a tensor of shape {tensor.shape}; flatten it first."
        )
    return tensor if tensor.shape.rank == 1 else tf.reshape(tensor, [-1])


def _as_words(words: Any) -> tf.RaggedTensor:
    expected = "Words must be a list of words for each text, or ragged strings (B, None)."
    try:
        if not isinstance(words, tf.RaggedTensor | tf.Tensor):
            words = tf.ragged.constant(words, tf.string, ragged_rank=1)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected} Received: {words!r:.120}.") from error
    if words.shape.rank != 2 or words.dtype != tf.string:
        raise ValueError(f"{expected} Received: {words.dtype.name} of shape {words.shape}.")
    if not isinstance(words, tf.RaggedTensor):
        words = tf.RaggedTensor.from_tensor(words)
    return words.with_row_splits_dtype(tf.int64)


def _check_ids(ids: tf.RaggedTensor, vocab_size: int) -> None:
    if not tf.executing_eagerly():
        return
    outside = ids.flat_values.numpy()
    outside = outside[(outside < 0) | (outside >= vocab_size)]
    if outside.size:
        raise ValueError(
            f"An id must be in 0..{vocab_size - 1}, this vocabulary has {vocab_size} tokens. "
            f"Received: {outside[0]}."
        )
