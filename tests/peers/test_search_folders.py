"""Folders of sentence-transformers give its vectors and scores in Python, SavedModels and ONNX.

The SavedModels answer in a process with TensorFlow alone, and the ONNX folders in one without it.
"""

import functools
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.checkpoints.sbert_folders import edit_json
from tests.nightly import nightly_except

NEEDED = "needs sentence-transformers: make test-peers"
torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
sbert = pytest.importorskip("sentence_transformers", reason=NEEDED)
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules", reason=NEEDED)
pytest.importorskip("onnxruntime", reason="needs onnxruntime: make test-peers")
family = pytest.importorskip("scripts.originals.family")
exports = pytest.importorskip("tests.peers.test_family_exports")

pytestmark = pytest.mark.filterwarnings("ignore:Truncated to")
ASK_ONNX = """
import json, sys
import numpy as np
from keras_bert_d2l.serving.server.local_server import load

arrays = {}
for name, question in json.load(open(sys.argv[1])).items():
    model = load(question["folder"])
    for number, (signature, inputs) in enumerate(question["requests"]):
        texts = {
            key: np.array([x.encode("latin-1") for x in values], object).reshape(shape)
            for key, (_, shape, values) in inputs.items()
        }
        for key, x in model.ask(signature, texts).items():
            arrays[f"eager/{name}/{number}/{key}"] = x.astype("S") if x.dtype == object else x
np.savez(sys.argv[2], **arrays)
assert not {"tensorflow", "keras"} & sys.modules.keys()
"""
COMMANDS = {
    "SavedModel": [sys.executable, str(exports.ASK)],
    "ONNX": [sys.executable, "-c", ASK_ONNX],
}
WIDTH, LIMIT = 32, 40
QUERY = "Where in the big city does Ada live?"
TEXTS = [
    "Ada lives in London, the big city.",
    "",
    "A CAT sat  on the Mat",
    "Café naïve 猫🙂\tparis\u00a0 \u0301x ½ ﬁn",
    "Кошка сидит на коврике. 東京は大きい 도시 مدينة",
    "The film is good about sport and bad on a mat. " * 6,
]
nn, normalize = torch.nn, modules.Normalize
PROMPTS = {"prompts": {"query": "in London: ", "document": "the FILM, "}}
DEFAULT = {"prompts": {"x": "on the mat"}, "default_prompt_name": "x"}
BOTH = PROMPTS | {"default_prompt_name": "document"}


def pooling(*modes, **options):
    return modules.Pooling(WIDTH, modes or "mean", **options)


def dense(sizes, activation=nn.Identity, **options):
    return modules.Dense(*sizes, activation_function=activation(), **options)


def old_layout(folder):
    """Turn a folder into one of sentence-transformers 0.3 to 2, with weights of PyTorch."""
    inner = folder / "0_Transformer"
    inner.mkdir()
    for file in [file for file in folder.iterdir() if file.is_file() and file.stem not in KEPT]:
        shutil.move(file, inner)
    (inner / "sentence_bert_config.json").write_text('{"max_seq_length": 9, "do_lower_case": true}')
    modes = {"cls_token": False, "mean_tokens": True, "max_tokens": True}
    modes = {f"pooling_mode_{name}": is_on for name, is_on in modes.items()}
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": WIDTH, **modes})
    )
    listed = json.loads((folder / "modules.json").read_text())
    for module in listed:
        module["type"] = f"sentence_transformers.models.{module['type'].rpartition('.')[2]}"
    listed[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "config_sentence_transformers.json").unlink()
    for file in folder.rglob("model.safetensors"):
        torch.save(load_file(file), file.with_name("pytorch_model.bin"))
        file.unlink()


