"""Checkpoints exchanged with transformers in both directions give equal outputs."""

import dataclasses
import json

import numpy as np
import pytest

from keras_bert_d2l import BERTConfig, BERTModel, Tokenizer, Vocab, load_pretrained, minimal_pairs
from keras_bert_d2l.checkpoints.formats import huggingface
from keras_bert_d2l.checkpoints.weights import load_weights, named_weights
from tests.checkpoints.small import TWO_BLOCKS

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-peers")
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-peers")

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat ##s a , . ! é ü The 北 京".split()
VOCAB = Vocab(WORDS)
SMALL = BERTConfig.preset("huggingface", vocab_size=len(VOCAB), max_len=12, **TWO_BLOCKS)
THEIR_SIZES = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 12,
    "initializer_range": 0.2,
}
TEXTS = [
    "The cats sat on the mat.",
    "the CAT, [MASK] a mat!",
    "",
    "café Über unknown",
    "北京 a\u00a0the\tmat",
]


@pytest.mark.parametrize("tokenize_chinese_chars", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_a_folder_saved_by_transformers_has_the_same_tokenizer(
    name, strip_accents, tokenize_chinese_chars, data_dir, tmp_path
):
    published = Vocab.from_file(data_dir / "vocab" / f"bert-base-{name}-vocab.txt")
    characters = [*map(chr, (*range(0xC0, 0x250), *range(0x370, 0x530))), *"中国豈更𠀀\u0301"]
    more = [token for c in characters for token in (c, f"##{c}") if token not in published]
    tokens = [*published.tokens, *more]
    theirs = transformers.BertTokenizer(
        vocab={token: number for number, token in enumerate(tokens)},
        do_lower_case=name == "uncased",
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
    )
    theirs.save_pretrained(tmp_path)
    config = transformers.BertConfig(**{**THEIR_SIZES, "vocab_size": len(tokens)})
    transformers.BertModel(config).save_pretrained(tmp_path)
    assert not (tmp_path / "vocab.txt").exists()
    ours = load_pretrained(tmp_path, verbose=False).tokenizer
    lines = (data_dir / "golden/tokenization/tricky_bert.jsonl").read_text(encoding="utf-8")
    texts = [json.loads(line)["text"] for line in lines.splitlines()]
    texts += [
        *TEXTS,
        "CAFÉ İstanbul ΑΣ ΆΣ",
        "中国豈 a更b 𠀀国",
        "[MASK] [mask] [CLS]中",
        "ẞ\u0301é",
    ]
    assert ours.tokenize(texts).to_list() == theirs(texts, add_special_tokens=False)["input_ids"]


@pytest.fixture
def batch():
    rng = np.random.default_rng(1)
    lens = np.array([10, 7, 3], "int32")
    tokens = rng.integers(0, len(VOCAB), (3, 10), "int32")
    segments = rng.integers(0, 2, (3, 10), "int32")
    return tokens, segments, lens


def random_model(config):
    model = BERTModel.from_bert_config(config)
    rng = np.random.default_rng(0)
    for weight in named_weights(model).values():
        weight.assign(rng.normal(0.1, 0.2, weight.shape))
    return model


def assert_equal_outputs(ours, theirs, batch):
    """Compare all outputs that both models have. Our model has the NSP columns swapped."""
    tokens, segments, lens = batch
    positions = np.broadcast_to(np.arange(tokens.shape[1], dtype="int32"), tokens.shape)
    mask = positions < lens[:, None]
    states = ours.encoder(tokens, segments, lens, return_hidden_states=True)
    _, mlm, nsp = ours(tokens, segments, lens, positions)
    with torch.no_grad():
        outputs = theirs.eval()(
            input_ids=torch.tensor(tokens).long(),
            token_type_ids=torch.tensor(segments).long(),
            attention_mask=torch.tensor(mask),
            output_hidden_states=True,
        )
    expected = np.stack(outputs.hidden_states)
    np.testing.assert_allclose(np.stack(states["hidden_states"]), expected, rtol=0, atol=1e-5)
    compared = ["hidden_states"]
    pairs = {
        "logits": mlm,
        "prediction_logits": mlm,
        "seq_relationship_logits": None if nsp is None else nsp.numpy()[:, ::-1],
        "pooler_output": None if ours.hidden is None else ours.hidden(states["encoded"][:, 0]),
    }
    for name, value in pairs.items():
        if name in outputs:
            expected = outputs[name].numpy()
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5, err_msg=name)
            compared.append(name)
    return compared


@pytest.mark.parametrize(
    ("fields", "compared"),
    [
        ({}, ["prediction_logits", "seq_relationship_logits"]),
        ({"activation": "relu", "layer_norm_epsilon": 1e-3}, ["prediction_logits"]),
        ({"activation": "gelu_tanh", "num_segments": 3, "num_heads": 8}, ["prediction_logits"]),
        ({"activation": "tanh"}, ["prediction_logits"]),
        ({"activation": "linear"}, ["prediction_logits"]),
        ({"tie_embeddings": False}, ["prediction_logits", "seq_relationship_logits"]),
        ({"pooler": False, "next_sentence": False}, ["logits"]),
        ({"pooler": False, "next_sentence": False, "tie_embeddings": False}, ["logits"]),
    ],
)
def test_transformers_loads_our_checkpoints(tmp_path, batch, fields, compared):
    model = random_model(dataclasses.replace(SMALL, **fields))
    huggingface.write(model, tmp_path, VOCAB, {"lowercase": True})
    (name,) = json.loads((tmp_path / "config.json").read_text())["architectures"]
    theirs, info = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[kind], kind
    assert not info.get("error_msgs")
    assert set(compared) <= set(assert_equal_outputs(model, theirs, batch))


