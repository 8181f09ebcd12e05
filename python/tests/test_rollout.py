"""Rollouts: what they become on the wire, and what is refused by name."""

import forebay as fb
import numpy as np
import pytest
from forebay._messages import types as wire
from forebay._push import Outgoing

TOKENS = np.arange(10, dtype=np.uint32)
MASK = np.ones(10, np.uint8)
LONG = np.zeros(200_000, np.uint32)
RING = {}
RING["again"] = [RING]
MASKED = np.ma.masked_less(np.arange(10, dtype=np.float32), 2)


def turns(*spans):
    return fb.Rollout(TOKENS, prompt_tokens=4, turns=spans)


def encoded(rollout, **options):
    header, parts = rollout._encode(**options)
    return wire.RolloutHeader.decode(header.encode()), b"".join(parts)


def test_large_columns_are_sent_last():
    large, larger = np.ones((10, 3, 8), np.uint8), np.full((10, 4, 8), 2, np.uint8)
    rollout = fb.Rollout(
        TOKENS, prompt_tokens=4, larger=larger, routed_experts=large, wide=np.zeros(10, np.float64)
    )
    header, payload = encoded(rollout)
    names = [c.name for c in header.columns]
    assert names == ["tokens", "loss_mask", "wide", "routed_experts", "larger"]
    assert payload.endswith(large.tobytes() + larger.tobytes())


def test_header_and_payload_of_one_sequence():
    rollout = fb.Rollout(
        TOKENS,
        prompt_tokens=4,
        logprobs=np.full(6, -0.5),
        versions=[(0, 7), (6, 8, 2)],
        rewards={"format": 1},
        status="truncated",
        extra={"note": "x"},
        duration_s=1.5,
    )
    header, payload = encoded(rollout, branch=1, rewards={"reward": 0.5})
    (sequence,) = header.sequences
    assert (sequence.tokens, sequence.prompt_tokens, sequence.loss_tokens) == (10, 4, 6)
    runs = [(r.offset, r.branch, r.number, r.loss_tokens) for r in sequence.versions]
    assert runs == [(0, 1, 7, 2), (6, 2, 8, 4)]
    assert [(c.name, c.dtype, c.domain, c.bytes) for c in header.columns] == [
        ("tokens", wire.DTYPE_U32, wire.DOMAIN_TOKEN, 40),
        ("loss_mask", wire.DTYPE_U8, wire.DOMAIN_TOKEN, 10),
        ("logprobs", wire.DTYPE_F32, wire.DOMAIN_TOKEN, 40),
    ]
    assert header.rewards == {"format": 1.0, "reward": 0.5}
    assert (header.status, header.duration_ms, header.extra_json) == (2, 1500, '{"note": "x"}')
    mask = np.array([0] * 4 + [1] * 6, np.uint8)
    logprobs = np.array([0] * 4 + [-0.5] * 6, np.float32)
    assert payload == TOKENS.tobytes() + mask.tobytes() + logprobs.tobytes()


def test_arrays_that_fit_are_not_copied():
    logprobs = np.zeros(10, np.float32)
    mask = np.ones(10, np.uint8)
    _, parts = fb.Rollout(TOKENS, loss_mask=mask, logprobs=logprobs)._encode()
    assert parts[0] is TOKENS and parts[1] is mask and parts[2] is logprobs


def test_several_sequences_stand_one_after_another_in_each_column():
    def sequence(first, text):
        return fb.Sequence(TOKENS[first:], prompt_tokens=2, text=text, advantage=0.25)

    header, payload = encoded(fb.Rollout(sequences=[sequence(0, "one"), sequence(5, "three")]))
    assert [s.tokens for s in header.sequences] == [10, 5]
    assert [s.advantage for s in header.sequences] == [0.25, 0.25]
    text = header.columns[2]
    assert (text.domain, list(text.sequence_bytes)) == (wire.DOMAIN_BLOB, [3, 5])
    assert payload.startswith(TOKENS.tobytes() + TOKENS[5:].tobytes())
    assert payload.endswith(b"onethree")


