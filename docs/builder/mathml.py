"""Formulas as MathML, which browsers display without a script."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(_shown(node, as_block=False))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{_shown(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _shown(node: nodes.Element, as_block: bool) -> str:
    formula = node.astext()
    try:
        return tex2mathml(formula, as_block)
    except (MathError, AttributeError) as error:  # AttributeError: a row ends outside of a table
        logging.getLogger(__name__).warning("formula %r cannot be shown (%s)", formula, error, location=node)
        return f"<code>{escape(formula)}</code>"


INLINE, BLOCK = (_inline, None), (_block, None)
