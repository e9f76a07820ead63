"""Small models and files under the names that the documentation uses."""

import gzip
import json
import os
import pathlib
import shutil
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.location import SHORT_NAMES
from tests import family
from tests.checkpoints.small import write_google

WORDS = """[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h i k l m n o p r s t u v w y good bad film
what paris is the of france . ##a ##d ##e ##g ##i ##l ##m ##n ##o ##r ##s ##t ##u ##y""".split()
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SIZES = {"num_hiddens": 16, "ffn_num_hiddens": 24, "num_heads": 2, "num_blks": 1, "max_len": 128}
REVIEWS = ["text\tlabel", *["a good film\tgood", "the film is bad\tbad"] * 2]
REVIEWS += [f"{word} film of the {word}\t{word}" for word in ("good", "bad")] * 2
LINES = ["a good film", "a bad film", "what is paris"]
CONLLU = [f"{n}\t{{}}\t_\t{tag}" + 6 * "\t_" for n, tag in enumerate(("DET", "NOUN"), 1)]
ANSWERS = [{"text": "paris", "answer_start": 0}]
MINIMAL_PAIR = {"sentence_good": "the film is", "sentence_bad": "the film the", "UID": "agreement"}
NUMBERED = [*enumerate(WORDS[5:15])]
RANKED = {"positive": "it is good", "negative": ["a film"]}
RANKINGS = [json.dumps({"query": f"what is {w}", **RANKED}) for w in WORDS[5:15]]
FILES = {
    **dict.fromkeys(("lines.txt", "texts.txt", "reviews.txt", "faq.txt", "sentences.txt"), LINES),
    **dict.fromkeys(
        [f"{name}.tsv" for name in ("train", "dev", "test", "reviews", "reports")], REVIEWS
    ),
    "reviews.csv": [line.replace("\t", ",") for line in REVIEWS],
    "train.csv": ["body,mood", *(line.replace("\t", ",") for line in REVIEWS[1:])],
    "vocab.txt": WORDS,
    "SST-2/train.tsv": ["sentence\tlabel", "a good film\t1", "a bad film\t0"],
    "yelp/train.csv": [f'"{n % 2 + 1}","a film of {w}"' for n, w in NUMBERED],
    "ag_news/train.csv": [f'"{n % 2 + 1}","a {w}","it is {w}"' for n, w in NUMBERED],
    "CoLA/train.tsv": [f"gj04\t{n % 2}\t\ta {w} film" for n, w in NUMBERED],
    "stsbenchmark/sts-train.csv": [f"main\tx\t2012\t1\t5.0\ta {w}\tit is {w}" for _, w in NUMBERED],
    "jigsaw/train.csv": [
        "id,comment_text,toxic,obscene,threat",
        *["1,a bad film,1,0,0", "2,bad bad,1,1,1"] * 2,
    ],
    "goemotions/train.tsv": ["a good film\t3,5\te1", "a bad film\t5\te2"] * 2,
    "train.conllu": [line.format(w) for w in WORDS[5:15] for line in (*CONLLU, "")],
    **dict.fromkeys(
        ("train.conll", "dev.conll"),
        [f"{w} {tag}" for w in WORDS[5:15] for tag in ("B-PER", "I-PER")] + ["the O", ""],
    ),
    "squad.json": [
        json.dumps(
            {
                "data": [
                    {"title": w, "paragraphs": [{"context": f"paris is {w} .", "qas": [found]}]}
                    for w in WORDS[5:11]
                    for found in [{"id": w, "question": f"what is {w}", "answers": ANSWERS}]
                ]
            }
        )
    ],
    "swag.csv": [
        "sent1,ending0,ending1,label",
        *(f"the film {word},is good,is bad,{n % 2}" for n, word in enumerate(WORDS[5:15])),
    ],
    "snli.jsonl": [
        json.dumps({"sentence1": f"{word} film", "sentence2": "a film", "gold_label": label})
        for word in WORDS[5:10]
        for label in ("contradiction", "neutral", "entailment")
    ],
    "pairs.jsonl": [json.dumps({"question": w, "positive": f"it is {w}"}) for w in WORDS[5:25]],
    "rankings.jsonl": RANKINGS,
    "rankings-dev.jsonl": RANKINGS,
    "pairs.tsv": ["anchor\tpositive", *["a film\ta good film", "paris\tparis is good", "what\tis"]],
    "filtered/text/00000.txt": ["the film is good .", "", "a crane ."],
    "blimp.jsonl": [json.dumps(MINIMAL_PAIR)],
    "sts.tsv": ["sentence1\tsentence2\tscore", "a\tb\t0", "good\tgood .\t5", "film\ta film\t3"],
    "wikitext-2/wiki.train.tokens": [
        f"a crane is {w} . the film is {w} . {w} is" for w in WORDS[5:]
    ],
    **{
        f"runs/{run}/{name}": [content]
        for run in ("first", "second")
        for name, content in (
            ("run.yaml", f"{{corpus: {run}, steps: 2}}"),
            ("config.json", "{}"),
            ("metrics.jsonl", '{"step": 2, "val_mlm_cross_entropy": 9.0, "val_mlm_accuracy": 0.1}'),
        )
    },
    **{
        f"{folder}/{first}{last}.txt": [
            f"Paris is {first} and {last}. What is {first}? A film of {last}."
        ]
        for folder in ("my_text", "books")
        for first in WORDS[5:25]
        for last in "abcdef"
    },
}
ORIGINALS = pathlib.Path(__file__).parents[1] / "checkpoints/formats/originals"
FROM_ORIGINALS = {  # folders of other libraries: in `ORIGINALS`, or in its archive
    "downloads/bert_en_uncased_L-12_H-768_A-12": ORIGINALS / "tensorflow_hub/with_mlm",
    "downloads/bert_en_uncased_preprocess_3": ORIGINALS / "tensorflow_hub/uncased_preprocess",
    "garden/pretrained": ORIGINALS / "model_garden/pretraining",
    "garden/run": ORIGINALS / "model_garden/pooled_classifier",
    "old/hub_films": ORIGINALS / "tensorflow_hub/fine_tuned",
    "old/films": "classification",
    "old/ktrain": "ktrain-predictor",
    "old/own": "own-functional",
}
COMPRESSED = {  # by gzip
    "train.tsv.gz": "\n".join(REVIEWS),
    "dev.tsv.gz": "\n".join(REVIEWS),
}


