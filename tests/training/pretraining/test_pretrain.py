import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import types

import keras
import numpy as np
import pytest
import safetensors.numpy

from keras_bert_d2l.checkpoints.adapters import load_adapter
from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.data.store.building import build_store
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.inference.heads import fill_mask
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training.pretraining import rows, trainer
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from keras_bert_d2l.training.report.report import run_report
from keras_bert_d2l.training.report.run import Run
from keras_bert_d2l.training.run import callbacks
from keras_bert_d2l.training.run.callbacks import Throughput
from keras_bert_d2l.training.run.interruption import TrainingInterrupted

STATE = ("model.safetensors", "optimizer.safetensors", "training_state.json")


def digests(run):
    """Return checksums of the complete training state: weights, optimizer, step, dropout seeds."""
    return {name: hashlib.sha256((run / "last" / name).read_bytes()).hexdigest() for name in STATE}


def without_speed(metrics):
    """Return the metrics that do not depend on time."""
    return [{k: v for k, v in line.items() if not k.endswith("/s")} for line in metrics]


class AfterSteps(keras.callbacks.Callback):
    """Calls `action` after a number of steps in this process."""

    def __init__(self, steps, action):
        super().__init__()
        self.steps = steps
        self.action = action

    def on_train_batch_end(self, batch, logs=None):
        self.steps -= 1
        if self.steps == 0:
            self.action()


def fail():
    raise ConnectionError("the power went")


def samples_of(run):
    """Return the recorded predictions by step."""
    evaluations = Run.read(run).evaluations
    return {step: record["samples"] for step, record in evaluations.items()}


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def finished(text, options, tmp_path_factory):
    """An uninterrupted run: its folder and the result of `pretrain`."""
    run = tmp_path_factory.mktemp("finished") / "run"
    return run, pretrain(text, run, **options)


@pytest.fixture
def copy(finished, tmp_path):
    """A copy of the finished run that a test may change."""
    return shutil.copytree(finished[0], tmp_path / "copy")


@pytest.mark.slow
def test_the_run_folder_contains_all_files_of_the_run(finished):
    run, _ = finished
    assert {path.name for path in run.iterdir()} == {
        "run.yaml",
        "config.json",
        "vocab.txt",
        "best",
        "last",
        "metrics.jsonl",
        "report.html",
        "report.jsonl",
        "tensorboard",
        "SHA256SUMS",
    }


@pytest.mark.slow
def test_the_run_folder_records_vocabulary_architecture_and_options(finished, options):
    run, _ = finished
    assert Vocab.from_file(run / "vocab.txt") == options["vocab"]
    assert BERTConfig.from_json(run / "config.json") == options["bert_config"]
    recorded = PretrainingOptions.read_yaml(run / "run.yaml")
    assert recorded["steps"] == 7
    assert recorded["warmup_steps"] == 0.1
    assert recorded["vocab"] == str(run / "vocab.txt")


@pytest.mark.slow
def test_the_report_has_the_main_measurements_of_the_text(finished):
    run, _ = finished
    first, *_ = (run / "report.jsonl").read_text().splitlines()
    data = json.loads(first)["data"]
    assert (data["documents"], data["duplicate documents"]) == (36, "0.0%")
    assert data["unknown words"] == f"0.000% of {data['tokens']:,} tokens"
    assert data["tokens per sentence"] == data["tokens"] / data["sentences"]
    assert all(name in (run / "report.html").read_text() for name in data)


