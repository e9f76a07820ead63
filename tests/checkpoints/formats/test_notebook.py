"""State dicts of the notebook and the blog: names, layouts and outputs.

The expected outputs come from a small NumPy version of the notebook's forward pass.
"""

import math

import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l.checkpoints.formats import state_dicts
from keras_bert_d2l.checkpoints.weights import load_weights, named_weights
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.models.bert import BERTModel

V, D, FFN, N, L, MAX_LEN = 11, 6, 24, 3, 2, 8
LINEARS_OF_A_NOTEBOOK_BLOCK = {
    **{f"self_attn.linear_layers.{number}": (D, D) for number in range(3)},
    "self_attn.output_layer": (D, D),
    "feed_forward.w_1": (FFN, D),
    "feed_forward.w_2": (D, FFN),
}
LINEARS_OF_A_BLOG_BLOCK = {
    **{f"sublayer_1.w_{letter}": (D, D) for letter in "qkvo"},
    "sublayer_2.linear_1": (FFN, D),
    "sublayer_2.linear_2": (D, FFN),
}
TO_THE_REPOSITORYS_SPELLING = {
    "self_attn.output_layer": "attention.output_linear",
    "self_attn": "attention",
    "sublayers.0": "input_sublayer",
    "sublayers.1": "output_sublayer",
}


def linears(shapes):
    names = {f"{name}.weight": shape for name, shape in shapes.items()}
    return names | {f"{name}.bias": shape[:1] for name, shape in shapes.items()}


def norms(names, parts):
    return {f"{name}.{part}": (D,) for name in names for part in parts}


def drawn(shapes):
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.3, shape).astype("float32") for name, shape in shapes.items()}


def positions():
    table = np.zeros((1, MAX_LEN, D), "float32")
    for position in range(MAX_LEN):
        for column in range(0, D, 2):
            angle = position / 10000 ** (column / D)
            table[0, position, column : column + 2] = math.sin(angle), math.cos(angle)
    return table


@pytest.fixture
def of_the_notebook():
    """A state dict of the notebook."""
    block = linears(LINEARS_OF_A_NOTEBOOK_BLOCK)
    block |= norms(("sublayers.0.norm", "sublayers.1.norm"), ("a_2", "b_2"))
    shapes = {
        "bert.embedding.token.weight": (V, D),
        "bert.embedding.segment.weight": (3, D),
        **{f"bert.transformer_blocks.{i}.{name}": block[name] for i in range(L) for name in block},
        **linears({"next_sentence.linear": (2, D), "mask_lm.linear": (V, D)}),
    }
    return drawn(shapes) | {"bert.embedding.position.pe": positions()}


@pytest.fixture
def of_the_blog():
    """A state dict of the blog."""
    block = linears(LINEARS_OF_A_BLOG_BLOCK) | norms(("norm_1", "norm_2"), ("weight", "bias"))
    shapes = {
        "ebd.t.weight": (V, D),
        "ebd.p.weight": (MAX_LEN, D),
        "ebd.s.weight": (3, D),
        **{f"blks.{index}.{name}": block[name] for index in range(L) for name in block},
        **linears({"nsp.fc": (2, D), "mlm.fc": (V, D)}),
    }
    return drawn(shapes)


def saved(weights, path, num_heads=N):
    if path.suffix == ".npz":
        np.savez(path, num_heads=num_heads, **weights)
    else:
        safetensors.numpy.save_file(weights, path, metadata={"num_heads": str(num_heads)})
    return path


def loaded(path, num_heads=None):
    assert state_dicts.recognizes(path)
    checkpoint = state_dicts.describe(path, num_heads)
    model = BERTModel.from_bert_config(checkpoint.config)
    load_weights(model, checkpoint.table, checkpoint.arrays)
    return model, sorted(model.missing_heads)


# The notebook


