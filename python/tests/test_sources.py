"""Loaders and settings, without a daemon."""

import datetime
import gzip
import json
import sys
import types

import numpy as np
import forebay as fb
import pytest
from forebay import _sources
from forebay._messages import types as wire


def tasks(dataset, id_field="id", weight=None):
    return list(_sources.tasks(dataset, id_field, weight))


def test_ids_come_from_the_field_or_from_the_content():
    named, hashed, same, other = tasks([{"id": 7, "q": 1}, {"q": 1, "r": 2}, {"r": 2, "q": 1}, {"q": 2}])
    assert named.external_id == "7" and json.loads(named.payload) == {"id": 7, "q": 1}
    assert hashed.external_id == same.external_id != other.external_id
    assert [t.external_id for t in tasks([{"uid": "a"}], id_field="uid")] == ["a"]


def test_values_that_json_does_not_know():
    item = {"a": np.float32(0.5), "b": np.arange(3), "c": b"x", "d": datetime.date(2026, 1, 2), "e": (1, 2)}
    (task,) = tasks([item])
    assert json.loads(task.payload) == {"a": 0.5, "b": [0, 1, 2], "c": "x", "d": "2026-01-02", "e": [1, 2]}
    with pytest.raises(TypeError, match="object"):
        tasks([{"a": object()}])
    assert tasks([b"raw"])[0].payload == b"raw"


def test_one_task_is_no_data_set():
    for one in ({"q": 1}, b"raw"):
        with pytest.raises(TypeError, match="a data set is a list of tasks or a path, not one"):
            tasks(one)


def test_weights():
    assert [t.weight for t in tasks([{"w": 2}, {"w": 0}], weight="w")] == [2.0, 0.0]
    assert [t.weight for t in tasks([{"w": 2}], weight=lambda item: item["w"] / 4)] == [0.5]
    assert tasks([{}])[0].weight is None


def test_files(tmp_path):
    items = [{"q": "é"}, {"q": "b"}]
    lines = "\n".join(json.dumps(item) for item in items)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "a.json").write_text(json.dumps(items))
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(lines)
    for name in ("a.jsonl", "a.json", "a.jsonl.gz"):
        assert list(_sources.items(str(tmp_path / name))) == items
        assert list(_sources.items(tmp_path / name)) == items
    (tmp_path / "mark.jsonl").write_text(lines, encoding="utf-8-sig")
    assert list(_sources.items(tmp_path / "mark.jsonl")) == items
    (tmp_path / "bad.jsonl").write_text('{"q": 1}\n{"q": \n')
    with pytest.raises(ValueError, match=r"bad.jsonl:2"):
        list(_sources.items(tmp_path / "bad.jsonl"))
    with pytest.raises(ValueError, match="a.csv"):
        list(_sources.items("a.csv"))


def test_parquet_is_read_in_batches(monkeypatch):
    class ParquetFile:
        def __init__(self, path):
            assert path == "a.parquet"

        def iter_batches(self):
            for rows in ([{"q": 1}], [{"q": 2}, {"q": 3}]):
                yield types.SimpleNamespace(to_pylist=lambda rows=rows: rows)

    fake = types.ModuleType("pyarrow.parquet")
    fake.ParquetFile = ParquetFile
    package = types.ModuleType("pyarrow")
    package.parquet = fake
    monkeypatch.setitem(sys.modules, "pyarrow", package)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", fake)
    assert list(_sources.items("a.parquet")) == [{"q": 1}, {"q": 2}, {"q": 3}]


def test_requests_are_bounded_by_count_and_bytes():
    small = tasks([{"id": i} for i in range(10_000)])
    assert [len(b) for b in _sources.batches(small)] == [4096, 4096, 1808]
    large = tasks([{"id": i, "text": "x" * 500_000} for i in range(9)])
    sizes = [sum(len(t.payload) for t in b) for b in _sources.batches(large)]
    assert sum(len(b) for b in _sources.batches(large)) == 9 and max(sizes) < 3 << 20


@pytest.mark.parametrize(
    "task, match",
    [
        ({"id": "long", "text": "x" * 1_048_600}, r"tasks\[2\].payload: of task 'long' has 10486[0-9]+ bytes, at most 1048576"),
        ({"id": "i" * 257}, r"tasks\[2\].external_id: 'iii.*' has 257 bytes, must be 1 to 256"),
        ({"id": ""}, r"tasks\[2\].external_id: '' has 0 bytes"),
        ({"id": "nan", "w": float("nan")}, r"tasks\[2\].weight: of task 'nan' is nan, must be finite"),
        ({"id": "negative", "w": -1}, r"tasks\[2\].weight: of task 'negative' is -1.0, must be finite and at least 0"),
    ],
)
def test_a_task_that_would_fail_its_whole_request_is_refused_by_name(task, match):
    all_tasks = tasks([{"id": 0}, {"id": 1}, task, {"id": 3}], weight=lambda item: item.get("w", 1))
    with pytest.raises(fb.InvalidRequest, match=match):
        list(_sources.batches(all_tasks))


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"sampling": {"temperature": float("nan")}}, "sampling: "),
        ({"sampling": '{"temperature": NaN}'}, "sampling: NaN is no JSON"),
        ({"sampling": "{temp: 1}"}, "sampling: "),
        ({"sampling": [1]}, r"sampling: \[1\] is no JSON object"),
        ({"sampling": {"stop": "x" * 65_536}}, "sampling: has 65548 bytes, at most 65536"),
        ({"required_columns": [f"c{i}" for i in range(65)]}, "required_columns: has 65 entries, at most 64"),
        ({"rewards": {f"r{i}": 1.0 for i in range(9)}}, "rewards: has 9 entries, at most 8"),
    ],
)
def test_settings_beyond_the_limits_are_refused_by_name(settings, match):
    with pytest.raises(ValueError, match=match):
        _sources.settings("math", settings)


def test_sampling_is_given_as_a_dict_or_as_text_and_can_be_taken_away():
    for given, held in (({"n": 1}, '{"n": 1}'), ('{"n": 1}', '{"n": 1}'), ("", "")):
        assert _sources.settings("math", {"sampling": given}).sampling_json == held


def test_settings_by_keyword():
    made = _sources.settings(
        "math",
        {
            "group_size": 8,
            "sampling": {"temperature": 0.5},
            "purpose": "eval",
            "late": "mask_old_tokens",
            "reward_timeout_s": 1.5,
            "complete_at": 6,
            "complete_minimum": 2,
            "keep_equal_rewards": True,
            "max_lag": 0,
        },
    )
    assert (made.name, made.group_size, made.purpose, made.late) == ("math", 8, 2, wire.LATE_MASK_OLD_TOKENS)
    assert (made.reward_timeout_ms, made.sampling_json, made.max_lag) == (1500, '{"temperature": 0.5}', 0)
    assert (made.completeness.at_least, made.completeness.minimum) == (6, 2)
    changed = _sources.settings("math", {"complete_minimum": 3}, made)
    assert (changed.completeness.at_least, changed.completeness.minimum) == (6, 3)
    assert changed.group_size == 8 and made.completeness.minimum == 2
