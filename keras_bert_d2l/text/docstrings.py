"""A corpus that needs no download: the English prose in the docstrings of installed packages.

Files are parsed, never imported. A docstring is split into paragraphs and sentences.
Sentences that look like English are kept; code, tables and parameter lists are dropped.
"""

import ast
import importlib
import inspect
import pathlib
import re
import types
import warnings
from collections.abc import Iterable, Iterator

from keras_bert_d2l.text.text_files import LONG_ENOUGH, gather_documents, split_sentences

PACKAGES = ("tensorflow", "keras", "numpy")

_MIN_SENTENCES = 3  # shorter documents have too little context
_NO_PROSE = re.compile(r"(^|/)(tests?|testing|_api)/|_test\.py$|_pb2\.py$")

_FENCED_CODE = re.compile(r"^[ \t]*(```|~~~).*?(^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NUMPY_EXAMPLES = re.compile(
    r"^(See Also|References|Examples?)\n-+\n.*?(?=^[A-Z][\w ]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL
)
_UNDERLINE = re.compile(r"([-=~^*])\1{2,}$")
_SECTION = re.compile(r"[A-Z][\w /-]{0,40}:$")
_NAME = r"[*`'\"]*[\w.]+[`'\"]*"
# The label at the start of a list entry: a bullet or a number; a parameter in Google's
# style, `name:` or `name (type):`; or a parameter in NumPy's style, `name : type` on its own line.
_LABEL = re.compile(
    r"(?:[-*+•] +|\(?\d{1,2}[.)] +|\([a-z]\) +)?"
    rf"(?:{_NAME}(?:, ?{_NAME})*(?: ?\([^()]*\))?(?::(?=\s|$)|\s+: .*$|\s+--? ))?"
)

_LINK = re.compile(r"!?\[([^\]]+)\]\([^)]*\)")
_ROLE = re.compile(r":[a-z:]+:(?=`)")
_MARKUP = re.compile(r"`+|\s*\[\d+\]_|\*\*|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)")

_STARTS_LIKE_A_SENTENCE = re.compile(r"[\"“(]?[A-Z]")
_ENDS_LIKE_A_SENTENCE = re.compile(r"[.!?][\"”)]?$")
_CODE = re.compile(r"[=<>{}|\\^~@#$]|https?:|::|www\.")
_WORD = re.compile(
    r"[\"'“‘(]*[A-Za-z]+(?:['’/-][A-Za-z]+)*[\"'”’).,;:!?]*|\(?\d+(?:[.,]\d+)*[%).,;:]*"
)
_MIN_WORDS, _MAX_WORDS = 5, 100
_SHARE_OF_WORDS = 0.8  # the other words may be names such as `batch_size` or tf.data.Dataset


class Docstrings:
    """The docstrings of tensorflow, keras and numpy, as one part of a corpus."""

    num_bytes = 4_000_000  # approximate size of the text

    @property
    def description(self) -> str:
        """A human-readable list of the packages and their versions."""
        return f"docstrings of {', '.join(_versions())}"

    def identity(self) -> tuple[str, ...]:
        """Return strings that change whenever the documents may have changed."""
        return "docstrings", *_versions()

    def sections(self) -> Iterator["Docstrings"]:
        """Yield itself: duplicates are skipped across all files, so one process must read them."""
        yield self

    def documents(self) -> Iterator[list[str]]:
        """Yield the documents of the packages; see `documents_in`."""
        return documents_in([pathlib.Path(str(module.__file__)).parent for module in _modules()])


def _modules() -> list[types.ModuleType]:
    return [importlib.import_module(package) for package in PACKAGES]


def _versions() -> list[str]:
    return [f"{module.__name__} {module.__version__}" for module in _modules()]


def documents_in(folders: Iterable[pathlib.Path]) -> Iterator[list[str]]:
    """Yield one document for each class, and one for each module without its classes.

    The files of a folder are read in alphabetical order. Repeated sentences are skipped.
    """
    seen: set[str] = set()
    for folder in folders:
        for path in sorted(folder.rglob("*.py"), key=pathlib.Path.as_posix):
            if _NO_PROSE.search(path.relative_to(folder).as_posix()):
                continue
            for document in gather_documents(_paragraphs_of_file(path, seen), LONG_ENOUGH):
                if len(document) >= _MIN_SENTENCES:
                    yield document


def _paragraphs_of_file(path: pathlib.Path, seen: set[str]) -> Iterator[list[str] | None]:
    source = path.read_bytes()
    if b'"""' not in source and b"'''" not in source:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in the packages' code
        module = ast.parse(source)
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    module.body = [node for node in module.body if not isinstance(node, ast.ClassDef)]
    for node in (module, *classes):
        for docstring in _docstrings(node):
            sentences = [s for s in dict.fromkeys(prose(docstring)) if s not in seen]
            seen.update(sentences)
            yield sentences
        yield None


def _docstrings(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        if docstring:
            yield docstring
    # Visiting only statements, not expressions, is ten times faster.
    for field in ("body", "orelse", "handlers", "finalbody"):
        for child in getattr(node, field, ()):
            yield from _docstrings(child)


def prose(docstring: str) -> list[str]:
    """Return the sentences of a docstring that look like English, without markup.

    Fenced code, doctests, directives, headings, and the names and types of parameters are removed.
    The description of a parameter is kept if it is a sentence.
    """
    sentences: list[str] = []
    for paragraph in _paragraphs(docstring):
        text = _MARKUP.sub("", _ROLE.sub("", _LINK.sub(r"\1", paragraph)))
        sentences += filter(_is_english, split_sentences(text))
    return sentences


def _paragraphs(docstring: str) -> Iterator[str]:
    text = _FENCED_CODE.sub("\n", inspect.cleandoc(docstring))
    for block in re.split(r"\n\s*\n", _NUMPY_EXAMPLES.sub("", text)):
        lines: list[str] = []
        indentation = 0
        for line in block.split("\n"):
            words = line.strip()
            if words.startswith((">>>", ".. ")):
                break
            if _UNDERLINE.match(words):
                lines = []
                continue
            label = words if _SECTION.match(words) else _LABEL.match(words)[0]  # type: ignore[index]
            line_indentation = len(line) - len(line.lstrip())
            if label or line_indentation < indentation:
                yield " ".join(lines)
                lines = []
            if not lines:
                indentation = line_indentation
            lines.append(words[len(label) :].strip())
        yield " ".join(lines)


def _is_english(sentence: str) -> bool:
    words = sentence.split()
    return bool(
        _MIN_WORDS <= len(words) <= _MAX_WORDS
        and _STARTS_LIKE_A_SENTENCE.match(sentence)
        and _ENDS_LIKE_A_SENTENCE.search(sentence)
        and not _CODE.search(sentence)
        and sum(bool(_WORD.fullmatch(word)) for word in words) >= _SHARE_OF_WORDS * len(words)
    )
