"""`keras-bert-d2l features`."""

from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import BatchSize, File, Model, Out, Texts, Truncate
from keras_bert_d2l.cli.input_output import iterate_texts
from keras_bert_d2l.cli.loading import load
from keras_bert_d2l.cli.outputs import check_output
from keras_bert_d2l.progress import stage


def features(
    *texts: Texts,
    file: File = None,
    model: Model = OWN_MODEL,
    out: Out,
    layers: Annotated[str, Parameter(allow_leading_hyphen=True)] = "-1",
    pooling: Literal["cls", "mean", "max"] | None = None,
    truncate: Truncate = False,
    batch_size: BatchSize = 32,
) -> None:
    """Write the vectors of chosen layers to a file, for any number of texts.

    For example:

    - `keras-bert-d2l features --file lines.txt --model minilm --out vectors.npz --pooling mean`
    - `cat lines.txt | keras-bert-d2l features - -m runs/mine -o tokens.parquet --layers -1,-2`

    Args:
        out: Output file: .npz, .parquet (requires the extra `parquet`) or .jsonl.
        layers: Numbers of the layers, separated by commas: 0 for the embeddings, 1 for the first
            block, -1 for the last.
        pooling: Write one vector per text instead of one per token: that of [CLS], the mean or the
            maximum.
    """
    from keras_bert_d2l.inference.features import check_features_path

    try:
        numbers = [int(number) for number in layers.split(",")]
    except ValueError as error:
        raise ValueError(
            f"--layers must be numbers separated by commas, such as -1,-2. Received: {layers!r}."
        ) from error
    check_features_path(out)
    check_output("out", out, inputs=[file])
    found = kb.extract_features(
        load(model).model,
        iterate_texts(texts, file),
        layers=numbers,
        pooling=pooling,
        batch_size=batch_size,
        truncate=truncate,
    )
    with stage("Extracting features") as work:

        def counted() -> Iterator[kb.Features]:
            for count, one in enumerate(found, 1):
                yield one
                work.remark = f"{count:,} texts"

        num_texts = kb.write_features(out, counted())
    print(f"{num_texts:,} texts in {out}")
