"""The tokenizer in a folder of Hugging Face: which files are read, and what is refused.

The vocabularies of other kinds than WordPiece are in tests/text/tokenizer/.
"""

import json
import pathlib
import re
import shutil

import pytest

from keras_bert_d2l import Tokenizer, Vocab, inspect_checkpoint, load_pretrained, load_tokenizer
from keras_bert_d2l.checkpoints.formats import huggingface
from keras_bert_d2l.checkpoints.formats.huggingface.tokenizer import read_tokenizer, write_tokenizer
from keras_bert_d2l.text.definition import BYTES
from tests.checkpoints.small import OF_FORMAT, VOCAB, random_model


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    huggingface.write(random_model(OF_FORMAT["huggingface"]), folder, VOCAB, {"lowercase": True})
    return folder


@pytest.fixture
def folder(written, tmp_path):
    """A folder with a small model, which tests may modify."""
    return shutil.copytree(written, tmp_path / "folder")


@pytest.mark.parametrize(
    ("options", "lowercase"),
    [
        (None, True),
        ({"do_lower_case": False}, False),
        ({"do_lower_case": True, "strip_accents": True, "tokenize_chinese_chars": True}, True),
        ({"pad_token": {"content": "[PAD]", "lstrip": False}}, True),
    ],
)
def test_the_tokenizers_options_are_read(folder, options, lowercase):
    (folder / "tokenizer_config.json").unlink()
    if options is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(options))
    checkpoint = huggingface.describe(folder)
    assert checkpoint.vocab == VOCAB
    assert checkpoint.tokenizer_options["lowercase"] is lowercase


@pytest.mark.parametrize(
    "options",
    [
        {"strip_accents": "no"},
        {"tokenize_chinese_chars": "no"},
        {"split_special_tokens": "yes"},
        {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab"},
        {"word_tokenizer_type": "basic"},
    ],
)
def test_an_unsupported_tokenizer_is_an_error_unless_only_the_model_is_loaded(folder, options):
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    assert_loads_without_tokenizer_only(folder, f"{next(iter(options))}=")


def assert_loads_without_tokenizer_only(folder, reason):
    checkpoint = huggingface.describe(folder)
    assert checkpoint.vocab is None
    assert reason in checkpoint.unsupported
    with pytest.raises(ValueError, match=rf"{re.escape(reason)}.*not supported.*tokenizer=False"):
        load_pretrained(folder)
    loaded = load_pretrained(folder, tokenizer=False, verbose=False)
    assert loaded.tokenizer is None


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("PhobertTokenizer", "vocab.txt bpe.codes config.json"),
        ("RoFormerTokenizerFast", "vocab.txt tokenizer.json tokenizer_config.json"),
        ("SiglipTokenizer", "spm.model tokenizer_config.json"),
        ("XLNetTokenizer", "spiece.model tokenizer_config.json"),
        ("GPT2Tokenizer", "vocab.json merges.txt config.json"),
    ],
)
def test_a_class_with_other_ids_is_refused_by_name(tmp_path, name, files):
    for file in files.split():
        (tmp_path / file).write_text(json.dumps({"tokenizer_class": name, "model_type": "bert"}))
    with pytest.raises(ValueError, match=f"has tokenizer_class='{name}', which is not supported"):
        load_tokenizer(tmp_path)


def test_classes_with_equal_ids_are_read(tmp_path):
    VOCAB.to_file(tmp_path / "vocab.txt")
    equal = ["BertTokenizerFast", "ElectraTokenizer", "PreTrainedTokenizer", "TokenizersBackend"]
    for name in (*equal, None):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        assert read_tokenizer(tmp_path)[0] == VOCAB


def test_the_mask_of_deberta_v3_follows_the_tokens_that_other_files_add(tmp_path):
    model = pathlib.Path(__file__).parents[2] / "text/tokenizer/unigram/spm.model"
    shutil.copyfile(model, tmp_path / "spm.model")
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    vocab, options, unsupported = read_tokenizer(tmp_path)
    assert (vocab.tokens[-1], options, unsupported) == ("[MASK]", {}, "")
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[MASK]": 200, "<ent>": 199}))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "DebertaV2Tokenizer"}')
    vocab, _, unsupported = read_tokenizer(tmp_path)
    assert (vocab.tokens[-2:], unsupported) == (("<ent>", "[MASK]"), "")
    assert vocab.special_tokens == VOCAB.special_tokens
    tokens = Tokenizer(vocab)("the<ent>", "the")["tokens"].numpy().tolist()
    assert tokens == [[2, vocab["\u2581the"], 199, 3, vocab["\u2581the"], 3]]


