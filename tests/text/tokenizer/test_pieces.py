"""Tokenizers with pieces of words other than Unigram: BPE of characters, and words as tokens.

The ids and offsets are those of tokenizers 0.23.3.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.audit import audit_saved_model
from keras_bert_d2l.text.definition import from_json, template
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

ENGINE = pytest.mark.usefixtures("engine")
SPECIALS = ["<pad>", "<unk>", "<bos>", "<eos>", "<mask>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(0x100)]
SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
BACK = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
GEMMA = {
    "normalizer": SPACE,
    "pre_tokenizer": None,
    "decoder": {"type": "Sequence", "decoders": [BACK, {"type": "ByteFallback"}]},
}


def fields_of(kind, tokens, merges=None, **changes):
    """Return the fields of a `tokenizer.json`."""
    ids = {token: number for number, token in enumerate([*SPECIALS, *tokens])}
    model = {"type": kind, "vocab": ids, "unk_token": "<unk>"}
    if merges is not None:
        model |= {"merges": [merge.split() for merge in merges], "fuse_unk": True}
        model["byte_fallback"] = BYTES[0] in ids
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "added_tokens": [
            {"id": ids[token], "content": token, **flags, "special": True} for token in SPECIALS
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": template("<bos>", "<eos>", ids, 1, 1),
        "decoder": None,
        "model": model,
        **changes,
    }


def tokenizer_of(fields):
    return Tokenizer(Vocab(*from_json(fields, SPECIALS)))


def gemma(*merges):
    pieces = [merge.replace(" ", "") for merge in merges]
    return fields_of("BPE", [*BYTES, *"\u2581abc", *dict.fromkeys(pieces)], merges, **GEMMA)


def found(tokenizer, text):
    rows = tokenizer.with_offsets([text])
    tokens, starts, ends = (rows[name][0].numpy().tolist() for name in ("tokens", "starts", "ends"))
    return [tokenizer.vocab.to_tokens(n) for n in tokens], [*zip(starts, ends, strict=True)]


@ENGINE
@pytest.mark.slow
def test_characters_without_a_token_become_their_bytes():
    tokenizer = tokenizer_of(gemma("a b", "\u2581 ab", "ab c"))
    tokens, offsets = found(tokenizer, "ab  abc<mask>\u00e9\u2603a")
    expected = "ab \u2581 \u2581ab c <mask> <0xC3> <0xA9> <0xE2> <0x98> <0x83> a".split()
    assert tokens == expected
    bytes_of = [(13, 14), (13, 14), (14, 15), (14, 15), (14, 15), (15, 16)]
    assert offsets == [(0, 2), (2, 3), (3, 6), (6, 7), (7, 13), *bytes_of]
    ids = tokenizer.tokenize(["ab \u00e9\u2603"])
    assert tokenizer.detokenize(ids).numpy()[0].decode() == "ab \u00e9\u2603"
    words = tokenizer.tokenize_words([["ab", "ab", "<mask>"]])
    assert words.to_list() == [[tokenizer.vocab["ab"]], [tokenizer.vocab["\u2581ab"]], [4]]
    assert tokenizer.vocab.kind == "character-bpe"


@pytest.mark.slow
def test_a_join_that_allows_one_of_a_lower_rank_is_done_first():
    tokenizer = tokenizer_of(gemma("ab a", "a b", "aba b"))
    assert found(tokenizer, "ababab") == (["abab", "ab"], [(0, 4), (4, 6)])


@pytest.mark.slow
def test_unknown_characters_in_a_row_are_one_token():
    fields = fields_of("BPE", ["a", "b", "ab"], ["a b"])
    tokens, offsets = found(tokenizer_of(fields), "ab\u2603\u2603,c \u2603")
    assert tokens == ["ab", "<unk>", "<unk>", "<unk>"]
    assert offsets == [(0, 2), (2, 5), (5, 6), (7, 8)]
    fields["model"]["fuse_unk"] = False
    assert found(tokenizer_of(fields), "ab\u2603\u2603")[0] == ["ab", "<unk>", "<unk>"]


@ENGINE
@pytest.mark.slow
def test_words_are_tokens():
    tokenizer = tokenizer_of(fields_of("WordLevel", ["cat", ","]))
    tokens, offsets = found(tokenizer, "cat, cats <mask>")
    assert tokens == ["cat", ",", "<unk>", "<mask>"]
    assert offsets == [(0, 3), (3, 4), (5, 9), (10, 16)]
    assert tokenizer.detokenize([[5, 6, 5]]).numpy().tolist() == [b"cat , cat"]
    assert not tokenizer.vocab.continues.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("behavior", "expected"),
    [
        ("MergedWithPrevious", ["a-", "-", "b-"]),
        ("MergedWithNext", ["a", "-", "-b", "-"]),
        ("Contiguous", ["a", "--", "b", "-"]),
        ("Removed", ["a", "b"]),
    ],
)
def test_the_behavior_of_a_step_says_what_becomes_of_its_matches(behavior, expected):
    fields = fields_of("WordLevel", ["a", "b", "-", "--", "a-", "b-", "-b"])
    fields["pre_tokenizer"] = step = {"type": "Punctuation", "behavior": behavior}
    tokenizer = tokenizer_of(fields)
    assert found(tokenizer, "a--b-")[0] == expected
    assert json.loads(tokenizer.vocab.to_text())["pre_tokenizer"] == step


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"byte_fallback": True}}, "byte_fallback=True without tokens for the bytes"),
        ({"model": {"unk_token": None}}, "model.unk_token=None"),
        ({"decoder": {"type": "BPEDecoder", "suffix": "</w>"}}, "decoder="),
        ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "pre_tokenizer="),
        (gemma("a b", "<0xC3> <0xA9>"), "merges of tokens for bytes"),
    ],
)
def test_parts_that_are_not_supported_are_named(changes, message):
    fields = fields_of("BPE", ["a", "b", "ab"], ["a b"])
    changes = {k: fields[k] | v if k == "model" else v for k, v in changes.items()}
    with pytest.raises(ValueError, match=f"not supported: .*{message}"):
        tokenizer_of(fields | changes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["BPE", "WordLevel"])
def test_a_saved_model_has_core_operations_and_the_same_tokens(kind, tmp_path):
    fields = gemma("a b", "\u2581 ab") if kind == "BPE" else fields_of(kind, ["ab", ","])
    module = tf.Module()
    module.tokenizer = tokenizer = tokenizer_of(fields)
    assert Vocab(*from_json(json.loads(tokenizer.vocab.to_text()))) == tokenizer.vocab
    signature = [tf.TensorSpec([None], tf.string, name="text")]
    serve = tf.function(lambda text: tokenizer(text), input_signature=signature, autograph=False)
    tf.saved_model.save(module, tmp_path, {"serving_default": serve})
    assert audit_saved_model(tmp_path) == []
    texts = ["ab, ab<mask>\u00e9", "", "ab " * 200]
    loaded = tf.saved_model.load(tmp_path).signatures["serving_default"](tf.constant(texts))
    np.testing.assert_array_equal(loaded["tokens"], tokenizer(texts)["tokens"])
