"""Write `tests/checkpoints/formats/originals/family/` by transformers 5: relatives of BERT.

    python -m scripts.originals.family

It needs transformers 5 and PyTorch. There is one archive for each `model_type`, with a random model
of each class and `outputs.npz` with the outputs of each.
"""

import pathlib
import tempfile
import zipfile

import numpy as np
import torch
import transformers

FOLDER = pathlib.Path(__file__).parents[2] / "tests/checkpoints/formats/originals/family"
PAD, LENGTHS = 1, (10, 4, 7, 9)
_SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 14,
    "pad_token_id": PAD,
}
_EPSILON = {"layer_norm_eps": 1e-5}
_DISTANCES = {
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
}
MODEL_TYPES = {
    "distilbert": {"hidden_dim": 24},
    "electra": {"embedding_size": 8, **_EPSILON},
    "roberta": {"type_vocab_size": 1, **_EPSILON},
    "camembert": {"type_vocab_size": 1, **_EPSILON},
    "xlm-roberta": {"type_vocab_size": 1, **_EPSILON},
    "mpnet": _EPSILON,
    "albert": {"embedding_size": 8, "num_hidden_layers": 3, "hidden_act": "gelu_new"},
    "modernbert": {
        "num_hidden_layers": 4,
        "local_attention": 4,
        "classifier_pooling": "mean",
        "global_rope_theta": 1000.0,
        "local_rope_theta": 100.0,
    },
    "deberta": {**_DISTANCES, "max_relative_positions": 6},
    "deberta-v2": {
        **_DISTANCES,
        "position_buckets": 4,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 3,
        "conv_act": "gelu",
    },
}
LABELS = {0: "bad", 1: "good", 2: "neither"}
CLASSES = {  # names of Auto classes, with fields of the configuration
    "Model": {},
    "ForMaskedLM": {},
    "ForPreTraining": {},
    "ForSequenceClassification": {"id2label": LABELS, "problem_type": "multi_label_classification"},
    "ForTokenClassification": {"id2label": LABELS},
    "ForQuestionAnswering": {},
    "ForMultipleChoice": {},
}


def classes_of(model_type: str) -> list[str]:
    """Return those of `CLASSES` that a model type has."""
    has_two_heads = model_type in ("albert", "electra")
    lacks = set() if has_two_heads else {"ForPreTraining"}
    lacks |= {"ForMultipleChoice"} if model_type == "deberta" else set()
    return [name for name in CLASSES if name not in lacks]


def original(model_type: str, name: str, **options: object) -> torch.nn.Module:
    """Return a model of transformers whose weights are random, and none of them 0 or 1.

    Args:
        model_type: `"bert"`, or one of `MODEL_TYPES`.
        name: One of `CLASSES`.
        **options: Other fields of the configuration.
    """
    sizes = _SIZES | MODEL_TYPES.get(model_type, {}) | CLASSES[name] | options
    if model_type == "distilbert":  # has `hidden_dim`
        del sizes["intermediate_size"]
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    auto = getattr(transformers, f"AutoModel{name.removeprefix('Model')}")
    model = auto.from_config(config).eval()
    generator = np.random.default_rng(len(model_type) + len(name))
    for weight in model.parameters():  # few digits, which take less space in an archive
        value = np.round(generator.normal(0.1, 0.3, weight.shape) * 64) / 64 + 2**-7
        weight.data = torch.tensor(value, dtype=torch.float32)
    return model


def inputs_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return rows of tokens with padding, by names of transformers."""
    generator = np.random.default_rng(0)
    shape = (len(LENGTHS), max(LENGTHS))
    mask = np.arange(shape[1]) < np.array(LENGTHS)[:, None]
    inputs = {
        "input_ids": np.where(mask, generator.integers(2, 40, shape), PAD),
        "attention_mask": mask.astype("int64"),
    }
    if getattr(model.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = generator.integers(0, 2, shape)
    if type(model).__name__.endswith("ForMultipleChoice"):
        inputs = {key: x.reshape(2, 2, -1) for key, x in inputs.items()}
    return {key: torch.tensor(x) for key, x in inputs.items()}


def outputs_of(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Return what a model computes for its inputs."""
    with torch.no_grad():
        outputs = model(**inputs_of(model))
    return {key: x.numpy() for key, x in outputs.items() if isinstance(x, torch.Tensor)}


def main() -> None:
    """Write the archives."""
    FOLDER.mkdir(exist_ok=True)
    for model_type in MODEL_TYPES:
        with tempfile.TemporaryDirectory() as folder:
            path, arrays = pathlib.Path(folder), {}
            for name in classes_of(model_type):
                model = original(model_type, name)
                model.save_pretrained(path / name)
                arrays |= {f"{name}/{key}": x.numpy() for key, x in inputs_of(model).items()}
                arrays |= {f"{name}/{key}": x for key, x in outputs_of(model).items()}
            np.savez(path / "outputs.npz", **arrays)
            with zipfile.ZipFile(FOLDER / f"{model_type}.zip", "w", zipfile.ZIP_LZMA) as archive:
                for file in sorted(path.rglob("*")):
                    if file.is_file():
                        archive.write(file, file.relative_to(path))


if __name__ == "__main__":
    main()
