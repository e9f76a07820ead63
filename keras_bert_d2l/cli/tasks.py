"""Commands on models of tasks: measure one, ask it for many texts."""

import dataclasses
import json
import pathlib
from typing import Annotated, Any

import typer

from keras_bert_d2l.cli.answering import write_answers
from keras_bert_d2l.cli.options import NullThreshold, load
from keras_bert_d2l.cli.task_options import Header, Id, Label, Separator, Text, TextB
from keras_bert_d2l.data.tasks.read_examples import read_examples
from keras_bert_d2l.files import write_text
from keras_bert_d2l.inference.evaluation.compatibility import TASK_MODELS
from keras_bert_d2l.inference.evaluation.evaluation import Evaluation, evaluate
from keras_bert_d2l.inference.evaluation.tables import print_evaluation
from keras_bert_d2l.training.finetuning.finetune import tuned_null_threshold

_TASK_OF = {kind: task for task, kind in TASK_MODELS.items()}

ModelPath = Annotated[
    pathlib.Path,
    typer.Option(
        "--model",
        "-m",
        metavar="FOLDER",
        help="A checkpoint, or the folder of a run, which stands for its best checkpoint.",
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Rows that pass through the model at once.")]
MaxLen = Annotated[
    int | None,
    typer.Option(
        help="Tokens in a row at most.  [default: what the model can read, of questions 384]"
    ),
]


def run_evaluation(
    data: Annotated[
        pathlib.Path, typer.Option(metavar="FILE", help="Examples, as `finetune` reads them.")
    ],
    model: ModelPath,
    text: Text = None,
    text_b: TextB = None,
    label: Label = None,
    id: Id = None,
    separator: Separator = None,
    header: Header = None,
    batch_size: BatchSize = 32,
    max_len: MaxLen = None,
    null_threshold: Annotated[
        float | None,
        typer.Option(
            help="Count a question as left without an answer where none scores higher by more than "
            "the threshold.  [default: what is best for these examples]"
        ),
    ] = None,
    json_file: Annotated[
        pathlib.Path | None,
        typer.Option("--json", metavar="FILE", help="File for the figures and mistakes."),
    ] = None,
) -> None:
    """Measures a fine-tuned model: its figures, its confusions and the errors it was surest of.

    Examples:

    - `keras-bert-d2l evaluate --model runs/reviews --data test.tsv`
    - `keras-bert-d2l evaluate --model runs/pos --data test.conllu --label UPOS --json pos.json`
    """
    trained, task = _load_task(model)
    examples = read_examples(
        task,
        data,
        text=text,
        text_b=text_b,
        label=label,
        id=id,
        multi_label=getattr(trained, "multi_label", False),
        separator=separator or ",",
        header=header,
        labeled=True,
    )
    for line in examples.dropped_in_words():
        typer.echo(line, err=True)
    found = evaluate(
        trained, examples, batch_size=batch_size, max_len=max_len, null_threshold=null_threshold
    )
    print_evaluation(found)
    if json_file is not None:
        facts = {
            "model": str(model),
            "data": str(data),
            "sha256": examples.sha256,
            "dropped": dict(examples.dropped),
        }
        write_text(json_file, json.dumps({**facts, **_as_json(found)}, indent=2) + "\n")
        typer.echo(f"Written to {json_file}")


def run_prediction(
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Texts, one a line; or TSV, CSV, JSONL with named columns, CoNLL, SQuAD's JSON; - "
            "for standard input.",
        ),
    ],
    model: ModelPath,
    out: Annotated[
        pathlib.Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write.  [default: the terminal]"),
    ] = None,
    context: Annotated[
        pathlib.Path | None,
        typer.Option(
            metavar="FILE", help="The text that questions are about, which are one a line."
        ),
    ] = None,
    text: Text = None,
    text_b: TextB = None,
    id: Id = None,
    header: Header = None,
    batch_size: BatchSize = 32,
    max_len: MaxLen = None,
    null_threshold: NullThreshold = None,
) -> None:
    """Asks a fine-tuned model for every text of a file, and writes a JSON object a line.

    The objects have the `id` and the text of the example, and by the task `label`, `score` and
    `scores`; `labels`; `score`; `tags`; or `answer`, with its place in the text.

    Examples:

    - `keras-bert-d2l predict reviews.txt --model runs/reviews --out labels.jsonl`
    - `keras-bert-d2l predict pairs.tsv --model runs/nli --text premise --text-b hypothesis`
    - `keras-bert-d2l predict questions.txt --context article.txt --model runs/qa`
    - `echo "what a film" | keras-bert-d2l predict - --model runs/reviews`
    """
    trained, task = _load_task(model)
    options: dict[str, Any] = {"batch_size": batch_size, "max_len": max_len}
    if task == "answer":
        tuned = tuned_null_threshold(model)
        options["null_threshold"] = tuned if null_threshold is None else null_threshold
    columns = {"text": text, "text_b": text_b, "id": id, "header": header}
    write_answers(trained, task, source, out, columns=columns, context=context, options=options)


def _load_task(model: pathlib.Path) -> tuple[Any, str]:
    """The model of a checkpoint, and the task that it is for."""
    loaded: Any = load(model, heads=()).model
    task = _TASK_OF.get(type(loaded))
    if task is None:
        raise ValueError(
            f"{str(model)!r} must hold a model for one of {', '.join(TASK_MODELS)}. Received: a "
            f"{type(loaded).__name__}; `keras-bert-d2l finetune` makes one of it."
        )
    return loaded, task


def _as_json(found: Evaluation) -> dict[str, Any]:
    confusion = found.confusion
    return {
        "task": found.task,
        "examples": found.num_examples,
        "metrics": found.metrics,
        "confusion": confusion
        and {"labels": confusion.labels, "counts": confusion.counts.tolist()},
        "errors": [dataclasses.asdict(mistake) for mistake in found.errors],
    }
