"""Heads that a checkpoint lacks are random, so no function may treat them as trained."""

import json

import keras
import numpy as np
import onnx
import pytest
import safetensors.numpy

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.formats import google

pytestmark = pytest.mark.slow

VOCAB = kb.Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat".split())
ONE_HEAD = {"mlm": ({"mlm": "sparse_categorical_crossentropy", "nsp": None}, ["nsp"])}
ONE_HEAD["nsp"] = ({"mlm": None, "nsp": "sparse_categorical_crossentropy"}, ["mlm"])


def without(folder, *parts):
    """Remove the weights of parts of the model from a native checkpoint, and return its folder."""
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    kept = {name: array for name, array in weights.items() if not name.startswith(parts)}
    safetensors.numpy.save_file(kept, folder / "model.safetensors")
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    return folder


@pytest.fixture
def tokenizer():
    return kb.Tokenizer(VOCAB)


@pytest.fixture
def folder(tmp_path, tokenizer):
    """A native checkpoint that lacks the MLM head and the next-sentence head."""
    config = kb.BERTConfig.preset("google", vocab_size=len(VOCAB), max_len=16)
    sizes = {"num_hiddens": 8, "ffn_num_hiddens": 16, "num_heads": 2, "num_blks": 1}
    model = kb.BERTModel.from_bert_config(kb.BERTConfig(**{**config.to_dict(), **sizes}))
    kb.save_pretrained(model, tmp_path / "whole", tokenizer=tokenizer)
    return without(tmp_path / "whole", "mlm", "nsp")


@pytest.fixture
def model(folder):
    return kb.load_pretrained(folder, verbose=False).model


def batch():
    return {
        "tokens": np.array([[2, 5, 6, 3]]),
        "segments": np.zeros((1, 4), "int32"),
        "pred_positions": np.array([[1, 2]]),
    }


LABELS = {"mlm": np.array([[5, 6]]), "nsp": np.array([1])}


def test_a_model_from_scratch_lacks_nothing():
    model = kb.BERTModel(10, 8, 16, 2, 1, 0.0)
    assert model.missing_heads == frozenset()
    assert model.usable_heads.keys() == {"pooler", "mlm", "nsp"}


def test_a_loaded_model_knows_which_heads_it_lacks(model):
    assert model.missing_heads == {"mlm", "nsp"}
    assert model.usable_heads.keys() == {"pooler"}


def test_a_next_sentence_head_above_a_missing_pooler_is_not_usable(model):
    model.missing_heads = frozenset({"pooler"})
    assert model.usable_heads.keys() == {"mlm"}


def test_training_all_heads_makes_them_real(model):
    model.compile("sgd")
    model.evaluate(batch(), LABELS, verbose=0)
    assert model.missing_heads == {"mlm", "nsp"}  # evaluating a head does not train it
    model.train_on_batch(batch(), LABELS)
    assert model.missing_heads == frozenset()


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # for the head without a loss
@pytest.mark.parametrize("head", ONE_HEAD)
def test_training_one_head_makes_only_this_one_real(model, head):
    loss, missing = ONE_HEAD[head]
    model.missing_heads |= {"pooler"}
    model.compile("sgd", loss)
    model.fit(batch(), LABELS, verbose=0)
    assert sorted(model.missing_heads) == (missing if head == "nsp" else [*missing, "pooler"])


def test_a_keras_file_keeps_the_missing_heads(model, tmp_path):
    model.save(tmp_path / "model.keras")
    assert keras.models.load_model(tmp_path / "model.keras").missing_heads == {"mlm", "nsp"}


def test_surgery_keeps_the_missing_heads(model, tokenizer):
    assert kb.resize_positions(model, 32).missing_heads == {"mlm", "nsp"}
    assert kb.add_tokens(model, ["dog"], tokenizer=tokenizer).missing_heads == {"mlm", "nsp"}


@pytest.mark.parametrize("format", ["native", "huggingface", "google"])
def test_missing_heads_are_not_written(folder, tmp_path, format):
    kb.convert_checkpoint(folder, tmp_path / "converted", format)
    again = kb.load_pretrained(tmp_path / "converted", verbose=False).model
    assert again.missing_heads == {"mlm", "nsp"}
    encoded = kb.load_pretrained(folder, verbose=False).model(**batch())[0]
    np.testing.assert_array_equal(again(**batch())[0], encoded)