KEPT = {"modules", "config_sentence_transformers"}
load_file = pytest.importorskip("safetensors.torch").load_file
EMBEDDERS = {  # BERT's relative, the modules after it, options of the model and the Transformer
    "cls": ("bert", lambda: [pooling("cls")]),
    "mean": ("bert", lambda: [pooling(), normalize()], {"similarity_fn_name": "dot"}),
    "max": ("roberta", lambda: [pooling("max")], {"similarity_fn_name": "euclidean"}),
    "root of length": ("mpnet", lambda: [pooling("mean_sqrt_len_tokens")]),
    "weighted": ("xlm-roberta", lambda: [pooling("weightedmean"), normalize()]),
    "last": ("distilbert", lambda: [pooling("lasttoken")], {"similarity_fn_name": "manhattan"}),
    "several poolings": ("bert", lambda: [pooling("lasttoken", "cls", "weightedmean", "max")]),
    "dense": ("bert", lambda: [pooling(), dense((WIDTH, 48), nn.Tanh)]),
    "no bias": ("mpnet", lambda: [pooling("cls"), dense((WIDTH, 24), bias=False), normalize()]),
    "normalized before": ("roberta", lambda: [pooling(), normalize(), dense((WIDTH, 8), nn.GELU)]),
    "two dense": (
        "distilbert",
        lambda: [
            pooling("cls", "mean"),
            dense((2 * WIDTH, 48), nn.ReLU),
            normalize(),
            dense((48, 16), nn.Sigmoid),
            normalize(),
        ],
    ),
    "dropout": ("bert", lambda: [pooling(), modules.Dropout(0.5), normalize()]),
    "prompts": ("bert", lambda: [pooling(), normalize()], PROMPTS),
    "a default prompt": ("roberta", lambda: [pooling()], DEFAULT),
    "all prompts": ("xlm-roberta", lambda: [pooling("lasttoken")], BOTH),
    "prompts not pooled": ("bert", lambda: [pooling(include_prompt=False)], PROMPTS),
    "prompts not pooled, all": (
        "bert",
        lambda: [pooling(*modules.Pooling.POOLING_MODES, include_prompt=False)],
        BOTH,
    ),
    "prompts of bytes": ("roberta", lambda: [pooling("weightedmean", include_prompt=False)], BOTH),
    "prompts of pieces": ("xlm-roberta", lambda: [pooling(include_prompt=False)], BOTH),
    "table": ("static", list),
    "table, normalized": ("static", lambda: [normalize()], PROMPTS),
    "lowercased": ("modernbert", lambda: [pooling()], {}, {"do_lower_case": True}),
    "shorter": ("modernbert", lambda: [pooling()], PROMPTS, {"max_seq_length": 12}),
    "fewer numbers": ("mpnet", lambda: [pooling(), normalize()], {"truncate_dim": 8}),
    "old": (
        "bert",
        lambda: [pooling("max", "mean"), dense((2 * WIDTH, WIDTH), nn.Tanh)],
        {},
        {},
        old_layout,
    ),
}


def before_version(number, activation):
    """Return a function that turns a folder of a CrossEncoder into an older one."""
    name = f"torch.nn.modules.{activation}"
    fields = {"sbert_ce_default_activation_function": name}
    fields = fields if number == 4 else {"sentence_transformers": {"activation_fn": name}}

    def edit(folder):
        for file in (*KEPT, "sentence_bert_config"):
            (folder / f"{file}.json").unlink()
        edit_json(folder / "config.json", fields)

    return edit


IDENTITY = {"activation_fn": nn.Identity()}
RERANKERS = {  # BERT's relative, the options of the CrossEncoder, and what changes the folder
    "sigmoid": ("bert", {}),
    "identity": ("xlm-roberta", IDENTITY),
    "of version 3": ("bert", IDENTITY, before_version(4, "linear.Identity")),
    "of version 5": ("roberta", {}, before_version(6, "activation.Sigmoid")),
    "shorter pairs": ("mpnet", {"max_length": 20}),
    "mean of tokens": ("modernbert", {}),
}


@functools.cache
def base(name, folder, ending="Model"):
    """Write a random model of transformers with its tokenizer, and return its path."""
    tokenizer = exports.their_tokenizer(name)
    options = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    options |= {"id2label": {0: "LABEL_0"}, "problem_type": None} if ending != "Model" else {}
    options |= {"hidden_size": WIDTH, "num_attention_heads": 4}
    options |= {"max_position_embeddings": LIMIT + 2 * (name in exports.COUNTED)}
    theirs = family.original(name, ending, **options)
    for weight in theirs.parameters():
        weight.data -= weight.data.mean()  # so that the tokens matter more than constants
    theirs.save_pretrained(folder / name / ending)
    tokenizer.model_max_length = LIMIT
    tokenizer.save_pretrained(folder / name / ending)
    return str(folder / name / ending)


def read(folder, kind="SentenceTransformer"):
    return getattr(sbert, kind)(str(folder), device="cpu", local_files_only=True)


def embedder(folder, name, after, options=None, bert=None, edit=None):
    """Write a folder of sentence-transformers."""
    torch.manual_seed(0)
    if name == "static":
        tokenizer = exports.their_tokenizer("bert").backend_tokenizer
        first = modules.StaticEmbedding(tokenizer, embedding_dim=WIDTH)
    else:
        first = modules.Transformer(base(name, folder.parents[1]), **bert or {})
    theirs = sbert.SentenceTransformer(modules=[first, *after()], device="cpu", **options or {})
    theirs.save(str(folder))
    if edit:
        edit(folder)
    return folder


