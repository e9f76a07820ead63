"""Read and write Hugging Face's tokenizer files.

The vocabulary of WordPiece is in `vocab.txt`, or in `tokenizer.json` alone (transformers 5). The
options are in `tokenizer_config.json`, whose values take precedence over those in `tokenizer.json`.
More special tokens are in any of them, and in `added_tokens.json`. Byte-level BPE and Unigram are
defined by `tokenizer.json`, or byte-level BPE by `vocab.json` and `merges.txt`, and Unigram by a
model of SentencePiece.

Source: github.com/huggingface/transformers, `models/bert/tokenization_bert.py`, and
github.com/huggingface/tokenizers.
"""

import os
import pathlib
from collections.abc import Iterator, Sequence

from keras_bert_d2l.checkpoints.formats.huggingface.config import CONFIG_FILE
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    OPTIONS_FILE,
    fields_of,
    transformer_fields,
    transformer_folder,
)
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
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
    unsupported_parts,
)
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.sentencepiece_model import sentencepiece_fields
from keras_bert_d2l.text.vocab import (
    GOOGLE_SPECIALS,
    JSON_FILE,
    VOCAB_FILE,
    SpecialTokensError,
    Vocab,
    without_odd_tokens,
)
from keras_bert_d2l.types import ConfigDict

IDS_FILE, MERGES_FILE = "vocab.json", "merges.txt"
SENTENCEPIECE_FILES = ("sentencepiece.bpe.model", "spiece.model")
SPECIALS_FILE, ADDED_FILE = "special_tokens_map.json", "added_tokens.json"
TOKENIZER_FILES = (VOCAB_FILE, JSON_FILE, OPTIONS_FILE, SPECIALS_FILE)  # as written

# In the order of `Vocab.special_tokens`.
_SPECIAL_TOKENS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
# The supported values in `tokenizer_config.json`.
_SUPPORTED: dict[str, Sequence[object]] = {
    "do_lower_case": (True, False),
    "split_special_tokens": (True, False),
    "do_basic_tokenize": (True, None),
    "tokenize_chinese_chars": (True, False, None),
    "strip_accents": (True, False, None),
}
# The parts of `tokenizer.json` that our tokenizer cannot vary.
_FIXED: dict[str, dict[str, object]] = {
    "model": {
        "type": "WordPiece",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    },
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
}
# The types of models whose tokenizers are read from a model of SentencePiece.
_SENTENCEPIECE = {
    "XLMRobertaTokenizer": "xlm-roberta",
    "CamembertTokenizer": "camembert",
    "AlbertTokenizer": "albert",
}
_OWN_TOKENS = ("additional_special_tokens", "extra_special_tokens")  # transformers 4, and 5
_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
_UNK = ("<unk>", "normalized")  # MPNet's, which is not its unknown token: "<UNK>" is not found
_OPTIONS = {  # names in the normalizer of `tokenizer.json` and in `tokenizer_config.json`
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions, str]:
    """Read the vocabulary and the tokenizer options of a folder.

    Returns:
        The vocabulary, or `None` if the folder has none or our `Tokenizer` would produce different
        ids; the options; and why our `Tokenizer` would produce different ids.

    Raises:
        ValueError: A file is damaged.
    """
    lowercases = transformer_fields(path).get("do_lower_case")
    path = transformer_folder(path)
    options = fields_of(path / OPTIONS_FILE)
    if (defined := _defining_fields(path, options)) is not None:
        unsupported = ["do_lower_case=True of sentence-transformers"] if lowercases else []
        vocab, more = _read_definition(path, *defined, options)
        unsupported += more
        return None if unsupported else vocab, {}, ", ".join(unsupported)
    unsupported = []
    try:
        if has_file(path / VOCAB_FILE):
            vocab = Vocab.from_file(path / VOCAB_FILE)
        elif has_file(path / JSON_FILE):
            vocab, found, unsupported = _read_json(path / JSON_FILE)
            options = {**found, **options}
        else:
            return None, {}, ""
    except SpecialTokensError:
        return None, {}, f"other special tokens than {' '.join(GOOGLE_SPECIALS)}"
    own: list[str] = []
    if vocab is not None:
        unsupported += _unsupported_options(options, vocab)
        vocab, own, others = _with_own_tokens(vocab, path, options)
        unsupported += others
    if unsupported or vocab is None:
        return None, {}, ", ".join(unsupported)
    ours: TokenizerOptions = {
        "lowercase": options.get("do_lower_case", True),
        "compat": options.get("compat", "huggingface"),
        "split_special_tokens": options.get("split_special_tokens", False),
        "strip_accents": options.get("strip_accents"),
        "tokenize_chinese_chars": options.get("tokenize_chinese_chars") is not False,
    }
    if lowercases and not ours["lowercase"]:  # sentence-transformers keeps the accents
        ours |= {"lowercase": True, "strip_accents": bool(ours["strip_accents"])}
        ours["compat"] = "huggingface"
    if own and not ours["split_special_tokens"]:
        ours["special_tokens"] = own
    return vocab, ours, ""


