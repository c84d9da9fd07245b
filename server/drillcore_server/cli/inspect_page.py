"""The picture of an output as one HTML file: no script, no address of another file, light and dark."""

from __future__ import annotations

from html import escape

from drillcore_server.cli.inspect_picture import Bar, Diagram, Picture

_STYLE = """
:root {
  color-scheme: light dark;
  --text: light-dark(#1b242c, #e4e9ee); --dim: light-dark(#55636f, #9fb0be); --ground: light-dark(#ffffff, #12181d);
  --line: light-dark(#cfd7de, #34424e); --accent: light-dark(#0b5cad, #7ab8f5);
}
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: var(--ground); color: var(--text);
  font: 1rem/1.45 system-ui, sans-serif; }
h1 { font-size: 1.25rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { color: var(--dim); font-weight: 600; white-space: nowrap; }
td { overflow-wrap: anywhere; }
.figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bar { width: 60%; vertical-align: middle; }
.bar div { height: .9rem; border-radius: .15rem; background: var(--accent); }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page_of(picture: Picture) -> str:
    """A whole HTML document; everything that a file or a person named is escaped."""
    facts = "".join(f"<tr><th scope=row>{escape(name)}<td>{escape(value)}\n" for name, value in picture.facts)
    diagrams = "".join(map(_section, picture.diagrams))
    title = escape(picture.title)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} - drillcore</title>\n<style>{_STYLE}</style>\n"
        f"<h1>{title}</h1>\n<table>\n{facts}</table>\n{diagrams}</html>\n"
    )


def _section(diagram: Diagram) -> str:
    label, *values = diagram.heads
    heads = f"<th scope=col>{escape(label)}" + "".join(f'<th scope=col class="figure">{escape(v)}' for v in values)
    rows = "".join(map(_row, diagram.bars))
    return f"<h2>{escape(diagram.title)}</h2>\n<table>\n<tr>{heads}<td>\n{rows}</table>\n"


def _row(bar: Bar) -> str:
    figures = "".join(f'<td class="figure">{escape(value)}' for value in bar.values)
    width = f"width: {100 * bar.share:.1f}%"
    return f'<tr><th scope=row>{escape(bar.label)}{figures}<td class="bar"><div style="{width}"></div>\n'
