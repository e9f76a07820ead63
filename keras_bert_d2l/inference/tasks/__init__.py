"""What the models of tasks answer: labels, scores, tags, answers to questions, embeddings."""
