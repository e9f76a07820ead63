"""Predict masked tokens, next sentences and perplexity with a pretrained BERT."""