def layer_norm(x, scale, shift):
    std = x.std(-1, ddof=1, keepdims=True)
    return scale * (x - x.mean(-1, keepdims=True)) / (std + 1e-6) + shift


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_softmax(logits):
    logits = np.asarray(logits, "float64")
    return (
        logits
        - logits.max(-1, keepdims=True)
        - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
    )


def run_the_notebook(weights, x, segment_label):
    """Run the notebook's BERTLM and return encoded tokens, next-sentence and token logits."""

    def linear(name, x):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def heads(x):
        return x.reshape(*x.shape[:2], N, D // N).transpose(0, 2, 1, 3)

    def attend(name, x):
        query, key, value = (heads(linear(f"{name}.linear_layers.{i}", x)) for i in range(3))
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(D // N)
        together = (softmax(np.where(mask, scores, -1e9)) @ value).transpose(0, 2, 1, 3)
        return linear(f"{name}.output_layer", together.reshape(x.shape))

    weights = {name: weight.astype("float64") for name, weight in weights.items()}
    mask = (x > 0)[:, None, None, :]
    tokens, segments = (weights[f"bert.embedding.{name}.weight"] for name in ("token", "segment"))
    X = tokens[x] + segments[segment_label] + positions()[:, : x.shape[1]]
    for index in range(L):
        block = f"bert.transformer_blocks.{index}"
        for number in range(2):
            norm = [weights[f"{block}.sublayers.{number}.norm.{part}_2"] for part in "ab"]
            Y = layer_norm(X, *norm)
            if number == 0:
                X = X + attend(f"{block}.self_attn", Y)
            else:
                hidden = gelu(linear(f"{block}.feed_forward.w_1", Y))
                X = X + linear(f"{block}.feed_forward.w_2", hidden)
    return X, linear("next_sentence.linear", X[:, 0]), linear("mask_lm.linear", X)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_the_outputs_match_the_notebooks_code(of_the_notebook, tmp_path, suffix):
    model, missing = loaded(saved(of_the_notebook, tmp_path / f"bert{suffix}"))
    assert missing == []
    x = np.array([[3, 5, 10, 4, 7], [3, 6, 4, 0, 0]])
    segments = np.array([[1, 1, 1, 2, 2], [1, 1, 2, 0, 0]])
    every = np.tile(np.arange(5), (2, 1))
    expected = run_the_notebook(of_the_notebook, x, segments)
    encoded, mlm, nsp = model(x, np.maximum(segments - 1, 0), None, every)
    for received, output in zip((encoded, nsp, mlm), expected, strict=True):
        np.testing.assert_allclose(received, output, rtol=0, atol=2e-5)


def test_the_notebooks_configuration_is_inferred_from_the_shapes(of_the_notebook, tmp_path):
    expected = BERTConfig(
        vocab_size=V,
        num_hiddens=D,
        ffn_num_hiddens=FFN,
        num_heads=N,
        num_blks=L,
        dropout=0.1,
        max_len=MAX_LEN,
        embedding_dropout=0.1,
        ffn_dropout=0.1,
        block_dropout=0.1,
        num_segments=3,
        first_segment_id=1,
        positions="sinusoidal",
        norm_first=True,
        layer_norm_epsilon=1e-6,
        layer_norm="unbiased",
        activation="gelu_tanh",
        mask_from="tokens",
        pooler=False,
        mlm_head="linear",
    )
    checkpoint = state_dicts.describe(saved(of_the_notebook, tmp_path / "bert.npz"))
    assert checkpoint.config == expected
    assert checkpoint.vocab is None


def test_the_weight_names_of_the_repository_are_supported(of_the_notebook, tmp_path):
    renamed = {}
    for name, weight in of_the_notebook.items():
        for old, new in TO_THE_REPOSITORYS_SPELLING.items():
            name = name.replace(old, new)
        renamed[name] = weight
    model, _ = loaded(saved(of_the_notebook, tmp_path / "notebook.npz"))
    other, missing = loaded(saved(renamed, tmp_path / "repository.npz"))
    assert missing == []
    for name, weight in named_weights(model).items():
        np.testing.assert_array_equal(weight, named_weights(other)[name], err_msg=name)


def test_an_encoder_without_heads_is_loaded_and_the_missing_heads_are_reported(
    of_the_notebook, tmp_path
):
    encoder = {
        name.removeprefix("bert."): weight
        for name, weight in of_the_notebook.items()
        if name.startswith("bert.")
    }
    model, missing = loaded(saved(encoder, tmp_path / "bert.npz"))
    assert missing == ["mlm", "nsp"]
    table = model.encoder.token_embedding.embeddings
    np.testing.assert_array_equal(table, encoder["embedding.token.weight"])


def test_positions_that_are_not_sinusoidal_are_rejected(of_the_notebook, tmp_path):
    of_the_notebook["bert.embedding.position.pe"][0, 3, 1] += 0.1
    with pytest.raises(ValueError, match=r"position.pe' must contain sinusoidal positions"):
        loaded(saved(of_the_notebook, tmp_path / "bert.npz"))


def test_positions_of_the_wrong_width_are_rejected(of_the_notebook, tmp_path):
    of_the_notebook["bert.embedding.position.pe"] = np.zeros((1, MAX_LEN, D + 2), "float32")
    with pytest.raises(ValueError, match=r"Received: different values of shape \(1, 8, 8\)"):
        loaded(saved(of_the_notebook, tmp_path / "bert.npz"))


# The blog


def test_the_blogs_weights_are_assigned_to_the_right_layers(of_the_blog, tmp_path):
    model, missing = loaded(saved(of_the_blog, tmp_path / "bert.npz"))
    assert missing == []
    ours = {name: weight.numpy() for name, weight in named_weights(model).items()}
    expected = {
        "encoder/token_embedding/embeddings": of_the_blog["ebd.t.weight"],
        "encoder/segment_embedding/embeddings": of_the_blog["ebd.s.weight"],
        "encoder/pos_embedding": of_the_blog["ebd.p.weight"][None],
        "encoder/blk_1/attention/W_q/kernel": of_the_blog["blks.1.sublayer_1.w_q.weight"].T,
        "encoder/blk_1/attention/W_k/bias": of_the_blog["blks.1.sublayer_1.w_k.bias"],
        "encoder/blk_1/attention/W_v/bias": of_the_blog["blks.1.sublayer_1.w_v.bias"],
        "encoder/blk_1/attention/W_o/bias": of_the_blog["blks.1.sublayer_1.w_o.bias"],
        "encoder/blk_1/addnorm1/ln/gamma": of_the_blog["blks.1.norm_1.weight"],
        "encoder/blk_1/addnorm2/ln/beta": of_the_blog["blks.1.norm_2.bias"],
        "encoder/blk_1/ffn/dense1/kernel": of_the_blog["blks.1.sublayer_2.linear_1.weight"].T,
        "encoder/blk_1/ffn/dense2/kernel": of_the_blog["blks.1.sublayer_2.linear_2.weight"].T,
        "mlm/mlp/logits/kernel": of_the_blog["mlm.fc.weight"].T,
        "nsp/dense/kernel": of_the_blog["nsp.fc.weight"].T,  # column 1 means "is next" in both
    }
    for name, weight in expected.items():
        np.testing.assert_array_equal(ours[name], weight, err_msg=name)
    assert len(ours) == len(of_the_blog)


def test_the_blogs_configuration_is_inferred_from_the_shapes(of_the_blog, tmp_path):
    expected = BERTConfig(
        vocab_size=V,
        num_hiddens=D,
        ffn_num_hiddens=FFN,
        num_heads=N,
        num_blks=L,
        dropout=0.1,
        max_len=MAX_LEN,
        num_segments=3,
        first_segment_id=1,
        layer_norm_epsilon=1e-5,
        activation="gelu",
        mask_from="tokens",
        pooler=False,
        mlm_head="linear",
    )
    assert state_dicts.describe(saved(of_the_blog, tmp_path / "bert.npz")).config == expected


# Format detection and invalid input


def test_other_files_are_not_recognized(tmp_path):
    assert not state_dicts.recognizes(saved({"a": np.ones(D, "float32")}, tmp_path / "bert.npz"))
    assert not state_dicts.recognizes(tmp_path)


def test_the_number_of_heads_must_be_known_and_divide_the_width(of_the_blog, tmp_path):
    np.savez(tmp_path / "bert.npz", **of_the_blog)
    with pytest.raises(ValueError, match=r"how many attention heads.*Pass `num_heads`"):
        loaded(tmp_path / "bert.npz")
    with pytest.raises(ValueError, match=r"bert.npz': `num_hiddens` must be a multiple.*=4"):
        loaded(tmp_path / "bert.npz", num_heads=4)
    assert loaded(tmp_path / "bert.npz", num_heads=3)[0].bert_config.num_heads == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blks.0.norm_1.bias": None}, "lacks weights of the model: blks.0.norm_1.bias"),
        ({"blks.0.sublayer_2.linear_1.bias": None}, "lacks the weight 'blks.0.sublayer_2"),
        ({"ebd.p.weight": np.zeros((1, 8, 6), "float32")}, "must have 2 axes"),
        ({"nsp.fc.weight": np.zeros((3, 6), "float32")}, r"nsp.fc.weight is \(3, 6\) instead of"),
        ({"nsp.fc.bias": np.full(2, np.inf, "float32")}, "not finite in 'nsp.fc.bias'"),
        ({"blks.2.norm_1.bias": np.zeros(6, "float32")}, "lacks weights of the model: blks.2"),
        ({"decoder.weight": np.zeros(6, "float32")}, "does not have: decoder.weight"),
        ({"input": np.zeros((2, 3), "int32")}, "does not have: input"),
    ],
)
def test_weights_that_do_not_match_are_named(of_the_blog, tmp_path, change, message):
    weights = {name: array for name, array in (of_the_blog | change).items() if array is not None}
    with pytest.raises(ValueError, match=rf"bert.npz'.*{message}"):
        loaded(saved(weights, tmp_path / "bert.npz"))


