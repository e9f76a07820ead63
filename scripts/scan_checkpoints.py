"""Try every checkpoint below a folder, and write a table of what loads.

    python scripts/scan_checkpoints.py ~/models > table.md

The table is Markdown, with a row for each folder that has a checkpoint, an adapter, a tokenizer or
a `config.json`: the format, the configuration, the tokenizer and the weights, each with its size or
the reason why it does not load, and the warnings. Folders without weights are tried, too. A JSON
file may have a list of objects: each one with a `config` gets a row. Nothing is downloaded.

The last lines, on standard error, count the rows by what loads.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.adapters import CONFIG_FILE as ADAPTER_FILE
from keras_bert_d2l.checkpoints.detection import FORMATS, open_checkpoint
from keras_bert_d2l.checkpoints.formats.huggingface.config import CONFIG_FILE, config_from_json
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import TOKENIZER_FILES
from keras_bert_d2l.checkpoints.loading import load_model
from keras_bert_d2l.config import BERTConfig

COLUMNS = ("folder", "format", "configuration", "tokenizer", "weights", "warnings")
OTHER_TOKENIZERS = ("vocab.json", "spiece.model", "sentencepiece.bpe.model")
MOST = 300  # characters of a reason
NOTHING = "-"


def tried(read: Callable[[], str]) -> str:
    """Return what a function returns, or its error after "no: "."""
    try:
        return read()
    except Exception as error:  # a file may be anything; an unexpected type is part of the table
        kind = "" if isinstance(error, (ValueError, FileNotFoundError)) else type(error).__name__
        return f"no: {kind} {error}".replace("  ", " ")


def sizes(config: BERTConfig) -> str:
    """Return the sizes of an architecture in a few words."""
    blocks = f"{config.num_blks} blocks, {config.num_hiddens} wide, {config.num_heads} heads"
    return f"{blocks}, {config.vocab_size:,} tokens, {config.max_len:,} positions"


def config_row(file: pathlib.Path) -> str:
    """Return the sizes in a `config.json` of transformers, with its model type."""
    config, kind = config_from_json(file)
    return f"{kind.title}: {sizes(config)}"


def tokenizer_row(folder: pathlib.Path) -> str:
    """Load the tokenizer of a folder."""
    vocab = kb.load_tokenizer(folder).vocab
    return f"{vocab.kind}, {len(vocab):,} tokens"


def weights_row(folder: pathlib.Path) -> str:
    """Load the weights of a checkpoint, if there are any."""
    try:
        checkpoint = open_checkpoint(folder, tokenizer=False)
    except FileNotFoundError as error:
        if "has no weights" not in str(error):
            raise
        return NOTHING
    model = load_model(checkpoint)
    task = checkpoint.task["kind"] if checkpoint.task else "BERTModel"
    return f"{task}, {model.count_params():,} weights"


def adapter_row(folder: pathlib.Path) -> str:
    """Return what an adapter is for; it loads onto the model that it was trained on."""
    fields = json.loads((folder / ADAPTER_FILE).read_text(encoding="utf-8"))
    kind, base = fields.get("peft_type"), fields.get("base_model_name_or_path")
    return f"{kind} adapter of {base or 'a model without a name'}: load it with `load_adapter`"


def row_of(folder: pathlib.Path) -> dict[str, str] | None:
    """Return the row of a folder, or None if it contains no part of a checkpoint."""
    format = next((name for name, one in FORMATS.items() if one.recognizes(folder)), NOTHING)
    names = {path.name for path in folder.iterdir()}
    has_tokenizer = not names.isdisjoint({*TOKENIZER_FILES, *OTHER_TOKENIZERS})
    if ADAPTER_FILE in names:
        return {"format": "adapter", "weights": tried(lambda: adapter_row(folder))}
    if format == NOTHING and not has_tokenizer:
        return None
    row = {"format": format}
    if format == "huggingface" and CONFIG_FILE in names:
        row["configuration"] = tried(lambda: config_row(folder / CONFIG_FILE))
    elif format != NOTHING:
        describe = FORMATS[format].describe
        row["configuration"] = tried(lambda: sizes(describe(folder, tokenizer=False).config))
    if has_tokenizer or format not in (NOTHING, "huggingface"):
        row["tokenizer"] = tried(lambda: tokenizer_row(folder))
    if format != NOTHING:
        row["weights"] = tried(lambda: weights_row(folder))
    return row


def rows_of(root: pathlib.Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a folder and of all folders in it, or of a file of configurations."""
    if root.is_file():
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, CONFIG_FILE)
            for entry in json.loads(root.read_text(encoding="utf-8")):
                file.write_text(json.dumps(entry["config"]), encoding="utf-8")
                row = {"format": "config.json", "configuration": tried(lambda: config_row(file))}
                yield entry.get("source", os.fspath(root)), row
        return
    for parent, _, _ in os.walk(root):
        folder = pathlib.Path(parent)
        if (found := row_of(folder)) is not None:
            yield os.fspath(folder.relative_to(root)), found


def cell(text: str) -> str:
    """Return a text as one cell of a table, without the paths of the folder."""
    text = re.sub(r"'[^']*/([^'/]+)'", r"\1", text)
    text = " ".join(text.replace("|", r"\|").split())
    return text if len(text) <= MOST else f"{text[: MOST - 1]}…"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("paths", nargs="+", type=pathlib.Path, help="Folders with checkpoints.")
    counts: collections.Counter[str] = collections.Counter()
    print("| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS), sep="\n")
    for root in parser.parse_args().paths:
        if not root.exists():
            parser.error(f"argument paths: there is no {os.fspath(root)!r}.")
        rows = rows_of(root)
        while True:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                if (found := next(rows, None)) is None:
                    break
            name, row = found
            row |= {"folder": name, "warnings": "; ".join(str(one.message) for one in caught)}
            print(
                "| " + " | ".join(cell(row.get(c) or NOTHING) for c in COLUMNS) + " |", flush=True
            )
            failed = [column for column, value in row.items() if value.startswith("no: ")]
            counts["refused: " + ", ".join(failed) if failed else "loads"] += 1
    for kind, number in counts.most_common():
        print(f"{number:>6,}  {kind}", file=sys.stderr)


if __name__ == "__main__":
    main()
