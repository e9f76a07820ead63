"""Fine-tuning of a model in memory."""

import dataclasses
import functools
import json
import signal

import keras
import numpy as np
import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import find_checkpoint
from keras_bert_d2l.files import read_checksums, verify_checksums, write_checksums
from keras_bert_d2l.inference.evaluation import evaluate
from keras_bert_d2l.models.tasks.task_model import TaskModel
from keras_bert_d2l.tasks.classify.model import SequenceClassifier
from keras_bert_d2l.text.vocab import GOOGLE_SPECIALS
from keras_bert_d2l.training.finetuning import data
from keras_bert_d2l.training.finetuning.finetune import finetune
from keras_bert_d2l.training.finetuning.trainer import FinetuningProgress
from keras_bert_d2l.training.run.callbacks import TrainingInterrupted
from keras_bert_d2l.training.run.run_folder import tuned_null_threshold

WORDS = [f"w{n}" for n in range(15)]
TOKENIZER = kb.Tokenizer(kb.Vocab([*GOOGLE_SPECIALS, *WORDS]))
CONFIG = kb.BERTConfig(20, 8, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=8)
OPTIONS = {"epochs": 3, "learning_rate": 2e-2, "batch_size": 8, "verbose": 0}
FOURS = {**OPTIONS, "epochs": 2, "batch_size": 4}


@pytest.fixture(autouse=True)
def no_graphs(monkeypatch, request):
    """Run eagerly, because building a graph takes longer than training. One case uses a graph.

    JAX compiles in any case.
    """
    if "graph" not in request.node.name and keras.backend.backend() == "tensorflow":
        eager = functools.partialmethod(TaskModel.compile, run_eagerly=True)
        monkeypatch.setattr(TaskModel, "compile", eager)


def make_model(labels=("low", "high"), dropout=0.2, **changes):
    keras.utils.set_random_seed(0)
    bert = kb.BERTModel.from_bert_config(dataclasses.replace(CONFIG, **changes))
    return SequenceClassifier(bert, labels, dropout=dropout, tokenizer=TOKENIZER)


def make_examples(size=16, seed=0):
    """Return texts that are labeled by their second word."""
    rows = np.random.default_rng(seed).integers(0, len(WORDS), (size, 6))
    texts = [" ".join(WORDS[n] for n in row) for row in rows]
    return kb.TextExamples(texts=texts, labels=["high" if row[1] > 7 else "low" for row in rows])


TRAIN, DEV = make_examples(), make_examples(8, seed=1)
BATCH = TOKENIZER(list(DEV.texts))


def weights_of(model):
    return [weight.numpy() for weight in model.weights]


@pytest.mark.slow
def test_the_best_epoch_is_kept_returned_and_reported(tmp_path, monkeypatch):
    values = iter([0.1, 0.5, 0.9, 0.7])  # the first is for a check before training
    seen = []

    def score(model, *examples, **options):
        seen.append(weights_of(model))
        found = evaluate(model, *examples, **options)
        return dataclasses.replace(found, metrics={"f1": next(values)})

    monkeypatch.setattr(data, "evaluate", score)
    model, metrics = finetune(
        make_model(), TRAIN, DEV, tmp_path / "run", monitor="val_f1", **OPTIONS
    )
    assert (metrics["best_epoch"], metrics["best"]["val_f1"]) == (2, 0.9)
    assert [figures["step"] for figures in metrics["history"]] == [2, 4, 6]
    for weight, best in zip(model.weights, seen[2], strict=True):
        np.testing.assert_array_equal(weight, best)
    assert json.loads((tmp_path / "run/metrics.json").read_text()) == metrics
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["val_f1"] for line in lines] == [0.5, 0.9, 0.7]
    best = kb.load_pretrained(tmp_path / "run/best").model
    np.testing.assert_array_equal(best(BATCH), model(BATCH))


