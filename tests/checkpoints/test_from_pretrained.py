"""Task models are saved and loaded with their heads and the names of their labels."""

import dataclasses
import functools
import json
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    MultipleChoice,
    QuestionAnswerer,
    SequenceClassifier,
    SequenceRegressor,
    TextEmbedder,
    TokenClassifier,
    Tokenizer,
    convert_checkpoint,
    load_pretrained,
    next_sentence_score,
    save_pretrained,
)
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.weights import load_weights, named_weights
from tests.checkpoints.small import BATCH, SMALL, VOCAB, drop_weights, edit_config, randomize
from tests.nightly import nightly_except

CONFIG = BERTConfig.preset("huggingface", **SMALL)
EMBEDDER = {"kind": "TextEmbedder", "pooling": "max", "normalize": True, "long_texts": "cut"}
MAKERS = {
    "one label": lambda bert: SequenceClassifier(bert, ["bad", "good"], dropout=0.3),
    "several labels": lambda bert: SequenceClassifier(bert, ["x", "y", "z"], multi_label=True),
    "scores": lambda bert: SequenceRegressor(bert, ["stars"]),
    "scores to 1": lambda bert: SequenceRegressor(bert, ["stars"], activation="sigmoid"),
    "tags": lambda bert: TokenClassifier(bert, ["B-PER", "I-PER", "O"]),
    "answers": QuestionAnswerer,
    "long texts": lambda bert: SequenceClassifier(bert, ["x", "y"], long_texts="mean"),
    "vectors": lambda bert: TextEmbedder(bert, "max", normalize=False, long_texts="mean"),
}


@functools.cache
def make(name):
    model = randomize(MAKERS[name](BERTModel.from_bert_config(CONFIG)))
    model.tokenizer = Tokenizer(VOCAB)
    return model


def outputs(model):
    result = model(BATCH)
    return np.stack(list(result.values())) if isinstance(result, dict) else result.numpy()


@pytest.fixture(scope="module")
def saved_tasks(tmp_path_factory):
    """Return a function that returns the folder of a task model in a format."""

    @functools.cache
    def folder_of(name, format):
        folder = tmp_path_factory.mktemp("tasks") / "task"
        save_pretrained(make(name), folder, format=format)
        return folder

    return folder_of


@pytest.fixture
def editable_task(saved_tasks, tmp_path):
    """Return a function that copies such a folder, so that its files may change."""

    def copy(name, format="native"):
        folder = shutil.copytree(saved_tasks(name, format), tmp_path / "task")
        (folder / "SHA256SUMS").unlink()
        return folder

    return copy


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except({"several labels", "scores", "vectors"}, MAKERS))
def test_a_task_is_loaded_with_its_head_and_its_labels(name, saved_tasks, tmp_path, capsys):
    model, folders = make(name), {"native": saved_tasks(name, "native")}
    folders["huggingface"] = saved_tasks(name, "huggingface")
    if name != "vectors":
        folders["huggingface"] = tmp_path / "task"
        convert_checkpoint(folders["native"], tmp_path / "task", "huggingface")
    capsys.readouterr()
    for format, folder in folders.items():
        if format == "native":
            loaded = load_pretrained(folder).model
        else:
            loaded = type(model).from_pretrained(folder)
        assert type(loaded) is type(model)
        assert loaded.task_config() == model.task_config()
        assert loaded.tokenizer.vocab == VOCAB
        np.testing.assert_array_equal(outputs(loaded), outputs(model))
        printed = capsys.readouterr().out
        assert type(model).__name__ in printed or "text embedding: max" in printed


def test_the_pooler_is_saved_only_if_used_and_pretraining_heads_are_never_saved(saved_tasks):
    for name, parts in (
        ("one label", {"encoder", "hidden", "head"}),
        ("tags", {"encoder", "head"}),
    ):
        weights = safetensors.numpy.load_file(saved_tasks(name, "native") / "model.safetensors")
        assert {weight.partition("/")[0] for weight in weights} == parts


