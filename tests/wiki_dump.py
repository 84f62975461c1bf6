"""A small MediaWiki dump, page by page."""

import html

PROSE = "The river Ouse rises in the hills & runs for 40 miles <ref>Map</ref> to the sea. It floods in spring."


SITEINFO = """  <siteinfo>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="10" case="first-letter">Template</namespace>
    </namespaces>
  </siteinfo>
"""


def page(number: int, title: str, text: str, namespace: int = 0, redirect: str = "") -> str:
    target = f'    <redirect title="{redirect}" />\n' if redirect else ""
    return (
        f"  <page>\n    <title>{title}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n{target}"
        f"    <revision>\n      <id>{number + 100}</id>\n"
        f'      <text xml:space="preserve">{html.escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def pages() -> list[str]:
    articles = [page(n, f"River {n}", f"{PROSE}\n\n== Course ==\nIt passes {n} mills and a weir.") for n in range(1, 8)]
    return [
        *articles,
        page(20, "Template engine", PROSE),  # wikiextractor alone loses this one
        page(21, "Ouse", "#REDIRECT [[River 1]]", redirect="River 1"),
        page(22, "Template:Map", "map of {{{1}}}", namespace=10),
        page(23, "Blank", "{{stub}}"),
    ]


def xml(siteinfo: str = SITEINFO, content: list[str] | None = None) -> str:
    body = "".join(pages() if content is None else content)
    return f'<mediawiki version="0.10" xml:lang="en">\n{siteinfo}{body}</mediawiki>\n'
