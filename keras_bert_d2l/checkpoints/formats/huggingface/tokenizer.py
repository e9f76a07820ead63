"""Read and write Hugging Face's tokenizer files.

The vocabulary of WordPiece is in `vocab.txt`, or in `tokenizer.json` alone (transformers 5). The
options are in `tokenizer_config.json`, whose values take precedence over those in `tokenizer.json`.
More special tokens are in any of them, and in `added_tokens.json`. `tokenizer_definition` reads
BPE, Unigram and WordLevel.

Source: github.com/huggingface/transformers, `models/bert/tokenization_bert.py`, and
github.com/huggingface/tokenizers.
"""

import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import cast

from keras_bert_d2l.checkpoints.formats.huggingface.config import CONFIG_FILE
from keras_bert_d2l.checkpoints.formats.huggingface.model_types import MODEL_TYPES
from keras_bert_d2l.checkpoints.formats.huggingface.sentence_transformers import (
    OPTIONS_FILE,
    fields_of,
    is_static,
    transformer_fields,
    transformer_folder,
)
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer_definition import (
    INVALID_TOKENS,
    SENTENCEPIECE_FILES,
    SPECIAL_TOKENS,
    SPECIALS_FILE,
    added_tokens,
    read_definition,
    unsupported_names,
)
from keras_bert_d2l.checks import shown
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.files import write_json
from keras_bert_d2l.reading import MOST_VOCAB_BYTES, errors_naming, has_file
from keras_bert_d2l.text.definition import KINDS, TOKEN_FLAGS, model_type, steps
from keras_bert_d2l.text.normalization import SIDES, TokenizerOptions, normalization_of
from keras_bert_d2l.text.vocab import (
    BOOK_SPECIALS,
    GOOGLE_SPECIALS,
    JSON_FILE,
    MPNET_SPECIALS,
    VOCAB_FILE,
    SpecialTokensError,
    Vocab,
    without_odd_tokens,
)
from keras_bert_d2l.text.wordpiece_file import FIXED, OPTIONS, frame_of, wordpiece_fields
from keras_bert_d2l.types import ConfigDict

TOKENIZER_FILES = (VOCAB_FILE, JSON_FILE, OPTIONS_FILE, SPECIALS_FILE)  # as written

