"""The workload of all contestants: Google's model sizes, a synthetic batch and its FLOP count.

B: batch size, T: tokens in a sequence, P: predicted positions, V: vocabulary size.
"""

import argparse
import dataclasses

import numpy as np

VOCAB_SIZE = 30522
SHARE_OF_PREDICTIONS = 20 / 128
MAX_LEN = 512
DROPOUT = 0.1
LEARNING_RATE = 1e-4
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0

FIRST_WORD_ID = 1000  # lower ids are special and unused tokens
MASK_ID = 103


@dataclasses.dataclass(frozen=True)
class Size:
    """A size of Google's architecture and its batch size in this benchmark."""

    num_blks: int
    num_hiddens: int
    num_heads: int
    batch_size: int

    def gflop_per_token(self, num_tokens: int) -> float:
        """Billions of multiplications and additions per token in a step's matrix products.

        The backward pass counts as two forward passes; the MLM head processes P of T tokens.
        """
        block = 2 * 12 * self.num_hiddens**2 + 4 * num_tokens * self.num_hiddens
        head = 2 * self.num_hiddens * (self.num_hiddens + VOCAB_SIZE)
        forward = self.num_blks * block + head * num_predictions(num_tokens) / num_tokens
        return 3 * forward / 1e9


def num_predictions(num_tokens: int) -> int:
    """Return the predicted positions in a row of T tokens."""
    return round(SHARE_OF_PREDICTIONS * num_tokens)


SIZES = {
    "tiny": Size(num_blks=2, num_hiddens=128, num_heads=2, batch_size=32),
    "mini": Size(num_blks=4, num_hiddens=256, num_heads=4, batch_size=32),
    "base": Size(num_blks=12, num_hiddens=768, num_heads=12, batch_size=16),
    "large": Size(num_blks=24, num_hiddens=1024, num_heads=16, batch_size=16),
}
PRECISIONS = ("float32", "mixed_bfloat16")


def make_batch(options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Return a batch without padding, identical in every process."""
    batch_size, num_tokens = options.rows, options.tokens
    rng = np.random.default_rng(0)
    shape = (batch_size, num_tokens)
    words = rng.integers(FIRST_WORD_ID, VOCAB_SIZE, shape, dtype=np.int32)
    inner = np.arange(1, num_tokens - 1, dtype=np.int32)
    number = num_predictions(num_tokens)
    rows = [rng.choice(inner, number, replace=False) for _ in range(batch_size)]
    pred_positions = np.sort(rows, axis=1)
    tokens = words.copy()
    np.put_along_axis(tokens, pred_positions, MASK_ID, axis=1)
    second_starts = rng.integers(num_tokens * 5 // 16, num_tokens * 45 // 64, (batch_size, 1))
    return {
        "tokens": tokens,  # (B, T)
        "segments": (np.arange(num_tokens) >= second_starts).astype(np.int32),  # (B, T)
        "valid_lens": np.full(batch_size, num_tokens, np.int32),  # (B,)
        "pred_positions": pred_positions,  # (B, P)
        "mlm": np.take_along_axis(words, pred_positions, axis=1),  # (B, P)
        "nsp": rng.integers(0, 2, batch_size, dtype=np.int32),  # (B,)
    }


def read_options() -> argparse.Namespace:
    """Parse the arguments that `train_step.py` passes to a contestant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--precision", choices=PRECISIONS, required=True)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="with torch.compile")
    parser.add_argument("--fit", action="store_true", help="through `Model.fit`")
    parser.add_argument("--plain-attention", action="store_true", help="no flash attention")
    parser.add_argument("--text", help="train on this text instead of one batch, with --fit")
    parser.add_argument("--device", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--attention-dropout", type=float, required=True)
    parser.add_argument("--answers", type=int, required=True, help="file descriptor of a pipe")
    return parser.parse_args()
