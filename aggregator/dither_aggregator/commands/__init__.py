"""The aggregator's commands, found by name and loaded on use by `dither.cli`."""

import os

from dither_aggregator.operations import ONE_THREAD

os.environ.update(ONE_THREAD)  # here, since BLAS reads it when it is loaded, and is forked with the fork server
