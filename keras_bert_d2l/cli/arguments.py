"""Arguments that several commands share: each has one name, one meaning and one help text."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from keras_bert_d2l.cli.options_from_records import panel

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Out = Annotated[Path, Parameter(alias="-o")]
OptionalOut = Annotated[Path | None, Parameter(alias="-o")]
Corpus = Annotated[
    list[str],
    Parameter(
        name="TEXT",
        help='Text files, folders or globs (also .gz, .xz), or the word "docstrings".',
    ),
]
Texts = Annotated[
    str,
    Parameter(name="TEXT", help="Texts, or - to read one per line from standard input."),
]
PairedTexts = Annotated[
    str,
    Parameter(
        name="TEXT",
        help="Pairs of texts, or - to read one pair per line, separated by a tab, from standard "
        "input.",
    ),
]
File = Annotated[
    Path | None,
    Parameter(alias="-f", help="Read the texts from the lines of this UTF-8 file."),
]
Model = Annotated[
    Path | None,
    Parameter(
        alias="-m",
        help="Checkpoint, or the folder of a run, whose best checkpoint is used. "
        "[default: the newest run of quickstart]",
    ),
]
TaskModel = Annotated[
    Path,
    Parameter(
        alias="-m",
        help="Checkpoint of a fine-tuned model, or the folder of a run, whose best checkpoint is "
        "used.",
    ),
]
BatchSize = Annotated[PositiveInt, Parameter(help="Texts per batch.")]
TopK = Annotated[PositiveInt, Parameter(alias="-k", help="Number of results.")]
Truncate = Annotated[
    Flag, Parameter(help="Truncate texts that are too long, instead of reporting an error.")
]
Json = Annotated[Flag, Parameter(help="Print JSON, one object per line.")]
NullThreshold = Annotated[
    float | None,
    Parameter(
        help='Answer "none" when the no-answer score beats the best answer by more than this. '
        "[default: best threshold on the development data; without one, always answer]"
    ),
]
OutFolder = Annotated[Path, Parameter(alias="-o", help="Folder to write.")]

RunDir = Annotated[
    Path | None,
    Parameter(help="Folder of the new run; it must not exist or be empty.", group=panel("Run")),
]
Resume = Annotated[
    Path | None,
    Parameter(help="Folder of a run to resume, with its own options.", group=panel("Run")),
]
Config = Annotated[
    Path | None,
    Parameter(
        help="YAML file with options, named as below with _ instead of -, such as the run.yaml of "
        "another run. The command line takes precedence.",
        group=panel("Run"),
    ),
]


def run_folder(run_dir: Path | None, resume: Path | None) -> Path:
    """Return the folder of a run, which exactly one of the two options names."""
    [*folders] = (folder for folder in (run_dir, resume) if folder is not None)
    if len(folders) != 1:
        raise ValueError("Give --run-dir for a new run, or --resume to continue one.")
    return folders[0]


def one_or_many(texts: list[str]) -> str | list[str]:
    """Return a single path by itself."""
    return texts[0] if len(texts) == 1 else texts
