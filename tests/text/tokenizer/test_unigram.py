"""Unigram tokenizers.

The folder `unigram` has models of SentencePiece with 200 pieces and a few rules of normalization,
and the ids and offsets of tokenizers 0.23.3.
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.serving.audit import audit_saved_model
from keras_bert_d2l.text.definition import from_json, to_json
from keras_bert_d2l.text.definition_checks import unsupported_parts
from keras_bert_d2l.text.sentencepiece_model import sentencepiece_fields
from keras_bert_d2l.text.tokenizer.characters import normalized_text
from keras_bert_d2l.text.tokenizer.normalizers import normalizers_of
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.tokenizer.unigram import Unigram
from keras_bert_d2l.text.vocab import Vocab
from tests.nightly import nightly_except

pytestmark = pytest.mark.usefixtures("engine")

FOLDER = pathlib.Path(__file__).parent / "unigram"
FILES = {
    "xlm-roberta": "sentencepiece.bpe.model",
    "camembert": "sentencepiece.bpe.model",
    "albert": "spiece.model",
    "deberta-v2": "spm.model",
}
OPTIONS = {"deberta-v2": {"do_lower_case": True, "split_by_punct": True}}


def fields_of(model_type, **options):
    options = options or OPTIONS.get(model_type, {})
    fields = sentencepiece_fields((FOLDER / FILES[model_type]).read_bytes(), model_type, options)
    fields["added_tokens"][-1].setdefault("id", len(fields["model"]["vocab"]))  # of DeBERTa's mask
    return fields


@pytest.fixture(scope="module", params=nightly_except(["albert"], [*FILES]))
def model_type(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(model_type):
    return Tokenizer(Vocab(*from_json(fields_of(model_type))))


@pytest.fixture(scope="module")
def goldens():
    return json.loads((FOLDER / "goldens.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_ids_and_offsets_are_those_of_tokenizers(tokenizer, model_type, goldens):
    found = tokenizer.with_offsets(goldens["texts"])
    starts, ends = found["starts"].to_list(), found["ends"].to_list()
    for number, (text, expected) in enumerate(
        zip(goldens["texts"], goldens[model_type], strict=True)
    ):
        assert found["tokens"][number].numpy().tolist() == expected["ids"], text
        offsets = [[*pair] for pair in zip(starts[number], ends[number], strict=True)]
        assert offsets == expected["offsets"], text


def test_detokenized_texts_are_those_of_tokenizers(tokenizer, model_type, goldens):
    framing = {tokenizer.vocab.pad_id, tokenizer.vocab.cls_id, tokenizer.vocab.sep_id}
    rows = [row for row in goldens[model_type] if framing.isdisjoint(row["ids"]) and row["ids"]]
    texts = tokenizer.detokenize([row["ids"] for row in rows]).numpy()
    assert [text.decode() for text in texts] == [row["decoded"] for row in rows]


def test_fairseq_shifts_the_ids():
    pieces = [token for token, _ in fields_of("albert")["model"]["vocab"]]
    assert pieces[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    xlm = [token for token, _ in fields_of("xlm-roberta")["model"]["vocab"]]
    camembert = [token for token, _ in fields_of("camembert")["model"]["vocab"]]
    assert xlm[:4] == ["<s>", "<pad>", "</s>", "<unk>"]
    assert camembert[3:7] == ["<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    assert xlm[4:] == camembert[7:]
    assert xlm[-1] == "<mask>"


def test_pairs_have_the_separators_of_the_template(tokenizer, model_type):
    vocab = tokenizer.vocab
    assert vocab.num_separators == (1 if model_type in ("albert", "deberta-v2") else 2)
    assert vocab.continues[vocab["▁the"]] == 0
    assert vocab.continues[vocab["s"]]


def test_the_written_file_defines_the_same_tokenizer(tokenizer, tmp_path):
    tokenizer.vocab.to_file(tmp_path / "tokenizer.json")
    vocab = Vocab.from_file(tmp_path / "tokenizer.json")
    assert vocab == tokenizer.vocab
    assert Tokenizer.from_config(tokenizer.get_config()).vocab == vocab


def pieces_of(unigram: Unigram, tokens: list[str], words: list[str]) -> list[np.ndarray]:
    known = unigram.words_of_one_piece(tokens)
    ids = tf.constant([known.get(word, -1) for word in words], tf.int32)
    return [values.numpy() for values in unigram(tf.constant(words, tf.string), ids)]


def test_the_best_pieces_are_those_of_the_example_of_tokenizers():
    tokens = ["<unk>", "a", "b", "c", "d", "cd", "ab", "abc", "abcd"]
    unigram = Unigram(tokens, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 5.0, 10.0], 0)
    ids, words, starts = pieces_of(unigram, tokens, ["abcdacdxx"])
    assert [tokens[number] for number in ids] == ["abcd", "a", "cd", "<unk>"]
    assert starts.tolist() == [0, 4, 5, 7]
    assert words.tolist() == [0] * 4


def test_of_equal_scores_the_longer_last_piece_wins():
    tokens = ["<unk>", "-", "--"]
    unigram = Unigram(tokens, [0.0, -1.0, -2.0], 0)
    ids, words, _ = pieces_of(unigram, tokens, ["---", "-", "--"])
    assert ids.tolist() == [1, 2, 1, 2]
    assert words.tolist() == [0, 0, 1, 2]


def test_a_piece_that_is_better_as_several_pieces_is_not_one_word():
    tokens = ["<unk>", "▁", "a", "▁a", "▁aa"]
    unigram = Unigram(tokens, [0.0, -1.0, -1.0, -3.0, -2.0], 0)
    ids, words, starts = pieces_of(unigram, tokens, ["▁a", "▁aa", "▁a", "b"])
    assert ids.tolist() == [1, 2, 4, 1, 2, 0]
    assert words.tolist() == [0, 0, 1, 2, 2, 3]
    assert starts.tolist() == [0, 1, 0, 0, 1, 0]


def test_no_words_have_no_pieces():
    unigram = Unigram(["<unk>", "a"], [0.0, -1.0], 0)
    assert [values.shape for values in pieces_of(unigram, ["<unk>", "a"], [])] == [(0,)] * 3


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "Nmt"}),
        ("normalizer", {"type": "Replace", "pattern": {"Regex": "a|b"}, "content": ""}),
        ("normalizer", {"type": "Replace", "pattern": {"String": "aba"}, "content": ""}),
        ("pre_tokenizer", {"type": "UnicodeScripts"}),
        ("decoder", {"type": "ByteLevel"}),
        ("post_processor", {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}),
    ],
)
def test_other_parts_are_named(part, value):
    _, definition = from_json(fields_of("xlm-roberta") | {part: value})
    assert value["type"] in next(unsupported_parts([], definition))


def test_byte_fallback_is_named():
    fields = fields_of("xlm-roberta")
    fields["model"]["byte_fallback"] = True
    assert [*unsupported_parts([], from_json(fields)[1])] == [
        "model.byte_fallback=True without tokens for the bytes [0, 1, 2, 3, 4, 5, ...]"
    ]


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_refused(score):
    fields = fields_of("albert")
    vocab = fields["model"]["vocab"]
    vocab[7][1] = score
    with pytest.raises(ValueError, match="a finite score for each token"):
        Vocab(*from_json(fields))


def test_of_equal_pieces_the_last_one_counts():
    fields = fields_of("xlm-roberta")
    fields["model"]["vocab"].insert(3, ["<unk>", 0.0])  # as transformers 5.0 writes CamemBERT
    for entry in fields["added_tokens"]:
        entry["id"] += entry["id"] >= 3
    tokenizer = Tokenizer(Vocab(*from_json(fields)))
    assert tokenizer.tokenize(["\U0001f600 <unk>"]).to_list()[0][-2:] == [3, 4]
    assert tokenizer.vocab.unk_id == 3
    again = Vocab(*from_json(json.loads(tokenizer.vocab.to_text())))
    assert again == tokenizer.vocab


def test_runs_of_white_space_and_line_ends_are_replaced():
    pattern = {"Regex": r"\s{2,}|[\n\r\t]"}
    fields = {"type": "Replace", "pattern": pattern, "content": " "}
    text = normalized_text("a\n b\tc\u00a0d \u00a0 e\n", normalizers_of({"normalizer": fields}))
    assert text == "a b c\u00a0d e "  # as by tokenizers


def test_damaged_models_are_refused():
    data = (FOLDER / "spiece.model").read_bytes()
    for size in (1, 5, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match="SentencePiece"):
            sentencepiece_fields(data[:size], "albert", {})
    with pytest.raises(ValueError, match="SentencePiece"):
        sentencepiece_fields(b"\x0a" + b"\xff" * 12, "albert", {})


@pytest.mark.long
def test_all_operations_are_known_to_servers(tokenizer, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def serve(texts):
        return tokenizer(texts)

    module = tf.Module()
    module.tokenizer, module.serve = tokenizer, serve
    tf.saved_model.save(module, tmp_path, {"serving_default": serve})
    assert audit_saved_model(tmp_path) == []
    loaded = tf.saved_model.load(tmp_path).signatures["serving_default"]
    texts = ["the old <mask> man", "½ -----"]
    expected = tokenizer(texts)["tokens"]
    np.testing.assert_array_equal(loaded(tf.constant(texts))["tokens"], expected)


def test_special_tokens_stay_in_the_file():
    fields = fields_of("albert", do_lower_case=False, keep_accents=True)
    kinds = [step["type"] for step in fields["normalizer"]["normalizers"]]
    assert kinds == ["Replace", "Replace", "Precompiled", "Replace"]
    tokens, definition = from_json(fields)
    assert to_json(tokens, definition)["normalizer"] == fields["normalizer"]
