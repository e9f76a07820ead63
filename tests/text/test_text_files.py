"""Text files: decoding, sentences, documents, and sections, which together have all documents."""

import gzip
import itertools
import lzma
import random

import pytest

from keras_bert_d2l.text import text_files
from keras_bert_d2l.text.corpus import Corpus
from keras_bert_d2l.text.text_files import gather_documents, read_lines, split_sentences

CAFE = b"caf\xe9 x"
LINES = "\n\n".join(
    "\n".join(f"Sentence {line} of document {number} is here." for line in range(5))
    for number in range(60)
)
WIKITEXT = "".join(
    f"\n = Article {number} = \n\n It is one . It has parts . \n\n = = Part = = \n\n Some text . \n"
    for number in range(60)
)
PROSE = "\n\n".join(
    f"The {number} cats sleep in the\nwarm house. The {number} dogs do not." for number in range(90)
)
TEXTS = {"lines": LINES, "wikitext": WIKITEXT, "prose": PROSE}


@pytest.fixture
def small_sections(monkeypatch):
    monkeypatch.setattr(text_files, "SECTION_BYTES", 1000)
    monkeypatch.setattr(text_files, "_WINDOW_BYTES", 500)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((("é" * n).encode() + CAFE, rf"byte {2 * n + 3} is 0xe9.*iconv") for n in (2, 150_000)),
        (b"The \xc3", "byte 4 is 0xc3"),
        ("The cat.".encode("utf-16"), r"byte 3 is a zero byte.*iconv -f UTF-16"),
        *((b"x" * n + b"\0\0 a", rf"byte {n} is a zero byte") for n in (14, 400_001)),
    ],
)
def test_the_error_for_a_file_that_is_not_utf8_names_the_offset(write, content, message):
    with pytest.raises(ValueError, match=rf"text\.txt' must be .*{message}"):
        list(read_lines(write("text.txt", content)))


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_the_error_for_a_damaged_file_names_the_file(write, suffix, pack):
    packed = pack((LINES * 10).encode())
    cut, rest = packed[: len(packed) // 2], packed[len(packed) // 2 :]
    for content in (cut, LINES.encode(), cut + bytes(255 - b for b in rest)):
        with pytest.raises(ValueError, match=rf"text\.txt{suffix}' is damaged"):
            list(read_lines(write(f"text.txt{suffix}", content)))


@pytest.mark.parametrize(
    "sentence",
    [
        "$3.50, e.g. for Dr. Smith.",
        "Mr. Brown went to Washington D.C. on Jan. 5 at 5 p.m. to see Mrs. Jones.",
        "The U.S. Army grew by 3.5 percent, i.e. too much.",
        "J. R. R. Tolkien wrote to Prof. Lewis.",
        "The result is a tf.Tensor of type np.float32.",
        "Is it 1.5.The same?",
    ],
)
def test_not_every_full_stop_ends_a_sentence(sentence):
    assert split_sentences(sentence) == [sentence]
    assert split_sentences(f"{sentence} Then she left.") == [sentence, "Then she left."]


def test_quotations_are_split_where_a_reader_would_split_them():
    assert split_sentences('"Stop!" cried Tom. “Who goes there?” No answer came.') == [
        '"Stop!" cried Tom.',
        "“Who goes there?”",
        "No answer came.",
    ]


def test_white_space_becomes_single_spaces_and_pieces_without_letters_are_dropped():
    assert split_sentences(" One\n wrapped\tline. \u00a0 Two.\r\n") == ["One wrapped line.", "Two."]
    assert split_sentences("Plan A\u00a0. Plan B\u202f.") == ["Plan A . Plan B ."]
    assert split_sentences("* * *") == []


def test_random_text_does_not_crash_the_splitter_or_lose_letters():
    draw = random.Random(0)
    parts = list("aB.!?…\"'“”()[]—,;:$% \u00a0\u202f\u200b\u0301é東。\U0001d49c0 \n\t")
    parts += ["e.g.", "Dr. ", "U.S.", "A", "...", "http://x.y", "\n\n"]
    for _ in range(1000):
        text = "".join(draw.choices(parts, k=draw.randrange(60)))
        letters = [c for c in "".join(split_sentences(text)) if c.isalnum()]
        assert letters == [c for c in text if c.isalnum()]


def test_documents_end_at_none():
    paragraphs = [["a", "b"], ["c"], None, None, [], ["d"], None]
    assert list(gather_documents(paragraphs)) == [["a", "b", "c"], ["d"]]


def test_a_long_document_ends_after_a_paragraph_or_a_thousand_sentences():
    assert [len(d) for d in gather_documents([["s"] * 40] * 7, 100)] == [120, 120, 40]
    assert [len(d) for d in gather_documents([["s"] * 2500, None, ["s"]])] == [1000, 1000, 500, 1]


def pieces(path, layout="auto"):
    return [list(piece) for piece in Corpus.open(path, layout=layout).pieces()]


@pytest.mark.parametrize("layout", ["lines", "wikitext", "prose"])
@pytest.mark.parametrize("last", ["", "\n"])
@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text.txt.xz"])
@pytest.mark.parametrize("asked", ["given", "auto"])
def test_line_ends_may_be_carriage_returns(write, layout, last, name, asked):
    asked = layout if asked == "given" else "auto"
    text = TEXTS[layout] * 20  # several blocks
    expected = list(Corpus.open(write("other.txt", text), layout=asked))
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(name[-3:], bytes)
    path = write(name, pack((text.replace("\n", "\r") + last).encode()))
    assert list(Corpus.open(path, layout=asked)) == expected
    assert len(expected) > 1


@pytest.mark.parametrize("layout", ["lines", "wikitext"])
@pytest.mark.parametrize("asked", ["given", "auto"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_no_document_is_split_between_sections(write, monkeypatch, layout, asked, line_end):
    path = write("text.txt", TEXTS[layout].replace("\n", line_end))
    asked = layout if asked == "given" else "auto"
    (whole,) = pieces(path, asked)
    monkeypatch.setattr(text_files, "SECTION_BYTES", 1000)
    parts = pieces(path, asked)
    assert len(parts) > 4
    assert list(itertools.chain(*parts)) == whole
    assert list(Corpus.open(path, layout=asked)) == whole


def test_prose_is_split_between_paragraphs_without_losing_text(write, small_sections):
    parts = pieces(write("text.txt", PROSE))
    sentences = [s for part in parts for document in part for s in document]
    assert len(parts) > 3
    assert " ".join(sentences) == " ".join(PROSE.split())
    assert all(part[0][0].endswith("cats sleep in the warm house.") for part in parts)


@pytest.mark.parametrize("seed", range(5))
def test_every_byte_belongs_to_one_section(write, small_sections, seed):
    random_text = random.Random(seed)
    text = "".join(
        random_text.choices(["é", "word ", "\n", "\n\n", "= A =", "\r\n", "x" * 300], k=500)
    )
    path = write("text.txt", text)
    layout = random_text.choice(["lines", "prose", "wikitext", "auto"])
    found = list(text_files.TextFile(path, layout).sections())
    bounds = [(part.start, part.stop) for part in found]
    assert bounds[0][0] == 0
    assert bounds[-1][1] in (None, len(text.encode()))
    assert all(before[1] == after[0] for before, after in itertools.pairwise(bounds))
    assert sum(part.num_bytes for part in found) == len(text.encode())
    words = [
        word for part in found for document in part.documents() for s in document for word in s
    ]
    if found[0].layout == "lines":
        assert "".join("".join(words).split()) == "".join(text.split())


def test_a_document_that_never_ends_is_split_at_a_line(write, small_sections):
    (part,) = text_files.TextFile(write("text.txt", "word " * 2000), "lines").sections()
    assert (part.start, part.stop) == (0, 10_000)
    parts = pieces(write("text.txt", "A sentence on a line.\n" * 200), "lines")
    assert len(parts) == 4
    assert sum(len(document) for part in parts for document in part) == 200


def test_small_files_are_grouped_and_compressed_files_are_not_split(
    write, tmp_path, small_sections
):
    for number in range(9):
        write(f"{number}.txt", f"This is text {number}. " * 10 + "\n")
    write("x.txt.gz", gzip.compress(LINES.encode()))
    sizes = [len(piece.sections) for piece in Corpus.open(tmp_path).pieces()]
    assert sizes == [7, 3]
    assert len(list(text_files.TextFile(tmp_path / "x.txt.gz", "lines").sections())) == 1


def test_errors_report_the_offset_in_the_file(write, small_sections):
    content = LINES.encode()
    path = write("text.txt", content[:5000] + b"\xe9" + content[5000:])
    with pytest.raises(ValueError, match="byte 5000 is 0xe9"):
        list(Corpus.open(path, layout="lines"))
