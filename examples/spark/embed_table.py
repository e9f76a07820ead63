"""Embed a column of a table with Spark: `spark-submit embed_table.py IN OUT MODEL`.

IN is a Parquet file or folder with the column `text`. OUT is the table with a column `vector`.
Every worker must be able to read MODEL. Each of its Python processes loads it once.
"""

import sys
from collections.abc import Callable

import numpy as np
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType


def main(source: str, out: str, path: str) -> None:
    """Add the column of vectors."""

    def make() -> Callable[[np.ndarray], np.ndarray]:
        import keras_bert_d2l as kb

        model = kb.TextEmbedder.from_pretrained(path)
        return lambda texts: kb.embed(model, texts)

    embed = predict_batch_udf(make, return_type=ArrayType(FloatType()), batch_size=1024)
    spark = SparkSession.builder.appName("embed").getOrCreate()
    table = spark.read.parquet(source)
    table.withColumn("vector", embed("text")).write.mode("overwrite").parquet(out)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
