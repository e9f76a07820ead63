"""Write tiny presets of KerasHub with their inputs and outputs, as fixtures of the tests.

Every weight is random. `build.sh` of this folder runs this script with keras-nlp 0.8.2, which
writes the layout of older presets, and with keras-hub 0.32.
"""

import pathlib
import random
import tempfile
import zipfile

import keras
import numpy as np

try:
    import keras_hub as hub
except ImportError:
    import keras_nlp as hub

FOLDER = pathlib.Path(__file__).parents[2] / "tests/checkpoints/formats/originals/kerashub"
LETTERS = "abcdefghijklmnopqrstuvwxyzéAZ"
TOKENS = "the cat ##s ##ing sat on mat ! . , - ' 東 京 3 1 ##4".split()
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *TOKENS]
VOCAB = [*dict.fromkeys([*VOCAB, *LETTERS, *(f"##{letter}" for letter in LETTERS)])]
WORDS = """
    the The THE cat cats Cats sat on mat mats. sing, sings! it's e-mail don't 3.14 31 naïve café
    Élan élève AZ Zebra a_b x=y (cat) "mat" [cat] 東京 the東cat ... ?! 4th ångström [MASK] [SEP]
    can't~ #1 $3 cat@mat.com zzz
""".split()
SIZES = {
    "vocabulary_size": len(VOCAB),
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 16,
    "num_segments": 3,
}
RNG = np.random.default_rng(1)
LENS = np.array([10, 4])
BATCH = {
    "token_ids": RNG.integers(0, len(VOCAB), (2, 10), "int32"),
    "segment_ids": RNG.integers(0, 2, (2, 10), "int32"),
    "padding_mask": (np.arange(10) < LENS[:, None]).astype("int32"),
}
POSITIONS = np.array([[1, 5], [3, 0]], "int32")


def main() -> None:
    """Write one archive for each preset, with its `expected.npz`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if hub.__name__ == "keras_nlp":
        write("keras_nlp_classifier", randomized(hub.models.BertClassifier(backbone(), 3)))
        return
    models = hub.models
    tokenizer = models.BertTokenizer(vocabulary=VOCAB, lowercase=True, strip_accents=True)
    options = {"tokenizer": tokenizer, "sequence_length": 12}
    of_classifier = models.BertTextClassifierPreprocessor(**options)
    write("backbone", randomized(backbone()), models.BertTokenizer(VOCAB, lowercase=False))
    write("sharded", randomized(backbone()), max_shard_size=4e-6)
    for dtype in ("float16", "bfloat16"):
        write(dtype, randomized(backbone(dtype)))
    head = models.BertMaskedLMPreprocessor(**options)
    write("masked_lm", randomized(models.BertMaskedLM(backbone(), preprocessor=head)))
    for activation in ("linear", "softmax", "sigmoid"):
        arguments = {"preprocessor": of_classifier, "activation": activation, "dropout": 0.3}
        classifier = models.BertTextClassifier(backbone(), 3, **arguments)
        write(f"classifier_{activation}", randomized(classifier))
    score = models.BertTextClassifier(backbone(), 1, activation="sigmoid")
    write("classifier_score", randomized(score))
    for pooling, normalize in (("mean", True), ("max", False)):
        arguments = {"pooling_mode": pooling, "normalize": normalize}
        of_embedder = models.BertTextEmbedderPreprocessor(**options)
        embedder = models.BertTextEmbedder(backbone(), of_embedder, **arguments)
        write(f"embedder_{pooling}", randomized(embedder))
    write_tokens()


def backbone(dtype: str = "float32") -> keras.Model:
    """Return a small backbone."""
    return hub.models.BertBackbone(**SIZES, dtype=dtype)


def randomized(model: keras.Model) -> keras.Model:
    """Return a model with random weights."""
    for weight in model.weights:
        weight.assign(RNG.normal(0.1, 0.4, weight.shape))
    return model


def write(name: str, model: keras.Model, tokenizer: object = None, **options: float) -> None:
    """Write a preset and its outputs to an archive."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if hub.__name__ == "keras_nlp":
            from keras_nlp.src.utils.preset_utils import save_to_preset

            save_to_preset(model, temporary)
        else:
            model.save_to_preset(temporary, **options)
        if tokenizer is not None:
            tokenizer.save_to_preset(temporary)
        if model.dtype_policy.name != "float32":  # the stored numbers, without further rounding
            model = hub.models.BertBackbone.from_preset(temporary, dtype="float32")
        inputs = BATCH | ({"mask_positions": POSITIONS} if name == "masked_lm" else {})
        outputs = model(inputs)
        expected = outputs if isinstance(outputs, dict) else {"output": outputs}
        np.savez(folder / "expected.npz", **inputs, **{k: np.array(x) for k, x in expected.items()})
        pack(name, folder)


def write_tokens() -> None:
    """Write the tokens of 200 lines by tokenizers with different options."""
    rng = random.Random(1)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(200)]
    for name, options in {
        "tokens_cased": {},
        "tokens_lowercase": {"lowercase": True},
        "tokens_uncased": {"lowercase": True, "strip_accents": True},
        "tokens_special": {"lowercase": True, "special_tokens_in_strings": True},
    }.items():
        tokenizer = hub.models.BertTokenizer(vocabulary=VOCAB, **options)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            tokenizer.save_to_preset(temporary)
            ids = tokenizer(lines)
            np.savez(
                folder / "expected.npz",
                lines=np.array(lines),
                ids=np.concatenate(ids),
                lengths=[len(one) for one in ids],
            )
            pack(name, folder)


def pack(name: str, folder: pathlib.Path) -> None:
    """Write a folder to an archive whose bytes do not depend on the time."""
    with zipfile.ZipFile(
        FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix())
                file.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    main()
