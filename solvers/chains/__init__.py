"""Methods of chains: checkpoints between stages of a step that follow one another."""
