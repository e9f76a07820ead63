"""Option records in Python, on the command line and in run folders."""

import dataclasses
import pathlib

import pytest

from keras_bert_d2l.training.finetuning.options import TaskRunOptions
from keras_bert_d2l.training.pretraining.options import PretrainingOptions

ORIGINALS = pathlib.Path(__file__).with_name("originals")  # `run.yaml` of version 0.1.0


@pytest.mark.parametrize(
    ("record", "name"),
    [(PretrainingOptions, "pretrain_0.1.0.yaml"), (TaskRunOptions, "finetune_0.1.0.yaml")],
)
def test_an_options_file_of_version_0_1_0_can_be_read_and_rewritten(record, name, tmp_path):
    file = tmp_path / "run.yaml"
    options = record.read_yaml(ORIGINALS / name)
    record.from_dict(options).to_yaml(file)
    rewritten = record.read_yaml(file)
    assert set(rewritten) == {field.name for field in dataclasses.fields(record)}
    assert rewritten.items() >= options.items()


def test_a_run_resumes_with_other_devices_but_no_other_options(tmp_path):
    file = tmp_path / "run.yaml"
    PretrainingOptions(corpus="a").to_yaml(file)
    resumed = PretrainingOptions.of_run(file, {"devices": "data", "steps": None})
    assert resumed.devices == "data"
    assert PretrainingOptions.of_run(file, {}).devices is None
    with pytest.raises(ValueError, match="resumes with its own options. Received: steps=3"):
        PretrainingOptions.of_run(file, {"devices": "data", "steps": 3})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("epochs", 0),
        ("batch_size", 2.0),
        ("class_weights", {"a": "heavy"}),
        ("task", "translate"),
        ("model", None),
        ("text", True),
    ],
)
def test_an_invalid_value_is_rejected_with_the_name_of_its_option(option, value):
    with pytest.raises(ValueError, match=f"`{option}`"):
        TaskRunOptions(**{"task": "tag", "model": "a", "train": "b", option: value})


def test_a_checkpoint_is_a_path_or_a_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("minilm", "google-bert/bert-base-uncased@main"):
        assert TaskRunOptions.normal_form("model", name) == name
        assert PretrainingOptions.normal_form("init", name) == name
    (tmp_path / "minilm").mkdir()
    for path in ("minilm", "runs/mine/best", "bert"):
        assert TaskRunOptions.normal_form("model", path) == str(tmp_path / path)


def test_data_is_not_held_out_from_the_training_data_beside_development_data():
    files = {"task": "tag", "model": "a", "train": "b"}
    with pytest.raises(ValueError, match="`dev` and `held_out` exclude each other.*held_out=0.2"):
        TaskRunOptions(**files, dev="c", held_out=0.2)
    assert TaskRunOptions(**files, held_out=0.2).held_out == 0.2
