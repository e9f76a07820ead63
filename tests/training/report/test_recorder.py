import json

import pytest

from keras_bert_d2l.training.report.recorder import RunRecorder, machine
from keras_bert_d2l.training.run.run_folder import RunFolder


def fail():
    raise KeyError("samples")


def test_an_error_in_the_report_is_a_warning(tmp_path):
    recorder = RunRecorder(RunFolder(tmp_path))
    with pytest.warns(RuntimeWarning, match=r"lacks the evaluation at step 1,000, because of Key"):
        recorder.add(1000, fail)
    with pytest.warns(RuntimeWarning, match="report.html.* because of ValueError: .*continues"):
        recorder.write(1000)
    assert list(tmp_path.iterdir()) == []


def test_a_start_is_recorded_with_machine_and_versions(tmp_path):
    recorder = RunRecorder(RunFolder(tmp_path))
    recorder.add_start(3, lambda: {"data": {"tokens": 5}})
    [line] = (tmp_path / "report.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record.pop("time") > 1e9
    assert record == {"step": 3, "machine": machine(), "data": {"tokens": 5}}
    assert {"processor", "accelerators", "keras", "tensorflow", "python"} <= machine().keys()
