"""What lies between fields and which mark is for decimals: taken where one reading is possible."""

from __future__ import annotations

import gzip

import pytest

from pyro_sparse.data.files import read_table


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "t.csv",
            "a;b\n1,5;2\n-3,25;4\n",
            r"read with ; between fields and , for decimals; sep= and dec",
        ),
        ("t.csv", "a;b\n1.5;2\n-3.25;4\n", "read with ; between fields; sep= says otherwise"),
        ("t.csv", "a;b (m, s)\n1,5;2\n-3,25;4\n", "read with ; between fields and , for decimals"),
        ("t.csv", "a\tb\n1.5\t2\n-3.25\t4\n", "read with tabs between fields"),
        ("t.csv", "a|b\n1.5|2\n-3.25|4\n", r"read with \| between fields"),
        ("t.tsv", "a\tb\n1,5\t2\n-3,25\t4\n", "read with , for decimals; decimal= says otherwise"),
        ("t.txt", "a,b\n1.5,2\n-3.25,4\n", "read with , between fields"),
        ("t.txt", "a b\n1.5  2\n-3.25 4\n", "read with spaces between fields"),
        ("t.txt", '"a" "b"\n"1" 1.5 2\n"2" -3.25 4\n', "read with spaces between fields"),
        ("t.csv", "a;b\n1,500;2\n-0,25;4\n", None),
    ],
)
def test_one_reading_is_taken_and_said(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.warns(UserWarning, match=said):
        frame = read_table(tmp_path / name)
    assert frame.iloc[0].tolist() == [1.5, 2.0]
    assert list(frame.columns)[0] == "a" and frame.iloc[1, 1] == 4.0


@pytest.mark.parametrize(
    ("cells", "value", "said"),
    [
        (["1.234,5", "12,25"], 1234.5, r", for decimals and \. for thousands"),
        (["1,234.5", "12.25"], 1234.5, r"; between fields and , for thousands"),
    ],
)
def test_marks_of_thousands(tmp_path, cells, value, said):
    (tmp_path / "t.csv").write_text("a;b\n" + "".join(f"{cell};1\n" for cell in cells))
    with pytest.warns(UserWarning, match=said):
        assert read_table(tmp_path / "t.csv")["a"].tolist() == [value, 12.25]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a;b\n1,234;2,500\n3,100;1,000\n", "holds numbers such as '1,234'.*decimal=',' or thousands=','"),
        ("a;b\n1,5;2.5\n", r"with commas and with points \('1,5', '2.5'\).*decimal=',' or decimal='.'"),
        ("a,x;b;c\n1;2;3\n4;5\n", "looks separated by ';', and not all rows.*sep=';'"),
        ("a,b;c;d\n1,5;2,5;3\n", None),
    ],
)
def test_what_can_be_read_in_two_ways_is_asked(tmp_path, text, words):
    (tmp_path / "t.csv").write_text(text)
    if words is None:  # a comma in a name, and semicolons throughout
        with pytest.warns(UserWarning, match="; between fields"):
            assert read_table(tmp_path / "t.csv").shape == (1, 3)
        return
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "t.csv")


def test_what_the_caller_says_is_not_guessed_and_not_said(tmp_path):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a;b\n1,234;2,500\n"))
    assert read_table(path, sep=";", decimal=",").iloc[0].tolist() == [1.234, 2.5]
    assert read_table(path, sep=";", thousands=",").iloc[0].tolist() == [1234.0, 2500.0]
    (tmp_path / "t.txt").write_text("a,b\n1,2\n")
    assert read_table(tmp_path / "t.txt", sep=",").shape == (1, 2)
    with pytest.raises(ValueError, match="sep: ';' does not divide the first line.*give sep=','"):
        read_table(tmp_path / "t.txt", sep=";")
    (tmp_path / "t.csv").write_text("a\tb\n1\t2\n")
    for tab in ("tab", "\\t", "\t", "space"):
        assert read_table(tmp_path / "t.csv", sep=tab).shape == (1, 2)
    (tmp_path / "q.csv").write_text('a,b\n"1,5",2\n')
    assert read_table(tmp_path / "q.csv", decimal=",").iloc[0].tolist() == [1.5, 2.0]


def test_points_in_a_table_with_commas_for_decimals(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1.5;2\n2.5;1\n")
    with pytest.raises(ValueError, match=r"say decimal='\.'"):
        read_table(tmp_path / "t.csv", sep=";", decimal=",")
