"""Methods that run ops in another order than captured."""
