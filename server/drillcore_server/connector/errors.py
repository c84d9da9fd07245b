"""Errors of the connector: each of them is a fault of our own code, found before it can reach a file.

ConnectorError
├── StepNotBound    states were saved outside a step
├── StepNotSaved    a step ended and the drafter had not saved its states
└── StatesMissing   a sample ended with another number of states than it has tokens
"""

from __future__ import annotations


class ConnectorError(Exception):
    """Base of the connector's errors."""


class StepNotBound(ConnectorError):
    """No step's metadata is bound."""


class StepNotSaved(ConnectorError):
    """The step's states were never saved: the drafter was skipped."""


class StatesMissing(ConnectorError):
    """The states of a sample are not all there."""
