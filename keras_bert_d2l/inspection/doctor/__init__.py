"""The doctor: checks that find why a run does not learn, each with a number and a remedy."""
