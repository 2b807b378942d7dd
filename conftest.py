"""What holds for all tests, those in docstrings too."""

from tests.isolation import isolated_machine

__all__ = ["isolated_machine"]
