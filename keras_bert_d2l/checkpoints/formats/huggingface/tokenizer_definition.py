"""Read Hugging Face's tokenizers other than WordPiece, and the added tokens of all tokenizers.

Byte-level BPE and Unigram are defined by `tokenizer.json`. Otherwise, byte-level BPE is defined by
`vocab.json` and `merges.txt`, and Unigram by a SentencePiece model.

Source: github.com/huggingface/transformers, `models/roberta/tokenization_roberta.py` and
`convert_slow_tokenizer.py`.
"""

import contextlib
import pathlib
from collections.abc import Sequence

from keras_bert_d2l.checkpoints.formats.huggingface.config import CONFIG_FILE
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    OPTIONS_FILE,
    fields_of,
)
from keras_bert_d2l.checks import shown
from keras_bert_d2l.reading import (
    MOST_VOCAB_BYTES,
    check_size,
    errors_naming,
    has_file,
    read_json_object,
    read_small_text,
)
from keras_bert_d2l.text.definition import (
    KINDS,
    TOKEN_FLAGS,
    from_json,
    model_type,
)
from keras_bert_d2l.text.definition_checks import UnsupportedError
from keras_bert_d2l.text.sentencepiece_model import sentencepiece_fields
from keras_bert_d2l.text.vocab import JSON_FILE, VOCAB_FILE, SpecialTokensError, Vocab
from keras_bert_d2l.types import ConfigDict

IDS_FILE, MERGES_FILE = "vocab.json", "merges.txt"
SENTENCEPIECE_FILES = ("sentencepiece.bpe.model", "spiece.model")
SPECIALS_FILE, ADDED_FILE = "special_tokens_map.json", "added_tokens.json"

# In the order of `Vocab.special_tokens`.
SPECIAL_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
INVALID_TOKENS = (  # how `errors_naming` describes an error in `added_tokens`
    ". The added tokens in this folder are not valid",
    "Copy the tokenizer's files again.",
    (AttributeError, LookupError, TypeError, ValueError),
)
# The types of models whose tokenizers are read from a SentencePiece model.
_SENTENCEPIECE = {
    "XLMRobertaTokenizer": "xlm-roberta",
    "CamembertTokenizer": "camembert",
    "AlbertTokenizer": "albert",
}
_WITHOUT_SEGMENTS = ("XLMRobertaTokenizer", "CamembertTokenizer", "RobertaTokenizer")
_OWN_TOKENS = ("additional_special_tokens", "extra_special_tokens")  # transformers 4 and 5


def read_definition(
    path: pathlib.Path, fields: ConfigDict, options: ConfigDict
) -> tuple[Vocab | None, list[str]] | None:
    """Read the vocabulary of a tokenizer other than WordPiece.

    Args:
        path: The folder.
        fields: The fields of `tokenizer.json`, empty if there is none.
        options: The fields of `tokenizer_config.json`.

    Returns:
        The vocabulary, or `None` if it lacks a special token, and what is not supported; or `None`
        if the folder has no such tokenizer.

    Raises:
        ValueError: A file is damaged.
    """
    listed = {**fields_of(path / SPECIALS_FILE), **options}
    names = [content(listed.get(name)) for name in SPECIAL_TOKENS]
    if (defined := _defining_fields(path, fields, listed)) is None:
        return None
    file, fields = defined
    with errors_naming(path, *INVALID_TOKENS):
        fields = _with_added_tokens(fields, added_tokens(path, fields, options), names)
    with errors_naming(file):
        try:
            vocab = Vocab(*from_json(fields, names))
        except SpecialTokensError as error:
            return None, [str(error)]
        except UnsupportedError as error:
            return None, [error.parts]
    unsupported = []
    step = fields.get("pre_tokenizer") or {}
    adds_space = options.get("add_prefix_space", step.get("add_prefix_space"))
    if adds_space != step.get("add_prefix_space") and step.get("type") == "ByteLevel":
        unsupported.append(f"add_prefix_space={shown(adds_space)} beside {JSON_FILE}")
    return vocab, unsupported


def lacks_segments(path: pathlib.Path, vocab: Vocab | None) -> bool:
    """Return whether a tokenizer has no segments, also if only its model is loaded.

    Args:
        path: The folder. Of files that are damaged or not supported, only `config.json` counts.
        vocab: The vocabulary, or `None` if it was not read.
    """
    if vocab is None:
        with contextlib.suppress(ValueError, OSError):
            fields = fields_of(path / JSON_FILE, MOST_VOCAB_BYTES)
            vocab = (read_definition(path, fields, fields_of(path / OPTIONS_FILE)) or [None])[0]
    name = str(fields_of(path / CONFIG_FILE).get("tokenizer_class")).removesuffix("Fast")
    return name in _WITHOUT_SEGMENTS if vocab is None else not vocab.has_segments


