"""What PyTorch's partitioners save between the passes."""