# The supported values in `tokenizer_config.json`.
_SUPPORTED: dict[str, Sequence[object]] = {
    "do_lower_case": (True, False),
    "split_special_tokens": (True, False),
    "do_basic_tokenize": (True, None),
    "never_split": (None, []),
    "tokenize_chinese_chars": (True, False, None),
    "strip_accents": (True, False, None),
    "word_tokenizer_type": (None,),  # of Japanese BERT
    "subword_tokenizer_type": ("wordpiece", None),
}
# Tokenizers of transformers, `BertTokenizer` and so on, that only differ in their files.
_WITH_WORDPIECE = (
    "Bert ConvBert DistilBert DPRContextEncoder DPRQuestionEncoder DPRReader Electra LayoutLM "
    "Lxmert MobileBert MPNet PreTrained Realm RetriBert SqueezeBert TokenizersBackend"
).split()
_WITHOUT_JSON = "Albert Bart Camembert Deberta DebertaV2 Longformer Roberta XLMRoberta".split()
_WITHOUT_JSON += _WITH_WORDPIECE
# Those that ignore a `tokenizer.json`.
_IN_PYTHON = "BertJapanese Bartpho Bertweet BioGpt Flaubert KoBERT KoBert MLuke Phobert XLM".split()
_OPTIONS = {**OPTIONS, "lowercase": "do_lower_case"}  # as `tokenizer_config.json` names them


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions, str]:
    """Read the vocabulary and the tokenizer options of a folder.

    Returns:
        The vocabulary, or `None` if the folder has none or our `Tokenizer` would produce different
        ids; the options; and why our `Tokenizer` would produce different ids.

    Raises:
        ValueError: A file is damaged.
    """
    lowercases, static = transformer_fields(path).get("do_lower_case"), is_static(path)
    path = transformer_folder(path)
    options = fields_of(path / OPTIONS_FILE)
    fields = fields_of(path / JSON_FILE, MOST_VOCAB_BYTES)
    if static and model_type(fields) == "WordPiece":
        fields = _with_special_tokens(fields)
    truncation = fields.get("truncation")
    direction = truncation.get("direction") if isinstance(truncation, dict) else None
    side = options.get("truncation_side", str(direction or SIDES[0]).lower())
    unsupported = [] if side in SIDES else [f"truncation_side={shown(side)}"]
    unsupported += _other_class(path, fields, options)
    sides: TokenizerOptions = {} if side == SIDES[0] else {"truncation_side": side}
    if unsupported:
        return None, {}, ", ".join(unsupported)
    if (defined := read_definition(path, fields, options)) is not None:
        vocab, unsupported = defined
        if vocab is not None and lowercases:
            vocab = _lowercased(vocab)
        return (None, {}, ", ".join(unsupported)) if unsupported else (vocab, sides, "")
    try:
        if has_file(path / VOCAB_FILE):
            vocab = Vocab.from_file(path / VOCAB_FILE)
            pieces = [token for token in vocab if token.startswith("▁")]
            if pieces and not vocab.continues.any():
                unsupported.append(f"pieces of SentencePiece, such as {shown(pieces[-1])}")
            if isinstance(fields.get("model"), dict) and FIXED.keys() <= fields.keys():
                unsupported += _unsupported_parts(fields)
        elif has_file(path / JSON_FILE):
            vocab, found, unsupported = _read_json(path / JSON_FILE, fields)
            options = {**found, **options}
        else:
            files = [file for file in SENTENCEPIECE_FILES if has_file(path / file)]
            lacks = f"but no {CONFIG_FILE} or {OPTIONS_FILE} with its `model_type`"
            return None, {}, f"a {files[0]}, {lacks}" if files else ""
    except SpecialTokensError:
        return None, {}, f"other special tokens than {' '.join(GOOGLE_SPECIALS)}"
    own: TokenizerOptions = {}
    if vocab is not None:
        listed = {**fields_of(path / SPECIALS_FILE), **options}
        unsupported += _unsupported_options(path, listed, vocab.special_tokens)
        vocab, own, others = _with_own_tokens(vocab, path, fields, options)
        unsupported += others
    if unsupported or vocab is None:
        return None, {}, ", ".join(unsupported)
    ours: TokenizerOptions = {
        "lowercase": options.get("do_lower_case", True),
        "compat": options.get("compat", "huggingface"),
        "split_special_tokens": options.get("split_special_tokens", False),
        "strip_accents": options.get("strip_accents"),
        "tokenize_chinese_chars": options.get("tokenize_chinese_chars") is not False,
        **own,
        **sides,
    }
    if lowercases and not ours["lowercase"]:  # sentence-transformers keeps the accents
        ours |= {"lowercase": True, "strip_accents": bool(ours["strip_accents"])}
        ours["compat"] = "huggingface"
    return vocab, ours, ""


def _lowercased(vocab: Vocab) -> Vocab:
    """Return a vocabulary whose tokenizer lowercases texts first, unless it does it already."""
    definition: ConfigDict = vocab.definition or {}
    found = steps(definition["normalizer"], "normalizers")
    if any(step["type"] == "Lowercase" for step in found):
        return vocab
    lowercasing = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, *found]}
    return Vocab(vocab.tokens, {**definition, "normalizer": lowercasing})


def _with_special_tokens(fields: ConfigDict) -> ConfigDict:
    """Return the fields of a `tokenizer.json` that has all special tokens, which add no text."""
    vocab = dict(fields["model"]["vocab"])
    known = (GOOGLE_SPECIALS, BOOK_SPECIALS, MPNET_SPECIALS)
    if any(vocab.keys() >= set(specials) for specials in known):
        return fields
    added, flags = [*(fields.get("added_tokens") or ())], dict.fromkeys(TOKEN_FLAGS, False)
    for token in GOOGLE_SPECIALS:
        if token not in vocab:
            vocab[token] = max(vocab.values()) + 1
            added.append({"id": vocab[token], "content": token, **flags, "special": True})
    model, processor = {**fields["model"], "vocab": vocab}, {"type": "BertProcessing"}
    return {**fields, "model": model, "added_tokens": added, "post_processor": processor}


