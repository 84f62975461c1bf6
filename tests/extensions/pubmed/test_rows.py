"""The rows that data/download.py names as strings are there."""

from data import download


def test_each_download_of_an_extension_is_there() -> None:
    assert all(isinstance(download.DOWNLOADS[name], download.Download) for name in download.DOWNLOADS)
    assert download.DOWNLOADS.keys() <= download.READERS.keys()
