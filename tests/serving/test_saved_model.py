import json
import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import softmax
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.inference.heads import fill_mask
from keras_bert_d2l.serving.audit import read_saved_model
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.signatures.signature import TextOptions
from keras_bert_d2l.signatures.signatures import model_signatures
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.embed.predictions import embed
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab
from tests.serving.conftest import MAX_LEN, TOP_K

TEXTS = ["red [MASK]", "", "[MASK] blue [MASK]ish green", "Reddish, green"]


@pytest.mark.slow
def test_every_signature_matches_the_model(served, model, tokenizer):
    filled = served("fill_mask", text=TEXTS)
    assert filled["tokens"].shape == (4, 2, TOP_K)  # texts have at most two masks
    for row in (0, 2):  # the texts with masks
        masks = fill_mask(model, TEXTS[row], top_k=TOP_K, tokenizer=tokenizer)
        for place, found in enumerate(masks):
            tokens = [token.decode() for token in filled["tokens"][row, place]]
            assert tokens == [prediction.token for prediction in found]
            assert list(filled["ids"][row, place]) == [prediction.id for prediction in found]
            scores = [prediction.score for prediction in found]
            np.testing.assert_allclose(filled["scores"][row, place], scores, atol=1e-5)
    batch = tokenizer(TEXTS, TEXTS[::-1], max_len=MAX_LEN)
    nsp = softmax(model(**batch)[2].numpy(), axis=-1)
    np.testing.assert_allclose(served("nsp", text=TEXTS, text_b=TEXTS[::-1])["nsp"], nsp, atol=1e-5)
    batch = tokenizer(TEXTS, max_len=MAX_LEN)
    encoded, mlm_logits, nsp_logits = model(**batch, pred_positions=np.ones((4, 2), "int32"))
    expected = {
        "embedding": embed(model, TEXTS, tokenizer=tokenizer),
        "pooled": model.hidden(encoded[:, 0]),
        "nsp": softmax(nsp_logits.numpy(), axis=-1),
    }
    answer = served("serving_default", text=TEXTS)
    assert not answer.pop("truncated").any()
    assert_equal(answer, expected)
    given = served("embed", text=TEXTS)["embedding"]
    np.testing.assert_allclose(given, expected["embedding"], atol=1e-6)
    del expected["nsp"]
    expected |= {"encoded": encoded, "mlm_logits": mlm_logits, "nsp_logits": nsp_logits}
    assert_equal(served("tokens", **batch, pred_positions=np.ones((4, 2), "int32")), expected)


def assert_equal(given, expected):
    assert given.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(given[name], array, atol=1e-5, err_msg=name)


def test_texts_without_a_mask_have_no_predictions(served):
    for text in ("", "red " * MAX_LEN + "[MASK]"):  # truncated before the mask
        answer = served("fill_mask", text=["red", text])
        assert answer["tokens"].shape == answer["scores"].shape == (2, 0, TOP_K)
        assert answer["positions"].shape == (2, 0)


def test_a_text_that_is_too_long_is_truncated_at_the_end(served):
    whole = served("serving_default", text=["red green " + "blue " * 50])
    cut = served("serving_default", text=["red green " + "blue " * (MAX_LEN - 4)])
    np.testing.assert_array_equal(whole["embedding"], cut["embedding"])
    assert whole["truncated"].tolist() == [True]
    assert cut["truncated"].tolist() == [False]


@pytest.mark.usefixtures("eager_functions")
def test_half_precision_models_return_float32(make_model, tokenizer):
    model = make_model(dtype="mixed_bfloat16")
    signatures = model_signatures(model, tokenizer, TextOptions(False, TOP_K, None))
    answers = {
        name: one.function(*map(tf.constant, one.example)) for name, one in signatures.items()
    }
    assert answers["fill_mask"].pop("ids").dtype == tf.int32
    dtypes = {x.dtype for answer in answers.values() for x in answer.values()}
    assert dtypes == {tf.float32, tf.string, tf.int32, tf.bool}
    scores = signatures["fill_mask"].function(tf.constant(["[MASK]"]))["scores"].numpy()
    found = fill_mask(model, "[MASK]", top_k=TOP_K, tokenizer=tokenizer)[0]
    # A logit of 4 has neighbours at a distance of 0.016 in bfloat16.
    np.testing.assert_allclose(scores[0, 0], [one.score for one in found], rtol=0.05)


@pytest.mark.usefixtures("eager_functions")
def test_the_books_special_tokens_are_supported(model):
    words = ("red", "green", "blue", "##ish")
    tokenizer = Tokenizer(Vocab([*BOOK_SPECIALS, *words]))
    signatures = model_signatures(model, tokenizer, TextOptions(False, TOP_K, None))
    answer = signatures["fill_mask"].function(tf.constant(["red <mask>"]))
    expected = fill_mask(model, "red <mask>", top_k=TOP_K, tokenizer=tokenizer)[0]
    tokens = [token.decode() for token in answer["tokens"][0, 0].numpy()]
    assert tokens == [prediction.token for prediction in expected]


