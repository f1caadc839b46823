"""Where importing still looks for the list of purged memories."""

from ..passes.purged import FILE as FILE
from ..passes.purged import Purged as Purged
from ..passes.purged import load as load
from ..passes.purged import memories as memories
from ..passes.purged import sessions as sessions
