"""Definitions of tokenizers other than WordPiece: the fields of Hugging Face's `tokenizer.json`.

A definition has the fields of the file without the vocabulary:

- `model`: `type` is "BPE", "Unigram" or "WordLevel"; `num_tokens` is the number of tokens of the
  model, which have the first ids. BPE has `merges`, pairs of tokens; Unigram has `scores` in the
  order of the ids, and `unk_id`.
- `normalizer`, `pre_tokenizer`, `post_processor`, `decoder`: as in the file, or None.
- `added_tokens`: tokens that stay whole in a text, without their ids.
- `special_tokens`: the padding, unknown, start, separator and mask token. If the other fields do
  not imply them, the file records them as the `role` of added tokens, which other programs ignore.

Source: github.com/huggingface/tokenizers.
"""

from collections.abc import Mapping, Sequence

from keras_bert_d2l.checks import shown
from keras_bert_d2l.types import ConfigDict

ROLES = ("pad", "unk", "cls", "sep", "mask")  # in the order of `Vocab.special_tokens`
TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
KINDS = {"BPE": "bpe", "Unigram": "unigram", "WordLevel": "wordlevel"}
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = sorted({*range(0x100)} - {*_PRINTABLE})
# The characters that stand for bytes in tokens of byte-level BPE, in the order of the bytes.
BYTES = "".join(chr(n if n in _PRINTABLE else 0x100 + _OTHERS.index(n)) for n in range(0x100))
_BYTE_OF = {character: byte for byte, character in enumerate(BYTES)}
FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_SPELLINGS = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("<s>", "[CLS]"),
    "sep": ("</s>", "[SEP]"),
    "mask": ("<mask>", "[MASK]"),
}


class SpecialTokensError(ValueError):
    """A vocabulary lacks special tokens, but may be valid for another program."""


def model_type(fields: ConfigDict) -> object:
    """Return the type of the model in a `tokenizer.json`, which old files do not name."""
    model = fields.get("model")
    if not isinstance(model, dict):
        return None
    if "type" in model:
        return model["type"]
    named = {"merges": "BPE", "continuing_subword_prefix": "WordPiece", "unk_id": "Unigram"}
    return next((kind for field, kind in named.items() if field in model), None)


def from_json(
    fields: ConfigDict, special_tokens: Sequence[str | None] = (None,) * 5
) -> tuple[list[str], ConfigDict]:
    """Return the tokens and the definition of the fields of a `tokenizer.json`.

    Args:
        fields: The fields of the file. Its model must not be WordPiece.
        special_tokens: The special tokens that other files name, in the order of `ROLES`.

    Raises:
        SpecialTokensError: A special token is missing.
        ValueError: The fields are not those of a tokenizer.
    """
    if (kind := model_type(fields)) not in KINDS:
        advice = "Read WordPiece from its vocab.txt, or with `load_tokenizer(folder)`."
        raise ValueError(f"model.type must be one of {[*KINDS]}. Received: {shown(kind)}. {advice}")
    try:
        model = {**fields["model"], "type": kind}
        vocab = model.pop("vocab")
        if model["type"] == "Unigram":
            model["scores"] = [float(score) for _, score in vocab]
            last = {token: number for number, (token, _) in enumerate(vocab)}
            # Of equal tokens, the last counts. No text has the others, whose names have a space.
            tokens = [t if last[t] == n else f"{t} (id {n})" for n, (t, _) in enumerate(vocab)]
        else:
            tokens = sorted(vocab, key=vocab.__getitem__)
            if kind == "BPE":
                merges = [m.split(" ") if isinstance(m, str) else list(m) for m in model["merges"]]
                model["merges"] = merges
            if [vocab[token] for token in tokens] != [*range(len(vocab))]:
                raise ValueError("the ids of its tokens must be 0, 1, 2 and so on")
        model["num_tokens"] = len(tokens)
        ids = {token: number for number, token in enumerate(tokens)}
        added = []
        for entry in sorted(fields.get("added_tokens") or (), key=lambda entry: entry["id"]):
            entry, number = dict(entry), entry["id"]
            del entry["id"]
            if ids.setdefault(entry["content"], len(ids)) != number:
                raise ValueError(f"the token {shown(entry['content'])} must not have id {number}")
            added.append(entry)
        definition = {"model": model, **{part: fields.get(part) for part in _PARTS}}
        definition["added_tokens"] = added
        definition["special_tokens"] = _special_tokens(definition, ids, special_tokens)
        for entry in added:
            entry.pop("role", None)
    except SpecialTokensError:
        raise
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        what = f"these are not the fields of a tokenizer: {error!r:.200}. Restore it from a copy."
        raise ValueError(what) from error
    return [*ids], definition