@pytest.mark.parametrize("named", [{"tokenizer_class": "DebertaTokenizer"}, None])
def test_deberta_v1_has_the_special_tokens_of_bert_and_byte_level_bpe(named, tmp_path):
    tokens = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *BYTES, "\u0120a", "[MASK]"]
    (tmp_path / "vocab.json").write_text(json.dumps({t: n for n, t in enumerate(tokens)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n\u0120 a\n", encoding="utf-8")
    file = tmp_path / ("tokenizer_config.json" if named else "config.json")
    file.write_text(json.dumps(named or {"model_type": "deberta"}))
    vocab, _, unsupported = read_tokenizer(tmp_path)
    assert (unsupported, vocab.special_ids) == ("", (0, 3, 1, 2, 261))
    rows = Tokenizer(vocab)("b a [MASK]", " a")
    assert rows["tokens"].numpy().tolist() == [[1, tokens.index("b"), 260, 261, 2, 260, 2]]
    assert rows["segments"].numpy().tolist() == [[0, 0, 0, 0, 0, 1, 1]]


def test_pieces_of_sentencepiece_are_no_wordpieces(tmp_path):
    Vocab([*VOCAB.special_tokens, "▁한국", "어"]).to_file(tmp_path / "vocab.txt")
    assert read_tokenizer(tmp_path)[2] == "pieces of SentencePiece, such as '▁한국'"


@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
def test_a_vocabulary_with_other_special_tokens_is_an_error_that_says_how_to_load(
    folder, file, tokenizer_json
):
    tokens = [token.replace("[CLS]", "<s>") for token in VOCAB]
    (folder / "vocab.txt").unlink()
    if file == "vocab.txt":
        (folder / file).write_text("".join(f"{token}\n" for token in tokens))
    else:
        ids = {token: number for number, token in enumerate(tokens)}
        (folder / file).write_text(tokenizer_json({"model__vocab": ids, "added_tokens": []}))
    assert_loads_without_tokenizer_only(folder, "other special tokens than [PAD] [UNK] [CLS]")
    summary, _ = inspect_checkpoint(folder)
    assert "unsupported tokenizer: other special tokens" in summary


OPTIONS = {
    "lowercase": False,
    "compat": "huggingface",
    "split_special_tokens": False,
    "strip_accents": True,
    "tokenize_chinese_chars": False,
}


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory):
    """Return a function that returns the changed fields of a `tokenizer.json` for `VOCAB`."""
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, VOCAB, OPTIONS)
    text = (folder / "tokenizer.json").read_text()

    def changed(changes):
        fields = json.loads(text)
        for path, value in changes.items():
            part, _, name = path.partition("__")
            if name:
                fields[part][name] = value
            else:
                fields[part] = value
        return json.dumps(fields)

    return changed


@pytest.fixture
def folder_with_json(folder, tokenizer_json):
    """A folder with `tokenizer.json` instead of `vocab.txt`."""
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer.json").write_text(tokenizer_json({}))
    return folder


def test_tokenizer_json_is_read_if_there_is_no_vocab_txt(folder_with_json, tokenizer_json):
    fields = json.loads(tokenizer_json({}))
    del fields["model"]["type"]  # as in old files
    (folder_with_json / "tokenizer.json").write_text(json.dumps(fields))
    checkpoint = huggingface.describe(folder_with_json)
    assert (checkpoint.vocab, checkpoint.tokenizer_options) == (VOCAB, OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
def test_mpnet_has_special_tokens_by_role_and_two_separators(file, tmp_path):
    words = ["the", "cat", "##s", "<", "/", "s", ">"]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *VOCAB.special_tokens, *words, "<mask>"]
    tokenizer = Tokenizer(Vocab(tokens), compat="huggingface", normalized_tokens=["<unk>"])
    write_tokenizer(tmp_path, tokenizer.vocab, tokenizer.options)
    options = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert options["tokenizer_class"] == "MPNetTokenizer"
    fields = json.loads((tmp_path / "tokenizer.json").read_text())
    for token in fields["added_tokens"]:  # as in published files
        token |= {"normalized": token["content"] == "<unk>", "lstrip": token["content"] == "<mask>"}
    fields["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(fields))
    options["added_tokens_decoder"] = {str(t["id"]): t for t in fields["added_tokens"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    (tmp_path / ({"vocab.txt", "tokenizer.json"} - {file}).pop()).unlink()
    vocab, options, _ = read_tokenizer(tmp_path)
    assert (vocab, options) == (tokenizer.vocab, tokenizer.options)
    text = "The cats</s><MASK> [UNK] dog <mask><UNK> [CLS]"  # the ids are those of transformers
    ids = [9, 10, 11, 2, 12, 5, 15, 5, 5, 16, 3, 5, 5, 5]
    assert Tokenizer(vocab, **options)(text, "cat")["tokens"].numpy().tolist() == [
        [0, *ids, 2, 2, 10, 2]
    ]


def test_tokenizer_config_takes_precedence_over_tokenizer_json(folder_with_json):
    options = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    (folder_with_json / "tokenizer_config.json").write_text(json.dumps(options))
    found = huggingface.describe(folder_with_json).tokenizer_options
    assert (found["lowercase"], found["strip_accents"]) == (True, None)
    assert found["tokenize_chinese_chars"] is True


def test_special_tokens_that_are_only_added_tokens_are_in_the_vocabulary(
    folder_with_json, tokenizer_json
):
    words = {token: n for n, token in enumerate(VOCAB) if token not in VOCAB.special_tokens}
    (folder_with_json / "tokenizer.json").write_text(tokenizer_json({"model__vocab": words}))
    assert huggingface.describe(folder_with_json).vocab == VOCAB


ADDED = [{"id": VOCAB[token], "content": token, "special": True} for token in VOCAB.special_tokens]
NEW = {"content": "new", "id": len(VOCAB), "special": True}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": None}, "normalizer.type=None"),
        ({"normalizer__strip_accents": "no"}, "strip_accents='no'"),
        ({"pre_tokenizer__type": "Whitespace"}, "pre_tokenizer.type='Whitespace'"),
        ({"post_processor": None}, "post_processor.single"),
        ({"post_processor__pair": []}, "post_processor.pair"),
        ({"added_tokens": ADDED[1:]}, r"no special token '\[PAD\]'"),
    ],
)
def test_an_unsupported_tokenizer_json_is_an_error_with_the_reason(
    folder_with_json, changes, message, tokenizer_json
):
    (folder_with_json / "tokenizer.json").write_text(tokenizer_json(changes))
    with pytest.raises(ValueError, match=f"has.*{message}.*not supported"):
        load_pretrained(folder_with_json)


def test_a_tokenizer_json_beside_a_vocabulary_is_read_too(folder, tokenizer_json):
    (folder / "tokenizer.json").write_text(tokenizer_json({"normalizer__clean_text": False}))
    assert_loads_without_tokenizer_only(folder, "normalizer.clean_text=False")


@pytest.mark.parametrize(
    "changes",
    [
        None,
        {"model__vocab": {"a": 70}},
        {"model__vocab": {"a": 0}},
        {"model__vocab": {"a": -1}},
        {"model__vocab": {"a": "b"}},
        {"model": [1]},
        {"added_tokens": 3},
        {"post_processor__single": [3]},
    ],
)
def test_a_damaged_tokenizer_json_is_named(folder_with_json, changes, tokenizer_json):
    content = "{}" if changes is None else tokenizer_json(changes)
    (folder_with_json / "tokenizer.json").write_text(content)
    with pytest.raises(ValueError, match="tokenizer.json'"):
        huggingface.describe(folder_with_json)


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer.json": {"added_tokens": [NEW]}},
        {"tokenizer_config.json": {"added_tokens_decoder": {str(len(VOCAB)): {**NEW, "id": 0}}}},
        {"tokenizer_config.json": {"additional_special_tokens": ["new"]}},
        {"tokenizer_config.json": {"extra_special_tokens": [{"content": "new"}]}},
        {
            "added_tokens.json": {"new": len(VOCAB)},
            "special_tokens_map.json": {"additional_special_tokens": ["new"]},
        },
    ],
    ids=["json", "decoder", "additional", "extra", "added"],
)
def test_added_special_tokens_are_read_from_every_file(tmp_path, files):
    VOCAB.to_file(tmp_path / "vocab.txt")
    for name, fields in files.items():
        (tmp_path / name).write_text(json.dumps(fields))
    vocab, options, unsupported = read_tokenizer(tmp_path)
    assert unsupported == ""
    assert vocab.tokens == (*VOCAB.tokens, "new")
    assert options["special_tokens"] == ["new"]


