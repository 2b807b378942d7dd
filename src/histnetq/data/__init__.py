"""Bags on a pool of rows, how they are checked, drawn and read from tables. Imports `simplex` and `kernels`.

Bags: `bags` has the class, `constructors` ways to make one, `indexing` row numbers of many bags, `fingerprint` the
checksum, `checks` the validation of all parts, `protocols` new bags by chance, `memmap` pools larger than memory.
Tables: `table_files` opens files and frames, `table_columns` turns columns into numbers, `table_proportions` reads the
classes' proportions, and `tables` puts all of them together. `files` writes files as a whole.
"""