# Outputs of the original programs


@pytest.mark.parametrize(
    ("name", "tokens", "segments"),
    [("codertimo", "x", "segment_label"), ("iksran", "input", "segment")],
)
def test_the_outputs_match_the_original_programs(data_dir, name, tokens, segments):
    path = data_dir / f"golden/variants/{name}.npz"
    golden, (model, missing) = dict(np.load(path)), loaded(path)
    assert missing == []
    assert model.bert_config.first_segment_id == 1
    assert ((golden[segments] == 0) == (golden[tokens] == 0)).all()  # only padding has segment 0
    inputs = golden[tokens], np.maximum(golden[segments] - 1, 0)
    inside = model.encoder(*inputs, return_hidden_states=True, return_attention=True)
    every = np.broadcast_to(np.arange(inputs[0].shape[1]), inputs[0].shape)
    encoded, mlm, nsp = model(*inputs, None, every)
    received = {
        "hidden_states": np.stack(inside["hidden_states"]),
        "encoded": encoded,
        "attn_last": inside["attention"][-1],
        "mlm_logits": mlm,
        "nsp_logits": nsp,
        "mlm_logprobs": log_softmax(mlm),
        "nsp_logprobs": log_softmax(nsp),
        "mlm_probs": np.exp(log_softmax(mlm)),
        "nsp_probs": np.exp(log_softmax(nsp)),
    }
    outputs = {key for key in golden if not key.startswith("w/")}
    outputs -= {tokens, segments, "num_heads"}
    assert outputs <= received.keys()
    for key in outputs:
        np.testing.assert_allclose(received[key], golden[key], rtol=0, atol=1e-5, err_msg=key)
