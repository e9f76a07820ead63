"""Sparse vectors of SPLADE folders equal those of `SparseEncoder` of sentence-transformers.

In Python, in a process with TensorFlow alone, and in ONNX.
"""

import json

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.family import bert_of

NEEDED = "needs sentence-transformers: make test-peers"
sparse_encoder = pytest.importorskip("sentence_transformers.sparse_encoder", reason=NEEDED)
search = pytest.importorskip("tests.peers.test_search_folders")  # needs onnxruntime
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: make test-peers")
TEXTS = ["the cat sat on a mat", "", "a good film about Paris " * 9, "Ada lives in London"]


@pytest.mark.filterwarnings("ignore:Truncated to 20 tokens")
@pytest.mark.parametrize(
    ("pooling", "activation", "name", "top_k"),
    [("max", "relu", "mpnet", 9), ("sum", "log1p_relu", "roberta", None)],
)
def test_vectors_of_a_folder_are_equal(pooling, activation, name, top_k, tmp_path):
    bert, plain, folder = bert_of(name), tmp_path / "plain", tmp_path / "sparse"
    for weight in bert.mlm.weights:
        weight.assign(weight + np.random.default_rng(0).normal(size=weight.shape))
    kb.save_pretrained(bert, plain, format="huggingface")
    modules = pytest.importorskip("sentence_transformers.base.modules", reason=NEEDED)
    splade = pytest.importorskip("sentence_transformers.sparse_encoder.modules", reason=NEEDED)
    theirs = sparse_encoder.SparseEncoder(
        modules=[
            modules.Transformer(str(plain), transformer_task="fill-mask"),
            splade.SpladePooling(pooling, activation_function=activation),
        ],
        device="cpu",
        max_active_dims=top_k,
    )
    theirs.max_seq_length = 20
    theirs.save_pretrained(str(folder))
    if pooling == "max":  # as versions before 5.4 call the module
        file = folder / "modules.json"
        old = "sentence_transformers.sparse_encoder.models.MLMTransformer"
        rows = json.loads(file.read_text())
        file.write_text(json.dumps([{**rows[0], "type": old}, rows[1]]))
    expected = theirs.encode(TEXTS, convert_to_sparse_tensor=False).numpy()
    model = kb.load_pretrained(folder).model
    with pytest.raises(ValueError, match="`path` must be that of a TextEmbedder.*sparse"):
        kb.embed(folder, TEXTS)
    assert model.sparse == kb.SparsePooling(pooling, activation, max_len=20, top_k=top_k)
    found = np.zeros_like(expected)
    for row, vector in zip(found, kb.embed_sparse(model, TEXTS), strict=True):
        row[vector.indices] = vector.values
        assert vector.tokens == theirs.tokenizer.convert_ids_to_tokens(vector.indices)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    path = kb.export_saved_model(model, tmp_path / "saved")
    requests = [search.request("embed_sparse", text=TEXTS)]
    question = {"folder": str(path), "loaders": ["eager"], "requests": requests}
    answers = search.ask({"splade": question}, search.COMMANDS["SavedModel"], tmp_path)
    indices, values = (answers["splade", "0", name] for name in ("indices", "values"))
    found = np.zeros_like(expected)
    np.add.at(found, (np.arange(len(TEXTS))[:, None], indices), values)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    session = onnxruntime.InferenceSession(str(kb.export_onnx(model, tmp_path / "onnx")))
    batch = theirs.tokenizer(TEXTS, padding=True, truncation=True, return_tensors="np")
    batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
    positions = np.indices(batch["input_ids"].shape)[1]
    [logits] = session.run(["mlm_logits"], {**batch, "pred_positions": positions})
    values = np.log1p(np.maximum(logits * batch["attention_mask"][:, :, None], 0))
    values = np.log1p(values).sum(axis=1) if pooling == "sum" else values.max(axis=1)
    largest = np.sort(values, axis=1)[:, -top_k, None] if top_k else 0
    np.testing.assert_allclose(
        np.where(values < largest, 0, values), expected, rtol=1e-5, atol=1e-5
    )


def test_a_plain_masked_language_model_is_splade_max(tmp_path):
    bert = bert_of("mpnet")
    kb.save_pretrained(bert, tmp_path, format="huggingface")
    theirs = sparse_encoder.SparseEncoder(str(tmp_path), device="cpu")
    expected = theirs.encode(TEXTS[:1], convert_to_sparse_tensor=False).numpy()[0]
    vector = kb.embed_sparse(tmp_path, TEXTS[0])
    np.testing.assert_allclose(vector.values, expected[vector.indices], atol=1e-5)
    assert np.count_nonzero(expected) == len(vector.indices)
