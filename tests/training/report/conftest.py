"""Run folders as `pretrain` and `finetune` write them, without training."""

import json

import pytest

SCRIPT = "<script>alert(1)</script>"
MACHINE = {"processor": "a processor, 2 cores", "keras": "3.15.1"}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def pretraining_run(tmp_path):
    """Return a function that writes a run with three evaluations, of which the second is best."""

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
    """Return the folder of a run with two epochs, of which the second is best."""
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
    seen = {"samples": [sample], "errors": [error], "confusion": confusion, "sequences/s": 50.0}
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
