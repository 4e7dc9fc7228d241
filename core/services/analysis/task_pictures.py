"""Pictures that tasks have left: an artifact that is checked by its content before a page shows it."""

from dataclasses import replace

from common.downloads import Download
from common.errors import NotAcceptable
from core.domain.results.picture_kinds import HEADER, SVG, has_entities, picture_problem, read_picture


def as_picture(artifact: Download) -> Download:
    """Return an artifact with the media type of its content. Raise NotAcceptable if no page may show it."""
    picture = read_picture(b"".join(artifact.read(0, min(artifact.size, HEADER))))
    problem = picture_problem(picture, artifact.size)
    if picture is None or problem is not None:
        raise NotAcceptable(f"This artifact is not shown as a picture: {problem}. GET .../artifacts has its bytes.")
    if picture.media_type == SVG and has_entities(b"".join(artifact.read(0, artifact.size))):
        raise NotAcceptable("This artifact is not shown as a picture: it declares entities, which pages do not expand.")
    return replace(artifact, media_type=picture.media_type)
