import json
import os
import shutil
from functools import partial

import pytest

from keras_bert_d2l.checkpoints.location import find_checkpoint
from keras_bert_d2l.files import CHECKSUMS
from keras_bert_d2l.training.finetuning.finetune import finetune_files
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from keras_bert_d2l.training.run.run_folder import RunFolder, opened_run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished.run, tmp_path / "run")


def resume(run):
    return pretrain(None, run, resume=True, verbose=0)


def test_resume_reports_that_a_folder_contains_no_run_yet(run, tmp_path):
    new = tmp_path / "mistyped"
    message = f"'{new}' contains no run to resume yet. Starting a new one."
    for folder, resume, expected in ((new, True, [message]), (new, False, []), (run, True, [])):
        said, given = [], {} if folder is run else {"corpus": "text.txt"}
        opened = opened_run(
            RunFolder(folder), PretrainingOptions, given, resume=resume, say=said.append
        )
        with opened as (_, _, is_resumed):
            assert is_resumed == (folder is run)
        assert said == expected


def test_a_run_folder_must_be_local():
    for start in (partial(pretrain, "text.txt"), finetune_files):
        with pytest.raises(ValueError, match="`run_dir`.*'s3://bucket/runs'"):
            start("s3://bucket/runs")


def interrupt_replacement(folder):
    """Leave what a process leaves that is killed between the two renames of a replacement."""
    workspace = folder.with_name(f".{folder.name}.0123abcd.tmp")
    shutil.copytree(folder, workspace / folder.name)
    os.rename(folder, workspace / f"{folder.name}.old")


def test_what_a_killed_process_left_is_repaired_or_ignored(run):
    expected = RunFolder(run).metrics()
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 8, "lo')
    assert RunFolder(run).metrics() == expected
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('ss": 1.0}\n')  # of a step that is repeated
    interrupt_replacement(run / "last")
    assert resume(run).metrics == expected
    left = sorted(path.name for path in run.iterdir() if path.name.startswith((".", "last")))
    assert left == ["last"]


@pytest.mark.parametrize("name", ["optimizer.safetensors", "training_state.json"])
@pytest.mark.parametrize("content", [None, b"{"])
def test_a_missing_or_damaged_state_is_named_in_the_error(name, content, run):
    (run / "last" / CHECKSUMS).unlink()
    (run / "last" / name).unlink()
    if content is not None:
        (run / "last" / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}.* is damaged: .*`init`"):
        resume(run)


@pytest.mark.parametrize("change", [{"settings": None}, {"step": None, "more": 1}, {"more": 1}])
def test_a_state_with_unexpected_content_is_rejected(change, run):
    (run / "last" / CHECKSUMS).unlink()
    path = run / "last" / "training_state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=r"training_state\.json.* is damaged"):
        resume(run)


def test_a_damaged_options_file_is_named_in_the_error(run):
    (run / "run.yaml").write_text("steps: 0\n")
    with pytest.raises(ValueError, match=r"run\.yaml"):
        resume(run)


def test_a_run_folder_resolves_to_its_best_checkpoint(run):
    assert find_checkpoint(run) == run / "best"
    assert find_checkpoint(run / "last") == run / "last"
    shutil.rmtree(run / "best")
    assert find_checkpoint(run) == run / "last"


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_checkpoint_moved_aside_by_a_killed_process_is_found(name, run):
    if name == "last":
        shutil.rmtree(run / "best")
    interrupt_replacement(run / name)
    assert find_checkpoint(run) == run / name


def test_a_second_process_cannot_use_a_run(run):
    with RunFolder(run).locked(), pytest.raises(BlockingIOError, match="Another process is using"):
        resume(run)
    assert not (run / ".lock").exists()


def test_a_truncated_options_file_is_not_completed_with_defaults(run):
    options = run / "run.yaml"
    options.write_text(options.read_text().partition("evaluate_every")[0])
    with pytest.raises(ValueError, match=r"run\.yaml' has changed since it was written"):
        resume(run)


def test_damaged_metrics_are_named_in_an_error_and_restored_on_resume(run):
    expected = RunFolder(run).metrics()
    (run / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1\n')
    with pytest.raises(ValueError, match=r"Line 2 of .*metrics\.jsonl' is damaged"):
        RunFolder(run).metrics()
    assert resume(run).metrics == expected
