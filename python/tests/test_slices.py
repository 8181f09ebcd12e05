"""Parts of micro-batches against the real daemon: what each rank of a mesh gets, held against numpy's indexing."""

import forebay as fb
import numpy as np
import pytest
from forebay._messages import trainer as wire
from forebay._micro_batch import put_messages
from forebay._slice import split_columns

LAYERS, EXPERTS = 6, 4


def fill(run, groups=3, group_size=4):
    """Groups of rollouts of several lengths whose routes lack the last token's row."""
    run.load("math", [{"id": f"task-{i}"} for i in range(20)], group_size=group_size, order="static", max_lag=100)
    rng = np.random.default_rng(7)
    with run.sync.actor("env", sources=["math"], slots=1) as actor:
        for count, a in enumerate(actor, 1):
            tokens = int(rng.integers(6, 90))
            routes = rng.integers(0, 512, (tokens - 1, LAYERS, EXPERTS)).astype(np.int16)
            with a:
                a.push(
                    fb.Rollout(
                        rng.integers(1, 1000, tokens, np.uint32),
                        prompt_tokens=5,
                        logprobs=rng.standard_normal(tokens).astype(np.float32),
                        routed_experts=routes,
                        entropy=fb.Column(rng.standard_normal(tokens - 5).astype(np.float32), domain="response_token"),
                    ),
                    reward=a.attempt % 2,
                )
            if count == groups * group_size:
                break


def trainer(run, **options):
    options = {"groups": 3, "token_budget": 256, "pad_multiple": 8, **options}
    return run.trainer(**options)


def fetched(run, **options):
    """The micro-batches of the one step, which stays open for the next rank."""
    t = trainer(run, **options)
    t.__enter__()
    (step,) = t.steps(1)
    return list(step)


def shifted(mb, values):
    out = np.zeros_like(values)
    for begin, end in zip(mb.cu_seqlens, mb.cu_seqlens[1:]):
        out[begin : end - 1] = values[begin + 1 : end]
    return out


def bf16(values):
    """Rounded by arithmetic: half an ulp away at most, ties to even."""
    ulp = np.exp2(np.floor(np.log2(np.abs(values.astype(np.float64)))) - 7)
    return (np.round(values / ulp) * ulp).astype(np.float32)


def test_stages_and_experts_get_their_part_of_each_row(run):
    fill(run)
    whole = fetched(run, columns=["tokens", "logprobs", "routed_experts"])
    stage = fetched(
        run,
        columns={
            "tokens": fb.Slice(dtype="int64"),
            "logprobs": fb.Slice(dtype="bfloat16"),
            "routed_experts": fb.Slice(inner=[[range(0, 1), slice(3, 5)], range(1, 4)], dtype="int32"),
        },
    )
    for mb, part in zip(whole, stage):
        np.testing.assert_array_equal(part.cu_seqlens, mb.cu_seqlens)
        assert part.tokens.dtype == np.int64 and part["routed_experts"].dtype == np.int32
        np.testing.assert_array_equal(part.tokens, mb.tokens)
        np.testing.assert_array_equal(part["routed_experts"], mb["routed_experts"][:, [0, 3, 4], 1:4])
        assert (mb["routed_experts"][mb.cu_seqlens[1:] - 1] == -1).all()
        n = mb.num_tokens
        assert part.dtypes["logprobs"] == "bfloat16"
        np.testing.assert_array_equal(
            (part.logprobs[:n].astype(np.uint32) << 16).view(np.float32), bf16(mb.logprobs[:n])
        )
        assert part.nbytes == mb.padded_tokens * (8 + 2 + 3 * 3 * 4)


