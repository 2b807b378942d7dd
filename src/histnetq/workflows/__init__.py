"""One public function per job: fit the best model, estimate a table, audit, monitor."""