def test_domains_are_told_from_the_rows():
    rollout = fb.Rollout(
        TOKENS,
        prompt_tokens=4,
        per_token=np.zeros((10, 2), np.float16),
        per_response=np.zeros(6, np.int64),
        routed_experts=np.zeros((9, 3, 2), np.int16),
        score=1.5,
        ids=fb.Ragged(np.arange(20, dtype=np.int32), np.arange(0, 22, 2)),
        weights=fb.Column(np.zeros(10, np.uint16), dtype="bfloat16"),
        vector=fb.Column(np.zeros(10, np.float32), domain="sequence"),
    )
    header, payload = encoded(rollout)
    columns = {c.name: (c.dtype, c.domain, tuple(c.inner), c.bytes) for c in header.columns[2:]}
    assert columns == {
        "per_token": (wire.DTYPE_F16, wire.DOMAIN_TOKEN, (2,), 40),
        "per_response": (wire.DTYPE_I64, wire.DOMAIN_RESPONSE_TOKEN, (), 48),
        "routed_experts": (wire.DTYPE_I16, wire.DOMAIN_TOKEN_BUT_LAST, (3, 2), 108),
        "score": (wire.DTYPE_F32, wire.DOMAIN_SEQUENCE, (), 4),
        "ids": (wire.DTYPE_I32, wire.DOMAIN_RAGGED, (), 4 * 11 + 4 * 20),
        "weights": (wire.DTYPE_BF16, wire.DOMAIN_TOKEN, (), 20),
        "vector": (wire.DTYPE_F32, wire.DOMAIN_SEQUENCE, (10,), 40),
    }
    assert {c.name: c.missing for c in header.columns if c.missing} == {"routed_experts": -1.0}
    assert len(payload) == sum(c.bytes for c in header.columns)


def test_versions_per_token_become_runs():
    versions = np.array([-1, -1, 3, 3, 4, -1, -1, 4, 5, 5])
    header, _ = encoded(fb.Rollout(TOKENS, prompt_tokens=2, versions=versions))
    assert [(r.offset, r.number) for r in header.sequences[0].versions] == [(0, 3), (4, 4), (8, 5)]
    assert sum(r.loss_tokens for r in header.sequences[0].versions) == 8


def test_any_layout_in_memory_becomes_the_same_bytes():
    rows = np.arange(60, dtype=np.float32).reshape(10, 6)
    layouts = [np.asfortranarray(rows), rows.astype(">f4"), np.repeat(rows, 2, axis=1)[:, ::2], rows[::-1][::-1]]
    for array in layouts:
        _, payload = encoded(fb.Rollout(TOKENS, prompt_tokens=4, x=array))
        assert payload[50:] == rows.tobytes()
    _, payload = encoded(fb.Rollout(TOKENS, prompt_tokens=4, x=memoryview(b"a-b-c-")[::2]))
    assert payload[50:] == b"abc"


