"""The report: what was learned, what was found and how far it can be trusted, as one HTML page."""

from histnetq.report.page import write_report

__all__ = ["write_report"]