@pytest.mark.slow
def test_without_a_tokenizer_the_export_only_accepts_token_ids(model, tmp_path):
    folder = export_saved_model(model, tmp_path)
    loaded = tf.saved_model.load(str(folder))
    assert set(loaded.signatures) == {"serving_default", "tokens"}
    batch = {"tokens": [[2, 5, 3]], "segments": [[0, 0, 0]], "valid_lens": [3]}
    batch = {name: tf.constant(ids) for name, ids in batch.items()}
    answer = loaded.signatures["serving_default"](**batch, pred_positions=tf.constant([[1]]))
    encoded, mlm_logits, _ = model(**batch, pred_positions=tf.constant([[1]]))
    np.testing.assert_allclose(answer["encoded"], encoded, atol=1e-5)
    np.testing.assert_allclose(answer["mlm_logits"], mlm_logits, atol=1e-5)


@pytest.mark.usefixtures("eager_functions")
def test_outputs_of_missing_heads_are_omitted(make_model, tokenizer):
    model = make_model(pooler=False, next_sentence=False)
    signatures = model_signatures(model, tokenizer, TextOptions(False, TOP_K, None))
    assert set(signatures) == {"serving_default", "embed", "embed_sparse", "fill_mask", "tokens"}
    outputs = {
        name: set(one.function(*map(tf.constant, one.example))) for name, one in signatures.items()
    }
    assert outputs["serving_default"] == {"embedding", "truncated"}
    assert outputs["tokens"] == {"encoded", "embedding", "mlm_logits"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tokens": [[2] * 25], "segments": [[0] * 25]},
            "`tokens.shape.1.` must be from 1 to 24. Received: 25",
        ),
        ({"tokens": [[2, 9]]}, "`tokens` must be from 0 to 8"),
        ({"segments": [[0, -1]]}, "`segments` must be from 0 to 1"),
        ({"segments": [[0]]}, "`segments.shape.1.` must be 2. Received: 1. It must match"),
        ({"valid_lens": [3]}, "`valid_lens` must be from 1 to 2"),
        ({"valid_lens": [2, 2]}, "`valid_lens.shape.0.` must be 1. Received: 2"),
        ({"pred_positions": [[2]]}, "`pred_positions` must be from 0 to 1"),
        ({"pred_positions": [[1], [1]]}, "`pred_positions.shape.0.` must be 1. Received: 2"),
    ],
)
def test_shapes_and_values_out_of_range_are_rejected(changes, message, served):
    request = {"tokens": [[2, 3]], "segments": [[0, 0]], "valid_lens": [2], "pred_positions": [[1]]}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served("tokens", **request | changes)


@pytest.mark.slow
def test_a_pair_needs_both_texts(served):
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="same number of texts, one pair per row"
    ):
        served("nsp", text=["red", "green"], text_b=["blue"])