@pytest.mark.parametrize(
    "field, make",
    [
        ("sequences[0].tokens", lambda: fb.Rollout([], prompt_tokens=0)),
        ("sequences[0].prompt_tokens", lambda: fb.Rollout(TOKENS, prompt_tokens=11)),
        ("columns[1]", lambda: fb.Rollout(TOKENS)),
        ("columns[1].bytes", lambda: fb.Rollout(TOKENS, loss_mask=np.ones(9, np.uint8))),
        ("columns[1].dtype", lambda: fb.Rollout(TOKENS, loss_mask=np.full(10, 0.5))),
        ("columns[0].dtype", lambda: fb.Rollout(np.array([1.0]), prompt_tokens=0)),
        ("columns[0].dtype", lambda: fb.Rollout(np.array([-1]), prompt_tokens=0)),
        ("columns[2].bytes", lambda: fb.Rollout(TOKENS, prompt_tokens=4, logprobs=np.zeros(7, np.float32))),
        ("columns[2].dtype", lambda: fb.Rollout(TOKENS, prompt_tokens=4, logprobs=np.zeros(10, np.int32))),
        ("columns[2].dtype", lambda: fb.Rollout(TOKENS, prompt_tokens=4, values=np.zeros(10, np.float16))),
        ("columns[2].inner", lambda: fb.Rollout(TOKENS, prompt_tokens=4, routed_experts=np.zeros(10, np.int16))),
        ("columns[2].domain", lambda: fb.Rollout(TOKENS, prompt_tokens=4, values=np.zeros(6, np.float32))),
        ("columns[2].name", lambda: fb.Rollout(TOKENS, prompt_tokens=4, **{"a-b": 1})),
        ("columns[2].dtype", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=np.zeros(10, np.complex64))),
        ("status", lambda: fb.Rollout(TOKENS, prompt_tokens=4, status="done")),
        ("rewards[reward]", lambda: fb.Rollout(TOKENS, prompt_tokens=4, rewards={"reward": float("nan")})),
        ("rewards[reward]", lambda: fb.Rollout(TOKENS, prompt_tokens=4, rewards={"reward": "good"})),
        ("rewards[reward]", lambda: fb.Rollout(TOKENS, prompt_tokens=4, rewards={"reward": np.ones(2)})),
        ("versions", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions="v1")),
        ("versions", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions=1.5)),
        ("sequences[0].versions[0].offset", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions=[(1, 2)])),
        ("sequences[0].versions[1].offset", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions=[(0, 2), (0, 3)])),
        ("sequences[0].versions[1].offset", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions=[(0, 2), (10, 3)])),
        ("sequences[0].turns[0]", lambda: fb.Rollout(TOKENS, prompt_tokens=4, turns=[fb.Turn(8, 3)])),
        ("sequences[0].advantage", lambda: fb.Rollout(TOKENS, prompt_tokens=4, advantage=float("inf"))),
        ("sequences", lambda: fb.Rollout(sequences=[])),
        ("extra_json", lambda: fb.Rollout(TOKENS, prompt_tokens=4, extra={"x": "y" * 70_000})),
        ("extra_json.a[1].b", lambda: fb.Rollout(TOKENS, prompt_tokens=4, extra={"a": [1, {"b": float("nan")}]})),
        ("extra_json.x", lambda: fb.Rollout(TOKENS, prompt_tokens=4, extra={"x": np.float64("inf")})),
        ("extra_json", lambda: fb.Rollout(TOKENS, prompt_tokens=4, extra={"x": object()})),
        ("extra_json", lambda: fb.Rollout(TOKENS, prompt_tokens=4, extra=RING)),
        ("extra_json", lambda: fb.Rollout(TOKENS, prompt_tokens=4, extra=[1])),
        ("columns", lambda: fb.Rollout(TOKENS, prompt_tokens=4, **{f"c{i}": 1.0 for i in range(255)})),
        ("rewards", lambda: fb.Rollout(TOKENS, prompt_tokens=4, rewards={f"r{i}": 1.0 for i in range(65)})),
        ("rewards", lambda: fb.Rollout(TOKENS, prompt_tokens=4, rewards={"r" * 65: 1.0})),
        ("rewards", lambda: fb.Rollout(TOKENS, prompt_tokens=4, rewards={"\udcff": 1.0})),
        ("rewards[x]", lambda: fb.Rollout(TOKENS, prompt_tokens=4, rewards={"x": -1e13})),
        ("duration_ms", lambda: fb.Rollout(TOKENS, prompt_tokens=4, duration_s=float("nan"))),
        ("duration_ms", lambda: fb.Rollout(TOKENS, prompt_tokens=4, duration_s=-1)),
        ("sequences[0].versions[0].number", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions=-1)),
        ("sequences[0].versions[1].number", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions=[(0, 1), (5, 1 << 32)])),
        ("sequences[0].versions[0].branch", lambda: fb.Rollout(TOKENS, prompt_tokens=4, versions=[(0, 1, -1)])),
        ("sequences[0].versions", lambda: fb.Rollout(LONG, prompt_tokens=4, versions=[(i, i) for i in range(65_537)])),
        ("sequences[0].turns[0]", lambda: fb.Rollout(TOKENS, prompt_tokens=4, turns=[fb.Turn(3, -1)])),
        ("sequences[0].turns[1].logprobs", lambda: turns(fb.Turn(0, 4), fb.Turn(4, 6, logprobs="rough"))),
        ("sequences[0].turns[0].tool_wait_ms", lambda: turns(fb.Turn(0, 4, tool_wait_s=float("inf")))),
        ("columns[2].bytes", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=fb.Ragged([1, 2], np.zeros(11)))),
        ("columns[2].bytes", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=fb.Ragged([1, 2], ["?"] * 11))),
        ("columns[2].bytes", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=fb.Ragged(5, np.zeros(11)))),
        ("columns[2].dtype", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=fb.Ragged([None], np.zeros(11)))),
        ("columns[2].bytes", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=fb.Column(None, domain="blob"))),
        ("columns[2].bytes", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x="\ud800")),
        ("sequences[0].tokens", lambda: fb.Rollout(np.ma.masked_equal(TOKENS, 3), prompt_tokens=4)),
        ("columns[2].dtype", lambda: fb.Rollout(TOKENS, prompt_tokens=4, values=MASKED)),
        ("columns[2].dtype", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=fb.Ragged(MASKED, np.zeros(11)))),
        ("columns[2].bytes", lambda: fb.Rollout(TOKENS, prompt_tokens=4, x=fb.Ragged([1], np.ma.zeros(11)))),
    ],
)
def test_what_is_wrong_is_named(field, make):
    with pytest.raises(fb.InvalidRollout) as caught:
        make()._encode()
    assert caught.value.field == field


