"""Signatures of exported models: their inputs, graphs and outputs."""
