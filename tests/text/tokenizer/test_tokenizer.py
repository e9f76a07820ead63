"""Tokenizer: ids that match google's, eager and graph execution, and detokenization."""

import collections
import json
import random
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from keras_bert_d2l.text.tokenizer.tokenizer import Tokenizer
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS, Vocab
from tests.nightly import nightly_except

pytestmark = pytest.mark.usefixtures("engine")

PIECES = ["un", "##aff", "##able", "runn", "##ing", "the", "cat", "sat", "##s", ".", ",", "!", "'"]
PAD, UNK, CLS, SEP, MASK = range(5)


def google_vocab():
    return Vocab([*GOOGLE_SPECIALS, *PIECES])


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(google_vocab())


def tokens_of(tokenizer, text):
    return tokenizer.vocab.to_tokens(tokenizer.tokenize(text)[0])


def json_lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_words_are_split_into_the_longest_pieces_or_unknown(tokenizer):
    assert tokens_of(tokenizer, "UNaffable, rúnning\tcats!") == [
        *("un", "##aff", "##able", ",", "runn", "##ing", "cat", "##s", "!")
    ]
    assert tokens_of(tokenizer, "the dog unaffabled") == ["the", "[UNK]", "[UNK]"]


def test_a_word_that_is_not_utf8_is_unknown(tokenizer):
    rows = tokenizer.tokenize(tf.constant([b"the c\xffat sat", b"\xf0\x9f the", b"the\xc3"]))
    assert rows.to_list() == [[10, UNK, 12], [UNK, 10], [UNK]]


@pytest.mark.parametrize("specials", [GOOGLE_SPECIALS, BOOK_SPECIALS], ids=["google", "book"])
@pytest.mark.parametrize("lowercase", nightly_except({True}, [True, False]))
def test_special_tokens_in_the_text_are_not_split(specials, lowercase):
    tokenizer = Tokenizer(Vocab([*PIECES, *specials]), lowercase)
    pad, unk, cls, sep, mask = tokenizer.vocab.special_ids
    text = f"{specials[2]} the{specials[4]}cat {specials[1]}{specials[0]}. {specials[3]}"
    assert tokenizer.tokenize(text).to_list() == [[cls, 5, mask, 6, unk, pad, 9, sep]]
    assert tokenizer.tokenize("the[UNK]sat").to_list() == [[5, unk, 7]], "in either spelling"
    framed = [[cls, 5, sep, pad, pad]]
    assert tokenizer("the", max_len=5)["tokens"].numpy().tolist() == framed


def test_special_tokens_in_the_text_can_be_split_on_request():
    vocab = Vocab([*GOOGLE_SPECIALS, "[", "]", "mask"])
    assert Tokenizer(vocab).tokenize("[MASK]").to_list() == [[MASK]]
    tokenizer = Tokenizer(vocab, split_special_tokens=True)
    assert tokenizer.tokenize("[MASK]").to_list() == [[5, 7, 6]]


OWN = ["[E1]", "[/E1]", "[e1]", "<é>", "@", "@@", "new york", "ai"]


@pytest.mark.parametrize("compat", ["google", "huggingface"])
@pytest.mark.parametrize("lowercase", nightly_except({True}, [True, False]))
def test_special_tokens_of_the_user_are_not_split(compat, lowercase):
    tokenizer = Tokenizer(
        Vocab([*GOOGLE_SPECIALS, *OWN, "the", "cat", "york", "à"]),
        lowercase,
        compat,
        special_tokens=OWN,
    )
    texts = [
        "[E1]cat[/E1] the",
        "[e1][E1] [MASK]",
        "É <é><é>the <É>",
        "@@@ cat@\x01\x03",
        "the new york York",
        "no markers, the cat",
        "\x03\u0301cat",
        "AI ÀI àiai",
    ]
    york, cat, ai = (15, 14, 12) if lowercase else (UNK, UNK, UNK)
    assert tokenizer.tokenize(texts).to_list() == [
        [5, 14, 6, 13],
        [7, 5, MASK],
        [UNK, 8, 8, 13, UNK, UNK, UNK],
        [10, 9, 14, 9],
        [13, 11, york],
        [UNK, UNK, UNK, 13, 14],
        [cat],
        [ai, ai, ai, 12] if lowercase else [UNK, UNK, UNK, 12],
    ]
    again = Tokenizer(tokenizer.vocab, **tokenizer.options)
    assert again.options["special_tokens"] == OWN
    assert again.tokenize_words([["[E1]cat", "new york"]]).to_list() == [[5, 14], [11]]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["[E2]"], "in the vocabulary. Received: '\\[E2\\]'.*add_tokens"),
        ("[E1]", "list of strings"),
        *(
            (tokens, "different strings of 1 to 90 characters, which do not overlap")
            for tokens in ([3], ["[E1]", "[E1]"], ["[MASK]s"], ["x["], ["a\x01"], ["𝒜"])
        ),
    ],
)
def test_invalid_special_tokens_are_rejected(tokens, message):
    vocab = Vocab([*GOOGLE_SPECIALS, "[E1]"])
    with pytest.raises(ValueError, match=message):
        Tokenizer(vocab, special_tokens=tokens)
    with pytest.raises(ValueError, match="list of strings|split_special_tokens=True.*Remove one"):
        Tokenizer(vocab, split_special_tokens=True, special_tokens=tokens)


