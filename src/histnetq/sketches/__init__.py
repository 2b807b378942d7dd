"""Sketches: mergeable summaries of bags without their rows, computed from streams or with Dask."""
