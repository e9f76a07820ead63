"""Read SentencePiece models: `sentencepiece.bpe.model` of XLM-R and CamemBERT, `spiece.model`.

The result of reading has the fields of the `tokenizer.json` that transformers converts it to.

Source: github.com/google/sentencepiece, `src/sentencepiece_model.proto`; github.com/huggingface/
transformers, `convert_slow_tokenizer.py`; protobuf.dev/programming-guides/encoding.
"""

import base64
import re
import struct
from collections.abc import Iterable, Iterator

from keras_bert_d2l.text.definition import template
from keras_bert_d2l.types import ConfigDict

# Field numbers of ModelProto, SentencePiece, TrainerSpec and NormalizerSpec.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK, _UNK_ID = 3, 35, 40
_CHARSMAP = 2
_ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES = 3, 4, 5
_UNIGRAM, _BPE = 1, 2  # types of models
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5

_MOST_PIECES = 2**20  # a limit for files that are made to fill the memory; XLM-V has 902,000
_PAD, _UNK = "<pad>", "<unk>"
_SHIFTED = ("xlm-roberta", "camembert")  # ids as in fairseq
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
_NUMBER_AND_COMMA = re.compile(r".*\d,", re.DOTALL)


def sentencepiece_fields(data: bytes, model_type: str, options: ConfigDict) -> ConfigDict:
    """Convert a SentencePiece model to the fields of a `tokenizer.json`.

    Args:
        data: The content of the file.
        model_type: The field of that name in `config.json`. It decides the ids: those of
            `"xlm-roberta"` and `"camembert"` are shifted, as in fairseq, and others are not.
        options: The fields of `tokenizer_config.json`: `do_lower_case` and `keep_accents` matter
            for `"albert"`.

    Raises:
        ValueError: If the file is damaged or is not a Unigram model.
    """
    try:
        pieces, trainer, charsmap = _read_model(data)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"this is not a SentencePiece model: {error}") from error
    if trainer.get(_MODEL_TYPE, _UNIGRAM) != _UNIGRAM or not pieces:
        raise ValueError("only SentencePiece models of the type Unigram are supported")
    normalizers: list[ConfigDict] = []
    if charsmap:
        encoded = base64.b64encode(charsmap).decode()
        normalizers = [{"type": "Precompiled", "precompiled_charsmap": encoded}]
    cls, sep, mask = "<s>", "</s>", "<mask>"
    if model_type not in _SHIFTED:
        cls, sep, mask = "[CLS]", "[SEP]", "[MASK]"
        spaces = _replace({"Regex": " {2,}"}, " ")
        normalizers = [*_albert_normalizers(options), *normalizers, spaces]
    vocab = _vocab(pieces, model_type)
    ids = {token: number for number, (token, _) in enumerate(vocab)}
    special = {cls, _PAD, sep, _UNK, mask, *(p for p, _, kind in pieces if kind == _CONTROL)}
    flags = {"single_word": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": ids[t], "content": t, **flags, "lstrip": t == mask, "special": True}
            for t in sorted(special & {*ids}, key=ids.__getitem__)
        ],
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, _METASPACE],
        },
        "post_processor": template(cls, sep, ids, *((2, 0) if model_type in _SHIFTED else (1, 1))),
        "decoder": _METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": ids.get(_UNK),
            "vocab": [[*entry] for entry in vocab],
            "byte_fallback": bool(trainer.get(_BYTE_FALLBACK, 0)),
        },
    }


def _vocab(pieces: list[tuple[str, float, int]], model_type: str) -> list[tuple[str, float]]:
    """Return the tokens and their scores in the order of the ids."""
    vocab = [(piece, score) for piece, score, _ in pieces]
    if model_type == "xlm-roberta":
        first = ["<s>", _PAD, "</s>", _UNK]
        return [*((token, 0.0) for token in first), *vocab[3:], ("<mask>", 0.0)]
    if model_type == "camembert":
        first = ["<s>NOTUSED", _PAD, "</s>NOTUSED", _UNK]
        more = [*((token, 0.0) for token in first), ("<unk>NOTUSED", -100.0)]
        return [*more, *vocab[1:], ("<mask>", 0.0)]
    # ALBERT separates a comma from the digits before it.
    return [(p, s - 100 if _NUMBER_AND_COMMA.fullmatch(p) else s) for p, s in vocab]