def make_bert(preset="huggingface", **sizes):
    config = kb.BERTConfig.preset(preset, **{"vocab_size": len(WORDS), **SIZES, **sizes})
    model = kb.BERTModel.from_bert_config(config)
    model.tokenizer = kb.Tokenizer(kb.Vocab(WORDS))
    return model


@pytest.fixture(scope="session")
def small_models(tmp_path_factory):
    """The folder of a model for each id."""
    models = {
        SHORT_NAMES["bert-base-uncased"]: make_bert(),
        SHORT_NAMES["bert-tiny"]: make_bert(),
        SHORT_NAMES["minilm"]: make_bert(),
        SHORT_NAMES["bge-small"]: make_bert(num_hiddens=64),
        "naver/splade-v3-distilbert": make_bert(),
        SHORT_NAMES["ms-marco-minilm"]: kb.Reranker(make_bert()),
        SHORT_NAMES["bert-base-ner"]: kb.TokenClassifier(make_bert(), LABELS),
        "google-bert/bert-large-uncased-whole-word-masking-finetuned-squad": kb.QuestionAnswerer(
            make_bert()
        ),
    }
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        kb.save_pretrained(model, folder / name, format="huggingface")
    return {name: folder / name for name in models}


@pytest.fixture
def hub(local_hub, small_models, tmp_path, monkeypatch):
    """A local hub with the models, and an empty working directory."""
    for name, folder in small_models.items():
        local_hub.add(name, folder)
    monkeypatch.chdir(tmp_path)
    return local_hub


RELATIVES = {  # a short name on the pages -> a preset
    **dict.fromkeys(("camembert-base", "roberta-base", "xlm-roberta-base"), "roberta-base"),
    "distilbert-base-uncased": "distilbert",
    "electra-small": "electra-small",
    "mpnet": "mpnet-base",
    "albert-base-v2": "albert-base",
    "modernbert-base": "modernbert-base",
}


@pytest.fixture(scope="session")
def relatives(tmp_path_factory):
    """The folder of a model for each id. Those with the preset of RoBERTa tokenize by Unigram."""
    folder, made = tmp_path_factory.mktemp("relatives"), {}
    words = kb.Vocab([WORDS[1], WORDS[0], *WORDS[2:]])  # MPNet's padding must have the id 1
    for name, preset in RELATIVES.items():
        vocab = family.unigram() if preset == "roberta-base" else words
        model = make_bert(preset, vocab_size=len(vocab), pad_id=vocab.pad_id)
        model.tokenizer = kb.Tokenizer(vocab)
        made[SHORT_NAMES[name]] = folder / name
        kb.save_pretrained(model, folder / name, format="huggingface")
    return made


def write_tfrecord(path):
    """Write an example of pretraining as google-research/bert does."""
    example = tf.train.Example()
    values = {
        "input_ids": [2, 5, 4, 3, 6, 3] + [0] * 122,
        "input_mask": [1] * 6 + [0] * 122,
        "segment_ids": [0, 0, 0, 0, 1, 1] + [0] * 122,
        "masked_lm_positions": [2] + [0] * 19,
        "masked_lm_ids": [7] + [0] * 19,
        "next_sentence_labels": [0],
    }
    for name, numbers in values.items():
        example.features.feature[name].int64_list.value.extend(numbers)
    example.features.feature["masked_lm_weights"].float_list.value.extend([1.0] + [0.0] * 19)
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example.SerializeToString())


