"""What programs and the command line call: a function for each thing to do, from loading a model to searching passages.

`bertsmith` itself offers the public names among them. Nothing is imported here, so that a function brings in only the
rooms that it needs.
"""
