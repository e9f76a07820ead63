"""Sections: together, the sections of a file contain exactly its documents."""

import gzip
import itertools
import random

import pytest

from keras_bert_d2l.text.corpus import sections
from keras_bert_d2l.text.corpus.corpus import Corpus

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
    monkeypatch.setattr(sections, "SECTION_BYTES", 1000)
    monkeypatch.setattr(sections, "_WINDOW_BYTES", 500)


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="text.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file


def pieces(path, layout="auto"):
    return [list(piece) for piece in Corpus.open(path, layout=layout).pieces()]


@pytest.mark.parametrize("layout", ["lines", "wikitext"])
@pytest.mark.parametrize("asked", ["given", "auto"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_no_document_is_split_between_sections(write, monkeypatch, layout, asked, line_end):
    path = write(TEXTS[layout].replace("\n", line_end))
    asked = layout if asked == "given" else "auto"
    (whole,) = pieces(path, asked)
    monkeypatch.setattr(sections, "SECTION_BYTES", 1000)
    parts = pieces(path, asked)
    assert len(parts) > 4
    assert list(itertools.chain(*parts)) == whole
    assert list(Corpus.open(path, layout=asked)) == whole


def test_prose_is_split_between_paragraphs_without_losing_text(write, small_sections):
    parts = pieces(write(PROSE))
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
    path = write(text)
    found = list(
        sections.sections(path, random_text.choice(["lines", "prose", "wikitext", "auto"]))
    )
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


def test_a_file_without_line_ends_is_one_section(write, small_sections):
    (part,) = sections.sections(write("word " * 2000), "lines")
    assert (part.start, part.stop) == (0, 10_000)


def test_a_document_that_never_ends_is_split_at_a_line(write, small_sections):
    parts = pieces(write("A sentence on a line.\n" * 200), "lines")
    assert len(parts) == 4
    assert sum(len(document) for part in parts for document in part) == 200


def test_small_files_are_grouped_and_compressed_files_are_not_split(
    write, tmp_path, small_sections
):
    for number in range(9):
        write(f"This is text {number}. " * 10 + "\n", f"{number}.txt")
    write(gzip.compress(LINES.encode()), "x.txt.gz")
    sizes = [len(piece.sections) for piece in Corpus.open(tmp_path).pieces()]
    assert sizes == [7, 3]
    assert len(list(sections.sections(tmp_path / "x.txt.gz", "lines"))) == 1


def test_errors_report_the_offset_in_the_file(write, small_sections):
    content = LINES.encode()
    path = write(content[:5000] + b"\xe9" + content[5000:])
    with pytest.raises(ValueError, match="byte 5000 is 0xe9"):
        list(Corpus.open(path, layout="lines"))
