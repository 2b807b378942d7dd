"""``python -m histnetq`` is the command line."""

from histnetq.cli import main
from histnetq.training.progress import end_with_listener

if __name__ == "__main__":
    end_with_listener()
    main(prog_name="histnetq")
