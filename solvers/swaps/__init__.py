"""Policies of the literature that move tensors to another memory and back."""
