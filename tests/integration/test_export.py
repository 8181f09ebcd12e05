"""buffer-ctl export: what lands in the file is what was pushed, as readers of the formats see it."""

import base64
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
BIN = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "build" / "release" / "bin"))
os.environ.setdefault("FOREBAY_BUFFERD", str(BIN / "bufferd"))

import forebay as fb  # noqa: E402

TIMEOUT_S = 60 * int(os.environ.get("FOREBAY_SLOWNESS", "1"))
GROUP = 2


def rollout(number, tokens=50, prompt=20):
    """One whose columns follow from its number."""
    rng = np.random.default_rng(number)
    logprobs = -rng.random(tokens, np.float32)
    if number == 1:
        logprobs[prompt + 3] = np.nan
    columns = {
        "routed_experts": rng.integers(-1, 8, (tokens, 3, 2), np.int16),
        "odd": rng.integers(0, 255, (tokens, 3), np.uint8),
        "wide": rng.random((tokens, 1)),
        "text": f"answer {number}: \u00e9\n",
        "picture": bytes(range(256)) * (1 + number),
    }
    ids = rng.integers(0, 1 << 31, tokens, np.uint32)
    return fb.Rollout(ids, prompt_tokens=prompt, logprobs=logprobs, **columns), ids, logprobs, columns


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with fb.start(storage__directory=str(tmp_path_factory.mktemp("run"))) as started:
        started.load("math", [{"id": f"task-{i}"} for i in range(4)], group_size=GROUP)
        started.load("other", [{"id": "alone"}], group_size=GROUP)
        with started.sync.actor("test", sources=["math"]) as it:
            for number in range(4):
                with it.next(timeout=TIMEOUT_S) as a:
                    a.push(rollout(number)[0], reward=number / 4)
        with started.sync.actor("test", sources=["other"]) as it:
            with it.next(timeout=TIMEOUT_S) as a:
                a.push(rollout(9)[0], reward=1.0)
        yield started


def ctl(run, *words, code=0):
    command = [str(BIN / "buffer-ctl"), "--address", run.target, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def number_of(about):
    return int(about["reward"] * 4)


def test_a_line_of_json_has_everything_that_was_pushed(run, tmp_path):
    path = tmp_path / "out.jsonl"
    said = ctl(run, "export", "-s", "math", "-O", path)
    assert "4 rollouts" in said
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted(number_of(line) for line in lines) == [0, 1, 2, 3]
    for line in lines:
        number = number_of(line)
        _, ids, logprobs, columns = rollout(number)
        assert line["source"] == "math" and line["external_id"].startswith("task-")
        assert line["rewards"] == {"reward": number / 4}
        assert line["sequences"][0]["prompt_tokens"] == 20
        got = line["columns"]
        assert got["tokens"]["values"] == ids.tolist()
        assert got["tokens"]["dtype"] == "u32" and got["tokens"]["shape"] == [50]
        assert [None if np.isnan(x) else x for x in logprobs.tolist()] == [
            x if x is None else float(np.float32(x)) for x in got["logprobs"]["values"]
        ]
        experts = np.array(got["routed_experts"]["values"], np.int16).reshape(got["routed_experts"]["shape"])
        np.testing.assert_array_equal(experts, columns["routed_experts"])
        assert got["wide"]["values"] == columns["wide"].ravel().tolist()
        assert got["text"]["text"] == columns["text"]
        assert base64.b64decode(got["picture"]["base64"]) == columns["picture"]


def test_safetensors_are_read_by_the_library_of_that_name(run, tmp_path):
    path = tmp_path / "out.safetensors"
    ctl(run, "export", "-s", "math", "--format", "safetensors", "-O", path)
    with safe_open(str(path), "numpy") as file:
        about = {name: json.loads(text) for name, text in file.metadata().items()}
        assert sorted(map(number_of, about.values())) == [0, 1, 2, 3]
        assert len(list(file.keys())) == 4 * 8
        for name, one in about.items():
            assert one["rollout_id"] == name
            _, ids, logprobs, columns = rollout(number_of(one))
            np.testing.assert_array_equal(file.get_tensor(f"{name}/tokens"), ids)
            np.testing.assert_array_equal(file.get_tensor(f"{name}/logprobs"), logprobs)
            for column in ("routed_experts", "odd", "wide"):
                tensor = file.get_tensor(f"{name}/{column}")
                assert tensor.dtype == columns[column].dtype
                np.testing.assert_array_equal(tensor, columns[column])
            assert file.get_tensor(f"{name}/text").tobytes() == columns["text"].encode()
            assert one["columns"]["text"]["domain"] == "blob"


def test_tensors_lie_aligned_and_without_gaps(run, tmp_path):
    path = tmp_path / "out.safetensors"
    ctl(run, "export", "--format", "safetensors", "-O", path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    del header["__metadata__"]
    width = {"F64": 8, "F32": 4, "U32": 4, "I16": 2, "U8": 1}
    end = 0
    assert (8 + size) % 8 == 0
    for tensor in header.values():
        begin, after = tensor["data_offsets"]
        bytes_of_value = width[tensor["dtype"]]
        assert begin == end and begin % bytes_of_value == 0
        assert after - begin == bytes_of_value * int(np.prod(tensor["shape"]))
        end = after
    assert len(content) == 8 + size + end


def test_only_what_was_chosen_is_exported(run, tmp_path):
    path = tmp_path / "some.jsonl"
    ctl(run, "export", "-s", "math", "--reward", ">=0.25,<0.75", "-O", path)
    assert len(path.read_text().splitlines()) == 2
    ctl(run, "export", "--flag", "nan", "-O", path, "--force")
    (line,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert number_of(line) == 1 and line["flags"] == ["nan"]
    said = json.loads(ctl(run, "export", "--limit", 3, "-O", path, "--force", "-o", "json"))
    assert said["rollouts"] == 3
    ctl(run, "export", "-s", "math", "--reward", ">5", "-O", path, "--force")
    assert path.read_text() == ""


def test_a_file_that_is_there_stays_and_a_failure_leaves_nothing(run, tmp_path):
    path = tmp_path / "there"
    path.write_text("mine")
    assert "--force" in ctl(run, "export", "-O", path, code=1)
    assert path.read_text() == "mine"
    assert "'nowhere' is not a source" in ctl(run, "export", "-s", "nowhere", "-O", tmp_path / "new", code=1)
    assert "cannot create a file beside" in ctl(run, "export", "-O", tmp_path / "no" / "folder", code=1)
    assert "--format" in ctl(run, "export", "--format", "csv", "-O", tmp_path / "new", code=2)
    assert "--out" in ctl(run, "export", code=2)
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
