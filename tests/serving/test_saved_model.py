import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.inference.heads import fill_mask
from keras_bert_d2l.serving.model_card import describe_signatures
from keras_bert_d2l.serving.saved_model import export_saved_model
from keras_bert_d2l.serving.signatures.signature import ServedModel, TextOptions
from keras_bert_d2l.serving.signatures.signatures import PretrainingSignatures
from keras_bert_d2l.tasks.embed.predictions import embed
from keras_bert_d2l.text.normalization import tensorflow_text
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab
from keras_bert_d2l.training.pretraining.options import PretrainingOptions

MAX_LEN, TOP_K = 24, 3  # as in the exported model
TEXTS = ["red [MASK]", "", "[MASK] blue [MASK]ish green", "Reddish, green"]
STRING_SIGNATURES = ("serving_default", "embed", "fill_mask")


@pytest.mark.slow
def test_fill_mask_matches_kb_fill_mask(served, model, tokenizer):
    answer = served("fill_mask", text=TEXTS)
    assert answer["tokens"].shape == (4, 2, TOP_K)  # texts have at most two masks
    for row, text in ((0, TEXTS[0]), (2, TEXTS[2])):
        for place, predictions in enumerate(
            fill_mask(model, text, top_k=TOP_K, tokenizer=tokenizer)
        ):
            tokens = [token.decode() for token in answer["tokens"][row, place]]
            assert tokens == [prediction.token for prediction in predictions]
            assert list(answer["ids"][row, place]) == [prediction.id for prediction in predictions]
            scores = [prediction.score for prediction in predictions]
            np.testing.assert_allclose(answer["scores"][row, place], scores, atol=1e-5)


@pytest.mark.slow
def test_embed_matches_kb_embed(served, model, tokenizer):
    for text, vector in zip(TEXTS, embed(model, TEXTS, tokenizer=tokenizer), strict=True):
        for signature in ("embed", "serving_default"):
            given = served(signature, text=[text])["embedding"]
            np.testing.assert_allclose(given, [vector], atol=1e-6)


def test_texts_without_a_mask_have_no_predictions(served):
    answer = served("fill_mask", text=["red", ""])
    assert answer.pop("truncated").tolist() == [False, False]
    assert {name: array.shape for name, array in answer.items()} == {
        "tokens": (2, 0, TOP_K),
        "scores": (2, 0, TOP_K),
        "ids": (2, 0, TOP_K),
        "positions": (2, 0),
    }


@pytest.mark.parametrize("signature", STRING_SIGNATURES)
def test_outputs_do_not_depend_on_the_batch(signature, served):
    together = served(signature, text=TEXTS)
    for row, text in enumerate(TEXTS):
        for name, array in served(signature, text=[text]).items():
            expected = together[name][row]
            if signature == "fill_mask" and name != "truncated":
                expected = expected[: array.shape[1]]  # fewer masks than in the complete batch
            if array.dtype == object:
                np.testing.assert_array_equal(array[0], expected)
            else:
                np.testing.assert_allclose(array[0], expected, atol=1e-6)


def test_a_batch_may_be_empty(served):
    answer = served("serving_default", text=np.array([], dtype=object))
    assert answer.pop("truncated").shape == (0,)
    assert {name: array.shape for name, array in answer.items()} == {
        "embedding": (0, 8),
        "pooled": (0, 8),
        "nsp": (0, 2),
    }


def test_a_text_that_is_too_long_is_truncated_at_the_end(served):
    whole = served("serving_default", text=["red green " + "blue " * 50])
    cut = served("serving_default", text=["red green " + "blue " * (MAX_LEN - 4)])
    np.testing.assert_array_equal(whole["embedding"], cut["embedding"])
    assert whole["truncated"].tolist() == [True]
    assert cut["truncated"].tolist() == [False]


def test_a_mask_in_the_truncated_part_has_no_predictions(served):
    assert served("fill_mask", text=["red " * MAX_LEN + "[MASK]"])["tokens"].shape[1] == 0


def test_the_tokens_signature_works_without_predicted_positions(served):
    tokens = np.int32([[2, 5, 3]])
    answer = served(
        "tokens",
        tokens=tokens,
        segments=np.zeros_like(tokens),
        valid_lens=np.int32([3]),
        pred_positions=np.zeros((1, 0), "int32"),
    )
    assert answer["mlm_logits"].shape == (1, 0, 9)


