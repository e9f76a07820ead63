import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.inference.fill_mask import fill_mask
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.export import export_saved_model
from keras_bert_d2l.text.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab

WORDS = ("red", "green", "blue", "##ish")
MAX_LEN = 8
TOP_K = 3
TEXTS = ["red [MASK]", "", "[MASK] blue [MASK]ish green", "Reddish, green"]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(Vocab([*GOOGLE_SPECIALS, *WORDS]))


@pytest.fixture(scope="module")
def model():
    model = make_model()
    model.compile(optimizer="adam")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def exported(model, tokenizer, tmp_path_factory):
    """The folder of an exported version."""
    path = tmp_path_factory.mktemp("saved_models") / "demo"
    return export_saved_model(model, path, tokenizer, top_k=TOP_K)


@pytest.fixture(scope="module")
def served(exported):
    """A function: signature and arguments in, arrays out."""
    loaded = tf.saved_model.load(str(exported))

    def ask(signature, **arguments):
        tensors = {name: tf.constant(argument) for name, argument in arguments.items()}
        return {k: v.numpy() for k, v in loaded.signatures[signature](**tensors).items()}

    return ask


def make_model(**kwargs):
    keras.utils.set_random_seed(1)
    config = BERTConfig(len(GOOGLE_SPECIALS) + len(WORDS), 8, 16, 2, 2, 0.5, MAX_LEN)
    model = BERTModel.from_bert_config(config, **kwargs)
    kernel = model.mlm.mlp.layers[-1].kernel  # of scores far apart
    kernel.assign(keras.random.normal(kernel.shape))
    return model


def token_batch(tokenizer, texts):
    batch = {name: tensor.numpy() for name, tensor in tokenizer(texts).items()}
    return batch | {"pred_positions": np.tile(np.int32([1, 0]), (len(texts), 1))}


def operations(folder):
    content = (folder / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes}


@pytest.mark.slow
def test_a_process_without_the_package_answers_as_the_model_does(
    exported, model, tokenizer, tmp_path, fresh_process
):
    code = """
        import json
        import sys

        import numpy as np
        import tensorflow as tf
        import tensorflow_text

        assert "keras_bert_d2l" not in sys.modules
        folder, texts, batch, answers = sys.argv[1:]
        model = tf.saved_model.load(folder)
        text = tf.constant(json.loads(texts))
        arguments = {"serving_default": {"text": text}, "fill_mask": {"text": text}}
        arguments["tokens"] = {k: tf.constant(v, tf.int32) for k, v in json.loads(batch).items()}
        assert set(model.signatures) == set(arguments)
        arrays = {
            f"{name}/{output}": tensor.numpy()
            for name, signature in model.signatures.items()
            for output, tensor in signature(**arguments[name]).items()
        }
        arrays["fill_mask/tokens"] = arrays["fill_mask/tokens"].astype("U")
        np.savez(answers, **arrays)
    """
    batch = token_batch(tokenizer, TEXTS)
    batch_json = json.dumps({name: array.tolist() for name, array in batch.items()})
    fresh_process(code, exported, json.dumps(TEXTS), batch_json, tmp_path / "answers.npz")
    answers = np.load(tmp_path / "answers.npz")

    encoded, mlm_logits, nsp_logits = (tensor.numpy() for tensor in model(**batch))
    pooled = model.hidden(encoded[:, 0]).numpy()
    lengths = batch["valid_lens"]
    means = [row[:length].mean(axis=0) for row, length in zip(encoded, lengths, strict=True)]
    nsp = np.exp(nsp_logits) / np.exp(nsp_logits).sum(axis=1, keepdims=True)
    expected = {
        "tokens/encoded": encoded,
        "tokens/pooled": pooled,
        "tokens/mlm_logits": mlm_logits,
        "tokens/nsp_logits": nsp_logits,
        "serving_default/embedding": means,
        "serving_default/pooled": pooled,
        "serving_default/nsp": nsp,
    }
    assert {name for name in answers if not name.startswith("fill_mask")} == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(answers[name], array, atol=1e-5, err_msg=name)
    assert_fills_masks(
        {name.partition("/")[2]: answers[name] for name in answers}, model, tokenizer, TEXTS
    )


