from bowstring.datasets.batch_arrays import ArrayOptions as ArrayOptions
from bowstring.datasets.column_arrays import RaggedArray as RaggedArray
from bowstring.datasets.dataset import Dataset as Dataset, DatasetPart as DatasetPart
from bowstring.datasets.order import RowOrder as RowOrder
from bowstring.datasets.published_dataset import PublishedDataset as PublishedDataset
from bowstring.datasets.reader import ArrayBatches as ArrayBatches, EpochReader as EpochReader
