"""A tokenizer that truncates texts on the left: everywhere, in every file and export."""

import json
import pickle

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from tests.family import bert_of, tokenizer_of
from tests.nightly import nightly_except

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Truncated to")]
END = "a mat . the cat sat on a mat . good film"
TEXT = f"{'the cat sat on a mat . ' * 9}{END}"


def left_of(name, **options):
    return kb.Tokenizer(tokenizer_of(name).vocab, **options, truncation_side="left")


@pytest.mark.parametrize("name", ["mpnet", "roberta", "albert"])
def test_rows_and_folders_keep_the_end_of_a_text(name, tmp_path):
    tokenizer = left_of(name, **{"compat": "huggingface"} if name == "mpnet" else {})
    assert pickle.loads(pickle.dumps(tokenizer)).options == tokenizer.options
    tokens = tokenizer(TEXT, max_len=12)["tokens"].numpy().tolist()
    assert tokens[0][1:-1] == tokenizer.tokenize(TEXT).to_list()[0][-10:]
    examples = kb.TextExamples(texts=[TEXT], labels=["x"])
    rows = kb.TaskRows.encode(examples, tokenizer, labels=["x", "y"], max_len=12)
    assert [rows.tokens.tolist()] == tokens

    write_tokenizer(tmp_path, tokenizer.vocab, tokenizer.options)
    assert read_tokenizer(tmp_path) == (tokenizer.vocab, tokenizer.options, "")
    fields = json.loads((tmp_path / "tokenizer.json").read_text())
    fields["truncation"] = {"direction": "Left", "max_length": 9, "strategy": "LongestFirst"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    for side, found in (("right", ""), (None, "left"), ("both", "truncation_side='both'")):
        options = {} if side is None else {"truncation_side": side}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
        _, ours, unsupported = read_tokenizer(tmp_path)
        assert unsupported + ours.get("truncation_side", "") == found


@pytest.mark.parametrize("name", nightly_except(["roberta"], ["mpnet", "roberta"]))
@pytest.mark.long
def test_checkpoints_predictions_and_exports_read_the_end_of_a_text(name, tmp_path):
    bert, tokenizer = bert_of(name, max_len=12), left_of(name)
    kb.save_pretrained(bert, tmp_path / "native", tokenizer=tokenizer)
    loaded = kb.load_pretrained(tmp_path / "native", verbose=False).tokenizer
    assert loaded.options == tokenizer.options
    with pytest.raises(ValueError, match="`format`.*truncation_side='left'"):
        kb.save_pretrained(bert, tmp_path / "book", tokenizer=tokenizer, format="book")
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    expected = kb.classify(classifier, END).scores["good"]
    assert kb.classify(classifier, TEXT).scores["good"] == pytest.approx(expected, abs=1e-6)
    tagger = kb.TokenClassifier(bert, ["O", "B"], tokenizer=tokenizer)
    answers = [
        model_signatures(model, tokenizer, TextOptions(False, 1, None))["serving_default"].function
        for model in (classifier, tagger)
    ]
    long, short = (answers[0](tf.constant([text])) for text in (TEXT, END))
    for key, values in long.items():
        np.testing.assert_array_equal(values, short[key])
    words = answers[1](tf.constant([TEXT]))["words"].numpy()[0]  # in windows
    assert [word.decode() for word in words] == TEXT.split()
