"""Scripts: thin, one for each table or figure, plus ``quickstart`` and ``run``."""
