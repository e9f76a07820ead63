"""The report of a run shows what the files of the run say, as text and as curves."""

import itertools
import json

import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.inference.evaluation import Confusion, Evaluation, Mistake
from keras_bert_d2l.training.finetuning.data import record_of
from keras_bert_d2l.training.report.report import RunRecorder, machine, spread
from keras_bert_d2l.training.run.run_folder import RunFolder

SCRIPT = "<script>alert(1)</script>"
MACHINE = {"processor": "a processor, 2 cores", "keras": "3.15.1"}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def pretraining_run(tmp_path):
    """Return a function that writes a run with three evaluations; the second is best."""

    def write(name, **options):
        run = tmp_path / name
        (run / "last").mkdir(parents=True)
        options = {"corpus": "novels", "steps": 1000, "learning_rate": 0.001, **options}
        (run / "run.yaml").write_text(json.dumps(options))
        (run / "config.json").write_text("{}")
        losses = ((0, 9.0, None), (500, 4.0, 4.2), (1000, 5.0, 3.0))
        metrics = []
        for step, held_out, training in losses:
            line = {
                "step": step,
                "val_mlm_cross_entropy": held_out,
                "val_mlm_accuracy": 1 / held_out,
            }
            if training is not None:
                line |= {"mlm_cross_entropy": training, "loss": None, "tokens/s": 2000.0}
                line |= {"learning_rate": 0.001 - step * 1e-6, "gradient_norm": 1.5}
            metrics.append(line)
        write_lines(run / "metrics.jsonl", metrics)
        samples = {
            "text": f"the cat {SCRIPT}",
            "gold": "sat",
            "after": "down",
            "answers": [["sat", 0.5], ["lay", 0.25]],
            "is_right": True,
        }
        start = {"step": 0, "time": 1000.0, "machine": MACHINE, "data": {"documents": 1234}}
        records = [
            {"step": step, "time": 1000.0 + step, "samples": [samples]} for step, *_ in losses
        ]
        write_lines(run / "report.jsonl", [start, *records])
        state = {"step": 1000, "best_step": 500}
        (run / "last/training_state.json").write_text(json.dumps(state))
        return run

    return write


@pytest.fixture
def finetuning_run(tmp_path):
    """Return the folder of a run with two epochs; the second is best."""
    run = tmp_path / "films"
    (run / "last").mkdir(parents=True)
    history = [
        {"step": 10, "loss": 0.7, "val_accuracy": 0.5, "val_loss": 0.6, "learning_rate": 1e-5},
        {"step": 20, "loss": 0.4, "val_accuracy": 0.9, "val_loss": 0.3, "learning_rate": 0.0},
    ]
    for line in history:
        line.update(cross_entropy=line["loss"], val_cross_entropy=line["val_loss"])
    write_lines(run / "metrics.jsonl", history)
    data = {
        "source": "films.csv",
        "examples": 80,
        "labels": {"good": 60, SCRIPT: 20},
        "dropped": {},
    }
    summary = {
        "monitor": "val_accuracy",
        "best_epoch": 2,
        "warning": f"The model predicts {SCRIPT!r}.",
        "task": "classify",
        "options": {"epochs": 2},
        "data": {"train": data, "dev": {**data, "examples": 20}},
    }
    (run / "metrics.json").write_text(json.dumps(summary))
    sample = {"text": "a film", "gold": "good", "answers": [[SCRIPT, 0.8]], "is_right": False}
    error = {"id": "7", "text": SCRIPT, "gold": "good", "predicted": SCRIPT, "score": 0.8}
    confusion = {"labels": ["good", SCRIPT], "counts": [[14, 1], [1, 4]]}
    seen = {"samples": [sample], "errors": [error], "confusion": confusion}
    write_lines(
        run / "report.jsonl",
        [
            {"step": 0, "time": 5.0, "machine": MACHINE, "model": {"Model": "tiny"}},
            *({"step": step, "time": 5.0 + step, **seen} for step in (10, 20)),
        ],
    )
    state = {"step": 20, "points": [[0.5, 0.8], [1.0, 0.6], [2.0, 0.4]]}
    (run / "last/training_state.json").write_text(json.dumps(state))
    return run


TEXT = "document.querySelector('main').innerText"
READOUT = "document.querySelectorAll('output')[{}].innerText"
TITLES = "[...document.querySelectorAll('figure h3')].map(one => one.innerText)"
CHART = "document.querySelectorAll('figure svg')[{}]"


def open_page(page, path, made):
    path.write_text(made.html)
    page.look()
    page.open(path)


