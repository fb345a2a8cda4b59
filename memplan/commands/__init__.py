"""Commands of the command line, one module each; `memplan.cli` registers them."""

from memplan.commands.devices import calibrate, devices
from memplan.commands.estimate import estimate

COMMANDS = (estimate, devices, calibrate)