def test_transformers_loads_only_the_encoder_of_our_checkpoints(tmp_path, batch):
    model = random_model(SMALL)
    huggingface.write(model, tmp_path, None, {})
    theirs = transformers.AutoModel.from_pretrained(tmp_path)
    assert "pooler_output" in assert_equal_outputs(model, theirs, batch)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("loader", ["AutoTokenizer", "BertTokenizer"])
def test_its_tokenizer_gives_the_same_ids(tmp_path, loader, lowercase):
    huggingface.write(random_model(SMALL), tmp_path, VOCAB, {"lowercase": lowercase})
    theirs = getattr(transformers, loader).from_pretrained(tmp_path)
    checkpoint = huggingface.describe(tmp_path)
    ours = Tokenizer(checkpoint.vocab, **checkpoint.tokenizer_options)
    batch = ours(TEXTS)
    expected = theirs(TEXTS, padding=True)
    np.testing.assert_array_equal(batch["tokens"], expected["input_ids"])
    np.testing.assert_array_equal(batch["valid_lens"], np.sum(expected["attention_mask"], 1))
    pair, expected = ours(TEXTS[:1], TEXTS[1:2]), theirs(TEXTS[0], TEXTS[1])
    np.testing.assert_array_equal(pair["tokens"][0], expected["input_ids"])
    np.testing.assert_array_equal(pair["segments"][0], expected["token_type_ids"])
    assert theirs.model_max_length == SMALL.max_len


def test_transformers_tokenizer_finds_the_books_special_tokens(tmp_path):
    vocab = Vocab("the <unk> <pad> cat <cls> <sep> <mask>".split())
    model = random_model(dataclasses.replace(SMALL, vocab_size=len(vocab)))
    huggingface.write(model, tmp_path, vocab, {"lowercase": True})
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer(vocab)
    texts = ["the cat <mask>", "dog"]
    expected = theirs(texts, padding=True)["input_ids"]
    np.testing.assert_array_equal(ours(texts)["tokens"], expected)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("BertForPreTraining", {}),
        ("BertForPreTraining", {"tie_word_embeddings": False, "hidden_act": "gelu_new"}),
        ("BertForMaskedLM", {"hidden_act": "relu", "layer_norm_eps": 1e-5}),
        ("BertForMaskedLM", {"tie_word_embeddings": False, "hidden_act": "gelu_fast"}),
        ("BertModel", {"hidden_act": "gelu_pytorch_tanh", "type_vocab_size": 4}),
    ],
)
@pytest.mark.parametrize("shard_size", ["50GB", "4KB"])
def test_checkpoints_saved_by_transformers_can_be_loaded(tmp_path, batch, name, fields, shard_size):
    torch.manual_seed(0)
    config = transformers.BertConfig(**THEIR_SIZES, **fields)
    theirs = getattr(transformers, name)(config)
    with torch.no_grad():
        for parameter in theirs.parameters():  # moves biases from 0 and normalizations from 1
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path, max_shard_size=shard_size)
    is_sharded = (tmp_path / "model.safetensors.index.json").exists()
    assert is_sharded == (shard_size == "4KB")
    checkpoint = huggingface.describe(tmp_path)
    assert name in checkpoint.description
    ours = BERTModel.from_bert_config(checkpoint.config)
    load_weights(ours, checkpoint.table, checkpoint.arrays)
    assert sorted(ours.missing_heads) == (["mlm", "nsp"] if name == "BertModel" else [])
    assert len(assert_equal_outputs(ours, theirs, batch)) >= 2


def test_the_head_of_an_unknown_task_is_named_in_the_error(tmp_path):
    config = transformers.BertConfig(**THEIR_SIZES)
    transformers.BertForMultipleChoice(config).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("BertForMultipleChoice", "BertForRanking"))
    with pytest.raises(ValueError, match="classifier.weight"):
        huggingface.describe(tmp_path)


def test_minimal_pairs_are_scored_as_by_a_loop_with_transformers(tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(**{**THEIR_SIZES, "vocab_size": len(VOCAB)})
    theirs = transformers.BertForMaskedLM(config).eval()
    theirs.save_pretrained(tmp_path)
    ids = {token: number for number, token in enumerate(WORDS)}
    tokenizer = transformers.BertTokenizer(vocab=ids)
    tokenizer.save_pretrained(tmp_path)

    def score(text):
        tokens, total = tokenizer(text, return_tensors="pt")["input_ids"][0], 0.0
        for place in range(1, len(tokens) - 1):
            masked = tokens.clone()
            masked[place] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = theirs(masked[None]).logits[0, place]
            total += float(torch.log_softmax(logits, -1)[tokens[place]])
        return total

    texts = [("the cats sat on a mat .", "the cats sat on mat a ."), ("the mats", "mats the cat !")]
    pairs = [dict(zip(("sentence_good", "sentence_bad"), pair, strict=True)) for pair in texts]
    found = minimal_pairs(tmp_path, pairs)
    expected = [[score(text) for text in pair] for pair in texts]
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    assert found.accuracy == np.mean([good > bad for good, bad in expected])
