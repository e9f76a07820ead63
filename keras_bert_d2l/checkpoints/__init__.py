"""Save and load models with their tokenizers, in several checkpoint formats.

Start with `loading` and `saving`. `detection` detects the format, `formats` contains a module or a
package for each format, `array_files` reads files of arrays, and `weights` copies them into models.
`surgery` changes the vocabulary or the number of positions of a model.
"""
