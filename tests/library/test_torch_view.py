import multiprocessing
import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import drillcore
from drillcore.dtypes import StoreDType
from drillcore.torch_view import SampleDataset, as_tensor, collate_packed

TORCH = {StoreDType.BF16: torch.bfloat16, StoreDType.F16: torch.float16, StoreDType.F32: torch.float32}


@pytest.fixture(params=list(TORCH))
def maker(make, request):
    maker = make(store_dtype=request.param)
    maker.shard([range(0, 12, 2), range(1, 12, 2)], loss_mask=True)
    return maker


def bits(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def test_every_sample_comes_with_its_own_bits(maker):
    dataset = SampleDataset(drillcore.open(maker.root))
    assert len(dataset) == 12
    for row in range(12):
        item, expected = dataset[row], maker.row(row, loss_mask=True)
        assert item["hidden_states"].dtype == TORCH[maker.manifest.store_dtype]
        assert item["hidden_states"].shape == expected.states.shape
        assert bits(item["hidden_states"]) == expected.states.tobytes()
        assert item["token_ids"].tolist() == expected.token_ids.tolist()
        assert item["loss_mask"].tolist() == expected.loss_mask.tolist()
        assert item["positions"].tolist() == list(range(len(expected.token_ids)))
        assert (item["row"].item(), item["num_prompt_tokens"].item()) == (row, len(expected.token_ids) - 1)


def test_nothing_is_copied_and_no_change_reaches_the_file(maker):
    output = drillcore.open(maker.root)
    item = SampleDataset(output)[3]
    assert item["hidden_states"].data_ptr() == output[3].hidden_states.ctypes.data
    assert item["token_ids"].data_ptr() == output[3].token_ids.ctypes.data
    item["hidden_states"].zero_()
    assert drillcore.verify(maker.root).problems == ()
    with pytest.raises(ValueError, match="read-only"):
        output[3].hidden_states[:] = 0


def test_one_layer_is_a_view_of_its_column(maker):
    output = drillcore.open(maker.root)
    states = SampleDataset(output, layer=0)[5]["hidden_states"]
    assert bits(states) == maker.row(5).states[:, 1].tobytes()
    assert states.data_ptr() == output[5].layer(0).ctypes.data
    with pytest.raises(ValueError, match="layer 9 was not extracted"):
        SampleDataset(output, layer=9)


def test_a_batch_of_activations_becomes_a_tensor_in_place(maker):
    batch = next(iter(drillcore.open(maker.root).activations(2, 4)))
    tensor = as_tensor(batch)
    assert tensor.data_ptr() == batch.ctypes.data
    assert tensor.dtype == TORCH[maker.manifest.store_dtype]


def test_a_tensor_outlives_output_and_dataset(maker):
    states = SampleDataset(drillcore.open(maker.root))[4]["hidden_states"]
    assert bits(states) == maker.row(4).states.tobytes()


@pytest.mark.parametrize("layout", ["Packed", "PerSample"])
@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_of_a_loader_read_every_sample(make, layout, start):
    maker = make(store_dtype=StoreDType.BF16, layout=layout)
    maker.shard([range(9)])
    dataset = SampleDataset(drillcore.open(maker.root))
    dataset[0]
    context = multiprocessing.get_context(start)
    loader = DataLoader(dataset, 4, num_workers=1, collate_fn=collate_packed, multiprocessing_context=context)
    rows, states = [], []
    for batch in loader:
        rows += batch["row"].tolist()
        edges = batch["cu_states"].tolist()
        states += [batch["hidden_states"][a:b] for a, b in pairwise(edges)]
    assert rows == list(range(9))
    assert [bits(one) for one in states] == [maker.row(row).states.tobytes() for row in range(9)]


def test_packed_batches_tell_where_each_sample_ends(maker):
    dataset = SampleDataset(drillcore.open(maker.root))
    batch = collate_packed([dataset[1], dataset[2]])
    first, second = len(dataset[1]["token_ids"]), len(dataset[2]["token_ids"])
    assert batch["cu_seqlens"].tolist() == [0, first, first + second]
    assert torch.equal(batch["loss_mask"][first:], dataset[2]["loss_mask"])


def test_means_have_no_positions(make):
    maker = make(positions="Mean")
    maker.shard([range(3)])
    dataset = pickle.loads(pickle.dumps(SampleDataset(drillcore.open(maker.root))))
    assert "positions" not in dataset[0]
    assert np.array_equal(dataset[2]["hidden_states"].numpy(), maker.row(2).states)
