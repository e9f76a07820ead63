import ast
import io
import pathlib
import re
import tokenize

import keras_bert_d2l

ROOT = pathlib.Path(keras_bert_d2l.__file__).parent
NAMES = "classify|regress|tag|answer|choose|embed|rerank"
QUESTION = re.compile(
    r"isinstance\([^)]*(Classifier|Regressor|Answerer|MultipleChoice|Embedder)\b"
    r"|isinstance\([^)]*(Word|Question|Choice|Pair)Examples\b"
    rf"|(?<!for )\btask (==|!=|in|not in) |\"({NAMES})\""
)
NO_QUESTIONS = (  # names of commands, functions, signatures and outputs
    r"data/tasks/texts.py: task: str = ",
    r"cli/__init__.py: ",
    r"cli/input_output.py: task = known.get",  # a BERT without a task takes pairs as a classifier
    r"cli/commands/predict.py: said = \[record\[name\] for name in",
    r"serving/beam.py: .*(_FUNCTIONS|function)",
    r"signatures/signature.py: (found\[|.*embed)",
    r"serving/server/(embeddings|reranking|served|served_onnx).py: .*\"(embed|rerank)\"",
)


def code_lines(path):
    """Return the lines of a module by number, without docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    lines = dict(enumerate(source.splitlines(), 1))
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, node.end_lineno + 1) if is_text else ():
            lines.pop(number, None)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.start[0] in lines:
            lines[token.start[0]] = token.line[: token.start[1]]
    return lines.values()


def test_only_the_folders_of_the_tasks_ask_for_the_name_or_the_class_of_a_task():
    found = [
        f"{path.relative_to(ROOT).as_posix()}: {line.strip()}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ("tasks", "contract")
        for line in code_lines(path)
        if QUESTION.search(line)
    ]
    allowed = re.compile("|".join(NO_QUESTIONS))
    assert [line for line in found if not allowed.match(line)] == []