@pytest.mark.slow
def test_the_last_checkpoint_is_the_returned_model(finished):
    run, result = finished
    loaded = load_pretrained(run / "last")
    for stored, returned in zip(
        loaded.model.get_weights(), result.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(stored, returned)
    assert loaded.tokenizer.vocab == result.tokenizer.vocab
    assert loaded.model.tokenizer is loaded.tokenizer
    assert result.model.tokenizer is result.tokenizer


@pytest.mark.slow
def test_metrics_are_written_before_the_first_step_and_after_each_interval(finished):
    run, result = finished
    assert [figures["step"] for figures in result.metrics] == [0, 3, 6, 7]
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 4
    heads = [
        f"{head}_{metric}" for head in ("mlm", "nsp") for metric in ("accuracy", "cross_entropy")
    ]
    assert {"loss", "val_loss", "learning_rate", "sequences/s", *heads} <= result.metrics[-1].keys()
    assert {f"val_{name}" for name in heads} <= result.metrics[0].keys()
    assert "gradient_norm" not in result.metrics[0]
    assert all(0 < metrics["gradient_norm"] < 100 for metrics in result.metrics[1:])


@pytest.mark.slow
def test_predictions_for_masked_words_of_held_out_text_are_recorded(finished, text):
    run, _ = finished
    samples = samples_of(run)
    assert list(samples) == [0, 3, 6, 7]
    loaded = load_pretrained(run / "last").model
    for sample in samples[7]:
        sentence = f"{sample['text']} {sample['gold']} {sample['after']}".strip()
        assert sentence in text.read_text()
        masked = f"{sample['text']} [MASK] {sample['after']}"
        [expected] = fill_mask(loaded, masked, top_k=3)
        assert [token for token, _ in sample["answers"]] == [one.token for one in expected]
        np.testing.assert_allclose(
            [score for _, score in sample["answers"]], [one.score for one in expected], atol=1e-4
        )
    assert (run / "report.html").read_text() == run_report(run).html


@pytest.mark.slow
def test_held_out_metrics_cover_the_whole_held_out_split(finished, text, options):
    _, (model, tokenizer, metrics) = finished
    held_out = pretraining_dataset(
        Corpus.open(text, layout="lines"),
        tokenizer,
        batch_size=options["batch_size"],
        max_len=options["max_len"],
        split="held_out",
        held_out=options["held_out"],
        drop_remainder=False,
        cache_dir=options["cache_dir"],
    )
    figures = model.evaluate(held_out, verbose=0, return_dict=True)
    for name in ("mlm_cross_entropy", "mlm_accuracy", "nsp_cross_entropy", "nsp_accuracy"):
        assert metrics[-1][f"val_{name}"] == pytest.approx(figures[name], rel=1e-5)


@pytest.mark.slow
def test_the_best_checkpoint_has_the_lowest_held_out_loss(finished):
    run, result = finished
    losses = [m["val_mlm_cross_entropy"] + m["val_nsp_cross_entropy"] for m in result.metrics[1:]]
    is_last = min(losses) == losses[-1]
    weights = [(run / name / "model.safetensors").read_bytes() for name in ("best", "last")]
    assert (weights[0] == weights[1]) == is_last


@pytest.mark.slow
def test_a_different_seed_gives_different_weights(finished, text, options, tmp_path):
    other = pretrain(text, tmp_path / "other", **{**options, "steps": 1, "seed": 1})
    assert other.metrics[0]["val_loss"] != finished[1].metrics[0]["val_loss"]


@pytest.mark.slow
def test_training_learns_from_text(text, options, tmp_path):
    config = BERTConfig(len(options["vocab"]), 32, 64, num_heads=2, num_blks=1, dropout=0.0)
    longer = {"bert_config": config, "steps": 100, "evaluate_every": 100, "batch_size": 16}
    before, after = pretrain(text, tmp_path / "run", **{**options, **longer}).metrics
    # Each document has one of six topics, which narrows a masked word down from 53 words to 8.
    assert before["val_mlm_cross_entropy"] == pytest.approx(math.log(53), rel=0.03)
    assert after["val_mlm_cross_entropy"] < math.log(8) + 0.5


@pytest.mark.slow
def test_a_failed_run_resumes_exactly_including_the_loss_scale(text, options, tmp_path):
    run, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    options = {**options, "precision": "mixed_float16"}
    pretrain(text, undisturbed, **options)
    with pytest.raises(ConnectionError):
        pretrain(text, run, callbacks=[AfterSteps(5, fail)], **options)
    assert json.loads((run / "last" / "training_state.json").read_text())["step"] == 3
    result = pretrain(None, run, resume=True, verbose=0)
    assert digests(run) == digests(undisturbed)
    assert [figures["step"] for figures in result.metrics] == [0, 3, 6, 7]


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, 6], ids=["between evaluations", "before an evaluation"])
def test_ctrl_c_saves_after_the_step_and_the_run_resumes_from_there(
    step, finished, text, options, tmp_path
):
    run = tmp_path / "my run"
    message = rf"step {step} of 7.*pretrain --resume '.*my run'"
    with pytest.raises(TrainingInterrupted, match=message):
        pretrain(text, run, callbacks=[AfterSteps(step - 1, press_ctrl_c)], **options)
    assert json.loads((run / "last" / "training_state.json").read_text())["step"] == step
    result = pretrain(None, run, resume=True, verbose=0)
    assert digests(run) == digests(finished[0])
    assert without_speed(result.metrics) == without_speed(finished[1].metrics)
    assert samples_of(run) == samples_of(finished[0])


