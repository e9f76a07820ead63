"""What models answer: masked tokens, labels, tags, answers, embeddings, and how good they are."""