@pytest.mark.parametrize(
    "make, match",
    [
        (lambda: turns(*[fb.Turn(0, 1, engine="e" * 1000)] * 1200), "header has 12[0-9]+ bytes, at most 1048576"),
        (lambda: turns(fb.Turn(0, 4, role="\udcff")), "header cannot be encoded: .*surrogates"),
        (lambda: turns(fb.Turn(0, 4, seed=-1)), "header cannot be encoded: seed: -1, must be 0 to"),
    ],
)
def test_a_header_that_the_daemon_cannot_take_is_refused_before_it_shares_a_frame(make, match):
    with pytest.raises(fb.InvalidRollout, match=match) as caught:
        Outgoing(*make()._encode())
    assert caught.value.field == "header"


def test_what_is_at_the_limits_is_taken():
    header, _ = encoded(
        fb.Rollout(
            LONG,
            prompt_tokens=4,
            versions=[(i, i) for i in range(65_536)],
            rewards={f"r{i}": 1e12 for i in range(64)},
            **{f"c{i}": 1.0 for i in range(254)},
        )
    )
    assert (len(header.columns), len(header.rewards), len(header.sequences[0].versions)) == (256, 64, 65_536)


def test_columns_that_differ_between_sequences_are_refused():
    first = fb.Sequence(TOKENS, prompt_tokens=1, x=np.zeros(10, np.float32))
    for other in (
        fb.Sequence(TOKENS, prompt_tokens=1),
        fb.Sequence(TOKENS, prompt_tokens=1, x=np.zeros(10, np.int32)),
        fb.Sequence(TOKENS, prompt_tokens=1, x=np.zeros(10, np.float32), y=1),
    ):
        with pytest.raises(fb.InvalidRollout, match="columns"):
            fb.Rollout(sequences=[first, other])._encode()


# ---- adapters, with objects shaped as the engines' are


class Shape:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def vllm_output(finish_reason="stop", logprobs=True):
    completion = Shape(
        index=0,
        text="four",
        token_ids=(21, 22, 23),
        cumulative_logprob=-1.5,
        logprobs=[{t: Shape(logprob=-0.1 * t, rank=1)} for t in (21, 22, 23)] if logprobs else None,
        finish_reason=finish_reason,
        routed_experts=np.full((4, 2, 3), 9, np.int16),
    )
    return Shape(request_id="r", prompt_token_ids=[11, 12], outputs=[completion], finished=True)


def test_from_vllm():
    header, payload = encoded(fb.Rollout.from_vllm(vllm_output(), versions=[(0, 4)]))
    assert header.status == wire.ROLLOUT_STATUS_FINISHED
    assert (header.sequences[0].tokens, header.sequences[0].prompt_tokens) == (5, 2)
    assert payload[:20] == np.array([11, 12, 21, 22, 23], np.uint32).tobytes()
    names = {c.name: c for c in header.columns}
    assert names["routed_experts"].domain == wire.DOMAIN_TOKEN_BUT_LAST
    assert names["text"].bytes == 4
    logprobs = np.frombuffer(payload[25:45], np.float32)
    np.testing.assert_allclose(logprobs, [0, 0, -2.1, -2.2, -2.3], rtol=1e-6)


