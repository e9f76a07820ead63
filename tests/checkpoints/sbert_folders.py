"""Folders of sentence-transformers, with the vector that version 6.2 computes for a text.

`tests/peers/test_sentence_transformers.py` compares the vectors with those of the library.
"""

import json

from keras_bert_d2l import BERTConfig, Tokenizer, Vocab, save_pretrained
from tests.checkpoints.small import SMALL, random_model

VOCAB = Vocab("[PAD] [UNK] [CLS] [SEP] [MASK] the The cat café cafe Café on mat ##s".split())
TEXT = "The cats on Café CAFÉ the mat"
CONFIG = BERTConfig.preset(
    "huggingface", **SMALL | {"vocab_size": len(VOCAB)}, pooler=False, next_sentence=False
)
MEAN, CLS = {"pooling_mode_mean_tokens": True}, {"pooling_mode_cls_token": True}
NEW = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}
LOWER, SHORT = {"do_lower_case": True}, {"max_seq_length": 5}
FOLDERS = {
    "cased": ({}, [0.105819, -0.029438, -0.13731, -0.984419]),
    "lowercased": ({"bert": LOWER}, [0.105478, -0.029168, -0.137382, -0.984454]),
    "lowercased, in a folder of its own": (
        {"bert": LOWER, "inside": "0_Transformer", "pooling": CLS},
        [0.115713, -0.036437, -0.135935, -0.983262],
    ),
    "lowercased without accents": (
        {"bert": LOWER, "tokenizer": {"strip_accents": True}, "pooling": {"pooling_mode": ["max"]}},
        [0.115809, -0.026302, -0.135967, -0.98357],
    ),
    "uncased": (
        {"bert": {"do_lower_case": False}, "tokenizer": {"lowercase": True}, "inside": "bert"},
        [0.105219, -0.02915, -0.137286, -0.984496],
    ),
    "truncated": (
        {"bert": SHORT, "steps": ["Pooling"]},
        [0.184788, -0.050811, -0.241261, -1.727819],
    ),
    "truncated by the tokenizer": (
        {"fields": {"model_max_length": 5}, "inside": "0_Transformer", "pooling": {}},
        [0.105288, -0.028951, -0.137465, -0.984469],
    ),
    "longer than the model": (
        {"bert": {"max_seq_length": 99}, "pooling": CLS, "steps": ["Pooling"]},
        [0.202496, -0.063697, -0.23801, -1.72131],
    ),
    "of version 6": (
        {"classes": NEW, "pooling": {"pooling_mode": "cls"}, "steps": ["Pooling", "Dropout"]},
        [0.202496, -0.063697, -0.23801, -1.72131],
    ),
}


def write(
    path,
    *,
    pooling=MEAN,
    steps=("Pooling", "Normalize"),
    inside="",
    bert=None,  # the fields of `sentence_bert_config.json`
    tokenizer=None,
    fields=None,  # of `tokenizer_config.json`
    classes=None,
):
    """Write a folder whose BERT is in the folder `inside`, and return its path."""
    model = random_model(CONFIG)
    table = model.encoder.token_embedding.embeddings
    table.assign(5 * table)  # so that tokens matter
    options = {"lowercase": False, "compat": "huggingface", **(tokenizer or {})}
    model.tokenizer = Tokenizer(VOCAB, **options)
    save_pretrained(model, path / inside, format="huggingface")
    (path / inside / "SHA256SUMS").unlink()
    edit_json(path / inside / "tokenizer_config.json", fields or {})
    if bert is not None:
        edit_json(path / inside / "sentence_bert_config.json", bert)
    modules = [("Transformer", inside)]
    modules += [(kind, f"{number}_{kind}") for number, kind in enumerate(steps, 1)]
    settings = {"Pooling": {"word_embedding_dimension": 4, **pooling}, "Dropout": {"dropout": 0.5}}
    for kind, place in modules[1:]:
        (path / place).mkdir()
        edit_json(path / place / "config.json", settings.get(kind, {}))
    known = {kind: f"sentence_transformers.models.{kind}" for kind, _ in modules} | (classes or {})
    listed = [
        {"idx": number, "name": str(number), "path": place, "type": known[kind]}
        for number, (kind, place) in enumerate(modules)
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    return path


def edit_json(file, fields):
    old = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(old | fields))
