"""What the page needs of a model and its tokenizer: JSON, and weights rounded to integers."""

import unicodedata
from collections.abc import Mapping

import numpy as np

from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.formats.task_fields import task_fields
from keras_bert_d2l.checkpoints.weights.transfer import stored_weights
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.models.tasks import TextEmbedder
from keras_bert_d2l.text.normalization import Normalization
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.wordpiece import MAX_WORD_CHARACTERS
from keras_bert_d2l.text.unicode_gaps import stand_ins
from keras_bert_d2l.types import ConfigDict

MOST_TOKENS = 128  # per text; the views of the attention are unreadable beyond
_LARGEST = 127  # integers from -127 to 127
# 6 bits, for large tables of token vectors: after compression, they need a quarter less space.
_LARGEST_IN_LARGE_TABLE = 31
_LARGE_TABLE = 4_000_000  # weights


def page_length(model: BERTModel | TextEmbedder) -> int:
    """Return the maximum number of tokens per text on the page."""
    return min(model.bert_config.max_len, MOST_TOKENS)


def page_weights(model: BERTModel | TextEmbedder) -> dict[str, np.ndarray]:
    """Return the float32 weights of the encoder and, if it is trained, of the MLM head.

    Kernels are transposed, so the rows of all matrices are the outputs or the tokens.

    Raises:
        ValueError: The model is quantized.
    """
    weights = stored_weights(model, native.table(model.bert_config, task_fields(model)))
    found = {
        name: value.T if name.endswith("/kernel") else value
        for name, value in weights.items()
        if name.startswith(("encoder/", "mlm/"))
    }
    found.pop("encoder/pos_embedding", None)
    if model.encoder.pos_embedding is not None:  # learned or sinusoidal
        table = np.asarray(model.encoder.pos_embedding, "float32")[0]
        found["encoder/pos_embedding"] = table[: page_length(model)]
    return found


def rounded(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round a matrix to integers with one scale per row.

    Args:
        weights: float32 `(rows, columns)`.

    Returns: the scales, float32 `(rows,)`, and the integers, int8 `(rows, columns)`, whose product
        approximates the weights.
    """
    largest = _LARGEST_IN_LARGE_TABLE if weights.size > _LARGE_TABLE else _LARGEST
    scales = np.maximum(np.abs(weights).max(axis=1), 1e-30).astype("float32") / largest
    return scales, np.rint(weights / scales[:, None]).astype("int8")


def weight_bytes(weights: Mapping[str, np.ndarray]) -> tuple[bytes, bytes]:
    """Return the vectors and the scales as float32, and the rounded matrices as int8."""
    floats, integers = [], []
    for value in weights.values():
        if value.ndim == 2:
            value, values = rounded(value)  # the scales take the place of the matrix
            integers.append(values.ravel())
        floats.append(value)
    return np.concatenate(floats).astype("<f4").tobytes(), np.concatenate(integers).tobytes()


def tokenizer_data(tokenizer: Tokenizer) -> ConfigDict:
    """Return the vocabulary and the options of a tokenizer."""
    vocab, options = tokenizer.vocab, tokenizer.options
    normalization = Normalization(vocab.special_tokens, **options)
    # Characters that Hugging Face's older Unicode tables treat as letters or as punctuation.
    unusual = stand_ins(normalization.compat, True)
    is_letter = {code: unicodedata.category(chr(new)) == "Co" for code, new in unusual.items()}
    return {
        "tokens": list(vocab.tokens),
        "standardTokens": list(vocab.special_tokens),
        "ownTokens": list(normalization.special_tokens),
        "lowercase": normalization.lowercase,
        "stripAccents": normalization.strips_accents,
        "splitChinese": normalization.tokenize_chinese_chars,
        "splitSpecials": normalization.split_special_tokens,
        "likeGoogle": normalization.compat == "google",
        "maxCharacters": MAX_WORD_CHARACTERS[normalization.compat],
        "letters": [code for code in is_letter if is_letter[code]],
        "punctuation": [code for code in is_letter if not is_letter[code]],
    }
