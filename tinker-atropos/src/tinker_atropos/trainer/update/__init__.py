"""From a batch to new weights: what the loss is told, and how far the weights move."""
