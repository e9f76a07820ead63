"""d2l.ai, section 16.7: natural language inference on SNLI with a pretrained BERT."""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_bert_d2l import book as d2l
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab as PackageVocab

SNLI = """\
gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tpairID
entailment\t( A ( crane flies ) . )\t( ( The  crane ) moves )\t1
neutral\t( A crane )\t( He left )\t2
-\t( Nobody agreed )\t( on this )\t3
contradiction\t( A "crane ) \t( No crane )\t4
"""
VOCAB = d2l.Vocab(
    "a the crane flies moves . he left no".split(),
    reserved_tokens=["<pad>", "<mask>", "<cls>", "<sep>"],
)


def small_bert(**options):
    return d2l.BERTModel(len(VOCAB), 16, 32, 2, 1, 0.0, max_len=16, **options)


# 16.7: the data


def test_snli_is_read_without_parentheses_and_unlabeled_pairs(tmp_path):
    (tmp_path / "snli_1.0_train.txt").write_text(SNLI, encoding="utf-8")
    assert d2l.read_snli(tmp_path, is_train=True) == (
        ["A crane flies .", "A crane", 'A "crane'],
        ["The crane moves", "He left", "No crane"],
        [0, 2, 1],
    )


def test_a_missing_or_invalid_snli_file_is_named_in_the_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"snli_1\.0_test\.txt"):
        d2l.read_snli(tmp_path, is_train=False)
    (tmp_path / "snli_1.0_test.txt").write_text("label\tpremise\thypothesis\n", encoding="utf-8")
    with pytest.raises(ValueError, match="'gold_label'"):
        d2l.read_snli(tmp_path, is_train=False)


def test_pairs_become_padded_or_truncated_input_sequences(capsys):
    dataset = d2l.SNLIBERTDataset((["A crane flies"], ["He left"], [2]), 10, VOCAB)
    assert capsys.readouterr().out == "read 1 examples\n"
    (ids, segments, valid_len), label = dataset[0]
    words = " ".join(VOCAB.to_tokens(ids))
    assert words == "<cls> a crane flies <sep> he left <sep> <pad> <pad>"
    assert segments.tolist() == [0] * 5 + [1] * 3 + [0] * 2
    assert (valid_len, label, len(dataset)) == (8, 2, 1)
    dataset = d2l.SNLIBERTDataset((["a the crane flies"], ["he left no"], [0]), 8, VOCAB)
    # Four and three words must fit into five: truncate the premise first, then the hypothesis.
    words = " ".join(VOCAB.to_tokens(dataset[0][0][0]))
    assert words == "<cls> a the crane <sep> he left <sep>"


@pytest.mark.parametrize(
    ("texts", "max_len", "vocab", "named"),
    [
        ((["a", "b"], ["c"], [0, 1]), 8, VOCAB, r"\[2, 1, 2\]"),
        ((["a"], ["b"], [0]), 8, None, "`vocab`"),
        ((["a"], ["b"], [0]), 2, VOCAB, "=2"),
    ],
)
def test_invalid_pairs_are_rejected(texts, max_len, vocab, named):
    with pytest.raises(ValueError, match=named):
        d2l.SNLIBERTDataset(texts, max_len, vocab)


# 16.7: the pretrained model


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    bert, folder = small_bert(), tmp_path_factory.mktemp("pretrained") / "bert.tiny"
    save_pretrained(bert, folder, tokenizer=Tokenizer(PackageVocab(VOCAB.idx_to_token)))
    return bert, folder


def test_a_saved_model_is_loaded_with_its_vocabulary_and_the_given_dropout(pretrained):
    bert, folder = pretrained
    sizes = {"num_hiddens": 16, "ffn_num_hiddens": 32, "num_heads": 2, "num_blks": 1, "max_len": 16}
    devices = d2l.try_all_gpus()
    loaded = d2l.load_pretrained_model(folder, **sizes, dropout=0.3, devices=devices)
    check_loaded(bert, *loaded)


def check_loaded(bert, loaded, vocab):
    assert vocab.idx_to_token == VOCAB.idx_to_token
    assert vocab[["crane", "nowhere"]] == VOCAB[["crane", "nowhere"]]
    assert loaded.bert_config.dropout == 0.3
    encodings = [d2l.get_bert_encoding(net, ["a", "crane"], vocab=VOCAB) for net in (bert, loaded)]
    np.testing.assert_array_equal(*encodings)


