"""Commands that query any BERT: masked words, sentence pairs and text vectors."""
