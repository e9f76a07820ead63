import dataclasses
from typing import get_args

import pytest

from keras_bert_d2l.data.pretraining import masking, packing, pairs
from keras_bert_d2l.files import write_checksums
from keras_bert_d2l.training.pretraining.options import (
    MIN_LEN,
    PARTS,
    MaskingName,
    Objective,
    PretrainingOptions,
    Rows,
)


def test_defaults_are_derived_from_the_other_options():
    options = PretrainingOptions(corpus="docstrings", steps=1000)
    assert options.num_steps("warmup_steps") == 100
    assert options.steps_between_evaluations == 50
    assert (options.preset, options.vocab_size, options.lowercase) == ("mini", 8000, True)


def test_the_options_of_a_run_suit_another_number_of_steps_and_another_mask_rate(tmp_path):
    PretrainingOptions(corpus="a", steps=100).to_yaml(tmp_path / "run.yaml")
    given = PretrainingOptions.read_yaml(tmp_path / "run.yaml")
    longer = PretrainingOptions.from_dict({**given, "steps": 20_000, "mask_rate": 0.3})
    assert longer.num_steps("warmup_steps") == 2000
    assert longer.steps_between_evaluations == 500
    assert [phase.mask_rate for phase in longer.phases()] == [0.3]


def test_options_can_be_restored_from_a_yaml_file(tmp_path):
    def read():
        return PretrainingOptions.from_dict(PretrainingOptions.read_yaml(tmp_path / "run.yaml"))

    written = PretrainingOptions(corpus=["a.txt", "docstrings"], steps=7, learning_rate=1e-5)
    written.to_yaml(tmp_path / "run.yaml")
    assert read() == written
    (tmp_path / "run.yaml").write_text("corpus: docstrings\nlearning_rate: 1e-3\n")
    assert read().learning_rate == 1e-3  # which YAML reads as a string


