"""Rows of Parquet files are read whole, in their order, and in bounded memory."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert.core import files, parquet
from bert.core.errors import InputError

pyarrow = pytest.importorskip("pyarrow")
from pyarrow.parquet import ParquetWriter, write_table  # noqa: E402

LARGE = 10_000_000  # characters in a row

READER = """
import sys
from pathlib import Path
from bert.core import parquet
print(sum(len(row["text"]) for row in parquet.read(Path(sys.argv[1]), lambda names: ["text"])))
print(*(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_rows_are_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": "x" * (37 * number % 211), "label": number} for number in range(333)]
    write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=101)
    for size in (1, 200, 1 << 20):
        monkeypatch.setattr(parquet, "BYTES", size)
        assert list(parquet.read(tmp_path / "a.parquet", lambda names: None)) == rows
        assert [row["label"] for row in parquet.read(tmp_path / "a.parquet", lambda names: names[1:])] == [*range(333)]


@pytest.mark.slow
def test_a_small_file_of_large_texts_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["a" * LARGE]})
    with ParquetWriter(path, table.schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(64):
            writer.write_table(table)
    assert path.stat().st_size < LARGE / 50
    done = subprocess.run([sys.executable, "-c", READER, path], capture_output=True, text=True)
    read, most = map(int, done.stdout.split())
    assert read == 64 * LARGE and most < 400_000  # kB; 64 rows at once take 1,300,000


def test_rows_without_measure_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(pyarrow.table({"text": ["ab", "x" * 100_000]}), tmp_path / "a.parquet", row_group_size=1)
    monkeypatch.setattr(files, "MAX_LINE", 50_000)
    read = parquet.read(tmp_path / "a.parquet", lambda names: None)
    assert next(read) == {"text": "ab"}
    with pytest.raises(InputError, match=r"rows after row 1 have .* bytes on average, more than 50,000; divide them"):
        next(read)