@pytest.mark.slow
def test_a_killed_run_resumes_exactly(finished, text, options, tmp_path, fresh_process):
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
    files = {"vocab": finished[0] / "vocab.txt", "bert_config": finished[0] / "config.json"}
    with pytest.raises(pytest.fail.Exception, match=f"exited with -{signal.SIGKILL.value}"):
        fresh_process(code, text, run, json.dumps({**options, **files}, default=str))
    result = pretrain(None, run, resume=True, verbose=0)
    assert digests(run) == digests(finished[0])
    assert [figures["step"] for figures in result.metrics] == [0, 3, 6, 7]


@pytest.mark.slow
def test_resuming_a_finished_run_reports_it_and_returns_the_model(copy, finished, capsys):
    before = digests(copy)
    result = pretrain(None, copy, resume=True, verbose=2)
    assert "is finished: 7 steps" in capsys.readouterr().out
    assert digests(copy) == before
    assert result.metrics == finished[1].metrics


@pytest.mark.long
def test_a_run_of_a_version_without_gradient_norms_resumes(finished, text, options, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(ConnectionError):
        pretrain(text, run, callbacks=[AfterSteps(5, fail)], **options)
    file = run / "last" / "optimizer.safetensors"
    variables = safetensors.numpy.load_file(file)
    del variables[str(len(variables) - 1)]
    safetensors.numpy.save_file(variables, file)
    write_checksums(run / "last")
    result = pretrain(None, run, resume=True, verbose=0)
    assert digests(run) == digests(finished[0])
    assert without_speed(result.metrics) == without_speed(finished[1].metrics)


@pytest.mark.slow
def test_a_run_can_be_resumed_with_the_same_options(copy, text, options):
    own = {k: v for k, v in options.items() if k not in ("vocab", "bert_config")}
    pretrain(text, copy, resume=True, **own)


@pytest.mark.slow
def test_a_run_resumes_with_the_architecture_that_its_options_have_changed(text, options, tmp_path):
    options = {**options, "recipe": "modern", "objective": "none", "steps": 2}
    assert options["bert_config"].dropout > 0  # 0 in the recipe
    pretrain(text, tmp_path / "run", **options)
    again = pretrain(text, tmp_path / "run", resume=True, **options)
    assert again.model.bert_config.dropout == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("steps", 8),
        ("learning_rate", 0.5),
        ("vocab_size", 53),
        ("precision", "mixed_bfloat16"),
        ("vocab", Vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])),
        ("bert_config", BERTConfig(53, 8, 16, 2, 1, 0.5, 24)),
        ("init", "elsewhere"),
    ],
)
def test_a_run_cannot_be_resumed_with_different_options(option, value, copy):
    with pytest.raises(ValueError, match=f"has {option}=.*Received: {option}="):
        pretrain(None, copy, resume=True, verbose=0, **{option: value})


@pytest.mark.slow
def test_a_run_cannot_be_resumed_with_a_different_text(copy, tmp_path):
    with pytest.raises(ValueError, match=r"has corpus=.*topics\.txt.*Received: corpus=.*other"):
        pretrain(tmp_path / "other.txt", copy, resume=True, verbose=0)


@pytest.mark.long
def test_a_run_whose_text_has_changed_cannot_be_resumed(text, options, tmp_path):
    changing = shutil.copy(text, tmp_path / "changing.txt")
    run = tmp_path / "run"
    pretrain(changing, run, **{**options, "steps": 1})
    with open(changing, "a", encoding="utf-8") as file:
        file.write("\na0 a1 a2\n")
    with pytest.raises(ValueError, match="has changed since it started"):
        pretrain(None, run, resume=True, verbose=0)


