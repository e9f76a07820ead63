"""A stopped run resumes exactly: it ends in the state of an unbroken run, bit for bit."""

import hashlib
import json
import re
import shutil
import signal
import types

import numpy as np
import pytest

from keras_bert_d2l.checkpoints.adapters import load_adapter
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training import loop
from keras_bert_d2l.training.pretraining import data, trainer
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from keras_bert_d2l.training.report.report import Run
from keras_bert_d2l.training.run import callbacks
from keras_bert_d2l.training.run.callbacks import Throughput, TrainingInterrupted
from tests.nightly import nightly_except
from tests.training.conftest import CONFIG, AfterSteps, kept, press_ctrl_c, without_speed

TWO_BLOCKS = BERTConfig.from_dict({**CONFIG.to_dict(), "num_blks": 2})
RUNS = {
    "float16, short rows": {
        "precision": "mixed_float16",
        "short_steps": 2,
        "short_len": 12,
        "bert_config": CONFIG,
    },
    "packed": {
        "rows": "packed",
        "batch_size": 16,
        "objective": "sop",
        "short_seq_prob": 0.8,
        "masking": "whole_word",
        "micro_batches": 2,
    },
    "modern, causal": {
        "recipe": "modern",
        "precision": "mixed_bfloat16",
        "causal_steps": 2,
        "objective": "none",
        "masking": "ngram",
        "remat": "blocks",
    },
    "bucketed": {
        "rows": "bucketed",
        "schedule": "cosine",
        "masking": "span",
        "mask_replace_prob": 1.0,
    },
}


RUNS["float16, short rows, eagerly"] = RUNS["float16, short rows"]
RUNS["bfloat16, replaced tokens"] = {
    "objective": "rtd",
    "generator_embeddings": "disentangled",
    "precision": "mixed_bfloat16",
    "rows": "packed",
    "micro_batches": 2,
}
RUNS["replaced tokens, eagerly"] = {"objective": "rtd", "generator_width": 1.0}


DAILY = ["float16, short rows, eagerly"]


def state_of(run):
    """Return checksums of the saved state: all variables, the progress and the best step."""
    names = {path.name for path in (run / "last").glob("*.safetensors")} | {"training_state.json"}
    assert names >= {"model.safetensors", "optimizer.safetensors", "variables.safetensors"}
    return {x: hashlib.sha256((run / "last" / x).read_bytes()).hexdigest() for x in names}


def samples_of(run):
    """Return the recorded predictions by step."""
    return {step: record["samples"] for step, record in Run(run).evaluations.items()}


def assert_same_run(run, metrics, other, other_metrics):
    assert state_of(run) == state_of(other)
    assert without_speed(metrics) == without_speed(other_metrics)
    assert samples_of(run) == samples_of(other)