def test_the_native_format_keeps_every_architecture(tmp_path):
    other = BERTConfig(len(VOCAB), 8, 12, 2, 1, 0.1, 12, norm_first=True, final_norm=True)
    model = TokenClassifier(BERTModel.from_bert_config(other), ["a", "b"])
    save_pretrained(model, tmp_path / "task")
    assert load_pretrained(tmp_path / "task").config == other
    with pytest.raises(ValueError, match="embedding_norm"):
        save_pretrained(model, tmp_path / "other", format="huggingface")
    with pytest.raises(ValueError, match="for a task model. Received: format='book'"):
        convert_checkpoint(tmp_path / "task", tmp_path / "other", "book")


def test_a_folder_written_before_a_field_existed_loads_with_its_default(editable_task):
    folder = editable_task("vectors")
    task = json.loads((folder / "config.json").read_text())["task"]
    del task["long_texts"]
    edit_config(folder, task=task)
    loaded = load_pretrained(folder).model
    assert loaded.long_texts == "cut"
    np.testing.assert_array_equal(outputs(loaded), outputs(make("vectors")))


def test_conversion_keeps_how_a_folder_of_sentence_transformers_pools(saved_tasks, tmp_path):
    model, source = make("vectors"), saved_tasks("vectors", "huggingface")
    convert_checkpoint(source, tmp_path / "native")
    convert_checkpoint(tmp_path / "native", tmp_path / "again", "huggingface")
    for folder in ("native", "again"):  # max, not normalized, long texts
        found = TextEmbedder.from_pretrained(tmp_path / folder)
        assert found.task_config() == model.task_config()
        np.testing.assert_array_equal(outputs(found), outputs(model))
    with pytest.raises(ValueError, match="'book' cannot store how texts are embedded"):
        convert_checkpoint(source, tmp_path / "book", "book")


def test_lora_is_merged_into_the_kernels_when_saved(tmp_path):
    model = make.__wrapped__("one label")
    model.enable_lora(2)
    lora_b = model.encoder.blks[0].attention.W_q.lora_kernel_b
    lora_b.assign(np.ones(lora_b.shape))
    save_pretrained(model, tmp_path / "task")
    plain, expected = load_pretrained(tmp_path / "task").model, outputs(model)
    np.testing.assert_allclose(outputs(plain), expected, atol=1e-6)
    assert not plain.has_lora
    model.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    np.testing.assert_allclose(outputs(loaded), expected, atol=1e-6)
    checkpoint = native.describe(tmp_path / "task")
    load_weights(model, checkpoint.table, checkpoint.arrays)
    np.testing.assert_allclose(outputs(model), expected, atol=1e-6)
    assert not lora_b.numpy().any()


