"""What a pretrained BERT answers: masked tokens, next sentences, perplexity."""
