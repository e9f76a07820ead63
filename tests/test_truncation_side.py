"""A tokenizer that truncates texts on the left: everywhere, in every file and export."""

import json
import pickle

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.serving.signatures.signature import TextOptions
from keras_bert_d2l.serving.signatures.signatures import model_signatures
from tests.family import bert_of, tokenizer_of

pytestmark = pytest.mark.filterwarnings("ignore:Truncated to")
KINDS = ["mpnet", "roberta", "albert"]  # WordPiece, byte-level BPE, Unigram
TEXT = "the cat sat on a mat . " * 9 + "good film"
END = "a mat . the cat sat on a mat . good film"


def left_of(name, **options):
    return kb.Tokenizer(tokenizer_of(name).vocab, **options, truncation_side="left")


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_way_to_rows_keeps_the_end_of_a_text(name):
    tokenizer = pickle.loads(pickle.dumps(left_of(name)))
    assert tokenizer.options["truncation_side"] == "left"
    ids = tokenizer.tokenize(TEXT).to_list()[0]
    tokens = tokenizer(TEXT, max_len=12)["tokens"].numpy().tolist()
    assert tokens[0][1:-1] == ids[-10:]
    words = tokenizer.from_words([TEXT.split()], max_len=12)
    assert words["tokens"].numpy().tolist() == tokens
    assert words["word_ids"][0, -2] == len(TEXT.split()) - 1
    examples = kb.TextExamples(texts=[TEXT], labels=["x"])
    rows = kb.TaskRows.encode(examples, tokenizer, labels=["x", "y"], max_len=12)
    assert rows.tokens.tolist()[1:-1] == ids[-10:]


@pytest.mark.parametrize("name", KINDS)
def test_folders_keep_the_side(name, tmp_path):
    tokenizer = left_of(name, **{"compat": "huggingface"} if name == "mpnet" else {})
    write_tokenizer(tmp_path, tokenizer.vocab, tokenizer.options)
    assert read_tokenizer(tmp_path) == (tokenizer.vocab, tokenizer.options, "")
    fields = json.loads((tmp_path / "tokenizer.json").read_text())
    fields["truncation"] = {"direction": "Left", "max_length": 9, "strategy": "LongestFirst"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    options = json.loads((tmp_path / "tokenizer_config.json").read_text())
    for side, found in (("right", None), (None, "left"), ("both", "truncation_side='both'")):
        options["truncation_side"] = side
        content = {key: value for key, value in options.items() if value is not None}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(content))
        _, ours, unsupported = read_tokenizer(tmp_path)
        assert (unsupported or ours.get("truncation_side")) == found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpnet", "roberta"])
def test_checkpoints_keep_the_side_or_refuse_it(name, tmp_path):
    model = bert_of(name)
    model.tokenizer = left_of(name)
    kb.save_pretrained(model, tmp_path / "native")
    loaded = kb.load_pretrained(tmp_path / "native", verbose=False).tokenizer
    assert loaded.options == model.tokenizer.options
    with pytest.raises(ValueError, match="`format`.*truncation_side='left'"):
        kb.save_pretrained(model, tmp_path / "google", format="google")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpnet", "roberta"])
def test_predictions_and_exports_read_the_end_of_a_text(name):
    tokenizer = left_of(name)
    bert = bert_of(name, max_len=12)
    classifier = kb.SequenceClassifier(bert, ["bad", "good"], tokenizer=tokenizer)
    expected = kb.classify(classifier, END).scores["good"]
    assert kb.classify(classifier, TEXT).scores["good"] == pytest.approx(expected, abs=1e-6)
    tagger = kb.TokenClassifier(bert, ["O", "B"], tokenizer=tokenizer)
    for model in (classifier, tagger):
        answer = model_signatures(model, tokenizer, TextOptions(False, 1, None))["serving_default"]
        long, short = (
            {key: x.numpy()[0] for key, x in answer.function(tf.constant([text])).items()}
            for text in (TEXT, END)
        )
        assert long["truncated"]
        for key in long.keys() - {"starts", "ends"}:
            np.testing.assert_array_equal(long[key], short[key])
    words = [word.decode() for word in long["words"]]
    assert words == [
        TEXT[start:end] for start, end in zip(long["starts"], long["ends"], strict=True)
    ]
    assert words == TEXT.split()[-len(words) :]
    assert 6 < len(words) < 11