HEADS = {
    "BertForSequenceClassification": (SequenceClassifier, 3),
    "BertForTokenClassification": (TokenClassifier, 5),
    "BertForQuestionAnswering": (QuestionAnswerer, 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", HEADS)
def test_task_heads_give_the_golden_logits_and_losses(architecture, data_dir, tmp_path):
    kind, num_labels = HEADS[architecture]
    golden, prefix = np.load(data_dir / "golden/hf/heads.npz"), f"{architecture}/"
    golden = {k.removeprefix(prefix): golden[k] for k in golden if k.startswith(prefix)}
    weights = safetensors.numpy.load_file(data_dir / "golden/hf/model.safetensors")
    weights = {name: value for name, value in weights.items() if name.startswith("bert.")}
    weights |= {k.removeprefix("w/"): v for k, v in golden.items() if k.startswith("w/")}
    if kind is not SequenceClassifier:
        weights = {name: v for name, v in weights.items() if ".pooler." not in name}
    safetensors.numpy.save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    shutil.copy(data_dir / "golden/hf/config.json", tmp_path)
    names = {str(i): f"L{i}" for i in range(num_labels)}
    edit_config(tmp_path, architectures=[architecture], id2label=names)
    model = load_pretrained(tmp_path).model
    assert type(model) is kind
    io = np.load(data_dir / "golden/hf/io.npz")
    batch = {
        "tokens": io["batch0/input_ids"],
        "segments": io["batch0/token_type_ids"],
        "valid_lens": io["batch0/attention_mask"].sum(1),
    }
    model.compile(run_eagerly=True)
    if kind is QuestionAnswerer:
        sides = ("start", "end")
        logits = np.stack([model(batch)[side] for side in sides])
        expected = np.stack([golden[f"{side}_logits"] for side in sides])
        labels = {side: golden[f"{side}_positions"] for side in sides}
    else:
        assert model.labels == tuple(names.values())
        logits, expected, labels = model(batch), golden["logits"], golden["labels"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=2e-5)
    loss = model.evaluate(batch, labels, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(float(golden["loss"]), abs=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [("scores", 1), ("one label", 2)])
def test_the_default_problem_type_depends_on_the_number_of_labels(name, number, editable_task):
    folder = editable_task(name, "huggingface")
    absent = dict.fromkeys(("problem_type", "id2label", "label2id", "classifier_dropout"), ...)
    edit_config(folder, num_labels=number, **absent)
    loaded = load_pretrained(folder).model
    assert type(loaded) is type(make(name))
    assert loaded.labels == tuple(f"LABEL_{index}" for index in range(number))
    assert loaded.task_config()["dropout"] == CONFIG.dropout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["BertForRanking"]}, r"classifier.*BertForRanking"),
        ({"architectures": ["BertForMultipleChoice"]}, r"classifier.weight"),
        ({"id2label": None, "num_labels": 10**10}, r"`num_labels` must be 2,.*10000000000"),
        ({"problem_type": "ranking"}, "`problem_type`"),
        ({"id2label": {"0": "a", "1": ""}}, "`id2label`.*pass `labels` to `from_pretrained`"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, "`id2label`.*ids 0 to 1.*'2': 'c'"),
    ],
)
def test_a_damaged_hugging_face_task_is_rejected(change, message, editable_task):
    folder = editable_task("one label", "huggingface")
    edit_config(folder, **change)
    with pytest.raises(ValueError, match=message):
        load_pretrained(folder)


@pytest.mark.parametrize("names", [{"0": "a", "1": "a"}, ["a", "b"], {"1": "a", "2": "b"}])
def test_given_labels_replace_names_that_are_not_valid(names, editable_task):
    folder = editable_task("one label", "huggingface")
    expected = load_pretrained(folder).model
    edit_config(folder, id2label=names)
    model = SequenceClassifier.from_pretrained(folder, labels=["bad", "good"])
    assert model.labels == ("bad", "good")
    np.testing.assert_array_equal(model.head.kernel, expected.head.kernel)


def test_numbers_as_label_names_are_text(editable_task):
    folder = editable_task("one label", "huggingface")
    edit_config(folder, id2label={"0": -1, "1": 0.5})
    assert load_pretrained(folder).model.labels == ("-1", "0.5")


def test_the_asked_task_is_the_class_of_a_head_without_one(editable_task):
    folder = editable_task("one label", "huggingface")
    expected = load_pretrained(folder).model
    edit_config(folder, architectures=..., id2label=..., label2id=...)
    with pytest.raises(ValueError, match="`architectures` must name its class"):
        load_pretrained(folder)
    model = SequenceClassifier.from_pretrained(folder, labels=["bad", "good"])
    np.testing.assert_array_equal(model.head.kernel, expected.head.kernel)
    with pytest.raises(ValueError, match=r"classifier.weight|lacks|contains"):
        MultipleChoice.from_pretrained(folder)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("SequenceClassifier", '"kind"'),
        ({"kind": "TextEmbedder", "pooling": "max"}, "'normalize'"),
        ({"kind": "QuestionAnswerer", "code": "x"}, "'code'"),
        ({"kind": "TokenClassifier", "labels": ["a", 2], "dropout": 0.1}, "a list of strings"),
        ({"kind": "TokenClassifier", "labels": ["a", "b"], "dropout": 0.1}, r"head/.*\(4, 3\)"),
        (EMBEDDER, r"contains.*head/"),
    ],
)
def test_a_damaged_native_task_is_rejected(task, message, editable_task):
    folder = editable_task("tags")
    edit_config(folder, task=task)
    with pytest.raises(ValueError, match=message):
        load_pretrained(folder)