def test_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = PretrainingOptions(corpus=("text", "docstrings"), vocab="vocab.txt")
    assert options.corpus == (str(tmp_path / "text"), "docstrings")
    assert options.vocab == str(tmp_path / "vocab.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("stepps: 3\n", r"run\.yaml.*'stepps'.*steps"),
        ("- steps\n", r"one `name: value` per line"),
        (b"steps: \xff\n", r"run\.yaml.*not UTF-8"),
    ],
)
def test_an_error_in_a_file_names_the_file(content, message, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        PretrainingOptions.read_yaml(path)


INVALID = {
    "steps": (0, 2.5),
    "batch_size": (True,),
    "warmup_steps": (10_000,),
    "learning_rate": ("fast", float("nan")),
    "corpus": (None, [], ["a.txt", 3]),
    "layout": ("verse",),
    "preset": ("huge",),
    "vocab": (3,),
    "held_out": (1,),
    "mask_rate": (0,),
    "mask_replace_prob": (1.1,),
    "dropout": (1,),
    "short_seq_prob": (1.5,),
}


@pytest.mark.parametrize(
    ("option", "value"), [(option, value) for option in INVALID for value in INVALID[option]]
)
def test_an_invalid_value_is_rejected_with_the_name_of_its_option(option, value):
    with pytest.raises(ValueError, match=f"{option}|name="):
        PretrainingOptions(**{"corpus": "docstrings", option: value})


def test_short_rows_come_first_in_batches_with_the_same_number_of_tokens():
    options = PretrainingOptions(corpus="a", steps=10, batch_size=4, max_len=64, short_steps=3)
    assert options.short_len == 8
    assert options.phases() == [(0, 3, 32, 8, 0.15, False), (3, 10, 4, 64, 0.15, False)]
    assert PretrainingOptions(corpus="a", steps=10).phases() == [(0, 10, 64, 128, 0.15, False)]


def test_causal_steps_come_first_and_may_end_within_the_short_rows():
    options = PretrainingOptions(
        corpus="a", steps=10, causal_steps=0.4, short_steps=6, max_len=64, objective="none"
    )
    found = [(phase.end, phase.max_len, phase.causal) for phase in options.phases()]
    assert found == [(4, 8, True), (6, 8, False), (10, 64, False)]


def test_the_mask_rate_falls_in_four_stages_of_equal_length():
    falling = {"corpus": "a", "mask_rate": 0.3, "final_mask_rate": 0.15, "steps": 10}
    phases = PretrainingOptions(**falling, short_steps=6, batch_size=4, max_len=64).phases()
    ends, sizes, rates = zip(*[(p.end, p.batch_size, p.mask_rate) for p in phases], strict=True)
    assert ends == (3, 5, 6, 8, 10)
    assert sizes == (32, 32, 32, 4, 4)
    assert rates == pytest.approx((0.3, 0.25, 0.2, 0.2, 0.15))
    assert len(PretrainingOptions(**{**falling, "steps": 2}).phases()) == 2
    [constant] = PretrainingOptions(corpus="a", mask_rate=0.3).phases()
    assert constant.mask_rate == 0.3


def test_shares_of_the_run_become_steps_or_parts_of_the_budget():
    options = PretrainingOptions(corpus="a", steps=50, warmup_steps="0.2", short_steps=0.5)
    assert (options.num_steps("warmup_steps"), options.num_steps("short_steps")) == (10, 25)
    options = PretrainingOptions(corpus="a", steps=100, short_steps=0.29)
    assert options.num_steps("short_steps") == 29  # although 0.29 * 100 < 29
    options = PretrainingOptions(corpus="a", steps=50, short_steps=0.01)  # less than a step
    assert [phase[:2] for phase in dataclasses.replace(options, seed=1).phases()] == [(0, 50)]
    options = PretrainingOptions(corpus="a", minutes=3, short_steps=0.5, batch_size=4)
    assert (options.steps, options.evaluate_every) == (None, None)
    assert options.num_steps("warmup_steps") == PARTS / 10
    assert [phase[:2] for phase in options.phases()] == [(0, PARTS // 2), (PARTS // 2, PARTS)]
    assert PretrainingOptions.from_dict(dataclasses.asdict(options)) == options


def test_a_recipe_sets_the_options_that_are_not_given():
    modern = PretrainingOptions.from_dict({"corpus": "a", "recipe": "modern", "schedule": "cosine"})
    assert (modern.optimizer, modern.schedule, modern.dropout) == ("muon", "cosine", 0.0)
    assert (modern.mask_rate, modern.final_mask_rate) == (0.3, 0.15)
    with pytest.raises(ValueError, match="`recipe` must be one of"):
        PretrainingOptions.from_dict({"corpus": "a", "recipe": "ancient"})


def test_a_run_resumes_with_the_shares_that_it_was_given(tmp_path):
    shares = {"warmup_steps": 0.2, "short_steps": 0.5, "causal_steps": 0.3, "decay_steps": 0.4}
    for length in ({"steps": 10}, {"minutes": 3}):
        fixed = {"corpus": "a", "objective": "none", "schedule": "wsd"}
        written = PretrainingOptions(**fixed, **shares, **length)
        written.to_yaml(tmp_path / "run.yaml")
        write_checksums(tmp_path)
        assert PretrainingOptions.of_run(tmp_path / "run.yaml", shares | length) == written
        with pytest.raises(ValueError, match="resumes with its own options. Received: warmup_s"):
            PretrainingOptions.of_run(tmp_path / "run.yaml", {"warmup_steps": 0.3})


def test_an_unknown_option_is_rejected_with_a_list_of_known_options():
    with pytest.raises(ValueError, match=r"'step'.*steps, minutes, batch_size"):
        PretrainingOptions.from_dict({"corpus": "docstrings", "step": 1})


def test_the_choices_match_the_data_pipeline():
    assert get_args(MaskingName) == masking.STRATEGIES
    assert get_args(Objective) == (*pairs.OBJECTIVES, "rtd")
    assert get_args(Rows) == ("auto", *packing.ROWS)
    assert MIN_LEN == pairs.MIN_LEN


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vocab": "vocab.txt", "vocab_size": 100}, "vocab.*vocab_size=100"),
        ({"bert_config": "config.json", "preset": "mini"}, "bert_config.*preset='mini'"),
        ({"init": "run", "vocab": "vocab.txt"}, "init.*vocab="),
        ({"init": "run", "bert_config": "config.json"}, "init.*bert_config="),
        ({"lora": 4}, "`init`.*lora=4"),
        ({"lora_alpha": 4.0}, "`lora`.*lora_alpha=4.0"),
        ({"causal_steps": 5}, r"requires objective='none'.*Received: causal_steps=5\.$"),
        ({"causal_steps": 5, "objective": "sop"}, "causal_steps=5, objective='sop'"),
        ({"causal_steps": 9, "steps": 9, "objective": "none"}, "below `steps`.*causal_steps=9, st"),
        ({"minutes": 2, "steps": 3}, "`(steps|minutes)` and `(steps|minutes)` exclude each other"),
        ({"minutes": 2, "evaluate_every": 3}, "`minutes` and `evaluate_every` exclude each other"),
        ({"minutes": 2, "short_steps": 3}, "`short_steps` must be a sh.*short_steps=3, minutes=2"),
        ({"warmup_steps": 1.5}, "`warmup_steps` must be a number of steps, or a share"),
        ({"decay_steps": 0.5}, "`decay_steps` requires schedule='wsd'.*decay_steps=0.5"),
        ({"decay_steps": 0.95, "schedule": "wsd", "steps": 100}, "together.*steps=0.95, steps=100"),
        ({"short_len": 16}, "short_len=16, short_steps=0"),
        ({"short_steps": 5, "short_len": 48}, "divisor.*short_len=48, max_len=128"),
        ({"short_steps": 11, "steps": 10}, "short_steps=11, steps=10"),
        ({"short_steps": 5, "max_len": 36}, "divisor.*short_len=4, max_len=36"),
        ({"rows": "bucketed", "jit": True}, "rows='packed'.*rows='bucketed', jit=True"),
        ({"generator_width": 0.5}, "require objective='rtd'.*generator_width=0.5"),
        ({"objective": "rtd", "lora": 2, "init": "run"}, "another objective than 'rtd'.*lora=2"),
    ],
)
def test_options_that_do_not_fit_together_are_rejected(given, message):
    with pytest.raises(ValueError, match=message):
        PretrainingOptions(corpus="a", **given)
