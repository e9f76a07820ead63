import builtins
import contextlib
import inspect
import json
import math
import os
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import keras_bert_d2l
from keras_bert_d2l import __main__, cli, quickstart
from keras_bert_d2l.cli.input_output import as_json_line

GROUPS = {
    title: [command.partition(":")[2].replace("_", "-") for command in commands.split()]
    for title, commands in cli.GROUPS.items()
}
COMMANDS = [command for commands in GROUPS.values() for command in commands]
IMMEDIATE = {"--help": 0, "--version": 0, "pretrain --help": 0, "finetune --steps": 2, "bake": 2}
SHORT = {"-f": "--file", "-h": "--help", "-k": "--top-k", "-m": "--model", "-o": "--out"}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_page_describes_the_command_and_its_options(command, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = run(command, "--help").stdout
    assert page.startswith(f"Usage: keras-bert-d2l {command} ")
    assert command == "quickstart" or f"keras-bert-d2l {command} " in page.partition("For ")[2]
    arguments = cli.app[command].assemble_argument_collection()
    docstring = inspect.getdoc(cli.app[command].default_command)
    for argument in arguments:
        name = argument.field_info.name
        described = re.search(rf"^    {name}: (.+(?:\n {{8}}.+)*)", docstring, re.MULTILINE)
        help_text = argument.parameter.help or described[1]
        assert help_text[0].isupper(), name
        assert help_text[-1] in ".]", name
        kinds = typing.get_args(argument.hint) or (argument.hint,)
        assert int not in kinds or argument.parameter.converter, name  # Cyclopts would round 3.5
    for names in (argument.names for argument in arguments):
        for short in (name for name in names if len(name) == 2):
            assert SHORT[short] in names


def test_without_a_command_the_help_page_lists_all_commands_on_one_screen(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    page = run().stdout
    assert len(page.splitlines()) < 40
    position = 0
    for group, commands in GROUPS.items():
        for title in (f"─ {group} ─", *(f" {command} " for command in commands)):
            assert page.find(title, position) > 0, title
            position = page.find(title, position)
    assert "Exit codes: 0 success, 1 " in page
    assert run("bake", "--help").stdout == page
    assert all(re.search(rf"\s{code} ", page) for code in (2, 130))


@pytest.mark.slow
def test_help_and_usage_errors_import_neither_tensorflow_nor_numpy(fresh_process):
    code = """
        import sys
        from keras_bert_d2l.cli import main
        for line in sys.argv[1:]:
            try:
                main(line.split())
            except SystemExit as exit:
                slow = sorted({"tensorflow", "keras", "numpy", "pandas"} & sys.modules.keys())
                print("code:", exit.code or 0, slow)
                commands = {one for one in sys.modules if ".cli.commands." in one}
                print("commands:", len(commands))
        """
    printed = fresh_process(code, *IMMEDIATE).splitlines()
    codes = [line for line in printed if line.startswith("code:")]
    assert codes == [f"code: {code} []" for code in IMMEDIATE.values()]
    used = [line for line in printed if line.startswith("commands:")]
    assert used[:3] == ["commands: 0", "commands: 0", "commands: 1"]


@pytest.mark.long
def test_a_command_loads_keras_without_the_packages_that_it_does_not_use(fresh_process):
    code = """
        import gc
        del sys.modules["sklearn"]  # as in a process of a user
        sys.argv = ["keras-bert-d2l", "fill-mask", "a [MASK] night"]
        from keras_bert_d2l.__main__ import main
        try:
            main()
        except SystemExit as exit:
            print(exit.code, "keras" in sys.modules, {"pandas", "sklearn"} & sys.modules.keys())
        print(gc.isenabled(), gc.get_freeze_count() > 100_000)
        """
    assert fresh_process(code).splitlines()[-2:] == ["None True set()", "True True"]


def test_shells_complete_every_command_and_its_options():
    script = cli.app.generate_completion(shell="bash")
    assert all(command in script for command in COMMANDS)
    assert "warmup-steps" in script


def test_the_last_occurrence_of_a_repeated_option_wins(error):
    message = error("vocab", "text.txt", "--vocab-size", 60, "--vocab-size", 1)
    assert message.endswith("Received: --vocab-size 1.\n")


def test_ctrl_c_during_the_imports_prints_no_traceback(monkeypatch, capsys):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", interrupted)
        with pytest.raises(SystemExit, match="130"):
            __main__.main()
    assert capsys.readouterr().err == "\nInterrupted.\n"


def test_version_prints_the_version(run):
    assert run("--version").stdout == f"keras-bert-d2l {keras_bert_d2l.__version__}\n"


@pytest.fixture
def given(monkeypatch):
    """The options that `pretrain` gets, which does not run."""
    options = {}
    monkeypatch.setattr(keras_bert_d2l, "pretrain", lambda **given: options.update(given))
    return options


def test_the_command_line_takes_precedence_over_the_config_file(run, folder, given):
    recorded = "corpus: text.txt\nsteps: 9\nvocab_size: 40\npreset: tiny\nlowercase: true\n"
    (folder / "recorded.yaml").write_text(recorded)
    config = ("pretrain", "--config", "recorded.yaml", "--run-dir", "run")
    run(*config, "other.txt", "--steps", 1, "--precision", "mixed_bfloat16", "--no-jit")
    options = {"corpus": "other.txt", "steps": 1, "precision": "mixed_bfloat16", "jit": False}
    of_the_file = {"vocab_size": 40, "preset": "tiny", "lowercase": True}
    assert given == {"run_dir": Path("run"), "resume": False, **options, **of_the_file}
    given.clear()  # an option replaces those that it excludes
    run(*config, "--minutes", 2, "--vocab", "vocab.txt")
    assert given.keys().isdisjoint({"steps", "vocab_size"})
    assert (given["minutes"], given["preset"], given["lowercase"]) == (2, "tiny", True)
    given.clear()
    run(*config, "--init", "novels-small")
    assert given.keys().isdisjoint({"vocab_size", "preset", "lowercase"})
    assert (given["init"], given["steps"]) == ("novels-small", 9)


def test_report_writes_the_page_of_the_run_folder(run, trained, folder):
    out = run("report", trained, "--out", "made/page.html").stdout
    assert out == f"Report of {folder.name}/{trained.name}: made/page.html\n"
    assert (folder / "made/page.html").read_text() == (trained / "report.html").read_text()


@pytest.mark.slow
def test_bad_input_gives_a_one_line_error(error, trained, folder):
    (folder / "latin.txt").write_bytes(b"caf\xe9\n")
    (folder / "bad.yaml").write_text("step: 3\n")
    vocab = ("--vocab", trained / "vocab.txt", "--layout", "lines", "--run-dir", "y")
    for text in ("nowhere/*.txt", "latin.txt"):
        assert text in error("pretrain", text, *vocab)
    assert "'step'" in error("pretrain", "text.txt", "--config", "bad.yaml", "--run-dir", "y")
    too_large = error("pretrain", "text.txt", *vocab, "--batch-size", 1000)
    assert too_large.endswith("Use a smaller --batch-size or more text.\n")
    assert "trained" in error("pretrain", "text.txt", "--run-dir", trained)
    assert "has --steps 2" in error("pretrain", "--resume", trained, "--steps", 3)
    assert "nowhere" in error("fill-mask", "a [MASK]", "--model", "nowhere")
    assert "--out must be a local path" in error("export", "--model", trained, "--out", "s3://x/y")


def test_traceback_shows_where_an_error_occurred_before_the_same_message(run):
    command = ("export", "--model", "nowhere", "--out", "x")
    shown, message = (run(*more, *command, exit_code=2).stderr for more in (["--traceback"], []))
    assert shown.startswith("Traceback (most recent call last):")
    assert shown.endswith(message)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("vocab", "See `keras-bert-d2l vocab --help`."),
        ("export", "--out"),
        ("export a --out b", "'a'"),
        ("--foo", "--foo"),
        ("embed -hello", "Write -- before texts if one of them begins with -."),
        ("bake", '"bake"'),
        ("pretrain a --run-dir x --precision high", "--precision"),
        ("quickstart --run-dir text.txt", "error: 'text.txt' is a file. Choose a new or empty "),
        ("embed a -", "TEXT must not be -, which stands for standard input"),
        ("embed text.txt", "'text.txt' is a file. To read the texts in it, pass --file FILE."),
        ("predict a -m x -o -", "--out must not be -, which"),
        ("convert - x", "must not be -, which stands for standard input"),
        ("vocab a --vocab-size 3.5", '"3.5" is not an integer.'),
        ("pretrain a", "--run-dir FOLDER is missing, or --resume FOLDER"),
        ("pretrain a --run-dir b --resume c", "Received: both; remove one of them."),
        (
            "pretrain a --run-dir b --short-len 9",
            "set both or neither. Received: --short-len 9, --short-steps 0",
        ),
        ("finetune classify --class-weights a", "--class-weights must be LABEL=WEIGHT. "),
    ],
)
def test_a_usage_error_names_the_option_and_the_help_page(command, message, error):
    assert message in error(*command.split())


