"""Entry point of ``python -m histnetq``, the command line."""

from histnetq.cli import main

if __name__ == "__main__":
    main(prog_name="histnetq")
