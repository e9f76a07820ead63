"""Load a checkpoint many times while another process replaces it without a pause.

All weights and one token of each version are its number, so a load that mixes two versions is
detected. The exit code is 1 if there was one.

    python scripts/load_while_saving.py --loads 1000 --format native
"""

import argparse
import multiprocessing
import pathlib
import tempfile
import time
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event

import numpy as np

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write(folder: pathlib.Path, format: str, stop: Event, count: "Synchronized[int]") -> None:
    """Save versions 1, 2, 3 and so on until `stop` is set."""
    import keras_bert_d2l as kb

    preset = "d2l-torch" if format == "book" else "google"
    config = kb.BERTConfig.preset(
        preset, vocab_size=6, num_hiddens=4, ffn_num_hiddens=4, num_heads=1, num_blks=1, max_len=8
    )
    model = kb.BERTModel.from_bert_config(config)
    while not stop.is_set():
        number = count.value + 1
        for weight in model.trainable_weights:
            weight.assign(np.full(weight.shape, number, "float32"))
        tokenizer = kb.Tokenizer(kb.Vocab([*SPECIALS, f"version{number}"]))
        kb.save_pretrained(model, folder, tokenizer, format)
        count.value = number


def versions(folder: pathlib.Path) -> set[float]:
    """Load the checkpoint and return the numbers of the versions that it consists of."""
    import keras_bert_d2l as kb

    model, tokenizer, _ = kb.load_pretrained(folder, verbose=False)
    found = {float(value) for weight in model.trainable_weights for value in np.unique(weight)}
    return found | {float(tokenizer.vocab.tokens[-1].removeprefix("version"))}


def main() -> int:
    """Run the loads and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--loads", type=int, default=1000, help="Number of loads.")
    parser.add_argument("--format", default="native", help="Format of the checkpoint.")
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    stop, count = context.Event(), context.Value("i", 0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "checkpoint")
        writer = context.Process(target=write, args=(folder, arguments.format, stop, count))
        writer.start()
        while not count.value:
            time.sleep(0.1)
        start, first = time.monotonic(), count.value
        try:
            found = [versions(folder) for _ in range(arguments.loads)]
        finally:
            stop.set()
            writer.join()
        left = [entry.name for entry in pathlib.Path(temporary).iterdir() if entry != folder]
    mixed = sum(len(numbers) > 1 for numbers in found)
    print(
        f"{arguments.format}: {len(found)} loads in {time.monotonic() - start:.0f} s, of "
        f"{len(set.union(*found))} versions out of {count.value - first}: {mixed} mixed, "
        f"{len(left)} left-over files."
    )
    return 1 if mixed or left else 0


if __name__ == "__main__":
    raise SystemExit(main())
