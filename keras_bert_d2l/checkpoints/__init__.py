"""Save and load models with their tokenizers, in several checkpoint formats.

Start with `loading` and `saving`. `detection` detects the format, `formats` contains a module or a
package for each format, and `weights` reads files of arrays and copies them into models. `surgery`
changes the vocabulary or the number of positions of a model.
"""
