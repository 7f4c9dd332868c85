"""How results look: in a terminal (verdicts, tables) and as one HTML file (html, charts)."""