def num_curves(page):
    """Return the number of curves in the first chart."""
    return page.run(f"{CHART.format(0)}.querySelectorAll('polyline').length")


def point_at_the_end(page, chart):
    """Move the pointer to the right end of a chart and return what is read there."""
    page.run(f"{CHART.format(chart)}.scrollIntoView({{block: 'center'}})")
    box = page.run(f"{CHART.format(chart)}.getBoundingClientRect().toJSON()")
    for x in (box["right"] - 20, box["right"] - 14):  # a pointer that stays has no effect
        page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=box["y"] + 50)
    page.wait(READOUT.format(chart))
    return page.run(READOUT.format(chart))


@pytest.mark.slow
@pytest.mark.parametrize("thresholds", [None, {SCRIPT: 0.25, "good": 0.5}])
def test_a_calibration_is_shown_with_readable_charts(page, finetuning_run, tmp_path, thresholds):
    bins = [[n / 15, n / 20, 7 * n] for n in range(15)]
    record = {"temperature": 1.5, "thresholds": thresholds, "bins": [bins, bins[::-1]]}
    record |= {"expected_calibration_error": [0.25, 0.125]}
    record |= {"risk_coverage": None if thresholds else [[0.1, 0.0], [1.0, 0.2]]}
    RunRecorder(RunFolder(finetuning_run)).add(20, lambda: {"calibration": record})
    open_page(page, tmp_path / "page.html", kb.run_report(finetuning_run))
    text, titles = page.run(TEXT), page.run(TITLES)
    assert all(shown in text for shown in ("temperature 1.500", "0.2500", "0.1250"))
    assert (f"{SCRIPT}\xa00.250" in text) == bool(thresholds)
    assert ("Risk by coverage" in titles) == (thresholds is None)
    chart = titles.index("Reliability with temperature 1")
    shown = "\n".join(["bin 0.9333 to 1", "confidence 0.9333", "right 0.7", "decisions 98"])
    assert point_at_the_end(page, chart) == shown
    assert "decisions 0" in point_at_the_end(page, chart + 1)
    for width in (400, 1280):
        page.look(width=width)
        counts = f"[...{CHART.format(chart)}.querySelectorAll('.number')]"
        page.wait(f"{counts}.length == 14")
        assert page.run(f"{counts}.map(one => Number(one.textContent))") == [*range(7, 99, 7)]
        boxes = page.run(f"{counts}.map(one => one.getBoundingClientRect().toJSON())")
        assert all(a["right"] <= b["left"] for a, b in itertools.pairwise(boxes))
        assert page.run("document.documentElement.scrollWidth") == width
    assert not page.problems


@pytest.mark.slow
def test_the_report_of_a_pretraining_run_shows_its_curves_and_samples(
    page, pretraining_run, tmp_path
):
    open_page(page, tmp_path / "page.html", kb.run_report(pretraining_run("novels-1")))
    text = page.run(TEXT)
    for shown in (*("/novels-1", "step 1,000 of 1,000", f"the cat {SCRIPT} sat down", "1,234"),):
        assert shown in text
    tiles = page.run("[...document.querySelectorAll('.tiles b')].map(one => one.innerText)")
    assert tiles == ["4", "0.25", "500", "2,000"]
    assert page.run(TITLES) == [
        "Masked-token loss",
        "Masked-token accuracy",
        "Gradient norm",
        "Learning rate",
        "Tokens per second",
    ]
    assert num_curves(page) == 2
    first = f"{CHART}.querySelector('circle').cx.baseVal.value"
    steps = [page.run(first.format(n)) for n in (0, 2)]
    assert steps[0] == steps[1] > 200  # both begin at step 0, where there is no gradient
    assert point_at_the_end(page, 0) == "step 1,000\ntraining 3\nheld-out 5"
    assert page.problems == []


@pytest.mark.slow
def test_the_report_of_a_fine_tuning_run_shows_confusions_and_errors(
    page, finetuning_run, tmp_path
):
    open_page(page, tmp_path / "page.html", kb.run_report(finetuning_run))
    text = page.run(TEXT)
    facts = f"good (60), {SCRIPT} (20)", "epoch 2 of 2", "Warning: The model"
    assert all(shown in text for shown in ("Confusion matrix", *facts))
    titles = page.run(TITLES)  # the cross entropy is the loss
    assert titles == ["Loss", "Accuracy", "Learning rate"]
    cells = page.run("[...document.querySelectorAll('.confusion td')].map(one => one.innerText)")
    assert cells == ["14", "1", "1", "4"]
    [loss] = page.run(
        "charts.filter(one => one.title === 'Loss').map("
        "one => one.series.find(one => !one.isHeldOut).points)"
    )
    assert loss == [[0.5, 0.8], [1.0, 0.6], [2.0, 0.4]]
    assert point_at_the_end(page, 0) == "epoch 2\ntraining 0.4\ndevelopment 0.3"
    assert page.problems == []