def test_another_id_of_an_added_token_is_reported(tmp_path):
    VOCAB.to_file(tmp_path / "vocab.txt")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": [{**NEW, "id": 99}]}))
    assert read_tokenizer(tmp_path) == (None, {}, "the id 99 of the token 'new'")


@pytest.mark.parametrize("file", ["added_tokens.json", "tokenizer.json", "tokenizer_config.json"])
def test_added_tokens_that_are_normalized_stay_whole_in_the_lowercased_text(tmp_path, file):
    VOCAB.to_file(tmp_path / "vocab.txt")
    is_special = file == "tokenizer_config.json"
    entry = {"content": "Url", "id": len(VOCAB), "normalized": True, "special": is_special}
    fields = {
        "added_tokens.json": {"Url": len(VOCAB)},
        "tokenizer_config.json": {"added_tokens_decoder": {str(len(VOCAB)): entry}},
    }.get(file, {"added_tokens": [entry]})
    (tmp_path / file).write_text(json.dumps(fields))
    vocab, options, unsupported = read_tokenizer(tmp_path)
    assert (unsupported, options["normalized_tokens"]) == ("", ["Url"])
    expected = [[VOCAB["a"], VOCAB["##c"], VOCAB.unk_id, len(VOCAB), VOCAB["b"], len(VOCAB)]]
    assert Tokenizer(vocab, **options).tokenize("ac cURLb url").to_list() == expected


@pytest.mark.parametrize("added", [3, [3], [{"content": 4}]])
def test_damaged_added_tokens_are_named(tmp_path, added):
    VOCAB.to_file(tmp_path / "vocab.txt")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    with pytest.raises(ValueError, match="The added tokens in .* are not valid"):
        read_tokenizer(tmp_path)
