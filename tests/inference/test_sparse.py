import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bert_d2l as kb
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from keras_bert_d2l.text_arguments import TruncationWarning
from tests.checkpoints.small import SMALL
from tests.nightly import nightly_except

OF_6 = {"model_type": "SparseEncoder"}
TEXTS = ["cat", "", "the dog sat on the mat the cat sat on a dog", "the cat"]


@pytest.fixture
def bert(words_tokenizer):
    keras.utils.set_random_seed(0)
    fields = {**SMALL, "vocab_size": len(words_tokenizer.vocab), "max_len": 16}
    config = kb.BERTConfig.preset("huggingface", **fields, pooler=False, next_sentence=False)
    bert = kb.BERTModel.from_bert_config(config)
    for weight in bert.mlm.weights:
        weight.assign(weight + keras.random.normal(weight.shape))
    bert.tokenizer = words_tokenizer
    return bert


def signature_of(bert):
    return model_signatures(bert, bert.tokenizer, TextOptions(False, 1, None))["embed_sparse"]


def dense(vectors, size):
    rows = np.zeros((len(vectors), size))
    for row, vector in zip(rows, vectors, strict=True):
        row[vector.indices] = vector.values
    return rows


def expected(bert, text, max_len=16):
    """Return the weights for all tokens from the logits of all positions."""
    batch = bert.tokenizer([text], max_len=max_len)
    positions = np.arange(batch["valid_lens"][0])[None]
    weights = np.log1p(np.maximum(bert(**batch, pred_positions=positions)[1][0], 0))
    if bert.sparse.activation == "log1p_relu":
        weights = np.log1p(weights)
    return weights.max(0) if bert.sparse.pooling == "max" else weights.sum(0)


@pytest.mark.parametrize(
    "pooling",
    nightly_except(
        [("sum", "log1p_relu")], [("max", "relu"), ("sum", "relu"), ("sum", "log1p_relu")]
    ),
)
def test_the_weights_are_pooled_over_the_tokens_of_a_text_in_python_and_in_an_export(bert, pooling):
    bert.sparse = kb.SparsePooling(*pooling, max_len=13)
    with pytest.warns(TruncationWarning, match="to 13 tokens, .*: 1 text. "):
        vectors = kb.embed_sparse(bert, TEXTS, batch_size=3)
    right = [expected(bert, text, max_len=13) for text in TEXTS]
    np.testing.assert_allclose(dense(vectors, bert.bert_config.vocab_size), right, atol=1e-5)
    assert kb.embed_sparse(bert, "cat").tokens == vectors[0].tokens
    answer = signature_of(bert).function(tf.constant(TEXTS))
    answer = {name: x.numpy() for name, x in answer.items()}
    assert answer.pop("truncated").tolist() == [False, False, True, False]
    for row, vector in enumerate(vectors):
        size = len(vector.indices)
        assert answer["indices"][row, :size].tolist() == vector.indices
        assert [token.decode() for token in answer["tokens"][row, :size]] == vector.tokens
        np.testing.assert_allclose(answer["values"][row, :size], vector.values, atol=1e-5)
        assert not any(x[row, size:].any() for x in answer.values())


def test_only_the_largest_weights_are_kept(bert):
    all_values = kb.embed_sparse(bert, "the cat")
    kept = kb.embed_sparse(bert, "the cat", top_k=2)
    assert sorted(kept.values) == sorted(all_values.values)[-2:]
    assert kept.indices == sorted(kept.indices)
    bert.sparse = kb.SparsePooling(top_k=2)
    assert kb.embed_sparse(bert, "the cat") == kept
    answer = signature_of(bert).function(tf.constant(["the cat"]))
    assert answer["indices"].numpy().tolist() == [kept.indices]


def test_a_dot_product_is_that_of_the_dense_vectors(bert):
    query, text = kb.embed_sparse(bert, ["the cat", "a dog"])
    rows = dense([query, text], bert.bert_config.vocab_size)
    assert query.dot(text) == pytest.approx(rows[0] @ rows[1])
    assert query.weights[query.tokens[0]] == query.values[0]


def test_the_pooling_is_saved_or_the_format_is_refused(bert, tmp_path):
    bert.sparse = kb.SparsePooling("sum", "log1p_relu", max_len=9, top_k=3)
    kb.save_pretrained(bert, tmp_path / "native")
    bert.save(tmp_path / "bert.keras")
    loaded = [
        kb.load_pretrained(tmp_path / "native").model,
        keras.models.load_model(tmp_path / "bert.keras"),
        kb.keep_blocks(bert, [1]),
    ]
    assert [model.sparse for model in loaded] == [bert.sparse] * 3
    with pytest.raises(ValueError, match="`format` must be 'native' for a model with SparsePool"):
        kb.save_pretrained(bert, tmp_path / "hf", format="huggingface")


def test_wrong_arguments_are_named(bert):
    for name, value in (("pooling", "mean"), ("activation", "tanh"), ("max_len", 2), ("top_k", 0)):
        with pytest.raises(ValueError, match=f"`{name}` must be "):
            dataclasses.replace(bert.sparse, **{name: value})
    for name in ("top_k", "batch_size"):
        with pytest.raises(ValueError, match=f"`{name}` must be "):
            kb.embed_sparse(bert, "cat", **{name: 0})
    bert.missing_heads = frozenset({"mlm"})
    with pytest.raises(ValueError, match="needs a model with a trained 'mlm' head"):
        kb.embed_sparse(bert, "cat")


@pytest.mark.parametrize(
    ("modules", "pooling", "fields", "message"),
    [
        (["Transformer", "Pooling", "SparseAutoEncoder"], {}, OF_6, "'SparseAutoEncoder'"),
        (["Router", "SpladePooling"], {}, {}, "`type` must be .* Transformer"),
        (["SparseStaticEmbedding"], {}, OF_6, "`type` must be .* Transformer"),
        (["MLMTransformer", "SpladePooling"], {"pooling_strategy": "mean"}, {}, "`pooling` must"),
        (["Transformer", "SpladePooling"], {}, {"transformer_task": "text"}, "`transformer_task`"),
        (["Transformer", "SpladePooling"], {}, {"prompts": {"query": "q: "}}, "`prompts` must"),
    ],
)
def test_folders_that_are_not_supported_are_refused_by_name(
    bert, tmp_path, modules, pooling, fields, message
):
    kb.save_pretrained(bert, tmp_path, format="huggingface")
    files = {
        "modules.json": [{"path": "", "type": f"sentence_transformers.models.{modules[0]}"}],
        "sentence_bert_config.json": fields,
        "config_sentence_transformers.json": fields,
        "1/config.json": pooling,
    }
    files["modules.json"] += [
        {"path": "1", "type": f"sentence_transformers.models.{kind}"} for kind in modules[1:]
    ]
    (tmp_path / "1").mkdir()
    (tmp_path / "SHA256SUMS").unlink()
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        kb.load_pretrained(tmp_path)
