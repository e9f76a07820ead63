"""Damaged folders load with the same content or end in a clear error."""

import pytest

from tests.robustness.folders import KINDS
from tests.robustness.trial import ERROR, FAULTS, Trials

# `make test` runs few mutants of the kinds that are written fast, and `make test-all` more of every
# kind; `scripts.mutants` runs any number.
DAILY = ("task checkpoint", "huggingface task", "google", "book", "token store", "ONNX")
CASES = [(kind, 4) for kind in DAILY]
CASES += [pytest.param(kind, 16, marks=pytest.mark.long) for kind in KINDS]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return a function that returns a folder of a kind. Kinds may share a folder."""
    written = {}

    def of_kind(kind):
        write, suffix = KINDS[kind].write, KINDS[kind].suffix
        if write not in written:
            written[write] = tmp_path_factory.mktemp("originals") / f"original{suffix}"
            write(written[write])
        return written[write]

    return of_kind


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "number"), CASES)
def test_a_damaged_folder_has_the_same_content_or_is_rejected(kind, number, original):
    trials = Trials(kind, original(kind))
    found = [trials.run(str(seed)) for seed in range(number)]
    assert [trial for trial in found if trial.outcome in FAULTS] == []
    assert any(trial.outcome == ERROR for trial in found)