def resume(run):
    return pretrain(None, run, resume=True, verbose=0).metrics


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished run that a test may change."""
    return shutil.copytree(finished.run, tmp_path / "copy")


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly_except(DAILY, RUNS))
def test_a_run_resumes_exactly_in_its_first_or_last_phase(
    name, text, options, tmp_path, monkeypatch, request
):
    if "eagerly" in name:
        request.getfixturevalue("eager")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    given = {**options, "steps": 4, "evaluate_every": 2, "bert_config": TWO_BLOCKS, **RUNS[name]}
    monkeypatch.setattr(loop, "_SAVE_SECONDS", 0.0)  # save every step
    step = 1 if "short_steps" in given else 3
    expected = pretrain(text, whole, callbacks=[kept(whole, stopped, step)], **given).metrics
    saved = json.loads((stopped / "last/training_state.json").read_text())["step"]
    assert saved == (2 if "recipe" in given else step)  # the recipe evaluates after each step
    if "rows" in given:
        with pytest.raises(ValueError, match=f"rows='{given['rows']}' and resumes with its own"):
            pretrain(None, stopped, resume=True, rows="padded")
    assert_same_run(stopped, resume(stopped), whole, expected)
    if "recipe" in given:  # the same call works again, although the architecture has changed
        again = pretrain(text, whole, resume=True, **given)
        assert again.model.bert_config.dropout == 0.0


@pytest.mark.long
def test_a_killed_process_resumes_exactly(finished, text, options, tmp_path, fresh_process):
    run = tmp_path / "run"
    code = """
        import json, os, signal, sys
        import keras
        from keras_bert_d2l.training.pretraining.pretrain import pretrain

        class Kill(keras.callbacks.Callback):
            steps = 0

            def on_train_batch_end(self, batch, logs=None):
                self.steps += 1
                if self.steps == 5:
                    os.kill(os.getpid(), signal.SIGKILL)

        pretrain(sys.argv[1], sys.argv[2], callbacks=[Kill()], **json.loads(sys.argv[3]))
    """
    files = {"vocab": finished.run / "vocab.txt", "bert_config": finished.run / "config.json"}
    with pytest.raises(pytest.fail.Exception, match=f"exited with -{signal.SIGKILL.value}"):
        fresh_process(code, text, run, json.dumps({**options, **files}, default=str))
    assert_same_run(run, resume(run), finished.run, finished.result.metrics)


@pytest.mark.long
def test_lora_trains_an_adapter_and_a_stopped_run_resumes_exactly(
    finished, eager, text, options, tmp_path, monkeypatch
):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    ours = {k: v for k, v in options.items() if k not in ("vocab", "bert_config")}
    ours |= {"init": finished.run, "lora": 2, "lora_layers": "W_q,dense1", "steps": 3}
    monkeypatch.setattr(loop, "_SAVE_SECONDS", 0.0)  # save every step
    model = pretrain(text, whole, callbacks=[kept(whole, stopped, 2)], **ours).model
    base = load_pretrained(finished.run).model
    np.testing.assert_array_equal(
        model.encoder.blks[0].attention.W_q._kernel, base.encoder.blks[0].attention.W_q.kernel
    )
    load_adapter(base, whole / "adapter")
    base.merge_lora()
    best = load_pretrained(whole).model
    for weight, merged in zip(base.weights, best.weights, strict=True):
        np.testing.assert_allclose(weight, merged, atol=1e-6)
    resume(stopped)
    assert state_of(stopped) == state_of(whole)
    adapters = [run / "adapter/adapter_model.safetensors" for run in (whole, stopped)]
    assert adapters[0].read_bytes() == adapters[1].read_bytes()


@pytest.mark.long
def test_short_rows_and_high_mask_rates_train_first(text, options, tmp_path, monkeypatch):
    given = {**options, "steps": 8, "evaluate_every": 2, "short_steps": 4, "short_len": 12}
    given |= {"mask_rate": 0.4, "final_mask_rate": 0.1}
    datasets = []

    def recorded(*arguments, masking, **given):
        datasets.append((given["max_len"], round(masking.rate, 2), given["first_step"]))
        return pretraining_dataset(*arguments, masking=masking, **given)

    monkeypatch.setattr(data, "pretraining_dataset", recorded)
    metrics = pretrain(text, tmp_path / "whole", **given).metrics
    assert [figures["step"] for figures in metrics] == [0, 2, 4, 6, 8]
    lengths = [round(one["tokens/s"] / one["sequences/s"]) for one in metrics[1:]]
    assert lengths == [12, 12, 24, 24]
    held_out = [(12, 0.15, 0), (24, 0.15, 0)]  # made once per length, used at every evaluation
    training = [(12, 0.4, 0), (12, 0.3, 2), (24, 0.2, 4), (24, 0.1, 6)]
    assert [one for one in datasets if one in held_out][-2:] == held_out
    assert [one for one in datasets if one in training][-4:] == training


@pytest.mark.long
def test_causal_steps_have_metrics_of_their_own(text, options, tmp_path):
    given = {**options, "steps": 6, "causal_steps": 3, "objective": "none", "evaluate_every": 2}
    whole = pretrain(text, tmp_path / "whole", **given)
    for metrics in whole.metrics[1:]:
        assert ("next_token_accuracy" in metrics) == (metrics["step"] <= 3)
        assert ("mlm_accuracy" in metrics) == (metrics["step"] > 3)


@pytest.mark.long
def test_a_run_takes_its_minutes_and_resumes_exactly(text, options, tmp_path, monkeypatch, capsys):
    clock, count = types.SimpleNamespace(now=0.0), Throughput.on_train_batch_end
    clock.monotonic = clock.perf_counter = lambda: clock.now

    def slow(self, batch, logs=None):
        clock.now += 1.0
        count(self, batch, logs)

    monkeypatch.setattr(Throughput, "on_train_batch_end", slow)
    for module in (trainer, callbacks):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(trainer, "_EVALUATION_COST", 0.01)  # evaluate ten times
    ours = {k: v for k, v in options.items() if k not in ("steps", "evaluate_every")}
    ours |= {"minutes": 1, "short_steps": 0.5, "short_len": 12, "verbose": 2}
    whole = pretrain(text, tmp_path / "whole", **ours)
    out = capsys.readouterr().out
    budget = r"Budget: 1 minutes are about \d\d steps \(1\.0 per second\), [\d,]+ tokens and "
    assert re.search(budget + r"[\d.]+ epochs\n", out)
    assert 55 <= clock.now <= 65
    assert 50 <= whole.metrics[-1]["step"] <= 60
    rates = [figures["learning_rate"] for figures in whole.metrics[1:]]
    assert (max(rates) > 0.005, rates[-1] < 0.001) == (True, True)
    clock.now = 0.0
    with pytest.raises(TrainingInterrupted, match=r"Stopped at step 18/\d\d;"):
        pretrain(text, tmp_path / "run", callbacks=[AfterSteps(7, press_ctrl_c)], **ours)
    clock.now += 1000
    assert_same_run(tmp_path / "run", resume(tmp_path / "run"), tmp_path / "whole", whole.metrics)


@pytest.mark.long
def test_ctrl_c_while_the_speed_is_measured_stops_the_run(text, options, tmp_path, monkeypatch):
    count = Throughput.on_train_batch_end

    def stopped(self, batch, logs=None):
        count(self, batch, logs)
        if batch == 2:
            press_ctrl_c()

    ours = {k: v for k, v in options.items() if k not in ("steps", "evaluate_every")}
    with monkeypatch.context() as patch:
        patch.setattr(Throughput, "on_train_batch_end", stopped)
        with pytest.raises(TrainingInterrupted, match="Stopped at step 0;"):
            pretrain(text, tmp_path / "run", minutes=0.1, **ours)
    assert resume(tmp_path / "run")[-1]["step"] > 10


@pytest.mark.slow
def test_resuming_a_finished_run_reports_it_and_returns_the_model(finished, copy, text, capsys):
    result = pretrain(None, copy, resume=True, verbose=2)
    assert "is finished" in capsys.readouterr().out
    assert state_of(copy) == state_of(finished.run)
    assert result.metrics == finished.result.metrics


@pytest.mark.slow
def test_a_run_cannot_be_resumed_with_different_options(finished, tmp_path):
    for option, value in {
        "steps": 8,
        "learning_rate": 0.5,
        "vocab_size": 53,
        "precision": "mixed_bfloat16",
        "vocab": Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]),
        "bert_config": BERTConfig(53, 8, 16, 2, 1, 0.5, 24),
        "init": "elsewhere",
    }.items():
        with pytest.raises(ValueError, match=f"has {option}=.*Received: {option}="):
            pretrain(None, finished.run, resume=True, verbose=0, **{option: value})
    with pytest.raises(ValueError, match=r"has corpus=.*topics\.txt.*Received: corpus=.*other"):
        pretrain(tmp_path / "other.txt", finished.run, resume=True, verbose=0)


@pytest.mark.slow
def test_a_run_whose_text_or_store_has_changed_cannot_be_resumed(finished, text, tmp_path):
    run = shutil.copytree(finished.killed, tmp_path / "run")
    changing = shutil.copy(text, tmp_path / "changing.txt")
    recorded = (run / "run.yaml").read_text()
    (run / "run.yaml").write_text(recorded.replace(str(text), str(changing)))
    write_checksums(run)
    with open(changing, "a", encoding="utf-8") as file:
        file.write("\na0 a1 a2\n")
    with pytest.raises(ValueError, match="was started with text="):
        resume(run)


@pytest.mark.slow
def test_a_folder_with_a_run_or_without_one_is_told_apart(finished, text, options, tmp_path):
    with pytest.raises(FileExistsError, match=r"already contains a run at step 7\. Resume it"):
        pretrain(text, finished.run, **options)
    with pytest.raises(FileNotFoundError, match=r"does not contain a run to resume.*run\.yaml"):
        pretrain(None, tmp_path, resume=True)
