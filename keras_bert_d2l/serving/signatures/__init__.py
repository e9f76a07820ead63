"""The signatures of an exported model: their inputs, graphs and outputs."""
