import json
import shutil

import pytest
import tensorflow as tf

from keras_bert_d2l import BERTModel, doctor
from keras_bert_d2l.inspection.doctor.doctor import diagnose
from tests.inspection.doctor import faults
from tests.inspection.doctor.faults import PRETRAINING_FAULTS, TASK_FAULTS

pytestmark = pytest.mark.long


BATCHES = tf.data.Dataset.from_tensors(({"tokens": [[1]], "segments": [[0]]}, [0]))


def bert(is_compiled=False):
    model = BERTModel(20, 8, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=8)
    if is_compiled:
        model.compile()
    return model


def names_of(diagnosis):
    return {finding.name for finding in diagnosis.faults}


def test_a_healthy_run_has_no_faults(run):
    diagnosis = doctor(run)
    assert diagnosis.is_healthy, str(diagnosis)
    assert not diagnosis.skipped
    assert len(diagnosis.findings) >= 10


@pytest.mark.parametrize("name", PRETRAINING_FAULTS)
def test_a_fault_planted_in_a_pretraining_run_is_found(name, evidence, tmp_path):
    plant = PRETRAINING_FAULTS[name]
    assert name in names_of(faults.diagnosis_of(plant, evidence, tmp_path))


@pytest.mark.parametrize("name", TASK_FAULTS)
def test_a_fault_planted_in_a_fine_tuning_run_is_found(name, task_evidence, tmp_path):
    plant = TASK_FAULTS[name]
    assert name in names_of(faults.diagnosis_of(plant, task_evidence, tmp_path))


def test_every_check_has_a_planted_fault(evidence, task_evidence):
    some = [diagnose(one) for one in (evidence, task_evidence)]
    found = {finding.name for diagnosis in some for finding in diagnosis.findings}
    assert found == {*PRETRAINING_FAULTS, *TASK_FAULTS}


def test_without_its_text_a_run_is_examined_as_far_as_possible(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    options = tmp_path / "run" / "run.yaml"
    options.write_text(options.read_text().replace("text.txt", "gone.txt"))
    diagnosis = doctor(tmp_path / "run")
    assert diagnosis.is_healthy
    assert {"rising loss", "overfitting"} <= {x.name for x in diagnosis.findings}
    [skipped] = diagnosis.skipped
    assert skipped.startswith("Data, batches and weights: There is no file or folder")


def test_data_and_a_model_are_examined_before_a_run(run, task_run, tmp_path):
    text = faults.write_text(tmp_path / "text.txt", seed=1)
    assert doctor(data=text, model=run).is_healthy
    reviews = task_run.parent / "train.tsv"
    diagnosis = doctor(data=reviews, model=run, task="classify", dev=reviews)
    assert names_of(diagnosis) == {"leaking examples"}
    [first] = [one for one in diagnosis.findings if one.name == "initial loss"]
    assert first.number == pytest.approx(1, abs=0.1)  # a new head


def test_a_compiled_model_and_its_batches_are_examined(evidence):
    def constant(x, y, w):
        return x, y, tf.nest.map_structure(tf.zeros_like, w)

    healthy = doctor(data=evidence.batches, model=evidence.model)
    assert healthy.is_healthy
    found = names_of(doctor(data=evidence.batches.map(constant), model=evidence.model))
    assert found >= {"gradient norm", "unused weights"}


def test_next_tokens_are_not_visible_answers(evidence):
    def causal(x, y, w):
        length = tf.shape(x["tokens"])[1]
        mask = tf.ones((1, length, length))
        return {**x, "attention_mask": tf.repeat(mask, tf.shape(x["tokens"])[0], 0)}, y, w

    diagnosis = doctor(data=evidence.batches.map(causal), model=evidence.model)
    assert "visible answers" not in {finding.name for finding in diagnosis.findings}


def test_the_examination_changes_nothing(evidence):
    before = [weight.numpy().copy() for weight in evidence.model.variables]
    diagnose(evidence)
    after = [weight.numpy() for weight in evidence.model.variables]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Pass either the folder of a `run`, or `data`"),
        ({"run": "x", "data": "y"}, "Pass either the folder of a `run`, or `data`"),
        ({"run": "nowhere"}, "'nowhere' is not a run of `pretrain` or `finetune`"),
        ({"data": "nowhere.txt"}, "There is no file or folder"),
        ({"data": "x.tsv", "task": "classify"}, "`model` is missing"),
        ({"data": "x.tsv", "model": bert()}, "`data` must be a `DatasetV2`"),
        ({"data": BATCHES, "model": bert()}, "`model` must be compiled"),
        ({"data": BATCHES.take(0), "model": bert(is_compiled=True)}, "must contain batches"),
    ],
)
def test_wrong_arguments_are_reported(arguments, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        doctor(**arguments)


def test_the_command_prints_faults_and_sets_the_exit_code(run, tmp_path, invoke):
    assert invoke("doctor", run).exit_code == 0
    shutil.copytree(run, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines[-1]["loss"] *= 1.3
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = invoke("doctor", tmp_path / "run")
    assert result.exit_code == 1
    assert "rising loss" in result.stdout
    assert " checks, 1 fault" in result.stdout
    first, *_ = map(json.loads, invoke("doctor", tmp_path / "run", "--json").stdout.splitlines())
    assert (first["name"], first["is_fault"]) == ("rising loss", True)
    assert first["number"] > 1.1
    assert invoke("doctor", tmp_path).exit_code == 2


def test_a_healthy_fine_tuning_run_has_no_faults_and_json_has_one_object_per_check(
    task_run, invoke
):
    result = invoke("doctor", task_run, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(found) >= 7
    assert not any(one["is_fault"] for one in found)
    assert "Skipped" not in result.stderr
