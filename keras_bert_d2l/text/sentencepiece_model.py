"""Read SentencePiece models, such as `sentencepiece.bpe.model` and `spm.model`, and write them.

The result of reading has the fields of the `tokenizer.json` that transformers converts it to.

Source: github.com/google/sentencepiece, `src/sentencepiece_model.proto`; github.com/huggingface/
transformers, `convert_slow_tokenizer.py`; protobuf.dev/programming-guides/encoding.
"""

import base64
import functools
import re
from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from keras_bert_d2l.text.definition import template
from keras_bert_d2l.types import ConfigDict

# The messages of sentencepiece_model.proto with the fields that matter: their numbers and types.
_MESSAGES = {
    "SentencePiece": {"piece": (1, "BYTES"), "score": (2, "FLOAT"), "type": (3, "INT32")},
    "TrainerSpec": {"model_type": (3, "INT32"), "byte_fallback": (35, "BOOL")},
    "NormalizerSpec": {
        "precompiled_charsmap": (2, "BYTES"),
        "add_dummy_prefix": (3, "BOOL"),
        "remove_extra_whitespaces": (4, "BOOL"),
        "escape_whitespaces": (5, "BOOL"),
    },
    "ModelProto": {
        "pieces": (1, "SentencePiece"),
        "trainer_spec": (2, "TrainerSpec"),
        "normalizer_spec": (3, "NormalizerSpec"),
    },
}
_UNIGRAM = 1  # a type of models
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # types of pieces

_MOST_PIECES = 2**20  # a limit for files that are made to fill the memory; XLM-V has 902,000
_PAD, _UNK = "<pad>", "<unk>"
_DEBERTA = "deberta-v2"
_SHIFTED = ("xlm-roberta", "camembert")  # ids as in fairseq
SPECIALS = {  # padding, unknown, start, separator and mask token
    **dict.fromkeys(_SHIFTED, (_PAD, _UNK, "<s>", "</s>", "<mask>")),
    **dict.fromkeys(("albert", "plain"), (_PAD, _UNK, "[CLS]", "[SEP]", "[MASK]")),
    _DEBERTA: ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
}
_FLAGS = {"single_word": False, "rstrip": False, "normalized": False}
_METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
_NUMBER_AND_COMMA = re.compile(r".*\d,", re.DOTALL)


def sentencepiece_fields(data: bytes, model_type: str, options: ConfigDict) -> ConfigDict:
    """Convert a SentencePiece model to the fields of a `tokenizer.json`.

    Args:
        data: The content of the file.
        model_type: The field of that name in `config.json`. It decides the ids: those of
            `"xlm-roberta"` and `"camembert"` are shifted, as in fairseq, and others are not.
            `"plain"` is as `"albert"`, without its changes to texts and scores.
        options: The fields of `tokenizer_config.json`: `do_lower_case` and `keep_accents` matter
            for `"albert"`; `do_lower_case` and `split_by_punct` for `"deberta-v2"`.

    Raises:
        ValueError: If the file is damaged or is not a Unigram model.
    """
    try:
        model = model_proto().FromString(data)
        if len(model.pieces) > _MOST_PIECES:
            raise ValueError(f"it has more than {_MOST_PIECES:,} pieces")
        pieces = [(piece.piece.decode(), piece.score, piece.type) for piece in model.pieces]
    except (DecodeError, ValueError) as error:
        raise ValueError(f"this is not a SentencePiece model: {error}") from error
    trainer = model.trainer_spec
    if (trainer.model_type or _UNIGRAM) != _UNIGRAM or not pieces:
        raise ValueError("only SentencePiece models of the type Unigram are supported")
    charsmap = model.normalizer_spec.precompiled_charsmap
    pad, unk, cls, sep, mask = SPECIALS[model_type]
    vocab = _vocab(pieces, model_type)
    ids = {token: number for number, (token, _) in enumerate(vocab)}
    is_deberta = model_type == _DEBERTA
    whole = (_CONTROL, _USER_DEFINED) if is_deberta else (_CONTROL,)
    is_special = {piece: kind == _CONTROL for piece, _, kind in pieces if kind in whole}
    is_special |= dict.fromkeys((cls, pad, sep, unk, mask), True)
    added: list[ConfigDict] = [
        {
            "id": ids[t],
            "content": t,
            **_FLAGS,
            "lstrip": t == mask and not is_deberta,
            "special": is_special[t],
        }
        for t in sorted(is_special.keys() & ids, key=ids.__getitem__)
    ]
    if is_deberta and mask not in ids:  # its id follows those of all other tokens
        added.append({"content": mask, **_FLAGS, "lstrip": False, "special": True})
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {
            "type": "Sequence",
            "normalizers": _normalizers(charsmap, model_type, options),
        },
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*_word_steps(model_type, options), _METASPACE],
        },
        "post_processor": template(cls, sep, ids, *((2, 0) if model_type in _SHIFTED else (1, 1))),
        "decoder": _METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": ids.get(unk),
            "vocab": [[*entry] for entry in vocab],
            "byte_fallback": trainer.byte_fallback and not is_deberta,
        },
    }


