"""The files in deploy/, as far as they can be checked without hosts to deploy to."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
BIN = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "build" / "release" / "bin"))
TIMEOUT_S = 60 * int(os.environ.get("FOREBAY_SLOWNESS", "1"))


@pytest.fixture(scope="module")
def entries():
    """What bufferd calls its entries."""
    said = subprocess.run([BIN / "bufferd", "--help"], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    names = set(re.findall(r"^\s*--([\w.]+)=", said.stdout, re.MULTILINE))
    assert {"cluster.node", "shards"} <= names
    return names


def documents():
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


def daemon():
    sets = {d["metadata"]["name"]: d for _, d in documents() if d["kind"] == "StatefulSet"}
    return sets["forebay"], sets["forebay"]["spec"]["template"]["spec"]["containers"][0]


def flatten(tree, prefix=""):
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def test_every_document_is_of_a_kind_and_has_a_name():
    kinds = [d["kind"] for _, d in documents()]
    assert kinds.count("StatefulSet") == 2
    assert {"Service", "PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim"} <= set(kinds)
    for path, document in documents():
        assert document["apiVersion"] and document["metadata"]["name"], path


def test_every_flag_in_the_manifests_is_an_entry(entries):
    flags = dict(re.findall(r"--([\w.]+)=(\S*)", daemon()[1]["args"][0]))
    assert len(flags) > 10
    assert set(flags) <= entries


def test_the_daemon_takes_the_manifests_flags_as_they_are():
    """Up to where it needs etcd: all that can be wrong in a command line is refused before."""
    script = daemon()[1]["args"][0]
    words = script.replace("exec bufferd", f"exec {BIN / 'bufferd'}") + " --version"
    pod = {"POD": "forebay-2", "PATH": os.environ["PATH"]}
    done = subprocess.run(["/bin/sh", "-c", words], env=pod, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bufferd ")


def test_names_and_ports_in_the_manifests_fit_together():
    stateful, container = daemon()
    services = {d["metadata"]["name"]: d for _, d in documents() if d["kind"] == "Service"}
    for name, port in (("forebay", "7411"), ("forebay-etcd", "2379")):
        assert int(port) in [p["port"] for p in services[name]["spec"]["ports"]]
        assert services[name]["spec"]["clusterIP"] == "None"
    assert stateful["spec"]["serviceName"] == "forebay"
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    flags = dict(re.findall(r"--([\w.]+)=(\S*)", container["args"][0]))
    assert flags["listen.grpc"].endswith(f":{ports['grpc']}")
    assert flags["listen.http"].endswith(f":{ports['http']}")
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
    mounts = [m["mountPath"] for m in container["volumeMounts"]]
    for entry in ("storage.directory", "storage.segment_directory"):
        assert any(flags[entry].startswith(mount + "/") for mount in mounts)
    claims = [d["metadata"]["name"] for _, d in documents() if d["kind"] == "PersistentVolumeClaim"]
    assert stateful["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] in claims


def test_the_units_configuration_is_one_that_the_daemon_reads(entries):
    path = DEPLOY / "systemd" / "node-1.yaml"
    names = [name for name, _ in flatten(yaml.safe_load(path.read_text()))]
    assert set(names) <= entries
    done = subprocess.run([BIN / "bufferd", "--config", path, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    """Where there is a systemd to ask; everywhere the unit's sections and the program's words are looked at."""
    unit = (DEPLOY / "systemd" / "bufferd@.service").read_text()
    assert re.findall(r"^\[(\w+)\]$", unit, re.MULTILINE) == ["Unit", "Service", "Install"]
    assert re.search(r"^ExecStart=/usr/bin/bufferd --config /etc/forebay/%i\.yaml$", unit, re.MULTILINE)
    if shutil.which("systemd-analyze") is None:
        return
    # The program is where it was built, and the user is one that there is.
    unit = unit.replace("/usr/bin/bufferd", str(BIN / "bufferd"))
    path = tmp_path / "bufferd@node.service"
    path.write_text(unit.replace("User=forebay", "User=daemon").replace("Group=forebay", "Group=daemon"))
    done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=TIMEOUT_S)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "bufferd" in line]
    assert not about, about
