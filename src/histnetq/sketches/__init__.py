"""Bags without their rows: the sketch, how methods make one, streams and Dask. Imports `training` and `data`."""
