"""Small models under the names that the documentation uses, on a local hub."""

import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.checkpoints.hub import SHORT_NAMES

WORDS = """[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h i k l m n o p r s t u v w y good bad film
what paris is the of france . ##a ##d ##e ##g ##i ##l ##m ##n ##o ##r ##s ##t ##u ##y""".split()
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def make_bert():
    config = kb.BERTConfig.preset(
        "huggingface",
        vocab_size=len(WORDS),
        num_hiddens=16,
        ffn_num_hiddens=24,
        num_heads=2,
        num_blks=1,
        max_len=32,
    )
    return kb.BERTModel.from_bert_config(config)


@pytest.fixture(scope="session")
def small_models(tmp_path_factory):
    """The folder of a model for each id."""
    models = {
        SHORT_NAMES["bert-base-uncased"].repo: make_bert(),
        SHORT_NAMES["minilm"].repo: make_bert(),
        SHORT_NAMES["bert-base-ner"].repo: kb.TokenClassifier(make_bert(), LABELS),
        "google-bert/bert-large-uncased-whole-word-masking-finetuned-squad": kb.QuestionAnswerer(
            make_bert()
        ),
    }
    folder, tokenizer = tmp_path_factory.mktemp("models"), kb.Tokenizer(kb.Vocab(WORDS))
    for name, model in models.items():
        kb.save_pretrained(model, folder / name, tokenizer=tokenizer, format="huggingface")
    return {name: folder / name for name in models}


@pytest.fixture
def hub(local_hub, small_models, tmp_path, monkeypatch):
    """A local hub with the models, and an empty working directory."""
    for name, folder in small_models.items():
        local_hub.add(name, folder)
    monkeypatch.chdir(tmp_path)
    return local_hub
