"""Options of google-research/bert that its published models do not use, against its formulas."""

import math

import keras
import numpy as np
import pytest

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    MultiHeadAttention,
    export_onnx,
    load_pretrained,
    save_pretrained,
)
from keras_bert_d2l.checkpoints.weights import named_weights

OPTIONS = {"size_per_head": 5, "query_act": "tanh", "key_act": "relu", "value_act": "gelu_tanh"}
OPTIONS["use_one_hot_embeddings"] = True
SIZES = {"num_hiddens": 8, "ffn_num_hiddens": 12, "num_blks": 2, "max_len": 12}
CONFIG = BERTConfig.preset("google", vocab_size=30, num_heads=3, **SIZES, **OPTIONS)
BATCH = {
    "tokens": np.array([[2, 5, 6, 7, 3], [2, 6, 3, 0, 0]], "int32"),
    "segments": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], "int32"),
    "valid_lens": np.array([5, 3], "int32"),
}


def gelu(x):
    return x * 0.5 * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "gelu_tanh": gelu}


def layer_norm(x, weights, name):
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return normal * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def in_numpy(weights, tokens, segments, valid_lens):
    """Compute `BertModel` of modeling.py: one-hot embeddings, `attention_layer`, feed-forward."""

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    x = np.eye(30)[tokens] @ weights["encoder/token_embedding/embeddings"]
    x = x + weights["encoder/segment_embedding/embeddings"][segments]
    x = x + weights["encoder/pos_embedding"][0, : tokens.shape[1]]
    x = layer_norm(x, weights, "encoder/embedding_ln")
    adder = (np.arange(tokens.shape[1]) >= valid_lens[:, None])[:, None, None] * -10000.0
    for block in ("encoder/blk_0", "encoder/blk_1"):
        heads = []
        for letter, option in zip("qkv", ("query_act", "key_act", "value_act"), strict=True):
            projected = dense(x, f"{block}/attention/W_{letter}")
            activated = ACTIVATIONS[OPTIONS[option]](projected)
            heads.append(activated.reshape(*tokens.shape, 3, 5).transpose(0, 2, 1, 3))
        scores = heads[0] @ heads[1].transpose(0, 1, 3, 2) / math.sqrt(5) + adder
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        context = shares / shares.sum(-1, keepdims=True) @ heads[2]
        merged = context.transpose(0, 2, 1, 3).reshape(*tokens.shape, 15)
        x = layer_norm(x + dense(merged, f"{block}/attention/W_o"), weights, f"{block}/addnorm1/ln")
        y = dense(gelu(dense(x, f"{block}/ffn/dense1")), f"{block}/ffn/dense2")
        x = layer_norm(x + y, weights, f"{block}/addnorm2/ln")
    return x


@pytest.fixture(scope="module")
def model():
    bert = BERTModel.from_bert_config(CONFIG)
    rng = np.random.default_rng(0)
    for weight in bert.trainable_variables:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return bert


@pytest.fixture(scope="module")
def expected(model):
    weights = {name: weight.numpy() for name, weight in named_weights(model).items()}
    return in_numpy(weights, **BATCH)


def test_the_encoder_computes_googles_formulas(model, expected):
    shape = model.encoder.blks[0].attention.W_o.kernel.shape
    assert tuple(shape) == (15, 8)
    np.testing.assert_allclose(model.encoder(**BATCH), expected, atol=2e-5)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_saved_models_keep_the_options(model, expected, tmp_path):
    model.save(tmp_path / "model.keras")
    save_pretrained(model, tmp_path / "folder")
    for loaded in (
        keras.saving.load_model(tmp_path / "model.keras"),
        load_pretrained(tmp_path / "folder").model,
    ):
        assert loaded.bert_config == CONFIG
        np.testing.assert_allclose(loaded.encoder(**BATCH), expected, atol=2e-5)
    loaded.enable_lora(2)
    loaded.merge_lora()
    np.testing.assert_allclose(loaded.encoder(**BATCH), expected, atol=2e-5)
    loaded.quantize("int8")
    np.testing.assert_allclose(loaded.encoder(**BATCH), expected, atol=0.2)


@pytest.mark.slow
def test_an_onnx_export_computes_the_options(model, expected, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    export_onnx(model, tmp_path / "onnx")
    session = runtime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    mask = np.arange(5) < BATCH["valid_lens"][:, None]
    names = ("input_ids", "token_type_ids", "attention_mask")
    inputs = zip(names, (BATCH["tokens"], BATCH["segments"], mask), strict=True)
    found = session.run(["last_hidden_state"], {k: x.astype("int64") for k, x in inputs})
    np.testing.assert_allclose(found[0], expected, atol=2e-5)


def test_hugging_faces_format_refuses_the_options_unless_outputs_stay_the_same(tmp_path):
    for option, value in OPTIONS.items():
        config = BERTConfig.preset("google", vocab_size=30, num_heads=2, **SIZES, **{option: value})
        model = BERTModel.from_bert_config(config)
        if option == "use_one_hot_embeddings":
            save_pretrained(model, tmp_path / "folder", format="huggingface")
            continue
        with pytest.raises(ValueError, match=f"Received: {option}={value!r}"):
            save_pretrained(model, tmp_path / option, format="huggingface")


def test_wrong_options_are_refused_by_name():
    for options in ({"size_per_head": 0}, {"size_per_head": 2.5}, {"value_act": "swish"}):
        message = " and ".join(f"{name}={value!r}" for name, value in options.items())
        with pytest.raises(ValueError, match=message):
            MultiHeadAttention(8, 3, 0.0, **{"size_per_head": 5, **options})
        with pytest.raises(ValueError, match=message):
            BERTConfig(30, 8, 12, 3, 2, 0.0, **{"size_per_head": 5, **options})
