"""The tokenizer of the page returns the pieces of `Tokenizer`."""

import json
import unicodedata

import pytest

import keras_bert_d2l as kb
from keras_bert_d2l.inspection.playground import tokenizer_data
from keras_bert_d2l.pages import source
from keras_bert_d2l.text.vocab import BOOK_SPECIALS, GOOGLE_SPECIALS

PIECES = "un ##aff ##able the cat ##s new york . [ ] mask σ ς".split()


@pytest.fixture
def tokenize(page):
    """Return a function of a tokenizer and texts that tokenizes in the browser.

    `result` is what it returns for a row of pieces.
    """

    def tokenize(tokenizer, texts, result="row"):
        script = source("inspection/playground_page/tokenizer.js")
        options = json.dumps(tokenizer_data(tokenizer))
        return page.run(
            f"(() => {{ {script}; const tokenizer = new Tokenizer({options});"
            f"const rows = {json.dumps(texts)}.map(text => tokenizer.tokenize(text));"
            f"return rows.map(row => {result}) }})()"
        )

    return tokenize


# Unicode 16 made this vowel sign an accent.
NEWER = {"\U0001171e"}
IDS = "row.slice(1, -1).map(({ id }) => id)"


@pytest.mark.parametrize("compat", ["google", "huggingface"])
@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_tricky_lines_are_tokenized_as_in_the_reference_tokenizers(
    tokenize, data_dir, name, compat
):
    vocab = kb.Vocab.from_file(data_dir / "vocab" / f"bert-base-{name}-vocab.txt")
    is_google = compat == "google"
    tokenizer = kb.Tokenizer(
        vocab, name == "uncased", compat=compat, split_special_tokens=is_google
    )
    file = data_dir / "golden/tokenization/tricky_bert.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    expected = [(is_google and line[f"google_{name}"]) or line[f"ids_{name}"] for line in lines]
    assert (
        tokenize(tokenizer, [line["text"] for line in lines], "row.map(({ id }) => id)") == expected
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lowercase": False},
        {"split_special_tokens": True},
        {"special_tokens": ["new york", "<cat>"]},
        {"compat": "huggingface"},
        {"compat": "huggingface", "strip_accents": False},
        {"compat": "huggingface", "tokenize_chinese_chars": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("specials", [GOOGLE_SPECIALS, BOOK_SPECIALS], ids=["google", "book"])
def test_every_option_is_followed(tokenize, specials, options):
    own = [token for token in options.get("special_tokens", ()) if token not in PIECES]
    tokenizer = kb.Tokenizer(kb.Vocab([*PIECES, *specials, "中", "##文", *own]), **options)
    texts = [
        f"UNaffable, cats {specials[4]}[MASK]the{specials[1]} [UNK].",
        "new york <cat> cat\x00s ΣΑΣ Σ τὸς İn the\u2028cat",
        "中文 the\u00adcat \ue000 ca\u0301t naïve",
    ]
    assert tokenize(tokenizer, texts, IDS) == tokenizer.tokenize(texts).to_list()


def test_pieces_know_their_word_and_their_place_in_the_text(tokenize):
    tokenizer = kb.Tokenizer(kb.Vocab([*GOOGLE_SPECIALS, *PIECES]))
    text = "𝒳 Únaffable [MASK]cats."
    [row] = tokenize(tokenizer, [text])
    units = text.encode("utf-16-le")
    places = [units[2 * piece["start"] : 2 * piece["end"]].decode("utf-16-le") for piece in row]
    assert places == ["", "𝒳", "Ún", "aff", "able", "[MASK]", "cat", "s", ".", ""]
    assert [piece["word"] for piece in row] == [-1, 0, 1, 1, 1, 2, 3, 3, 4, -1]


@pytest.mark.long
@pytest.mark.parametrize("compat", ["google", "huggingface"])
def test_every_character_is_treated_alike(tokenize, compat):
    """Characters assigned in the Unicode version of Python; browsers have a newer one."""
    is_assigned = (unicodedata.category(chr(code)) not in ("Cs", "Cn") for code in range(0x110000))
    characters = [chr(code) for code, is_one in enumerate(is_assigned) if is_one]
    vocab = kb.Vocab([*GOOGLE_SPECIALS, *"ab", "##a", "##b", *"éəσςi.中", "##é", "##σ", "##i"])
    tokenizer = kb.Tokenizer(vocab, compat=compat)
    texts = [f"a{c}b" for c in characters]
    found = tokenize(tokenizer, texts, IDS)
    expected = tokenizer.tokenize(texts).to_list()
    wrong = {c for c, a, b in zip(characters, found, expected, strict=True) if a != b}
    assert wrong <= NEWER
