"""The line of the program that an operation was called from."""

import sys

from guest.trace.source import line_outside


def test_the_frames_of_a_package_are_left_out_wherever_it_lies(tmp_path, monkeypatch):
    (tmp_path / "somewhere").mkdir()
    (tmp_path / "somewhere" / "__init__.py").write_text("def call(function):\n    return function()\n")
    monkeypatch.syspath_prepend(tmp_path)
    import somewhere

    sys.modules.pop("somewhere")
    monkeypatch.setitem(sys.modules, "somewhere", somewhere)  # until this test ends

    def look(*packages):
        return somewhere.call(lambda: line_outside(sys._getframe(1), packages))

    source, text = look("somewhere", "not_imported")
    assert "test_source.py:" in source
    assert text == "return somewhere.call(lambda: line_outside(sys._getframe(1), packages))"
    assert look()[1] == "return function()"


def test_where_there_is_no_line_outside_two_empty_texts_are_given():
    assert line_outside(None, ()) == ("", "")
