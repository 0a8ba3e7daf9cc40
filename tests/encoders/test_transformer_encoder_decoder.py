"""The encoder-decoder Transformer: against torch.nn.Transformer, what each position sees, reading on with a memory."""

import pytest
import torch
from torch import nn

from bertsmith.models.encoders.transformer_encoder_decoder import DecoderLayer, Transformer
from bertsmith.models.parts.layers import sinusoidal_positions
from bertsmith.models.parts.memory import Memory
from encoders.test_encoder_decoders import SOURCES, TARGETS, batch, transformer


def same_attention(theirs: nn.MultiheadAttention, ours: nn.Module, prefix: str, output: str) -> None:
    parts = [ours.get_submodule(f"{prefix}{name}") for name in ("query", "key", "value")]
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.get_submodule(output).state_dict())


@torch.no_grad()
def logits_of_torch(network: Transformer, source: list[int], target: list[int]) -> torch.Tensor:
    """`torch.nn.Transformer` without the norms that it has after the last layers, on one pair."""
    config, options = (
        network.config,
        {"dropout": 0.0, "layer_norm_eps": network.config.layer_norm_eps, "dtype": torch.float64},
    )
    sizes = (config.hidden_size, config.num_attention_heads, config.intermediate_size)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(*sizes, **options), config.num_hidden_layers, enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **options), config.num_hidden_layers)
    # It draws new parameters, so the values are copied afterwards.
    whole = nn.Transformer(custom_encoder=encoder, custom_decoder=decoder, d_model=config.hidden_size, nhead=4).eval()
    for theirs, ours in zip([*encoder.layers, *decoder.layers], [*network.encoder, *network.decoder], strict=True):
        same_attention(theirs.self_attn, ours, "", "attention_output")
        norms = [ours.attention_norm, ours.output_norm]
        if isinstance(ours, DecoderLayer):
            same_attention(theirs.multihead_attn, ours, "source_", "source_output")
            norms.insert(1, ours.source_norm)
        for number, norm in enumerate(norms, start=1):
            theirs.get_submodule(f"norm{number}").load_state_dict(norm.state_dict())
        theirs.linear1.load_state_dict(ours.intermediate.state_dict())
        theirs.linear2.load_state_dict(ours.output.state_dict())
    table = network.embeddings.word.weight
    vectors = [
        (table[ids] * config.hidden_size**0.5 + sinusoidal_positions(len(ids), config.hidden_size)).unsqueeze(1)
        for ids in (source, target)
    ]
    mask = torch.triu(torch.ones(len(target), len(target), dtype=torch.bool), diagonal=1)
    return whole(*vectors, tgt_mask=mask)[:, 0] @ table.T


def test_the_logits_equal_those_of_torch_pair_by_pair():
    network = transformer()
    with torch.no_grad():
        result = network(batch(*SOURCES), batch(*TARGETS)).split([len(row) for row in TARGETS])
    for logits, source, target in zip(result, SOURCES, TARGETS, strict=True):
        torch.testing.assert_close(logits, logits_of_torch(network, source, target), atol=1e-10, rtol=1e-10)


def test_positions_shifted_by_a_number_are_a_rotation_of_the_positions():
    """PE(pos + k) is a linear function of PE(pos), the same for every pos."""
    table = sinusoidal_positions(40, 16).double()
    for shift in (1, 7):
        rates = 10000.0 ** (-torch.arange(0, 16, 2, dtype=torch.float64) / 16)
        sin, cos = (shift * rates).sin(), (shift * rates).cos()
        even, odd = table[:-shift, 0::2], table[:-shift, 1::2]
        turned = torch.stack([even * cos + odd * sin, odd * cos - even * sin], dim=2).flatten(1)
        torch.testing.assert_close(turned, table[shift:], atol=1e-6, rtol=0)


def test_targets_read_piece_by_piece_with_a_memory_have_the_logits_of_one_pass():
    network, memory = transformer(), Memory()
    sources, targets = SOURCES[:2], ([2, 12, 13, 14], [2, 15, 16, 17])
    with torch.no_grad():
        whole = network(batch(*sources), batch(*targets)).view(2, 4, -1)
        source = network.encode(batch(*sources))
        for step in range(4):
            now = network.decode(batch(*[row[step : step + 1] for row in targets]), source, memory=memory)
            torch.testing.assert_close(now, whole[:, step])
    assert set(source.kept) == {"1.key", "1.value", "2.key", "2.value"}
    swapped = source.of_rows([1, 0, 1])
    assert swapped.lengths == (3, 5, 3)
    with torch.no_grad():
        again = network.decode(batch([15], [12], [15]), swapped, memory=Memory())
        alone = network.decode(batch([15]), network.encode(batch(sources[1])), memory=Memory())
    torch.testing.assert_close(again[2:], alone)


@pytest.mark.parametrize("positions", ["sinusoidal", "absolute", "none"])
def test_parameters_are_counted_as_they_are_built(positions):
    network = transformer(position_embedding_type=positions)
    assert sum(parameter.numel() for parameter in network.parameters()) == network.config.num_parameters()
