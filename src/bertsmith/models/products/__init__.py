"""How the matrix products of a model are computed: packed, in int8, compiled; and how many operations they take."""
