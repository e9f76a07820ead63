"""Damaged folders load with the same content or end in a clear error."""

import pytest

from tests.robustness.folders import KINDS
from tests.robustness.trial import ERROR, FAULTS, Trials

CHECKED = ("token store",)  # kinds for which every mutant is known to be handled
NUMBER = 24  # mutants of each kind; `python -m scripts.mutants` runs any number


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHECKED)
def test_a_damaged_folder_has_the_same_content_or_is_rejected(kind, tmp_path, capsys):
    original = tmp_path / f"original{KINDS[kind].suffix}"
    KINDS[kind].write(original)
    trials = Trials(kind, original)
    found = [trials.run(str(seed)) for seed in range(NUMBER)]
    assert [trial for trial in found if trial.outcome in FAULTS] == []
    assert any(trial.outcome == ERROR for trial in found)
