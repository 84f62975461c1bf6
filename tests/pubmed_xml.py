"""Files as NLM publishes them, with invented articles."""

import gzip
from pathlib import Path

HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January '
    '2026//EN" "https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_260101.dtd">\n'
)
DEFAULT = "<AbstractText>Moss grows on stones.</AbstractText>"


def record(
    pmid: int, abstract: str | None = DEFAULT, version: int = 1, language: str = "eng", title: str = "T."
) -> str:
    """A record; abstract: the content of its element, or None to have none."""
    body = (
        "" if abstract is None else f"<Abstract>{abstract}<CopyrightInformation>(c)</CopyrightInformation></Abstract>"
    )
    return (
        f'<PubmedArticle>\n <MedlineCitation Status="MEDLINE" Owner="NLM">\n  <PMID Version="{version}">{pmid}</PMID>\n'
        f"<Article PubModel='Print'><ArticleTitle>{title}</ArticleTitle>{body}<Language>{language}</Language></Article>"
        '<OtherAbstract Type="Publisher" Language="spa"><AbstractText>Otro.</AbstractText></OtherAbstract>'
        f'<CommentsCorrectionsList><CommentsCorrections RefType="Cites"><PMID Version="1">{pmid + 1}</PMID>'
        "</CommentsCorrections></CommentsCorrectionsList>\n  </MedlineCitation>\n"
        '  <PubmedData><ReferenceList><Reference><ArticleIdList><ArticleId IdType="pubmed">5</ArticleId>'
        "</ArticleIdList></Reference></ReferenceList></PubmedData>\n</PubmedArticle>\n"
    )


def deletion(*pmids: int) -> str:
    return "<DeleteCitation>" + "".join(f'<PMID Version="1">{pmid}</PMID>\n' for pmid in pmids) + "</DeleteCitation>\n"


def xml(*content: str) -> str:
    return f"{HEAD}<PubmedArticleSet>\n{''.join(content)}</PubmedArticleSet>\n"


def write(path: Path, *content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = xml(*content).encode()
    path.write_bytes(gzip.compress(body, mtime=0) if path.suffix == ".gz" else body)
    return path
