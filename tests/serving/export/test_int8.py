"""Exports that are quantized to 8-bit integers."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.inference.tasks.embeddings import embed
from keras_bert_d2l.serving.export.audit import NEEDS_ONEDNN, audit_saved_model
from keras_bert_d2l.serving.export.saved_model import export_saved_model

TEXTS = ["red [MASK]", "", "[MASK] blue [MASK]ish green", "Reddish, green"]


@pytest.fixture(scope="module")
def folder(needs_int8, model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved_models")
    return export_saved_model(model, path, tokenizer=tokenizer, quantize="int8")


@pytest.mark.slow
def test_outputs_are_close_to_those_of_the_model(folder, model, tokenizer):
    loaded = tf.saved_model.load(str(folder))
    given = loaded.signatures["embed"](tf.constant(TEXTS))["embedding"].numpy()
    expected = embed(model, TEXTS, tokenizer=tokenizer)
    difference = np.linalg.norm(given - expected) / np.linalg.norm(expected)
    assert 1e-4 < difference < 0.03
    alone = loaded.signatures["embed"](tf.constant(TEXTS[:1]))["embedding"].numpy()
    np.testing.assert_allclose(alone, given[:1], atol=1e-6)


def test_float_kernels_of_the_blocks_are_not_stored(folder, model):
    variables = tf.train.list_variables(str(folder / "variables" / "variables"))
    sizes = [np.prod(shape) for name, shape in variables if "CHECKPOINTABLE" not in name]
    norms = (norm.count_params() for blk in model.encoder.blks for norm in norms_of(blk))
    of_blocks = sum(blk.count_params() for blk in model.encoder.blks) - sum(norms)
    assert sum(sizes) == model.count_params() - of_blocks


def norms_of(blk):
    return blk.addnorm1.ln, blk.addnorm2.ln


def test_the_audit_and_the_model_card_name_the_quantization(folder, exported):
    (finding,) = audit_saved_model(folder)
    assert finding.op == "QuantizedMatMulWithBiasAndDequantize"
    assert finding.problem == NEEDS_ONEDNN
    for path, quantize in ((folder, "int8"), (exported, None)):
        card = json.loads((path / "model_card.json").read_text(encoding="utf-8"))
        assert card["quantize"] == quantize


@pytest.mark.parametrize("quantize", ["int4", True, "INT8", 8])
def test_unknown_quantizations_are_rejected(quantize, model, tmp_path):
    with pytest.raises(ValueError, match="`quantize` must be one of None, 'int8'"):
        export_saved_model(model, tmp_path, quantize=quantize)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_quantized_model_is_rejected(make_model, tmp_path):
    model = make_model()
    model.encoder.blks[1].ffn.dense1.quantize("int8")
    with pytest.raises(ValueError, match="Received: a model that `model.quantize` has changed"):
        export_saved_model(model, tmp_path, quantize="int8")


@pytest.mark.long
@pytest.mark.parametrize(
    "environment",
    [{"TF_ENABLE_ONEDNN_OPTS": "0"}, {"TF_ENABLE_ONEDNN_OPTS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"}],
    ids=["without oneDNN", "without VNNI"],
)
def test_machines_that_cannot_compute_the_products_say_so(environment, folder, fresh_process):
    code = """
        import sys
        import tensorflow as tf
        import tensorflow_text
        import keras_bert_d2l as kb

        model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("tiny", num_blks=1))
        try:
            kb.export_saved_model(model, "out", quantize="int8")
        except RuntimeError as error:
            print("oneDNN" in str(error))
        loaded = tf.saved_model.load(sys.argv[1])
        ids = tf.zeros((1, 2), tf.int32)
        inputs = dict(tokens=ids, segments=ids, valid_lens=[2], pred_positions=[[0]])
        try:
            loaded.signatures["tokens"](**{k: tf.constant(x) for k, x in inputs.items()})
        except (tf.errors.InternalError, tf.errors.InvalidArgumentError) as error:
            print("int8" in error.message or "QuantizedMatMul" in error.message)
    """
    assert fresh_process(code, folder, **environment) == "True\nTrue\n"


@pytest.mark.long
def test_embeddings_of_minilm_are_close_to_those_of_the_model(needs_int8, minilm_dir, tmp_path):
    model, tokenizer, _ = load_pretrained(minilm_dir, verbose=False)
    texts = [line for line in __doc__.splitlines() if line] + MINILM_TEXTS
    folder = export_saved_model(model, tmp_path, tokenizer=tokenizer, quantize="int8")
    embedding = tf.saved_model.load(str(folder)).signatures["embed"](tf.constant(texts))
    cosines = np.sum(
        embedding["embedding"].numpy() * embed(model, texts, tokenizer=tokenizer), axis=1
    )
    assert cosines.mean() > 0.995
    assert cosines.min() > 0.985


MINILM_TEXTS = [
    "The server rejects requests, which is better than answering all of them late.",
    "A boy is running through the park with his dog.",
    "What is the capital of France?",
    "film",
    "Interest rates rose by a quarter of a percentage point on Thursday, as expected.",
]
