"""What a pretraining run learns, writes and prints."""

import json
import math
import random
import re
import signal

import keras
import numpy as np
import pytest

from keras_bert_d2l.checkpoints.loading import load_pretrained
from keras_bert_d2l.config import BERTConfig
from keras_bert_d2l.data.pretraining.dataset import pretraining_dataset
from keras_bert_d2l.inference.heads import fill_mask
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.vocab import Vocab
from keras_bert_d2l.training.pretraining.options import PretrainingOptions
from keras_bert_d2l.training.pretraining.pretrain import pretrain
from keras_bert_d2l.training.report.report import Run, run_report
from tests.training.conftest import press_ctrl_c

FILES = "run.yaml config.json vocab.txt best last metrics.jsonl report.html report.jsonl"
HEADS = ("mlm_accuracy", "mlm_cross_entropy", "nsp_accuracy", "nsp_cross_entropy")


def held_out_loss(metrics):
    return metrics["val_mlm_cross_entropy"] + metrics["val_nsp_cross_entropy"]


@pytest.mark.slow
def test_the_run_folder_contains_vocabulary_architecture_and_options(finished, options):
    run = finished.run
    assert {path.name for path in run.iterdir()} == {*FILES.split(), "tensorboard", "SHA256SUMS"}
    assert Vocab.from_file(run / "vocab.txt") == options["vocab"]
    assert BERTConfig.from_json(run / "config.json") == options["bert_config"]
    recorded = PretrainingOptions.read_yaml(run / "run.yaml")
    assert (recorded["steps"], recorded["warmup_steps"]) == (7, 0.1)
    assert recorded["vocab"] == str(run / "vocab.txt")


@pytest.mark.slow
def test_the_report_has_the_main_measurements_of_the_text(finished):
    first, *_ = (finished.run / "report.jsonl").read_text().splitlines()
    data = json.loads(first)["data"]
    assert (data["documents"], data["vocabulary"]) == (36, 53)
    assert all(name in (finished.run / "report.html").read_text() for name in data)


@pytest.mark.slow
def test_the_last_checkpoint_is_the_returned_model_and_the_best_has_the_lowest_loss(finished):
    run, result = finished.run, finished.result
    loaded = load_pretrained(run / "last")
    weights = loaded.model.get_weights(), result.model.get_weights()
    for stored, returned in zip(*weights, strict=True):
        np.testing.assert_array_equal(stored, returned)
    assert loaded.tokenizer.vocab == result.tokenizer.vocab
    assert loaded.model.tokenizer is loaded.tokenizer
    assert result.model.tokenizer is result.tokenizer
    losses = list(map(held_out_loss, result.metrics[1:]))
    best, last = ((run / name / "model.safetensors").read_bytes() for name in ("best", "last"))
    assert (best == last) == (min(losses) == losses[-1])


@pytest.mark.slow
def test_metrics_are_written_before_the_first_step_and_after_each_interval(finished):
    metrics = finished.result.metrics
    assert [figures["step"] for figures in metrics] == [0, 3, 6, 7]
    assert len((finished.run / "metrics.jsonl").read_text().splitlines()) == 4
    assert {"loss", "val_loss", "learning_rate", "sequences/s", *HEADS} <= metrics[-1].keys()
    assert {f"val_{name}" for name in HEADS} <= metrics[0].keys()
    assert "gradient_norm" not in metrics[0]
    assert all(0 < figures["gradient_norm"] < 100 for figures in metrics[1:])


@pytest.mark.slow
def test_predictions_for_masked_words_of_held_out_text_are_recorded(finished, text):
    run = finished.run
    evaluations = Run(run).evaluations
    assert list(evaluations) == [0, 3, 6, 7]
    loaded = load_pretrained(run / "last").model
    for sample in evaluations[7]["samples"]:
        sentence = f"{sample['text']} {sample['gold']} {sample['after']}".strip()
        assert sentence in text.read_text()
        [expected] = fill_mask(loaded, f"{sample['text']} [MASK] {sample['after']}", top_k=3)
        assert [token for token, _ in sample["answers"]] == [one.token for one in expected]
        np.testing.assert_allclose(
            [score for _, score in sample["answers"]], [one.score for one in expected], atol=1e-4
        )
    assert (run / "report.html").read_text() == run_report(run).html


@pytest.mark.slow
def test_held_out_metrics_cover_the_whole_held_out_split(finished, text, options):
    model, tokenizer, metrics = finished.result
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
    for name in HEADS:
        assert metrics[-1][f"val_{name}"] == pytest.approx(figures[name], rel=1e-5)


