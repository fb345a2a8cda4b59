"""Commands of the command line, one module each; `memplan.cli` registers them."""

from memplan.commands.compare import compare
from memplan.commands.devices import calibrate, devices

COMMANDS = (compare, devices, calibrate)
