"""Runs sessions for fleets: Celery carries the work, Redis holds the truth. `workers.client` is what callers use."""

import logging

# A host application that does not configure logging is not spoken to on its standard error (logging HOWTO).
logging.getLogger(__name__).addHandler(logging.NullHandler())
