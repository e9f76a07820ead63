"""The reference has every public name, once."""

import pathlib
import re

import keras_bert_d2l as kb

FOLDER = pathlib.Path(__file__).parents[2] / "docs/reference"


def test_every_public_name_is_on_one_page_of_the_reference():
    text = "".join(page.read_text() for page in FOLDER.glob("*.md"))
    names = re.findall(r"^::: keras_bert_d2l\.(\w+)$", text, re.MULTILINE)
    assert sorted(names) == sorted([*kb.__all__, "book"])


def test_troubleshooting_quotes_messages_that_exist():
    table = (FOLDER.parent / "troubleshooting.md").read_text()
    cells = re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)
    spans = [span for cell in cells for span in cell.split("`")[1::2]]
    quoted = [span for span in spans if " " in span]
    package = pathlib.Path(kb.__file__).parent.rglob("*.py")
    source = "".join(path.read_text(encoding="utf-8") for path in package)
    assert len(quoted) > 8
    assert [text for text in quoted if text not in source] == []
