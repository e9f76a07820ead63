import json

import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.formats.native import CONFIG_FILE, VOCAB_FILE, WEIGHTS_FILE
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.checkpoints.saving import save_pretrained
from keras_bert_d2l.checkpoints.weights import named_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.text.normalization import TokenizerOptions
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab

VOCAB = Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c"])
BOOK = BERTConfig(len(VOCAB), 4, 8, 2, 1, 0.1, 16)
GOOGLE = BERTConfig(
    len(VOCAB), 4, 8, 2, 1, 0.1, 16, embedding_norm=True, tie_embeddings=True, activation="gelu"
)

IN_A_BLOCK = [
    *(f"attention/W_{letter}/{part}" for letter in "qkvo" for part in ("kernel", "bias")),
    *(f"addnorm{number}/ln/{part}" for number in (1, 2) for part in ("gamma", "beta")),
    *(f"ffn/dense{number}/{part}" for number in (1, 2) for part in ("kernel", "bias")),
]
OF_THE_BOOK = {
    "encoder/token_embedding/embeddings",
    "encoder/segment_embedding/embeddings",
    "encoder/pos_embedding",
    *(f"encoder/blk_0/{name}" for name in IN_A_BLOCK),
    "hidden/kernel",
    "hidden/bias",
    "mlm/mlp/dense/kernel",
    "mlm/mlp/dense/bias",
    "mlm/mlp/ln/gamma",
    "mlm/mlp/ln/beta",
    "mlm/mlp/logits/kernel",
    "mlm/mlp/logits/bias",
    "nsp/dense/kernel",
    "nsp/dense/bias",
}
OF_GOOGLE = (OF_THE_BOOK - {"mlm/mlp/logits/kernel", "mlm/mlp/logits/bias"}) | {
    "mlm/bias",
    "encoder/embedding_ln/gamma",
    "encoder/embedding_ln/beta",
}


@pytest.fixture
def checkpoint(tmp_path):
    """A folder with a checkpoint."""
    folder = tmp_path / "checkpoint"
    save_pretrained(BERTModel.from_bert_config(BOOK), folder, tokenizer=Tokenizer(VOCAB))
    return folder


def stored_weights(folder):
    return safetensors.numpy.load_file(folder / WEIGHTS_FILE)


def rewrite_config(folder, **changes):
    fields = json.loads((folder / CONFIG_FILE).read_text()) | changes
    (folder / CONFIG_FILE).write_text(json.dumps(fields))


def rewrite_weights(folder, change):
    weights = stored_weights(folder)
    change(weights)
    safetensors.numpy.save_file(weights, folder / WEIGHTS_FILE)


@pytest.mark.parametrize(
    ("config", "names"), [(BOOK, OF_THE_BOOK), (GOOGLE, OF_GOOGLE)], ids=["book", "google"]
)
def test_weights_are_stored_in_float32_under_readable_names(config, names, tmp_path):
    save_pretrained(BERTModel.from_bert_config(config), tmp_path / "checkpoint")
    weights = stored_weights(tmp_path / "checkpoint")
    assert set(weights) == names
    assert {array.dtype for array in weights.values()} == {np.dtype("float32")}


@pytest.mark.parametrize(
    "options",
    [
        {},
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
    fields = json.loads((checkpoint / CONFIG_FILE).read_text())
    tokenizer = Tokenizer(VOCAB)
    options = tokenizer.options
    assert options["lowercase"] is True
    assert options.keys() == TokenizerOptions.__annotations__.keys() - {"special_tokens"}
    extra = {"format": "keras_bert_d2l", "format_version": 1}
    assert fields == extra | options | BOOK.to_dict()


def test_a_missing_field_of_the_configuration_is_named(editable):
    fields = json.loads((editable / CONFIG_FILE).read_text())
    for name in fields.keys() - {"format", "format_version"}:
        others = {key: value for key, value in fields.items() if key != name}
        (editable / CONFIG_FILE).write_text(json.dumps(others))
        with pytest.raises(ValueError, match=f"config.json' .*the field '{name}' is missing"):
            load_pretrained(editable)


def test_a_vocabulary_without_tokenizer_options_in_the_config_is_rejected(editable):
    fields = json.loads((editable / CONFIG_FILE).read_text())
    for name in TokenizerOptions.__annotations__:
        fields.pop(name, None)
    (editable / CONFIG_FILE).write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="config.json' lacks the options of the tokenizer"):
        load_pretrained(editable)


def test_an_invalid_tokenizer_option_is_reported_with_its_folder(editable):
    rewrite_config(editable, compat="martian")
    with pytest.raises(ValueError, match="checkpoint.*: `compat` must .*martian"):
        load_pretrained(editable)


def test_a_missing_weights_file_is_named(editable):
    (editable / WEIGHTS_FILE).unlink()
    with pytest.raises(
        FileNotFoundError, match="checkpoint' is an incomplete.*no 'model.safetensors'"
    ):
        load_pretrained(editable)


def test_a_missing_vocabulary_is_an_error_unless_verification_is_skipped(editable):
    (editable / VOCAB_FILE).unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks its vocabulary 'vocab.txt'.*verify=False"):
        load_pretrained(editable)
    assert load_pretrained(editable, verify=False).tokenizer is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "`format_version` must be 1.*newer"),
        ({"colour": "red"}, "Unknown field 'colour'"),
        ({"num_heads": 3}, "`num_hiddens` must be a multiple"),
        ({"num_blks": None}, "`num_blks` must be an integer of at least 0"),
        ({"num_blks": 10**6}, "too few for the configuration: num_blks=1000000"),
        ({"max_len": 10**18}, r"encoder/pos_embedding is \(1, 16, 4\) instead of \(1, 10000"),
        ({"lowercase": "yes"}, "`lowercase` must be True or False"),
        ({"lowercase": None}, "`lowercase` must be True or False"),
    ],
)
def test_a_wrong_field_of_the_configuration_is_named(changes, message, editable):
    rewrite_config(editable, **changes)
    with pytest.raises(ValueError, match=f"(config.json|model.safetensors)' .*{message}"):
        load_pretrained(editable)


def test_weights_must_match_the_configuration(editable):
    rewrite_config(editable, max_len=17)
    with pytest.raises(ValueError, match=r"pos_embedding is \(1, 16, 4\) instead of \(1, 17, 4\)"):
        load_pretrained(editable)
    rewrite_config(editable, max_len=16, num_blks=2)
    with pytest.raises(ValueError, match="lacks weights of the model: encoder/blk_1"):
        load_pretrained(editable)
    rewrite_config(editable, num_blks=1, tie_embeddings=True)
    with pytest.raises(ValueError, match="lacks weights of the model: mlm/bias"):
        load_pretrained(editable)


def test_unused_weights_are_named(editable):
    rewrite_weights(editable, lambda weights: weights.update(extra=np.zeros(3, "float32")))
    with pytest.raises(ValueError, match="contains weights.*does not have: extra"):
        load_pretrained(editable)
