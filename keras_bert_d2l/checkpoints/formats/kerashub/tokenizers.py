"""Tokenizers in presets of KerasHub, and how its files name classes.

`tokenizer.json` has the class and the options. The folder `assets/tokenizer` has the vocabulary:
`vocabulary.txt`, `vocabulary.json` and `merges.txt`, or `vocabulary.spm`.

Source: github.com/keras-team/keras-hub, `tokenizers/` and `models/`.
"""

import base64
import pathlib
from typing import cast

from keras_bert_d2l import checks, reading
from keras_bert_d2l.checkpoints.formats.huggingface import tokenizer_definition
from keras_bert_d2l.checkpoints.formats.kerashub.models import CLASSES, KINDS, Kind
from keras_bert_d2l.files import write_json
from keras_bert_d2l.text import sentencepiece_model as models
from keras_bert_d2l.text.definition import added_tokens, from_json, steps
from keras_bert_d2l.text.normalization import TokenizerOptions, normalization_of
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.types import ConfigDict

TOKENIZER_FILE, METADATA_FILE = "tokenizer.json", "metadata.json"
OWN = "keras_bert_d2l"  # the key of what this package stores in `METADATA_FILE`
_ASSETS = "assets/tokenizer"
_OPTIONS = {  # of WordPiece, theirs and ours
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "special_tokens_in_strings": "split_special_tokens",  # the opposite
    "split_on_cjk": "tokenize_chinese_chars",
}
_FIXED = {"split": True, "suffix_indicator": "##", "oov_token": "[UNK]"}
_FIXED |= {"num_groups": 1, "num_inner_repetitions": 1}  # of ALBERT
_ADVICE = "If this is about a tokenizer, `load_pretrained(path, tokenizer=False)` loads the model."
_OF_LAYERS = ("name", "trainable", "dtype")
_OF_OTHERS = """
    backbone preprocessor num_classes activation dropout hidden_dim pooling_mode normalize tokenizer
    sequence_length truncate config_file vocabulary add_prefix_space unsplittable_tokens
""".split()
_VOCABS = {  # the kind and the special tokens of vocabularies, by `Kind.tokenizer`
    "wordpiece": ("wordpiece", *GOOGLE_SPECIALS),
    "bpe": ("bpe", *models.SPECIALS["xlm-roberta"]),
    **{name: ("unigram", *special) for name, special in models.SPECIALS.items()},
}
_SPACES = {"Regex": " {2,}"}


def object_of(value: object, where: str, *classes: str) -> tuple[str, ConfigDict]:
    """Return the class name and the arguments of a serialized object, if it is one of `classes`."""
    fields = value if isinstance(value, dict) else {}
    package, _, name = str(fields.get("registered_name")).partition(">")
    is_known = package in ("keras_hub", "keras_nlp") and name in classes
    received, expected = fields.get("registered_name") or value, ", ".join(classes)
    checks.check_that(is_known, where, f"of KerasHub: {expected}", received, "No other is read.")
    arguments = cast(ConfigDict, fields.get("config"))
    checks.check_that(isinstance(arguments, dict), "config", "an object", arguments)
    for option, only in _FIXED.items():
        value = arguments.get(option, only)
        checks.check_that(value == only, option, repr(only), value, _ADVICE)
    kind, end = CLASSES.get(name, (None, ""))
    known = kind.fields if kind and end == "Backbone" else (*_OPTIONS, *_OF_OTHERS)
    expected = "omitted: it may change what the model computes"
    for argument in arguments.keys() - {*known, *_FIXED, *_OF_LAYERS}:
        checks.check_that(not arguments[argument], argument, expected, arguments[argument])
    return name, arguments


def serialized(name: str, arguments: ConfigDict) -> ConfigDict:
    """Return an object as Keras serializes it, which KerasHub finds by the registered name."""
    registered = {"class_name": name, "registered_name": f"keras_hub>{name}"}
    return {"module": "keras_hub.models", **registered, "config": arguments}


def own_fields(path: pathlib.Path, *names: str) -> ConfigDict:
    """Return those fields of a preset that this package stored."""
    file = path / METADATA_FILE
    own = reading.read_json_object(file).get(OWN) if reading.has_file(file) else None
    return {name: own[name] for name in names if name in own} if isinstance(own, dict) else {}


def read_tokenizer(path: pathlib.Path) -> tuple[Vocab | None, TokenizerOptions]:
    """Return the vocabulary of a preset, or `None` if it has none, and the tokenizer options.

    Raises:
        FileNotFoundError: The vocabulary is missing.
        ValueError: A file is damaged, or our `Tokenizer` would produce different ids.
    """
    file = path / TOKENIZER_FILE
    if not reading.has_file(file):
        return None, {}
    content = reading.read_json_object(file)
    kinds = {f"{kind.title}Tokenizer": kind.tokenizer for kind in KINDS.values()}
    with reading.errors_naming(file):
        name, fields = object_of(content, "registered_name", *kinds)
        if kinds[name] != "wordpiece":
            return _read_other(path / _ASSETS, kinds[name], fields), {}
        options = {
            ours: checks.check_bool(theirs, fields.get(theirs, theirs == "split_on_cjk"))
            for theirs, ours in _OPTIONS.items()
        }
    options["split_special_tokens"] = not options["split_special_tokens"]
    compat = {"compat": "huggingface", **own_fields(path, "compat")}
    vocab = Vocab.from_file(path / _ASSETS / "vocabulary.txt")
    return vocab, cast(TokenizerOptions, options | compat)


