"""Masked tokens, next sentences, perplexity and features; what predictions of all tasks share."""
