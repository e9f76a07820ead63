"""The relatives of BERT compute what transformers computes: states, logits, gradients and steps."""

import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats.huggingface.weight_names import join_parts, table
from keras_bert_d2l.checkpoints.weights import named_weights
from tests.nightly import nightly_except

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

CLASSES = {
    "distilbert": "DistilBert",
    "electra": "Electra",
    "roberta": "Roberta",
    "mpnet": "MPNet",
    "albert": "Albert",
    "modernbert": "ModernBert",
    "deberta": "Deberta",
    "deberta-v2": "DebertaV2",
}
DISTANCES = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"}
DEBERTA_V2 = {"share_att_key": True, "norm_rel_ebd": "layer_norm", "conv_act": "gelu"}
SIZES = {
    "small": {"vocab_size": 40, "width": 16, "inner": 24, "heads": 2, "blocks": 2, "max_len": 24},
    "large": {"vocab_size": 90, "width": 48, "inner": 80, "heads": 4, "blocks": 4, "max_len": 140},
}
NARROW = {"small": 8, "large": 48}  # ELECTRA has no projection if the widths are equal
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NOT_DECAYED = ("bias", "gamma", "beta")
CASES = [(name, size, side) for name in CLASSES for size in SIZES for side in ("right", "left")]
DAILY = [case for case in CASES if case[1:] == ("small", "left")]


def their_config(name, size):
    """Return a configuration of transformers without dropout."""
    sizes = SIZES[size]
    offset = 2 if name in ("roberta", "mpnet") else 0
    fields = {
        "vocab_size": sizes["vocab_size"],
        "hidden_size": sizes["width"],
        "intermediate_size": sizes["inner"],
        "num_attention_heads": sizes["heads"],
        "num_hidden_layers": sizes["blocks"],
        "max_position_embeddings": sizes["max_len"] + offset,
        **NO_DROPOUT,
    }
    if name == "distilbert":
        theirs = ("vocab_size", "dim", "hidden_dim", "n_heads", "n_layers")
        fields = dict(zip(theirs, fields.values(), strict=False))
        fields |= {"dropout": 0.0, "attention_dropout": 0.0}
        fields["max_position_embeddings"] = sizes["max_len"]
    elif name == "modernbert":
        fields = {k: v for k, v in fields.items() if k not in NO_DROPOUT}
        ids = dict.fromkeys("bos eos cls sep".split(), 4)
        fields |= {f"{role}_token_id": number for role, number in {**ids, "pad": 3}.items()}
        fields["local_attention"] = 16
    elif name in ("electra", "albert"):
        fields["embedding_size"] = NARROW[size]
    elif name == "roberta":
        fields["type_vocab_size"] = 1
    elif name == "deberta":
        fields |= {**DISTANCES, "max_relative_positions": 20, "type_vocab_size": 2}
    elif name == "deberta-v2":
        fields |= {**DISTANCES, **DEBERTA_V2}
        fields |= {"conv_kernel_size": 3} if size == "large" else {"position_buckets": 8}
    return transformers.AutoConfig.for_model(name, **fields)


