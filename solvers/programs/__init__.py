"""Integer, linear and constraint programs, exact or rounded."""