@pytest.mark.slow
def test_a_run_cannot_be_resumed_if_its_store_was_built_with_other_options(text, options, tmp_path):
    twice = tmp_path / "twice.txt"
    twice.write_text("\n".join([text.read_text()] * 2))
    corpus, tokenizer = Corpus.open(twice, layout="lines"), Tokenizer(options["vocab"])
    store, run = tmp_path / "store", tmp_path / "run"
    build_store(corpus, tokenizer, store)
    pretrain(store, run, **{**options, "layout": "auto", "steps": 1})
    shutil.rmtree(store)
    build_store(corpus, tokenizer, store, deduplicate=True)
    with pytest.raises(ValueError, match="token store was built with different options"):
        pretrain(None, run, resume=True, verbose=0)


@pytest.mark.slow
def test_a_new_run_does_not_overwrite_an_existing_run(copy, text, options):
    with pytest.raises(FileExistsError, match=r"already contains a run at step 7\. Resume it"):
        pretrain(text, copy, **options)


def test_a_run_folder_must_be_empty(text, options, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="Choose a new or empty folder"):
        pretrain(text, tmp_path, **options)
    with pytest.raises(FileExistsError, match="Choose a new or empty folder"):
        pretrain(text, tmp_path / "thesis.txt", **options)


@pytest.mark.long
def test_a_folder_whose_creation_was_interrupted_can_be_used_again(
    finished, text, options, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr(Vocab, "to_file", lambda *_: press_ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            pretrain(text, tmp_path / "run", **options)
    assert (tmp_path / "run" / "run.yaml").is_file()
    keras.utils.set_random_seed(1)  # has no effect: the seed is an option
    pretrain(text, tmp_path / "run", **options)
    assert digests(tmp_path / "run") == digests(finished[0])


def test_a_text_that_is_too_short_for_a_batch_leaves_an_empty_folder(text, options, tmp_path):
    with pytest.raises(ValueError, match=r"fewer than the 1000 of one batch.*smaller `batch_size`"):
        pretrain(text, tmp_path / "run", **{**options, "batch_size": 1000})
    assert not any((tmp_path / "run").glob("*"))


def test_an_empty_folder_cannot_be_resumed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"does not contain a run to resume.*run\.yaml"):
        pretrain(None, tmp_path, resume=True)


@pytest.mark.slow
def test_init_starts_from_the_weights_of_a_checkpoint(finished, text, options, tmp_path):
    run, result = finished
    ours = {k: v for k, v in options.items() if k not in ("vocab", "bert_config")}
    again = pretrain(text, tmp_path / "again", init=run / "last", **{**ours, "steps": 1})
    assert again.tokenizer.vocab == result.tokenizer.vocab
    assert again.model.bert_config == result.model.bert_config
    first, last = again.metrics[0], result.metrics[-1]
    assert {name: last[name] for name in first if name != "step"} == pytest.approx(
        {name: value for name, value in first.items() if name != "step"}
    )


@pytest.mark.slow
def test_init_from_a_run_starts_from_its_best_checkpoint(finished, text, options, tmp_path):
    run, result = finished
    ours = {k: v for k, v in options.items() if k not in ("vocab", "bert_config")}
    again = pretrain(text, tmp_path / "again", init=run, **{**ours, "steps": 1})
    best = min(m["val_mlm_cross_entropy"] + m["val_nsp_cross_entropy"] for m in result.metrics[1:])
    first = again.metrics[0]
    assert first["val_mlm_cross_entropy"] + first["val_nsp_cross_entropy"] == pytest.approx(best)


@pytest.mark.slow
def test_lora_trains_an_adapter_and_a_stopped_run_resumes_exactly(
    finished, text, options, tmp_path
):
    ours = {k: v for k, v in options.items() if k not in ("vocab", "bert_config")}
    ours |= {"init": finished[0], "lora": 2, "lora_layers": "W_q,dense1"}
    model = pretrain(text, tmp_path / "whole", **ours).model
    base = load_pretrained(finished[0]).model
    np.testing.assert_array_equal(
        model.encoder.blks[0].attention.W_q._kernel, base.encoder.blks[0].attention.W_q.kernel
    )
    load_adapter(base, tmp_path / "whole" / "adapter")
    base.merge_lora()
    best = load_pretrained(tmp_path / "whole").model
    for weight, merged in zip(base.weights, best.weights, strict=True):
        np.testing.assert_allclose(weight, merged, atol=1e-6)
    with pytest.raises(TrainingInterrupted):
        pretrain(text, tmp_path / "stopped", callbacks=[AfterSteps(4, press_ctrl_c)], **ours)
    pretrain(None, tmp_path / "stopped", resume=True, verbose=0)
    for file in (*[f"last/{name}" for name in STATE], "adapter/adapter_model.safetensors"):
        runs = [(tmp_path / name / file).read_bytes() for name in ("whole", "stopped")]
        assert runs[0] == runs[1], file


@pytest.mark.long
def test_a_vocabulary_is_learned_if_none_is_given(text, options, tmp_path):
    ours = {k: v for k, v in options.items() if k != "vocab"}
    result = pretrain(text, tmp_path / "run", **{**ours, "steps": 1}, vocab_size=40)
    assert len(result.tokenizer.vocab) == 40
    assert result.model.bert_config.vocab_size == 40


def test_rows_longer_than_the_model_allows_are_rejected_before_training(text, options, tmp_path):
    with pytest.raises(ValueError, match="`max_len` must be at most 24"):
        pretrain(text, tmp_path / "run", **{**options, "max_len": 25})


@pytest.mark.long
def test_pretraining_restores_global_state(text, options, tmp_path):
    random.seed(5)
    expected = random.Random(5).random()
    before = signal.getsignal(signal.SIGINT)
    pretrain(text, tmp_path / "run", **{**options, "steps": 1, "precision": "mixed_bfloat16"})
    assert random.random() == expected
    assert keras.config.dtype_policy().name == "float32"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_pretraining_reports_its_progress(text, options, tmp_path, capsys):
    pretrain(text, tmp_path / "run", **{**options, "steps": 2, "verbose": 2})
    out = capsys.readouterr().out
    assert "Text: topics.txt" in out
    assert "36 documents, 20% of them held out" in out
    assert re.search(r"Rows: padded, 1?\d% of their tokens are padding\n", out)
    table = out[out.index("            training  held-out text") :].splitlines()
    assert table[1].split() == "step loss MLM loss accuracy NSP loss accuracy tokens/s".split()
    assert table[2].split()[:2] == ["0", "3.970"]  # about ln 53 without training
    assert re.fullmatch(r" {11}2( +\d\.\d{3}){5} +[\d,]+", table[3])
    assert table[4:6] == [
        f"The best checkpoint is in {tmp_path}/run/best.",
        f"Curves and predictions: {tmp_path}/run/report.html",
    ]
    assert max(map(len, table[:4])) <= 80


@pytest.mark.long
def test_short_rows_train_first_and_a_run_resumes_in_either_phase(
    text, options, tmp_path, monkeypatch
):
    class Stop(keras.callbacks.Callback):
        def __init__(self, step):
            self.step = step

        def on_train_batch_end(self, batch, logs=None):
            self.step -= 1
            if not self.step:
                raise RuntimeError("stop")

    shapes = []

    class Shapes(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            shapes.append(round(logs["tokens/s"] / logs["sequences/s"]))

    options = {**options, "evaluate_every": 2, "short_steps": 4, "short_len": 12}
    options |= {"steps": 8, "mask_rate": 0.4, "final_mask_rate": 0.1}
    datasets = []

    def recorded(*arguments, masking, **given):
        datasets.append((given["max_len"], round(masking.rate, 2), given["first_step"]))
        return pretraining_dataset(*arguments, masking=masking, **given)

    with monkeypatch.context() as patch:
        patch.setattr(rows, "pretraining_dataset", recorded)
        whole = pretrain(text, tmp_path / "whole", callbacks=[Shapes()], **options)
    assert [figures["step"] for figures in whole.metrics] == [0, 2, 4, 6, 8]
    assert shapes == [12, 12, 24, 24]
    held_out = [(12, 0.15, 0), (24, 0.15, 0)]  # made once per length, used at every evaluation
    training = [(12, 0.4, 0), (12, 0.3, 2), (24, 0.2, 4), (24, 0.1, 6)]
    assert [one for one in datasets if one in held_out][-2:] == held_out
    assert [one for one in datasets if one in training][-4:] == training
    for step in (3, 6):  # the last checkpoints were saved at steps 2 and 4
        run = tmp_path / str(step)
        with pytest.raises(RuntimeError, match="stop"):
            pretrain(text, run, callbacks=[Stop(step)], **options)
        resumed = pretrain(None, run, resume=True, verbose=0)
        for a, b in zip(resumed.model.get_weights(), whole.model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_a_run_with_causal_steps_resumes_exactly(text, options, tmp_path, capsys):
    options = {**options, "steps": 6, "causal_steps": 3, "objective": "none", "evaluate_every": 2}
    options |= {"mask_rate": 0.3, "final_mask_rate": 0.15}
    whole = pretrain(text, tmp_path / "whole", **{**options, "verbose": 2})
    printed = capsys.readouterr().out
    assert printed.index("predict every token") < printed.index("Masked tokens are predicted from")
    assert printed.count("Masked tokens are predicted from") == 1
    for metrics in whole.metrics[1:]:
        assert ("next_token_accuracy" in metrics) == (metrics["step"] <= 3)
        assert ("mlm_accuracy" in metrics) == (metrics["step"] > 3)
    run = tmp_path / "stopped"
    with pytest.raises(ConnectionError):
        pretrain(text, run, callbacks=[AfterSteps(2, fail)], **options)
    with pytest.raises(ConnectionError):  # the last checkpoint is that of step 4
        pretrain(None, run, resume=True, callbacks=[AfterSteps(5, fail)], verbose=0)
    resumed = pretrain(None, run, resume=True, verbose=0)
    assert without_speed(resumed.metrics) == without_speed(whole.metrics)
    for a, b in zip(resumed.model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_the_best_checkpoint_is_the_best_on_rows_of_the_full_length(
    text, options, tmp_path, monkeypatch, capsys
):
    evaluate, weights = keras.Model.evaluate, []

    def easier(self, held_out=None, *args, **given):
        """Evaluate, and lower the losses on short rows by 100."""
        metrics = evaluate(self, held_out, *args, **given)
        is_short = held_out.element_spec[0]["tokens"].shape[1] == 12
        return {name: value - 100 * is_short for name, value in metrics.items()}

    class Weights(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            weights.append(self.model.get_weights())

    monkeypatch.setattr(keras.Model, "evaluate", easier)
    ours = {**options, "evaluate_every": 2, "short_steps": 4, "short_len": 12, "steps": 8}
    run = tmp_path / "run"
    result = pretrain(text, run, callbacks=[Weights()], **{**ours, "verbose": 2})
    monkeypatch.undo()
    assert capsys.readouterr().out.count("Rows of 24 tokens from here on") == 1
    losses = [metrics["val_loss"] for metrics in result.metrics[1:]]
    assert max(losses[:2]) < 0 < min(losses[2:])
    expected = weights[2 + int(np.argmin(losses[2:]))]
    for found, weight in zip(load_pretrained(run).model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, weight)


@pytest.mark.long
def test_a_run_takes_its_minutes_and_resumes_exactly(text, options, tmp_path, monkeypatch, capsys):
    clock, count = types.SimpleNamespace(now=0.0), Throughput.on_train_batch_end
    clock.monotonic = clock.perf_counter = lambda: clock.now

    def slower(self, batch, logs=None):  # after half of the minute, steps take twice as long
        seconds = self.progress.budget.seconds
        clock.now += 1.0 if seconds < 30 else 2.0
        count(self, batch, logs)

    monkeypatch.setattr(Throughput, "on_train_batch_end", slower)
    for module in (trainer, callbacks):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(trainer, "_EVALUATION_COST", 0.01)  # evaluate ten times
    ours = {k: v for k, v in options.items() if k not in ("steps", "evaluate_every")}
    ours |= {"minutes": 1, "short_steps": 0.5, "short_len": 12, "verbose": 2}
    whole = pretrain(text, tmp_path / "whole", **ours)
    out = capsys.readouterr().out
    assert re.search(r"Budget: 1 minutes are about \d\d steps \(1\.0 per second\)", out)
    assert "Expect: function words only\nWarning: " in out
    assert 55 <= clock.now <= 65
    assert 40 <= whole.metrics[-1]["step"] <= 50
    rates = [figures["learning_rate"] for figures in whole.metrics[1:]]
    assert (max(rates) > 0.005, rates[-1] < 0.001) == (True, True)
    clock.now = 0.0
    with pytest.raises(TrainingInterrupted, match=r"Stopped after step 18 and 0\.3 of 1 minutes"):
        pretrain(text, tmp_path / "run", callbacks=[AfterSteps(7, press_ctrl_c)], **ours)
    clock.now += 1000
    resumed = pretrain(None, tmp_path / "run", resume=True, verbose=0)
    assert without_speed(resumed.metrics) == without_speed(whole.metrics)
    assert digests(tmp_path / "run") == digests(tmp_path / "whole")


@pytest.mark.long
def test_ctrl_c_ends_the_steps_that_measure_the_speed(text, options, tmp_path, monkeypatch):
    count, steps = Throughput.on_train_batch_end, []

    def stopped(self, batch, logs=None):
        steps.append(batch)
        count(self, batch, logs)
        if len(steps) == 2:
            press_ctrl_c()

    monkeypatch.setattr(Throughput, "on_train_batch_end", stopped)
    ours = {k: v for k, v in options.items() if k not in ("steps", "evaluate_every")}
    with pytest.raises(TrainingInterrupted, match=r"Stopped after step 0 and 0\.\d of 0\.1 min"):
        pretrain(text, tmp_path / "run", minutes=0.1, **ours)
    assert steps == [0, 1]
    assert pretrain(None, tmp_path / "run", resume=True, verbose=0).metrics[-1]["step"] > 10


@pytest.mark.slow
def test_a_callback_can_end_the_run(text, options, tmp_path):
    class Enough(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    result = pretrain(text, tmp_path / "run", callbacks=[Enough()], **options)
    assert [figures["step"] for figures in result.metrics] == [0, 3]


@pytest.mark.long
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="needs TensorFlow")
@pytest.mark.parametrize("more", [{}, {"causal_steps": 3, "objective": "none"}])
def test_two_devices_give_the_same_weights_as_one(more, text, options, tmp_path):
    still = BERTConfig.from_dict({**options["bert_config"].to_dict(), "dropout": 0.0})
    options = {**options, "bert_config": still, "learning_rate": 1e-3, **more}
    one = pretrain(text, tmp_path / "one", **options)
    two = pretrain(text, tmp_path / "two", strategy="mirrored", **options)
    for a, b in zip(one.model.get_weights(), two.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    resumed = pretrain(None, tmp_path / "two", resume=True, verbose=0)
    assert resumed.metrics == two.metrics
    later = {"short_steps": 1, "short_len": 12, "batch_size": 3, "rows": "padded"}  # 6, then 3 rows
    with pytest.raises(ValueError, match="batch_size=3 for 2 devices"):
        pretrain(text, tmp_path / "three", strategy="mirrored", **{**options, **later})


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"causal_steps": 3, "objective": "none"}])
def test_micro_batches_give_the_same_weights_as_whole_batches(more, text, options, tmp_path):
    still = BERTConfig.from_dict({**options["bert_config"].to_dict(), "dropout": 0.0})
    options = {**options, "bert_config": still, "learning_rate": 1e-3, **more}
    whole = pretrain(text, tmp_path / "whole", **options)
    parts = pretrain(text, tmp_path / "parts", micro_batches=3, **options)
    for a, b in zip(whole.model.get_weights(), parts.model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)  # AdamW scales up the noise of zero gradients
    for name in {"loss", "mlm_cross_entropy", "val_nsp_cross_entropy"} & set(whole.metrics[-1]):
        assert parts.metrics[-1][name] == pytest.approx(whole.metrics[-1][name], abs=1e-5)


@pytest.mark.long
def test_the_training_step_compiles_with_xla(finished, text, options, tmp_path):
    result = pretrain(text, tmp_path / "run", jit=True, **options)
    # Dropout draws different random numbers under XLA, so the losses are only similar.
    assert result.metrics[-1]["loss"] == pytest.approx(finished[1].metrics[-1]["loss"], abs=0.3)
