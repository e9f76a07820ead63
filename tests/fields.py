"""The tables of `docs/fields.md`: which fields of configuration files are applied or refused."""

import json
import pathlib
import re
from typing import NamedTuple

PAGE = pathlib.Path(__file__).parents[1] / "docs/fields.md"
HANDLINGS = ("applied", "no effect", "refused")


class Row(NamedTuple):
    """A row of a table: its heading, its first column, and fields with values that are not usual.

    The first column is empty in tables that have no such column.
    """

    section: str
    scope: str
    fields: list[tuple[str, object]]
    handling: str


def rows(section: str | None = None) -> list[Row]:
    """Return the rows of one table, or of all."""
    found, heading = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:].replace("`", "")
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not {*cells} & {*HANDLINGS}:
            continue
        *scope, fields, handling, _ = cells
        pairs = [text.split(": ", 1) for text in re.findall(r"`([^`]+)`", fields)]
        values = [(name, json.loads(value)) for name, value in pairs]
        found.append(Row(heading, "".join(scope).replace("`", ""), values, handling))
    return [row for row in found if section in (None, row.section)]


def scopes(row: Row, known: list[str]) -> list[str]:
    """Return those of the known scopes that a row is about."""
    names = re.split(r", | but ", row.scope)
    if names[0] == "all":
        return [name for name in known if name not in names]
    return names
