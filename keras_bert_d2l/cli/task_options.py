"""What the commands on tasks take to find the examples in a file."""

from typing import Annotated

import typer

OF_DATA = "Data"  # a group of options on a page of help

Text = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the texts, the words or the questions.  [default: by the usual names]",
        rich_help_panel=OF_DATA,
    ),
]
TextB = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the second texts of pairs, or of the texts that questions are about.",
        rich_help_panel=OF_DATA,
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the labels, scores, tags or answers; with --multi-label also several "
        "with commas between, of 1 or 0 each.",
        rich_help_panel=OF_DATA,
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Column of names of the examples.", rich_help_panel=OF_DATA
    ),
]
MultiLabel = Annotated[
    bool | None,
    typer.Option(
        "--multi-label",
        help="A text can have any number of labels.",
        rich_help_panel=OF_DATA,
        show_default=False,
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="What stands between several labels of a text.  [default: ,]",
        rich_help_panel=OF_DATA,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether a table begins with the names of its columns.  [default: it is looked at]",
        rich_help_panel=OF_DATA,
        show_default=False,
    ),
]