@pytest.mark.parametrize(("compat", "most"), [("google", 200), ("huggingface", 100)])
@pytest.mark.parametrize("letter", nightly_except({"𝒜"}, ["a", "é", "𝒜"]))
def test_a_word_over_the_length_limit_is_unknown(compat, most, letter):
    vocab = Vocab([*GOOGLE_SPECIALS, letter, f"##{letter}", f"##{letter * 3}", "x", "-"])
    tokenizer = Tokenizer(vocab, lowercase=False, compat=compat)
    text = f"x {letter * most}-{letter * (most + 1)}- x"
    fits = [5] + [7] * ((most - 1) // 3) + [6] * ((most - 1) % 3)
    assert tokenizer.tokenize([text, "x"]).to_list() == [[8, *fits, 9, UNK, 9, 8], [8]]
    offsets = tokenizer.with_offsets(text)
    assert offsets["tokens"].to_list() == [[8, *fits, 9, UNK, 9, 8]]
    assert offsets["starts"][0, -3] == most + 3
    assert offsets["ends"][0, -3] == 2 * most + 4


def test_options_create_the_same_tokenizer(tokenizer):
    assert tokenizer.options == {
        "lowercase": True,
        "compat": "google",
        "split_special_tokens": False,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
    }
    other = Tokenizer(tokenizer.vocab, False, "huggingface", True, True, False)
    assert other.options["strip_accents"]
    assert Tokenizer(tokenizer.vocab, **other.options).options == other.options
    of_hugging_face = ({"strip_accents": False}, {"tokenize_chinese_chars": False})
    for options in (*of_hugging_face, {"lowercase": False, "strip_accents": True}):
        with pytest.raises(ValueError, match="`compat` must be 'huggingface'.*'google'"):
            Tokenizer(tokenizer.vocab, **options)
    with pytest.raises(ValueError, match="'google', 'huggingface'.*compat='bert'"):
        Tokenizer(tokenizer.vocab, compat="bert")
    with pytest.raises(ValueError, match="from_file"):
        Tokenizer("vocab.txt")


@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "expected"),
    [
        (True, None, "cafe istanbul ααυσ"),
        (True, False, "café i\u0307stanbul ααύσ"),
        (False, True, "Cafe ISTANBUL ΑΑΥΣ"),
        (False, None, "Café İSTANBUL ΑΑΎΣ"),
    ],
)
def test_accents_are_stripped_independently_of_the_case(lowercase, strip_accents, expected):
    texts = ["Café İSTANBUL ΑΑΎΣ"]
    words = "cafe café Cafe Café istanbul i\u0307stanbul ISTANBUL İSTANBUL ααυσ ααύσ ΑΑΥΣ ΑΑΎΣ"
    vocab = Vocab([*GOOGLE_SPECIALS, *words.split()])
    tokenizer = Tokenizer(vocab, lowercase, "huggingface", strip_accents=strip_accents)
    assert vocab.to_tokens(tokenizer.tokenize(texts).to_list()[0]) == expected.split()