@pytest.fixture(scope="session")
def prepared(small_models, tmp_path_factory):
    """A folder with the files and the runs that the pages mention."""
    folder = tmp_path_factory.mktemp("prepared")
    for name, lines in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")
    for name, text in COMPRESSED.items():
        (folder / name).write_bytes(gzip.compress(text.encode() + b"\n"))
    write_tfrecord(folder / "examples.tfrecord")
    bert = make_bert()
    kb.save_pretrained(bert, folder / "runs/mine")
    kb.save_pretrained(bert, folder / "all-MiniLM-L6-v2")
    for name in ("uncased_L-12_H-768_A-12", "uncased_L-2_H-128_A-2"):
        bert = make_bert("google")
        write_google(bert, folder / "downloads" / name, bert.tokenizer.vocab)
    unpacked = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(ORIGINALS / "tf_model_h5.zip").extractall(unpacked)
    preset = zipfile.ZipFile(ORIGINALS / "kerashub/classifier_softmax.zip")
    preset.extractall(folder / "presets/keras_films")
    for name, original in FROM_ORIGINALS.items():
        shutil.copytree(unpacked / original, folder / name)
    with h5py.File(folder / "old/own/tf_model.h5", "r+") as file:  # the page has another input
        del file["classifier/classifier/kernel:0"]
        file["classifier/classifier/kernel:0"] = np.ones((9, 3), "float32")
    kb.save_pretrained(make_bert("d2l-torch"), folder / "book", format="book")
    weights = load_file(folder / "book/pretrained.safetensors")
    save_file(weights, folder / "bert.safetensors")  # without the number of heads
    classifier = kb.SequenceClassifier(bert, ["bad", "good"])
    kb.save_pretrained(classifier, folder / "runs/reviews")
    nli = kb.SequenceClassifier(make_bert(), ["contradiction", "neutral", "entailment"])
    kb.save_pretrained(nli, folder / "runs/nli")
    base = small_models[SHORT_NAMES["bert-base-uncased"]]
    adapted = kb.SequenceClassifier.from_pretrained(base, labels=["bad", "good"])
    adapted.enable_lora(8)
    kb.save_adapter(adapted, folder / "runs/films/adapter")
    return folder


@pytest.fixture(scope="session")
def onnx_models(tmp_path_factory):
    """A folder with the ONNX models that the pages mention."""
    folder, bert = tmp_path_factory.mktemp("onnx"), make_bert()
    kb.export_onnx(kb.SequenceClassifier(bert, ["bad", "good"]), folder / "reviews")
    kb.export_onnx(bert, folder / "pretrained")
    return folder


@pytest.fixture(scope="session")
def exporting_once(tmp_path_factory):
    """A function like `export_saved_model`, which exports a model of each kind only once."""
    export, folder, made = kb.export_saved_model, tmp_path_factory.mktemp("exports"), {}

    def export_once(model, out, *, version=None, run_dir=None, **options):
        kind = (type(model), getattr(model, "bert_config", None), *sorted(options.items()))
        if kind not in made:
            made[kind] = export(model, folder / str(len(made)), run_dir=run_dir, **options)
        number = version or len(list(pathlib.Path(out).glob("*"))) + 1
        return pathlib.Path(shutil.copytree(made[kind], pathlib.Path(out, str(number))))

    return export_once


def squad_articles():
    """Return a few articles of SQuAD, or one of a few words if its file is not there."""
    file = pathlib.Path(os.environ.get("KERAS_BERT_D2L_DATA", "."), "squad/dev-v1.1.json.gz")
    if file.exists():
        return json.loads(gzip.decompress(file.read_bytes()))["data"][:8]
    context = "The film is good . Paris is a film . France is bad ."
    asked = [
        {"question": f"what is {n}", "answers": [{"answer_start": n % len(context)}]}
        for n in range(2100)
    ]
    return [{"paragraphs": [{"context": context, "qas": asked}]}]


@pytest.fixture
def workplace(hub, prepared, exporting_once, eager_models, tmp_path, monkeypatch, request):
    """A working directory with copies of the files, and presets that are small."""
    page = request.node.name
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(kb, "export_saved_model", exporting_once)
    if any(name in page for name in ("relatives", "coming_from", "README.md-sh", "serving.md")):
        for name, folder in request.getfixturevalue("relatives").items():
            hub.add(name, folder)
    if "onnx" in page:
        shutil.copytree(request.getfixturevalue("onnx_models"), tmp_path / "onnx")
    if "serving" in page or "search" in page:
        kinds = {"mine": lambda bert: bert, "embedder": kb.TextEmbedder, "reranker": kb.Reranker}
        for name, kind in kinds.items():
            kb.export_saved_model(kind(make_bert()), f"saved_models/{name}")
    if "search" in page:
        (tmp_path / "dev-v1.1.json").write_text(json.dumps({"data": squad_articles()}))
    preset = kb.BERTConfig.preset
    monkeypatch.setattr(kb.BERTConfig, "preset", lambda name, **o: preset(name, **{**SIZES, **o}))
    return tmp_path
