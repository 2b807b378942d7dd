import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from histnetq.nn import (
    CNN,
    MLP,
    BagNetwork,
    HardHistogram,
    Max,
    Mean,
    Median,
    RBFHistogram,
    SetAttention,
    SigmoidHistogram,
    SoftHistogram,
    Standardize,
)
from histnetq.nn.encoders import Dropout, n_outputs
from tests.conftest import exactly

law = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
POOLINGS = {
    "mean": Mean,
    "max": Max,
    "median": Median,
    "hard": lambda n: HardHistogram(n, n_bins=6),
    "soft": lambda n: SoftHistogram(n, n_bins=6),
    "rbf": lambda n: RBFHistogram(n, n_bins=6),
    "sigmoid": lambda n: SigmoidHistogram(n, n_bins=6, gamma=50.0),
    "attention": lambda n: SetAttention(n, width=6, hidden=8, n_inducing=3, n_heads=2),
}
every_pooling = pytest.mark.parametrize("name", POOLINGS)


pytestmark = pytest.mark.usefixtures("same_layers")


def draw(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def kinds(module):
    return [type(layer).__name__ for layer in module]


def make(name, **options):
    return BagNetwork(MLP(4, (8, 3)), POOLINGS[name](3), head=(16,), n_classes=5, **options)


@every_pooling
@law
@given(seed=seeds, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4), scale=st.sampled_from([1.0, 1e3, 1e8]))
def test_outputs_lie_on_the_simplex(name, seed, sizes, scale):
    out = make(name)(scale * draw((sum(sizes), 4), seed), torch.tensor([0, *sizes]).cumsum(0))
    assert out.shape == (len(sizes), 5)
    assert (out >= 0).all()
    assert torch.allclose(out.sum(1), torch.ones(len(sizes)), atol=1e-6)


@every_pooling
def test_gradients_reach_every_parameter(name):
    network = make(name, classify=True)
    rows, offsets = draw((60, 4)), torch.tensor([0, 20, 60])
    loss = (network(rows, offsets) * draw((2, 5), 1)).sum()
    loss = loss + (network.classifier(network.encode(rows)) * draw((60, 5), 2)).sum()
    loss.backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        # A softmax forgets what is added to all keys alike.
        assert (parameter.grad != 0).any() or key.endswith("key.bias"), key


@every_pooling
def test_rows_learn_through_the_pooling(name):
    network = make(name)
    (network(draw((60, 4)), torch.tensor([0, 20, 60])) * draw((2, 5), 1)).sum().backward()
    assert all((parameter.grad != 0).any() for parameter in network.encoder.parameters())


@every_pooling
def test_forward_is_its_three_steps(name):
    network = make(name, prepare=Standardize(torch.tensor(1.0), torch.tensor(2.0)))
    rows, offsets, index, weights = (
        draw((6, 4)),
        torch.tensor([0, 2, 5]),
        torch.tensor([5, 0, 3, 3, 1]),
        torch.arange(1, 6),
    )
    features = network.encoder((rows - 1) / 2)
    assert torch.equal(network.encode(rows), features)
    pooled = network.pooling(features, offsets, weights, index)
    assert torch.equal(network(rows, offsets, weights, index), network.head(pooled).softmax(-1))


def test_head_may_be_a_module_or_sizes():
    head = nn.Linear(3, 5)
    assert BagNetwork(MLP(4, (3,)), Mean(3), head, n_classes=5).head is head
    sized = BagNetwork(MLP(4, (3,)), Mean(3), (7, 6), n_classes=5, dropout=0.5).head
    assert kinds(sized) == ["Flatten", "Linear", "LeakyReLU", "Dropout", "Linear", "LeakyReLU", "Dropout", "Linear"]
    assert [layer.out_features for layer in sized if isinstance(layer, nn.Linear)] == [7, 6, 5]
    assert kinds(BagNetwork(MLP(4, (3,)), Mean(3), (), n_classes=5).head) == ["Flatten", "Linear"]


def test_classifier_is_a_linear_layer_on_the_features():
    network = make("hard", classify=True)
    assert (network.classifier.in_features, network.classifier.out_features) == (3, 5)
    assert make("hard").classifier is None


def test_mlp_drops_between_its_layers_only():
    assert kinds(MLP(4, (8, 6, 3), dropout=0.5)) == [
        "Flatten", "Linear", "LeakyReLU", "Dropout", "Linear", "LeakyReLU", "Dropout", "Linear",
    ]  # fmt: skip
    assert kinds(MLP(4, (8, 3))) == ["Flatten", "Linear", "LeakyReLU", "Linear"]
    assert kinds(MLP(4, (3,), dropout=0.5)) == ["Flatten", "Linear"]
    assert {layer.p for layer in MLP(4, (8, 3), dropout=0.3).modules() if isinstance(layer, nn.Dropout)} == {0.3}


def test_mlp_never_zeroes_a_feature():
    encoder = MLP(4, (8, 3), dropout=0.9).train()
    nn.init.constant_(encoder[-1].bias, 1.0)
    out = encoder(draw((500, 4)))
    assert (out != 0).all()
    assert (out != out[0]).any()


@pytest.mark.parametrize("shape", [(4,), (2, 2), (1, 2, 2)])
def test_mlp_flattens_rows(shape):
    encoder = MLP(4, (8, 3))
    rows = draw((5, *shape))
    assert encoder(rows).shape == (5, 3)
    assert torch.equal(encoder(rows), encoder(rows.reshape(5, 4)))


