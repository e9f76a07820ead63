"""Folders of `export_onnx` used without this package: transformers' tokenizer and onnxruntime."""

import json

import keras
import numpy as np
import onnxruntime
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, Tokenizer, Vocab, export_onnx
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from tests.family import bert_of

transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat ##s , . !".split())
CONFIG = BERTConfig.preset("tiny", vocab_size=len(VOCAB), num_hiddens=16, num_blks=2, max_len=24)
TEXTS, TEXTS_B = ["The cats sat!", "[MASK] mat", ""], ["On the mat, on the mats.", "", "Cat"]
TASKS = {
    "BertModel": TextEmbedder,
    "BertForSequenceClassification": lambda bert: SequenceClassifier(bert, ["bad", "good"]),
    "BertForTokenClassification": lambda bert: TokenClassifier(bert, ["x", "y", "z"]),
    "BertForQuestionAnswering": QuestionAnswerer,
}


@pytest.mark.parametrize("architecture", [*TASKS, "BertForPreTraining"])
@pytest.mark.parametrize("texts_b", [None, TEXTS_B])
def test_transformers_tokenizer_and_onnxruntime_give_the_same_outputs(
    architecture, texts_b, tmp_path
):
    bert = BERTModel.from_bert_config(CONFIG)
    for seed, weight in enumerate(bert.weights):
        weight.assign(keras.random.normal(weight.shape, 0.1, 0.3, seed=seed))
    model = TASKS[architecture](bert) if architecture in TASKS else bert
    tokenizer = Tokenizer(VOCAB, compat="huggingface")
    file = export_onnx(model, tmp_path / "onnx", tokenizer=tokenizer)
    theirs = transformers.AutoTokenizer.from_pretrained(file.parent)
    batch = theirs(TEXTS, texts_b, padding=True, return_tensors="np")
    session = onnxruntime.InferenceSession(str(file))
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, dict(batch)), strict=True))
    for name, expected in expected_outputs(model, tokenizer(TEXTS, texts_b)).items():
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-5, atol=1e-5)


def expected_outputs(model, batch):
    if isinstance(model, BERTModel | TextEmbedder):
        embedder = TextEmbedder(model) if isinstance(model, BERTModel) else model
        return {"last_hidden_state": model.encoder(**batch), "sentence_embedding": embedder(batch)}
    if isinstance(model, QuestionAnswerer):
        return {f"{side}_logits": logits for side, logits in model(batch).items()}
    return {"logits": model(batch)}


@pytest.mark.parametrize("architecture", TASKS)
def test_transformers_reads_the_configuration(architecture, tmp_path):
    model = TASKS[architecture](BERTModel.from_bert_config(CONFIG))
    file = export_onnx(model, tmp_path / "onnx", tokenizer=Tokenizer(VOCAB))
    config = transformers.AutoConfig.from_pretrained(file.parent)
    assert config.architectures == [architecture]
    assert (config.hidden_size, config.max_position_embeddings) == (16, 24)
    if hasattr(model, "labels"):
        assert config.id2label == dict(enumerate(model.labels))
    assert json.loads((file.parent / "config.json").read_text())["model_type"] == "bert"


@pytest.mark.parametrize("name", ["roberta", "modernbert"])
def test_transformers_reads_the_folders_of_relatives(name, tmp_path):
    model = SequenceClassifier(bert_of(name), ["bad", "good"])
    file = export_onnx(model, tmp_path / "onnx")
    config = transformers.AutoConfig.from_pretrained(file.parent)
    assert (config.model_type, config.id2label) == (name, {0: "bad", 1: "good"})
    theirs = transformers.AutoTokenizer.from_pretrained(file.parent)
    batch = theirs(TEXTS, TEXTS_B, padding=True, return_tensors="np")
    (logits,) = onnxruntime.InferenceSession(str(file)).run(["logits"], dict(batch))
    expected = model(model.tokenizer(TEXTS, TEXTS_B))
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["BertModel", "BertForSequenceClassification"])
def test_files_run_in_openvino(architecture, tmp_path):
    openvino = pytest.importorskip("openvino", reason="needs openvino: make test-peers")
    model = TASKS[architecture](BERTModel.from_bert_config(CONFIG))
    tokenizer = Tokenizer(VOCAB)
    path = export_onnx(model, tmp_path / "onnx", tokenizer=tokenizer)
    batch = tokenizer(TEXTS)
    mask = np.arange(batch["tokens"].shape[1]) < np.asarray(batch["valid_lens"])[:, None]
    inputs = {
        "input_ids": np.int64(batch["tokens"]),
        "attention_mask": np.int64(mask),
        "token_type_ids": np.int64(batch["segments"]),
    }
    outputs = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(inputs)
    for name, expected in expected_outputs(model, batch).items():
        np.testing.assert_allclose(outputs[name], expected, rtol=1e-4, atol=1e-4)
