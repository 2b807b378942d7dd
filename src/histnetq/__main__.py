"""``python -m histnetq``: the command line."""

from histnetq.cli import main

main(prog_name="histnetq")
