import math
import time

import numpy as np
import pytest

from keras_bert_d2l import BERTModel, Diagnosis, Finding
from keras_bert_d2l.inspection.doctor import losses, speed
from keras_bert_d2l.inspection.doctor import weights as weights_module
from keras_bert_d2l.inspection.doctor.doctor import diagnose
from keras_bert_d2l.inspection.doctor.evidence import Evidence
from keras_bert_d2l.training.pretraining.options import PretrainingOptions


def make_finding(number, severity="learns less", **limits):
    texts = {"name": "x", "measures": "y", "meaning": "Bad.", "remedy": "Improve."}
    return Finding(**texts, number=number, severity=severity, **limits)


def test_faults_come_first_and_the_worst_of_them_before_the_others():
    costly = make_finding(3, "costs time", high=2)
    fine = make_finding(1, "cannot learn", high=2)
    fatal = make_finding(math.nan, "cannot learn", high=2)
    diagnosis = Diagnosis((fine, costly, fatal))
    assert diagnosis.findings == (fatal, costly, fine)
    assert diagnosis.faults == (fatal, costly)
    assert not diagnosis.is_healthy


@pytest.mark.parametrize(
    ("limits", "text", "fault", "healthy"),
    [
        ({"high": 2}, "at most 2", 2.1, 2),
        ({"low": 2}, "at least 2", 1.9, 2),
        ({"low": 1, "high": 2}, "1 to 2", 0, 1.5),
    ],
)
def test_limits_are_inclusive(limits, text, fault, healthy):
    assert make_finding(fault, **limits).is_fault
    assert not make_finding(healthy, **limits).is_fault
    assert make_finding(healthy, **limits).limits == text


def test_a_checkpoint_must_be_better_than_chance_and_new_weights_as_good_as_chance():
    for is_new, healthy, fault in ((True, 9.6, 8.0), (False, 8.0, 9.8), (None, 8.0, 11.0)):
        assert not losses.initial_loss(healthy, 9.7, is_new=is_new).is_fault
        assert losses.initial_loss(fault, 9.7, is_new=is_new).is_fault


# Peak learning rates, tokens per step and widths, from the papers.
@pytest.mark.parametrize(
    ("rate", "num_tokens", "width"),
    [
        (1e-4, 256 * 512, 768),  # BERT base
        (1e-4, 256 * 512, 1024),  # BERT large
        (6e-4, 8192 * 512, 768),  # RoBERTa base
        (2e-3, 4096 * 128, 1024),  # 24-hour BERT
        (1e-3, 1536 * 128, 768),  # Cramming
    ],
)
def test_the_learning_rates_of_well_known_models_are_healthy(rate, num_tokens, width):
    def examine(rate):
        return losses.learning_rate_for_batch(rate, num_tokens, width, is_pretraining=True)

    assert not examine(rate).is_fault
    assert examine(rate * 400).is_fault
    assert examine(rate / 400).is_fault


def test_fine_tuning_at_the_rates_of_devlin_et_al_is_healthy():
    for rate, rows in ((5e-5, 16), (2e-5, 32)):
        size = rows * 128
        found = losses.learning_rate_for_batch(rate, size, 768, is_pretraining=False)
        assert not found.is_fault


def test_the_time_per_batch_is_that_of_the_slowest_stage():
    def batches():
        for _ in range(6):
            time.sleep(0.02)
            yield 0

    assert 0.018 < speed.time_batches(batches()) < 0.2


def test_a_next_sentence_head_that_was_better_than_chance_once_is_no_fault():
    chance = math.log(2)
    assert losses.next_sentence(1999, [chance]) is None
    assert losses.next_sentence(2000, [1.01 * chance, 0.99 * chance, chance]).is_fault
    assert not losses.next_sentence(2000, [chance, 0.9 * chance, 1.1 * chance]).is_fault


def test_attention_to_equal_tokens_is_attention_to_one_token():
    def share(weights, tokens, valid=3):
        attention, is_token = np.array([[weights]]), np.arange(3)[None] < valid
        found = weights_module._is_one_hot(attention, np.array([tokens]), is_token)
        return weights_module._mean([found])

    first, both, all_three = [1, 0, 0], [0.5, 0.5, 0], [0.4, 0.3, 0.3]
    assert share([first, first, all_three], [5, 6, 7]) == pytest.approx(2 / 3)
    assert share([first, first, all_three], [5, 6, 7], valid=2) == 1
    assert share([both, both, both], [5, 6, 7]) == 0
    assert share([both, both, all_three], [5, 5, 7]) == pytest.approx(2 / 3)
    assert share([both, both, first], [5, 5, 0], valid=2) == 0  # there is only one token


def records(row_lens, losses_by_len, nsp_by_len):
    """Return the metrics of evaluations every 1,000 steps, with rows of these lengths."""
    first = {"step": 0, "val_mlm_cross_entropy": math.log(20), "val_nsp_cross_entropy": math.log(2)}
    others = [
        {
            "step": 1000 * number,
            "loss": losses_by_len[length],
            "val_mlm_cross_entropy": 2.5 - number / 10,
            "val_nsp_cross_entropy": nsp_by_len[length],
            "sequences/s": 50.0,
            "tokens/s": 50.0 * length,
        }
        for number, length in enumerate(row_lens, 1)
    ]
    return [first, *others]


def faults_of(found):
    model = BERTModel(20, 256, 12, num_heads=2, num_blks=1, dropout=0.0, max_len=128)
    options = PretrainingOptions.from_dict({"corpus": "x", "short_steps": 0.5, "precision": "auto"})
    diagnosis = diagnose(Evidence(options=options, records=found, model=model))
    return [fault.name for fault in diagnosis.faults], diagnosis.skipped


def test_held_out_losses_are_not_judged_while_a_run_trains_on_shorter_rows():
    short = records([16] * 5, {16: 2.0}, {16: 0.85})
    faults, [skipped] = faults_of(short)
    assert faults == ["flat loss"]
    assert skipped.startswith("Held-out losses: their rows have 128 tokens, but the run still")


def test_losses_of_next_tokens_are_not_compared_with_those_of_masked_tokens():
    found = records([128] * 4, {128: 2.0}, {128: 0.6})
    for record in found[1:]:
        record["next_token_accuracy"] = 0.2
    found[4]["loss"] = 1.9
    faults, [skipped] = faults_of(found)
    assert faults == []
    assert skipped.startswith("Held-out losses: they measure masked tokens")
    for record in found[3:]:
        del record["next_token_accuracy"]
    found[3]["loss"], found[4]["loss"] = 2.6, 2.5
    assert faults_of(found) == ([], ())


def test_a_loss_that_rises_because_rows_became_longer_is_no_fault():
    found = records([16] * 3 + [128] * 2, {16: 2.0, 128: 2.5}, {16: 0.85, 128: 0.72})
    found[-1]["loss"] = 2.4
    assert faults_of(found) == ([], ())
    found = records([128] * 3, {128: 2.4}, {128: 0.72})
    found[2]["loss"], found[3]["loss"] = 2.3, 2.0
    assert faults_of(found) == (["next sentence"], ())
