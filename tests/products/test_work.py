"""Counted products against those that PyTorch's own counter sees."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertsmith.models.checkpoints.architectures import new_encoder, require_architecture
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import BertConfig
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.products.work import PASSES, Work, forward_work
from bertsmith.training.planning.memory import bare_model

LENGTHS = np.array([8, 8, 12, 5])


def model_of(architecture: str) -> EncoderForPreTraining:
    config = require_architecture(architecture).config
    shape = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = config(**shape, intermediate_size=48, **config.dropout_changes(0.0))
    if architecture == "modernbert":
        config = dataclasses.replace(config, local_attention=256)
    return EncoderForPreTraining(new_encoder(config))


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta", "albert", "electra", "modernbert"])
def test_the_work_of_a_step_is_what_pytorch_counts(architecture):
    model = model_of(architecture)
    ids = np.full(LENGTHS.sum(), 7)
    batch = Batch.from_flat(ids, 0 * ids, LENGTHS)
    starts = np.cumsum(LENGTHS) - LENGTHS
    read = Read.at(batch, np.sort(np.concatenate([starts + 1, starts + 3])))
    with FlopCounterMode(display=False) as counter:
        masked = torch.arange(len(read.positions))
        # With a trace, attention is plain products; the counter does not know the fused kernel of the CPU.
        trace = Trace(with_attentions=True)
        model(batch, read=read, masked=masked, trace=trace).mlm_logits.sum().backward()
    work = forward_work(model.encoder, model.mlm, LENGTHS, np.asarray(read.counts), len(masked))
    assert PASSES * work.total == counter.get_total_flops()


def test_the_work_of_bert_is_that_of_the_published_formula():
    """2 (4 D^2 + 2 D I) + 4 D s per token and layer, and 2 (D^2 + D V) per prediction."""
    config, length, rows, share = BertConfig.named("base"), 128, 4, 0.15
    model = bare_model(config)
    tokens, predictions = rows * length, int(rows * length * share)
    everything = np.full(rows, length)
    work = forward_work(model.encoder, model.mlm, everything, everything, predictions)
    width, inner = 768, 3072
    assert work.layers == tokens * 12 * 2 * (4 * width**2 + 2 * width * inner)
    assert work.attention == tokens * 12 * 4 * width * length
    assert work.head == predictions * 2 * (width**2 + width * 30522)
    # What is not read in the last layer is not computed.
    pruned = forward_work(model.encoder, model.mlm, everything, np.full(rows, 19), predictions)
    unread = tokens - rows * 19
    assert work.layers - pruned.layers == unread * 2 * (2 * width**2 + 2 * width * inner)
    assert work.attention - pruned.attention == unread * 4 * width * length


def test_a_window_limits_what_attention_computes():
    config = require_architecture("modernbert").config
    shape = {"vocab_size": 90, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    encoder = bare_model(config(**shape, intermediate_size=48, local_attention=8)).encoder
    lengths = np.array([100])
    work = forward_work(encoder, None, lengths, lengths, 0)
    assert work == Work(layers=work.layers, attention=4 * 32 * (100 * 100 + 100 * 9), head=0)


def test_an_encoder_without_attention_is_not_counted():
    encoder = bare_model(require_architecture("awd-lstm").config(vocab_size=90)).encoder
    assert forward_work(encoder, None, LENGTHS, LENGTHS, 0) is None
    assert (Work(layers=2.0, head=1.0) + Work(attention=3.0)).times(2).total == 12
