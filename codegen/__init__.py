"""From a schedule to a rewritten FX module, and what that module calls when it runs."""