def test_from_vllm_takes_a_single_completion_and_its_end():
    out = vllm_output("length", logprobs=False)
    rollout = fb.Rollout.from_vllm(out.outputs[0], prompt_token_ids=out.prompt_token_ids)
    assert rollout.status == "truncated"
    assert "logprobs" not in rollout.sequences[0].columns


def test_from_sglang():
    import base64

    routed = np.arange(4 * 2 * 3, dtype=np.int32).reshape(4, 2, 3)
    out = {
        "text": "four",
        "output_ids": [21, 22, 23],
        "meta_info": {
            "finish_reason": {"type": "length", "length": 3},
            "output_token_logprobs": [(-0.1, 21, None), (-0.2, 22, None), (-0.3, 23, None)],
            "weight_version": "6",
            "routed_experts": base64.b64encode(routed.tobytes()).decode(),
        },
    }
    rollout = fb.Rollout.from_sglang(out, prompt_token_ids=[11, 12], routed_shape=(2, 3))
    header, _ = encoded(rollout)
    assert header.status == wire.ROLLOUT_STATUS_TRUNCATED
    assert [(r.offset, r.number) for r in header.sequences[0].versions] == [(0, 6)]
    np.testing.assert_array_equal(rollout.sequences[0].columns["routed_experts"], routed)
    with pytest.raises(TypeError, match="routed_shape"):
        fb.Rollout.from_sglang(out, prompt_token_ids=[11, 12])


class Tokenizer:
    """One token a character, and one that begins each message."""

    def apply_chat_template(self, messages, tokenize):
        assert tokenize
        return [t for m in messages for t in [1, *map(ord, m["content"])]]


def test_from_messages_trains_what_the_policy_said():
    messages = [
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "4", "token_ids": [2, 52], "logprobs": [-0.5, -0.25]},
        {"role": "tool", "content": "ok"},
        {"role": "assistant", "content": "!"},
    ]
    rollout = fb.Rollout.from_messages(messages, Tokenizer())
    sequence = rollout.sequences[0]
    assert sequence.tokens.tolist() == [1, *map(ord, "2+2"), 2, 52, 1, *map(ord, "ok"), 1, ord("!")]
    assert sequence.loss_mask.tolist() == [0] * 4 + [1, 1] + [0] * 3 + [1, 1]
    assert [(t.offset, t.tokens, t.role) for t in sequence.turns] == [
        (0, 4, "user"),
        (4, 2, "assistant"),
        (6, 3, "tool"),
        (9, 2, "assistant"),
    ]
    assert sequence.prompt_tokens == 4
    assert sequence.columns["logprobs"].array[4:6].tolist() == [-0.5, -0.25]
    with pytest.raises(TypeError, match="tokenizer"):
        fb.Rollout.from_messages(messages)


def test_a_keyword_that_is_nearly_a_known_column_is_taken_for_a_mistake():
    for wrong, meant in (("logprob", "logprobs"), ("old_logprob", "old_logprobs"), ("route_experts", "routed_experts")):
        with pytest.raises(TypeError, match=f"'{wrong}': did you mean '{meant}'"):
            fb.Rollout(TOKENS, prompt_tokens=4, **{wrong: np.zeros(10, np.float32)})
    header, _ = encoded(fb.Rollout(TOKENS, prompt_tokens=4, logprob=fb.Column(np.zeros(10, np.float32)), mask=MASK))
    assert [column.name for column in header.columns] == ["tokens", "loss_mask", "logprob", "mask"]


def test_an_assignments_version_is_a_version():
    header, _ = encoded(fb.Rollout(TOKENS, prompt_tokens=4, versions=fb.Version(7, 2)))
    assert [(run.offset, run.number, run.branch) for run in header.sequences[0].versions] == [(0, 7, 2)]
