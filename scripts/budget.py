"""Fail if the package or its tests have more lines of code than the budget allows.

A line counts if it is not blank, does not consist of a comment, and is not part of the docstring of
a module, class or function. All `.py` files below the folder count. The numbers of `BUDGET` are the
maintainers' decision, made apart from any change. A change that exceeds them removes other lines.

    python scripts/budget.py
"""

import ast
import pathlib
import sys

BUDGET = {"keras_bert_d2l": 32_300, "tests": 33_100}  # lines of code

ROOT = pathlib.Path(__file__).parents[1]
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def count_lines(source: str) -> int:
    """Return the number of lines of code in the source of a module."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            text = node.body[0]
            documentation.update(range(text.lineno, text.end_lineno + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(
        bool(line) and not line.startswith("#") and number not in documentation
        for number, line in lines
    )


def main() -> None:
    """Print the lines of each folder, and exit with 1 if one is over its budget."""
    over = False
    for folder, budget in BUDGET.items():
        files = (ROOT / folder).rglob("*.py")
        lines = sum(count_lines(file.read_text(encoding="utf-8")) for file in files)
        print(f"{folder}: {lines:,} lines of code, at most {budget:,}")
        over |= lines > budget
    if over:
        sys.exit("Over the budget: remove as many lines elsewhere.")


if __name__ == "__main__":
    main()