@pytest.mark.long
def test_a_model_that_predicts_a_single_label_is_reported(tmp_path, capsys):
    model = make_model()
    model.head.bias.assign([0.0, 9.0])
    options = {**OPTIONS, "verbose": 2, "epochs": 1}
    result = finetune(model, TRAIN, DEV, tmp_path / "run", **options)
    warning = result.metrics["warning"]
    assert "predicts 'high' in all 8 cases, although there are 2 different labels" in warning
    printed = " ".join(capsys.readouterr().out.split())
    assert f"Warning: {warning}" in printed
    assert json.loads((tmp_path / "run/metrics.json").read_text())["warning"] == warning
    assert list(read_checksums(tmp_path / "run")) == ["metrics.json"]
    verify_checksums(tmp_path / "run")


class PressCtrlC(keras.callbacks.Callback):
    def __init__(self, at_batch, times=1):
        super().__init__()
        self.at_batch = at_batch
        self.times = times

    def on_train_batch_end(self, batch, logs=None):
        self.at_batch -= 1
        if self.at_batch == 0:
            for _ in range(self.times):
                signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["eagerly", pytest.param("in a graph", marks=pytest.mark.long)])
def test_a_run_resumes_exactly_after_ctrl_c_within_an_epoch(how, tmp_path):
    given = FOURS
    finetune(make_model(), TRAIN, DEV, tmp_path / "whole", **given)
    options = {**given, "callbacks": [PressCtrlC(5)]}
    with pytest.raises(TrainingInterrupted, match="epoch 2/2, step 2/4; the state is"):
        finetune(make_model(), TRAIN, DEV, tmp_path / "run", **options)
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1
    finetune(make_model(), TRAIN, DEV, tmp_path / "run", resume=True, **given)
    for file in (
        "metrics.json",
        "metrics.jsonl",
        "last/variables.safetensors",
        "last/optimizer.safetensors",
        "last/training_state.json",  # includes the points of the learning curve
    ):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    changed = {**given, "learning_rate": 1.0}
    message = r"was started with learning_rate=0\.02.*Received: learning_rate=1"
    with pytest.raises(ValueError, match=message):
        finetune(make_model(), TRAIN, DEV, tmp_path / "run", resume=True, **changed)
    other = {"labels": ["low", "high", "mid"], "dropout": 0.5, "activation": "gelu"}
    for name, value in other.items():
        model = make_model(**{name: value})
        with pytest.raises(ValueError, match="was started with (model|task)="):
            finetune(model, TRAIN, DEV, tmp_path / "run", resume=True, **given)
    with pytest.raises(FileExistsError, match="resume=True"):
        finetune(make_model(), TRAIN, DEV, tmp_path / "run", **given)