@pytest.mark.long
def test_a_folder_in_the_books_layout_is_loaded(tmp_path):
    bert = small_bert(layer_norm_epsilon=1e-5)
    vocab = PackageVocab(VOCAB.idx_to_token)
    save_pretrained(bert, tmp_path, tokenizer=Tokenizer(vocab), format="book")
    assert json.loads((tmp_path / "vocab.json").read_text()) == VOCAB.idx_to_token
    check_loaded(bert, *d2l.load_pretrained_model(tmp_path, 16, 32, 2, 1, 0.3, 16))
    file = tmp_path / "pretrained.safetensors"
    (tmp_path / "SHA256SUMS").unlink()
    save_file(load_file(file), file)  # without metadata, like a state dict saved by PyTorch
    loaded, _ = d2l.load_pretrained_model(tmp_path, 16, 32, 4, 1, 0.1, 16)
    assert loaded.bert_config.num_heads == 4


def test_a_size_that_differs_from_the_saved_model_or_a_missing_vocabulary_raises(
    pretrained, tmp_path
):
    for name in ("num_heads", "num_blks", "max_len"):
        sizes = {"num_heads": 2, "num_blks": 1, "max_len": 16} | {name: 4}
        with pytest.raises(ValueError, match=f"{name}=4"):
            d2l.load_pretrained_model(pretrained[1], 16, 32, dropout=0.1, **sizes)
    save_pretrained(small_bert(), tmp_path / "bare")
    with pytest.raises(ValueError, match="no vocabulary"):
        d2l.load_pretrained_model(tmp_path / "bare", 16, 32, 2, 1, 0.1, 16)


def test_the_books_archives_are_not_downloaded_and_other_pickles_are_refused(tmp_path):
    assert set(d2l.DATA_HUB) == {"bert.base", "bert.small"}
    with pytest.raises(FileNotFoundError, match="bert.small.*Nothing is downloaded"):
        d2l.load_pretrained_model("bert.small", 256, 512, 4, 2, 0.1, 512)
    (tmp_path / "pretrained.params").write_bytes(b"")
    with pytest.raises(ValueError, match=r"pretrained.params.*without unpickling.*save_model"):
        d2l.load_pretrained_model(tmp_path, 256, 512, 4, 2, 0.1, 512)


# 16.7: fine-tuning


@pytest.fixture
def snli_set():
    words = ("crane", "flies", "moves")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 96)
    premises = ["a the he left"] * len(labels)
    hypotheses = [f"no {words[label]}" for label in labels]  # the word determines the label
    return d2l.SNLIBERTDataset((premises, hypotheses, labels), 12, VOCAB)


def test_the_classifier_shares_encoder_and_pooler_with_the_pretrained_model(snli_set):
    bert = small_bert()
    net = d2l.BERTClassifier(bert)
    assert net.encoder is bert.encoder
    assert net.hidden is bert.hidden
    inputs, _ = next(iter(snli_set.batches(4)))
    assert net(inputs).shape == (4, 3)
    heads = {id(weight) for weight in bert.mlm.weights + bert.nsp.weights}
    assert heads.isdisjoint(id(weight) for weight in net.weights)


@pytest.mark.long
def test_fit_trains_the_classifier_and_the_encoder(snli_set):
    bert = small_bert()
    before = bert.encoder.token_embedding.get_weights()[0]
    net = d2l.BERTClassifier(bert)
    net.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    net.fit(snli_set.batches(32, seed=0), epochs=15, shuffle=False, verbose=0)
    _, accuracy = net.evaluate(snli_set.batches(32), verbose=0)
    assert accuracy == 1.0
    assert not np.allclose(before, bert.encoder.token_embedding.get_weights()[0])


def test_the_loss_of_a_classifier_in_float16_is_scaled():
    net = d2l.BERTClassifier(small_bert(dtype="mixed_float16"))
    net.compile(keras.optimizers.Adam(0.01), loss="mse")
    assert isinstance(net.optimizer, keras.optimizers.LossScaleOptimizer)


def test_the_classifier_can_be_saved_and_loaded(snli_set, tmp_path):
    net = d2l.BERTClassifier(small_bert())
    net.save(tmp_path / "classifier.keras")
    loaded = keras.saving.load_model(tmp_path / "classifier.keras")
    inputs, _ = next(iter(snli_set.batches(4)))
    np.testing.assert_allclose(loaded(inputs), net(inputs), atol=1e-6)


def test_batches_are_shuffled_in_each_epoch_only_with_a_seed(snli_set):
    def labels(dataset):
        return np.concatenate([batch[1].numpy() for batch in dataset])

    np.testing.assert_array_equal(labels(snli_set.batches(10)), snli_set.labels)
    shuffled = snli_set.batches(10, seed=1)
    first, second = labels(shuffled), labels(shuffled)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(labels(snli_set.batches(10, seed=1)), first)
