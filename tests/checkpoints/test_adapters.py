"""LoRA adapters are saved alone, and loaded only onto the model that they belong to."""

import json
import re
import shutil

import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    MultipleChoice,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
    load_adapter,
    load_pretrained,
    save_adapter,
)
from tests.checkpoints import small
from tests.nightly import nightly_except

SIZES = {"num_hiddens": 8, "ffn_num_hiddens": 12, "num_heads": 2, "num_blks": 2, "max_len": 12}
CONFIG = BERTConfig.preset("huggingface", vocab_size=20, **SIZES)
BATCH = {**small.BATCH, "pred_positions": np.array([[1, 2], [1, 0]], "int32")}
ALL = ("W_q", "W_k", "W_v", "W_o", "dense1", "dense2", "pooler", "mlm/mlp/dense", "nsp/dense")
KINDS = {
    "pretraining": lambda bert: bert,
    "classifier": lambda bert: SequenceClassifier(bert, ["bad", "good"]),
    "regressor": lambda bert: SequenceRegressor(bert, ["stars"]),
    "tagger": lambda bert: TokenClassifier(bert, ["O", "B"]),
    "answerer": QuestionAnswerer,
    "choice": MultipleChoice,
    "embedder": TextEmbedder,
}


def make(kind="pretraining", config=CONFIG):
    """Return the same model for the same arguments, with weights that are far from 0."""
    model = KINDS[kind](BERTModel.from_bert_config(config))
    rng = np.random.default_rng(0)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return model


def with_update(model, layers=("W_q", "W_v")):
    model.enable_lora(2, lora_alpha=6, lora_layers=layers)
    rng = np.random.default_rng(1)
    for weight in model.trainable_variables:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return model


def outputs(model):
    found = model(BATCH if isinstance(model, BERTModel) else small.BATCH)
    parts = found.values() if isinstance(found, dict) else [found]
    return np.concatenate([np.ravel(x) for x in parts])


@pytest.fixture(scope="module")
def saved_adapter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    save_adapter(with_update(make()), folder)
    return folder


@pytest.fixture
def adapter(saved_adapter, tmp_path):
    """The folder of an adapter for `make()`."""
    return shutil.copytree(saved_adapter, tmp_path / "adapter")


@pytest.fixture(scope="module")
def base():
    """A model that rejects every adapter of the tests, and so does not change."""
    return make()


@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_except({"pretraining", "classifier"}, KINDS))
def test_an_adapter_restores_the_model_and_can_be_merged(kind, tmp_path):
    model = with_update(make(kind), ALL if kind == "pretraining" else ("W_q", "ffn/dense1"))
    save_adapter(model, tmp_path / "adapter")
    loaded = make(kind)
    load_adapter(loaded, tmp_path / "adapter")
    paths = [[w.path for w in one.trainable_variables] for one in (model, loaded)]
    assert paths[0] == paths[1]
    for one, two in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(one, two)
    if kind not in ("pretraining", "classifier"):
        return
    expected = outputs(loaded)
    assert np.abs(outputs(make(kind)) - expected).max() > 0.01
    loaded.merge_lora()
    np.testing.assert_allclose(outputs(loaded), expected, atol=1e-5)
    assert not loaded.has_lora


def test_an_adapter_of_a_model_with_another_pooling_is_rejected(tmp_path):
    bert = make()
    model = with_update(SequenceClassifier(bert, ["bad", "good"], pooling="mean"))
    save_adapter(model, tmp_path / "mean")
    labels = ["bad", "good"]
    same = SequenceClassifier(make(), labels, pooling="mean")
    load_adapter(same, tmp_path / "mean")
    np.testing.assert_array_equal(outputs(same), outputs(model))
    with pytest.raises(ValueError, match="its pooling is .mean. instead of .cls."):
        load_adapter(SequenceClassifier(make(), labels, pooling="cls"), tmp_path / "mean")
    weights = tmp_path / "mean" / "adapter_model.safetensors"
    safetensors.numpy.save_file(safetensors.numpy.load_file(weights), weights)  # as PEFT writes it
    (tmp_path / "mean" / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match="of PEFT, for a head that reads the pooler.*mean"):
        load_adapter(SequenceClassifier(make(), labels, pooling="mean"), tmp_path / "mean")


def test_only_the_lora_weights_of_the_pretraining_model_are_trained():
    model = with_update(make())
    assert len(model.trainable_variables) == 2 * 2 * 2  # blocks, layers, matrices
    assert model.get_compile_config() is None
    with pytest.raises(ValueError, match="call `merge_lora` first"):
        model.enable_lora(2)


@pytest.mark.long
def test_predictions_use_the_adapter_although_the_model_was_traced_without_it(adapter):
    model = make()
    model.predict_on_batch(BATCH)
    load_adapter(model, adapter)
    for _ in range(2):
        logits = model.predict_on_batch(BATCH)["mlm"]
        np.testing.assert_allclose(logits, model(BATCH)["mlm"], atol=1e-5)
        model.merge_lora()


def test_lora_needs_the_heads_that_it_freezes():
    model = make()
    model.missing_heads = frozenset({"nsp"})
    with pytest.raises(ValueError, match=r"lacked \['nsp'\]"):
        model.enable_lora(2)


@pytest.mark.slow
def test_unknown_layers_are_rejected_with_a_list_of_the_known_ones():
    with pytest.raises(ValueError, match=r"`lora_layers` .*W_q.*Received: 'query'"):
        make().enable_lora(2, lora_layers=["W_q", "query"])
    with pytest.raises(ValueError, match="`lora_layers` must be a list of layer names"):
        make().enable_lora(2, lora_layers="W_q")
    assert not make().has_lora


