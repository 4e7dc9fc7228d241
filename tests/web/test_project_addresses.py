"""Addresses with their project: every link, form and stream of a document names it, and nothing else changes."""

import pytest

from web.project_addresses import document_in_project, in_project

HOST = "http://localhost:5000"


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("/simulations", "/simulations?project=red"),
        ("/simulations?state=failed", "/simulations?state=failed&project=red"),
        ("/simulations#main", "/simulations?project=red#main"),
        ("/simulations?project=blue", "/simulations?project=blue"),
        ("?sort=task", "?sort=task&project=red"),
        ("/static/page.js?v=1", "/static/page.js?v=1"),
        ("/sign-out", "/sign-out"),
        ("/docs", "/docs"),
        ("//elsewhere.example/x", "//elsewhere.example/x"),
    ],
)
def test_an_address_of_a_project_names_it_once(address: str, named: str) -> None:
    assert in_project(address, "red") == named


@pytest.mark.parametrize(
    ("markup", "named"),
    [
        ('<a href="/models/a@1">', '<a href="/models/a@1?project=red">'),
        ('<a href="?sort=task&amp;after=3">', '<a href="?sort=task&amp;after=3&amp;project=red">'),
        ('<a href="#main">', '<a href="#main">'),
        ('<a href="https://elsewhere.example/x">', '<a href="https://elsewhere.example/x">'),
        (f'<a href="{HOST}/simulations/x">', f'<a href="{HOST}/simulations/x?project=red">'),
        ('<div sse-connect="/v1/x/events?after=1">', '<div sse-connect="/v1/x/events?after=1&amp;project=red">'),
        ('<log-view src="/v1/simulations/x/logs">', '<log-view src="/v1/simulations/x/logs?project=red">'),
        ('<x left="/v1/a" right="/v1/b">', '<x left="/v1/a?project=red" right="/v1/b?project=red">'),
        ('<div hx-get="/data" hx-post="/x">', '<div hx-get="/data?project=red" hx-post="/x?project=red">'),
        ('<button formaction="/compare">', '<button formaction="/compare?project=red">'),
        ('<meta content="2; url=/x">', '<meta content="2; url=/x?project=red">'),
        ('<form method="post" action="/x">', '<form method="post" action="/x?project=red">'),
        ('<form action="/x">', '<form action="/x"><input type="hidden" name="project" value="red">'),
        ('<p title="/models">href=&#34;/models&#34;</p>', '<p title="/models">href=&#34;/models&#34;</p>'),
    ],
)  # fmt: skip
def test_an_element_names_the_project_of_its_page(markup: str, named: str) -> None:
    assert document_in_project(f"<p>{markup}</p>", "red", HOST) == f"<p>{named}</p>"
