"""The catalogue has what it must of every set: secure addresses, sizes or limits, digests."""

from data.fetch import catalog


def test_the_catalogue_knows_what_it_must() -> None:
    assert len(catalog.SETS) == 2 + 7 + 24
    for found in catalog.SETS.values():
        for file in found.files:
            assert file.url.startswith("https://") and (file.size or file.limit)
            assert all(len(digest) == 64 for digest in file.digests.values())
    base = catalog.SETS["bert-base-uncased"].files[0]
    assert base.size and abs(base.estimate / 2 - base.size) < 0.1 * base.size  # the rule of thumb, where we know
    assert "bert-uncased-L-2_H-128_A-2" in catalog.SETS
