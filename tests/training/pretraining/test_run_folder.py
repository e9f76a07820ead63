import json
import os
import shutil

import pytest

from keras_bert_d2l.training.pretraining.pretrain import pretrain
from keras_bert_d2l.training.pretraining.run_folder import RunFolder, checkpoint_folder, mend


@pytest.fixture(scope="module")
def stopped(text, options, tmp_path_factory):
    """A run of one step."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    pretrain(text, run, **{**options, "steps": 1})
    return run


@pytest.fixture
def run(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


def resume(run):
    return pretrain(None, run, resume=True, verbose=0)


def test_what_was_moved_aside_by_a_process_that_was_killed_is_put_back(run):
    os.rename(run / "last", run / ".last.123.old")
    shutil.copytree(run / "best", run / ".last.abc.tmp")
    assert RunFolder(run).open().steps == 1
    assert sorted(path.name for path in run.iterdir() if path.name.startswith((".", "last"))) == [
        "last"
    ]


def test_what_was_replaced_by_a_process_that_was_killed_is_removed(run):
    shutil.copytree(run / "best", run / ".best.123.old")
    RunFolder(run).open()
    assert not (run / ".best.123.old").exists()


def test_a_line_of_metrics_that_was_cut_off_is_left_out(run):
    expected = RunFolder(run).metrics()
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 2, "lo')
    assert RunFolder(run).metrics() == expected
    assert resume(run).metrics == expected


def test_figures_of_steps_that_will_be_done_again_are_dropped(run):
    expected = RunFolder(run).metrics()
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 2, "loss": 1.0}) + "\n")
    assert resume(run).metrics == expected


@pytest.mark.parametrize("name", ["optimizer.safetensors", "training_state.json"])
def test_a_state_that_is_cut_off_is_refused_by_name(name, run):
    path = run / "last" / name
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=rf"damaged at .*{name}.*`init`"):
        resume(run)


@pytest.mark.parametrize("name", ["optimizer.safetensors", "training_state.json"])
def test_a_state_that_is_missing_is_refused_by_name(name, run):
    (run / "last" / name).unlink()
    with pytest.raises(ValueError, match=rf"damaged at .*{name}"):
        resume(run)


@pytest.mark.parametrize(
    "change",
    [
        {"seeds": [[1, 2]]},
        {"seeds": [[1]] * 3},
        {"seeds": None},
        {"step": "one"},
        {"more": 1},
    ],
)
def test_a_state_of_another_shape_is_refused(change, run):
    path = run / "last" / "training_state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=r"damaged at .*training_state\.json"):
        resume(run)


def test_a_damaged_options_file_is_refused_by_name(run):
    (run / "run.yaml").write_text("steps: 0\n")
    with pytest.raises(ValueError, match=r"run\.yaml"):
        resume(run)


def test_a_run_stands_for_its_best_checkpoint_and_a_checkpoint_for_itself(run):
    assert checkpoint_folder(run) == run / "best"
    assert checkpoint_folder(run / "last") == run / "last"
    shutil.rmtree(run / "best")
    assert checkpoint_folder(run) == run / "last"


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_run_stands_for_a_checkpoint_that_a_killed_process_moved_aside(name, run):
    if name == "last":
        shutil.rmtree(run / "best")
    os.rename(run / name, run / f".{name}.123.old")
    shutil.copytree(run / f".{name}.123.old", run / f".{name}.abc.tmp")
    # Nothing is moved or removed: it may be of a process that is not killed, but trains on.
    before = sorted(run.iterdir())
    assert (checkpoint_folder(run) / "config.json").is_file()
    assert checkpoint_folder(run) == run / f".{name}.123.old"
    assert sorted(run.iterdir()) == before
    mend(run / name)
    assert checkpoint_folder(run) == run / name
