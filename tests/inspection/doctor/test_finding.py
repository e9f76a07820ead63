import math
import time

import pytest

from keras_bert_d2l import Diagnosis, Finding
from keras_bert_d2l.inspection.doctor import losses, speed


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
