"""How results look: in a terminal (verdicts, tables, figures) and as one HTML file (html, charts)."""
