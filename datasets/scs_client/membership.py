"""Cache node discovery: a static list in the settings, or a Kubernetes Service's EndpointSlices."""

from collections.abc import Sequence

from datasets.scs_client.cache_nodes import Membership, StaticMembership, parse


def open_membership(urls: Sequence[str]) -> Membership:
    """Create the node source: ``kubernetes://namespace/service[:port name]`` alone, or a list of URLs for ``parse``."""
    if len(urls) == 1 and urls[0].startswith("kubernetes://"):
        namespace, _, rest = urls[0].removeprefix("kubernetes://").partition("/")
        service, _, port = rest.partition(":")
        if not namespace or not service or "/" in service:
            raise ValueError(f"write kubernetes://namespace/service, not {urls[0]!r}")
        from datasets.scs_client.endpoint_slices import EndpointSlices  # runners have a list, and need no API client

        return EndpointSlices(namespace, service, port=port)
    return StaticMembership(parse(text) for text in urls)
