"""The Python API behind the command line: one function per operation, from loading a model to searching passages.

The package `bertsmith` exports the public names. Nothing is imported here, so each function loads only the packages
it needs.
"""
