"""Questions to a fine-tuned model: labels, tags, answers, embeddings."""
