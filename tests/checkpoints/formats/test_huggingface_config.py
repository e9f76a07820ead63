"""Reading and writing Hugging Face's `config.json`, and rejecting models other than BERT."""

import dataclasses
import json

import pytest

from keras_bert_d2l import BERTConfig
from keras_bert_d2l.checkpoints.formats.huggingface.config import config_from_json, config_to_dict

BASE = BERTConfig.preset("huggingface")


def config_of(tmp_path, **fields):
    """Return the configuration of BERT base with changed Hugging Face fields."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**config_to_dict(BASE), **fields}))
    return config_from_json(file)[0]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"norm_first": True, "final_norm": True}, "final_norm=True"),
        ({"mlm_head": "linear"}, "mlm_head='linear'"),
        ({"next_sentence": False}, "supports only pooler=False"),
    ],
)
def test_the_field_that_hugging_face_cannot_express_is_named(fields, named):
    with pytest.raises(ValueError, match=named):
        config_to_dict(dataclasses.replace(BASE, **fields))


def test_a_dropout_rate_that_cannot_be_stored_causes_a_warning():
    with pytest.warns(UserWarning, match="ffn_dropout=0.25"):
        config_to_dict(dataclasses.replace(BASE, ffn_dropout=0.25))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu", "gelu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("gelu_python", "gelu"),
        ("relu", "relu"),
    ],
)
def test_gelu_means_the_exact_gelu(tmp_path, theirs, ours):
    assert config_of(tmp_path, hidden_act=theirs).activation == ours


def test_fields_that_bert_does_not_have_are_ignored(tmp_path):
    fields = {"language": "english", "offset": 0, "notes": {"trained by": "us"}, "glue_score": 84.3}
    fields |= {"pooling": "mean", "sentence_embedding_dimension": 384, "num_layers_trained": 2}
    fields |= {"revision_date": "today", "dataset": ["a", "b"], "europe_only": True}
    assert config_of(tmp_path, **fields) == BASE


def test_omitted_fields_default_to_bert_base(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert config_from_json(tmp_path / "config.json")[0] == BASE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alibi_starting_size", 512),  # MosaicBERT
        ("feed_forward_type", "geglu"),  # Jina
        ("rotary_emb_fraction", 1.0),  # Nomic
        ("fusion_layer", 6),  # ALBEF
        ("layernorm_eps", 1e-5),
        ("num_hidden_groups", 2),
        ("rescale_embeddings", True),  # BigBird
        ("hidden_act", ["gelu"]),
        ("layer_norm_eps", "1e-12"),
    ],
)
def test_the_field_that_bert_does_not_support_is_named(tmp_path, field, value):
    with pytest.raises(ValueError, match=f"config.json.*{field}"):
        config_of(tmp_path, **{field: value})
