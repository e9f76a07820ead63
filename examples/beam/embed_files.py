"""Embed the texts of many files with Apache Beam: `python embed_files.py IN OUT MODEL [OPTIONS]`.

IN is a folder of Parquet files and of JSON lines (`.jsonl`), with the columns or keys `id` and
`text`. For each of its files, OUT receives a Parquet file with the columns `id` and `vector`, or
with `--jsonl` a file of JSON lines. Run the script again to resume: files that OUT already has are
not computed again. The other OPTIONS are those of a runner of Beam.
"""

import json
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.ml.inference.base import KeyedModelHandler, PredictionResult, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

import keras_bert_d2l as kb

KINDS = (".jsonl", ".parquet")
COLUMNS = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32()))])


def read(file: Path) -> beam.PTransform:
    """Return the step that reads the rows of a file."""
    if file.suffix == ".parquet":
        return beam.io.ReadFromParquet(str(file), columns=["id", "text"])
    return beam.io.ReadFromText(str(file)) | "Parse" >> beam.Map(json.loads)


def write(file: Path) -> beam.PTransform:
    """Return the step that writes rows to one file."""
    name = {"num_shards": 1, "shard_name_template": ""}
    if file.suffix == ".parquet":
        return beam.io.WriteToParquet(str(file), COLUMNS, **name)
    return beam.Map(json.dumps) | "Lines" >> beam.io.WriteToText(str(file), **name)


def row(pair: tuple[str, PredictionResult]) -> dict[str, Any]:
    """Return a row of the output."""
    return {"id": pair[0], "vector": pair[1].inference.tolist()}


def main(source: str, out: str, model: str, *options: str) -> None:
    """Run one pipeline per file, which Beam splits for its workers."""
    ending = ".jsonl" if "--jsonl" in options else ".parquet"
    of_runner = [option for option in options if option != "--jsonl"] or ["--runner=FnApiRunner"]
    handler = KeyedModelHandler(kb.KerasBERTHandler(model, "embed"))
    files = [file for file in sorted(Path(source).iterdir()) if file.suffix in KINDS]
    targets = [Path(out, f"{file.stem}{ending}") for file in files]
    if len({*targets}) < len(files):
        sys.exit(f"The files of {source} must have different names, without .jsonl and .parquet.")
    for file, target in zip(files, targets, strict=True):
        if target.exists():  # Beam renames a file when it is complete
            continue
        with beam.Pipeline(options=PipelineOptions(of_runner)) as pipeline:
            (
                pipeline
                | "Read" >> read(file)
                | "Key" >> beam.Map(lambda found: (found["id"], found["text"]))
                | "Embed" >> RunInference(handler)
                | "Row" >> beam.Map(row)
                | "Write" >> write(target)
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
