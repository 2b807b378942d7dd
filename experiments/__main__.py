"""``python -m experiments RUN``: run one experiment, print its table and write its results."""

from experiments import monitor_commands, study_commands, table_commands, word_commands  # noqa: F401 - they add their commands
from experiments.arguments import main

if __name__ == "__main__":
    main()
