"""Checks of definitions of tokenizers: which are damaged, and which are not supported."""

import math
import re
from collections.abc import Callable, Iterator, Sequence

from keras_bert_d2l.checks import shown
from keras_bert_d2l.text.definition import (
    BYTES,
    FORMS,
    KINDS,
    ROLES,
    added_tokens,
    frame,
    kind_of,
    steps,
)
from keras_bert_d2l.text.word_patterns import splits_of, word_steps
from keras_bert_d2l.types import ConfigDict

_NORMALIZERS = ("Precompiled", "Strip", "StripAccents", "Lowercase", *FORMS)  # and Replace
REPLACED_RUNS = (" {2,}", r"\s{2,}", r"\s{2,}|[\n\r\t]")  # the regular expressions of Replace
# Limits for files that are made to fill the memory; real tokenizers stay far below them.
_MOST_CHARACTERS = {
    "BPE": (2**12, 2**22),
    "Unigram": (2**8, 2**23),
    "WordLevel": (2**8, 2**23),
}  # of a token, of all
_MOST_REPLACED = 256  # characters of a text of a Replace
_MOST_STEPS = 32  # of a normalizer or pre-tokenizer
_MOST_ADDED_BYTES = 2**15  # of all added tokens, which are one regular expression
_SPACES_BYTES = 32  # of a regular expression that finds spaces
_DECODERS: dict[str, ConfigDict] = {"Metaspace": {}, "ByteFallback": {}, "Fuse": {}}
_DECODERS["Strip"] = {"content": " ", "start": 1, "stop": 0}
_NOT_IN_UTF8 = {192, 193, *range(245, 256)}  # bytes that no text has


class UnsupportedError(ValueError):
    """A tokenizer is valid, but ours would give different ids; the argument names the reasons."""

    def __str__(self) -> str:
        reasons, advice = self.args[0], "Use the tokenizer it comes from, and pass token ids."
        return f"The tokenizer of this vocabulary is not supported: {reasons}. {advice}"


def check(tokens: Sequence[str], definition: ConfigDict) -> None:
    """Raise a `ValueError` if a definition is damaged, not supported or does not fit the tokens."""
    try:
        model, special, ids = definition["model"], definition["special_tokens"], {*tokens}
        own = {*tokens[: model["num_tokens"]]}
        most = _MOST_CHARACTERS.get(model["type"], (0, 0))
        if model["type"] not in KINDS:
            problem = f"model.type is one of {[*KINDS]}, not {shown(model['type'])}"
        elif len(special) != len({*special}) or len(special) != len(ROLES):
            problem = f"it has {len(ROLES)} different special tokens, not {shown(special)}"
        elif not ids.issuperset([*special, *added_tokens(definition)]):
            problem = "its special and added tokens are in the vocabulary"
        elif model["type"] == "BPE" and any(
            not own.issuperset((a, b, a + b)) for a, b in model["merges"]
        ):
            problem = "its merges join tokens of the vocabulary to another one"
        elif model["type"] == "Unigram" and not (
            len(model["scores"]) == len(own) > model["unk_id"] >= 0
            and all(map(math.isfinite, model["scores"]))
        ):
            problem = "it has a finite score for each token and an `unk_id`"
        elif max(map(len, own)) > most[0] or sum(map(len, own)) > most[1]:
            problem = f"tokens have at most {most[0]:,} characters, all {most[1]:,}"
        else:
            problem, parts = "", ", ".join(unsupported_parts(tokens, definition))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        problem = f"it has all fields ({error!r:.200})"
    except RecursionError:
        problem = "its steps are not nested"
    if problem:
        raise ValueError(
            f"A tokenizer is only readable if {problem}. Copy the tokenizer's files again."
        )
    if parts:
        raise UnsupportedError(parts)


