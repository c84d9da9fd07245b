"""Stop strings: found wherever a text is cut into pieces, and never told in part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drillcore_server.api.generated_text import GeneratedText, StopStrings

TEXT = st.text("ab", max_size=30)
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(pieces=st.lists(TEXT, max_size=10), stops=STOPS, include=st.booleans())
def test_a_text_ends_at_its_first_stop_string_however_it_comes(pieces, stops, include):
    finder, told = StopStrings(stops, include=include), []
    for piece in pieces:
        told.append(finder.add(piece))
        if finder.found is not None:
            break
    told.append(finder.flush())
    text = "".join(pieces)
    seen = "".join(pieces[: len(told) - 1])

    found = min((seen.find(stop) for stop in stops if stop in seen), default=-1)
    if found < 0:
        assert finder.found is None
        assert "".join(told) == text
    else:
        assert seen.startswith(finder.found, found)
        assert "".join(told) == seen[: found + len(finder.found) * include]


@given(pieces=st.lists(TEXT, max_size=10), stops=STOPS)
def test_what_is_told_is_never_taken_back(pieces, stops):
    finder, told = StopStrings(stops, include=False), ""
    for piece in pieces:
        told += finder.add(piece)
        assert not any(told.endswith(stop) for stop in stops)
        if finder.found is not None:
            return


class Letters:
    """A stream whose token i is the i-th letter."""

    def add(self, token_id: int) -> str:
        return chr(97 + token_id)


def test_the_text_of_a_stop_id_is_no_part_of_the_answer():
    text = GeneratedText(Letters(), StopStrings((), include=False), frozenset({2}))

    assert [text.add(token_id) for token_id in (0, 1, 2)] == ["a", "b", ""]
    assert (text.is_stopped, text.stop_token_id, text.stop_reason) == (True, 2, None)
