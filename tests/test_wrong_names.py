"""A misspelled name gets an error that suggests the right one, and following it works."""

import pytest

import keras_bert_d2l as kb

SIZES = {"num_hiddens": 16, "ffn_num_hiddens": 32, "num_heads": 2, "num_blks": 1, "dropout": 0.1}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("BertModel", "BERTModel"), ("fil_mask", "fill_mask"), ("bert_config", "BERTConfig")],
)
def test_the_nearest_public_name_is_suggested(name, meant):
    with pytest.raises(AttributeError, match=f"no public name '{name}'. Did you mean '{meant}'"):
        getattr(kb, name)
    assert hasattr(kb, meant)


def test_a_public_name_like_no_other_has_no_suggestion():
    with pytest.raises(AttributeError, match="no public name 'xyzzy'.$"):
        kb.xyzzy  # noqa: B018
    assert not hasattr(kb, "__wrapped__")


@pytest.fixture(scope="module")
def given():
    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a film".split())
    bert = kb.BERTModel(7, **SIZES, max_len=16)
    return {"vocab": vocab, "bert": bert, "model": kb.SequenceClassifier(bert, ["bad", "good"])}


WRONG = {
    "a field": (lambda **_: kb.BERTConfig(num_layers=4), "num_blks"),
    "a field of Google": (lambda **_: kb.BERTConfig(num_hidden_layers=4), "num_blks"),
    "a field of Hugging Face": (lambda **_: kb.BERTConfig(type_vocab_size=2), "num_segments"),
    "a field of a preset": (lambda **_: kb.BERTConfig.preset("tiny", maxlen=8), "max_len"),
    "a preset": (lambda **_: kb.BERTConfig.preset("basee"), "base"),
    "an option of pretrain": (lambda **_: kb.pretrain("text", "run", batchsize=8), "batch_size"),
    "a short option": (lambda **_: kb.pretrain("text", "run", lr=1e-3), "learning_rate"),
    "a value": (lambda **_: kb.pretrain("text", "run", schedule="liner"), "linear"),
    "an option of finetune": (
        lambda model, **_: kb.finetune(model, "a", "b", "run", num_epochs=8),
        "epochs",
    ),
    "an option of files": (lambda **_: kb.finetune_files("run", labels="y"), "label"),
    "a tokenizer": (lambda vocab, **_: kb.Tokenizer(vocab, lower_case=True), "lowercase"),
    "a call of it": (lambda vocab, **_: kb.Tokenizer(vocab)("a", maxlen=4), "max_len"),
    "a model": (lambda **_: kb.BERTModel(7, **SIZES, maxlen=16), "max_len"),
    "an encoder": (lambda **_: kb.BERTEncoder(7, **SIZES, maxlen=16), "max_len"),
    "a rate of Hugging Face": (
        lambda **_: kb.BERTEncoder(7, **SIZES, hidden_dropout_prob=0.1),
        "dropout",
    ),
    "a task model": (lambda bert, **_: kb.TextEmbedder(bert, poling="mean"), "pooling"),
    "a classifier": (
        lambda bert, **_: kb.SequenceClassifier(bert, ["a", "b"], multilabel=True),
        "multi_label",
    ),
    "compile of a BERT": (lambda bert, **_: bert.compile(microbatches=2), "micro_batches"),
    "compile of a task": (lambda model, **_: model.compile(class_weight={}), "class_weights"),
    "Keras's compile": (lambda model, **_: model.compile(metric=[]), "metrics"),
    "a question": (lambda model, **_: kb.classify(model, "a", batchsize=2), "batch_size"),
    "a task to load": (lambda **_: kb.SequenceClassifier.from_pretrained("a", label=[]), "labels"),
}


@pytest.mark.parametrize("call", WRONG)
def test_the_nearest_argument_is_suggested(call, given):
    wrong, meant = WRONG[call]
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'\\?"):
        wrong(**given)
