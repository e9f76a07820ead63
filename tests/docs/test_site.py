"""The site that `make docs` has built works from its folder, without a server and a network."""

import pathlib

import pytest

from tests.chromium import browser, find_chromium
from tests.nightly import nightly_except

INDEX = pathlib.Path(__file__).parents[2] / "site/index.html"


def site_page(folder):
    """A browser, if there is one, for the site, if it has been built."""
    if not INDEX.is_file():
        pytest.skip("run `make docs` first")
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("needs Chromium or Chrome")
    return browser(chromium, folder)


@pytest.mark.slow
def test_the_search_finds_a_function(tmp_path):
    with site_page(tmp_path) as page:
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


@pytest.mark.long
def test_on_a_phone_names_do_not_break_and_tables_scroll(tmp_path):
    with site_page(tmp_path) as page:
        page.look(width=400)
        for name in ("fine_tuning", "checkpoints", "comparison"):
            page.send("Page.navigate", url=(INDEX.parent / f"{name}.html").as_uri())
            page.wait("document.readyState == 'complete' && document.querySelector('td .name')")
            assert page.run("document.documentElement.scrollWidth") <= 400
            names, cells = (f"[...document.querySelectorAll('td{end}')]" for end in (" .name", ""))
            broken = f"{names}.filter(name => name.getClientRects().length > 1)"
            assert page.run(f"{broken}.map(name => name.textContent)") == []
            fixed = f"{cells}.filter(cell => !cell.closest('.md-typeset__scrollwrap'))"
            assert page.run(f"{fixed}.map(cell => cell.textContent)") == []


@pytest.mark.slow
@pytest.mark.parametrize("width", nightly_except([400], [1280, 400]))
def test_the_first_command_is_visible_without_scrolling(tmp_path, width):
    with site_page(tmp_path) as page:
        page.look(width=width)
        page.send("Page.navigate", url=INDEX.as_uri())
        page.wait("document.readyState == 'complete' && document.querySelector('pre')")
        assert page.run("document.querySelector('pre').getBoundingClientRect().bottom") < 640
        assert page.run("document.querySelector('pre').textContent").startswith("pip install")
