"""Methods that decide while a step runs, as an eager framework does."""
