"""The codec against the protobuf library, on the contract's own messages."""

import pathlib
import random
import subprocess
import sys

import pytest
from forebay import _wire
from forebay._messages import actor, admin, cluster, drift, trainer, types
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ROOT = pathlib.Path(__file__).parents[2]
MODULES = [types, actor, trainer, drift, admin, cluster]
CLASSES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, _wire.Message) and value.__module__ == module.__name__
]


@pytest.fixture(scope="module")
def protobuf(tmp_path_factory):
    """The protobuf library's classes by name."""
    out = tmp_path_factory.mktemp("proto") / "descriptors"
    # What nodes say to each other, and to operators, no Python client says.
    apart = {"peer.proto", "operator.proto"}
    files = sorted(path for path in (ROOT / "proto" / "forebay" / "v1").glob("*.proto") if path.name not in apart)
    command = ["protoc", f"-I{ROOT / 'proto'}", f"--descriptor_set_out={out}", "--include_imports"]
    subprocess.run([*command, *map(str, files)], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(file)
    get = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    found = {}
    for file in files:
        for message in file.message_type:
            found[message.name] = get(pool.FindMessageTypeByName(f"forebay.v1.{message.name}"))
            for nested in message.nested_type:
                if not nested.options.map_entry:
                    name = f"forebay.v1.{message.name}.{nested.name}"
                    found[nested.name] = get(pool.FindMessageTypeByName(name))
    return found


def scalar(rng, kind):
    wide = rng.choice([1, 7, 8, 31, 32])
    return {
        "bool": lambda: rng.random() < 0.5,
        "string": lambda: "".join(rng.choices("aé0/ ", k=rng.choice([0, 3, 200]))),
        "bytes": lambda: rng.randbytes(rng.choice([0, 1, 300])),
        "double": lambda: rng.choice([0.0, -0.0, 1.5, -2e300, float("inf")]),
        "float": lambda: rng.choice([0.0, 0.5, -1024.0]),
        "int32": lambda: rng.choice([0, 1, 5]),
        "fixed64": lambda: rng.getrandbits(2 * wide),
        "uint64": lambda: rng.getrandbits(2 * wide),
        "fixed32": lambda: rng.getrandbits(wide),
        "uint32": lambda: rng.getrandbits(wide),
    }[kind]()


def random_message(rng, cls, depth=0):
    fields = {}
    for field in cls.FIELDS:
        if rng.random() < 0.3:
            continue
        count = rng.choice([0, 1, 3])
        if field.kind == "map":
            fields[field.name] = {f"key{i}": scalar(rng, field.map_value) for i in range(count)}
        elif field.kind == "message":
            if depth < 3:
                of = field.message()
                items = [random_message(rng, of, depth + 1) for _ in range(count if field.repeated else 1)]
                fields[field.name] = items if field.repeated else items[0]
        elif field.repeated:
            fields[field.name] = [scalar(rng, field.kind) for _ in range(count)]
        else:
            fields[field.name] = scalar(rng, field.kind)
    return cls(**fields)


def test_every_message_has_its_counterpart(protobuf):
    assert {cls.__name__ for cls in CLASSES} == set(protobuf)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_encodings_are_those_of_protobuf(protobuf, cls):
    rng = random.Random(cls.__name__)
    for _ in range(30):
        ours = random_message(rng, cls)
        body = ours.encode()
        theirs = protobuf[cls.__name__].FromString(body)
        assert theirs.SerializeToString(deterministic=True) == body
        assert cls.decode(body).encode() == body
        assert {field.name for field, _ in theirs.ListFields()} == set(cls.decode(body).__dict__)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_cut_and_changed_bytes_are_refused_or_read_never_crash(cls):
    rng = random.Random(cls.__name__)
    body = random_message(rng, cls).encode()
    for _ in range(200):
        changed = bytearray(body[: rng.randrange(len(body) + 1)])
        for _ in range(rng.choice([0, 1, 3])):
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            cls.decode(bytes(changed))
        except _wire.WireError:
            continue


def test_unknown_fields_are_skipped_and_the_last_scalar_wins():
    body = types.PolicyVersion(number=3).encode() + b"\x18\x09" + b"\xa2\x06\x02hi" + b"\xa8\x06\x05"
    assert types.PolicyVersion.decode(body).number == 9


def test_a_repeated_scalar_is_read_packed_and_unpacked():
    assert list(actor.RenewRequest.decode(b"\x20\x05\x20\x06\x22\x02\x07\x08").generated_tokens) == [5, 6, 7, 8]


def test_views_do_not_copy():
    body = bytearray(trainer.FetchFrame(id=1, data=b"abcd").encode())
    frame = trainer.FetchFrame.decode(body, views=True)
    body[-1:] = b"X"
    assert bytes(frame.data) == b"abcX"


def test_a_length_past_the_end_is_refused():
    with pytest.raises(_wire.WireError):
        actor.OpenSessionRequest.decode(b"\x12\x7fab")
    with pytest.raises(_wire.WireError):
        actor.AcquireRequest.decode(b"\x2a\x03\x18\x80\x80\x01")  # the inner message ends within its varint


def test_generated_tables_are_what_the_contract_says():
    command = [sys.executable, str(ROOT / "tools" / "gen_python_messages.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
