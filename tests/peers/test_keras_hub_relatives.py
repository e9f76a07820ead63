"""KerasHub's presets of BERT's relatives, read here, and those written here, read by KerasHub."""

import io

import numpy as np
import pytest

import keras_bert_d2l as kb
from tests.family import byte_pairs

keras_hub = pytest.importorskip("keras_hub", reason="needs KerasHub: make test-peers")
sentencepiece = pytest.importorskip("sentencepiece", reason="needs KerasHub: make test-peers")

WORDS = "the cat sat on a mat good bad film Paris is big about Films, 3.14".split()
TEXTS = ["the cat sat on a mat", "Good  film about Paris", "big films, is bad, 3.14!"]
WORDPIECE = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sat on mat film good bad".split()
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}
SIZES |= {"max_sequence_length": 16, "dropout": 0.0}
MODELS = {  # the backbone's arguments, and the classes that KerasHub has
    "Roberta": ({}, ["MaskedLM", "TextClassifier"]),
    "XLMRoberta": ({}, ["MaskedLM", "TextClassifier", "TextEmbedder"]),
    "DistilBert": ({}, ["MaskedLM", "TextClassifier"]),
    "Albert": ({"embedding_dim": 4}, ["MaskedLM", "TextClassifier"]),
    "DebertaV3": ({"bucket_size": 4}, ["MaskedLM", "TextClassifier"]),
    "Electra": ({"embedding_dim": 4}, ["Backbone"]),
}
CASES = [(title, end) for title, (_, ends) in MODELS.items() for end in ends]
RNG = np.random.default_rng(1)
# KerasHub warns of missing states of an optimizer, and does not close the file of SentencePiece.
IGNORED = pytest.mark.filterwarnings(
    "ignore:Skipping variable loading", "ignore:KerasHub cannot", r"ignore:.*vocabulary\.spm"
)


def tokenizer_of(title):
    """Return a tokenizer of KerasHub."""
    make = getattr(keras_hub.models, f"{title}Tokenizer")
    if title in ("DistilBert", "Electra"):
        return make(WORDPIECE, lowercase=True)
    if title == "Roberta":
        vocab = byte_pairs(2)
        merges = [" ".join(pair) for pair in vocab.definition["model"]["merges"]]
        return make({token: n for n, token in enumerate(vocab.tokens)}, merges)
    options = {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "pad_id": 0, "unk_id": 1}
    options |= {"bos_id": -1, "eos_id": -1}
    if title == "DebertaV3":
        pieces = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}
        options = {f"{name}_piece": piece for name, piece in pieces.items()}
        options |= {f"{name}_id": number for number, name in enumerate(pieces)}
    data = io.BytesIO()
    options = {} if title == "XLMRoberta" else options
    options |= {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
    texts = iter([*WORDS, *TEXTS] * 5)
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=texts, model_writer=data, **options)
    return make(data.getvalue())


def preset_of(title, end, folder):
    """Return a random model of KerasHub that is saved as a preset, and its tokenizer."""
    tokenizer, own = tokenizer_of(title), MODELS[title][0]
    size = "vocab_size" if title == "Electra" else "vocabulary_size"
    own = {**own, **SIZES, size: tokenizer.vocabulary_size()}
    model = getattr(keras_hub.models, f"{title}Backbone")(**own)
    arguments = {"num_classes": 3} if end == "TextClassifier" else {}
    if end != "Backbone":
        rows = getattr(keras_hub.models, f"{title}{end}Preprocessor")(tokenizer, sequence_length=16)
        task = getattr(keras_hub.models, f"{title}{end}")
        model = task(backbone=model, preprocessor=rows, **arguments)
    for weight in model.weights:
        weight.assign(RNG.normal(0.1, 0.4, weight.shape))
    model.save_to_preset(str(folder))
    if end == "Backbone":
        tokenizer.save_to_preset(str(folder))
    return model, tokenizer


def batches(model, number):
    """Return the same rows for a model of KerasHub, and for one of ours."""
    lens = np.array([10, 4])
    tokens = RNG.integers(5, number, (2, 10), "int32")
    inputs = {"token_ids": tokens, "padding_mask": np.arange(10) < lens[:, None]}
    batch = {"tokens": tokens, "segments": np.zeros_like(tokens), "valid_lens": lens}
    if "segment_ids" in model.input:
        inputs["segment_ids"] = batch["segments"] = RNG.integers(0, 2, (2, 10), "int32")
    if "mask_positions" in model.input:
        inputs["mask_positions"] = batch["pred_positions"] = np.array([[1, 5], [3, 0]])
    return inputs, batch


def outputs(model, batch, end):
    """Return what KerasHub's model of a class returns."""
    if end.startswith("Text"):
        return model(batch)
    return model(*batch.values())[1 if end == "MaskedLM" else 0]


def states(found):
    return found["sequence_output"] if isinstance(found, dict) else found


def load(folder, end):
    is_embedder = end == "TextEmbedder"
    return kb.TextEmbedder.from_pretrained(folder) if is_embedder else kb.load_pretrained(folder)[0]


@IGNORED
@pytest.mark.parametrize(("title", "end"), CASES)
def test_presets_of_relatives_have_the_same_outputs_in_both_directions(title, end, tmp_path):
    theirs, tokenizer = preset_of(title, end, tmp_path / "theirs")
    ours = load(tmp_path / "theirs", end)
    inputs, batch = batches(theirs, tokenizer.vocabulary_size() - 1)
    expected = states(theirs(inputs))
    np.testing.assert_allclose(outputs(ours, batch, end), expected, rtol=0, atol=1e-5)
    kb.save_pretrained(ours, tmp_path / "ours", format="kerashub")
    back = getattr(keras_hub.models, f"{title}{end}").from_preset(str(tmp_path / "ours"))
    np.testing.assert_allclose(states(back(inputs)), expected, rtol=0, atol=1e-6)
    again = getattr(keras_hub.models, f"{title}Tokenizer").from_preset(str(tmp_path / "ours"))
    for text in TEXTS:
        ids = ours.tokenizer.tokenize([text])[0].numpy().tolist()
        assert ids == np.array(tokenizer(text)).tolist() == np.array(again(text)).tolist()
