import json
import sys

import keras
import numpy as np
import onnx
import onnxruntime
import pytest

from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.inference.heads import top_predictions
from keras_bert_d2l.layers.pooling import ACTIVATIONS, POOLINGS
from keras_bert_d2l.models.bert import BERTModel
from keras_bert_d2l.serving.onnx_model import OPSET, export_onnx
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.model import TokenClassifier
from tests.nightly import nightly_except

pytestmark = pytest.mark.slow

MAX_LEN, VOCAB_SIZE = 24, 9
SHAPES = [(1, MAX_LEN, 3), (3, 7, 1), (8, 2, 0)]  # B, T, P
TOLERANCE = 1e-5
ANSWERS = {"index", "scores", "score", "id", "is_label", "nsp", "mlm_scores", "mlm_ids"}

GOOGLE = {"activation": "gelu", "embedding_norm": True, "tie_embeddings": True}
CONFIGS = {
    "book": {},
    "google": GOOGLE,
    "google-tanh": {**GOOGLE, "activation": "gelu_tanh", "layer_norm_epsilon": 1e-12},
    "pre-norm": {"norm_first": True, "final_norm": True, "positions": "sinusoidal"},
    "notebook": {
        "layer_norm": "unbiased",
        "layer_norm_epsilon": 1e-6,
        "mask_from": "tokens",
        "num_segments": 3,
        "first_segment_id": 1,
    },
    "no-pooler": {"pooler": False, "activation": "tanh"},
    "no-nsp": {"next_sentence": False, "tie_embeddings": True, "mlm_head": "linear"},
    "linear": {"activation": "linear", "mlm_head": "linear", "num_tokens": VOCAB_SIZE - 2},
    "rows without a token": {**GOOGLE, "num_tokens": VOCAB_SIZE - 2},
}

SIZES = {
    "vocab_size": VOCAB_SIZE,
    "num_hiddens": 8,
    "ffn_num_hiddens": 16,
    "num_heads": 2,
    "num_blks": 3,
    "max_len": MAX_LEN,
}
RELATIVES = {
    "distilbert": {},
    "electra-small": {"embedding_width": 6},
    "electra-base": {},
    "roberta-base": {},
    "xlm-roberta-base": {},
    "albert-base": {"embedding_width": 6},
    "mpnet-base": {"relative_buckets": 8},
    "modernbert-base": {"pad_id": 3, "local_attention": 4, "global_attention_every": 2},
    "ettin-17m": {"pad_id": 3, "global_attention_every": 3, "relative_buckets": 4},
    "deberta-base": {"relative_embeddings": 6},
    "deberta-v3-small": {
        "relative_embeddings": 4,
        "relative_max_distance": 9,
        "conv_kernel_size": 3,
    },
}


@pytest.fixture
def make_model():
    """A function that builds a model with nonzero weights from config fields."""

    def make_model(dtype="float32", num_blks=2, **fields):
        config = BERTConfig(VOCAB_SIZE, 8, 16, 2, num_blks, 0.5, MAX_LEN, **fields)
        return random_model(config, dtype)

    return make_model


def random_model(config, dtype="float32"):
    model = BERTModel.from_bert_config(config, dtype=dtype)
    for seed, weight in enumerate(model.weights):
        weight.assign(keras.random.normal(weight.shape, 0.2, 0.5, seed=seed))
    return model


def make_relative(name):
    return random_model(BERTConfig.preset(name, **SIZES, **RELATIVES[name]))


@pytest.fixture
def ask(tmp_path):
    """A function that exports a model and returns a function that runs its ONNX file."""

    def ask(model):
        session = onnxruntime.InferenceSession(str(export_onnx(model, tmp_path / model.name)))
        names = [output.name for output in session.get_outputs()]
        return lambda batch: dict(zip(names, session.run(None, inputs_of(batch)), strict=True))

    return ask


def inputs_of(batch):
    """Return a batch of our models with the names and dtypes of an ONNX file."""
    batch = {name: array.astype("int64") for name, array in batch.items()}
    tokens = batch.pop("tokens")
    if "valid_lens" in batch:
        batch["attention_mask"] = np.int64(
            np.arange(tokens.shape[1]) < batch.pop("valid_lens")[:, None]
        )
    if "segments" in batch:
        batch["token_type_ids"] = batch.pop("segments")
    return {"input_ids": tokens, **batch}