def _with_own_tokens(
    vocab: Vocab, path: pathlib.Path, fields: ConfigDict, options: ConfigDict
) -> tuple[Vocab, TokenizerOptions, list[str]]:
    """Add the tokens that the files add to a vocabulary.

    Returns:
        The vocabulary; the options `special_tokens` and `normalized_tokens`; what is not supported.
    """
    ours: dict[str, list[str]] = {}
    with errors_naming(path, *INVALID_TOKENS):
        added = added_tokens(path, fields, options, vocab.tokens)
        own = [token for token in added if token not in vocab.special_tokens]
        unsupported, splits = [], options.get("split_special_tokens", False)
        for token, flags in added.items():
            if flags.get("single_word"):  # `lstrip` and `rstrip` do not change ids
                unsupported.append(f"single_word of the token {shown(token)}")
            is_special = flags.get("special", token not in own) is True
            is_normalized = flags.get("normalized", not is_special)
            if (token in own or is_normalized) and not (is_special and splits):
                name = "normalized_tokens" if is_normalized else "special_tokens"
                ours.setdefault(name, []).append(token)
        new = [token for token in own if token not in vocab]
        new.sort(key=lambda token: added[token].get("id", len(vocab) + len(new)))
        vocab = vocab.with_tokens(new)
        ours.get("normalized_tokens", []).sort(key=vocab.__getitem__)  # as they are written
        for token in own:
            if added[token].get("id", vocab[token]) != vocab[token]:
                unsupported.append(f"the id {added[token]['id']} of the token {shown(token)}")
    return vocab, cast(TokenizerOptions, ours), unsupported


