"""ONNX graphs, drawn node by node, so that the package onnx is all that an export needs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histnetq.tables.files import refuse_existing, require_ending, whole_file
from histnetq.tables.places import as_place

_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 8  # the oldest that has these operators, so that old runtimes can read the file
_LARGEST = (1 << 31) - 1  # bytes of a file, as protobuf limits them


class OnnxGraph:
    """A graph whose input is named "rows".

    Parameters
    ----------
    shape : sequence of int
        Shape of one row.
    about : dict of str
        Texts that the file carries.

    Examples
    --------
    >>> graph = OnnxGraph((3,), {})
    >>> graph.node("Add", "rows", graph.constant(np.ones(3)))
    'n1'
    """

    def __init__(self, shape: Sequence[int], about: dict[str, str]) -> None:
        self.shape, self.about = tuple(shape), about
        self._helper = import_onnx().helper
        self._nodes: list[Any] = []
        self._arrays: list[Any] = []
        self._outputs: list[Any] = []
        self._numbers = itertools.count()

    def constant(self, array: Any, dtype: Any = None) -> str:
        """Add an array, and return its name."""
        from onnx import numpy_helper

        name = f"n{next(self._numbers)}"
        self._arrays.append(numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def node(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operation on named arrays, and return the name of its result."""
        name = f"n{next(self._numbers)}"
        self._nodes.append(self._helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def cast(self, name: str, dtype: Any) -> str:
        """Convert an array to another type of numbers."""
        return self.node("Cast", name, to=self._type_of(dtype))

    def output(self, source: str, name: str, dtype: Any, shape: Sequence[int | str]) -> None:
        """Name a result of the graph."""
        self._nodes.append(self._helper.make_node("Identity", [source], [name]))
        self._outputs.append(self._helper.make_tensor_value_info(name, self._type_of(dtype), list(shape)))

    def save(self, path: str | os.PathLike[str], overwrite: bool) -> None:
        """Check the graph and write it to a file that ends in .onnx."""
        place = as_place(path)
        require_ending(place, (".onnx",), "path", "choose such a name")
        refuse_existing(place, overwrite, "path")
        make, version = self._helper, metadata.version("histnetq")
        rows = make.make_tensor_value_info("rows", self._type_of(np.float64), ["n_rows", *self.shape])
        graph = make.make_graph(self._nodes, "histnetq", [rows], self._outputs, self._arrays)
        opsets = [make.make_opsetid(domain, number) for domain, number in _OPSETS.items()]
        model = make.make_model(
            graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="histnetq", producer_version=version
        )
        make.set_model_props(model, self.about)
        if model.ByteSize() > _LARGEST:
            raise ValueError(
                f"path: the graph has {model.ByteSize():,} bytes, expected at most {_LARGEST:,}; use less."
            )
        import_onnx().checker.check_model(model)
        with whole_file(place, "path") as partial:
            partial.write_bytes(model.SerializeToString())

    def _type_of(self, dtype: Any) -> int:
        return int(self._helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def import_onnx() -> Any:
    """Import the package onnx; raise an error that names the extra."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise ImportError("to_onnx: needs onnx; pip install 'histnetq[onnx]'.") from None
    return onnx


def softmax(graph: OnnxGraph, scores: str) -> str:
    """Draw the softmax over the columns."""
    return graph.node("Softmax", scores, axis=1)


def layer(graph: OnnxGraph, rows: str, weights: NDArray, bias: NDArray) -> str:
    """Draw ``rows @ weights + bias``."""
    return graph.node("Add", graph.node("MatMul", rows, graph.constant(weights)), graph.constant(bias))
