import math

import pytest

from keras_bert_d2l import BERTModel, Diagnosis, Finding
from keras_bert_d2l.inspection.doctor.doctor import diagnose
from keras_bert_d2l.inspection.doctor.evidence import Evidence
from keras_bert_d2l.training.pretraining.options import PretrainingOptions


def make_finding(number, **limits):
    texts = {"name": "x", "measures": "y", "meaning": "Bad.", "remedy": "Improve."}
    return Finding(**texts, number=number, **limits)


def test_faults_come_first():
    fine, low, undefined = (make_finding(number, low=2) for number in (3, 1, math.nan))
    diagnosis = Diagnosis((fine, low, undefined))
    assert diagnosis.findings == (low, undefined, fine)
    assert diagnosis.faults == (low, undefined)
    assert not diagnosis.is_healthy


@pytest.mark.parametrize(
    ("limits", "text", "fault", "healthy"),
    [
        ({"high": 2}, "at most 2", 2.1, 2),
        ({"low": 2}, "at least 2", 1, 3),
        ({"low": 1, "high": 2}, "1 to 2", 0, 1.5),
    ],
)
def test_limits_are_inclusive(limits, text, fault, healthy):
    assert make_finding(fault, **limits).is_fault
    assert not make_finding(healthy, **limits).is_fault
    assert make_finding(healthy, **limits).limits == text


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
    assert skipped.startswith("Held-out losses: they measure masked tokens in long rows")


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
    found[3]["val_mlm_cross_entropy"] = 2.6
    assert faults_of(found) == (["overfitting"], ())