@pytest.mark.slow
def test_half_precision_models_return_float32(make_model, tokenizer, tmp_path):
    model = make_model(dtype="mixed_bfloat16")
    folder = export_saved_model(model, tmp_path, tokenizer=tokenizer)
    loaded = tf.saved_model.load(str(folder))
    outputs = {
        name: tensor.dtype
        for signature in loaded.signatures.values()
        for name, tensor in signature.structured_outputs.items()
    }
    assert outputs.pop("tokens") == tf.string
    assert outputs.pop("ids") == outputs.pop("positions") == tf.int32
    assert outputs.pop("truncated") == tf.bool
    assert set(outputs.values()) == {tf.float32}
    scores = loaded.signatures["fill_mask"](tf.constant(["[MASK]"]))["scores"].numpy()
    expected = [
        prediction.score for prediction in fill_mask(model, "[MASK]", tokenizer=tokenizer)[0]
    ]
    # A logit of 4 has neighbours at a distance of 0.016 in bfloat16.
    np.testing.assert_allclose(scores[0, 0], expected, rtol=0.05)


@pytest.mark.slow
def test_the_books_special_tokens_are_supported(model):
    words = ("red", "green", "blue", "##ish")
    tokenizer = Tokenizer(Vocab([*BOOK_SPECIALS, *words]))
    options = TextOptions(pairs=False, top_k=TOP_K, null_threshold=None)
    signatures = PretrainingSignatures(ServedModel(model), tokenizer, options)
    answer = signatures.fill_mask(tf.constant(["red <mask>"]))
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


@pytest.mark.slow
def test_outputs_of_missing_heads_are_omitted(make_model, tokenizer, tmp_path):
    model = make_model(pooler=False, next_sentence=False)
    folder = export_saved_model(model, tmp_path, tokenizer=tokenizer)
    signatures = describe_signatures(folder)
    assert set(signatures) == {*STRING_SIGNATURES, "tf_example", "tokens"}
    assert set(signatures["serving_default"]["outputs"]) == {"embedding", "truncated"}
    assert set(signatures["tokens"]["outputs"]) == {"encoded", "embedding", "mlm_logits"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": [[2] * 25], "segments": [[0] * 25]}, "must have at most 24 columns"),
        ({"tokens": [[2, 9]]}, "`tokens` must be from 0 to 8"),
        ({"tokens": [[2, -1]]}, "`tokens` must be from 0 to 8"),
        ({"segments": [[0, 2]]}, "`segments` must be from 0 to 1"),
        ({"segments": [[0, -1]]}, "`segments` must be from 0 to 1"),
        ({"segments": [[0]]}, "`segments` must have the shape of `tokens`"),
        ({"valid_lens": [0]}, "`valid_lens` must be from 1 to the number of columns"),
        ({"valid_lens": [3]}, "`valid_lens` must be from 1 to the number of columns"),
        ({"valid_lens": [-(2**31)]}, "`valid_lens` must be from 1 to the number of columns"),
        ({"valid_lens": [2, 2]}, "`valid_lens` must have one number per row"),
        ({"pred_positions": [[2]]}, "`pred_positions` must be positions"),
        ({"pred_positions": [[-1]]}, "`pred_positions` must be positions"),
        ({"pred_positions": [[1], [1]]}, "`pred_positions` must have as many rows"),
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


def test_a_serialized_example_needs_a_text(served):
    empty = tf.train.Example().SerializeToString()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Feature: text .* is required"):
        served("tf_example", examples=[empty])


@pytest.mark.slow
def test_a_graph_the_server_cannot_load_is_not_written(model, tokenizer, tmp_path):
    class Trimming(Tokenizer):
        def tokenize(self, texts):
            trimmer = tensorflow_text().RoundRobinTrimmer(4)
            return trimmer.trim([super().tokenize(texts)])[0]

    of_newer_op = Trimming(tokenizer.vocab)
    message = r"TFText>RoundRobinTrim \(tensorflow-text [\d., ]+\) at __inference_\w*tokenize"
    with pytest.raises(RuntimeError, match=message):
        export_saved_model(model, tmp_path, tokenizer=of_newer_op)
    assert list(tmp_path.iterdir()) == []


def test_the_version_contains_the_vocabulary(exported, tokenizer):
    assert Vocab.from_file(exported / "assets" / "vocab.txt") == tokenizer.vocab


def test_the_model_card_describes_the_version(exported, model, tokenizer):
    card = json.loads((exported / "model_card.json").read_text(encoding="utf-8"))
    assert (card["name"], card["version"], card["training"]) == ("demo", 1, None)
    assert BERTConfig.from_dict(card["config"]) == model.bert_config
    assert card["vocabulary"] == {"size": 9, "sha256": tokenizer.vocab.fingerprint}
    assert card["embedding"] == {"pooling": "mean", "normalize": True, "long_texts": "cut"}
    assert card["packages"]["tensorflow"] == tf.__version__
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


@pytest.mark.slow
def test_the_model_card_describes_the_training(model, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    PretrainingOptions(corpus="docstrings", steps=3).to_yaml(run / "run.yaml")
    figures = [{"step": 1, "val_loss": 3.0}, {"step": 2, "val_loss": 2.0, "other": None}]
    figures.append({"step": 3, "val_loss": None})
    (run / "last").mkdir()
    state = {"step": 3, "best_step": 2, "settings": {}}
    (run / "last/training_state.json").write_text(json.dumps(state))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in figures))
    folder = export_saved_model(model, tmp_path / "out", run_dir=run)
    training = json.loads((folder / "model_card.json").read_text())["training"]
    assert (training["options"]["corpus"], training["options"]["steps"]) == ("docstrings", 3)
    assert training["best"] == figures[1]
    with pytest.raises(FileNotFoundError, match="does not contain a run"):
        export_saved_model(model, tmp_path / "out", run_dir=tmp_path)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["1"]