def to_json(tokens: Sequence[str], definition: ConfigDict) -> ConfigDict:
    """Return the fields of a `tokenizer.json`, for `from_json` and for the library tokenizers."""
    ids = {token: number for number, token in enumerate(tokens)}
    model = dict(definition["model"])
    own = tokens[: model.pop("num_tokens")]
    if model["type"] == "Unigram":
        scores = model.pop("scores")
        model["vocab"] = [[token, score] for token, score in zip(own, scores, strict=True)]
    else:
        merges = {name: model.pop(name) for name in ("merges",) if name in model}
        model |= {"vocab": {token: ids[token] for token in own}, **merges}  # as programs expect it
    roles = {}
    if _guessed(definition, ids) != definition["special_tokens"]:
        roles = {
            t: {"role": role} for t, role in zip(definition["special_tokens"], ROLES, strict=True)
        }
    added = [
        {"id": ids[entry["content"]], **entry, **roles.get(entry["content"], {})}
        for entry in definition["added_tokens"]
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda entry: entry["id"]),
        **{part: definition[part] for part in _PARTS},
        "model": model,
    }


def added_tokens(definition: ConfigDict) -> list[str]:
    """Return the tokens that stay whole in a text."""
    return [entry["content"] for entry in definition.get("added_tokens", ())]


def with_added(definition: ConfigDict, tokens: Sequence[str], special: bool) -> ConfigDict:
    """Return a definition with more added tokens."""
    flags = dict.fromkeys(TOKEN_FLAGS, False) | {"special": special}
    added = [{"content": token, **flags} for token in tokens]
    return {**definition, "added_tokens": [*definition["added_tokens"], *added]}


def first_tokens(definition: ConfigDict, tokens: Sequence[str], number: int) -> ConfigDict:
    """Return a definition of the first tokens of a vocabulary, without merges of the others."""
    model, dropped = dict(definition["model"]), set(tokens[number:])
    model["num_tokens"] = min(model["num_tokens"], number)
    if model["type"] == "Unigram":
        model["scores"] = model["scores"][:number]
    elif model["type"] == "BPE":
        model["merges"] = [[a, b] for a, b in model["merges"] if dropped.isdisjoint((a, b, a + b))]
    kept = [entry for entry in definition["added_tokens"] if entry["content"] not in dropped]
    return {**definition, "model": model, "added_tokens": kept}


def kind_of(definition: ConfigDict) -> str:
    """Return the kind of a vocabulary: one of `KINDS`, or "character-bpe"."""
    found = [step["type"] for step in steps(definition["pre_tokenizer"], "pretokenizers")]
    kind = KINDS[definition["model"]["type"]]
    return "character-bpe" if kind == "bpe" and "ByteLevel" not in found else kind


def steps(part: ConfigDict | None, name: str) -> list[ConfigDict]:
    """Return the steps of a part of a definition, which may be a sequence of them (`name`)."""
    if part is None:
        return []
    if part["type"] == "Sequence":
        return [step for inner in part[name] for step in steps(inner, name)]
    return [part]


def token_text(token: str, kind: str) -> str:
    """Return the text of a token of a model, without spaces around it."""
    if kind != "bpe":
        return token.replace("▁", " ").strip()
    return (token_bytes(token) or token.encode()).decode("utf-8", "replace").strip()


