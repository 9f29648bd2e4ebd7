import io

import pytest

from guest.records import csv_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("100,3\n4,50\n7,9\n", [[100, 3], [4, 50], [7, 9]]),
        ("0,1\n1,0\n0,1\n", [[0, 1], [1, 0], [0, 1]]),
        ("1,100\n2,50\n3,75\n", [100, 50, 75]),
        ("of,score\na,100\nc,50\nb,75\n", [100, 50, 75]),
        ("id,score\n7,100\n2,50\n5,75\n", [100, 50, 75]),
    ],
    ids=["whole scores", "hard scores", "numbers in order", "texts", "below a header"],
)
def test_a_first_column_holds_identifiers_where_it_is_in_order_text_or_below_a_header(text, values):
    assert csv_values.read(io.StringIO(text)).tolist() == values