def test_chinese_characters_are_words_of_their_own_unless_the_option_is_off():
    # The third character is a compatibility form of the fourth.
    vocab = Vocab([*GOOGLE_SPECIALS, "中", "国", "##国", "豈", "\uf900", "\U00020000", "a", "##中"])
    texts = ["中国 a中 \uf900 豈 \U00020000"]
    pieces = {True: "中 国 a 中 豈 豈 \U00020000", False: "中 ##国 a ##中 豈 豈 \U00020000"}
    for flag, expected in pieces.items():
        tokenizer = Tokenizer(vocab, compat="huggingface", tokenize_chinese_chars=flag)
        offsets = tokenizer.with_offsets(texts)
        assert vocab.to_tokens(offsets["tokens"].to_list()[0]) == expected.split()
        assert offsets["starts"].to_list()[0] == [0, 1, 3, 4, 6, 8, 10]
    kept = Tokenizer(vocab, compat="huggingface", strip_accents=False, tokenize_chinese_chars=False)
    assert vocab.to_tokens(kept.tokenize(["\uf900豈"]).to_list()[0]) == ["[UNK]"]
    assert vocab.to_tokens(kept.tokenize(["\uf900"]).to_list()[0]) == ["\uf900"]


def test_words_are_split_one_by_one(tokenizer):
    rows = tokenizer.tokenize_words([["UNaffable", ",", "", "cats"], ["dog"], []])
    assert rows.to_list() == [[5, 6, 7], [15], [], [11, 13], [UNK]]


@pytest.mark.parametrize("words", ["the cat", ["the", "cat"], [[1]], 3, [[["the"]]]], ids=repr)
def test_invalid_words_are_rejected(tokenizer, words):
    with pytest.raises(ValueError, match=r"(Words|`words(\[0\])?`) must be .*Received"):
        tokenizer.tokenize_words(words)


def random_lines(number, seed):
    """Lines of random characters, mostly from a small set."""
    draw = random.Random(seed)
    codes = [c for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    common = "abcdeABCDE ÀéñÑüßΑΣσςΐЖйЙ  .,!'-[]()\t\u00ad\u200b\u0301\u0307İı東京한국ﬁ½²™"
    for _ in range(number):
        share = draw.random()
        yield "".join(
            chr(draw.choice(codes)) if draw.random() < share**3 else draw.choice(common)
            for _ in range(draw.choice((3, 12, 40, 300)))
        )


@pytest.mark.parametrize("lowercase", [True, False], ids=["uncased", "cased"])
def test_random_lines_are_tokenized_as_in_googles_code(google, lowercase):
    letters = "abcdeABCDEαβσςжийßΑΣ한한½²東ñ[]().,é"
    pieces = [f"{start}{c}" for c in letters for start in ("", "##")]
    vocab = Vocab([*GOOGLE_SPECIALS, *pieces, "abc", "##cde", "ab", "##e."])
    tokenizer = Tokenizer(vocab, lowercase, split_special_tokens=True)
    lines = list(random_lines(400, seed=int(lowercase)))
    expected = [google.ids(line, vocab, lowercase) for line in lines]
    actual = tokenizer.tokenize(lines).to_list()
    assert [line for line, a, e in zip(lines, actual, expected, strict=True) if a != e] == []
    assert sum(piece != UNK for ids in expected for piece in ids) > 5 * len(lines)


@pytest.mark.parametrize(
    ("texts", "count"),
    [
        ("the cat", 1),
        (b"the cat", 1),
        (("the cat", ""), 2),
        (np.array(["the cat", "sat"]), 2),
        (tf.constant(["the cat", "sat", "."]), 3),
        ([], 0),
    ],
)
def test_texts_may_be_a_string_a_list_or_a_tensor(tokenizer, texts, count):
    rows = tokenizer.tokenize(texts)
    assert rows.shape.as_list() == [count, None]
    assert rows.dtype == tf.int32
    if count:
        assert rows[0].numpy().tolist() == [10, 11]


def test_texts_and_pairs_are_framed(tokenizer):
    batch = tokenizer(["the cat sat.", "", "cats"])
    assert batch["tokens"].numpy().tolist() == [
        [CLS, 10, 11, 12, 14, SEP],
        [CLS, SEP, PAD, PAD, PAD, PAD],
        [CLS, 11, 13, SEP, PAD, PAD],
    ]
    batch = tokenizer(["the cat", "sat"], ["sat.", ""], max_len=9)
    assert batch["tokens"].numpy().tolist() == [
        [CLS, 10, 11, SEP, 12, 14, SEP, PAD, PAD],
        [CLS, 12, SEP, SEP, PAD, PAD, PAD, PAD, PAD],
    ]
    assert batch["segments"].numpy().tolist() == [
        [0, 0, 0, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0, 0, 0, 0, 0],
    ]
    assert batch["valid_lens"].numpy().tolist() == [7, 4]
    batch = tokenizer("cat the cat", "the cat sat", 8, "only_second")
    assert batch["tokens"].numpy().tolist() == [[CLS, 11, 10, 11, SEP, 10, 11, SEP]]


class Service(tf.Module):
    """Everything that a tokenizer does with two texts."""

    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    def answer(self, texts, texts_b):
        batch = self.tokenizer(texts, texts_b, max_len=8)
        offsets = self.tokenizer.with_offsets(texts)
        windows = self.tokenizer.windows(texts_b, texts, max_len=12, overlap=2)
        return {
            **{f"batch {name}": tensor for name, tensor in batch.items()},
            **{f"offsets {name}": rows.to_tensor(-1) for name, rows in offsets.items()},
            **{f"windows {name}": tensor for name, tensor in windows.items()},
            "texts": self.tokenizer.detokenize(batch["tokens"]),
        }

    # Not even the rank of the texts is known.
    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)] * 2)
    def serve(self, texts, texts_b):
        return self.answer(texts, texts_b)


