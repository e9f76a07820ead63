"""`keras-bert-d2l export`."""

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL, is_run
from keras_bert_d2l.cli.arguments import Flag, Model, NullThreshold, OutFolder, PositiveInt, TopK
from keras_bert_d2l.cli.loading import load
from keras_bert_d2l.progress import stage


def export(
    *,
    out: OutFolder,
    model: Model = OWN_MODEL,
    version: PositiveInt | None = None,
    pairs: Flag = False,
    top_k: TopK = 5,
    null_threshold: NullThreshold = None,
) -> None:
    """Export a SavedModel that accepts strings, for TensorFlow Serving or plain TensorFlow.

    A fine-tuned model predicts for its task; any other model fills masks.

    For example: `keras-bert-d2l export --model runs/mine --out saved_models/mine`

    Args:
        version: Version number, which names the subfolder of --out. [default: the next number]
        pairs: Classify or score pairs of texts instead of single texts.
    """
    loaded = load(model, as_embedder=None)
    with stage("Exporting the model"):
        folder = kb.export_saved_model(
            loaded.model,
            out,
            version=version,
            pairs=pairs,
            top_k=top_k,
            null_threshold=null_threshold,
            run_dir=model if is_run(model) else None,
        )
    print(f"Exported {model} to {folder}")
