"""A run over TLS, over mutual TLS and over a unix socket; and who is refused, with which words."""

import pathlib
import subprocess

import forebay as fb
import numpy as np
import pytest

CERTIFICATES = pathlib.Path(__file__).parents[2] / "tests" / "integration" / "certificates.sh"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    subprocess.run([CERTIFICATES, folder], check=True, timeout=30)
    return folder


def start(made, mutual=False):
    """A private daemon that speaks TLS on its port."""
    more = {"tls__client_ca": made / "ca.pem"} if mutual else {}
    return fb.start(listen__unix="", tls__cert=made / "server.pem", tls__key=made / "server.key", **more)


def push_and_fetch(run):
    run.load("math", [{"id": "a"}, {"id": "b"}], group_size=2, keep_equal_rewards=True)
    pushed = {}
    with run.sync.actor("test", sources=["math"], slots=1) as actor:
        for count, a in enumerate(actor):
            with a:
                size = 20 + count if count < 3 else 1_000_000  # the last goes in several frames
                tokens = np.arange(1000 * count, 1000 * count + size, dtype=np.uint32)
                a.push(fb.Rollout(tokens, prompt_tokens=5, logprobs=np.ones(size, np.float32)), reward=1.0)
                pushed[1000 * count] = tokens
            if count == 3:
                break
    with run.trainer(groups=2, token_budget=16) as t:
        (step,) = t.steps(1)
        for mb in step:
            for i in range(len(mb)):
                tokens = mb.sequence("tokens", i)
                np.testing.assert_array_equal(tokens, pushed.pop(int(tokens[0])))
        step.commit()
    assert not pushed


def test_a_run_over_tls(made):
    with start(made) as daemon, fb.connect(daemon.target, tls=str(made / "ca.pem")) as run:
        push_and_fetch(run)


def test_a_run_over_mutual_tls(made):
    files = {name: str(made / f"{file}") for name, file in [("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key")]}
    with start(made, mutual=True) as daemon, fb.connect(daemon.target, tls=fb.TLS(**files)) as run:
        push_and_fetch(run)


def test_a_run_over_a_unix_socket(run):
    assert run.target.startswith("unix:")
    push_and_fetch(run)


def test_a_wrong_ca_is_refused_and_said_so(made):
    with start(made) as daemon, fb.connect(daemon.target, tls=str(made / "other_ca.pem"), timeout=3) as run:
        with pytest.raises(fb.Unavailable, match="TLS.*certificate"):
            run.sources()


def test_a_client_without_tls_is_refused_and_said_so(made):
    with start(made) as daemon, fb.connect(daemon.target, timeout=3) as run:
        with pytest.raises(fb.Unavailable, match="TLS"):
            run.sources()


def test_tls_to_a_daemon_without_it_is_refused_and_said_so(made):
    with fb.start(listen__unix="") as daemon, fb.connect(daemon.target, tls=str(made / "ca.pem"), timeout=3) as run:
        with pytest.raises(fb.Unavailable, match="does not speak TLS"):
            run.sources()


def test_mutual_tls_refuses_a_client_without_a_certificate(made):
    with start(made, mutual=True) as daemon:
        with fb.connect(daemon.target, tls=str(made / "ca.pem"), timeout=3) as run:
            with pytest.raises(fb.Unavailable, match="client's certificate"):
                run.sources()


def test_a_ca_file_that_holds_none_is_named(made):
    with fb.connect("127.0.0.1:1", tls=str(made / "ca.key"), timeout=3) as run:
        with pytest.raises(ValueError, match="ca.key holds no PEM certificate"):
            run.sources()


def test_a_ca_file_that_is_not_there_is_named(made):
    with fb.connect("127.0.0.1:1", tls=str(made / "no.pem"), timeout=3) as run:
        with pytest.raises(OSError, match="no.pem"):
            run.sources()