def _defining_fields(
    path: pathlib.Path, options: ConfigDict
) -> tuple[pathlib.Path, ConfigDict] | None:
    """Return the file of a tokenizer other than WordPiece, and its fields of `tokenizer.json`."""
    if has_file(path / VOCAB_FILE):
        return None
    if has_file(path / JSON_FILE):
        fields = read_json_object(path / JSON_FILE, MOST_VOCAB_BYTES)
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
    """Return the file of a model of SentencePiece and its fields of `tokenizer.json`."""
    name = str(options.get("tokenizer_class")).removesuffix("Fast")
    kind = _SENTENCEPIECE.get(name, fields_of(path / CONFIG_FILE).get("model_type"))
    files = [path / file for file in SENTENCEPIECE_FILES if has_file(path / file)]
    if not files or kind not in _SENTENCEPIECE.values():
        return None
    check_size(files[0], MOST_VOCAB_BYTES)
    with errors_naming(files[0]):
        return files[0], sentencepiece_fields(files[0].read_bytes(), str(kind), options)


def _roberta_fields(vocab: ConfigDict, merges: list[str], options: ConfigDict) -> ConfigDict:
    """Return the fields of `tokenizer.json` that transformers 4 uses for RoBERTa."""
    names = [_content(options.get(name)) for name in _SPECIAL_TOKENS]
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


def _read_definition(
    path: pathlib.Path, file: pathlib.Path, fields: ConfigDict, options: ConfigDict
) -> tuple[Vocab | None, list[str]]:
    """Return the vocabulary of a tokenizer other than WordPiece, and what is not supported."""
    listed = {**fields_of(path / SPECIALS_FILE), **options}
    names = [_content(listed.get(name)) for name in _SPECIAL_TOKENS]
    with errors_naming(file):
        try:
            tokens, definition = from_json(fields, names)
        except SpecialTokensError as error:
            return None, [str(error)]
        vocab = Vocab(tokens, definition)
        unsupported = [*unsupported_parts(definition)]
    step = definition["pre_tokenizer"] or {}
    adds_space = options.get("add_prefix_space", step.get("add_prefix_space"))
    if adds_space != step.get("add_prefix_space") and step.get("type") == "ByteLevel":
        unsupported.append(f"add_prefix_space={shown(adds_space)} beside {JSON_FILE}")
    others = [token for token in _added_tokens(path, options) if token not in vocab]
    return vocab, [*unsupported, *(f"the added token {shown(token)}" for token in others)]