@pytest.fixture(scope="module")
def service(tokenizer):
    return Service(Tokenizer(Vocab([*tokenizer.vocab, "[cat]"]), special_tokens=["[cat]"]))


TEXTS = ["The [MASK] sat. Él", "x" * 300 + " unaffable" * 9, "sat[cat]", ""]
TEXTS_B = ["sat", "the, the", "!", ""]


def test_equal_tokenizers_share_their_graphs(tokenizer):
    one, same = (Tokenizer(Vocab([*tokenizer.vocab])) for _ in range(2))
    assert one._splitter is same._splitter
    assert one._splitter is not Tokenizer(one.vocab, lowercase=False)._splitter


@pytest.mark.slow
def test_a_graph_gives_the_same_result_with_ops_of_stock_tf_serving(service):
    for texts in ((TEXTS, TEXTS_B), ("the cat", "sat")):
        traced = service.serve(*map(tf.constant, texts))
        for name, tensor in service.answer(*texts).items():
            np.testing.assert_array_equal(traced[name], tensor, err_msg=name)
    with pytest.raises(tf.errors.InvalidArgumentError, match="leaves no more than overlap=2"):
        service.serve(tf.constant(["a"]), tf.constant(["a b c d e f g h i j k l"]))
    graph = service.serve.get_concrete_function().graph.as_graph_def()
    ops = {node.op for node in graph.node}
    ops |= {node.op for function in graph.library.function for node in function.node_def}
    ops -= {function.signature.name for function in graph.library.function}
    assert not {op for op in ops if not hasattr(tf.raw_ops, op) or op == "PyFunc"}


@pytest.mark.long
def test_the_batches_of_a_dataset_have_the_known_length(tokenizer):
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, TEXTS_B)).batch(3)
    mapped = dataset.map(lambda a, b: tokenizer(a, b, max_len=8))
    assert mapped.element_spec["tokens"].shape.as_list() == [None, 8]
    assert mapped.element_spec["segments"].shape.as_list() == [None, 8]
    for name, tensor in tokenizer(TEXTS[:3], TEXTS_B[:3], max_len=8).items():
        np.testing.assert_array_equal(next(iter(mapped))[name], tensor)


@pytest.mark.long
def test_a_saved_model_needs_only_tensorflow(service, tmp_path, fresh_process):
    tf.saved_model.save(service, str(tmp_path / "saved"))
    answer = service.serve(tf.constant(TEXTS), tf.constant(TEXTS_B))
    expected = {name: tensor.numpy().tolist() for name, tensor in answer.items()}
    code = """
        import ast, sys
        import tensorflow as tf
        service = tf.saved_model.load(sys.argv[1])
        answer = service.serve(*map(tf.constant, ast.literal_eval(sys.argv[2])))
        assert not {"keras_bert_d2l", "tensorflow_text"} & sys.modules.keys()
        print(dict(sorted((k, v.numpy().tolist()) for k, v in answer.items())))
    """
    printed = fresh_process(code, tmp_path / "saved", [TEXTS, TEXTS_B])
    assert printed.strip() == str(dict(sorted(expected.items())))


def test_detokenize_gives_readable_text():
    vocab = Vocab([*GOOGLE_SPECIALS, *PIECES, "don", "t", "(", ")", "$", "5", "%"])
    tokenizer = Tokenizer(vocab)
    texts = ["the cats (unaffable) sat, don't [MASK]!", "$5% the dog.", ""]
    assert [text.decode() for text in tokenizer.detokenize(tokenizer(texts)["tokens"]).numpy()] == [
        "the cats (unaffable) sat, don't [MASK]!",
        "$5% the [UNK].",
        "",
    ]
    assert tokenizer.detokenize([10, 11, 13]).numpy().tolist() == [b"the cats"]


