"""Read Hugging Face's tokenizers other than WordPiece, and the added tokens of all tokenizers.

They are defined by `tokenizer.json`. Without this file, byte-level BPE is defined by
`vocab.json` and `merges.txt`, and Unigram by a SentencePiece model.

Source: github.com/huggingface/transformers, `convert_slow_tokenizer.py`.
"""

import contextlib
import pathlib
from collections.abc import Collection, Iterable, Iterator, Sequence

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
    steps,
    template,
)
from keras_bert_d2l.text.definition_checks import UnsupportedError
from keras_bert_d2l.text.sentencepiece_model import SPECIALS, sentencepiece_fields
from keras_bert_d2l.text.vocab import JSON_FILE, VOCAB_FILE, SpecialTokensError, Vocab
from keras_bert_d2l.types import ConfigDict

IDS_FILE, MERGES_FILE = "vocab.json", "merges.txt"
SENTENCEPIECE_FILES = ("sentencepiece.bpe.model", "spiece.model", "spm.model")
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
    "DebertaV2Tokenizer": "deberta-v2",
}
_WITHOUT_SEGMENTS = ("XLMRobertaTokenizer", "CamembertTokenizer", "RobertaTokenizer")
# In transformers 4 and 5. Other fields of one token, such as `bos_token`, end in "_token".
_OWN_TOKENS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")


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
        known = [t if isinstance(t, str) else t[0] for t in fields["model"]["vocab"]]
        added = added_tokens(path, fields, options, known)
        fields = _with_added_tokens(fields, added, names)
    with errors_naming(file):
        try:
            vocab = Vocab(*from_json(fields, names))
        except SpecialTokensError as error:
            return None, [str(error)]
        except UnsupportedError as error:
            return None, [*error.args]
    unsupported, definition = [], vocab.definition or {}
    adds_space = options.get("add_prefix_space")
    for step in steps(definition["pre_tokenizer"], "pretokenizers"):
        adds = {"ByteLevel": step.get("add_prefix_space")}
        adds["Metaspace"] = step.get("prepend_scheme") != "never"
        if adds_space not in (None, adds.get(step["type"], adds_space)):
            unsupported.append(f"add_prefix_space={shown(adds_space)} beside {JSON_FILE}")
    if options.get("split_special_tokens"):
        unsupported.append(f"split_special_tokens={shown(options['split_special_tokens'])}")
    flags = TOKEN_FLAGS[: None if definition["normalizer"] else -1]
    for entry in definition["added_tokens"]:
        other = {**entry, **added.get(entry["content"], {})}
        if any(bool(entry.get(flag)) != bool(other.get(flag)) for flag in flags):
            token = shown(entry["content"])
            unsupported.append(f"other options for the token {token} than {JSON_FILE}")
    return vocab, [*unsupported, *unsupported_names(listed, vocab.special_tokens)]


def unsupported_names(options: ConfigDict, special_tokens: Sequence[str]) -> Iterator[str]:
    """Yield the special tokens of a tokenizer's files that are not those of the vocabulary."""
    for name, token in zip(SPECIAL_TOKENS, special_tokens, strict=True):
        # Of equal tokens of Unigram, all but the last have their id in the name.
        if content(options.get(name)) not in (None, token, token.partition(" (id ")[0]):
            yield f"{name}={shown(options[name])}"


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
    listed = [entry for entry in fields.get("added_tokens") or () if "id" in entry]
    vocab = fields["model"]["vocab"]
    ids = {} if isinstance(vocab, dict) else {token: n for n, (token, _) in enumerate(vocab)}
    ids = {**(ids or vocab), **{entry["content"]: entry["id"] for entry in listed}}
    known = {entry["content"] for entry in listed}
    new = [entry for token, entry in added.items() if token not in known]
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
    named = options.get("tokenizer_class") or fields_of(path / CONFIG_FILE).get("model_type")
    is_deberta = str(named).lower().removesuffix("fast").removesuffix("tokenizer") == "deberta"
    merges = read_merges(path / MERGES_FILE)
    return path / MERGES_FILE, byte_level_fields(vocab, merges, options, is_deberta)


def read_merges(file: pathlib.Path) -> list[str]:
    """Return the merges in the lines of a `merges.txt`."""
    lines = read_small_text(file, MOST_VOCAB_BYTES).split("\n")
    return [line.rstrip("\r") for line in lines if line.strip() and line[:9] != "#version:"]


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


def byte_level_fields(
    vocab: ConfigDict, merges: list[str], options: ConfigDict, is_deberta: bool
) -> ConfigDict:
    """Return the fields of `tokenizer.json` that transformers 4 uses for RoBERTa or DeBERTa."""
    names = [content(options.get(name)) for name in SPECIAL_TOKENS]
    usual = SPECIALS["deberta-v2" if is_deberta else "xlm-roberta"]
    pad, unk, cls, sep, mask = (n or token for n, token in zip(names, usual, strict=True))
    flags = dict.fromkeys(TOKEN_FLAGS, False) | {"special": True}
    adds_space = bool(options.get("add_prefix_space", False))
    trims = bool(options.get("trim_offsets", True))
    spaces = {"add_prefix_space": adds_space, "trim_offsets": trims}
    processor = {
        "type": "RobertaProcessing",
        **spaces,
        "sep": [sep, vocab.get(sep)],
        "cls": [cls, vocab.get(cls)],
    }
    return {
        "added_tokens": [
            {"id": vocab[token], "content": token, **flags, "lstrip": token == mask}
            for token in (pad, unk, cls, sep, mask)
            if token in vocab
        ],
        "pre_tokenizer": {"type": "ByteLevel", **spaces},
        "post_processor": template(cls, sep, vocab, 1, 1) if is_deberta else processor,
        "decoder": {"type": "ByteLevel", **spaces},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def added_tokens(
    path: pathlib.Path, fields: ConfigDict, options: ConfigDict, known: Collection[str]
) -> dict[str, ConfigDict]:
    """Return the fields of each added token, from all files of a tokenizer.

    Arguments as for `read_definition`; `known` are the tokens of the vocabulary.
    """
    listed = [
        token if isinstance(token, dict) else {"content": token}
        for name, value in (*fields_of(path / SPECIALS_FILE).items(), *options.items())
        for token in _own_tokens(name, value, known)
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


def _own_tokens(name: str, value: object, known: Collection[str]) -> Iterable[object]:
    """Return the tokens that a field of a tokenizer names, other than the five special tokens."""
    if name in _OWN_TOKENS:
        return (value.values() if isinstance(value, dict) else value) or ()  # type: ignore[return-value]
    is_own = name.endswith("_token") and name not in SPECIAL_TOKENS
    return [value] if is_own and content(value) in known else ()


def content(token: object) -> str | None:
    """Return the text of a token, which may be given by the fields of an `AddedToken`."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None