def token_bytes(token: str) -> bytes | None:
    """Return the bytes that a byte-level token stands for, or None if it has other characters."""
    known = all(character in _BYTE_OF for character in token)
    return bytes(_BYTE_OF[character] for character in token) if known else None


def frame(definition: ConfigDict) -> tuple[str, str, int] | None:
    """Return the start and end token and the number of separators between the texts of a pair.

    None stands for frames other than `[CLS] a [SEP]` and `[CLS] a [SEP] b [SEP]`, with one or two
    separators between the texts.
    """
    processors = steps(definition["post_processor"], "processors")
    framing = [processor for processor in processors if processor["type"] != "ByteLevel"]
    if len(framing) != 1:
        return None
    (processor,) = framing
    if processor["type"] in ("RobertaProcessing", "BertProcessing"):
        number = 2 if processor["type"] == "RobertaProcessing" else 1
        return processor["cls"][0], processor["sep"][0], number
    if processor["type"] != "TemplateProcessing":
        return None
    single, pair = (
        [part["id"] for item in processor[name] for part in item.values()]
        for name in ("single", "pair")
    )
    for number in (1, 2):
        if len(single) == 3 and pair == [*single[:2], *single[2:] * number, "B", single[2]]:
            return (single[0], single[2], number) if single[1] == "A" else None
    return None


def template(
    cls: str, sep: str, ids: Mapping[str, int], num_separators: int, segment: int
) -> ConfigDict:
    """Return a `post_processor` whose `frame` is `(cls, sep, num_separators)`.

    The second text of a pair and the separator after it are in `segment`.
    """

    def part(token: str, segment: int = 0) -> ConfigDict:
        kind = "Sequence" if token in ("A", "B") else "SpecialToken"
        return {kind: {"id": token, "type_id": segment}}

    single = [part(cls), part("A"), part(sep)]
    more = [part(sep)] * (num_separators - 1)
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *more, part("B", segment), part(sep, segment)],
        "special_tokens": {t: {"id": t, "ids": [ids.get(t)], "tokens": [t]} for t in (cls, sep)},
    }


def has_segments(definition: ConfigDict) -> bool:
    """Return whether the second text of a pair has another segment than the first."""
    processors = steps(definition["post_processor"], "processors")
    if any(processor["type"] == "TemplateProcessing" for processor in processors):
        pairs = [part for p in processors for item in p.get("pair", ()) for part in item.values()]
        return any(part["id"] == "B" and part.get("type_id") for part in pairs)
    return any(processor["type"] == "BertProcessing" for processor in processors)


def _guessed(definition: ConfigDict, ids: dict[str, int]) -> list[str]:
    try:
        return _special_tokens(definition, ids, (None,) * len(ROLES))
    except SpecialTokensError:
        return []


def _special_tokens(
    definition: ConfigDict, ids: dict[str, int], named: Sequence[str | None]
) -> list[str]:
    """Return the special tokens by role: as named, by their role, or by place or spelling."""
    found = {
        entry["role"]: entry["content"] for entry in definition["added_tokens"] if "role" in entry
    }
    model = definition["model"]
    unk = model.get("unk_token")
    if model["type"] == "Unigram" and model.get("unk_id") is not None:
        unk = [*ids][model["unk_id"]]
    cls, sep, _ = frame(definition) or (None, None, 1)
    by_place = {"cls": cls, "sep": sep}
    tokens, missing = [], []
    for role, name in zip(ROLES, named, strict=True):
        of_model = unk if role == "unk" else None  # what stands for unknown text
        candidates = (of_model, name, found.get(role), by_place.get(role), *_SPELLINGS[role])
        token = next((token for token in candidates if token is not None and token in ids), None)
        if token is None or token in tokens:
            missing.append(role)
        else:
            tokens.append(token)
    if missing:
        raise SpecialTokensError(
            f"A vocabulary must have five special tokens. Missing: the token for {missing[0]}."
        )
    return tokens