def test_texts_of_the_data_never_become_part_of_a_page(pretraining_run, finetuning_run):
    run = pretraining_run(SCRIPT.replace("/", "x"), corpus=SCRIPT)
    for made in (kb.run_report(run), kb.run_report(finetuning_run)):
        assert made.html.count("<script") == made.html.count("</script>") == 3
        assert "https://" not in made.html.replace("http://www.w3.org", "")


def test_a_run_without_records_has_a_report(pretraining_run):
    run = pretraining_run("old")
    (run / "report.jsonl").unlink()
    made = kb.run_report(run, run / "made.html")
    assert (run / "made.html").read_text() == made.html
    assert "Masked-token loss" in made.html
    assert made.html.count("Not recorded.") == 2


@pytest.mark.parametrize("number", [1, 2, 12, 13, 60])
@pytest.mark.parametrize("score", [0.5, float("nan")])
def test_a_report_shows_the_confusions_of_any_number_of_labels(finetuning_run, number, score):
    labels = [f"label {n}" for n in range(number)]
    examples = kb.TextExamples(texts=["a"] * number, labels=labels)
    found = kb.Classification(labels[0], score, {labels[0]: score}, (labels[0],))
    confusion = Confusion.of(labels, labels[:1] * number, labels)  # one label for all examples
    errors = [Mistake("1", "a", labels[-1], labels[0], score)]
    evaluation = Evaluation("classify", {}, [found] * number, errors, confusion, number)
    lines = (finetuning_run / "report.jsonl").read_text().splitlines()
    recorder = RunRecorder(RunFolder(finetuning_run))
    recorder.add(20, lambda: record_of(evaluation, examples))
    recorder.write(20)
    page = (finetuning_run / "report.html").read_text()
    assert ("Confusion matrix" in page) == (number <= 12)
    assert ("Most frequent confusions" in page) == (number > 12)
    wrong = number - 1 if number <= 12 else 0
    assert page.count('<td class="off" style="--share: 1.0">') == wrong
    assert (">nan<" in page) == np.isnan(score)
    assert len(lines) + 1 == len((finetuning_run / "report.jsonl").read_text().splitlines())


def test_a_report_of_right_predictions_has_no_confusions(finetuning_run):
    labels = [f"label {n}" for n in range(13)]
    confusion = Confusion.of(labels, labels, labels)
    evaluation = Evaluation("tag", {"f1": float("nan")}, [], [], confusion, 0)
    recorder = RunRecorder(RunFolder(finetuning_run))
    recorder.add(20, lambda: record_of(evaluation, kb.WordExamples(words=[], labels=[])))
    assert "Most frequent confusions" not in kb.run_report(finetuning_run).html


def test_a_line_that_a_killed_process_left_incomplete_is_skipped(pretraining_run):
    run = pretraining_run("killed")
    whole = kb.run_report(run).html
    for name in ("metrics.jsonl", "report.jsonl"):
        with open(run / name, "a") as file:
            file.write('{"step": 15')
    assert kb.run_report(run).html == whole


def test_values_are_spread_evenly():
    assert spread(range(5), 5) == [0, 1, 2, 3, 4]
    assert spread(range(101), 5) == [0, 25, 50, 75, 100]


def test_wrong_folders_are_named(pretraining_run, tmp_path):
    run = pretraining_run("a")
    with pytest.raises(ValueError, match=r"must be the folder of a run.*in 'metrics.jsonl'"):
        kb.run_report(tmp_path)
    with pytest.raises(ValueError, match="`run_dir` must be a path. Received: run_dir=3"):
        kb.run_report(3)
    (run / "run.yaml").write_text("a: b: c")
    with pytest.raises(ValueError, match=r"run\.yaml' is not a YAML file"):
        kb.run_report(run)


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
    recorder.add_start(3, {"data": {"tokens": 5}})
    [line] = (tmp_path / "report.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record.pop("time") > 1e9
    assert record == {"step": 3, "machine": machine(), "data": {"tokens": 5}}
    assert {"processor", "accelerators", "keras", "tensorflow", "python"} <= machine().keys()
