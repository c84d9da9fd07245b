"""Dataset rows to token ids and loss masks.

    open_dataset -> Dataset.read -> SourceRow -> RowPreparer.prepare_batch -> PreparedRow -> RowFeed

Rows that cannot be extracted come out of each step as QuarantineEntry; causes that end the job are ShardError.
"""

from drillcore_server.data.dataset import Dataset, open_dataset
from drillcore_server.data.dataset_file import DatasetFile
from drillcore_server.data.feed import RowFeed, prepared_batches
from drillcore_server.data.identity import dataset_identity
from drillcore_server.data.loss_mask import resolve_loss_mask
from drillcore_server.data.preparer import RowPreparer
from drillcore_server.data.rows import PreparationCounts, PreparedRow, SourceRow
from drillcore_server.data.template_file import load_chat_template

__all__ = [
    "Dataset",
    "DatasetFile",
    "PreparationCounts",
    "PreparedRow",
    "RowFeed",
    "RowPreparer",
    "SourceRow",
    "dataset_identity",
    "load_chat_template",
    "open_dataset",
    "prepared_batches",
    "resolve_loss_mask",
]