def _read_json(
    file: pathlib.Path, fields: ConfigDict
) -> tuple[Vocab | None, ConfigDict, list[str]]:
    """Return the vocabulary of a `tokenizer.json`, its options and its unsupported parts."""
    try:
        normalizer = fields["normalizer"] or {}
        options = {
            name: normalizer[theirs] for theirs, name in _OPTIONS.items() if theirs in normalizer
        }
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
    folder: pathlib.Path, vocab: Vocab, options: TokenizerOptions, config: BERTConfig | None = None
) -> None:
    """Write the vocabulary and the options of a tokenizer.

    `tokenizer.json` is enough for the library tokenizers. transformers and transformers.js also
    read the other files. Only our tokenizer has the option `compat`.
    """
    vocab.to_file(folder / vocab.file_name)
    specials: ConfigDict = dict(zip(SPECIAL_TOKENS, vocab.special_tokens, strict=True))
    of_model: ConfigDict = {}
    if config is not None:
        of_model["model_max_length"] = config.max_len
        if config.num_segments <= 1:
            of_model["model_input_names"] = ["input_ids", "attention_mask"]
        elif vocab.definition and vocab.has_segments:
            of_model["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if side := options.get("truncation_side"):
        of_model["truncation_side"] = side
    if vocab.kind != "wordpiece":
        fields = {"tokenizer_class": "PreTrainedTokenizerFast", **of_model, **specials}
    else:
        ours: ConfigDict = {**normalization_of(options).options()}
        write_json(folder / JSON_FILE, wordpiece_fields(vocab, **ours), ensure_ascii=False)
        ours.pop("normalized_tokens", ())
        if "special_tokens" in ours:
            specials["additional_special_tokens"] = ours.pop("special_tokens")
        name = "BertTokenizer" if vocab.num_separators == 1 else "MPNetTokenizer"
        fields = {"tokenizer_class": name, "do_lower_case": ours.pop("lowercase"), **ours}
        fields |= {**of_model, **specials}
    write_json(folder / SPECIALS_FILE, specials, ensure_ascii=False)
    write_json(folder / OPTIONS_FILE, fields, ensure_ascii=False)


def _other_class(path: pathlib.Path, fields: ConfigDict, options: ConfigDict) -> Iterator[str]:
    """Yield the class of a tokenizer if its ids are not those that our tokenizer would give."""
    named = options.get("tokenizer_class") or fields_of(path / CONFIG_FILE).get("tokenizer_class")
    name = str(named or "PreTrained").removesuffix("Fast").removesuffix("Tokenizer")
    if has_file(path / VOCAB_FILE) or (fields and model_type(fields) not in KINDS):
        is_known = name in _WITH_WORDPIECE
    else:
        is_known = name not in _IN_PYTHON if fields else name in _WITHOUT_JSON
    if not is_known:
        yield f"tokenizer_class={shown(named)}"
    if code := options.get("auto_map"):
        yield f"auto_map={shown(code)}"


def _unsupported_options(
    path: pathlib.Path, options: ConfigDict, special_tokens: Sequence[str]
) -> Iterator[str]:
    """Yield the options for which Hugging Face's token ids differ from our tokenizer's.

    The inputs of the model are one of them, if they lack the segments that it has.
    """
    for name, values in _SUPPORTED.items():
        if name in options and options[name] not in values:
            yield f"{name}={shown(options[name])}"
    yield from unsupported_names(options, special_tokens)
    config = fields_of(path / CONFIG_FILE)
    kind = MODEL_TYPES.get(str(config.get("model_type", "bert")))
    default = kind.fields.get("type_vocab_size", ("", 1))[1] if kind and config else 1
    names = options.get("model_input_names") or ["token_type_ids"]
    if config.get("type_vocab_size", default) != 1 and "token_type_ids" not in names:
        yield f"model_input_names={shown(names)}"


def _unsupported_parts(fields: ConfigDict) -> Iterator[str]:
    """Yield the parts of a `tokenizer.json` that our tokenizer does not have."""
    fields = {**fields, "model": {**fields["model"], "type": model_type(fields)}}
    for part, expected in FIXED.items():
        found = fields[part] or {}
        for name, value in expected.items():
            if found.get(name) != value:
                yield f"{part}.{name}={shown(found.get(name))}"
                if name == "type":  # other types have other fields, also in the other parts
                    return


def _vocab_of(fields: ConfigDict, name: str) -> Vocab:
    ids = {**fields["model"]["vocab"], **{t["content"]: t["id"] for t in fields["added_tokens"]}}
    numbers = sorted(ids.values())
    if len({*numbers}) < len(ids) or numbers[0] < 0 or numbers[-1] >= 2 * len(ids):
        raise ValueError("the ids of its tokens must be 0, 1, 2 and so on, with few gaps")
    tokens = [""] * (numbers[-1] + 1)  # equal lines of a `vocab.txt` leave gaps
    for token, number in ids.items():
        tokens[number] = token
    return Vocab(without_odd_tokens(tokens, name))


def _unsupported_tokens(fields: ConfigDict, vocab: Vocab) -> Iterator[str]:
    """Yield the tokens and the frame of a `tokenizer.json` that our tokenizer does not have."""
    added = {token["content"]: token for token in fields["added_tokens"]}
    for token in vocab.special_tokens:
        if token not in added:
            yield f"no special token {shown(token)}"
    if fields["model"]["unk_token"] != vocab.special_tokens[1]:
        yield f"unk_token={shown(fields['model']['unk_token'])}"
    processor = fields["post_processor"] or {}
    named = ("BertProcessing", "RobertaProcessing")[vocab.num_separators - 1]
    for name in ("single", "pair") if processor.get("type") != named else ():
        parts = [next(iter(part.values())) for part in processor.get(name, ())]
        if parts != [next(iter(part.values())) for part in frame_of(vocab)[name]]:
            yield f"post_processor.{name}={parts!r:.80}"
