"""How a network learns: options, what `fit` was given, batches, loop, processes. Imports `nn`, `data`, `metrics`."""
