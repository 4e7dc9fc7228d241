"""Metrics server: the metrics of several executors on a single page."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from server.metrics_server import MergedCollector
from workers.executors.kubernetes.metrics import ClusterMetrics


def test_a_metric_family_of_two_executors_is_exposed_once_with_the_samples_of_both() -> None:
    east, west = ClusterMetrics("east"), ClusterMetrics("west")
    east.observe_call("GET", "200", 0.01)
    west.observe_call("GET", "500", 0.5)
    registry = CollectorRegistry()
    registry.register(MergedCollector([east.registry, west.registry]))
    page = generate_latest(registry).decode()
    assert page.count("# TYPE windtunnel_cluster_calls_total") == 1
    (calls,) = [family for family in text_string_to_metric_families(page) if family.name == "windtunnel_cluster_calls"]
    labels = {
        (sample.labels["context"], sample.labels["outcome"])
        for sample in calls.samples
        if sample.name.endswith("_total")
    }
    assert labels == {("east", "200"), ("west", "500")}
