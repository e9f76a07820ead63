"""The notebook and the blog trained in PyTorch, with the weights by their names in state dicts."""

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats import state_dicts
from keras_bert_d2l.checkpoints.weights import expand, stored_weights

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
F = torch.nn.functional

NUM_STEPS, LENGTH = 4, 7
SIZES = {"vocab_size": 20, "num_hiddens": 16, "num_heads": 2, "num_blks": 2, "max_len": LENGTH}
TOKENS = np.array([[3, 5, 9, 4, 6, 2, 0], [3, 8, 2, 7, 2, 0, 0], [3, 1, 19, 2, 0, 0, 0]])
SEGMENTS = np.array([[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0], [0] * 7])
LABELS = {"mlm": np.arange(21).reshape(3, 7) % 20, "nsp": np.array([1, 0, 1])}
NOTEBOOK = state_dicts.NOTEBOOK
KEY_BIASES = ("linear_layers.1.bias", "w_k.bias")  # without gradient: Adam amplifies the rounding


def embedding(weights, name, ids, **options):
    return F.embedding(ids, weights[f"{name}.weight"], **options)


def linear(weights, name, x):
    return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def attend(tokens, *qkv):
    q, k, v = (x.unflatten(2, (SIZES["num_heads"], -1)).transpose(1, 2) for x in qkv)
    scores = q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5
    weights = scores.masked_fill((tokens == 0)[:, None, None], -1e9).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def run_notebook(w, tokens, segments):
    def norm(name, x):
        scaled = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)
        return w[f"{name}.norm.a_2"] * scaled + w[f"{name}.norm.b_2"]

    x = (
        embedding(w, "bert.embedding.token", tokens, padding_idx=0)
        + w["bert.embedding.position.pe"]
    )
    x = x + embedding(w, "bert.embedding.segment", segments, padding_idx=0)
    for block in ("bert.transformer_blocks.0", "bert.transformer_blocks.1"):
        before = norm(f"{block}.sublayers.0", x)
        qkv = [linear(w, f"{block}.self_attn.linear_layers.{i}", before) for i in range(3)]
        x = x + linear(w, f"{block}.self_attn.output_layer", attend(tokens, *qkv))
        inner = linear(w, f"{block}.feed_forward.w_1", norm(f"{block}.sublayers.1", x))
        x = x + linear(w, f"{block}.feed_forward.w_2", F.gelu(inner, approximate="tanh"))
    return linear(w, "mask_lm.linear", x), linear(w, "next_sentence.linear", x[:, 0])


def run_blog(w, tokens, segments):
    def norm(name, x):
        return F.layer_norm(x, (16,), w[f"{name}.weight"], w[f"{name}.bias"])

    x = embedding(w, "ebd.t", tokens) + w["ebd.p.weight"]
    x = x + embedding(w, "ebd.s", segments, padding_idx=0)
    for block in ("blks.0", "blks.1"):
        qkv = [linear(w, f"{block}.sublayer_1.w_{letter}", x) for letter in "qkv"]
        attended = linear(w, f"{block}.sublayer_1.w_o", attend(tokens, *qkv))
        x = norm(f"{block}.norm_1", x + attended)
        inner = F.gelu(linear(w, f"{block}.sublayer_2.linear_1", x))
        x = norm(f"{block}.norm_2", x + linear(w, f"{block}.sublayer_2.linear_2", inner))
    return linear(w, "mlm.fc", x), linear(w, "nsp.fc", x[:, 0])


def state_dict(program, model):
    rows = expand(model.bert_config, program.names, program.endings)
    weights = {name: torch.tensor(x) for name, x in stored_weights(model, rows).items()}
    if model.bert_config.positions == "sinusoidal":
        weights[program.names["encoder/pos_embedding"]] = torch.tensor(model.encoder.pos_embedding)
    return weights


def train(run, weights):
    """Train as `BERTAdamW` does, with a loss also at the padding."""
    trained = [x.requires_grad_() for name, x in weights.items() if not name.endswith(".pe")]
    kernels, vectors = ([x for x in trained if (x.dim() > 1) == is_kernel] for is_kernel in (1, 0))
    groups = {"params": kernels, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}
    optimizer = torch.optim.AdamW(groups, 1e-3, eps=1e-6)
    tokens, mlm, nsp = map(torch.tensor, (TOKENS, LABELS["mlm"], LABELS["nsp"]))
    segments = torch.where(tokens == 0, 0, torch.tensor(SEGMENTS) + 1)
    for _ in range(NUM_STEPS):
        of_mlm, of_nsp = run(weights, tokens, segments)
        optimizer.zero_grad()
        loss = F.cross_entropy(of_mlm.flatten(0, 1), mlm.flatten())
        (loss + F.cross_entropy(of_nsp, nsp)).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("program", "run", "padded"),
    [
        (NOTEBOOK, run_notebook, ["bert.embedding.token", "bert.embedding.segment"]),
        (state_dicts.BLOG, run_blog, ["ebd.s"]),
    ],
)
def test_training_equals_pytorchs_and_keeps_the_rows_for_padding(program, run, padded):
    rates = dict.fromkeys(("dropout", "embedding_dropout", "ffn_dropout", "block_dropout"), 0.0)
    config = kb.BERTConfig.preset(
        program.preset, **SIZES, ffn_num_hiddens=64, **rates, initializer_range=0.2
    )
    model = kb.BERTModel.from_bert_config(config)
    model.compile(kb.BERTAdamW(1e-3, weight_decay=0.1, clip_norm=None))
    expected = state_dict(program, model)
    train(run, expected)
    every = np.broadcast_to(np.arange(LENGTH), TOKENS.shape)
    batch = {"tokens": TOKENS, "segments": SEGMENTS, "pred_positions": every}
    for _ in range(NUM_STEPS):
        model.train_on_batch(batch, LABELS, {name: np.ones(x.shape) for name, x in LABELS.items()})
    trained = state_dict(program, model)
    for name, value in trained.items():
        if not name.endswith(KEY_BIASES):
            torch.testing.assert_close(value, expected[name], rtol=0, atol=2e-5, msg=name)
    for name in padded:
        assert not trained[f"{name}.weight"][0].any()