@pytest.mark.slow
def test_there_is_a_warm_up_request_for_each_signature(exported, served):
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
    assert sorted(asked) == sorted(describe_signatures(exported))


def test_the_optimizer_state_is_not_exported(exported, model):
    variables = tf.train.list_variables(str(exported / "variables" / "variables"))
    sizes = [np.prod(shape) for name, shape in variables if "CHECKPOINTABLE" not in name]
    assert sum(sizes) == model.count_params()


@pytest.mark.slow
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

    def write_a_part(tracked, folder, **_):
        (pathlib.Path(folder) / "saved_model.pb").write_bytes(b"a part")
        seen.extend(entry.name for entry in tmp_path.iterdir())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", write_a_part)
    with pytest.raises(OSError, match="No space left"):
        export_saved_model(model, tmp_path)
    assert seen
    assert all(name.startswith(".") for name in seen)  # a server does not recognize it as a version
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [0, -1, True, "2"])
def test_a_version_that_is_not_a_positive_integer_is_rejected(version, model, tmp_path):
    with pytest.raises(ValueError, match="`version` must be an integer of at least 1"):
        export_saved_model(model, tmp_path, version=version)
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_of_the_wrong_size_is_rejected(model, tmp_path):
    tokenizer = Tokenizer(Vocab([*GOOGLE_SPECIALS, "red"]))
    with pytest.raises(ValueError, match="9 tokens that the model was made for.*6 tokens"):
        export_saved_model(model, tmp_path, tokenizer=tokenizer)


def test_top_k_above_the_vocabulary_size_is_rejected(model, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="`top_k` must be from 1 to the vocabulary size, 9"):
        export_saved_model(model, tmp_path, tokenizer=tokenizer, top_k=10)


def test_the_error_under_a_different_backend_explains_how_to_export(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="`save_pretrained`.*KERAS_BACKEND=tensorflow"):
        export_saved_model(model, tmp_path)


def test_a_full_disk_is_an_os_error_and_leaves_nothing_behind(model, tmp_path, monkeypatch):
    def write(module, folder, signatures):
        (pathlib.Path(folder) / "saved_model.pb").touch()
        raise tf.errors.ResourceExhaustedError(None, None, "x.pb; No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", write)
    with pytest.raises(OSError, match="/1' cannot be written: x.pb; No space left on device"):
        export_saved_model(model, tmp_path)
    assert list(tmp_path.iterdir()) == []