def reranker(folder, name, options, edit=None):
    """Write a folder of a CrossEncoder."""
    path = base(name, folder.parents[1], "ForSequenceClassification")
    sbert.CrossEncoder(path, device="cpu", **options).save(str(folder))
    if edit:
        edit(folder)
    return folder


def vectors(model):
    """Return the vectors of texts by signature, where the prompts differ."""
    default = model.prompts.get(model.default_prompt_name, "")
    found = {"embed": model.encode(TEXTS)}
    for kind in ("query", "document"):
        if model.prompts[kind] != default:
            found[f"embed_{kind}"] = getattr(model, f"encode_{kind}")(TEXTS)
    return found


def compared(theirs, ours):
    """Compare the vectors of texts, and return them by signature."""
    right = vectors(theirs)
    for name, expected in right.items():
        prompt = ours.prompt(name.removeprefix("embed_")) if name != "embed" else None
        assert_close(kb.embed(ours, TEXTS, prompt=prompt), expected)
    similarities = theirs.similarity(theirs.encode_query(QUERY), theirs.encode_document(TEXTS))[0]
    matches = kb.similar(ours, QUERY, TEXTS, top_k=len(TEXTS))
    assert_close([x.score for x in matches], similarities[[x.index for x in matches]])
    assert_close([x.score for x in matches], sorted(similarities, reverse=True))
    return right


def request(signature, **inputs):
    columns = {
        name: ("string", np.shape(x), [y.encode().decode("latin-1") for y in np.ravel(x).tolist()])
        for name, x in inputs.items()
    }
    return [signature, columns]


def ask(questions, command, folder):
    """Return the outputs by model and number of the request, from a fresh process."""
    (folder / "questions.json").write_text(json.dumps(questions))
    subprocess.run([*command, "questions.json", "answers.npz"], cwd=folder, check=True, timeout=300)
    return {tuple(key.split("/")[1:]): x for key, x in np.load(folder / "answers.npz").items()}


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("part", nightly_except([0], [0, 1, 2]))
def test_vectors_and_scores_are_those_of_sentence_transformers(
    part, tmp_path, subtests, eager_models
):
    questions, onnx, expected = {}, {}, {}
    pairs = [(QUERY, text) for text in TEXTS]

    def export(name, ours, requests, right):
        path = kb.export_saved_model(ours, tmp_path / name / "saved")
        questions[name] = {"folder": str(path), "loaders": ["eager"], "requests": requests}
        path = kb.export_onnx(ours, tmp_path / name / "onnx").parent
        onnx[name] = {"folder": str(path), "requests": requests}
        expected[name] = right

    for name, variant in [*EMBEDDERS.items()][part::3]:
        with subtests.test(name):
            folder = tmp_path / name
            theirs = read(embedder(folder / "theirs", *variant))
            ours = kb.TextEmbedder.from_pretrained(folder / "theirs", verbose=False)
            right = compared(theirs, ours)
            kb.save_pretrained(ours, folder / "back", format="huggingface")
            back = read(folder / "back")
            assert back.similarity_fn_name == theirs.similarity_fn_name
            for signature, found in vectors(back).items():
                assert_close(found, right[signature])
            requests = [request(signature, text=TEXTS) for signature in right]
            export(name, ours, requests, {"embedding": [*right.values()]})
    for name, variant in [*RERANKERS.items()][part::3]:
        with subtests.test(name):
            folder = tmp_path / name
            theirs = read(reranker(folder / "theirs", *variant), "CrossEncoder")
            ours = kb.Reranker.from_pretrained(folder / "theirs", verbose=False)
            ranked, right = kb.rerank(ours, QUERY, TEXTS), theirs.predict(pairs)
            assert [x["corpus_id"] for x in theirs.rank(QUERY, TEXTS)] == [x.index for x in ranked]
            assert_close([x.score for x in ranked], sorted(right, reverse=True))
            kb.save_pretrained(ours, folder / "back", format="huggingface")
            assert_close(read(folder / "back", "CrossEncoder").predict(pairs), right)
            requests = [request("rerank", query=QUERY, texts=TEXTS)]
            export(name, ours, requests, {"scores": [right]})
    for kind, asked in (("SavedModel", questions), ("ONNX", onnx)):
        answers = ask(asked, COMMANDS[kind], tmp_path)
        for name, outputs in expected.items():
            with subtests.test(name, kind=kind):
                for output, numbered in outputs.items():
                    for number, right in enumerate(numbered):
                        assert_close(answers[name, str(number), output], right)