def _with_added_tokens(
    fields: ConfigDict, added: dict[str, ConfigDict], special: Sequence[str | None]
) -> ConfigDict:
    """Return the fields of a `tokenizer.json` with the tokens that other files add."""
    listed = [*(fields.get("added_tokens") or ())]
    vocab = fields["model"]["vocab"]
    ids = {} if isinstance(vocab, dict) else {token: n for n, (token, _) in enumerate(vocab)}
    ids = {**(ids or vocab), **{entry["content"]: entry["id"] for entry in listed}}
    new = [entry for token, entry in added.items() if token not in {e["content"] for e in listed}]
    for entry in sorted(new, key=lambda entry: entry.get("id", len(ids) + len(new))):
        token, is_special = entry["content"], entry.get("special", entry["content"] in special)
        flags = dict.fromkeys(TOKEN_FLAGS, False) | {"normalized": not is_special}
        number = ids.setdefault(token, entry.get("id", len(ids)))
        listed.append({**flags, **entry, "special": is_special, "id": number})
    return {**fields, "added_tokens": listed}


def _defining_fields(
    path: pathlib.Path, fields: ConfigDict, options: ConfigDict
) -> tuple[pathlib.Path, ConfigDict] | None:
    """Return the file of a tokenizer other than WordPiece, and its fields of `tokenizer.json`."""
    if has_file(path / VOCAB_FILE):
        return None
    if has_file(path / JSON_FILE):
        return (path / JSON_FILE, fields) if model_type(fields) in KINDS else None
    if not (has_file(path / IDS_FILE) and has_file(path / MERGES_FILE)):
        return _sentencepiece_fields(path, options)
    vocab = read_json_object(path / IDS_FILE, MOST_VOCAB_BYTES)
    lines = read_small_text(path / MERGES_FILE, MOST_VOCAB_BYTES).split("\n")
    merges = [line.rstrip("\r") for line in lines if line.strip() and line[:9] != "#version:"]
    return path / MERGES_FILE, _roberta_fields(vocab, merges, options)


def _sentencepiece_fields(
    path: pathlib.Path, options: ConfigDict
) -> tuple[pathlib.Path, ConfigDict] | None:
    """Return the file of a SentencePiece model and its fields of `tokenizer.json`."""
    options = {**(config := fields_of(path / CONFIG_FILE)), **options}
    name = str(options.get("tokenizer_class")).removesuffix("Fast")
    kind = _SENTENCEPIECE.get(name, config.get("model_type"))
    files = [path / file for file in SENTENCEPIECE_FILES if has_file(path / file)]
    if not files or kind not in _SENTENCEPIECE.values():
        return None
    check_size(files[0], MOST_VOCAB_BYTES)
    with errors_naming(files[0]):
        return files[0], sentencepiece_fields(files[0].read_bytes(), str(kind), options)


def _roberta_fields(vocab: ConfigDict, merges: list[str], options: ConfigDict) -> ConfigDict:
    """Return the fields of `tokenizer.json` that transformers 4 uses for RoBERTa."""
    names = [content(options.get(name)) for name in SPECIAL_TOKENS]
    pad, unk, cls, sep, mask = (
        name or token
        for name, token in zip(names, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True)
    )
    flags = dict.fromkeys(TOKEN_FLAGS, False) | {"special": True}
    adds_space = bool(options.get("add_prefix_space", False))
    spaces = {"add_prefix_space": adds_space, "trim_offsets": True}
    return {
        "added_tokens": [
            {"id": vocab[token], "content": token, **flags, "lstrip": token == mask}
            for token in (pad, unk, cls, sep, mask)
            if token in vocab
        ],
        "pre_tokenizer": {"type": "ByteLevel", **spaces},
        "post_processor": {
            "type": "RobertaProcessing",
            **spaces,
            "sep": [sep, vocab.get(sep)],
            "cls": [cls, vocab.get(cls)],
        },
        "decoder": {"type": "ByteLevel", **spaces},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def added_tokens(
    path: pathlib.Path, fields: ConfigDict, options: ConfigDict
) -> dict[str, ConfigDict]:
    """Return the fields of each added token, from all files of a tokenizer.

    Arguments as for `read_definition`.
    """
    listed = [
        token if isinstance(token, dict) else {"content": token}
        for source in (fields_of(path / SPECIALS_FILE), options)
        for name in _OWN_TOKENS
        for own in (source.get(name) or (),)
        for token in (own.values() if isinstance(own, dict) else own)
    ]
    decoder = options.get("added_tokens_decoder", {})
    added: dict[str, ConfigDict] = {}
    for token in (
        *({"special": True, **token} for token in listed),
        *({"content": name, "id": n} for name, n in fields_of(path / ADDED_FILE).items()),
        *(fields.get("added_tokens") or ()),
        *({**token, "id": int(n)} for n, token in decoder.items()),
    ):
        added[token["content"]] = {**added.get(token["content"], {}), **token}
    return added


def content(token: object) -> str | None:
    """Return the text of a token, which may be given by the fields of an `AddedToken`."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None
