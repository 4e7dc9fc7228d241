"""Addresses of the page with the project that they are in: each link, form and stream of a document names it.

So what a browser asks for by itself, as a download or an event stream, is in the project of its page, a tab stays in
its own, and an address that is sent to another member opens there.
"""

import re

#: Attributes of a document that have an address of this server, or of a query of the same page.
_ADDRESS = re.compile(
    r'([ \n](?:href|src|action|formaction|left|right|sse-connect|hx-get|hx-post)="|content="[0-9.]+; url=)'
    r'(https?://[^"/?#]+)?([/?][^"]*)"'
)
_FORM = re.compile(r"<form\b[^>]*>")
#: What is in no project.
_OUTSIDE = re.compile(r"/(?:static/|docs|sign-in|sign-out|invitation|device|metrics|favicon)|//")
_NAMED_PROJECT = re.compile(r"[?&;]project=")


def in_project(address: str, project: str, separator: str = "&") -> str:
    """Return an address of this server with the project that it is in, unless it names one, or is in none."""
    if _OUTSIDE.match(address) or _NAMED_PROJECT.search(address):
        return address
    path, number_sign, fragment = address.partition("#")
    return f"{path}{separator if '?' in path else '?'}project={project}{number_sign}{fragment}"


def document_in_project(document: str, project: str, host: str) -> str:
    """Return a document whose addresses name their project; ``host``: the origin of this server, as in whole addresses.

    A form with the method GET replaces the query of its address, so it has a field of the name.
    """

    def address(match: re.Match[str]) -> str:
        name, origin, path = match.groups()
        if origin not in (None, host):
            return match[0]
        return f'{name}{origin or ""}{in_project(path, project, "&amp;")}"'

    def form(match: re.Match[str]) -> str:
        if 'method="post"' in match[0]:
            return match[0]
        return f'{match[0]}<input type="hidden" name="project" value="{project}">'

    pieces, end = [], 0
    for form_tag in _FORM.finditer(document):
        pieces += [_ADDRESS.sub(address, document[end : form_tag.start()])]
        sent = 'method="post"' in form_tag[0]
        pieces += [_ADDRESS.sub(address, form_tag[0]) if sent else form(form_tag)]
        end = form_tag.end()
    return "".join([*pieces, _ADDRESS.sub(address, document[end:])])
