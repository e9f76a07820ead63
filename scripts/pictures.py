"""Take the pictures of the documentation, with Chromium: `python -m scripts.pictures MODEL`.

MODEL is a pretrained model with a masked-language-model head, as for `keras-bert-d2l playground`.
"""

import pathlib
import sys
import tempfile

import PIL.Image

import keras_bert_d2l as kb
from tests.inspection.chromium import browser, find_chromium

PICTURES = pathlib.Path(__file__).parents[1] / "docs/pictures"
TEXTS = [
    "she looked out of the window .",
    "he opened the door and went in .",
]


def main(model: str) -> None:
    """Write the pictures of a model."""
    chromium = find_chromium()
    if chromium is None:
        sys.exit("needs Chromium or Chrome")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "page.html")
        kb.playground(model, path, texts=TEXTS)
        with browser(chromium, pathlib.Path(folder, "profile")) as page:
            page.look(width=1000)
            page.open(path)
            word = "[...document.querySelectorAll('button.word')].find(x => x.innerText == {!r})"
            page.click(word.format("window"))
            page.wait("document.querySelectorAll('.word.masked').length == 2")
            for _ in range(2):  # select the word that the page masks at the start, then show it
                page.click("document.querySelector('.word.masked')")
            page.click("document.querySelector('.word.masked')")  # select the window
            page.wait("document.querySelectorAll('.word.masked').length == 1")
            page.screenshot(PICTURES / "playground.png")
    with PIL.Image.open(PICTURES / "playground.png") as picture:
        picture.quantize(128).save(PICTURES / "playground.png", optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
