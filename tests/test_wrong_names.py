"""A misspelled name gets an error that suggests the right one, and following it works."""

import pytest

import keras_bert_d2l as kb

SIZES = {"num_hiddens": 16, "ffn_num_hiddens": 32, "num_heads": 2, "num_blks": 1, "dropout": 0.1}


@pytest.fixture(scope="module")
def given():
    vocab = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a film".split())
    bert = kb.BERTModel(7, **SIZES, max_len=16)
    return {"vocab": vocab, "bert": bert, "model": kb.SequenceClassifier(bert, ["bad", "good"])}


WRONG = {
    "a field": (lambda **_: kb.BERTConfig(num_head=4), "num_heads"),
    "a preset": (lambda **_: kb.BERTConfig.preset("basee"), "base"),
    "an option of pretrain": (lambda **_: kb.pretrain("text", "run", batchsize=8), "batch_size"),
    "a value": (lambda **_: kb.pretrain("text", "run", schedule="liner"), "linear"),
    "an option of finetune": (
        lambda model, **_: kb.finetune(model, "a", "b", "run", num_epochs=8),
        "epochs",
    ),
    "compile of a BERT": (lambda bert, **_: bert.compile(microbatches=2), "micro_batches"),
    "Keras's compile": (lambda model, **_: model.compile(metric=[]), "metrics"),
    "a task to load": (lambda **_: kb.SequenceClassifier.from_pretrained("a", label=[]), "labels"),
}


@pytest.mark.parametrize("call", WRONG)
def test_the_nearest_argument_is_suggested(call, given):
    wrong, meant = WRONG[call]
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'\\?"):
        wrong(**given)