def test_a_graph_the_server_cannot_load_is_not_written(model, tmp_path, monkeypatch):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.meta_graphs.add().graph_def.node.add(name="its_op", op="MyOp")
    content = saved_model.SerializeToString()
    monkeypatch.setattr(
        "keras_bert_d2l.serving.saved_model._save",
        lambda signatures, tokenizer, folder: (folder / "saved_model.pb").write_bytes(content),
    )
    with pytest.raises(RuntimeError, match=r"MyOp \(no known release\) at its_op"):
        export_saved_model(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_version_contains_the_vocabulary(exported, tokenizer):
    assert Vocab.from_file(exported / "assets" / "vocab.txt") == tokenizer.vocab


def test_the_model_card_describes_the_version(exported, model, tokenizer):
    card = json.loads((exported / "model_card.json").read_text(encoding="utf-8"))
    assert (card["name"], card["version"], card["training"]) == ("demo", 1, None)
    assert BERTConfig.from_dict(card["config"]) == model.bert_config
    assert card["vocabulary"] == {"size": 9, "sha256": tokenizer.vocab.fingerprint}
    assert card["embedding"] == TextEmbedder(model).task_config()
    assert card["signatures"]["fill_mask"] == {
        "inputs": {"text": {"dtype": "string", "shape": [None]}},
        "outputs": {
            "ids": {"dtype": "int32", "shape": [None, None, TOP_K]},
            "positions": {"dtype": "int32", "shape": [None, None]},
            "scores": {"dtype": "float32", "shape": [None, None, TOP_K]},
            "tokens": {"dtype": "string", "shape": [None, None, TOP_K]},
            "truncated": {"dtype": "bool", "shape": [None]},
        },
    }


@pytest.mark.usefixtures("quick_export")
def test_the_model_card_describes_the_training(model, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.yaml").touch()
    folder = export_saved_model(model, tmp_path / "out", run_dir=run)
    training = json.loads((folder / "model_card.json").read_text())["training"]
    assert training == {"run": str(run), "best": None}
    with pytest.raises(FileNotFoundError, match="does not contain a run"):
        export_saved_model(model, tmp_path / "out", run_dir=tmp_path)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["1"]


@pytest.mark.long
def test_there_is_a_warm_up_request_for_each_signature(exported, load, served):
    pytest.importorskip("tensorflow_serving", reason="needs tensorflow-serving-api")
    from tensorflow_serving.apis import prediction_log_pb2

    file = exported / "assets.extra" / "tf_serving_warmup_requests"
    asked = []
    for record in tf.data.TFRecordDataset(str(file)):
        request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        assert request.model_spec.name == "demo"
        asked.append(request.model_spec.signature_name)
        arrays = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        served(asked[-1], **arrays)
    assert sorted(asked) == sorted(load("demo").interfaces)


def test_the_functions_that_save_variables_have_operations_of_old_servers(exported):
    functions = read_saved_model(exported).meta_graphs[0].graph_def.library.function
    operations = {node.op for one in functions for node in one.node_def}
    assert {"SaveV2", "NoOp"} < operations
    assert "DisableCopyOnRead" not in operations  # TensorFlow 2.6 has no such operation


def test_the_optimizer_state_is_not_exported(exported, model):
    variables = tf.train.list_variables(str(exported / "variables" / "variables"))
    sizes = [np.prod(shape) for name, shape in variables if "CHECKPOINTABLE" not in name]
    assert sum(sizes) == model.count_params()


@pytest.mark.usefixtures("quick_export")
def test_versions_are_numbered_consecutively_and_never_replaced(model, tmp_path):
    (tmp_path / "notes").mkdir()
    assert export_saved_model(model, tmp_path) == tmp_path / "1"
    assert export_saved_model(model, tmp_path, version=7) == tmp_path / "7"
    assert export_saved_model(model, str(tmp_path)) == tmp_path / "8"
    before = (tmp_path / "7" / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="7' already exists, and an export never replaces"):
        export_saved_model(model, tmp_path, version=7)
    assert (tmp_path / "7" / "saved_model.pb").read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"1", "7", "8", "notes"}


@pytest.mark.slow
def test_a_version_is_created_atomically(model, tmp_path, monkeypatch):
    seen = []

    def write_a_part(module, folder, signatures):
        (pathlib.Path(folder) / "saved_model.pb").write_bytes(b"a part")
        seen.extend(entry.name for entry in tmp_path.iterdir())
        raise tf.errors.ResourceExhaustedError(None, None, "x.pb; No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", write_a_part)
    with pytest.raises(OSError, match="No space left on device: .*/1'"):
        export_saved_model(model, tmp_path)
    assert seen
    assert all(name.startswith(".") for name in seen)  # a server does not recognize it as a version
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bert", {"version": 0}, "`version` must be an integer of at least 1"),
        ("bert", {"top_k": 10}, "`top_k` must be from 1 to the vocabulary size, 9"),
        ("bert", {"tokenizer": Tokenizer(Vocab([*GOOGLE_SPECIALS, "red"]))}, "the 9 tokens"),
        ("bert", {"pairs": True}, "`pairs` requires a .* Received: a BERTModel. Omit"),
        ("tagger", {"pairs": True}, "`pairs` requires a .* Received: a TokenClassifier. Omit"),
        ("classifier", {"null_threshold": 0.0}, "requires a QuestionAnswerer with a tokenizer"),
        ("answerer", {"null_threshold": math.inf}, "`null_threshold` must be a finite.*=inf"),
        ("answerer", {"top_k": 0}, "`top_k` must be an integer of at least 1.*=0"),
        ("without a tokenizer", {"pairs": True}, "SequenceClassifier without a tokenizer. Omit"),
        ("no model", {}, "must be a BERTModel or a TaskModel. Received: 3"),
    ],
)
def test_what_cannot_be_exported_is_rejected(name, options, message, model, task_models, tmp_path):
    classifier = SequenceClassifier(model, ["a", "b"])
    models = {"bert": model, "without a tokenizer": classifier, "no model": 3, **task_models}
    tokenizer = task_models["tagger"].tokenizer if name == "bert" else None
    with pytest.raises(ValueError, match=message):
        export_saved_model(models[name], tmp_path, **{"tokenizer": tokenizer, **options})
    assert list(tmp_path.iterdir()) == []


def test_the_error_under_a_different_backend_explains_how_to_export(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="`save_pretrained`.*KERAS_BACKEND=tensorflow"):
        export_saved_model(model, tmp_path)