@pytest.mark.parametrize("order", ["contiguous", "zigzag", "zigzag_sequences"])
@pytest.mark.parametrize("cp", [1, 2, 4])
def test_context_peers_hold_every_token_once(run, order, cp):
    fill(run)
    whole = fetched(run, columns=["tokens", "loss_mask", "entropy"], mask_alignment="predicting")
    shares = [
        fetched(
            run,
            columns={"tokens": None, "labels": fb.Slice(of="tokens", shifted=True), "loss_mask": None, "entropy": None},
            mask_alignment="predicting",
            context=fb.Context(cp, rank, order),
        )
        for rank in range(cp)
    ]
    for index, mb in enumerate(whole):
        labels = shifted(mb, mb.tokens)
        seen = np.zeros(mb.num_tokens, int)
        for rank in range(cp):
            share = shares[rank][index]
            assert share.is_share and share.whole_padded_tokens == mb.padded_tokens
            np.testing.assert_array_equal(share.whole_cu_seqlens, mb.cu_seqlens)
            at = share.token_indexes
            assert len(at) == len(share.tokens) == share.padded_tokens
            real = at >= 0
            np.add.at(seen, at[real], 1)
            for values, own in ((mb.tokens, share.tokens), (labels, share["labels"]), (mb.loss_mask, share.loss_mask)):
                np.testing.assert_array_equal(own[real], values[at[real]])
                assert not own[~real].any()
            np.testing.assert_array_equal(share.position_ids[real], mb.position_ids[at[real]])
            np.testing.assert_array_equal(share.rollout_ids, mb.rollout_ids)
            for i in range(len(mb)):
                rows = share.token_indexes[share.cu_seqlens[i] : share.cu_seqlens[i + 1]]
                rows = rows[rows >= 0]
                np.testing.assert_array_equal(share.sequence("tokens", i)[: len(rows)], mb.tokens[rows])
                response = rows[rows - mb.cu_seqlens[i] >= mb.prompt_tokens[i]] - mb.cu_seqlens[i] - mb.prompt_tokens[i]
                np.testing.assert_array_equal(share.sequence("entropy", i), mb.sequence("entropy", i)[response])
            with pytest.raises(ValueError, match="share"):
                put_messages(share, {"old_logprobs": share.tokens}, 1, 1, 0)
        assert (seen == 1).all()
        if order == "zigzag_sequences":
            assert len({tuple(shares[rank][index].cu_seqlens) for rank in range(cp)}) == 1
        else:
            chunks = np.split(np.arange(mb.padded_tokens), cp if order == "contiguous" else 2 * cp)
            for rank in range(cp):
                taken = chunks[rank] if order == "contiguous" else np.append(chunks[rank], chunks[2 * cp - 1 - rank])
                expected = np.where(taken < mb.num_tokens, taken, -1)
                np.testing.assert_array_equal(shares[rank][index].token_indexes, expected)


def test_columns_that_were_put_are_cut_like_others(run):
    fill(run)
    with trainer(run, columns=["tokens"]) as t:
        (step,) = t.steps(1)
        for mb in step:
            step.put(mb, old_logprobs=mb.tokens.astype(np.float32) / 8)
        for rank in range(2):
            shares = fetched(
                run, columns={"tokens": None, "old_logprobs": fb.Slice(dtype="bfloat16")}, context=fb.Context(2, rank)
            )
            for share in shares:
                old = (share["old_logprobs"].astype(np.uint32) << 16).view(np.float32)
                real = share.tokens > 0
                np.testing.assert_array_equal(old[real], bf16(share.tokens[real].astype(np.float32) / 8))


def test_fillers_are_empty_whatever_is_taken_of_them(run):
    fill(run, groups=1, group_size=2)
    batches = []
    for rank in range(3):
        options = {"columns": {"tokens": None, "routed_experts": fb.Slice(inner=[range(2)])}, "context": fb.Context(2, 1)}
        batches += fetched(run, groups=1, mesh=fb.Mesh(dp=3, dp_rank=rank), **options)
    assert any(mb.is_filler for mb in batches)
    for mb in batches:
        assert mb.is_filler == (len(mb.token_indexes) == 0) == (len(mb["routed_experts"]) == 0)


def test_what_is_not_there_is_refused_by_name(run):
    fill(run)

    def refused(match, **options):
        with pytest.raises(fb.InvalidRequest, match=match):
            fetched(run, **options)

    refused(r"dimensions\[0\].ranges\[0\]: 4 to 7, must be a range within 0 to 6",
            columns={"routed_experts": fb.Slice(inner=[range(4, 7)])})
    refused("no conversion from DTYPE_I16 to DTYPE_U8", columns={"routed_experts": fb.Slice(dtype="uint8")})
    refused("context.size: 3, but", columns=["tokens"], context=fb.Context(3, 0, "zigzag"))
    refused("'entropy': alignment", columns={"entropy": fb.Slice(shifted=True)})


@pytest.mark.parametrize(
    "columns, match",
    [
        ({"a": 3}, r"columns\['a'\] is 3"),
        ({"a": fb.Slice(dtype="int3")}, r"columns\['a'\].dtype is 'int3'"),
        ({"a": fb.Slice(inner=[range(4, 2)])}, r"inner\[0\] has range\(4, 2\)"),
        ({"a": fb.Slice(inner=[None, [slice(2, None)]])}, r"inner\[1\] has slice\(2, None, None\)"),
        ({"a": fb.Slice(inner=[range(0, 8, 2)])}, r"inner\[0\] has range\(0, 8, 2\)"),
        ({"a": fb.Slice(inner=[[]])}, r"inner\[0\] has no range"),
        ({"a": fb.Slice(inner=[[7]])}, r"inner\[0\] has 7"),
    ],
)
def test_slices_that_say_nothing_are_refused_at_once(columns, match):
    with pytest.raises(ValueError, match=match):
        split_columns(columns)


def test_contexts_that_say_nothing_are_refused_at_once():
    for context, match in (
        (fb.Context(2, 2), "context.rank is 2"),
        (fb.Context(2, 0, "spiral"), "context.order is 'spiral'"),
        (fb.Context(2, 0, pad_multiple=0), "context.pad_multiple is 0"),
    ):
        with pytest.raises(ValueError, match=match):
            context.message()
    assert fb.Context(2, 1, "zigzag").message().order == wire.CONTEXT_ORDER_ZIGZAG