@pytest.mark.long
def test_after_a_second_ctrl_c_the_run_resumes_from_the_last_save(tmp_path, monkeypatch):
    options = FOURS
    finetune(make_model(), TRAIN, DEV, tmp_path / "whole", **options)
    pressing = {**options, "callbacks": [PressCtrlC(3, times=2)]}
    with monkeypatch.context() as patch:
        patch.setattr("keras_bert_d2l.training.loop._SAVE_SECONDS", 0.0)  # save every step
        with pytest.raises(KeyboardInterrupt):
            finetune(make_model(), TRAIN, DEV, tmp_path / "run", **pressing)
    saved = json.loads((tmp_path / "run/last/training_state.json").read_text())
    assert (saved["step"], saved["batch"], saved["history"]) == (3, 3, [])
    finetune(make_model(), TRAIN, DEV, tmp_path / "run", resume=True, **options)
    for file in ("metrics.json", "last/variables.safetensors"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.long
def test_a_run_has_no_checkpoint_before_the_end_of_its_first_epoch(tmp_path):
    run, options = tmp_path / "run", {**FOURS, "epochs": 1}
    with pytest.raises(TrainingInterrupted):
        finetune(make_model(), TRAIN, DEV, run, **options, callbacks=[PressCtrlC(2)])
    (run / "run.yaml").write_text("task: classify\n")
    with pytest.raises(FileNotFoundError, match=r"no checkpoint yet.*Resume it first"):
        find_checkpoint(run)
    (run / "run.yaml").unlink()
    finetune(make_model(), TRAIN, DEV, run, resume=True, **options)
    assert find_checkpoint(run) == run / "best"
    assert find_checkpoint(run / "best") == run / "best"


def test_the_tuned_null_threshold_comes_from_the_best_epoch(tmp_path):
    assert tuned_null_threshold(tmp_path) is None
    for best, expected in (
        (None, None),
        ({"val_f1": 0.5}, None),
        ({"val_f1": 0.5, "val_null_threshold": -2.5}, -2.5),
    ):
        (tmp_path / "metrics.json").write_text(json.dumps({"best": best}))
        assert tuned_null_threshold(tmp_path) == expected
    write_checksums(tmp_path)
    (tmp_path / "metrics.json").write_text('{"best": {"val_null_threshold": 2.5}}')
    with pytest.raises(ValueError, match=r"metrics\.json' has changed"):
        tuned_null_threshold(tmp_path)


@pytest.mark.long
def test_ctrl_c_at_the_end_of_an_epoch_stops_after_its_evaluation(tmp_path):
    options = {**FOURS, "callbacks": [PressCtrlC(4)]}
    with pytest.raises(TrainingInterrupted, match="epoch 2/2, step 0/4;"):
        finetune(make_model(), TRAIN, DEV, tmp_path / "run", **options)
    saved = json.loads((tmp_path / "run/last/training_state.json").read_text())
    assert (saved["batch"], len(saved["history"])) == (0, 1)


def test_patience_ends_a_run_that_stops_improving():
    state, is_over = FinetuningProgress(monitor="val_error"), []
    for error in (3.0, 2.0, 2.5, 1.0):
        state.add_epoch({"val_error": error})
        is_over.append(state.is_over(epochs=5, patience=1))
    assert is_over == [False, False, True, False]
    assert [state.is_over(epochs, patience=None) for epochs in (4, 5)] == [True, False]


@pytest.mark.slow
def test_an_unknown_monitor_is_rejected_before_training(tmp_path):
    run, options = tmp_path / "run", {**OPTIONS, "monitor": "val_f2"}
    with pytest.raises(ValueError, match=r"`monitor` must be one of .*Received.*val_f2"):
        finetune(make_model(), TRAIN, DEV, run, **options)
    assert not run.exists()


class StopTraining(keras.callbacks.Callback):
    """Ends training after a batch of an epoch, or after the epoch."""

    def __init__(self, epoch, batch=None):
        super().__init__()
        self.place = (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = self.place == (self.epoch, batch)

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = self.model.stop_training or self.place == (epoch, None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("callback", "steps", "resumed"),
    [(StopTraining(0, 1), [2], [2, 6, 10]), (StopTraining(1), [4, 8], [4, 8, 12])],
)
def test_a_run_ended_by_a_callback_can_be_resumed(callback, steps, resumed, tmp_path, capsys):
    options = {**FOURS, "epochs": 3, "verbose": 2}
    run = tmp_path / "run"
    model, metrics = finetune(make_model(), TRAIN, DEV, run, callbacks=[callback], **options)
    assert [figures["step"] for figures in metrics["history"]] == steps
    assert f"ended the run after epoch {len(steps)} of 3." in capsys.readouterr().out
    assert len((run / "metrics.jsonl").read_text().splitlines()) == len(steps)
    best = kb.load_pretrained(run / "best").model
    np.testing.assert_array_equal(best(BATCH), model(BATCH))
    _, metrics = finetune(make_model(), TRAIN, DEV, run, resume=True, **options)
    assert [figures["step"] for figures in metrics["history"]] == resumed


@pytest.mark.slow
def test_diverging_training_is_reported(tmp_path):
    options = {
        **OPTIONS,
        "learning_rate": 1e30,
        "epochs": 1,
        "warmup_ratio": 0.0,
        "monitor": "val_loss",
    }
    with pytest.raises(FloatingPointError, match="diverged at step .*: the .*loss is nan"):
        finetune(make_model(), TRAIN, DEV, tmp_path / "run", **options)
    assert not (tmp_path / "run/best").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1.5}, "`epochs`"),
        ({"class_weights": {"x": 1.0}}, "`class_weights`"),
        ({"learning_rates": 1}, "Unknown option 'learning_rates'"),
    ],
)
def test_options_out_of_range_are_rejected(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        finetune(make_model(), TRAIN, DEV, tmp_path / "run", **{**OPTIONS, **options})


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [False, True])
def test_layer_decay_lowers_the_learning_rate_of_lower_layers(is_shared):
    fields = {"num_heads": 2, "num_blks": 2, "dropout": 0.0, "max_len": 8}
    config = kb.BERTConfig(20, 8, 12, **fields, shared_blocks=is_shared, embedding_width=6)
    model = SequenceClassifier(kb.BERTModel.from_bert_config(config), ["low", "high"])
    variables = model.trainable_variables
    before = {v.path: v.numpy() for v in variables}
    optimizer = kb.BERTAdamW(1.0, weight_decay=0.0, epsilon=1e-12, clip_norm=None, layer_decay=0.5)
    optimizer.apply([np.ones(v.shape, "float32") for v in variables], variables)
    steps = {v.path: float((before[v.path] - v.numpy()).mean()) for v in variables}
    expected = {
        "embeddings": 0.125,
        "pos_embedding": 0.125,
        "blk_0/": 0.25,
        "blk_1/": 0.5,
        "pooler/": 1.0,
        "head/": 1.0,
    }
    if is_shared:  # one block is one layer, whatever the number of its uses
        expected |= {"embeddings": 0.25, "pos_embedding": 0.25, "blk_0/": 0.5}
    for path, step in steps.items():
        path = path.replace("embedding_projection", "embeddings")
        (share,) = {value for part, value in expected.items() if part in path}
        assert step == pytest.approx(share, rel=1e-4), path
    assert kb.BERTAdamW.from_config(optimizer.get_config()).layer_decay == 0.5
    with pytest.raises(ValueError, match="`layer_decay`"):
        kb.BERTAdamW(layer_decay=1.5)


