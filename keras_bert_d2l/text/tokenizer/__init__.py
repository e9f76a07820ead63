"""Tokenization: convert strings to rows of token ids, and back."""