def test_a_task_checkpoint_must_have_its_head_and_its_pooler(editable_task):
    folder = editable_task("one label")
    for part in ("head", "hidden"):
        drop_weights(folder, f"{part}/")
        with pytest.raises(ValueError, match=f"lacks weights of the model: .*{part}/"):
            load_pretrained(folder)


def test_a_task_loaded_from_a_plain_bert_gets_a_new_head(saved, models, capsys):
    bert = models["huggingface"]
    model = SequenceClassifier.from_pretrained(
        saved["huggingface"], labels=["bad", "good"], dropout=0.2
    )
    assert "SequenceClassifier (labels: bad, good), with a new head" in capsys.readouterr().out
    assert model.tokenizer.vocab == VOCAB
    assert model.task_config()["dropout"] == 0.2
    np.testing.assert_array_equal(model.encoder(*BATCH.values()), bert.encoder(*BATCH.values()))
    np.testing.assert_array_equal(model.hidden.kernel, bert.hidden.kernel)


def test_a_new_head_needs_labels(saved):
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'labels'"):
        SequenceClassifier.from_pretrained(saved["huggingface"])
    assert SequenceRegressor.from_pretrained(saved["huggingface"]).labels == ("score",)


def test_a_missing_part_is_reported_only_if_the_task_uses_it(editable, capsys):
    for lacking, kind, options, is_told in (
        (("mlm", "nsp"), SequenceClassifier, {"pooling": "cls"}, False),
        (("hidden",), TokenClassifier, {}, False),
        ((), SequenceClassifier, {}, False),  # reads the mean
        ((), SequenceClassifier, {"pooling": "cls"}, True),
    ):
        if lacking:
            drop_weights(editable, *lacking)
        kind.from_pretrained(editable, labels=["a", "b"], verbose=False, **options)
        out = capsys.readouterr().out
        assert ("missing and freshly initialized: pooler\n" in out) == is_told
        assert ("freshly" in out) == is_told


def test_a_checkpoint_of_a_different_task_or_with_labels_in_another_order_is_rejected(saved_tasks):
    folder = saved_tasks("tags", "native")
    with pytest.raises(ValueError, match=r"different task TokenClassifier \(labels: B-PER, I-PER,"):
        SequenceClassifier.from_pretrained(folder, labels=["a", "b"])
    with pytest.raises(ValueError, match=r"`labels` must match the checkpoint.*Received"):
        TokenClassifier.from_pretrained(folder, labels=["O", "B-PER", "I-PER"])


@pytest.mark.parametrize("labels", ["bad", {"bad", "good"}, [0, 1], ["bad", "bad"], None])
def test_labels_of_a_checkpoint_of_the_same_task_must_be_a_list_of_names(labels, saved_tasks):
    with pytest.raises(ValueError, match="`labels` must be a list of at least 1 different names"):
        SequenceClassifier.from_pretrained(saved_tasks("one label", "native"), labels=labels)


OTHERS = {"one label": "bad fine good", "scores": "stars length", "tags": "B-LOC I-LOC O"}


@pytest.mark.parametrize("name", OTHERS)
def test_other_labels_start_a_new_head_which_is_reported(name, saved_tasks, capsys):
    old, labels = make(name), OTHERS[name].split()
    folder = saved_tasks(name, "huggingface" if name == "one label" else "native")
    capsys.readouterr()
    given = labels if name == "tags" else np.array(labels)
    model = type(old).from_pretrained(folder, labels=given, verbose=False)
    out = capsys.readouterr().out
    assert (f"labels: {', '.join(labels)}" in out, out.count("with a new head")) == (True, 1)
    assert model.tokenizer.vocab == VOCAB
    assert model.task_config() == {**old.task_config(), "labels": labels}
    for key, weight in named_weights(model).items():
        is_new = key.startswith("head/")
        assert is_new or np.array_equal(weight, named_weights(old)[key]), key


