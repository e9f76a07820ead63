"""Hugging Face folders: old weight names can be read, and transformers' names are written.

test_huggingface_golden.py compares outputs; tests/peers/ compares with transformers and KerasHub.
"""

import dataclasses
import json
import os
import re

import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, Vocab, load_pretrained
from keras_bert_d2l.checkpoints.formats import huggingface
from tests.checkpoints.small import (
    assert_same_weights,
    edit_config,
    edit_weights,
    model_of,
    random_model,
    shard,
    values,
)

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat ##s a".split())
SMALL = BERTConfig.preset(
    "huggingface",
    vocab_size=len(VOCAB),
    num_hiddens=8,
    ffn_num_hiddens=12,
    num_heads=2,
    num_blks=2,
    max_len=10,
)


def read(folder):
    """Return the model of a folder and the parts missing from the folder."""
    model = model_of(huggingface.describe(folder))
    return model, sorted(model.missing_heads)


@pytest.fixture(scope="module")
def small():
    return random_model(SMALL)


@pytest.fixture(scope="module")
def expected(small):
    """The weights of `small` by name."""
    return values(small)


@pytest.fixture
def folder(small, tmp_path):
    """A folder with the model `small`."""
    folder = tmp_path / "folder"
    folder.mkdir()
    huggingface.write(small, folder, VOCAB, {"lowercase": True})
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "architecture"),
    [
        (
            {"activation": "relu", "layer_norm_epsilon": 1e-5, "attention_dropout": 0.3},
            "BertForPreTraining",
        ),
        ({"tie_embeddings": False}, "BertForPreTraining"),
        ({"pooler": False, "next_sentence": False, "tie_embeddings": False}, "BertForMaskedLM"),
    ],
)
def test_a_saved_model_is_loaded_bitwise_identically(tmp_path, fields, architecture):
    config = dataclasses.replace(SMALL, **fields)
    model = random_model(config)
    options = {
        "lowercase": False,
        "compat": "huggingface",
        "split_special_tokens": True,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
    }
    huggingface.write(model, tmp_path, VOCAB, options)
    checkpoint = huggingface.describe(tmp_path)
    assert checkpoint.config == config
    assert checkpoint.vocab == VOCAB
    assert checkpoint.tokenizer_options == options
    assert architecture in checkpoint.description
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [architecture]
    again, missing = read(tmp_path)
    assert missing == []
    assert_same_weights(again, model)


def old_names(weights):
    return {
        k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): v
        for k, v in weights.items()
    }


def with_buffers(weights):
    positions = np.arange(SMALL.max_len)[None]
    return {**weights, "bert.embeddings.position_ids": positions}


def with_tied_copies(weights):
    return {
        **weights,
        "cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": weights["cls.predictions.bias"],
    }


def decoder_only(weights):  # as by `safetensors.torch.save_model`
    tied = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")
    return {name: x for name, x in with_tied_copies(weights).items() if name not in tied}


@pytest.mark.parametrize("edit", [old_names, with_buffers, with_tied_copies, decoder_only])
def test_old_names_buffers_and_tied_copies_give_the_same_model(folder, edit, expected):
    edit_weights(folder, edit)
    model, missing = read(folder)
    assert missing == []
    assert_same_weights(model, expected)


def test_shards_give_the_same_model_as_one_file(folder, expected):
    shard(folder)
    model, missing = read(folder)
    assert missing == []
    assert_same_weights(model, expected)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00003"):
        huggingface.describe(folder)


def test_a_decoder_that_differs_from_the_embedding_unties_the_head(folder, expected):
    edit_weights(folder, with_tied_copies)
    edit_weights(
        folder, lambda weights: {k: v + ("decoder.weight" in k) for k, v in weights.items()}
    )
    with pytest.warns(UserWarning, match="decoder.weight"):
        model, missing = read(folder)
    assert missing == []
    assert model.bert_config.tie_embeddings is False
    kernel = expected["encoder/token_embedding/embeddings"].T + 1
    np.testing.assert_array_equal(values(model)["mlm/mlp/logits/kernel"], kernel)


def test_the_bias_of_an_untied_head_may_be_stored_once(tmp_path):
    model = random_model(dataclasses.replace(SMALL, tie_embeddings=False))
    huggingface.write(model, tmp_path, None, {})
    edit_weights(tmp_path, lambda w: {k: v for k, v in w.items() if "decoder.bias" not in k})
    again, missing = read(tmp_path)
    assert missing == []
    assert_same_weights(again, model)


def test_only_hugging_faces_folders_are_recognized(folder, tmp_path):
    assert huggingface.recognizes(folder)
    other = tmp_path / "other"
    other.mkdir()
    assert not huggingface.recognizes(other)
    assert not huggingface.recognizes(other / "missing")
    (other / "config.json").write_text('{"format": "keras_bert_d2l", "vocab_size": 3}')
    assert not huggingface.recognizes(other)
    (other / "config.json").write_text('{"model_type": "roberta"}')
    assert huggingface.recognizes(other)


def test_googles_checkpoint_is_preferred_to_pickles_but_not_to_safetensors(folder):
    (folder / "bert_model.ckpt.index").touch()
    assert huggingface.recognizes(folder)
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    assert huggingface.recognizes(folder)  # ModelCheckpoint of Keras wrote the index
    (folder / "bert_config.json").touch()
    assert not huggingface.recognizes(folder)


def test_a_config_of_a_different_model_is_rejected(folder):
    edit_config(folder, model_type="longformer")
    with pytest.raises(ValueError, match="config.json.*model_type.*longformer"):
        huggingface.describe(folder)


def test_missing_files_are_named(folder):
    (folder / "model.safetensors").rename(folder / "flax_model.msgpack")
    with pytest.raises(FileNotFoundError, match=r"model.safetensors.*: flax_model.msgpack\. Ren"):
        huggingface.describe(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="no file .*config.json'"):
        huggingface.describe(folder)


@pytest.mark.parametrize("head", ["classifier.weight", "qa_outputs.bias"])
def test_the_head_of_an_unsupported_task_is_named(folder, head):
    edit_weights(folder, lambda weights: {**weights, head: np.ones(3, "float32")})
    with pytest.raises(ValueError, match=head):
        huggingface.describe(folder)


@pytest.mark.parametrize(
    "weight_map", [None, {}, {"a": "../model.safetensors"}, {"a": "/etc/passwd"}, {"a": 3}]
)
def test_an_index_must_name_files_in_its_own_folder(folder, weight_map):
    shard(folder)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises((ValueError, FileNotFoundError), match="index.json|'3'|/3'"):
        huggingface.describe(folder)


DAMAGES = {
    "dangling": lambda file: file.symlink_to("missing"),  # a blob that a cache has lost
    "loop": lambda file: file.symlink_to(file.name),
    "folder": lambda file: file.mkdir(),
    "pipe": lambda file: os.mkfifo(file),
}


@pytest.mark.parametrize(
    "name", ["config.json", "vocab.txt", "tokenizer_config.json", "model.safetensors"]
)
@pytest.mark.parametrize("damage", [*DAMAGES])
def test_a_file_that_cannot_be_read_is_never_taken_for_absent(folder, name, damage):
    (folder / name).unlink()
    DAMAGES[damage](folder / name)
    with pytest.raises((FileNotFoundError, ValueError), match=re.escape(name)):
        load_pretrained(folder, verbose=False)
