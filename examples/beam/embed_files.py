"""Embed the texts of many files with Apache Beam: `python embed_files.py IN OUT MODEL [OPTIONS]`.

IN is a folder of JSON lines with the keys `id` and `text`. For each of its files, OUT receives a
Parquet file with the columns `id` and `vector`. Run the script again to resume: files that OUT
already has are not computed again. OPTIONS are those of a runner of Beam.
"""

import json
import sys
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
from apache_beam.ml.inference.base import KeyedModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

import keras_bert_d2l as kb

COLUMNS = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32()))])


def main(source: str, out: str, model: str, *options: str) -> None:
    """Run one pipeline per file, which Beam splits for its workers."""
    handler = KeyedModelHandler(kb.KerasBERTHandler(model, "embed"))
    for file in sorted(Path(source).glob("*.jsonl")):
        target = Path(out, file.stem).with_suffix(".parquet")
        if target.exists():  # Beam renames a file when it is complete
            continue
        runner = PipelineOptions([*options] or ["--runner=FnApiRunner"])
        with beam.Pipeline(options=runner) as pipeline:
            (
                pipeline
                | "Read" >> beam.io.ReadFromText(str(file))
                | "Parse" >> beam.Map(json.loads)
                | "Key" >> beam.Map(lambda row: (row["id"], row["text"]))
                | "Embed" >> RunInference(handler)
                | "Row" >> beam.Map(lambda pair: {"id": pair[0], "vector": pair[1].inference})
                | "Write"
                >> beam.io.WriteToParquet(
                    str(target), COLUMNS, num_shards=1, shard_name_template=""
                )
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
