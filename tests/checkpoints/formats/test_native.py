import json

import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l import BERTConfig, BERTModel, Tokenizer, load_pretrained
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.text.normalization import TokenizerOptions
from tests.checkpoints.small import OF_FORMAT, VOCAB, edit_config

IN_A_BLOCK = [
    *(f"attention/W_{letter}/{part}" for letter in "qkvo" for part in ("kernel", "bias")),
    *(f"addnorm{number}/ln/{part}" for number in (1, 2) for part in ("gamma", "beta")),
    *(f"ffn/dense{number}/{part}" for number in (1, 2) for part in ("kernel", "bias")),
]
DENSE = ("hidden", "mlm/mlp/dense", "mlm/mlp/logits", "nsp/dense")
OF_THE_BOOK = {
    "encoder/token_embedding/embeddings",
    "encoder/segment_embedding/embeddings",
    "encoder/pos_embedding",
    *(f"encoder/blk_0/{name}" for name in IN_A_BLOCK),
    *(f"{layer}/{part}" for layer in DENSE for part in ("kernel", "bias")),
    "mlm/mlp/ln/gamma",
    "mlm/mlp/ln/beta",
}


def test_weights_are_stored_in_float32_under_readable_names(checkpoint):
    weights = safetensors.numpy.load_file(checkpoint / "model.safetensors")
    assert set(weights) == OF_THE_BOOK
    assert {array.dtype for array in weights.values()} == {np.dtype("float32")}


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "sinusoidal", "norm_first": True, "final_norm": True},
        {"pooler": False, "next_sentence": False, "mlm_head": "linear"},
        {"next_sentence": False, "mlm_head": "linear", "tie_embeddings": True},
        {"embedding_norm": True, "layer_norm": "unbiased"},
    ],
)
def test_the_table_has_every_weight_of_every_architecture(options):
    config = BERTConfig(8, 4, 8, 2, 3, 0.1, 16, **options)
    names = [row.ours for row in native.table(config)]
    assert sorted(names) == sorted(named_weights(BERTModel.from_bert_config(config)))
    assert names == [row.theirs for row in native.table(config)]


def test_the_configuration_file_contains_the_fields_of_model_and_tokenizer(checkpoint):
    fields = json.loads((checkpoint / "config.json").read_text())
    options = Tokenizer(VOCAB).options
    assert options["lowercase"] is True
    optional = {"special_tokens", "normalized_tokens", "truncation_side"}
    assert options.keys() == TokenizerOptions.__annotations__.keys() - optional
    extra = {"format": "keras_bert_d2l", "format_version": 1}
    assert fields == extra | options | OF_FORMAT["native"].to_dict()
    later = {"initializer_range", "zero_padding", "num_tokens"}
    later |= {"mlm_activation", "mlm_layer_norm_epsilon"}
    edit_config(checkpoint, **dict.fromkeys(later, ...))
    assert load_pretrained(checkpoint).config == OF_FORMAT["native"]  # an older file
    for name in fields.keys() - extra.keys() - later:
        edit_config(checkpoint, **{**fields, name: ...})
        with pytest.raises(ValueError, match=f"config.json' .*the field '{name}' is missing"):
            load_pretrained(checkpoint)
    edit_config(checkpoint, **fields | dict.fromkeys(options, ...))
    with pytest.raises(ValueError, match="config.json' lacks the options of the tokenizer"):
        load_pretrained(checkpoint)


def test_a_missing_weights_file_is_named(editable):
    (editable / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no file .*model.safetensors'"):
        load_pretrained(editable)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "`format_version` must be 1.*newer"),
        ({"colour": "red"}, "Unknown field 'colour'"),
        ({"compat": "martian"}, "`compat` must .*martian"),
        ({"num_heads": 3}, "`num_hiddens` must be a multiple"),
        ({"num_blks": None}, "`num_blks` must be an integer of at least 0"),
        ({"num_blks": 2}, "lacks weights of the model: encoder/blk_1"),
        ({"tie_embeddings": True}, "lacks weights of the model: mlm/bias"),
        ({"max_len": 10**18}, r"encoder/pos_embedding is \(1, 16, 4\) instead of \(1, 10000"),
        ({"lowercase": "yes"}, "`lowercase` must be True or False"),
    ],
)
def test_a_wrong_field_of_the_configuration_is_named(changes, message, editable):
    edit_config(editable, **changes)
    with pytest.raises(ValueError, match=f"(config.json|model.safetensors)' .*{message}"):
        load_pretrained(editable)