@pytest.mark.slow
def test_ctrl_c_while_tensorflow_is_imported_hides_its_messages(tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text(
        "import os, signal\n"
        "os.write(2, b'a line of TensorFlow')\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    result = in_a_process("fill-mask", "a [MASK]", "--model", "x", folder=tmp_path)
    assert (result.returncode, result.stderr) == (130, "\nInterrupted.\n")


def test_ctrl_c_exits_with_130_and_one_line(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt("Stopped after step 3.")

    monkeypatch.setattr(keras_bert_d2l, "pretrain", interrupted)
    result = run("pretrain", "text.txt", "--run-dir", "x", exit_code=130)
    assert result.stderr.strip() == "Stopped after step 3."


def in_a_process(*arguments, folder, **kwargs):
    """Run the command in a new process, as a user does."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(
        [sys.executable, "-m", "keras_bert_d2l", *map(str, arguments)],
        cwd=folder,
        env=environment,
        text=True,
        timeout=300,
        check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kwargs},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "name", "command"),
    [
        pytest.param(
            *(60_000, "run", "pretrain text.txt --config small.yaml --run-dir"),
            marks=pytest.mark.long,
        ),
        (1000, "a.npy", "embed a b c --model trained --out"),
        (100_000, "a", "export --format onnx --model trained --out"),
        pytest.param(100_000, "a", "export --model trained --out", marks=pytest.mark.long),
    ],
)
def test_a_full_disk_gives_a_one_line_error_and_leaves_nothing(
    size, name, command, error, run, trained, tmp_path
):
    resource = pytest.importorskip("resource")  # Windows has no process resource limits
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / name
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        message = error(*command.split(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert re.fullmatch(rf"error: File too large: '{path}[^']*'\.\n", message)
    assert command.startswith(("pretrain", "export --model")) or not any(tmp_path.iterdir())
    run(*command.split(), path)


@pytest.mark.long
def test_quickstart_exports_a_model_and_can_be_repeated(run, folder, monkeypatch):
    # Learning the vocabulary of the docstrings would take half a minute.
    monkeypatch.setattr(quickstart, "_CORPUS", "text.txt")
    monkeypatch.setattr(quickstart, "_VOCAB_SIZE", 60)
    monkeypatch.setattr(quickstart, "_BATCH_SIZE", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for version in (1, 2):
        out = run("quickstart", "--steps", 1).stdout
        assert (folder / f"saved_models/demo/{version}/saved_model.pb").exists()
        assert all(out.count(f"  {question}\n") == 1 for question in quickstart.QUESTIONS)
        assert ("Reusing the vocabulary" in out) == (version == 2)
        assert f"  {quickstart.QUESTION_FOR_NOVELS}\n     74.3%  door\n" in out
        assert f"--model {quickstart.RUNS / str(version)}\n" in out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="The system has no /dev/full")
@pytest.mark.parametrize("arguments", [["pretrain", "--help"], ["--version"]])
def test_output_that_cannot_be_written_gives_a_one_line_error(arguments, capsys):
    with (
        open("/dev/full", "w") as full,
        contextlib.redirect_stdout(full),
        pytest.raises(SystemExit, match="2"),
    ):
        cli.main(arguments)
    assert capsys.readouterr().err == "error: No space left on device.\n"


@pytest.mark.parametrize(
    ("command", "message", "translated"),
    [
        ("pretrain", "`model` must not have LoRA.", "--init must not have LoRA."),
        ("embed", "`model` must be a BERT.", "--model must be a BERT."),
        ("convert", "`path` must be new.", "TARGET must be new."),
        ("vocab", "`source` must be a path.", "TEXT must be a path."),
        ("evaluate", "`examples` must be pairs.", "--data must be pairs."),
        ("distill", "`data` must be examples.", "--train must be examples."),
        ("finetune", "Pass --text 2 (text=2 in Python).", "Pass --text 2."),
        ("finetune", "(see --id; `id` in Python)", "(see --id)"),
    ],
)
def test_an_error_has_the_names_of_the_command_line(command, message, translated):
    assert cli.message_of(ValueError(message), cli.app[command]) == translated


def test_json_lines_have_no_infinite_numbers():
    line = as_json_line({"low": -math.inf, "number": math.nan, "high": 0.1234567})
    assert json.loads(line) == {"low": None, "number": None, "high": 0.123457}


def test_lines_of_a_file_do_not_teach_a_bert_without_a_task(error):
    arguments = ("distill", "--blocks", "1", "--out", "student", "--file", "text.txt")
    assert "learns from documents; pass them with --train" in error(*arguments)
    assert "text.txt' is a file" in error(*arguments[:3], "--out", "text.txt", *arguments[5:])
