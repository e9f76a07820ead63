"""Take the pictures of the documentation, with Chromium: `python -m scripts.pictures TEXT`.

TEXT is a text for a short run of `pretrain`, whose pages are shown. The run takes a few minutes.
"""

import pathlib
import sys
import tempfile

import PIL.Image

import keras_bert_d2l as kb
from tests.chromium import Page, browser, find_chromium

PICTURES = pathlib.Path(__file__).parents[1] / "docs/pictures"
TEXTS = [
    "she looked out of the window .",
    "he opened the door and went in .",
]
RUN = {  # options
    "preset": "tiny",
    "recipe": "modern",
    "vocab_size": 4000,
    "max_len": 32,
    "learning_rate": 2e-3,
    "steps": 300,
    "evaluate_every": 30,
}
WIDTH, HEIGHT, COLORS = 1000, 900, 256


def main(text: str) -> None:
    """Write all pictures."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("needs Chromium or Chrome")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        kb.playground("novels-small", folder / "playground.html", texts=TEXTS)
        kb.pretrain(text, folder / "modern", **RUN)
        with browser(chromium, folder / "profile") as page:
            page.look(width=WIDTH)
            page.open(folder / "playground.html")
            mask_the_window(page)
            take(page, "playground")
            page.open(folder / "modern/report.html")
            take(page, "report", HEIGHT)


def mask_the_window(page: Page) -> None:
    """Show the masked word of the playground's first text, and mask the window instead."""
    word = "[...document.querySelectorAll('button.word')].find(x => x.innerText == {!r})"
    page.click(word.format("window"))
    page.wait("document.querySelectorAll('.word.masked').length == 2")
    for _ in range(2):  # select the word that the page masks at the start, then show it
        page.click("document.querySelector('.word.masked')")
    page.wait("document.querySelectorAll('.word.masked').length == 1")
    page.click("document.querySelector('.word.masked')")  # select the window
    page.wait("document.body.innerText.includes('For the mask in place of “window”')")


def take(page: Page, name: str, height: int | None = None) -> None:
    """Write a picture of a page, or of its top, in few colors."""
    path = PICTURES / f"{name}.png"
    page.screenshot(path)
    with PIL.Image.open(path) as picture:
        size = picture.width, min(picture.height, height or picture.height)
        small = picture.crop((0, 0, *size)).quantize(COLORS)
    small.save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
