"""Metrics that a running platform serves: those of the reference page, which rules and dashboard use."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from scripts import metrics_page
from tests.ports import free_ports
from tests.system.conftest import StartPlatform

SECTIONS = metrics_page.sections()


def families(url: str) -> dict[str, tuple[str, set[str]]]:
    """Return the type and the labels of each metric family that is served at an address, by the reference's name."""
    text = httpx.get(f"{url}/metrics", timeout=30.0, trust_env=False).raise_for_status().text
    served = {}
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue  # the client library adds the time of each counter's start
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        served[f"{family.name}_total" if family.type == "counter" else family.name] = (family.type, labels)
    return served


def test_every_role_serves_the_metrics_of_the_reference_with_their_types_and_labels(
    start_platform: StartPlatform,
) -> None:
    dispatch_port, jobs_port = free_ports(2)
    platform = start_platform(metrics_port=dispatch_port, jobs_metrics_port=jobs_port)
    platform.run(dataset="noop", runtime="python", scenarios={"range": [0, 3]})
    ports = (platform.port, dispatch_port, None, jobs_port, platform.scs_port)  # None: there is no cluster here
    for port, (role, rows) in zip(ports, SECTIONS.items(), strict=True):
        if port is None:
            continue
        url = f"http://127.0.0.1:{port}"
        expected = {name: (kind, set(labels)) for name, kind, labels, _ in rows}
        assert families(url).keys() == expected.keys(), role
        for name, (kind, labels) in families(url).items():
            assert kind == expected[name][0], name
            assert labels in (set(), expected[name][1]), name  # without samples there are no labels