@pytest.mark.slow
def test_pretraining_prints_the_text_and_a_table_of_evaluations(finished):
    out = finished.printed
    assert "Text: topics.txt" in out
    assert "36 documents, 10% of them held out" in out
    assert "Rows: padded, 8 per step\n" in out
    table = out[out.index("            training  held-out text") :].splitlines()
    assert table[1].split() == "step loss MLM loss accuracy NSP loss accuracy tokens/s".split()
    assert table[2].split()[:2] == ["0", "3.955"]  # about ln 53 without training
    assert re.fullmatch(r" {11}3( +\d\.\d{3}){5} +[\d,]+", table[3])
    assert table[6:8] == [
        f"The best checkpoint is in {finished.run}/best.",
        f"Curves and predictions: {finished.run}/report.html",
    ]
    assert max(map(len, table[:4])) <= 80


@pytest.mark.slow
def test_training_learns_from_text_until_a_callback_ends_the_run(text, options, tmp_path):
    class Enough(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = True

    config = BERTConfig(len(options["vocab"]), 32, 64, num_heads=2, num_blks=1, dropout=0.0)
    longer = {"bert_config": config, "steps": 200, "evaluate_every": 100, "batch_size": 16}
    longer["warmup_steps"] = 10
    result = pretrain(text, tmp_path / "run", callbacks=[Enough()], **{**options, **longer})
    before, after = result.metrics
    assert after["step"] == 100
    # Each document has one of six topics, which narrows a masked word down from 53 words to 8.
    assert before["val_mlm_cross_entropy"] == pytest.approx(math.log(53), rel=0.03)
    assert after["val_mlm_cross_entropy"] < math.log(8) + 0.5


def test_a_run_folder_must_be_empty(text, options, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for folder in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(FileExistsError, match="Choose a new or empty folder"):
            pretrain(text, folder, **options)


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
    again = pretrain(text, tmp_path / "run", **options)
    for ours, theirs in zip(again.model.weights, finished.result.model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 1000}, r"fewer than the \d+ of one batch.*smaller `batch_size`"),
        ({"max_len": 25}, "`max_len` must be from 1 to 24"),
    ],
)
def test_what_cannot_be_trained_leaves_an_empty_folder(given, message, text, options, tmp_path):
    with pytest.raises(ValueError, match=message):
        pretrain(text, tmp_path / "run", **{**options, **given})
    assert not any((tmp_path / "run").glob("*"))


@pytest.mark.long
def test_pretraining_learns_a_vocabulary_and_restores_global_state(text, options, tmp_path):
    random.seed(5)
    expected, before = random.Random(5).random(), signal.getsignal(signal.SIGINT)
    ours = {k: v for k, v in options.items() if k != "vocab"}
    ours |= {"steps": 1, "precision": "mixed_bfloat16", "vocab_size": 40}
    result = pretrain(text, tmp_path / "run", **ours)
    assert len(result.tokenizer.vocab) == result.model.bert_config.vocab_size == 40
    assert random.random() == expected
    assert keras.config.dtype_policy().name == "float32"
    assert signal.getsignal(signal.SIGINT) is before


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
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="needs TensorFlow")
@pytest.mark.parametrize("more", [{}, {"causal_steps": 3, "objective": "none"}])
def test_two_devices_and_micro_batches_give_the_weights_of_one_device(
    more, text, options, tmp_path
):
    still = BERTConfig.from_dict({**options["bert_config"].to_dict(), "dropout": 0.0})
    options = {**options, "bert_config": still, "learning_rate": 1e-3, **more}
    one = pretrain(text, tmp_path / "one", **options)
    two = pretrain(text, tmp_path / "two", strategy="mirrored", **options)
    parts = pretrain(text, tmp_path / "parts", micro_batches=3, **options)
    for other in (two, parts):
        for a, b in zip(one.model.get_weights(), other.model.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=2e-5)  # AdamW scales up noise around 0
    for name in {"loss", "mlm_cross_entropy", "val_nsp_cross_entropy"} & set(one.metrics[-1]):
        assert parts.metrics[-1][name] == pytest.approx(one.metrics[-1][name], abs=1e-5)
    resumed = pretrain(None, tmp_path / "two", resume=True, verbose=0)
    assert resumed.metrics == two.metrics
    later = {"short_steps": 1, "short_len": 12, "batch_size": 3, "rows": "padded"}  # 6, then 3 rows
    with pytest.raises(ValueError, match="batch_size=3 for 2 devices"):
        pretrain(text, tmp_path / "three", strategy="mirrored", **{**options, **later})


@pytest.mark.long
def test_the_training_step_compiles_with_xla(finished, text, options, tmp_path):
    result = pretrain(text, tmp_path / "run", jit=True, **options)
    # Dropout draws different random numbers under XLA, so the losses are only similar.
    expected = finished.result.metrics[-1]["loss"]
    assert result.metrics[-1]["loss"] == pytest.approx(expected, abs=0.3)
