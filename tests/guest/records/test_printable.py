import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.records.printable import is_name, printable, unaccented


def test_letters_of_names_lose_their_marks_and_are_not_lost():
    assert unaccented("Studie über Fäden (1)") == "Studie uber Faden (1)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Intel(R) Xeon, 2.0 GHz – größer 中文 🙂", "Intel(R) Xeon, 2.0 GHz – größer 中文 🙂"),
        ("\x1b[2Jwiped", "?[2Jwiped"),
        ("a\nb\tc\rd", "a?b?c?d"),
        ("\u202eexe.gnp", "?exe.gnp"),
        ("\ud800", "?"),
        ("\x9b31m", "?31m"),
        ("\u2028", "?"),
    ],
)
def test_what_would_not_be_shown_is_a_question_mark(text, shown):
    assert printable(text) == shown


def test_lines_stay_lines_where_that_is_asked_for():
    assert printable("a\n\tb\x07", lines=True) == "a\n\tb?"


@given(st.text(st.characters(), max_size=50), st.integers(1, 20))
def test_it_is_never_longer_than_the_limit_and_can_always_be_written(text, limit):
    shown = printable(text, limit=limit)
    assert len(shown) <= limit
    shown.encode()
    assert printable(shown) == shown


def test_text_that_was_cut_says_so():
    assert printable("abcdef", limit=4) == "abc…"


@pytest.mark.parametrize(
    ("text", "named"), [("w" * 200, True), ("w" * 201, False), ("日" * 67, False), ("\ud800", False)]
)
def test_a_name_leaves_room_in_the_255_bytes_of_a_file_s_name(text, named):
    assert is_name(text) == named
