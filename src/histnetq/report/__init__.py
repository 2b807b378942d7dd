"""HTML reports about a quantifier and its estimates."""

from histnetq.report.page import write_report

__all__ = ["write_report"]
