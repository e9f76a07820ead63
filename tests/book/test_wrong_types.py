"""Wrong types and values give an error that names the argument."""

import pytest
import tensorflow as tf

from keras_bert_d2l import book as d2l

VOCAB = d2l.Vocab([["a", "b", "c"]], 0, ["<pad>", "<mask>", "<cls>", "<sep>"])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("lines", lambda: d2l.tokenize([["a"]])),
        ("tokens", lambda: d2l.Vocab("a b")),
        ("tokens_a", lambda: d2l.get_tokens_and_segments(None)),
        ("X", lambda: d2l.masked_softmax([[[1.0]]], None)),
        ("norm_shape", lambda: d2l.AddNorm("8", 0.1)),
        ("data_dir", lambda: d2l._read_wiki(3)),
        ("paragraphs", lambda: d2l._WikiTextDataset("a b", 8)),
        ("vocab", lambda: d2l._WikiTextDataset([["a", "b"]], 8, ["a"])),
        ("drop_remainder", lambda: d2l.load_data_wiki(2, 8, ".", drop_remainder="x")),
        ("dataset", lambda: d2l.SNLIBERTDataset(3, 8, VOCAB)),
        ("bert", lambda: d2l.BERTClassifier(tf.keras.Sequential())),
        ("pretrained_model", lambda: d2l.load_pretrained_model(None, 8, 8, 2, 1, 0.1, 16)),
        ("net", lambda: d2l.train_bert([], None, len(VOCAB), [], 1)),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(name, call):
    with pytest.raises(ValueError, match=f"`{name}` must be") as error:
        call()
    assert "Received" in str(error.value)