def _albert_normalizers(options: ConfigDict) -> list[ConfigDict]:
    found = [_replace({"String": quotes}, '"') for quotes in ("``", "''")]
    if not options.get("keep_accents", False):
        found += [{"type": "NFKD"}, {"type": "StripAccents"}]
    return [*found, {"type": "Lowercase"}] if options.get("do_lower_case", True) else found


def _replace(pattern: ConfigDict, content: str) -> ConfigDict:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _read_model(data: bytes) -> tuple[list[tuple[str, float, int]], dict[int, int], bytes]:
    """Return the pieces with their scores and types, the training options and the charsmap."""
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, int] = {}
    charsmap = b""
    for number, value in _fields(data):
        if number == _PIECES:
            piece = dict(_fields(_as_bytes(value)))
            text = _as_bytes(piece.get(_PIECE, b"")).decode()
            score = struct.unpack("<f", _as_bytes(piece.get(_SCORE, bytes(4))))[0]
            kind = piece.get(_TYPE, _NORMAL)
            pieces.append((text, score, kind if isinstance(kind, int) else _NORMAL))
            if len(pieces) > _MOST_PIECES:
                raise IndexError(f"it has more than {_MOST_PIECES:,} pieces")
        elif number == _TRAINER:
            trainer = {n: v for n, v in _fields(_as_bytes(value)) if isinstance(v, int)}
        elif number == _NORMALIZER:
            charsmap = _as_bytes(dict(_fields(_as_bytes(value))).get(_CHARSMAP, b""))
    return pieces, trainer, charsmap


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise IndexError("a field has the wrong type")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message; numbers of 4 bytes as bytes."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _varint(data, place)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, place = _varint(data, place)
        elif kind in (_FOUR_BYTES, _EIGHT_BYTES):
            size = 4 if kind == _FOUR_BYTES else 8
        else:
            raise IndexError(f"unknown wire type {kind}")
        if size > len(data) - place:
            raise IndexError("it ends in the middle of a field")
        yield tag >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise IndexError("a number has more than 10 bytes")


def byte_pair_model(pieces: Iterable[tuple[str, int]]) -> bytes:
    """Return a SentencePiece model of the type BPE, which changes no character of a text.

    Args:
        pieces: The text of each piece, and the rank of the merge that makes it.
    """
    unknown = _field(_PIECE, "\u0100".encode()) + _field(_TYPE, _UNKNOWN)  # the model needs one
    found = [_field(_PIECE, text.encode()) + _field(_SCORE, -float(rank)) for text, rank in pieces]
    # A table without entries: SentencePiece writes to the log if there is no table.
    size = 1024
    charsmap = _field(_CHARSMAP, struct.pack("<I", size) + bytes(size + 1))
    options = (_ADD_DUMMY_PREFIX, _REMOVE_EXTRA_WHITESPACES, _ESCAPE_WHITESPACES)
    parts = [_field(_PIECES, piece) for piece in (*found, unknown)]
    parts.append(_field(_TRAINER, _field(_MODEL_TYPE, _BPE)))
    parts.append(_field(_NORMALIZER, charsmap + b"".join(_field(name, 0) for name in options)))
    return b"".join(parts)


def _field(number: int, value: float | bytes) -> bytes:
    if isinstance(value, bytes):
        return _number(number << 3 | _BYTES) + _number(len(value)) + value
    if isinstance(value, int):
        return _number(number << 3 | _VARINT) + _number(value)
    return _number(number << 3 | _FOUR_BYTES) + struct.pack("<f", value)


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