@pytest.fixture
def models(request, tmp_path):
    """Return a random model of transformers, and ours with the same weights."""
    name, size, side = request.param
    torch.manual_seed(0)
    config = their_config(name, size)
    theirs = getattr(transformers, f"{CLASSES[name]}ForMaskedLM")(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.normal_(0.05, 0.1)
    theirs.save_pretrained(tmp_path)
    ours = kb.load_pretrained(tmp_path, verbose=False).model
    return theirs, ours, batch_of(config, SIZES[size], side), name


def batch_of(config, sizes, side):
    """Return tokens, segments and a mask of pairs, one of which has the maximum length."""
    rng = np.random.default_rng(1)
    length = sizes["max_len"]
    tokens = rng.integers(6, sizes["vocab_size"], (3, length), "int32")
    positions = np.arange(length)
    lens = np.array([[length], [length - 1], [length // 3]])
    mask = positions < lens if side == "right" else positions >= length - lens
    segments = (positions > 5).astype("int32") * mask
    if side == "left":
        segments = segments[:, ::-1].copy()
    return np.where(mask, tokens, config.pad_token_id).astype("int32"), segments, mask


def their_outputs(theirs, batch, name, **options):
    tokens, segments, mask = (torch.tensor(x) for x in batch)
    inputs = {"input_ids": tokens.long(), "attention_mask": mask.long()}
    if name in ("electra", "albert", "deberta"):
        inputs["token_type_ids"] = segments.long()
    return theirs(**inputs, **options)


def loss_of_theirs(theirs, batch, name):
    labels = torch.tensor(np.where(batch[2], batch[0], -100)).long()
    logits = their_outputs(theirs, batch, name).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def our_gradients(ours, batch):
    """Return the gradients of the mean loss over all tokens, by our names."""
    tokens, segments, mask = batch
    with tf.GradientTape() as tape:
        encoded = ours.encoder(tokens, segments, attention_mask=mask, training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tokens, ours.mlm(encoded))
        loss = tf.reduce_mean(losses[tf.constant(mask)])
    weights = {n: w for n, w in named_weights(ours).items() if not n.startswith(("hidden", "nsp"))}
    gradients = tape.gradient(loss, [weight.value for weight in weights.values()])
    values = [tf.convert_to_tensor(gradient).numpy() for gradient in gradients]
    return dict(zip(weights, values, strict=True))


def with_their_names(ours, values):
    rows = [row for row in table(ours.bert_config, None) if row.ours in values]
    named = {row.theirs: row.layout.to_theirs(values[row.ours]) for row in rows}
    return join_parts(named, ours.bert_config.num_heads)


def assert_close(found, expected, atol, name):
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol * scale, err_msg=name)


cases = pytest.mark.parametrize("models", nightly_except(DAILY, CASES), indirect=True, ids=str)


@cases
def test_hidden_states_and_logits_are_equal(models):
    theirs, ours, batch, name = models
    tokens, segments, mask = batch
    with torch.no_grad():
        outputs = their_outputs(theirs, batch, name, output_hidden_states=True)
    states = ours.encoder(tokens, segments, attention_mask=mask, return_hidden_states=True)
    pairs = zip(states["hidden_states"], outputs.hidden_states, strict=True)
    for number, (one, other) in enumerate(pairs):
        assert_close(one.numpy()[mask], other.numpy()[mask], 1e-5, f"state {number}")
    assert_close(ours.mlm(states["encoded"]).numpy()[mask], outputs.logits.numpy()[mask], 1e-5, "")


@cases
def test_gradients_of_all_weights_are_equal(models):
    theirs, ours, batch, name = models
    loss_of_theirs(theirs, batch, name).backward()
    found = with_their_names(ours, our_gradients(ours, batch))
    compared = {n for n, weight in theirs.named_parameters() if weight.grad is not None}
    copies = {f"{head}.decoder.bias" for head in ("lm_head", "predictions", "cls.predictions")}
    assert compared - copies <= found.keys()
    for weight, gradient in theirs.named_parameters():
        if weight in found:
            assert_close(found[weight], gradient.grad.numpy(), 1e-5, weight)


@cases
def test_five_steps_of_adamw_are_equal(models):
    theirs, ours, batch, name = models
    options = {"weight_decay": 0.1, "epsilon": 1e-6, "clip_norm": None}
    optimizer = kb.BERTAdamW(1e-3, **options)
    weights = {n: w for n, w in named_weights(ours).items() if not n.startswith(("hidden", "nsp"))}
    optimizer.build(list(weights.values()))
    is_plain = [n for n, w in theirs.named_parameters() if w.ndim > 1]
    groups = [
        {"params": [w for n, w in theirs.named_parameters() if (n in is_plain) == plain]}
        for plain in (True, False)
    ]
    groups[1]["weight_decay"] = 0.0  # of biases and normalizations
    their_optimizer = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6, weight_decay=0.1)
    for _ in range(5):
        optimizer.apply(list(our_gradients(ours, batch).values()), list(weights.values()))
        their_optimizer.zero_grad()
        loss_of_theirs(theirs, batch, name).backward()
        their_optimizer.step()
    found = with_their_names(ours, {name: weight.numpy() for name, weight in weights.items()})
    for weight, value in theirs.named_parameters():
        if weight in found:
            assert_close(found[weight], value.detach().numpy(), 1e-4, weight)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_the_discriminator_of_electra_tells_replaced_tokens_as_theirs_does(tmp_path, file):
    config = their_config("electra", "small")
    config.hidden_act = "relu"
    torch.manual_seed(0)
    theirs = transformers.ElectraForPreTraining(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.normal_(0.05, 0.1)
    theirs.save_pretrained(tmp_path / "theirs")
    if file == "pytorch_model.bin":
        (tmp_path / "theirs/model.safetensors").unlink()
        torch.save(theirs.state_dict(), tmp_path / "theirs" / file)
    ours = kb.load_pretrained(tmp_path / "theirs", verbose=False).model
    assert ours.missing_heads == {"pooler", "mlm"}
    batch = batch_of(config, SIZES["small"], "right")
    with torch.no_grad():
        expected = their_outputs(theirs, batch, "electra").logits.numpy()
    tokens, segments, mask = batch
    found = ours({"tokens": tokens, "segments": segments, "attention_mask": mask})
    assert_close(found["rtd"].numpy()[mask], expected[mask], 1e-5, "")
    kb.save_pretrained(ours, tmp_path / "ours", format="huggingface")
    load = transformers.AutoModelForPreTraining.from_pretrained
    again, report = load(tmp_path / "ours", output_loading_info=True)
    assert [*report["missing_keys"], *report["unexpected_keys"]] == []
    with torch.no_grad():
        assert_close(their_outputs(again, batch, "electra").logits.numpy(), expected, 1e-6, "")