def unsupported_parts(tokens: Sequence[str], definition: ConfigDict) -> Iterator[str]:
    """Yield the parts of a definition for which our tokenizer would give different ids."""
    cls, sep, number = frame(definition) or ("", "", 0)
    if not number:
        yield f"post_processor={shown(definition['post_processor'])}"
    elif [cls, sep] != definition["special_tokens"][2:4]:
        yield f"other tokens around a text than its cls and sep token: {cls} and {sep}"
    for entry in definition["added_tokens"]:
        token, strips = entry["content"], entry.get("lstrip") or entry.get("rstrip")
        if entry.get("single_word"):
            yield f"single_word of the token {shown(token)}"
        if strips and token != token.strip():  # `AddedTokens.ids` strips both
            yield f"lstrip or rstrip of the token {shown(token)} with spaces at its ends"
    spaces = [e.get(name) for e in definition["added_tokens"] for name in ("lstrip", "rstrip")]
    num_bytes = sum(len(token.encode()) for token in added_tokens(definition))
    if num_bytes + _SPACES_BYTES * sum(map(bool, spaces)) > _MOST_ADDED_BYTES:
        yield f"added_tokens of more than {_MOST_ADDED_BYTES:,} bytes"
    for part, name in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        if len(steps(definition[part], name)) > _MOST_STEPS:
            yield f"{part} of more than {_MOST_STEPS} steps"
    yield from _unsupported_normalizers(definition)
    names = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
    model = definition["model"]
    yield from (f"model.{name}={shown(model[name])}" for name in names if model.get(name))
    if kind_of(definition) == "bpe":
        yield from _unsupported_byte_pairs({*tokens}, definition)
    else:
        yield from _unsupported_pieces({*tokens[: model["num_tokens"]]}, definition)


def _unsupported_normalizers(definition: ConfigDict) -> Iterator[str]:
    for step in steps(definition["normalizer"], "normalizers"):
        pattern = step.get("pattern", {})
        text = pattern.get("String", "")
        texts = [text, step["content"] if step["type"] == "Replace" else ""]
        if max(map(len, texts)) > _MOST_REPLACED:
            yield f"Replace of more than {_MOST_REPLACED} characters"
            continue
        # The text may overlap itself only as a run of one character, such as "``".
        is_simple = len({*text}) == 1 or (
            bool(text) and not any(text.startswith(text[n:]) for n in range(1, len(text)))
        )
        is_simple |= pattern.get("Regex") in REPLACED_RUNS
        if step["type"] not in _NORMALIZERS and not (step["type"] == "Replace" and is_simple):
            yield f"normalizer={shown(step)}"


def _unsupported_byte_pairs(tokens: set[str], definition: ConfigDict) -> Iterator[str]:
    model = definition["model"]
    lost = [n for n, token in enumerate(BYTES) if token not in tokens and n not in _NOT_IN_UTF8]
    if lost and model.get("unk_token") not in tokens:  # tokenizers drops them
        yield f"model.vocab without tokens for the bytes {shown(lost)}"
    names = () if set(BYTES) <= tokens else ("byte_fallback", "fuse_unk")
    yield from (f"model.{name}={shown(model[name])}" for name in names if model.get(name))
    if [step["type"] for step in steps(definition["decoder"], "decoders")] != ["ByteLevel"]:
        yield f"decoder={shown(definition['decoder'])}"
    yield from _unsupported_steps(definition["pre_tokenizer"], word_steps)


def _unsupported_steps(
    pre_tokenizer: ConfigDict, read: Callable[[ConfigDict], object] = splits_of
) -> Iterator[str]:
    try:
        read(pre_tokenizer)
    except (ValueError, re.error) as error:
        yield f"pre_tokenizer={shown(pre_tokenizer)} ({error})"


def _unsupported_pieces(tokens: set[str], definition: ConfigDict) -> Iterator[str]:
    model = definition["model"]
    of_bytes = {f"<0x{byte:02X}>": byte for byte in range(0x100)}
    if model.get("byte_fallback"):
        lost = {byte for token, byte in of_bytes.items() if token not in tokens} - _NOT_IN_UTF8
        if lost:
            yield f"model.byte_fallback=True without tokens for the bytes {shown(sorted(lost))}"
        if any(not of_bytes.keys().isdisjoint((a, b, a + b)) for a, b in model.get("merges", ())):
            yield "model.merges of tokens for bytes"
    elif model["type"] != "Unigram" and model.get("unk_token") not in tokens:
        yield f"model.unk_token={shown(model.get('unk_token'))}"
    for step in steps(definition["post_processor"], "processors"):
        if step["type"] in ("RobertaProcessing", "ByteLevel") and step.get("trim_offsets", True):
            yield f"post_processor.trim_offsets=True of {step['type']}"
    for step in steps(definition["pre_tokenizer"], "pretokenizers"):
        if step["type"] != "Metaspace":
            yield from _unsupported_steps(step)
        elif len(step["replacement"]) != 1:
            yield f"pre_tokenizer.replacement={shown(step['replacement'])}"
        elif step.get("add_prefix_space") is False and step.get("prepend_scheme") != "never":
            yield "pre_tokenizer.add_prefix_space=False without a prepend_scheme"
    for step in steps(definition["decoder"], "decoders"):
        if {**step, **_DECODERS.get(step["type"], {"type": ""})} != step and not (
            step["type"] == "Replace" and "String" in step["pattern"]
        ):
            yield f"decoder={shown(step)}"
