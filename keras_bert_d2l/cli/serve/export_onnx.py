"""`keras-bert-d2l export-onnx`."""

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import OWN_MODEL
from keras_bert_d2l.cli.arguments import Flag, Model, OutFolder
from keras_bert_d2l.cli.loading import load
from keras_bert_d2l.progress import stage


def export_onnx(
    *,
    out: OutFolder,
    model: Model = OWN_MODEL,
    int8: Flag = False,
) -> None:
    """Export a model to ONNX, from token ids to logits, together with its tokenizer.

    For example: `keras-bert-d2l export-onnx --model runs/mine --out onnx/mine`

    Args:
        int8: Quantize to 8-bit integers: faster on recent CPUs, but less accurate.
    """
    loaded = load(model, as_embedder=None)
    with stage("Exporting the model"):
        file = kb.export_onnx(loaded.model, out, int8=int8)
    print(f"Exported {model} to {file}")
