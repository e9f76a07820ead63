"""LoRA equals PEFT's: outputs, gradients and files, in both directions."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    SequenceClassifier,
    TextEmbedder,
    load_adapter,
    load_pretrained,
    save_adapter,
    save_pretrained,
)
from keras_bert_d2l.checkpoints.weights import named_weights
from tests.checkpoints.small import TWO_BLOCKS

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
peft = pytest.importorskip("peft", reason="needs PEFT: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

CONFIG = BERTConfig.preset(
    "huggingface", vocab_size=30, max_len=12, dropout=0.0, embedding_dropout=0.0, **TWO_BLOCKS
)
RNG = np.random.default_rng(0)
TOKENS, SEGMENTS = RNG.integers(0, 30, (4, 7)), RNG.integers(0, 2, (4, 7))
BATCH = {"tokens": TOKENS, "segments": SEGMENTS}
KINDS = {  # our model, their class, layers, and further weights that are trained
    "pretraining": (
        lambda bert: bert,
        "BertForPreTraining",
        {
            "W_q": "query",
            "W_o": "attention.output.dense",
            "dense1": "intermediate.dense",
            "hidden": "pooler.dense",
            "mlm/mlp/dense": "transform.dense",
            "nsp/dense": "seq_relationship",
        },
        None,
    ),
    "classifier": (
        lambda bert: SequenceClassifier(bert, ["x", "y", "z"]),
        "BertForSequenceClassification",
        {"W_k": "key", "W_v": "value", "dense2": "[0-9].output.dense"},
        ["classifier", "pooler"],
    ),
    "embedder": (TextEmbedder, "BertModel", {"W_q": "query", "W_v": "value"}, None),
}


@pytest.fixture(params=KINDS)
def models(request, tmp_path):
    """The same model here and there, without LoRA, and their layers."""
    make, theirs, layers, trained = KINDS[request.param]
    bert = BERTModel.from_bert_config(CONFIG)
    model = make(bert)
    for weight in named_weights(model).values():
        weight.assign(RNG.normal(size=weight.shape, scale=0.3))
    saved = bert if isinstance(model, TextEmbedder) else model
    save_pretrained(saved, tmp_path / "base", format="huggingface")
    other = getattr(transformers, theirs).from_pretrained(tmp_path / "base").eval()
    return model, other, layers, trained


def logits_here(model):
    if isinstance(model, SequenceClassifier):
        return [model(BATCH)]
    if isinstance(model, TextEmbedder):
        return [model.encoder(TOKENS, SEGMENTS)]
    _, mlm, nsp = model(TOKENS, SEGMENTS, pred_positions=np.tile(np.arange(7), (4, 1)))
    return [mlm, nsp[:, ::-1]]


def logits_there(other):
    tokens, segments = torch.tensor(TOKENS), torch.tensor(SEGMENTS)
    outputs = other(tokens, token_type_ids=segments)
    if "last_hidden_state" in outputs:
        return [outputs.last_hidden_state]
    return [outputs.logits] if "logits" in outputs else list(outputs.values())


def test_an_adapter_of_peft_has_the_same_outputs_and_gradients_here(models, tmp_path):
    model, other, layers, trained = models
    config = peft.LoraConfig(
        r=2, lora_alpha=6, target_modules=list(layers.values()), modules_to_save=trained
    )
    if trained:
        config.target_modules = r".*(key|value|layer\.\d+\.output\.dense)"
    other = peft.get_peft_model(other, config).eval()
    with torch.no_grad():
        for weight in other.parameters():
            if weight.requires_grad:
                weight.copy_(torch.tensor(RNG.normal(size=weight.shape, scale=0.3)))
    other.save_pretrained(tmp_path / "adapter")
    load_adapter(model, tmp_path / "adapter")
    with tf.GradientTape() as tape:
        ours = logits_here(model)
        loss = sum(tf.reduce_sum(x**2) for x in ours)
    theirs = logits_there(other)
    sum((x**2).sum() for x in theirs).backward()
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x, y.detach(), atol=1e-5)
    weights = model.trainable_variables
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    found = sorted(float(tf.norm(gradient)) for gradient in gradients)
    expected = sorted(float(x.grad.norm()) for x in other.parameters() if x.requires_grad)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    model.merge_lora()
    for x, y in zip(logits_here(model), theirs, strict=True):
        np.testing.assert_allclose(x, y.detach(), atol=1e-5)


def test_peft_reads_our_adapter(models, tmp_path):
    model, other, layers, _ = models
    model.enable_lora(2, lora_alpha=6, lora_layers=list(layers))
    for weight in model.trainable_variables:
        weight.assign(RNG.normal(size=weight.shape, scale=0.3))
    save_adapter(model, tmp_path / "adapter")
    other = peft.PeftModel.from_pretrained(other, tmp_path / "adapter").eval()
    for x, y in zip(logits_here(model), logits_there(other), strict=True):
        np.testing.assert_allclose(x, y.detach(), atol=1e-5)
    merged = other.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    loaded = load_pretrained(tmp_path / "merged").model
    if isinstance(model, TextEmbedder):
        loaded = TextEmbedder(loaded)
    for x, y in zip(logits_here(loaded), logits_here(model), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


OPTIONS = {
    "every layer": {"target_modules": "all-linear"},
    "an embedding": {"target_modules": ["query", "Wqkv", "word_embeddings", "tok_embeddings"]},
    "saved embedding": {"modules_to_save": ["word_embeddings", "tok_embeddings", "classifier"]},
    "biases": {"bias": "all"},
    "one block": {"target_modules": r".*layers?\.1\..*(query|Wqkv)"},
    "scales": {
        "rank_pattern": {r"1\..*(value|Wqkv)": 1},
        "alpha_pattern": {"query": 9, "0.attn.Wqkv": 9},
        "use_rslora": True,
    },
}


@pytest.mark.filterwarnings("ignore:The following alpha_pattern keys")  # of the other kind
@pytest.mark.parametrize("kind", ["Bert", "ModernBert"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_peft_have_its_logits_here(name, kind, tmp_path):
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2}
    fields = {"vocab_size": 30, "num_hidden_layers": 2, "num_labels": 3, "pad_token_id": 0, **sizes}
    if kind == "ModernBert":
        fields |= dict.fromkeys(("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id"), 2)
    make = getattr(transformers, f"{kind}ForSequenceClassification")
    torch.manual_seed(0)
    make(make.config_class(**fields)).save_pretrained(tmp_path / "base")
    theirs = peft.get_peft_model(
        make.from_pretrained(tmp_path / "base"),
        peft.LoraConfig(
            task_type="SEQ_CLS",
            r=2,
            lora_alpha=6,
            **{"target_modules": ["query", "value", "Wqkv"], **OPTIONS[name]},
        ),
    ).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            if weight.requires_grad:
                weight.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path / "adapter", safe_serialization=name != "biases")
    model = load_pretrained(tmp_path / "base", verbose=False).model
    load_adapter(model, tmp_path / "adapter")
    expected = theirs(torch.tensor(TOKENS)).logits.detach()
    np.testing.assert_allclose(model({"tokens": TOKENS}), expected, atol=2e-5)
    save_adapter(model, tmp_path / "again")
    if kind == "Bert":
        base = make.from_pretrained(tmp_path / "base")
        again = peft.PeftModel.from_pretrained(base, tmp_path / "again").eval()
        np.testing.assert_allclose(again(torch.tensor(TOKENS)).logits.detach(), expected, atol=1e-5)
