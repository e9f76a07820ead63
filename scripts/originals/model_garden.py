"""Write the checkpoints in `tests/checkpoints/formats/originals/model_garden`.

They are written by TensorFlow's Model Garden with random weights: by its trainer, with a
`params.yaml` and the state of the optimizer, or by `tf.train.Checkpoint` alone. What the models
answer is stored beside them. `build.sh` of this folder runs this script.
"""

import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
import yaml
from official.core import base_trainer, exp_factory, task_factory
from official.legacy.bert import configs as legacy
from official.modeling import tf_utils
from official.modeling.hyperparams import params_dict
from official.nlp.configs import encoders, experiment_configs  # noqa: F401  # known by name
from official.nlp.modeling import layers, models
from official.nlp.tools import tokenization

FOLDER = pathlib.Path(__file__).parents[2] / "tests/checkpoints/formats/originals/model_garden"
TOKENS = """
    [PAD] [unused0] [UNK] [CLS] [SEP] [MASK] the a cat dog cafe film ##s ##ed ##ing is was good bad
    ! . , - ' un ##able x ##x 中 文
""".split()
WORDS = """
    the The THE a A cat Cat CATS cats dogs cafe café Café CAFÉ films filmed filming is was bad ! . ,
    - ' un unable UNABLE x xx Xxx 中文 文 zebra é cafe\u0301 don't bad!! good-bad ...x
    \u2026 1 2nd
""".split()
SIZES = {
    "vocab_size": len(TOKENS),
    "hidden_size": 8,
    "num_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
INPUTS = {
    "input_word_ids": [[3, 6, 8, 12, 4, 7, 9, 5, 4], [3, 7, 10, 4, 19, 4, 0, 0, 0]],
    "input_mask": [[1] * 9, [1] * 6 + [0] * 3],
    "input_type_ids": [[0, 0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0, 0]],
}
POSITIONS = {"masked_lm_positions": [[1, 7], [2, 5]]}
PARAMS = "params.yaml"


def encoder_config(kind: str, **others) -> encoders.EncoderConfig:
    """Return the configuration of a small encoder."""
    config = encoders.EncoderConfig(type=kind)
    config.get().override({**SIZES, **others})
    return config


def answers(model: tf.keras.Model, seed: int, **more) -> dict[str, np.ndarray]:
    """Give a model random weights, and return its outputs."""
    inputs = {name: tf.constant(value) for name, value in {**INPUTS, **more}.items()}
    model(inputs)
    rng = np.random.default_rng(seed)
    for weight in model.variables:
        weight.assign(rng.normal(0.1, 0.4, weight.shape))
    outputs = model(inputs)
    if isinstance(outputs, list):
        outputs = dict(zip(("start_logits", "end_logits"), outputs, strict=True))
    if not isinstance(outputs, dict):
        outputs = {"logits": outputs}
    return {name: value.numpy() for name, value in outputs.items() if name != "encoder_outputs"}


def store(name: str, outputs: dict[str, np.ndarray], checkpoint: tf.train.Checkpoint) -> None:
    """Write a checkpoint and the inputs and outputs of its model."""
    checkpoint.save(FOLDER / name / "ckpt")
    np.savez(FOLDER / name / "outputs.npz", **INPUTS, **POSITIONS, **outputs)


def train(name: str, experiment: str, kind: str, seed: int, **model) -> None:
    """Write the checkpoint of a task as the trainer writes it."""
    params = exp_factory.get_exp_config(experiment)
    params.task.override(model, is_strict=False)
    params.task.model.encoder = encoder_config(kind)
    data = {"input_path": "dummy", "global_batch_size": 1, "seq_length": 9}
    params.task.train_data.override(data)
    schedule = {"learning_rate": {"polynomial": {"decay_steps": 9}}}
    schedule["warmup"] = {"polynomial": {"warmup_steps": 1}}
    params.trainer.optimizer_config.override(schedule)
    task = task_factory.get_task(params.task)
    network = task.build_model()
    more = POSITIONS if "pretraining" in experiment else {}
    outputs = answers(network, seed, **more)
    optimizer = task.create_optimizer(params.trainer.optimizer_config, params.runtime)
    trainer = base_trainer.Trainer(params, task, network, optimizer, evaluate=False)
    (FOLDER / name).mkdir()
    params_dict.save_params_dict_to_yaml(params, str(FOLDER / name / PARAMS))
    if name == "pretraining":  # with slots
        saved = network.get_weights()
        trainer.train(tf.constant(1))
        network.set_weights(saved)
    store(name, outputs, trainer.checkpoint)


def alone(name: str, kind: str, seed: int, make, file: str, **more) -> None:
    """Write the checkpoint of a model alone, with a configuration of another kind."""
    config = encoder_config(kind)
    encoder = encoders.build_encoder(config)
    model = make(encoder)
    outputs = answers(model, seed, **more)
    (FOLDER / name).mkdir()
    if file.endswith(".json"):
        fields = {**SIZES, "type_vocab_size": 2, "num_hidden_layers": SIZES["num_layers"]}
        del fields["num_layers"]
        text = legacy.BertConfig(**fields).to_json_string()
    else:
        text = yaml.dump({"task": {"model": {"encoder": config.as_dict()}}})
    (FOLDER / name / file).write_text(text)
    items = {"encoder": model} if model is encoder else {"model": model}
    store(name, outputs, tf.train.Checkpoint(**items))


def tokens(name: str, *, lowercase: bool) -> None:
    """Write the vocabulary and the tokens of 200 lines."""
    file = FOLDER / name / "vocab.txt"
    file.write_text("".join(f"{token}\n" for token in TOKENS))
    rng = np.random.default_rng(0)
    tokenizer = tokenization.FullTokenizer(str(file), do_lower_case=lowercase)
    found: dict[str, str] = {}
    while len(found) < 200:
        line = " ".join(map(str, rng.choice(WORDS, rng.integers(1, 9))))
        found[line] = " ".join(tokenizer.tokenize(line))
    text = json.dumps(found, ensure_ascii=False, indent=0)
    (FOLDER / name / "tokens.json").write_text(text)


def main() -> None:
    """Write all files."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    tf.keras.utils.set_random_seed(0)
    head = {"inner_dim": 8, "num_classes": 2, "dropout_rate": 0.1, "name": "next_sentence"}
    train("pretraining", "bert/pretraining", "bert", 1, model={"cls_heads": [head]})
    train("classifier", "bert/sentence_prediction", "bert", 2, model={"num_classes": 3})
    train("regressor", "bert/sentence_prediction", "bert_v2", 3, model={"num_classes": 1})
    train("tagger", "bert/tagging", "bert", 4, class_names=["O", "B-X", "I-X"])
    train("span_labeler", "bert/squad", "bert_v2", 5)
    alone("encoder", "bert", 6, lambda encoder: encoder, "bert_config.json")
    alone("encoder_v2", "bert_v2", 7, lambda encoder: encoder, "bert_config.yaml")
    alone(
        *("pooled_classifier", "bert_v2", 8),
        lambda encoder: models.BertClassifier(encoder, 2),
        "bert_config.yaml",
    )
    alone(
        *("two_tags", "bert_v2", 9),
        lambda encoder: models.BertTokenClassifier(encoder, 2),
        "bert_config.json",
    )

    def pretrainer(encoder):
        gelu = tf_utils.get_activation("gelu")
        heads = [layers.ClassificationHead(8, 2, name="next_sentence")]
        return models.BertPretrainerV2(encoder, gelu, classification_heads=heads)

    alone("pretrainer_v2", "bert_v2", 10, pretrainer, "bert_config.json", **POSITIONS)
    tokens("pretraining", lowercase=True)


if __name__ == "__main__":
    main()
