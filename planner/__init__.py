"""The vocabulary of planning and its judges; knows no solver and no torch."""