def test_a_classifier_of_a_bert_without_a_pooler_reads_the_mean_of_the_tokens(tmp_path, capsys):
    config = dataclasses.replace(CONFIG, pooler=False, next_sentence=False)
    bert = BERTModel.from_bert_config(config)
    save_pretrained(bert, tmp_path / "bert")
    model = SequenceClassifier.from_pretrained(tmp_path / "bert", labels=["a", "b"])
    assert "pooling: mean), with a new head" in capsys.readouterr().out
    save_pretrained(model, tmp_path / "task")
    with pytest.raises(ValueError, match="`pooling` must match the checkpoint.*'mean'.*'cls'"):
        SequenceClassifier.from_pretrained(tmp_path / "task", pooling="cls")


def test_hugging_face_cannot_store_that_a_head_reads_the_mean(models, tmp_path):
    model = MultipleChoice(models["huggingface"], pooling="mean")
    with pytest.raises(ValueError, match="the head of a MultipleChoice reads the pooler"):
        save_pretrained(model, tmp_path / "task", format="huggingface")
    assert not (tmp_path / "task").exists()


IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
BEFORE_4 = "sbert_ce_default_activation_function"


@pytest.mark.parametrize(
    ("fields", "of_version_6", "is_sigmoid"),
    [
        ({BEFORE_4: SIGMOID}, {}, True),
        ({"sentence_transformers": {"activation_fn": SIGMOID}}, {}, True),
        ({"sentence_transformers": {"version": "4.1.0"}}, {}, True),
        ({BEFORE_4: SIGMOID}, {"model_type": "CrossEncoder", "activation_fn": IDENTITY}, False),
        ({}, {"model_type": "CrossEncoder"}, True),
        ({}, {"model_type": "SentenceTransformer"}, False),
        ({}, {}, False),  # a folder of transformers
    ],
)
def test_the_activation_of_a_cross_encoder_is_applied(
    editable_task, fields, of_version_6, is_sigmoid
):
    folder = editable_task("scores", "huggingface")
    edit_config(folder, **{BEFORE_4: ..., "problem_type": ..., **fields})
    (folder / "config_sentence_transformers.json").write_text(json.dumps(of_version_6))
    modules = [{"path": "", "type": "sentence_transformers.models.Transformer"}]
    (folder / "modules.json").write_text(json.dumps(modules if of_version_6 else []))
    model = load_pretrained(folder, verbose=False).model
    logits = outputs(make("scores"))
    expected = 1 / (1 + np.exp(-logits)) if is_sigmoid else logits
    scores = model.answer(outputs(model))["scores"]
    np.testing.assert_allclose(scores, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "activation"), [("scores", "my.Swish"), ("one label", SIGMOID), ("scores", [1])]
)
def test_an_activation_that_the_task_does_not_have_is_named(editable_task, name, activation):
    folder = editable_task(name, "huggingface")
    edit_config(folder, **{BEFORE_4: activation})
    with pytest.raises(ValueError, match=f"config.json.*{BEFORE_4}"):
        load_pretrained(folder, verbose=False)


def test_a_model_with_one_segment_reads_both_texts_of_a_pair_as_this_segment():
    one = randomize(BERTModel.from_bert_config(dataclasses.replace(CONFIG, num_segments=1)))
    two = BERTModel.from_bert_config(CONFIG)
    for weight, value in zip(two.weights, one.weights, strict=True):
        weight.assign(np.broadcast_to(value, weight.shape))  # two equal rows of the embedding
    one.tokenizer = two.tokenizer = Tokenizer(VOCAB)
    assert next_sentence_score(one, "a", "b") == next_sentence_score(two, "a", "b")


def test_a_bert_is_loaded_without_the_head_of_a_task(saved_tasks, capsys):
    bert = BERTModel.from_pretrained(saved_tasks("one label", "native"))
    assert type(bert) is BERTModel
    assert bert.tokenizer.vocab == VOCAB
    assert "its head is discarded" in capsys.readouterr().out
