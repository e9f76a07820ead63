"""Damaged folders load with the same content or end in a clear error."""

import pytest

from tests.nightly import nightly_except
from tests.robustness.folders import KINDS
from tests.robustness.trial import ERROR, FAULTS, Trials

# Mutants of each kind in `make test` and in `make test-all`; `scripts.mutants` runs any number.
DAILY, NIGHTLY = 4, 16


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
@pytest.mark.parametrize("number", nightly_except({DAILY}, (DAILY, NIGHTLY)))
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_folder_has_the_same_content_or_is_rejected(kind, number, original):
    trials = Trials(kind, original(kind))
    found = [trials.run(str(seed)) for seed in range(number)]
    assert [trial for trial in found if trial.outcome in FAULTS] == []
    assert any(trial.outcome == ERROR for trial in found)
