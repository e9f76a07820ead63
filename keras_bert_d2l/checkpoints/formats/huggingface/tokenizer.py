"""Read and write Hugging Face's `vocab.txt` and `tokenizer_config.json`.

Source: github.com/huggingface/transformers, `models/bert/tokenization_bert.py`.
"""

import json
import pathlib
import warnings
from collections.abc import Iterator, Sequence

from keras_bert_d2l.files import read_json_object
from keras_bert_d2l.text.tokenizer.tokenizer import TokenizerOptions
from keras_bert_d2l.text.vocab.vocab import Vocab
from keras_bert_d2l.types import ConfigDict

VOCAB_FILE, OPTIONS_FILE = "vocab.txt", "tokenizer_config.json"

# In the order of `Vocab.special_tokens`.
_SPECIAL_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Read the vocabulary and the tokenizer options of a folder.

    The vocabulary is `None` if the folder has none. If our `Tokenizer` would produce different ids,
    a warning is issued and the vocabulary is also `None`.
    """
    file = path / VOCAB_FILE
    if not file.is_file():
        return None, {}
    vocab = Vocab.from_file(file)
    options_file = path / OPTIONS_FILE
    options = read_json_object(options_file) if options_file.is_file() else {}
    lowercase = options.get("do_lower_case", True)
    unsupported = list(_unsupported(options, vocab, lowercase))
    if unsupported:
        warnings.warn(
            f"The tokenizer of {str(options_file)!r} has {', '.join(unsupported)}, which is not "
            "supported. The checkpoint is loaded without a tokenizer.",
            stacklevel=3,
        )
        return None, {}
    return vocab, {
        "lowercase": lowercase,
        "compat": "huggingface",
        "split_special_tokens": options.get("split_special_tokens", False),
    }


def write_tokenizer(
    folder: pathlib.Path, vocab: Vocab, options: TokenizerOptions, max_len: int
) -> None:
    """Write the vocabulary and the options of a tokenizer."""
    vocab.to_file(folder / VOCAB_FILE)
    fields = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": options.get("lowercase", True),
        "split_special_tokens": options.get("split_special_tokens", False),
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": max_len,
        **dict(zip(_SPECIAL_TOKENS, vocab.special_tokens, strict=True)),
    }
    (folder / OPTIONS_FILE).write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")


def _unsupported(options: ConfigDict, vocab: Vocab, lowercase: object) -> Iterator[str]:
    """Yield the options for which Hugging Face's token ids differ from our tokenizer's."""
    supported: dict[str, Sequence[object]] = {
        "do_lower_case": (True, False),
        "split_special_tokens": (True, False),
        "do_basic_tokenize": (True, None),
        "tokenize_chinese_chars": (True, None),
        "strip_accents": (lowercase, None),
    }
    for name, values in supported.items():
        if name in options and options[name] not in values:
            yield f"{name}={options[name]!r}"
    for name, token in zip(_SPECIAL_TOKENS, vocab.special_tokens, strict=True):
        value = options.get(name, token)
        if isinstance(value, dict):  # the fields of an `AddedToken`
            value = value.get("content")
        if value != token:
            yield f"{name}={value!r}"
