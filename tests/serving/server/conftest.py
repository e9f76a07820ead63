import gc
import warnings

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_garbage_of_other_tests():
    """Collect the garbage of earlier tests, without their warnings about unclosed files.

    Replacing a version collects garbage, so such a warning would fail the test that does it.
    """
    with warnings.catch_warnings(action="ignore"):
        gc.collect()
