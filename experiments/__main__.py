"""``python -m experiments RUN``: run one experiment, print its table and write its results."""

from experiments import (  # noqa: F401 - they add their commands
    classical_commands,
    interval_commands,
    judge_commands,
    lequa_commands,
    monitor_commands,
    pretrain_commands,
    score_commands,
    shift_commands,
    study_commands,
    table_commands,
    word_commands,
)
from experiments.arguments import main

if __name__ == "__main__":
    main()
