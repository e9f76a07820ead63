"""The site that `make docs` has built works from its folder, without a server and a network."""

import pathlib

import pytest

from tests.chromium import browser, find_chromium

INDEX = pathlib.Path(__file__).parents[2] / "site/index.html"


@pytest.mark.slow
def test_the_search_finds_a_function(tmp_path):
    if not INDEX.is_file():
        pytest.skip("run `make docs` first")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("needs Chromium or Chrome")
    with browser(chromium, tmp_path) as page:
        page.look()
        page.send("Page.navigate", url=INDEX.as_uri())
        page.wait(
            "document.readyState == 'complete' && document.querySelector('.md-search button')"
        )
        page.click("document.querySelector('.md-search button')")
        page.wait("document.activeElement.shadowRoot")
        page.type("LoRA adapter")
        page.wait("document.activeElement.shadowRoot.textContent.includes('save_adapter')")
        assert page.problems == []
