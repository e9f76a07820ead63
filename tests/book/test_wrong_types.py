"""Wrong types and values give an error that names the argument."""

import random

import pytest
import tensorflow as tf

from keras_bert_d2l import book as d2l

VOCAB = d2l.Vocab([["a", "b", "c"]], 0, ["<pad>", "<mask>", "<cls>", "<sep>"])
PAIRS = (["a"], ["b"], [0])


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("lines", lambda: d2l.tokenize(3)),
        ("lines", lambda: d2l.tokenize([["a"]])),
        ("token", lambda: d2l.tokenize(["a"], [])),
        ("tokens", lambda: d2l.Vocab("a b")),
        ("min_freq", lambda: d2l.Vocab([], "five")),
        ("reserved_tokens", lambda: d2l.Vocab([], 0, "<pad>")),
        ("tokens_a", lambda: d2l.get_tokens_and_segments(None)),
        ("tokens_b", lambda: d2l.get_tokens_and_segments(["a"], 3)),
        ("X", lambda: d2l.masked_softmax([[[1.0]]], None)),
        ("norm_shape", lambda: d2l.AddNorm("8", 0.1)),
        ("norm_shape", lambda: d2l.AddNorm([-1], 0.1)),
        ("dropout", lambda: d2l.AddNorm(8, "0.1")),
        ("dropout", lambda: d2l.MultiHeadAttention(8, 2, None)),
        ("use_bias", lambda: d2l.MultiHeadAttention(8, 2, 0.1, "yes")),
        ("ffn_num_hiddens", lambda: d2l.PositionWiseFFN("8", 8)),
        ("ffn_num_outputs", lambda: d2l.PositionWiseFFN(8, 2.5)),
        ("dropout", lambda: d2l.PositionWiseFFN(8, 8, dropout=1.5)),
        ("data_dir", lambda: d2l._read_wiki(3)),
        ("split", lambda: d2l._read_wiki(".", split="dev")),
        ("paragraphs", lambda: d2l._WikiTextDataset("a b", 8)),
        ("max_len", lambda: d2l._WikiTextDataset([["a", "b"]], None)),
        ("vocab", lambda: d2l._WikiTextDataset([["a", "b"]], 8, ["a"])),
        ("batch_size", lambda: d2l.load_data_wiki(0, 8, ".")),
        ("seed", lambda: d2l.load_data_wiki(2, 8, ".", seed=random.Random(1))),
        ("drop_remainder", lambda: d2l.load_data_wiki(2, 8, ".", drop_remainder="x")),
        ("data_dir", lambda: d2l.load_data_wiki(2, 8, None)),
        ("data_dir", lambda: d2l.read_snli(None, is_train=True)),
        ("dataset", lambda: d2l.SNLIBERTDataset(3, 8, VOCAB)),
        ("max_len", lambda: d2l.SNLIBERTDataset(PAIRS, "8", VOCAB)),
        ("vocab", lambda: d2l.SNLIBERTDataset(PAIRS, 8, "vocab.txt")),
        ("batch_size", lambda: d2l.SNLIBERTDataset(PAIRS, 8, VOCAB).batches(None)),
        ("seed", lambda: d2l.SNLIBERTDataset(PAIRS, 8, VOCAB).batches(2, seed="x")),
        ("bert", lambda: d2l.BERTClassifier(tf.keras.Sequential())),
        ("pretrained_model", lambda: d2l.load_pretrained_model(None, 8, 8, 2, 1, 0.1, 16)),
        ("net", lambda: d2l.train_bert([], None, len(VOCAB), [], 1)),
        ("net", lambda: d2l.get_bert_encoding(None, ["a"], vocab=VOCAB)),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(name, call):
    with pytest.raises(ValueError, match=f"`{name}` must be") as error:
        call()
    assert "Received" in str(error.value)


def test_arguments_beside_a_model_are_named():
    net = d2l.BERTModel(len(VOCAB), 8, 8, 2, 1, 0.0, max_len=16)
    for name, call in [
        ("train_iter", lambda: d2l.train_bert(3, net, len(VOCAB), [], 1)),
        ("num_steps", lambda: d2l.train_bert([], net, len(VOCAB), [], None)),
        ("vocab", lambda: d2l.get_bert_encoding(net, ["a"], vocab=None)),
    ]:
        with pytest.raises(ValueError, match=f"`{name}` must be .*Received"):
            call()
