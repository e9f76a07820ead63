"""The task `answer`: answers to questions, as spans of texts."""

WINDOW_LEN = 384  # tokens per window, as in google-research/bert, run_squad.py
