"""Predict masked tokens, labels, tags, answers and embeddings, and evaluate models."""
