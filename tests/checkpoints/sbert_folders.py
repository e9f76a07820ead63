"""Folders of sentence-transformers, with the vector that version 6.2 computes for a text.

`tests/peers/test_sentence_transformers.py` compares the vectors with those of the library.
"""

import json

from keras_bert_d2l import BERTConfig, Tokenizer, Vocab, save_pretrained
from keras_bert_d2l.checkpoints.weights import named_weights
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
}
LOWER, SHORT = {"do_lower_case": True}, {"max_seq_length": 5}
MAX, STEPS = {"pooling_mode": ["max"]}, ("Pooling", "Dropout")
FOLDERS = {
    "cased": {},
    "lowercased": {"bert": LOWER},
    "in a folder of its own": {"bert": LOWER, "inside": "0_Transformer", "pooling": CLS},
    "without accents": {"bert": LOWER, "tokenizer": {"strip_accents": True}, "pooling": MAX},
    "uncased": {"bert": {"do_lower_case": False}, "tokenizer": {"lowercase": True}, "inside": "b"},
    "truncated": {"bert": SHORT, "steps": ["Pooling"]},
    "truncated by the tokenizer": {"fields": {"model_max_length": 5}, "inside": "b", "pooling": {}},
    "of version 6": {"classes": NEW, "pooling": {"pooling_mode": "cls"}, "steps": STEPS},
}
VECTORS = {
    "cased": [0.040833, 0.035291, -0.302838, -0.951513],
    "lowercased": [-0.379833, 0.091096, -0.100551, -0.915051],
    "in a folder of its own": [0.570466, 0.388052, -0.715707, -0.108383],
    "without accents": [0.648605, 0.371481, 0.636622, 0.189805],
    "uncased": [-0.321108, 0.022036, -0.078555, -0.943522],
    "truncated": [-0.623822, 0.10875, 0.288587, 0.102257],
    "truncated by the tokenizer": [-0.886913, 0.154614, 0.410296, 0.145383],
    "of version 6": [1.148945, 0.626414, -1.338292, -0.370159],
}


def write(path, pooling=MEAN, steps=("Pooling", "Normalize"), inside="", **options):
    """Write a folder whose BERT is in the folder `inside`, and return its path.

    `options`: `tokenizer`, its arguments; `bert` and `fields`, those of `sentence_bert_config.json`
    and `tokenizer_config.json`; `classes`, the types of modules by their names; and `settings`, the
    fields of other modules.
    """
    model = random_model(CONFIG)
    for name, weight in named_weights(model).items():  # without constants, so that tokens matter
        weight.assign(0 * weight if name.endswith(("bias", "beta")) else 3 * weight)
    arguments = {"lowercase": False, "compat": "huggingface", **options.get("tokenizer", {})}
    model.tokenizer = Tokenizer(VOCAB, **arguments)
    save_pretrained(model, path / inside, format="huggingface")
    (path / inside / "SHA256SUMS").unlink()
    edit_json(path / inside / "tokenizer_config.json", options.get("fields", {}))
    edit_json(path / inside / "sentence_bert_config.json", options.get("bert", {}))
    modules = [("Transformer", inside)]
    modules += [(kind, f"{number}_{kind}") for number, kind in enumerate(steps, 1)]
    settings = {"Pooling": {"word_embedding_dimension": 4, **pooling}, "Dropout": {"dropout": 0.5}}
    settings |= options.get("settings", {})
    for kind, place in modules[1:]:
        (path / place).mkdir()
        edit_json(path / place / "config.json", settings.get(kind, {}))
    types = {kind: f"sentence_transformers.models.{kind}" for kind, _ in modules}
    types |= options.get("classes", {})
    listed = [
        {"idx": number, "name": str(number), "path": place, "type": types[kind]}
        for number, (kind, place) in enumerate(modules)
    ]
    (path / "modules.json").write_text(json.dumps(listed))
    return path


def edit_json(file, fields):
    old = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(old | fields))