WRONG_MODELS = {
    "width": ({"num_hiddens": 16}, r"shape \(2, 8\) instead of \(2, 16\)"),
    "fewer blocks": ({"num_blks": 1}, r"layer.1.* instead of None"),
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_an_adapter_for_a_model_of_other_sizes_is_rejected(name, adapter):
    sizes, message = WRONG_MODELS[name]
    model = make(config=BERTConfig.preset("huggingface", vocab_size=20, **{**SIZES, **sizes}))
    with pytest.raises(ValueError, match=f"adapter for a different model: .*{message}"):
        load_adapter(model, adapter)
    assert not model.has_lora


def edited(adapter, arrays, **fields):
    """Write other arrays and fields, as PEFT would, without metadata."""
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
    safetensors.numpy.save_file(arrays, adapter / "adapter_model.safetensors")
    (adapter / "SHA256SUMS").unlink(missing_ok=True)


def test_patterns_set_the_rank_and_the_scale_of_each_layer(adapter, tmp_path):
    arrays = safetensors.numpy.load_file(adapter / "adapter_model.safetensors")
    of_value = {k: x[:1] if "lora_A" in k else x[:, :1] for k, x in arrays.items() if "value" in k}
    patterns = {"rank_pattern": {"value": 1}, "alpha_pattern": {"0.attention.self.query": 8}}
    edited(adapter, {**arrays, **of_value}, **patterns, use_rslora=True)
    model = make()
    load_adapter(model, adapter)
    save_adapter(model, tmp_path / "again")
    again = make()
    load_adapter(again, tmp_path / "again")
    for one in (model, again):  # lora_alpha / sqrt(r), as alpha / r
        layers = sorted(one.lora_layers, key=lambda layer: layer.path)
        found = [(layer.lora_rank, layer.lora_alpha) for layer in layers]
        np.testing.assert_allclose(found, [(2, 8 * 2**0.5), (1, 6), (2, 6 * 2**0.5), (1, 6)])
    np.testing.assert_array_equal(outputs(again), outputs(model))


@pytest.mark.slow
def test_an_adapter_for_other_weights_or_other_labels_is_rejected(adapter, tmp_path):
    model = make()
    model.encoder.blks[1].attention.W_v.kernel.assign(np.ones((8, 8)))
    with pytest.raises(ValueError, match="its kernels_sha256 is"):
        load_adapter(model, adapter)
    save_adapter(with_update(make("classifier")), tmp_path / "labels")
    swapped = SequenceClassifier(make(), ["good", "bad"])
    with pytest.raises(ValueError, match=r"its labels is .*bad.*good.* instead of .*good.*bad"):
        load_adapter(swapped, tmp_path / "labels")
    with pytest.raises(ValueError, match="classifier.bias has the shape"):
        load_adapter(make(), tmp_path / "labels")
    with pytest.raises(ValueError, match="must not have LoRA"):
        load_adapter(with_update(make()), adapter)


DAMAGES = {
    "rank": (lambda fields, _: fields.update(r=10**9), "instead of (1000000000, 8)"),
    "no rank": (lambda fields, _: fields.update(r=True), "`r` must be an integer"),
    "tied": (
        lambda _, arrays: arrays.update({EMBEDDING: np.zeros((2, 20), "f4")}),
        "`target_modules` or `modules_to_save` that are not supported: bert.embeddings.word",
    ),
    "alien": (lambda _, arrays: arrays.update(x=np.zeros(2, "f4")), "x is unknown"),
    "half": (lambda _, arrays: arrays.pop(next(iter(arrays))), "instead of None"),
    "NaN": (lambda _, arrays: [x.fill(np.nan) for x in arrays.values()], "not finite"),
}
EMBEDDING = "base_model.model.bert.embeddings.word_embeddings.lora_embedding_A"
A = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_unsupported_adapter_is_rejected(name, adapter, base):
    damage, message = DAMAGES[name]
    config, weights = adapter / "adapter_config.json", adapter / "adapter_model.safetensors"
    fields, arrays = json.loads(config.read_text()), safetensors.numpy.load_file(weights)
    damage(fields, arrays)
    config.write_text(json.dumps(fields))
    safetensors.numpy.save_file(arrays, weights)
    (adapter / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match=re.escape(message)):
        load_adapter(base, adapter)
    assert not base.has_lora


def test_damaged_metadata_changed_files_and_missing_folders_are_rejected(adapter, base, tmp_path):
    weights = adapter / "adapter_model.safetensors"
    arrays = safetensors.numpy.load_file(weights)
    safetensors.numpy.save_file(arrays, weights, {"keras_bert_d2l": "[1]"})
    with pytest.raises(ValueError, match="does not match 'SHA256SUMS'"):
        load_adapter(base, adapter)
    (adapter / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match="is damaged"):
        load_adapter(base, adapter)
    with pytest.raises(FileNotFoundError, match=r"adapter_config\.json"):
        load_adapter(base, tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is an adapter.*`load_adapter`"):
        load_pretrained(adapter)


def test_saving_needs_lora_and_replaces_nothing_but_adapters(adapter, base, tmp_path):
    with pytest.raises(ValueError, match="`model` must have LoRA"):
        save_adapter(base, tmp_path / "none")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").touch()
    model = with_update(make())
    with pytest.raises(FileExistsError, match="not part of an? adapter"):
        save_adapter(model, tmp_path / "other")
    with pytest.raises(ValueError, match="`path` must be a local path. Received: 's3://a/b'"):
        save_adapter(model, "s3://a/b")
    save_adapter(model, adapter)
    names = {file.name for file in adapter.iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "SHA256SUMS"}
