"""Task models are saved and loaded with their heads and the names of their labels."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l import (
    BERTConfig,
    BERTModel,
    Tokenizer,
    Vocab,
    add_tokens,
    fill_mask,
    load_pretrained,
    resize_positions,
    save_pretrained,
)
from keras_bert_d2l.checkpoints.formats import native
from keras_bert_d2l.checkpoints.loading import load_task
from keras_bert_d2l.checkpoints.saving import convert_checkpoint
from keras_bert_d2l.checkpoints.weights import load_weights, named_weights
from keras_bert_d2l.tasks.answer.model import QuestionAnswerer
from keras_bert_d2l.tasks.choose.model import MultipleChoice
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.tasks.embed.model import TextEmbedder
from keras_bert_d2l.tasks.regress.model import SequenceRegressor
from keras_bert_d2l.tasks.tag.model import TokenClassifier

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c".split())
CONFIG = BERTConfig.preset(
    "huggingface",
    vocab_size=len(VOCAB),
    num_hiddens=8,
    ffn_num_hiddens=12,
    num_heads=2,
    num_blks=1,
    max_len=12,
)
EMBEDDER = {"kind": "TextEmbedder", "pooling": "max", "normalize": True, "long_texts": "cut"}
BATCH = {
    "tokens": np.array([[2, 5, 6, 7, 3], [2, 6, 3, 0, 0]], "int32"),
    "segments": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]], "int32"),
    "valid_lens": np.array([5, 3], "int32"),
}
MAKERS = {
    "one label": lambda bert: SequenceClassifier(bert, ["bad", "good"], dropout=0.3),
    "several labels": lambda bert: SequenceClassifier(bert, ["x", "y", "z"], multi_label=True),
    "scores": lambda bert: SequenceRegressor(bert, ["stars"]),
    "tags": lambda bert: TokenClassifier(bert, ["B-PER", "I-PER", "O"]),
    "answers": QuestionAnswerer,
    "long texts": lambda bert: SequenceClassifier(bert, ["x", "y"], long_texts="mean"),
    "vectors": lambda bert: TextEmbedder(bert, "max", normalize=False, long_texts="mean"),
}


def make(name, config=CONFIG):
    model = MAKERS[name](BERTModel.from_bert_config(config))
    rng = np.random.default_rng(0)
    for weight in named_weights(model).values():
        weight.assign(rng.normal(0.1, 0.3, weight.shape))
    return model


def outputs(model):
    result = model(BATCH)
    return (
        np.stack([result["start"], result["end"]]) if isinstance(result, dict) else result.numpy()
    )


def save_editable(model, folder, **options):
    """Save a checkpoint without checksums, so that its files may change."""
    save_pretrained(model, folder, **options)
    (folder / "SHA256SUMS").unlink()


def edit_config(folder, change):
    file = folder / "config.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["native", "huggingface"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_task_is_loaded_with_its_head_and_its_labels(name, format, tmp_path, capsys):
    model = make(name)
    model.tokenizer = Tokenizer(VOCAB)
    save_pretrained(model, tmp_path / "task", format=format)
    if (name, format) == ("vectors", "huggingface"):  # a BERT that defines an embedding
        loaded, tokenizer, _ = load_task(TextEmbedder, tmp_path / "task")
    else:
        loaded, tokenizer, _ = load_pretrained(tmp_path / "task")
    assert type(loaded) is type(model)
    assert loaded.task_config() == model.task_config()
    assert loaded.tokenizer is tokenizer
    assert tokenizer.vocab == VOCAB
    np.testing.assert_array_equal(outputs(loaded), outputs(model))
    printed = capsys.readouterr().out
    assert type(model).__name__ in printed or "text embedding: max" in printed
    assert load_task(type(model), tmp_path / "task").model.task_config() == model.task_config()


def test_the_pooler_is_saved_only_if_used_and_pretraining_heads_are_never_saved(tmp_path):
    for name, parts in (
        ("one label", {"encoder", "hidden", "head"}),
        ("tags", {"encoder", "head"}),
    ):
        save_pretrained(make(name), tmp_path / "task")
        weights = safetensors.numpy.load_file(tmp_path / "task/model.safetensors")
        assert {weight.partition("/")[0] for weight in weights} == parts


def test_the_native_format_keeps_every_architecture(tmp_path):
    book = BERTConfig(len(VOCAB), 8, 12, 2, 2, 0.1, 12, norm_first=True, final_norm=True)
    model = make("tags", book)
    save_pretrained(model, tmp_path / "task")
    loaded = load_pretrained(tmp_path / "task").model
    assert loaded.bert_config == book
    np.testing.assert_array_equal(outputs(loaded), outputs(model))
    with pytest.raises(ValueError, match="embedding_norm"):
        save_pretrained(model, tmp_path / "other", format="huggingface")


def test_a_folder_written_before_a_field_existed_loads_with_its_default(tmp_path):
    model = make("vectors")
    save_editable(model, tmp_path / "task")

    def without_long_texts(config):
        del config["task"]["long_texts"]
        return config

    edit_config(tmp_path / "task", without_long_texts)
    loaded = load_pretrained(tmp_path / "task").model
    assert loaded.long_texts == "cut"
    np.testing.assert_array_equal(outputs(loaded), outputs(model))


@pytest.mark.slow
def test_a_task_is_converted_between_formats(tmp_path):
    model = make("one label")
    save_pretrained(model, tmp_path / "native")
    convert_checkpoint(tmp_path / "native", tmp_path / "hf", "huggingface")
    convert_checkpoint(tmp_path / "hf", tmp_path / "again", "native")
    np.testing.assert_array_equal(
        outputs(load_pretrained(tmp_path / "again").model), outputs(model)
    )
    for format in ("google", "book"):
        with pytest.raises(ValueError, match=f"for a task model. Received: '{format}'"):
            convert_checkpoint(tmp_path / "native", tmp_path / "other", format)


def test_conversion_keeps_how_a_folder_of_sentence_transformers_pools(tmp_path, capsys):
    model = make("vectors")  # max, not normalized, long texts
    save_pretrained(model, tmp_path / "hf", format="huggingface")
    convert_checkpoint(tmp_path / "hf", tmp_path / "native")
    convert_checkpoint(tmp_path / "native", tmp_path / "again", "huggingface")
    assert "cannot store" not in capsys.readouterr().out
    for folder in ("native", "again"):
        found = load_task(TextEmbedder, tmp_path / folder).model
        assert found.task_config() == model.task_config()
        np.testing.assert_array_equal(outputs(found), outputs(model))
    capsys.readouterr()
    with pytest.raises(ValueError, match="cannot express this model"):
        convert_checkpoint(tmp_path / "hf", tmp_path / "google", "google")
    assert "'google' cannot store how texts are embedded" in capsys.readouterr().out


def test_lora_is_merged_into_the_kernels_when_saved(tmp_path):
    model = make("one label")
    model.enable_lora(2)
    lora_b = model.encoder.blks[0].attention.W_q.lora_kernel_b
    lora_b.assign(np.ones(lora_b.shape))
    save_pretrained(model, tmp_path / "task")
    plain = load_pretrained(tmp_path / "task").model
    np.testing.assert_allclose(outputs(plain), outputs(model), atol=1e-6)
    assert not plain.has_lora
    expected = outputs(model)
    checkpoint = native.describe(tmp_path / "task")
    load_weights(model, checkpoint.table, checkpoint.arrays)
    np.testing.assert_allclose(outputs(model), expected, atol=1e-6)
    assert not lora_b.numpy().any()


def test_hugging_faces_config_has_the_labels_and_the_problem_type(tmp_path):
    problems = {
        "one label": "single_label_classification",
        "several labels": "multi_label_classification",
        "scores": "regression",
    }
    for name, problem in problems.items():
        save_pretrained(make(name), tmp_path / "task", format="huggingface")
        fields = json.loads((tmp_path / "task/config.json").read_text())
        assert fields["architectures"] == ["BertForSequenceClassification"]
        assert fields["problem_type"] == problem
        assert fields["label2id"] == {v: int(k) for k, v in fields["id2label"].items()}
    assert fields["id2label"] == {"0": "stars"}


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
    edit_config(
        tmp_path, lambda fields: {**fields, "architectures": [architecture], "id2label": names}
    )
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
def test_the_default_problem_type_depends_on_the_number_of_labels(tmp_path):
    for name, kind in (("scores", SequenceRegressor), ("one label", SequenceClassifier)):
        save_editable(make(name), tmp_path / "task", format="huggingface")
        drop = {"problem_type", "id2label", "label2id", "classifier_dropout"}
        number = 1 if name == "scores" else 2

        def silent(fields, drop=drop, number=number):
            return {k: v for k, v in fields.items() if k not in drop} | {"num_labels": number}

        edit_config(tmp_path / "task", silent)
        loaded = load_pretrained(tmp_path / "task").model
        assert type(loaded) is kind
        assert loaded.labels == tuple(f"LABEL_{index}" for index in range(number))
        assert loaded.task_config()["dropout"] == CONFIG.dropout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["BertForRanking"]}, r"classifier.*BertForRanking"),
        ({"architectures": ["BertForMultipleChoice"]}, r"classifier.weight"),
        ({"architectures": ["BertForQuestionAnswering"]}, "classifier"),
        ({"architectures": None}, "classifier"),
        ({"architectures": float("nan")}, "classifier.*architectures=nan"),
        ({"architectures": [["BertForSequenceClassification"]]}, "classifier"),
        ({"id2label": None, "num_labels": 10**10}, r"`num_labels` must match.*\(2,\).*10000000000"),
        ({"id2label": None, "num_labels": "two"}, "`num_labels` must match.*'two'"),
        ({"problem_type": "ranking"}, "`problem_type`"),
        ({"id2label": {"1": "a", "2": "b"}}, "`id2label`"),
        ({"id2label": {"0": "a", "1": 5}}, "`id2label`"),
        ({"id2label": {"0": "a", "1": "a"}}, "different names"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, r"classifier.weight is \(2, 8\)"),
    ],
)
def test_a_damaged_hugging_face_task_is_rejected(change, message, tmp_path):
    save_editable(make("one label"), tmp_path / "task", format="huggingface")
    edit_config(tmp_path / "task", lambda fields: {**fields, **change})
    with pytest.raises(ValueError, match=message):
        load_pretrained(tmp_path / "task")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("SequenceClassifier", '"kind"'),
        ({"kind": "Other"}, "'Other'"),
        ({"kind": "TextEmbedder", "pooling": "max"}, "'normalize'"),
        ({"kind": "QuestionAnswerer", "code": "x"}, "'code'"),
        ({**EMBEDDER, "normalize": "no"}, "`normalize`"),
        ({"kind": "TokenClassifier", "labels": "ab", "dropout": 0.1}, "`labels`"),
        ({"kind": "TokenClassifier", "labels": ["a", "a"], "dropout": 0.1}, "`labels`"),
        (
            {"kind": "TokenClassifier", "labels": ["a", 2], "dropout": 0.1},
            "`labels` must be strings",
        ),
        ({"kind": "TokenClassifier", "labels": ["a", "b"], "dropout": 0.1}, r"head/.*\(8, 3\)"),
        ({"kind": "QuestionAnswerer"}, r"head/"),
        (EMBEDDER, r"contains.*head/"),
    ],
)
def test_a_damaged_native_task_is_rejected(task, message, tmp_path):
    save_editable(make("tags"), tmp_path / "task")
    edit_config(tmp_path / "task", lambda fields: {**fields, "task": task})
    with pytest.raises(ValueError, match=message):
        load_pretrained(tmp_path / "task")


def test_a_task_checkpoint_without_its_head_is_rejected(tmp_path):
    save_editable(make("tags"), tmp_path / "task")
    file = tmp_path / "task/model.safetensors"
    weights = safetensors.numpy.load_file(file)
    kept = {name: value for name, value in weights.items() if not name.startswith("head/")}
    safetensors.numpy.save_file(kept, file)
    with pytest.raises(ValueError, match="lacks weights of the model: head/bias"):
        load_pretrained(tmp_path / "task")


def test_a_task_loaded_from_a_plain_bert_gets_a_new_head(tmp_path, capsys):
    bert = BERTModel.from_bert_config(CONFIG)
    save_pretrained(bert, tmp_path / "bert", tokenizer=Tokenizer(VOCAB))
    model, tokenizer, _ = load_task(
        SequenceClassifier, tmp_path / "bert", labels=["bad", "good"], dropout=0.2
    )
    assert "SequenceClassifier (labels: bad, good), with a new head" in capsys.readouterr().out
    assert model.tokenizer is tokenizer
    assert model.task_config()["dropout"] == 0.2
    np.testing.assert_array_equal(model.encoder(*BATCH.values()), bert.encoder(*BATCH.values()))
    np.testing.assert_array_equal(model.hidden.kernel, bert.hidden.kernel)


def test_a_missing_part_is_reported_only_if_the_task_uses_it(tmp_path, capsys):
    save_editable(BERTModel.from_bert_config(CONFIG), tmp_path / "bert")
    file = tmp_path / "bert/model.safetensors"
    for lacking, kind, options, is_told in (
        (("mlm", "nsp"), SequenceClassifier, {"pooling": "cls"}, False),
        (("mlm", "nsp", "hidden"), TokenClassifier, {}, False),
        (("mlm", "nsp", "hidden"), SequenceClassifier, {}, False),  # reads the mean
        (("mlm", "nsp", "hidden"), SequenceClassifier, {"pooling": "cls"}, True),
    ):
        weights = safetensors.numpy.load_file(file)
        kept = {name: x for name, x in weights.items() if not name.startswith(lacking)}
        safetensors.numpy.save_file(kept, file)
        load_task(kind, tmp_path / "bert", labels=["a", "b"], verbose=False, **options)
        out = capsys.readouterr().out
        assert ("missing and freshly initialized: pooler;" in out) == is_told
        assert ("freshly" in out) == is_told


def test_a_checkpoint_of_a_different_task_or_with_different_labels_is_rejected(tmp_path):
    save_pretrained(make("tags"), tmp_path / "task")
    with pytest.raises(ValueError, match=r"different task TokenClassifier \(labels: B-PER, I-PER,"):
        load_task(SequenceClassifier, tmp_path / "task", labels=["a", "b"])
    with pytest.raises(ValueError, match=r"`labels` must match the checkpoint.*Received"):
        load_task(TokenClassifier, tmp_path / "task", labels=["N", "V"])
    same = load_task(TokenClassifier, tmp_path / "task", labels=("B-PER", "I-PER", "O"))
    assert type(same.model) is TokenClassifier


def test_a_classifier_of_a_bert_without_a_pooler_reads_the_mean_of_the_tokens(tmp_path, capsys):
    config = dataclasses.replace(CONFIG, pooler=False, next_sentence=False)
    bert = BERTModel.from_bert_config(config)
    save_pretrained(bert, tmp_path / "bert")
    model = load_task(SequenceClassifier, tmp_path / "bert", labels=["a", "b"]).model
    said = "SequenceClassifier (labels: a, b; pooling: mean), with a new head"
    assert said in capsys.readouterr().out
    for name in ("encoder/token_embedding/embeddings", "encoder/blk_0/ffn/dense1/kernel"):
        np.testing.assert_array_equal(named_weights(model)[name], named_weights(bert)[name])
    save_pretrained(model, tmp_path / "task")
    again = load_pretrained(tmp_path / "task").model
    np.testing.assert_allclose(again(BATCH), model(BATCH), atol=1e-6)
    with pytest.raises(ValueError, match="`pooling` must match the checkpoint.*'mean'.*'cls'"):
        load_task(SequenceClassifier, tmp_path / "task", pooling="cls")


@pytest.mark.parametrize("kind", [SequenceClassifier, SequenceRegressor, MultipleChoice])
def test_hugging_face_cannot_store_that_a_head_reads_the_mean(kind, tmp_path):
    labels = {} if kind is MultipleChoice else {"labels": ["a", "b"]}
    model = kind(BERTModel.from_bert_config(CONFIG), pooling="mean", **labels)
    with pytest.raises(ValueError, match=f"the head of a {kind.__name__} reads the pooler"):
        save_pretrained(model, tmp_path / "task", format="huggingface")
    assert not (tmp_path / "task").exists()


def test_functions_that_need_pretraining_heads_reject_task_models():
    model = make("one label")
    for use in (
        lambda: fill_mask(model, "a [MASK]"),
        lambda: resize_positions(model, 24),
        lambda: add_tokens(model, ["new"]),
    ):
        with pytest.raises(ValueError, match=r"must be a BERTModel.*a SequenceClassifier"):
            use()
