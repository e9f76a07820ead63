import pytest

from tests.inspection.chromium import browser, find_chromium


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """Return a page of a Chromium without a network."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("needs Chromium or Chrome")
    with browser(chromium, tmp_path_factory.mktemp("chromium")) as page:
        yield page
