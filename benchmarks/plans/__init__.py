"""Plans of published instances and of real training steps, beside the best known."""
