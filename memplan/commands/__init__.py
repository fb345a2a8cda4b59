"""Commands of the command line, one module each; `memplan.cli` registers them."""

from memplan.commands.devices import calibrate, devices

COMMANDS = (devices, calibrate)
