"""Read, learn and extend vocabularies (`vocab.txt`)."""