def sentencepiece_model(
    tokens: Sequence[str], scores: Sequence[float], charsmap: bytes, model_type: str
) -> bytes:
    """Return the content of a file that `sentencepiece_fields` reads.

    Args:
        tokens: The tokens in the order of their ids.
        scores: The scores of the first tokens. The others are not part of the model.
        charsmap: The table of the normalizer.
        model_type: As for `sentencepiece_fields`, but not `"camembert"`.
    """
    rows, unk = [*zip(tokens, scores, strict=False)], SPECIALS[model_type][1]
    if model_type in _SHIFTED:  # the padding is not part of the model
        rows = [(_UNK, 0.0), *(rows[n] for n in (0, 2)), *rows[4:]]
        rows = [row for row in rows if row[0] != "<mask>"]
    model = model_proto()()
    for token, score in rows:
        is_control = token in SPECIALS[model_type]
        kind = _UNKNOWN if token == unk else _CONTROL if is_control else _NORMAL
        model.pieces.add(piece=token.encode(), score=score, type=kind)
    model.trainer_spec.model_type = _UNIGRAM
    model.normalizer_spec.precompiled_charsmap = charsmap
    return model.SerializeToString()


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
    if model_type in (_DEBERTA, "plain"):
        return vocab
    # ALBERT separates a comma from the digits before it.
    return [(p, s - 100 if _NUMBER_AND_COMMA.fullmatch(p) else s) for p, s in vocab]


def _normalizers(charsmap: bytes, model_type: str, options: ConfigDict) -> list[ConfigDict]:
    encoded = base64.b64encode(charsmap).decode()
    table = [{"type": "Precompiled", "precompiled_charsmap": encoded}] if charsmap else []
    if model_type in (*_SHIFTED, "plain"):
        return table
    lowercases = options.get("do_lower_case", model_type != _DEBERTA)
    lowers: list[ConfigDict] = [{"type": "Lowercase"}] if lowercases else []
    if model_type == _DEBERTA:
        first = [*lowers, {"type": "Strip", "strip_left": True, "strip_right": True}]
    else:
        first = [_replace({"String": quotes}, '"') for quotes in ("``", "''")]
        if not options.get("keep_accents", False):
            first += [{"type": "NFKD"}, {"type": "StripAccents"}]
        first += lowers
    return [*first, *table, _replace({"Regex": " {2,}"}, " ")]


def _word_steps(model_type: str, options: ConfigDict) -> list[ConfigDict]:
    """Return the steps before `Metaspace`."""
    if model_type != _DEBERTA:
        return [{"type": "WhitespaceSplit"}]
    marks = {"type": "Punctuation", "behavior": "Isolated"}
    return [marks] if options.get("split_by_punct") else []


def _replace(pattern: ConfigDict, content: str) -> ConfigDict:
    return {"type": "Replace", "pattern": pattern, "content": content}


@functools.cache
def model_proto() -> Any:
    """Return the class of the message `ModelProto`."""
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece_model.proto", package="pieces")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            label = kinds.LABEL_REPEATED if field == "pieces" else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if kind in _MESSAGES:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".pieces.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pieces.ModelProto"))
