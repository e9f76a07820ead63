"""A misspelled name gets an error that suggests the right one."""

import pytest

import keras_bert_d2l as kb


@pytest.mark.parametrize(
    ("name", "meant"),
    [("fil_mask", "fill_mask"), ("bert_config", "BERTConfig")],
)
def test_the_nearest_public_name_is_suggested(name, meant):
    with pytest.raises(AttributeError, match=f"no public name '{name}'. Did you mean '{meant}'"):
        getattr(kb, name)
    assert hasattr(kb, meant)


def test_a_public_name_like_no_other_has_no_suggestion():
    with pytest.raises(AttributeError, match="no public name 'xyzzy'.$"):
        kb.xyzzy  # noqa: B018
    assert not hasattr(kb, "__wrapped__")


def finetune(**options):
    bert = kb.BERTModel(7, 16, 32, num_heads=2, num_blks=1, dropout=0.1, max_len=16)
    kb.finetune(kb.SequenceClassifier(bert, ["bad", "good"]), "a", "b", "run", **options)


@pytest.mark.parametrize(
    ("meant", "call"),
    [
        ("num_heads", lambda: kb.BERTConfig(num_head=4)),
        ("base", lambda: kb.BERTConfig.preset("basee")),
        ("batch_size", lambda: kb.pretrain("text", "run", batchsize=8)),
        ("linear", lambda: kb.pretrain("text", "run", schedule="liner")),
        ("epochs", lambda: finetune(num_epochs=8)),
    ],
)
def test_the_nearest_name_is_suggested(meant, call):
    with pytest.raises(ValueError, match=f"Did you mean '{meant}'\\?"):
        call()
