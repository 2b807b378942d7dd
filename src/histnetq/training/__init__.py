"""Training of networks: options, training data, batches, the training loop, checkpoints, processes and pretraining."""