def assert_fills_masks(answer, model, tokenizer, texts):
    """Compares an answer of the signature with the function of the same name."""
    for row, text in enumerate(texts):
        expected = fill_mask(model, tokenizer, text, TOP_K) if "[MASK]" in text else []
        num_masks = len(expected)
        for place, predictions in enumerate(expected):
            assert list(answer["tokens"][row, place]) == [p.token for p in predictions]
            assert list(answer["ids"][row, place]) == [p.id for p in predictions]
            scores = [p.score for p in predictions]
            np.testing.assert_allclose(answer["scores"][row, place], scores, atol=1e-5)
        assert not answer["positions"][row, num_masks:].any()
        assert not answer["scores"][row, num_masks:].any()
        assert not answer["ids"][row, num_masks:].any()
        assert not answer["tokens"][row, num_masks:].astype(bool).any()
        np.testing.assert_array_equal(
            answer["positions"][row, :num_masks],
            np.flatnonzero(tokenizer(text)["tokens"][0] == tokenizer.vocab.mask_id),
        )


def test_masks_are_filled_as_by_the_function(served, model, tokenizer):
    answer = served("fill_mask", text=TEXTS)
    assert answer["tokens"].shape == (4, 2, TOP_K)  # two masks at most
    answer["tokens"] = answer["tokens"].astype("U")
    assert_fills_masks(answer, model, tokenizer, TEXTS)


def test_texts_without_a_mask_have_no_predictions(served):
    answer = served("fill_mask", text=["red", ""])
    assert {name: array.shape for name, array in answer.items()} == {
        "tokens": (2, 0, TOP_K),
        "scores": (2, 0, TOP_K),
        "ids": (2, 0, TOP_K),
        "positions": (2, 0),
    }


@pytest.mark.parametrize("signature", ["serving_default", "fill_mask"])
def test_an_answer_does_not_depend_on_the_batch(signature, served):
    together = served(signature, text=TEXTS)
    for row, text in enumerate(TEXTS):
        for name, array in served(signature, text=[text]).items():
            expected = together[name][row, : array.shape[1]]  # fewer masks alone
            if name == "tokens":
                np.testing.assert_array_equal(array[0], expected)
            else:
                np.testing.assert_allclose(array[0], expected, atol=1e-6)


def test_a_batch_may_be_empty(served):
    answer = served("serving_default", text=np.array([], dtype=object))
    assert {name: array.shape for name, array in answer.items()} == {
        "embedding": (0, 8),
        "pooled": (0, 8),
        "nsp": (0, 2),
    }


def test_a_text_that_is_too_long_loses_its_end(served):
    whole = served("serving_default", text=["red green " + "blue " * 50])
    cut = served("serving_default", text=["red green " + "blue " * (MAX_LEN - 4)])
    np.testing.assert_array_equal(whole["embedding"], cut["embedding"])


def test_a_mask_beyond_the_longest_text_has_no_predictions(served):
    assert served("fill_mask", text=["red " * MAX_LEN + "[MASK]"])["tokens"].shape[1] == 0


def test_tokens_may_be_asked_without_predictions(served):
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
def test_half_precision_answers_in_float32(tokenizer, tmp_path):
    model = make_model(dtype="mixed_bfloat16")
    folder = export_saved_model(model, tmp_path, tokenizer)
    loaded = tf.saved_model.load(str(folder))
    outputs = {
        name: tensor.dtype
        for signature in loaded.signatures.values()
        for name, tensor in signature.structured_outputs.items()
    }
    assert outputs.pop("tokens") == tf.string
    assert outputs.pop("ids") == outputs.pop("positions") == tf.int32
    assert set(outputs.values()) == {tf.float32}
    scores = loaded.signatures["fill_mask"](tf.constant(["[MASK]"]))["scores"].numpy()
    expected = [prediction.score for prediction in fill_mask(model, tokenizer, "[MASK]")[0]]
    np.testing.assert_allclose(scores[0, 0], expected, rtol=0.02)


