"""Tokenizers made to crash, stall or fill a reader end in an error that names file and part."""

import base64
import json
import re
import struct

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.text.sentencepiece_model import sentencepiece_fields
from tests.nightly import nightly_except
from tests.robustness.folders import SPIECE
from tests.robustness.trial import ERROR, judge, measured
from tests.text.tokenizer.byte_level import roberta_fields

FIELDS = {"bpe": roberta_fields(), "unigram": sentencepiece_fields(SPIECE, "albert", {})}
ALBERT = json.dumps({"tokenizer_class": "AlbertTokenizer"})


def edited(kind, *path, value):
    """Return the files of a folder whose `tokenizer.json` has one other value."""
    fields = json.loads(json.dumps(FIELDS[kind]))
    *others, last = path
    holder = fields
    for key in others:
        holder = holder[key]
    holder[last] = value
    return {"tokenizer.json": json.dumps(fields)}


def with_normalizer(**fields):
    return edited("unigram", "normalizer", value=fields)


def with_charsmap(data):
    encoded = base64.b64encode(data).decode()
    return with_normalizer(type="Precompiled", precompiled_charsmap=encoded)


def with_added(*tokens, kind="bpe", **flags):
    size = len(FIELDS[kind]["model"]["vocab"])
    added = [{"id": size + n, "content": token, **flags} for n, token in enumerate(tokens)]
    return edited(kind, "added_tokens", value=[*FIELDS[kind]["added_tokens"], *added])


def with_merges(text):
    model = FIELDS["bpe"]["model"]
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": text}


def with_model(data):
    return {"tokenizer_config.json": ALBERT, "spiece.model": data}


def wide_trie():
    """Return a table of normalizations in which every byte may follow every other one."""
    units = np.arange(256, dtype="<u4") * (1 + (1 << 10))  # all lead to the same place
    return struct.pack("<I", units.nbytes) + units.tobytes() + b"a\0"


def long_replacement():
    """Return a table of normalizations that replaces "a" by a megabyte."""
    units = np.zeros(256, "<u4")
    units[ord("a")] = ord("a") | 1 << 8 | 1 << 10
    return struct.pack("<I", units.nbytes) + units.tobytes() + b"b" * 2**20 + b"\0"


CASES = {
    "a long piece": (edited("unigram", "model", "vocab", 9, value=["a" * 10**6, -1.0]), "256"),
    "a score of 400 digits": (
        *(edited("unigram", "model", "vocab", 9, value=["ab", 10**400]), "OverflowError"),
    ),
    "a piece without a score": (edited("unigram", "model", "vocab", 9, value=["ab"]), "values"),
    "an unknown piece of 10^12": (edited("unigram", "model", "unk_id", value=10**12), "Index"),
    "a charsmap that lies about its size": (with_charsmap(b"\xff" * 16), "precompiled_charsmap"),
    "a charsmap with too many keys": (with_charsmap(wide_trie()), "precompiled_charsmap"),
    "a replacement of a megabyte": (with_charsmap(long_replacement()), "Precompiled"),
    "Strip without fields": (with_normalizer(type="Strip"), "'Strip'.*strip_left"),
    "Replace by a megabyte": (
        *(with_normalizer(type="Replace", pattern={"String": "a"}, content="b" * 10**6), "Replace"),
    ),
    "a number as added token": (with_added(7), "7"),
    "10,000 added tokens": (
        with_added(*map("token{}".format, range(10**4))),
        "added_tokens of more",
    ),
    "tokens between spaces": (
        *(with_added(*map("token{}".format, range(999)), lstrip=True, rstrip=True), "added_tokens"),
    ),
    "ids with a gap": (edited("bpe", "model", "vocab", "x", value=10**9), "0, 1, 2"),
    "a merge of unknown tokens": (edited("bpe", "model", "merges", value=["x yz"]), "merges"),
    "a megabyte as merge": (with_merges("a " + "a" * 10**6), "merges"),
    "a million pieces": (with_model(b"\x0a\x00" * (2**20 + 1)), "1,048,576 pieces"),
    "a model of two pieces": (with_model(b"\x0a\x03\x0a\x01a\x0a\x03\x0a\x01b"), "token for pad"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except({*CASES} - {"a million pieces"}, CASES))
def test_a_hostile_tokenizer_is_refused(name, tmp_path):
    files, part = CASES[name]
    for file, content in files.items():
        (tmp_path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    with measured() as used:
        outcome, detail = judge(lambda: kb.load_tokenizer(tmp_path), tmp_path)
    assert outcome == ERROR
    assert re.search(part, detail)
    assert used.megabytes < 150