@pytest.mark.parametrize(
    "texts",
    [
        *(None, [1, 2], [["the"], ["cat"]], [["the", "cat"], ["sat"]], tf.constant([1])),
        tf.ragged.constant([["the"], []]),
    ],
    ids=repr,
)
def test_invalid_texts_are_rejected(tokenizer, texts):
    with pytest.raises(ValueError, match=r"(Texts|`texts`) must be .*Received"):
        tokenizer.tokenize(texts)


def test_texts_that_do_not_fit_are_rejected(tokenizer):
    for max_len in (2, 0, -1, 8.0, True, "8"):
        with pytest.raises(ValueError, match="at least 3"):
            tokenizer("the", max_len=max_len)
    assert tokenizer("the cat", "sat", max_len=5)["valid_lens"].numpy().tolist() == [5]
    with pytest.raises(ValueError, match=r"at least 5.*max_len=4"):
        tokenizer("the", "cat", max_len=4)
    with pytest.raises(ValueError, match="Received: 2 and 1"):
        tokenizer(["the", "cat"], ["sat"])


def test_detokenize_rejects_invalid_ids(tokenizer):
    with pytest.raises(ValueError, match="`ids` must be from 0 to 17. Received: 18"):
        tokenizer.detokenize([[0, 18]])
    for ids in ([[0.5]], 3, np.zeros((1, 1, 1), np.int32)):
        with pytest.raises(ValueError, match="must be integers"):
            tokenizer.detokenize(ids)


@pytest.fixture(scope="module", params=["uncased", "cased"])
def bert_base(request, data_dir):
    path = data_dir / "vocab" / f"bert-base-{request.param}-vocab.txt"
    return request.param, Tokenizer(Vocab.from_file(path), lowercase=request.param == "uncased")


@pytest.mark.parametrize("compat", ["google", "huggingface"])
def test_tricky_lines_are_tokenized_as_in_the_reference_tokenizers(bert_base, data_dir, compat):
    """Google splits special tokens in a text, Hugging Face does not."""
    name, tokenizer = bert_base
    tokenizer = Tokenizer(
        tokenizer.vocab, name == "uncased", compat, split_special_tokens=compat == "google"
    )
    lines = json_lines(data_dir / "golden" / "tokenization" / "tricky_bert.jsonl")
    texts = [line["text"] for line in lines]
    expected = [line[f"ids_{name}"][1:-1] for line in lines]
    if compat == "google":
        google = [line[f"google_{name}"] for line in lines]
        expected = [g[1:-1] if g else e for g, e in zip(google, expected, strict=True)]
    assert tokenizer.tokenize(texts).to_list() == expected
    assert tokenizer.with_offsets(texts)["tokens"].to_list() == expected
    assert len(texts) == 100


def test_words_are_aligned_as_in_hugging_face(data_dir):
    vocab = Vocab.from_file(data_dir / "vocab" / "bert-base-cased-vocab.txt")
    tokenizer = Tokenizer(vocab, lowercase=False)
    lines = json_lines(data_dir / "golden" / "tokenization" / "word_alignment.jsonl")
    for line in lines:
        words = tokenizer.tokenize_words([line["words"]])
        assert words.flat_values.numpy().tolist() == line["input_ids_cased"][1:-1]
        assert words.value_rowids().numpy().tolist() == line["word_ids"][1:-1]


@pytest.mark.slow
def test_truncated_pairs_match_hugging_face(bert_base, data_dir):
    name, tokenizer = bert_base
    key = {"uncased": "input_ids", "cased": "input_ids_cased"}[name]
    lines = json_lines(data_dir / "golden" / "tokenization" / "pairs_truncated.jsonl")
    groups = collections.defaultdict(list)
    for line in lines:  # for one pair, Hugging Face treats an empty second text as missing
        groups[line["max_length"], bool(line["text_b"])].append(line)
    for (length, is_pair), some in groups.items():
        texts_b = [line["text_b"] for line in some] if is_pair else None
        batch = tokenizer([line["text_a"] for line in some], texts_b, length)
        assert batch["tokens"].numpy().tolist() == [line[key] for line in some]
        if name == "uncased":
            segments = [line["token_type_ids"] for line in some]
            assert batch["segments"].numpy().tolist() == segments
            lengths = [sum(line["attention_mask"]) for line in some]
            assert batch["valid_lens"].numpy().tolist() == lengths
    assert len(lines) == 50
