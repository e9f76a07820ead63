"""Write each example as a notebook, which opens in Colab: `python scripts/notebooks.py`.

The docstring of an example becomes the first cell. A line `# %% Title` starts a new cell.
"""

import ast
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
REPOSITORY = "keras-bert-d2l/keras-bert-d2l"
SETUP = f"""\
%pip install --quiet "keras-bert-d2l[tasks] @ git+https://github.com/{REPOSITORY}"
import sys

sys.argv[1:] = []  # no arguments: the example generates its data"""


def output_path(example: pathlib.Path) -> pathlib.Path:
    """Return the path of the notebook of an example."""
    return example.parent / "notebooks" / f"{example.stem}.ipynb"


def colab_url(example: pathlib.Path) -> str:
    """Return the address that opens the notebook of an example in Colab."""
    path = output_path(example).relative_to(ROOT).as_posix()
    return f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/{path}"


def notebook(example: pathlib.Path) -> str:
    """Return the notebook of an example, as JSON."""
    source = example.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, *description = (ast.get_docstring(tree) or "").split("\n")
    code = "\n".join(source.split("\n")[tree.body[0].end_lineno :])
    first, *parts = re.split(r"^# %% (.+)\n", code, flags=re.MULTILINE)
    image = "https://colab.research.google.com/assets/colab-badge.svg"
    badge = f"[![Open in Colab]({image})]({colab_url(example)})"
    cells = [
        _cell("markdown", "\n".join([f"# {title.rstrip('.')}", "", badge, *description])),
        _cell("code", SETUP),
        _cell("code", first),
    ]
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        cells += [_cell("markdown", f"## {heading}"), _cell("code", text)]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}}
    return json.dumps({**content, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _cell(kind: str, text: str) -> dict[str, object]:
    lines = text.strip("\n").splitlines(keepends=True)
    cell: dict[str, object] = {"cell_type": kind, "metadata": {}, "source": lines}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


if __name__ == "__main__":
    for path in EXAMPLES:
        output_path(path).parent.mkdir(exist_ok=True)
        output_path(path).write_text(notebook(path), encoding="utf-8")
