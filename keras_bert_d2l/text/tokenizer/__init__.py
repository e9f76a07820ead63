"""Tokenization: from strings to rows of token ids, and back."""
