"""References in addresses of the page: a model or a dataset, also one that another project shares: ``team-a/brake``."""

from werkzeug.routing import BaseConverter


class PageReferenceConverter(BaseConverter):
    """Name, version, tag, id or digest, after a project and a slash or not."""

    part_isolating = False
    weight = 200
    regex = r"(?:[a-z0-9-]{1,40}/)?[^/]{1,300}"
