"""The files of the page: whole, ours alone, and without a way to make markup out of text."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

PAGE = files("drillcore_status").joinpath("page")
FILES = sorted(entry.name for entry in PAGE.iterdir())
_REFERENCE = re.compile(r"""(?:src|href)="(/[^"]*)"|from "\./([^"]+)\"""")


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_and_everything_that_it_loads_is_served(anybody, path):
    waiting, seen = [path], set()
    while waiting:
        current = waiting.pop()
        answer = anybody.get(current)
        assert answer.status_code == 200, current
        seen.add(current)
        for absolute, module in _REFERENCE.findall(answer.text):
            target = absolute or f"/page/{module}"
            if target not in seen and target != "/openapi.json":
                waiting.append(target)
    assert len(seen) > 4


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_an_address_outside(name):
    text = PAGE.joinpath(name).read_text()
    assert set(re.findall(r"(?:https?:)?//[a-z0-9.]+", text)) <= {"http://www.w3.org"}


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_no_script_makes_markup_out_of_text_or_stores_anything(name):
    text = PAGE.joinpath(name).read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "DOMParser"):
        assert word not in text
    for word in ("localStorage", "sessionStorage", "cookie", "indexedDB"):
        assert word not in text


def test_other_files_cannot_be_named(anybody):
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/app.py", "/page/"):
        assert anybody.get(path).status_code == 404


def test_the_openapi_document_names_every_route_and_its_token(anybody):
    document = anybody.get("/openapi.json").json()
    job = "/v1/namespaces/{namespace}/extractionjobs/{name}"
    routes = {job + suffix for suffix in ("", "/shards", "/events", "/throughput", "/stream", "/progress")}
    assert routes <= document["paths"].keys()
    assert document["paths"][job]["get"]["security"] == [{"HTTPBearer": []}]
    assert "Status" in document["components"]["schemas"]
