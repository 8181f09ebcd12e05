"""The clipped policy gradient of GRPO on one packed micro-batch."""

import torch


def token_logprobs(model, mb):
    """Log-probability of each token of the micro-batch under `model` [tokens].

    A sequence's first token has no prediction; what stands there is meaningless and must be masked,
    as prompts are.
    """
    tokens = mb.tokens.long()
    logits = model(tokens, mb.position_ids.long(), mb.cu_seqlens.long())
    predicted = logits[:-1].log_softmax(-1).gather(-1, tokens[1:, None])[:, 0]
    return torch.cat((predicted.new_zeros(1), predicted))


def pg_sum(model, mb, clip_low=0.2, clip_high=0.28):
    """Sum of the loss over the micro-batch's loss tokens; divide it by the mini-batch's total.

    The ratio is taken against the engine's own logprobs, which corrects for the rollout's lag. It
    is clipped as in PPO (1707.06347), with the wider upper bound of DAPO (2503.14476).
    """
    lengths = (mb.cu_seqlens[1:] - mb.cu_seqlens[:-1]).long()
    advantages = torch.repeat_interleave(mb.advantages, lengths)
    mask = mb.loss_mask.bool()
    ratio = torch.where(mask, token_logprobs(model, mb) - mb.logprobs, torch.zeros(())).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio * advantages, clipped * advantages)[mask].sum()
