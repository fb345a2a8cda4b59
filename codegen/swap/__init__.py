"""The runtime of swapped tensors: where their bytes go, and what carries them."""