def _read_other(path: pathlib.Path, kind: str, options: ConfigDict) -> Vocab:
    """Read byte-level BPE or SentencePiece from the folder of the assets."""
    if kind == "bpe":
        ids = reading.read_json_object(path / "vocabulary.json", reading.MOST_VOCAB_BYTES)
        merges = tokenizer_definition.read_merges(path / "merges.txt")
        fields = tokenizer_definition.byte_level_fields(ids, merges, options, False)
    else:
        file = path / "vocabulary.spm"
        reading.check_size(reading.check_file(file), reading.MOST_VOCAB_BYTES)
        fields = models.sentencepiece_fields(file.read_bytes(), kind, {})
        for entry in fields["added_tokens"]:  # the mask of DeBERTa may be the last token
            entry.setdefault("id", len(fields["model"]["vocab"]))
    return Vocab(*from_json(fields))


def write_tokenizer(
    folder: pathlib.Path, vocab: Vocab, options: TokenizerOptions, kind: Kind
) -> ConfigDict:
    """Write the files of a tokenizer and return the content of `TOKENIZER_FILE`.

    Raises:
        ValueError: KerasHub cannot express the tokenizer.
    """
    ours, side = normalization_of(options), options.get("truncation_side", "right")
    checks.check_that(side == "right", "truncation_side", "'right', as in KerasHub", side)
    special = (*vocab.special_tokens, *ours.special_tokens, *ours.normalized_tokens)
    name, *names = _VOCABS[kind.tokenizer]
    expected = f"those of KerasHub's {kind.title}, {name}: {' '.join(names)}"
    is_right = (vocab.kind, *special) == (name, *names)
    checks.check_that(is_right, "special_tokens", expected, f"{vocab.kind}: {' '.join(special)}")
    assets = folder / _ASSETS
    assets.mkdir(parents=True)
    if vocab.definition is not None:
        values = _write_other(assets, vocab, vocab.definition, kind.tokenizer)
    else:
        values = {theirs: getattr(ours, name) for theirs, name in _OPTIONS.items()}
        values |= {"vocabulary": None, "strip_accents": ours.strips_accents}
        values["special_tokens_in_strings"] = not ours.split_special_tokens
        vocab.to_file(assets / "vocabulary.txt")
    tokenizer = serialized(f"{kind.title}Tokenizer", values)
    write_json(folder / TOKENIZER_FILE, tokenizer)
    return tokenizer


def _write_other(
    assets: pathlib.Path, vocab: Vocab, definition: ConfigDict, kind: str
) -> ConfigDict:
    """Write the assets of byte-level BPE or Unigram, and return the options."""
    is_bpe, model = kind == "bpe", definition["model"]
    splits = steps(definition["pre_tokenizer"], "pretokenizers")
    normalizers = steps(definition["normalizer"], "normalizers")
    # Other steps remove spaces, which are no part of words.
    of_words = [x for x in normalizers if x["type"] != "Strip" and x.get("pattern") != _SPACES]
    tables = [step.get("precompiled_charsmap", "") for step in of_words]
    types, last = "+".join(step["type"] for step in splits), splits[-1]
    is_right = types in (("ByteLevel",) if is_bpe else ("Metaspace", "WhitespaceSplit+Metaspace"))
    is_right &= last.get("use_regex", True) and last.get("prepend_scheme", "always") == "always"
    is_right &= len(tables) <= (not is_bpe) and "" not in tables
    others = {*added_tokens(definition)} - {*vocab.special_tokens}
    is_right &= not others
    received = [*(step["type"] for step in (*normalizers, *splits)), *others]
    expected = "that of GPT-2 or SentencePiece, without further steps and added tokens"
    advice = "Set `model.tokenizer = None` to write the model alone."
    checks.check_that(is_right, "tokenizer", expected, received, advice)
    if is_bpe:
        write_json(assets / "vocabulary.json", {token: n for n, token in enumerate(vocab.tokens)})
        merges = "".join(f"{a} {b}\n" for a, b in model["merges"])
        (assets / "merges.txt").write_text(merges, encoding="utf-8")
        return {"add_prefix_space": last.get("add_prefix_space", True)}
    charsmap = base64.b64decode("".join(tables))
    data = models.sentencepiece_model(vocab.tokens, model["scores"], charsmap, kind)
    (assets / "vocabulary.spm").write_bytes(data)
    is_same = _read_other(assets, kind, {}).tokens == vocab.tokens
    checks.check_that(is_same, "vocab.tokens", "those of a SentencePiece model", vocab, advice)
    return {"proto": None}