@pytest.mark.parametrize(
    ("missing", "architecture"),
    [
        ((), "BertForPreTraining"),
        (("nsp",), "BertForMaskedLM"),
        (("mlm",), "BertForNextSentencePrediction"),
        (("mlm", "nsp"), "BertModel"),
    ],
)
def test_hugging_faces_architecture_has_the_heads_that_are_written(
    model, tmp_path, missing, architecture
):
    model.missing_heads = frozenset(missing)
    kb.save_pretrained(model, tmp_path / "hf", format="huggingface")
    assert json.loads((tmp_path / "hf/config.json").read_text())["architectures"] == [architecture]


def test_googles_files_lack_the_variables_of_missing_heads(model, tmp_path):
    kb.save_pretrained(model, tmp_path / "google", format="google")
    names = google.describe(tmp_path / "google").arrays.shapes
    assert {name.partition("/")[0] for name in names} == {"bert"}


def test_the_books_format_needs_every_head(tmp_path):
    model = kb.BERTModel.from_bert_config(kb.BERTConfig.preset("d2l-torch", vocab_size=10))
    model.missing_heads = frozenset({"nsp"})
    with pytest.raises(ValueError, match=r"book's format requires every head.*lacked \['nsp'\]"):
        kb.save_pretrained(model, tmp_path / "book", format="book")


def test_predictions_of_a_missing_head_are_refused(model, tokenizer):
    reason = r"checkpoint lacked \['mlm', 'nsp'\], so these weights are random"
    with pytest.raises(ValueError, match=f"masked-language-model head.*{reason}"):
        kb.fill_mask(model, "the [MASK]", tokenizer=tokenizer)
    with pytest.raises(ValueError, match=f"masked-language-model head.*{reason}"):
        kb.pseudo_perplexity(model, "the cat", tokenizer=tokenizer)
    with pytest.raises(ValueError, match=f"next-sentence head.*{reason}"):
        kb.next_sentence_score(model, "the cat", "sat", tokenizer=tokenizer)


def test_keras_export_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match=r"lacked \['mlm', 'nsp'\].*export_saved_model"):
        model.export(tmp_path / "export")


def test_an_onnx_file_has_no_outputs_of_missing_heads(model, tmp_path):
    graph = onnx.load(kb.export_onnx(model, tmp_path / "onnx")).graph
    assert [tensor.name for tensor in graph.output] == [
        "last_hidden_state",
        "sentence_embedding",
        "pooler_output",
    ]
    assert "pred_positions" not in [tensor.name for tensor in graph.input]


def test_a_saved_model_has_no_signatures_of_missing_heads(model, tokenizer, tmp_path):
    version = kb.export_saved_model(model, tmp_path / "served", tokenizer=tokenizer)
    signatures = json.loads((version / "model_card.json").read_text())["signatures"]
    assert signatures.keys() == {"serving_default", "embed", "tf_example", "tokens"}
    assert signatures["tokens"]["inputs"].keys() == {"tokens", "segments", "valid_lens"}
    assert signatures["tokens"]["outputs"].keys() == {"embedding", "encoded", "pooled"}
    outputs = signatures["serving_default"]["outputs"]
    assert outputs.keys() == {"embedding", "pooled", "truncated"}


def test_a_task_model_must_not_lack_its_pooler(folder, tmp_path):
    task = kb.load_task(kb.SequenceClassifier, folder, labels=["a", "b"], verbose=False).model
    kb.save_pretrained(task, tmp_path / "task")
    without(tmp_path / "task", "hidden")
    with pytest.raises(ValueError, match="lacks weights of the model: hidden/bias, hidden/kernel"):
        kb.load_pretrained(tmp_path / "task")


def test_minilm_is_served_without_its_random_heads(minilm_dir, tmp_path):
    model = kb.load_pretrained(minilm_dir).model
    assert model.missing_heads == {"mlm", "nsp"}
    with pytest.raises(ValueError, match="masked-language-model head"):
        kb.fill_mask(model, "Paris is the [MASK] of France.")
    kb.convert_checkpoint(minilm_dir, tmp_path / "native")
    weights = safetensors.numpy.load_file(tmp_path / "native/model.safetensors")
    assert {name.partition("/")[0] for name in weights} == {"encoder", "hidden"}