@pytest.mark.slow
def test_the_vocabulary_may_be_the_book_s(tmp_path):
    model, tokenizer = make_model(), Tokenizer(Vocab([*BOOK_SPECIALS, *WORDS]))
    folder = export_saved_model(model, tmp_path, tokenizer)
    loaded = tf.saved_model.load(str(folder))
    tokens = loaded.signatures["fill_mask"](tf.constant(["red <mask>"]))["tokens"]
    expected = [prediction.token for prediction in fill_mask(model, tokenizer, "red <mask>")[0]]
    assert [token.decode() for token in tokens[0, 0].numpy()] == expected


def test_without_a_tokenizer_the_model_answers_token_ids_alone(model, tmp_path):
    folder = export_saved_model(model, tmp_path)
    loaded = tf.saved_model.load(str(folder))
    assert set(loaded.signatures) == {"serving_default", "tokens"}
    batch = {"tokens": [[2, 5, 3]], "segments": [[0, 0, 0]], "valid_lens": [3]}
    batch = {name: tf.constant(ids) for name, ids in batch.items()}
    answer = loaded.signatures["serving_default"](**batch, pred_positions=tf.constant([[1]]))
    encoded, mlm_logits, _ = model(**batch, pred_positions=tf.constant([[1]]))
    np.testing.assert_allclose(answer["encoded"], encoded, atol=1e-5)
    np.testing.assert_allclose(answer["mlm_logits"], mlm_logits, atol=1e-5)
    assert {op for op in operations(folder) if not hasattr(tf.raw_ops, op)} == set()


def test_the_graph_has_only_ops_that_tensorflow_serving_knows(exported):
    beside_tensorflow = {op for op in operations(exported) if not hasattr(tf.raw_ops, op)}
    # Both are in tensorflow-text 2.12.1, which TensorFlow Serving's own binary is built with.
    assert beside_tensorflow == {"FastWordpieceTokenizeWithOffsets", "NormalizeUTF8"}


def test_the_state_of_the_optimiser_is_left_behind(exported, model):
    variables = tf.train.list_variables(str(exported / "variables" / "variables"))
    sizes = [np.prod(shape) for name, shape in variables if "CHECKPOINTABLE" not in name]
    assert sum(sizes) == model.count_params()


@pytest.mark.slow
def test_versions_are_numbered_onwards_and_never_replaced(model, tmp_path):
    (tmp_path / "notes").mkdir()
    assert export_saved_model(model, tmp_path) == tmp_path / "1"
    assert export_saved_model(model, tmp_path, version=7) == tmp_path / "7"
    assert export_saved_model(model, str(tmp_path)) == tmp_path / "8"
    before = (tmp_path / "7" / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="7' exists, and an export never replaces a version"):
        export_saved_model(model, tmp_path, version=7)
    assert (tmp_path / "7" / "saved_model.pb").read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"1", "7", "8", "notes"}


def test_a_version_appears_in_one_step_and_only_whole(model, tmp_path, monkeypatch):
    seen = []

    def write_a_part(tracked, folder, **_):
        (pathlib.Path(folder) / "saved_model.pb").write_bytes(b"a part")
        seen.extend(entry.name for entry in tmp_path.iterdir())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", write_a_part)
    with pytest.raises(OSError, match="No space left"):
        export_saved_model(model, tmp_path)
    assert seen
    assert all(name.startswith(".") for name in seen)  # no server takes it for a version
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", [0, -1, True, "2"])
def test_a_version_that_is_no_number_of_one_is_refused(version, model, tmp_path):
    with pytest.raises(ValueError, match="`version` must be an integer of at least 1"):
        export_saved_model(model, tmp_path, version=version)
    assert list(tmp_path.iterdir()) == []


def test_a_vocabulary_of_another_size_is_refused(model, tmp_path):
    tokenizer = Tokenizer(Vocab([*GOOGLE_SPECIALS, "red"]))
    with pytest.raises(ValueError, match="9 tokens that the model was made for.*6 tokens"):
        export_saved_model(model, tmp_path, tokenizer)


def test_a_number_of_predictions_that_the_vocabulary_cannot_give_is_refused(
    model, tokenizer, tmp_path
):
    with pytest.raises(ValueError, match="`top_k` must be from 1 to the size of the vocabulary, 9"):
        export_saved_model(model, tmp_path, tokenizer, top_k=10)


def test_another_backend_is_told_the_way(model, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="`save_pretrained`.*KERAS_BACKEND=tensorflow"):
        export_saved_model(model, tmp_path)
