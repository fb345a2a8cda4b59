"""Commands of the command line, one module each; `memplan.cli` registers them."""

from memplan.commands.cache import cache
from memplan.commands.compare import compare
from memplan.commands.devices import calibrate, devices
from memplan.commands.estimate import estimate
from memplan.commands.explain import explain
from memplan.commands.maxbatch import maxbatch
from memplan.commands.report import report
from memplan.commands.sweep import sweep

COMMANDS = (estimate, sweep, maxbatch, explain, report, compare, devices, calibrate, cache)