def test_ties_between_epochs_go_to_the_lower_loss():
    state = FinetuningProgress(monitor="val_f1")
    epochs = [(0.5, 0.7), (0.5, 0.6), (0.5, 0.6), (0.5, None), (None, 0.1), (0.4, 0.2)]
    better = [state.add_epoch({"val_f1": f1, "val_loss": loss}) for f1, loss in epochs]
    assert better == [True, True, False, False, False, False]
    assert state.best_epoch == 2


@pytest.mark.parametrize("monitor", ["val_loss", "val_error", "val_cross_entropy"])
def test_lower_errors_and_losses_are_better(monitor):
    state = FinetuningProgress(monitor=monitor)
    better = [state.add_epoch({monitor: x}) for x in (1.0, 2.0, 1.0, 0.5)]
    assert better == [True, False, False, True]


@pytest.mark.long
def test_the_best_epoch_is_calibrated_also_after_a_resumed_run(tmp_path, capsys):
    dev = make_examples(64, seed=2)
    labels = [*dev.labels[1:], dev.labels[0]]  # which the words do not tell
    dev = dataclasses.replace(dev, labels=tuple(labels))
    options = {**OPTIONS, "epochs": 2, "verbose": 1}
    model, metrics = finetune(make_model(), TRAIN, dev, tmp_path / "run", **options)
    found, loaded = metrics["calibration"], kb.load_pretrained(tmp_path / "run").model
    assert loaded.temperature == model.temperature == found["temperature"] != 1
    after = evaluate(loaded, dev)
    assert after.metrics["accuracy"] == metrics["best"]["val_accuracy"]
    before, cross_fitted = found["expected_calibration_error"]
    assert before == pytest.approx(metrics["best"]["val_expected_calibration_error"])
    told = f"Temperature {model.temperature:.3f}: expected calibration error {cross_fitted:.4f}"
    assert f"{told} instead of {before:.4f}." in capsys.readouterr().out
    assert f"temperature {model.temperature:.3f}" in (tmp_path / "run/report.html").read_text()
    best = json.loads((tmp_path / "run/report.jsonl").read_text().splitlines()[-2])
    scores = [one["answers"][0][1] for one in best["samples"]]
    assert scores[0] == after.predictions[0].score  # those of the best epoch are calibrated, too
    resumed = finetune(loaded, TRAIN, dev, tmp_path / "run", resume=True, **options)
    assert resumed.metrics["calibration"] == found
