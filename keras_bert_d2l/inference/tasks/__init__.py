"""Predict labels, scores, tags, answers to questions, and embeddings with task models."""