def make_batch(size, length, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "tokens": rng.integers(0, VOCAB_SIZE, (size, length), "int32"),
        "segments": rng.integers(0, 2, (size, length), "int32"),
        "valid_lens": rng.integers(1, length + 1, size, "int32"),
    }


def assert_equal(given, expected):
    expected = {name: np.asarray(value) for name, value in expected.items() if value is not None}
    assert given.keys() - ANSWERS == expected.keys() - ANSWERS
    for name, array in expected.items():
        assert given[name].dtype == np.float32 or name in ANSWERS
        np.testing.assert_allclose(given[name], array, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", nightly_except({"google", "notebook", "pre-norm"}, CONFIGS))
def test_every_architecture_matches_keras(name, make_model, ask):
    model = make_model(**CONFIGS[name])
    onnx_model = ask(model)
    for size, length, num_predictions in SHAPES:
        batch = make_batch(size, length)
        positions = np.zeros((size, num_predictions), "int32") + length // 2
        encoded, mlm_logits, nsp_logits = model(**batch, pred_positions=positions)
        expected = {
            "last_hidden_state": encoded,
            "sentence_embedding": TextEmbedder(model)(batch),
            "pooler_output": None if model.hidden is None else model.hidden(encoded[:, 0]),
            "mlm_logits": mlm_logits,
            "nsp_logits": nsp_logits,
            "nsp": None if nsp_logits is None else keras.ops.softmax(nsp_logits),
        }
        if mlm_logits is not None and positions.size:
            scores, ids = top_predictions(mlm_logits, 5)
            expected |= {"mlm_scores": scores, "mlm_ids": ids}
        assert_equal(onnx_model({**batch, "pred_positions": positions}), expected)


def test_predicted_positions_may_be_omitted(make_model, ask):
    onnx_model, batch = ask(make_model(**GOOGLE)), make_batch(3, 7)
    answer = onnx_model(batch)
    assert answer["mlm_logits"].shape == (3, 0, VOCAB_SIZE)
    assert_equal(answer, onnx_model({**batch, "pred_positions": np.zeros((3, 0))}))


TASKS = {
    "classify": lambda bert: SequenceClassifier(bert, ["a", "b", "c"], temperature=1.7),
    "multi-label": lambda bert: SequenceClassifier(
        bert, ["a", "b"], multi_label=True, temperature=1.7, thresholds=[0.49, 0.51]
    ),
    "regress": lambda bert: SequenceRegressor(bert, pooling="mean"),
    "tag": lambda bert: TokenClassifier(bert, ["a", "b", "c"], temperature=0.6),
    "answer": QuestionAnswerer,
    "choose": lambda bert: MultipleChoice(bert, temperature=1.7),
}


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")  # of a single choice
@pytest.mark.parametrize("task", TASKS)
def test_task_models_match_keras(task, make_model, ask):
    model = TASKS[task](make_model(**GOOGLE))
    onnx_model = ask(model)
    for size, length, _ in SHAPES:
        batch = make_batch(size, length)
        found = model(batch)
        if task == "answer":
            assert_equal(onnx_model(batch), {f"{k}_logits": logits for k, logits in found.items()})
        else:
            logits = found
            if task == "choose":  # the rows of a batch are the choices of one text
                found, logits = np.asarray(found)[:, np.newaxis], np.asarray(found)[np.newaxis]
            assert_equal(onnx_model(batch), {"logits": found, **model.answer(logits)})


@pytest.mark.parametrize(
    ("pooling", "normalize", "fields"),
    [
        ("cls", True, {"mask_from": "tokens"}),
        ("mean", True, {"mask_from": "tokens"}),
        ("max", False, {}),
        ("mean", True, {"num_blks": 0, "positions": "none"}),
    ],
)
def test_text_embedders_match_keras(pooling, normalize, fields, make_model, ask):
    model = TextEmbedder(make_model(**fields), pooling, normalize=normalize)
    onnx_model = ask(model)
    for size, length, _ in SHAPES:
        batch = make_batch(size, length)
        # For "cls", there is padding on the left. A text with only padding has no maximum.
        batch["tokens"][:, 0] = pooling != "cls"
        encoded = model.encoder(**batch)
        expected = {"last_hidden_state": encoded, "sentence_embedding": model(batch)}
        assert_equal(onnx_model(batch), expected)


STEPS = [
    "normalize",
    *({"units": 5, "activation": kind, "use_bias": kind != "silu"} for kind in ACTIVATIONS),
]


@pytest.mark.parametrize("skipped", [(0, 0, 0), (2, 1, 3)], ids=("no prompt", "prompts"))
@pytest.mark.parametrize("include_special", [True, False])
def test_all_poolings_and_steps_match_keras(include_special, skipped, make_model, ask):
    model = TextEmbedder(
        make_model(),
        POOLINGS,
        steps=STEPS,
        include_special=include_special,
        prompts={"query": "a"},
        include_prompt=False,
        truncate_dim=4,
    )
    for seed, weight in enumerate(model.head.weights):
        weight.assign(keras.random.normal(weight.shape, 0.2, 0.5, seed=seed))
    batch = make_batch(3, 7) | {"valid_lens": np.array([7, 6, 6], "int32")}
    encoded = model.encoder(**batch)
    batch["prompt_lens"] = np.array(skipped, "int32")
    expected = {"last_hidden_state": encoded, "sentence_embedding": model(batch)[:, :4]}
    answer = ask(model)
    assert_equal(answer(batch), expected)
    if not any(skipped):
        del batch["prompt_lens"]  # it may be omitted
        assert_equal(answer(batch), expected)


def padded_on_both_sides(config):
    """Return a batch whose first row has no padding, with segments if they have an effect."""
    batch = make_batch(3, MAX_LEN)
    places, ends = np.arange(MAX_LEN), batch.pop("valid_lens")[:, None]
    ends[0] = MAX_LEN
    mask = (places >= ends // 3 * (ends < MAX_LEN)) & (places < ends)
    tokens = np.where(batch["tokens"] == config.pad_id, 4, batch["tokens"])
    batch["tokens"] = np.where(mask, tokens, config.pad_id).astype("int32")
    if config.num_segments < 2:
        del batch["segments"]
    return {**batch, "attention_mask": mask.astype("int32")}


@pytest.mark.parametrize("name", nightly_except({"modernbert-base"}, RELATIVES))
def test_relatives_of_bert_match_keras_with_padding_on_both_sides(name, ask):
    model = make_relative(name)
    batch = padded_on_both_sides(model.bert_config)
    is_token = batch["attention_mask"].astype(bool)
    positions = np.argmax(is_token, axis=1)[:, None].astype("int32")
    encoded, mlm_logits, nsp_logits = model(**batch, pred_positions=positions)
    answer = ask(model)({**batch, "pred_positions": positions})
    # Without keys in its window, the vector of padding is arbitrary.
    has_cls, encoded = is_token[:, 0], np.asarray(encoded)
    shown = {"last_hidden_state": is_token, "pooler_output": has_cls, "nsp_logits": has_cls}
    expected = {
        "last_hidden_state": encoded[is_token],
        "sentence_embedding": TextEmbedder(model)(batch),
        "pooler_output": model.hidden(encoded[:, 0])[has_cls],
        "mlm_logits": mlm_logits,
        "nsp_logits": None if nsp_logits is None else nsp_logits[has_cls],
    }
    assert_equal({key: x[shown.get(key, ...)] for key, x in answer.items()}, expected)


@pytest.mark.parametrize("name", ["pre-norm", "mpnet-base", "modernbert-base"])
def test_the_last_block_computes_only_the_first_token_for_a_head_that_reads_it(
    name, make_model, ask
):
    bert = make_relative(name) if name in RELATIVES else make_model(**CONFIGS[name])
    model, batch = SequenceRegressor(bert, pooling="cls"), make_batch(3, MAX_LEN)
    if bert.bert_config.num_segments < 2:
        del batch["segments"]
    logits = model(batch)
    assert model.reads_first
    assert not SequenceRegressor(bert, pooling="mean").reads_first
    assert_equal(ask(model)(batch), {"logits": logits, **model.answer(logits)})


@pytest.mark.long
@pytest.mark.parametrize(("name", "num_blks"), [("albert-base", 1), ("modernbert-base", 3)])
def test_int8_quantizes_the_kernels_of_relatives_once(name, num_blks, tmp_path):
    model = make_relative(name)
    path = export_onnx(model, tmp_path / "int8", int8=True)
    file = onnx.load(path)
    kernels = [x for x in file.graph.initializer if x.data_type == onnx.TensorProto.INT8]
    assert sum(len(kernel.dims) == 2 for kernel in kernels) == num_blks * 6
    assert [node.op_type for node in file.graph.node].count("MatMulInteger") == 3 * 6
    batch = padded_on_both_sides(model.bert_config)
    session = onnxruntime.InferenceSession(str(path))
    (vectors,) = session.run(["sentence_embedding"], inputs_of(batch))
    cosines = np.sum(vectors * TextEmbedder(model)(batch), axis=1)
    assert 0.6 < cosines.min() < 0.999999  # rounding is coarse with a width of 8


def test_a_batch_may_be_empty(make_model, ask):
    batch = make_batch(0, 5)
    answer = ask(make_model(**GOOGLE))({**batch, "pred_positions": np.zeros((0, 2), "int32")})
    assert answer["last_hidden_state"].shape == (0, 5, 8)
    assert answer["mlm_ids"].shape == (0, 2, 5)


def test_half_precision_models_are_written_in_float32(make_model, ask):
    half = make_model(dtype="mixed_bfloat16", **GOOGLE)
    whole = make_model(**GOOGLE)
    batch = make_batch(3, 7)
    assert_equal(ask(half)(batch), ask(whole)(batch))


def test_lora_is_merged_into_the_kernels(make_model, ask):
    model = SequenceClassifier(make_model(**GOOGLE), ["a", "b"])
    model.enable_lora(2)
    addition = model.encoder.blks[0].attention.W_q.lora_kernel_b
    addition.assign(keras.random.normal(addition.shape))
    batch = make_batch(3, 7)
    assert_equal(ask(model)(batch), {"logits": model(batch)})


@pytest.mark.usefixtures("few_objects_to_collect")
def test_what_a_graph_cannot_do_is_rejected(make_model, tokenizer, tmp_path):
    windows = SequenceClassifier(make_model(**GOOGLE), ["a", "b"], long_texts="mean")
    quantized = make_model()
    quantized.encoder.blks[1].ffn.dense1.quantize("int8")
    larger = BERTModel(VOCAB_SIZE + 1, 8, 16, 2, 1, 0.0)
    for model, options, message in (
        (windows, {}, "Received: a model with long_texts='mean'"),
        (quantized, {}, "'encoder/blk_1/ffn/dense1/kernel' in int8"),
        (larger, {"pairs": True}, "`pairs` requires.*a BERTModel. Omit `pairs`"),
        (larger, {"null_threshold": 0.5}, "null_threshold=0.5"),
        (larger, {"tokenizer": tokenizer}, "must have the 10 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            export_onnx(model, tmp_path / "new", **options)
    assert list(tmp_path.iterdir()) == []


def test_int8_quantizes_the_blocks_and_stays_close_to_float32(make_model, ask, tmp_path, caplog):
    model = SequenceClassifier(make_model(**GOOGLE), ["a", "b", "c"])
    path = export_onnx(model, tmp_path / "int8", int8=True)
    file = onnx.load(path)
    kernels = [x for x in file.graph.initializer if x.data_type == onnx.TensorProto.INT8]
    assert sum(kernel.dims[:] in ([8, 8], [8, 16], [16, 8]) for kernel in kernels) == 2 * 6
    operators = [node.op_type for node in file.graph.node]
    assert operators.count("MatMulInteger") == 2 * 6
    assert operators.count("MatMul") == 2 * 2 + 2  # scores and values per block, pooler and head
    batch = make_batch(8, MAX_LEN)
    (logits,) = onnxruntime.InferenceSession(str(path)).run(["logits"], inputs_of(batch))
    expected = np.asarray(model(batch))
    assert 0 < np.abs(logits - expected).max() < 0.05 * np.abs(expected).max()
    assert json.loads((path.parent / "model_card.json").read_text())["int8"] is True
    assert caplog.records == []


def test_onnxruntime_does_not_merge_sums_with_normalizations(make_model, tmp_path):
    # Its kernel for both takes several times as long as one kernel for each.
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3  # it warns that the optimized file is for this machine only
    path = export_onnx(make_model(**GOOGLE), tmp_path / "int8", int8=True)
    onnxruntime.InferenceSession(str(path), options)
    operators = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert "SkipLayerNormalization" not in operators
    assert operators.count("LayerNormalization") == 1 + 2 * 2 + 1  # embeddings, blocks, MLM head


def test_the_file_has_one_opset_and_named_inputs_and_outputs(make_model, tmp_path):
    file = onnx.load(export_onnx(make_model(**GOOGLE), tmp_path / "new"))
    assert [(opset.domain, opset.version) for opset in file.opset_import] == [("", OPSET)]
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*file.graph.input, *file.graph.output)
    }
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    assert [shapes[name] for name in inputs] == [["batch", "length"]] * 3
    assert shapes["pred_positions"] == ["batch", "predictions"]
    assert shapes["last_hidden_state"] == ["batch", "length", 8]
    assert shapes["mlm_ids"] == ["batch", "predictions", 5]
    weights = [value.name for value in file.graph.initializer if "/" in value.name]
    assert "encoder/blk_1/attention/W_q/kernel" in weights
    assert len(weights) == len(make_model(**GOOGLE).weights)  # tied weights are stored once


def read(file):
    return json.loads(file.read_text(encoding="utf-8"))


def test_the_folder_contains_the_vocabulary_and_the_labels(make_model, tokenizer, tmp_path):
    model = SequenceClassifier(make_model(), ["bad", "good"], tokenizer=tokenizer)
    folder = export_onnx(model, tmp_path / "new").parent
    assert sorted(file.name for file in folder.iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "model.onnx",
        "model_card.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]
    card = read(folder / "model_card.json")
    assert card["task"]["labels"] == ["bad", "good"]
    assert card["embedding"] is None
    assert card["config"] == model.bert_config.to_dict()
    assert card["tokenizer"] == tokenizer.options
    assert card["inputs"]["input_ids"] == {"dtype": "int64", "shape": ["batch", "length"]}
    assert card["outputs"] == {
        "logits": {"dtype": "float32", "shape": ["batch", 2]},
        "scores": {"dtype": "float32", "shape": ["batch", 2]},
        "score": {"dtype": "float32", "shape": ["batch"]},
        "id": {"dtype": "int64", "shape": ["batch"]},
    }
    assert read(folder / "config.json")["architectures"] == ["BertForSequenceClassification"]


def test_the_pooling_of_a_sentence_embedding_is_written(make_model, tmp_path):
    model = TextEmbedder(make_model(), "cls", normalize=False)
    folder = export_onnx(model, tmp_path / "new").parent
    assert read(folder / "1_Pooling" / "config.json")["pooling_mode_cls_token"] is True
    assert [module["path"] for module in read(folder / "modules.json")] == ["", "1_Pooling"]


def test_existing_files_are_not_replaced(make_model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="Choose a different path"):
        export_onnx(make_model(), tmp_path)
    (tmp_path / "empty").mkdir()
    export_onnx(make_model(), tmp_path / "empty")
    with pytest.raises(FileExistsError, match="Choose a different path"):
        export_onnx(make_model(), tmp_path / "empty")


@pytest.mark.parametrize(("package", "int8"), [("onnx", False), ("onnxruntime", True)])
def test_the_error_without_a_package_explains_how_to_install_it(
    package, int8, make_model, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install \"keras-bert-d2l\[onnx\]\""):
        export_onnx(make_model(), tmp_path / "new", int8=int8)
    assert not (tmp_path / "new").exists()
