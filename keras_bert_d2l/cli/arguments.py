"""Command-line arguments shared by several commands, with their help texts."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from keras_bert_d2l.cli.options_from_records import Integer, panel
from keras_bert_d2l.cli.outputs import nonempty_path

PositiveInt = Annotated[Integer, Parameter(validator=Number(gt=0))]
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Out = Annotated[Path, Parameter(alias="-o", converter=nonempty_path)]
OptionalOut = Annotated[Path | None, Parameter(alias="-o", converter=nonempty_path)]
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
    str,
    Parameter(
        alias="-m",
        help="Checkpoint, run folder (its best checkpoint is used), or name on the Hugging Face "
        "Hub. `novels-small` is part of the package.",
    ),
]
TaskModel = Annotated[
    str,
    Parameter(
        alias="-m",
        help="Checkpoint of a fine-tuned model, run folder (its best checkpoint is used), or name "
        "on the Hugging Face Hub.",
    ),
]
BatchSize = Annotated[PositiveInt, Parameter(help="Texts per batch.")]
TopK = Annotated[PositiveInt, Parameter(alias="-k", help="Number of results.")]
Truncate = Annotated[
    Flag, Parameter(help="Truncate texts that are too long instead of reporting an error.")
]
Json = Annotated[Flag, Parameter(help="Print JSON, one object per line.")]
Aggregate = Annotated[
    Literal["none", "simple", "first", "average", "max"],
    Parameter(
        help="Join labels such as B-PER and I-PER into entities. A word has the label of its first "
        "token (first), the label with the highest mean probability over its tokens (average), or "
        "the label of its most certain token (max). simple joins tokens instead of words."
    ),
]
NullThreshold = Annotated[
    float | None,
    Parameter(
        help='Answer "none" when the no-answer score beats the best answer by more than this. '
        "[default: best threshold on the development data; without one, always answer]"
    ),
]
OutFolder = Annotated[Path, Parameter(alias="-o", help="Output folder.", converter=nonempty_path)]

RunDir = Annotated[
    Path | None,
    Parameter(
        help="Folder for the new run: an empty folder, a new path, or a URL such as "
        "s3://bucket/runs/mine.",
        converter=nonempty_path,
        group=panel("Run"),
    ),
]
Resume = Annotated[
    Path | None,
    Parameter(
        help="Folder or URL of the run to resume. Its own options apply. If it contains no run "
        "yet, start one with the given options.",
        converter=nonempty_path,
        group=panel("Run"),
    ),
]
Config = Annotated[
    Path | None,
    Parameter(
        help="YAML file with options, such as the run.yaml of another run. Names are as below, "
        "with _ instead of -. Options on the command line take precedence.",
        group=panel("Run"),
    ),
]


def run_folder(run_dir: Path | None, resume: Path | None) -> Path:
    """Return the folder given by `--run-dir` or `--resume`, exactly one of which must be set."""
    if run_dir is not None and resume is not None:
        raise ValueError(
            "--run-dir is for a new run and --resume continues one, in its own folder. Received: "
            "both; remove one of them."
        )
    folder = resume or run_dir
    if folder is None:
        raise ValueError("--run-dir FOLDER is missing, or --resume FOLDER to continue a run.")
    return folder


def check_not_resumed(resume: Path | None, **options: object) -> None:
    """Raise `ValueError` if `--resume` is given with an option that does not train."""
    for name, value in options.items():
        if resume is not None and value:
            raise ValueError(
                f"`{name}` does not train, so it has no run to resume. Received: --resume "
                f"{resume}; remove one of them."
            )


def one_or_many(texts: list[str]) -> str | list[str]:
    """Return a single path as a string, and several paths as a list."""
    return texts[0] if len(texts) == 1 else texts
