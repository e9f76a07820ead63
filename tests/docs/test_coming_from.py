"""Each of our lines in docs/coming_from.md runs."""

import pathlib
import re

import pytest

import keras_bert_d2l as kb

TEXT = (pathlib.Path(__file__).parents[2] / "docs/coming_from.md").read_text()
_, *SECTIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS, ids=[text.split("\n")[0] for text in SECTIONS])
def test_our_lines_run_in_the_order_of_the_table(section, hub):
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [re.fullmatch(r"\| .+ \| `([^`]+)`[^|`]*\|", row) for row in rows]
    assert all(cells)
    lines = ["text,label", *["a good film,good", "a bad film,bad"] * 4]
    pathlib.Path("train.csv").write_text("\n".join(lines) + "\n")
    names = {"kb": kb}
    for cell in cells:
        exec(compile(cell[1], f"<{cell[1]}>", "exec"), names)