def _content(token: object) -> str | None:
    """Return the text of a token, which may be given by the fields of an `AddedToken`."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None


def _with_own_tokens(
    vocab: Vocab, path: pathlib.Path, options: ConfigDict
) -> tuple[Vocab, list[str], list[str]]:
    """Add the tokens that the files add to a vocabulary.

    Returns:
        The vocabulary, the special tokens other than the five, and what is not supported.
    """
    try:
        added = _added_tokens(path, options)
        own = [token for token in added if token not in vocab.special_tokens]
        unsupported = []
        for token in own:
            if added[token].get("special") is not True:
                unsupported.append(f"the added token {shown(token)}, which is not special")
            elif any(added[token].get(flag) for flag in _TOKEN_FLAGS if (token, flag) != _UNK):
                unsupported.append(f"options for the token {shown(token)}")
        new = [token for token in own if token not in vocab]
        new.sort(key=lambda token: added[token].get("id", len(vocab) + len(new)))
        vocab = vocab.with_tokens(new)
        for token in own:
            if added[token].get("id", vocab[token]) != vocab[token]:
                unsupported.append(f"the id {added[token]['id']} of the token {shown(token)}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"The added tokens in {os.fspath(path)!r} are not valid: {error!r:.200}. Copy the "
            "tokenizer's files again."
        ) from error
    return vocab, own, unsupported


def _added_tokens(path: pathlib.Path, options: ConfigDict) -> dict[str, ConfigDict]:
    """Return the fields of each added token, from all files of a tokenizer."""
    listed = [
        token if isinstance(token, dict) else {"content": token}
        for fields in (fields_of(path / SPECIALS_FILE), options)
        for name in _OWN_TOKENS
        for token in fields.get(name) or ()
    ]
    decoder = options.get("added_tokens_decoder", {})
    added: dict[str, ConfigDict] = {}
    for token in (
        *({"special": True, **token} for token in listed),
        *({"content": name, "id": n} for name, n in fields_of(path / ADDED_FILE).items()),
        *fields_of(path / JSON_FILE, MOST_VOCAB_BYTES).get("added_tokens", ()),
        *({**token, "id": int(n)} for n, token in decoder.items()),
    ):
        added[token["content"]] = {**added.get(token["content"], {}), **token}
    return added


def _read_json(file: pathlib.Path) -> tuple[Vocab | None, ConfigDict, list[str]]:
    """Return the vocabulary of a `tokenizer.json`, its options and its unsupported parts."""
    fields = read_json_object(file, MOST_VOCAB_BYTES)
    try:
        options = _normalizer_options(fields)
        unsupported = list(_unsupported_parts(fields))
        if unsupported:
            return None, options, unsupported
        vocab = _vocab_of(fields, os.fspath(file))
        return vocab, options, list(_unsupported_tokens(fields, vocab))
    except SpecialTokensError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(file)!r} is not a tokenizer file: {error!r:.200}. Copy it again."
        ) from error


def write_tokenizer(
    folder: pathlib.Path,
    vocab: Vocab,
    options: TokenizerOptions,
    config: BERTConfig | None = None,
) -> None:
    """Write the vocabulary and the options of a tokenizer.

    `tokenizer.json` is enough for the library tokenizers. transformers and transformers.js also
    read the other files. Only our tokenizer has the option `compat`.
    """
    vocab.to_file(folder / vocab.file_name)
    specials: ConfigDict = dict(zip(_SPECIAL_TOKENS, vocab.special_tokens, strict=True))
    of_model: ConfigDict = {}
    if config is not None:
        of_model["model_max_length"] = config.max_len
        if config.num_segments <= 1:
            of_model["model_input_names"] = ["input_ids", "attention_mask"]
        elif vocab.definition and _has_segments(vocab.definition):
            of_model["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if vocab.kind != "wordpiece":
        fields = {"tokenizer_class": "PreTrainedTokenizerFast", **of_model, **specials}
        write_json(folder / OPTIONS_FILE, fields, ensure_ascii=False)
        write_json(folder / SPECIALS_FILE, specials, ensure_ascii=False)
        return
    if own := options.get("special_tokens"):
        specials["additional_special_tokens"] = own
    fields = {
        "tokenizer_class": "BertTokenizer" if vocab.num_separators == 1 else "MPNetTokenizer",
        "do_lower_case": options.get("lowercase", True),
        "split_special_tokens": options.get("split_special_tokens", False),
        "strip_accents": options.get("strip_accents"),
        "tokenize_chinese_chars": options.get("tokenize_chinese_chars", True),
        "compat": options.get("compat", "google"),
        **of_model,
        **specials,
    }
    for name, content in (
        (SPECIALS_FILE, specials),
        (OPTIONS_FILE, fields),
        (JSON_FILE, _tokenizer_json(vocab, fields)),
    ):
        write_json(folder / name, content, ensure_ascii=False)


def _has_segments(definition: ConfigDict) -> bool:
    """Return whether the second text of a pair has a segment of its own."""
    processors = steps(definition["post_processor"], "processors")
    items = [item for processor in processors for item in processor.get("pair", ())]
    is_plain = any(processor["type"] == "BertProcessing" for processor in processors)
    return is_plain or any(part["type_id"] for item in items for part in item.values())


def _tokenizer_json(vocab: Vocab, options: ConfigDict) -> ConfigDict:
    """Return the fields of `tokenizer.json`, from those of `tokenizer_config.json`."""
    # An added token is recognized in a text. Tokens that are not added remain in the vocabulary.
    special = [*vocab.special_tokens, *options.get("additional_special_tokens", ())]
    added = () if options["split_special_tokens"] else sorted(vocab[special])
    flags = dict.fromkeys(_TOKEN_FLAGS, False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": vocab.tokens[number], **flags, "special": True}
            for number in added
        ],
        "normalizer": {
            **_FIXED["normalizer"],
            **{theirs: options[name] for theirs, name in _OPTIONS.items()},
        },
        "pre_tokenizer": _FIXED["pre_tokenizer"],
        "post_processor": _post_processor(vocab),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            **_FIXED["model"],
            "unk_token": vocab.special_tokens[1],
            "vocab": {token: number for number, token in enumerate(vocab.tokens)},
        },
    }


def _post_processor(vocab: Vocab) -> ConfigDict:
    """Return the part of `tokenizer.json` that adds the special tokens to a text."""
    _, _, cls, sep, _ = vocab.special_tokens
    kinds = {"A": "Sequence", "B": "Sequence", cls: "SpecialToken", sep: "SpecialToken"}
    return {
        "type": "TemplateProcessing",
        **{
            name: [{kinds[part]: {"id": part, "type_id": segment}} for part, segment in frame]
            for name, frame in _frames(vocab).items()
        },
        "special_tokens": {
            token: {"id": token, "ids": [vocab[token]], "tokens": [token]} for token in (cls, sep)
        },
    }


def _frames(vocab: Vocab) -> dict[str, list[tuple[str, int]]]:
    """Return the parts of a row, with their segments, for a single text A or a pair of A and B."""
    _, _, cls, sep, _ = vocab.special_tokens
    single = [(cls, 0), ("A", 0), (sep, 0)]
    more = [(sep, 0)] * (vocab.num_separators - 1)
    return {"single": single, "pair": [*single, *more, ("B", 1), (sep, 1)]}


def _unsupported_options(options: ConfigDict, vocab: Vocab) -> Iterator[str]:
    """Yield the options for which Hugging Face's token ids differ from our tokenizer's."""
    for name, values in _SUPPORTED.items():
        if name in options and options[name] not in values:
            yield f"{name}={shown(options[name])}"
    for name, token in zip(_SPECIAL_TOKENS, vocab.special_tokens, strict=True):
        value = _content(options.get(name, token))
        if value != token:
            yield f"{name}={shown(value)}"


def _normalizer_options(fields: ConfigDict) -> ConfigDict:
    normalizer = fields["normalizer"] or {}
    return {name: normalizer[theirs] for theirs, name in _OPTIONS.items() if theirs in normalizer}


def _unsupported_parts(fields: ConfigDict) -> Iterator[str]:
    """Yield the parts of a `tokenizer.json` that our tokenizer does not have."""
    for part, expected in _FIXED.items():
        found = fields[part] or {}
        for name, value in expected.items():
            if found.get(name) != value:
                yield f"{part}.{name}={shown(found.get(name))}"


def _vocab_of(fields: ConfigDict, name: str) -> Vocab:
    ids = {**fields["model"]["vocab"], **{t["content"]: t["id"] for t in fields["added_tokens"]}}
    tokens = sorted(ids, key=ids.__getitem__)
    if [ids[token] for token in tokens] != [*range(len(ids))]:
        raise ValueError("the ids of its tokens must be 0, 1, 2 and so on")
    return Vocab(without_odd_tokens(tokens, name))


def _unsupported_tokens(fields: ConfigDict, vocab: Vocab) -> Iterator[str]:
    """Yield the tokens and the frame of a `tokenizer.json` that our tokenizer does not have."""
    added = {token["content"]: token for token in fields["added_tokens"]}
    for token in vocab.special_tokens:
        if token not in added:
            yield f"no special token {shown(token)}"
        elif added[token].get("single_word") or added[token].get("normalized"):
            yield f"options for the token {shown(token)}"
    if fields["model"]["unk_token"] != vocab.special_tokens[1]:
        yield f"unk_token={shown(fields['model']['unk_token'])}"
    processor = fields["post_processor"] or {}
    named = ("BertProcessing", "RobertaProcessing")[vocab.num_separators - 1]
    frames = _frames(vocab) if processor.get("type") != named else {}
    for name, frame in frames.items():
        parts = [next(iter(part.values())) for part in processor.get(name, ())]
        if [(part["id"], part["type_id"]) for part in parts] != frame:
            yield f"post_processor.{name}={parts!r:.80}"