@pytest.mark.parametrize("shape", [(28, 28), (3, 8, 8), (1, 4, 4), (9, 5)])
def test_cnn_takes_images(shape):
    encoder = CNN(shape, n_features=7, channels=(2, 3))
    images = draw((5, *shape)).requires_grad_()
    out = encoder(images)
    assert out.shape == (5, 7)
    assert torch.allclose(out[2:3], encoder(images[2:3]), atol=1e-6)
    out.sum().backward()
    assert images.grad.flatten(1).any(1).all()
    assert CNN(shape).dense.out_features == 256
    assert n_outputs(encoder, shape) == 7


def test_cnn_is_that_of_the_paper():
    layers = CNN((28, 28)).convolutions
    assert kinds(layers) == ["Conv2d", "ReLU", "MaxPool2d", "Conv2d", "ReLU", "MaxPool2d", "Flatten"]
    convolutions = [layers[0], layers[3]]
    assert [(layer.in_channels, layer.out_channels, layer.kernel_size) for layer in convolutions] == [
        (1, 16, (5, 5)),
        (16, 32, (5, 5)),
    ]


def test_cnn_never_zeroes_a_feature():
    encoder = CNN((4, 4), n_features=3, dropout=0.5).train()
    nn.init.constant_(encoder.dense.bias, 1.0)
    images = draw((200, 4, 4))
    assert (encoder(images) != 0).all()
    assert not torch.equal(encoder(images), encoder(images))


@pytest.mark.parametrize("shape", [(2, 2), (28, 3), (5,), (), (1, 3, 8, 8)])
def test_cnn_refuses_other_rows(shape):
    message = (
        "input_shape: expected images (height, width) or (channels, height, width) of at least 4 × 4, "
        f"got {shape}; move channels first with np.moveaxis(X, -1, 1), or use an MLP."
    )
    with pytest.raises(ValueError, match=exactly(message)):
        CNN(shape)


def test_standardize_subtracts_and_divides():
    layer = Standardize(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]))
    assert layer(torch.tensor([[3.0, 2.0], [1.0, 10.0]])).tolist() == [[1.0, 0.0], [0.0, 2.0]]
    assert list(layer.parameters()) == []
    assert sorted(layer.state_dict()) == ["mean", "rest", "scale"]
    channels = Standardize(torch.tensor([1.0, 2.0])[:, None, None], torch.tensor(1.0))
    assert channels(torch.ones(3, 2, 4, 4))[0, :, 0, 0].tolist() == [0.0, -1.0]


@pytest.mark.parametrize(("encoder", "shape", "expected"), [
    (MLP(6, (8, 3)), (2, 3), 3), (nn.Identity(), (7,), 7), (MLP(4, (5,)).double(), (4,), 5),
    (nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), (4,), 2),
])  # fmt: skip
def test_outputs_are_counted(encoder, shape, expected):
    state = {key: value.clone() for key, value in encoder.state_dict().items()}
    for training in (True, False):
        assert n_outputs(encoder.train(training), shape) == expected
        assert encoder.training is training
    assert all(torch.equal(value, state[key]) for key, value in encoder.state_dict().items())


class Pair(nn.Module):
    def forward(self, rows):
        return rows, rows


@pytest.mark.parametrize(("encoder", "got"), [
    (nn.Identity(), "(1, 2, 3)"), (nn.Flatten(0), "(6,)"), (Pair(), "tuple"),
    (nn.Unflatten(1, (2, 1)), "(1, 2, 1, 3)"),
])  # fmt: skip
def test_encoders_must_give_one_vector_per_row(encoder, got):
    message = f"encoder: expected it to map rows (1, 2, 3) to features (1, n), got {got}."
    with pytest.raises(ValueError, match=exactly(message)):
        n_outputs(encoder, (2, 3))


def test_encoders_must_be_finite():
    encoder = Standardize(torch.zeros(3), torch.zeros(3))
    with pytest.raises(
        ValueError, match=exactly("encoder: gives NaN or infinity for a row of zeros; check its layers.")
    ):
        n_outputs(encoder, (3,))


def test_a_failing_encoder_keeps_its_mode():
    encoder = MLP(4, (3,)).train()
    with pytest.raises(
        ValueError, match=r"encoder: cannot take rows of shape \(5,\) \(mat1 .*; fit it to the features"
    ):
        n_outputs(encoder, (5,))
    assert encoder.training


def test_dropout_drops_its_part_scales_the_rest_and_passes_gradients_through_what_is_kept():
    layer, rows = Dropout(0.3), torch.randn(300, 1_001, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    out = layer(rows)
    out.sum().backward()
    kept = out != 0
    assert abs(kept.double().mean().item() - 0.7) < 0.004  # five standard deviations
    assert torch.allclose(out[kept], rows[kept] / 0.7, rtol=1e-4)
    assert torch.allclose(rows.grad, kept.double() / 0.7, rtol=1e-4)
    columns = kept.double().mean(0)  # numbers that are drawn together are dropped apart
    assert columns.std() < 1.2 * (0.3 * 0.7 / 300) ** 0.5
    assert abs(np.corrcoef(kept[:, ::4].flatten()[:75_000], kept[:, 1::4].flatten()[:75_000])[0, 1]) < 0.02
    torch.manual_seed(1)
    assert torch.equal(layer(rows), out)


@pytest.mark.parametrize(("part", "left"), [(0.0, 1.0), (1.0, 0.0)])
def test_dropout_of_none_and_of_all(part, left):
    assert torch.equal(Dropout(part)(torch.ones(7, 3)), torch.full((7, 3), left))
    assert torch.equal(Dropout(part).eval()(torch.ones(7, 3)), torch.ones(7, 3))
