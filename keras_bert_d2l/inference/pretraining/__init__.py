"""Questions to a pretrained BERT: fill-mask, next sentence, perplexity."""
